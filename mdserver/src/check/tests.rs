//! Tests with stores that are damaged in one way each: the check reports this damage and nothing else.

use slabfs_model::{ChunkId, Coords, ObjectId, ServerId, SessionId, Version};
use slabfs_objstore::store::{LocalOptions, LocalStore};
use slabfs_objstore::{ChunkName, ChunkStore};
use std::io::IoSlice;
use std::sync::Arc;

use super::{Class, Depth, Facts, Finding, Looked, metadata};
use crate::api::{
    Kind, Metadata, ROOT, RenameFlags, ResizeHow, Stored, StoredChunk, XattrFlags, op,
};
use crate::client::Md;
use crate::keys;
use crate::kv::{Batch, Key, KvError, Lsn, MemoryKv, MetaKv, Pair};
use crate::namespace::first_slot;
use crate::records::{Body, Inode, Slot, Tile, decode, encode};
use crate::tests::support::*;
use crate::{LocalMd, Service};

/// A store that the test can read and change directly.
#[derive(Debug, Clone)]
struct Shared(Arc<MemoryKv>);

impl MetaKv for Shared {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.0.get(key)
    }
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        self.0.scan(from, to, limit)
    }
    fn commit(&self, batch: Batch) -> Result<Lsn, KvError> {
        self.0.commit(batch)
    }
    fn sync(&self) -> Result<Lsn, KvError> {
        self.0.sync()
    }
    fn synced(&self) -> Lsn {
        self.0.synced()
    }
    fn checkpoint(&self) -> Result<(), KvError> {
        self.0.checkpoint()
    }
    fn close(&self) -> Result<(), KvError> {
        Ok(())
    }
}

/// A service over a store that the test can access, with one data server and a session of another process.
fn running() -> (Shared, Arc<Service>, Md) {
    let kv = Shared(Arc::new(MemoryKv::new()));
    let service = Service::over(Box::new(kv.clone()), quiet()).unwrap().0;
    beat(&service, vec![]);
    let service = Arc::new(service);
    let (md, _) = Md::attach(
        Arc::new(Remote(LocalMd(Arc::clone(&service)))),
        "there",
        7,
        false,
    )
    .unwrap();
    (kv, service, md)
}

/// A caller in this process that the service treats as another process.
struct Remote(LocalMd);

impl Metadata for Remote {
    fn call(&self, request: crate::api::Request) -> Result<crate::api::Reply, crate::api::MdError> {
        self.0.0.call_remote(request)
    }
    fn session_count(&self) -> u32 {
        self.0.session_count()
    }
}

/// A service with records of every kind.
fn busy() -> (Shared, Arc<Service>, Md) {
    let (kv, service, md) = running();
    let dir = make(&md, ROOT, "dir", Kind::Directory).unwrap();
    let sub = make(&md, dir, "sub", Kind::Directory).unwrap();
    make(&md, sub, "link", Kind::Symlink).unwrap();
    make(&md, sub, "fifo", Kind::Fifo).unwrap();
    let a = array(&md, "a", &[8, 8]);
    md.link(a, sub, b"hard").unwrap();
    md.setxattr(a, b"user.k", b"v".to_vec().as_slice(), XattrFlags::Either)
        .unwrap();
    put(&md, a, &[0, 0], &[8, 8]).unwrap();
    put(&md, a, &[0, 0], &[8, 8]).unwrap();
    put(&md, a, &[2, 0], &[2, 8]).unwrap();
    let b = array(&md, "b", &[8, 8]);
    put(&md, b, &[0, 0], &[4, 8]).unwrap();
    put(&md, b, &[4, 0], &[4, 8]).unwrap();
    md.resize(b, Coords::from_slice(&[3, 8]), ResizeHow::SetDims)
        .unwrap();
    let cleared = array(&md, "cleared", &[8, 8]);
    put(&md, cleared, &[0, 0], &[4, 8]).unwrap();
    md.call(op::Clear { ino: cleared }).unwrap();
    let open = array(&md, "open", &[8]);
    put(&md, open, &[0], &[8]).unwrap();
    md.call(op::Open { ino: open }).unwrap();
    md.unlink(ROOT, b"open").unwrap();
    let gone = array(&md, "gone", &[8]);
    put(&md, gone, &[0], &[8]).unwrap();
    md.unlink(ROOT, b"gone").unwrap();
    // More attributes than fit into one row, and more names than an inode records.
    let spread = file(&md, "spread");
    for n in 0..20 {
        let name = format!("user.k{n}");
        md.setxattr(spread, name.as_bytes(), &[7; 1000], XattrFlags::Either)
            .unwrap();
    }
    for n in 0..40 {
        md.link(spread, ROOT, format!("l{n}").as_bytes()).unwrap();
    }
    md.unlink(ROOT, b"spread").unwrap();
    md.unlink(ROOT, b"l0").unwrap();
    md.rename(ROOT, b"b", sub, b"b2", RenameFlags::Replace)
        .unwrap();
    md.call(op::LeaseChunks { count: 5 }).unwrap();
    (kv, service, md)
}

