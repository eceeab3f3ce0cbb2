//! Reads through the kernel's page cache: what costs no request, and that no page is ever old, also of files that were closed
//! meanwhile.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use slabfs_tests::tool::{create, slabfs, stats};
use slabfs_tests::{Cluster, Random, needs_mount, soak};

/// Reads that were requests to a mount.
fn reads(mount: &Path) -> u64 {
    let stats = stats(mount);
    let reads = stats.pointer("/read/transfers");
    reads
        .and_then(serde_json::Value::as_u64)
        .unwrap_or_else(|| panic!("no count of reads in {stats}"))
}

fn rights_asked(mount: &Path) -> u64 {
    stats(mount)["rights_asked"].as_u64().expect("a counter")
}

fn open_to_read(path: &Path) -> File {
    File::open(path).unwrap_or_else(|error| panic!("open {}: {error}", path.display()))
}

/// Reads a file in pieces of 4 KiB.
fn read_small(path: &Path) -> Vec<u8> {
    let file = open_to_read(path);
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match file.read_at(&mut piece, all.len() as u64).expect("read") {
            0 => return all,
            read => all.extend_from_slice(&piece[..read]),
        }
    }
}

#[test]
fn what_was_read_before_is_read_without_a_request() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 1);
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(cluster.at(0, "f"), &bytes).expect("written");
    create(&cluster.at(0, "a"), "100,3000", "u1", &[]);
    fs::write(cluster.at(0, "a"), &bytes).expect("written");
    let mnt = cluster.mnt(0);
    for name in ["f", "a"] {
        assert_eq!(read_small(&mnt.join(name)), bytes);
    }
    let before = reads(&mnt);
    for _ in 0..5 {
        for name in ["f", "a"] {
            assert!(read_small(&mnt.join(name)) == bytes);
        }
    }
    assert_eq!(reads(&mnt), before, "alone");
    cluster.add_mount();
    let other = cluster.mnt(1);
    for mnt in [&mnt, &other] {
        assert!(read_small(&mnt.join("f")) == bytes);
        let (before, asked) = (reads(mnt), rights_asked(mnt));
        let open = open_to_read(&mnt.join("f"));
        for _ in 0..5 {
            assert!(read_small(&mnt.join("f")) == bytes);
        }
        assert_eq!(reads(mnt), before, "with another mount");
        assert!(rights_asked(mnt) - asked <= 1, "one right for all");
        drop(open);
    }
}

#[test]
fn options_choose_the_files() {
    needs_mount!();
    let bytes = vec![7; 100_000];
    for (which, requests) in [("never", true), ("always", false)] {
        let cluster = Cluster::with(1, 1, &["--pages", which]);
        fs::write(cluster.at(0, "f"), &bytes).expect("written");
        read_small(&cluster.at(0, "f"));
        let before = reads(&cluster.mnt(0));
        read_small(&cluster.at(0, "f"));
        assert_eq!(reads(&cluster.mnt(0)) > before, requests, "{which}");
    }
    let cluster = Cluster::start(1, 1);
    fs::write(cluster.at(0, "f"), &bytes).expect("written");
    let direct = || {
        let mut open = OpenOptions::new();
        open.read(true).custom_flags(nix::libc::O_DIRECT);
        open.open(cluster.at(0, "f")).expect("opened")
    };
    read_small(&cluster.at(0, "f"));
    let before = reads(&cluster.mnt(0));
    let mut piece = [0; 4096];
    direct().read_at(&mut piece, 0).expect("read");
    assert_eq!(reads(&cluster.mnt(0)), before + 1, "O_DIRECT");
}

/// How an object is changed, on which mount.
type Change<'a> = (&'a str, Box<dyn Fn(&Path, &mut Vec<u8>) + 'a>);

