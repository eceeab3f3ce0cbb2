//! Changes of grid chunks by one session, in the order in which it made them.
//!
//! A client that gave up waiting for an answer does not know whether its request was done, and its bytes may still be
//! in a connection that the server has not read: a server that was stopped reads them when it goes on, however long
//! ago the client has closed that end, and beside requests that the client made after it. A write in place that comes so
//! destroys what the same client has written since, and was told is on disk. So a request says its client's *epoch*: how
//! often that one lost a connection to this server with a request on it that was not answered.
//!
//! UntilNext true: when a request has begun, all of the same session with a lower epoch have ended, or are refused
//! (`StoreError::Superseded`); who is refused and still waits asks again in the epoch it has by then. A client
//! enters the new epoch before whoever asked hears that the request failed, so all that is asked after that is of
//! the new epoch.
//!
//! What is kept is a few words for each session that asked for such a thing; nothing of it has to outlive the process,
//! with which the connections end.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slabfs_model::{ServerId, SessionId};

use crate::error::{Result, StoreError};

/// Sessions that are remembered; those for whom nothing runs are forgotten where they are more.
const SESSIONS: usize = 64 << 10;
/// For requests of earlier epochs that run: their connections are closed, so none waits for its client.
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct ConnectionEpochs {
    sessions: Mutex<HashMap<SessionId, Session>>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Session {
    /// The highest epoch seen.
    newest: u64,
    /// How many requests of which epoch run.
    running: BTreeMap<u64, usize>,
}

/// A request that has begun, until it is dropped.
#[derive(Debug)]
pub(super) struct Begun<'a> {
    epochs: &'a ConnectionEpochs,
    session: SessionId,
    epoch: u64,
}

impl ConnectionEpochs {
    /// Begins a request, after those of earlier epochs of the same session.
    pub(super) fn begin(&self, session: SessionId, epoch: u64) -> Result<Begun<'_>> {
        let until = Instant::now() + LONGEST;
        let mut sessions = self.sessions.lock();
        if sessions.len() >= SESSIONS && !sessions.contains_key(&session) {
            sessions.retain(|_, of| !of.running.is_empty());
        }
        loop {
            let of = sessions.entry(session).or_default();
            if epoch < of.newest {
                return Err(StoreError::Superseded);
            }
            of.newest = epoch;
            if of.running.range(..epoch).next().is_none() {
                *of.running.entry(epoch).or_default() += 1;
                return Ok(Begun {
                    epochs: self,
                    session,
                    epoch,
                });
            }
            if self.ended.wait_until(&mut sessions, until).timed_out() {
                return Err(StoreError::Unavailable {
                    // The caller knows whom it asked.
                    server: ServerId(0),
                    addr: String::new(),
                    detail: "an earlier request of this client still runs".into(),
                });
            }
        }
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut sessions = self.epochs.sessions.lock();
        let Some(of) = sessions.get_mut(&self.session) else {
            return;
        };
        if let Some(count) = of.running.get_mut(&self.epoch) {
            *count -= 1;
            if *count == 0 {
                of.running.remove(&self.epoch);
                self.epochs.ended.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId(1);

    #[test]
    fn who_is_late_is_refused_and_who_runs_is_waited_for() {
        let epochs = ConnectionEpochs::default();
        let first = epochs.begin(ONE, 0).unwrap();
        let with_it = epochs.begin(ONE, 0).unwrap();
        // Others are none of its.
        drop(epochs.begin(SessionId(2), 7).unwrap());
        std::thread::scope(|scope| {
            let later = scope.spawn(|| epochs.begin(ONE, 3).map(drop));
            while epochs.sessions.lock()[&ONE].newest < 3 {
                std::thread::yield_now();
            }
            // It counts from when it is seen on, and not only from when it begins.
            assert_eq!(epochs.begin(ONE, 0).unwrap_err(), StoreError::Superseded);
            assert!(!later.is_finished());
            drop(first);
            assert!(!later.is_finished());
            drop(with_it);
            later.join().unwrap().unwrap();
        });
        assert_eq!(epochs.begin(ONE, 2).unwrap_err(), StoreError::Superseded);
        drop(epochs.begin(ONE, 3).unwrap());
        assert!(epochs.sessions.lock()[&ONE].running.is_empty());
    }

    #[test]
    fn no_more_sessions_are_remembered_than_there_may_be() {
        let epochs = ConnectionEpochs::default();
        let runs = epochs.begin(ONE, 5).unwrap();
        for session in 0..=SESSIONS as u64 {
            drop(epochs.begin(SessionId(100 + session), 1).unwrap());
        }
        assert!(epochs.sessions.lock().len() <= SESSIONS);
        assert_eq!(epochs.begin(ONE, 4).unwrap_err(), StoreError::Superseded);
        drop(runs);
    }
}
