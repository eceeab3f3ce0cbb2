//! Conformance of a remote data server: a store behind client, wire and server runs the suite of chunk stores.

use std::io::IoSlice;

use slabfs_model::layout::boxes_of_run;

use super::*;
use crate::{
    error::Result,
    store::{Allocated, LocalOptions, LocalStore, Patches, Space, conformance},
};

/// One server of a fan-out as a chunk store.
struct RemoteStore {
    servers: Servers,
    id: ServerId,
}

impl RemoteStore {
    fn write_as(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        kind: WriteKind<'_>,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        self.servers
            .write(&[WritePiece {
                server: self.id,
                name,
                form,
                kind,
                data,
            }])
            .map(drop)
    }

    fn place(&self, names: &[ChunkName]) -> Vec<(ServerId, ChunkName)> {
        names.iter().map(|name| (self.id, name.clone())).collect()
    }
}

impl ChunkStore for RemoteStore {
    fn put(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        self.write_as(name, form, WriteKind::Put, data)
    }

    fn put_encoded(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        self.write_as(name, form, WriteKind::PutEncoded, data)
    }

    fn read_encoded(&self, name: &ChunkName) -> Result<Option<Vec<u8>>> {
        self.servers.read_encoded(self.id, name)
    }

    fn append(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        at: u64,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        self.write_as(name, form, WriteKind::Append { at }, data)
    }

    fn seal(&self, name: &ChunkName, form: &ChunkForm) -> Result<()> {
        let server = self.id;
        self.servers
            .seal(&[SealPiece { server, name, form }])
            .map(drop)
    }

    fn write(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        self.write_as(name, form, WriteKind::Write(slab), data)
    }

    /// A remote server has no message for this except batches: read, change and write.
    fn patch(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        _: u64,
        patches: &mut dyn Patches,
    ) -> Result<()> {
        let one = Hyperslab::from_region(&Region {
            offset: form.shape.iter().map(|_| 0).collect(),
            shape: form.shape.iter().map(|_| 1).collect(),
        });
        let mut cell = [0];
        if self.read(name, form, &one, &mut cell).is_err() {
            form.fill.paint(&mut cell, 0);
            self.write(name, form, &one, &[IoSlice::new(&cell)])?;
        }
        while let Some(patch) = patches.next() {
            let mut boxes = Vec::new();
            boxes_of_run(&form.shape, patch.from, patch.to - patch.from, &mut boxes);
            let slabs: Vec<_> = boxes.iter().map(Hyperslab::from_region).collect();
            let mut bytes = vec![0; (patch.to - patch.from) as usize];
            let mut rest = &mut bytes[..];
            for slab in &slabs {
                let (part, more) = rest.split_at_mut(slab.volume() as usize);
                self.read(name, form, slab, part)?;
                rest = more;
            }
            patches.apply(&mut bytes);
            let mut rest = &bytes[..];
            for slab in &slabs {
                let (part, more) = rest.split_at(slab.volume() as usize);
                self.write(name, form, slab, &[IoSlice::new(part)])?;
                rest = more;
            }
        }
        Ok(())
    }

