//! The answers to a session's requests, as far as they are in memory: a request that is resent has no second effect, and
//! one that no caller waits for is never started. Pure.
//!
//! In memory are refusals, and the replies about locks and rights, which are in memory themselves. The replies of
//! transactions are in the store.

use std::collections::BTreeMap;

use super::MAX_REPLIES;
use crate::api::{MdError, Reply};

/// See the module documentation.
#[derive(Debug, Default, Clone)]
pub(crate) struct Answers {
    cached: BTreeMap<u64, Result<Reply, MdError>>,
    /// Requests below this sequence number that have no answer are refused.
    floor: u64,
    /// Requests below this sequence number have no caller any more, since it was answered or gave up: they are never
    /// started, however late they arrive. A later request may have been executed since.
    over: u64,
}

impl Answers {
    /// The answer to a request, if it may not be executed. `done_below`: as in [`crate::api::Request`].
    pub(crate) fn find(&mut self, seq: u64, done_below: u64) -> Option<Result<Reply, MdError>> {
        if let Some(answer) = self.cached.get(&seq) {
            return Some(answer.clone());
        }
        self.arrived_below(done_below);
        // A delayed duplicate; its sender already has the reply.
        (seq < self.floor).then_some(Err(MdError::Stale))
    }

    /// Records the answer to a request.
    pub(crate) fn keep(&mut self, seq: u64, answer: Result<Reply, MdError>) {
        self.cached.insert(seq, answer);
        if self.cached.len() > MAX_REPLIES
            && let Some((oldest, _)) = self.cached.pop_first()
        {
            self.dropped(oldest);
        }
    }

    /// The answer to this request exists no more, here or in the store.
    pub(crate) fn dropped(&mut self, seq: u64) {
        self.floor = self.floor.max(seq + 1);
    }

    /// Records that no caller waits for requests below `floor`: their replies have arrived, or were given up.
    pub(crate) fn arrived_below(&mut self, floor: u64) {
        if floor <= self.over {
            return;
        }
        self.over = floor;
        self.floor = self.floor.max(floor);
        self.cached = self.cached.split_off(&self.floor);
    }

    /// Whether no caller waits for this request any more; never true for 0, which is no sequence number.
    pub(crate) fn is_over(&self, seq: u64) -> bool {
        seq != 0 && seq < self.over
    }

    /// Hashes what decides about later requests.
    #[cfg(feature = "model")]
    pub(crate) fn hash_rest(&self, state: &mut impl std::hash::Hasher) {
        use crate::api::RightReply;
        use std::hash::Hash;

        (self.floor, self.over).hash(state);
        for (seq, answer) in &self.cached {
            seq.hash(state);
            match answer {
                Ok(Reply::Right(RightReply::Granted(grant))) => {
                    (grant.ticket, grant.serial, grant.mode, &grant.area).hash(state);
                }
                Ok(Reply::RightsBegun(begun)) => (begun.epoch, begun.alone).hash(state),
                Ok(other) => std::mem::discriminant(other).hash(state),
                Err(error) => std::mem::discriminant(error).hash(state),
            }
        }
    }
}
