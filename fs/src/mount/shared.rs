//! The state of a mount that its operations share, and changes of bytes that are visible through several inodes.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use fuser::{Errno, FileAttr, ReplyAttr, Request, RequestId, WaitingRequests};
use slabfs_mdserver::api::{Attr, Entry, Ino, Kind, MdError, SetAttr, Time, op};
use slabfs_model::ShardId;

use super::hdf5_files::Hdf5Files;
use crate::call;
use crate::client::{Caches, FsError};
use crate::clients::Clients;
use crate::view::hidden::Hidden;
use crate::view::made::Made;
use crate::view::name::has_mark;
use crate::view::nodes::{Node, Nodes, SelectionNode};
use crate::view::selection;

use super::attr::{COUPLED_BLOCK, file_attr};
use super::buffers::Buffers;
use super::calls::Calls;
use super::errno::{Outcome, refused};
use super::families::Families;
use super::handles::Handles;
use super::interrupts::Interrupts;
use super::inval::{Forget, Inval};
use super::open_file::{Closes, Ending, Open};
use super::page_writes::PageWrites;
use super::pages::{Habits, Pages};
use super::pool::Pool;
use super::retained::Retained;
use super::root::{Asked, Root};
use super::searches::Searches;
use super::setid::{SetIds, may_set_ids, without};
use super::viewed::Room;

/// How long the kernel may cache names and attributes while no other client can change them.
const KEEP: Duration = Duration::from_secs(1);

/// Requests that may wait for rights at the same time.
const MOST_WAITING: usize = 8192;

/// The state that all requests share.
pub(super) struct Shared {
    pub(super) this: Weak<Shared>,
    pub(super) client: Arc<Clients>,
    pub(super) nodes: Nodes,
    pub(super) handles: Handles<Open>,
    pub(super) families: Families,
    pub(super) setids: SetIds,
    pub(super) view_room: Room,
    pub(super) buffers: Arc<Buffers>,
    pub(super) pool: Pool,
    /// Threads of requests that may wait for rights or for the kernel to drop pages, and of the kernel's reads of
    /// pages. There may be as many as requests, since a request may wait for another one.
    pub(super) waits: Pool,
    /// Threads of the kernel's writes of pages, which never wait for anything but servers.
    pub(super) writebacks: Pool,
    pub(super) page_writes: Arc<PageWrites>,
    /// Open `.slabfs/call`, and the threads that run these and list searches.
    pub(super) calls: Calls,
    pub(super) inval: Inval,
    pub(super) interrupts: Interrupts,
    /// The requests that are not answered yet, once they are tracked.
    pub(super) unanswered: OnceLock<WaitingRequests>,
    /// The next number of an open file.
    pub(super) next_open: AtomicU64,
    /// The owner of hidden files.
    pub(super) owner: (u32, u32),
    pub(super) mounted: Time,
    pub(super) root: Arc<Root>,
    /// Listings of searches in progress.
    pub(super) searches: Searches,
    /// Threads that open views, which may take long.
    pub(super) openers: Calls,
    /// Files of HDF5 that were laid out.
    pub(super) hdf5: Hdf5Files,
    /// As in the options.
    pub(super) await_names: bool,
    pub(super) pages: Pages,
    /// How objects were read, for the choice of pages.
    pub(super) habits: Habits,
    /// Pages that the kernel may have of files that are not open.
    pub(super) retained: Retained,
    /// Number of refused requests whose log lines are being made (`refusals.rs`).
    pub(super) refused: Arc<AtomicUsize>,
}

/// The sender of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
}

impl Caller {
    /// The sender of a FUSE request.
    pub(super) fn of(request: &Request) -> Caller {
        Caller {
            uid: request.uid(),
            gid: request.gid(),
            pid: request.pid(),
        }
    }

    /// The same with its supplementary groups.
    pub(super) fn with_groups(self) -> call::Caller {
        call::Caller::of_process(self.uid, self.gid, self.pid)
    }
}

