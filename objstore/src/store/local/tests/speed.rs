//! Timings of operations; run manually: `cargo test -p slabfs-objstore speed -- --ignored --nocapture`.

use std::io::IoSlice;
use std::time::Instant;

use slabfs_model::Codec;

use super::super::*;
use crate::store::conformance::{boxed, form, free, grid, noise};

fn timed(what: &str, count: u64, bytes: u64, mut f: impl FnMut(u64)) {
    let start = Instant::now();
    (0..count).for_each(&mut f);
    let each = start.elapsed().as_secs_f64() / count as f64;
    println!(
        "{what:32} {:9.2} µs {:8.0} MB/s",
        each * 1e6,
        bytes as f64 / each / 1e6
    );
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    let small = form(&[4096], 1, Codec::None, &[]);
    let data = noise(1 << 20, 1);
    let slab = boxed(&[0], &[4096]);
    timed("put 4 KiB", 20_000, 4096, |i| {
        store
            .put(&free(i), &small, &[IoSlice::new(&data[..4096])])
            .unwrap()
    });
    let mut out = vec![0; 1 << 20];
    timed("read 4 KiB", 20_000, 4096, |i| {
        store
            .read(&free(i), &small, &slab, &mut out[..4096])
            .unwrap()
    });
    let chunk = form(&[64 << 20], 1, Codec::None, &[]);
    timed("grid create 4 KiB", 20_000, 4096, |i| {
        store
            .write(
                &grid(i, 0, &[0]),
                &chunk,
                &slab,
                &[IoSlice::new(&data[..4096])],
            )
            .unwrap()
    });
    timed("grid rewrite 4 KiB", 20_000, 4096, |i| {
        store
            .write(
                &grid(i, 0, &[0]),
                &chunk,
                &slab,
                &[IoSlice::new(&data[..4096])],
            )
            .unwrap()
    });
    timed("delete grid 4 KiB", 20_000, 4096, |i| {
        store
            .delete_grid(ObjectId(crate::store::conformance::FIRST_ID + i))
            .unwrap()
    });
    timed("put 128 KiB", 2000, 128 << 10, |i| {
        let form = form(&[128 << 10], 1, Codec::None, &[]);
        store
            .put(
                &free(100_000 + i),
                &form,
                &[IoSlice::new(&data[..128 << 10])],
            )
            .unwrap();
    });
    for what in ["append 1 MiB", "append 1 MiB again"] {
        timed(what, 1024, 1 << 20, |i| {
            store
                .append(
                    &free(200_000 + i / 64),
                    &chunk,
                    (i % 64) << 20,
                    &[IoSlice::new(&data)],
                )
                .unwrap()
        });
    }
    for what in ["grid write 1 MiB", "grid overwrite 1 MiB"] {
        timed(what, 1024, 1 << 20, |i| {
            let slab = boxed(&[(i % 64) << 20], &[1 << 20]);
            store
                .write(
                    &grid(300_000 + i / 64, 0, &[0]),
                    &chunk,
                    &slab,
                    &[IoSlice::new(&data)],
                )
                .unwrap();
        });
    }
    timed("grid overwrite 4 KiB in place", 20_000, 4096, |i| {
        let slab = boxed(&[i * 4_096_000 % (64 << 20) / 4096 * 4096], &[4096]);
        store
            .write(
                &grid(300_000 + i % 16, 0, &[0]),
                &chunk,
                &slab,
                &[IoSlice::new(&data[..4096])],
            )
            .unwrap();
    });
    for what in ["show 1 MiB", "show 1 MiB again"] {
        timed(what, 1024, 1 << 20, |i| {
            let slab = boxed(&[(i % 64) << 20], &[1 << 20]);
            assert!(
                store
                    .show(&grid(300_000 + i / 64, 0, &[0]), &chunk, &slab, &mut |b| {
                        out[0] ^= b[77]
                    })
                    .unwrap()
            );
        });
    }
    timed("read 1 MiB", 1024, 1 << 20, |i| {
        let slab = boxed(&[(i % 64) << 20], &[1 << 20]);
        store
            .read(&grid(300_000 + i / 64, 0, &[0]), &chunk, &slab, &mut out)
            .unwrap();
    });
    timed("read 4 KiB at random", 20_000, 4096, |i| {
        let slab = boxed(&[i * 7_777 % (16 << 10) * 4096], &[4096]);
        store
            .read(
                &grid(300_000 + i % 16, 0, &[0]),
                &chunk,
                &slab,
                &mut out[..4096],
            )
            .unwrap();
    });
    timed("crc 1 MiB", 1000, 1 << 20, |_| {
        out[0] ^= crate::checksum::crc32c(&data) as u8
    });
    timed("sync all", 1, 2 << 30, |_| store.sync(&[]).unwrap());
    timed("put 4 KiB and sync", 50, 4096, |i| {
        store
            .put(&free(400_000 + i), &small, &[IoSlice::new(&data[..4096])])
            .unwrap();
        store.sync(&[free(400_000 + i)]).unwrap();
    });
    let (start, path) = (Instant::now(), dir.path());
    drop(store);
    println!("close {:?}", start.elapsed());
    let start = Instant::now();
    let store = LocalStore::open(path, LocalOptions::default()).unwrap();
    println!("open {:?}", start.elapsed());
    store.crash();
}
