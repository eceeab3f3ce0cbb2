//! Tests over an object store in a directory: the conformance suite, restarts, two processes of one identity, a small cache.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use slabfs_model::{Codec, Hyperslab, ObjectId, Region};
use slabfs_objstore::store::conformance;
use slabfs_objstore::{ChunkForm, ChunkName, ChunkStore, StoreError};

use crate::bucket::Made;
use crate::change::Touch;
use crate::segment::{BLOCK, Draft, Entry, Place, What};
use crate::{Bucket, Durability, S3Options, S3Store};

mod damage;

fn bucket(dir: &Path) -> Bucket {
    std::fs::create_dir_all(dir).unwrap();
    let store = LocalFileSystem::new_with_prefix(dir).unwrap();
    Bucket::over(Arc::new(store), "p", dir.display().to_string()).unwrap()
}

fn open(dir: &Path, name: &str, cache_bytes: u64) -> S3Store {
    let options = S3Options {
        cache_bytes,
        ..S3Options::default()
    };
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

/// A process that is killed loses nothing if the next one has its directory: what was not uploaded is there, and uploaded then. The
/// verifier stays.
#[test]
fn a_killed_process_leaves_its_cache() {
    let dir = tempfile::tempdir().unwrap();
    let form = conformance::form(&[2_500_000], 1, Codec::None, &[]);
    let bytes = |seed: u8| -> Vec<u8> { (0..2_500_000).map(|i| (i % 251) as u8 ^ seed).collect() };
    let part = Hyperslab::from_region(&Region::new(&[1_500_000], &[10]));
    let store = open(dir.path(), "a", 1 << 30);
    let verifier = store.verifier();
    for id in 1..4 {
        store
            .put(&free(id), &form, &[IoSlice::new(&bytes(id as u8))])
            .unwrap();
    }
    store
        .write(&grid(0), &form, &all(2_500_000), &[IoSlice::new(&bytes(9))])
        .unwrap();
    store.sync(&[free(1), grid(0)]).unwrap();
    // Not synced: a part of a block, a chunk, a stream that goes on, and a deletion.
    store
        .write(&grid(0), &form, &part, &[IoSlice::new(&[7; 10])])
        .unwrap();
    store
        .append(&free(5), &form, 0, &[IoSlice::new(&bytes(5)[..1000])])
        .unwrap();
    store.delete(&[free(3)]).unwrap();
    drop(store);

    let store = open(dir.path(), "a", 1 << 30);
    assert_eq!(store.verifier(), verifier);
    let mut out = vec![0; 2_500_000];
    for id in 1..3 {
        store
            .read(&free(id), &form, &all(2_500_000), &mut out)
            .unwrap();
        assert!(out == bytes(id as u8));
    }
    assert!(
        store
            .read(&free(3), &form, &all(2_500_000), &mut out)
            .is_err()
    );
    let mut wanted = bytes(9);
    wanted[1_500_000..1_500_010].fill(7);
    store
        .read(&grid(0), &form, &all(2_500_000), &mut out)
        .unwrap();
    assert!(out == wanted);
    assert!(store.counts().got_bytes < 200_000, "the cache is used");
    store
        .append(&free(5), &form, 1000, &[IoSlice::new(&bytes(5)[1000..])])
        .unwrap();
    store.seal(&free(5), &form).unwrap();
    store.sync(&[free(2), free(5), grid(0)]).unwrap();
    drop(store);

    // Another directory has all of it from the bucket.
    let other = open(dir.path(), "b", 1 << 30);
    assert_ne!(other.verifier(), verifier);
    for (name, wanted) in [(free(2), bytes(2)), (free(5), bytes(5)), (grid(0), wanted)] {
        other.read(&name, &form, &all(2_500_000), &mut out).unwrap();
        assert!(out == wanted, "{name}");
    }
    let changed = bytes(1);
    other
        .write(&grid(0), &form, &all(2_500_000), &[IoSlice::new(&changed)])
        .unwrap();
    other.sync(&[grid(0)]).unwrap();
    drop(other);
    // The first directory is of before: nothing of it is used.
    let store = open(dir.path(), "a", 1 << 30);
    assert_ne!(store.verifier(), verifier);
    store
        .read(&grid(0), &form, &all(2_500_000), &mut out)
        .unwrap();
    assert!(out == changed);
}

/// Random writes, syncs, kills and restarts, against what was written.
#[test]
fn random_kills() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = move |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % n
    };
    let dir = tempfile::tempdir().unwrap();
    const LEN: usize = 3_300_000;
    let form = conformance::form(&[LEN as u64], 1, Codec::None, &[]);
    let mut model = vec![vec![0_u8; LEN]; 3];
    let mut store = open(dir.path(), "a", 4 << 20);
    for step in 0..300 {
        let at = below(3);
        match below(10) {
            0 => {
                drop(store);
                store = open(dir.path(), "a", 4 << 20);
            }
            1 => store.sync(&[grid(at)]).unwrap(),
            2 => store.upload_all().unwrap(),
            3 => {
                let _uploading = store.uploading.lock();
                store.store_index().unwrap();
            }
            4 => store.merge().unwrap(),
            5 => {
                let mut out = vec![0; LEN];
                store
                    .read(&grid(at), &form, &all(LEN as u64), &mut out)
                    .or_else(|error| match error {
                        slabfs_objstore::StoreError::Missing(_) => Ok(()),
                        other => Err(other),
                    })
                    .unwrap();
                assert!(out == model[at as usize], "step {step}");
            }
            _ => {
                let from = below(LEN as u64 - 1);
                let len = 1 + below((LEN as u64 - from).min(1_200_000));
                let value = 1 + below(250) as u8;
                let slab = Hyperslab::from_region(&Region::new(&[from], &[len]));
                let bytes = vec![value; len as usize];
                store
                    .write(&grid(at), &form, &slab, &[IoSlice::new(&bytes)])
                    .unwrap();
                model[at as usize][from as usize..(from + len) as usize].fill(value);
            }
        }
    }
    store.close().unwrap();
    drop(store);
    let store = open(dir.path(), "b", 4 << 20);
    for (at, wanted) in model.iter().enumerate() {
        let mut out = vec![0; LEN];
        store
            .read(&grid(at as u64), &form, &all(LEN as u64), &mut out)
            .unwrap();
        assert!(out == *wanted);
    }
}

