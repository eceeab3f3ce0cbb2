//! `kill -9` of any process at any moment loses nothing that `fsync` acknowledged, and an interrupted operation
//! happened completely, or not at all where that was promised.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use slabfs_tests::array::same;
use slabfs_tests::file::named;
use slabfs_tests::tool::create;
use slabfs_tests::{Cluster, Random, Up, file, needs_mount, poll};

/// Acknowledged steps of a writer.
#[derive(Debug, Clone)]
enum Stored {
    /// A new file with these bytes, by `fsync` of file and directory.
    File(String, u8, usize),
    /// A record of the log.
    Record(u64),
    /// A row of the array.
    Row(u64, u8),
    /// A rename, by `fsync` of the directory.
    Renamed(String, String),
    /// A removed name, by `fsync` of the directory.
    Gone(String),
}

const RECORD: usize = 700;

/// Writes, syncs and records until something fails or it is stopped.
fn write(
    dir: &Path,
    seed: u64,
    acknowledged: &Mutex<Vec<Stored>>,
    count: &AtomicU64,
    end: &AtomicBool,
) {
    let mut random = Random::new(seed);
    let acknowledge = |stored: Stored| {
        acknowledged.lock().expect("the list").push(stored);
        count.fetch_add(1, Ordering::SeqCst);
    };
    for i in 0_u64.. {
        if end.load(Ordering::SeqCst) {
            return;
        }
        let step = || -> std::io::Result<Stored> {
            let name = format!("file{i}");
            Ok(match i % 5 {
                0 | 1 => {
                    let (byte, len) = (
                        random.range(1, 256) as u8,
                        random.range(0, 300_000) as usize,
                    );
                    let file = std::fs::File::create(dir.join(&name))?;
                    file.write_all_at(&vec![byte; len], 0)?;
                    file.sync_all()?;
                    file::sync_dir(dir)?;
                    Stored::File(name, byte, len)
                }
                2 => {
                    let log = std::fs::OpenOptions::new()
                        .write(true)
                        .open(dir.join("log"))?;
                    log.write_all_at(&[(i % 250) as u8 + 1; RECORD], i * RECORD as u64)?;
                    log.sync_data()?;
                    Stored::Record(i)
                }
                3 => {
                    let (row, byte) = (random.range(0, 50), random.range(1, 256) as u8);
                    let path = named(&dir.join("array"), &format!("@[{row}]"));
                    let part = std::fs::OpenOptions::new().write(true).open(path)?;
                    part.write_all_at(&[byte; 4000], 0)?;
                    part.sync_all()?;
                    Stored::Row(row, byte)
                }
                _ => {
                    let old = format!("file{}", i - 4);
                    if i % 2 == 0 {
                        let new = format!("moved{i}");
                        std::fs::rename(dir.join(&old), dir.join(&new))?;
                        file::sync_dir(dir)?;
                        Stored::Renamed(old, new)
                    } else {
                        std::fs::remove_file(dir.join(&old))?;
                        file::sync_dir(dir)?;
                        Stored::Gone(old)
                    }
                }
            })
        };
        let mut step = step;
        match step() {
            Ok(stored) => acknowledge(stored),
            Err(error) => {
                // Expected where the mount itself is killed; printed where the test fails.
                println!("the writer ends at step {i}: {error}");
                return;
            }
        }
    }
}

/// Checks everything that was acknowledged. `last` steps may have happened without an acknowledgement.
fn check(dir: &Path, acknowledged: &[Stored]) {
    let mut files = std::collections::HashMap::new();
    let (mut rows, mut log) = (vec![0; 50], Vec::new());
    for stored in acknowledged {
        match stored.clone() {
            Stored::File(name, byte, len) => drop(files.insert(name, (byte, len))),
            Stored::Renamed(old, new) => {
                let content = files.remove(&old).expect("known");
                files.insert(new, content);
            }
            Stored::Gone(name) => drop(files.remove(&name)),
            Stored::Record(i) => log.push(i),
            Stored::Row(row, byte) => rows[row as usize] = byte,
        }
    }
    let mut missing: Vec<&String> = Vec::new();
    for (name, (byte, len)) in &files {
        match std::fs::read(dir.join(name)) {
            Ok(found) => assert!(
                found.len() == *len && found.iter().all(|b| b == byte),
                "{name}: {} bytes for {len}",
                found.len()
            ),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => missing.push(name),
            Err(error) => panic!("{name}: {error}"),
        }
    }
    // One rename or removal may have happened without an acknowledgement.
    assert!(missing.len() <= 1, "gone: {missing:?}");
    let bytes = file::read(&dir.join("log"));
    for i in log {
        let at = i as usize * RECORD;
        same(
            &format!("record {i}"),
            bytes.get(at..at + RECORD).unwrap_or_default(),
            &[(i % 250) as u8 + 1; RECORD],
        );
    }
    let array = file::read(&dir.join("array"));
    let wrong: Vec<usize> = (0..50)
        .filter(|&row| array[row * 4000..][..4000].iter().any(|&b| b != rows[row]))
        .collect();
    // As above: one row may have a later value than the acknowledged one, in part or in full.
    assert!(wrong.len() <= 1, "rows {wrong:?} of {rows:?}");
}

fn prepare(dir: &Path) {
    std::fs::create_dir(dir).expect("made");
    file::write(&dir.join("log"), "");
    create(&dir.join("array"), "50,1000", "f4", &[]);
    for name in ["log", "array"] {
        file::open(&dir.join(name)).sync_all().expect("synced");
    }
    file::sync_dir(dir).expect("synced");
    file::sync_dir(dir.parent().expect("the mount")).expect("synced");
}

