//! Strict coherence: a read on any mount returns the last completed write on any mount, without `close` or
//! `fsync`; names are seen at once; and the cost in messages.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use slabfs_tests::file::{self, errno, named};
use slabfs_tests::held::Held;
use slabfs_tests::tool::{create, stats};
use slabfs_tests::{Cluster, Random, needs_mount, poll, soak};

/// A counter of a mount.
fn count(mount: &Path, name: &str) -> u64 {
    stats(mount)[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no counter {name}"))
}

#[track_caller]
fn read_at(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) => panic!("read: {error}"),
        }
    }
    bytes.truncate(done);
    bytes
}

/// The same file, created on the first of the mounts and opened on all.
fn opened(cluster: &Cluster, mounts: usize, name: &str) -> Vec<File> {
    if !cluster.at(0, name).exists() {
        drop(file::open_new(&cluster.at(0, name)));
    }
    (0..mounts)
        .map(|mount| file::open(&cluster.at(mount, name)))
        .collect()
}

#[test]
fn a_read_sees_the_last_write() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    for layout in ["bytes", "aligned", "grid:3,5", "canonical"] {
        let name = &layout[..4];
        if layout != "bytes" {
            create(&cluster.at(0, name), "10,12", "f4", &["--layout", layout]);
        }
        let files = opened(&cluster, 2, name);
        let mut wanted = vec![0; 480];
        if layout == "bytes" {
            files[0].write_all_at(&wanted, 0).expect("written");
        }
        let mut random = Random::new(7);
        for round in 0..60u64 {
            let (writer, reader) = ((round % 2) as usize, 1 - (round % 2) as usize);
            let at = random.range(0, 400) as usize;
            let bytes = vec![round as u8 + 1; 1 + random.range(0, 80) as usize];
            wanted[at..at + bytes.len()].copy_from_slice(&bytes);
            files[writer]
                .write_all_at(&bytes, at as u64)
                .expect("written");
            assert_eq!(
                read_at(&files[reader], 0, 480),
                wanted,
                "{layout}, round {round}"
            );
        }
    }
}

#[test]
fn selections_see_each_other() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    for layout in ["aligned", "grid:4,4"] {
        let name = &layout[..4];
        create(&cluster.at(0, name), "16,16", "u1", &["--layout", layout]);
        let plain = opened(&cluster, 2, name);
        for row in 0..8u8 {
            let (writer, reader) = (usize::from(row % 2), usize::from(1 - row % 2));
            let part = file::open(&named(
                &cluster.at(writer, name),
                &format!("@[{row}:{},::2]", row + 2),
            ));
            part.write_all_at(&[row + 1; 16], 0).expect("written");
            let seen = read_at(&plain[reader], u64::from(row) * 16, 32);
            assert!(
                seen.iter().step_by(2).all(|&byte| byte == row + 1),
                "{layout}, row {row}: {seen:?}"
            );
            plain[reader]
                .write_all_at(&[99], u64::from(row) * 16)
                .expect("written");
            assert_eq!(read_at(&part, 0, 2), [99, row + 1], "{layout}, row {row}");
        }
    }
}

/// Two mounts write repeatedly, each its own elements, single bytes and rows of them between those of the
/// other; sometimes one flushes, closes, or reads all. Each round ends with every byte compared on both mounts.
/// A long run lasts as long as requested.
#[test]
fn neighbours_write_for_a_while() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    let begun = Instant::now();
    let (mut random, mut round) = (Random::new(83), 0);
    let seed = random.number();
    while round < 1 || soak::time().is_some_and(|time| begun.elapsed() < time) {
        round += 1;
        for (layout, width) in [("bytes", 1), ("bytes", 7), ("aligned", 8), ("grid:5,7", 8)] {
            let name = format!("{}{width}-{round}", &layout[..4]);
            if layout != "bytes" {
                create(&cluster.at(0, &name), "40,50", "f8", &["--layout", layout]);
            }
            let mut files = opened(&cluster, 2, &name);
            files[0].write_all_at(&[0; 16_000], 0).expect("written");
            let written: Vec<Vec<u8>> = std::thread::scope(|scope| {
                let writers: Vec<_> = files
                    .iter_mut()
                    .enumerate()
                    .map(|(who, file)| {
                        let path = cluster.at(who, &name);
                        let random = Random::exactly(seed.wrapping_add(2 * round + who as u64));
                        scope.spawn(move || write_own(file, &path, who as u64, width, random))
                    })
                    .collect();
                let joined = writers.into_iter().map(|writer| writer.join());
                joined.map(|bytes| bytes.expect("no panic")).collect()
            });
            let wanted: Vec<u8> = (0..16_000)
                .map(|at: usize| written[(at / width as usize) % 2][at])
                .collect();
            for (mount, file) in files.iter().enumerate() {
                let seen = read_at(file, 0, 20_000);
                let wrong = (0..16_000).find(|&at| seen.get(at) != wanted.get(at));
                assert_eq!(
                    wrong, None,
                    "{layout} {width}, mount {mount}, round {round}"
                );
            }
        }
    }
}

