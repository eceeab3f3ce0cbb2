//! Tests of batches over the socket: valid requests, and hostile ones.

use slabfs_model::batch::{Batch, Flat, FlatNode, FlatWhat, MAX_NODES, Pattern, Place, Plan};
use slabfs_model::{MAX_RANK, Region};

use super::*;
use crate::wire::{TRAILER, read_trailer};

/// Every second pair of bytes of an object with 4 rows of 8 bytes.
fn pairs() -> Flat {
    let batch = Batch::repeated(Place::at(1).every(4), Place::default(), 7, Pattern::Data(2));
    Plan::packed(&[batch], 1).unwrap().flat()
}

fn item(name: ChunkName) -> BatchItem {
    BatchItem {
        name,
        form: form(&[4, 8]),
        want: Hyperslab::all(&[4, 8]),
        slab: Hyperslab::all(&[4, 8]),
        by_pieces: false,
    }
}

fn request(items: Vec<BatchItem>) -> BatchRequest {
    BatchRequest {
        batch: pairs(),
        cells: Coords::from_slice(&[4, 8]),
        packed: (0, u64::MAX),
        items,
    }
}

type Read = (Answer<Vec<bool>>, Vec<u8>, Option<StoreError>);

/// Reads one batch.
fn read(rig: &Rig, request: &BatchRequest) -> Read {
    let (answer, bytes, failed) = read_all(rig, vec![request.clone()]);
    let answer = answer.map(|mut found| {
        let found = found.pop().unwrap();
        assert_eq!(found.bytes, bytes.len() as u64);
        found.found
    });
    (answer, bytes, failed)
}

fn read_all(
    rig: &Rig,
    requests: Vec<BatchRequest>,
) -> (Answer<Vec<BatchFound>>, Vec<u8>, Option<StoreError>) {
    let (answer, mut bytes): (Answer<Vec<BatchFound>>, _) =
        rig.ask(kind::READ_BATCH, &requests, b"");
    if answer.is_err() {
        assert!(bytes.is_empty());
        return (answer, bytes, None);
    }
    let end: [u8; TRAILER] = bytes.split_off(bytes.len() - TRAILER).try_into().unwrap();
    (answer, bytes, read_trailer(&end).unwrap())
}

/// Batches without accompanying chunks.
fn writes(requests: Vec<BatchRequest>) -> BatchWrites {
    BatchWrites {
        puts: Vec::new(),
        batches: BatchRequests(requests),
    }
}

/// A chunk of 32 bytes that count from 0.
fn counting(rig: &Rig, name: ChunkName) {
    let bytes: Vec<u8> = (0..32).collect();
    let slices = [IoSlice::new(&bytes)];
    let full = Hyperslab::all(&[4, 8]);
    match name {
        ChunkName::Free(_) => rig.store.put(&name, &form(&[4, 8]), &slices),
        ChunkName::Grid { .. } => rig.store.write(&name, &form(&[4, 8]), &full, &slices),
    }
    .unwrap();
}

#[test]
fn pieces_are_packed_and_missing_chunks_are_reported() {
    let rig = rig();
    counting(&rig, free(9));
    for by_pieces in [false, true] {
        let there = BatchItem {
            by_pieces,
            ..item(free(9))
        };
        let asked = request(vec![item(free(8)), there, item(grid(&[0]))]);
        let (answer, bytes, failed) = read(&rig, &asked);
        assert_eq!(answer, Ok(vec![false, true, false]));
        assert_eq!(bytes, [1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22, 25, 26]);
        assert_eq!(failed, None);
    }
    // Half of each row, and a range of the packed bytes: bytes outside are not sent.
    let half = Hyperslab::from_region(&Region::new(&[0, 2], &[4, 4]));
    let asked = BatchRequest {
        packed: (1, 9),
        ..request(vec![BatchItem {
            want: half.clone(),
            slab: half,
            ..item(free(9))
        }])
    };
    assert_eq!(read(&rig, &asked).1, [2, 5, 10, 13]);
}

#[test]
fn errors_during_the_reply_are_reported_behind_the_bytes() {
    let rig = rig();
    counting(&rig, free(9));
    counting(&rig, free(3));
    // Reading the bytes of chunk 3 fails, which invalidates all bytes of the message.
    rig.store.trap.store(3, Relaxed);
    let (answer, bytes, failed) = read(&rig, &request(vec![item(free(9)), item(free(3))]));
    assert_eq!((answer, bytes.len()), (Ok(vec![true, true]), 28));
    let named = matches!(&failed, Some(StoreError::Damaged { name, .. }) if *name == free(3));
    assert!(named, "{failed:?}");
    // The connection remains usable.
    let (answer, bytes, failed) = read(&rig, &request(vec![item(free(9))]));
    assert_eq!((answer, bytes.len(), failed), (Ok(vec![true]), 14, None));
}

