//! How much processor time a library may take without progress, and how much memory: one that takes more works on a damaged
//! file.
//!
//! The kernel ends the process by SIGXCPU then, or gives it no memory, and the process that watches names the file.

use std::time::Duration;

use anyhow::Context;
use nix::time::{ClockId, clock_gettime};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For opening a file: one with a million datasets takes about a minute.
pub(super) const OPENING: Duration = Duration::from_secs(600);
/// For a box of data of a few MiB.
pub(super) const READING: Duration = Duration::from_secs(120);

/// The least memory that is allowed.
const MEMORY: u64 = 2 << 30;

/// Allows half of the machine's memory.
pub(super) fn limit_memory() -> anyhow::Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let wanted = MEMORY.max(total.unwrap_or(0).saturating_mul(1024) / 2);
    let maximum = getrlimit(Resource::Data).maximum;
    let limit = Rlimit {
        current: Some(maximum.map_or(wanted, |maximum| maximum.min(wanted))),
        maximum,
    };
    setrlimit(Resource::Data, limit).context("cannot limit the memory")
}

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
