//! State shared by all operations: the store, and the in-memory state behind one lock.
//!
//! **Lock order.** (1) The lock of one object's tiling ([`crate::tilings::Tilings`]), held by every operation that
//! changes its tiling, dims or declaration; long work is done under it (loading a tiling, geometry). (2) The state:
//! one fair lock around everything else in memory, held for microseconds: look up, write one batch, update the
//! caches. (3) The store's own locks. A thread that holds a later one never takes an earlier one, and no thread waits
//! for the network or a disk sync under any of them.
//!
//! **Lookups without the state.** [`Seen`] holds copies of inodes and slots under small locks of its own. It never
//! contradicts the store: what a transaction changes is removed before the batch is written and inserted again after
//! it. So a lookup of one inode or one name may use a copy from there, or the fact that the store lacks a name,
//! without waiting for a batch that another thread writes; everything else locks the state.
//!
//! **Invariants of the state.** The store is authoritative, and a [`Txn`] writes to it (sessions and servers write
//! records of their own in the same way), under the state's lock, in one batch per operation. Caches hold what the
//! store holds and are changed after the batch is written. A change that must become visible in memory only after it
//! is in the store waits in the transaction. So an operation that fails at any point has changed nothing.

use foldhash::{HashMap, HashMapExt};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use slabfs_model::SessionId;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::api::{Ino, LockEpoch, MdError, RightsEpoch, SharedInfo, Time};
use crate::cache::Cache;
use crate::dump::Dumps;
use crate::keys;
use crate::kv::{Batch, KvError, MetaKv};
use crate::locks::LockServer;
use crate::matcher::Matchers;
use crate::namespace::Removed;
use crate::placement::{Permits, Retired, Servers};
use crate::records::{Inode, Slot, decode, encode};
use crate::service::ServiceOptions;
use crate::sessions::{Fences, Session, Sessions};
use crate::tags::Live;
use crate::tilings::{Closed, Tilings};
use crate::txn::Txn;

/// The service without its threads.
pub(crate) struct Core {
    pub(crate) kv: Box<dyn MetaKv>,
    pub(crate) options: ServiceOptions,
    pub(crate) tilings: Tilings,
    /// The index of tags.
    pub(crate) tags: Live,
    pub(crate) dumps: Dumps,
    pub(crate) locks: LockServer,
    pub(crate) rights: crate::rights::LockServer,
    pub(crate) removed: Removed,
    pub(crate) matchers: Matchers,
    state: Mutex<State>,
    /// Copies of the state, for lookups without its lock.
    pub(crate) seen: Arc<Seen>,
    /// Notified when a request ends: a resend with the same number may wait for it.
    pub(crate) answered: Condvar,
    /// Sessions attached, for [`crate::api::Metadata::session_count`].
    pub(crate) session_count: AtomicU32,
    /// Live sessions in this process, and whether each is read-only: a copy, for lookups without the state's lock.
    /// They end only by detaching, so the time of their last heartbeat is not needed.
    local: RwLock<SmallVec<[(SessionId, bool); 2]>>,
}

/// The caller of an operation: its session, and the request's sequence number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ctx {
    /// `None` for the service's own work.
    pub(crate) session: Option<SessionId>,
    pub(crate) seq: u64,
    pub(crate) done_below: u64,
    /// The caller is another process: its reply and its opens are stored in the store.
    pub(crate) remote: bool,
    /// Directories that it may move or remove: no session has cached entries of these.
    pub(crate) moves: [Option<Ino>; 2],
}

impl Ctx {
    /// The service itself.
    pub(crate) const SERVICE: Self = Self {
        session: None,
        seq: 0,
        done_below: 0,
        remote: false,
        moves: [None; 2],
    };

    /// A session whose request is not to be recorded.
    pub(crate) fn unnumbered(session: SessionId, remote: bool) -> Self {
        Self {
            session: Some(session),
            remote,
            ..Self::SERVICE
        }
    }

    /// Refuses to move or remove a directory that had another name, or none, when its cached entries were recalled.
    pub(crate) fn may_move(&self, inode: &Inode) -> Result<(), MdError> {
        match inode.attr.kind == crate::api::Kind::Directory
            && !self.moves.contains(&Some(inode.attr.ino))
        {
            true => Err(MdError::NamesCached),
            false => Ok(()),
        }
    }
}

