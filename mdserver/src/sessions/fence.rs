//! Fencing: tracks ended sessions of which a data server may still accept a write.
//!
//! The service refuses a session from its end on. The data servers learn of it with their next report
//! (`placement/register.rs`): the reply lists the sessions that are alive, and the report after that confirms that
//! the server enforces the list. Until all of them do, what only that session could write must not be granted to any
//! other session: its writes may still be in flight. A server that was silent for the entire lease counts as
//! enforcing it, since by then it accepts no writes of its own accord (`objstore/src/server/fence.rs`).
//!
//! The list is in memory, and its version starts anywhere: after a start of the service all servers are notified
//! again, and the sessions that ended before it count as one. A version from another run of the service is
//! meaningless, however the clock changed in between.

use slabfs_model::{ServerId, SessionId};
use slabfs_objstore::server::Alive;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use super::Sessions;
use crate::placement::Servers;

/// The versions of the list that each data server has yet to receive, or to confirm.
#[derive(Debug)]
pub(crate) struct Fences {
    /// Version of the list of live sessions; grows with each change.
    version: u64,
    /// The first version in this run of the service, never 0, and its time.
    first: u64,
    began: Instant,
    /// Sessions of an earlier run that are not alive are below this, and some data server may not know of their ends.
    earlier: Option<SessionId>,
    /// Sessions that ended in this run, and the first version of the list without them.
    open: BTreeMap<SessionId, u64>,
    /// The version sent to each server in this run.
    sent: BTreeMap<ServerId, u64>,
    /// The version that each server confirms to enforce.
    obeys: BTreeMap<ServerId, u64>,
}

impl Fences {
    /// At the start of the service; nothing was sent yet.
    pub(crate) fn new() -> Self {
        // Random, so that no version of another run is among those of this one; not from the clock, which may have
        // been set back. A server that enforces none reports 0.
        let version = (RandomState::new().hash_one(0) >> 1).max(1);
        Self {
            version,
            first: version,
            began: Instant::now(),
            earlier: None,
            open: BTreeMap::new(),
            sent: BTreeMap::new(),
            obeys: BTreeMap::new(),
        }
    }

    /// All sessions below `next` that are not alive have ended in an earlier run.
    pub(crate) fn begin(&mut self, next: SessionId) {
        self.earlier = Some(next);
    }

    /// A session was attached.
    pub(super) fn attached(&mut self) {
        self.version += 1;
    }

    /// A session has ended.
    pub(super) fn ended(&mut self, session: SessionId) {
        self.version += 1;
        self.open.insert(session, self.version);
    }

    /// Whether some data server may still accept a write of an ended session.
    pub(crate) fn is_open(&self, session: SessionId) -> bool {
        self.open.contains_key(&session) || self.earlier.is_some_and(|next| session < next)
    }

    /// A server reports which version it enforces; returns the list unless that is the latest.
    pub(crate) fn heard(
        &mut self,
        server: ServerId,
        obeys: u64,
        sessions: &Sessions,
        next: SessionId,
    ) -> Option<Alive> {
        let sent = self.sent.insert(server, self.version).unwrap_or(0);
        // A version sent by another run is meaningless. So is its earlier confirmation: it may have restarted since,
        // from a directory that does not know the version.
        match (self.first..=sent).contains(&obeys) {
            true => self.obeys.insert(server, obeys),
            false => self.obeys.remove(&server),
        };
        (self.obeys.get(&server) != Some(&self.version)).then(|| Alive {
            version: self.version,
            next,
            live: sessions.live.keys().copied().collect(),
        })
    }

    /// Whether data servers may still accept writes of sessions that ended in an earlier run.
    pub(crate) fn earlier_is_open(&self) -> bool {
        self.earlier.is_some()
    }

