//! Waiting for a condition with a deadline.

use std::time::{Duration, Instant};

/// When a wait is given up: far more than anything takes on a slow, busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Polls `found` until it returns something.
///
/// # Panics If [`DEADLINE`] has elapsed; `what` describes the condition.
pub fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(start.elapsed() < DEADLINE, "{what}: not after {DEADLINE:?}");
        // Between two polls, not instead of one.
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Polls `holds` until it is true.
///
/// # Panics If [`DEADLINE`] has elapsed.
pub fn until_true(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}

/// Polls `found` until it returns something or `limit` has elapsed.
pub fn until_or<T>(limit: Duration, mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let value = found();
        if value.is_some() || start.elapsed() > limit {
            return value;
        }
        // Between two polls, not instead of one.
        std::thread::sleep(Duration::from_millis(3));
    }
}
