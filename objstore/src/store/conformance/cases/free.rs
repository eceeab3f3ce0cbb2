//! Guarantees for free chunks.

use std::io::IoSlice;

use slabfs_model::{Axis, Codec, Hyperslab, gather};

use super::super::{boxed, fill, form, free, in_file, noise, read, slices, smooth};
use crate::codec::{coded::end_of_one_block, pack};
use crate::error::StoreError;
use crate::store::ChunkStore;

const SIZES: [usize; 9] = [0, 1, 100, 4096, 65_535, 65_536, 65_537, 200_000, 3_000_000];

pub(super) fn put_and_read(store: &dyn ChunkStore) {
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
            let was_called = store
                .show(&name, &form, &slab, &mut |bytes| {
                    shown = Some(bytes.to_vec())
                })
                .expect("show");
            assert_eq!(was_called, shown.is_some());
            assert!(shown.is_none_or(|bytes| bytes == data[at..at + len]));
            let in_file = in_file(store, &name, &form, &slab);
            assert!(in_file.is_none_or(|bytes| bytes == data[at..at + len]));
        }
        store.delete(&[name]).expect("delete");
    }
}

pub(super) fn files_to_be_filled(store: &dyn ChunkStore) {
    for size in [70_000usize, 3_000_000, (32 << 20) + 100_000] {
        let name = free(60);
        let form = form(&[size as u64], 1, Codec::None, &[]);
        let all = boxed(&[0], &[size as u64]);
        let data = noise(size, 7);
        let blank = || store.blank(&name, &form).expect("blank");
        let (Some(first), Some(second)) = (blank(), blank()) else {
            return;
        };
        let is_missing = || store.read(&name, &form, &all, &mut vec![0; size]);
        assert_eq!(is_missing(), Err(StoreError::Missing(name.clone())));
        // A file without its end is no chunk.
        let (Some(short), Some(long)) = (blank(), blank()) else {
            return;
        };
        for (blank, len) in [(short, size as u64 - 1), (long, size as u64 + 1)] {
            fill(&blank, &data);
            let last = blank
                .places()
                .last()
                .map_or(0, |place| place.at + place.len);
            let cut = last + len - size as u64;
            let file = blank.for_writing().expect("a file");
            file.set_len(cut).expect("cut");
            let refused = store.adopt(blank, &[]);
            assert!(
                matches!(refused, Err(StoreError::Invalid(_))),
                "{refused:?}"
            );
            assert_eq!(is_missing(), Err(StoreError::Missing(name.clone())));
        }
        fill(&first, &data);
        fill(&second, &data);
        let Some(other) = blank() else { return };
        fill(&other, &noise(size, 8));
        store.adopt(first, &[]).expect("adopt");
        assert!(read(store, &name, &form, &all) == data);
        assert!(blank().is_none(), "there is a chunk of this name");
        // A repetition is allowed, different content is not.
        store.adopt(second, &[]).expect("adopt");
        let refused = store.adopt(other, &[]);
        assert!(
            matches!(refused, Err(StoreError::Invalid(_))),
            "{refused:?}"
        );
        store.put(&name, &form, &slices(&data)).expect("put");
        store.sync(std::slice::from_ref(&name)).expect("sync");
        store.verify(&name).expect("verify");
        assert!(read(store, &name, &form, &all) == data);
        store.delete(std::slice::from_ref(&name)).expect("delete");
        assert_eq!(is_missing(), Err(StoreError::Missing(name)));
    }
    let small = form(&[1000], 1, Codec::None, &[]);
    assert!(store.blank(&free(61), &small).expect("blank").is_none());
    let coded = form(&[3_000_000], 1, Codec::Lz4, &[]);
    assert!(store.blank(&free(61), &coded).expect("blank").is_none());
}

