//! What [`super::LocalKv`] does with a request, and the work of its threads.
//!
//! Locks, in the order they may be taken: spare, journal, index, tables, the cache in the tables. A
//! commit holds the journal's lock from the number to the visibility of its batch, so commits become
//! visible in the order of their numbers.

use super::checkpoint::{Head, Writer};
use super::disk::{Ground, Id, checkpoint_name, journal_name, numbered, remove};
use super::frame::Draft;
use super::index::{Fault, Index};
use super::journal::{Journal, JournalFile};
use super::local::KvOptions;
use super::memtable::{Memtable, Tables};
use super::scan::{scan, wrong};
use super::signals::Signals;
use super::start::{Opened, Started, open_index};
use super::sync::GroupSync;
use super::truth::{damaged, find};
use super::{Batch, KvError, Lsn, Pair};
use nix::fcntl::Flock;
use parking_lot::{Mutex, RwLock};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Pending changes of this size are moved into the index without waiting for the next beat.
const SEAL_BYTES: usize = 8 << 20;
/// Commits wait when this much is pending.
const PENDING_LIMIT: usize = 256 << 20;
/// sled is not written to when less than this would stay free: it does not survive a full disk.
const RESERVE: u64 = 8 << 20;
/// A checkpoint of a large store is written less often, but at the latest after this much journal.
const JOURNAL_CEILING: u64 = 512 << 20;

/// The store.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) dir: PathBuf,
    pub(super) options: KvOptions,
    pub(super) signals: Signals,
    ground: Ground,
    store: Id,
    journal: Mutex<Journal>,
    group: GroupSync,
    /// Held while a journal file is made in advance.
    spare: Mutex<()>,
    index: RwLock<Result<Index, Fault>>,
    tables: RwLock<Tables>,
    /// The size of the tables, for a look without their lock.
    pending: AtomicUsize,
    kept: Mutex<Kept>,
    lock: Mutex<Option<Flock<File>>>,
    closed: AtomicBool,
}

/// The checkpoints there are.
#[derive(Debug)]
struct Kept {
    newest: Head,
    newest_bytes: u64,
    previous: Option<Head>,
    /// How much had been appended to the journal when the newest was begun.
    appended: u64,
}

impl Engine {
    /// The opened store.
    pub(super) fn new(dir: &Path, options: KvOptions, ground: Ground, started: Started) -> Self {
        let last = started.journal.last();
        let cache = usize::try_from(options.cache_bytes / 4).unwrap_or(usize::MAX);
        let pending = started.memtable.bytes();
        let (newest, newest_bytes) = started.checkpoint;
        let kept = Kept {
            newest,
            newest_bytes,
            previous: started.previous,
            appended: 0,
        };
        let signals = Signals::default();
        signals.set_checkpoint_at(
            kept.next(options.journal_limit)
                .saturating_sub(started.journal_bytes),
        );
        Self {
            dir: dir.to_owned(),
            options,
            signals,
            ground,
            store: started.store,
            journal: Mutex::new(started.journal),
            group: GroupSync::new(last),
            spare: Mutex::new(()),
            index: RwLock::new(Ok(started.index)),
            tables: RwLock::new(Tables::new(started.memtable, last, cache)),
            pending: AtomicUsize::new(pending),
            kept: Mutex::new(kept),
            lock: Mutex::new(Some(started.lock)),
            closed: AtomicBool::new(false),
        }
    }