/// With `durability=local` a sync waits for the local disk; after a start of the machine what was synced is there, and what the
/// bucket has is fetched again.
#[test]
fn a_local_sync_survives_a_restart_of_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let form = conformance::form(&[1_500_000], 1, Codec::None, &[]);
    let bytes = |seed: u8| -> Vec<u8> { vec![seed; 1_500_000] };
    let open = |name: &str| {
        let options = S3Options {
            durability: crate::Durability::Local,
            ..S3Options::default()
        };
        let bucket = bucket(&dir.path().join("bucket"));
        S3Store::open(&dir.path().join(name), bucket, Some("one"), options).unwrap()
    };
    let store = open("a");
    let verifier = store.verifier();
    store
        .write(&grid(0), &form, &all(1_500_000), &[IoSlice::new(&bytes(1))])
        .unwrap();
    store
        .put(&free(1), &form, &[IoSlice::new(&bytes(2))])
        .unwrap();
    store.upload_all().unwrap();
    let puts = store.counts().puts;
    let part = Hyperslab::from_region(&Region::new(&[10], &[10]));
    store
        .write(&grid(0), &form, &part, &[IoSlice::new(&[9; 10])])
        .unwrap();
    store
        .put(&free(2), &form, &[IoSlice::new(&bytes(3))])
        .unwrap();
    store.sync(&[grid(0), free(2)]).unwrap();
    assert_eq!(store.counts().puts, puts, "nothing is uploaded");
    drop(store);
    // Another start of the machine: the journal is of an earlier one.
    let path = dir.path().join("a/journal");
    crate::journal::tests::with_another_boot(&path);
    let store = open("a");
    assert_ne!(
        store.verifier(),
        verifier,
        "what was not synced may be lost"
    );
    let mut out = vec![0; 1_500_000];
    store
        .read(&grid(0), &form, &all(1_500_000), &mut out)
        .unwrap();
    let mut wanted = bytes(1);
    wanted[10..20].fill(9);
    assert!(out == wanted);
    for (id, seed) in [(1, 2), (2, 3)] {
        store
            .read(&free(id), &form, &all(1_500_000), &mut out)
            .unwrap();
        assert!(out == bytes(seed));
    }
    store.close().unwrap();
    drop(store);
    let store = open("b");
    store
        .read(&grid(0), &form, &all(1_500_000), &mut out)
        .unwrap();
    assert!(out == wanted);
}

