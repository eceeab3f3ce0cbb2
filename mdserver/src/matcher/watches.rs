//! Sessions that watch coupled objects: they are notified of every announcement, and so need no match for what they
//! know.
//!
//! A session polls with a list of objects and the version of the tiling that it has of each: that version is
//! *acknowledged*. While its list has an object, a commit that hides cells which were visible before is answered only
//! when all watching sessions have acknowledged it, or have been silent for [`SILENT`]. So what a watching session reads
//! by a tiling that it was notified of is the newest data, as long as it trusts the tiling for less than that time. A
//! commit of other cells waits for no session: nothing that was read before has changed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slabfs_model::{SessionId, Version};

use crate::api::Ino;

/// After this time without a poll a session does not trust what it knows: it is counted from the poll's arrival, and
/// the session counts less, from when it sent it.
pub(super) const SILENT: Duration = Duration::from_secs(4);

#[derive(Debug, Default)]
pub(super) struct Watches {
    state: Mutex<HashMap<SessionId, Watch>>,
    /// Signalled when a session has acknowledged something.
    acknowledged: Condvar,
}

#[derive(Debug)]
struct Watch {
    objects: HashMap<Ino, Version>,
    /// Something has changed since the last look.
    due: bool,
    heard: Instant,
    woken: Arc<Condvar>,
}

impl Watches {
    /// A session polls: it watches these objects and no others, and has these versions.
    pub(super) fn poll(&self, session: SessionId, objects: impl Iterator<Item = (Ino, Version)>) {
        let mut state = self.state.lock();
        let watch = state.entry(session).or_insert_with(|| Watch {
            objects: HashMap::new(),
            due: false,
            heard: Instant::now(),
            woken: Arc::default(),
        });
        watch.objects = objects.collect();
        watch.heard = Instant::now();
        if watch.objects.is_empty() {
            state.remove(&session);
        }
        drop(state);
        self.acknowledged.notify_all();
    }

    /// Marks what has happened so far as seen: what comes later wakes [`Watches::wait`].
    pub(super) fn look(&self, session: SessionId) {
        if let Some(watch) = self.state.lock().get_mut(&session) {
            watch.due = false;
        }
    }

    /// Waits until something has changed since the last look; at most until then.
    pub(super) fn wait(&self, session: SessionId, until: Instant) {
        let mut state = self.state.lock();
        while let Some(watch) = state.get(&session) {
            let woken = Arc::clone(&watch.woken);
            if watch.due || woken.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }

    /// An object has changed.
    pub(super) fn changed(&self, ino: Ino) {
        let mut state = self.state.lock();
        let watching = state.values_mut();
        for watch in watching.filter(|watch| watch.objects.contains_key(&ino)) {
            watch.due = true;
            watch.woken.notify_all();
        }
    }

    /// Waits until all other sessions that watch an object have acknowledged this version. `restart`: when the service was
    /// restarted; sessions that watched before may not have polled since.
    pub(super) fn settle(
        &self,
        ino: Ino,
        version: Version,
        but: SessionId,
        restart: Option<Instant>,
    ) {
        let mut state = self.state.lock();
        if let Some(since) = restart {
            while !self
                .acknowledged
                .wait_until(&mut state, since + SILENT)
                .timed_out()
            {}
        }
        loop {
            let behind = |(session, watch): (&SessionId, &Watch)| {
                let has = watch.objects.get(&ino)?;
                let silent = watch.heard + SILENT;
                (*session != but && *has < version && silent > Instant::now()).then_some(silent)
            };
            let Some(until) = state.iter().filter_map(behind).max() else {
                return;
            };
            self.acknowledged.wait_until(&mut state, until);
        }
    }

    /// A session is over.
    pub(super) fn ended(&self, session: SessionId) {
        let watch = self.state.lock().remove(&session);
        if let Some(watch) = watch {
            watch.woken.notify_all();
        }
        self.acknowledged.notify_all();
    }

    /// Lets all waits return.
    pub(super) fn wake_all(&self) {
        for watch in self.state.lock().values_mut() {
            watch.due = true;
            watch.woken.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::ObjectId;

    use super::*;

    #[test]
    fn an_acknowledgement_ends_the_wait() {
        let (one, two, ino) = (SessionId(1), SessionId(2), ObjectId(7));
        let watches = Watches::default();
        watches.poll(one, [(ino, Version(3))].into_iter());
        // Of its own commit a session needs no notice.
        watches.settle(ino, Version(9), one, None);
        watches.settle(ino, Version(3), two, None);
        watches.settle(ObjectId(8), Version(9), two, None);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| watches.settle(ino, Version(4), two, None));
            watches.changed(ino);
            watches.wait(one, Instant::now() + SILENT);
            assert!(!waits.is_finished());
            watches.poll(one, [(ino, Version(4))].into_iter());
            waits.join().unwrap();
        });
        watches.poll(two, [(ino, Version(1))].into_iter());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| watches.settle(ino, Version(5), one, None));
            watches.ended(two);
            waits.join().unwrap();
        });
        watches.poll(one, std::iter::empty());
        watches.settle(ino, Version(9), two, None);
    }

    #[test]
    fn a_silent_session_is_not_waited_for_for_ever() {
        let (one, two, ino) = (SessionId(1), SessionId(2), ObjectId(7));
        let watches = Watches::default();
        watches.poll(one, [(ino, Version(3))].into_iter());
        let begun = Instant::now();
        watches.settle(ino, Version(4), two, None);
        assert!(begun.elapsed() >= SILENT / 2);
    }

    #[test]
    fn a_change_before_the_wait_is_not_missed() {
        let (one, ino) = (SessionId(1), ObjectId(7));
        let watches = Watches::default();
        watches.poll(one, [(ino, Version(3))].into_iter());
        watches.look(one);
        watches.changed(ino);
        let begun = Instant::now();
        watches.wait(one, begun + Duration::from_secs(60));
        watches.look(one);
        watches.wait(one, Instant::now() + Duration::from_millis(1));
        watches.ended(one);
        watches.wait(one, Instant::now() + Duration::from_secs(60));
        assert!(begun.elapsed() < Duration::from_secs(50));
    }
}