pub(super) fn codecs(store: &dyn ChunkStore) {
    let codecs = [
        Codec::Lz4,
        Codec::Deflate(3),
        Codec::Zstd(3),
        Codec::ShuffleZstd(1),
        Codec::ShuffleDeflate(6),
        Codec::ShuffleLz4,
    ];
    for (i, codec) in codecs.into_iter().enumerate() {
        for (j, rows) in [1u64, 30, 600].into_iter().enumerate() {
            let name = free(100 + 10 * i as u64 + j as u64);
            let form = form(&[rows, 2000], 8, codec, &[]);
            for data in [
                smooth(rows as usize * 2000, 5),
                noise(rows as usize * 2000, 6),
            ] {
                store.put(&name, &form, &slices(&data)).expect("put");
                assert_eq!(
                    read(store, &name, &form, &Hyperslab::all(&form.shape)),
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

pub(super) fn strided_reads(store: &dyn ChunkStore) {
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

pub(super) fn streams(store: &dyn ChunkStore) {
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
    // Data that is sent twice is stored once.
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
    let last = super::super::form(&[at as u64], 1, Codec::None, &[]);
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

pub(super) fn sealing_cuts_and_packs(store: &dyn ChunkStore) {
    for (i, codec) in [Codec::None, Codec::ShuffleZstd(3), Codec::Lz4]
        .into_iter()
        .enumerate()
    {
        for (j, data) in [smooth(1_500_000, 1), noise(1_500_000, 1)]
            .into_iter()
            .enumerate()
        {
            for (k, rows) in [1500u64, 1499, 70, 0].into_iter().enumerate() {
                let name = free(400 + 100 * i as u64 + 10 * j as u64 + k as u64);
                let most = form(&[1500, 1000], 8, codec, &[]);
                store
                    .append(&name, &most, 0, &slices(&data[..1_000_000]))
                    .expect("append");
                store
                    .append(&name, &most, 1_000_000, &slices(&data[1_000_000..]))
                    .expect("append");
                assert!(
                    store
                        .seal(&name, &form(&[1501, 1000], 8, codec, &[]))
                        .is_err(),
                    "more than there is"
                );
                let last = form(&[rows, 1000], 8, codec, &[]);
                store.seal(&name, &last).expect("seal");
                store.seal(&name, &last).expect("seal again");
                let all = read(store, &name, &last, &Hyperslab::all(&last.shape));
                assert_eq!(all, data[..rows as usize * 1000]);
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

pub(super) fn resends(store: &dyn ChunkStore) {
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

/// Chunks that come encoded, and are read as they are stored.
pub(super) fn encoded_chunks(store: &dyn ChunkStore) {
    let codec = Codec::ShuffleDeflate(4);
    for (id, len) in [(80, 1000u64), (81, 600_000)] {
        let (name, form) = (free(id), form(&[len, 4], 4, codec, &[]));
        let data = smooth(len as usize * 4, id);
        let mut stored = Vec::new();
        let packed = pack(codec, 4, &data, &mut stored).expect("packed");
        let end = end_of_one_block(len * 4, packed as u64).expect("a table");
        stored.extend_from_slice(&end);
        let (a, b) = stored.split_at(stored.len() / 3);
        let put = |bytes: &[&[u8]]| {
            let bytes: Vec<_> = bytes.iter().map(|bytes| IoSlice::new(bytes)).collect();
            store.put_encoded(&name, &form, &bytes)
        };
        let refused = |bytes: &[u8]| matches!(put(&[bytes]), Err(StoreError::Invalid(_)));
        let mut other = stored.clone();
        for at in [stored.len() - 1, stored.len() - 12, stored.len() - 24] {
            other[at] ^= 1;
            assert!(refused(&other), "{at}");
            other[at] ^= 1;
        }
        assert!(refused(&stored[1..]) && refused(&stored[..stored.len() - 1]) && refused(&[]));
        let missing = store.read_encoded(&name);
        assert_eq!(missing, Err(StoreError::Missing(name.clone())));
        put(&[a, b]).expect("put");
        put(&[&stored]).expect("put again");
        other[0] ^= 1;
        assert!(refused(&other), "other bytes");
        assert_eq!(store.read_encoded(&name), Ok(Some(stored.clone())));
        let (all, some) = (boxed(&[0, 0], &[len, 4]), boxed(&[len - 9, 1], &[5, 2]));
        assert_eq!(read(store, &name, &form, &all), data);
        let mut part = vec![0; some.volume() as usize];
        gather(&data, &form.shape, &some, &mut part);
        assert_eq!(read(store, &name, &form, &some), part);
        store.sync(std::slice::from_ref(&name)).expect("sync");
        store.verify(&name).expect("verify");
        // What the store has encoded itself can be put again elsewhere.
        let (own, copy) = (free(id + 10), free(id + 20));
        store.put(&own, &form, &slices(&data)).expect("put");
        let encoded = store.read_encoded(&own).expect("read").expect("encoded");
        store
            .put_encoded(&copy, &form, &slices(&encoded))
            .expect("put encoded");
        assert_eq!(read(store, &copy, &form, &all), data);
        let raw = free(id + 30);
        let unpacked = super::super::form(&[len, 4], 4, Codec::None, &[]);
        store.put(&raw, &unpacked, &slices(&data)).expect("put");
        assert_eq!(store.read_encoded(&raw), Ok(None));
        let no_codec = store.put_encoded(&free(id + 40), &unpacked, &slices(&stored));
        assert!(matches!(no_codec, Err(StoreError::Invalid(_))));
        store.delete(&[name, own, copy, raw]).expect("delete");
    }
}
