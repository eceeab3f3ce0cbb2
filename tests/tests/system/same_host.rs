//! Chunks of data servers on the same machine, read from their files (docs/decisions/18-same-host.md): no server
//! is asked a second time, another mount's writes are seen, damage is detected, and the space of deleted chunks
//! is freed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use slabfs_tests::array::same;
use slabfs_tests::file::{self, errno, named};
use slabfs_tests::tool::{create, stats};
use slabfs_tests::{Cluster, Random, needs_mount, poll};

/// Rows of 3000 floats.
const ROWS: usize = 400;
const ROW: usize = 12_000;

fn noise(seed: u64) -> Vec<u8> {
    Random::exactly(seed).bytes(ROWS * ROW)
}

/// An array in two chunks, each on a server of its own: its first 100 columns and the others.
fn stored(cluster: &Cluster, name: &str, bytes: &[u8]) {
    let dims = format!("{ROWS},{}", ROW / 4);
    create(&cluster.at(0, name), &dims, "f4", &[]);
    for (columns, range) in [("0:100", 0..400), ("100:", 400..ROW)] {
        let part: Vec<u8> = bytes
            .chunks(ROW)
            .flat_map(|row| row[range.clone()].iter().copied())
            .collect();
        file::write(
            &named(&cluster.at(0, name), &format!("@[:,{columns}]")),
            part,
        );
    }
}

/// Messages in which a mount requested bytes from data servers.
fn asked(mount: &Path) -> u64 {
    let stats = stats(mount);
    let number = stats.pointer("/read/messages");
    number
        .and_then(serde_json::Value::as_u64)
        .expect("a counter")
}

/// Chunk files that a mount has mapped; with `deleted` only the deleted ones.
fn held(cluster: &Cluster, mount: usize, deleted: bool) -> usize {
    let maps = format!("/proc/{}/maps", cluster.mount(mount).pid());
    let maps = std::fs::read_to_string(maps).expect("the maps of a mount");
    let of_chunks = maps.lines().filter(|line| line.contains("/free/"));
    let gone = |line: &&str| !deleted || line.ends_with("(deleted)");
    of_chunks.filter(gone).count()
}

#[test]
fn no_server_is_asked_twice_and_writes_of_others_are_seen() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    let mut bytes = noise(1);
    stored(&cluster, "a", &bytes);
    let reader = file::open(&cluster.at(1, "a"));
    let read_rows = |what: &str, bytes: &[u8]| {
        let mut row = vec![0; ROW];
        for number in 0..ROWS {
            let at = number * ROW;
            reader.read_exact_at(&mut row, at as u64).expect("read");
            same(what, &row, &bytes[at..at + ROW]);
            // Within the larger chunk, and across both.
            let mut part = vec![0; 3000];
            reader
                .read_exact_at(&mut part, (at + 399) as u64)
                .expect("read");
            same(what, &part, &bytes[at + 399..at + 3399]);
        }
    };
    read_rows("at first", &bytes);
    let before = asked(&cluster.mnt(1));
    read_rows("again", &bytes);
    assert_eq!(asked(&cluster.mnt(1)), before);

    // Through the other mount: first not flushed, and then in other chunks.
    let writer = file::open(&cluster.at(0, "a"));
    for round in 0..3u8 {
        for number in (0..ROWS).step_by(7) {
            let at = number * ROW + 4 * usize::from(round);
            bytes[at..at + 1000].fill(round + 1);
            writer
                .write_all_at(&bytes[at..at + 1000], at as u64)
                .expect("written");
        }
        if round > 0 {
            writer.sync_all().expect("synced");
        }
        read_rows(&format!("after write {round}"), &bytes);
    }
}

/// A reader of one row of a chunk after the other locates the chunk once, until the object has other chunks.
#[test]
fn rows_are_read_from_their_current_chunks() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    let mut bytes = noise(6);
    stored(&cluster, "a", &bytes);
    let reader = file::open(&cluster.at(1, "a"));
    let mut random = Random::new(7);
    let mut part = vec![0; ROW];
    let mut mapped = 0;
    for round in 0..40u8 {
        // Descriptors are requested only for large reads.
        same("all", &file::read(&cluster.at(1, "a")), &bytes);
        let first = random.range(0, ROWS as u64 - 60) as usize;
        for number in first..first + 60 {
            let from = random.range(400, ROW as u64 - 1) as usize;
            let to = random.range(from as u64 + 1, ROW as u64 + 1) as usize;
            let at = number * ROW + from;
            let part = &mut part[..to - from];
            reader.read_exact_at(part, at as u64).expect("read");
            same("a row", part, &bytes[at..at + part.len()]);
        }
        mapped += held(&cluster, 1, false);
        // A box of the chunk becomes another chunk, by the reader's own mount or the other one.
        let (row, column) = (
            random.range(0, 390) as usize,
            random.range(100, 2900) as usize,
        );
        let (rows, columns) = (random.range(1, 10) as usize, random.range(1, 90) as usize);
        let mount = random.range(0, 2) as usize;
        let name = format!("@[{row}:{},{column}:{}]", row + rows, column + columns);
        file::write(
            &named(&cluster.at(mount, "a"), &name),
            vec![round; rows * columns * 4],
        );
        for row in bytes.chunks_mut(ROW).skip(row).take(rows) {
            row[column * 4..(column + columns) * 4].fill(round);
        }
    }
    assert!(mapped > 0, "it reads files");
}

