//! The groups of cases. Each runs its cases on one system after the other, so that neighbours in the table were
//! measured close in time.
//!
//! Bytes of files are written and read by fio (`fio`), so that only the filesystem is measured and not a load
//! of the benchmark's own; names (`meta`) and selections of arrays (`columns`) are beyond fio.

mod columns;
mod fio;
mod meta;
mod pages;
mod programs;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::ValueEnum;

use crate::args::{self, Common};
use crate::systems::{Kind, Place, System, in_rotation};
use crate::table::{Brackets, Format, Table};
use crate::{cleanup, systems};

/// The parameters of the groups.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GroupArgs {
    /// Systems to measure
    #[arg(long, value_delimiter = ',', default_values = ["null", "memory", "pages", "bindfs", "ext4", "up", "split"])]
    pub(crate) systems: Vec<Kind>,
    /// Groups to measure
    #[arg(long, value_delimiter = ',', default_values = ["seq", "iops", "meta", "pages", "programs", "columns", "memory"])]
    pub(crate) groups: Vec<Group>,
    /// Kinds of objects: plain bytes, 2-D arrays by complete rows (aligned), 2-D arrays of fixed chunks
    #[arg(long, value_delimiter = ',', default_values = ["bytes", "rows"])]
    forms: Vec<Form>,
    /// Sizes of requests of the group seq, in KiB
    #[arg(long, value_delimiter = ',', default_values = ["128", "1024", "4096"])]
    requests: Vec<u64>,
    /// Numbers of concurrent jobs
    #[arg(long, value_delimiter = ',', default_values = ["1", "4"])]
    pub(crate) jobs: Vec<usize>,
    /// How often every case is measured on every system
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// MiB of data of the cases with large requests, all jobs together
    #[arg(long, value_name = "MIB", default_value = "1024", value_parser = clap::value_parser!(u64).range(16..=65536))]
    size: u64,
    /// A run of a minute: little data, 1 MiB requests only, fewer rounds and smaller groups
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    common: Common,
    /// A directory on the disk, for the system ext4 (default: next to this program)
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
}

/// A group of cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// Large requests one after the other.
    #[value(alias = "fio")]
    Seq,
    /// 4 KiB requests at random offsets.
    Iops,
    /// Names: create, open, stat, unlink, mkdir, rmdir.
    Meta,
    /// Reads of 4 KiB: again from files that are opened again, and at random offsets that are in no cache of the kernel.
    Pages,
    /// Programs: tar, SQLite.
    Programs,
    /// A large array written in misaligned blocks and read by columns.
    Columns,
    /// Memory of the mount with a file larger than its limit.
    Memory,
}

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A plain file.
    Bytes,
    /// A 2-D array of 4-byte elements in the layout `aligned`, read and written by complete rows.
    Rows,
    /// A 2-D array of 4-byte elements in chunks of 1024 × 1024, read and written by complete rows.
    Grid,
}

/// Bytes of a row of a 2-D object that is read and written by complete rows.
const ROW: u64 = 256 << 10;

/// Measures all groups and prints the table.
pub(crate) fn run(mut args: GroupArgs) -> anyhow::Result<()> {
    if args.quick {
        args.requests = vec![1024];
        args.size = args.size.min(256);
        args.rounds = args.rounds.min(3);
    }
    let valid = |kib: &u64| kib.is_power_of_two() && (4..=65536).contains(kib);
    ensure!(
        args.requests.iter().all(valid),
        "--requests are powers of two from 4 to 65536 KiB"
    );
    ensure!(
        args.jobs.iter().all(|jobs| (1..=64).contains(jobs)),
        "--jobs are numbers from 1 to 64"
    );
    if args.systems.iter().any(|system| system.is_networked()) {
        systems::network::enter()?;
    }
    let table = Table::new(
        "cases",
        &["group", "form", "request_kib", "jobs", "what"],
        args.systems.iter().map(|&system| args::name(system)),
        Brackets::Column("null"),
        Format::Systems,
    );
    crate::report(&args.common, table, |table| {
        let start = |&kind: &Kind| {
            let mut place = Place::new(&args.common, kind)?;
            if kind == Kind::Ext4 {
                place.disk = Some(disk(&args)?);
            }
            System::start(kind, place)
        };
        let systems: Vec<System> = args.systems.iter().map(start).collect::<Result<_, _>>()?;
        rounds(&args, &systems, table)
    })
}

fn disk(args: &GroupArgs) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    cleanup::new_directory(args.disk.as_deref().or(own.parent()), "")
}

fn rounds(args: &GroupArgs, systems: &[System], table: &mut Table) -> anyhow::Result<()> {
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for &group in &args.groups {
            let systems: &[&System] = &in_rotation(systems, round).collect::<Vec<_>>();
            match group {
                Group::Seq => fio::seq(args, systems, table)?,
                Group::Iops => fio::iops(args, systems, round, table)?,
                Group::Meta => meta::run(args, systems, table)?,
                Group::Pages => pages::run(args, systems, table)?,
                Group::Programs => programs::run(args, systems, round, table)?,
                // These move gigabytes per system; two rounds show whether they can be trusted.
                Group::Columns if round < 2 => columns::run(args, systems, table)?,
                // A peak never decreases, so there is only one round.
                Group::Memory if round == 0 => fio::memory(args, systems, table)?,
                Group::Columns | Group::Memory => {}
            }
        }
    }
    Ok(())
}

/// Creates an object of `bytes` bytes and returns its path; it must not exist.
fn create(system: &System, name: &str, form: Form, bytes: u64) -> anyhow::Result<PathBuf> {
    let path = system.dirs[0].join(name);
    if !system.kind.is_slabfs() || form == Form::Bytes {
        std::fs::File::create_new(&path).with_context(|| format!("creating {}", path.display()))?;
        return Ok(path);
    }
    ensure!(
        bytes.is_multiple_of(ROW),
        "the size must be a multiple of complete rows of 256 KiB"
    );
    let layout = match form {
        Form::Grid => "grid:1024,1024",
        _ => "aligned",
    };
    system.declare(&path, &format!("{},{}", bytes / ROW, ROW / 4), layout)?;
    Ok(path)
}

/// Removes files.
fn remove(paths: &[PathBuf]) -> anyhow::Result<()> {
    paths.iter().try_for_each(|path| {
        std::fs::remove_file(path).with_context(|| format!("removing {}", path.display()))
    })
}
