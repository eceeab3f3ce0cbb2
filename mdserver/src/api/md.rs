//! [`Md`]: a session with a metadata service, one method per operation.

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

/// Longest time to retry while other sessions have names cached. The service itself gives up on them earlier.
const LONGEST_KEPT: Duration = Duration::from_secs(120);

/// Pause before the first retry of such a request, and before later ones.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(200);

/// A session with a metadata service. Clones share the session; all methods may be called from any thread. The owner
/// calls [`Md::heartbeat`] at a third of the lease, and [`Md::detach`] at the end.
#[derive(Clone)]
pub struct Md {
    inner: Arc<Inner>,
}

struct Inner {
    metadata: Arc<dyn Metadata>,
    /// The op that attaches it.
    attach: Op,
    numbers: Mutex<Numbers>,
    servers_version: AtomicU64,
    requests: AtomicU64,
    commits: AtomicU64,
    /// Cached names, if the session takes part in rights.
    names: Option<NameCache>,
}

/// Requests of one mount to its metadata service; they only grow. A request that is resent because its reply was lost
/// counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// All except heartbeats and polls, of which there are some each second in any case.
    pub all: u64,
    /// Those that make stored data part of an object ([`Op::Commit`]).
    pub commits: u64,
}

/// The session and its sequence numbers: the next one, and those that are not answered yet.
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
            // Its session is over; the numbers belong to another one.
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