fn check(kv: &dyn MetaKv) -> (Facts, Vec<Finding>) {
    let mut found = Vec::new();
    let facts = metadata(kv, &mut |finding| found.push(finding)).unwrap();
    (facts, found)
}

fn clean(kv: &dyn MetaKv) {
    let (_, found) = check(kv);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_service_leaves_a_consistent_store_at_every_step() {
    let (kv, service, md) = busy();
    clean(&kv);
    service.settle_down().unwrap();
    clean(&kv);
    let a = md.lookup(ROOT, b"a").unwrap().attr.ino;
    let version = info(md.call(op::GetAttr { ino: a }).unwrap()).tiling;
    md.settle(a, version).unwrap();
    clean(&kv);
    let orders = beat(&service, vec![]).delete;
    beat(&service, orders);
    clean(&kv);
    md.call(op::Detach { clean: false }).unwrap();
    clean(&kv);
    let (facts, _) = check(&kv);
    assert!(
        facts.census.inodes > 5 && facts.census.tiles > 2,
        "{facts:?}"
    );
}

#[test]
fn an_empty_store_is_consistent() {
    let (kv, _service, _md) = running();
    clean(&kv);
}

#[test]
fn another_format_is_refused() {
    let (kv, _service, _md) = running();
    kv.commit(with(keys::FORMAT.to_vec(), encode(&1u32).unwrap()))
        .unwrap();
    let error = metadata(&kv, &mut |finding| panic!("{finding}")).unwrap_err();
    assert!(error.to_string().contains("format 1"), "{error}");
}

/// Applies `damage` to a busy store and returns the findings.
fn found(damage: impl FnOnce(&Shared, &Md) -> Batch) -> Vec<Finding> {
    let (kv, service, md) = busy();
    service.settle_down().unwrap();
    let batch = damage(&kv, &md);
    kv.commit(batch).unwrap();
    check(&kv).1
}

/// Asserts that exactly these classes are found, and that the findings contain all `words`.
#[track_caller]
fn names(classes: &[Class], words: &[&str], damage: impl FnOnce(&Shared, &Md) -> Batch) {
    let found = found(damage);
    let mut seen: Vec<Class> = found.iter().map(|finding| finding.class).collect();
    seen.sort_unstable();
    seen.dedup();
    let mut wanted = classes.to_vec();
    wanted.sort_unstable();
    assert_eq!(seen, wanted, "{found:#?}");
    let text: String = found.iter().map(|finding| format!("{finding}\n")).collect();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in:\n{text}");
    }
}

fn ino(md: &Md, name: &str) -> ObjectId {
    md.lookup(ROOT, name.as_bytes()).unwrap().attr.ino
}

fn with_inode(kv: &Shared, ino: ObjectId, change: impl FnOnce(&mut Inode)) -> Batch {
    let key = keys::inode(ino);
    let mut inode: Inode = decode(&key, &kv.get(&key).unwrap().unwrap()).unwrap();
    change(&mut inode);
    let mut batch = Batch::new();
    batch.put(key, encode(&inode).unwrap());
    batch
}

fn without(key: impl Into<Key>) -> Batch {
    let mut batch = Batch::new();
    batch.delete(key);
    batch
}

fn with(key: impl Into<Key>, value: Vec<u8>) -> Batch {
    let mut batch = Batch::new();
    batch.put(key, value);
    batch
}

/// Returns the first pair of a table.
fn first(kv: &Shared, letter: u8) -> Pair {
    let pairs = kv.scan(&[letter], &[letter + 1], 1).unwrap();
    pairs.into_iter().next().expect("a row")
}

