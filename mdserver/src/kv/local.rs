//! [`LocalKv`]: the store in a directory of one machine. This module opens and closes it and owns its threads; requests
//! are handled in `engine`.

use super::disk::Ground;
use super::engine::Engine;
use super::frame::HEADER;
use super::signals::Stuck;
use super::start::{Started, retire, start};
use super::{Batch, BeforeCheckpoint, KvError, Lsn, MetaKv, Pair, Recovery, Snapshot, upkeep};
use parking_lot::Mutex;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How a [`LocalKv`] is opened.
#[derive(Debug, Clone)]
pub struct KvOptions {
    /// Open a damaged store without the lost data; [`Recovery::losses`] lists the losses.
    pub accept_loss: bool,
    /// Memory for cached values, in bytes.
    pub cache_bytes: u64,
    /// The first byte of keys whose values are cached when they are moved into the index, and not only when they are
    /// read from there: for a table whose rows are looked up one by one soon after they were written.
    pub remembered: Option<u8>,
    /// The longest time a commit stays unsynced without a sync request.
    pub sync_interval: Duration,
    /// The bytes of journal after the newest checkpoint that start the next one.
    pub journal_limit: u64,
}

impl Default for KvOptions {
    fn default() -> Self {
        Self {
            accept_loss: false,
            cache_bytes: 256 << 20,
            remembered: None,
            sync_interval: Duration::from_secs(2),
            journal_limit: 64 << 20,
        }
    }
}

impl KvOptions {
    /// The part of the memory that holds values.
    pub(super) fn read_cache(&self) -> u64 {
        self.cache_bytes - self.sled_cache()
    }

    /// The part that sled is given. sled takes a few times as much, because it counts bytes on disk and allocates each
    /// key and value separately.
    pub(super) fn sled_cache(&self) -> u64 {
        self.cache_bytes / 21
    }

    /// The length at which a journal file ends and the next begins.
    pub(super) fn file_limit(&self) -> u64 {
        (self.journal_limit / 8).clamp(HEADER as u64, 16 << 20)
    }
}

/// The store in a directory of one machine. Dropping it closes it.
pub struct LocalKv {
    engine: Arc<Engine>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for LocalKv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalKv").field(&self.engine.dir).finish()
    }
}

impl LocalKv {
    /// Opens the store in `dir`, creating it if there is none, and returns a report. The result of comparing the index
    /// is known later, see [`LocalKv::settled`].
    ///
    /// Fails with [`KvError::Locked`] if another process has it open, and with [`KvError::Damaged`] if commits are
    /// unreadable and the loss is not accepted.
    pub fn open(dir: &Path, options: KvOptions) -> Result<(Self, Recovery), KvError> {
        Self::open_on(dir, options, Ground::real())
    }

    pub(super) fn open_on(
        dir: &Path,
        options: KvOptions,
        ground: Ground,
    ) -> Result<(Self, Recovery), KvError> {
        let (kv, recovery) = Self::prepare(dir, options, ground)?;
        kv.begin()?;
        Ok((kv, recovery))
    }

    /// Opens the store without its threads: it answers requests, and nothing runs in the background.
    pub(super) fn prepare(
        dir: &Path,
        options: KvOptions,
        ground: Ground,
    ) -> Result<(Self, Recovery), KvError> {
        let started: Started = start(dir, &options, &ground)?;
        let recovery = started.recovery.clone();
        let engine = Arc::new(Engine::new(dir, options, ground, started));
        if !recovery.losses.is_empty() {
            // An empty commit, so that the checkpoint's number differs from that of every damaged one.
            engine.commit(Batch::new())?;
            let head = engine.write_checkpoint()?;
            let moved_to = retire(dir, head)?;
            engine.forget_previous();
            tracing::warn!(dir = %moved_to.display(), "the damaged files were moved away");
        } else if !recovery.healed.is_empty() {
            engine.signals.ask_checkpoint();
        }
        let kv = Self {
            engine,
            threads: Mutex::default(),
        };
        Ok((kv, recovery))
    }

    /// Starts the threads.
    pub(super) fn begin(&self) -> Result<(), KvError> {
        self.spawn("kv-upkeep", upkeep::run)?;
        self.spawn("kv-sync", upkeep::run_sync)
    }

    /// Waits until the index is opened and compared, and returns the complete report on opening the store. Until then
    /// lookups read the checkpoint.
    ///
    /// Fails with the error that prevents the index from being opened; the store still serves requests.
    pub fn settled(&self) -> Result<Recovery, KvError> {
        self.engine.settled()
    }

    fn spawn(&self, name: &str, run: fn(&Engine)) -> Result<(), KvError> {
        let engine = self.engine.clone();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&engine));
        let thread =
            thread.map_err(|error| KvError::io("start a thread for", &self.engine.dir, &error))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl MetaKv for LocalKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.engine.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        self.engine.scan(from, to, limit)
    }

    fn commit(&self, batch: Batch) -> Result<Lsn, KvError> {
        self.engine.commit(batch)
    }

    fn wait_for_room(&self) -> Result<(), KvError> {
        self.engine.wait_for_room()
    }

    fn sync(&self) -> Result<Lsn, KvError> {
        self.engine.check_open()?;
        self.engine.sync()
    }

    fn synced(&self) -> Lsn {
        self.engine.synced()
    }

    fn wait_for_sync_failure(&self) -> Option<KvError> {
        let failure = |stuck: &Stuck| stuck.syncing.clone().map(Err);
        let waited = self.engine.signals.wait_until(false, failure);
        waited
            .err()
            .filter(|error| !matches!(error, KvError::Closed))
    }

    fn checkpoint(&self) -> Result<(), KvError> {
        self.engine.check_open()?;
        self.engine.signals.checkpoint()
    }

    fn identity(&self) -> [u8; 16] {
        self.engine.store
    }

    fn changed_since(&self, table: u8, after: Lsn) -> Option<Vec<Vec<u8>>> {
        self.engine.changes.lock().as_ref()?.of(table, after)
    }

    fn forget_changes(&self) {
        self.engine.changes.lock().take();
    }

    fn before_checkpoint(&self, work: BeforeCheckpoint) {
        *self.engine.before_checkpoint.lock() = Some(Arc::new(work));
    }

    fn ask_snapshot(&self) -> Result<u64, KvError> {
        self.engine.check_open()?;
        Ok(self.engine.signals.ask_checkpoint())
    }

    fn snapshot(&self, number: u64, patience: Duration) -> Result<Option<Snapshot>, KvError> {
        self.engine.check_open()?;
        if !self.engine.signals.wait_for_checkpoint(number, patience)? {
            return Ok(None);
        }
        self.engine.newest_checkpoint().map(Some)
    }

    fn close(&self) -> Result<(), KvError> {
        if !self.engine.begin_close() {
            return Ok(());
        }
        self.engine.signals.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the key-value store panicked");
            }
        }
        self.engine.end()
    }
}

impl Drop for LocalKv {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing the key-value store failed");
        }
    }
}
