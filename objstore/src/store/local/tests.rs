//! Tests of the local store: the conformance suite, crashes, damage, full disks.

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
fn few_of_many_segments_are_open_at_once() {
    const CHUNKS: u64 = 5500;
    const BYTES: u64 = 60_000;
    let dir = tempfile::tempdir().unwrap();
    let options = || LocalOptions {
        fsync: false,
        open_files: Some(2),
    };
    let open = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        let paths = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        let own = dir.path().to_owned();
        paths
            .filter(|path| path.starts_with(&own) && path.extension().is_some_and(|e| e == "seg"))
            .count()
    };
    let form = conformance::form(&[BYTES], 1, slabfs_model::Codec::None, &[]);
    let data = |id: u64| vec![(id % 251) as u8; BYTES as usize];
    let name = conformance::free;
    let store = LocalStore::open(dir.path(), options()).unwrap();
    for id in 0..CHUNKS {
        let data = data(id);
        store.put(&name(id), &form, &[IoSlice::new(&data)]).unwrap();
        if id % 1000 == 999 {
            store.sync(&[]).unwrap();
        }
    }
    store.sync(&[]).unwrap();
    let all = Hyperslab::all(&form.shape);
    let same = |store: &LocalStore| {
        for id in (0..CHUNKS).rev().step_by(37) {
            assert!(conformance::read(store, &name(id), &form, &all) == data(id));
        }
        assert!(open() <= 3, "{} segments are open", open());
    };
    same(&store);
    drop(store);
    same(&LocalStore::open(dir.path(), options()).unwrap());
}

#[test]
fn names_too_long_for_a_file_name_are_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let at: Vec<u64> = (0..32).map(|axis| u64::MAX - axis).collect();
    let name = conformance::grid(1, u32::MAX, &at);
    let mut shape = vec![1; 31];
    shape.push(200_000);
    let form = conformance::form(&shape, 1, slabfs_model::Codec::None, &[]);
    let data = conformance::noise(200_000, 1);
    let slab = Hyperslab::all(&shape);
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
