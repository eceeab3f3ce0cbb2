//! Sessions: who is attached, which of its requests were answered, which chunk ids it has.
//!
//! A session is in the store from attach to its end, so that clients carry on over a restart of the
//! service. It ends by detaching, by silence, or, when it was in the service's own process, with that
//! process. Its end is three steps: the record is marked, from then on nothing of it is accepted; then
//! what it had is given up ([`end`]), which can be done again from the start after a crash; and when the
//! data servers take nothing of it any more ([`fence`]), others get what only it could write.

mod admit;
mod attach;
mod end;
mod fence;
mod lease;

pub(crate) use admit::{Admission, admit, answered};
pub(crate) use attach::{attach, heartbeat};
pub(crate) use end::{close_fences, detach, expire, finish_ended, mark_all_ended};
pub(crate) use fence::Fences;
pub(crate) use lease::{Leases, is_used_up, lease_chunks, session_of};

use slabfs_model::SessionId;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Instant;

use crate::api::MdError;
use crate::placement::Places;
use crate::records::SessionRecord;

/// Most replies kept for one session.
pub(crate) const MAX_KEPT: usize = 100_000;

/// All sessions that live.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    pub(crate) live: BTreeMap<SessionId, Session>,
}

/// A session that lives.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) record: SessionRecord,
    pub(crate) heard: Instant,
    pub(crate) leases: Leases,
    pub(crate) places: Places,
    /// Version of the list of servers that it goes by, in all that it does.
    pub(crate) knows: u64,
    /// Numbers of requests whose replies are kept.
    kept: BTreeSet<u64>,
    /// Numbers below this were given up: their replies are gone.
    floor: u64,
    /// Numbers below this have no caller any more, who was answered or has given up: nothing is begun for them, however
    /// late they come. A later request may have been done since.
    over: u64,
    /// Numbers of requests that are being done.
    running: HashSet<u64>,
    /// Requests that were refused, and why: a copy of one that comes late must not be done after all.
    refused: BTreeMap<u64, MdError>,
}

impl Session {
    /// A session heard just now.
    pub(crate) fn new(record: SessionRecord) -> Self {
        Self {
            record,
            heard: Instant::now(),
            leases: Leases::default(),
            places: Places::default(),
            knows: 0,
            kept: BTreeSet::new(),
            floor: 0,
            over: 0,
            running: HashSet::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Notes a reply that is in the store (at start).
    pub(crate) fn found(&mut self, seq: u64) {
        self.kept.insert(seq);
    }

    /// Numbers of kept replies that can go now: those below `done_below`, and the oldest when there
    /// are too many.
    pub(crate) fn forgettable(&self, done_below: u64) -> Vec<u64> {
        let excess = (self.kept.len() + 1).saturating_sub(MAX_KEPT);
        let numbers = self.kept.iter().copied().enumerate();
        let gone = numbers.take_while(|&(at, seq)| at < excess || seq < done_below);
        gone.map(|(_, seq)| seq).collect()
    }

    /// Notes that the reply to `seq` is in the store and those to `forgotten` are not any more.
    pub(crate) fn kept(&mut self, seq: u64, forgotten: &[u64]) {
        self.forget(forgotten);
        self.kept.insert(seq);
    }

    /// Notes that `seq` was refused.
    fn refused(&mut self, seq: u64, error: MdError) {
        self.refused.insert(seq, error);
        if self.refused.len() > MAX_KEPT {
            self.refused.pop_first();
        }
    }

    /// Notes that nobody waits for requests below `floor`: their answers have arrived, or were given up.
    pub(crate) fn arrived_below(&mut self, floor: u64) {
        if floor <= self.over {
            return;
        }
        self.over = floor;
        self.floor = self.floor.max(floor);
        self.refused = self.refused.split_off(&self.floor);
    }

    /// Whether nobody waits for a request that came before; 0 is of none that has a number.
    pub(crate) fn is_over(&self, seq: u64) -> bool {
        seq != 0 && seq < self.over
    }

    /// Notes that the replies to `forgotten` are not in the store any more.
    pub(crate) fn forget(&mut self, forgotten: &[u64]) {
        for old in forgotten {
            self.kept.remove(old);
            self.floor = self.floor.max(old + 1);
        }
    }
}