/// Writes elements of `width` bytes whose number is `who` modulo 2; returns their expected values.
fn write_own(file: &mut File, path: &Path, who: u64, width: u64, mut random: Random) -> Vec<u8> {
    let mut bytes = vec![0; 16_000];
    for _ in 0..soak::or(150, 600) {
        let mut element = random.range(0, 16_000 / width / 2 - 1) * 2 + who;
        for _ in 0..random.range(1, 20) {
            let at = (element * width) as usize;
            if at + width as usize > bytes.len() {
                break;
            }
            let value = random.bytes(width as usize);
            file.write_all_at(&value, at as u64).expect("written");
            bytes[at..at + width as usize].copy_from_slice(&value);
            element += 2;
        }
        if random.one_in(50) {
            file.sync_all().expect("synced");
        } else if random.one_in(50) {
            *file = file::open(path);
        } else if random.one_in(50) {
            let seen = read_at(file, 0, 16_000);
            let own = |at: &usize| (at / width as usize) % 2 == who as usize;
            let wrong = (0..16_000).filter(own).find(|&at| seen[at] != bytes[at]);
            assert_eq!(wrong, None, "of writer {who}, {}", path.display());
        }
    }
    bytes
}

/// Two mounts write neighbouring elements, and no mount overwrites the other's.
#[test]
fn neighbours_do_not_disturb_each_other() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    for layout in ["bytes", "aligned", "grid:8,8"] {
        let name = &layout[..4];
        if layout != "bytes" {
            create(&cluster.at(0, name), "64,64", "u1", &["--layout", layout]);
        }
        let files = opened(&cluster, 2, name);
        files[0].write_all_at(&[0; 4096], 0).expect("written");
        std::thread::scope(|scope| {
            for (who, file) in files.iter().enumerate() {
                scope.spawn(move || {
                    for at in (who as u64..1024).step_by(2) {
                        file.write_all_at(&[who as u8 + 1], at).expect("written");
                    }
                });
            }
        });
        for file in &files {
            let seen = read_at(file, 0, 5000);
            let value = |at| if at < 1024 { at % 2 + 1 } else { 0 };
            assert!(
                seen.into_iter().eq((0..4096).map(|at| value(at) as u8)),
                "{layout}"
            );
        }
    }
}

#[test]
fn appends_of_two_mounts_are_not_mixed() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let path = |who: usize| cluster.at(who, "log");
    file::write(&path(0), "");
    const LINES: usize = 150;
    std::thread::scope(|scope| {
        for who in 0..2 {
            let path = path(who);
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).open(path).expect("opened");
                for line in 0..LINES {
                    file.write_all(format!("{who} {line:04}\n").as_bytes())
                        .expect("appended");
                }
            });
        }
    });
    let text = String::from_utf8(file::read(&path(1))).expect("text");
    for who in ["0", "1"] {
        let lines: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix(who)).collect();
        let wanted: Vec<String> = (0..LINES).map(|line| format!(" {line:04}")).collect();
        assert_eq!(lines, wanted, "lines of mount {who}, in their order");
    }
    assert_eq!(text.len(), 2 * LINES * 7);
}

#[test]
fn a_size_is_seen_without_a_flush() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let files = opened(&cluster, 2, "f");
    files[0].write_all_at(b"hello", 0).expect("written");
    let before = count(&cluster.mnt(0), "rights_recalled");
    let size = |who: usize| cluster.at(who, "f").metadata().expect("metadata").len();
    assert_eq!((size(0), size(1)), (5, 5));
    files[0].write_all_at(b"hello", 1000).expect("written");
    assert_eq!(size(1), 1005);
    assert_eq!(files[1].metadata().expect("metadata").len(), 1005);
    assert!(
        count(&cluster.mnt(0), "dirty_bytes") > 0,
        "nothing was flushed"
    );
    assert_eq!(
        count(&cluster.mnt(0), "rights_recalled"),
        before,
        "no right was given back for it"
    );
    // Truncation and extension by another mount are known at once.
    files[1].set_len(3).expect("truncated");
    assert_eq!((size(0), size(1)), (3, 3));
    assert_eq!(read_at(&files[0], 0, 10), b"hel");
    files[0].set_len(6).expect("made longer");
    assert_eq!(read_at(&files[1], 0, 10), b"hel\0\0\0");
}

