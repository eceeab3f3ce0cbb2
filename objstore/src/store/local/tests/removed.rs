//! Syncs that meet chunks which are deleted while they go on. The deletions happen inside of the sync:
//! when it has brought the first file to the disk.

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

/// Calls `then` once, with the place of the first chunk that a sync brings to the disk.
fn at_first_sync(store: &Arc<LocalStore>, then: impl Fn(&LocalStore, u64) + Send + 'static) {
    let weak: Weak<LocalStore> = Arc::downgrade(store);
    let paths: Vec<_> = (0..200)
        .map(|at| store.directory.chunk_path(&grid(1, 0, &[at])))
        .collect();
    let mut done = false;
    let tell = move |path: &Path| {
        let Some(at) = paths.iter().position(|known| known == path) else {
            return;
        };
        if !std::mem::replace(&mut done, true)
            && let Some(store) = weak.upgrade()
        {
            then(&store, at as u64);
        }
    };
    *store.shared.witness.lock() = Some(Witness(Box::new(tell)));
}

fn delete(store: &LocalStore, places: impl Iterator<Item = u64>) {
    let names: Vec<_> = places.map(|at| grid(1, 0, &[at])).collect();
    store.delete(&names).unwrap();
}

/// One by one, and all together, as very many are.
#[test]
fn what_is_deleted_before_its_turn_needs_no_sync() {
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
fn what_is_deleted_after_its_turn_is_not_missed_later() {
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

/// What a sync knew of the old chunk says nothing of the new one.
#[test]
fn what_is_made_anew_meanwhile_is_synced_next() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(LocalStore::open(dir.path(), LocalOptions::default()).unwrap());
    write(&store, 0, 0);
    at_first_sync(&store, |store, first| {
        delete(store, [first].into_iter());
        write(store, first, 7);
    });
    store.sync(&[]).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let path = store.directory.chunk_path(&grid(1, 0, &[0]));
    let watch = move |synced: &Path| {
        if synced == path {
            tell.send(()).unwrap();
        }
    };
    *store.shared.witness.lock() = Some(Witness(Box::new(watch)));
    store.sync(&[grid(1, 0, &[0])]).unwrap();
    assert_eq!(told.try_iter().count(), 1, "the new file is not synced");
    assert_eq!(bytes(&store, 0), noise(LEN as usize, 7));
}
