//! Many concurrent writers, and writers racing with changes of size: bugs of an earlier design.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use slabfs_tests::array::same;
use slabfs_tests::file::named;
use slabfs_tests::tool::{create, program};
use slabfs_tests::{Random, Up, file, inputs, needs_mount};

/// Shrinking races a writer through a selection: neither dims nor old bytes may reappear.
#[test]
fn truncating_under_a_writer_through_a_selection() {
    needs_mount!();
    for layout in ["aligned", "grid:4,64"] {
        let mut up = Up::start();
        let object = up.at("a");
        create(
            &object,
            "64,256",
            "u1",
            &["--max-dims", "unlimited,256", "--layout", layout],
        );
        for round in 1..=25_u8 {
            file::write_at(&object, 0, &vec![round; 64 * 256]);
            let handle = file::open(&named(&object, "@[32:64]"));
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for i in 0..200 {
                        // Refused once the rows are gone.
                        if handle.write_at(&[200; 100], (i * 37) % 8000).is_err() {
                            break;
                        }
                    }
                    done.store(true, Ordering::SeqCst);
                });
                file::open(&object).set_len(16 * 256).expect("shrunk");
            });
            assert!(done.load(Ordering::SeqCst));
            // Closing flushes the handle's writes, for which there is no place any more.
            let _ = file::close(handle);
            assert_eq!(
                object.metadata().expect("metadata").len(),
                16 * 256,
                "{layout}, round {round}: the size came back"
            );
            assert_eq!(
                file::xattr(&object, "user.slabfs.dims"),
                "16,256",
                "{layout}, round {round}"
            );
            same("what stayed", &file::read(&object), &vec![round; 16 * 256]);
            file::open(&object).set_len(64 * 256).expect("grown");
            let bytes = file::read(&object);
            assert!(
                bytes[16 * 256..].iter().all(|&b| b == 0),
                "{layout}, round {round}: old bytes came back"
            );
            if round % 10 == 0 {
                up.restart();
                same("after a restart", &file::read(&object), &bytes);
            }
        }
    }
}

#[test]
fn truncating_a_byte_object_under_its_writer() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("f");
    for round in 0..30 {
        file::write(&path, vec![7; 100_000]);
        let writer = file::open(&path);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..50).for_each(|i| writer.write_all_at(&[9; 1000], i * 2000).expect("written"))
            });
            scope.spawn(|| file::open(&path).set_len(0).expect("cut"));
        });
        file::close(writer).expect("closed");
        // Some of the writes came after the cut, some before: no byte of the old content may be there.
        let bytes = file::read(&path);
        assert!(
            bytes.iter().all(|&b| b == 9 || b == 0),
            "round {round}: old bytes came back"
        );
        assert!(
            bytes.is_empty() || bytes.len() % 2000 == 1000,
            "round {round}: {} bytes",
            bytes.len()
        );
        for (i, part) in bytes.chunks(1000).enumerate() {
            assert!(
                part.iter().all(|&b| b == part[0]),
                "round {round}: a torn write in part {i}"
            );
        }
    }
}

#[test]
fn four_processes_append_to_one_file() {
    needs_mount!();
    let mut up = Up::start();
    let path = up.at("log");
    file::write(&path, "");
    let script = inputs::script("append.py");
    std::thread::scope(|scope| {
        for who in 0..4 {
            let (script, path) = (&script, &path);
            scope.spawn(move || {
                program(
                    inputs::PYTHON,
                    [
                        script.as_os_str(),
                        path.as_os_str(),
                        who.to_string().as_ref(),
                        "400".as_ref(),
                    ],
                )
                .ok()
            });
        }
    });
    up.restart();
    let text = String::from_utf8(file::read(&path)).expect("text");
    let mut next = [0; 4];
    for line in text.lines() {
        let mut fields = line.split(' ');
        let mut number = || fields.next().and_then(|field| field.parse::<usize>().ok());
        let (Some(who), Some(i), Some(len)) = (number(), number(), number()) else {
            panic!("a torn line: {line:?}")
        };
        assert_eq!(i, next[who], "lines of {who} in order");
        assert_eq!(
            fields.next().map(str::len),
            Some(len),
            "a torn line: {line:?}"
        );
        next[who] += 1;
    }
    assert_eq!(next, [400; 4], "nothing is lost");
}

