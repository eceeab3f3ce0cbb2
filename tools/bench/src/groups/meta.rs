//! Names: every job creates files in a directory of its own, stats and removes them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::args::Args;
use crate::backing;
use crate::load;
use crate::results::{Case, Results, Unit};
use crate::systems::{System, Systems};

/// A name for the table, and the operation on one path.
type Step = (&'static str, fn(&Path) -> std::io::Result<()>);

/// The operations on every name, in this order; each starts when the previous one has ended.
const STEPS: [Step; 5] = [
    ("create", |path| fs::File::create_new(path).map(drop)),
    ("stat", |path| fs::metadata(path).map(drop)),
    ("unlink", |path| fs::remove_file(path)),
    ("mkdir", |path| fs::create_dir(path)),
    ("rmdir", |path| fs::remove_dir(path)),
];

/// Memory per name, in the kernel and in a filesystem, with a factor of two to spare.
const NAME: u64 = 8 << 10;

/// One round of the group.
pub(crate) fn run(
    args: &Args,
    systems: &Systems,
    round: u32,
    results: &mut Results,
) -> anyhow::Result<()> {
    let names = if args.quick { 1000 } else { 5000 };
    for &jobs in &args.jobs {
        for system in systems.in_rotation(round) {
            one_system(system, jobs, names, results)?;
        }
    }
    Ok(())
}

fn one_system(
    system: &System,
    jobs: usize,
    names: usize,
    results: &mut Results,
) -> anyhow::Result<()> {
    let dirs: Vec<PathBuf> = (0..jobs)
        .map(|job| system.dir.join(format!("meta-{job}")))
        .collect();
    for dir in &dirs {
        fs::create_dir(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    let paths: Vec<Vec<PathBuf>> = dirs
        .iter()
        .map(|dir| {
            (0..names)
                .map(|name| dir.join(format!("name-{name}")))
                .collect()
        })
        .collect();
    backing::touch((names * jobs) as u64 * NAME)?;
    for (what, step) in STEPS {
        let (time, _) = load::together(&paths, 0, |paths, _| {
            paths.iter().try_for_each(|path| {
                step(path).with_context(|| format!("{what} {}", path.display()))
            })
        })?;
        let case = Case {
            group: "meta",
            form: "",
            request: 0,
            jobs,
            what,
            unit: Unit::PerSecond,
        };
        results.add(
            case,
            system.kind,
            (names * jobs) as f64 / time.as_secs_f64(),
        );
    }
    for dir in &dirs {
        fs::remove_dir(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    Ok(())
}