/// How long the kernel may use the attributes of a file of a view.
const VIEW_TTL: Duration = Duration::from_secs(1);

/// The attributes of an inode that the kernel is given, and how long it may cache them.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) attr: FileAttr,
    pub(super) attr_ttl: Duration,
    pub(super) name_ttl: Duration,
}

impl Shown {
    /// These attributes under the inode number `number`; the kernel caches nothing.
    fn uncached(number: u64, attr: &Attr) -> Shown {
        Shown {
            attr: file_attr(number, attr),
            attr_ttl: Duration::ZERO,
            name_ttl: Duration::ZERO,
        }
    }

    /// The result of a lookup under this name. A name with `@[` changes its meaning when the file named by the part
    /// before it is created or removed, so the kernel does not cache it.
    pub(super) fn named(mut self, name: &[u8]) -> Shown {
        if has_mark(name) {
            self.name_ttl = Duration::ZERO;
        }
        self
    }
}

impl Shared {
    pub(super) fn new(client: Arc<Clients>, workers: usize) -> Shared {
        let owner = (
            nix::unistd::geteuid().as_raw(),
            nix::unistd::getegid().as_raw(),
        );
        Shared {
            this: Weak::new(),
            client,
            nodes: Nodes::default(),
            handles: Handles::new(),
            families: Families::default(),
            setids: SetIds::default(),
            view_room: Room::default(),
            buffers: Arc::new(Buffers::default()),
            pool: Pool::new("slabfs-worker", workers),
            waits: Pool::unbounded("slabfs-wait", MOST_WAITING),
            writebacks: Pool::unbounded("slabfs-page", workers),
            page_writes: Arc::default(),
            calls: Calls::new(owner.0),
            inval: Inval::new(),
            interrupts: Interrupts::default(),
            unanswered: OnceLock::new(),
            next_open: AtomicU64::new(1),
            owner,
            mounted: Time::now(),
            root: Arc::default(),
            searches: Searches::default(),
            openers: Calls::new(owner.0),
            hdf5: Hdf5Files::default(),
            await_names: false,
            pages: Pages::Auto,
            habits: Habits::default(),
            retained: Retained::default(),
            refused: Arc::default(),
        }
    }

    /// The pool for a request that touches bytes of an object and cannot be answered at once. Once a file was mapped,
    /// the request may have to wait for the kernel (`client/coherence/rights/page_overlap.rs`), which may need a thread.
    pub(super) fn for_bytes(&self) -> &Pool {
        match self.client.strict() || self.families.any_was_mapped() {
            true => &self.waits,
            false => &self.pool,
        }
    }

    /// How long the kernel may cache a name, or its absence.
    pub(super) fn name_ttl(&self) -> Duration {
        if self.client.alone() {
            KEEP
        } else {
            Duration::ZERO
        }
    }

    /// The node of an inode number.
    pub(super) fn node(&self, inode: u64) -> Outcome<Node> {
        match self.nodes.get(inode) {
            Some(node) => Ok(node),
            None => refused(Errno::ESTALE, "the mount has forgotten this inode"),
        }
    }

    /// The object, directory or other inode of the metadata service with this number.
    pub(super) fn plain(&self, inode: u64) -> Outcome<Ino> {
        match self.node(inode)? {
            Node::Plain(ino) => Ok(ino),
            Node::Selection(_) => refused(
                Errno::EINVAL,
                "this works on the object, not on a selection",
            ),
            Node::Hidden(_)
            | Node::Search(_)
            | Node::Found(_)
            | Node::Made(_)
            | Node::Chunks(_) => refused(Errno::EPERM, "nothing under .slabfs can be changed"),
        }
    }

    /// The kernel's view of an inode of the metadata service.
    pub(super) fn shown(&self, entry: &Entry) -> Shown {
        let attr = &entry.attr;
        self.setids.note(attr);
        let name_ttl = self.name_ttl();
        let changing =
            attr.kind == Kind::Object && self.families.written_through_selection(attr.ino);
        let mut shown = file_attr(attr.ino.0, attr);
        let info = entry.info.as_ref();
        if info.is_some_and(|info| info.couple.on().is_some()) {
            shown.blksize = COUPLED_BLOCK;
        }
        Shown {
            attr: shown,
            attr_ttl: if changing { Duration::ZERO } else { name_ttl },
            name_ttl,
        }
    }

