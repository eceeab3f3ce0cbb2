//! A mount with all its services, for one test.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use slabfs_mdserver::api::Metadata;
use slabfs_mdserver::{LocalMd, MdServer, RemoteMd, Service, ServiceOptions};
use slabfs_objstore::client::{Options, Servers};
use slabfs_objstore::server::{DataServer, Fence, Heart, HeartOptions};
use slabfs_objstore::store::{LocalOptions, LocalStore};
use slabfs_objstore::wire::Listener;
use slabfs_objstore::{Addr, ChunkStore};

use crate::client::{Client, ClientOptions};
use crate::clients::Clients;
use crate::mount::{Mount, MountOptions, Running};

/// Where the services of a mount run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Services {
    /// In the mount's process.
    Here,
    /// Behind Unix sockets.
    Away,
}

/// The two kinds of mount; a test of behaviour that programs see runs on both.
pub(super) const BOTH: [Services; 2] = [Services::Here, Services::Away];

/// A mount and its services; dropping it shuts them down.
pub(super) struct Stage {
    pub(super) client: Arc<Client>,
    pub(super) clients: Arc<Clients>,
    pub(super) running: Running,
    root: PathBuf,
    service: Arc<Service>,
    heart: Option<Heart>,
    servers: Option<(MdServer, DataServer)>,
    _directory: tempfile::TempDir,
}

impl Stage {
    /// Starts a mount. Returns `None`, with a message on standard error, where this machine has no FUSE.
    pub(super) fn set(services: Services) -> Option<Stage> {
        Stage::with(services, ClientOptions::default())
    }

    /// The same with other client options.
    pub(super) fn with(services: Services, client: ClientOptions) -> Option<Stage> {
        if !Path::new("/dev/fuse").exists() {
            let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!ci, "/dev/fuse is missing, and CI must test the mount");
            eprintln!("skipped: /dev/fuse is missing");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let socket = |name: &str| Addr::Unix(directory.path().join(name));
        let (service, _) =
            Service::open(&directory.path().join("md"), ServiceOptions::default()).unwrap();
        let service = Arc::new(service);
        let options = LocalOptions {
            fsync: false,
            ..LocalOptions::default()
        };
        let store = LocalStore::open(&directory.path().join("os"), options).unwrap();
        let uuid = store.id();
        let store: Arc<dyn ChunkStore> = Arc::new(store);
        let fence = Arc::new(Fence::in_memory());
        let away = services == Services::Away;
        let servers = away.then(|| {
            let metadata = Listener::bind(&socket("md.sock"), None).unwrap();
            let data = Listener::bind(&socket("os.sock"), None).unwrap();
            (
                MdServer::start(service.clone(), metadata).unwrap(),
                DataServer::start_fenced(store.clone(), data, fence.clone()).unwrap(),
            )
        });
        let reachable = away.then(|| socket("os.sock"));
        let heart = Heart::start(
            store.clone(),
            service.clone(),
            fence,
            HeartOptions::new(uuid, reachable),
        )
        .unwrap();
        let id = heart.registered(Duration::from_secs(30)).unwrap();
        let known = Arc::new(Servers::new(Options::default()));
        let metadata: Arc<dyn Metadata> = if away {
            let deadline = Duration::from_secs(30);
            Arc::new(RemoteMd::connect(socket("md.sock"), None, deadline))
        } else {
            known.add_local(id, store);
            Arc::new(LocalMd(service.clone()))
        };
        let client = Client::start(metadata, known, client).unwrap();
        assert_eq!(client.local(), !away);
        let root = directory.path().join("mnt");
        std::fs::create_dir(&root).unwrap();
        let clients: Arc<Clients> = Arc::new(client.clone().into());
        let running = Mount::start(clients.clone(), &root, &MountOptions::default()).unwrap();
        Some(Stage {
            client,
            clients,
            running,
            root,
            service,
            heart: Some(heart),
            servers,
            _directory: directory,
        })
    }

    /// A path on the mount.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let unmounted = self.running.unmount();
        let stopped = self.client.stop();
        if let Some(heart) = self.heart.take() {
            heart.stop();
        }
        if let Some((metadata, data)) = self.servers.take() {
            metadata.shutdown();
            data.shutdown();
        }
        let closed = self.service.close();
        if !std::thread::panicking() {
            unmounted.unwrap();
            stopped.unwrap();
            closed.unwrap();
        }
    }
}