#[test]
fn records_that_cannot_be_read() {
    names(
        &[Class::Unreadable, Class::Counter],
        &["inode 9999"],
        |_, _| with(keys::inode(ObjectId(9999)), vec![1, 2]),
    );
    names(
        &[Class::Unreadable, Class::Counter],
        &["wrong length"],
        |_, _| with(b"i123".to_vec(), vec![1]),
    );
    names(&[Class::UnknownKey], &["no such table"], |_, _| {
        with(b"Kx".to_vec(), vec![1])
    });
}

#[test]
fn counters_that_are_behind() {
    for (key, words) in [
        (keys::NEXT_INO, "inode"),
        (keys::NEXT_CHUNK, "chunk"),
        (keys::NEXT_SESSION, "session"),
    ] {
        names(&[Class::Counter], &[words, "a second time"], |_, _| {
            with(key.to_vec(), encode(&1u64).unwrap())
        });
    }
    names(&[Class::Counter], &["data server 1"], |_, _| {
        with(keys::NEXT_SERVER.to_vec(), encode(&1u32).unwrap())
    });
    names(&[Class::Counter], &["there are"], |_, _| {
        with(keys::INODES.to_vec(), encode(&1u64).unwrap())
    });
    names(&[Class::Counter], &["format"], |_, _| {
        without(keys::FORMAT.to_vec())
    });
}

#[test]
fn inodes_that_contradict_themselves() {
    names(&[Class::Inode], &["its dims make 64"], |kv, md| {
        with_inode(kv, ino(md, "a"), |inode| inode.attr.size = 63)
    });
    names(&[Class::Inode], &["greatest allocated"], |kv, md| {
        with_inode(kv, ino(md, "a"), |inode| {
            inode.object_mut().unwrap().spare = 0;
        })
    });
    names(&[Class::Server], &["data server 77"], |kv, md| {
        with_inode(kv, ino(md, "a"), |inode| {
            inode.object_mut().unwrap().info.stripe = vec![ServerId(77)];
        })
    });
}

#[test]
fn names_and_links() {
    names(
        &[Class::Links],
        &["link count is 3", "2 names"],
        |kv, md| with_inode(kv, ino(md, "a"), |inode| inode.attr.nlink = 3),
    );
    names(&[Class::Links, Class::Directory], &[], |_, _| {
        without(keys::slot(ROOT, first_slot(b"a")))
    });
    names(&[Class::Links], &["a wrong path"], |kv, md| {
        with_inode(kv, ino(md, "a"), |inode| {
            inode.names.pop();
            inode.add_name(ROOT, 99, b"a");
        })
    });
    names(&[Class::Links], &["a wrong path"], |kv, md| {
        with_inode(kv, ino(md, "a"), |inode| inode.add_name(ROOT, 99, b"a"))
    });
    names(&[Class::Links], &["is not where"], |_, md| {
        let name = encode(&b"a"[..]).unwrap();
        with(keys::name(ino(md, "a"), ROOT, 99), name)
    });
    names(&[Class::Links], &["a wrong path"], |kv, _| {
        without(first(kv, b'n').0)
    });
    names(&[Class::Name, Class::Links], &["does not exist"], |_, _| {
        let slot = Slot::Entry {
            name: b"a".to_vec(),
            ino: ObjectId(9999),
        };
        with(keys::slot(ROOT, first_slot(b"a")), encode(&slot).unwrap())
    });
    // In another slot than the lookup expects.
    names(
        &[Class::Name, Class::Links],
        &["it cannot be found"],
        |kv, _| {
            let key = keys::slot(ROOT, first_slot(b"a"));
            let value = kv.get(&key).unwrap().unwrap();
            let mut batch = without(key);
            batch.put(keys::slot(ROOT, first_slot(b"a") + 1), value);
            batch
        },
    );
    names(
        &[Class::Name, Class::Links],
        &["is not a valid name"],
        |kv, _| {
            let key = keys::slot(ROOT, first_slot(b"a"));
            let Slot::Entry { ino, .. } = decode(&key, &kv.get(&key).unwrap().unwrap()).unwrap()
            else {
                panic!("a name")
            };
            let slot = Slot::Entry {
                name: b"x/y".to_vec(),
                ino,
            };
            let mut batch = without(key);
            batch.put(keys::slot(ROOT, first_slot(b"x/y")), encode(&slot).unwrap());
            batch
        },
    );
    names(&[Class::Name], &["rest of a chain"], |_, _| {
        with(keys::slot(ROOT, 20), encode(&Slot::Gone).unwrap())
    });
}