    /// The kernel's view of a selection. Nothing is cached: its name depends on another name, that of the object, and
    /// its times on writes to another inode.
    pub(super) fn shown_selection(
        &self,
        number: u64,
        node: &SelectionNode,
        entry: &Entry,
    ) -> Outcome<Shown> {
        self.setids.note(&entry.attr);
        let shape = selection_shape(node, entry)?;
        let attr = selection::attributes(&entry.attr, shape.bytes);
        Ok(Shown::uncached(number, &attr))
    }

    /// The kernel's view of a hidden inode; `repeats` are the attributes of the inode that it mirrors, if any.
    pub(super) fn shown_hidden(
        &self,
        number: u64,
        hidden: Hidden,
        repeats: Option<&Attr>,
    ) -> Shown {
        let kind = match hidden.is_directory() {
            true => Kind::Directory,
            false => Kind::Object,
        };
        let mode = hidden.mode(repeats.map(|attr| attr.mode));
        self.shown_virtual(number, (kind, mode), 0, repeats)
    }

    /// The kernel's view of a file of a view; `of` are the attributes of what it is made of.
    pub(super) fn shown_made(&self, number: u64, made: &Made, of: &Attr) -> Shown {
        let mode = of.mode & 0o444;
        let size = made.content.size();
        let mut shown = self.shown_virtual(number, (Kind::Object, mode), size, Some(of));
        if size > 0 {
            // Each read through pages would ask again. The size does not change any more.
            shown.attr_ttl = VIEW_TTL;
        }
        shown
    }

    /// The kernel's view of an inode that only the mount has, with the owner and the times of the mount or of the inode
    /// that it mirrors.
    pub(super) fn shown_virtual(
        &self,
        number: u64,
        (kind, mode): (Kind, u32),
        size: u64,
        repeats: Option<&Attr>,
    ) -> Shown {
        let attr = Attr {
            ino: slabfs_model::ObjectId(number),
            kind,
            mode,
            nlink: if kind == Kind::Directory { 2 } else { 1 },
            uid: repeats.map_or(self.owner.0, |attr| attr.uid),
            gid: repeats.map_or(self.owner.1, |attr| attr.gid),
            rdev: 0,
            size,
            stored: 0,
            atime: self.mounted,
            mtime: repeats.map_or(self.mounted, |attr| attr.mtime),
            ctime: repeats.map_or(self.mounted, |attr| attr.ctime),
            crtime: self.mounted,
            change: 0,
        };
        Shown::uncached(number, &attr)
    }

    /// The kernel's view of any inode.
    pub(super) fn attributes(&self, inode: u64) -> Outcome<Shown> {
        match self.node(inode)? {
            Node::Plain(ino) => {
                let found = self.client.getattr(ino);
                Ok(self.shown(&self.or_removed(ino, None, found)?))
            }
            Node::Selection(node) => {
                let entry = self.client.getattr(node.object)?;
                self.shown_selection(inode, &node, &entry)
            }
            Node::Search(_) => Ok(self.shown_search(inode)),
            Node::Found(target) => Ok(self.shown_found(inode, &target)),
            Node::Made(made) => {
                let found = self.client.getattr(made.of);
                Ok(self.shown_made(inode, &made, &self.or_removed(made.of, None, found)?.attr))
            }
            Node::Chunks(chunks) => {
                let hidden = Hidden::ZarrArray(chunks.of);
                let repeats = self.client.getattr(chunks.of)?.attr;
                Ok(self.shown_hidden(inode, hidden, Some(&repeats)))
            }
            Node::Hidden(hidden) => {
                let repeats = match hidden.repeats() {
                    Some(ino) => Some(self.client.getattr(ino)?),
                    None => None,
                };
                Ok(self.shown_hidden(inode, hidden, repeats.as_ref().map(|entry| &entry.attr)))
            }
        }
    }

