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

use std::fmt::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::signal::Signal;
use serde_json::json;
use slabfs_fs::client::transfer::{Memory, start_all, wait_all};
use slabfs_fs::session::{ConnectOptions, ObjectSpec, Session};
use slabfs_model::{Hyperslab, Region};

use crate::cleanup;
use crate::systems::{binary, spawn};

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
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// The slabfs binary (default: the one next to this program)
    #[arg(long, value_name = "PATH")]
    slabfs: Option<PathBuf>,
    /// Directory for data, in memory (default: a new one in /dev/shm)
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
}

/// One line of the table; times in microseconds.
#[derive(Debug, Clone, Default)]
struct Row {
    kind: &'static str,
    count: u64,
    cold: f64,
    warm: f64,
    restart: Option<f64>,
    memory: f64,
}

/// Measures everything and prints the table, also of the measurements before an error.
pub(crate) fn run(args: &GrowthArgs) -> anyhow::Result<()> {
    cleanup::on_signals()?;
    let mut rows = Vec::new();
    let measured = Cluster::start(args).and_then(|mut cluster| {
        arrays(args, &mut cluster, &mut rows)?;
        directories(args, &mut cluster, &mut rows)?;
        mounts(args, &mut cluster, &mut rows)
    });
    let cleaned = cleanup::run();
    if args.json {
        let rows = rows.iter().map(|row| {
            json!({"kind": row.kind, "count": row.count, "cold_us": row.cold, "warm_us": row.warm,
                   "restart_us": row.restart, "mib": row.memory})
        });
        println!(
            "{}",
            serde_json::to_string_pretty(&rows.collect::<Vec<_>>())?
        );
    } else {
        print!("{}", text(&rows));
    }
    measured.and(cleaned)
}

/// The processes, and how to start more.
struct Cluster {
    dir: PathBuf,
    slabfs: PathBuf,
    md: String,
    service: u32,
    next: u32,
}

/// A mount, and its process.
struct Mounted {
    path: PathBuf,
    pid: u32,
}

impl Cluster {
    fn start(args: &GrowthArgs) -> anyhow::Result<Cluster> {
        let parent = args.work.as_deref().unwrap_or(Path::new("/dev/shm"));
        let dir = parent.join(format!("slabfs-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        cleanup::directory(dir.clone());
        let dir = dir.canonicalize().context("finding a directory")?;
        let md = format!("unix:{}", dir.join("0.sock").display());
        let mut cluster = Cluster {
            slabfs: binary(args.slabfs.as_deref())?,
            md,
            service: 0,
            next: 0,
            dir,
        };
        cluster.serve()?;
        for number in 1..=2 {
            let mut server = cluster.command("objserver");
            let listen = format!(
                "unix:{}",
                cluster.dir.join(format!("{number}.sock")).display()
            );
            server.args(["--md", &cluster.md, "--listen", &listen, "--data"]);
            server.arg(cluster.dir.join(format!("os{number}")));
            spawn(server, "slabfs objserver")?;
        }
        Ok(cluster)
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.slabfs);
        command.args([subcommand, "--quiet"]);
        command
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        let mut service = self.command("mdserver");
        service.args(["--listen", &self.md, "--data"]);
        service.arg(self.dir.join("md"));
        self.service = spawn(service, "slabfs mdserver")?;
        Ok(())
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        cleanup::end_now(self.service, Signal::SIGTERM)?;
        self.serve()
    }

    fn mount(&mut self) -> anyhow::Result<Mounted> {
        self.next += 1;
        let path = self.dir.join(format!("mnt{}", self.next));
        std::fs::create_dir(&path).context("creating a directory")?;
        cleanup::mount(path.clone());
        let mut mount = self.command("mount");
        mount.args(["--md", &self.md]).arg(&path);
        let pid = spawn(mount, "slabfs mount")?;
        let mounted = Mounted { path, pid };
        // Its connections and threads exist before anything is measured.
        for row in 0..FIRST {
            request(&mounted.path.join(format!("first@[{},:]", row % 4)))?;
        }
        Ok(mounted)
    }

    fn session(&self) -> anyhow::Result<Session> {
        Ok(Session::connect(&ConnectOptions::to(&self.md))?)
    }
}

impl Mounted {
    fn unmount(self) -> anyhow::Result<()> {
        // It unmounts and ends.
        cleanup::end_now(self.pid, Signal::SIGTERM)
    }

    /// MiB of resident memory.
    fn memory(&self) -> anyhow::Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let kib = text
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.context("no VmRSS")? / 1024.0)
    }
}

/// An array of `rows` rows, each of them a chunk.
fn fill(session: &Session, name: &str, rows: u64) -> anyhow::Result<()> {
    let spec = ObjectSpec::array([rows, ROW], "u1".parse().context("a dtype")?);
    let object = session.create(name, &spec)?;
    let mut from = 0;
    while from < rows {
        let until = rows.min(from + TOGETHER);
        let transfers: Result<Vec<_>, _> = (from..until)
            .map(|row| {
                let slab = Hyperslab::from_region(&Region::new(&[row, 0], &[1, ROW]));
                let bytes = vec![row as u8; ROW as usize];
                object.write_transfer(slab, &Memory::packed(), bytes)
            })
            .collect();
        let mut transfers = transfers.map_err(|failed| failed.error)?;
        start_all(&mut transfers)?;
        for ended in wait_all(transfers)? {
            ended.map_err(|failed| failed.error)?;
        }
        from = until;
    }
    object.sync()?;
    Ok(object.close()?)
}

