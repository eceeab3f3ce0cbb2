//! Tests over an object store in a directory: the conformance suite, restarts, two processes of one identity, a small cache.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use slabfs_model::{Codec, Hyperslab, ObjectId, Region};
use slabfs_objstore::store::conformance;
use slabfs_objstore::{ChunkName, ChunkStore};

use crate::{Bucket, S3Options, S3Store};

fn bucket(dir: &Path) -> Bucket {
    std::fs::create_dir_all(dir).unwrap();
    let store = LocalFileSystem::new_with_prefix(dir).unwrap();
    Bucket::over(Arc::new(store), "p", dir.display().to_string()).unwrap()
}

fn open(dir: &Path, name: &str, cache_bytes: u64) -> S3Store {
    let options = S3Options { cache_bytes };
    S3Store::open(
        &dir.join(name),
        bucket(&dir.join("bucket")),
        Some("one"),
        options,
    )
    .unwrap()
}

fn grid(place: u64) -> ChunkName {
    ChunkName::Grid {
        object: ObjectId(7),
        generation: 1,
        at: [place].into_iter().collect(),
    }
}

fn free(id: u64) -> ChunkName {
    conformance::free(id)
}

#[test]
fn conforms() {
    let dir = tempfile::tempdir().unwrap();
    conformance::run(&open(dir.path(), "a", 1 << 30));
}

#[test]
fn conforms_with_a_cache_that_is_too_small() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), "a", 1 << 16);
    for seed in 1..4 {
        conformance::random::run(&store, seed, 250);
        store.sync(&[]).unwrap();
    }
}

fn all(len: u64) -> Hyperslab {
    Hyperslab::from_region(&Region::all(&[len]))
}

/// What was synced is there after the loss of the directory; what was not is not.
#[test]
fn what_was_synced_survives_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let len = 3_000_000;
    let form = conformance::form(&[len], 1, Codec::None, &[]);
    let bytes = |seed: u8| -> Vec<u8> { (0..len).map(|i| (i % 251) as u8 ^ seed).collect() };
    {
        let store = open(dir.path(), "a", 1 << 30);
        for (number, name) in [free(1), free(2), free(3)].iter().enumerate() {
            store
                .put(name, &form, &[IoSlice::new(&bytes(number as u8))])
                .unwrap();
        }
        let small = conformance::form(&[100], 1, Codec::None, &[]);
        store
            .put(&free(4), &small, &[IoSlice::new(&[4; 100])])
            .unwrap();
        store
            .write(&grid(0), &form, &all(len), &[IoSlice::new(&bytes(9))])
            .unwrap();
        store.sync(&[free(1), free(2), free(4), grid(0)]).unwrap();
        // In the middle of a block.
        let part = Hyperslab::from_region(&Region::new(&[1_500_000], &[10]));
        store
            .write(&grid(0), &form, &part, &[IoSlice::new(&[0; 10])])
            .unwrap();
        store.sync(&[grid(0)]).unwrap();
        store.delete(&[free(2)]).unwrap();
        store.sync(&[]).unwrap();
        store
            .write(&grid(0), &form, &part, &[IoSlice::new(&[1; 10])])
            .unwrap();
    }
    // Another machine takes the identity.
    let store = open(dir.path(), "b", 1 << 30);
    let mut out = vec![0; len as usize];
    store.read(&free(1), &form, &all(len), &mut out).unwrap();
    assert!(out == bytes(0));
    assert!(store.read(&free(2), &form, &all(len), &mut out).is_err());
    // Synced with all others, by the sync without names.
    store.read(&free(3), &form, &all(len), &mut out).unwrap();
    assert!(out == bytes(2));
    store.read(&grid(0), &form, &all(len), &mut out).unwrap();
    let mut wanted = bytes(9);
    wanted[1_500_000..1_500_010].fill(0);
    assert!(out == wanted);
    let names: Vec<ChunkName> = store
        .list(None, 10)
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, [free(1), free(3), free(4), grid(0)]);
    store.verify(&free(1)).unwrap();
    // With its index stored, old segments go.
    store.close().unwrap();
    drop(store);
    let store = open(dir.path(), "b", 1 << 30);
    store.read(&grid(0), &form, &all(len), &mut out).unwrap();
    assert!(out == wanted);
}

/// Of two processes with one identity the older one can acknowledge nothing any more.
#[test]
fn a_process_that_was_replaced_stops() {
    let dir = tempfile::tempdir().unwrap();
    let form = conformance::form(&[10], 1, Codec::None, &[]);
    let old = open(dir.path(), "a", 1 << 20);
    old.put(&free(1), &form, &[IoSlice::new(&[1; 10])]).unwrap();
    old.sync(&[free(1)]).unwrap();
    let new = open(dir.path(), "b", 1 << 20);
    // It finds out at the latest when it has to create a segment.
    let error = old
        .put(&free(2), &form, &[IoSlice::new(&[2; 10])])
        .and_then(|()| old.sync(&[free(2)]))
        .unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    assert!(old.put(&free(3), &form, &[IoSlice::new(&[3; 10])]).is_err());
    let mut out = [0; 10];
    new.read(&free(1), &form, &all(10), &mut out).unwrap();
    assert!(new.read(&free(2), &form, &all(10), &mut out).is_err());
    new.put(&free(2), &form, &[IoSlice::new(&[4; 10])]).unwrap();
    new.sync(&[free(2)]).unwrap();
}
