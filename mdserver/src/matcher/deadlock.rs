//! Programs that wait for each other.
//!
//! A thread that waits for data of an object waits for the threads that have the object open for writing: for any of them, since any
//! may bring it. A set of waiting reads never ends if, for each of them, all writers of its object are threads with a read
//! in the set. An object without a writer is in no such set: one may still come. So the set is what is left after all
//! others are taken out (the "or" model of deadlocks, Chandy, Misra and Haas 1983). Pure.
//!
//! Writers are known by the thread that wrote last through an open file; before the first write it may have been opened
//! for another process. A program that reads in one thread and writes in another is not found, and its read ends by its
//! timeout.

use std::collections::{BTreeMap, BTreeSet};

use slabfs_model::SessionId;

use super::table::Ticket;

/// A thread, by the session of its mount. 0 is a thread that is not known.
pub(super) type Thread = (SessionId, u32);

/// The waiting reads that never end. `reads`: the thread of each, and the writers of its object.
pub(super) fn deadlocked(reads: &BTreeMap<Ticket, (Thread, Vec<Thread>)>) -> BTreeSet<Ticket> {
    let mut left: BTreeMap<Ticket, &(Thread, Vec<Thread>)> =
        reads.iter().map(|(ticket, read)| (*ticket, read)).collect();
    loop {
        let blocked: BTreeSet<Thread> = left.values().map(|(thread, _)| *thread).collect();
        let before = left.len();
        left.retain(|_, (_, writers)| {
            let hopeless = |writer: &Thread| writer.1 != 0 && blocked.contains(writer);
            !writers.is_empty() && writers.iter().all(hopeless)
        });
        if left.len() == before {
            return left.into_keys().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(number: u32) -> Thread {
        (SessionId(u64::from(number % 2)), number)
    }

    fn found(reads: &[(u32, &[u32])]) -> Vec<u64> {
        let reads = reads.iter().zip(0..).map(|((own, writers), ticket)| {
            let writers = writers.iter().copied().map(thread).collect();
            (Ticket(ticket), (thread(*own), writers))
        });
        let found = deadlocked(&reads.collect());
        found.into_iter().map(|ticket| ticket.0).collect()
    }

    #[test]
    fn circles_are_found_and_nothing_else() {
        assert_eq!(found(&[(1, &[2]), (2, &[1])]), [0, 1]);
        assert_eq!(found(&[(1, &[1])]), [0]);
        assert_eq!(
            found(&[(1, &[2]), (2, &[3]), (3, &[1]), (4, &[1])]),
            [0, 1, 2, 3]
        );
        // One of the writers may still write.
        assert_eq!(found(&[(1, &[2, 5]), (2, &[1])]), [0; 0]);
        assert_eq!(found(&[(1, &[2]), (2, &[3]), (4, &[4])]), [2]);
        // No writer yet, or one whose thread is not known.
        assert_eq!(found(&[(1, &[]), (2, &[1])]), [0; 0]);
        assert_eq!(found(&[(0, &[0])]), [0; 0]);
    }
}