#[test]
fn directories() {
    names(&[Class::Directory], &["wrong by 7"], |kv, _| {
        with_inode(kv, ROOT, |inode| {
            let Body::Directory { entries, .. } = &mut inode.body else {
                panic!("a directory")
            };
            *entries += 7;
        })
    });
    names(&[Class::Directory], &["its parent is 1"], |kv, md| {
        let sub = md.lookup(ino(md, "dir"), b"sub").unwrap().attr.ino;
        with_inode(kv, sub, |inode| {
            let Body::Directory { parent, .. } = &mut inode.body else {
                panic!("a directory")
            };
            *parent = ROOT;
        })
    });
    // `dir` and its subdirectory form a cycle.
    names(
        &[Class::Directory, Class::Links],
        &["is inside itself"],
        |kv, md| {
            let dir = ino(md, "dir");
            let sub = md.lookup(dir, b"sub").unwrap().attr.ino;
            let mut batch = with_inode(kv, dir, |inode| {
                let Body::Directory { parent, .. } = &mut inode.body else {
                    panic!("a directory")
                };
                *parent = sub;
            });
            let slot = Slot::Entry {
                name: b"dir".to_vec(),
                ino: dir,
            };
            batch.delete(keys::slot(ROOT, first_slot(b"dir")));
            batch.put(keys::slot(sub, first_slot(b"dir")), encode(&slot).unwrap());
            batch
        },
    );
    names(
        &[Class::Directory, Class::Links],
        &["cannot be reached"],
        |_, _| without(keys::slot(ROOT, first_slot(b"dir"))),
    );
}

#[test]
fn unlinked_inodes() {
    names(&[Class::Orphan], &["would never be removed"], |kv, _| {
        without(first(kv, b'p').0)
    });
    names(&[Class::Orphan], &["has a name"], |_, md| {
        with(keys::orphan(ino(md, "a")), encode(&()).unwrap())
    });
    names(&[Class::Orphan], &["9999 does not exist"], |_, _| {
        with(keys::orphan(ObjectId(9999)), encode(&()).unwrap())
    });
}

#[test]
fn attributes() {
    names(&[Class::Attribute], &["wrong by 1"], |kv, _| {
        without(first(kv, b'x').0)
    });
    names(&[Class::Attribute], &["9999 does not exist"], |kv, _| {
        with(keys::xattr(ObjectId(9999), b""), first(kv, b'x').1)
    });
    names(&[Class::Unreadable, Class::Attribute], &[], |kv, _| {
        with(first(kv, b'x').0, vec![1, 9, 9])
    });
    names(&[Class::Attribute], &["the other way round"], |kv, md| {
        with_inode(kv, ino(md, "a"), |inode| inode.xattrs.spread = true)
    });
}

#[test]
fn tilings() {
    // A missing record: its bytes are missing in the sum.
    names(&[Class::Tile], &["stored bytes"], |kv, _| {
        without(first(kv, b't').0)
    });
    names(&[Class::Tile], &["belongs to no object"], |kv, _| {
        with(keys::tile(ObjectId(9999), 1, 0), fill_of(kv))
    });
    names(&[Class::Tile], &["the object is at"], |kv, md| {
        with(keys::tile(ino(md, "a"), 99, 0), fill_of(kv))
    });
    names(&[Class::Tile], &["has no purge record"], |kv, md| {
        with(keys::tile(ino(md, "a"), 0, 0), fill_of(kv))
    });
    names(&[Class::Tile], &["a second time"], |kv, md| {
        let generation = info(md.call(op::GetAttr { ino: ino(md, "a") }).unwrap()).generation;
        with(keys::tile(ino(md, "a"), generation, 99), fill_of(kv))
    });
    names(&[Class::Tile], &["beyond the object's dims"], |kv, _| {
        let (key, value) = first(kv, b't');
        let mut tile: Tile = decode(&key, &value).unwrap();
        let mut axes = tile.slab.axes.clone();
        axes[0].start += 5;
        tile.slab.axes = axes;
        with(key, encode(&tile).unwrap())
    });
    // Boxes that do not contain their records.
    names(
        &[Class::Tile],
        &["outside the box of its block on level 1"],
        |_, md| {
            let a = ino(md, "a");
            let generation = info(md.call(op::GetAttr { ino: a }).unwrap()).generation;
            with(keys::bounds(a, generation, 0, 0), encode(&()).unwrap())
        },
    );
    names(&[Class::Tile], &["belongs to no object"], |_, _| {
        with(keys::bounds(ObjectId(9999), 1, 0, 0), encode(&()).unwrap())
    });
    names(&[Class::Order], &["to be purged"], |_, md| {
        with(keys::purge(ino(md, "a")), encode(&77u32).unwrap())
    });
    names(&[Class::Tile], &["in version 99"], |_, md| {
        let a = ino(md, "a");
        let generation = info(md.call(op::GetAttr { ino: a }).unwrap()).generation;
        let key = keys::waiting(a, generation, Version(99), ChunkId(0));
        with(key, encode(&(ServerId(1), SessionId(1))).unwrap())
    });
}

