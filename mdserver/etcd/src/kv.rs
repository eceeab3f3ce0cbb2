//! [`EtcdKv`]: the store of the leader. Its commits change the copy at once; a sync writes them to the log.
//!
//! Lock order: the queue, then the failure and the copy's own locks. A commit holds the queue's lock from taking its number until it is
//! queued, so the queue is in the order of the numbers. One thread at a time writes to the log, and takes with it what
//! was queued meanwhile (group commit).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slabfs_mdserver::kv::{Batch, BeforeCheckpoint, KvError, LocalKv, Lsn, MetaKv, Pair, Snapshot};

use crate::block::{Record, next_blocks};
use crate::checkpoints::Checkpoints;
use crate::copy::Place;
use crate::error::EtcdError;
use crate::lease::Lease;
use crate::log::{Log, Pointer};

/// Commits wait while more bytes than this are queued.
const QUEUED: usize = 64 << 20;
/// How often the background thread looks: at the lease, and for commits that no request syncs.
const ROUND: Duration = Duration::from_millis(200);
/// The pause after a checkpoint that could not be made.
const AGAIN: Duration = Duration::from_secs(10);
/// How long a snapshot of the copy may take.
const SNAPSHOT: Duration = Duration::from_secs(600);

/// The leader's store. Closing it gives the lease back.
#[derive(Debug)]
pub struct EtcdKv {
    shared: Arc<Shared>,
    upkeep: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    local: LocalKv,
    place: Place,
    log: Log,
    lease: Lease,
    checkpoints: Checkpoints,
    /// Bytes of records after which a checkpoint is made.
    limit: u64,
    queue: Mutex<Queue>,
    room: Condvar,
    /// The last commit.
    last: AtomicU64,
    /// The last commit in the log.
    logged: AtomicU64,
    writing: Mutex<bool>,
    written: Condvar,
    failed: Mutex<Failed>,
    failing: Condvar,
    /// Held while a checkpoint is made.
    checkpoint: Mutex<Option<Pointer>>,
    /// Bytes of records since the newest checkpoint.
    appended: AtomicU64,
    closing: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    records: VecDeque<Record>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Failed {
    error: Option<KvError>,
    closed: bool,
}

impl EtcdKv {
    /// The store over a copy that has all of the log.
    pub(crate) fn new(
        (local, last): (LocalKv, Lsn),
        place: Place,
        (log, lease, checkpoints): (Log, Lease, Checkpoints),
        limit: u64,
    ) -> Result<EtcdKv, EtcdError> {
        place.mark()?;
        let checkpoint = log.checkpoint()?;
        let shared = Arc::new(Shared {
            local,
            place,
            log,
            lease,
            checkpoints,
            limit,
            queue: Mutex::default(),
            room: Condvar::new(),
            last: AtomicU64::new(last.0),
            logged: AtomicU64::new(last.0),
            writing: Mutex::new(false),
            written: Condvar::new(),
            failed: Mutex::default(),
            failing: Condvar::new(),
            checkpoint: Mutex::new(checkpoint),
            appended: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        });
        let upkeep = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("etcd-upkeep".to_owned())
                .spawn(move || shared.upkeep())
        };
        let upkeep = upkeep
            .map_err(|error| EtcdError::Content(format!("cannot start a thread: {error}")))?;
        Ok(EtcdKv {
            shared,
            upkeep: Mutex::new(Some(upkeep)),
        })
    }
}

impl Shared {
    /// Fails once this service is not the leader, or the log has failed.
    fn check(&self) -> Result<(), KvError> {
        if self.failed.lock().closed {
            return Err(KvError::Closed);
        }
        if let Some(error) = &self.failed.lock().error {
            return Err(error.clone());
        }
        self.lease.check().map_err(|error| self.fail(&error))
    }

    /// Notes a failure after which nothing may be answered any more.
    fn fail(&self, error: &EtcdError) -> KvError {
        let error = KvError::Unavailable {
            detail: error.to_string(),
        };
        self.lease.lose();
        let mut failed = self.failed.lock();
        let first = failed.error.get_or_insert_with(|| {
            tracing::error!("{error}");
            error
        });
        let first = first.clone();
        drop(failed);
        self.failing.notify_all();
        // Under the lock: one who waits for room has looked at the failure before, or is woken.
        let queue = self.queue.lock();
        self.room.notify_all();
        drop(queue);
        self.written.notify_all();
        first
    }