#[test]
fn pieces_are_written_into_grid_chunks() {
    let rig = rig();
    counting(&rig, grid(&[0]));
    let new: Vec<u8> = (100..114).collect();
    let asked = request(vec![item(grid(&[0]))]);
    assert_eq!(
        rig.outcome(kind::WRITE_BATCH, &writes(vec![asked.clone()]), &new)
            .done,
        1
    );
    let (_, bytes, _) = read(&rig, &asked);
    assert_eq!(bytes, new);
    let mut all = [0; 32];
    let full = Hyperslab::all(&[4, 8]);
    rig.store
        .read(&grid(&[0]), &form(&[4, 8]), &full, &mut all)
        .unwrap();
    assert_eq!(
        (all[0], all[1], all[2], all[3], all[31]),
        (0, 100, 101, 3, 31)
    );
}

/// Several batches and complete chunks in one message: applied in order; a message with inconsistent lengths changes
/// nothing.
#[test]
fn several_batches_go_in_one_message() {
    let rig = rig();
    counting(&rig, free(9));
    counting(&rig, grid(&[0]));
    let part = |packed, name| BatchRequest {
        packed,
        ..request(vec![item(name)])
    };
    let asked = vec![
        part((0, 4), free(9)),
        part((2, 6), free(8)),
        part((12, 14), grid(&[0])),
    ];
    let (answer, bytes, failed) = read_all(&rig, asked);
    let found = |there, bytes| BatchFound {
        found: vec![there],
        bytes,
    };
    assert_eq!(
        answer,
        Ok(vec![found(true, 4), found(false, 0), found(true, 2)])
    );
    assert_eq!((&bytes[..], failed), (&[1, 2, 5, 6, 25, 26][..], None));
    // The second batch overwrites part of the first.
    let put = |bytes| WriteItem {
        name: free(11),
        form: form(&[4, 8]),
        op: WriteOp::Put,
        bytes,
    };
    let mut all = BatchWrites {
        puts: vec![put(32)],
        ..writes(vec![part((0, 4), grid(&[0])), part((2, 6), grid(&[0]))])
    };
    let mut payload = vec![7; 32];
    payload.extend([101, 102, 103, 104, 105, 106, 107, 108]);
    for (puts, len) in [(33, 40), (32, 39), (u64::MAX, 40)] {
        all.puts[0].bytes = puts;
        let outcome = rig.outcome(kind::WRITE_BATCH, &all, &payload[..len]);
        assert!(outcome.failed.is_some(), "{puts} of {len}");
    }
    all.puts[0].bytes = 32;
    let outcome = rig.outcome(kind::WRITE_BATCH, &all, &payload);
    assert_eq!((outcome.done, outcome.failed), (3, None));
    let (_, bytes, _) = read(&rig, &part((0, 6), grid(&[0])));
    assert_eq!(bytes, [101, 102, 105, 106, 107, 108]);
    let (_, bytes, _) = read(&rig, &part((0, 2), free(11)));
    assert_eq!(bytes, [7, 7]);
    // Only complete chunks may accompany batches.
    all.puts[0].op = WriteOp::Append { at: 0 };
    let outcome = rig.outcome(kind::WRITE_BATCH, &all, &payload);
    assert!(matches!(outcome.failed, Some(StoreError::Protocol(_))));
}