/// Extracts the only reply that an op can have.
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

    /// Opens another session in place of one that is over. Requests under way still belong to the old one.
    pub fn reattach(&self) -> Result<Attached, MdError> {
        let attached = ask_to_attach(&*self.inner.metadata, self.inner.attach.clone())?;
        *self.inner.numbers.lock() = Numbers::of(attached.session);
        self.inner
            .servers_version
            .store(attached.servers_version, Ordering::Release);
        Ok(attached)
    }

    /// Number of sessions attached when the last reply was made, including this one.
    #[must_use]
    pub fn session_count(&self) -> u32 {
        self.inner.metadata.session_count()
    }

    /// Number of requests to the service so far.
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

    /// A request that changes something, with a new sequence number.
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

    /// A request that changes names or directories, which other sessions may have to drop from their caches first. It
    /// is retried until that is done, since the service waits for a dead mount for longer than one try.
    fn call_until_forgotten(&self, op: Op) -> Result<Reply, MdError> {
        let until = Instant::now() + LONGEST_KEPT;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.call_numbered(op.clone()) {
                Err(MdError::NamesCached) if Instant::now() < until => {}
                other => return other,
            }
            // If too many requests wait, a try is refused at once.
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

    /// Version of the list of data servers as of the last reply.
    #[must_use]
    pub fn servers_version(&self) -> u64 {
        self.inner.servers_version.load(Ordering::Acquire)
    }

    /// Keeps the session alive, and reports that all its writes use version `knows` of the list of data servers;
    /// returns the list if it changed.
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

    /// Ends the session; `clean` if everything it stored is committed or deleted.
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

    /// Finds a name as [`Md::lookup`]; caches the answer if permitted.
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

    /// The answer of [`Md::look`], if it is cached.
    #[must_use]
    pub fn cached_name(&self, parent: Ino, name: &[u8]) -> Option<Result<Entry, MdError>> {
        let found = self.inner.names.as_ref()?.find(parent, name)?;
        Some(found.ok_or(MdError::NotFound))
    }

    /// The answer of [`Md::stat`], if it is cached: of directories.
    #[must_use]
    pub fn cached_directory(&self, ino: Ino) -> Option<Entry> {
        self.inner.names.as_ref()?.directory(ino)
    }

    /// Number of answers from the name cache.
    #[must_use]
    pub fn name_cache_hits(&self) -> u64 {
        self.inner.names.as_ref().map_or(0, NameCache::hits)
    }

    /// Drops cached entries of directories.
    pub fn forget_names(&self, directories: &[Ino]) {
        if let Some(names) = &self.inner.names {
            names.forget(directories);
        }
    }

    /// Drops all cached names.
    pub fn forget_all_names(&self) {
        if let Some(names) = &self.inner.names {
            names.forget_all();
        }
    }

    /// Acknowledges that the entries for a change by another session are dropped, or, without `change`, that nothing
    /// is cached.
    pub fn report_forgotten(&self, epoch: RightsEpoch, change: Option<u64>) -> Result<(), MdError> {
        self.done(Op::ReportForgotten { epoch, change })
    }

    /// Attributes of an inode.
    pub fn getattr(&self, ino: Ino) -> Result<Entry, MdError> {
        self.entry(Op::GetAttr { ino })
    }

    /// Attributes of an inode that was removed, after setting those given.
    pub fn removed(&self, ino: Ino, set: Option<SetAttr>) -> Result<Entry, MdError> {
        self.entry(Op::Removed { ino, set })
    }

    /// Creates an inode with a name; see [`Create`].
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

    /// Removes a name of anything but a directory.
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

    /// Renames as in POSIX.
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

    /// Creates objects, all of them or none, and returns their numbers in order.
    pub fn create_many(&self, objects: Vec<NewObject>) -> Result<Vec<Ino>, MdError> {
        expect!(self.call(Op::CreateMany { objects })?, Reply::CreatedMany(made) => made)
    }

    /// The defaults of a container.
    pub fn defaults(&self, ino: Ino) -> Result<Defaults, MdError> {
        expect!(self.call(Op::GetDefaults { ino })?, Reply::Defaults(defaults) => defaults)
    }

    /// Changes the defaults of a container and returns the result.
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

    /// A page of the tags of an inode, of names greater than `after`.
    pub fn tags_page(&self, ino: Ino, after: Option<String>) -> Result<TagsPage, MdError> {
        let op = Op::Tags { ino, after };
        expect!(self.call(op)?, Reply::Tags(page) => page)
    }

    /// One page of a search. Pages may be empty before the end; the last page has no [`Found::next`].
    pub fn find(&self, find: Find) -> Result<Found, MdError> {
        expect!(self.call(Op::Find(find))?, Reply::Found(found) => found)
    }

    /// Counts one more open of an inode by this session.
    pub fn open(&self, ino: Ino) -> Result<Entry, MdError> {
        self.entry(Op::Open { ino })
    }

    /// Drops one open for each inode named.
    pub fn release(&self, mut inos: Vec<Ino>) -> Result<(), MdError> {
        self.release_all(&mut inos)
    }

    /// Drops one open for each inode named. After an error, `inos` holds those that have to be retried; the others
    /// are released, or may be, now or later. An open of these may last until the session ends, and keeps an unlinked
    /// inode until then; a retry could drop the open of another caller that has opened the object since.
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

    /// The tiling since the version `known` (`Version(0)` for none), all pages merged.
    pub fn tiling(&self, ino: Ino, known: Version) -> Result<TilingReply, MdError> {
        self.tiling_part(ino, known, None)
    }

    /// As [`Md::tiling`]; of an unknown tiling with many records, only the part that is `wanted`.
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

    /// Appends the other pages to the first one, if they are of the same version.
    fn tiling_pages(
        &self,
        ino: Ino,
        mut first: TilingReply,
    ) -> Result<Option<TilingReply>, MdError> {
        let (version, wanted, records, more) = match &mut first {
            TilingReply::All {
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
                    TilingReply::All {
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

    /// Chunk ids that are never handed out again.
    pub fn lease_chunks(&self, count: u32) -> Result<Lease, MdError> {
        expect!(self.call(Op::LeaseChunks { count })?, Reply::Lease(lease) => lease)
    }

    /// Marks a data server as draining, or clears the mark.
    pub fn set_draining(&self, server: ServerId, draining: bool) -> Result<(), MdError> {
        self.done(Op::SetDraining { server, draining })
    }

    /// A page of the objects that have data on a data server.
    pub fn holdings(&self, server: ServerId, after: Ino) -> Result<Holdings, MdError> {
        let op = Op::Holdings { server, after };
        expect!(self.call(op)?, Reply::Holdings(holdings) => holdings)
    }

    /// Takes a write permit of a grid object: [`Permit::Write`] or [`Permit::Move`].
    pub fn take_permit(&self, ino: Ino, permit: Permit) -> Result<Permitted, MdError> {
        expect!(self.call(Op::Permit { ino, permit })?, Reply::Permitted(permitted) => *permitted)
    }

    /// Returns the write permit of this number.
    pub fn give_permit(&self, ino: Ino, number: u64) -> Result<(), MdError> {
        let permit = Permit::Back(number);
        self.done(Op::Permit { ino, permit })
    }

    /// Replaces `from` by `to` in the stripe of a grid object.
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

    /// Replaces chunks by copies.
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

    /// Allocates about `bytes`: returns how many may go to each server. `spent`: the bytes stored on each since the
    /// last call.
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

    /// Sets dtype, dims and so on; `rewrite` only where [`SpecChange::resolve`] requires it.
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

    /// Reports that the data of all commits up to `version` is on the data servers' disks.
    pub fn settle(&self, ino: Ino, version: Version) -> Result<(), MdError> {
        self.done(Op::Settle { ino, version })
    }

    /// Requests or releases a lock.
    pub fn lock(&self, epoch: LockEpoch, ask: LockAsk) -> Result<LockReply, MdError> {
        expect!(self.call(Op::Lock { epoch, ask })?, Reply::Lock(reply) => reply)
    }

    /// Cancels a waiting request for a lock; returns false if it does not wait any more.
    pub fn cancel_lock(&self, ticket: LockTicket) -> Result<bool, MdError> {
        expect!(self.call(Op::CancelLock { ticket })?, Reply::LockCancelled(was) => was)
    }

    /// Outcomes of waiting requests, after event number `seen`; waits for one up to `wait`.
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

    /// Reclaims the session's locks, in one call or several. Returns the parts that others hold by now, and the epoch
    /// that begins with the last call: in that epoch the session holds what it reclaimed, less those parts.
    pub fn reclaim_locks(
        &self,
        held: Vec<HeldLocks>,
        first: bool,
        last: bool,
    ) -> Result<(Vec<LostLocks>, LockEpoch), MdError> {
        let op = Op::ReclaimLocks { held, first, last };
        expect!(self.call(op)?, Reply::LocksReclaimed { lost, epoch } => (lost, epoch))
    }

    /// Requests a right.
    pub fn ask_right(&self, epoch: RightsEpoch, ask: RightAsk) -> Result<RightReply, MdError> {
        expect!(self.call(Op::AskRight { epoch, ask })?, Reply::Right(reply) => reply)
    }

    /// Cancels a waiting request; if it was granted meanwhile, the grant is valid.
    pub fn cancel_right(&self, epoch: RightsEpoch, ticket: RightTicket) -> Result<(), MdError> {
        self.done(Op::CancelRight { epoch, ticket })
    }

    /// Returns rights.
    pub fn give_rights(&self, epoch: RightsEpoch, gives: Vec<RightGive>) -> Result<(), MdError> {
        self.done(Op::GiveRights { epoch, gives })
    }

    /// The lock server's events about rights after event number `seen`; waits for one up to `wait`.
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

    /// Resets the session's rights: it holds none, and caches nothing that would need one, except for `held`.
    pub fn reset_rights(&self, held: Vec<RightHeld>) -> Result<RightsBegun, MdError> {
        expect!(self.call(Op::ResetRights { held })?, Reply::RightsBegun(begun) => begun)
    }

    /// Attributes of an inode, including unflushed writes of other sessions; `keep`: caches those of a directory if
    /// permitted.
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

    /// Answers a size query.
    pub fn report_size(&self, question: u64, unflushed: Option<Unflushed>) -> Result<(), MdError> {
        self.done(Op::ReportSize {
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
