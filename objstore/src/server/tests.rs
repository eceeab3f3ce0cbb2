//! Tests of the data server: hostile requests over a real socket, and the heart.

use std::{
    io::IoSlice,
    sync::{Arc, atomic::Ordering::Relaxed, mpsc},
    time::Duration,
};

use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use slabfs_model::{Axis, ChunkId, Codec, Coords, Fill, Hyperslab, MAX_RANK, ObjectId, ServerId};

use super::{memory::Memory, *};
use crate::{
    addr::Addr,
    error::{Result, StoreError},
    name::{ChunkForm, ChunkName},
    store::{ChunkStore, Space},
    wire::{
        Listener, Pool, WireError,
        messages::{self, *},
    },
};

struct Rig {
    _dir: tempfile::TempDir,
    store: Arc<Memory>,
    server: DataServer,
    pool: Pool,
}

fn rig() -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let addr = Addr::Unix(dir.path().join("socket"));
    let store = Arc::new(Memory::default());
    let server = DataServer::start(store.clone(), Listener::bind(&addr, None).unwrap()).unwrap();
    Rig { _dir: dir, store, server, pool: Pool::new(addr, None, Duration::from_secs(10)) }
}

impl Rig {
    fn ask<T: DeserializeOwned>(&self, kind: u16, request: &impl Serialize, payload: &[u8]) -> (T, Vec<u8>) {
        let mut back = Vec::new();
        let control = postcard::to_allocvec(request).unwrap();
        let reply = self.pool.call(kind, &control, &[IoSlice::new(payload)], &mut back).unwrap();
        (postcard::from_bytes(&reply).unwrap(), back)
    }

    fn outcome(&self, kind: u16, request: &impl Serialize, payload: &[u8]) -> Outcome {
        self.ask(kind, request, payload).0
    }
}

fn free(id: u64) -> ChunkName {
    ChunkName::Free(ChunkId(id))
}

fn grid(at: &[u64]) -> ChunkName {
    ChunkName::Grid { object: ObjectId(7), generation: 1, at: Coords::from_slice(at) }
}

fn form(shape: &[u64]) -> ChunkForm {
    ChunkForm { shape: Coords::from_slice(shape), elem: 1, codec: Codec::None, fill: Fill::zero() }
}

fn put(id: u64, shape: &[u64]) -> WriteItem {
    WriteItem { name: free(id), form: form(shape), op: WriteOp::Put, bytes: shape.iter().product() }
}

fn get(id: u64, shape: &[u64], slab: Hyperslab) -> ReadItem {
    ReadItem { name: free(id), form: form(shape), slab }
}

#[test]
fn reads_tell_found_missing_and_failed_apart() {
    let rig = rig();
    let all = Hyperslab::whole(&[4, 6]);
    let data: Vec<u8> = (0..48).collect();
    let outcome = rig.outcome(kind::WRITE, &vec![put(10, &[4, 6]), put(3, &[4, 6])], &data);
    assert_eq!(outcome, Outcome { done: 2, failed: None });
    rig.store.trap.store(3, Relaxed);
    let column = Hyperslab { axes: [Axis::span(0, 4), Axis::every(1, 4, 2)].into_iter().collect() };
    let items = vec![get(10, &[4, 6], column), get(11, &[4, 6], all.clone()), get(3, &[4, 6], all.clone()), get(10, &[4, 6], all)];
    let (reply, cells): (ReadReply, _) = rig.ask(kind::READ, &items, b"");
    assert!(matches!(
        &reply.pieces[..],
        [Found::Yes, Found::No, Found::Failed(StoreError::Damaged { .. }), Found::Yes]
    ));
    assert_eq!(&cells[..8], &[1, 5, 7, 11, 13, 17, 19, 23]);
    assert_eq!(&cells[8..], &data[..24]);
}

#[test]
fn a_large_immutable_chunk_is_sent_as_it_lies() {
    let rig = rig();
    let data: Vec<u8> = (0..1 << 20).map(|i| (i / 7) as u8).collect();
    let shape = [1024, 1024];
    assert_eq!(rig.outcome(kind::WRITE, &vec![put(5, &shape)], &data).failed, None);
    let whole = vec![get(5, &shape, Hyperslab::whole(&shape))];
    let (reply, cells): (ReadReply, _) = rig.ask(kind::READ, &whole, b"");
    assert_eq!(reply.pieces, [Found::Yes]);
    assert!(cells == data);
    assert_eq!(rig.store.shown.load(Relaxed), 1);
    // Not in one piece: by a copy.
    let columns = Hyperslab { axes: [Axis::span(0, 1024), Axis::span(0, 512)].into_iter().collect() };
    let (reply, cells): (ReadReply, _) = rig.ask(kind::READ, &vec![get(5, &shape, columns)], b"");
    assert_eq!(reply.pieces, [Found::Yes]);
    assert_eq!((cells.len(), cells[512]), (512 * 1024, data[1024]));
    let (reply, cells): (ReadReply, _) = rig.ask(kind::READ, &vec![get(6, &shape, Hyperslab::whole(&shape))], b"");
    assert_eq!((reply.pieces, cells.len()), (vec![Found::No], 0));
}

