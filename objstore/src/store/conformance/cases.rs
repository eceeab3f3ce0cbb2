//! The promises of a chunk store, one a function.

use std::io::IoSlice;

use slabfs_model::{Axis, Codec, Hyperslab, ObjectId, gather};

use super::{FIRST_ID, boxed, form, free, grid, noise, read, slices, smooth};
use crate::error::StoreError;
use crate::store::ChunkStore;

/// A case: what it is about, and the function.
pub type Case = (&'static str, fn(&dyn ChunkStore));

/// All cases.
pub const ALL: &[Case] = &[
    ("put and read", put_and_read),
    ("codecs", codecs),
    ("strided reads", strided_reads),
    ("streams", streams),
    ("sealing cuts and packs", sealing_cuts_and_packs),
    ("resends", resends),
    ("grid chunks are written in place", grid_in_place),
    ("small grid chunks grow large", grid_grows),
    ("a first axis without bound", unbounded),
    ("fill", fill),
    ("clip", clip),
    ("punch", punch),
    ("delete", delete),
    ("lists are in order", lists),
    ("wrong requests are refused", wrong_requests),
    ("many threads", many_threads),
];

const SIZES: [usize; 9] = [0, 1, 100, 4096, 65_535, 65_536, 65_537, 200_000, 3_000_000];

fn put_and_read(store: &dyn ChunkStore) {
    for (i, size) in SIZES.into_iter().enumerate() {
        let name = free(i as u64);
        let form = form(&[size as u64], 1, Codec::None, &[]);
        let data = noise(size, i as u64);
        let (a, b) = data.split_at(size / 3);
        store
            .put(&name, &form, &[IoSlice::new(a), IoSlice::new(b)])
            .expect("put");
        assert_eq!(
            read(store, &name, &form, &boxed(&[0], &[size as u64])),
            data
        );
        store.sync(std::slice::from_ref(&name)).expect("sync");
        store.verify(&name).expect("verify");
        for (at, len) in [(0, 1), (size / 2, size / 4), (size.saturating_sub(10), 10)] {
            if at + len > size {
                continue;
            }
            let slab = boxed(&[at as u64], &[len as u64]);
            assert_eq!(read(store, &name, &form, &slab), data[at..at + len]);
            let mut shown = None;
            let told = store
                .show(&name, &form, &slab, &mut |bytes| {
                    shown = Some(bytes.to_vec())
                })
                .expect("show");
            assert_eq!(told, shown.is_some());
            assert!(shown.is_none_or(|bytes| bytes == data[at..at + len]));
        }
        store.delete(&[name]).expect("delete");
    }
}

fn codecs(store: &dyn ChunkStore) {
    let codecs = [
        Codec::Lz4,
        Codec::Deflate(3),
        Codec::Zstd(3),
        Codec::ShuffleZstd(1),
        Codec::ShuffleDeflate(6),
        Codec::ShuffleLz4,
    ];
    for (i, codec) in codecs.into_iter().enumerate() {
        for (j, rows) in [1u64, 30, 1500].into_iter().enumerate() {
            let name = free(100 + 10 * i as u64 + j as u64);
            let form = form(&[rows, 2000], 8, codec, &[]);
            for data in [
                smooth(rows as usize * 2000, 5),
                noise(rows as usize * 2000, 6),
            ] {
                store.put(&name, &form, &slices(&data)).expect("put");
                assert_eq!(
                    read(store, &name, &form, &Hyperslab::whole(&form.shape)),
                    data
                );
                let slab = boxed(&[rows / 2, 17], &[1, 900]);
                let mut want = vec![0; 900];
                gather(&data, &form.shape, &slab, &mut want);
                assert_eq!(read(store, &name, &form, &slab), want);
                store.verify(&name).expect("verify");
                store.delete(std::slice::from_ref(&name)).expect("delete");
            }
        }
    }
    let name = free(190);
    let form = form(&[1000, 1000], 4, Codec::Zstd(3), &[]);
    store
        .put(&name, &form, &slices(&smooth(1_000_000, 1)))
        .expect("put");
    let listed = store.list(None, usize::MAX).expect("list");
    let bytes = listed
        .iter()
        .find(|(listed, _)| *listed == name)
        .map(|(_, bytes)| *bytes);
    assert!(
        bytes.is_some_and(|bytes| bytes < 300_000),
        "smooth data takes {bytes:?}"
    );
    store.delete(&[name]).expect("delete");
}

fn strided_reads(store: &dyn ChunkStore) {
    for (i, shape) in [[20u64, 30, 40], [60, 70, 80]].into_iter().enumerate() {
        let name = free(200 + i as u64);
        let form = form(&shape, 4, Codec::None, &[]);
        let data = noise(shape.iter().product::<u64>() as usize, 3);
        store.put(&name, &form, &slices(&data)).expect("put");
        for axes in [
            [Axis::every(1, 3, 5), Axis::span(2, 9), Axis::span(0, 40)],
            [
                Axis::span(0, 20),
                Axis::every(0, 2, 15),
                Axis {
                    start: 4,
                    stride: 8,
                    count: 4,
                    block: 4,
                },
            ],
            [Axis::span(19, 1), Axis::span(29, 1), Axis::span(39, 1)],
        ] {
            let slab = Hyperslab {
                axes: axes.into_iter().collect(),
            };
            let mut want = vec![0; slab.volume() as usize];
            gather(&data, &shape, &slab, &mut want);
            assert_eq!(read(store, &name, &form, &slab), want);
        }
        store.delete(&[name]).expect("delete");
    }
}

fn streams(store: &dyn ChunkStore) {
    let name = free(300);
    let form = form(&[4_000_000], 1, Codec::None, &[]);
    let data = noise(4_000_000, 9);
    let mut at = 0;
    for len in [1usize, 70_000, 65_536, 5, 1 << 20, 900_000, 1_000_000] {
        store
            .append(&name, &form, at as u64, &slices(&data[at..at + len]))
            .expect("append");
        at += len;
        assert_eq!(
            read(store, &name, &form, &boxed(&[0], &[at as u64])),
            data[..at]
        );
    }
    // What was sent twice is there once.
    store
        .append(&name, &form, 70_001, &slices(&data[70_001..80_000]))
        .expect("resend");
    assert!(
        store
            .append(&name, &form, at as u64 + 1, &slices(&[1]))
            .is_err(),
        "a gap"
    );
    assert!(
        store
            .read(&name, &form, &boxed(&[at as u64], &[1]), &mut [0])
            .is_err(),
        "not there yet"
    );
    store.sync(std::slice::from_ref(&name)).expect("sync");
    let last = super::form(&[at as u64], 1, Codec::None, &[]);
    store.seal(&name, &last).expect("seal");
    assert_eq!(
        read(store, &name, &last, &boxed(&[0], &[at as u64])),
        data[..at]
    );
    assert!(
        store
            .append(&name, &form, at as u64, &slices(&[1]))
            .is_err(),
        "sealed"
    );
    store.verify(&name).expect("verify");
    store.delete(&[name]).expect("delete");
}

fn sealing_cuts_and_packs(store: &dyn ChunkStore) {
    for (i, codec) in [Codec::None, Codec::ShuffleZstd(3), Codec::Lz4]
        .into_iter()
        .enumerate()
    {
        for (j, data) in [smooth(3_000_000, 1), noise(3_000_000, 1)]
            .into_iter()
            .enumerate()
        {
            for (k, rows) in [3000u64, 2999, 70, 1, 0].into_iter().enumerate() {
                let name = free(400 + 100 * i as u64 + 10 * j as u64 + k as u64);
                let most = form(&[3000, 1000], 8, codec, &[]);
                store
                    .append(&name, &most, 0, &slices(&data[..1_000_000]))
                    .expect("append");
                store
                    .append(&name, &most, 1_000_000, &slices(&data[1_000_000..]))
                    .expect("append");
                assert!(
                    store
                        .seal(&name, &form(&[3001, 1000], 8, codec, &[]))
                        .is_err(),
                    "more than there is"
                );
                let last = form(&[rows, 1000], 8, codec, &[]);
                store.seal(&name, &last).expect("seal");
                store.seal(&name, &last).expect("seal again");
                let whole = read(store, &name, &last, &Hyperslab::whole(&last.shape));
                assert_eq!(whole, data[..rows as usize * 1000]);
                store.verify(&name).expect("verify");
                store.sync(std::slice::from_ref(&name)).expect("sync");
                store.delete(&[name]).expect("delete");
            }
        }
    }
    assert_eq!(
        store.seal(&free(799), &form(&[1], 1, Codec::None, &[])),
        Err(StoreError::Missing(free(799)))
    );
}

fn resends(store: &dyn ChunkStore) {
    for (i, size) in [10usize, 100_000].into_iter().enumerate() {
        let name = free(800 + i as u64);
        let form = form(&[size as u64], 1, Codec::Lz4, &[]);
        let data = smooth(size, 1);
        store.put(&name, &form, &slices(&data)).expect("put");
        store.put(&name, &form, &slices(&data)).expect("put again");
        assert!(
            store.put(&name, &form, &slices(&smooth(size, 2))).is_err(),
            "immutable"
        );
        assert_eq!(
            read(store, &name, &form, &boxed(&[0], &[size as u64])),
            data
        );
        store.delete(std::slice::from_ref(&name)).expect("delete");
        store.delete(&[name]).expect("delete again");
    }
}

fn grid_in_place(store: &dyn ChunkStore) {
    for (i, shape) in [[10u64, 20], [600, 700]].into_iter().enumerate() {
        let name = grid(i as u64, 0, &[1, 2]);
        let form = form(&shape, 4, Codec::None, &[]);
        let mut model = vec![0u8; (shape[0] * shape[1]) as usize];
        let mut out = vec![0; 1];
        assert_eq!(
            store.read(&name, &form, &boxed(&[0, 0], &[1, 1]), &mut out),
            Err(StoreError::Missing(name.clone()))
        );
        for (offset, part) in [
            ([9, 3], [1, 4]),
            ([0, 0], [10, 20]),
            ([2, 5], [7, 9]),
            ([0, 19], [10, 1]),
        ] {
            let slab = boxed(&offset, &part);
            let data = noise(slab.volume() as usize, offset[1]);
            let (a, b) = data.split_at(data.len() / 2);
            store
                .write(&name, &form, &slab, &[IoSlice::new(a), IoSlice::new(b)])
                .expect("write");
            slabfs_model::scatter(&data, &slab, &mut model, &shape);
            assert_eq!(read(store, &name, &form, &Hyperslab::whole(&shape)), model);
        }
        store.sync(std::slice::from_ref(&name)).expect("sync");
        store.verify(&name).expect("verify");
        store.delete(&[name]).expect("delete");
    }
}

fn grid_grows(store: &dyn ChunkStore) {
    let name = grid(20, 0, &[0]);
    let form = form(&[1 << 26], 1, Codec::None, &[]);
    let mut model = Vec::new();
    for (i, len) in [10usize, 5000, 30_000, 30_000, 30_000, 200_000, 3]
        .into_iter()
        .enumerate()
    {
        let data = noise(len, i as u64);
        let slab = boxed(&[model.len() as u64], &[len as u64]);
        store
            .write(&name, &form, &slab, &slices(&data))
            .expect("write");
        model.extend_from_slice(&data);
        if i % 2 == 0 {
            store.sync(std::slice::from_ref(&name)).expect("sync");
        }
        assert_eq!(
            read(store, &name, &form, &boxed(&[0], &[model.len() as u64])),
            model
        );
    }
    // Far away, over groups and holes.
    let far = (1 << 25) - 5;
    store
        .write(&name, &form, &boxed(&[far], &[10]), &slices(&[7; 10]))
        .expect("write");
    assert_eq!(
        read(store, &name, &form, &boxed(&[far - 2], &[14])),
        [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]
    );
    assert_eq!(
        read(store, &name, &form, &boxed(&[1 << 24], &[100])),
        [0; 100]
    );
    store.verify(&name).expect("verify");
    store.delete(&[name]).expect("delete");
}

fn unbounded(store: &dyn ChunkStore) {
    let name = grid(30, 0, &[0, 0]);
    let form = form(&[u64::MAX, 1000], 4, Codec::None, &[]);
    store
        .write(
            &name,
            &form,
            &boxed(&[1 << 30, 10], &[3, 20]),
            &slices(&[5; 60]),
        )
        .expect("write");
    let back = read(store, &name, &form, &boxed(&[(1 << 30) + 1, 9], &[1, 22]));
    assert_eq!((back[0], back[1], back[20], back[21]), (0, 5, 5, 0));
    assert_eq!(read(store, &name, &form, &boxed(&[0, 0], &[1, 5])), [0; 5]);
    store
        .clip(&name, &form, &[(1 << 30) + 1, 15])
        .expect("clip");
    assert_eq!(
        read(store, &name, &form, &boxed(&[1 << 30, 9], &[2, 8])),
        [0, 5, 5, 5, 5, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert!(
        store
            .write(&name, &form, &boxed(&[1 << 60, 0], &[1, 1]), &slices(&[1]))
            .is_err(),
        "beyond 2^63 bytes"
    );
    store.delete(&[name]).expect("delete");
}

fn fill(store: &dyn ChunkStore) {
    let pattern = [1u8, 2, 3, 4];
    for (i, shape) in [[8u64, 12], [500, 1200], [700, 602]]
        .into_iter()
        .enumerate()
    {
        let name = grid(40 + i as u64, 0, &[0, 0]);
        let form = form(&shape, 4, Codec::None, &pattern);
        let mut model: Vec<u8> = (0..shape[0])
            .flat_map(|_| (0..shape[1]).map(|x| pattern[x as usize % 4]))
            .collect();
        for (offset, part) in [
            ([shape[0] / 2, 3], [2, 5]),
            ([1, 0], [1, shape[1]]),
            ([shape[0] - 1, shape[1] - 1], [1, 1]),
        ] {
            let slab = boxed(&offset, &part);
            let data = vec![9; slab.volume() as usize];
            store
                .write(&name, &form, &slab, &slices(&data))
                .expect("write");
            slabfs_model::scatter(&data, &slab, &mut model, &shape);
            assert_eq!(read(store, &name, &form, &Hyperslab::whole(&shape)), model);
        }
        store
            .clip(&name, &form, &[shape[0] / 2 + 1, 6])
            .expect("clip");
        for (at, byte) in model.iter_mut().enumerate() {
            let (row, column) = (at as u64 / shape[1], at as u64 % shape[1]);
            if row > shape[0] / 2 || column >= 6 {
                *byte = pattern[column as usize % 4];
            }
        }
        assert_eq!(read(store, &name, &form, &Hyperslab::whole(&shape)), model);
        store.verify(&name).expect("verify");
        store.delete(&[name]).expect("delete");
    }
}

fn clip(store: &dyn ChunkStore) {
    for (i, shape) in [[4u64, 5, 6], [40, 50, 60]].into_iter().enumerate() {
        let whole = Hyperslab::whole(&shape);
        let data = noise(whole.volume() as usize, 4);
        let (a, b, c) = (shape[0], shape[1], shape[2]);
        for keep in [
            [a, b, c],
            [a - 1, b, c],
            [a, b - 2, c],
            [a, b, 1],
            [2, 3, 4],
            [0, b, c],
            [a, 0, c],
            [a + 9, b + 9, c + 9],
        ] {
            let name = grid(50 + i as u64, 0, &[0, 0, 0]);
            let form = form(&shape, 2, Codec::None, &[]);
            store
                .write(&name, &form, &whole, &slices(&data))
                .expect("write");
            store.clip(&name, &form, &keep).expect("clip");
            let want: Vec<u8> = (0..data.len() as u64)
                .map(|at| {
                    let kept = at / (b * c) < keep[0] && at / c % b < keep[1] && at % c < keep[2];
                    if kept { data[at as usize] } else { 0 }
                })
                .collect();
            assert_eq!(read(store, &name, &form, &whole), want, "{keep:?}");
            store.verify(&name).expect("verify");
            store.delete(&[name]).expect("delete");
        }
    }
    store
        .clip(
            &grid(50, 0, &[9, 9, 9]),
            &form(&[4, 5, 6], 2, Codec::None, &[]),
            &[1, 1, 1],
        )
        .expect("missing is fine");
}

fn punch(store: &dyn ChunkStore) {
    let name = grid(60, 0, &[0]);
    let form = form(&[8 << 20], 1, Codec::None, &[]);
    let mut model = noise(3 << 20, 8);
    store
        .write(
            &name,
            &form,
            &boxed(&[0], &[model.len() as u64]),
            &slices(&model),
        )
        .expect("write");
    let size = |store: &dyn ChunkStore| {
        let listed = store.list(None, usize::MAX).expect("list");
        listed
            .into_iter()
            .find(|(listed, _)| *listed == name)
            .map_or(0, |(_, bytes)| bytes)
    };
    store.sync(&[]).expect("sync");
    let before = size(store);
    for (at, len) in [
        (10usize, 5usize),
        (65_536, 65_536),
        (100_000, 1_500_000),
        ((3 << 20) - 7, 7),
    ] {
        store
            .punch(&name, &form, &boxed(&[at as u64], &[len as u64]))
            .expect("punch");
        model[at..at + len].fill(0);
        assert_eq!(
            read(store, &name, &form, &boxed(&[0], &[model.len() as u64])),
            model
        );
    }
    assert!(size(store) + 1_000_000 < before, "space comes back");
    store.verify(&name).expect("verify");
    store
        .punch(&name, &form, &boxed(&[0], &[8 << 20]))
        .expect("punch");
    assert_eq!(read(store, &name, &form, &boxed(&[0], &[100])), [0; 100]);
    store
        .punch(&grid(61, 0, &[0]), &form, &boxed(&[0], &[1]))
        .expect("missing is fine");
    store.delete(std::slice::from_ref(&name)).expect("delete");
}

fn delete(store: &dyn ChunkStore) {
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
    // A name may come back.
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

fn lists(store: &dyn ChunkStore) {
    let form = form(&[10], 1, Codec::None, &[]);
    let mut names = Vec::new();
    for id in [5, 1, 9] {
        names.push(free(1000 + id));
        store
            .put(&free(1000 + id), &form, &slices(&[1; 10]))
            .expect("put");
        for at in [3, 0] {
            names.push(grid(80 + id, 1, &[at, 7]));
            let form = super::form(&[1, 10], 1, Codec::None, &[]);
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

fn wrong_requests(store: &dyn ChunkStore) {
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
    let huge = super::form(&[u64::MAX, u64::MAX], 1, Codec::None, &[]);
    invalid(store.put(&a, &huge, &slices(&[0; 10])));
    store.put(&a, &form, &slices(&[3; 100])).expect("put");
    invalid(store.read(&a, &form, &boxed(&[0, 0], &[1, 1]), &mut [0; 2]));
    invalid(store.read(&a, &form, &boxed(&[10, 0], &[1, 1]), &mut [0; 1]));
    assert_eq!(read(store, &a, &form, &boxed(&[9, 9], &[1, 1])), [3]);
    store.delete(&[a, b]).expect("delete");
    let space = store.space().expect("space");
    assert!(space.total > 0 && space.free <= space.total && space.used <= space.total);
}

fn many_threads(store: &dyn ChunkStore) {
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
                    let own_form = super::form(&[len], 1, Codec::None, &[]);
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
