//! Telling the home what is held here: when it was started anew, and when it is not known what it has done.

use slabfs_mdserver::api::{HeldLocks, LockLife, LostLocks, MdError};

use super::super::Client;

/// Owners in one message.
const BATCH: usize = 1000;

impl Client {
    /// The home's own life, as a heartbeat has it: if that is a new one, it has to be told.
    pub(in crate::client) fn locks_home(&self, home: LockLife) {
        let mut state = self.locks.state.lock();
        // A session's lives are numbered on from its home's.
        if state.life < home && state.life != LockLife::UNKNOWN {
            state.end_life();
            self.locks.changed.notify_all();
        }
    }

    /// Tells the home what is held here, unless somebody has since life `over` ended.
    pub(super) fn tell_locks(&self, over: LockLife) -> Result<(), MdError> {
        let _one = self.locks.telling.lock();
        let held = {
            let mut state = self.locks.state.lock();
            if state.life != over && state.life != LockLife::UNKNOWN {
                return Ok(());
            }
            state.telling = true;
            state.end_life();
            state.held.all()
        };
        let told = self.tell_all(held);
        let mut state = self.locks.state.lock();
        state.telling = false;
        let told = told.map(|(lost, life)| {
            state.held.lose(&lost);
            state.life = life;
        });
        self.locks.changed.notify_all();
        told
    }

    fn tell_all(&self, mut held: Vec<HeldLocks>) -> Result<(Vec<LostLocks>, LockLife), MdError> {
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
            let (lost, life) = self.md.reclaim_locks(held, first, last)?;
            for one in &lost {
                tracing::warn!(
                    ino = %one.file.ino, owner = %one.owner, parts = one.spans.len(),
                    "others have got locks that were held here, or were being given up when the reply was lost"
                );
            }
            if last {
                return Ok((lost, life));
            }
            held = rest;
            first = false;
        }
    }
}