#[test]
fn hostile_forms_and_slabs_never_reach_the_store() {
    let rig = rig();
    let whole = |shape: &[u64]| Hyperslab::whole(shape);
    let mut bad = vec![
        get(9, &[4], whole(&[5])),
        get(9, &[4], whole(&[4, 4])),
        get(9, &[], whole(&[])),
        get(9, &[1; MAX_RANK + 1], whole(&[1; MAX_RANK + 1])),
        get(9, &[u64::MAX, u64::MAX], whole(&[u64::MAX, u64::MAX])),
        get(9, &[1 << 40], whole(&[1 << 40])),
        get(9, &[65 << 20], whole(&[65 << 20])),
        get(9, &[9], Hyperslab { axes: [Axis { start: 0, stride: 0, count: 3, block: 2 }].into_iter().collect() }),
        get(9, &[9], Hyperslab { axes: [Axis { start: u64::MAX, stride: 1, count: 2, block: 1 }].into_iter().collect() }),
        get(9, &[9], Hyperslab { axes: [Axis { start: 0, stride: u64::MAX, count: u64::MAX, block: 1 }].into_iter().collect() }),
        ReadItem { name: grid(&[0, 0]), form: form(&[4]), slab: whole(&[4]) },
        ReadItem { name: grid(&[0; MAX_RANK + 1]), form: form(&[4]), slab: whole(&[4]) },
    ];
    for (elem, fill) in [(0, Fill::zero()), (65537, Fill::zero()), (4, Fill::from_bytes(&[1, 2]))] {
        let form = ChunkForm { elem, fill, ..form(&[4]) };
        bad.push(ReadItem { name: free(9), form, slab: whole(&[4]) });
    }
    let codec = ChunkForm { codec: Codec::Zstd(1000), ..form(&[4]) };
    bad.push(ReadItem { name: free(9), form: codec, slab: whole(&[4]) });
    for item in &bad {
        let (reply, cells): (ReadReply, _) = rig.ask(kind::READ, &vec![item], b"");
        assert!(matches!(&reply.pieces[..], [Found::Failed(StoreError::Invalid(_))]), "{item:?}: {reply:?}");
        assert!(cells.is_empty());
        let op = match item.name {
            ChunkName::Free(_) => WriteOp::Put,
            ChunkName::Grid { .. } => WriteOp::Write(item.slab.clone()),
        };
        let write = WriteItem { name: item.name.clone(), form: item.form.clone(), op, bytes: 3 };
        let outcome = rig.outcome(kind::WRITE, &vec![write], b"abc");
        assert!(matches!(outcome.failed, Some(StoreError::Invalid(_))), "{item:?}: {outcome:?}");
        if matches!(item.name, ChunkName::Grid { .. }) {
            let outcome = rig.outcome(kind::PUNCH, &vec![item], b"");
            assert!(matches!(outcome.failed, Some(StoreError::Invalid(_))));
        }
    }
    // Two that are each within the limit and together are not.
    let half = get(9, &[40 << 20], whole(&[40 << 20]));
    let (reply, _): (ReadReply, _) = rig.ask(kind::READ, &vec![half.clone(), half], b"");
    assert!(matches!(&reply.pieces[..], [Found::Failed(StoreError::Invalid(_))]));
    assert_eq!(rig.store.changes.load(Relaxed), 0);
}

