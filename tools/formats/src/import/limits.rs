//! How much processor time a library may take without progress: one that takes more loops on a damaged file.
//!
//! The kernel ends the process by SIGXCPU then, and the process that watches names the file.

use std::time::Duration;

use anyhow::Context;
use nix::time::{ClockId, clock_gettime};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For opening a file: one with a million datasets takes about a minute.
pub(super) const OPENING: Duration = Duration::from_secs(600);
/// For a box of data of a few MiB.
pub(super) const READING: Duration = Duration::from_secs(120);

/// Allows so much processor time from now on.
pub(super) fn allow(time: Duration) -> anyhow::Result<()> {
    let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.tv_sec();
    let wanted = u64::try_from(used)? + time.as_secs();
    let maximum = getrlimit(Resource::Cpu).maximum;
    let limit = Rlimit {
        current: Some(maximum.map_or(wanted, |maximum| maximum.min(wanted))),
        maximum,
    };
    setrlimit(Resource::Cpu, limit).context("cannot limit the processor time")
}
