//! Sessions: which are attached, which of their requests were answered, which chunk ids they have leased.
//!
//! A session is in the store from attach to its end, so that clients continue across a restart of the service. It
//! ends by detaching, by silence, or, if it was in the service's own process, with that process. Its end has three
//! steps: the record is marked, and from then on its requests are refused; its resources are released ([`end`]),
//! which can be repeated from the start after a crash; and when the data servers accept no write of it any more
//! ([`fence`]), others get what only it could write.
//!
//! Its requests are answered once ([`answers`]). With each lock server it has a channel ([`channel`]): of its locks
//! (`crate::locks`), and of its rights (`crate::rights`).

mod admit;
mod answers;
mod attach;
pub(crate) mod channel;
mod end;
mod fence;
mod lease;

pub(crate) use admit::{Admission, admit, answered};
pub(crate) use answers::Answers;
pub(crate) use attach::{attach, heartbeat};
pub(crate) use end::{close_fences, detach, expire, finish_ended, mark_all_ended};
pub(crate) use fence::Fences;
pub(crate) use lease::{Leases, is_used_up, lease_chunks, session_of};

use slabfs_model::SessionId;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Instant;

use crate::placement::Places;
use crate::records::SessionRecord;

/// Most cached replies of one session.
pub(crate) const MAX_REPLIES: usize = 100_000;

/// All sessions that are alive.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    pub(crate) live: BTreeMap<SessionId, Session>,
}

/// A session that is alive.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) record: SessionRecord,
    pub(crate) heard: Instant,
    pub(crate) leases: Leases,
    pub(crate) places: Places,
    /// Version of the list of servers that all its writes use.
    pub(crate) knows: u64,
    /// Sequence numbers of the requests whose replies are cached in the store.
    replies: BTreeSet<u64>,
    /// Sequence numbers of requests being executed.
    running: HashSet<u64>,
    /// The answers to all other requests: a delayed duplicate must not be executed after all.
    pub(crate) answers: Answers,
}

impl Session {
    /// A session that was heard from just now.
    pub(crate) fn new(record: SessionRecord) -> Self {
        Self {
            record,
            heard: Instant::now(),
            leases: Leases::default(),
            places: Places::default(),
            knows: 0,
            replies: BTreeSet::new(),
            running: HashSet::new(),
            answers: Answers::default(),
        }
    }

    /// Records a reply that is in the store (at start).
    pub(crate) fn found(&mut self, seq: u64) {
        self.replies.insert(seq);
    }

    /// Cached replies that can be deleted now: those below `done_below`, and the oldest if there are too many.
    pub(crate) fn forgettable(&self, done_below: u64) -> Vec<u64> {
        let excess = (self.replies.len() + 1).saturating_sub(MAX_REPLIES);
        let numbers = self.replies.iter().copied().enumerate();
        let gone = numbers.take_while(|&(at, seq)| at < excess || seq < done_below);
        gone.map(|(_, seq)| seq).collect()
    }

    /// Records that the reply to `seq` is in the store, and those to `forgotten` are deleted.
    pub(crate) fn replied(&mut self, seq: u64, forgotten: &[u64]) {
        self.forget(forgotten);
        self.replies.insert(seq);
    }

    /// Records that the replies to `forgotten` are deleted from the store.
    pub(crate) fn forget(&mut self, forgotten: &[u64]) {
        for old in forgotten {
            self.replies.remove(old);
            self.answers.dropped(*old);
        }
    }
}