#[test]
fn hostile_writes_and_the_wrong_kind_of_chunk() {
    let rig = rig();
    let item = |name, op, bytes| WriteItem { name, form: form(&[4]), op, bytes };
    let all = Hyperslab::whole(&[4]);
    for (write, payload) in [
        (item(free(9), WriteOp::Put, 3), &b"abc"[..]),
        (item(free(9), WriteOp::Put, 5), b"abcde"),
        (item(free(9), WriteOp::Put, 4), b"abcde"),
        (item(free(9), WriteOp::Put, u64::MAX), b"abcd"),
        (item(grid(&[0]), WriteOp::Put, 4), b"abcd"),
        (item(free(9), WriteOp::Append { at: u64::MAX }, 4), b"abcd"),
        (item(free(9), WriteOp::Append { at: 1 }, 4), b"abcd"),
        (item(grid(&[0]), WriteOp::Append { at: 0 }, 4), b"abcd"),
        (item(free(9), WriteOp::Write(all.clone()), 4), b"abcd"),
        (item(grid(&[0]), WriteOp::Write(all), 3), b"abc"),
    ] {
        let outcome = rig.outcome(kind::WRITE, &vec![&write], payload);
        let failed = matches!(outcome, Outcome { done: 0, failed: Some(StoreError::Invalid(_) | StoreError::Protocol(_)) });
        assert!(failed, "{write:?}: {outcome:?}");
    }
    let seal = SealItem { name: grid(&[0]), form: form(&[4]) };
    assert!(rig.outcome(kind::SEAL, &vec![seal], b"").failed.is_some());
    let clip = ClipItem { name: grid(&[0]), form: form(&[4]), keep: Coords::from_slice(&[1, 1]) };
    assert!(rig.outcome(kind::CLIP, &vec![clip], b"").failed.is_some());
    let clip = ClipItem { name: free(9), form: form(&[4]), keep: Coords::from_slice(&[1]) };
    assert!(rig.outcome(kind::CLIP, &vec![clip], b"").failed.is_some());
    let outcome = rig.outcome(kind::DELETE, &vec![free(9)], b"payload");
    assert!(matches!(outcome.failed, Some(StoreError::Protocol(_))));
    assert_eq!(rig.store.changes.load(Relaxed), 0);
}

#[test]
fn control_parts_that_are_noise() {
    let rig = rig();
    let mut noise = 12345u64;
    for kind in kind::READ..=kind::LIST + 1 {
        for len in [0usize, 1, 2, 5, 17, 100, 3000] {
            let control: Vec<u8> = (0..len)
                .map(|_| {
                    noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    // Small values are likelier to look like something.
                    if noise >> 63 == 0 { (noise >> 40) as u8 % 4 } else { (noise >> 40) as u8 }
                })
                .collect();
            match rig.pool.call(kind, &control, &[], &mut Vec::new()) {
                Ok(_) | Err(WireError::Fault { .. }) => {}
                Err(e) => panic!("kind {kind:#x}: {e}"),
            }
        }
    }
    assert_eq!(rig.server.connections(), 1, "none of it ended the connection");
}

#[test]
fn a_store_that_panics_or_is_full() {
    let rig = rig();
    rig.store.trap.store(1, Relaxed);
    let control = postcard::to_allocvec(&vec![put(1, &[4])]).unwrap();
    let error = rig.pool.call(kind::WRITE, &control, &[IoSlice::new(b"abcd")], &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("internal error"), "{error}");
    rig.store.trap.store(2, Relaxed);
    let outcome = rig.outcome(kind::WRITE, &vec![put(5, &[2]), put(2, &[1]), put(6, &[1])], b"abcd");
    assert_eq!(outcome, Outcome { done: 1, failed: Some(StoreError::NoSpace) });
    let (list, _): (Answer<Listing>, _) = rig.ask(kind::LIST, &ListQuery { after: None, limit: 9 }, b"");
    assert_eq!(list.unwrap(), [(free(5), 2)], "what follows a failure is not written");
}

