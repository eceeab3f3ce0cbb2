//! Grid chunks that were deleted and made anew, after a loss of power.

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

/// A file was made, deleted before it was on disk, and a small chunk of its name is: the file that a loss of power
/// brings back, without anything in it, does not take its place.
#[test]
fn a_file_that_was_never_on_disk_does_not_replace_a_newer_record() {
    for len in [0, 8192] {
        let dir = tempfile::tempdir().unwrap();
        let name = grid(9, 1, &[0]);
        let form = form(&[1 << 20], 1, Codec::None, &[]);
        let slab = Hyperslab::whole(&[100]);
        let small = noise(100, 4);
        let store = LocalStore::open(dir.path(), fast()).unwrap();
        let path = store.directory.chunk_path(&name);
        store
            .write(&name, &form, &slab, &[IoSlice::new(&small)])
            .unwrap();
        store.sync(&[]).unwrap();
        store.crash();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![0; len]).unwrap();
        // Also where the roll cannot tell.
        fs::remove_file(dir.path().join("roll")).unwrap();
        let store = LocalStore::open(dir.path(), fast()).unwrap();
        assert_eq!(read(&store, &name, &form, &slab), small);
        store.close().unwrap();
    }
}
