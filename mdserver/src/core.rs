//! What the operations share: the store, and the state in memory under one lock.
//!
//! **Locks, in the order they are taken.** (1) The lock of one object's tiling
//! ([`crate::tilings::Tilings`]), held by whatever changes its tiling, dims or declaration; this is
//! where long work is done (loading a tiling, geometry). (2) The state: one fair lock around
//! everything else in memory, held for microseconds: look up, write one batch, update the caches.
//! (3) The store's own. Nobody who holds a later one takes an earlier one, and nothing waits for the
//! network or a disk sync under any of them.
//!
//! **Looking without the state.** [`Seen`] holds copies of inodes and slots under small locks of its
//! own. It never says anything but what the store says: what a transaction changes is taken out
//! before the batch goes in and put back after. So whoever asks for one inode or one name may take a
//! copy from there, or that the store lacks a name, without waiting for the batch that somebody
//! writes; for all else he asks the state.
//!
//! **What the state keeps true.** The store is the truth, and a [`Txn`] writes to it (sessions and servers write
//! records of their own in the same way), under the
//! state's lock, in one batch an operation. Caches hold what the store holds and are changed after
//! the batch is in. A change that must be seen in memory only after it is in the store waits in the
//! transaction. So an operation that fails at any point has changed nothing.

use foldhash::{HashMap, HashMapExt};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use slabfs_model::SessionId;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::api::{Ino, LockEpoch, MdError, RightsEpoch, SharedInfo, Time};
use crate::brief;
use crate::cache::Cache;
use crate::dump::Dumps;
use crate::keys;
use crate::kv::{Batch, KvError, MetaKv};
use crate::locks::LockServer;
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
    state: Mutex<State>,
    /// The copies of the state, for a look without its lock.
    pub(crate) seen: Arc<Seen>,
    /// Somebody waits for a request of the same number to end.
    pub(crate) answered: Condvar,
    /// Sessions attached, for [`crate::api::Metadata::session_count`].
    pub(crate) session_count: AtomicU32,
    /// Sessions in this process that live, and whether each only reads: a copy, for a look without the
    /// state's lock. They end by detaching alone, so nobody asks when they were heard.
    local: RwLock<SmallVec<[(SessionId, bool); 2]>>,
}

/// Who asks, and which of the session's requests it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ctx {
    /// `None` for the service's own work.
    pub(crate) session: Option<SessionId>,
    pub(crate) seq: u64,
    pub(crate) done_below: u64,
    /// The caller is another process: its reply and its openings are kept in the store.
    pub(crate) remote: bool,
    /// Directories that it may move or remove by their names: nobody keeps anything of these.
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

    /// Refuses to move or remove a directory that had another name, or none, when it was asked who keeps it.
    pub(crate) fn may_move(&self, inode: &Inode) -> Result<(), MdError> {
        match inode.attr.kind == crate::api::Kind::Directory
            && !self.moves.contains(&Some(inode.attr.ino))
        {
            true => Err(MdError::Kept),
            false => Ok(()),
        }
    }
}

/// Openings of one inode: who, and how often.
pub(crate) type Holders = SmallVec<[(SessionId, u32); 1]>;

/// A slot of a directory as it is to be.
pub(crate) type SlotChange = (SlotKey, Option<Arc<Slot>>);
/// A directory and the place in it.
type SlotKey = (Ino, u64);

/// Copies of what the store holds; see the module. Only the state's owner puts in and takes out.
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
    /// Sessions were found at the start that had ended, or ended with that, and not by detaching cleanly.
    pub(crate) unclean: bool,
    /// Sessions of which nothing is left but their records: those stay until their ends are closed.
    pub(crate) given_up: BTreeSet<SessionId>,
    pub(crate) opens: HashMap<Ino, Holders>,
    /// What a new file was the last time, for the next one that is alike.
    pub(crate) new_file: Option<SharedInfo>,
    /// Reservations that count no more.
    pub(crate) closed: Closed,
    /// Objects with chunks that wait for a settle.
    pub(crate) waiting: HashSet<Ino>,
    pub(crate) servers: Servers,
    pub(crate) permits: Permits,
    pub(crate) retired: Retired,
    /// Objects whose generations below a number are to be taken apart.
    pub(crate) purges: BTreeMap<Ino, u32>,
}

/// The next numbers. Inode numbers and chunk ids name data on the data servers, so none may be given
/// twice even when a power loss takes the last seconds of the journal: they are given only below
/// limits that are on disk.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ids {
    pub(crate) ino: u64,
    pub(crate) ino_limit: u64,
    pub(crate) chunk: u64,
    pub(crate) chunk_limit: u64,
    pub(crate) session: u64,
    pub(crate) server: u32,
    /// Inodes there are.
    pub(crate) inodes: u64,
}

/// How far the limits of numbers are moved at a time; they are moved early, at half of it.
const ID_BLOCK: u64 = 1 << 20;

