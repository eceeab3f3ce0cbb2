//! Write-back: dirty data is flushed in the background before writers have to wait for it.
//!
//! From half of `dirty_limit` on, a thread flushes the objects with the most dirty data, one after the other, while
//! writers continue into the other half. At the limit a writer waits for the running flush of its object, and if that
//! was not enough it flushes itself, so an error is returned to a caller. An error of a flush in the background is
//! not reported: the data is still in memory, and the next write, close or sync tries again. The thread skips an
//! object whose last flush failed, so that it does not wait for an unreachable server again and again. An error after
//! the data was committed is reported like those of other flushes in the background, since no call would try again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::client::Client;
use crate::client::buffer::flush::Scope;
use crate::client::error::FsError;
use crate::client::object::{Object, State};

/// Pause of the thread after a round that achieved nothing.
const REST: Duration = Duration::from_millis(100);

/// How long a writer waits for the flush of an object that it does not write to.
const PATIENCE: Duration = Duration::from_secs(1);

/// A writer has exceeded half of the limit.
const ASKED: u8 = 1;
/// The thread will check again soon: it need not be woken.
const RESTS: u8 = 2;

/// State of the write-back thread.
#[derive(Debug, Default)]
pub(in crate::client) struct Behind {
    state: AtomicU8,
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Behind {
    /// Ends the thread.
    pub(in crate::client) fn close(&self) {
        *self.closed.lock() = true;
        self.changed.notify_all();
    }

    fn ask(&self) {
        if self.state.fetch_or(ASKED, Ordering::AcqRel) == 0 {
            let _order = self.closed.lock();
            self.changed.notify_all();
        }
    }

    /// Waits until there is work; false at the end.
    fn wait(&self) -> bool {
        let mut closed = self.closed.lock();
        while !*closed {
            if self.state.fetch_and(!ASKED, Ordering::AcqRel) & ASKED != 0 {
                return true;
            }
            self.changed.wait(&mut closed);
        }
        false
    }

    /// Pauses after a round that achieved nothing, since otherwise each write would wake the thread again. A request
    /// during the pause is handled after it: it may be the last one, for an object that can be written back by now.
    fn rest(&self) {
        self.state.fetch_or(RESTS, Ordering::AcqRel);
        let mut closed = self.closed.lock();
        if !*closed {
            self.changed.wait_for(&mut closed, REST);
        }
        self.state.fetch_and(!RESTS, Ordering::AcqRel);
    }
}

impl Client {
    /// Accounts the current memory cost of an object's dirty runs.
    pub(in crate::client) fn account(&self, state: &mut State) {
        let cost = state.runs.cost() + state.taken.as_ref().map_or(0, |taken| taken.cost());
        self.charge(cost as i64 - state.charged as i64);
        state.charged = cost;
    }

    pub(in crate::client) fn charge(&self, bytes: i64) {
        let before = self.dirty.fetch_add(bytes, Ordering::Relaxed);
        if bytes > 0 && self.is_much(before + bytes) {
            self.behind.ask();
        }
    }

    /// Whether writers have to wait.
    pub(in crate::client) fn over_budget(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > self.options.dirty_limit as i64
    }

    fn is_much(&self, dirty: i64) -> bool {
        dirty > (self.options.dirty_limit / 2) as i64
    }

    /// Flushes until the dirty data is within its limit: this object's first, then that of others, except objects
    /// whose last flush failed or whose running flush takes long. Those are left to their own writers.
    pub(in crate::client) fn relieve(&self, object: &Arc<Object>) -> Result<(), FsError> {
        drop(object.flushing.read());
        if !self.over_budget() {
            return Ok(());
        }
        self.flush_object(object, Scope::Pressure)?;
        if !self.over_budget() {
            return Ok(());
        }
        let others: Vec<Arc<Object>> = self.objects.lock().values().cloned().collect();
        for other in others {
            if !self.over_budget() {
                return Ok(());
            }
            let own = Arc::ptr_eq(&other, object);
            // A running flush is waited for, since otherwise every writer would write back small chunks concurrently;
            // but a writer does not wait long for the unreachable server of another object.
            let waits = || other.flushing.try_read_for(PATIENCE).is_none();
            if !own && (waits() || other.stuck.load(Ordering::Acquire)) {
                continue;
            }
            if !self.over_budget() {
                return Ok(());
            }
            if let Err(error) = self.flush_object(&other, Scope::All) {
                if own {
                    return Err(error);
                }
                // As in the background thread: data that is still in memory is tried again by the next call that
                // needs it.
                if !other.stuck.load(Ordering::Acquire) {
                    other.blame(&error);
                }
            }
        }
        Ok(())
    }

    /// Main loop of the write-back thread.
    pub(in crate::client) fn write_behind(&self) {
        while self.behind.wait() {
            if !self.write_back_largest() {
                self.behind.rest();
            }
        }
    }

    /// Flushes the objects with the most dirty data until the amount is below the threshold; false if it is still
    /// above.
    fn write_back_largest(&self) -> bool {
        let objects: Vec<Arc<Object>> = self.objects.lock().values().cloned().collect();
        let mut stuck = 0;
        let mut largest = Vec::new();
        for object in objects {
            let bytes = object.state.lock().charged;
            match object.stuck.load(Ordering::Acquire) {
                true => stuck += bytes as i64,
                false if bytes > 0 => largest.push((bytes, object)),
                false => {}
            }
        }
        // Data that cannot be written back must not cause small chunks of all other data.
        let is_enough = || !self.is_much(self.dirty.load(Ordering::Relaxed) - stuck);
        largest.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (_, object) in largest {
            if is_enough() || *self.behind.closed.lock() {
                return true;
            }
            if let Err(error) = self.flush_object(&object, Scope::Pressure) {
                match object.stuck.load(Ordering::Acquire) {
                    true => {
                        tracing::debug!(object = %object.ino, %error, "write-back in the background failed");
                    }
                    // The data is on the servers, and no call here would try again.
                    false => object.blame(&error),
                }
            }
        }
        stuck == 0 && is_enough()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_during_the_pause_is_handled_after_it() {
        let behind = Behind::default();
        behind.ask();
        assert!(behind.wait());
        std::thread::scope(|scope| {
            let resting = scope.spawn(|| behind.rest());
            behind.ask();
            resting.join().expect("a rest");
        });
        assert_eq!(behind.state.load(Ordering::Acquire), ASKED);
        assert!(behind.wait());
        behind.close();
        assert!(!behind.wait());
    }
}
