//! `slabfs-bench growth`: the cost of one small request as an array gets more chunks, a directory more objects,
//! a filesystem more mounts. The cost should stay constant, so each row is compared with the first of its kind.
//!
//! A metadata service, two data servers and mounts run as processes over Unix sockets. A request opens a file
//! by its path, reads 256 bytes and closes it; which one is random, from a fixed seed.
//!
//! | column | the request is |
//! |---|---|
//! | `cold` | the first of a new mount in that array or directory, after some in another array; median of `--rounds` mounts |
//! | `warm` | one of thousands on one mount, median |
//! | `restart` | the first of a new mount after a restart of the metadata service; median of `--rounds` restarts |
//! | `MiB` | the resident memory of that mount's process at the end |

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use nix::sys::signal::Signal;
use slabfs_fs::session::{ConnectOptions, ObjectSpec, Session};

use crate::args::Common;
use crate::search::mix;
use crate::systems::Cluster;
use crate::table::{Brackets, Format, Table, median};
use crate::transfer::{rows, through};
use crate::{cleanup, memory};

/// Bytes of a row, which is a chunk.
const ROW: u64 = 256;
/// Rows that are written by one start.
const TOGETHER: u64 = 8192;
/// Requests to another array before the cold one.
const FIRST: u64 = 200;
/// Objects that are created by one call.
const MADE: u64 = 16384;

/// Cost of one small request as arrays, directories and mounts grow.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GrowthArgs {
    /// Chunks of the arrays
    #[arg(long, value_delimiter = ',', default_values = ["100", "1000", "10000", "100000", "1000000"])]
    chunks: Vec<u64>,
    /// Objects of the directories
    #[arg(long, value_delimiter = ',', default_values = ["100", "10000", "1000000"])]
    objects: Vec<u64>,
    /// Mounts that are attached
    #[arg(long, value_delimiter = ',', default_values = ["1", "2", "4", "8"])]
    mounts: Vec<u64>,
    /// New mounts for each cold number, and requests in thousands for each warm one
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

/// Measures everything and prints the table.
pub(crate) fn run(args: &GrowthArgs) -> anyhow::Result<()> {
    let largest = args.chunks.iter().max();
    let largest =
        *largest.context("--chunks names none, and mounts are measured with the largest")?;
    let columns = ["cold_us", "warm_us", "restart_us", "mib"];
    let labels = &["kind", "count"];
    let table = Table::new("", labels, columns, Brackets::FirstRow, Format::Medians);
    crate::report(&args.common, table, |table| {
        let dir = cleanup::new_directory(args.common.work.as_deref(), "")?;
        let mut run = Run {
            args,
            table,
            cluster: Cluster::start(&args.common.slabfs()?, &dir, 2, false)?,
            random: 0,
            next: 0,
        };
        run.arrays()?;
        run.directories()?;
        for &count in &args.mounts {
            let path = |row: u64| format!("a{largest}@[{row},:]");
            run.measure(("mounts", count), largest, &path, (0, count))?;
        }
        Ok(())
    })
}

/// The running filesystem, and the results so far.
struct Run<'a> {
    args: &'a GrowthArgs,
    table: &'a mut Table,
    cluster: Cluster,
    random: u64,
    next: u32,
}

/// A mount, and its process.
struct Mounted {
    path: PathBuf,
    pid: u32,
}

impl Mounted {
    fn unmount(self) -> anyhow::Result<()> {
        // It unmounts and ends.
        cleanup::end_now(self.pid, Signal::SIGTERM)
    }
}