/// Between two openings of a file for reading its bytes are changed in every way, on the same mount and on another one.
#[test]
fn pages_that_outlive_a_close_are_not_old() {
    needs_mount!();
    for mounts in [1, 2] {
        let cluster = Cluster::start(2, mounts);
        for form in ["bytes", "aligned", "canonical"] {
            let name = form;
            let mut wanted: Vec<u8> = (0..64_000_u32).map(|at| (at % 253) as u8).collect();
            if form == "bytes" {
                fs::write(cluster.at(0, name), &wanted).expect("written");
            } else {
                create(&cluster.at(0, name), "250,256", "u1", &["--layout", form]);
                fs::write(cluster.at(0, name), &wanted).expect("written");
            }
            let writable = |path: &Path| OpenOptions::new().write(true).open(path).expect("opened");
            let mut changes: Vec<Change<'_>> = vec![
                (
                    "written",
                    Box::new(|path, bytes| {
                        let file = writable(path);
                        file.write_all_at(&[1; 5000], 3000).expect("written");
                        bytes[3000..8000].fill(1);
                    }),
                ),
                (
                    "written one byte",
                    Box::new(|path, bytes| {
                        let file = writable(path);
                        file.write_all_at(&[200], 63_999).expect("written");
                        bytes[63_999] = 200;
                    }),
                ),
                (
                    "copied over",
                    Box::new(|path, bytes| {
                        let from = path.with_file_name("from");
                        fs::write(&from, [3; 4096]).expect("written");
                        let (from, to) = (open_to_read(&from), writable(path));
                        let mut at = 100;
                        let copied =
                            nix::fcntl::copy_file_range(&from, None, &to, Some(&mut at), 4096);
                        assert_eq!(copied, Ok(4096));
                        bytes[100..4196].fill(3);
                    }),
                ),
            ];
            if form == "bytes" {
                changes.push((
                    "cut and extended",
                    Box::new(|path, bytes| {
                        let file = writable(path);
                        file.set_len(10_000).expect("cut");
                        file.set_len(64_000).expect("extended");
                        bytes[10_000..].fill(0);
                    }),
                ));
            } else {
                changes.push((
                    "written through a selection",
                    Box::new(|path, bytes| {
                        let row = format!("{}@[7,:]", path.display());
                        fs::write(row, [9; 256]).expect("written");
                        bytes[7 * 256..8 * 256].fill(9);
                    }),
                ));
                changes.push((
                    "emptied",
                    Box::new(|path, bytes| {
                        writable(path).set_len(0).expect("emptied");
                        bytes.fill(0);
                    }),
                ));
            }
            for (how, change) in &changes {
                for by in 0..mounts {
                    for reader in 0..mounts {
                        // Whether the file is closed meanwhile, or a descriptor stays open.
                        for stays in [false, true] {
                            let path = cluster.at(reader, name);
                            assert!(read_small(&path) == wanted);
                            let open = stays.then(|| open_to_read(&path));
                            if let Some(open) = &open {
                                open.read_at(&mut [0; 100], 0).expect("read");
                            }
                            change(&cluster.at(by, name), &mut wanted);
                            let seen = read_small(&path);
                            let at = (0..wanted.len()).find(|at| seen.get(*at) != wanted.get(*at));
                            assert_eq!(
                                at, None,
                                "{form} {how} on mount {by}, read on {reader}, {stays}"
                            );
                            if let Some(open) = open {
                                let mut all = vec![0; wanted.len()];
                                open.read_exact_at(&mut all, 0).expect("read");
                                assert!(all == wanted, "{form} {how} on {by}, open on {reader}");
                            }
                            // So that the next change is one.
                            let other = vec![77; wanted.len()];
                            writable(&path).write_all_at(&other, 0).expect("written");
                            wanted = other;
                        }
                    }
                }
            }
        }
    }
}

/// New dims give each byte of the file another meaning.
#[test]
fn pages_of_an_array_with_new_dims_are_not_old() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let path = cluster.at(0, "a");
    create(&path, "100,100", "u1", &["--max-dims", "100,200"]);
    let bytes: Vec<u8> = (0..10_000_u32).map(|at| (at % 251) as u8 + 1).collect();
    fs::write(&path, &bytes).expect("written");
    for (by, columns) in [(0, 120), (1, 150)] {
        assert!(read_small(&path).len() >= bytes.len());
        let open = open_to_read(&path);
        let new = format!("100,{columns}");
        slabfs([
            "set",
            "--dims",
            &new,
            cluster.at(by, "a").to_str().expect("text"),
        ])
        .ok();
        let seen = read_small(&path);
        assert_eq!(seen.len(), 100 * columns);
        assert_eq!(seen[columns..columns + 100], bytes[100..200]);
        let mut second = vec![0; 100];
        open.read_exact_at(&mut second, columns as u64)
            .expect("read");
        assert_eq!(second, bytes[100..200]);
    }
}

/// Readers with pages on two mounts, a writer on either: a read returns no number older than one that was written
/// completely before the read began, whether the file was open all the time or not, and whatever pages the kernel drops.
#[test]
fn reads_through_pages_are_never_old() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    let path = |mount| cluster.at(mount, "numbers");
    const BYTES: u64 = 256 << 10;
    fs::write(path(0), vec![0; BYTES as usize]).expect("written");
    let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let time = soak::time().unwrap_or(Duration::from_secs(4));
    std::thread::scope(|scope| {
        let (written, over, path) = (&written, &over, &path);
        // All words of the file are written with the same number, so each read has a lower bound.
        scope.spawn(move || {
            let until = Instant::now() + time;
            let mut number = 0_u64;
            while Instant::now() < until {
                let writer = OpenOptions::new()
                    .write(true)
                    .open(path((number / 10 % 2) as usize))
                    .expect("opened");
                for _ in 0..10 {
                    number += 1;
                    let bytes: Vec<u8> = number.to_le_bytes().repeat(BYTES as usize / 8);
                    writer.write_all_at(&bytes, 0).expect("written");
                    written.store(number, Ordering::SeqCst);
                }
            }
            over.store(true, Ordering::SeqCst);
        });
        for reader in 0..4 {
            scope.spawn(move || {
                let mut random = Random::new(reader);
                let mut open: Option<File> = None;
                let mut reads = 0;
                while !over.load(Ordering::SeqCst) {
                    let file = match open.take() {
                        Some(file) => file,
                        None => open_to_read(&path(reader as usize % 2)),
                    };
                    for _ in 0..random.range(1, 20) {
                        let at = random.range(0, BYTES / 8 - 512) * 8;
                        let mut words = [0; 4096];
                        let least = written.load(Ordering::SeqCst);
                        file.read_exact_at(&mut words, at).expect("read");
                        for word in words.chunks_exact(8) {
                            let number = u64::from_le_bytes(word.try_into().expect("8 bytes"));
                            assert!(number >= least, "{number} after {least}, at {at}");
                        }
                        reads += 1;
                    }
                    match random.range(0, 3) {
                        0 => drop(file),
                        1 => {
                            let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
                            posix_fadvise(&file, 0, 0, advice).expect("advised");
                            open = Some(file);
                        }
                        _ => open = Some(file),
                    }
                }
                assert!(reads > 0);
            });
        }
    });
    assert!(written.load(Ordering::SeqCst) > 0);
}