#[test]
fn names_are_seen_at_once() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    for i in 0..20 {
        let (one, two) = (i % 2, 1 - i % 2);
        let make = |who: usize, name: &str| {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(cluster.at(who, name))
        };
        assert!(!cluster.at(one, "a").exists() && !cluster.at(two, "a").exists());
        drop(make(one, "a").expect("made"));
        assert_eq!(errno(make(two, "a")), Errno::EEXIST);
        std::fs::rename(cluster.at(two, "a"), cluster.at(two, "b")).expect("renamed");
        assert!(!cluster.at(one, "a").exists() && cluster.at(one, "b").exists());
        std::fs::remove_file(cluster.at(one, "b")).expect("removed");
        assert_eq!(errno(File::open(cluster.at(two, "b"))), Errno::ENOENT);
    }
}

/// A name to which another mount renames something refers to the old or the new object, never to none. An open whose
/// object is replaced after the kernel has looked up the name, twice, is `ESTALE` (docs/decisions/13-rights.md).
#[test]
fn a_name_that_is_replaced_is_always_there() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (name, fresh) = (cluster.at(0, "a"), cluster.at(0, "b"));
    file::write(&name, "one");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let name = cluster.at(1, "a");
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                std::fs::metadata(&name).expect("it is there");
                match File::open(&name) {
                    Ok(_) => looks += 1,
                    Err(error) if error.raw_os_error() == Some(Errno::ESTALE as i32) => {}
                    Err(error) => panic!("it is there: {error}"),
                }
            }
            looks
        });
        for _ in 0..500 {
            file::write(&fresh, "");
            std::fs::rename(&fresh, &name).expect("renamed");
        }
        over.store(true, Ordering::Relaxed);
        assert!(looking.join().expect("no look failed") > 0);
    });
}

/// A mount that is added later: it sees the writes that only the first mount knew of, and names too.
#[test]
fn a_mount_that_is_added_later_sees_all() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 1);
    let first = opened(&cluster, 1, "f").remove(0);
    first.write_all_at(b"unflushed", 0).expect("written");
    assert!(cluster.at(0, "f").exists() && !cluster.at(0, "g").exists());
    cluster.add_mount();
    let second = file::open(&cluster.at(1, "f"));
    assert_eq!(read_at(&second, 0, 100), b"unflushed");
    drop(file::open_new(&cluster.at(1, "g")));
    assert!(cluster.at(0, "g").exists(), "its absence is not cached");
    std::fs::remove_file(cluster.at(1, "g")).expect("removed");
    assert!(!cluster.at(0, "g").exists(), "nor it");
    second.write_all_at(b"U", 0).expect("written");
    assert_eq!(read_at(&first, 0, 100), b"Unflushed");
}

/// An object that only one mount uses costs one request for rights, and no more; two mounts that write
/// different parts stop requesting.
#[test]
fn an_object_without_contention_costs_one_request() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let asked = |who: usize| count(&cluster.mnt(who), "rights_asked");
    let mine = file::open_new(&cluster.at(0, "mine"));
    let before = asked(0);
    for at in 0..200 {
        mine.write_all_at(&[1; 100], at * 100).expect("written");
        read_at(&mine, at * 50, 100);
    }
    assert_eq!(asked(0) - before, 1);
    assert!(count(&cluster.mnt(0), "rights_held") >= 1);

    let files = opened(&cluster, 2, "both");
    files[0].write_all_at(&[0; 20_000], 0).expect("written");
    let work = |step: u64| {
        for (who, file) in files.iter().enumerate() {
            let at = who as u64 * 10_000 + step * 10;
            file.write_all_at(&[who as u8; 10], at).expect("written");
        }
    };
    (0..10).for_each(work);
    let (one, two) = (asked(0), asked(1));
    (10..500).for_each(work);
    let more = asked(0) + asked(1) - one - two;
    assert!(
        more < 40,
        "{more} requests of two that write different parts"
    );
}

