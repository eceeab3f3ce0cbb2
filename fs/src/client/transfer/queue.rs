//! The queue: decides which started transfers may run, namely those without a conflicting earlier one.
//!
//! Two transfers of one object conflict if the bounding boxes of their selections overlap and one of them is a write.
//! They run in the order in which they were started; others in any order. A *batch* takes all transfers that may run,
//! in that order, up to a number of bytes. Within a batch, writes are done first, those of one object in their order,
//! and then reads: so a batch may hold a read and an earlier write that it must see, and overlapping writes, but no
//! write after a read that must not see it.
//!
//! The check for conflicts examines each transfer of the object that has not ended, unless all of them are reads. Pure;
//! no locks, no clock.

use std::collections::VecDeque;

use foldhash::HashMap;
use slabfs_mdserver::api::Ino;
use slabfs_model::Region;

use crate::client::request::core::Number;

/// The maximum number of transfers in a batch, and of those examined for one.
const MOST: usize = 1024;
const LOOKED_AT: usize = 4096;

/// The properties of a transfer that decide about conflicts.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) ino: Ino,
    pub(super) writes: bool,
    /// The bounding box of its selection of the object; an empty one never conflicts.
    pub(super) bounds: Option<Region>,
    /// Its bytes towards the size of a batch.
    pub(super) bytes: u64,
}

/// Transfers that were started and have not ended.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    lines: HashMap<Ino, Line>,
    last: u64,
    batches: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    number: Number,
    claim: Claim,
    item: T,
}

/// The transfers of one object that have not ended, in the order of their starts.
#[derive(Debug, Default)]
struct Line {
    writes: usize,
    live: Vec<Live>,
}

#[derive(Debug)]
struct Live {
    number: Number,
    writes: bool,
    bounds: Option<Region>,
    /// The batch that has taken it; 0 while it waits.
    batch: u64,
}

impl Live {
    fn overlaps(&self, bounds: &Region) -> bool {
        self.bounds.as_ref().is_some_and(|own| {
            // After a change of the object's form, selections may differ in rank.
            own.rank() != bounds.rank() || own.overlaps(bounds)
        })
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue {
            waiting: VecDeque::new(),
            lines: HashMap::default(),
            last: 0,
            batches: 0,
        }
    }
}

impl<T> Queue<T> {
    /// Starts a transfer.
    pub(super) fn push(&mut self, claim: Claim, item: T) -> Number {
        self.last += 1;
        let number = Number(self.last);
        let line = self.lines.entry(claim.ino).or_default();
        line.writes += usize::from(claim.writes);
        line.live.push(Live {
            number,
            writes: claim.writes,
            bounds: claim.bounds.clone(),
            batch: 0,
        });
        self.waiting.push_back(Waiting {
            number,
            claim,
            item,
        });
        number
    }

    /// The next batch of at most `most` bytes, or of one larger transfer; empty if nothing may run.
    pub(super) fn take(&mut self, most: u64) -> Vec<(Number, T)> {
        self.batches += 1;
        let batch = self.batches;
        let mut taken = Vec::new();
        let mut left = Vec::new();
        let mut bytes = 0u64;
        for _ in 0..self.waiting.len().min(LOOKED_AT) {
            let Some(next) = self.waiting.pop_front() else {
                break;
            };
            let more = bytes.saturating_add(next.claim.bytes) > most;
            let full = more && !taken.is_empty();
            if full || taken.len() == MOST {
                self.waiting.push_front(next);
                break;
            }
            if !self.admit(&next, batch) {
                left.push(next);
                continue;
            }
            bytes = bytes.saturating_add(next.claim.bytes);
            taken.push((next.number, next.item));
        }
        for waiting in left.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
        taken
    }

    /// Takes a transfer into a batch if it does not conflict with an earlier one.
    fn admit(&mut self, next: &Waiting<T>, batch: u64) -> bool {
        let Some(line) = self.lines.get_mut(&next.claim.ino) else {
            return true;
        };
        let Ok(at) = line
            .live
            .binary_search_by_key(&next.number, |live| live.number)
        else {
            return true;
        };
        let writes = next.claim.writes;
        if let Some(bounds) = &next.claim.bounds
            && (writes || line.writes > 0)
        {
            let in_the_way = |live: &Live| {
                // An earlier write of this batch is done first; an earlier read would be done after a write.
                let before = live.writes && live.batch == batch;
                (live.writes || writes) && !before && live.overlaps(bounds)
            };
            if line.live[..at].iter().any(in_the_way) {
                return false;
            }
        }
        line.live[at].batch = batch;
        true
    }