/// Opens, reads at the beginning, closes; returns the time in microseconds.
fn request(path: &Path) -> anyhow::Result<f64> {
    let mut bytes = [0u8; ROW as usize];
    let begun = Instant::now();
    let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    file.read_at(&mut bytes, 0)
        .with_context(|| path.display().to_string())?;
    drop(file);
    Ok(micros(begun.elapsed()))
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Numbers below a limit, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

fn arrays(args: &GrowthArgs, cluster: &mut Cluster, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let session = cluster.session()?;
    fill(&session, "first", 4)?;
    for &count in &args.chunks {
        fill(&session, &format!("a{count}"), count)?;
    }
    session.close()?;
    let mut random = Random(1);
    for &count in &args.chunks {
        eprintln!("an array of {count} chunks");
        let row = |mounted: &Mounted, row: u64| mounted.path.join(format!("a{count}@[{row},:]"));
        let mut cold = Vec::new();
        for _ in 0..args.rounds {
            let mounted = cluster.mount()?;
            cold.push(request(&row(&mounted, random.below(count)))?);
            mounted.unmount()?;
        }
        let mounted = cluster.mount()?;
        let mut warm = Vec::new();
        for _ in 0..args.rounds * 1000 {
            warm.push(request(&row(&mounted, random.below(count)))?);
        }
        let memory = mounted.memory()?;
        mounted.unmount()?;
        rows.push(Row {
            kind: "chunks",
            count,
            cold: median(cold),
            warm: median(warm),
            restart: None,
            memory,
        });
    }
    // Last: after a restart the service reads a large tiling in the background, which would be measured above.
    for (row, &count) in rows.iter_mut().zip(&args.chunks) {
        eprintln!("an array of {count} chunks, after restarts");
        let mut restart = Vec::new();
        for _ in 0..args.rounds {
            cluster.restart()?;
            let mounted = cluster.mount()?;
            let path = format!("a{count}@[{},:]", random.below(count));
            restart.push(request(&mounted.path.join(path))?);
            mounted.unmount()?;
        }
        row.restart = Some(median(restart));
    }
    Ok(())
}

fn directories(
    args: &GrowthArgs,
    cluster: &mut Cluster,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    let session = cluster.session()?;
    let spec = ObjectSpec::array([4, ROW], "u1".parse().context("a dtype")?);
    for &count in &args.objects {
        session.create_container(format!("d{count}"))?;
        let mut from = 0;
        while from < count {
            let until = count.min(from + MADE);
            let objects = (from..until).map(|n| (format!("d{count}/o{n}"), spec.clone()));
            session.root().create_many(objects)?;
            from = until;
        }
    }
    session.close()?;
    let mut random = Random(2);
    for &count in &args.objects {
        eprintln!("a directory of {count} objects");
        let mut cold = Vec::new();
        let one = |mounted: &Mounted, n: u64| mounted.path.join(format!("d{count}/o{n}"));
        for _ in 0..args.rounds {
            let mounted = cluster.mount()?;
            cold.push(request(&one(&mounted, random.below(count)))?);
            mounted.unmount()?;
        }
        let mounted = cluster.mount()?;
        let warm: anyhow::Result<Vec<f64>> = (0..args.rounds * 1000)
            .map(|_| request(&one(&mounted, random.below(count))))
            .collect();
        rows.push(Row {
            kind: "objects",
            count,
            cold: median(cold),
            warm: median(warm?),
            memory: mounted.memory()?,
            ..Row::default()
        });
        mounted.unmount()?;
    }
    Ok(())
}

fn mounts(args: &GrowthArgs, cluster: &mut Cluster, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let chunks = args.chunks.iter().copied().max().unwrap_or(0);
    ensure!(
        chunks > 0,
        "--chunks names none, and mounts are measured with the largest"
    );
    let mut random = Random(3);
    for &count in &args.mounts {
        eprintln!("{count} mounts");
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(cluster.mount()?);
        }
        let mut samples: Vec<Vec<f64>> = Vec::new();
        for mounted in &all {
            let one = |row: u64| mounted.path.join(format!("a{chunks}@[{row},:]"));
            let each: anyhow::Result<Vec<f64>> = (0..=args.rounds * 1000)
                .map(|_| request(&one(random.below(chunks))))
                .collect();
            samples.push(each?);
        }
        rows.push(Row {
            kind: "mounts",
            count,
            cold: median(samples.iter().map(|each| each[0]).collect()),
            warm: median(
                samples
                    .iter()
                    .flat_map(|each| each[1..].iter().copied())
                    .collect(),
            ),
            memory: all[0].memory()?,
            ..Row::default()
        });
        for mounted in all {
            mounted.unmount()?;
        }
    }
    Ok(())
}

fn text(rows: &[Row]) -> String {
    let mut out =
        String::from("of        how many    cold us       warm us       restart us      MiB\n");
    for row in rows {
        let first = rows
            .iter()
            .find(|first| first.kind == row.kind)
            .unwrap_or(row);
        let of = |value: f64, first: f64| format!("{value:.0} ({:.2})", value / first);
        let both = |value: Option<f64>, first: Option<f64>| match (value, first) {
            (Some(value), Some(first)) => of(value, first),
            _ => "-".to_owned(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:<9} {:>8}    {:<13} {:<13} {:<15} {:.0}",
            row.kind,
            row.count,
            of(row.cold, first.cold),
            of(row.warm, first.warm),
            both(row.restart, first.restart),
            row.memory,
        );
    }
    out + "In brackets: times the first row of its kind. The aim is at most 1.5, cold and warm.\n"
}
