//! The local store: the conformance suite, and what happens to it in crashes.

mod damage;
mod full;
mod power;
mod removed;
mod roll;
mod speed;

use super::*;
use crate::store::conformance;

fn fast() -> LocalOptions {
    LocalOptions {
        fsync: false,
        open_files: None,
    }
}

#[test]
fn conforms() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    conformance::run(&store);
}

#[test]
fn conforms_with_few_open_files_and_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(
        dir.path(),
        LocalOptions {
            fsync: true,
            open_files: Some(3),
        },
    )
    .unwrap();
    for seed in 20..23 {
        conformance::random::run(&store, seed, 300);
    }
}

#[test]
fn names_too_long_for_a_file_are_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let at: Vec<u64> = (0..32).map(|axis| u64::MAX - axis).collect();
    let name = conformance::grid(1, u32::MAX, &at);
    let mut shape = vec![1; 31];
    shape.push(200_000);
    let form = conformance::form(&shape, 1, slabfs_model::Codec::None, &[]);
    let data = conformance::noise(200_000, 1);
    let slab = Hyperslab::whole(&shape);
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    store
        .write(&name, &form, &slab, &[IoSlice::new(&data)])
        .unwrap();
    store.crash();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    assert_eq!(conformance::read(&store, &name, &form, &slab), data);
    assert_eq!(store.list(None, 10).unwrap()[0].0, name);
    store.delete(std::slice::from_ref(&name)).unwrap();
    assert_eq!(store.verify(&name), Err(StoreError::Missing(name)));
}
