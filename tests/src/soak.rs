//! Whether this run of the tests is a long one: `tools/soak` says so.

use std::time::Duration;

/// How long a test that can go on may go on; `None` in an ordinary run.
pub fn time() -> Option<Duration> {
    let seconds = std::env::var("SLABFS_SOAK_SECONDS").ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// One number for an ordinary run, another one for a long one.
pub fn or<T>(ordinary: T, long: T) -> T {
    if time().is_some() { long } else { ordinary }
}