/// A record of a hole.
fn fill_of(kv: &Shared) -> Vec<u8> {
    let (key, value) = first(kv, b't');
    let mut tile: Tile = decode(&key, &value).unwrap();
    tile.value = Stored::Fill;
    encode(&tile).unwrap()
}

#[test]
fn chunk_ids_used_twice() {
    let chunk_of = |kv: &Shared| {
        let (key, value) = first(kv, b't');
        let Stored::Chunk(chunk) = decode::<Tile>(&key, &value).unwrap().value else {
            panic!("a chunk")
        };
        chunk
    };
    // In use, and ordered to be deleted: the worst case.
    names(&[Class::ChunkId], &["an order to delete"], |kv, _| {
        let StoredChunk { chunk, server, .. } = chunk_of(kv);
        with(
            keys::retired(server, b'c', chunk.0, 0),
            encode(&()).unwrap(),
        )
    });
    names(&[Class::ChunkId], &["replaced chunks"], |kv, md| {
        let StoredChunk { chunk, server, .. } = chunk_of(kv);
        let a = ino(md, "a");
        let generation = info(md.call(op::GetAttr { ino: a }).unwrap()).generation;
        let key = keys::waiting(a, generation, Version(1), chunk);
        with(key, encode(&(server, SessionId(1))).unwrap())
    });
    names(
        &[Class::ChunkId],
        &["is leased and not committed"],
        |kv, _| {
            let (key, value) = first(kv, b'e');
            let mut part: crate::records::LeaseRecord = decode(&key, &value).unwrap();
            let [session, _] = keys::numbers(&key, [8, 8]).unwrap();
            part.used = vec![0];
            part.count = 1;
            with(
                keys::lease(SessionId(session), chunk_of(kv).chunk.0),
                encode(&part).unwrap(),
            )
        },
    );
}

#[test]
fn sessions() {
    names(
        &[Class::Session],
        &["session 99 does not exist"],
        |_, md| {
            with(
                keys::open(SessionId(99), ino(md, "a")),
                encode(&1u32).unwrap(),
            )
        },
    );
    names(&[Class::Session], &["does not exist"], |_, _| {
        with(
            keys::open(SessionId(1), ObjectId(9999)),
            encode(&1u32).unwrap(),
        )
    });
    names(&[Class::Session], &["words of bits"], |kv, _| {
        let (key, value) = first(kv, b'e');
        let mut part: crate::records::LeaseRecord = decode(&key, &value).unwrap();
        part.count = 2000;
        with(key, encode(&part).unwrap())
    });
}

