//! Clients of the metadata service, which is a process of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use slabfs_mdserver::RemoteMd;
use slabfs_mdserver::api::{
    Create, Find, Ino, Kind, MAX_HITS, NewObject, ROOT, SpecChange, TagChange, op,
};
use slabfs_mdserver::client::Md;
use slabfs_model::{Tag, TagKind};
use slabfs_objstore::Addr;

use super::data::{Data, PER_CONTAINER, Value};
use crate::systems::Cluster;

/// How long a call may take.
const DEADLINE: Duration = Duration::from_secs(120);
/// The least interval between heartbeats of a client.
const BEAT: Duration = Duration::from_secs(5);

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
    /// A new client with a session of its own.
    pub(crate) fn connect(service: &Cluster) -> anyhow::Result<Client> {
        let remote = RemoteMd::connect(Addr::Unix(service.socket(0)), None, DEADLINE);
        let (md, _) = Md::attach(Arc::new(remote), "bench", std::process::id(), false)?;
        Ok(Client {
            md,
            beat: Instant::now(),
        })
    }

    /// The service, after a heartbeat if that is due.
    pub(crate) fn md(&mut self) -> anyhow::Result<&Md> {
        if self.beat.elapsed() > BEAT {
            self.md.heartbeat(self.md.servers_version())?;
            self.beat = Instant::now();
        }
        Ok(&self.md)
    }

    /// Creates a container in the root.
    pub(crate) fn container(&mut self, name: &str) -> anyhow::Result<Ino> {
        self.create_of(ROOT, name, Kind::Directory, 0o755)
    }

    /// Creates one empty object, which is open afterwards.
    pub(crate) fn create(&mut self, parent: Ino, name: &str) -> anyhow::Result<Ino> {
        self.create_of(parent, name, Kind::Object, 0o644)
    }

    fn create_of(&mut self, parent: Ino, name: &str, kind: Kind, mode: u32) -> anyhow::Result<Ino> {
        let made = self.md()?.call(Create {
            parent,
            name: name.as_bytes().to_vec(),
            kind,
            mode,
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

    /// Creates empty objects in one request.
    pub(crate) fn create_many(&mut self, parent: Ino, names: &[String]) -> anyhow::Result<usize> {
        let objects = names
            .iter()
            .map(|name| new_object(parent, name, Vec::new()))
            .collect();
        Ok(self.md()?.call(op::CreateMany { objects })?.len())
    }

    /// Sets the tag `mark` of objects, in one request.
    pub(crate) fn put(&mut self, marks: &[(Ino, Value)]) -> anyhow::Result<()> {
        let change = |(ino, value): &(Ino, Value)| TagChange {
            ino: *ino,
            set: vec![("mark".to_owned(), tag(value))],
            remove: Vec::new(),
        };
        let changes = marks.iter().map(change).collect();
        Ok(self.md()?.call(op::Tag { changes })?)
    }

    /// Paths that a query in the language of slabfs finds, if they are few.
    pub(crate) fn find(&mut self, query: String) -> anyhow::Result<Vec<String>> {
        let mut find = Find {
            query,
            limit: MAX_HITS,
            ..Find::default()
        };
        let mut paths = Vec::new();
        // A page ends early where its thread gets no processor for a while.
        loop {
            let found = self.md()?.call(find.clone())?;
            let hits = found.hits.into_iter();
            let texts = hits
                .map(|hit| String::from_utf8(hit.path).context("a path that is no text"))
                .collect::<Result<Vec<_>, _>>()?;
            paths.extend(texts);
            match found.next {
                None => return Ok(paths),
                next => find.after = next,
            }
        }
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