/// Opens of one inode: session and count.
pub(crate) type Holders = SmallVec<[(SessionId, u32); 1]>;

/// A changed slot of a directory.
pub(crate) type SlotChange = (SlotKey, Option<Arc<Slot>>);
/// A directory and the slot in it.
type SlotKey = (Ino, u64);

/// Copies of what the store holds; see the module documentation. Only the holder of the state's lock changes them.
pub(crate) struct Seen {
    inodes: Mutex<Cache<Ino, Arc<Inode>>>,
    slots: Mutex<Cache<SlotKey, Option<Arc<Slot>>>>,
}

/// Everything in memory but tilings.
pub(crate) struct State {
    seen: Arc<Seen>,
    pub(crate) ids: Ids,
    pub(crate) sessions: Sessions,
    pub(crate) fences: Fences,
    /// At the start, sessions were found that had ended, or ended then, without detaching cleanly.
    pub(crate) unclean: bool,
    /// Ended sessions of which only the records are left: these stay until the ends are closed.
    pub(crate) given_up: BTreeSet<SessionId>,
    pub(crate) opens: HashMap<Ino, Holders>,
    /// The array info of the last new file, shared with the next one that is alike.
    pub(crate) new_file: Option<SharedInfo>,
    /// Reservations that have no effect any more.
    pub(crate) closed: Closed,
    /// Objects with chunks that wait for a settle.
    pub(crate) waiting: HashSet<Ino>,
    pub(crate) servers: Servers,
    pub(crate) permits: Permits,
    pub(crate) retired: Retired,
    /// Objects whose generations below a number are to be purged.
    pub(crate) purges: BTreeMap<Ino, u32>,
}

/// The next numbers. Inode numbers and chunk ids name data on the data servers, so none may be assigned twice, even
/// if a power loss takes the last seconds of the journal: they are assigned only below limits that are on disk.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ids {
    pub(crate) ino: u64,
    pub(crate) ino_limit: u64,
    pub(crate) chunk: u64,
    pub(crate) chunk_limit: u64,
    pub(crate) session: u64,
    pub(crate) server: u32,
    /// Number of inodes.
    pub(crate) inodes: u64,
}

/// How far the limits of numbers are moved at a time; they are moved early, when half of it is used.
const ID_BLOCK: u64 = 1 << 20;