    /// Returns `found`; for an inode that was removed, the attributes that the metadata service retains, with `set`
    /// applied: the kernel asks only for inodes that a program still has open.
    pub(super) fn or_removed(
        &self,
        ino: Ino,
        set: Option<SetAttr>,
        found: Result<Entry, FsError>,
    ) -> Result<Entry, FsError> {
        match found {
            Err(FsError::Md(MdError::NotFound)) => {
                Ok(self.client.md(ino).call(op::Removed { ino, set })?)
            }
            found => found,
        }
    }

    /// Clears the bits that a write by `caller`, which has no `CAP_FSETID`, clears; returns whether there were any.
    pub(super) fn drop_setid(&self, object: Ino, caller: Caller) -> Result<bool, FsError> {
        let Attr { mode, gid, .. } = self.client.getattr(object)?.attr;
        let left = without(mode, caller.with_groups().in_group(gid));
        if left == mode {
            return Ok(false);
        }
        let set = SetAttr {
            mode: Some(left),
            ..SetAttr::default()
        };
        let entry = self
            .client
            .md(object)
            .call(op::SetAttr { ino: object, set })?;
        self.setids.note(&entry.attr);
        Ok(true)
    }

    /// The same after changes of bytes that the kernel does not mark: a truncate, a fallocate, a copy.
    pub(super) fn drop_setid_unmarked(&self, object: Ino, caller: Caller) -> Result<bool, FsError> {
        Ok(self.setids.has(object)
            && !may_set_ids(caller.pid)
            && self.drop_setid(object, caller)?)
    }

    /// [`Shared::change_bytes`] on a thread that may wait. `change` also returns whether it has cleared set-user-id; then
    /// the kernel drops the cached mode before the answer.
    pub(super) fn change_on_pool<T: Send + 'static>(
        self: &Arc<Self>,
        object: Ino,
        inode: Option<u64>,
        change: impl FnOnce(&Arc<Shared>) -> Outcome<(T, bool)> + Send + 'static,
        answer: impl FnOnce(Outcome<T>) + Send + 'static,
    ) {
        let worker = self.clone();
        self.for_bytes().submit(Box::new(move || {
            let answer = move |shared: &Arc<Shared>, changed| match changed {
                Ok((done, true)) => {
                    shared.forget_attributes(object.0, move || answer(Ok(done)));
                }
                other => answer(other.map(|(done, _)| done)),
            };
            worker.change_bytes(object, inode, change, answer);
        }));
    }

    /// Changes bytes of `object` through `inode` (`None`: through none, so that all inodes drop their pages), and then
    /// answers. Other inodes that may have pages of the object write them back before and drop them after. `inval.rs`
    /// documents the order, and why nothing here waits.
    pub(super) fn change_bytes<T: Send + 'static>(
        self: &Arc<Self>,
        object: Ino,
        inode: Option<u64>,
        change: impl FnOnce(&Arc<Shared>) -> T + Send + 'static,
        answer: impl FnOnce(&Arc<Shared>, T) + Send + 'static,
    ) {
        let before = self.families.mapped(object, inode);
        if before.is_empty() {
            return self.change_and_drop(object, inode, change, answer);
        }
        self.after_pages(before, move |shared| {
            shared.change_and_drop(object, inode, change, answer);
        });
    }

    /// Makes the kernel write back and drop its pages of `inodes`, and then runs `then`.
    pub(super) fn after_pages(
        self: &Arc<Self>,
        inodes: Vec<u64>,
        then: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) {
        let shared = self.clone();
        let then = move || {
            let pool = shared.clone();
            pool.for_bytes().submit(Box::new(move || then(&shared)));
        };
        self.inval
            .forget(inodes, Forget::Pages, Some(Box::new(then)));
    }

    fn change_and_drop<T: Send + 'static>(
        self: &Arc<Self>,
        object: Ino,
        inode: Option<u64>,
        change: impl FnOnce(&Arc<Shared>) -> T,
        answer: impl FnOnce(&Arc<Shared>, T) + Send + 'static,
    ) {
        let changed = change(self);
        let after = self.families.mapped(object, inode);
        if after.is_empty() {
            return answer(self, changed);
        }
        let shared = self.clone();
        let then = move || answer(&shared, changed);
        self.inval
            .forget(after, Forget::Pages, Some(Box::new(then)));
    }

    /// Registers a request for the attributes of the root. If the service is down and attributes are known, it is
    /// answered at once, and `None` is returned: a job for it would only wait for the service. Otherwise the caller
    /// answers it, or [`Root::answer_as_it_was`] does when the service goes down.
    pub(super) fn ask_for_root(&self, reply: ReplyAttr) -> Option<Asked> {
        let asked = self.root.ask(reply);
        // After the registration: the outage may be detected in between.
        if self.client.lapsed() {
            self.root.answer_as_it_was();
        }
        self.root.waits(&asked).then_some(asked)
    }

    /// Answers a request that a signal has interrupted; what it waits for goes on.
    pub(super) fn end_waiting(&self, request: RequestId) {
        if let Some(unanswered) = self.unanswered.get() {
            unanswered.end(request, Errno::EINTR);
        }
    }

    /// A request was ended before its answer (`killed.rs`): the kernel assumes that it has done nothing.
    pub(super) fn answered_late(&self) {
        if !self.name_ttl().is_zero() {
            self.inval.forget_names_soon(self.families.inodes());
        }
    }

    /// Makes the kernel drop the cached attributes of `inode`, and then answers.
    pub(super) fn forget_attributes(&self, inode: u64, answer: impl FnOnce() + Send + 'static) {
        self.inval
            .forget(vec![inode], Forget::Attributes, Some(Box::new(answer)));
    }
}