#[test]
fn servers_and_orders() {
    names(&[Class::Server], &["same directory"], |kv, _| {
        let (_, value) = first(kv, b'v');
        let mut batch = with(keys::server(ServerId(2)), value);
        batch.put(keys::NEXT_SERVER.to_vec(), encode(&3u32).unwrap());
        batch
    });
    names(&[Class::Server], &["data server 1"], |_, _| {
        without(keys::server(ServerId(1)))
    });
    // The same order for a server that no longer holds the object's chunks is no error.
    names(&[], &[], |kv, md| {
        let (key, value) = first(kv, b'v');
        let mut server: crate::records::ServerRecord = decode(&key, &value).unwrap();
        server.uuid = [99; 16];
        let mut batch = with(keys::server(ServerId(2)), encode(&server).unwrap());
        batch.put(keys::NEXT_SERVER.to_vec(), encode(&3u32).unwrap());
        let order = keys::retired(ServerId(2), b'g', ino(md, "a").0, 50);
        batch.put(order, encode(&()).unwrap());
        batch
    });
    names(&[Class::Order], &["to delete all of it"], |_, md| {
        with(
            keys::retired(ServerId(1), b'o', ino(md, "a").0, 0),
            encode(&()).unwrap(),
        )
    });
    names(&[Class::Order], &["below 50"], |_, md| {
        with(
            keys::retired(ServerId(1), b'g', ino(md, "a").0, 50),
            encode(&()).unwrap(),
        )
    });
}

/// An array of two chunks, with their data on a data server.
struct Filled {
    _dir: tempfile::TempDir,
    kv: Shared,
    md: Md,
    service: Arc<Service>,
    store: LocalStore,
    chunks: [ChunkName; 2],
}

fn store_in(dir: &std::path::Path) -> LocalStore {
    LocalStore::open(
        dir,
        LocalOptions {
            fsync: false,
            ..LocalOptions::default()
        },
    )
    .unwrap()
}

fn filled() -> Filled {
    let (kv, service, md) = running();
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let rows = 1 << 14;
    let a = array(&md, "a", &[2 * rows, 8]);
    // The first chunk is small, the second has a file of its own.
    let chunks = [(0, 8), (rows, rows)].map(|(at, rows)| {
        let (chunk, _) = put(&md, a, &[at, 0], &[rows, 8]).unwrap();
        let name = ChunkName::Free(chunk);
        store_chunk(&store, &md, &name, rows);
        name
    });
    Filled {
        _dir: dir,
        kv,
        md,
        service,
        store,
        chunks,
    }
}

/// A chunk of bytes.
fn store_chunk_of(store: &LocalStore, chunk: ChunkId, shape: &[u64]) {
    let form = slabfs_objstore::ChunkForm {
        shape: Coords::from_slice(shape),
        elem: 1,
        codec: slabfs_model::Codec::None,
        fill: slabfs_model::Fill::zero(),
    };
    let bytes = vec![7; form.volume().unwrap() as usize];
    store
        .put(&ChunkName::Free(chunk), &form, &[IoSlice::new(&bytes)])
        .unwrap();
}

fn store_chunk(store: &LocalStore, md: &Md, name: &ChunkName, rows: u64) {
    let info = info(md.lookup(ROOT, b"a").unwrap());
    let ChunkName::Free(chunk) = *name else {
        panic!("a free chunk")
    };
    let stored = StoredChunk {
        chunk,
        server: ServerId(1),
        codec: slabfs_model::Codec::None,
    };
    let form = stored.form(&slab(&[0, 0], &[rows, 8]), &info);
    let bytes = vec![7; form.volume().unwrap() as usize];
    store.put(name, &form, &[IoSlice::new(&bytes)]).unwrap();
}

impl Filled {
    fn look(&self, depth: Depth) -> (Looked, Vec<Finding>) {
        let (facts, found) = check(&self.kv);
        assert!(found.is_empty(), "{found:#?}");
        let mut found = Vec::new();
        let looked = facts
            .chunks(
                &self.kv,
                (ServerId(1), &self.store),
                depth,
                &mut |finding| found.push(finding),
                &mut |_| (),
            )
            .unwrap();
        (looked, found)
    }

    #[track_caller]
    fn finds(&self, depth: Depth, class: Class, name: &ChunkName) {
        let (_, found) = self.look(depth);
        let [one] = found.as_slice() else {
            panic!("{found:#?}")
        };
        assert_eq!(one.class, class, "{one}");
        assert!(one.subject.starts_with(&name.to_string()), "{one}");
    }
}

#[test]
fn undamaged_chunks() {
    let filled = filled();
    for depth in [Depth::Heads, Depth::Data] {
        let (looked, found) = filled.look(depth);
        assert!(found.is_empty(), "{found:#?}");
        assert_eq!(looked.chunks, 2);
    }
}

