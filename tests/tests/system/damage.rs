//! A damaged chunk: `EIO` for the damaged part, a log line that names it, and the rest can be read.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use slabfs_tests::file::{self, errno, named};
use slabfs_tests::tool::create;
use slabfs_tests::{Cluster, Random, Up, disk, needs_mount};

/// Bytes of the `i`-th part: random, so that they are in one place of the disk only.
fn part(i: u64, len: usize) -> Vec<u8> {
    Random::new(800 + i).bytes(len)
}

/// Flips a byte of the stored copy of the byte at `offset` of `bytes`, and no other.
fn damage(dir: &Path, bytes: &[u8], offset: usize) {
    let found = disk::find(dir, &bytes[offset..offset + 24]);
    let places: Vec<&(PathBuf, u64)> = found.iter().collect();
    assert_eq!(
        places.len(),
        1,
        "the stored bytes are in one place: {places:?}"
    );
    disk::flip(&places[0].0, places[0].1);
}

#[test]
fn chunks_of_an_array() {
    needs_mount!();
    for (name, rows, columns) in [("small", 16, 16), ("large", 512, 512)] {
        let mut up = Up::start();
        let object = up.at(name);
        create(&object, &format!("{rows},{columns}"), "u4", &[]);
        let (half, side) = (rows / 2, columns / 2);
        let quarters: Vec<(String, Vec<u8>)> = (0..4)
            .map(|i| {
                let (row, column) = (i / 2 * half, i % 2 * side);
                let select = format!("@[{row}:{},{column}:{}]", row + half, column + side);
                (select, part(i, (half * side * 4) as usize))
            })
            .collect();
        for (select, bytes) in &quarters {
            file::write(&named(&object, select), bytes);
        }
        file::write(&up.at("other"), part(9, 5000));
        up.stop();
        let middle = quarters[2].1.len() / 2;
        damage(up.data(), &quarters[2].1, middle);
        up.start_again();
        for (i, (select, bytes)) in quarters.iter().enumerate() {
            let read = std::fs::read(named(&object, select));
            if i == 2 {
                assert_eq!(errno(read), Errno::EIO, "{name}");
            } else {
                assert!(read.expect("another chunk") == *bytes, "{name}, part {i}");
            }
        }
        assert_eq!(
            errno(std::fs::read(&object)),
            Errno::EIO,
            "{name}: all of it"
        );
        assert_eq!(file::read(&up.at("other")), part(9, 5000));
        let log = up.log();
        let mut complaints = log
            .lines()
            .filter(|line| line.contains("ERROR") || line.contains("WARN"));
        assert!(
            complaints.any(|line| line.contains("chunk")),
            "{name}: the log names the chunk:\n{log}"
        );
        // Writing over the damage repairs it.
        file::write(&named(&object, &quarters[2].0), &quarters[2].1);
        assert!(file::read(&named(&object, &quarters[2].0)) == quarters[2].1);
        assert_eq!(file::read(&object).len() as u64, rows * columns * 4);
    }
}

#[test]
fn blocks_of_a_byte_object() {
    needs_mount!();
    let mut up = Up::start();
    let path = up.at("f");
    let bytes = part(20, 5 << 20);
    file::write(&path, &bytes);
    file::write(&up.at("small"), part(21, 700));
    up.stop();
    let at = 3 << 20;
    damage(up.data(), &bytes, at);
    damage(up.data(), &part(21, 700), 300);
    up.start_again();
    let handle = file::open(&path);
    let mut seen = vec![0; 1000];
    assert_eq!(errno(handle.read_at(&mut seen, at as u64)), Errno::EIO);
    // A checksum covers 64 KiB: everything farther away can be read.
    for offset in [0, at - (1 << 17), at + (1 << 17), (5 << 20) - 1000] {
        handle
            .read_exact_at(&mut seen, offset as u64)
            .unwrap_or_else(|error| panic!("at {offset}: {error}"));
        assert!(seen == bytes[offset..offset + 1000], "at {offset}");
    }
    assert_eq!(errno(std::fs::read(up.at("small"))), Errno::EIO);
    assert!(up.log().contains("chunk"), "{}", up.log());
}

