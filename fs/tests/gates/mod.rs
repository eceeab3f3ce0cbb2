//! A client over a store that fails or blocks on command.

#![allow(dead_code, reason = "not every program needs all of it")]

use std::io::IoSlice;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use slabfs_fs::client::{Client, ClientOptions, Handle, OpenMode};
use slabfs_mdserver::api::{Create, Ino, Kind, ROOT, SpecChange};
use slabfs_mdserver::client::LocalMd;
use slabfs_mdserver::service::{Service, ServiceOptions};
use slabfs_model::{Coords, Hyperslab, ObjectId};
use slabfs_objstore::client::{Options, Servers};
use slabfs_objstore::server::{Fence, Heart, HeartOptions};
use slabfs_objstore::store::{Allocated, LocalOptions, LocalStore, Patches, Space};
use slabfs_objstore::{ChunkForm, ChunkName, ChunkStore, StoreError};

/// The timeout of all waits in these tests.
const LONGEST: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, StoreError>;

/// The behaviour of the next puts of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    Failing,
    /// Puts block; true if one is blocked.
    Shut(bool),
}

/// A store with a gate, which records the chunks that were put and synced.
pub(crate) struct Gated {
    store: LocalStore,
    gate: Mutex<Gate>,
    changed: Condvar,
    pub(crate) put: Mutex<Vec<ChunkName>>,
    pub(crate) synced: Mutex<Vec<ChunkName>>,
    /// Number of failed puts.
    failed: Mutex<usize>,
}

impl Gated {
    pub(crate) fn set(&self, gate: Gate) {
        *self.gate.lock().unwrap() = gate;
        self.changed.notify_all();
    }

    /// Waits until the gate is in a state; fails after a minute.
    #[track_caller]
    pub(crate) fn until(&self, is: impl Fn(Gate) -> bool) {
        self.wait_while(|gate| !is(*gate));
    }

    /// Waits until this many puts have failed.
    #[track_caller]
    pub(crate) fn until_failed(&self, most: usize) {
        self.wait_while(|_| *self.failed.lock().unwrap() < most);
    }

    #[track_caller]
    fn wait_while(&self, waits: impl FnMut(&mut Gate) -> bool) {
        let gate = self.gate.lock().unwrap();
        let waited = self.changed.wait_timeout_while(gate, LONGEST, waits);
        let (gate, timeout) = waited.unwrap();
        assert!(!timeout.timed_out(), "waited in vain: {:?}", *gate);
    }

    /// Number of failed puts.
    pub(crate) fn failed(&self) -> usize {
        *self.failed.lock().unwrap()
    }

    fn pass_gate(&self) -> Result<()> {
        let mut gate = self.gate.lock().unwrap();
        match *gate {
            Gate::Open => return Ok(()),
            Gate::Failing => {
                *self.failed.lock().unwrap() += 1;
                self.changed.notify_all();
                return Err(StoreError::Protocol("failed on command".into()));
            }
            Gate::Shut(_) => *gate = Gate::Shut(true),
        }
        drop(gate);
        self.changed.notify_all();
        self.until(|gate| gate == Gate::Open);
        Ok(())
    }
}

impl ChunkStore for Gated {
    fn put(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        self.pass_gate()?;
        self.store.put(name, form, data)?;
        self.put.lock().unwrap().push(name.clone());
        Ok(())
    }

    fn put_encoded(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        self.pass_gate()?;
        self.store.put_encoded(name, form, data)?;
        self.put.lock().unwrap().push(name.clone());
        Ok(())
    }

    fn read_encoded(&self, name: &ChunkName) -> Result<Option<Vec<u8>>> {
        self.store.read_encoded(name)
    }

    fn append(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        at: u64,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        self.store.append(name, form, at, data)
    }

    fn seal(&self, name: &ChunkName, form: &ChunkForm) -> Result<()> {
        self.store.seal(name, form)
    }

    fn write(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        self.store.write(name, form, slab, data)
    }

    fn patch(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        end: u64,
        patches: &mut dyn Patches,
    ) -> Result<()> {
        self.store.patch(name, form, end, patches)
    }

    fn read(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()> {
        self.store.read(name, form, slab, out)
    }

    fn show(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        self.store.show(name, form, slab, f)
    }

    fn clip(&self, name: &ChunkName, form: &ChunkForm, keep: &[u64]) -> Result<()> {
        self.store.clip(name, form, keep)
    }

    fn punch(&self, name: &ChunkName, form: &ChunkForm, slab: &Hyperslab) -> Result<()> {
        self.store.punch(name, form, slab)
    }

    fn delete(&self, names: &[ChunkName]) -> Result<()> {
        self.store.delete(names)
    }

    fn delete_generation(&self, object: ObjectId, below: u32) -> Result<()> {
        self.store.delete_generation(object, below)
    }

    fn delete_grid(&self, object: ObjectId) -> Result<()> {
        self.store.delete_grid(object)
    }

    fn sync(&self, names: &[ChunkName]) -> Result<()> {
        self.store.sync(names)?;
        self.synced.lock().unwrap().extend_from_slice(names);
        Ok(())
    }

    fn allocated(&self, name: &ChunkName, from: u64) -> Result<Allocated> {
        self.store.allocated(name, from)
    }

    fn list(&self, after: Option<ChunkName>, limit: usize) -> Result<Vec<(ChunkName, u64)>> {
        self.store.list(after, limit)
    }

    fn space(&self) -> Result<Space> {
        self.store.space()
    }

    fn verify(&self, name: &ChunkName) -> Result<()> {
        self.store.verify(name)
    }
}

/// A client over such a store, and the services that must outlast it.
pub(crate) fn start(
    dir: &Path,
    options: ClientOptions,
) -> (Arc<Client>, Arc<Gated>, Heart, Arc<Service>) {
    let (service, _) = Service::open(&dir.join("md"), ServiceOptions::default()).unwrap();
    let service = Arc::new(service);
    let store = LocalStore::open(&dir.join("os"), LocalOptions::default()).unwrap();
    let uuid = store.id();
    let store = Arc::new(Gated {
        store,
        gate: Mutex::new(Gate::Open),
        changed: Condvar::new(),
        put: Mutex::default(),
        synced: Mutex::default(),
        failed: Mutex::default(),
    });
    let heart = Heart::start(
        store.clone(),
        service.clone(),
        Arc::new(Fence::in_memory()),
        HeartOptions::new(uuid, None),
    )
    .unwrap();
    let id = heart.registered(Duration::from_secs(10)).unwrap();
    let servers = Servers::new(Options::default());
    servers.add_local(id, store.clone());
    let client = Client::start(
        Arc::new(LocalMd(service.clone())),
        Arc::new(servers),
        options,
    )
    .unwrap();
    (client, store, heart, service)
}

pub(crate) const WRITE: OpenMode = OpenMode {
    write: true,
    append: false,
};
pub(crate) const READ: OpenMode = OpenMode {
    write: false,
    append: false,
};

/// An array of bytes, open for writing.
pub(crate) fn array(client: &Arc<Client>, dims: &[u64]) -> (Ino, Arc<Handle>) {
    let (made, writer) = client
        .create(
            Create {
                parent: ROOT,
                name: "array".into(),
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
    let change = SpecChange {
        dtype: Some("u1".parse().unwrap()),
        dims: Some(Coords::from_slice(dims)),
        ..SpecChange::default()
    };
    client.declare(ino, change).unwrap();
    (ino, writer)
}
