//! Tests of a full disk: writes fail with NoSpace, and no partial data can be read. These tests need a small
//! filesystem, which only root can mount; otherwise they print a message and do nothing.

use std::io::IoSlice;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use slabfs_model::Codec;

use super::super::*;
use crate::store::conformance::{boxed, form, free, grid, noise, read, smooth};

const SIZE: u64 = 12 << 20;

/// A small tmpfs, unmounted when dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={SIZE}");
        match mount(
            Some("slabfs-test"),
            dir.path(),
            Some("tmpfs"),
            MsFlags::empty(),
            Some(options.as_str()),
        ) {
            Ok(()) => Some(Self(dir)),
            Err(error) => {
                eprintln!("skipped: no small filesystem can be mounted: {error}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        umount2(self.path(), MntFlags::MNT_DETACH).unwrap();
    }
}

#[test]
fn a_full_disk_leaves_no_partial_data() {
    let Some(disk) = Small::mount() else { return };
    let store = LocalStore::open(disk.path(), LocalOptions::default()).unwrap();
    let big = form(&[1 << 20], 1, Codec::None, &[]);
    let huge = form(&[64 << 20], 1, Codec::None, &[]);
    let little = form(&[3000], 1, Codec::None, &[]);
    let data = noise(1 << 20, 1);
    let first = noise(3 << 20, 2);
    store
        .write(
            &grid(1, 0, &[0]),
            &huge,
            &boxed(&[0], &[3 << 20]),
            &[IoSlice::new(&first)],
        )
        .unwrap();
    store
        .append(&free(1), &huge, 0, &[IoSlice::new(&data)])
        .unwrap();
    let mut held = Vec::new();
    let full = loop {
        let name = free(100 + held.len() as u64);
        match store.put(&name, &big, &[IoSlice::new(&data)]) {
            Ok(()) => held.push(name),
            Err(error) => break (name, error),
        }
    };
    assert_eq!(full.1, StoreError::NoSpace);
    assert!(held.len() >= 5, "{}", held.len());
    assert_eq!(
        store.verify(&full.0),
        Err(StoreError::Missing(full.0.clone()))
    );
    // Small chunks fill the rest.
    let mut small = Vec::new();
    let end = loop {
        let name = free(1000 + small.len() as u64);
        match store.put(&name, &little, &[IoSlice::new(&data[..3000])]) {
            Ok(()) => small.push(name),
            Err(error) => break (name, error),
        }
    };
    assert_eq!(end.1, StoreError::NoSpace);
    assert!(small.len() > 10 && store.verify(&end.0).is_err());
    // A grid chunk: overwriting works, extending fails, and a write that does both changes nothing.
    let name = grid(1, 0, &[0]);
    store
        .write(
            &name,
            &huge,
            &boxed(&[5], &[1 << 20]),
            &[IoSlice::new(&data)],
        )
        .unwrap();
    let mut model = first.clone();
    model[5..5 + (1 << 20)].copy_from_slice(&data);
    for at in [5 << 20, 3 << 20, (3 << 20) - 70_000, 2 << 20] {
        let more = noise(2 << 20, at);
        let outcome = store.write(
            &name,
            &huge,
            &boxed(&[at], &[2 << 20]),
            &[IoSlice::new(&more)],
        );
        assert_eq!(outcome, Err(StoreError::NoSpace), "at {at}");
        assert_eq!(
            read(&store, &name, &huge, &boxed(&[0], &[3 << 20])),
            model,
            "at {at}"
        );
        assert_eq!(
            read(&store, &name, &huge, &boxed(&[3 << 20], &[2 << 20])),
            vec![0; 2 << 20],
            "at {at}"
        );
    }
    store.verify(&name).unwrap();
    // A stream is unchanged.
    let more = noise(3 << 20, 9);
    assert_eq!(
        store.append(&free(1), &huge, 1 << 20, &[IoSlice::new(&more)]),
        Err(StoreError::NoSpace)
    );
    assert_eq!(
        read(&store, &free(1), &huge, &boxed(&[0], &[1 << 20])),
        data
    );
    assert!(
        store
            .read(&free(1), &huge, &boxed(&[1 << 20], &[1]), &mut [0])
            .is_err()
    );
    // A new grid chunk is not created.
    let fresh = grid(2, 0, &[0]);
    assert_eq!(
        store.write(
            &fresh,
            &huge,
            &boxed(&[0], &[2 << 20]),
            &[IoSlice::new(&more[..2 << 20])]
        ),
        Err(StoreError::NoSpace)
    );
    assert_eq!(
        store.verify(&fresh),
        Err(StoreError::Missing(fresh.clone()))
    );
    // Closing and opening needs no space.
    store.close().unwrap();
    let store = LocalStore::open(disk.path(), LocalOptions::default()).unwrap();
    store.verify(&name).unwrap();
    // Deleting frees space, and all changes are durable.
    store.delete(&held[..3]).unwrap();
    store
        .append(&free(1), &huge, 1 << 20, &[IoSlice::new(&more[..1 << 20])])
        .unwrap();
    store.crash();
    let store = LocalStore::open(disk.path(), LocalOptions::default()).unwrap();
    assert_eq!(read(&store, &name, &huge, &boxed(&[0], &[3 << 20])), model);
    for name in &small {
        assert_eq!(
            read(&store, name, &little, &boxed(&[0], &[3000])),
            data[..3000]
        );
    }
    assert_eq!(
        store.verify(&end.0),
        Err(StoreError::Missing(end.0.clone()))
    );
}

#[test]
fn a_failed_seal_on_a_full_disk_leaves_the_stream_unchanged() {
    let Some(disk) = Small::mount() else { return };
    let store = LocalStore::open(disk.path(), LocalOptions::default()).unwrap();
    let form = form(&[5 << 20], 1, Codec::Zstd(1), &[]);
    let mut data = smooth(5 << 20, 1);
    data[..3 << 20].copy_from_slice(&noise(3 << 20, 1));
    store
        .append(&free(1), &form, 0, &[IoSlice::new(&data)])
        .unwrap();
    let ballast = super::super::super::conformance::form(&[5 << 20], 1, Codec::None, &[]);
    store
        .put(&free(2), &ballast, &[IoSlice::new(&noise(5 << 20, 2))])
        .unwrap();
    assert_eq!(store.seal(&free(1), &form), Err(StoreError::NoSpace));
    assert_eq!(
        read(&store, &free(1), &form, &boxed(&[0], &[5 << 20])),
        data
    );
    store.delete(&[free(2)]).unwrap();
    store.seal(&free(1), &form).unwrap();
    assert_eq!(
        read(&store, &free(1), &form, &boxed(&[0], &[5 << 20])),
        data
    );
    store.verify(&free(1)).unwrap();
}
