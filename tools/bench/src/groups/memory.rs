//! The peak memory of the mount while a file is written and read that is larger than its limit.

use anyhow::Context;

use crate::args::Args;
use crate::load::{self, End};
use crate::results::{Case, Results, Unit};
use crate::systems::Systems;

/// One run of the group; a peak never decreases, so there is only one.
pub(crate) fn run(args: &Args, systems: &Systems, results: &mut Results) -> anyhow::Result<()> {
    let bytes: u64 = if args.quick { 1 << 30 } else { 4 << 30 };
    for &form in &args.forms {
        for system in systems
            .in_rotation(0)
            .filter(|system| system.kind.is_slabfs())
        {
            let pid = system.mount_pid.context("a mount without a process")?;
            let path = system.create("memory", form, bytes)?;
            let mut buffer = load::buffer(1 << 20);
            load::write(&path, bytes, &mut buffer, End::Close)?;
            load::read(&path, bytes, &mut buffer, true)?;
            for (what, field) in [("peak", "VmHWM"), ("own now", "RssAnon")] {
                let case = Case {
                    group: "memory",
                    form: form.name(),
                    request: 1024,
                    jobs: 1,
                    what,
                    unit: Unit::Mib,
                };
                results.add(case, system.kind, of_process(pid, field)?);
            }
            load::remove(std::slice::from_ref(&path))?;
        }
    }
    Ok(())
}

/// A field of `/proc/PID/status` in MiB.
fn of_process(pid: u32, field: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .context("reading the state of the mount's process")?;
    field_of(&status, field)
        .map(|kib| kib as f64 / 1024.0)
        .with_context(|| format!("the process has no {field}"))
}

fn field_of(status: &str, field: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_kib() {
        let status = "Name:\tcat\nVmHWM:\t    2048 kB\nRssAnon:\t 12 kB\n";
        assert_eq!(field_of(status, "VmHWM"), Some(2048));
        assert_eq!(field_of(status, "VmH"), None);
        assert!(of_process(std::process::id(), "VmHWM").expect("own") > 0.0);
    }
}
