//! Whether this run of the tests is a long one, as set by `tools/soak`.

use std::time::Duration;

/// How long a test of variable length should run; `None` in a normal run.
pub fn time() -> Option<Duration> {
    let seconds = std::env::var("SLABFS_SOAK_SECONDS").ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// One value for a normal run, another one for a long one.
pub fn or<T>(ordinary: T, long: T) -> T {
    if time().is_some() { long } else { ordinary }
}
