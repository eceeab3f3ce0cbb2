//! Tests of the roll: grid chunks that were deleted and recreated before a power failure.

use std::fs;
use std::io::IoSlice;

use slabfs_model::Codec;

use super::super::*;
use super::fast;
use crate::store::conformance::{form, grid, noise, read};

/// A power failure loses the deletion of a large chunk in the roll, while a small chunk has its name since. When the
/// small chunk is deleted, the chunk is not reported as lost.
#[test]
fn a_small_chunk_that_replaced_a_large_one_is_not_lost_when_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let name = grid(9, 1, &[0]);
    let form = form(&[1 << 20], 1, Codec::None, &[]);
    let (large, small) = (noise(200_000, 3), noise(100, 4));
    let write = |store: &LocalStore, data: &[u8]| {
        let slab = Hyperslab::all(&[data.len() as u64]);
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
    let slab = Hyperslab::all(&[100]);
    assert_eq!(read(&store, &name, &form, &slab), small);
    delete(&store);
    store.close().unwrap();
    let store = open();
    let got = store.read(&name, &form, &slab, &mut [0; 100]);
    assert_eq!(got, Err(StoreError::Missing(name.clone())));
    write(&store, &large);
}

/// A file was created and deleted before it was on disk, and a small chunk of the same name is on disk. A power failure
/// restores the file, empty; it must not replace the small chunk.
#[test]
fn a_file_that_was_never_on_disk_does_not_replace_a_newer_record() {
    for len in [0, 8192] {
        let dir = tempfile::tempdir().unwrap();
        let name = grid(9, 1, &[0]);
        let form = form(&[1 << 20], 1, Codec::None, &[]);
        let slab = Hyperslab::all(&[100]);
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
        // Also without the roll.
        fs::remove_file(dir.path().join("roll")).unwrap();
        let store = LocalStore::open(dir.path(), fast()).unwrap();
        assert_eq!(read(&store, &name, &form, &slab), small);
        store.close().unwrap();
    }
}
