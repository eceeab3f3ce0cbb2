//! Announces what was written to coupled objects: a thread flushes them as long as they have dirty data.
//!
//! A write returns when its bytes are in memory, as every write. While one flush runs, more writes come together, so
//! that many small ones make few chunks and few messages.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::client::Client;
use crate::client::buffer::flush::Scope;
use crate::client::error::FsError;
use crate::client::object::Object;

/// Announcements begin at most this often. The first write is announced at once; what a program writes without a pause comes
/// together, since each announcement costs more wake-ups of threads and processes than a write.
const EVERY: Duration = Duration::from_millis(2);
/// Pause after a flush that failed.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Announcer {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    objects: Vec<Weak<Object>>,
    runs: bool,
    stopping: bool,
}

impl Client {
    /// Has the data of a coupled object flushed soon; does not wait.
    pub(in crate::client) fn announce(self: &Arc<Self>, object: &Arc<Object>) {
        let mut state = self.coupling.announcer.state.lock();
        let weak = Arc::downgrade(object);
        if state.stopping || state.objects.iter().any(|one| one.ptr_eq(&weak)) {
            return;
        }
        state.objects.push(weak);
        let starts = !std::mem::replace(&mut state.runs, true);
        drop(state);
        self.coupling.announcer.work.notify_one();
        if starts && let Err(error) = self.spawn("slabfs-announce", |client| client.announce_all())
        {
            // The data is announced by the flush of old data, by `fsync` and by `close`.
            tracing::warn!(%error, "no thread to announce coupled data");
            self.coupling.announcer.state.lock().runs = false;
        }
    }

    fn announce_all(&self) {
        let announcer = &self.coupling.announcer;
        let mut next = Instant::now();
        loop {
            let objects = {
                let mut state = announcer.state.lock();
                while state.objects.is_empty() && !state.stopping {
                    announcer.work.wait(&mut state);
                }
                // Signals of more writes do not end this.
                while !state.stopping && !announcer.work.wait_until(&mut state, next).timed_out() {}
                if state.stopping {
                    return;
                }
                std::mem::take(&mut state.objects)
            };
            next = Instant::now() + EVERY;
            let mut failed = Vec::new();
            for object in objects.iter().filter_map(Weak::upgrade) {
                if let Err(error) = self.announce_one(&object) {
                    tracing::warn!(object = %object.ino, %error, "coupled data is not announced yet; trying again");
                    failed.push(Arc::downgrade(&object));
                }
            }
            if !failed.is_empty() {
                if self.pause(PAUSE) {
                    return;
                }
                announcer.state.lock().objects.extend(failed);
            }
        }
    }

    fn announce_one(&self, object: &Arc<Object>) -> Result<(), FsError> {
        self.admit(object)?;
        self.flush_object(object, Scope::All)
    }

    /// Ends the thread.
    pub(in crate::client) fn stop_announcing(&self) {
        self.coupling.announcer.state.lock().stopping = true;
        self.coupling.announcer.work.notify_all();
    }
}
