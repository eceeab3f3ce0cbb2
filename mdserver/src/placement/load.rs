//! The load of a server: its bytes, as far as they are known, and those in flight.
//!
//! A report gives what a server held a moment ago; a lease gives what is about to be stored; in between, bytes are in
//! both or in neither. So a *book* value is maintained: leases are added when granted, their unused part is
//! subtracted, and each report pulls the book towards its value. While leases are granted the pull is gentle, since
//! the report is older than the book; when there are none, the report is the truth.

use std::time::{Duration, Instant};

/// If there was no lease for this long, a report replaces the book.
const QUIET: Duration = Duration::from_secs(3);
/// Divisor: the part of the difference that a report corrects while leases are granted.
const PULL: i64 = 8;
/// Expected bytes of an object that was just created, so that a thousand created in one second do not all start on
/// the same server.
pub(super) const NEW_OBJECT: u64 = 64 << 10;

/// A server's load.
#[derive(Debug, Clone, Default)]
pub(crate) struct Load {
    /// Bytes of its chunks by its last report.
    pub(crate) stored: u64,
    /// Bytes that sessions may still store there.
    pub(crate) leased: u64,
    /// Estimate of what it will hold once that is done.
    pub(super) book: u64,
    touched: Option<Instant>,
}

impl Load {
    /// Processes a report.
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

    /// Adds bytes that will be stored without a lease.
    pub(super) fn expect(&mut self, bytes: u64, now: Instant) {
        self.book = self.book.saturating_add(bytes);
        self.touched = Some(now);
    }

    /// Adds leased bytes.
    pub(super) fn lease(&mut self, bytes: u64, now: Instant) {
        self.leased = self.leased.saturating_add(bytes);
        self.expect(bytes, now);
    }

    /// Ends a lease of `bytes`, of which `spent` were stored there (it may be more).
    pub(super) fn give_back(&mut self, bytes: u64, spent: u64, now: Instant) {
        self.leased = self.leased.saturating_sub(bytes);
        let book = self.book.saturating_sub(bytes).saturating_add(spent);
        self.book = book;
        if spent > 0 {
            self.touched = Some(now);
        }
    }

    /// Ends a lease whose use is unknown: the next reports will show it.
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
        // A report that does not include the bytes yet has little effect.
        load.give_back(800, 640, start);
        assert_eq!((load.leased, load.book), (0, 1640));
        load.report(1000, start);
        assert_eq!(load.book, 1640 - 80);
        // Without leases the report is the truth: a codec made the bytes fewer.
        load.report(1320, start + QUIET * 2);
        assert_eq!(load.book, 1320);
    }
}
