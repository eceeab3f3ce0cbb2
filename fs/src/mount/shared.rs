//! The state of a mount that its operations share.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fuser::{Errno, FileAttr, Request};
use slabfs_mdserver::api::{Attr, Entry, Ino, Kind, MdError, SetAttr, Time};

use crate::call;
use crate::client::{Caches, Client, FsError};
use crate::view::hidden::Hidden;
use crate::view::name::has_mark;
use crate::view::nodes::{Node, Nodes, SelectionNode};
use crate::view::selection;

use super::attr::file_attr;
use super::buffers::Buffers;
use super::calls::Calls;
use super::errno::{Outcome, refused};
use super::families::Families;
use super::handles::Handles;
use super::interrupts::Interrupts;
use super::inval::{Forget, Inval};
use super::open_file::Open;
use super::page_writes::PageWrites;
use super::pool::Pool;
use super::root::Root;
use super::searches::Searches;
use super::setid::{SetIds, may_set_ids, without};
use super::viewed::Room;

/// How long the kernel may keep what it is told while nobody else can change it.
const KEEP: Duration = Duration::from_secs(1);

/// Requests that may wait for rights at a time.
const MOST_WAITING: usize = 8192;

/// Everything a request may need.
pub(super) struct Shared {
    pub(super) client: Arc<Client>,
    pub(super) nodes: Nodes,
    pub(super) handles: Handles<Open>,
    pub(super) families: Families,
    pub(super) setids: SetIds,
    pub(super) view_room: Room,
    pub(super) buffers: Arc<Buffers>,
    pub(super) pool: Pool,
    /// Threads of requests that may wait for rights or for the kernel to drop pages, and of its reads of pages:
    /// they may be as many as there are requests, since what they wait for may be another one of them.
    pub(super) waits: Pool,
    /// Threads of the kernel's writes of pages: those never wait for anything but servers.
    pub(super) writebacks: Pool,
    pub(super) page_writes: Arc<PageWrites>,
    /// Open `.slabfs/call`, and the threads of these and of listings of searches.
    pub(super) calls: Calls,
    pub(super) inval: Inval,
    pub(super) interrupts: Interrupts,
    /// Numbers for open files.
    pub(super) next_open: AtomicU64,
    /// Whom hidden files belong to.
    pub(super) owner: (u32, u32),
    pub(super) mounted: Time,
    pub(super) root: Arc<Root>,
    /// Listings of searches.
    pub(super) searches: Searches,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
}

impl Caller {
    /// Who sent a request.
    pub(super) fn of(request: &Request) -> Caller {
        Caller {
            uid: request.uid(),
            gid: request.gid(),
            pid: request.pid(),
        }
    }
}

/// An inode as the kernel is told of it.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) attr: FileAttr,
    pub(super) attr_ttl: Duration,
    pub(super) name_ttl: Duration,
}

impl Shown {
    /// Found under this name. A name with `@[` means something else as soon as a file before it comes or goes, so the
    /// kernel keeps none.
    pub(super) fn named(mut self, name: &[u8]) -> Shown {
        if has_mark(name) {
            self.name_ttl = Duration::ZERO;
        }
        self
    }
}

impl Shared {
    pub(super) fn new(client: Arc<Client>, workers: usize) -> Shared {
        let owner = (
            nix::unistd::geteuid().as_raw(),
            nix::unistd::getegid().as_raw(),
        );
        Shared {
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
            next_open: AtomicU64::new(1),
            owner,
            mounted: Time::now(),
            root: Arc::default(),
            searches: Searches::default(),
        }
    }

    /// Where a request goes that touches bytes of an object and cannot be answered at once. Once a file was
    /// mapped it may have to wait for the kernel (`client/rights/page_overlap.rs`), which may need a thread.
    pub(super) fn for_bytes(&self) -> &Pool {
        match self.client.strict() || self.families.any_was_mapped() {
            true => &self.waits,
            false => &self.pool,
        }
    }

    /// How long the kernel may keep a name, or its absence.
    pub(super) fn name_ttl(&self) -> Duration {
        if self.client.alone() {
            KEEP
        } else {
            Duration::ZERO
        }
    }

    /// What a number of the mount stands for.
    pub(super) fn node(&self, inode: u64) -> Outcome<Node> {
        match self.nodes.get(inode) {
            Some(node) => Ok(node),
            None => refused(Errno::ESTALE, "the mount has forgotten this inode"),
        }
    }

    /// The object, directory or other inode of the metadata service behind a number.
    pub(super) fn plain(&self, inode: u64) -> Outcome<Ino> {
        match self.node(inode)? {
            Node::Plain(ino) => Ok(ino),
            Node::Selection(_) => refused(
                Errno::EINVAL,
                "this works on the object, not on a selection",
            ),
            Node::Hidden(_) | Node::Search(_) | Node::Found(_) => {
                refused(Errno::EPERM, "nothing under .slabfs can be changed")
            }
        }
    }

    /// An inode of the metadata service as the kernel is told of it.
    pub(super) fn shown(&self, entry: &Entry) -> Shown {
        let attr = &entry.attr;
        self.setids.note(attr);
        let name_ttl = self.name_ttl();
        let changing =
            attr.kind == Kind::Object && self.families.written_through_selection(attr.ino);
        Shown {
            attr: file_attr(attr.ino.0, attr),
            attr_ttl: if changing { Duration::ZERO } else { name_ttl },
            name_ttl,
        }
    }

