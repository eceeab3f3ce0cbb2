//! Coupled arrays of which only a number of steps is in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// A row of an array of steps: its number, eight times.
fn step(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(8)
}

/// An array without steps yet, of which a mount has this many in memory.
fn steps(queue: &str, more: &[&str]) -> (Cluster, PathBuf, PathBuf) {
    let cluster = Cluster::start(1, 2);
    let path = cluster.at(0, "steps");
    create(&path, "0,8", "i8", &["--max-dims", "unlimited,8"]);
    couple(&path, &[&["--queue", queue], more].concat());
    let other = cluster.at(1, "steps");
    (cluster, path, other)
}

fn read_step(file: &std::fs::File, number: u64) -> std::io::Result<Vec<u8>> {
    let mut row = vec![0; 64];
    file.read_exact_at(&mut row, number * 64)?;
    Ok(row)
}

/// A writer is never more steps ahead of the slowest reader than the queue has, and steps leave the memory.
#[test]
fn a_queue_makes_writers_wait_for_readers() {
    const STEPS: u64 = 30;
    needs_mount!();
    let (_cluster, path, other) = steps("3", &[]);
    let written = Arc::new(AtomicU64::new(0));
    let writing = {
        let (path, written) = (path.clone(), written.clone());
        thread::spawn(move || {
            let file = writer(&path);
            for number in 0..STEPS {
                file.write_all_at(&step(number), number * 64)
                    .expect("write");
                written.store(number + 1, Ordering::SeqCst);
            }
        })
    };
    poll::until_true("the queue is full", || written.load(Ordering::SeqCst) == 3);
    // The slower of two readers counts.
    let (slow, fast) = (reader(&other), reader(&path));
    assert_eq!(read_step(&fast, 2).expect("read"), step(2));
    for number in 0..STEPS {
        assert!(written.load(Ordering::SeqCst) <= number.max(1) - 1 + 3);
        assert_eq!(read_step(&slow, number).expect("read"), step(number));
        assert_eq!(
            read_step(&fast, number.max(2)).expect("read"),
            step(number.max(2))
        );
    }
    writing.join().expect("the writer");
    let old = read_step(&slow, 0).expect_err("it is dropped");
    assert_eq!(old.raw_os_error(), Some(libc::ENODATA));
    let chunks = tool::layout(&path)["chunks"].as_array().map(Vec::len);
    assert!(chunks.is_some_and(|chunks| chunks <= 4), "{chunks:?}");
}

/// A queue has an end also where all servers are in the mount's process.
#[test]
fn a_queue_of_one_process_is_full() {
    needs_mount!();
    let up = Up::start();
    let path = up.mnt().join("steps");
    create(&path, "0,8", "i8", &["--max-dims", "unlimited,8"]);
    couple(&path, &["--queue", "2", "--timeout", "300ms"]);
    let file = writer(&path);
    for number in 0..2 {
        file.write_all_at(&step(number), number * 64)
            .expect("there is room");
    }
    let full = file.write_all_at(&step(2), 128).expect_err("it is full");
    assert_eq!(full.raw_os_error(), Some(libc::ETIMEDOUT));
}

/// With `full=discard` the oldest steps go, and the newest is there.
#[test]
fn a_queue_discards_the_oldest_steps() {
    needs_mount!();
    let (_cluster, path, other) = steps("2", &["--full", "discard"]);
    let file = writer(&path);
    for number in 0..9 {
        file.write_all_at(&step(number), number * 64)
            .expect("write");
    }
    let reads = reader(&other);
    assert_eq!(read_step(&reads, 8).expect("read"), step(8));
    assert_eq!(read_step(&reads, 7).expect("read"), step(7));
    for number in [0, 6] {
        let gone = read_step(&reads, number).expect_err("it is discarded");
        assert_eq!(gone.raw_os_error(), Some(libc::ENODATA));
    }
    let newest = other.with_file_name("steps@[-1]");
    assert_eq!(file::read(&newest), step(8));
}

/// Without a reader a write to a full queue ends after the timeout, and what was written before is there.
#[test]
fn a_full_queue_without_a_reader_times_out() {
    needs_mount!();
    let (_cluster, path, other) = steps("1", &["--timeout", "1s"]);
    let file = writer(&path);
    file.write_all_at(&step(0), 0).expect("write");
    let full = file.write_all_at(&step(1), 64).expect_err("no room");
    assert_eq!(full.raw_os_error(), Some(libc::ETIMEDOUT));
    let reads = reader(&other);
    assert_eq!(read_step(&reads, 0).expect("read"), step(0));
    let waiting = Reading::of(other, 64, 64);
    await_reads(&path, 1);
    drop(reads);
    file.write_all_at(&step(1), 64).expect("there is room");
    assert_eq!(waiting.bytes(), step(1));
}

/// Requests of more rows than the queue has: a write begins when readers have come to its first row, and a read returns as
/// many rows as there can be.
#[test]
fn requests_may_be_longer_than_the_queue() {
    needs_mount!();
    let (_cluster, path, other) = steps("3", &["--timeout", "20s"]);
    let rows = |range: std::ops::Range<u64>| range.flat_map(step).collect::<Vec<u8>>();
    let reading = Reading::of(other, 0, 20 * 64);
    let file = writer(&path);
    file.write_all_at(&rows(0..10), 0).expect("write");
    for number in 10..20 {
        file.write_all_at(&step(number), number * 64)
            .expect("write");
    }
    assert_eq!(reading.bytes(), rows(0..20));
}

/// A slow writer writes rows that another one has dropped: they are dropped again, and are no error of the disk.
#[test]
fn late_rows_are_dropped_again() {
    needs_mount!();
    let (_cluster, path, other) = steps("3", &["--full", "discard"]);
    let (fast, slow) = (writer(&other), writer(&path));
    for number in 0..12 {
        fast.write_all_at(&step(number), number * 64)
            .expect("write");
    }
    fast.sync_all().expect("fsync");
    for number in 0..6 {
        slow.write_all_at(&step(number), number * 64)
            .expect("write");
        slow.sync_all().expect("fsync");
    }
    let reads = reader(&other);
    for number in 0..12 {
        match read_step(&reads, number) {
            Ok(row) => assert_eq!(row, step(number)),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENODATA), "row {number}"),
        }
    }
    assert_eq!(read_step(&reads, 11).expect("read"), step(11));
}

/// Several programs on one mount write a part of each step: one that is ahead does not keep the others from what readers
/// wait for.
#[test]
fn writers_of_one_mount_do_not_block_each_other() {
    const STEPS: u64 = 20;
    needs_mount!();
    let (_cluster, path, other) = steps("1", &["--timeout", "20s"]);
    let writers: Vec<_> = (0..4)
        .map(|part| {
            let file = writer(&path);
            thread::spawn(move || {
                for number in 0..STEPS {
                    let bytes = number.to_le_bytes().repeat(2);
                    file.write_all_at(&bytes, number * 64 + part * 16)
                        .expect("write");
                }
            })
        })
        .collect();
    let reads = reader(&other);
    for number in 0..STEPS {
        assert_eq!(read_step(&reads, number).expect("read"), step(number));
    }
    for one in writers {
        one.join().expect("a writer");
    }
}