/// `fsync` returns when everything written before it is stored, also with concurrent syncs.
#[test]
fn fsync_does_not_return_early() {
    needs_mount!();
    let mut up = Up::start();
    let path = up.at("f");
    file::write(&path, "");
    let synced: [AtomicU64; 3] = Default::default();
    std::thread::scope(|scope| {
        for who in 0..3_u64 {
            let (path, synced) = (&path, &synced);
            scope.spawn(move || {
                let handle = file::open(path);
                for i in 1_u64.. {
                    let record = [i; 500].map(u64::to_le_bytes).concat();
                    // A server that is killed ends the loop.
                    let stored = handle
                        .write_all_at(&record, who * 1_000_000 + (i % 100) * 4000)
                        .and_then(|()| handle.sync_all());
                    if stored.is_err() {
                        break;
                    }
                    synced[who as usize].store(i, Ordering::SeqCst);
                }
            });
        }
        slabfs_tests::poll::until_true("some syncs", || {
            synced.iter().all(|n| n.load(Ordering::SeqCst) > 25)
        });
        up.kill9();
    });
    up.start_again();
    let bytes = file::read(&path);
    for (who, last) in synced.iter().enumerate() {
        let last = last.load(Ordering::SeqCst);
        for i in last.saturating_sub(99).max(1)..=last {
            let at = who * 1_000_000 + (i % 100) as usize * 4000;
            let found = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a number"));
            if i + 99 == last && found != i {
                // The record after the last acknowledged one was being written to this place.
                continue;
            }
            assert_eq!(found, i, "writer {who}: of {last}");
            assert!(
                bytes[at..at + 4000]
                    .chunks(8)
                    .all(|part| part == found.to_le_bytes()),
                "writer {who}: record {i} is torn"
            );
        }
    }
}

/// Threads write disjoint elements of one array through every interface at once.
#[test]
fn disjoint_writers_of_one_array() {
    needs_mount!();
    for layout in ["aligned", "grid:10,10", "canonical"] {
        let mut up = Up::with(&["--servers", "3"]);
        let object = up.at("a");
        create(&object, "60,120", "u2", &["--layout", layout]);
        let wanted = Random::new(41).bytes(60 * 120 * 2);
        std::thread::scope(|scope| {
            for who in 0..6_usize {
                let (object, wanted) = (&object, &wanted);
                scope.spawn(move || {
                    // Columns 20·who to 20·who + 20, in neighbouring pages and chunks of the others.
                    let line = |row: usize| &wanted[(row * 120 + who * 20) * 2..][..40];
                    if who % 2 == 0 {
                        let handle = file::open(object);
                        for row in (0..60).rev() {
                            handle
                                .write_all_at(line(row), ((row * 120 + who * 20) * 2) as u64)
                                .expect("a row");
                        }
                        file::close(handle).expect("closed");
                    } else {
                        let packed: Vec<u8> = (0..60).flat_map(line).copied().collect();
                        let (from, to) = (who * 20, who * 20 + 20);
                        file::write(&named(object, &format!("@[:,{from}:{to}]")), packed);
                    }
                });
            }
        });
        same(layout, &file::read(&object), &wanted);
        up.restart();
        same(
            &format!("{layout} after a restart"),
            &file::read(&object),
            &wanted,
        );
    }
}

/// Readers always see complete writes of small records, old or new.
#[test]
fn readers_next_to_writers() {
    needs_mount!();
    let up = Up::start();
    let object = up.at("a");
    create(&object, "32,1024", "u1", &[]);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..300_u32 {
                let row = i % 32;
                if i % 3 == 0 {
                    file::write(&named(&object, &format!("@[{row}]")), vec![i as u8; 1024]);
                } else {
                    file::write_at(&object, u64::from(row) * 1024, &vec![i as u8; 1024]);
                }
            }
            end.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            let handle = file::open(&object);
            while !end.load(Ordering::SeqCst) {
                for row in 0..32 {
                    let mut seen = [0; 1024];
                    handle.read_exact_at(&mut seen, row * 1024).expect("read");
                    assert!(seen.iter().all(|&b| b == seen[0]), "a torn row");
                }
            }
        });
    });
}

#[test]
fn creating_and_removing_the_same_names() {
    needs_mount!();
    let up = Up::start();
    let made = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for who in 0..4_u64 {
            let (up, made) = (&up, &made);
            scope.spawn(move || {
                let mut random = Random::new(50 + who);
                for _ in 0..250 {
                    let path = up.at(format!("n{}", random.range(0, 6)));
                    match random.range(0, 4) {
                        0 => {
                            if let Ok(mut file) =
                                OpenOptions::new().write(true).create_new(true).open(&path)
                            {
                                made.fetch_add(1, Ordering::SeqCst);
                                file.write_all(b"complete").expect("written");
                            }
                        }
                        1 => drop(std::fs::remove_file(&path)),
                        2 => drop(std::fs::rename(
                            &path,
                            up.at(format!("n{}", random.range(0, 6))),
                        )),
                        _ => {
                            if let Ok(seen) = std::fs::read(&path) {
                                assert!(seen.is_empty() || seen == b"complete", "{seen:?}");
                            }
                        }
                    }
                }
            });
        }
    });
    assert!(made.load(Ordering::SeqCst) > 0);
    for entry in std::fs::read_dir(up.mnt()).expect("listed") {
        assert_eq!(file::read(&entry.expect("an entry").path()), b"complete");
    }
}
