//! The metadata service as a process of its own, and clients at its socket.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;
use slabfs_mdserver::RemoteMd;
use slabfs_mdserver::api::{
    Create, Find, Ino, Kind, MAX_HITS, NewObject, ROOT, SpecChange, TagChange, op,
};
use slabfs_mdserver::client::Md;
use slabfs_model::{Tag, TagKind};
use slabfs_objstore::Addr;

use super::data::{Data, Look, PER_CONTAINER, Value};
use crate::{cleanup, systems};

/// How long a call may take.
const DEADLINE: Duration = Duration::from_secs(120);
/// The least interval between heartbeats of a client.
const BEAT: Duration = Duration::from_secs(5);

/// A metadata service of this program.
#[derive(Debug)]
pub(crate) struct Server {
    binary: PathBuf,
    data: PathBuf,
    socket: PathBuf,
    pid: u32,
}

impl Server {
    /// Starts the service on `work/md`; also returns the time until it was ready.
    pub(crate) fn start(binary: &Path, work: &Path) -> anyhow::Result<(Server, Duration)> {
        let mut server = Server {
            binary: binary.to_owned(),
            data: work.join("md"),
            socket: work.join("md.sock"),
            pid: 0,
        };
        let took = server.start_again()?;
        Ok((server, took))
    }

    fn start_again(&mut self) -> anyhow::Result<Duration> {
        let mut command = Command::new(&self.binary);
        command
            .args(["mdserver", "--quiet", "--listen"])
            .arg(format!("unix:{}", self.socket.display()))
            .arg("--data")
            .arg(&self.data);
        let started = Instant::now();
        self.pid = systems::spawn(command, "slabfs mdserver")?;
        Ok(started.elapsed())
    }

    /// Ends the service by `signal`, and starts it again; returns the time of the start.
    pub(crate) fn restart(&mut self, signal: Signal) -> anyhow::Result<Duration> {
        cleanup::end_now(self.pid, signal)?;
        self.start_again()
    }

    /// Resident memory in MiB: current and maximum.
    pub(crate) fn memory(&self) -> anyhow::Result<(f64, f64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))
            .context("the memory of slabfs mdserver")?;
        let mib = |name: &str| -> anyhow::Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line
                .and_then(|line| line.split_whitespace().next())
                .context("no memory in status")?;
            Ok(number.parse::<f64>()? / 1024.0)
        };
        Ok((mib("VmRSS:")?, mib("VmHWM:")?))
    }

    /// A new client with a session of its own.
    pub(crate) fn connect(&self) -> anyhow::Result<Client> {
        let remote = RemoteMd::connect(Addr::Unix(self.socket.clone()), None, DEADLINE);
        let (md, _) = Md::attach(Arc::new(remote), "bench", std::process::id(), false)?;
        Ok(Client {
            md,
            beat: Instant::now(),
        })
    }
}

/// A client of the service.
pub(crate) struct Client {
    md: Md,
    beat: Instant,
}

impl Drop for Client {
    fn drop(&mut self) {
        // A service that was just killed needs no detach.
        drop(self.md.call(op::Detach { clean: true }));
    }
}

impl Client {
    /// Sends a heartbeat, if it is due.
    fn beat(&mut self) -> anyhow::Result<()> {
        if self.beat.elapsed() > BEAT {
            self.md.heartbeat(self.md.servers_version())?;
            self.beat = Instant::now();
        }
        Ok(())
    }

    /// Creates a container in the root.
    pub(crate) fn container(&mut self, name: &str) -> anyhow::Result<Ino> {
        let made = self.md.call(Create {
            parent: ROOT,
            name: name.as_bytes().to_vec(),
            kind: Kind::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: None,
            exclusive: true,
            open: false,
        })?;
        Ok(made.entry.attr.ino)
    }