    fn commit(&self, batch: Batch) -> Result<Lsn, KvError> {
        self.wait_for_room()?;
        let bytes = batch.to_record();
        let mut queue = self.queue.lock();
        let lsn = self.local.commit(batch)?;
        queue.bytes += bytes.len();
        self.appended
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        queue.records.push_back(Record { lsn, bytes });
        self.last.store(lsn.0, Ordering::Release);
        Ok(lsn)
    }

    fn wait_for_room(&self) -> Result<(), KvError> {
        self.local.wait_for_room()?;
        loop {
            self.check()?;
            let mut queue = self.queue.lock();
            if queue.bytes <= QUEUED {
                return Ok(());
            }
            if self.failed.lock().error.is_none() {
                self.room.wait(&mut queue);
            }
        }
    }

    /// Blocks until all commits that have returned are in the log.
    fn sync(&self) -> Result<Lsn, KvError> {
        let target = self.last.load(Ordering::Acquire);
        let logged = || self.logged.load(Ordering::Acquire);
        if logged() >= target {
            return Ok(Lsn(logged()));
        }
        let mut writing = self.writing.lock();
        while logged() < target {
            self.check()?;
            if *writing {
                self.written.wait(&mut writing);
                continue;
            }
            *writing = true;
            drop(writing);
            let written = self.write();
            writing = self.writing.lock();
            *writing = false;
            self.written.notify_all();
            written?;
        }
        Ok(Lsn(logged()))
    }

    /// Writes what is queued to the log, in one transaction or, of much, the first part.
    fn write(&self) -> Result<(), KvError> {
        let (blocks, last) = {
            let mut queue = self.queue.lock();
            let before = queue.records.front().map(|record| record.lsn.0);
            let blocks = next_blocks(&mut queue.records, self.lease.revision());
            queue.bytes = queue.records.iter().map(|record| record.bytes.len()).sum();
            let next = queue.records.front().map(|record| record.lsn.0 - 1);
            let last = next.unwrap_or_else(|| self.last.load(Ordering::Acquire));
            (blocks, before.map(|_| last))
        };
        let Some(last) = last else {
            return Ok(());
        };
        self.room.notify_all();
        self.log
            .append(&self.lease, &blocks)
            .map_err(|error| self.fail(&error))?;
        self.logged.store(last, Ordering::Release);
        Ok(())
    }

    fn upkeep(&self) {
        let mut failed: Option<Instant> = None;
        // What leaders before this one have written since the checkpoint counts, too.
        let after = self
            .checkpoint
            .lock()
            .as_ref()
            .map_or(0, |pointer| pointer.last);
        match self.log.bytes_behind(Lsn(after)) {
            Ok(bytes) => drop(self.appended.fetch_add(bytes, Ordering::Relaxed)),
            Err(error) => tracing::warn!("the journal's size is not known: {error}"),
        }
        while !self.closing.load(Ordering::Acquire) {
            if !self.lease.watch(ROUND) || self.check().is_err() {
                let _first = self.check();
                return;
            }
            if let Err(error) = self.sync() {
                tracing::debug!("the background sync failed: {error}");
                continue;
            }
            if self.appended.load(Ordering::Relaxed) > self.limit
                && failed.is_none_or(|at| at.elapsed() > AGAIN)
            {
                failed = self.make_checkpoint().err().map(|error| {
                    tracing::warn!(
                        "no checkpoint could be made, the log grows until then: {error}"
                    );
                    Instant::now()
                });
            }
        }
    }

    fn make_checkpoint(&self) -> Result<(), KvError> {
        let mut newest = self.checkpoint.lock();
        let appended = self.appended.load(Ordering::Relaxed);
        let number = self.local.ask_snapshot()?;
        let Some(mut snapshot) = self.local.snapshot(number, SNAPSHOT)? else {
            return Err(KvError::Invalid(
                "the snapshot of the copy takes too long".to_owned(),
            ));
        };
        // The checkpoint may have nothing that the log has not.
        self.sync()?;
        let last = snapshot.last;
        if newest.as_ref().is_some_and(|newest| newest.last == last.0) {
            return Ok(());
        }
        let failed = |error: EtcdError| match error {
            EtcdError::NotLeader { .. } => self.fail(&error),
            error => KvError::Unavailable {
                detail: error.to_string(),
            },
        };
        let revision = self.lease.revision();
        let id = self.log.id();
        let pointer = self.checkpoints.put(&mut snapshot, (id, revision));
        let pointer = pointer.map_err(failed)?;
        let before = newest.as_ref().map_or(Lsn(0), |newest| Lsn(newest.last));
        self.log
            .set_checkpoint(&self.lease, &pointer, before)
            .map_err(failed)?;
        self.checkpoints.remove_older(id, before).map_err(failed)?;
        self.appended.fetch_sub(appended, Ordering::Relaxed);
        *newest = Some(pointer);
        Ok(())
    }
}

