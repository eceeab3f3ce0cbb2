//! Tests of power losses: the store reverts to its synced state.
//!
//! Two invariants hold after any loss. No number that names data on a data server (inode, chunk id) is allocated a
//! second time. And no chunk that a data server was ever ordered to delete is part of the state after the loss: all
//! chunks of that state can still be read.

use parking_lot::Mutex;
use proptest::prelude::*;
use slabfs_model::{Coords, Version};
use slabfs_objstore::ChunkName;
use slabfs_objstore::server::Retire;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::support::*;
use crate::Service;
use crate::api::{Kind, ROOT, ResizeHow, Stored, TilingReply, op};
use crate::client::Md;
use crate::kv::{Batch, KvError, Lsn, MemoryKv, MetaKv, Pair};

/// A store of which only the synced content survives.
struct Lossy {
    kv: MemoryKv,
    disk: Arc<Mutex<Vec<Pair>>>,
}

impl Lossy {
    fn open(disk: &Arc<Mutex<Vec<Pair>>>) -> Self {
        let kv = MemoryKv::new();
        let mut batch = Batch::new();
        for (key, value) in disk.lock().iter() {
            batch.put(key.clone(), value.clone());
        }
        kv.commit(batch).unwrap();
        Self {
            kv,
            disk: Arc::clone(disk),
        }
    }
}

impl MetaKv for Lossy {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.kv.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        self.kv.scan(from, to, limit)
    }

    fn commit(&self, batch: Batch) -> Result<Lsn, KvError> {
        self.kv.commit(batch)
    }

    fn sync(&self) -> Result<Lsn, KvError> {
        let mut disk = self.disk.lock();
        *disk = self.kv.scan(&[0], &[255], usize::MAX)?;
        self.kv.sync()
    }

    fn synced(&self) -> Lsn {
        self.kv.synced()
    }

    fn checkpoint(&self) -> Result<(), KvError> {
        Ok(())
    }

    fn close(&self) -> Result<(), KvError> {
        Ok(())
    }
}

#[derive(Debug, Clone)]
enum Step {
    Create(u8),
    Unlink(u8),
    Write(u8, u64, u64),
    Shrink(u8),
    Clear(u8),
    Settle(u8),
    Sync,
    Beat,
    Upkeep,
    NewSession,
    PowerLoss,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3u8).prop_map(Step::Create),
        1 => (0..3u8).prop_map(Step::Unlink),
        8 => (0..3u8, 0..8u64, 1..8u64).prop_map(|(a, b, c)| Step::Write(a, b, c)),
        1 => (0..3u8).prop_map(Step::Shrink),
        1 => (0..3u8).prop_map(Step::Clear),
        3 => (0..3u8).prop_map(Step::Settle),
        3 => Just(Step::Sync),
        4 => Just(Step::Beat),
        2 => Just(Step::Upkeep),
        1 => Just(Step::NewSession),
        2 => Just(Step::PowerLoss),
    ]
}

fn open(disk: &Arc<Mutex<Vec<Pair>>>) -> Arc<Service> {
    let service = Service::over(Box::new(Lossy::open(disk)), quiet())
        .unwrap()
        .0;
    beat(&service, vec![]);
    Arc::new(service)
}

/// The chunks in the tilings of all objects.
fn shown(md: &Md) -> BTreeSet<u64> {
    let mut chunks = BTreeSet::new();
    for entry in md.readdir(ROOT, 0, 100).unwrap() {
        let reply = md.tiling(entry.entry.attr.ino, Version(0)).unwrap();
        let TilingReply::All { records, .. } = reply else {
            panic!("{reply:?}")
        };
        for record in records {
            if let Stored::Chunk(chunk) = record.value {
                assert!(chunks.insert(chunk.chunk.0), "a chunk in two records");
            }
        }
    }
    chunks
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_shown_was_ever_ordered_away(steps in prop::collection::vec(step(), 1..60)) {
        let disk = Arc::new(Mutex::new(Vec::new()));
        let mut service = open(&disk);
        let mut md = attach(&service);
        let (mut ids, mut inos) = (BTreeSet::new(), BTreeSet::new());
        let mut deleted: BTreeSet<u64> = BTreeSet::new();
        for step in steps {
            let find = |n: u8| md.lookup(ROOT, &[b'a' + n]).map(|entry| entry.attr.ino);
            match step {
                Step::Create(n) => {
                    let name = char::from(b'a' + n).to_string();
                    if let Ok(ino) = make(&md, ROOT, &name, Kind::Object) {
                        prop_assert!(inos.insert(ino), "{ino} given twice");
                        let dims = Some(Coords::from_slice(&[8, 8]));
                        let change = crate::api::SpecChange { dims, ..Default::default() };
                        md.declare(ino, change, None).unwrap();
                    }
                }
                Step::Unlink(n) => {
                    md.unlink(ROOT, &[b'a' + n]).ok();
                }
                Step::Write(n, row, rows) => {
                    if let Ok(ino) = find(n) {
                        let (chunk, _) = put(&md, ino, &[row, 0], &[rows.min(8 - row), 8]).unwrap();
                        prop_assert!(ids.insert(chunk), "{chunk} given twice");
                    }
                }
                Step::Shrink(n) => {
                    if let Ok(ino) = find(n) {
                        for rows in [3, 8] {
                            let dims = Coords::from_slice(&[rows, 8]);
                            md.resize(ino, dims, ResizeHow::SetDims).unwrap();
                        }
                    }
                }
                Step::Clear(n) => {
                    if let Ok(ino) = find(n) {
                        md.call(op::Clear { ino }).unwrap();
                    }
                }
                Step::Settle(n) => {
                    if let Ok(ino) = find(n) {
                        let version = info(md.call(op::GetAttr { ino }).unwrap()).tiling;
                        md.settle(ino, version).unwrap();
                    }
                }
                Step::Sync => md.call(op::Sync {  }).unwrap(),
                Step::Beat => {
                    let orders = beat(&service, vec![]).delete;
                    for order in &orders {
                        let Retire::Chunks(names) = order else { continue };
                        for name in names {
                            if let ChunkName::Free(chunk) = name {
                                deleted.insert(chunk.0);
                            }
                        }
                    }
                    beat(&service, orders);
                }
                Step::Upkeep => service.settle_down().unwrap(),
                Step::NewSession => {
                    md.call(op::LeaseChunks { count: 3 }).unwrap();
                    md.call(op::Detach { clean: false }).unwrap();
                    md = attach(&service);
                }
                Step::PowerLoss => {
                    let mut found = Vec::new();
                    crate::check::metadata(&Lossy::open(&disk), &mut |one| found.push(one)).unwrap();
                    let empty = disk.lock().is_empty();
                    prop_assert!(found.is_empty() || empty, "{found:#?}");
                    service = open(&disk);
                    md = attach(&service);
                }
            }
            let both: Vec<_> = shown(&md).intersection(&deleted).copied().collect();
            prop_assert!(both.is_empty(), "{both:?} are shown and deleted");
        }
        // Once everything is settled and synced, all other chunks are deleted.
        for entry in md.readdir(ROOT, 0, 100).unwrap() {
            let info = entry.entry.info.unwrap();
            md.settle(entry.entry.attr.ino, info.tiling).unwrap();
        }
        service.settle_down().unwrap();
        md.call(op::Sync {  }).unwrap();
    }
}
