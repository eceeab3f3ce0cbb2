//! What the operations share: the store, the state in memory under one lock, and transactions.
//!
//! **Locks, in the order they are taken.** (1) The lock of one object's tiling
//! ([`crate::tilings::Tilings`]), held by whatever changes its tiling, dims or declaration; this is
//! where long work is done (loading a tiling, geometry). (2) The state: one fair lock around
//! everything else in memory, held for microseconds: look up, write one batch, update the caches.
//! (3) The store's own. Nobody who holds a later one takes an earlier one, and nothing waits for the
//! network or a disk sync under any of them.
//!
//! **What the state keeps true.** The store is the truth, and only a [`Txn`] writes to it, under the
//! state's lock, in one batch an operation. Caches hold what the store holds and are changed after
//! the batch is in. A change that must be seen in memory only after it is in the store waits in the
//! transaction. So an operation that fails at any point has changed nothing.

use parking_lot::{Condvar, Mutex, MutexGuard};
use slabfs_model::{ServerId, SessionId};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::api::{Ino, Kind, MdError, Reply, Time};
use crate::cache::Cache;
use crate::keys;
use crate::kv::{Batch, KvError, MetaKv};
use crate::placement::{RetireKey, Retired, Servers};
use crate::records::{Body, Inode, Object, Slot, decode, encode};
use crate::service::ServiceOptions;
use crate::sessions::{Session, Sessions};
use crate::tilings::Tilings;

/// The service without its threads.
pub(crate) struct Core {
    pub(crate) kv: Box<dyn MetaKv>,
    pub(crate) options: ServiceOptions,
    pub(crate) tilings: Tilings,
    state: Mutex<State>,
    /// Somebody waits for a request of the same number to end.
    pub(crate) answered: Condvar,
    /// Sessions attached, for [`crate::api::Metadata::session_count`].
    pub(crate) session_count: AtomicU32,
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
}

impl Ctx {
    /// The service itself.
    pub(crate) const SERVICE: Self = Self {
        session: None,
        seq: 0,
        done_below: 0,
        remote: false,
    };
}

/// Openings of one inode: who, and how often.
pub(crate) type Holders = SmallVec<[(SessionId, u32); 1]>;

/// Everything in memory but tilings.
pub(crate) struct State {
    inodes: Cache<Ino, Arc<Inode>>,
    slots: Cache<(Ino, u64), Option<Arc<Slot>>>,
    pub(crate) ids: Ids,
    pub(crate) sessions: Sessions,
    pub(crate) opens: HashMap<Ino, Holders>,
    /// Objects with chunks that wait for a settle.
    pub(crate) waiting: HashSet<Ino>,
    pub(crate) servers: Servers,
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
            KvError::Invalid(detail) => Self::Invalid(format!("too much at once: {detail}")),
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

impl State {
    /// An empty state with caches as the options say.
    pub(crate) fn new(options: &ServiceOptions) -> Self {
        Self {
            inodes: Cache::new(options.cached_inodes),
            slots: Cache::new(options.cached_inodes),
            ids: Ids::default(),
            sessions: Sessions::default(),
            opens: HashMap::new(),
            waiting: HashSet::new(),
            servers: Servers::new(),
            retired: Retired::default(),
            purges: BTreeMap::new(),
        }
    }

    /// An inode, from the cache or the store.
    pub(crate) fn inode(&mut self, kv: &dyn MetaKv, ino: Ino) -> Result<Arc<Inode>, MdError> {
        if let Some(inode) = self.inodes.get(&ino) {
            return Ok(inode);
        }
        let key = keys::inode(ino);
        let bytes = kv.get(&key)?.ok_or(MdError::NotFound)?;
        let inode: Arc<Inode> = Arc::new(decode(&key, &bytes)?);
        self.inodes.insert(ino, Arc::clone(&inode));
        Ok(inode)
    }