impl Run<'_> {
    fn session(&self) -> anyhow::Result<Session> {
        Ok(Session::connect(&ConnectOptions::to(self.cluster.md()))?)
    }

    fn mount(&mut self) -> anyhow::Result<Mounted> {
        self.next += 1;
        let (path, pid) = self.cluster.mount(&format!("mnt{}", self.next))?;
        // Its connections and threads exist before anything is measured.
        for row in 0..FIRST {
            request(&path.join(format!("first@[{},:]", row % 4)))?;
        }
        Ok(Mounted { path, pid })
    }

    /// A number below a limit, the same in every run.
    fn below(&mut self, bound: u64) -> u64 {
        self.random += 1;
        mix(self.random) % bound
    }

    /// The time of a request for one of `of` paths, in microseconds.
    fn one(
        &mut self,
        mounted: &Mounted,
        of: u64,
        path: &dyn Fn(u64) -> String,
    ) -> anyhow::Result<f64> {
        let path = path(self.below(of));
        request(&mounted.path.join(path))
    }

    /// A row of the table: requests for some of `of` paths, cold and warm. The cold ones are the first of `fresh`
    /// mounts, one at a time; if that is none, of the `mounts` mounts that are measured warm.
    fn measure(
        &mut self,
        (kind, count): (&str, u64),
        of: u64,
        path: &dyn Fn(u64) -> String,
        (fresh, mounts): (u32, u64),
    ) -> anyhow::Result<()> {
        let labels = [kind.into(), count.into()];
        for _ in 0..fresh {
            let mounted = self.mount()?;
            let cold = self.one(&mounted, of, path)?;
            self.table.add(&labels, "", "cold_us", cold);
            mounted.unmount()?;
        }
        let all: Vec<Mounted> = (0..mounts)
            .map(|_| self.mount())
            .collect::<Result<_, _>>()?;
        let mut warm = Vec::new();
        for mounted in &all {
            let cold = self.one(mounted, of, path)?;
            if fresh == 0 {
                self.table.add(&labels, "", "cold_us", cold);
            }
            for _ in 0..self.args.rounds * 1000 {
                warm.push(self.one(mounted, of, path)?);
            }
        }
        let warm = median(&warm).context("no requests")?;
        self.table.add(&labels, "", "warm_us", warm);
        let first = all.first().context("no mounts")?;
        let mib = memory::of_process(first.pid, "VmRSS")?;
        self.table.add(&labels, "", "mib", mib);
        all.into_iter().try_for_each(Mounted::unmount)
    }

    fn arrays(&mut self) -> anyhow::Result<()> {
        let args = self.args;
        let session = self.session()?;
        fill(&session, "first", 4)?;
        for &count in &args.chunks {
            fill(&session, &format!("a{count}"), count)?;
        }
        session.close()?;
        for &count in &args.chunks {
            let path = |row: u64| format!("a{count}@[{row},:]");
            self.measure(("chunks", count), count, &path, (args.rounds, 1))?;
        }
        // Last: after a restart the service reads a large tiling in the background, which would be measured
        // above.
        for &count in &args.chunks {
            for _ in 0..args.rounds {
                self.cluster.restart(Signal::SIGTERM)?;
                let mounted = self.mount()?;
                let path = |row: u64| format!("a{count}@[{row},:]");
                let time = self.one(&mounted, count, &path)?;
                let labels = ["chunks".into(), count.into()];
                self.table.add(&labels, "", "restart_us", time);
                mounted.unmount()?;
            }
        }
        Ok(())
    }

    fn directories(&mut self) -> anyhow::Result<()> {
        let args = self.args;
        let session = self.session()?;
        let spec = ObjectSpec::array([4, ROW], "u1".parse().context("a dtype")?);
        for &count in &args.objects {
            session.create_container(format!("d{count}"))?;
            for from in (0..count).step_by(MADE as usize) {
                let until = count.min(from + MADE);
                let objects = (from..until).map(|n| (format!("d{count}/o{n}"), spec.clone()));
                session.root().create_many(objects)?;
            }
        }
        session.close()?;
        for &count in &args.objects {
            let path = |n: u64| format!("d{count}/o{n}");
            self.measure(("objects", count), count, &path, (args.rounds, 1))?;
        }
        Ok(())
    }
}

/// An array of `all` rows, each of them a chunk.
fn fill(session: &Session, name: &str, all: u64) -> anyhow::Result<()> {
    let spec = ObjectSpec::array([all, ROW], "u1".parse().context("a dtype")?);
    let object = session.create(name, &spec)?;
    for from in (0..all).step_by(TOGETHER as usize) {
        let numbers = from..all.min(from + TOGETHER);
        let buffers = numbers.map(|row| vec![row as u8; ROW as usize]).collect();
        through(rows(&object, from, buffers, true)?)?;
    }
    object.sync()?;
    Ok(object.close()?)
}

/// Opens, reads at the beginning, closes; returns the time in microseconds.
fn request(path: &Path) -> anyhow::Result<f64> {
    let mut bytes = [0u8; ROW as usize];
    let begun = Instant::now();
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.read_at(&mut bytes, 0)
        .with_context(|| path.display().to_string())?;
    drop(file);
    Ok(begun.elapsed().as_secs_f64() * 1e6)
}