#[test]
fn chunks_that_are_missing() {
    for at in 0..2 {
        let filled = filled();
        let name = filled.chunks[at].clone();
        filled.store.delete(std::slice::from_ref(&name)).unwrap();
        filled.finds(Depth::Heads, Class::MissingChunk, &name);
    }
}

#[test]
fn chunks_of_another_form() {
    for at in 0..2 {
        let filled = filled();
        let name = filled.chunks[at].clone();
        filled.store.delete(std::slice::from_ref(&name)).unwrap();
        store_chunk(&filled.store, &filled.md, &name, 5000);
        filled.finds(Depth::Heads, Class::WrongForm, &name);
    }
}

#[test]
fn unreferenced_chunks() {
    let filled = filled();
    let spare = filled.md.call(op::LeaseChunks { count: 2 }).unwrap();
    let name = ChunkName::Free(spare.first);
    store_chunk(&filled.store, &filled.md, &name, 8);
    let (_, found) = filled.look(Depth::Heads);
    assert!(found.is_empty(), "it is being written: {found:#?}");
    // The session ends cleanly and reports that no writes are pending.
    filled.md.call(op::Detach { clean: true }).unwrap();
    filled.finds(Depth::Heads, Class::Garbage, &name);
    assert_eq!(filled.look(Depth::Heads).0.garbage, [name]);
    let stored_later = ChunkName::Free(ChunkId(u64::MAX / 2));
    filled
        .store
        .delete(&filled.look(Depth::Heads).0.garbage)
        .unwrap();
    let md = attach(&filled.service);
    store_chunk(&filled.store, &md, &stored_later, 8);
    filled.finds(Depth::Heads, Class::NewerChunk, &stored_later);
    assert_eq!(filled.look(Depth::Heads).0.garbage, [], "it may be needed");
}

#[test]
fn chunks_whose_bytes_are_damaged() {
    let filled = filled();
    let name = filled.chunks[1].clone();
    let mut files = vec![filled.store.path().to_owned()];
    let mut chunk = None;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if path.extension().is_some_and(|ext| ext == "chunk") {
            chunk = Some(path);
        }
    }
    let path = chunk.expect("a file");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 10;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (_, found) = filled.look(Depth::Heads);
    assert!(found.is_empty(), "only reading shows it: {found:#?}");
    filled.finds(Depth::Data, Class::DamagedChunk, &name);
    std::fs::remove_file(&path).unwrap();
    let Filled {
        _dir,
        kv,
        md,
        service,
        store,
        chunks,
    } = filled;
    drop(store);
    let filled = Filled {
        store: store_in(_dir.path()),
        _dir,
        kv,
        md,
        service,
        chunks,
    };
    filled.finds(Depth::Heads, Class::MissingChunk, &name);
}

#[test]
fn tags_that_are_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    beat(&service, vec![]);
    let md = attach(&service);
    let a = array(&md, "a", &[8, 8]);
    for name in ["user.k", "user.other"] {
        md.setxattr(a, name.as_bytes(), b"value", XattrFlags::Either)
            .unwrap();
    }
    service.close().unwrap();
    drop((md, service));
    let look = || {
        let (kv, recovery) = super::open(dir.path()).unwrap();
        let mut found = Vec::new();
        let looked = super::index(&kv, dir.path(), &recovery, &mut |one| found.push(one)).unwrap();
        kv.close().unwrap();
        (looked, found)
    };
    let (looked, found) = look();
    assert!(looked > 5 && found.is_empty(), "{looked}: {found:#?}");
    {
        let (kv, recovery) = super::open(dir.path()).unwrap();
        let index = dir.path().join("index");
        let live = crate::tags::Live::open(&index, &kv, (recovery.last, false), 1 << 20).unwrap();
        let mut gone = crate::tags::Entries::default();
        gone.gone(a, "k", slabfs_model::Tag::auto(b"value".to_vec()));
        live.around(&kv, &gone, || Ok(crate::kv::Lsn(0))).unwrap();
        live.close(&kv).unwrap();
        kv.close().unwrap();
    }
    let (_, found) = look();
    assert!(!found.is_empty());
    for finding in found {
        assert_eq!(finding.class, Class::Index);
        assert!(finding.detail.contains("\"k\""), "{finding}");
    }
    std::fs::remove_dir_all(dir.path().join("index")).unwrap();
    let (looked, found) = look();
    assert!(looked > 5 && found.is_empty(), "it is rebuilt: {found:#?}");
}