    /// A slot of a directory, from the cache or the store.
    pub(crate) fn slot(
        &mut self,
        kv: &dyn MetaKv,
        parent: Ino,
        at: u64,
    ) -> Result<Option<Arc<Slot>>, MdError> {
        if let Some(slot) = self.slots.get(&(parent, at)) {
            return Ok(slot);
        }
        let key = keys::slot(parent, at);
        let slot = match kv.get(&key)? {
            Some(bytes) => Some(Arc::new(decode::<Slot>(&key, &bytes)?)),
            None => None,
        };
        self.slots.insert((parent, at), slot.clone());
        Ok(slot)
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
    pub(crate) fn new(kv: Box<dyn MetaKv>, options: ServiceOptions, state: State) -> Self {
        let sessions = state.sessions.live.len() as u32;
        Self {
            kv,
            tilings: Tilings::new(options.cached_records),
            options,
            state: Mutex::new(state),
            answered: Condvar::new(),
            session_count: AtomicU32::new(sessions),
        }
    }

    /// The state, locked.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// An inode as it is now.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>, MdError> {
        self.state().inode(&*self.kv, ino)
    }

    /// Publishes how many sessions there are.
    pub(crate) fn count_sessions(&self, state: &State) {
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

    /// Begins a transaction, if the caller's session lives.
    pub(crate) fn begin(&self, ctx: &Ctx) -> Result<Txn<'_>, MdError> {
        let mut state = self.state.lock();
        if let Some(session) = ctx.session {
            state.session(session)?;
        }
        Ok(Txn {
            core: self,
            ctx: *ctx,
            state,
            batch: Batch::new(),
            now: Time::now(),
            inodes: SmallVec::new(),
            slots: SmallVec::new(),
            opens: SmallVec::new(),
            retired: Vec::new(),
            purges: Vec::new(),
            waiting: Vec::new(),
            made: 0,
        })
    }
}

/// A change under way: the state's lock, one batch, and what is to be seen once the batch is in.
pub(crate) struct Txn<'a> {
    pub(crate) core: &'a Core,
    pub(crate) ctx: Ctx,
    pub(crate) state: MutexGuard<'a, State>,
    /// Keys of other tables than inodes and slots.
    pub(crate) batch: Batch,
    /// The time of all changes of this transaction.
    pub(crate) now: Time,
    inodes: SmallVec<[(Ino, Option<Arc<Inode>>); 4]>,
    slots: SmallVec<[((Ino, u64), Option<Arc<Slot>>); 4]>,
    opens: SmallVec<[(Ino, SessionId, u32); 1]>,
    retired: Vec<(ServerId, RetireKey)>,
    purges: Vec<(Ino, u32)>,
    waiting: Vec<Ino>,
    made: i64,
}

