//! Files that grow by large writes while other handles of them are closed: no growth is lost.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use slabfs_tests::tool::create;
use slabfs_tests::{Up, file, needs_mount};

const BLOCK: usize = 256 << 10;

/// Closes a second descriptor of `handle` repeatedly until stopped: each close is a flush.
fn keep_closing(handle: &File, end: &AtomicBool) {
    while !end.load(Ordering::SeqCst) {
        file::close(handle.try_clone().expect("a descriptor")).expect("closed");
    }
}

#[test]
fn while_another_handle_is_closed() {
    needs_mount!();
    let up = Up::start();
    for round in 0..8 {
        let path = up.at(format!("f{round}"));
        let (writer, other) = (file::open_new(&path), file::open(&path));
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| keep_closing(&other, &end));
            for i in 0..16_u8 {
                let at = u64::from(i) * BLOCK as u64;
                writer
                    .write_all_at(&vec![i + 1; BLOCK], at)
                    .expect("written");
                let size = writer.metadata().expect("metadata").len();
                if size != at + BLOCK as u64 {
                    end.store(true, Ordering::SeqCst);
                    panic!("round {round}: {size} bytes after block {i}");
                }
            }
            end.store(true, Ordering::SeqCst);
        });
        file::close(writer).expect("closed");
        check(&path, 16);
    }
}

#[test]
fn two_writers_append_while_another_handle_is_closed() {
    needs_mount!();
    let mut up = Up::start();
    for round in 0..8 {
        let path = up.at(format!("f{round}"));
        let other = file::open_new(&path);
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let closer = scope.spawn(|| keep_closing(&other, &end));
            let path = &path;
            let append = move |from: u8| {
                let mut writer = OpenOptions::new().append(true).open(path).expect("opened");
                for i in from..from + 8 {
                    writer.write_all(&vec![i + 1; BLOCK]).expect("appended");
                }
                file::close(writer).expect("closed");
            };
            let writers = [
                scope.spawn(move || append(0)),
                scope.spawn(move || append(8)),
            ];
            let ended = writers.map(|writer| writer.join());
            end.store(true, Ordering::SeqCst);
            closer.join().expect("the closer");
            for writer in ended {
                writer.expect("a writer");
            }
        });
        check(&path, 16);
    }
    up.restart();
    (0..8).for_each(|round| check(&up.at(format!("f{round}")), 16));
}

/// Each of the blocks 1 to `count` is there once, in any order.
fn check(path: &Path, count: usize) {
    let bytes = file::read(path);
    assert_eq!(bytes.len(), count * BLOCK, "{}", path.display());
    let mut seen: Vec<u8> = bytes
        .chunks(BLOCK)
        .map(|block| {
            assert!(
                block.iter().all(|&byte| byte == block[0]),
                "{}: a torn block",
                path.display()
            );
            block[0]
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        (1..=count as u8).collect::<Vec<u8>>(),
        "{}",
        path.display()
    );
}

/// Rows that grow an array, next to handles that are opened and closed.
#[test]
fn rows_of_an_unlimited_axis() {
    needs_mount!();
    for layout in ["aligned", "grid:4,65536", "canonical"] {
        let mut up = Up::start();
        let object = up.at("a");
        create(
            &object,
            "0,262144",
            "u1",
            &["--max-dims", "unlimited,262144", "--layout", layout],
        );
        let (writer, other) = (file::open(&object), file::open(&object));
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| keep_closing(&other, &end));
            for i in 0..16_u8 {
                let written = writer.write_all_at(&vec![i + 1; BLOCK], u64::from(i) * BLOCK as u64);
                if written.is_err() {
                    end.store(true, Ordering::SeqCst);
                }
                written.expect("a row");
            }
            end.store(true, Ordering::SeqCst);
        });
        file::close(writer).expect("closed");
        check(&object, 16);
        up.restart();
        check(&object, 16);
    }
}
