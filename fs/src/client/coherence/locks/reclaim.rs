//! Reclaims the locks of this mount from the lock server: after its restart, and when the outcome of a request is
//! unknown.

use slabfs_mdserver::api::{HeldLocks, LockEpoch, LocksReclaimed, LostLocks, MdError, op};

use crate::client::Client;

/// Owners in one message.
const BATCH: usize = 1000;

impl Client {
    /// Handles the lock server's epoch from a heartbeat: if it is a new one, the locks have to be reclaimed.
    pub(in crate::client) fn locks_lock_server(&self, lock_server: LockEpoch) {
        let mut state = self.locks.state.lock();
        // The epochs of a session are numbered upwards from the epoch of its lock server.
        if state.epoch < lock_server && state.epoch != LockEpoch::UNKNOWN {
            state.end_epoch();
            self.locks.changed.notify_all();
        }
    }

    /// Reclaims the locks held here, unless another thread has done so since epoch `over` ended.
    pub(super) fn reclaim_locks(&self, over: LockEpoch) -> Result<(), MdError> {
        let _one = self.locks.reclaiming.lock();
        let held = {
            let mut state = self.locks.state.lock();
            if state.epoch != over && state.epoch != LockEpoch::UNKNOWN {
                return Ok(());
            }
            state.reclaiming = true;
            state.end_epoch();
            state.held.all()
        };
        let reclaimed = self.reclaim_all(held);
        let mut state = self.locks.state.lock();
        state.reclaiming = false;
        let reclaimed = reclaimed.map(|(lost, epoch)| {
            state.held.lose(&lost);
            state.epoch = epoch;
        });
        self.locks.changed.notify_all();
        reclaimed
    }

    fn reclaim_all(
        &self,
        mut held: Vec<HeldLocks>,
    ) -> Result<(Vec<LostLocks>, LockEpoch), MdError> {
        if !held.is_empty() {
            tracing::info!(
                owners = held.len(),
                "reclaiming the locks held here from the metadata service"
            );
        }
        let mut first = true;
        loop {
            let rest = held.split_off(held.len().min(BATCH));
            let last = rest.is_empty();
            let LocksReclaimed { lost, epoch } =
                self.md.call(op::ReclaimLocks { held, first, last })?;
            for one in &lost {
                tracing::warn!(
                    ino = %one.file.ino, owner = %one.owner, parts = one.spans.len(),
                    "locks in this mount's record are held by other mounts; some may be unlocks whose reply was lost"
                );
            }
            if last {
                return Ok((lost, epoch));
            }
            held = rest;
            first = false;
        }
    }
}
