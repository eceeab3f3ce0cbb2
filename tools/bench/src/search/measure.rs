//! One size: the operations on both, their order, and the records.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use nix::sys::signal::Signal;
use slabfs_mdserver::api::{Ino, op};

use super::SearchArgs;
use super::data::{Data, Look, PER_CONTAINER, Value, mix};
use super::slabfs::Client;
use super::sqlite::{self, Sqlite};
use crate::clients::rate;
use crate::systems::Cluster;
use crate::table::Table;
use crate::{args, cleanup, memory};

/// Objects or tags of a batch.
const BATCH: u64 = 100;

/// Measures one size.
pub(super) fn size(args: &SearchArgs, data: Data, table: &mut Table) -> anyhow::Result<()> {
    let suffix = format!("-{}", data.objects);
    let dir = cleanup::new_directory(args.common.work.as_deref(), &suffix)?;
    let mut run = Run {
        args,
        data,
        table,
        service: Cluster::start(&args.common.slabfs()?, &dir, 0, false)?,
        dir,
        clients: Vec::new(),
        inos: Vec::new(),
        sqlite: Vec::new(),
    };
    run.load()?;
    let mut rates = Vec::new();
    for &look in Look::value_variants() {
        rates.push(run.queries(look)?);
    }
    // The cost of the common tag in addition to the rare one: the first kind is the exact one, the last is both.
    let times = rates[0] / rates[rates.len() - 1];
    run.note("common and rare: times an exact one", "", times, None);
    run.puts("tag puts", 1)?;
    run.puts("tag puts in batches of 100", BATCH)?;
    run.names()?;
    run.restarts()
}

/// The state of the measurement of one size.
struct Run<'a> {
    args: &'a SearchArgs,
    data: Data,
    table: &'a mut Table,
    service: Cluster,
    dir: PathBuf,
    clients: Vec<Client>,
    /// Inodes of the objects, by number.
    inos: Vec<Ino>,
    sqlite: Vec<sqlite::Client>,
}