#[test]
fn mappings_of_two_mounts_see_each_other() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let files = opened(&cluster, 2, "f");
    files[0].write_all_at(&[0; 20_000], 0).expect("written");
    let mut one = file::map(&files[0]).expect("mapped");
    let mut two = file::map(&files[1]).expect("mapped");
    for round in 1..30u8 {
        let at = usize::from(round) * 500;
        one[at] = round;
        assert_eq!(two[at], round, "round {round}");
        two[at + 1] = round;
        assert_eq!(one[at + 1], round, "round {round}");
        assert_eq!(read_at(&files[0], at as u64, 2), [round, round]);
        files[1]
            .write_all_at(&[round + 100], at as u64 + 2)
            .expect("written");
        assert_eq!((one[at + 2], two[at + 2]), (round + 100, round + 100));
    }
}

/// The kernel holds dirty pages back until the new size is answered, and that may have to wait for a right that
/// another mount gives back when it gets those pages.
#[test]
fn a_mapped_file_is_cut_while_another_mount_reads() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let files = opened(&cluster, 2, "f");
    files[0].write_all_at(&[0; 65_536], 0).expect("written");
    let done = AtomicBool::new(false);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut map = file::map(&files[0]).expect("mapped");
            for at in (0..65_536).step_by(997).cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                map[at] = 1;
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                read_at(&files[1], 5, 100);
            }
        });
        let cut = (0..100).try_for_each(|round| files[0].set_len(65_536 + round % 2));
        done.store(true, Ordering::Relaxed);
        cut.expect("the size was set");
    });
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "they waited for each other"
    );
}

/// A reader's mapping, and a program on another mount that writes.
#[test]
fn a_mapping_that_reads_sees_writes_of_another_mount() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let files = opened(&cluster, 2, "f");
    files[0].write_all_at(&[0; 8192], 0).expect("written");
    let reader = File::open(cluster.at(1, "f")).expect("opened");
    let map = file::map_to_read(&reader).expect("mapped");
    for round in 1..40u8 {
        files[0].write_all_at(&[round], 5000).expect("written");
        assert_eq!(map[5000], round);
    }
}

/// A killed holder: others continue when its session is over.
#[test]
fn a_dead_holder_blocks_others_for_a_limited_time() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 2);
    let files = opened(&cluster, 2, "f");
    files[0].write_all_at(b"first", 0).expect("written");
    files[0].sync_all().expect("synced");
    files[0].write_all_at(b"later", 0).expect("written");
    let mut files = files.into_iter();
    let (dead, alive) = (files.next(), files.next().expect("two"));
    cluster.kill_mount(0);
    drop(dead);
    let begun = Instant::now();
    let seen = read_at(&alive, 0, 5);
    assert!(seen == b"first" || seen == b"later", "{seen:?}");
    alive.write_all_at(b"alive", 0).expect("written");
    assert_eq!(read_at(&alive, 0, 5), b"alive");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

/// When the other mount has gone a mount needs no rights; and it gives up everything when another one is added.
#[test]
fn the_only_mount_requests_no_rights() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 2);
    let files = opened(&cluster, 2, "f");
    files[0].write_all_at(b"shared", 0).expect("written");
    let file = files.into_iter().next().expect("one");
    cluster.stop_mount(1);
    poll::until_true("an epoch alone", || {
        cluster.mount_log(0).contains("alone=true")
    });
    let asked = count(&cluster.mnt(0), "rights_asked");
    file.write_all_at(b"S", 0).expect("written");
    let more = file::open_new(&cluster.at(0, "g"));
    more.write_all_at(b"unflushed", 0).expect("written");
    assert_eq!(count(&cluster.mnt(0), "rights_asked"), asked);
    cluster.start_mount(1);
    assert_eq!(file::read(&cluster.at(1, "f")), b"Shared");
    assert_eq!(file::read(&cluster.at(1, "g")), b"unflushed");
}

