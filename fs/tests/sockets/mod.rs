//! A filesystem over Unix sockets: a metadata service and data servers, as threads of this process, with any number of
//! clients. Data servers can be killed and restarted.

#![allow(dead_code, reason = "not every program needs all of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use slabfs_fs::client::{Client, ClientOptions, Handle, OpenMode};
use slabfs_mdserver::api::{Create, Ino, Kind, ROOT, SpecChange};
use slabfs_mdserver::client::{LocalMd, RemoteMd};
use slabfs_mdserver::server::MdServer;
use slabfs_mdserver::service::{Service, ServiceOptions};
use slabfs_model::{Coords, Hyperslab, Region};
use slabfs_objstore::client::{Options, Servers};
use slabfs_objstore::server::{DataServer, Fence, Heart, HeartOptions, Registrar};
use slabfs_objstore::store::{LocalOptions, LocalStore};
use slabfs_objstore::wire::Listener;
use slabfs_objstore::{Addr, ChunkStore};

pub(crate) const WRITE: OpenMode = OpenMode {
    write: true,
    append: false,
};

/// One data server.
pub(crate) struct DataNode {
    store: Arc<LocalStore>,
    addr: Addr,
    server: Option<DataServer>,
    fence: Arc<Fence>,
    heart: Heart,
}

impl DataNode {
    fn start(dir: &Path, number: usize, service: &Arc<Service>) -> DataNode {
        let dir = dir.join(format!("os{number}"));
        let store = Arc::new(LocalStore::open(&dir, LocalOptions::default()).unwrap());
        let addr = Addr::Unix(dir.join("sock"));
        let fence = Arc::new(Fence::in_memory());
        let shared: Arc<dyn ChunkStore> = store.clone();
        let heart = Heart::start(
            shared,
            service.clone(),
            fence.clone(),
            HeartOptions::new(store.id(), Some(addr.clone())),
        )
        .unwrap();
        heart.registered(Duration::from_secs(10)).unwrap();
        let mut node = DataNode {
            store,
            addr,
            server: None,
            fence,
            heart,
        };
        node.revive();
        node
    }

    /// Aborts all its connections.
    pub(crate) fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
        }
    }

    /// The path of its socket.
    pub(crate) fn socket(&self) -> &Path {
        match &self.addr {
            Addr::Unix(path) => path,
            Addr::Tcp(_) => unreachable!("all are Unix sockets"),
        }
    }

    /// Listens again.
    pub(crate) fn revive(&mut self) {
        let listener = Listener::bind(&self.addr, None).unwrap();
        let store: Arc<dyn ChunkStore> = self.store.clone();
        self.server = Some(DataServer::start_fenced(store, listener, self.fence.clone()).unwrap());
    }
}

/// A filesystem.
pub(crate) struct Cluster {
    md: PathBuf,
    service: Arc<Service>,
    server: Option<MdServer>,
    pub(crate) nodes: Vec<DataNode>,
}

impl Cluster {
    pub(crate) fn open(dir: &Path, servers: usize) -> Cluster {
        let (service, _) = Service::open(&dir.join("md"), ServiceOptions::default()).unwrap();
        let service = Arc::new(service);
        let md = dir.join("md.sock");
        let listener = Listener::bind(&Addr::Unix(md.clone()), None).unwrap();
        let server = MdServer::start(service.clone(), listener).unwrap();
        let nodes = (0..servers).map(|n| DataNode::start(dir, n, &service));
        Cluster {
            nodes: nodes.collect(),
            md,
            server: Some(server),
            service,
        }
    }

    /// The address of its metadata service.
    pub(crate) fn place(&self) -> String {
        format!("unix:{}", self.md.display())
    }

    pub(crate) fn client(&self, options: ClientOptions) -> Arc<Client> {
        let deadline = options.io_timeout;
        let md = RemoteMd::connect(Addr::Unix(self.md.clone()), None, deadline);
        let servers = Servers::new(Options {
            deadline,
            ..Options::default()
        });
        Client::start(Arc::new(md), Arc::new(servers), options).unwrap()
    }

    /// A client that calls the metadata service directly, and has the stores of the data servers in this process.
    pub(crate) fn local_client(&self, options: ClientOptions) -> Arc<Client> {
        let servers = Servers::new(Options::default());
        for node in &self.nodes {
            let id = node.heart.registered(Duration::from_secs(10)).unwrap();
            servers.add_local(id, node.store.clone());
        }
        let md = Arc::new(LocalMd(self.service.clone()));
        Client::start(md, Arc::new(servers), options).unwrap()
    }

    /// The metadata service, as data servers know it.
    pub(crate) fn registrar(&self) -> Arc<dyn Registrar> {
        self.service.clone()
    }

    /// The address of the metadata service.
    pub(crate) fn metadata(&self) -> Addr {
        Addr::Unix(self.md.clone())
    }

    pub(crate) fn close(mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown();
        }
        for mut node in self.nodes {
            node.heart.stop();
            if let Some(server) = node.server.take() {
                server.shutdown();
            }
        }
        self.service.close().unwrap();
    }
}

/// Creates an object and opens it.
pub(crate) fn create(client: &Arc<Client>, name: &str, spec: SpecChange) -> (Ino, Arc<Handle>) {
    let (made, handle) = client
        .create(
            Create {
                parent: ROOT,
                name: name.into(),
                kind: Kind::Object,
                mode: 0o644,
                uid: 0,
                gid: 0,
                rdev: 0,
                target: None,
                exclusive: true,
                open: true,
            },
            WRITE,
        )
        .unwrap();
    let ino = made.entry.attr.ino;
    client.declare(ino, spec).unwrap();
    (ino, handle)
}

/// The spec of an object with this dtype, dims and layout.
pub(crate) fn spec(dtype: &str, dims: &[u64], layout: &str) -> SpecChange {
    SpecChange {
        dtype: Some(dtype.parse().unwrap()),
        dims: Some(Coords::from_slice(dims)),
        layout: Some(layout.parse().unwrap()),
        ..SpecChange::default()
    }
}

/// Options with small limits, so that small arrays are cut.
pub(crate) fn options() -> ClientOptions {
    ClientOptions {
        chunk_limit: 400,
        direct_min: 64,
        io_timeout: Duration::from_secs(20),
        ..ClientOptions::default()
    }
}

/// A box.
pub(crate) fn slab(offset: &[u64], shape: &[u64]) -> Hyperslab {
    Hyperslab::from_region(&Region::new(offset, shape))
}

/// A number in the statistics.
pub(crate) fn number(client: &Client, key: &str) -> u64 {
    client.stats().pointer(key).unwrap().as_u64().unwrap()
}

/// Messages to data servers so far.
pub(crate) fn messages(client: &Client) -> u64 {
    number(client, "/counters/messages")
}

/// All bytes of an object.
pub(crate) fn read_all(handle: &Handle) -> Vec<u8> {
    let mut bytes = Vec::new();
    let len = handle.size() as usize;
    handle
        .read(0, len, &mut |part: &[u8]| bytes.extend_from_slice(part))
        .unwrap();
    bytes
}
