//! The groups of cases. Each runs its cases on one system after the other, so that neighbours in the table were
//! measured close in time.

mod columns;
mod fio;
mod iops;
mod memory;
mod meta;
mod seq;

use crate::args::{Args, Group};
use crate::results::Results;
use crate::systems::Systems;

/// Runs all rounds of all requested groups.
pub(crate) fn run_all(args: &Args, systems: &Systems, results: &mut Results) -> anyhow::Result<()> {
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for &group in &args.groups {
            match group {
                Group::Seq => seq::run(args, systems, round, results)?,
                Group::Fio => fio::run(args, systems, round, results)?,
                Group::Iops => iops::run(args, systems, round, results)?,
                Group::Meta => meta::run(args, systems, round, results)?,
                // These move gigabytes per system; two rounds show whether they can be trusted.
                Group::Columns if round < args.heavy_rounds() => {
                    columns::run(args, systems, round, results)?;
                }
                Group::Memory if round == 0 => memory::run(args, systems, results)?,
                Group::Columns | Group::Memory => {}
            }
        }
    }
    Ok(())
}
