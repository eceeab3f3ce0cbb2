//! Group sync: concurrent callers of [`GroupSync::sync`] share one `fdatasync`.
//!
//! The first caller becomes the leader and syncs everything written by then; the others wait. If their commits came too
//! late for that sync, one of them becomes the next leader. A failed `fdatasync` poisons the journal permanently: the
//! kernel may have dropped the bytes, so a successful second attempt would prove nothing.

use super::disk::Disk;
use super::journal::Journal;
use super::{KvError, Lsn};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether a leader is syncing, and the last synced commit.
#[derive(Debug, Default)]
pub(super) struct GroupSync {
    leader: Mutex<bool>,
    done: Condvar,
    synced: AtomicU64,
}

impl GroupSync {
    /// Starts with everything up to `synced` on disk.
    pub(super) fn new(synced: Lsn) -> Self {
        Self {
            synced: AtomicU64::new(synced.0),
            ..Self::default()
        }
    }

    /// The last commit known to be on disk.
    pub(super) fn synced(&self) -> Lsn {
        Lsn(self.synced.load(Ordering::Acquire))
    }

    /// Blocks until every commit that has returned is on disk.
    pub(super) fn sync(&self, journal: &Mutex<Journal>, disk: &dyn Disk) -> Result<Lsn, KvError> {
        let target = {
            let journal = journal.lock();
            journal.check()?;
            journal.last()
        };
        let mut leader = self.leader.lock();
        while self.synced() < target {
            if !*leader {
                *leader = true;
                drop(leader);
                let result = self.lead(journal, disk);
                leader = self.leader.lock();
                *leader = false;
                self.done.notify_all();
                result?;
            } else {
                self.done.wait(&mut leader);
                journal.lock().check()?;
            }
        }
        Ok(self.synced())
    }

    fn lead(&self, journal: &Mutex<Journal>, disk: &dyn Disk) -> Result<(), KvError> {
        let (files, last) = {
            let journal = journal.lock();
            journal.check()?;
            journal.unsynced()
        };
        for file in &files {
            if let Err(error) = disk.sync_data(&file.file) {
                let mut journal = journal.lock();
                journal.poison(&file.path, error.to_string());
                return journal.check();
            }
        }
        self.synced.store(last.0, Ordering::Release);
        let mut journal = journal.lock();
        journal.note_synced(&files);
        if let Err(error) = journal.mark_synced(last) {
            // The frame only helps to classify later damage; the sync itself has succeeded.
            tracing::debug!(%error, "cannot write a sync frame to the journal");
        }
        Ok(())
    }
}