/// Segments in the bucket.
fn segments(store: &S3Store) -> usize {
    store.bucket.list("one/segments").unwrap().len()
}

/// Many small segments become few, and what little is used of large ones too; nothing is lost, also if the process ends in the
/// middle.
#[test]
fn segments_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    let form = conformance::form(&[10], 1, Codec::None, &[]);
    let large = conformance::form(&[1_500_000], 1, Codec::None, &[]);
    let filled = |id: u64| vec![id as u8; 1_500_000];
    let check = |store: &S3Store| {
        let mut out = [0; 10];
        for id in 0..40 {
            store.read(&free(id), &form, &all(10), &mut out).unwrap();
            assert_eq!(out, [id as u8; 10]);
        }
        let mut out = vec![0; 1_500_000];
        for id in [100, 104] {
            store
                .read(&free(id), &large, &all(1_500_000), &mut out)
                .unwrap();
            assert!(out == filled(id));
        }
        store
            .read(&grid(0), &large, &all(1_500_000), &mut out)
            .unwrap();
        let mut wanted = filled(7);
        wanted[..10].fill(39);
        assert!(out == wanted);
    };
    let store = open(dir.path(), "a", 1 << 30);
    store
        .write(
            &grid(0),
            &large,
            &all(1_500_000),
            &[IoSlice::new(&filled(7))],
        )
        .unwrap();
    for id in 0..40 {
        let bytes = [id as u8; 10];
        store
            .put(&free(id), &form, &[IoSlice::new(&bytes)])
            .unwrap();
        let part = Hyperslab::from_region(&Region::new(&[0], &[10]));
        store
            .write(&grid(0), &large, &part, &[IoSlice::new(&bytes)])
            .unwrap();
        store.sync(&[free(id), grid(0)]).unwrap();
    }
    // Five in one segment, of which three go.
    for id in 100..105 {
        store
            .put(&free(id), &large, &[IoSlice::new(&filled(id))])
            .unwrap();
    }
    store.sync(&[]).unwrap();
    store.delete(&[free(101), free(102), free(103)]).unwrap();
    let store_index = |store: &S3Store| {
        let _uploading = store.uploading.lock();
        store.store_index().unwrap();
    };
    store_index(&store);
    assert!(segments(&store) > 40, "{}", segments(&store));
    assert!(!store.to_merge.lock().is_empty());
    store.merge().unwrap();
    check(&store);
    // One that is written to and deleted meanwhile.
    store.delete(&[free(39)]).unwrap();
    store
        .put(&free(39), &form, &[IoSlice::new(&[39; 10])])
        .unwrap();
    store.upload_all().unwrap();
    drop(store);
    let store = open(dir.path(), "b", 1 << 30);
    check(&store);
    store_index(&store);
    assert!(segments(&store) < 10, "{}", segments(&store));
    check(&store);
    store.close().unwrap();
    drop(store);
    let store = open(dir.path(), "c", 1 << 16);
    check(&store);
    assert_eq!(store.compare().unwrap(), crate::Objects::default());
}

/// Large chunks are stored by many threads at the same time, while others upload everything and delete: what was synced is there, and
/// no object is left without a chunk.
#[test]
fn large_chunks_are_stored_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    const LEN: u64 = 1_200_000;
    let form = conformance::form(&[LEN], 1, Codec::None, &[]);
    let store = open(dir.path(), "a", 1 << 30);
    let filled = |id: u64| vec![id as u8; LEN as usize];
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, form) = (&store, &form);
            scope.spawn(move || {
                for at in 0..6 {
                    let id = 10 * thread + at;
                    let bytes = filled(id);
                    store.put(&free(id), form, &[IoSlice::new(&bytes)]).unwrap();
                    // Some are deleted before they are in a segment.
                    if at == 5 {
                        store.put_ahead(&[free(id)]).unwrap();
                        store.delete(&[free(id)]).unwrap();
                        continue;
                    }
                    store.sync(&[free(id)]).unwrap();
                    if at % 2 == 1 {
                        store.delete(&[free(id)]).unwrap();
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..10 {
                store.upload_all().unwrap();
            }
        });
    });
    for _ in 0..2 {
        let _uploading = store.uploading.lock();
        store.store_index().unwrap();
    }
    assert!(store.ahead.lock().is_empty());
    assert_eq!(store.compare().unwrap(), crate::Objects::default());
    assert_eq!(store.bucket.list("one/chunks").unwrap().len(), 4 * 3);
    drop(store);
    let store = open(dir.path(), "b", 1 << 30);
    let mut out = vec![0; LEN as usize];
    for thread in 0..4 {
        for at in 0..6 {
            let id = 10 * thread + at;
            let read = store.read(&free(id), &form, &all(LEN), &mut out);
            match at {
                0 | 2 | 4 => assert!(read.is_ok() && out == filled(id), "{id}"),
                _ => assert!(read.is_err(), "{id}"),
            }
        }
    }
}