#[test]
fn a_codecs_chunk() {
    needs_mount!();
    let mut up = Up::start();
    let object = up.at("a");
    create(&object, "2,300000", "u1", &["--codec", "zstd:3"]);
    // Does not compress, and is stored as it is or in a frame: the bytes can be found.
    let bytes = part(30, 300_000);
    file::write(&named(&object, "@[0]"), &bytes);
    file::write(&named(&object, "@[1]"), part(31, 300_000));
    up.stop();
    let found = disk::find(up.data(), &bytes[150_000..150_024]);
    assert_eq!(found.len(), 1, "{found:?}");
    disk::flip(&found[0].0, found[0].1);
    up.start_again();
    assert_eq!(errno(std::fs::read(named(&object, "@[0]"))), Errno::EIO);
    assert!(file::read(&named(&object, "@[1]")) == part(31, 300_000));
}

/// A missing chunk file is an error too, never fill: for a grid the data server's catalogue names it.
#[test]
fn a_grid_chunk_that_is_gone() {
    needs_mount!();
    let mut up = Up::start();
    let object = up.at("g");
    create(&object, "2,400000", "u1", &["--layout", "grid:1,400000"]);
    file::write(&named(&object, "@[0]"), part(60, 400_000));
    file::write(&named(&object, "@[1]"), part(61, 400_000));
    file::open(&object).sync_all().expect("synced");
    let found = disk::find(up.data(), &part(60, 400_000)[1000..1024]);
    assert_eq!(found.len(), 1, "{found:?}");
    up.kill9();
    std::fs::remove_file(&found[0].0).expect("removed");
    let data = up.data().as_os_str().to_owned();
    let fsck = || slabfs_tests::slabfs(["fsck".as_ref(), "--data".as_ref(), data.as_os_str()]);
    let outcome = fsck();
    assert!(
        outcome.status == 1 && outcome.text().contains("the file is gone"),
        "{}",
        outcome.report()
    );
    up.start_again();
    assert_eq!(errno(std::fs::read(named(&object, "@[0]"))), Errno::EIO);
    assert!(file::read(&named(&object, "@[1]")) == part(61, 400_000));
    // After writing all of it again it is correct.
    let mut all = part(60, 400_000);
    all.extend(part(61, 400_000));
    file::write(&object, &all);
    assert!(file::read(&object) == all);
    up.restart();
    assert!(file::read(&object) == all);
    up.stop();
    fsck().ok();
}

/// The same for `aligned`, where the tiling names the chunk.
#[test]
fn a_chunk_that_is_gone() {
    needs_mount!();
    let mut up = Up::start();
    let object = up.at("a");
    create(&object, "2,400000", "u1", &[]);
    file::write(&named(&object, "@[0]"), part(40, 400_000));
    file::write(&named(&object, "@[1]"), part(41, 400_000));
    up.stop();
    let found = disk::find(up.data(), &part(40, 400_000)[1000..1024]);
    assert_eq!(found.len(), 1, "{found:?}");
    std::fs::remove_file(&found[0].0).expect("removed");
    up.start_again();
    assert_eq!(errno(std::fs::read(named(&object, "@[0]"))), Errno::EIO);
    assert!(file::read(&named(&object, "@[1]")) == part(41, 400_000));
    assert!(
        up.log().contains("chunk"),
        "the log names it:\n{}",
        up.log()
    );
}

#[test]
fn on_a_data_server_of_its_own() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 1);
    let object = cluster.at(0, "a");
    create(&object, "8,20000", "f4", &[]);
    for row in 0..8 {
        file::write(
            &named(&object, &format!("@[{row}]")),
            part(50 + row, 80_000),
        );
    }
    cluster.stop_mount(0);
    cluster.stop_server(0);
    cluster.stop_server(1);
    let found: Vec<(PathBuf, u64)> = (0..2)
        .flat_map(|i| disk::find(&cluster.server_data(i), &part(53, 80_000)[40_000..40_024]))
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    disk::flip(&found[0].0, found[0].1);
    cluster.start_server(0);
    cluster.start_server(1);
    cluster.start_mount(0);
    for row in 0..8 {
        let read = std::fs::read(named(&object, &format!("@[{row}]")));
        if row == 3 {
            assert_eq!(errno(read), Errno::EIO);
        } else {
            assert!(
                read.expect("another chunk") == part(50 + row, 80_000),
                "row {row}"
            );
        }
    }
    assert!(
        cluster.mount_log(0).contains("chunk"),
        "{}",
        cluster.mount_log(0)
    );
}
