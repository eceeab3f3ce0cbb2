//! Large sequential writes, next to small ones and to each other.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use slabfs_tests::array::same;
use slabfs_tests::tool::create;
use slabfs_tests::{Cluster, Random, Up, file, needs_mount};

const MIB: usize = 1 << 20;

#[test]
fn a_small_write_over_another_handles_stream_is_not_lost_at_close() {
    needs_mount!();
    for (name, layout) in [("bytes", ""), ("rows", "aligned"), ("grid", "grid:64,4096")] {
        let mut up = Up::start();
        let object = up.at(name);
        if layout.is_empty() {
            file::write(&object, "");
        } else {
            create(&object, "1024,8192", "u1", &["--layout", layout]);
        }
        let (streaming, other) = (file::open(&object), file::open(&object));
        let mut wanted = Vec::new();
        for i in 0..8_u8 {
            streaming
                .write_all_at(&vec![i + 1; MIB], i as u64 * MIB as u64)
                .expect("streamed");
            wanted.extend(vec![i + 1; MIB]);
            // After the stream's position, inside its written data, on both sides of a row.
            let at = i as usize * MIB + 8190;
            other.write_all_at(b"small", at as u64).expect("written");
            wanted[at..at + 5].copy_from_slice(b"small");
        }
        file::close(other).expect("closed");
        same(
            &format!("{name}: the other is closed"),
            &file::read(&object),
            &wanted,
        );
        file::close(streaming).expect("closed");
        same(
            &format!("{name}: both are closed"),
            &file::read(&object),
            &wanted,
        );
        up.restart();
        same(
            &format!("{name}: after a restart"),
            &file::read(&object),
            &wanted,
        );
    }
}

#[test]
fn two_handles_stream_interleaved_rows() {
    needs_mount!();
    for (seed, layout) in [(31, "aligned"), (32, "grid:16,16384"), (33, "canonical")] {
        let mut up = Up::with(&["--servers", "2"]);
        let object = up.at("a");
        let (rows, row) = (64, 256 << 10);
        create(&object, "64,262144", "u1", &["--layout", layout]);
        let wanted = Random::new(seed).bytes(rows * row);
        let handles = [file::open(&object), file::open(&object)];
        for i in 0..rows {
            handles[i % 2]
                .write_all_at(&wanted[i * row..(i + 1) * row], (i * row) as u64)
                .expect("a row");
        }
        same(&format!("{layout}: open"), &file::read(&object), &wanted);
        handles
            .into_iter()
            .for_each(|handle| file::close(handle).expect("closed"));
        up.restart();
        same(
            &format!("{layout}: after a restart"),
            &file::read(&object),
            &wanted,
        );
    }
}

/// Two streams over the same rows: the last write wins, whichever handle is closed first.
#[test]
fn a_stream_over_a_stream() {
    needs_mount!();
    for first in [0, 1] {
        let up = Up::start();
        let object = up.at("a");
        create(&object, "16,262144", "u1", &[]);
        let mut handles = [Some(file::open(&object)), Some(file::open(&object))];
        for (handle, value) in [(0, 1), (1, 2), (0, 3)] {
            let rows = if value == 3 { 4 } else { 8 };
            for i in 0..rows {
                let handle = handles[handle].as_ref().expect("open");
                handle
                    .write_all_at(&vec![value; 262_144], i * 262_144)
                    .expect("a row");
            }
        }
        for i in [first, 1 - first] {
            file::close(handles[i].take().expect("open")).expect("closed");
        }
        let bytes = file::read(&object);
        assert!(
            bytes[..4 * 262_144].iter().all(|&b| b == 3),
            "closed first: {first}"
        );
        assert!(
            bytes[4 * 262_144..8 * 262_144].iter().all(|&b| b == 2),
            "closed first: {first}"
        );
        assert!(
            bytes[8 * 262_144..].iter().all(|&b| b == 0),
            "closed first: {first}"
        );
    }
}

/// Memory is bounded whatever is written: writers wait for earlier writes.
#[test]
fn a_large_file_does_not_fill_memory() {
    needs_mount!();
    let mut up = Up::with(&["--dirty-limit", "32M", "--cache", "16M"]);
    let handle = file::open_new(&up.at("large"));
    let mut random = Random::new(34);
    let block = random.bytes(MIB);
    for i in 0..300 {
        handle
            .write_all_at(&block, i * MIB as u64)
            .expect("written");
    }
    // Small writes all over it: these are buffered in memory.
    for _ in 0..20_000 {
        handle
            .write_all_at(&block[..3000], random.range(0, 299 << 20))
            .expect("written");
    }
    let (_, most) = up.service().memory();
    assert!(most < 300 << 20, "{most} bytes resident");
    file::close(handle).expect("closed");
    let (_, most) = up.service().memory();
    assert!(most < 300 << 20, "{most} bytes resident");
}

/// A stream that ends in the middle of a row, and one that starts in the middle of one.
#[test]
fn streams_that_begin_and_end_anywhere() {
    needs_mount!();
    let mut up = Up::start();
    let object = up.at("a");
    create(&object, "100,100000", "u1", &[]);
    let mut wanted = vec![0; 10_000_000];
    let mut random = Random::new(35);
    for _ in 0..12 {
        let from = random.range(0, 9_000_000) as usize;
        let len = random.range(130_000, 1_000_000) as usize;
        let bytes = random.bytes(len);
        let handle = file::open(&object);
        for (i, part) in bytes.chunks(200_000).enumerate() {
            handle
                .write_all_at(part, (from + i * 200_000) as u64)
                .expect("written");
        }
        wanted[from..from + len].copy_from_slice(&bytes);
        if random.one_in(2) {
            same("before close", &file::read(&object), &wanted);
        }
        file::close(handle).expect("closed");
    }
    same("closed", &file::read(&object), &wanted);
    up.restart();
    same("after a restart", &file::read(&object), &wanted);
}

/// A stream that ends within a row is cut there when another mount requests the object; the data after the cut
/// is unchanged for readers all the time.
#[test]
fn the_data_after_the_cut_of_a_stream_is_readable_all_the_time() {
    const ROW: usize = 32_768;
    const AT: usize = 31 * ROW;
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    create(&cluster.at(0, "a"), "96,32768", "u1", &[]);
    let object = cluster.at(0, "a");
    file::write(&object, vec![0; 96 * ROW]);
    let other = file::open(&cluster.at(1, "a"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let (reader, mut number) = (file::open(&object), 0);
            while !over.load(Ordering::Acquire) {
                let mut seen = [0; 8];
                let read = reader.read_exact_at(&mut seen, AT as u64);
                read.unwrap_or_else(|error| panic!("read {number}: {error}"));
                assert_eq!(seen, [seen[0]; 8]);
                number += 1;
            }
            number
        });
        for round in 0..150_u8 {
            if reads.is_finished() {
                break;
            }
            let writer = file::open(&object);
            writer
                .write_all_at(&vec![round; AT + 30_000], 0)
                .expect("written");
            other.read_exact_at(&mut [0; 8], 0).expect("read");
            let mut seen = [0; 8];
            writer.read_exact_at(&mut seen, AT as u64).expect("read");
            assert_eq!(seen, [round; 8]);
            file::close(writer).expect("closed");
        }
        over.store(true, Ordering::Release);
        let number = reads.join().expect("the reader");
        assert!(number > 150, "{number} reads");
    });
}
