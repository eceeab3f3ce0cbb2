//! Tests of the data server over a real socket.

mod batch;
mod blank;
mod heart;
mod hostile;
mod puts;
mod same_host;

use std::{
    io::IoSlice,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use slabfs_model::{Axis, ChunkId, Codec, Coords, Fill, Hyperslab, ObjectId, Region, SessionId};

use super::{memory::Memory, *};
use crate::{
    Moment,
    addr::Addr,
    error::StoreError,
    name::{ChunkForm, ChunkName},
    store::{ChunkStore, LocalOptions, LocalStore, Space},
    wire::{Listener, Pool, WireError, messages::*},
};

struct Rig {
    _dir: tempfile::TempDir,
    store: Arc<Memory>,
    server: DataServer,
    pool: Pool,
}

fn rig() -> Rig {
    rig_with(None)
}

fn rig_with(fence: Option<Arc<Fence>>) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let addr = Addr::Unix(dir.path().join("socket"));
    let store = Arc::new(Memory::default());
    let listener = Listener::bind(&addr, None).unwrap();
    let server = match fence {
        Some(fence) => DataServer::start_fenced(store.clone(), listener, fence),
        None => DataServer::start(store.clone(), listener),
    };
    let server = server.unwrap();
    Rig {
        _dir: dir,
        store,
        server,
        pool: Pool::new(addr, None, Duration::from_secs(10)),
    }
}

impl Rig {
    fn ask<T: DeserializeOwned>(
        &self,
        kind: u16,
        request: &impl Serialize,
        payload: &[u8],
    ) -> (T, Vec<u8>) {
        let mut back = Vec::new();
        let control = postcard::to_allocvec(request).unwrap();
        let reply = self
            .pool
            .call(kind, &control, &[IoSlice::new(payload)], &mut back)
            .unwrap();
        (postcard::from_bytes(&reply).unwrap(), back)
    }

    /// Sends a request, as session 3 where requests carry a session.
    fn outcome(&self, kind: u16, request: &impl Serialize, payload: &[u8]) -> Outcome {
        self.outcome_for(SessionId(3), kind, request, payload)
    }

    fn outcome_for(
        &self,
        session: SessionId,
        kind: u16,
        items: &impl Serialize,
        payload: &[u8],
    ) -> Outcome {
        match kind {
            kind::SEAL | kind::SYNC | kind::VERIFY => self.ask(kind, items, payload).0,
            _ => {
                self.ask(
                    kind,
                    &BySession {
                        session,
                        epoch: 0,
                        items,
                    },
                    payload,
                )
                .0
            }
        }
    }
}

fn free(id: u64) -> ChunkName {
    ChunkName::Free(ChunkId(id))
}

fn grid(at: &[u64]) -> ChunkName {
    ChunkName::Grid {
        object: ObjectId(7),
        generation: 1,
        at: Coords::from_slice(at),
    }
}

fn form(shape: &[u64]) -> ChunkForm {
    ChunkForm {
        shape: Coords::from_slice(shape),
        elem: 1,
        codec: Codec::None,
        fill: Fill::zero(),
    }
}

fn put(id: u64, shape: &[u64]) -> WriteItem {
    WriteItem {
        name: free(id),
        form: form(shape),
        op: WriteOp::Put,
        bytes: shape.iter().product(),
    }
}

fn get(id: u64, shape: &[u64], slab: Hyperslab) -> ReadItem {
    ReadItem {
        name: free(id),
        form: form(shape),
        slab,
    }
}

#[test]
fn reads_distinguish_found_missing_and_failed() {
    let rig = rig();
    let all = Hyperslab::all(&[4, 6]);
    let data: Vec<u8> = (0..48).collect();
    let outcome = rig.outcome(kind::WRITE, &vec![put(10, &[4, 6]), put(3, &[4, 6])], &data);
    assert_eq!(
        outcome,
        Outcome {
            done: 2,
            failed: None,
            verifier: 0,
        }
    );
    rig.store.trap.store(3, Relaxed);
    let column = Hyperslab {
        axes: [Axis::span(0, 4), Axis::every(1, 4, 2)]
            .into_iter()
            .collect(),
    };
    let items = vec![
        get(10, &[4, 6], column),
        get(11, &[4, 6], all.clone()),
        get(3, &[4, 6], all.clone()),
        get(10, &[4, 6], all),
    ];
    let (reply, cells): (ReadReply, _) = rig.ask(kind::READ, &items, b"");
    assert!(matches!(
        &reply.pieces[..],
        [
            Found::Yes,
            Found::No,
            Found::Failed(StoreError::Damaged { .. }),
            Found::Yes
        ]
    ));
    assert_eq!(&cells[..8], &[1, 5, 7, 11, 13, 17, 19, 23]);
    assert_eq!(&cells[8..], &data[..24]);
}

