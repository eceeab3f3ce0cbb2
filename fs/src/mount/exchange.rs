//! The request and the reply of an open `.slabfs/call`, and since when it has been idle.

use std::sync::Arc;
use std::time::Instant;

use fuser::ReplyData;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

/// The request and the reply of an open call.
pub(super) struct Exchange(Mutex<(State, Instant)>);

/// How far it is.
pub(super) enum State {
    /// The request, as far as it has been written.
    Asking(Vec<u8>),
    /// Reads that wait for the reply.
    Running(Vec<Waiting>),
    /// The reply.
    Answered(Arc<Vec<u8>>),
    /// The call was idle for long, and its place was needed.
    Ended,
}

/// A read that waits for the reply.
pub(super) struct Waiting {
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) reply: ReplyData,
}

impl Exchange {
    /// An exchange with an empty request.
    pub(super) fn begin() -> Exchange {
        Exchange(Mutex::new((State::Asking(Vec::new()), Instant::now())))
    }

    /// Since when the call has been idle; `None` while a request runs.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let exchange = self.0.lock();
        (!matches!(exchange.0, State::Running(_))).then_some(exchange.1)
    }

    /// Ends the call if it has been idle since `since`.
    pub(super) fn end(&self, since: Instant) -> bool {
        let mut exchange = self.0.lock();
        let idle = !matches!(exchange.0, State::Running(_)) && exchange.1 == since;
        if idle {
            exchange.0 = State::Ended;
        }
        idle
    }

    /// Backdates the last use by `by`.
    #[cfg(test)]
    pub(super) fn age(&self, by: std::time::Duration) {
        let mut exchange = self.0.lock();
        exchange.1 = exchange
            .1
            .checked_sub(by)
            .expect("a machine that runs for longer");
    }

    /// Locks the state and counts that as a use.
    pub(super) fn state(&self) -> MappedMutexGuard<'_, State> {
        let mut exchange = self.0.lock();
        exchange.1 = Instant::now();
        MutexGuard::map(exchange, |exchange| &mut exchange.0)
    }
}

impl Waiting {
    /// Answers the read with its part of the reply.
    pub(super) fn give(self, text: &[u8]) {
        self.reply.data(part(text, self.offset, self.len));
    }
}

/// The part of `text` that a read of `len` bytes at `offset` returns.
pub(super) fn part(text: &[u8], offset: u64, len: u32) -> &[u8] {
    let start = usize::try_from(offset).map_or(text.len(), |start| start.min(text.len()));
    let end = start.saturating_add(len as usize).min(text.len());
    &text[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_with_the_text() {
        assert_eq!(part(b"hello", 0, 3), b"hel");
        assert_eq!(part(b"hello", 3, 10), b"lo");
        assert_eq!(part(b"hello", 5, 10), b"");
        assert_eq!(part(b"hello", u64::MAX, u32::MAX), b"");
    }
}
