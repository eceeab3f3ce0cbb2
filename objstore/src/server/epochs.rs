//! Orders one session's changes of grid chunks across broken connections, by connection epoch.
//!
//! A client that gives up on a request does not know whether it was carried out. The request may still sit unread in
//! the socket of a stopped server, which reads it when it resumes, long after the client has closed its end, and
//! concurrently with later requests of the same client. Such a late write in place would destroy newer data that the
//! client knows to be on disk. So each request carries its client's *epoch*: the number of connections to this server
//! that the client has lost with a request on them unanswered.
//!
//! Invariant: when a request begins, all requests of the same session with a lower epoch have ended, or are refused
//! with `StoreError::Superseded`; a client that still waits for a refused request repeats it in its current epoch. A
//! client enters the new epoch before it reports the failure to its caller, so all later requests carry the new epoch.
//!
//! The state is a few words per session that has changed grid chunks. It need not outlive the process, because the
//! connections do not.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slabfs_model::{ServerId, SessionId};

use crate::error::{Result, StoreError};

/// Sessions in the table; when it is full, those without running requests are removed.
const SESSIONS: usize = 64 << 10;
/// How long to wait for running requests of earlier epochs. Their connections are closed, so none waits for its client.
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
    /// Running requests of each epoch.
    running: BTreeMap<u64, usize>,
}

/// A running request; ends when dropped.
#[derive(Debug)]
pub(super) struct Begun<'a> {
    epochs: &'a ConnectionEpochs,
    session: SessionId,
    epoch: u64,
}

impl ConnectionEpochs {
    /// Begins a request after those of earlier epochs of the same session have ended.
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
                    // The caller fills in the server.
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
    fn late_requests_are_refused_and_running_ones_waited_for() {
        let epochs = ConnectionEpochs::default();
        let first = epochs.begin(ONE, 0).unwrap();
        let with_it = epochs.begin(ONE, 0).unwrap();
        // Another session is independent.
        drop(epochs.begin(SessionId(2), 7).unwrap());
        std::thread::scope(|scope| {
            let later = scope.spawn(|| epochs.begin(ONE, 3).map(drop));
            while epochs.sessions.lock()[&ONE].newest < 3 {
                std::thread::yield_now();
            }
            // The new epoch counts as soon as the request arrives, before it begins.
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
    fn the_session_table_is_bounded() {
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