    /// Creates all objects of a container with their tags; returns their inodes.
    pub(crate) fn load(&mut self, data: Data, container: u64) -> anyhow::Result<Vec<Ino>> {
        self.beat()?;
        let parent = self.container(&Data::container(container))?;
        let first = container * PER_CONTAINER;
        let mut inos = Vec::new();
        for from in (first..first + PER_CONTAINER).step_by(100) {
            let one = |object| {
                let tags = data.tags(object).into_iter();
                new_object(
                    parent,
                    &Data::name(object),
                    tags.map(|(key, value)| (key.to_owned(), tag(&value)))
                        .collect(),
                )
            };
            inos.extend(self.md.call(op::CreateMany {
                objects: (from..from + 100).map(one).collect(),
            })?);
        }
        Ok(inos)
    }

    /// Creates one empty object, which is open afterwards.
    pub(crate) fn create(&mut self, parent: Ino, name: &str) -> anyhow::Result<Ino> {
        self.beat()?;
        let made = self.md.call(Create {
            parent,
            name: name.as_bytes().to_vec(),
            kind: Kind::Object,
            mode: 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: None,
            exclusive: true,
            open: false,
        })?;
        Ok(made.entry.attr.ino)
    }

    /// Creates empty objects in one request.
    pub(crate) fn create_many(&mut self, parent: Ino, names: &[String]) -> anyhow::Result<usize> {
        self.beat()?;
        let objects = names
            .iter()
            .map(|name| new_object(parent, name, Vec::new()))
            .collect();
        Ok(self.md.call(op::CreateMany { objects })?.len())
    }

    /// Opens an object; it stays open until [`Self::release`].
    pub(crate) fn open(&mut self, ino: Ino) -> anyhow::Result<()> {
        self.beat()?;
        self.md.call(op::Open { ino })?;
        Ok(())
    }

    /// Releases one opening of each.
    pub(crate) fn release(&mut self, inos: Vec<Ino>) -> anyhow::Result<()> {
        Ok(self.md.release(inos)?)
    }

    /// Sets the tag `mark` of objects, in one request.
    pub(crate) fn put(&mut self, marks: &[(Ino, Value)]) -> anyhow::Result<()> {
        self.beat()?;
        let change = |(ino, value): &(Ino, Value)| TagChange {
            ino: *ino,
            set: vec![("mark".to_owned(), tag(value))],
            remove: Vec::new(),
        };
        Ok(self.md.call(op::Tag {
            changes: marks.iter().map(change).collect(),
        })?)
    }

    /// Paths that a query finds.
    pub(crate) fn query(
        &mut self,
        data: Data,
        look: Look,
        group: u64,
    ) -> anyhow::Result<Vec<String>> {
        self.beat()?;
        self.find(&data.query(look, group))
    }

    /// Paths that a query in the language of slabfs finds.
    pub(crate) fn find(&mut self, query: &str) -> anyhow::Result<Vec<String>> {
        let mut find = Find {
            query: query.to_owned(),
            limit: MAX_HITS,
            ..Find::default()
        };
        let mut paths = Vec::new();
        loop {
            let found = self.md.call(find.clone())?;
            for hit in found.hits {
                paths.push(String::from_utf8(hit.path).context("a path that is no text")?);
            }
            match found.next {
                Some(next) => find.after = Some(next),
                None => return Ok(paths),
            }
        }
    }

    /// Returns once everything is on the service's disk.
    pub(crate) fn sync(&mut self) -> anyhow::Result<()> {
        Ok(self.md.call(op::Sync {})?)
    }
}

fn new_object(parent: Ino, name: &str, tags: Vec<(String, Tag)>) -> NewObject {
    NewObject {
        parent,
        name: name.as_bytes().to_vec(),
        mode: 0o644,
        uid: 0,
        gid: 0,
        spec: SpecChange::default(),
        tags,
    }
}

fn tag(value: &Value) -> Tag {
    let (kind, text) = match value {
        Value::Int(number) => (TagKind::Int, number.to_string()),
        Value::Float(number) => (TagKind::Float, format!("{number:?}")),
        Value::Text(text) => (TagKind::Text, text.clone()),
    };
    Tag {
        kind,
        bytes: text.into_bytes(),
    }
}