    /// Returns the sessions of which no data server accepts writes any more; each is returned once.
    pub(crate) fn close(
        &mut self,
        servers: &Servers,
        lease: Duration,
        now: Instant,
    ) -> Vec<SessionId> {
        if self.earlier.is_none() && self.open.is_empty() {
            return Vec::new();
        }
        let mut least = u64::MAX;
        for (id, server) in &servers.by_id {
            let heard = server.heard.unwrap_or(self.began);
            if now.saturating_duration_since(heard) <= lease {
                // A server that received no list in this run enforces none of it.
                least = least.min(self.obeys.get(id).copied().unwrap_or(0));
            }
        }
        if least >= self.first {
            self.earlier = None;
        }
        let closed: Vec<SessionId> = self
            .open
            .iter()
            .filter(|(_, version)| **version <= least)
            .map(|(&session, _)| session)
            .collect();
        for session in &closed {
            self.open.remove(session);
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Server;
    use crate::records::ServerRecord;

    const LEASE: Duration = Duration::from_secs(10);

    fn servers(ids: &[u32], heard: Instant) -> Servers {
        let mut servers = Servers::new();
        for &id in ids {
            let mut server = Server::silent(ServerRecord {
                uuid: [id as u8; 16],
                addr: None,
                host: String::new(),
                draining: false,
                memory: false,
            });
            server.heard = Some(heard);
            servers.by_id.insert(ServerId(id), server);
        }
        servers
    }

    /// Sends the list to server `id` and confirms it; returns the version.
    fn obey(fences: &mut Fences, id: u32) -> u64 {
        let (sessions, next) = (Sessions::default(), SessionId(9));
        let sent = fences.heard(ServerId(id), 0, &sessions, next);
        let version = sent.expect("it enforces nothing yet").version;
        assert_eq!(fences.heard(ServerId(id), version, &sessions, next), None);
        version
    }

    #[test]
    fn an_end_is_closed_when_all_servers_enforce_it_or_were_silent_for_long() {
        let now = Instant::now();
        let mut all = servers(&[1, 2], now);
        let mut fences = Fences::new();
        obey(&mut fences, 1);
        obey(&mut fences, 2);
        fences.ended(SessionId(5));
        assert!(fences.is_open(SessionId(5)) && !fences.is_open(SessionId(4)));
        assert!(fences.close(&all, LEASE, now).is_empty());
        obey(&mut fences, 2);
        assert!(fences.close(&all, LEASE, now).is_empty());
        let later = now + LEASE * 2;
        all.by_id.get_mut(&ServerId(2)).unwrap().heard = Some(later);
        assert_eq!(fences.close(&all, LEASE, later), [SessionId(5)]);
        assert!(fences.close(&all, LEASE, later).is_empty());
        assert!(!fences.is_open(SessionId(5)));
        // Of two ends, the first may be known and the second not.
        fences.ended(SessionId(6));
        obey(&mut fences, 1);
        fences.ended(SessionId(7));
        obey(&mut fences, 2);
        all.by_id.get_mut(&ServerId(1)).unwrap().heard = Some(later);
        assert_eq!(fences.close(&all, LEASE, later), [SessionId(6)]);
        assert!(fences.is_open(SessionId(7)));
    }

    #[test]
    fn a_version_from_another_run_is_ignored() {
        let now = Instant::now();
        let all = servers(&[1], now);
        let mut fences = Fences::new();
        fences.begin(SessionId(9));
        assert!(fences.is_open(SessionId(3)) && !fences.is_open(SessionId(9)));
        let sessions = Sessions::default();
        let next = SessionId(9);
        for other in [0, fences.first - 1, fences.version + 1000] {
            for _ in 0..2 {
                let sent = fences.heard(ServerId(1), other, &sessions, next);
                assert!(sent.is_some(), "{other}");
                // Sessions come and go, and replies get lost.
                fences.attached();
            }
            fences.close(&all, LEASE, now);
            assert!(fences.is_open(SessionId(3)) && fences.earlier_is_open());
        }
        obey(&mut fences, 1);
        fences.close(&all, LEASE, now);
        assert!(!fences.is_open(SessionId(3)) && !fences.earlier_is_open());
    }

    #[test]
    fn a_restarted_server_that_lost_its_state_is_sent_the_list_again() {
        let now = Instant::now();
        let all = servers(&[1], now);
        let sessions = Sessions::default();
        let next = SessionId(9);
        let mut fences = Fences::new();
        let version = obey(&mut fences, 1);
        // Its file was never written, is from earlier in this run, or from another run.
        for stored in [0, version - 1, version + 1] {
            let sent = fences.heard(ServerId(1), stored, &sessions, next);
            assert_eq!(sent.map(|sent| sent.version), Some(version), "{stored}");
            fences.ended(SessionId(5));
            assert!(fences.close(&all, LEASE, now).is_empty());
            obey(&mut fences, 1);
            assert_eq!(fences.close(&all, LEASE, now), [SessionId(5)]);
            fences.version = version;
            obey(&mut fences, 1);
        }
    }
}
