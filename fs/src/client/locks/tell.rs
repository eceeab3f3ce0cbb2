//! Telling the lock server what is held here: when it was started anew, and when it is not known what it has done.

use slabfs_mdserver::api::{HeldLocks, LockEpoch, LostLocks, MdError};

use super::super::Client;

/// Owners in one message.
const BATCH: usize = 1000;

impl Client {
    /// The lock server's own epoch, as a heartbeat has it: if that is a new one, it has to be told.
    pub(in crate::client) fn locks_lock_server(&self, lock_server: LockEpoch) {
        let mut state = self.locks.state.lock();
        // A session's lives are numbered on from its lock server's.
        if state.epoch < lock_server && state.epoch != LockEpoch::UNKNOWN {
            state.end_epoch();
            self.locks.changed.notify_all();
        }
    }

    /// Tells the lock server what is held here, unless somebody has since epoch `over` ended.
    pub(super) fn tell_locks(&self, over: LockEpoch) -> Result<(), MdError> {
        let _one = self.locks.telling.lock();
        let held = {
            let mut state = self.locks.state.lock();
            if state.epoch != over && state.epoch != LockEpoch::UNKNOWN {
                return Ok(());
            }
            state.telling = true;
            state.end_epoch();
            state.held.all()
        };
        let told = self.tell_all(held);
        let mut state = self.locks.state.lock();
        state.telling = false;
        let told = told.map(|(lost, epoch)| {
            state.held.lose(&lost);
            state.epoch = epoch;
        });
        self.locks.changed.notify_all();
        told
    }

    fn tell_all(&self, mut held: Vec<HeldLocks>) -> Result<(Vec<LostLocks>, LockEpoch), MdError> {
        if !held.is_empty() {
            tracing::info!(
                owners = held.len(),
                "telling the metadata service which locks are held here"
            );
        }
        let mut first = true;
        loop {
            let rest = held.split_off(held.len().min(BATCH));
            let last = rest.is_empty();
            let (lost, epoch) = self.md.reclaim_locks(held, first, last)?;
            for one in &lost {
                tracing::warn!(
                    ino = %one.file.ino, owner = %one.owner, parts = one.spans.len(),
                    "others have got locks that were held here, or were being given up when the reply was lost"
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
