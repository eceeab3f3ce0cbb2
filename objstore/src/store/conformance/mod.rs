//! The conformance suite of chunk stores: functions that panic if a store violates the contract.
//!
//! [`run`] runs all of it, on a store that is empty or holds chunks with other names: the suite uses free ids and
//! objects from [`FIRST_ID`] up, and deletes its chunks.
//!
//! - [`cases`]: one function per guarantee.
//! - [`random`]: random operations against arrays in memory.

pub mod cases;
pub mod random;

use std::io::IoSlice;
use std::os::unix::fs::FileExt;

use slabfs_model::{ChunkId, Codec, Coords, Fill, Hyperslab, ObjectId, Region};

use super::{Blank, ChunkStore};
use crate::name::{ChunkForm, ChunkName};

/// The first id of chunks and objects the suite uses.
pub const FIRST_ID: u64 = 1 << 40;

/// Runs the entire suite.
pub fn run(store: &dyn ChunkStore) {
    for (_, case) in cases::ALL {
        case(store);
    }
    for seed in 1..=4 {
        random::run(store, seed, 250);
    }
}

/// A free chunk of the suite.
#[must_use]
pub fn free(id: u64) -> ChunkName {
    ChunkName::Free(ChunkId(FIRST_ID + id))
}

/// A grid chunk of the suite.
#[must_use]
pub fn grid(object: u64, generation: u32, at: &[u64]) -> ChunkName {
    ChunkName::Grid {
        object: ObjectId(FIRST_ID + object),
        generation,
        at: at.iter().copied().collect(),
    }
}

/// A form with elements of `elem` bytes.
#[must_use]
pub fn form(shape: &[u64], elem: u32, codec: Codec, fill: &[u8]) -> ChunkForm {
    ChunkForm {
        shape: shape.iter().copied().collect(),
        elem,
        codec,
        fill: Fill::from_bytes(fill),
    }
}

/// A box as a slab.
#[must_use]
pub fn boxed(offset: &[u64], shape: &[u64]) -> Hyperslab {
    Hyperslab::from_region(&Region {
        offset: coords(offset),
        shape: coords(shape),
    })
}

fn coords(of: &[u64]) -> Coords {
    of.iter().copied().collect()
}

/// Pseudo-random bytes, determined by the seed.
#[must_use]
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut out: Vec<u8> = std::iter::repeat_with(|| random.next().to_le_bytes())
        .take(len.div_ceil(8))
        .flatten()
        .collect();
    out.truncate(len);
    out
}

/// Compressible bytes.
#[must_use]
pub fn smooth(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|x| ((x / 37 + seed) % 251) as u8)
        .collect()
}

/// Reads cells, or panics.
pub fn read(
    store: &dyn ChunkStore,
    name: &ChunkName,
    form: &ChunkForm,
    slab: &Hyperslab,
) -> Vec<u8> {
    let mut out = vec![0xEE; slab.volume() as usize];
    match store.read(name, form, slab, &mut out) {
        Ok(()) => out,
        Err(error) => panic!("reading {slab:?} of {name}: {error}"),
    }
}

/// The cells as read from the file range of [`ChunkStore::file_part`], if there is one.
fn in_file(
    store: &dyn ChunkStore,
    name: &ChunkName,
    form: &ChunkForm,
    slab: &Hyperslab,
) -> Option<Vec<u8>> {
    let mut in_file = None;
    let is_part = store
        .file_part(name, form, slab, &mut |part| {
            let mut bytes = vec![0xEE; part.len as usize];
            part.file
                .read_exact_at(&mut bytes, part.at)
                .expect("in_file");
            in_file = Some(bytes);
        })
        .expect("part");
    assert_eq!(is_part, in_file.is_some());
    in_file
}

/// Writes a chunk to its file, as a client on the same host does.
pub fn fill(blank: &Blank, data: &[u8]) {
    let file = blank.for_writing().expect("a file");
    let mut rest = data;
    for place in blank.places() {
        let (now, later) = rest.split_at(place.len as usize);
        file.write_all_at(now, place.at).expect("room");
        rest = later;
    }
    assert!(rest.is_empty(), "there are no places for all of it");
}

fn slices(data: &[u8]) -> [IoSlice<'_>; 1] {
    [IoSlice::new(data)]
}

/// A small pseudo-random number generator (xorshift64*).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed; 0 is as good as any.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
