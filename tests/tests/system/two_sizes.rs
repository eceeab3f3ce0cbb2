//! Two mounts that change the size of one object: a stale view of one undoes nothing of the other.

use std::os::unix::fs::FileExt;

use nix::fcntl::{FallocateFlags, fallocate};
use slabfs_tests::tool::create;
use slabfs_tests::{Cluster, file, needs_mount};

/// Sets the dims of an array.
fn resize(path: &std::path::Path, dims: &str) {
    file::set_xattr(path, "user.slabfs.resize", dims, 0).expect("new dims");
}

#[test]
fn allocating_only_ever_extends() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    file::write(&cluster.at(0, "f"), "");
    let old = file::open(&cluster.at(0, "f"));
    file::write_at(&cluster.at(1, "f"), 0, &vec![7; 1 << 20]);
    fallocate(&old, FallocateFlags::empty(), 0, 1000).expect("allocated");
    file::close(old).expect("closed");
    assert!(file::read(&cluster.at(1, "f")) == vec![7; 1 << 20]);
}

#[test]
fn a_truncate_is_not_undone() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    for (name, len) in [("small", 100), ("large", 100_000), ("larger", 1_000_000)] {
        file::write(&cluster.at(0, name), vec![1; len]);
        let old = file::open(&cluster.at(0, name));
        let mut seen = [0; 10];
        old.read_exact_at(&mut seen, 0).expect("read");
        file::open(&cluster.at(1, name)).set_len(10).expect("cut");
        old.write_all_at(&[2], 0).expect("written");
        file::close(old).expect("closed");
        let wanted = [&[2][..], &[1; 9]].concat();
        assert_eq!(file::read(&cluster.at(1, name)), wanted, "{name}");
        assert_eq!(file::read(&cluster.at(0, name)), wanted, "{name}");
    }
}

/// Dirty data of one mount belongs to elements, whatever dims are set meanwhile.
#[test]
fn dirty_bytes_stay_in_their_elements() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    for layout in ["aligned", "grid:4,4"] {
        for look in [false, true] {
            let name = format!("{}-{look}", &layout[..4]);
            let (mine, theirs) = (cluster.at(0, &name), cluster.at(1, &name));
            create(&mine, "16,16", "u1", &["--layout", layout]);
            let handle = file::open(&mine);
            handle.write_all_at(&[7; 8], 5 * 16).expect("row 5");
            resize(&theirs, "16,8");
            if look {
                file::read(&mine);
            }
            // It may be refused, as the array is another one now.
            let _ = file::close(handle);
            let bytes = file::read(&theirs);
            assert_eq!(bytes.len(), 128, "{name}");
            let rows: Vec<usize> = (0..16)
                .filter(|row| bytes[row * 8..][..8].iter().any(|&b| b != 0))
                .collect();
            assert!(rows.is_empty() || rows == [5], "{name}: rows {rows:?}");
        }
    }
}

/// Dirty data of one mount for elements that the other removed does not reappear.
#[test]
fn dirty_bytes_outside_are_gone() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    for layout in ["aligned", "grid:4,4", "canonical"] {
        for look in [false, true] {
            let name = format!("{}-{look}", &layout[..4]);
            let (mine, theirs) = (cluster.at(0, &name), cluster.at(1, &name));
            create(&mine, "16,16", "u1", &["--layout", layout]);
            let handle = file::open(&mine);
            handle
                .write_all_at(&[7; 16], 15 * 16)
                .expect("the last row");
            handle.write_all_at(&[8; 3], 1).expect("the first row");
            resize(&theirs, "4,16");
            if look {
                file::read(&mine);
            }
            let _ = file::close(handle);
            let bytes = file::read(&theirs);
            assert_eq!(bytes.len(), 64, "{name}");
            assert!(bytes[4..].iter().all(|&b| b == 0), "{name}: {bytes:?}");
            resize(&theirs, "16,16");
            let bytes = file::read(&theirs);
            assert!(
                bytes[4..].iter().all(|&b| b == 0),
                "{name}: what was cut off came back: {bytes:?}"
            );
        }
    }
}

/// Both extend it by rows of their own: the larger end wins, and no rows are lost.
#[test]
fn both_grow() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    for layout in ["aligned", "grid:3,64", "canonical"] {
        let name = &layout[..4];
        create(
            &cluster.at(0, name),
            "0,100",
            "u1",
            &["--max-dims", "unlimited,100", "--layout", layout],
        );
        std::thread::scope(|scope| {
            for who in 0..2_usize {
                let cluster = &cluster;
                scope.spawn(move || {
                    let handle = file::open(&cluster.at(who, name));
                    for row in (who..60).step_by(2) {
                        handle
                            .write_all_at(&[row as u8 + 1; 100], row as u64 * 100)
                            .expect("a row");
                    }
                    file::close(handle).expect("closed");
                });
            }
        });
        let bytes = file::read(&cluster.at(0, name));
        assert_eq!(bytes.len(), 6000, "{name}");
        for row in 0..60 {
            assert!(
                bytes[row * 100..][..100]
                    .iter()
                    .all(|&b| b == row as u8 + 1),
                "{name}: row {row}"
            );
        }
    }
}
