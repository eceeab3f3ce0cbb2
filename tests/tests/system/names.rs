//! Names cached by a mount while other mounts are present: the cost of a path lookup, and that no stale name or
//! directory is returned (docs/decisions/22-names.md).

use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use slabfs_tests::file::{self, errno};
use slabfs_tests::tool::stats;
use slabfs_tests::{Cluster, Random, needs_mount, poll, soak};

/// Requests of a mount to its metadata service.
fn requests(mount: &Path) -> u64 {
    let stats = stats(mount);
    stats["metadata_requests"].as_u64().expect("a number")
}

/// The requests that `work` causes on a mount, for `times` repetitions. Unrelated requests may be among them.
fn asked(cluster: &Cluster, mount: usize, times: u64, work: impl Fn()) -> u64 {
    let before = requests(&cluster.mnt(mount));
    (0..times).for_each(|_| work());
    requests(&cluster.mnt(mount)) - before
}

/// Whether it exists; other errors fail the test.
#[track_caller]
fn is_there(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// Waits until both mounts know that they are not alone.
fn shared(mounts: usize) -> Cluster {
    let cluster = Cluster::start(1, mounts);
    for mount in 0..mounts {
        poll::until_true("the end of being alone", || {
            stats(&cluster.mnt(mount))["alone"] == false
        });
    }
    cluster
}

#[test]
fn a_path_is_walked_without_asking() {
    needs_mount!();
    let cluster = shared(2);
    let deep = "a/b/c/d";
    fs::create_dir_all(cluster.at(0, deep)).expect("made");
    drop(file::open_new(&cluster.at(0, "a/b/c/d/file")));
    let times = 200;
    for mount in 0..2 {
        let (directory, file, nothing) = (
            cluster.at(mount, deep),
            cluster.at(mount, "a/b/c/d/file"),
            cluster.at(mount, "a/b/c/d/nothing"),
        );
        // The other mount has changed these directories a moment ago: they are cached when that is over.
        poll::until_true("names are cached", || {
            asked(&cluster, mount, times, || assert!(is_there(&directory))) < 20
        });
        poll::until_true("their absence is", || {
            asked(&cluster, mount, times, || assert!(!is_there(&nothing))) < 20
        });
        // Two requests, for the name and the attributes; none for its four directories.
        let asked = asked(&cluster, mount, times, || assert!(is_there(&file)));
        assert!((2 * times..2 * times + 20).contains(&asked), "{asked}");
    }
    // A mount that changes its own directory still has the others cached.
    let asked = asked(&cluster, 0, times, || {
        drop(File::create(cluster.at(0, "a/b/c/d/new")).expect("made"));
        fs::remove_file(cluster.at(0, "a/b/c/d/new")).expect("removed");
    });
    assert!(asked < 12 * times, "{asked}");
}

/// Entries that one mount has just looked up are changed through another one, and looked up again.
#[test]
fn a_change_by_another_mount_is_seen_at_once() {
    needs_mount!();
    let cluster = shared(2);
    let rounds = soak::or(3, 60);
    let directories = 24;
    for round in 0..rounds {
        let at = |mount: usize, number: usize, name: &str| {
            cluster.at(mount, format!("{round}-{number}/{name}"))
        };
        for number in 0..directories {
            fs::create_dir_all(at(0, number, "sub")).expect("made");
            drop(file::open_new(&at(0, number, "old")));
        }
        // Nothing is cached before the last change is a second old.
        let known = at(1, directories - 1, "sub");
        poll::until_true("names are cached", || {
            asked(&cluster, 1, 50, || assert!(is_there(&known))) < 20
        });
        for number in 0..directories {
            let (one, two) = (
                |name: &str| at(number % 2, number, name),
                |name: &str| at(1 - number % 2, number, name),
            );
            for path in [one("new"), one("sub/x"), two("new"), two("sub/x")] {
                assert!(!is_there(&path));
            }
            assert!(is_there(&two("sub")) && is_there(&two("old")));
            let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o7777;
            assert_eq!(mode(&two("sub")), 0o755);
            match number / 2 % 12 {
                0 => drop(file::open_new(&one("new"))),
                1 => fs::create_dir(one("new")).expect("made"),
                2 => symlink("old", one("new")).expect("made"),
                3 => fs::hard_link(one("old"), one("new")).expect("linked"),
                4 => fs::rename(one("old"), one("new")).expect("renamed"),
                5 => {
                    fs::rename(one("sub"), one("new")).expect("renamed");
                    assert!(!is_there(&two("sub")) && is_there(&two("new")));
                    fs::rename(two("new"), two("sub")).expect("renamed back");
                    assert!(is_there(&one("sub")));
                    continue;
                }
                6 => {
                    fs::remove_file(one("old")).expect("removed");
                    assert!(!is_there(&two("old")));
                    continue;
                }
                7 => {
                    let open = File::open(two("sub")).expect("opened");
                    assert_eq!(open.metadata().expect("it is there").nlink(), 2);
                    fs::remove_dir(one("sub")).expect("removed");
                    assert!(!is_there(&two("sub")));
                    assert_eq!(errno(File::open(two("sub/x"))), Errno::ENOENT);
                    // A removed directory is not reported as if it existed.
                    assert_ne!(open.metadata().map_or(0, |known| known.nlink()), 2);
                    continue;
                }
                8 => {
                    fs::set_permissions(one("sub"), Permissions::from_mode(0o700)).expect("set");
                    assert_eq!(mode(&two("sub")), 0o700);
                    continue;
                }
                9 => {
                    let before = fs::metadata(two("sub")).expect("it is there");
                    fs::create_dir(one("sub/x")).expect("made");
                    let after = fs::metadata(two("sub")).expect("it is there");
                    assert_eq!((before.nlink(), after.nlink()), (2, 3));
                    assert!(is_there(&two("sub/x")));
                    continue;
                }
                10 => {
                    // Through this mount, which gets no event: it made the change.
                    fs::create_dir(two("sub/x")).expect("made");
                    assert!(is_there(&two("sub/x")) && is_there(&one("sub/x")));
                    fs::remove_dir(two("sub/x")).expect("removed");
                    assert!(!is_there(&two("sub/x")) && !is_there(&one("sub/x")));
                    fs::remove_dir(two("sub")).expect("removed");
                    assert!(!is_there(&two("sub")) && !is_there(&one("sub")));
                    continue;
                }
                _ => {
                    fs::create_dir(one("new")).expect("made");
                    fs::rename(one("sub"), one("new/sub")).expect("moved");
                    assert!(!is_there(&two("sub")) && is_there(&two("new/sub")));
                    continue;
                }
            }
            assert!(is_there(&two("new")), "{}", number / 2 % 12);
        }
    }
}

/// Directories whose one entry is renamed from number to number, each by one mount at a time, while all look up
/// the last number, the one before it and the next one.
#[test]
fn a_reported_name_exists_and_the_previous_one_is_gone() {
    needs_mount!();
    const MOUNTS: usize = 3;
    const DIRECTORIES: usize = 40;
    let cluster = shared(MOUNTS);
    let path = |mount: usize, directory: usize, number: u64| {
        cluster.at(mount, format!("{directory}/{number}"))
    };
    for directory in 0..DIRECTORIES {
        fs::create_dir_all(path(0, directory, 0)).expect("made");
    }
    let reported: Vec<AtomicU64> = (0..DIRECTORIES).map(|_| AtomicU64::new(0)).collect();
    let (over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut rounds = 0;
    let end = Instant::now() + soak::time().unwrap_or(Duration::from_secs(12));
    std::thread::scope(|scope| {
        for reader in 0..2 * MOUNTS {
            let (reported, over, looks, path) = (&reported, &over, &looks, &path);
            scope.spawn(move || {
                let mut random = Random::new(reader as u64);
                while !over.load(Ordering::Relaxed) {
                    let directory = random.range(0, DIRECTORIES as u64) as usize;
                    let number = reported[directory].load(Ordering::SeqCst);
                    if let Some(before) = number.checked_sub(1) {
                        assert!(!is_there(&path(reader % MOUNTS, directory, before)));
                    }
                    let there = is_there(&path(reader % MOUNTS, directory, number));
                    // The rename to the next one may be under way, or reported by now.
                    let next = is_there(&path(reader % MOUNTS, directory, number + 1));
                    let now = reported[directory].load(Ordering::SeqCst);
                    assert!(
                        there || next || now > number,
                        "{directory}: {number}, {now}"
                    );
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // At a pace at which names are cached in between.
        let mut random = Random::new(99);
        while Instant::now() < end {
            for (directory, reported) in reported.iter().enumerate() {
                let mount = random.range(0, MOUNTS as u64) as usize;
                let number = reported.load(Ordering::SeqCst);
                fs::rename(
                    path(mount, directory, number),
                    path(mount, directory, number + 1),
                )
                .expect("renamed");
                reported.store(number + 1, Ordering::SeqCst);
            }
            let before: Vec<u64> = (0..MOUNTS).map(|mount| hits(&cluster, mount)).collect();
            poll::until_true("readers to know their ways", || {
                let few = 10 * DIRECTORIES as u64;
                (0..MOUNTS).all(|mount| hits(&cluster, mount) > before[mount] + few)
            });
            rounds += 1;
        }
        over.store(true, Ordering::Relaxed);
    });
    println!("{rounds} rounds, {} looks", looks.load(Ordering::Relaxed));
    assert!(rounds > 1);
}

/// A mount that caches names and is killed, or stopped, blocks others as long as a session may be silent, and
/// no longer; and it has dropped its cache when it continues.
#[test]
fn a_silent_mount_with_cached_names_blocks_others_for_a_limited_time() {
    needs_mount!();
    let mut cluster = shared(2);
    for stopped in [true, false] {
        let name = format!("of-{stopped}");
        let (here, there) = (cluster.at(0, &name), cluster.at(1, &name));
        poll::until_true("names are cached", || {
            asked(&cluster, 1, 50, || assert!(!is_there(&there))) < 20
        });
        match stopped {
            true => cluster.mount(1).signal(Signal::SIGSTOP),
            false => cluster.kill_mount(1),
        }
        let begun = Instant::now();
        fs::create_dir(&here).expect("made");
        assert!(begun.elapsed() < Duration::from_secs(40));
        if stopped {
            cluster.mount(1).signal(Signal::SIGCONT);
            assert!(is_there(&there), "it returns no stale entry");
            poll::until_true("another session", || {
                stats(&cluster.mnt(1))["sessions_lost"] == 1
            });
            assert!(is_there(&there));
        }
    }
}

/// The lock server is restarted, and does not know which mounts cache names.
#[test]
fn names_are_seen_at_once_after_a_restart_of_the_lock_server() {
    needs_mount!();
    let mut cluster = shared(2);
    for round in 0..soak::or(3, 30) {
        let name = format!("{round}");
        let (here, there) = (cluster.at(0, &name), cluster.at(1, &name));
        poll::until_true("names are cached", || {
            asked(&cluster, 1, 50, || assert!(!is_there(&there))) < 20
        });
        cluster.kill_md();
        cluster.start_md();
        fs::create_dir(&here).expect("made");
        assert!(is_there(&there), "round {round}");
    }
}

/// Lookups that a mount served from its cache.
fn hits(cluster: &Cluster, mount: usize) -> u64 {
    let stats = stats(&cluster.mnt(mount));
    stats["names_from_memory"].as_u64().expect("a number")
}