impl From<KvError> for MdError {
    fn from(error: KvError) -> Self {
        match error {
            KvError::NoSpace { .. } => Self::NoSpace,
            KvError::Invalid(detail) => {
                Self::Invalid(format!("too much at once: {detail}; send fewer at a time"))
            }
            KvError::Unavailable { detail } => Self::Unavailable {
                addr: "of this process".to_owned(),
                detail,
            },
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<crate::api::SpecError> for MdError {
    fn from(error: crate::api::SpecError) -> Self {
        match error {
            crate::api::SpecError::PastEnd { .. } => Self::TooBig(error.to_string()),
            other => Self::Invalid(other.to_string()),
        }
    }
}

/// What was looked up; `None` if it does not exist.
pub(crate) fn if_any<T>(found: Result<T, MdError>) -> Result<Option<T>, MdError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(MdError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Seen {
    /// A copy of an inode.
    pub(crate) fn inode(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.inodes.lock().get(&ino)
    }

    /// A copy of a slot, or of the fact that it is empty.
    pub(crate) fn slot(&self, parent: Ino, at: u64) -> Option<Option<Arc<Slot>>> {
        self.slots.lock().get(&(parent, at))
    }
}

impl State {
    /// An empty state with caches sized by the options.
    pub(crate) fn new(options: &ServiceOptions) -> Self {
        Self {
            seen: Arc::new(Seen {
                inodes: Mutex::new(Cache::new(options.cached_inodes)),
                slots: Mutex::new(Cache::new(options.cached_inodes)),
            }),
            ids: Ids::default(),
            sessions: Sessions::default(),
            fences: Fences::new(),
            unclean: false,
            given_up: BTreeSet::new(),
            opens: HashMap::new(),
            new_file: None,
            closed: Closed::new(),
            waiting: HashSet::new(),
            servers: Servers::new(),
            permits: Permits::default(),
            retired: Retired::default(),
            purges: BTreeMap::new(),
        }
    }

    /// An inode, from the copies or the store.
    pub(crate) fn inode(&mut self, kv: &dyn MetaKv, ino: Ino) -> Result<Arc<Inode>, MdError> {
        if let Some(inode) = self.seen.inode(ino) {
            return Ok(inode);
        }
        let key = keys::inode(ino);
        let bytes = kv.get(&key)?.ok_or(MdError::NotFound)?;
        let inode: Arc<Inode> = Arc::new(decode(&key, &bytes)?);
        self.seen.inodes.lock().insert(ino, Arc::clone(&inode));
        Ok(inode)
    }

    /// A slot of a directory, from the copies or the store.
    pub(crate) fn slot(
        &mut self,
        kv: &dyn MetaKv,
        parent: Ino,
        at: u64,
    ) -> Result<Option<Arc<Slot>>, MdError> {
        if let Some(slot) = self.seen.slot(parent, at) {
            return Ok(slot);
        }
        let key = keys::slot(parent, at);
        let slot = match kv.get(&key)? {
            Some(bytes) => Some(Arc::new(decode::<Slot>(&key, &bytes)?)),
            None => None,
        };
        self.seen.slots.lock().insert((parent, at), slot.clone());
        Ok(slot)
    }

    /// Records what is in the store now.
    pub(crate) fn saw(
        &mut self,
        inodes: impl Iterator<Item = (Ino, Arc<Inode>)>,
        slots: impl Iterator<Item = SlotChange>,
    ) {
        let mut seen = self.seen.inodes.lock();
        inodes.for_each(|(ino, inode)| seen.insert(ino, inode));
        drop(seen);
        let mut seen = self.seen.slots.lock();
        slots.for_each(|(at, slot)| seen.insert(at, slot));
    }

    /// Drops the copy of an inode that is about to change.
    pub(crate) fn forget_inode(&mut self, ino: Ino) {
        self.seen.inodes.lock().remove(&ino);
    }

    /// Drops the copies of what is about to change.
    pub(crate) fn forget(
        &mut self,
        inodes: impl Iterator<Item = Ino>,
        slots: impl Iterator<Item = (Ino, u64)>,
    ) {
        let mut seen = self.seen.inodes.lock();
        inodes.for_each(|ino| seen.remove(&ino));
        drop(seen);
        let mut seen = self.seen.slots.lock();
        slots.for_each(|at| seen.remove(&at));
    }

    /// The session, if it is alive.
    pub(crate) fn session(&mut self, session: SessionId) -> Result<&mut Session, MdError> {
        self.sessions
            .live
            .get_mut(&session)
            .ok_or(MdError::SessionLost)
    }
}

impl Core {
    /// The core over a store, with a state made from it.
    pub(crate) fn new(
        kv: Box<dyn MetaKv>,
        options: ServiceOptions,
        state: State,
        tags: Live,
    ) -> Self {
        let sessions = state.sessions.live.len() as u32;
        let now = Time::now();
        // Clients know it from this service, so it need not be secret; it only must never repeat.
        let epoch = (now.sec as u64).wrapping_mul(1_000_000_000) + u64::from(now.nsec) + 1;
        let before: BTreeSet<SessionId> = state.sessions.live.keys().copied().collect();
        let earlier = state.unclean && state.fences.earlier_is_open();
        Self {
            kv,
            dumps: Dumps::default(),
            rights: crate::rights::LockServer::new(RightsEpoch(epoch), before.clone(), earlier),
            removed: Removed::default(),
            matchers: Matchers::new(!before.is_empty()),
            locks: LockServer::new(LockEpoch(epoch), before, Instant::now() + options.lease),
            tilings: Tilings::new(options.cached_records),
            tags,
            options,
            seen: Arc::clone(&state.seen),
            state: Mutex::new(state),
            answered: Condvar::new(),
            session_count: AtomicU32::new(sessions),
            local: RwLock::default(),
        }
    }

    /// Locks the state.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The current state of an inode.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>, MdError> {
        if let Some(inode) = self.seen.inode(ino) {
            return Ok(inode);
        }
        self.fetch(ino)?;
        self.state().inode(&*self.kv, ino)
    }

    /// Makes the store read the row of an inode that is not cached here, so that it is in memory when it is needed
    /// under the state's lock: reading a page of the index costs as much as the rest of a request.
    pub(crate) fn fetch(&self, ino: Ino) -> Result<(), MdError> {
        if self.seen.inode(ino).is_none() {
            self.kv.get(&keys::inode(ino))?;
        }
        Ok(())
    }

    /// Whether a session in this process is read-only; `None` if there is no such session.
    pub(crate) fn local_reads_only(&self, session: SessionId) -> Option<bool> {
        let local = self.local.read();
        let found = local.iter().find(|(id, _)| *id == session);
        found.map(|&(_, read_only)| read_only)
    }

    /// Publishes the attached sessions.
    pub(crate) fn count_sessions(&self, state: &State) {
        let live = state.sessions.live.iter();
        *self.local.write() = live
            .filter(|(_, session)| session.record.local)
            .map(|(&id, session)| (id, session.record.read_only))
            .collect();
        self.session_count
            .store(state.sessions.live.len() as u32, Ordering::Release);
    }

    /// Ensures that this many inode numbers and chunk ids can be assigned, moving the limits on disk if necessary.
    pub(crate) fn ensure_ids(&self, inos: u64, chunks: u64) -> Result<(), MdError> {
        let enough =
            |ids: &Ids| ids.ino + inos <= ids.ino_limit && ids.chunk + chunks <= ids.chunk_limit;
        if enough(&self.state().ids) {
            Ok(())
        } else {
            self.extend_ids()
        }
    }

    /// Whether the limits should be moved before a request has to wait for it.
    pub(crate) fn ids_low(&self) -> bool {
        let ids = self.state().ids;
        let low = |next, limit| next + ID_BLOCK / 2 > limit;
        low(ids.ino, ids.ino_limit) || low(ids.chunk, ids.chunk_limit)
    }

    /// Moves the limits, on disk.
    pub(crate) fn extend_ids(&self) -> Result<(), MdError> {
        let (ino_limit, chunk_limit) = {
            let state = self.state();
            let limits = (state.ids.ino + ID_BLOCK, state.ids.chunk + ID_BLOCK);
            let mut batch = Batch::new();
            batch.put(keys::NEXT_INO, encode(&limits.0)?);
            batch.put(keys::NEXT_CHUNK, encode(&limits.1)?);
            self.kv.commit(batch)?;
            limits
        };
        self.kv.sync()?;
        let mut state = self.state();
        state.ids.ino_limit = state.ids.ino_limit.max(ino_limit);
        state.ids.chunk_limit = state.ids.chunk_limit.max(chunk_limit);
        Ok(())
    }

    /// Begins a transaction that may assign this many inode numbers, if the caller's session is alive.
    pub(crate) fn begin_making(&self, ctx: &Ctx, inos: u64) -> Result<Txn<'_>, MdError> {
        let txn = self.begin(ctx)?;
        let ids = &txn.state.ids;
        if ids.ino + inos <= ids.ino_limit {
            return Ok(txn);
        }
        drop(txn);
        self.ensure_ids(inos, 0)?;
        self.begin(ctx)
    }

    /// The state, if the caller's session is alive and still waits for this request.
    pub(crate) fn enter(&self, ctx: &Ctx) -> Result<MutexGuard<'_, State>, MdError> {
        let mut state = self.state();
        if let Some(session) = ctx.session
            && state.session(session)?.answers.is_over(ctx.seq)
        {
            return Err(MdError::Stale);
        }
        Ok(state)
    }

    /// Begins a transaction, if the caller's session is alive and still waits for this request.
    pub(crate) fn begin(&self, ctx: &Ctx) -> Result<Txn<'_>, MdError> {
        Ok(Txn::new(self, *ctx, self.enter(ctx)?))
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