#[test]
fn managing() {
    let rig = rig();
    let f = form(&[2, 4]);
    for at in [[0, 0], [0, 1]] {
        let item = WriteItem { name: grid(&at), form: f.clone(), op: WriteOp::Write(Hyperslab::whole(&f.shape)), bytes: 8 };
        assert_eq!(rig.outcome(kind::WRITE, &vec![item], b"abcdefgh").failed, None);
    }
    let clip = ClipItem { name: grid(&[0, 0]), form: f.clone(), keep: Coords::from_slice(&[1, 3]) };
    assert_eq!(rig.outcome(kind::CLIP, &vec![clip], b""), Outcome { done: 1, failed: None });
    let read = ReadItem { name: grid(&[0, 0]), form: f.clone(), slab: Hyperslab::whole(&f.shape) };
    assert_eq!(rig.ask::<ReadReply>(kind::READ, &vec![&read], b"").1, b"abc\0\0\0\0\0");
    assert_eq!(rig.outcome(kind::PUNCH, &vec![&read], b"").failed, None);
    assert_eq!(rig.ask::<ReadReply>(kind::READ, &vec![&read], b"").1, [0; 8]);
    assert_eq!(rig.outcome(kind::SYNC, &vec![grid(&[0, 0])], b"").failed, None);
    assert_eq!(rig.outcome(kind::VERIFY, &vec![grid(&[0, 0]), grid(&[5, 5])], b"").failed, Some(StoreError::Missing(grid(&[5, 5]))));
    let (space, _): (SpaceAnswer, _) = rig.ask(kind::SPACE, &(), b"");
    assert_eq!(space.unwrap().used, 16);
    assert_eq!(rig.outcome(kind::WIPE, &vec![Wipe { object: ObjectId(7), below: Some(1) }], b"").failed, None);
    assert_eq!(rig.outcome(kind::DELETE, &vec![grid(&[0, 1])], b"").failed, None);
    let (list, _): (Answer<Listing>, _) = rig.ask(kind::LIST, &ListQuery { after: None, limit: 9 }, b"");
    assert_eq!(list.unwrap().len(), 1);
    assert_eq!(rig.outcome(kind::WIPE, &vec![Wipe { object: ObjectId(7), below: None }], b"").failed, None);
    let (list, _): (Answer<Listing>, _) = rig.ask(kind::LIST, &ListQuery { after: None, limit: 9 }, b"");
    assert!(list.unwrap().is_empty());
    let error = rig.pool.call(0x0999, b"", &[], &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("data server") && error.contains("0x0999"), "{error}");
    let _ = messages::kind::READ;
    rig.server.shutdown();
}

/// Keeps reports, answers from a script; errors when the script says so.
struct Office {
    script: Mutex<Vec<Option<Vec<Retire>>>>,
    reports: Mutex<mpsc::Sender<ServerReport>>,
}

impl Registrar for Office {
    fn heartbeat(&self, report: ServerReport) -> Result<ServerOrders> {
        let _ = self.reports.lock().send(report);
        match self.script.lock().pop() {
            Some(None) => Err(StoreError::Deadline),
            Some(Some(delete)) => Ok(ServerOrders { id: ServerId(4), delete }),
            None => Ok(ServerOrders { id: ServerId(4), delete: Vec::new() }),
        }
    }
}

#[test]
fn the_heart_registers_deletes_and_acknowledges() {
    let store = Arc::new(Memory::default());
    for id in [2, 8, 9] {
        store.put(&free(id), &form(&[1]), &[IoSlice::new(b"x")]).unwrap();
    }
    // The deletion of chunk 2 fails.
    store.trap.store(2, Relaxed);
    let (first, second) = (Retire::Chunks(vec![free(8)]), Retire::Chunks(vec![free(2)]));
    let third = Retire::Object(ObjectId(7));
    let (reports, got) = mpsc::channel();
    let orders = vec![None, Some(vec![third.clone()]), Some(vec![first.clone(), second]), None];
    let office = Arc::new(Office { script: Mutex::new(orders), reports: Mutex::new(reports) });
    let options = HeartOptions {
        uuid: [6; 16],
        addr: Some(Addr::Tcp("node:1".into())),
        interval: Duration::from_millis(5),
    };
    let heart = Heart::start(store.clone(), office, options).unwrap();
    assert_eq!(heart.registered(Duration::from_secs(10)).unwrap(), ServerId(4));
    let next = || got.recv_timeout(Duration::from_secs(10)).unwrap();
    let report = next();
    assert_eq!((report.uuid, report.id, report.addr.as_deref()), ([6; 16], None, Some("tcp:node:1")));
    assert_eq!(report.space, Space { total: 1 << 40, free: (1 << 40) - 3, used: 3 });
    // The first report did not arrive; the second was answered with two orders, one of which failed.
    assert!(next().deleted.is_empty());
    let report = next();
    assert_eq!((report.id, report.deleted), (Some(ServerId(4)), vec![first]));
    // An acknowledgement that did not arrive is given again.
    assert_eq!(next().deleted, vec![third.clone()]);
    assert_eq!(next().deleted, vec![third]);
    assert!(next().deleted.is_empty());
    assert!(store.synced.load(Relaxed) >= 1, "deletions are durable before they are acknowledged");
    assert_eq!(store.list(None, 9).unwrap().len(), 2);
    heart.stop();
}

#[test]
fn a_heart_without_an_office() {
    let (reports, _got) = mpsc::channel();
    let office = Arc::new(Office { script: Mutex::new(vec![None; 100_000]), reports: Mutex::new(reports) });
    let heart = Heart::start(Arc::new(Memory::default()), office, HeartOptions::new([0; 16], None)).unwrap();
    heart.hurry();
    assert_eq!(heart.registered(Duration::from_millis(50)).unwrap_err(), StoreError::Deadline);
    drop(heart);
}