/// No grant brings the forms of open files when the other mounts have left: they are fetched.
#[test]
fn a_mount_that_is_alone_again_knows_what_the_others_wrote() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 2);
    for name in ["aligned", "grid:4"] {
        create(&cluster.at(0, &name[..4]), "8", "u1", &["--layout", name]);
        file::write(&cluster.at(0, &name[..4]), [b'a'; 8]);
    }
    for name in ["grows", "shrinks", "log"] {
        file::write(&cluster.at(0, name), "first.");
    }
    let names = ["alig", "grid", "grows", "shrinks"];
    let open: Vec<File> = names
        .iter()
        .map(|name| file::open(&cluster.at(0, name)))
        .collect();
    let mut log = OpenOptions::new()
        .append(true)
        .open(cluster.at(0, "log"))
        .expect("open");
    for file in &open {
        assert!(!read_at(file, 0, 100).is_empty());
    }
    log.write_all(b"second.").expect("written");
    for name in ["alig", "grid"] {
        let other = file::open(&cluster.at(1, name));
        other.write_all_at(&[b'b'; 8], 0).expect("written");
    }
    let other = file::open(&cluster.at(1, "grows"));
    other.write_all_at(b"more", 100_000).expect("written");
    file::open(&cluster.at(1, "shrinks"))
        .set_len(2)
        .expect("truncated");
    let mut other = OpenOptions::new()
        .append(true)
        .open(cluster.at(1, "log"))
        .expect("open");
    other.write_all(b"third.").expect("written");
    drop(other);
    cluster.stop_mount(1);
    poll::until_true("an epoch alone", || stats(&cluster.mnt(0))["alone"] == true);
    log.write_all(b"fourth.").expect("written");
    assert_eq!(
        file::read(&cluster.at(0, "log")),
        b"first.second.third.fourth."
    );
    assert_eq!(read_at(&open[0], 0, 100), [b'b'; 8]);
    assert_eq!(read_at(&open[1], 0, 100), [b'b'; 8]);
    assert_eq!(read_at(&open[2], 100_000, 100), b"more");
    assert_eq!(read_at(&open[3], 0, 100), b"fi");
}

/// A write in place that failed on one of two data servers may be stored on the other: no mount may go on with what it
/// has cached.
#[test]
fn a_write_that_failed_in_part_reads_the_same_on_both_mounts() {
    needs_mount!();
    let cluster = Cluster::with(2, 2, &["--io-timeout", "1s"]);
    let (chunk, chunks) = (64 << 10, 16);
    create(
        &cluster.at(0, "a"),
        &(chunk * chunks).to_string(),
        "u1",
        &["--layout", &format!("grid:{chunk}")],
    );
    let files = [0, 1].map(|mount| file::open(&cluster.at(mount, "a")));
    let begins = |file: &File| -> Vec<u8> {
        let one = |at: usize| read_at(file, (at * chunk) as u64, 4096);
        (0..chunks).flat_map(one).collect()
    };
    let all = vec![1; chunk * chunks];
    files[0].write_all_at(&all, 0).expect("written");
    files[0].sync_all().expect("synced");
    for _ in 0..3 {
        assert!(begins(&files[0]).iter().all(|&byte| byte == 1));
    }
    cluster.server(1).signal(Signal::SIGSTOP);
    let written = files[0].write_all_at(&vec![2; chunk * chunks], 0);
    cluster.server(1).signal(Signal::SIGCONT);
    assert_eq!(errno(written), Errno::EIO);
    begins(&files[0]);
    let other = begins(&files[1]);
    assert_eq!(begins(&files[0]), other);
}

/// A request without a reply in time may have been granted: the mount gives up all rights and starts a new
/// epoch. The delayed messages arrive then, and grant nothing.
#[test]
fn a_request_without_a_reply_ends_the_epoch() {
    needs_mount!();
    let mut cluster = Cluster::with(1, 0, &["--io-timeout", "3s"]);
    let held = Held::instead_of(&cluster.area().at("md.s"));
    cluster.add_mount();
    cluster.add_mount();
    let files = opened(&cluster, 2, "f");
    files[0].write_all_at(&[1; 100], 0).expect("written");
    let epochs = |cluster: &Cluster| cluster.mount_log(1).matches("rights start again").count();
    let before = epochs(&cluster);
    held.hold();
    assert_eq!(errno(files[1].write_at(&[2; 100], 0)), Errno::EIO);
    held.release();
    poll::until_true("another epoch", || epochs(&cluster) > before);
    for round in 3..40 {
        let (writer, reader) = (round % 2, 1 - round % 2);
        let bytes = [round as u8; 100];
        files[writer].write_all_at(&bytes, 0).expect("written");
        assert_eq!(read_at(&files[reader], 0, 200), bytes, "round {round}");
    }
}

