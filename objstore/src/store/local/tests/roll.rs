//! The roll of grid chunks after a loss of power.

use std::fs;
use std::io::IoSlice;

use slabfs_model::Codec;

use super::super::*;
use super::fast;
use crate::store::conformance::{form, grid, noise, read};

/// A loss of power takes from the roll that a chunk was deleted, and leaves the small one that has its name since. When
/// that is deleted in turn, nothing is missing.
#[test]
fn a_small_chunk_in_place_of_a_large_one_is_not_missed_when_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let name = grid(9, 1, &[0]);
    let form = form(&[1 << 20], 1, Codec::None, &[]);
    let (large, small) = (noise(200_000, 3), noise(100, 4));
    let write = |store: &LocalStore, data: &[u8]| {
        let slab = Hyperslab::whole(&[data.len() as u64]);
        store
            .write(&name, &form, &slab, &[IoSlice::new(data)])
            .unwrap();
        store.sync(&[]).unwrap();
    };
    let open = || LocalStore::open(dir.path(), fast()).unwrap();
    let delete = |store: &LocalStore| {
        store.delete(std::slice::from_ref(&name)).unwrap();
        store.sync(&[]).unwrap();
    };
    let store = open();
    write(&store, &large);
    let roll = dir.path().join("roll");
    let before = fs::read(&roll).unwrap();
    delete(&store);
    write(&store, &small);
    store.crash();
    assert_ne!(fs::read(&roll).unwrap(), before);
    fs::write(&roll, &before).unwrap();
    let store = open();
    let slab = Hyperslab::whole(&[100]);
    assert_eq!(read(&store, &name, &form, &slab), small);
    delete(&store);
    store.close().unwrap();
    let store = open();
    let got = store.read(&name, &form, &slab, &mut [0; 100]);
    assert_eq!(got, Err(StoreError::Missing(name.clone())));
    write(&store, &large);
}
