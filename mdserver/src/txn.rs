//! Transactions: one operation, one batch.
//!
//! A transaction holds the state's lock. It sees its own changes; they become visible to others once the batch is in
//! the store. If it is dropped before [`Txn::commit`], it has changed nothing.

use foldhash::{HashMap, HashMapExt};
use parking_lot::MutexGuard;
use slabfs_model::{ChunkId, ServerId, SessionId};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::{Ino, Kind, MdError, Reply, ReplyType, Time};
use crate::core::{Core, Ctx, Holders, SlotChange, State};
use crate::keys;
use crate::kv::{Batch, Lsn};
use crate::namespace::Remembered;
use crate::placement::RetireKey;
use crate::records::{Body, Inode, LeaseRecord, Object, Slot, Writer, encode};
use crate::sessions::{is_used_up, session_of};
use crate::tags::Entries;

/// A change under way: the state's lock, one batch, and the changes to publish once the batch is stored.
pub(crate) struct Txn<'a> {
    pub(crate) core: &'a Core,
    pub(crate) ctx: Ctx,
    pub(crate) state: MutexGuard<'a, State>,
    /// Changes of keys other than inodes and slots.
    pub(crate) batch: Batch,
    /// The time of all changes of this transaction.
    pub(crate) now: Time,
    inodes: SmallVec<[(Ino, Option<Arc<Inode>>); 4]>,
    slots: SmallVec<[SlotChange; 4]>,
    /// Changed open counts, by inode; a map, as one release may name very many.
    opens: HashMap<Ino, Holders>,
    retired: Vec<(ServerId, RetireKey)>,
    purges: Vec<(Ino, u32)>,
    waiting: Vec<Ino>,
    removed: Vec<Remembered>,
    /// Parts of the caller's leases in which ids were committed.
    leases: BTreeMap<u64, LeaseRecord>,
    /// Changes of the index of tags.
    pub(crate) tags: Entries,
    made: i64,
}

impl<'a> Txn<'a> {
    /// A transaction under the state's lock that has changed nothing yet.
    pub(crate) fn new(core: &'a Core, ctx: Ctx, state: MutexGuard<'a, State>) -> Self {
        Self {
            core,
            ctx,
            state,
            batch: Batch::new(),
            now: Time::now(),
            inodes: SmallVec::new(),
            slots: SmallVec::new(),
            opens: HashMap::new(),
            retired: Vec::new(),
            purges: Vec::new(),
            waiting: Vec::new(),
            removed: Vec::new(),
            leases: BTreeMap::new(),
            tags: Entries::default(),
            made: 0,
        }
    }

    /// An inode as this transaction sees it.
    pub(crate) fn inode(&mut self, ino: Ino) -> Result<Arc<Inode>, MdError> {
        match self.inodes.iter().find(|(of, _)| *of == ino) {
            Some((_, Some(inode))) => Ok(Arc::clone(inode)),
            Some((_, None)) => Err(MdError::NotFound),
            None => self.state.inode(&*self.core.kv, ino),
        }
    }