impl MetaKv for EtcdKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.shared.local.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        self.shared.local.scan(from, to, limit)
    }

    fn commit(&self, batch: Batch) -> Result<Lsn, KvError> {
        self.shared.commit(batch)
    }

    fn wait_for_room(&self) -> Result<(), KvError> {
        self.shared.wait_for_room()
    }

    fn sync(&self) -> Result<Lsn, KvError> {
        self.shared.check()?;
        self.shared.sync()
    }

    fn synced(&self) -> Lsn {
        Lsn(self.shared.logged.load(Ordering::Acquire))
    }

    fn before_reply(&self) -> Result<(), KvError> {
        self.shared.sync()?;
        // Checked last: what was read before may be old otherwise.
        self.shared.check()
    }

    fn wait_for_sync_failure(&self) -> Option<KvError> {
        let mut failed = self.shared.failed.lock();
        while failed.error.is_none() && !failed.closed {
            self.shared.failing.wait(&mut failed);
        }
        failed.error.clone()
    }

    fn checkpoint(&self) -> Result<(), KvError> {
        self.shared.check()?;
        self.shared.make_checkpoint()
    }

    fn identity(&self) -> [u8; 16] {
        self.shared.local.identity()
    }

    fn changed_since(&self, table: u8, after: Lsn) -> Option<Vec<Vec<u8>>> {
        self.shared.local.changed_since(table, after)
    }

    fn forget_changes(&self) {
        self.shared.local.forget_changes();
    }

    fn before_checkpoint(&self, work: BeforeCheckpoint) {
        self.shared.local.before_checkpoint(work);
    }

    fn ask_snapshot(&self) -> Result<u64, KvError> {
        self.shared.local.ask_snapshot()
    }

    fn snapshot(&self, number: u64, patience: Duration) -> Result<Option<Snapshot>, KvError> {
        self.shared.local.snapshot(number, patience)
    }

    fn engine(&self) -> Vec<(String, String)> {
        let shared = &self.shared;
        let newest = shared.checkpoint.try_lock();
        let checkpoint = match &newest {
            None => "being made".to_owned(),
            Some(newest) => match &**newest {
                None => "none".to_owned(),
                Some(newest) => format!("commit {}, {} bytes", newest.last, newest.bytes),
            },
        };
        let last = shared.last.load(Ordering::Acquire);
        let logged = shared.logged.load(Ordering::Acquire);
        let appended = shared.appended.load(Ordering::Relaxed);
        let mut all = vec![
            ("engine", "etcd".to_owned()),
            ("address", shared.log.etcd().addr().to_string()),
        ];
        all.extend(shared.log.etcd().state());
        all.extend([
            ("commits", last.to_string()),
            ("commits_to_write", last.saturating_sub(logged).to_string()),
            ("checkpoint", checkpoint),
            ("bytes_since_checkpoint", appended.to_string()),
        ]);
        let all = all.into_iter();
        all.map(|(name, text)| (name.to_owned(), text)).collect()
    }

    fn close(&self) -> Result<(), KvError> {
        let shared = &self.shared;
        if shared.closing.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if let Some(thread) = self.upkeep.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the background thread of the log panicked");
        }
        let synced = shared.check().and_then(|()| shared.sync().map(drop));
        let closed = shared.local.close();
        if synced.is_ok() && closed.is_ok() {
            let unmarked = shared.place.unmark();
            if let Err(error) = unmarked {
                tracing::warn!("the copy will be rebuilt at the next start: {error}");
            }
            shared.lease.resign();
        }
        shared.failed.lock().closed = true;
        shared.failing.notify_all();
        synced.and(closed)
    }
}

impl Drop for EtcdKv {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!("closing the store failed: {error}");
        }
    }
}