impl Run<'_> {
    fn note(&mut self, what: &str, unit: &'static str, slabfs: f64, sqlite: Option<f64>) {
        let labels = [self.data.objects.into(), what.into()];
        self.table.add(&labels, unit, "slabfs", slabfs);
        if let Some(sqlite) = sqlite {
            self.table.add(&labels, unit, "sqlite", sqlite);
        }
    }

    fn load(&mut self) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut client = Client::connect(&self.service)?;
        for container in 0..self.data.objects / PER_CONTAINER {
            self.inos.extend(client.load(self.data, container)?);
        }
        client.md()?.call(op::Sync {})?;
        drop(client);
        let slabfs = started.elapsed().as_secs_f64();
        let mut sqlite = None;
        if !self.args.no_sqlite {
            let started = Instant::now();
            let database = Sqlite::load(&self.dir.join("sqlite"), self.data)?;
            sqlite = Some(started.elapsed().as_secs_f64());
            let clients = (0..self.args.clients).map(|_| database.connect());
            self.sqlite = clients.collect::<Result<_, _>>()?;
        }
        // Only now: a session that is silent for half a minute expires.
        let clients = (0..self.args.clients).map(|_| Client::connect(&self.service));
        self.clients = clients.collect::<Result<_, _>>()?;
        self.note("load, one client", "s", slabfs, sqlite);
        Ok(())
    }

    fn queries(&mut self, look: Look) -> anyhow::Result<f64> {
        let (data, time) = (self.data, self.args.time());
        let group = |client: u64, at: u64| mix(at * 64 + client) % data.groups();
        let counted = |found: Vec<String>| {
            let wanted = look.results();
            ensure!(
                found.len() == wanted,
                "{} found {}, not {wanted}: {found:?}",
                args::name(look),
                found.len()
            );
            Ok(Some(1))
        };
        let slabfs = rate(&mut self.clients, time, |client, number, at| {
            counted(client.find(data.query(look, group(number, at)))?)
        })?;
        let sqlite = self.next_to(|clients| {
            rate(clients, time, |client, number, at| {
                counted(client.query(data, look, group(number, at))?)
            })
        })?;
        self.note(&args::name(look), "queries/s", slabfs, sqlite);
        Ok(slabfs)
    }

    /// Measures SQLite too, if it is not left out.
    fn next_to(
        &mut self,
        measure: impl FnOnce(&mut [sqlite::Client]) -> anyhow::Result<f64>,
    ) -> anyhow::Result<Option<f64>> {
        if self.sqlite.is_empty() {
            return Ok(None);
        }
        measure(&mut self.sqlite).map(Some)
    }

    /// Tags set on random objects, alternately numbers and texts; a query afterwards sees the last ones.
    fn puts(&mut self, what: &str, batch: u64) -> anyhow::Result<()> {
        let (data, time, inos) = (self.data, self.args.time(), self.inos.clone());
        let mark = |number: u64, at: u64, place: u64| {
            let mixed = mix((at * 64 + number) * 128 + place + batch);
            let value = match mixed % 2 {
                0 => Value::Int((mixed >> 40) as i64),
                _ => Value::Text(format!("mark {:x}", mixed >> 40)),
            };
            // Every client has objects of its own.
            let own = data.objects / 64;
            (number % 64 * own + (mixed >> 8) % own, value)
        };
        let slabfs = rate(&mut self.clients, time, |client, number, at| {
            let marks: Vec<_> = (0..batch)
                .map(|place| mark(number, at, place))
                .map(|(object, value)| (inos[object as usize], value))
                .collect();
            client.put(&marks)?;
            Ok(Some(marks.len()))
        })?;
        let client = self.clients.first_mut().context("no client")?;
        client.put(&[(inos[7], Value::Text(format!("seen {batch}")))])?;
        let found = client.find(format!("mark = \"seen {batch}\""))?;
        ensure!(
            found == [Data::path(7)],
            "the last tag is not found: {found:?}"
        );
        let sqlite = self.next_to(|clients| {
            rate(clients, time, |client, number, at| {
                let marks: Vec<_> = (0..batch).map(|place| mark(number, at, place)).collect();
                client.put(&marks)?;
                Ok(Some(marks.len()))
            })
        })?;
        self.note(what, "tags/s", slabfs, sqlite);
        Ok(())
    }

    /// Objects created and opened, each client in a container of its own.
    fn names(&mut self) -> anyhow::Result<()> {
        let (time, inos) = (self.args.time(), self.inos.clone());
        let mut parents = Vec::new();
        for (number, client) in self.clients.iter_mut().enumerate() {
            parents.push(client.container(&format!("new-{number}"))?);
        }
        let creates = rate(&mut self.clients, time, |client, number, at| {
            client.create(parents[number as usize], &format!("one-{at}"))?;
            Ok(Some(1))
        })?;
        let batches = rate(&mut self.clients, time, |client, number, at| {
            let names: Vec<String> = (0..BATCH)
                .map(|place| format!("many-{at}-{place}"))
                .collect();
            client
                .create_many(parents[number as usize], &names)
                .map(Some)
        })?;
        let opened =
            |number: u64, at: u64| inos[(mix(at * 64 + number) % inos.len() as u64) as usize];
        let opens = rate(&mut self.clients, time, |client, number, at| {
            let ino = opened(number, at);
            client.md()?.call(op::Open { ino })?;
            if at % 256 == 255 {
                let those = (at - 255..=at).map(|at| opened(number, at));
                client.md()?.release(those.collect())?;
            }
            Ok(Some(1))
        })?;
        self.note("creates", "objects/s", creates, None);
        self.note("creates in batches of 100", "objects/s", batches, None);
        self.note("opens", "objects/s", opens, None);
        Ok(())
    }

    /// Resident memory of the service in MiB: current and maximum.
    fn memory(&self) -> anyhow::Result<(f64, f64)> {
        let field = |name| memory::of_process(self.service.service, name);
        Ok((field("VmRSS")?, field("VmHWM")?))
    }

    fn restarts(&mut self) -> anyhow::Result<()> {
        let (_, most) = self.memory()?;
        self.note("memory at most, under load", "MiB", most, None);
        self.clients.clear();
        let clean = self.service.restart(Signal::SIGTERM)?;
        self.note("start after a clean stop", "s", clean.as_secs_f64(), None);
        let killed = self.service.restart(Signal::SIGKILL)?;
        self.note("start after kill -9", "s", killed.as_secs_f64(), None);
        // Existing objects are found, and quickly.
        let mut client = Client::connect(&self.service)?;
        let started = Instant::now();
        for group in (0..self.data.groups()).step_by((self.data.groups() / 1000).max(1) as usize) {
            for &look in Look::value_variants() {
                let found = client.find(self.data.query(look, group))?;
                ensure!(
                    found.len() == look.results(),
                    "after the restart {} found {found:?}",
                    args::name(look)
                );
            }
        }
        self.note(
            "6000 queries after it, one client",
            "s",
            started.elapsed().as_secs_f64(),
            None,
        );
        let (now, most) = self.memory()?;
        self.note("memory at the end", "MiB", now, None);
        self.note("memory at most since the start", "MiB", most, None);
        Ok(())
    }
}
