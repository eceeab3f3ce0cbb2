//! [`Md`]: a session with a metadata service, one method an operation.

use parking_lot::Mutex;
use slabfs_model::{ChunkId, Coords, Placement, ServerId, SessionId, Tag, Version};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::name_cache::NameCache;
use super::{
    Attached, Beat, Commit, CommitReply, Create, Created, Defaults, DefaultsChange, DirEntry,
    DumpPage, Entry, Find, Found, HeldLocks, Holdings, Ino, Lease, LockAsk, LockEpoch, LockNews,
    LockReply, LockTicket, LostLocks, MAX_RELEASE, MdError, Metadata, NewObject, Op, Permit,
    Permitted, Relocated, RenameFlags, Reply, Request, ReserveReply, ResizeHow, Resized, Rewrite,
    RightAsk, RightGive, RightHeld, RightNews, RightReply, RightTicket, RightsBegun, RightsEpoch,
    ServerInfo, SetAttr, Spare, SpecChange, StatFs, StoredChunk, TagChange, TagsPage, TilingReply,
    Unflushed, WantedPart, XattrFlags,
};

/// Longest that others are waited for who keep names. The service itself gives up on them before.
const LONGEST_KEPT: Duration = Duration::from_secs(120);

/// How long is waited before the first of them is sent again, and before later ones.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(200);

/// A session with a metadata service. Clones share the session; all methods may be called from any
/// thread. Whoever attached it calls [`Md::heartbeat`] at a third of the lease, and at last
/// [`Md::detach`].
#[derive(Clone)]
pub struct Md {
    inner: Arc<Inner>,
}

struct Inner {
    metadata: Arc<dyn Metadata>,
    /// How it is attached.
    attach: Op,
    numbers: Mutex<Numbers>,
    servers_version: AtomicU64,
    requests: AtomicU64,
    commits: AtomicU64,
    /// Names that may be cached, of a session that takes part in rights.
    names: Option<NameCache>,
}

/// Requests of one mount to its metadata service; they only grow. One that is sent again, because its reply
/// was lost, counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// All but those by which it lives and listens, of which there are some each second whatever is done.
    pub all: u64,
    /// Those of them that make stored data part of an object ([`Op::Commit`]).
    pub commits: u64,
}

/// The session, and the numbers of its requests: which one is next, which are not answered yet.
struct Numbers {
    session: SessionId,
    next: u64,
    open: Vec<u64>,
}

impl Numbers {
    fn of(session: SessionId) -> Self {
        Self {
            session,
            next: 1,
            open: Vec::new(),
        }
    }

    fn take(&mut self) -> (u64, u64) {
        let seq = self.next;
        self.next += 1;
        self.open.push(seq);
        (seq, self.floor())
    }

    fn done(&mut self, session: SessionId, seq: u64) {
        if session != self.session {
            // Its session is over, and the numbers are another one's.
            return;
        }
        if let Some(at) = self.open.iter().position(|&open| open == seq) {
            self.open.swap_remove(at);
        }
    }

    fn floor(&self) -> u64 {
        self.open.iter().copied().min().unwrap_or(self.next)
    }
}

/// Takes the one reply an op can have out of the enum.
macro_rules! expect {
    ($reply:expr, $pattern:pat => $value:expr) => {
        match $reply {
            $pattern => Ok($value),
            other => Err(MdError::Protocol(format!("unexpected reply {other:?}"))),
        }
    };
}

fn ask_to_attach(metadata: &dyn Metadata, op: Op) -> Result<Attached, MdError> {
    let request = Request {
        session: SessionId(0),
        seq: 0,
        done_below: 0,
        op,
    };
    expect!(metadata.call(request)?, Reply::Attached(attached) => attached)
}

impl Md {
    /// Opens a session as process `pid` on machine `host`.
    pub fn attach(
        metadata: Arc<dyn Metadata>,
        host: &str,
        pid: u32,
        read_only: bool,
    ) -> Result<(Self, Attached), MdError> {
        Self::attach_as(metadata, host, pid, read_only, false)
    }

