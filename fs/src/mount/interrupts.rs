//! Requests that wait for a lock, or for data of a coupled object, so that a signal can end the wait.
//!
//! The kernel identifies the request that a signal interrupts by its number. Another thread may read the interrupt
//! before the request itself is processed: the number is then remembered, and the request finds it. Most remembered
//! numbers are never used, since signals interrupt all kinds of requests and only these wait for long. Numbers
//! are never reused, so the oldest are dropped; for a needed one to be dropped, a thousand signals would have to
//! arrive while a thread goes from one line to the next.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use slabfs_mdserver::api::LockTicket;

/// Early interrupts that are remembered.
const REMEMBERED: usize = 1024;

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mount) enum Awaited {
    Lock(LockTicket),
    /// Data that no program has written yet.
    Data,
}

/// Requests that can be interrupted, and interrupts that arrived before their requests.
#[derive(Debug, Default)]
pub(super) struct Interrupts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<u64, Awaited>,
    early: VecDeque<u64>,
}

impl Interrupts {
    /// Registers a request that may wait; returns false if it is interrupted already.
    pub(super) fn enter(&self, request: u64, awaited: Awaited) -> bool {
        let mut state = self.state.lock();
        if let Some(at) = state.early.iter().position(|&early| early == request) {
            state.early.remove(at);
            return false;
        }
        state.waiting.insert(request, awaited);
        true
    }

    /// Unregisters a request that is about to be answered.
    pub(super) fn leave(&self, request: u64) {
        self.state.lock().waiting.remove(&request);
    }

    /// The ticket of a request that waits for a lock.
    pub(super) fn ticket(&self, request: u64) -> Option<LockTicket> {
        match self.state.lock().waiting.get(&request) {
            Some(Awaited::Lock(ticket)) => Some(*ticket),
            Some(Awaited::Data) | None => None,
        }
    }

    /// A signal has interrupted a request; returns what it waits for, if it waits.
    pub(super) fn interrupt(&self, request: u64) -> Option<Awaited> {
        let mut state = self.state.lock();
        let awaited = state.waiting.get(&request).copied();
        if awaited.is_none() {
            if state.early.len() == REMEMBERED {
                state.early.pop_front();
            }
            state.early.push_back(request);
        }
        awaited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_finds_its_request_in_either_order() {
        let interrupts = Interrupts::default();
        assert!(interrupts.enter(7, Awaited::Lock(LockTicket(1))));
        assert_eq!(interrupts.interrupt(7), Some(Awaited::Lock(LockTicket(1))));
        interrupts.leave(7);
        assert_eq!(interrupts.interrupt(8), None);
        assert!(!interrupts.enter(8, Awaited::Data));
        assert!(interrupts.enter(8, Awaited::Data), "it is remembered once");
    }

    #[test]
    fn remembered_interrupts_are_bounded() {
        let interrupts = Interrupts::default();
        for request in 0..3 * REMEMBERED as u64 {
            assert_eq!(interrupts.interrupt(request), None);
        }
        assert_eq!(interrupts.state.lock().early.len(), REMEMBERED);
        assert!(!interrupts.enter(3 * REMEMBERED as u64 - 1, Awaited::Lock(LockTicket(1))));
    }
}
