//! `slabfs-bench engines`: the metadata service with its journal in etcd, compared with one in a local directory, with
//! transactions that keep each row under a key of the same etcd (`keys`), and with etcd's own rate.
//!
//! Services are processes of their own behind Unix sockets. Each client has a session and a container of its own. In each
//! round all systems run one after the other.

mod keys;
mod start;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use slabfs_mdserver::RemoteMd;
use slabfs_mdserver::api::{
    Commit, Create, Created, Entry, Ino, Kind, MdError, ROOT, TagChange, op,
};
use slabfs_mdserver::client::{Md, Shards};
use slabfs_model::{Tag, TagKind};
use slabfs_objstore::Addr;

use crate::args::Common;
use crate::cleanup::{command, foreign, new_directory, spawn};
use crate::table::{Brackets, Format, Table};

pub(crate) use start::{StandbyArgs, run as standby};

/// How long a call may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// The ports of etcd's members, two each.
const FIRST_PORT: u16 = 23_790;

/// The metadata service over etcd, compared with the local one
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct EnginesArgs {
    /// Number of concurrent clients
    #[arg(long, default_value = "16", value_parser = clap::value_parser!(u64).range(1..=256))]
    clients: u64,
    /// Members of etcd
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u16).range(1..=7))]
    members: u16,
    /// Seconds for which each rate is measured
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u64).range(1..=20))]
    seconds: u64,
    /// Rounds
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u64).range(1..=50))]
    rounds: u64,
    #[command(flatten)]
    common: Common,
}

/// What one client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Create,
    Commit,
    Tag,
    Lookup,
}

const WORKS: [(Work, &str); 4] = [
    (Work::Create, "creates"),
    (Work::Commit, "commits"),
    (Work::Tag, "tag puts"),
    (Work::Lookup, "lookups"),
];

/// Measures all rounds and prints the table.
pub(crate) fn run(args: &EnginesArgs) -> anyhow::Result<()> {
    let columns = ["local", "2 shards", "4 shards", "etcd", "keys", "puts"];
    let brackets = Brackets::Column("local");
    let table = Table::new("engines", &["what"], columns, brackets, Format::Samples);
    crate::report(&args.common, table, |table| measure(args, table))
}

fn measure(args: &EnginesArgs, table: &mut Table) -> anyhow::Result<()> {
    let work = new_directory(args.common.work.as_deref(), "engines")?;
    let endpoints = start_etcd(&work, args.members)?;
    let slabfs = args.common.slabfs()?;
    let local = start_service(&slabfs, &work, "local", &[])?;
    let checkpoints = work.join("checkpoints");
    std::fs::create_dir(&checkpoints).context("the directory of checkpoints")?;
    let hosts: Vec<&str> = endpoints
        .iter()
        .map(|url| &url["http://".len()..])
        .collect();
    let url = format!("etcd://{}/bench", hosts.join(","));
    let checkpoints = checkpoints.display().to_string();
    let journal = ["--meta", &url, "--checkpoints", &checkpoints];
    let etcd = start_service(&slabfs, &work, "etcd", &journal)?;
    let two = start_shards(&slabfs, &work, 2)?;
    let four = start_shards(&slabfs, &work, 4)?;
    let local = vec![local];
    let etcd = vec![etcd];
    let keys = keys::Keys::new(endpoints, args.clients)?;
    let time = Duration::from_secs(args.seconds);
    for round in 0..=args.rounds {
        for (work, name) in WORKS {
            let mut rates = vec![
                ("local", rate(&local, args.clients, time, work, round)?),
                ("2 shards", rate(&two, args.clients, time, work, round)?),
                ("4 shards", rate(&four, args.clients, time, work, round)?),
                ("etcd", rate(&etcd, args.clients, time, work, round)?),
            ];
            if work != Work::Lookup {
                rates.push(("keys", keys.rate(time, work, round)?));
                rates.push(("puts", keys.puts(time)?));
            }
            // The first round warms up.
            for (system, rate) in rates.into_iter().filter(|_| round > 0) {
                table.add(&[name.into()], "op/s", system, rate);
            }
        }
    }
    Ok(())
}

fn start_etcd(work: &Path, members: u16) -> anyhow::Result<Vec<String>> {
    let client = |i: u16| format!("http://127.0.0.1:{}", FIRST_PORT + 2 * i);
    let peer = |i: u16| format!("http://127.0.0.1:{}", FIRST_PORT + 2 * i + 1);
    let all: Vec<String> = (0..members).map(|i| format!("m{i}={}", peer(i))).collect();
    for i in 0..members {
        let name = format!("m{i}");
        let mut command = command(
            "etcd",
            &[
                &"--name",
                &name,
                &"--data-dir",
                &work.join(&name),
                &"--listen-client-urls",
                &client(i),
                &"--advertise-client-urls",
                &client(i),
                &"--listen-peer-urls",
                &peer(i),
                &"--initial-advertise-peer-urls",
                &peer(i),
                &"--initial-cluster",
                &all.join(","),
                &"--log-level",
                &"error",
            ],
        );
        command.stderr(std::process::Stdio::null());
        foreign(&mut command, "etcd")?;
    }
    Ok((0..members).map(client).collect())
}

