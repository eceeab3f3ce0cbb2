//! What [`super::LocalKv`] does with a request, and how it ends. The work of its threads is in
//! `housekeeping`.
//!
//! Locks, in the order they may be taken: spare, journal, base, tables, the cache in the tables. A
//! commit holds the journal's lock from the number to the visibility of its batch, so commits become
//! visible in the order of their numbers.

use super::base::Base;
use super::disk::{Ground, Id};
use super::frame::Draft;
use super::housekeeping::{Kept, SEAL_BYTES};
use super::index::Fault;
use super::journal::{Journal, JournalFile};
use super::local::KvOptions;
use super::memtable::{Moving, Tables};
use super::replay::Changes;
use super::scan::scan;
use super::signals::Signals;
use super::start::Started;
use super::sync::GroupSync;
use super::{Batch, BeforeCheckpoint, KvError, Lsn, Pair, Recovery};
use crate::brief;
use nix::fcntl::Flock;
use parking_lot::{Mutex, RwLock};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Commits wait when this much is pending. What of the sealed table is in the index already does not count,
/// but is in memory as long as the rest of it: the tables take twice this at most.
const PENDING_LIMIT: usize = 64 << 20;

/// See [`super::MetaKv::before_checkpoint`].
#[derive(Clone)]
pub(super) struct Hook(Arc<dyn Fn(Lsn) + Send + Sync>);

impl From<BeforeCheckpoint> for Hook {
    fn from(work: BeforeCheckpoint) -> Self {
        Self(work.into())
    }
}

impl Hook {
    /// Does it, before the checkpoint of `lsn`.
    pub(super) fn run(&self, lsn: Lsn) {
        (self.0)(lsn);
    }
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

/// The store.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) dir: PathBuf,
    pub(super) options: KvOptions,
    pub(super) signals: Signals,
    pub(super) ground: Ground,
    pub(super) store: Id,
    pub(super) journal: Mutex<Journal>,
    pub(super) group: GroupSync,
    /// Held while a journal file is made in advance.
    pub(super) spare: Mutex<()>,
    pub(super) base: RwLock<Base>,
    /// The base is the index, for a look without its lock.
    pub(super) indexed: AtomicBool,
    pub(super) tables: RwLock<Tables>,
    pub(super) moving: Moving,
    /// The size of what the tables have and the index has not, for a look without their lock.
    pub(super) pending: AtomicUsize,
    /// How much was appended to the journal, for a look without its lock.
    pub(super) appended: AtomicU64,
    /// How far the sealed table is in the index.
    pub(super) moved: Mutex<Option<Vec<u8>>>,
    pub(super) kept: Mutex<Kept>,
    /// What opening the store found and did, complete once the index was compared.
    pub(super) recovery: Mutex<Recovery>,
    /// What the journal told when the store was opened, until nobody needs it any more.
    pub(super) changes: Mutex<Option<Changes>>,
    pub(super) before_checkpoint: Mutex<Option<Hook>>,
    lock: Mutex<Option<Flock<File>>>,
    closed: AtomicBool,
}

impl Engine {
    /// The opened store.
    pub(super) fn new(dir: &Path, options: KvOptions, ground: Ground, started: Started) -> Self {
        let last = started.journal.last();
        let cache = usize::try_from(options.read_cache()).unwrap_or(usize::MAX);
        let pending = started.memtable.bytes();
        let (newest, newest_bytes) = started.checkpoint;
        let kept = Kept {
            newest,
            newest_bytes,
            previous: started.previous,
            appended: 0,
        };
        let tables = Tables::new(started.memtable, last, cache);
        let signals = Signals::default();
        let (due, overdue) = kept.next(options.journal_limit);
        let there = started.journal_bytes;
        signals.set_checkpoint_at(due.saturating_sub(there), overdue.saturating_sub(there));
        Self {
            dir: dir.to_owned(),
            options,
            signals,
            ground,
            store: started.store,
            journal: Mutex::new(started.journal),
            group: GroupSync::new(last),
            spare: Mutex::new(()),
            indexed: AtomicBool::new(started.base.index().is_ok()),
            base: RwLock::new(started.base),
            recovery: Mutex::new(started.recovery),
            moving: tables.moving(),
            tables: RwLock::new(tables),
            pending: AtomicUsize::new(pending),
            appended: AtomicU64::new(0),
            moved: Mutex::default(),
            kept: Mutex::new(kept),
            changes: Mutex::new(Some(started.changes)),
            before_checkpoint: Mutex::default(),
            lock: Mutex::new(Some(started.lock)),
            closed: AtomicBool::new(false),
        }
    }

    /// An error once the store is closed.
    pub(super) fn check_open(&self) -> Result<(), KvError> {
        if self.is_closed() {
            Err(KvError::Closed)
        } else {
            Ok(())
        }
    }