    /// Removes a waiting transfer.
    pub(super) fn withdraw(&mut self, is: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.waiting.iter().position(|waiting| is(&waiting.item))?;
        let waiting = self.waiting.remove(at)?;
        self.end(waiting.claim.ino, &[waiting.number]);
        Some(waiting.item)
    }

    /// Removes ended transfers of an object; `numbers` are sorted.
    pub(super) fn end(&mut self, ino: Ino, numbers: &[Number]) {
        let Some(line) = self.lines.get_mut(&ino) else {
            return;
        };
        let writes = &mut line.writes;
        line.live.retain(|live| {
            let ended = numbers.binary_search(&live.number).is_ok();
            *writes -= usize::from(ended && live.writes);
            !ended
        });
        if line.live.is_empty() {
            self.lines.remove(&ino);
        }
    }

    /// Number of waiting transfers.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether any transfer waits.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slabfs_model::ObjectId;

    use super::*;

    fn claim(ino: u64, writes: bool, from: u64, len: u64) -> Claim {
        Claim {
            ino: ObjectId(ino),
            writes,
            bounds: (len > 0).then(|| Region::new(&[from], &[len])),
            bytes: len,
        }
    }

    fn items(batch: &[(Number, usize)]) -> Vec<usize> {
        batch.iter().map(|(_, item)| *item).collect()
    }

    #[test]
    fn an_overlapping_transfer_waits_if_one_writes() {
        let mut queue = Queue::default();
        queue.push(claim(1, false, 0, 10), 0);
        queue.push(claim(1, true, 5, 10), 1);
        queue.push(claim(1, false, 20, 5), 2);
        queue.push(claim(1, false, 14, 2), 3);
        queue.push(claim(2, true, 0, 99), 4);
        let first = queue.take(u64::MAX);
        // 1 would be done before 0, which must not see it; 3 has to see 1.
        assert_eq!(items(&first), [0, 2, 4]);
        assert!(queue.take(u64::MAX).is_empty());
        queue.end(ObjectId(1), &[first[0].0]);
        // Both in one batch, in which writes are done first.
        assert_eq!(items(&queue.take(u64::MAX)), [1, 3]);
        assert!(!queue.has_waiting());
    }

    #[test]
    fn a_batch_is_limited_in_bytes_or_has_one_transfer() {
        let mut queue = Queue::default();
        for n in 0..4 {
            queue.push(claim(1, false, 0, 10), n);
        }
        assert_eq!(items(&queue.take(25)), [0, 1]);
        assert_eq!(items(&queue.take(5)), [2]);
        assert_eq!(queue.withdraw(|item| *item == 3), Some(3));
        assert!(!queue.has_waiting());
    }

    proptest! {
        /// Against all pairs: a conflicting earlier transfer has ended, or is done earlier in the same batch; and all
        /// transfers run in the end.
        #[test]
        fn conflicting_transfers_run_in_order(
            all in prop::collection::vec((0..2u64, any::<bool>(), 0..12u64, 0..6u64), 1..60),
            most in 1..40u64,
        ) {
            let mut queue = Queue::default();
            let claims: Vec<Claim> = all
                .iter()
                .map(|&(i, w, f, l)| claim(i, w, f, l))
                .collect();
            let mut ended = vec![false; claims.len()];
            let mut running: Vec<Vec<(Number, usize)>> = Vec::new();
            let mut started = 0;
            while ended.iter().any(|e| !e) {
                for _ in 0..7 {
                    if let Some(claim) = claims.get(started) {
                        queue.push(claim.clone(), started);
                        started += 1;
                    }
                }
                let batch = queue.take(most);
                let mut order: Vec<usize> = items(&batch);
                order.sort_by_key(|&n| (!claims[n].writes, n));
                for (at, &later) in order.iter().enumerate() {
                    for earlier in 0..later {
                        let (one, two) = (&claims[earlier], &claims[later]);
                        let both = one.bounds.as_ref().zip(two.bounds.as_ref());
                        let in_the_way = one.ino == two.ino
                            && (one.writes || two.writes)
                            && both.is_some_and(|(a, b)| a.overlaps(b));
                        prop_assert!(!in_the_way || ended[earlier] || order[..at].contains(&earlier));
                    }
                }
                if !batch.is_empty() {
                    running.push(batch);
                }
                if running.len() > 2 || (started == claims.len() && !running.is_empty()) {
                    for (number, n) in running.remove(0) {
                        queue.end(claims[n].ino, &[number]);
                        ended[n] = true;
                    }
                }
            }
            prop_assert!(queue.lines.is_empty());
        }
    }
}