/// Checks all of a metadata directory, and the chunks on its one server.
fn all_of(dir: &std::path::Path, store: &LocalStore) -> (Looked, Vec<Finding>) {
    let (kv, _) = super::open(dir).unwrap();
    let mut found = Vec::new();
    let facts = metadata(&kv, &mut |one| found.push(one)).unwrap();
    let looked = facts
        .chunks(
            &kv,
            (ServerId(1), store),
            Depth::Heads,
            &mut |one| found.push(one),
            &mut |_| (),
        )
        .unwrap();
    kv.close().unwrap();
    (looked, found)
}

fn grid_chunk(store: &LocalStore, object: ObjectId, generation: u32) -> ChunkName {
    let name = ChunkName::Grid {
        object,
        generation,
        at: Coords::from_slice(&[0]),
    };
    let form = slabfs_objstore::ChunkForm {
        shape: Coords::from_slice(&[8 << 20]),
        elem: 1,
        codec: slabfs_model::Codec::None,
        fill: slabfs_model::Fill::zero(),
    };
    let part = slab(&[0], &[8]);
    store
        .write(&name, &form, &part, &[IoSlice::new(&[7; 8])])
        .unwrap();
    name
}

#[test]
fn chunks_of_a_later_incarnation_are_reported_and_not_garbage() {
    let dir = tempfile::tempdir().unwrap();
    let (old, dump, new) = (
        dir.path().join("old"),
        dir.path().join("dump"),
        dir.path().join("new"),
    );
    let store = store_in(&dir.path().join("os"));
    let service = service_in(&old);
    beat(&service, vec![]);
    let md = attach(&service);
    let a = array(&md, "a", &[64, 8]);
    let (chunk, _) = put(&md, a, &[0, 0], &[8, 8]).unwrap();
    store_chunk(&store, &md, &ChunkName::Free(chunk), 8);
    let garbage = md.call(op::LeaseChunks { count: 4 }).unwrap().first;
    let g = file(&md, "g");
    let (stored, _) = put(&md, a, &[56, 0], &[8, 8]).unwrap();
    store_chunk(&store, &md, &ChunkName::Free(stored), 8);
    md.call(op::Detach { clean: true }).unwrap();
    let md = attach(&service);
    crate::tests::dumps::taken(&md, &dump);

    // The later incarnation stores chunks of an array, of an object that was emptied, and of a new object.
    let (later, _) = put(&md, a, &[8, 0], &[8, 8]).unwrap();
    store_chunk(&store, &md, &ChunkName::Free(later), 8);
    let generation = info(md.call(op::Clear { ino: g }).unwrap()).generation;
    let new_one = file(&md, "new");
    let mut wanted = [
        ChunkName::Free(later),
        grid_chunk(&store, g, generation),
        grid_chunk(&store, new_one, 1),
    ];
    drop(md);
    service.close().unwrap();
    drop(service);
    store_chunk_of(&store, garbage, &[8, 8]);

    crate::dump::load(&dump, &new).unwrap();
    for incarnation in 0..2 {
        let (looked, found) = all_of(&new, &store);
        let mut stored_later: Vec<String> = Vec::new();
        for one in &found {
            match one.class {
                Class::NewerChunk => stored_later.push(one.subject.clone()),
                Class::Garbage => assert!(one.subject.contains(&garbage.to_string()), "{one}"),
                _ => panic!("{one}"),
            }
        }
        assert_eq!(looked.garbage, [ChunkName::Free(garbage)], "{found:#?}");
        wanted.sort();
        let wanted: Vec<String> = wanted
            .iter()
            .map(|name| format!("{name} on data server 1"))
            .collect();
        stored_later.sort();
        let mut sorted = wanted.clone();
        sorted.sort();
        assert_eq!(stored_later, sorted);
        // Objects created after the load do not belong to that incarnation.
        let service = service_in(&new);
        beat(&service, vec![]);
        let md = attach(&service);
        let made = file(&md, &format!("made{incarnation}"));
        grid_chunk(
            &store,
            made,
            info(md.call(op::GetAttr { ino: made }).unwrap()).generation,
        );
        md.call(op::Detach { clean: true }).unwrap();
        service.close().unwrap();
    }
}