    /// How much was appended to the journal since the store was opened.
    pub(super) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    /// True when the store is being closed.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes the store to requests; false when it was closed already.
    pub(super) fn begin_close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.check_open()?;
        if key.is_empty() {
            return Ok(None);
        }
        loop {
            let changes = {
                let tables = brief::read(&self.tables);
                if let Some(value) = tables.get(key) {
                    return Ok(value);
                }
                tables.changes()
            };
            // Not remembered: this is as quick as that.
            if self.base.read().surely_lacks(key) {
                // What lies under the tables may have changed over, and what it had be in them.
                if brief::read(&self.tables).changes() == changes {
                    return Ok(None);
                }
                continue;
            }
            let value = self.with_base(|base| base.get(key))?;
            if self.tables.read().remember(key, value.as_deref(), changes) {
                return Ok(value);
            }
        }
    }

    pub(super) fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        self.check_open()?;
        if from >= to || limit == 0 {
            return Ok(Vec::new());
        }
        self.with_base(|base| scan(base, &self.tables.read(), from, to, limit))
    }

    pub(super) fn commit(&self, batch: Batch) -> Result<Lsn, KvError> {
        batch.check()?;
        self.check_open()?;
        self.wait_for_room()?;
        let mut draft = Draft::record(&batch);
        let mut journal = brief::lock(&self.journal);
        let lsn = journal.append(&mut draft, self.group.synced())?;
        let pending = {
            let mut tables = brief::write(&self.tables);
            tables.commit(batch, lsn);
            tables.pending()
        };
        let (spare, appended) = (journal.wants_spare(), journal.appended());
        drop(journal);
        self.pending.store(pending, Ordering::Relaxed);
        self.appended.store(appended, Ordering::Relaxed);
        if spare {
            self.signals.ask_spare();
        }
        if pending > SEAL_BYTES || appended >= self.signals.checkpoint_at() {
            self.signals.nudge();
        }
        Ok(lsn)
    }

    /// Holds a commit back while the index or the checkpoints are far behind, and refuses it when they
    /// cannot catch up.
    pub(super) fn wait_for_room(&self) -> Result<(), KvError> {
        let pending = || self.pending.load(Ordering::Relaxed) > PENDING_LIMIT;
        let overdue = || self.appended.load(Ordering::Relaxed) > self.signals.overdue_at();
        if !pending() && !overdue() {
            return Ok(());
        }
        self.signals
            .wait_for_room(|stuck| match (pending(), overdue()) {
                (false, false) => Some(Ok(())),
                (true, false) => stuck.moving.clone().map(Err),
                (_, true) => stuck.moving.clone().or(stuck.dumping.clone()).map(Err),
            })
    }

    pub(super) fn sync(&self) -> Result<Lsn, KvError> {
        self.group.sync(&self.journal, &*self.ground.disk)
    }

    pub(super) fn synced(&self) -> Lsn {
        self.group.synced()
    }

    /// Runs `f` on what lies under the tables; when that fails, waits for its repair and tries once
    /// more.
    fn with_base<T>(&self, f: impl Fn(&Base) -> Result<T, Fault>) -> Result<T, KvError> {
        let mut tried = false;
        loop {
            let repairs = self.signals.repairs();
            let result = f(&self.base.read());
            match result {
                Ok(value) => return Ok(value),
                Err(Fault(detail)) if tried => return Err(KvError::Index { detail }),
                Err(fault) => self.signals.wait_for_repair(&fault, repairs)?,
            }
            tried = true;
        }
    }

    /// True when the index was compared and is read.
    pub(super) fn is_indexed(&self) -> bool {
        self.indexed.load(Ordering::Acquire)
    }

    /// Waits until it is, and answers all that is known of the opening of the store.
    pub(super) fn settled(&self) -> Result<Recovery, KvError> {
        self.signals.wait_until(|stuck| {
            let failed = stuck.comparing.clone().map(Err);
            if self.is_indexed() {
                Some(Ok(()))
            } else {
                failed
            }
        })?;
        Ok(self.recovery.lock().clone())
    }

    /// Makes the next journal file, unless it is there.
    pub(super) fn make_spare(&self) -> Result<(), KvError> {
        let _one_at_a_time = self.spare.lock();
        let Some(number) = self.journal.lock().lacks() else {
            return Ok(());
        };
        let (spare, result) = match JournalFile::create(
            &self.dir,
            &self.ground,
            (self.store, number),
            self.options.file_limit(),
        ) {
            Ok(file) => (Some(file), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.journal.lock().give_spare(spare);
        result
    }

    /// True between the wish for a new journal file and its coming.
    #[cfg(test)]
    pub(super) fn spare_is_coming(&self) -> bool {
        self.journal.lock().spare_is_coming()
    }

    /// Runs `f` while nothing is written to the journal: what a kill would leave stands still.
    #[cfg(test)]
    pub(super) fn stopped<T>(&self, f: impl FnOnce() -> T) -> T {
        let _spare = self.spare.lock();
        let _journal = self.journal.lock();
        f()
    }

    /// Puts a value with a wrong checksum into the index, past all caches.
    #[cfg(test)]
    pub(super) fn spoil_index(&self, key: &str) {
        self.settled().unwrap();
        self.move_to_index().unwrap();
        self.base.read().index().unwrap().spoil(key);
        self.tables
            .write()
            .replace(super::memtable::Memtable::default());
    }

    /// The last steps of closing: everything to disk, the closing frame, the lock. The threads have
    /// ended.
    pub(super) fn end(&self) -> Result<(), KvError> {
        let result = self.settle();
        *self.base.write() = Base::Nothing(Fault("the store is closed".to_owned()));
        self.indexed.store(false, Ordering::Release);
        let closed = result.and_then(|()| {
            let synced = self.group.synced();
            let closed = self.journal.lock().close(synced);
            let file = match closed {
                Ok(file) => file,
                Err(error @ KvError::NoSpace { .. }) => {
                    tracing::warn!(%error, "everything is on disk, but not marked as closed");
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let sync = self.ground.disk.sync_data(&file.file);
            sync.map_err(|error| KvError::io("sync", &file.path, &error))
        });
        self.journal.lock().shut();
        self.lock.lock().take();
        closed
    }

    fn settle(&self) -> Result<(), KvError> {
        while self.sync()? < self.journal.lock().last() {}
        if !self.is_indexed() {
            return Ok(());
        }
        if let Err(error) = self.move_to_index() {
            tracing::warn!(%error, "the index is behind; the journal has everything");
        }
        Ok(())
    }
}