    fn read(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()> {
        let mut piece = [ReadPiece {
            server: self.id,
            name,
            form,
            slab,
            out,
            found: false,
        }];
        self.servers.read(&mut piece).map_err(|(_, e)| e)?;
        if piece[0].found {
            Ok(())
        } else {
            Err(StoreError::Missing(name.clone()))
        }
    }

    fn show(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        self.servers.show(self.id, name, form, slab, f)
    }

    fn clip(&self, name: &ChunkName, form: &ChunkForm, keep: &[u64]) -> Result<()> {
        let server = self.id;
        self.servers
            .clip(&[ClipPiece {
                server,
                name,
                form,
                keep,
            }])
            .map(drop)
    }

    fn punch(&self, name: &ChunkName, form: &ChunkForm, slab: &Hyperslab) -> Result<()> {
        let server = self.id;
        self.servers
            .punch(&[PunchPiece {
                server,
                name,
                form,
                slab,
            }])
            .map(drop)
    }

    fn delete(&self, names: &[ChunkName]) -> Result<()> {
        self.servers.delete(&self.place(names))
    }

    fn delete_generation(&self, object: ObjectId, below: u32) -> Result<()> {
        self.servers.delete_generation(&[self.id], object, below)
    }

    fn delete_grid(&self, object: ObjectId) -> Result<()> {
        self.servers.delete_grid(&[self.id], object)
    }

    fn sync(&self, names: &[ChunkName]) -> Result<()> {
        match names {
            [] => self.servers.sync_all(&[self.id]),
            names => self.servers.sync(&self.place(names)).map(drop),
        }
    }

    fn allocated(&self, name: &ChunkName, from: u64) -> Result<Allocated> {
        let found = self.servers.allocated(&[(self.id, name.clone(), from)])?;
        Ok(found[0])
    }

    fn list(&self, after: Option<ChunkName>, limit: usize) -> Result<Vec<(ChunkName, u64)>> {
        self.servers.list(self.id, after, limit as u32)
    }

    fn space(&self) -> Result<Space> {
        self.servers.space(self.id)
    }

    fn verify(&self, name: &ChunkName) -> Result<()> {
        self.servers.verify(self.id, name)
    }
}

#[test]
fn a_remote_store_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let options = LocalOptions {
        fsync: false,
        ..LocalOptions::default()
    };
    let store = LocalStore::open(&dir.path().join("store"), options).unwrap();
    let addr = Addr::Unix(dir.path().join("socket"));
    let listener = Listener::bind(&addr, None).unwrap();
    let server = DataServer::start(Arc::new(store), listener).unwrap();
    let remote = RemoteStore {
        servers: Servers::new(Options::default()),
        id: ServerId(1),
    };
    remote.servers.set_remote(remote.id, addr);
    // All cases, and fewer random operations than for the local store.
    for (_, case) in conformance::cases::ALL {
        case(&remote);
    }
    conformance::random::run(&remote, 1, 200);
    server.shutdown();
}

/// Run by hand: `cargo test -p slabfs-objstore far::throughput -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn throughput() {
    const CHUNK: usize = 1 << 20;
    const COUNT: usize = 512;
    let dir = tempfile::tempdir().unwrap();
    let options = LocalOptions {
        fsync: false,
        ..LocalOptions::default()
    };
    let store = Arc::new(LocalStore::open(&dir.path().join("store"), options).unwrap());
    let addr = Addr::Unix(dir.path().join("socket"));
    let server = DataServer::start(store.clone(), Listener::bind(&addr, None).unwrap()).unwrap();
    let servers = Servers::new(Options::default());
    let (local, remote) = (ServerId(1), ServerId(2));
    servers.add_local(local, store);
    servers.set_remote(remote, addr);
    let form = form(&[CHUNK as u64]);
    let full = Hyperslab::all(&form.shape);
    let data = noise(CHUNK, 1);
    let slices = [IoSlice::new(&data)];
    let mut out = vec![0; CHUNK];
    for (what, server, base) in [("remote", remote, 0), ("local", local, 10_000)] {
        let rate = |begun: std::time::Instant| {
            (COUNT * CHUNK) as f64 / begun.elapsed().as_secs_f64() / 1e9
        };
        let begun = std::time::Instant::now();
        for i in 0..COUNT {
            let name = &free(base + i as u64);
            let kind = WriteKind::Put;
            servers
                .write(&[WritePiece {
                    server,
                    name,
                    form: &form,
                    kind,
                    data: &slices,
                }])
                .unwrap();
        }
        let put = rate(begun);
        let mut reads = [0.0; 2];
        for read in &mut reads {
            let begun = std::time::Instant::now();
            for i in 0..COUNT {
                let name = &free(base + i as u64);
                let out = &mut out[..];
                let piece = ReadPiece {
                    server,
                    name,
                    form: &form,
                    slab: &full,
                    out,
                    found: false,
                };
                servers.read(&mut [piece]).unwrap();
            }
            *read = rate(begun);
        }
        println!(
            "{what}: put {put:.1} GB/s, read {:.1}, again {:.1} GB/s",
            reads[0], reads[1]
        );
    }
    server.shutdown();
}
