//! Tests of large chunks that are stored as they arrive.

use std::time::Instant;

use super::blank::{House, house, long};
use super::*;
use crate::wire::{Buffers, Connection};

/// Contents that differ for each chunk.
fn bytes(id: u64, len: u64) -> Vec<u8> {
    (0..len)
        .map(|at| ((at * (2 * id + 1)) >> 9) as u8 ^ at as u8)
        .collect()
}

fn items(chunks: &[(u64, u64, Codec)]) -> (Vec<WriteItem>, Vec<u8>) {
    let item = |&(id, len, codec): &(u64, u64, Codec)| {
        let mut item = put(id, &[len]);
        item.form.codec = codec;
        item
    };
    let payload = chunks.iter().flat_map(|&(id, len, _)| bytes(id, len));
    (chunks.iter().map(item).collect(), payload.collect())
}

impl House {
    fn write(&self, items: &[WriteItem], payload: &[u8]) -> Outcome {
        let session = SessionId(3);
        let control = postcard::to_allocvec(&BySession {
            session,
            epoch: 0,
            items,
        })
        .unwrap();
        let payload = [IoSlice::new(payload)];
        let reply = (self.pool)
            .call(kind::WRITE, &control, &payload, &mut Vec::new())
            .unwrap();
        postcard::from_bytes(&reply).unwrap()
    }

    /// Whether a chunk exists; if so, it must equal the sent bytes and verify.
    fn holds(&self, item: &WriteItem) -> bool {
        let mut out = vec![0; item.bytes as usize];
        let slab = Hyperslab::all(&item.form.shape);
        let ChunkName::Free(id) = item.name else {
            unreachable!("all are free")
        };
        match self.store.read(&item.name, &item.form, &slab, &mut out) {
            Ok(()) => {
                assert!(out == bytes(id.0, item.bytes), "{}", item.name);
                self.store.verify(&item.name).unwrap();
                true
            }
            Err(StoreError::Missing(_)) => false,
            Err(e) => panic!("{e}"),
        }
    }

    fn await_files(&self, count: usize) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.files() != count {
            assert!(Instant::now() < end, "{} files", self.files());
            std::thread::yield_now();
        }
    }
}

#[test]
fn chunks_of_all_kinds_come_in_one_message() {
    let house = long();
    let (items, payload) = items(&[
        (1, (3 << 20) + 777, Codec::None),
        (2, 1000, Codec::None),
        (3, 2_500_001, Codec::Zstd(1)),
        (4, 500_000, Codec::None),
        (5, (1 << 20) + 1, Codec::None),
        (6, 12 << 20, Codec::None),
    ]);
    for _ in 0..2 {
        // The second time they exist already.
        let outcome = house.write(&items, &payload);
        assert_eq!((outcome.done, outcome.failed), (6, None));
        assert!(items.iter().all(|item| house.holds(item)));
    }
    // The others are small as stored.
    assert_eq!(house.files(), 4);
}

/// The chunk has more than one group of checksummed blocks.
#[test]
fn the_largest_chunk_that_a_message_takes() {
    let house = long();
    let (items, payload) = items(&[(1, 64 << 20, Codec::None)]);
    let outcome = house.write(&items, &payload);
    assert_eq!((outcome.done, outcome.failed), (1, None));
    assert!(house.holds(&items[0]));
}

#[test]
fn a_failure_ends_the_message_and_not_the_connection() {
    let house = long();
    let (all, payload) = items(&[
        (1, 2 << 20, Codec::None),
        (2, 3 << 20, Codec::None),
        (3, 2 << 20, Codec::None),
    ]);
    let with = |second: WriteItem| vec![all[0].clone(), second, all[2].clone()];
    let mut shorter = all[1].clone();
    shorter.form = form(&[3 << 19]);
    let mut of_grid = all[1].clone();
    of_grid.name = grid(&[1]);
    let mut wild = all[1].clone();
    wild.form.elem = 0;
    for second in [shorter, of_grid, wild] {
        let outcome = house.write(&with(second), &payload);
        assert_eq!(outcome.done, 1);
        assert!(matches!(outcome.failed, Some(StoreError::Invalid(_))));
        assert!(house.holds(&all[0]) && !house.holds(&all[1]) && !house.holds(&all[2]));
        assert_eq!(house.files(), 1);
    }
    // Different contents under the same name.
    let mut other = payload.clone();
    other[1 << 20] ^= 1;
    let outcome = house.write(&all, &other);
    assert_eq!(outcome.done, 0);
    assert!(outcome.failed.is_some());
    assert!(house.holds(&all[0]) && !house.holds(&all[1]));
    // Inconsistent lengths, and a control part that cannot be decoded.
    for wrong in [&payload[..payload.len() - 1], &payload[..2 << 20]] {
        let outcome = house.write(&all, wrong);
        assert_eq!(outcome.done, 0);
        assert!(matches!(outcome.failed, Some(StoreError::Protocol(_))));
    }
    let mut huge = all.clone();
    huge[1].bytes = u64::MAX;
    let outcome = house.write(&huge, &payload);
    assert!(matches!(outcome.failed, Some(StoreError::Protocol(_))));
    let reply = (house.pool)
        .call(
            kind::WRITE,
            b"\xff\xff",
            &[IoSlice::new(&payload)],
            &mut Vec::new(),
        )
        .unwrap();
    let outcome: Outcome = postcard::from_bytes(&reply).unwrap();
    assert!(matches!(outcome.failed, Some(StoreError::Protocol(_))));
    // All on one connection, which remains usable.
    let outcome = house.write(&all, &payload);
    assert_eq!((outcome.done, outcome.failed), (3, None));
    assert_eq!(house.connections(), 1);
}

/// A peer that disconnects, and one that falls silent, in the middle of a chunk.
#[test]
fn nothing_remains_of_an_incomplete_chunk() {
    let (items, payload) = items(&[(1, 5 << 20, Codec::None)]);
    let begun = |house: &House| {
        let session = SessionId(3);
        let items = &items;
        let control = postcard::to_allocvec(&BySession {
            session,
            epoch: 0,
            items,
        })
        .unwrap();
        let soon = Instant::now() + Duration::from_secs(10);
        let mut connection = Connection::connect(&house.pool.addr(), None, soon).unwrap();
        let total = payload.len() as u64;
        (connection.send_head(kind::WRITE, 1, &control, total, soon)).unwrap();
        connection.send_more(&payload[..3 << 20], soon).unwrap();
        connection
    };
    let ends_well = |house: &House| {
        house.await_files(0);
        assert!(!house.holds(&items[0]));
        let outcome = house.write(&items, &payload);
        assert_eq!((outcome.done, outcome.failed), (1, None));
        assert!(house.holds(&items[0]));
    };
    let patient = long();
    let connection = begun(&patient);
    patient.await_files(1);
    drop(connection);
    ends_well(&patient);

    let hasty = house(Duration::from_millis(300));
    let mut connection = begun(&hasty);
    let later = Instant::now() + Duration::from_secs(20);
    let rest = Duration::from_secs(20);
    let said = (connection.recv(&mut Buffers::default(), later, rest)).map(|frame| frame.kind);
    assert!(matches!(said, Err(WireError::Closed { .. })), "{said:?}");
    ends_well(&hasty);
}
