//! Tests over an object store in a directory: the conformance suite, restarts, two processes of one identity, a small cache.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use slabfs_model::{Codec, Hyperslab, ObjectId, Region};
use slabfs_objstore::store::conformance;
use slabfs_objstore::{ChunkForm, ChunkName, ChunkStore};

use crate::bucket::Made;
use crate::segment::{Draft, Entry, Place, What};
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

/// Creates the next segment as this process does, without its knowledge: as if the answer was lost.
fn create_unanswered(store: &S3Store, name: &ChunkName, form: &ChunkForm, bytes: &[u8]) {
    let mut draft = Draft::default();
    let part = draft.push(bytes);
    draft.entries.push(Entry {
        name: name.clone(),
        what: What::Chunk {
            form: form.clone(),
            encoded: false,
            place: Place::Here(part),
        },
    });
    let number = store.state.lock().index.next;
    let bytes = draft.finish(number, store.writer).unwrap();
    let made = store
        .bucket
        .create(&store.segment_key(number), bytes.into());
    assert_eq!(made.unwrap(), Made::Created);
}

/// A segment whose creation was not answered is not taken for another one that is tried later.
#[test]
fn unanswered_segments_count() {
    let dir = tempfile::tempdir().unwrap();
    let form = conformance::form(&[10], 1, Codec::None, &[]);
    {
        let store = open(dir.path(), "a", 1 << 20);
        store
            .put(&free(1), &form, &[IoSlice::new(&[1; 10])])
            .unwrap();
        create_unanswered(&store, &free(1), &form, &[1; 10]);
        store
            .put(&free(2), &form, &[IoSlice::new(&[2; 10])])
            .unwrap();
        store.sync(&[free(1), free(2)]).unwrap();
        // Deleted before it is known that it was stored.
        store
            .put(&free(3), &form, &[IoSlice::new(&[3; 10])])
            .unwrap();
        create_unanswered(&store, &free(3), &form, &[3; 10]);
        store.delete(&[free(3)]).unwrap();
        store
            .put(&free(4), &form, &[IoSlice::new(&[4; 10])])
            .unwrap();
        store.sync(&[free(4)]).unwrap();
        store.close().unwrap();
    }
    let store = open(dir.path(), "b", 1 << 20);
    let mut out = [0; 10];
    for id in [1, 2, 4] {
        store.read(&free(id), &form, &all(10), &mut out).unwrap();
        assert_eq!(out, [id as u8; 10]);
    }
    assert!(store.list(None, 10).unwrap().len() <= 4);
}

/// A process finds out that it was replaced although a segment of its own comes before that of the other one.
#[test]
fn a_replaced_process_looks_behind_its_own_segments() {
    let dir = tempfile::tempdir().unwrap();
    let form = conformance::form(&[10], 1, Codec::None, &[]);
    let old = open(dir.path(), "a", 1 << 20);
    create_unanswered(&old, &free(1), &form, &[1; 10]);
    let _new = open(dir.path(), "b", 1 << 20);
    assert!(old.look_for_another().is_err());
    assert!(old.may_answer().is_err());
}

/// The same after its successor has deleted all segments that it does not need.
#[test]
fn a_process_that_was_replaced_long_ago_stops() {
    let dir = tempfile::tempdir().unwrap();
    let form = conformance::form(&[10], 1, Codec::None, &[]);
    let put = |store: &S3Store, id: u64| {
        let put = store.put(&free(id), &form, &[IoSlice::new(&[1; 10])]);
        put.and_then(|()| store.sync(&[free(id)]))
    };
    let old = open(dir.path(), "a", 1 << 20);
    put(&old, 1).unwrap();
    for round in 2..4 {
        let new = open(dir.path(), "b", 1 << 20);
        put(&new, round).unwrap();
        new.delete(&[free(1), free(round)]).unwrap();
        new.close().unwrap();
    }
    assert!(put(&old, 9).is_err());
    assert!(old.may_answer().is_err());
}
