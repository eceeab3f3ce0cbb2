//! Large requests from the start of an object to its end, one object per job.
//!
//! `write` fills new objects and closes them; `overwrite` does it again; `sustained` fills new objects of twice
//! the size of all buffers, and counts until `fsync` has returned; `read` reads the data, and checks it where
//! it is stored at all.

use std::path::PathBuf;
use std::time::Duration;

use crate::args::{Args, Form};
use crate::backing;
use crate::load::{self, End};
use crate::results::{Case, Results, Unit};
use crate::systems::{Kind, System, Systems};

/// A case without its operation.
#[derive(Clone, Copy)]
struct Setting {
    form: Form,
    jobs: usize,
    /// Bytes per request.
    request: usize,
    /// Bytes per job.
    bytes: u64,
}

/// One round of the group.
pub(crate) fn run(
    args: &Args,
    systems: &Systems,
    round: u32,
    results: &mut Results,
) -> anyhow::Result<()> {
    for &form in &args.forms {
        for &request in &args.requests {
            for &jobs in &args.jobs {
                let request = request as usize * 1024;
                // Complete requests and complete rows of 256 KiB.
                let unit = (request as u64).max(256 << 10);
                let bytes = ((args.size << 20) / jobs as u64).div_ceil(unit) * unit;
                let setting = Setting {
                    form,
                    jobs,
                    request,
                    bytes,
                };
                for system in systems.in_rotation(round) {
                    one_system(system, setting, results)?;
                }
            }
        }
    }
    Ok(())
}

fn one_system(system: &System, setting: Setting, results: &mut Results) -> anyhow::Result<()> {
    let mut note = |what, time: Duration| {
        let mib = (setting.bytes * setting.jobs as u64) as f64 / f64::from(1 << 20);
        results.add(setting.case(what), system.kind, mib / time.as_secs_f64());
    };
    let paths = setting.create(system, "seq")?;
    note("write", setting.write(&paths, End::Close)?);
    note("overwrite", setting.write(&paths, End::Close)?);
    let check = system.kind != Kind::Null;
    // The first run is not counted: just written data is not yet where reads find it.
    setting.read(&paths, check)?;
    note("read", setting.read(&paths, check)?);
    load::remove(&paths)?;
    let paths = setting.create(system, "sustained")?;
    note("sustained", setting.write(&paths, End::Sync)?);
    load::remove(&paths)
}

impl Setting {
    fn case(self, what: &'static str) -> Case {
        Case {
            group: "seq",
            form: self.form.name(),
            request: self.request as u64 / 1024,
            jobs: self.jobs,
            what,
            unit: Unit::MibPerSecond,
        }
    }

    fn create(self, system: &System, name: &str) -> anyhow::Result<Vec<PathBuf>> {
        (0..self.jobs)
            .map(|job| system.create(&format!("{name}-{job}"), self.form, self.bytes))
            .collect()
    }

    fn write(self, paths: &[PathBuf], end: End) -> anyhow::Result<Duration> {
        // Half as much again as is written, for read-ahead, buffers and logs.
        backing::touch(self.bytes * self.jobs as u64 * 3 / 2)?;
        let (time, _) = load::together(paths, self.request, |path, buffer| {
            load::write(path, self.bytes, buffer, end)
        })?;
        Ok(time)
    }

    fn read(self, paths: &[PathBuf], check: bool) -> anyhow::Result<Duration> {
        let (time, _) = load::together(paths, self.request, |path, buffer| {
            load::read(path, self.bytes, buffer, check)
        })?;
        Ok(time)
    }
}