    /// An error once the store is closed.
    pub(super) fn check_open(&self) -> Result<(), KvError> {
        if self.closed.load(Ordering::Acquire) {
            Err(KvError::Closed)
        } else {
            Ok(())
        }
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
            let turns = {
                let tables = self.tables.read();
                if let Some(value) = tables.get(key) {
                    return Ok(value);
                }
                tables.turns()
            };
            let value = self.with_index(|index| index.get(key))?;
            if self.tables.read().remember(key, value.as_deref(), turns) {
                return Ok(value);
            }
        }
    }

    pub(super) fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        self.check_open()?;
        if from >= to || limit == 0 {
            return Ok(Vec::new());
        }
        self.with_index(|index| scan(index, &self.tables.read(), from, to, limit))
    }

    pub(super) fn commit(&self, batch: Batch) -> Result<Lsn, KvError> {
        batch.check()?;
        self.check_open()?;
        if self.pending.load(Ordering::Relaxed) > PENDING_LIMIT {
            self.signals
                .wait_for_room(|| self.pending.load(Ordering::Relaxed) <= PENDING_LIMIT)?;
        }
        let mut draft = Draft::record(&batch);
        let mut journal = self.journal.lock();
        let lsn = journal.append(&mut draft, self.group.synced())?;
        let pending = {
            let mut tables = self.tables.write();
            tables.commit(batch, lsn);
            tables.bytes()
        };
        let (spare, appended) = (journal.wants_spare(), journal.appended());
        drop(journal);
        self.pending.store(pending, Ordering::Relaxed);
        if spare {
            self.signals.ask_spare();
        }
        if pending > SEAL_BYTES || appended >= self.signals.checkpoint_at() {
            self.signals.nudge();
        }
        Ok(lsn)
    }

    pub(super) fn sync(&self) -> Result<Lsn, KvError> {
        self.group.sync(&self.journal, &*self.ground.disk)
    }

    pub(super) fn synced(&self) -> Lsn {
        self.group.synced()
    }

    /// Runs `f` on the index; when the index fails, waits for its repair and tries once more.
    fn with_index<T>(&self, f: impl Fn(&Index) -> Result<T, Fault>) -> Result<T, KvError> {
        let mut tried = false;
        loop {
            let repairs = self.signals.repairs();
            let result = match &*self.index.read() {
                Ok(index) => f(index),
                Err(fault) => Err(fault.clone()),
            };
            match result {
                Ok(value) => return Ok(value),
                Err(Fault(detail)) if tried => return Err(KvError::Index { detail }),
                Err(fault) => self.signals.wait_for_repair(&fault, repairs)?,
            }
            tried = true;
        }
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

    /// Moves what is pending into the index; answers the commit the index then stands at.
    pub(super) fn move_to_index(&self) -> Result<Lsn, KvError> {
        let goal = self.journal.lock().last();
        loop {
            let (table, lsn) = self.tables.write().seal();
            if !table.is_empty() {
                self.apply(&table, lsn)?;
            }
            let pending = {
                let mut tables = self.tables.write();
                tables.unseal();
                tables.bytes()
            };
            self.pending.store(pending, Ordering::Relaxed);
            self.signals.made_room();
            if lsn >= goal {
                return Ok(lsn);
            }
        }
    }

    fn apply(&self, table: &Memtable, lsn: Lsn) -> Result<(), KvError> {
        let free = self.ground.disk.free(&self.dir);
        let free =
            free.map_err(|error| KvError::io("ask for the free space of", &self.dir, &error))?;
        if free < RESERVE + 2 * table.bytes() as u64 {
            return Err(KvError::NoSpace {
                path: self.dir.clone(),
            });
        }
        let index = self.index.read();
        let applied = match &*index {
            Ok(index) => index.apply(table.iter(), Some(lsn)),
            Err(fault) => Err(fault.clone()),
        };
        applied.map_err(|fault| {
            let detail = fault.to_string();
            self.signals.report(fault);
            KvError::Index { detail }
        })
    }

    /// True when enough was appended since the newest checkpoint.
    pub(super) fn checkpoint_due(&self) -> bool {
        self.journal.lock().appended() >= self.signals.checkpoint_at()
    }

    /// True when so much is pending that it should be moved now.
    pub(super) fn much_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > SEAL_BYTES
    }

    /// After a failure: tries again when some more was appended.
    pub(super) fn put_off_checkpoint(&self) {
        let appended = self.journal.lock().appended();
        self.signals
            .set_checkpoint_at(appended + self.options.journal_limit / 4);
    }

    /// Dumps the index as it stands at one commit; commits go on meanwhile.
    pub(super) fn write_checkpoint(&self) -> Result<Head, KvError> {
        // The journal goes on in a new file, so that all before can go when this checkpoint is old.
        self.make_spare()?;
        let appended = {
            let mut journal = self.journal.lock();
            journal.rotate(self.group.synced())?;
            journal.appended()
        };
        let lsn = self.move_to_index()?;
        self.sync()?;
        let newest = self.kept.lock().newest;
        let head = Head {
            store: self.store,
            lsn,
            journal: self.journal.lock().file_after(lsn),
        };
        let bytes = if newest.lsn == lsn {
            None
        } else {
            Some(self.dump(head)?)
        };
        let mut kept = self.kept.lock();
        if let Some(bytes) = bytes {
            kept.previous = Some(newest);
            kept.newest = head;
            kept.newest_bytes = bytes;
        }
        kept.appended = appended;
        self.signals
            .set_checkpoint_at(kept.next(self.options.journal_limit));
        let newest = kept.newest;
        let oldest = kept.previous.unwrap_or(newest);
        drop(kept);
        self.remove_old(newest, oldest)?;
        Ok(newest)
    }

    fn dump(&self, head: Head) -> Result<u64, KvError> {
        let index = self.index.read();
        let failed = |fault: Fault| {
            let detail = fault.to_string();
            self.signals.report(fault);
            KvError::Index { detail }
        };
        let index = index.as_ref().map_err(|fault| failed(fault.clone()))?;
        let mut entries = index.range(b"", None).map_err(failed)?;
        let mut writer = Writer::new(&self.dir, &self.ground, head)?;
        while let Some((key, value)) = entries.next().map_err(failed)? {
            let value = value.ok_or_else(|| failed(wrong(&key)))?;
            writer.push(&key, &value)?;
        }
        writer.finish()
    }

    /// Removes what no kept checkpoint needs.
    fn remove_old(&self, newest: Head, oldest: Head) -> Result<(), KvError> {
        for lsn in numbered(&self.dir, "checkpoint")? {
            if lsn != newest.lsn.0 && lsn != oldest.lsn.0 {
                remove(&self.dir.join(checkpoint_name(lsn)))?;
            }
        }
        for number in self.journal.lock().forget_before(oldest.journal) {
            remove(&self.dir.join(journal_name(number)))?;
        }
        Ok(())
    }

    /// The older checkpoint was taken away.
    pub(super) fn forget_previous(&self) {
        let mut kept = self.kept.lock();
        kept.previous = None;
        self.journal.lock().forget_before(kept.newest.journal);
    }

    /// Opens or rebuilds the index from checkpoint and journal; nothing else happens meanwhile.
    pub(super) fn repair(&self) -> Result<(), KvError> {
        let journal = self.journal.lock();
        let mut slot = self.index.write();
        *slot = Err(Fault("the index is being rebuilt".to_owned()));
        let opened = self.reopen(journal.last());
        match opened {
            Ok(opened) => {
                let pending = opened.reconciled.memtable.bytes();
                self.tables.write().replace(opened.reconciled.memtable);
                self.pending.store(pending, Ordering::Relaxed);
                *slot = Ok(opened.index);
                Ok(())
            }
            Err(error) => {
                *slot = Err(Fault(error.to_string()));
                Err(error)
            }
        }
    }

    fn reopen(&self, last: Lsn) -> Result<Opened, KvError> {
        let mut found = find(&self.dir, &self.ground)?;
        if !found.replay.losses.is_empty() {
            return Err(damaged(&self.dir, found.replay.losses));
        }
        if found.replay.last != last {
            let read = found.replay.last;
            return Err(KvError::Index {
                detail: format!("the journal ends at {read} and not at {last}"),
            });
        }
        found.new = false;
        open_index(&self.dir, &self.options, &found)
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
        self.move_to_index().unwrap();
        let index = self.index.read();
        index.as_ref().unwrap().spoil(key);
        drop(index);
        self.tables.write().replace(Memtable::default());
    }

    /// The last steps of closing: everything to disk, the closing frame, the lock. The threads have
    /// ended.
    pub(super) fn end(&self) -> Result<(), KvError> {
        let result = self.settle();
        *self.index.write() = Err(Fault("the store is closed".to_owned()));
        let closed = result.and_then(|()| {
            let synced = self.group.synced();
            let file = self.journal.lock().close(synced)?;
            let sync = self.ground.disk.sync_data(&file.file);
            sync.map_err(|error| KvError::io("sync", &file.path, &error))
        });
        self.journal.lock().shut();
        self.lock.lock().take();
        closed
    }

    fn settle(&self) -> Result<(), KvError> {
        while self.sync()? < self.journal.lock().last() {}
        if let Err(error) = self.move_to_index() {
            tracing::warn!(%error, "the index is behind; the journal has everything");
        }
        Ok(())
    }
}

impl Kept {
    /// How much must have been appended for the next checkpoint: the limit, or more when the dump
    /// itself is large, so that dumping never costs more than a few times what is committed.
    fn next(&self, limit: u64) -> u64 {
        let due = (self.newest_bytes / 4).min(JOURNAL_CEILING).max(limit);
        self.appended + due
    }
}
