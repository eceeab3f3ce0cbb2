//! Guarantees for grid chunks.

use std::io::IoSlice;

use slabfs_model::{Codec, Hyperslab};

use super::super::{boxed, form, grid, noise, read, slices};
use crate::error::StoreError;
use crate::store::{ChunkStore, Patch, Patches};

pub(super) fn grid_in_place(store: &dyn ChunkStore) {
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
            assert_eq!(read(store, &name, &form, &Hyperslab::all(&shape)), model);
        }
        store.sync(std::slice::from_ref(&name)).expect("sync");
        store.verify(&name).expect("verify");
        store.delete(&[name]).expect("delete");
    }
}

pub(super) fn grid_grows(store: &dyn ChunkStore) {
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
    // Far beyond, across groups and holes.
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

pub(super) fn unbounded(store: &dyn ChunkStore) {
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

pub(super) fn fill(store: &dyn ChunkStore) {
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
            assert_eq!(read(store, &name, &form, &Hyperslab::all(&shape)), model);
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
        assert_eq!(read(store, &name, &form, &Hyperslab::all(&shape)), model);
        store.verify(&name).expect("verify");
        store.delete(&[name]).expect("delete");
    }
}

pub(super) fn clip(store: &dyn ChunkStore) {
    for (i, shape) in [[4u64, 5, 6], [40, 50, 60]].into_iter().enumerate() {
        let all = Hyperslab::all(&shape);
        let data = noise(all.volume() as usize, 4);
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
                .write(&name, &form, &all, &slices(&data))
                .expect("write");
            store.clip(&name, &form, &keep).expect("clip");
            let want: Vec<u8> = (0..data.len() as u64)
                .map(|at| {
                    let stays = at / (b * c) < keep[0] && at / c % b < keep[1] && at % c < keep[2];
                    if stays { data[at as usize] } else { 0 }
                })
                .collect();
            assert_eq!(read(store, &name, &form, &all), want, "{keep:?}");
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

pub(super) fn punch(store: &dyn ChunkStore) {
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

/// Ranges, with new bytes for each.
struct Places {
    places: Vec<(Patch, Vec<u8>)>,
    next: usize,
}

impl Patches for Places {
    fn next(&mut self) -> Option<Patch> {
        self.next += 1;
        Some(self.places.get(self.next - 1)?.0)
    }

    /// Replaces every second byte, unless all are overwritten.
    fn apply(&mut self, bytes: &mut [u8]) {
        let (patch, new) = &self.places[self.next - 1];
        let step = if patch.is_complete { 1 } else { 2 };
        for at in (0..bytes.len()).step_by(step) {
            bytes[at] = new[at];
        }
    }
}

pub(super) fn grid_patched(store: &dyn ChunkStore) {
    let shapes: [&[u64]; 3] = [&[10, 20], &[700, 600], &[300_000]];
    for (i, shape) in (60..).zip(shapes) {
        let name = grid(i, 0, &[1, 2]);
        let fill = [3, 4, 5, 6];
        let form = form(shape, 4, Codec::None, &fill);
        let volume = form.volume().expect("bounded");
        let mut model: Vec<u8> = (0..volume as usize).map(|at| fill[at % 4]).collect();
        // Small, then large, then across blocks and over existing data; nothing at all in between.
        let rounds: [&[(u64, u64, bool)]; 5] = [
            &[(3, 17, false), (40, 44, true)],
            &[],
            &[
                (volume - 9, volume, true),
                (volume / 2, volume / 2 + 1, false),
            ],
            &[
                (0, volume / 3, false),
                (volume / 4, volume / 2, true),
                (5, 9, false),
            ],
            &[(volume / 2 - 7, volume / 2 + 7, true), (0, volume, false)],
        ];
        for (round, places) in rounds.into_iter().enumerate() {
            let places: Vec<_> = places
                .iter()
                .map(|&(from, to, is_complete)| {
                    let bytes = noise((to - from) as usize, from + round as u64);
                    (
                        Patch {
                            from,
                            to,
                            is_complete,
                        },
                        bytes,
                    )
                })
                .collect();
            let end = places.iter().map(|(patch, _)| patch.to).max().unwrap_or(0);
            let mut patches = Places { places, next: 0 };
            store
                .patch(&name, &form, end, &mut patches)
                .expect("patched");
            for (patch, new) in &patches.places {
                let step = if patch.is_complete { 1 } else { 2 };
                for at in (0..new.len()).step_by(step) {
                    model[patch.from as usize + at] = new[at];
                }
            }
            assert_eq!(read(store, &name, &form, &Hyperslab::all(shape)), model);
        }
        store.sync(std::slice::from_ref(&name)).expect("sync");
        store.verify(&name).expect("verify");
        store.delete(&[name]).expect("delete");
    }
}