impl Caches for Shared {
    fn drop_all(&self, shard: Option<ShardId>) {
        self.retained.outdate(shard);
        for (_, inodes) in self.families.all_mapped(shard) {
            self.inval.forget(inodes, Forget::Pages, None);
        }
        self.root.answer_as_it_was();
    }

    fn discard_all(&self, shard: Option<ShardId>) {
        self.retained.outdate(shard);
        for (family, inodes) in self.families.all_mapped(shard) {
            family.discard();
            let then = Box::new(move || family.discarded());
            self.inval.forget(inodes, Forget::Pages, Some(then));
        }
    }

    fn drop_pages(&self, ino: Ino, bytes: Range<u64>) {
        let others = self.families.mapped(ino, Some(ino.0));
        for inode in others.into_iter().chain([ino.0]) {
            // A selection has other byte offsets than the object, so all its pages are dropped.
            let all = 0..u64::MAX;
            let bytes = if inode == ino.0 { bytes.clone() } else { all };
            self.inval.drop_now(inode, bytes);
        }
    }

    fn retain(&self, ino: Ino, change: Option<u64>) {
        let Some((oldest, entry)) = self.retained.add(ino, change) else {
            return;
        };
        if let Some(shared) = self.this.upgrade() {
            shared.drop_retained(oldest, entry, |_| ());
        }
    }

    fn forget_names(&self) -> bool {
        self.inval.forget_names(&self.families.inodes())
    }
}

impl Closes for Shared {
    fn end(self: Arc<Self>, ending: Ending) {
        let mount = self.clone();
        self.waits.submit(Box::new(move || {
            ending.run(&mount.client, &mount.families);
        }));
    }
}

/// The dims and bytes of a selection of the object that `entry` describes.
pub(super) fn selection_shape(node: &SelectionNode, entry: &Entry) -> Outcome<selection::Shape> {
    let Some(info) = &entry.info else {
        return refused(Errno::EINVAL, "only objects have elements to select");
    };
    selection::shape(&node.selection, info)
        .map_err(|error| FsError::Invalid(error.to_string()).into())
}
