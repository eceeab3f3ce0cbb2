//! How [`super::LocalKv`] handles a request, and how it is closed. The work of its threads is in `housekeeping`.
//!
//! Lock order: spare, journal, base, tables, the cache in the tables. A commit holds the journal's lock from taking its
//! number until its batch is visible, so commits become visible in the order of their numbers.

use super::base::Base;
use super::disk::{Ground, Id};
use super::frame::Draft;
use super::housekeeping::{Checkpoints, SEAL_BYTES};
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
use nix::fcntl::Flock;
use parking_lot::{Mutex, RwLock};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Commits wait while more than this is pending. The part of the sealed table that is already in the index does not
/// count, but stays in memory as long as the rest of it: the tables take at most twice this.
const PENDING_LIMIT: usize = 64 << 20;

/// The store.
pub(super) struct Engine {
    pub(super) dir: PathBuf,
    pub(super) options: KvOptions,
    pub(super) signals: Signals,
    pub(super) ground: Ground,
    pub(super) store: Id,
    pub(super) journal: Mutex<Journal>,
    pub(super) group: GroupSync,
    /// Held while a journal file is created in advance.
    pub(super) spare: Mutex<()>,
    pub(super) base: RwLock<Base>,
    /// True if the base is the index; read without the base's lock.
    pub(super) indexed: AtomicBool,
    pub(super) tables: RwLock<Tables>,
    pub(super) moving: Moving,
    /// Bytes in the tables that are not in the index; read without the tables' lock.
    pub(super) pending: AtomicUsize,
    /// Bytes appended to the journal; read without the journal's lock.
    pub(super) appended: AtomicU64,
    /// The last key of the sealed table that is in the index.
    pub(super) moved: Mutex<Option<Vec<u8>>>,
    pub(super) checkpoints: Mutex<Checkpoints>,
    /// The report on opening the store, complete once the index is compared.
    pub(super) recovery: Mutex<Recovery>,
    /// The changes read from the journal when the store was opened, until `forget_changes`.
    pub(super) changes: Mutex<Option<Changes>>,
    /// See [`super::MetaKv::before_checkpoint`].
    pub(super) before_checkpoint: Mutex<Option<Arc<BeforeCheckpoint>>>,
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
        let checkpoints = Checkpoints {
            newest,
            newest_bytes,
            previous: started.previous,
            appended: 0,
        };
        let tables = Tables::new(started.memtable, last, cache);
        let signals = Signals::default();
        let (due, overdue) = checkpoints.next(options.journal_limit);
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
            checkpoints: Mutex::new(checkpoints),
            changes: Mutex::new(Some(started.changes)),
            before_checkpoint: Mutex::default(),
            lock: Mutex::new(Some(started.lock)),
            closed: AtomicBool::new(false),
        }
    }

    /// Fails once the store is closed.
    pub(super) fn check_open(&self) -> Result<(), KvError> {
        if self.is_closed() {
            Err(KvError::Closed)
        } else {
            Ok(())
        }
    }

    /// Bytes appended to the journal since the store was opened.
    pub(super) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    /// True if the store is being closed.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes the store to requests; false if it was closed already.
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
                let tables = self.tables.read();
                if let Some(value) = tables.get(key) {
                    return Ok(value);
                }
                tables.changes()
            };
            // Not put into the cache: the filter is as fast as the cache.
            if self.base.read().surely_lacks(key) {
                // The base may have been replaced meanwhile, and its rows may have moved into the tables.
                if self.tables.read().changes() == changes {
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
        let mut journal = self.journal.lock();
        let lsn = journal.append(&mut draft, self.group.synced())?;
        let pending = {
            let mut tables = self.tables.write();
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

    /// Blocks while the index or the checkpoints are far behind, and fails if they cannot catch up.
    pub(super) fn wait_for_room(&self) -> Result<(), KvError> {
        let pending = || self.pending.load(Ordering::Relaxed) > PENDING_LIMIT;
        let overdue = || self.appended.load(Ordering::Relaxed) > self.signals.overdue_at();
        if !pending() && !overdue() {
            return Ok(());
        }
        self.signals
            .wait_until(true, |stuck| match (pending(), overdue()) {
                (false, false) => Some(Ok(())),
                (true, false) => stuck.moving.clone().map(Err),
                (_, true) => stuck.moving.clone().or(stuck.dumping.clone()).map(Err),
            })
    }

    pub(super) fn sync(&self) -> Result<Lsn, KvError> {
        let synced = self.group.sync(&self.journal, &*self.ground.disk);
        if let Err(error @ KvError::Poisoned { .. }) = &synced {
            self.signals.stuck(|stuck| {
                if stuck.syncing.is_none() {
                    tracing::error!("{error}: until then it refuses every change");
                    stuck.syncing = Some(error.clone());
                }
            });
        }
        synced
    }

    pub(super) fn synced(&self) -> Lsn {
        self.group.synced()
    }

    /// Runs `f` on the base; if that fails, waits for its repair and tries once more.
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

    /// True if the index is compared and in use.
    pub(super) fn is_indexed(&self) -> bool {
        self.indexed.load(Ordering::Acquire)
    }

    /// Waits until the index is in use, and returns the complete report on opening the store.
    pub(super) fn settled(&self) -> Result<Recovery, KvError> {
        self.signals.wait_until(false, |stuck| {
            let failed = stuck.comparing.clone().map(Err);
            if self.is_indexed() {
                Some(Ok(()))
            } else {
                failed
            }
        })?;
        Ok(self.recovery.lock().clone())
    }

    /// Creates the next journal file, unless it exists.
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

    /// True between the request for a new journal file and its creation.
    #[cfg(test)]
    pub(super) fn spare_is_coming(&self) -> bool {
        self.journal.lock().spare_is_coming()
    }

    /// Runs `f` while nothing is written to the journal, so that the files do not change.
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

    /// The last steps of closing: syncs everything, writes the closing frame, releases the lock. The threads have
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
                    tracing::warn!(%error, "everything is on disk, but the store is not marked as closed");
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