/// Rights of others are waited for until their sessions are over, however short `--io-timeout` is: that is for
/// servers that are away. The wait is not shorter if the lock server was restarted and does not know the
/// holders.
#[test]
fn a_dead_holder_is_waited_for_longer_than_a_server() {
    needs_mount!();
    let mut cluster = Cluster::with(1, 2, &["--io-timeout", "5s"]);
    let files = opened(&cluster, 2, "f");
    files[0].write_all_at(b"first", 0).expect("written");
    files[0].sync_all().expect("synced");
    let mut files = files.into_iter();
    let (dead, alive) = (files.next(), files.next().expect("two"));
    cluster.kill_mount(0);
    drop(dead);
    alive.write_all_at(b"F", 0).expect("written");
    alive.sync_all().expect("synced");
    cluster.kill_mount(1);
    drop(alive);
    cluster.kill_md();
    cluster.start_md();
    cluster.start_mount(0);
    let again = file::open(&cluster.at(0, "f"));
    again.write_all_at(b"T", 4).expect("written");
    assert_eq!(read_at(&again, 0, 5), b"FirsT");
}

/// The lock server is killed and restarted while two mounts write: nothing is lost, nothing is stale.
#[test]
fn the_lock_server_dies_while_two_mounts_write() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 2);
    let files = opened(&cluster, 2, "f");
    files[0].write_all_at(&[0; 1000], 0).expect("written");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(who, file)| {
                let stop = &stop;
                scope.spawn(move || {
                    let mut rounds = 0u64;
                    while !stop.load(Ordering::SeqCst) {
                        let bytes = rounds.to_le_bytes();
                        file.write_all_at(&bytes, who as u64 * 8).expect("written");
                        let other = read_at(file, 8 - who as u64 * 8, 8);
                        assert_eq!(other.len(), 8);
                        rounds += 1;
                    }
                    rounds - 1
                })
            })
            .collect();
        for _ in 0..2 {
            cluster.kill_md();
            cluster.start_md();
            let before = count(&cluster.mnt(0), "rights_asked");
            poll::until_true("rights of the next epoch", || {
                count(&cluster.mnt(0), "rights_asked") > before + 10
            });
        }
        stop.store(true, Ordering::SeqCst);
        for (who, writer) in writers.into_iter().enumerate() {
            let last = writer.join().expect("a writer");
            let seen = read_at(&files[1 - who], who as u64 * 8, 8);
            assert_eq!(seen, last.to_le_bytes(), "of mount {who}");
        }
    });
}

/// Four mounts do everything at once with one object; each operation ends, and none fails.
#[test]
fn four_mounts_at_one_object() {
    needs_mount!();
    const SIZE: u64 = 64 << 10;
    let cluster = Cluster::start(2, 4);
    let files = opened(&cluster, 4, "f");
    files[0]
        .write_all_at(&vec![0; SIZE as usize], 0)
        .expect("written");
    let until = Instant::now() + Duration::from_secs(10);
    std::thread::scope(|scope| {
        for (who, file) in files.iter().enumerate() {
            let path = cluster.at(who, "f");
            scope.spawn(move || {
                let mut random = Random::new(who as u64 + 1);
                while Instant::now() < until {
                    let at = random.range(0, SIZE - 4096);
                    let len = 1 + random.range(0, 4096) as usize;
                    match random.range(0, 4) {
                        0 => file
                            .write_all_at(&vec![who as u8; len], at)
                            .expect("written"),
                        1 => assert_eq!(path.metadata().expect("metadata").len(), SIZE),
                        _ => assert_eq!(read_at(file, at, len).len(), len),
                    }
                }
            });
            let path = cluster.at(who, "f");
            scope.spawn(move || {
                let mut random = Random::new(who as u64 + 100);
                while Instant::now() < until {
                    let writes = random.range(0, 2) == 0;
                    let at = random.range(0, SIZE) as usize;
                    if writes {
                        let file = file::open(&path);
                        let mut map = file::map(&file).expect("mapped");
                        map[at] = who as u8;
                        map[(at + 4096) % SIZE as usize] ^= 1;
                    } else {
                        let file = File::open(&path).expect("opened");
                        let map = file::map_to_read(&file).expect("mapped");
                        let sum: u64 = (0..50)
                            .map(|i| u64::from(map[(at + i * 999) % SIZE as usize]))
                            .sum();
                        assert!(sum < u64::MAX);
                    }
                }
            });
        }
    });
}
