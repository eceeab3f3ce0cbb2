//! Writing behind: what waits in memory is written back before writers have to wait for that.
//!
//! From half of `dirty_limit` on a thread flushes the objects that have most of it, one after the other, while writers
//! go on into the other half. At the limit a writer waits for the flush of his object that runs, and if that was not
//! enough he flushes himself, so what fails is told to somebody who waits. A flush that fails behind is told to nobody: the data
//! is still here, and who writes on, closes or syncs tries again. The thread leaves an object alone whose last flush
//! failed, so that a server that is away is not waited for again and again. What fails after the data was committed
//! is told as that of other flushes in the background, since nobody would try it again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Client;
use super::error::FsError;
use super::flush::Scope;
use super::object::{Object, State};

/// How long nothing is tried where nothing could be done.
const REST: Duration = Duration::from_millis(100);

/// How long a writer waits for the flush of an object that he does not write to.
const PATIENCE: Duration = Duration::from_secs(1);

/// Somebody wrote, and there was too much.
const ASKED: u8 = 1;
/// The thread looks again in a while: nobody need wake it.
const RESTS: u8 = 2;

/// What the thread is told.
#[derive(Debug, Default)]
pub(super) struct Behind {
    state: AtomicU8,
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Behind {
    /// Ends the thread.
    pub(super) fn close(&self) {
        *self.closed.lock() = true;
        self.changed.notify_all();
    }

    fn ask(&self) {
        if self.state.fetch_or(ASKED, Ordering::AcqRel) == 0 {
            let _order = self.closed.lock();
            self.changed.notify_all();
        }
    }

    /// Waits until there is something to do; false at the end.
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

    /// Where nothing could be done each write would wake the thread up again: for a while none does. Who asks
    /// meanwhile is heard after it: he may have been the last to write, of an object that can be written back by now.
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
    /// Books what an object's dirty runs cost now.
    pub(super) fn account(&self, state: &mut State) {
        let cost = state.runs.cost() + state.taken.as_ref().map_or(0, |taken| taken.cost());
        self.charge(cost as i64 - state.charged as i64);
        state.charged = cost;
    }

    pub(super) fn charge(&self, bytes: i64) {
        let before = self.dirty.fetch_add(bytes, Ordering::Relaxed);
        if bytes > 0 && self.is_much(before + bytes) {
            self.behind.ask();
        }
    }

    /// Whether writers wait.
    pub(super) fn over_budget(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > self.options.dirty_limit as i64
    }

    fn is_much(&self, dirty: i64) -> bool {
        dirty > (self.options.dirty_limit / 2) as i64
    }

    /// Flushes until the unflushed data is within its bound: this object's first, then others', but for those that
    /// could not be flushed, or are being flushed for long. Overlaps such ones each writer writes back his own as it comes.
    pub(super) fn relieve(&self, object: &Arc<Object>) -> Result<(), FsError> {
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
            // A flush that goes on is waited for, or everybody would writes back small chunks beside it; but who writes to
            // one object does not wait for the server of another one that is away.
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
                // As behind the writers: what is kept is tried again by whoever needs it.
                if !other.stuck.load(Ordering::Acquire) {
                    other.blame(&error);
                }
            }
        }
        Ok(())
    }

    /// The thread.
    pub(super) fn write_behind(&self) {
        while self.behind.wait() {
            if !self.write_back_largest() {
                self.behind.rest();
            }
        }
    }

    /// Flushes the objects that have most until there is not much any more; false if there still is.
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
        // What cannot be written back is no reason to make small chunks of all else.
        let is_enough = || !self.is_much(self.dirty.load(Ordering::Relaxed) - stuck);
        largest.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (_, object) in largest {
            if is_enough() || *self.behind.closed.lock() {
                return true;
            }
            if let Err(error) = self.flush_object(&object, Scope::Pressure) {
                match object.stuck.load(Ordering::Acquire) {
                    true => {
                        tracing::debug!(object = %object.ino, %error, "not written back behind its writers");
                    }
                    // The data is out, and nobody has it here to try again.
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
    fn who_asks_while_nothing_can_be_done_is_heard_after_it() {
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