#[test]
fn a_large_immutable_chunk_is_sent_without_a_copy() {
    let rig = rig();
    let data: Vec<u8> = (0..1 << 20).map(|i| (i / 7) as u8).collect();
    let shape = [1024, 1024];
    assert_eq!(
        rig.outcome(kind::WRITE, &vec![put(5, &shape)], &data)
            .failed,
        None
    );
    let full = vec![get(5, &shape, Hyperslab::all(&shape))];
    let (reply, cells): (ReadReply, _) = rig.ask(kind::READ, &full, b"");
    assert_eq!(reply.pieces, [Found::Yes]);
    assert!(cells == data);
    assert_eq!(rig.store.shown.load(Relaxed), 1);
    // Not contiguous in the chunk: sent by a copy.
    let columns = Hyperslab {
        axes: [Axis::span(0, 1024), Axis::span(0, 512)]
            .into_iter()
            .collect(),
    };
    let (reply, cells): (ReadReply, _) = rig.ask(kind::READ, &vec![get(5, &shape, columns)], b"");
    assert_eq!(reply.pieces, [Found::Yes]);
    assert_eq!((cells.len(), cells[512]), (512 * 1024, data[1024]));
    let (reply, cells): (ReadReply, _) = rig.ask(
        kind::READ,
        &vec![get(6, &shape, Hyperslab::all(&shape))],
        b"",
    );
    assert_eq!((reply.pieces, cells.len()), (vec![Found::No], 0));
}

/// Uses a real store, so that large pieces are sent out of its files.
#[test]
fn large_chunks_are_sent_out_of_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("store");
    let store = LocalStore::open(&data_dir, LocalOptions::default()).unwrap();
    let store: Arc<dyn ChunkStore> = Arc::new(store);
    let addr = Addr::Unix(dir.path().join("socket"));
    let listener = Listener::bind(&addr, None).unwrap();
    let _server = DataServer::start(store.clone(), listener).unwrap();
    let pool = Pool::new(addr, None, Duration::from_secs(10));
    let data: Vec<u8> = (0..1 << 20).map(|i| (i / 7) as u8).collect();
    let shape = [1024, 1024];
    let item = get(5, &shape, Hyperslab::all(&shape));
    store
        .put(&item.name, &item.form, &[IoSlice::new(&data)])
        .unwrap();
    let read = |rows: std::ops::Range<u64>| {
        let region = Region::new(&[rows.start, 0], &[rows.end - rows.start, 1024]);
        let asked = vec![get(5, &shape, Hyperslab::from_region(&region))];
        let control = postcard::to_allocvec(&asked).unwrap();
        let mut cells = Vec::new();
        let reply = pool.call(kind::READ, &control, &[], &mut cells).unwrap();
        let reply: ReadReply = postcard::from_bytes(&reply).unwrap();
        (reply.pieces, cells)
    };
    for rows in [0..1024, 1..1000, 100..228, 5..6] {
        let (pieces, cells) = read(rows.clone());
        assert_eq!(pieces, [Found::Yes]);
        assert!(cells == data[rows.start as usize * 1024..rows.end as usize * 1024]);
    }
    store.delete(std::slice::from_ref(&item.name)).unwrap();
    assert_eq!(read(0..1024), (vec![Found::No], Vec::new()));
}

#[test]
fn a_store_that_panics_or_is_full() {
    let rig = rig();
    rig.store.trap.store(1, Relaxed);
    let items = vec![put(1, &[4])];
    let session = SessionId(3);
    let control = postcard::to_allocvec(&BySession {
        session,
        epoch: 0,
        items,
    })
    .unwrap();
    let error = rig
        .pool
        .call(
            kind::WRITE,
            &control,
            &[IoSlice::new(b"abcd")],
            &mut Vec::new(),
        )
        .unwrap_err();
    assert!(error.to_string().contains("internal error"), "{error}");
    rig.store.trap.store(2, Relaxed);
    let outcome = rig.outcome(
        kind::WRITE,
        &vec![put(5, &[2]), put(2, &[1]), put(6, &[1])],
        b"abcd",
    );
    assert_eq!(
        outcome,
        Outcome {
            done: 1,
            failed: Some(StoreError::NoSpace),
            verifier: 0,
        }
    );
    let (list, _): (Answer<Listing>, _) = rig.ask(
        kind::LIST,
        &ListQuery {
            after: None,
            limit: 9,
        },
        b"",
    );
    assert_eq!(
        list.unwrap(),
        [(free(5), 2)],
        "what follows a failure is not written"
    );
}