    /// A selection as the kernel is told of it. Nothing is kept: its name hangs on another name, that of
    /// the object, and its times on writes to another inode.
    pub(super) fn shown_selection(
        &self,
        number: u64,
        node: &SelectionNode,
        entry: &Entry,
    ) -> Outcome<Shown> {
        self.setids.note(&entry.attr);
        let shape = selection_shape(node, entry)?;
        Ok(Shown {
            attr: file_attr(number, &selection::attributes(&entry.attr, shape.bytes)),
            attr_ttl: Duration::ZERO,
            name_ttl: Duration::ZERO,
        })
    }

    /// Something hidden as the kernel is told of it; `repeats` is what it stands for, if anything.
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
        let attr = Attr {
            ino: slabfs_model::ObjectId(number),
            kind,
            mode: hidden.mode(repeats.map(|attr| attr.mode)),
            nlink: if hidden.is_directory() { 2 } else { 1 },
            uid: repeats.map_or(self.owner.0, |attr| attr.uid),
            gid: repeats.map_or(self.owner.1, |attr| attr.gid),
            rdev: 0,
            size: 0,
            stored: 0,
            atime: self.mounted,
            mtime: repeats.map_or(self.mounted, |attr| attr.mtime),
            ctime: repeats.map_or(self.mounted, |attr| attr.ctime),
            crtime: self.mounted,
            change: 0,
        };
        Shown {
            attr: file_attr(number, &attr),
            attr_ttl: Duration::ZERO,
            name_ttl: Duration::ZERO,
        }
    }

    /// The attributes of an inode as the kernel is told of them.
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
            Node::Hidden(hidden) => {
                let repeats = match hidden.repeats() {
                    Some(ino) => Some(self.client.getattr(ino)?),
                    None => None,
                };
                Ok(self.shown_hidden(inode, hidden, repeats.as_ref().map(|entry| &entry.attr)))
            }
        }
    }

    /// What was found of an inode, or what is remembered of it, with these attributes set, if it was removed: the kernel
    /// asks only for what somebody has.
    pub(super) fn or_removed(
        &self,
        ino: Ino,
        set: Option<SetAttr>,
        found: Result<Entry, FsError>,
    ) -> Result<Entry, FsError> {
        match found {
            Err(FsError::Md(MdError::NotFound)) => Ok(self.client.md().removed(ino, set)?),
            found => found,
        }
    }

    /// Takes the bits off that a write takes off by `caller`, who has no `CAP_FSETID`; says whether there were any.
    pub(super) fn drop_setid(&self, object: Ino, caller: Caller) -> Result<bool, FsError> {
        let Attr { mode, gid, .. } = self.client.getattr(object)?.attr;
        let Caller { uid, gid: own, pid } = caller;
        let left = without(mode, call::Caller::of_process(uid, own, pid).in_group(gid));
        if left == mode {
            return Ok(false);
        }
        let set = SetAttr {
            mode: Some(left),
            ..SetAttr::default()
        };
        let entry = self.client.md().setattr(object, set)?;
        self.setids.note(&entry.attr);
        Ok(true)
    }

    /// Does so after a change of bytes that the kernel does not mark: a truncate, a fallocate, a copy.
    pub(super) fn drop_setid_unmarked(&self, object: Ino, caller: Caller) -> Result<bool, FsError> {
        Ok(self.setids.has(object)
            && !may_set_ids(caller.pid)
            && self.drop_setid(object, caller)?)
    }

    /// Changes bytes of `object` through `inode` (`None`: not through an inode, so that all of them are
    /// told), and then answers; other inodes that may have pages of the object write them back before and
    /// drop them after. See `inval.rs` for the order, and for why nothing here waits.
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

    /// Has the kernel write back and drop its pages of `inodes`, and runs `then` after that.
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

    /// A request was ended before its answer (`killed.rs`): what it did, the kernel takes for not done.
    pub(super) fn answered_late(&self) {
        if !self.name_ttl().is_zero() {
            self.inval.forget_names_soon(self.families.inodes());
        }
    }

    /// Lets the kernel forget the attributes of `inode`, and then answers.
    pub(super) fn forget_attributes(&self, inode: u64, answer: impl FnOnce() + Send + 'static) {
        self.inval
            .forget(vec![inode], Forget::Attributes, Some(Box::new(answer)));
    }
}

impl Caches for Shared {
    fn drop_all(&self) {
        for (_, inodes) in self.families.all_mapped() {
            self.inval.forget(inodes, Forget::Pages, None);
        }
        self.root.answer_as_it_was();
    }

    fn discard_all(&self) {
        for (family, inodes) in self.families.all_mapped() {
            family.discard();
            let then = Box::new(move || family.discarded());
            self.inval.forget(inodes, Forget::Pages, Some(then));
        }
    }

    fn drop_pages(&self, ino: Ino, bytes: Range<u64>) {
        for inode in self.families.mapped(ino, None) {
            // A selection's bytes are others.
            let whole = 0..u64::MAX;
            let bytes = if inode == ino.0 { bytes.clone() } else { whole };
            self.inval.drop_now(inode, bytes);
        }
    }

    fn forget_names(&self) -> bool {
        self.inval.forget_names(&self.families.inodes())
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
