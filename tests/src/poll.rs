//! Waiting for a condition with a deadline.

use std::time::{Duration, Instant};

/// When waiting is given up: far more than anything takes on a slow, busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Looks at `found` until it gives something.
///
/// # Panics
/// When [`DEADLINE`] has passed; `what` says what was waited for.
pub fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(start.elapsed() < DEADLINE, "{what}: not after {DEADLINE:?}");
        // Between two looks, not instead of one.
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Looks at `holds` until it is true.
///
/// # Panics
/// When [`DEADLINE`] has passed.
pub fn until_true(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}

/// Looks at `found` until it gives something or `limit` has passed.
pub fn until_or<T>(limit: Duration, mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let value = found();
        if value.is_some() || start.elapsed() > limit {
            return value;
        }
        // Between two looks, not instead of one.
        std::thread::sleep(Duration::from_millis(3));
    }
}