impl From<KvError> for MdError {
    fn from(error: KvError) -> Self {
        match error {
            KvError::NoSpace { .. } => Self::NoSpace,
            KvError::Invalid(detail) => {
                Self::Invalid(format!("too much at once: {detail}; send fewer at a time"))
            }
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

impl Seen {
    /// A copy of an inode.
    pub(crate) fn inode(&self, ino: Ino) -> Option<Arc<Inode>> {
        brief::lock(&self.inodes).get(&ino)
    }

    /// A copy of a slot, or that it is empty.
    pub(crate) fn slot(&self, parent: Ino, at: u64) -> Option<Option<Arc<Slot>>> {
        brief::lock(&self.slots).get(&(parent, at))
    }
}

impl State {
    /// An empty state with caches as the options say.
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
        brief::lock(&self.seen.inodes).insert(ino, Arc::clone(&inode));
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
        brief::lock(&self.seen.slots).insert((parent, at), slot.clone());
        Ok(slot)
    }

    /// Notes what is in the store now.
    pub(crate) fn saw(
        &mut self,
        inodes: impl Iterator<Item = (Ino, Arc<Inode>)>,
        slots: impl Iterator<Item = SlotChange>,
    ) {
        let mut seen = brief::lock(&self.seen.inodes);
        inodes.for_each(|(ino, inode)| seen.insert(ino, inode));
        drop(seen);
        let mut seen = brief::lock(&self.seen.slots);
        slots.for_each(|(at, slot)| seen.insert(at, slot));
    }

    /// Forgets an inode that is about to change.
    pub(crate) fn forget_inode(&mut self, ino: Ino) {
        brief::lock(&self.seen.inodes).remove(&ino);
    }

    /// Forgets what is about to change.
    pub(crate) fn forget(
        &mut self,
        inodes: impl Iterator<Item = Ino>,
        slots: impl Iterator<Item = (Ino, u64)>,
    ) {
        let mut seen = brief::lock(&self.seen.inodes);
        inodes.for_each(|ino| seen.remove(&ino));
        drop(seen);
        let mut seen = brief::lock(&self.seen.slots);
        slots.for_each(|at| seen.remove(&at));
    }

    /// The session, if it lives.
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
        // Whoever asks has heard it from this service, so it need not be a secret; only never the same.
        let epoch = (now.sec as u64).wrapping_mul(1_000_000_000) + u64::from(now.nsec) + 1;
        let before: BTreeSet<SessionId> = state.sessions.live.keys().copied().collect();
        let earlier = state.unclean && state.fences.earlier_is_open();
        Self {
            kv,
            dumps: Dumps::default(),
            rights: crate::rights::LockServer::new(RightsEpoch(epoch), before.clone(), earlier),
            removed: Removed::default(),
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

    /// The state, locked.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        brief::lock(&self.state)
    }

    /// An inode as it is now.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>, MdError> {
        if let Some(inode) = self.seen.inode(ino) {
            return Ok(inode);
        }
        self.fetch(ino)?;
        self.state().inode(&*self.kv, ino)
    }

    /// Has the store read the row of an inode that nobody has a copy of, so that it is in memory when it is asked
    /// for under the state's lock: a page of the index costs as much as the rest of a request.
    pub(crate) fn fetch(&self, ino: Ino) -> Result<(), MdError> {
        if self.seen.inode(ino).is_none() {
            self.kv.get(&keys::inode(ino))?;
        }
        Ok(())
    }

    /// Whether a session in this process only reads; `None` when there is no such session.
    pub(crate) fn local_reads_only(&self, session: SessionId) -> Option<bool> {
        let local = self.local.read();
        let found = local.iter().find(|(id, _)| *id == session);
        found.map(|&(_, read_only)| read_only)
    }

    /// Publishes which sessions there are.
    pub(crate) fn count_sessions(&self, state: &State) {
        let live = state.sessions.live.iter();
        *self.local.write() = live
            .filter(|(_, session)| session.record.local)
            .map(|(&id, session)| (id, session.record.read_only))
            .collect();
        self.session_count
            .store(state.sessions.live.len() as u32, Ordering::Release);
    }

    /// Sees to it that so many inode numbers and chunk ids can be given, on disk if need be.
    pub(crate) fn ensure_ids(&self, inos: u64, chunks: u64) -> Result<(), MdError> {
        let enough =
            |ids: &Ids| ids.ino + inos <= ids.ino_limit && ids.chunk + chunks <= ids.chunk_limit;
        if enough(&self.state().ids) {
            Ok(())
        } else {
            self.extend_ids()
        }
    }

    /// Whether limits should be moved before anybody has to wait for it.
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

    /// Begins a transaction that may give so many inode numbers, if the caller's session lives.
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

    /// Begins a transaction, if the caller's session lives and the request was not given up since it came.
    pub(crate) fn begin(&self, ctx: &Ctx) -> Result<Txn<'_>, MdError> {
        let mut state = self.state();
        if let Some(session) = ctx.session
            && state.session(session)?.is_over(ctx.seq)
        {
            return Err(MdError::Stale);
        }
        Ok(Txn::new(self, *ctx, state))
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