#[test]
fn managing() {
    let rig = rig();
    let f = form(&[2, 4]);
    for at in [[0, 0], [0, 1]] {
        let item = WriteItem {
            name: grid(&at),
            form: f.clone(),
            op: WriteOp::Write(Hyperslab::all(&f.shape)),
            bytes: 8,
        };
        assert_eq!(
            rig.outcome(kind::WRITE, &vec![item], b"abcdefgh").failed,
            None
        );
    }
    let clip = ClipItem {
        name: grid(&[0, 0]),
        form: f.clone(),
        keep: Coords::from_slice(&[1, 3]),
    };
    assert_eq!(
        rig.outcome(kind::CLIP, &vec![clip], b""),
        Outcome {
            done: 1,
            failed: None,
            verifier: 0,
        }
    );
    let read = ReadItem {
        name: grid(&[0, 0]),
        form: f.clone(),
        slab: Hyperslab::all(&f.shape),
    };
    assert_eq!(
        rig.ask::<ReadReply>(kind::READ, &vec![&read], b"").1,
        b"abc\0\0\0\0\0"
    );
    assert_eq!(rig.outcome(kind::PUNCH, &vec![&read], b"").failed, None);
    assert_eq!(
        rig.ask::<ReadReply>(kind::READ, &vec![&read], b"").1,
        [0; 8]
    );
    assert_eq!(
        rig.outcome(kind::SYNC, &vec![grid(&[0, 0])], b"").failed,
        None
    );
    assert_eq!(
        rig.outcome(kind::VERIFY, &vec![grid(&[0, 0]), grid(&[5, 5])], b"")
            .failed,
        Some(StoreError::Missing(grid(&[5, 5])))
    );
    let (space, _): (SpaceAnswer, _) = rig.ask(kind::SPACE, &(), b"");
    assert_eq!(space.unwrap().used, 16);
    assert_eq!(
        rig.outcome(
            kind::WIPE,
            &vec![Wipe {
                object: ObjectId(7),
                below: Some(1)
            }],
            b""
        )
        .failed,
        None
    );
    assert_eq!(
        rig.outcome(kind::DELETE, &vec![grid(&[0, 1])], b"").failed,
        None
    );
    let (list, _): (Answer<Listing>, _) = rig.ask(
        kind::LIST,
        &ListQuery {
            after: None,
            limit: 9,
        },
        b"",
    );
    assert_eq!(list.unwrap().len(), 1);
    assert_eq!(
        rig.outcome(
            kind::WIPE,
            &vec![Wipe {
                object: ObjectId(7),
                below: None
            }],
            b""
        )
        .failed,
        None
    );
    let (list, _): (Answer<Listing>, _) = rig.ask(
        kind::LIST,
        &ListQuery {
            after: None,
            limit: 9,
        },
        b"",
    );
    assert!(list.unwrap().is_empty());
    let error = rig
        .pool
        .call(0x0999, b"", &[], &mut Vec::new())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("data server") && error.contains("0x0999"),
        "{error}"
    );
    rig.server.shutdown();
}

/// A data server whose fence has a list: of the sessions below 5, only 3 is live.
fn fenced_rig() -> (Rig, Arc<Fence>) {
    let fence = Arc::new(Fence::in_memory());
    let alive = Alive {
        version: 1,
        next: SessionId(5),
        live: vec![SessionId(3)],
    };
    fence.take(
        slabfs_model::ShardId::NAMES,
        Some(alive),
        Moment::now() + Duration::from_secs(600),
    );
    let rig = rig_with(Some(fence.clone()));
    (rig, fence)
}

#[test]
fn a_session_that_is_over_changes_no_grid_chunk() {
    let (rig, fence) = fenced_rig();
    let f = form(&[2, 4]);
    let slab = Hyperslab::all(&f.shape);
    let write = vec![WriteItem {
        name: grid(&[0, 0]),
        form: f.clone(),
        op: WriteOp::Write(slab.clone()),
        bytes: 8,
    }];
    let (form, name) = (f.clone(), grid(&[0, 0]));
    let keep = Coords::from_slice(&[1, 1]);
    let clip = vec![ClipItem { name, form, keep }];
    let (form, name) = (f, grid(&[0, 0]));
    let punch = vec![ReadItem { name, form, slab }];
    let wipe = vec![Wipe {
        object: ObjectId(7),
        below: None,
    }];
    let delete = vec![grid(&[0, 0])];
    let all = |session: u64| {
        let session = SessionId(session);
        [
            rig.outcome_for(session, kind::WRITE, &write, b"abcdefgh"),
            rig.outcome_for(session, kind::CLIP, &clip, b""),
            rig.outcome_for(session, kind::PUNCH, &punch, b""),
            rig.outcome_for(session, kind::DELETE, &delete, b""),
            rig.outcome_for(session, kind::WIPE, &wipe, b""),
        ]
    };
    for over in [0, 4] {
        let refused = Outcome {
            done: 0,
            failed: Some(StoreError::Fenced(SessionId(over))),
            verifier: 0,
        };
        assert!(all(over).iter().all(|outcome| *outcome == refused));
    }
    assert_eq!(rig.store.changes.load(Relaxed), 0);
    for live in [3, 5] {
        assert!(all(live).iter().all(|outcome| outcome.failed.is_none()));
    }
    // Immutable chunks, which will never be committed, may be stored and deleted.
    let put = vec![put(9, &[2])];
    let over = SessionId(4);
    assert_eq!(rig.outcome_for(over, kind::WRITE, &put, b"ab").failed, None);
    let name = vec![free(9)];
    assert_eq!(rig.outcome_for(over, kind::DELETE, &name, b"").failed, None);
    // No session is admitted while the metadata service does not reply.
    fence.take(slabfs_model::ShardId::NAMES, None, Moment::now());
    assert!(
        all(3)
            .iter()
            .all(|outcome| matches!(outcome.failed, Some(StoreError::Unavailable { .. })))
    );
    rig.server.shutdown();
}
