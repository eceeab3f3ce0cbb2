//! The load of a server: its bytes, as far as they are known, and those on their way.
//!
//! A report says what a server held a moment ago; a lease says what is about to come; in between bytes
//! are in both or in neither. So the *book* is kept: leases are added as they are given, what was not
//! used of them is taken off, and each report pulls the book towards what it says. While leases are
//! given that pull is gentle, since the report is older than the book; when nothing happens the report
//! is the truth.

use std::time::{Duration, Instant};

/// After so long without a lease a report counts as it is.
const QUIET: Duration = Duration::from_secs(3);
/// The part of the difference that a report corrects while leases are given.
const PULL: i64 = 8;
/// What an object that was just made is expected to bring, so that a thousand made in one second do
/// not all begin on the same server.
pub(super) const NEW_OBJECT: u64 = 64 << 10;

/// A server's load.
#[derive(Debug, Clone, Default)]
pub(crate) struct Load {
    /// Bytes of its chunks by its last report.
    pub(crate) stored: u64,
    /// Bytes that sessions may still put there.
    pub(crate) leased: u64,
    /// What it will hold once that is done, as far as one can tell.
    pub(super) book: u64,
    touched: Option<Instant>,
}

impl Load {
    /// Takes a report in.
    pub(super) fn report(&mut self, stored: u64, now: Instant) {
        self.stored = stored;
        let expected = stored.saturating_add(self.leased);
        let quiet = self
            .touched
            .is_none_or(|touched| now.saturating_duration_since(touched) > QUIET);
        if quiet {
            self.book = expected;
        } else {
            let pull = (expected as i64).saturating_sub(self.book as i64) / PULL;
            self.book = self.book.saturating_add_signed(pull);
        }
    }

    /// Counts bytes that will come without a lease.
    pub(super) fn expect(&mut self, bytes: u64, now: Instant) {
        self.book = self.book.saturating_add(bytes);
        self.touched = Some(now);
    }

    /// Counts bytes that were leased.
    pub(super) fn lease(&mut self, bytes: u64, now: Instant) {
        self.leased = self.leased.saturating_add(bytes);
        self.expect(bytes, now);
    }

    /// Takes a lease of `bytes` back, of which `spent` were put there (it may be more).
    pub(super) fn give_back(&mut self, bytes: u64, spent: u64, now: Instant) {
        self.leased = self.leased.saturating_sub(bytes);
        let book = self.book.saturating_sub(bytes).saturating_add(spent);
        self.book = book;
        if spent > 0 {
            self.touched = Some(now);
        }
    }

    /// Takes a lease back of which nobody can say what became of it: the next reports will.
    pub(super) fn forget(&mut self, bytes: u64) {
        self.leased = self.leased.saturating_sub(bytes);
        self.touched = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_is_ahead_of_reports_and_follows_them() {
        let start = Instant::now();
        let mut load = Load::default();
        load.report(1000, start);
        assert_eq!(load.book, 1000);
        load.lease(800, start);
        assert_eq!((load.leased, load.book), (800, 1800));
        // A report that has not seen the bytes yet hardly matters.
        load.give_back(800, 640, start);
        assert_eq!((load.leased, load.book), (0, 1640));
        load.report(1000, start);
        assert_eq!(load.book, 1640 - 80);
        // When all is quiet it is the truth: a codec made the bytes fewer.
        load.report(1320, start + QUIET * 2);
        assert_eq!(load.book, 1320);
    }
}
