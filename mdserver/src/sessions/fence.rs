//! Sessions that are over and of which a data server may still take a write.
//!
//! The service refuses a session from its end on. The data servers learn of it with their next report
//! (`placement/register.rs`): they are told which sessions live, and say with the report after that that
//! they obey. Until all of them do, what only that session could write must not be given to anybody else:
//! bytes of it may still be on their way. One that is silent obeys when it was silent for the whole
//! lease, since by then it lets nobody in of its own accord (`objstore/src/server/fence.rs`).
//!
//! The list is in memory, and its version begins anywhere: after a start of the service all servers
//! are told anew, and those that ended before it count as one. What a server obeys of another run's list
//! says nothing, whatever the clock did in between.

use slabfs_model::{ServerId, SessionId};
use slabfs_objstore::server::Alive;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use super::Sessions;
use crate::placement::Servers;

/// What the data servers have yet to be told, or to say that they obey.
#[derive(Debug)]
pub(crate) struct Fences {
    /// Of the list of living sessions; grows with each change.
    version: u64,
    /// Its first version in this run of the service, never 0, and when that was.
    first: u64,
    began: Instant,
    /// Sessions of an earlier run of the service that are not among the living are below this, and
    /// some data server may not know of their ends.
    earlier: Option<SessionId>,
    /// Those that ended in this run, and the first version of the list that says so.
    open: BTreeMap<SessionId, u64>,
    /// The version each server was told in this run.
    told: BTreeMap<ServerId, u64>,
    /// The version each server says that it obeys.
    obeys: BTreeMap<ServerId, u64>,
}

impl Fences {
    /// At the start of the service; nobody was told anything yet.
    pub(crate) fn new() -> Self {
        // At random, so that no version of another run lies among those of this one; not at the clock, which
        // may have been set back. A server that obeys nothing says 0.
        let version = (RandomState::new().hash_one(0) >> 1).max(1);
        Self {
            version,
            first: version,
            began: Instant::now(),
            earlier: None,
            open: BTreeMap::new(),
            told: BTreeMap::new(),
            obeys: BTreeMap::new(),
        }
    }

    /// All sessions below `next` that do not live have ended in an earlier run.
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

    /// Whether some data server may still take a write of a session that is over.
    pub(crate) fn is_open(&self, session: SessionId) -> bool {
        self.open.contains_key(&session) || self.earlier.is_some_and(|next| session < next)
    }

    /// A server says which version it obeys; gives the list where that is not the newest.
    pub(crate) fn heard(
        &mut self,
        server: ServerId,
        obeys: u64,
        sessions: &Sessions,
        next: SessionId,
    ) -> Option<Alive> {
        let told = self.told.insert(server, self.version).unwrap_or(0);
        // What it was told by another run says nothing. Nor does what it has said before: it may have been
        // started anew since, from a directory that does not know of that.
        match (self.first..=told).contains(&obeys) {
            true => self.obeys.insert(server, obeys),
            false => self.obeys.remove(&server),
        };
        (self.obeys.get(&server) != Some(&self.version)).then(|| Alive {
            version: self.version,
            next,
            live: sessions.live.keys().copied().collect(),
        })
    }

    /// Whether data servers may still take writes of sessions that ended in an earlier run.
    pub(crate) fn earlier_is_open(&self) -> bool {
        self.earlier.is_some()
    }

    /// The sessions of which, as it turns out, no data server takes a write any more; each is named once.
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
                // One that was not told in this run obeys nothing of it.
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
            });
            server.heard = Some(heard);
            servers.by_id.insert(ServerId(id), server);
        }
        servers
    }

    /// What server `id` obeys when it was told and has told so.
    fn obey(fences: &mut Fences, id: u32) -> u64 {
        let (sessions, next) = (Sessions::default(), SessionId(9));
        let told = fences.heard(ServerId(id), 0, &sessions, next);
        let version = told.expect("it obeys nothing yet").version;
        assert_eq!(fences.heard(ServerId(id), version, &sessions, next), None);
        version
    }

    #[test]
    fn an_end_counts_when_all_servers_obey_it_or_were_silent_for_long() {
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
        // Of two ends the first one may be known, and the second not.
        fences.ended(SessionId(6));
        obey(&mut fences, 1);
        fences.ended(SessionId(7));
        obey(&mut fences, 2);
        all.by_id.get_mut(&ServerId(1)).unwrap().heard = Some(later);
        assert_eq!(fences.close(&all, LEASE, later), [SessionId(6)]);
        assert!(fences.is_open(SessionId(7)));
    }

    #[test]
    fn what_a_server_was_told_by_another_run_says_nothing() {
        let now = Instant::now();
        let all = servers(&[1], now);
        let mut fences = Fences::new();
        fences.begin(SessionId(9));
        assert!(fences.is_open(SessionId(3)) && !fences.is_open(SessionId(9)));
        let sessions = Sessions::default();
        let next = SessionId(9);
        for other in [0, fences.first - 1, fences.version + 1000] {
            for _ in 0..2 {
                let told = fences.heard(ServerId(1), other, &sessions, next);
                assert!(told.is_some(), "{other}");
                // Sessions come and go, and answers get lost.
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
    fn a_server_that_was_started_anew_and_has_forgotten_is_told_again() {
        let now = Instant::now();
        let all = servers(&[1], now);
        let sessions = Sessions::default();
        let next = SessionId(9);
        let mut fences = Fences::new();
        let version = obey(&mut fences, 1);
        // Its file was never written, is an earlier one of this run, or one of another run.
        for kept in [0, version - 1, version + 1] {
            let told = fences.heard(ServerId(1), kept, &sessions, next);
            assert_eq!(told.map(|told| told.version), Some(version), "{kept}");
            fences.ended(SessionId(5));
            assert!(fences.close(&all, LEASE, now).is_empty());
            obey(&mut fences, 1);
            assert_eq!(fences.close(&all, LEASE, now), [SessionId(5)]);
            fences.version = version;
            obey(&mut fences, 1);
        }
    }
}