impl Txn<'_> {
    /// An inode as this transaction sees it.
    pub(crate) fn inode(&mut self, ino: Ino) -> Result<Arc<Inode>, MdError> {
        match self.inodes.iter().find(|(of, _)| *of == ino) {
            Some((_, Some(inode))) => Ok(Arc::clone(inode)),
            Some((_, None)) => Err(MdError::NotFound),
            None => self.state.inode(&*self.core.kv, ino),
        }
    }

    /// A directory that still has a name.
    pub(crate) fn directory(&mut self, ino: Ino) -> Result<Arc<Inode>, MdError> {
        let inode = self.inode(ino)?;
        if inode.attr.kind != Kind::Directory {
            return Err(MdError::NotDirectory);
        }
        if inode.attr.nlink == 0 {
            return Err(MdError::NotFound);
        }
        Ok(inode)
    }

    /// Stores an inode; its change time and counter are set here.
    pub(crate) fn put(&mut self, mut inode: Arc<Inode>) {
        let now = self.now;
        let attr = &mut Arc::make_mut(&mut inode).attr;
        attr.ctime = now;
        attr.change += 1;
        self.set(attr.ino, Some(inode));
    }

    /// Stores an inode of which nothing changed that anybody sees.
    pub(crate) fn put_quietly(&mut self, inode: Arc<Inode>) {
        self.set(inode.attr.ino, Some(inode));
    }

    /// Stores a new inode.
    pub(crate) fn put_new(&mut self, inode: Inode) {
        self.made += 1;
        self.set(inode.attr.ino, Some(Arc::new(inode)));
    }

    fn set(&mut self, ino: Ino, inode: Option<Arc<Inode>>) {
        match self.inodes.iter_mut().find(|(of, _)| *of == ino) {
            Some((_, present)) => *present = inode,
            None => self.inodes.push((ino, inode)),
        }
    }

    /// A slot of a directory as this transaction sees it.
    pub(crate) fn slot(&mut self, parent: Ino, at: u64) -> Result<Option<Arc<Slot>>, MdError> {
        match self.slots.iter().find(|(key, _)| *key == (parent, at)) {
            Some((_, slot)) => Ok(slot.clone()),
            None => self.state.slot(&*self.core.kv, parent, at),
        }
    }

    /// Stores or removes a slot of a directory.
    pub(crate) fn set_slot(&mut self, parent: Ino, at: u64, slot: Option<Slot>) {
        let slot = slot.map(Arc::new);
        match self.slots.iter_mut().find(|(key, _)| *key == (parent, at)) {
            Some((_, present)) => *present = slot,
            None => self.slots.push(((parent, at), slot)),
        }
    }

    /// A new inode number; [`Core::ensure_ids`] comes first.
    pub(crate) fn new_ino(&mut self) -> Result<Ino, MdError> {
        let ids = &mut self.state.ids;
        if ids.ino >= ids.ino_limit {
            return Err(MdError::Busy);
        }
        let ino = slabfs_model::ObjectId(ids.ino);
        ids.ino += 1;
        Ok(ino)
    }

    /// How often `session` has `ino` open, as this transaction sees it.
    pub(crate) fn opened(&self, ino: Ino, session: SessionId) -> u32 {
        let changed = self
            .opens
            .iter()
            .find(|(of, by, _)| (*of, *by) == (ino, session));
        if let Some((_, _, count)) = changed {
            return *count;
        }
        let holders = self.state.opens.get(&ino);
        let count = holders.and_then(|all| all.iter().find(|(by, _)| *by == session));
        count.map_or(0, |(_, count)| *count)
    }

    /// Sets how often `session` has `ino` open.
    pub(crate) fn set_opened(
        &mut self,
        ino: Ino,
        session: SessionId,
        count: u32,
        remote: bool,
    ) -> Result<(), MdError> {
        if remote {
            let key = keys::open(session, ino);
            if count > 0 {
                self.batch.put(key, encode(&count)?);
            } else if self.opened(ino, session) > 0 {
                self.batch.delete(key);
            }
        }
        match self
            .opens
            .iter_mut()
            .find(|(of, by, _)| (*of, *by) == (ino, session))
        {
            Some((_, _, present)) => *present = count,
            None => self.opens.push((ino, session, count)),
        }
        Ok(())
    }

    /// Whether anybody has `ino` open, as this transaction sees it.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        let changed = |session| {
            self.opens
                .iter()
                .any(|(of, by, _)| (*of, *by) == (ino, session))
        };
        let others = self.state.opens.get(&ino);
        self.opens
            .iter()
            .any(|(of, _, count)| *of == ino && *count > 0)
            || others.is_some_and(|all| all.iter().any(|(by, _)| !changed(*by)))
    }

    /// Orders a data server to delete something, once the journal has it.
    pub(crate) fn retire(&mut self, server: ServerId, what: RetireKey) -> Result<(), MdError> {
        self.batch.put(what.key(server), encode(&())?);
        self.retired.push((server, what));
        Ok(())
    }

    /// Orders the taking apart of the tilings below a generation, in the background.
    pub(crate) fn purge(&mut self, ino: Ino, below: u32) -> Result<(), MdError> {
        let below = below.max(self.state.purges.get(&ino).copied().unwrap_or(0));
        self.batch.put(keys::purge(ino), encode(&below)?);
        self.purges.push((ino, below));
        Ok(())
    }

    /// Remembers that chunks of the object wait for a settle.
    pub(crate) fn waits(&mut self, ino: Ino) {
        self.waiting.push(ino);
    }

    /// Removes an inode that has no name and that nobody has open, and all that belongs to it.
    pub(crate) fn destroy(&mut self, inode: &Inode, was_orphan: bool) -> Result<(), MdError> {
        let ino = inode.attr.ino;
        if was_orphan {
            self.batch.delete(keys::orphan(ino));
        }
        if inode.xattrs > 0 {
            let (from, to) = keys::xattrs(ino);
            for (key, _) in self.core.kv.scan(&from, &to, usize::MAX)? {
                self.batch.delete(key);
            }
        }
        match &inode.body {
            Body::Object(object) => self.retire_all(ino, object)?,
            Body::Directory { collided: true, .. } => {
                let (from, to) = (keys::slot(ino, 0), keys::slot(ino, u64::MAX));
                for (key, _) in self.core.kv.scan(&from, &to, usize::MAX)? {
                    self.batch.delete(key);
                }
            }
            Body::Directory { .. } | Body::Symlink(_) | Body::Node => {}
        }
        self.made -= 1;
        self.set(ino, None);
        Ok(())
    }

    fn retire_all(&mut self, ino: Ino, object: &Object) -> Result<(), MdError> {
        let info = &object.info;
        if info.is_grid() || object.spare > info.generation {
            for &server in &info.stripe {
                self.retire(server, RetireKey::Object(ino))?;
            }
        }
        if object.next_order > 0 {
            self.purge(ino, u32::MAX)?;
        }
        Ok(())
    }

    /// Writes the batch, with the reply if it has to be kept, and makes all of it seen.
    pub(crate) fn commit(self, reply: Reply) -> Result<Reply, MdError> {
        self.commit_then(reply, |_| ())
    }

    /// As [`Txn::commit`], with one more change of the state that is done if the batch is in.
    pub(crate) fn commit_then(
        mut self,
        reply: Reply,
        then: impl FnOnce(&mut State),
    ) -> Result<Reply, MdError> {
        for (ino, inode) in &self.inodes {
            match inode {
                Some(inode) => self.batch.put(keys::inode(*ino), encode(&**inode)?),
                None => self.batch.delete(keys::inode(*ino)),
            };
        }
        for ((parent, at), slot) in &self.slots {
            match slot {
                Some(slot) => self.batch.put(keys::slot(*parent, *at), encode(&**slot)?),
                None => self.batch.delete(keys::slot(*parent, *at)),
            };
        }
        let forgotten = self.keep_reply(&reply)?;
        if self.batch.is_empty() {
            self.show_opens();
            then(&mut self.state);
            return Ok(reply);
        }
        let lsn = self.core.kv.commit(std::mem::take(&mut self.batch))?;
        let state = &mut *self.state;
        for (ino, inode) in self.inodes.drain(..) {
            match inode {
                Some(inode) => state.inodes.insert(ino, inode),
                None => state.inodes.remove(&ino),
            }
        }
        for (key, slot) in self.slots.drain(..) {
            state.slots.insert(key, slot);
        }
        state.ids.inodes = state.ids.inodes.saturating_add_signed(self.made);
        for (server, what) in self.retired.drain(..) {
            state.retired.add(server, what, lsn);
        }
        state.purges.extend(self.purges.drain(..));
        state.waiting.extend(self.waiting.drain(..));
        if let Some(forgotten) = forgotten
            && let Some(session) = self.ctx.session
            && let Ok(session) = state.session(session)
        {
            session.kept(self.ctx.seq, &forgotten);
        }
        self.show_opens();
        then(&mut self.state);
        Ok(reply)
    }

    /// Adds the reply to the batch and takes those out that nobody will ask for again.
    fn keep_reply(&mut self, reply: &Reply) -> Result<Option<Vec<u64>>, MdError> {
        let Ctx {
            session: Some(session),
            seq,
            done_below,
            remote: true,
        } = self.ctx
        else {
            return Ok(None);
        };
        if seq == 0 {
            return Ok(None);
        }
        let forgotten = self.state.session(session)?.forgettable(done_below);
        for &old in &forgotten {
            self.batch.delete(keys::reply(session, old));
        }
        self.batch.put(keys::reply(session, seq), encode(reply)?);
        Ok(Some(forgotten))
    }

    fn show_opens(&mut self) {
        for (ino, session, count) in self.opens.drain(..) {
            let holders = self.state.opens.entry(ino).or_default();
            holders.retain(|(by, _)| *by != session);
            if count > 0 {
                holders.push((session, count));
            }
            if holders.is_empty() {
                self.state.opens.remove(&ino);
            }
        }
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