#[test]
fn the_space_of_deleted_chunks_is_freed() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let bytes = noise(2);
    stored(&cluster, "a", &bytes);
    same("all", &file::read(&cluster.at(1, "a")), &bytes);
    let opened = file::open(&cluster.at(1, "a"));
    std::fs::remove_file(cluster.at(0, "a")).expect("removed");
    let mut row = vec![0; ROW];
    opened
        .read_exact_at(&mut row, 0)
        .expect("an open file stays");
    same("the first row", &row, &bytes[..ROW]);
    assert!(held(&cluster, 1, false) > 0, "it reads files");
    drop(opened);
    let free = cluster.server_data(0).join("free");
    poll::until_true("files to be deleted", || files(&free).is_empty());
    poll::until_true("mounts to let go of them", || {
        held(&cluster, 0, true) + held(&cluster, 1, true) == 0
    });
}

/// Versions that a writer replaces do not accumulate because a mount reads each of them.
#[test]
fn a_reader_does_not_hold_replaced_versions() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let bytes = noise(4);
    stored(&cluster, "a", &bytes);
    let reader = file::open(&cluster.at(1, "a"));
    let writer = file::open(&cluster.at(0, "a"));
    let mut seen = vec![0; 200_000];
    for round in 0..20u8 {
        writer
            .write_all_at(&vec![round; ROWS * ROW], 0)
            .expect("written");
        writer.sync_all().expect("synced");
        reader.read_exact_at(&mut seen, 0).expect("read");
        assert!(seen.iter().all(|&byte| byte == round), "round {round}");
        let held = held(&cluster, 1, false);
        assert!((1..5).contains(&held), "{held} files in round {round}");
    }
}

#[test]
fn damage_is_an_error_and_the_rest_reads() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let bytes = noise(3);
    stored(&cluster, "a", &bytes);
    let opened = file::open(&cluster.at(1, "a"));
    let mut row = vec![0; ROW];
    opened.read_exact_at(&mut row, 0).expect("read");
    let files = files(&cluster.server_data(0).join("free"));
    let large = files
        .iter()
        .max_by_key(|path| path.metadata().expect("metadata").len())
        .expect("a chunk");
    let large = OpenOptions::new()
        .write(true)
        .open(large)
        .expect("its file");
    let end = large.metadata().expect("metadata").len();
    large
        .write_all_at(&[0xA5; 16], end - 16)
        .expect("written over");
    let last = ((ROWS - 1) * ROW) as u64;
    let failed = opened.read_exact_at(&mut row, last);
    assert_eq!(errno(failed), nix::errno::Errno::EIO);
    let log = cluster.mount_log(1);
    assert!(log.contains("does not match its checksum"), "{log}");
    opened.read_exact_at(&mut row, 0).expect("read");
    same("the first row", &row, &bytes[..ROW]);
}

/// Every other piece of 4 KiB is a chunk. Locating each piece in it costs more than reading it.
#[test]
fn pieces_at_equal_steps_are_read_many_at_a_time() {
    const PIECE: usize = 4096;
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    let bytes = Random::exactly(5).bytes(2048 * PIECE);
    create(&cluster.at(0, "a"), &bytes.len().to_string(), "u1", &[]);
    let pieces = |of: usize| (of * PIECE..bytes.len()).step_by(2 * PIECE);
    for of in 0..2 {
        let writer = file::open(&cluster.at(0, "a"));
        for at in pieces(of) {
            let piece = &bytes[at..at + PIECE];
            writer.write_all_at(piece, at as u64).expect("written");
        }
        file::close(writer).expect("closed");
    }
    let reads = || {
        let read = stats(&cluster.mnt(1))["read"]["server_ops"].clone();
        read.as_u64().expect("a counter")
    };
    let before = reads();
    for of in 0..2 {
        let reader = file::open(&cluster.at(1, "a"));
        for at in pieces(of) {
            let mut piece = vec![0; PIECE];
            reader.read_exact_at(&mut piece, at as u64).expect("read");
            same("a piece", &piece, &bytes[at..at + PIECE]);
        }
    }
    assert!(held(&cluster, 1, false) > 0, "it reads files");
    let reads = reads() - before;
    assert!(reads < 100, "{reads} for 2048 pieces");
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = dir.read_dir() else {
        return Vec::new();
    };
    entries
        .flat_map(|entry| {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => files(&path),
                false => vec![path],
            }
        })
        .collect()
}
