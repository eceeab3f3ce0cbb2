//! Tests of the store in memory: the conformance suite of immutable chunks, and memory that is used again.

use slabfs_model::Codec;

use super::*;
use crate::store::conformance::{self, boxed, cases, form, free, grid, noise};

#[test]
fn conforms() {
    let store = MemoryStore::new(64 << 20).unwrap();
    for (_, case) in cases::IMMUTABLE {
        case(&store);
    }
    assert_eq!(store.space().unwrap().used, 0);
}

#[test]
fn only_complete_chunks_are_taken() {
    let store = MemoryStore::new(1 << 20).unwrap();
    let form = form(&[10], 1, Codec::None, &[]);
    let ten = [IoSlice::new(&[1; 10])];
    let invalid = |outcome: Result<()>| matches!(outcome, Err(StoreError::Invalid(_)));
    assert!(invalid(store.put(&grid(1, 1, &[0]), &form, &ten)));
    assert!(invalid(store.append(&free(1), &form, 0, &ten)));
    assert!(invalid(store.seal(&free(1), &form)));
    assert!(invalid(store.write(
        &grid(1, 1, &[0]),
        &form,
        &boxed(&[0], &[10]),
        &ten
    )));
    assert!(invalid(store.put(
        &free(1),
        &form,
        &[IoSlice::new(&[1; 9])]
    )));
    assert!(invalid(store.put_encoded(&free(1), &form, &ten)));
    assert_eq!(store.list(None, 10).unwrap(), []);
}

#[test]
fn bytes_of_the_store_are_taken_without_a_copy_and_used_again() {
    let store = MemoryStore::new(1 << 20).unwrap();
    let data = noise(10_000, 1);
    let bytes = store.copy(&data).unwrap();
    let form = form(&[6000], 1, Codec::None, &[]);
    store
        .put(&free(1), &form, &[IoSlice::new(&bytes[2000..8000])])
        .unwrap();
    let place = store.same_host_memory(&free(1)).unwrap();
    assert_eq!((place.at, place.len), (place.page * PAGE + 2000, 6000));
    assert_eq!(
        conformance::read(&store, &free(1), &form, &boxed(&[0], &[6000])),
        data[2000..8000]
    );
    drop(bytes);
    // Other bytes do not get its place while it is there.
    let other = store.copy(&data).unwrap();
    store
        .put(&free(2), &form, &[IoSlice::new(&other[..6000])])
        .unwrap();
    assert_ne!(store.same_host_memory(&free(2)).unwrap().page, place.page);
    store.delete(&[free(1)]).unwrap();
    let next = store.copy(&data).unwrap();
    store
        .put(&free(3), &form, &[IoSlice::new(&next[..6000])])
        .unwrap();
    let again = store.same_host_memory(&free(3)).unwrap();
    assert_eq!(again.page, place.page);
    assert_ne!(again.block, place.block);
    drop((other, next));
    store.delete(&[free(2), free(3)]).unwrap();
    assert_eq!(store.space().unwrap().used, 0);
}

#[test]
fn a_full_store_takes_nothing_and_loses_nothing() {
    let store = MemoryStore::new(1 << 20).unwrap();
    let form = form(&[600_000], 1, Codec::None, &[]);
    let data = noise(600_000, 2);
    store.put(&free(1), &form, &[IoSlice::new(&data)]).unwrap();
    let full = store.put(&free(2), &form, &[IoSlice::new(&data)]);
    assert_eq!(full, Err(StoreError::NoSpace));
    assert!(store.copy(&data).is_none());
    store.delete(&[free(1)]).unwrap();
    store.put(&free(2), &form, &[IoSlice::new(&data)]).unwrap();
}
