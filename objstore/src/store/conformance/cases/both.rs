//! Guarantees for all chunks: deletion, listing, refusals, concurrent threads.

use slabfs_model::{Codec, ObjectId};

use super::super::{FIRST_ID, boxed, form, free, grid, noise, read, slices};
use crate::error::StoreError;
use crate::store::ChunkStore;

pub(super) fn delete(store: &dyn ChunkStore) {
    let form = form(&[200_000], 1, Codec::None, &[]);
    let mut names = Vec::new();
    for generation in 0..3 {
        for at in 0..4 {
            let name = grid(70, generation, &[at]);
            let len = if at % 2 == 0 { 10 } else { 100_000 };
            store
                .write(
                    &name,
                    &form,
                    &boxed(&[0], &[len]),
                    &slices(&vec![1; len as usize]),
                )
                .expect("write");
            names.push(name);
        }
    }
    let other = grid(71, 0, &[0]);
    store
        .write(&other, &form, &boxed(&[0], &[1]), &slices(&[1]))
        .expect("write");
    let gone = |name| {
        store.read(name, &form, &boxed(&[0], &[1]), &mut [0])
            == Err(StoreError::Missing(name.clone()))
    };
    store.delete(&names[..1]).expect("delete");
    assert!(gone(&names[0]) && !gone(&names[1]));
    store
        .delete_generation(ObjectId(FIRST_ID + 70), 2)
        .expect("delete");
    assert!(names[..8].iter().all(gone) && !names[8..].iter().any(gone));
    // A name may be reused.
    store
        .write(&names[0], &form, &boxed(&[3], &[1]), &slices(&[9]))
        .expect("write");
    assert_eq!(
        read(store, &names[0], &form, &boxed(&[0], &[5])),
        [0, 0, 0, 9, 0]
    );
    store.delete_grid(ObjectId(FIRST_ID + 70)).expect("delete");
    assert!(names.iter().all(gone) && !gone(&other));
    store.sync(&names).expect("that they are gone is to last");
    assert_eq!(
        store.sync(&[free(900)]),
        Err(StoreError::Missing(free(900)))
    );
    store.delete(&[other]).expect("delete");
}

pub(super) fn lists(store: &dyn ChunkStore) {
    let form = form(&[10], 1, Codec::None, &[]);
    let mut names = Vec::new();
    for id in [5, 1, 9] {
        names.push(free(1000 + id));
        store
            .put(&free(1000 + id), &form, &slices(&[1; 10]))
            .expect("put");
        for at in [3, 0] {
            names.push(grid(80 + id, 1, &[at, 7]));
            let form = super::super::form(&[1, 10], 1, Codec::None, &[]);
            store
                .write(
                    &grid(80 + id, 1, &[at, 7]),
                    &form,
                    &boxed(&[0, 0], &[1, 10]),
                    &slices(&[1; 10]),
                )
                .expect("write");
        }
    }
    names.sort();
    for page in [1, 2, 100] {
        let mut after = None;
        let mut seen = Vec::new();
        loop {
            let found = store.list(after.clone(), page).expect("list");
            let Some((last, _)) = found.last() else { break };
            assert!(found.len() <= page && after.is_none_or(|after| after < found[0].0));
            after = Some(last.clone());
            seen.extend(
                found
                    .into_iter()
                    .filter(|(_, bytes)| *bytes >= 10)
                    .map(|(name, _)| name),
            );
        }
        assert!(names.iter().all(|name| seen.contains(name)) && seen.is_sorted());
    }
    store.delete(&names).expect("delete");
}

pub(super) fn wrong_requests(store: &dyn ChunkStore) {
    let form = form(&[10, 10], 1, Codec::None, &[]);
    let (a, b) = (free(2000), grid(90, 0, &[0, 0]));
    let invalid = |outcome: Result<(), StoreError>| {
        assert!(
            matches!(outcome, Err(StoreError::Invalid(_))),
            "{outcome:?}"
        )
    };
    invalid(store.put(&a, &form, &slices(&[0; 99])));
    invalid(store.put(&b, &form, &slices(&[0; 100])));
    invalid(store.append(&b, &form, 0, &slices(&[0; 100])));
    invalid(store.append(&a, &form, 0, &slices(&[0; 101])));
    invalid(store.append(&a, &form, u64::MAX, &slices(&[0; 10])));
    assert_eq!(
        store.append(&a, &form, 5, &slices(&[0; 10])),
        Err(StoreError::Missing(a.clone()))
    );
    invalid(store.write(&a, &form, &boxed(&[0, 0], &[1, 1]), &slices(&[0])));
    invalid(store.write(&b, &form, &boxed(&[0, 0], &[1, 2]), &slices(&[0])));
    invalid(store.write(&b, &form, &boxed(&[0, 9], &[1, 2]), &slices(&[0, 0])));
    invalid(store.write(&b, &form, &boxed(&[0], &[1]), &slices(&[0])));
    invalid(store.write(&b, &form, &boxed(&[u64::MAX, 0], &[2, 1]), &slices(&[0, 0])));
    invalid(store.clip(&a, &form, &[1, 1]));
    invalid(store.clip(&b, &form, &[1]));
    invalid(store.punch(&a, &form, &boxed(&[0, 0], &[1, 1])));
    let huge = super::super::form(&[u64::MAX, u64::MAX], 1, Codec::None, &[]);
    invalid(store.put(&a, &huge, &slices(&[0; 10])));
    store.put(&a, &form, &slices(&[3; 100])).expect("put");
    invalid(store.read(&a, &form, &boxed(&[0, 0], &[1, 1]), &mut [0; 2]));
    invalid(store.read(&a, &form, &boxed(&[10, 0], &[1, 1]), &mut [0; 1]));
    assert_eq!(read(store, &a, &form, &boxed(&[9, 9], &[1, 1])), [3]);
    store.delete(&[a, b]).expect("delete");
    let space = store.space().expect("space");
    assert!(space.total > 0 && space.free <= space.total && space.used <= space.total);
}

pub(super) fn many_threads(store: &dyn ChunkStore) {
    let form = form(&[1 << 20], 1, Codec::None, &[]);
    let shared = grid(100, 0, &[0]);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (form, shared) = (&form, &shared);
            scope.spawn(move || {
                for round in 0..20u64 {
                    let part = boxed(&[thread * 100_000 + round * 5000], &[5000]);
                    let data = noise(5000, thread * 100 + round);
                    store
                        .write(shared, form, &part, &slices(&data))
                        .expect("write");
                    assert_eq!(read(store, shared, form, &part), data);
                    let own = free(3000 + thread);
                    let len = if round % 2 == 0 { 3000 } else { 90_000 };
                    let own_form = super::super::form(&[len], 1, Codec::None, &[]);
                    store
                        .put(&own, &own_form, &slices(&noise(len as usize, round)))
                        .expect("put");
                    assert_eq!(
                        read(store, &own, &own_form, &boxed(&[0], &[len])),
                        noise(len as usize, round)
                    );
                    if round % 5 == 0 {
                        store.sync(&[own.clone(), shared.clone()]).expect("sync");
                    }
                    store.delete(&[own]).expect("delete");
                }
            });
        }
    });
    store.verify(&shared).expect("verify");
    store.delete(&[shared]).expect("delete");
}
