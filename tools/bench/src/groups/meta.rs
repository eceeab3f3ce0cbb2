//! Names: every job creates files in a directory of its own, opens and closes, stats and removes them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::GroupArgs;
use crate::clients::rate;
use crate::systems::System;
use crate::table::Table;
use crate::{args, memory};

/// A name for the table, and the operation on one path.
type Step = (&'static str, fn(&Path) -> std::io::Result<()>);

/// The operations on every name, in this order; each starts when the previous one has ended.
const STEPS: [Step; 6] = [
    ("create", |path| fs::File::create_new(path).map(drop)),
    ("open", |path| fs::File::open(path).map(drop)),
    ("stat", |path| fs::metadata(path).map(drop)),
    ("unlink", |path| fs::remove_file(path)),
    ("mkdir", |path| fs::create_dir(path)),
    ("rmdir", |path| fs::remove_dir(path)),
];

/// Memory per name, in the kernel and in a filesystem, with a factor of two to spare.
const NAME: u64 = 8 << 10;

/// One round of the group.
pub(super) fn run(args: &GroupArgs, systems: &[&System], table: &mut Table) -> anyhow::Result<()> {
    let names = if args.quick { 1000 } else { 5000 };
    for &jobs in &args.jobs {
        for &system in systems {
            let dir = |job| system.dirs[0].join(format!("meta-{job}"));
            let mut paths: Vec<Vec<PathBuf>> = Vec::new();
            for dir in (0..jobs).map(dir) {
                fs::create_dir(&dir).with_context(|| format!("creating {}", dir.display()))?;
                let path = |name| dir.join(format!("name-{name}"));
                paths.push((0..names).map(path).collect());
            }
            memory::touch((names * jobs) as u64 * NAME)?;
            for (what, step) in STEPS {
                let rate = rate(&mut paths, Duration::MAX, |paths, _, at| {
                    let Some(path) = paths.get(at as usize) else {
                        return Ok(None);
                    };
                    step(path).with_context(|| format!("{what} {}", path.display()))?;
                    Ok(Some(1))
                })?;
                let labels = ["meta".into(), "".into(), 0.into(), jobs.into(), what.into()];
                table.add(&labels, "op/s", &args::name(system.kind), rate);
            }
            for dir in (0..jobs).map(dir) {
                fs::remove_dir(&dir).with_context(|| format!("removing {}", dir.display()))?;
            }
        }
    }
    Ok(())
}