    /// An inode to be changed and stored. The cache drops its copy, so that the inode need not be cloned; if this
    /// transaction does not commit, the cache reads the store again.
    pub(crate) fn own<'i>(&mut self, inode: &'i mut Arc<Inode>) -> &'i mut Inode {
        self.state.forget_inode(inode.attr.ino);
        Arc::make_mut(inode)
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

    /// Stores an inode whose data was written at `at`, possibly before another change of it.
    pub(crate) fn put_written(&mut self, mut inode: Arc<Inode>, at: Time) {
        let now = self.now;
        let attr = &mut Arc::make_mut(&mut inode).attr;
        // The clock may have been set back since.
        attr.ctime = attr.ctime.min(now).max(at);
        attr.change += 1;
        self.set(attr.ino, Some(inode));
    }

    /// Stores an inode without any visible change.
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

    /// A new inode number; [`Core::begin_making`] ensures that there are enough.
    pub(crate) fn new_ino(&mut self) -> Result<Ino, MdError> {
        let ids = &mut self.state.ids;
        if ids.ino >= ids.ino_limit {
            return Err(MdError::Busy);
        }
        let ino = slabfs_model::ObjectId(ids.ino);
        ids.ino += 1;
        Ok(ino)
    }

    /// How many times `session` has `ino` open, as this transaction sees it.
    pub(crate) fn opened(&self, ino: Ino, session: SessionId) -> u32 {
        let count = |all: Option<&Holders>| {
            let found = all?.iter().find(|(by, _)| *by == session);
            found.map(|(_, count)| *count)
        };
        count(self.opens.get(&ino))
            .or_else(|| count(self.state.opens.get(&ino)))
            .unwrap_or(0)
    }

    /// Sets how many times `session` has `ino` open.
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
                match self.opened(ino, session) {
                    0 => self.batch.put_new(key, encode(&count)?),
                    _ => self.batch.put(key, encode(&count)?),
                };
            } else if self.opened(ino, session) > 0 {
                self.batch.delete(key);
            }
        }
        let changed = self.opens.entry(ino).or_default();
        match changed.iter_mut().find(|(by, _)| *by == session) {
            Some((_, present)) => *present = count,
            None => changed.push((session, count)),
        }
        Ok(())
    }

    /// Whether any session has `ino` open, as this transaction sees it.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        let changed = self.opens.get(&ino).map_or(&[][..], |all| &all[..]);
        let others = self.state.opens.get(&ino).map_or(&[][..], |all| &all[..]);
        changed.iter().any(|(_, count)| *count > 0)
            || others
                .iter()
                .any(|(by, _)| !changed.iter().any(|(of, _)| of == by))
    }

    /// Orders a data server to delete something, once the journal is on disk.
    pub(crate) fn retire(&mut self, server: ServerId, what: RetireKey) -> Result<(), MdError> {
        self.batch.put(what.key(server), encode(&())?);
        self.retired.push((server, what));
        Ok(())
    }

    /// Orders the purge of the tilings below a generation, in the background.
    pub(crate) fn purge(&mut self, ino: Ino, below: u32) -> Result<(), MdError> {
        let below = below.max(self.state.purges.get(&ino).copied().unwrap_or(0));
        self.batch.put(keys::purge(ino), encode(&below)?);
        self.purges.push((ino, below));
        Ok(())
    }

    /// Records that chunks of the object wait for a settle.
    pub(crate) fn waits(&mut self, ino: Ino) {
        self.waiting.push(ino);
    }

    /// Commits chunk ids that are leased to the caller.
    pub(crate) fn commit_chunks(&mut self, chunks: &[ChunkId]) -> Result<(), MdError> {
        let session = session_of(&self.ctx)?;
        self.leases = self.state.session(session)?.leases.using(chunks)?;
        for (first, part) in &self.leases {
            let key = keys::lease(session, *first);
            match is_used_up(part) {
                true => self.batch.delete(key),
                false => self.batch.put(key, encode(part)?),
            };
        }
        Ok(())
    }

    /// Removes an inode that has no name and is not open, and everything that belongs to it.
    pub(crate) fn destroy(&mut self, inode: &Inode, was_orphan: bool) -> Result<(), MdError> {
        let ino = inode.attr.ino;
        if was_orphan {
            self.batch.delete(keys::orphan(ino));
        }
        let shard = self.core.options.shard;
        if shard.divided() && !shard.has_names() {
            self.batch.delete(keys::linked(ino));
        }
        self.delete_xattrs(inode)?;
        match &inode.body {
            Body::Object(object) => self.retire_all(ino, object)?,
            Body::Directory { collided: true, .. } => {
                let (from, to) = (keys::slot(ino, 0), keys::slot(ino, u64::MAX));
                for (key, _) in self.core.kv.scan(&from, &to, usize::MAX)? {
                    self.batch.delete(key);
                }
            }
            Body::Directory { .. } | Body::Symlink(_) | Body::Node | Body::Remote(_) => {}
        }
        self.removed.push(Remembered::of(inode));
        self.made -= 1;
        self.set(ino, None);
        Ok(())
    }

    fn retire_all(&mut self, ino: Ino, object: &Object) -> Result<(), MdError> {
        self.retire_grid(object, RetireKey::Object(ino))?;
        if object.next_order > 0 {
            self.purge(ino, u32::MAX)?;
        }
        Ok(())
    }

    /// Orders all data servers that may hold grid chunks of an object to delete them.
    pub(crate) fn retire_grid(&mut self, object: &Object, what: RetireKey) -> Result<(), MdError> {
        let info = &object.info;
        if info.is_grid() || object.spare > info.generation || !object.strays.is_empty() {
            for &server in info.stripe.iter().chain(&object.strays) {
                self.retire(server, what)?;
            }
        }
        Ok(())
    }

    /// Writes the batch, with the reply if it has to be cached, and publishes all changes.
    pub(crate) fn commit<R: ReplyType>(self, reply: R) -> Result<R, MdError> {
        self.commit_then(reply, |_| ())
    }

    /// As [`Txn::commit`], with one more change of the state, made if the batch is stored.
    pub(crate) fn commit_then<R: ReplyType>(
        self,
        reply: R,
        then: impl FnOnce(&mut State),
    ) -> Result<R, MdError> {
        let reply = reply.into();
        self.store(&reply, then)?;
        reply.try_into()
    }

    fn store(mut self, reply: &Reply, then: impl FnOnce(&mut State)) -> Result<(), MdError> {
        let mut writer = Writer::new();
        for (ino, inode) in &mut self.inodes {
            if let Some(inode) = inode
                && let Body::Object(object) = &inode.body
                && self.state.closed.any(*ino, object)
                && let Body::Object(object) = &mut Arc::make_mut(inode).body
            {
                self.state.closed.strip(*ino, object);
            }
            match inode {
                Some(inode) => self.batch.put(keys::inode(*ino), writer.inode(inode)?),
                None => self.batch.delete(keys::inode(*ino)),
            };
        }
        for ((parent, at), slot) in &self.slots {
            match slot {
                Some(slot) => self.batch.put(keys::slot(*parent, *at), writer.slot(slot)),
                None => self.batch.delete(keys::slot(*parent, *at)),
            };
        }
        if self.made != 0 {
            let inodes = self.state.ids.inodes.saturating_add_signed(self.made);
            self.batch.put(keys::INODES, writer.count(inodes));
        }
        let forgotten = self.keep_reply(reply)?;
        if self.batch.is_empty() {
            self.show_opens();
            then(&mut self.state);
            return Ok(());
        }
        let (inodes, slots) = (self.inodes.iter(), self.slots.iter());
        self.state
            .forget(inodes.map(|(ino, _)| *ino), slots.map(|(at, _)| *at));
        let lsn = self.write()?;
        let gone = self.inodes.iter().filter(|(_, inode)| inode.is_none());
        self.core.rights.gone(gone.map(|(ino, _)| *ino));
        self.core.removed.add(self.removed.drain(..));
        let state = &mut *self.state;
        for (ino, _) in &self.inodes {
            state.closed.forget(*ino);
        }
        let inodes = self.inodes.drain(..);
        state.saw(
            inodes.filter_map(|(ino, inode)| Some((ino, inode?))),
            self.slots.drain(..),
        );
        state.ids.inodes = state.ids.inodes.saturating_add_signed(self.made);
        for (server, what) in self.retired.drain(..) {
            state.retired.add(server, what, lsn);
        }
        state.purges.extend(self.purges.drain(..));
        state.waiting.extend(self.waiting.drain(..));
        if let Some(session) = self.ctx.session
            && let Ok(session) = state.session(session)
        {
            if let Some(forgotten) = forgotten {
                session.replied(self.ctx.seq, &forgotten);
            }
            session.leases.set(std::mem::take(&mut self.leases));
        }
        self.show_opens();
        then(&mut self.state);
        Ok(())
    }

    /// Writes the batch to the store and its tags to the index; see [`crate::tags::Live`] for the order.
    fn write(&mut self) -> Result<Lsn, MdError> {
        let batch = std::mem::take(&mut self.batch);
        let core = self.core;
        core.tags
            .around(&*core.kv, &self.tags, || core.kv.commit(batch))
    }

    /// Adds the reply to the batch and deletes the replies that will not be requested again.
    fn keep_reply(&mut self, reply: &Reply) -> Result<Option<Vec<u64>>, MdError> {
        let Ctx {
            session: Some(session),
            seq,
            done_below,
            remote: true,
            ..
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
        self.batch
            .put_new(keys::reply(session, seq), encode(reply)?);
        Ok(Some(forgotten))
    }

    fn show_opens(&mut self) {
        for (ino, changed) in std::mem::take(&mut self.opens) {
            let holders = self.state.opens.entry(ino).or_default();
            for (session, count) in changed {
                holders.retain(|(by, _)| *by != session);
                if count > 0 {
                    holders.push((session, count));
                }
            }
            if holders.is_empty() {
                self.state.opens.remove(&ino);
            }
        }
    }
}