/// Requests that no honest client sends.
fn hostile() -> Vec<BatchRequest> {
    let node = |offset, stride, count, what| FlatNode {
        offset,
        absolute: false,
        stride,
        count,
        what,
    };
    let nodes = |nodes: Vec<FlatNode>| BatchRequest {
        batch: Flat { nodes },
        ..request(vec![item(grid(&[0]))])
    };
    let full = Hyperslab::all;
    let with = |change: &dyn Fn(&mut BatchItem)| {
        let mut one = item(grid(&[0]));
        change(&mut one);
        request(vec![one])
    };
    const RANK: usize = MAX_RANK + 1;
    vec![
        nodes(vec![node(-1, 0, 1, FlatWhat::Data(1))]),
        nodes(vec![node(i64::MAX, 0, 1, FlatWhat::Data(1))]),
        nodes(vec![node(0, i64::MAX, u64::MAX, FlatWhat::Data(1))]),
        nodes(vec![node(0, 0, u64::MAX, FlatWhat::Data(u64::MAX))]),
        nodes(vec![node(0, 0, 1, FlatWhat::Vector(3))]),
        nodes(vec![node(0, 0, 1, FlatWhat::Vector(1)); 100]),
        // More than a message: the same byte again and again.
        nodes(vec![node(0, 0, 1 << 40, FlatWhat::Data(1))]),
        with(&|item| item.want = full(&[4, 9])),
        with(&|item| item.slab = full(&[8, 4])),
        with(&|item| item.slab = full(&[5, 8])),
        with(&|item| item.form = form(&[0, 8])),
        with(&|item| item.form = form(&[u64::MAX, u64::MAX])),
        with(&|item| item.form.elem = 0),
        with(&|item| {
            item.form = form(&[1; RANK]);
            item.want = full(&[1; RANK]);
            item.slab = full(&[1; RANK]);
        }),
        BatchRequest {
            cells: Coords::from_slice(&[u64::MAX, u64::MAX]),
            ..with(&|item| {
                item.want = Hyperslab::from_region(&Region::new(&[u64::MAX - 9, 0], &[4, 8]));
            })
        },
        BatchRequest {
            cells: Coords::from_slice(&[4]),
            ..request(vec![item(grid(&[0]))])
        },
    ]
}

#[test]
fn hostile_batches_are_refused() {
    let rig = rig();
    counting(&rig, grid(&[0]));
    let changes = rig.store.changes.load(Relaxed);
    for asked in hostile() {
        let (answer, ..) = read(&rig, &asked);
        assert!(
            matches!(answer, Err(StoreError::Invalid(_))),
            "{asked:?}: {answer:?}"
        );
        let outcome = rig.outcome(kind::WRITE_BATCH, &writes(vec![asked.clone()]), b"abc");
        let refused = matches!(
            outcome.failed,
            Some(StoreError::Invalid(_) | StoreError::Protocol(_))
        );
        assert!(refused, "{asked:?}: {outcome:?}");
    }
    let good = request(vec![item(grid(&[0]))]);
    for payload in [&b""[..], &[1; 13], &[1; 15]] {
        let outcome = rig.outcome(kind::WRITE_BATCH, &writes(vec![good.clone()]), payload);
        assert!(
            matches!(outcome.failed, Some(StoreError::Protocol(_))),
            "{outcome:?}"
        );
    }
    let immutable = rig.outcome(
        kind::WRITE_BATCH,
        &writes(vec![request(vec![item(free(9))])]),
        &[1; 14],
    );
    assert!(matches!(immutable.failed, Some(StoreError::Invalid(_))));
    assert_eq!(rig.store.changes.load(Relaxed), changes);
    // A range that ends before it begins, or lies beyond the end, is empty.
    for packed in [(9, 3), (99, 100), (u64::MAX, u64::MAX)] {
        let none = BatchRequest {
            packed,
            ..good.clone()
        };
        assert_eq!(read(&rig, &none), (Ok(vec![true]), vec![], None));
    }
    // Too many nodes are rejected when decoding.
    let node = FlatNode {
        offset: 0,
        absolute: false,
        stride: 0,
        count: 1,
        what: FlatWhat::Data(1),
    };
    let long = BatchRequest {
        batch: Flat {
            nodes: vec![node; MAX_NODES + 1],
        },
        ..good.clone()
    };
    let (answer, ..) = read(&rig, &long);
    assert!(matches!(answer, Err(StoreError::Protocol(_))), "{answer:?}");
    // The limit applies to all batches of a message together.
    let half = BatchRequest {
        batch: Flat {
            nodes: vec![node; MAX_NODES / 2],
        },
        ..good.clone()
    };
    let (answer, ..) = read_all(&rig, vec![half.clone(), half.clone()]);
    assert!(answer.is_ok(), "{answer:?}");
    let (answer, ..) = read_all(&rig, vec![half.clone(), half, good]);
    assert!(matches!(answer, Err(StoreError::Protocol(_))), "{answer:?}");
    let stray: (Answer<Vec<BatchFound>>, _) = rig.ask(kind::READ_BATCH, &vec![long], b"x");
    assert!(stray.0.is_err());
}