/// Starts a metadata service; returns its address.
fn start_service(slabfs: &Path, work: &Path, name: &str, flags: &[&str]) -> anyhow::Result<Addr> {
    spawn(service(slabfs, work, name, flags), name)?;
    Ok(Addr::Unix(work.join(format!("{name}.sock"))))
}

/// Starts the services of a filesystem in shards; returns their addresses.
fn start_shards(slabfs: &Path, work: &Path, shards: u8) -> anyhow::Result<Vec<Addr>> {
    (0..shards)
        .map(|shard| {
            let flags = ["--shard", &format!("{shard}/{shards}")];
            start_service(slabfs, work, &format!("shard{shard}of{shards}"), &flags)
        })
        .collect()
}

fn service(slabfs: &Path, work: &Path, name: &str, flags: &[&str]) -> Command {
    let socket = work.join(format!("{name}.sock"));
    let listen = format!("unix:{}", socket.display());
    let data = work.join(name);
    let mut command = command(
        slabfs,
        &[&"mdserver", &"--listen", &listen, &"--data", &data],
    );
    command.arg("--quiet").args(flags);
    command
}

/// A session at a service.
fn attach(addr: &Addr) -> anyhow::Result<Md> {
    let remote = RemoteMd::connect(addr.clone(), None, DEADLINE);
    let (md, _) = Md::attach(Arc::new(remote), "bench", std::process::id(), false)?;
    Ok(md)
}

/// One client with what it works on.
struct Client {
    shards: Shards,
    container: Ino,
    object: Ino,
    generation: u32,
}

impl Client {
    fn connect(addrs: &[Addr], name: &str) -> anyhow::Result<Client> {
        let all: anyhow::Result<Vec<Md>> = addrs.iter().map(attach).collect();
        let shards = Shards::new(all?);
        let container = create(&shards, ROOT, name, Kind::Directory)?.attr.ino;
        let object = create(&shards, container, "object", Kind::Object)?;
        let info = object.info.context("an object without a form")?;
        Ok(Client {
            shards,
            container,
            object: object.attr.ino,
            generation: info.generation,
        })
    }

    fn step(&self, work: Work, number: u64) -> anyhow::Result<()> {
        match work {
            Work::Create => {
                create(
                    &self.shards,
                    self.container,
                    &format!("f{number}"),
                    Kind::Object,
                )?;
            }
            Work::Commit => {
                self.shards.of(self.object)?.call(Commit {
                    ino: self.object,
                    generation: self.generation,
                    records: Vec::new(),
                    clips: Vec::new(),
                    grow_to: None,
                    size_at_least: number + 1,
                    mtime: None,
                    wrote: true,
                    stored: 0,
                    settled: true,
                })?;
            }
            Work::Tag => {
                let tag = Tag {
                    kind: TagKind::Int,
                    bytes: number.to_string().into_bytes(),
                };
                let changes = vec![TagChange {
                    ino: self.object,
                    set: vec![("step".to_owned(), tag)],
                    remove: Vec::new(),
                }];
                self.shards.tag(changes)?;
            }
            Work::Lookup => {
                let found = self.shards.names().call(op::Lookup {
                    parent: self.container,
                    name: b"object".to_vec(),
                })?;
                let ino = found.attr.ino;
                if self.shards.is_remote(ino) {
                    self.shards.of(ino)?.call(op::GetAttr { ino })?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A session that is not detached ends by its lease.
        drop(self.shards.report());
        for md in self.shards.all() {
            drop(md.call(op::Detach { clean: true }));
        }
    }
}

fn create(shards: &Shards, parent: Ino, name: &str, kind: Kind) -> anyhow::Result<Entry> {
    let create = Create {
        parent,
        name: name.as_bytes().to_vec(),
        kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: None,
        exclusive: true,
        open: false,
    };
    let adopt = |made: &Created| {
        let births = made.birth.as_deref().cloned();
        let adopt = op::Adopt {
            births: births.into_iter().collect(),
            open: false,
        };
        let mut entries = shards.of(made.entry.attr.ino)?.call(adopt)?;
        Ok::<_, MdError>(entries.pop().map(|entry| (entry, ())))
    };
    let (made, _) = shards.create(&create, adopt)?;
    Ok(made.entry)
}

/// Operations a second of all clients.
fn rate(
    addrs: &[Addr],
    clients: u64,
    time: Duration,
    work: Work,
    round: u64,
) -> anyhow::Result<f64> {
    let clients: anyhow::Result<Vec<Client>> = (0..clients)
        .map(|i| Client::connect(addrs, &format!("{work:?}-{round}-{i}")))
        .collect();
    let clients = clients?;
    timed(time, clients.len() as u64, |i, number| {
        clients[i as usize].step(work, number)
    })
}

/// Runs steps in a thread for each client, for some time; returns the rate of all.
fn timed(
    time: Duration,
    clients: u64,
    step: impl Fn(u64, u64) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<f64> {
    let done = AtomicU64::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|i| {
                let (step, done) = (&step, &done);
                scope.spawn(move || {
                    let mut number = 0;
                    while begun.elapsed() < time {
                        step(i, number)?;
                        number += 1;
                    }
                    done.fetch_add(number, Ordering::Relaxed);
                    anyhow::Ok(())
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a client panicked"))
    })?;
    let done = done.load(Ordering::Relaxed);
    ensure!(done > 0, "nothing was done in {time:?}");
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}