/// A chunk that is stored ahead, deleted, and stored again with other content before a segment is stored, is another object.
#[test]
fn a_large_chunk_is_deleted_and_stored_again() {
    let dir = tempfile::tempdir().unwrap();
    const LEN: u64 = 1_200_000;
    let form = conformance::form(&[LEN], 1, Codec::None, &[]);
    let store = open(dir.path(), "a", 1 << 30);
    let name = free(1);
    let put = |byte: u8| {
        let bytes = vec![byte; LEN as usize];
        store.put(&name, &form, &[IoSlice::new(&bytes)]).unwrap();
    };
    put(1);
    store.put_ahead(std::slice::from_ref(&name)).unwrap();
    store.delete(std::slice::from_ref(&name)).unwrap();
    put(2);
    store.sync(std::slice::from_ref(&name)).unwrap();
    {
        let _uploading = store.uploading.lock();
        store.store_index().unwrap();
    }
    drop(store);
    let store = open(dir.path(), "b", 1 << 30);
    let mut out = vec![0; LEN as usize];
    store.read(&name, &form, &all(LEN), &mut out).unwrap();
    assert!(out == vec![2; LEN as usize]);
    assert_eq!(store.compare().unwrap(), crate::Objects::default());
}

/// Objects that are missing, and those that uploads left, are found.
#[test]
fn the_bucket_is_compared_with_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let form = conformance::form(&[3_000_000], 1, Codec::None, &[]);
    let store = open(dir.path(), "a", 1 << 30);
    let bytes = vec![5; 3_000_000];
    store.put(&free(1), &form, &[IoSlice::new(&bytes)]).unwrap();
    store.sync(&[free(1)]).unwrap();
    assert_eq!(store.compare().unwrap(), crate::Objects::default());
    let left = "one/chunks/0000000000000009.5".to_owned();
    store
        .bucket
        .create(&left, bytes::Bytes::from_static(b"left"))
        .unwrap();
    assert_eq!(
        store.compare().unwrap().unreferenced,
        std::slice::from_ref(&left)
    );
    store.delete_unreferenced(&[left]).unwrap();
    assert_eq!(store.compare().unwrap(), crate::Objects::default());
    let own = store.bucket.list("one/chunks").unwrap();
    let key = format!("one/chunks/{}", own[0]);
    assert!(
        store
            .delete_unreferenced(std::slice::from_ref(&key))
            .is_err()
    );
    store.bucket.delete_all(std::slice::from_ref(&key)).unwrap();
    assert_eq!(store.compare().unwrap().missing, [(free(1), key)]);
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

/// Small chunks of a grid take what they have of the cache, and not a block each.
#[test]
fn small_files_are_counted_by_their_size() {
    let dir = tempfile::tempdir().unwrap();
    let form = conformance::form(&[4 << 20], 1, Codec::None, &[]);
    let store = open(dir.path(), "a", 1 << 30);
    for place in 0..100 {
        let part = Hyperslab::from_region(&Region::new(&[0], &[3000]));
        store
            .write(&grid(place), &form, &part, &[IoSlice::new(&[1; 3000])])
            .unwrap();
    }
    assert_eq!(store.state.lock().cache.bytes, 300_000);
    let part = Hyperslab::from_region(&Region::new(&[3000], &[BLOCK]));
    store
        .write(
            &grid(0),
            &form,
            &part,
            &[IoSlice::new(&[1; BLOCK as usize])],
        )
        .unwrap();
    assert_eq!(store.state.lock().cache.bytes, 300_000 + BLOCK);
}