    /// Opens a session that takes part in rights ([`crate::rights`]) if it is `strict`.
    pub fn attach_as(
        metadata: Arc<dyn Metadata>,
        host: &str,
        pid: u32,
        read_only: bool,
        strict: bool,
    ) -> Result<(Self, Attached), MdError> {
        let op = Op::Attach {
            host: host.to_owned(),
            pid,
            read_only,
            strict,
        };
        let attached = ask_to_attach(&*metadata, op.clone())?;
        let inner = Inner {
            metadata,
            attach: op,
            numbers: Mutex::new(Numbers::of(attached.session)),
            servers_version: AtomicU64::new(attached.servers_version),
            requests: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            names: strict.then(NameCache::default),
        };
        Ok((
            Self {
                inner: Arc::new(inner),
            },
            attached,
        ))
    }

    /// The session's number.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.inner.numbers.lock().session
    }

    /// Opens another session in the place of one that is over. Requests that are on their way stay the
    /// old one's.
    pub fn reattach(&self) -> Result<Attached, MdError> {
        let attached = ask_to_attach(&*self.inner.metadata, self.inner.attach.clone())?;
        *self.inner.numbers.lock() = Numbers::of(attached.session);
        self.inner
            .servers_version
            .store(attached.servers_version, Ordering::Release);
        Ok(attached)
    }

    /// Sessions attached when the last reply was made, this one too.
    #[must_use]
    pub fn session_count(&self) -> u32 {
        self.inner.metadata.session_count()
    }

    /// What was asked of the service so far.
    #[must_use]
    pub fn requests(&self) -> Requests {
        Requests {
            all: self.inner.requests.load(Ordering::Relaxed),
            commits: self.inner.commits.load(Ordering::Relaxed),
        }
    }

    fn call(&self, op: Op) -> Result<Reply, MdError> {
        if !op.listens() {
            self.inner.requests.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(op, Op::Commit(_)) {
            self.inner.commits.fetch_add(1, Ordering::Relaxed);
        }
        if !op.changes() {
            let done_below = 0;
            return self.inner.metadata.call(Request {
                session: self.session(),
                seq: 0,
                done_below,
                op,
            });
        }
        if !op.changes_names() {
            return self.call_numbered(op);
        }
        let names = self.inner.names.as_ref();
        let changing = names.map(|names| names.change(&op));
        let result = self.call_until_forgotten(op);
        if let (Some(changing), Err(MdError::Unavailable { .. })) = (changing, &result) {
            changing.leave_unsure();
        }
        result
    }

    /// A request that changes something, with a number of its own.
    fn call_numbered(&self, op: Op) -> Result<Reply, MdError> {
        let (session, (seq, done_below)) = {
            let mut numbers = self.inner.numbers.lock();
            (numbers.session, numbers.take())
        };
        let result = self.inner.metadata.call(Request {
            session,
            seq,
            done_below,
            op,
        });
        self.inner.numbers.lock().done(session, seq);
        result
    }

    /// One that changes names or directories, which somebody else may have to forget first: it is sent until that was
    /// done, since one try may take less time than a mount that has died is waited for.
    fn call_until_forgotten(&self, op: Op) -> Result<Reply, MdError> {
        let until = Instant::now() + LONGEST_KEPT;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.call_numbered(op.clone()) {
                Err(MdError::Kept) if Instant::now() < until => {}
                other => return other,
            }
            // Where too many wait, a try is refused at once.
            std::thread::sleep(pause);
            pause = LAST_PAUSE.min(2 * pause);
        }
    }

    fn done(&self, op: Op) -> Result<(), MdError> {
        expect!(self.call(op)?, Reply::Done => ())
    }

    fn entry(&self, op: Op) -> Result<Entry, MdError> {
        expect!(self.call(op)?, Reply::Entry(entry) => entry)
    }

    /// Version of the list of data servers that the last reply had.
    #[must_use]
    pub fn servers_version(&self) -> u64 {
        self.inner.servers_version.load(Ordering::Acquire)
    }

    /// Says that the session lives, and that all it does goes by version `knows` of the list of data
    /// servers; learns of changed ones.
    pub fn heartbeat(&self, knows: u64) -> Result<Beat, MdError> {
        let floor = self.inner.numbers.lock().floor();
        let servers_version = self.inner.servers_version.load(Ordering::Acquire);
        let reply = self.call(Op::Heartbeat {
            floor,
            servers_version,
            knows,
            strict: matches!(self.inner.attach, Op::Attach { strict: true, .. }),
        })?;
        let beat = expect!(reply, Reply::Beat(beat) => beat)?;
        self.inner
            .servers_version
            .store(beat.servers_version, Ordering::Release);
        Ok(beat)
    }

    /// Ends the session; `clean` when everything it stored is committed or deleted.
    pub fn detach(&self, clean: bool) -> Result<(), MdError> {
        self.done(Op::Detach { clean })
    }

    /// Finds `name` in a directory.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry, MdError> {
        self.entry(Op::Lookup {
            parent,
            name: name.to_vec(),
        })
    }

    /// Finds a name as [`Md::lookup`]; keeps the answer if it may.
    pub fn look(&self, parent: Ino, name: &[u8]) -> Result<Entry, MdError> {
        let asked = self.inner.names.as_ref().map(NameCache::asked);
        let op = Op::Look {
            parent,
            name: name.to_vec(),
        };
        let looked = expect!(self.call(op)?, Reply::Looked(looked) => looked)?;
        if let (Some(names), Some(asked)) = (&self.inner.names, asked) {
            names.take(asked, Some((parent, name)), &looked);
        }
        looked.found.ok_or(MdError::NotFound)
    }

    /// What [`Md::look`] would answer, if that is cached.
    #[must_use]
    pub fn cached_name(&self, parent: Ino, name: &[u8]) -> Option<Result<Entry, MdError>> {
        let found = self.inner.names.as_ref()?.find(parent, name)?;
        Some(found.ok_or(MdError::NotFound))
    }

    /// What [`Md::stat`] would answer, if that is cached: of directories.
    #[must_use]
    pub fn cached_directory(&self, ino: Ino) -> Option<Entry> {
        self.inner.names.as_ref()?.directory(ino)
    }

    /// How often names and directories were answered from what is cached.
    #[must_use]
    pub fn name_cache_hits(&self) -> u64 {
        self.inner.names.as_ref().map_or(0, NameCache::hits)
    }

    /// Forgets what is cached of directories.
    pub fn forget_names(&self, directories: &[Ino]) {
        if let Some(names) = &self.inner.names {
            names.forget(directories);
        }
    }

    /// Forgets all names that are cached.
    pub fn forget_all_names(&self) {
        if let Some(names) = &self.inner.names {
            names.forget_all();
        }
    }

    /// Says that what somebody else changes is forgotten, or, without a change, that nothing is cached.
    pub fn tell_forgot(&self, epoch: RightsEpoch, change: Option<u64>) -> Result<(), MdError> {
        self.done(Op::TellForgot { epoch, change })
    }

    /// Attributes of an inode.
    pub fn getattr(&self, ino: Ino) -> Result<Entry, MdError> {
        self.entry(Op::GetAttr { ino })
    }

    /// Attributes of an inode that was removed, after setting what is given.
    pub fn removed(&self, ino: Ino, set: Option<SetAttr>) -> Result<Entry, MdError> {
        self.entry(Op::Removed { ino, set })
    }

    /// Makes an inode with a name; see [`Create`].
    pub fn create(&self, create: Create) -> Result<Created, MdError> {
        expect!(self.call(Op::Create(create))?, Reply::Created(created) => created)
    }

    /// Gives an inode one more name.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry, MdError> {
        self.entry(Op::Link {
            ino,
            parent,
            name: name.to_vec(),
        })
    }

    /// Takes a name off anything but a directory.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<(), MdError> {
        self.done(Op::Unlink {
            parent,
            name: name.to_vec(),
        })
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<(), MdError> {
        self.done(Op::Rmdir {
            parent,
            name: name.to_vec(),
        })
    }

    /// Renames as POSIX says.
    pub fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), MdError> {
        let (name, new_name) = (name.to_vec(), new_name.to_vec());
        self.done(Op::Rename {
            parent,
            name,
            new_parent,
            new_name,
            flags,
        })
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>, MdError> {
        expect!(self.call(Op::ReadLink { ino })?, Reply::Bytes(target) => target)
    }

    /// At most `limit` entries after `cookie`, without `.` and `..`; empty at the end.
    pub fn readdir(&self, ino: Ino, cookie: u64, limit: u32) -> Result<Vec<DirEntry>, MdError> {
        expect!(self.call(Op::ReadDir { ino, cookie, limit })?, Reply::Dir(entries) => entries)
    }

    /// Sets attributes.
    pub fn setattr(&self, ino: Ino, set: SetAttr) -> Result<Entry, MdError> {
        self.entry(Op::SetAttr { ino, set })
    }

    /// Makes objects, all of them or none, and gives their numbers in order.
    pub fn create_many(&self, objects: Vec<NewObject>) -> Result<Vec<Ino>, MdError> {
        expect!(self.call(Op::CreateMany { objects })?, Reply::CreatedMany(made) => made)
    }

    /// The defaults of a container.
    pub fn defaults(&self, ino: Ino) -> Result<Defaults, MdError> {
        expect!(self.call(Op::GetDefaults { ino })?, Reply::Defaults(defaults) => defaults)
    }

    /// Changes the defaults of a container and says what they are then.
    pub fn set_defaults(&self, ino: Ino, change: DefaultsChange) -> Result<Defaults, MdError> {
        let op = Op::SetDefaults { ino, change };
        expect!(self.call(op)?, Reply::Defaults(defaults) => defaults)
    }

    /// Sets an extended attribute.
    pub fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), MdError> {
        self.done(Op::SetXattr {
            ino,
            name: name.to_vec(),
            value: value.to_vec(),
            flags,
        })
    }

    /// Value of an extended attribute.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, MdError> {
        let op = Op::GetXattr {
            ino,
            name: name.to_vec(),
        };
        expect!(self.call(op)?, Reply::Bytes(value) => value)
    }

    /// Names of the extended attributes.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>, MdError> {
        expect!(self.call(Op::ListXattr { ino })?, Reply::Names(names) => names)
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<(), MdError> {
        self.done(Op::RemoveXattr {
            ino,
            name: name.to_vec(),
        })
    }

    /// Sets and removes tags of one inode in one step.
    pub fn tag(
        &self,
        ino: Ino,
        set: Vec<(String, Tag)>,
        remove: Vec<String>,
    ) -> Result<(), MdError> {
        self.tag_many(vec![TagChange { ino, set, remove }])
    }

    /// Sets and removes tags of many inodes in one step.
    pub fn tag_many(&self, changes: Vec<TagChange>) -> Result<(), MdError> {
        self.done(Op::Tag { changes })
    }

    /// All tags of an inode, by name.
    pub fn tags(&self, ino: Ino) -> Result<Vec<(String, Tag)>, MdError> {
        let mut all: Vec<(String, Tag)> = Vec::new();
        loop {
            let after = all.last().map(|(name, _)| name.clone());
            let page = self.tags_page(ino, after)?;
            let more = page.more && !page.tags.is_empty();
            all.extend(page.tags);
            if !more {
                return Ok(all);
            }
        }
    }

    /// A page of the tags of an inode, of names that are greater than `after`.
    pub fn tags_page(&self, ino: Ino, after: Option<String>) -> Result<TagsPage, MdError> {
        let op = Op::Tags { ino, after };
        expect!(self.call(op)?, Reply::Tags(page) => page)
    }

    /// One page of a search. Pages may be empty before the end; it is the end when there is no
    /// [`Found::next`].
    pub fn find(&self, find: Find) -> Result<Found, MdError> {
        expect!(self.call(Op::Find(find))?, Reply::Found(found) => found)
    }

    /// Counts an inode as opened once more by this session.
    pub fn open(&self, ino: Ino) -> Result<Entry, MdError> {
        self.entry(Op::Open { ino })
    }

    /// Takes back one opening for each inode named.
    pub fn release(&self, mut inos: Vec<Ino>) -> Result<(), MdError> {
        self.release_all(&mut inos)
    }

    /// Takes back one opening for each inode named. What is left in `inos` after an error is to be asked for again;
    /// the others are done, or may be, now or later. Of those an opening may stay until the session ends, which
    /// keeps an inode without a name; asked for again it would take back the opening of somebody who has
    /// opened the object since.
    pub fn release_all(&self, inos: &mut Vec<Ino>) -> Result<(), MdError> {
        while !inos.is_empty() {
            let rest = inos.split_off(inos.len().min(MAX_RELEASE));
            let now = std::mem::replace(inos, rest);
            let unanswered = self.inner.metadata.unanswered();
            let released = self.done(Op::Release { inos: now.clone() });
            if let Err(error) = released {
                let unsure = match error {
                    MdError::Unavailable { .. } => self.inner.metadata.unanswered() != unanswered,
                    MdError::Protocol(_) => true,
                    _ => false,
                };
                if !unsure {
                    inos.extend(now);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The tiling since the version `known` (`Version(0)` for none), pages put together.
    pub fn tiling(&self, ino: Ino, known: Version) -> Result<TilingReply, MdError> {
        self.tiling_part(ino, known, None)
    }

    /// The same; of a tiling with many records that is not known the part that is `wanted`.
    pub fn tiling_part(
        &self,
        ino: Ino,
        known: Version,
        wanted: Option<WantedPart>,
    ) -> Result<TilingReply, MdError> {
        loop {
            let first = self.tiling_page(ino, known, None, wanted.clone())?;
            if let Some(all) = self.tiling_pages(ino, first)? {
                return Ok(all);
            }
            // A commit between two pages: start again.
        }
    }

    /// Puts the other pages to the first one, if they are of the same version.
    fn tiling_pages(
        &self,
        ino: Ino,
        mut first: TilingReply,
    ) -> Result<Option<TilingReply>, MdError> {
        let (version, wanted, records, more) = match &mut first {
            TilingReply::Whole {
                version,
                records,
                more,
                ..
            } => (*version, None, records, more),
            TilingReply::Part {
                version,
                region,
                records,
                more,
                ..
            } => {
                let region = region.clone();
                (
                    *version,
                    Some(WantedPart { region, most: 0 }),
                    records,
                    more,
                )
            }
            TilingReply::Unchanged { .. } | TilingReply::Changes { .. } => return Ok(Some(first)),
        };
        while *more {
            let after = records.last().map(|record| record.order);
            let (page_version, page, rest) =
                match self.tiling_page(ino, Version(0), after, wanted.clone())? {
                    TilingReply::Whole {
                        version,
                        records,
                        more,
                        ..
                    } if wanted.is_none() => (version, records, more),
                    TilingReply::Part {
                        version,
                        records,
                        more,
                        ..
                    } if wanted.is_some() => (version, records, more),
                    _ => return Ok(None),
                };
            if page_version != version || page.is_empty() {
                return Ok(None);
            }
            records.extend(page);
            *more = rest;
        }
        Ok(Some(first))
    }

    fn tiling_page(
        &self,
        ino: Ino,
        known: Version,
        after: Option<u64>,
        wanted: Option<WantedPart>,
    ) -> Result<TilingReply, MdError> {
        let op = Op::Tiling {
            ino,
            known,
            after,
            wanted,
        };
        expect!(self.call(op)?, Reply::Tiling(tiling) => tiling)
    }

    /// Chunk ids that nobody else gets, ever.
    pub fn lease_chunks(&self, count: u32) -> Result<Lease, MdError> {
        expect!(self.call(Op::LeaseChunks { count })?, Reply::Lease(lease) => lease)
    }

    /// Marks a data server as being emptied, or takes the mark off.
    pub fn set_draining(&self, server: ServerId, draining: bool) -> Result<(), MdError> {
        self.done(Op::SetDraining { server, draining })
    }

    /// A page of the objects that have something on a data server.
    pub fn holdings(&self, server: ServerId, after: Ino) -> Result<Holdings, MdError> {
        let op = Op::Holdings { server, after };
        expect!(self.call(op)?, Reply::Holdings(holdings) => holdings)
    }

    /// Takes a write permit of a grid object: [`Permit::Write`] or [`Permit::Move`].
    pub fn take_permit(&self, ino: Ino, permit: Permit) -> Result<Permitted, MdError> {
        expect!(self.call(Op::Permit { ino, permit })?, Reply::Permitted(permitted) => *permitted)
    }

    /// Gives the write permit of this number back.
    pub fn give_permit(&self, ino: Ino, number: u64) -> Result<(), MdError> {
        let permit = Permit::Back(number);
        self.done(Op::Permit { ino, permit })
    }

    /// Puts `to` in the place of `from` in the stripe of a grid object.
    pub fn restripe(
        &self,
        ino: Ino,
        generation: u32,
        from: ServerId,
        to: ServerId,
    ) -> Result<Entry, MdError> {
        self.entry(Op::Restripe {
            ino,
            generation,
            from,
            to,
        })
    }

    /// Puts copies in the place of chunks.
    pub fn relocate(
        &self,
        ino: Ino,
        generation: u32,
        moves: Vec<(u64, ChunkId, StoredChunk)>,
    ) -> Result<Relocated, MdError> {
        let op = Op::Relocate {
            ino,
            generation,
            moves,
        };
        expect!(self.call(op)?, Reply::Relocated(relocated) => *relocated)
    }

    /// Places for about `bytes`: how many may go to each server. `spent`: what went where since the
    /// last time.
    pub fn lease_places(
        &self,
        bytes: u64,
        spent: Vec<(ServerId, u64)>,
    ) -> Result<Vec<(ServerId, u64)>, MdError> {
        expect!(self.call(Op::LeasePlaces { bytes, spent })?, Reply::Places(places) => places)
    }

    /// Makes stored data part of an object; see [`Commit`].
    pub fn commit(&self, commit: Commit) -> Result<CommitReply, MdError> {
        expect!(self.call(Op::Commit(commit))?, Reply::Commit(reply) => *reply)
    }

    /// Sets the dims of an object.
    pub fn resize(&self, ino: Ino, dims: Coords, how: ResizeHow) -> Result<Resized, MdError> {
        expect!(self.call(Op::Resize { ino, dims, how })?, Reply::Resized(resized) => resized)
    }

    /// Sets dtype, dims and so on; `rewrite` only where [`SpecChange::resolve`] asks for it.
    pub fn declare(
        &self,
        ino: Ino,
        change: SpecChange,
        rewrite: Option<Rewrite>,
    ) -> Result<Entry, MdError> {
        self.entry(Op::Declare {
            ino,
            change,
            rewrite,
        })
    }

    /// Empties an object.
    pub fn clear(&self, ino: Ino) -> Result<Entry, MdError> {
        self.entry(Op::Clear { ino })
    }

    /// Announces data beyond the recorded size of a grid object; see [`ReserveReply`].
    pub fn reserve(&self, ino: Ino, upto: u64) -> Result<ReserveReply, MdError> {
        expect!(self.call(Op::Reserve { ino, upto })?, Reply::Reserve(reply) => reply)
    }

    /// A generation, and servers, for grid chunks written before a [`Rewrite`].
    pub fn spare_generation(&self, ino: Ino, placement: Placement) -> Result<Spare, MdError> {
        let op = Op::SpareGeneration { ino, placement };
        expect!(self.call(op)?, Reply::Spare(spare) => spare)
    }

    /// Says that the data of all commits up to `version` is on the data servers' disks.
    pub fn settle(&self, ino: Ino, version: Version) -> Result<(), MdError> {
        self.done(Op::Settle { ino, version })
    }

    /// Asks for a lock, or gives one up.
    pub fn lock(&self, epoch: LockEpoch, ask: LockAsk) -> Result<LockReply, MdError> {
        expect!(self.call(Op::Lock { epoch, ask })?, Reply::Lock(reply) => reply)
    }

    /// Takes a request that waits for a lock back; false when it does not wait any more.
    pub fn cancel_lock(&self, ticket: LockTicket) -> Result<bool, MdError> {
        expect!(self.call(Op::CancelLock { ticket })?, Reply::LockCancelled(was) => was)
    }

    /// What became of requests that waited, after event number `seen`; waits for it up to `wait`.
    pub fn lock_events(
        &self,
        epoch: LockEpoch,
        seen: u64,
        wait: Duration,
    ) -> Result<LockNews, MdError> {
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let op = Op::LockEvents {
            epoch,
            seen,
            wait_ms,
        };
        expect!(self.call(op)?, Reply::LockNews(news) => news)
    }

    /// Tells the lock server which locks the session has, in one call or in several. Gives back what others have
    /// got of them meanwhile, and the epoch that begins with the last call: in that epoch the session has what
    /// it has told, less that.
    pub fn reclaim_locks(
        &self,
        held: Vec<HeldLocks>,
        first: bool,
        last: bool,
    ) -> Result<(Vec<LostLocks>, LockEpoch), MdError> {
        let op = Op::ReclaimLocks { held, first, last };
        expect!(self.call(op)?, Reply::LocksReclaimed { lost, epoch } => (lost, epoch))
    }

    /// Asks for a right.
    pub fn ask_right(&self, epoch: RightsEpoch, ask: RightAsk) -> Result<RightReply, MdError> {
        expect!(self.call(Op::AskRight { epoch, ask })?, Reply::Right(reply) => reply)
    }

    /// Takes an ask that waits back; if it was granted meanwhile, that holds.
    pub fn cancel_right(&self, epoch: RightsEpoch, ticket: RightTicket) -> Result<(), MdError> {
        self.done(Op::CancelRight { epoch, ticket })
    }

    /// Gives rights back.
    pub fn give_rights(&self, epoch: RightsEpoch, gives: Vec<RightGive>) -> Result<(), MdError> {
        self.done(Op::GiveRights { epoch, gives })
    }

    /// What the lock server has to say about rights after event number `seen`; waits for it up to `wait`.
    pub fn right_events(
        &self,
        epoch: RightsEpoch,
        seen: u64,
        wait: Duration,
    ) -> Result<RightNews, MdError> {
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let op = Op::RightEvents {
            epoch,
            seen,
            wait_ms,
        };
        expect!(self.call(op)?, Reply::RightNews(news) => news)
    }

    /// Says that the session has no rights and keeps nothing that would need one, but for `held`.
    pub fn reset_rights(&self, held: Vec<RightHeld>) -> Result<RightsBegun, MdError> {
        expect!(self.call(Op::ResetRights { held })?, Reply::RightsBegun(begun) => begun)
    }

    /// Attributes of an inode, with what other sessions have written and not flushed; `keep`s those of a directory if it
    /// may.
    pub fn stat(&self, ino: Ino, keep: bool) -> Result<Entry, MdError> {
        let asked = self
            .inner
            .names
            .as_ref()
            .filter(|_| keep)
            .map(NameCache::asked);
        let looked = expect!(self.call(Op::Stat { ino, keep })?, Reply::Looked(looked) => looked)?;
        if let (Some(names), Some(asked)) = (&self.inner.names, asked) {
            names.take(asked, None, &looked);
        }
        looked.found.ok_or(MdError::NotFound)
    }

    /// Answers a question for the size of an object.
    pub fn tell_size(&self, question: u64, unflushed: Option<Unflushed>) -> Result<(), MdError> {
        self.done(Op::TellSize {
            question,
            unflushed,
        })
    }

    /// Returns once everything answered before is on the service's disk.
    pub fn sync(&self) -> Result<(), MdError> {
        self.done(Op::Sync)
    }

    /// Totals over the data servers.
    pub fn statfs(&self) -> Result<StatFs, MdError> {
        expect!(self.call(Op::StatFs)?, Reply::StatFs(totals) => totals)
    }

    /// A page of a dump of all metadata; see [`Op::Dump`].
    pub fn dump(&self, ticket: Option<u64>, offset: u64) -> Result<DumpPage, MdError> {
        expect!(self.call(Op::Dump { ticket, offset })?, Reply::Dump(page) => page)
    }

    /// The data servers.
    pub fn servers(&self) -> Result<Vec<ServerInfo>, MdError> {
        expect!(self.call(Op::Servers)?, Reply::Servers(servers) => servers)
    }
}

impl std::fmt::Debug for Md {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Md")
            .field("session", &self.session())
            .finish_non_exhaustive()
    }
}
