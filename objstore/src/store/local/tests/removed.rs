//! Tests of chunks that are deleted during a sync. The deletions happen inside the sync, after it has synced the first
//! file.

use std::io::IoSlice;
use std::path::Path;
use std::sync::{Arc, Weak};

use slabfs_model::Codec;

use super::super::shared::Witness;
use super::super::*;
use crate::store::conformance::{boxed, form, grid, noise, read};

const LEN: u64 = 100_000;

fn shape() -> ChunkForm {
    form(&[LEN], 1, Codec::None, &[])
}

fn write(store: &LocalStore, at: u64, seed: u64) {
    let data = noise(LEN as usize, seed);
    store
        .write(
            &grid(1, 0, &[at]),
            &shape(),
            &boxed(&[0], &[LEN]),
            &[IoSlice::new(&data)],
        )
        .unwrap();
}

fn bytes(store: &LocalStore, at: u64) -> Vec<u8> {
    read(store, &grid(1, 0, &[at]), &shape(), &boxed(&[0], &[LEN]))
}

/// Calls `then` once, with the coordinate of the first chunk that is synced.
fn at_first_sync(store: &Arc<LocalStore>, then: impl Fn(&LocalStore, u64) + Send + 'static) {
    let weak: Weak<LocalStore> = Arc::downgrade(store);
    let paths: Vec<_> = (0..200)
        .map(|at| store.directory.chunk_path(&grid(1, 0, &[at])))
        .collect();
    let mut done = false;
    let on_sync = move |path: &Path| {
        let Some(at) = paths.iter().position(|known| known == path) else {
            return;
        };
        if !std::mem::replace(&mut done, true)
            && let Some(store) = weak.upgrade()
        {
            then(&store, at as u64);
        }
    };
    *store.shared.witness.lock() = Some(Witness(Box::new(on_sync)));
}

fn delete(store: &LocalStore, places: impl Iterator<Item = u64>) {
    let names: Vec<_> = places.map(|at| grid(1, 0, &[at])).collect();
    store.delete(&names).unwrap();
}

/// With few chunks, which are synced one by one, and with many, which are synced together.
#[test]
fn chunks_deleted_before_they_are_synced_are_skipped() {
    for count in [3, 200] {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(LocalStore::open(dir.path(), LocalOptions::default()).unwrap());
        (0..count).for_each(|at| write(&store, at, at));
        at_first_sync(&store, move |store, first| {
            delete(store, (0..count).filter(|&at| at != first));
        });
        store.sync(&[]).unwrap();
        assert_eq!(store.list(None, 300).unwrap().len(), 1, "of {count}");
        assert_not_missed(&dir, store, count, 1);
    }
}

#[test]
fn chunks_deleted_after_they_are_synced_are_not_reported_as_lost() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(LocalStore::open(dir.path(), LocalOptions::default()).unwrap());
    (0..3).for_each(|at| write(&store, at, at));
    at_first_sync(&store, |store, first| delete(store, [first].into_iter()));
    store.sync(&[]).unwrap();
    assert_not_missed(&dir, store, 3, 2);
}

/// A name without a file would be reported as a loss.
fn assert_not_missed(dir: &tempfile::TempDir, store: Arc<LocalStore>, count: u64, left: usize) {
    Arc::into_inner(store).unwrap().crash();
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    assert_eq!(store.list(None, 300).unwrap().len(), left);
    for at in 0..count {
        match store.verify(&grid(1, 0, &[at])) {
            Ok(()) => assert_eq!(bytes(&store, at), noise(LEN as usize, at)),
            other => assert_eq!(other, Err(StoreError::Missing(grid(1, 0, &[at])))),
        }
    }
}

/// The sync of the old chunk does not count for the new one of the same name.
#[test]
fn a_chunk_recreated_during_a_sync_is_synced_next_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(LocalStore::open(dir.path(), LocalOptions::default()).unwrap());
    write(&store, 0, 0);
    at_first_sync(&store, |store, first| {
        delete(store, [first].into_iter());
        write(store, first, 7);
    });
    store.sync(&[]).unwrap();
    let (sender, synced_paths) = std::sync::mpsc::channel();
    let path = store.directory.chunk_path(&grid(1, 0, &[0]));
    let watch = move |synced: &Path| {
        if synced == path {
            sender.send(()).unwrap();
        }
    };
    *store.shared.witness.lock() = Some(Witness(Box::new(watch)));
    store.sync(&[grid(1, 0, &[0])]).unwrap();
    assert_eq!(
        synced_paths.try_iter().count(),
        1,
        "the new file is not synced"
    );
    assert_eq!(bytes(&store, 0), noise(LEN as usize, 7));
}
