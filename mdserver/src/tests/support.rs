//! Test support: a service, and shorthands for its requests.

use slabfs_model::{Codec, Coords, Hyperslab, Region, ServerId};
use slabfs_objstore::server::{Retire, ServerOrders, ServerReport};
use slabfs_objstore::store::Space;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{
    ArrayInfo, Commit, CommitReply, Create, Entry, Ino, Kind, Lease, MdError, Metadata, ROOT,
    Reply, Request, SpecChange, Stored, StoredChunk, op,
};
use crate::client::Md;
use crate::kv::MemoryKv;
use crate::{LocalMd, Service, ServiceOptions};

pub(crate) const UUID: [u8; 16] = [7; 16];

/// Options with which the background thread does nothing by itself.
pub(crate) fn quiet() -> ServiceOptions {
    ServiceOptions {
        upkeep: Duration::from_secs(3600),
        silence: Duration::from_secs(3600),
        ..ServiceOptions::default()
    }
}

pub(crate) fn service() -> Arc<Service> {
    Arc::new(Service::over(Box::new(MemoryKv::new()), quiet()).unwrap().0)
}

pub(crate) fn service_in(dir: &Path) -> Arc<Service> {
    Arc::new(Service::open(dir, quiet()).unwrap().0)
}

pub(crate) fn attach(service: &Arc<Service>) -> Md {
    let metadata = Arc::new(LocalMd(Arc::clone(service)));
    Md::attach(metadata, "here", 1, false).unwrap().0
}

/// A service as another process sees it.
pub(crate) struct Remote(pub(crate) Arc<Service>);

impl Metadata for Remote {
    fn call(&self, request: Request) -> Result<Reply, MdError> {
        self.0.call_remote(request)
    }

    fn session_count(&self) -> u32 {
        self.0.session_count()
    }
}

/// A service, a session in its process, and one data server.
pub(crate) fn ready() -> (Arc<Service>, Md) {
    let service = service();
    beat(&service, vec![]);
    let md = attach(&service);
    (service, md)
}

/// Sends the report of a data server that applies all orders.
pub(crate) fn beat(service: &Service, deleted: Vec<Retire>) -> ServerOrders {
    beat_of(service, UUID, deleted)
}

pub(crate) fn beat_of(service: &Service, uuid: [u8; 16], deleted: Vec<Retire>) -> ServerOrders {
    let space = Space {
        total: 100,
        free: 60,
        used: 40,
        disk: None,
    };
    let report = ServerReport {
        memory: false,
        uuid,
        id: None,
        addr: None,
        host: "node1".into(),
        space,
        chunks: 0,
        stored: 0,
        engine: Vec::new(),
        deleted,
        obeys: 0,
    };
    let orders = service.register(report.clone()).unwrap();
    let Some(sessions) = orders.sessions else {
        return orders;
    };
    let obeys = ServerReport {
        memory: false,
        deleted: vec![],
        obeys: sessions.version,
        ..report
    };
    service.register(obeys).unwrap()
}

pub(crate) fn new(parent: Ino, name: &str, kind: Kind) -> Create {
    Create {
        parent,
        name: name.as_bytes().to_vec(),
        kind,
        mode: 0o644,
        uid: 1,
        gid: 2,
        rdev: 0,
        target: (kind == Kind::Symlink).then(|| b"target".to_vec()),
        exclusive: true,
        open: false,
    }
}

pub(crate) fn make(md: &Md, parent: Ino, name: &str, kind: Kind) -> Result<Ino, MdError> {
    md.call(new(parent, name, kind))
        .map(|created| created.entry.attr.ino)
}

pub(crate) fn file(md: &Md, name: &str) -> Ino {
    make(md, ROOT, name, Kind::Object).unwrap()
}

pub(crate) fn info(entry: Entry) -> ArrayInfo {
    entry.info.unwrap().into()
}

/// An `aligned` array of bytes.
pub(crate) fn array(md: &Md, name: &str, dims: &[u64]) -> Ino {
    let ino = file(md, name);
    let change = SpecChange {
        dims: Some(Coords::from_slice(dims)),
        ..SpecChange::default()
    };
    md.declare(ino, change, None).unwrap();
    ino
}

pub(crate) fn commit_of(md: &Md, ino: Ino) -> Commit {
    Commit {
        ino,
        generation: info(md.call(op::GetAttr { ino }).unwrap()).generation,
        records: vec![],
        clips: vec![],
        grow_to: None,
        size_at_least: 0,
        mtime: None,
        wrote: true,
        stored: 0,
        settled: false,
    }
}

pub(crate) fn slab(offset: &[u64], shape: &[u64]) -> Hyperslab {
    Hyperslab::from_region(&Region::new(offset, shape))
}

pub(crate) fn stored(lease: &Lease, at: u64) -> Stored {
    Stored::Chunk(StoredChunk {
        chunk: slabfs_model::ChunkId(lease.first.0 + at),
        server: ServerId(1),
        codec: Codec::None,
    })
}

/// Commits one chunk in a box; the lease is taken for it.
pub(crate) fn put(
    md: &Md,
    ino: Ino,
    offset: &[u64],
    shape: &[u64],
) -> Result<(slabfs_model::ChunkId, CommitReply), MdError> {
    let lease = md.call(op::LeaseChunks { count: 1 })?;
    let mut commit = commit_of(md, ino);
    commit.records = vec![(slab(offset, shape), stored(&lease, 0))];
    Ok((lease.first, *md.call(commit)?))
}