#[test]
fn kill_of_everything_at_random_moments() {
    needs_mount!();
    let mut up = Up::with(&["--servers", "2"]);
    let mut random = Random::new(61);
    for round in 0..5 {
        let dir = up.at(format!("r{round}"));
        prepare(&dir);
        let (acknowledged, count, end) = (
            Mutex::new(Vec::new()),
            AtomicU64::new(0),
            AtomicBool::new(false),
        );
        let until = random.range(3, 40);
        std::thread::scope(|scope| {
            scope.spawn(|| write(&dir, round, &acknowledged, &count, &end));
            poll::until_true("some acknowledged steps", || {
                count.load(Ordering::SeqCst) >= until
            });
            // At a random moment inside the next step.
            std::thread::sleep(std::time::Duration::from_micros(random.range(0, 8000)));
            up.kill9();
        });
        up.start_again();
        check(&dir, &acknowledged.into_inner().expect("the list"));
    }
    // The files of earlier rounds survive every kill.
    assert_eq!(
        (0..5)
            .filter(|round| up.at(format!("r{round}/array")).exists())
            .count(),
        5
    );
    assert!(
        up.log().contains("not closed cleanly"),
        "the start logs what it found:\n{}",
        up.log()
    );
    assert!(
        up.log().contains("records replayed"),
        "the start logs what it recovered:\n{}",
        up.log()
    );
}

/// Servers are killed under a writer and restarted: it waits, and nothing fails.
#[test]
fn kill_of_servers_under_a_writer_that_continues() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 1);
    let dir = cluster.at(0, "w");
    prepare(&dir);
    let (acknowledged, count, end) = (
        Mutex::new(Vec::new()),
        AtomicU64::new(0),
        AtomicBool::new(false),
    );
    let mut random = Random::new(62);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&dir, 9, &acknowledged, &count, &end));
        for round in 0..6 {
            let seen = count.load(Ordering::SeqCst);
            let more = random.range(1, 15);
            poll::until_true("the writer to continue", || {
                count.load(Ordering::SeqCst) >= seen + more || writer.is_finished()
            });
            assert!(
                !writer.is_finished(),
                "the writer failed after {} steps, round {round}",
                count.load(Ordering::SeqCst)
            );
            match round % 3 {
                0 => {
                    cluster.kill_md();
                    cluster.start_md();
                }
                server => {
                    cluster.kill_server(server - 1);
                    cluster.start_server(server - 1);
                }
            }
        }
        let seen = count.load(Ordering::SeqCst);
        poll::until_true("the writer to continue", || {
            count.load(Ordering::SeqCst) >= seen + 10 || writer.is_finished()
        });
        assert!(!writer.is_finished(), "the writer failed");
        end.store(true, Ordering::SeqCst);
    });
    let acknowledged = acknowledged.into_inner().expect("the list");
    check(&dir, &acknowledged);
    cluster.kill_md();
    cluster.start_md();
    cluster.kill_mount(0);
    cluster.start_mount(0);
    check(&dir, &acknowledged);
}

#[test]
fn kill_of_a_mount() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 2);
    for round in 0..3 {
        let dir = cluster.at(0, format!("r{round}"));
        prepare(&dir);
        let (acknowledged, count, end) = (
            Mutex::new(Vec::new()),
            AtomicU64::new(0),
            AtomicBool::new(false),
        );
        std::thread::scope(|scope| {
            scope.spawn(|| write(&dir, 20 + round, &acknowledged, &count, &end));
            poll::until_true("some acknowledged steps", || {
                count.load(Ordering::SeqCst) >= 7 + round
            });
            cluster.kill_mount(0);
        });
        let acknowledged = acknowledged.into_inner().expect("the list");
        // The other mount has the data, and so has the mount that replaces it.
        check(&cluster.at(1, format!("r{round}")), &acknowledged);
        cluster.start_mount(0);
        check(&dir, &acknowledged);
    }
}

/// A clean end loses nothing, also without `fsync`.
#[test]
fn sigterm_flushes_everything() {
    needs_mount!();
    let mut up = Up::with(&["--servers", "2"]);
    let bytes = Random::new(63).bytes(5_000_000);
    let object = up.at("array");
    create(&object, "100,1000", "f4", &[]);
    file::write(&up.at("large"), &bytes);
    for i in 0..200 {
        file::write(&up.at(format!("small{i}")), &bytes[i..i + 100]);
    }
    // Still open, never synced, never closed.
    let open = file::open(&object);
    open.write_all_at(&bytes[..9999], 5).expect("written");
    drop(open);
    std::fs::rename(up.at("small0"), up.at("renamed")).expect("renamed");
    up.restart();
    assert!(file::read(&up.at("large")) == bytes);
    assert_eq!(file::read(&object)[5..10_004], bytes[..9999]);
    for i in 1..200 {
        assert_eq!(file::read(&up.at(format!("small{i}"))), &bytes[i..i + 100]);
    }
    assert_eq!(file::read(&up.at("renamed")), &bytes[..100]);
    assert!(up.log().contains("closed cleanly"), "{}", up.log());
}

/// With files still open: the mount is detached, and the written data is stored.
#[test]
fn sigterm_with_open_files() {
    needs_mount!();
    let mut up = Up::start();
    let open = file::open_new(&up.at("f"));
    open.write_all_at(&[7; 300_000], 0).expect("written");
    up.stop();
    assert!(
        open.write_at(b"x", 0).is_err() || open.sync_all().is_err(),
        "the mount is gone"
    );
    drop(open);
    up.start_again();
    assert_eq!(file::read(&up.at("f")), [7; 300_000]);
}
