//! A data server that does not answer (stopped, not dead) blocks what needs it, and nothing else: names and
//! other objects of the mount remain usable, however many requests wait. And a mount that is cut off while all
//! services are gone does not block its programs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::sys::signal::Signal;
use nix::unistd::Whence;
use slabfs_tests::file::{self, named};
use slabfs_tests::tool::create;
use slabfs_tests::{Cluster, needs_mount, poll};

/// A cluster whose requests wait for far longer than any test, so that a hang is visible.
fn cluster() -> Cluster {
    Cluster::with(2, 1, &["--io-timeout", "10m"])
}

/// Stops the data servers until it is dropped.
struct Stopped<'a>(&'a Cluster);

impl Stopped<'_> {
    fn now(cluster: &Cluster) -> Stopped<'_> {
        (0..2).for_each(|i| cluster.server(i).signal(Signal::SIGSTOP));
        Stopped(cluster)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        (0..2).for_each(|i| self.0.server(i).signal(Signal::SIGCONT));
    }
}

/// Calls `f` in a thread for each handle and does not wait; most of them block on the servers.
fn in_threads<'scope, T: Sync>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    each: &'scope [T],
    f: impl Fn(usize, &T) + Send + Sync + Copy + 'scope,
) {
    for (i, one) in each.iter().enumerate() {
        scope.spawn(move || f(i, one));
    }
}

/// Lists, creates and removes names elsewhere on the mount within the timeout of `poll`.
fn remains_usable(cluster: &Cluster, round: &str) {
    let (dir, done) = (cluster.at(0, "elsewhere"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let new = dir.join(round);
            std::fs::create_dir(&new).expect("made");
            assert!(std::fs::read_dir(&dir).expect("listed").count() > 0);
            std::fs::remove_dir(&new).expect("removed");
            done.store(true, Ordering::SeqCst);
        });
        // A mount that hangs is killed with the test, which ends the thread.
        poll::until_true(round, || done.load(Ordering::SeqCst));
    });
}

/// Most requests are under way when this returns; no test depends on it.
fn a_moment() {
    std::thread::sleep(std::time::Duration::from_millis(200));
}

/// One object has all the dirty data that is allowed, and its server is stopped: a writer of another object
/// does not wait.
#[test]
fn writers_do_not_wait_for_the_servers_of_others() {
    needs_mount!();
    let cluster = Cluster::with(2, 1, &["--io-timeout", "10m", "--dirty-limit", "8M"]);
    for (name, server) in [("away", "server:1"), ("there", "server:2")] {
        create(
            &cluster.at(0, name),
            "256,65536",
            "u1",
            &["--placement", server],
        );
    }
    let [away, there] = ["away", "there"].map(|name| file::open(&cluster.at(0, name)));
    let stopped = Stopped::now(&cluster);
    cluster.server(1).signal(Signal::SIGCONT);
    let (full, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let rows = |file: &File, byte: u8, rows: u64| {
        for row in 0..rows {
            file.write_all_at(&[byte; 65536], row * 65536)
                .expect("written");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            rows(&away, 1, 256);
            full.store(true, Ordering::SeqCst);
        });
        let dirty = || slabfs_tests::tool::stats(&cluster.mnt(0))["dirty_bytes"].as_u64();
        poll::until_true("the limit is reached", || dirty() >= Some(8 << 20));
        scope.spawn(|| {
            rows(&there, 2, 8);
            there.sync_all().expect("synced");
            done.store(true, Ordering::SeqCst);
        });
        poll::until_true("the other object is written", || {
            done.load(Ordering::SeqCst)
        });
        assert!(!full.load(Ordering::SeqCst));
        drop(stopped);
    });
    for (file, byte, rows) in [(&away, 1, 256), (&there, 2, 8)] {
        let mut seen = vec![0; rows << 16];
        file.read_exact_at(&mut seen, 0).expect("read");
        assert!(seen.iter().all(|&found| found == byte));
    }
}

#[test]
fn syncs_and_closes_of_byte_objects() {
    needs_mount!();
    let cluster = cluster();
    std::fs::create_dir(cluster.at(0, "elsewhere")).expect("made");
    let paths: Vec<_> = (0..4).map(|i| cluster.at(0, format!("f{i}"))).collect();
    paths
        .iter()
        .for_each(|path| file::write(path, vec![1; 20 << 20]));
    let handles: Vec<File> = paths.iter().map(|path| file::open(path)).collect();
    let others: Vec<File> = paths.iter().map(|path| file::open(path)).collect();
    for handle in &handles {
        (0..3).for_each(|i| handle.write_all_at(&[2; 1000], i << 23).expect("written"));
    }
    std::thread::scope(|scope| {
        let stopped = Stopped::now(&cluster);
        in_threads(scope, &handles, |_, handle| {
            handle.sync_all().expect("fsync")
        });
        a_moment();
        in_threads(scope, &others, |_, other| {
            file::close(other.try_clone().expect("a descriptor")).expect("closed");
        });
        a_moment();
        remains_usable(&cluster, "fsyncs and closes");
        drop(stopped);
    });
}

#[test]
fn small_writes_while_a_flush_waits() {
    needs_mount!();
    let cluster = cluster();
    std::fs::create_dir(cluster.at(0, "elsewhere")).expect("made");
    let paths: Vec<_> = (0..4).map(|i| cluster.at(0, format!("a{i}"))).collect();
    paths
        .iter()
        .for_each(|path| create(path, "1000,1000", "u1", &[]));
    let handles: Vec<File> = paths.iter().map(|path| file::open(path)).collect();
    let selections: Vec<File> = paths
        .iter()
        .map(|path| file::open(&named(path, "@[0:10]")))
        .collect();
    handles
        .iter()
        .for_each(|handle| handle.write_all_at(&[2; 1000], 0).expect("written"));
    std::thread::scope(|scope| {
        let stopped = Stopped::now(&cluster);
        in_threads(scope, &selections, |_, selection| {
            selection.sync_all().expect("fsync")
        });
        a_moment();
        in_threads(scope, &handles, |_, handle| {
            handle.write_all_at(&[3; 100], 5000).expect("written")
        });
        a_moment();
        remains_usable(&cluster, "small writes");
        drop(stopped);
    });
    for path in &paths {
        assert_eq!(file::read(path)[5000..5100], [3; 100]);
    }
}

#[test]
fn looks_at_objects_whose_size_is_changing() {
    needs_mount!();
    let cluster = cluster();
    std::fs::create_dir(cluster.at(0, "elsewhere")).expect("made");
    let paths: Vec<_> = (0..4).map(|i| cluster.at(0, format!("b{i}"))).collect();
    let handles: Vec<File> = paths.iter().map(|path| file::open_new(path)).collect();
    for handle in &handles {
        handle.set_len(10_000).expect("long");
        handle.write_all_at(&[2; 1000], 0).expect("written");
    }
    let selections: Vec<File> = paths
        .iter()
        .map(|path| file::open(&named(path, "@[0:10]")))
        .collect();
    std::thread::scope(|scope| {
        let stopped = Stopped::now(&cluster);
        in_threads(scope, &selections, |_, selection| {
            selection.sync_all().expect("fsync")
        });
        a_moment();
        in_threads(scope, &handles, |_, handle| {
            handle.set_len(20_000).expect("longer")
        });
        a_moment();
        in_threads(scope, &handles, |_, handle| {
            handle.metadata().map(|_| ()).expect("metadata")
        });
        in_threads(scope, &paths, |_, path| {
            drop(file::open(&named(path, "@[0:5]")))
        });
        in_threads(scope, &paths, |_, path| {
            drop(file::get_xattr(path, "user.slabfs.info").expect("info"))
        });
        in_threads(scope, &handles, |_, handle| {
            assert!(file::seek(handle, 0, Whence::SeekHole).is_ok())
        });
        in_threads(scope, &handles, |_, handle| {
            assert!(handle.read_at(&mut [0; 10], 5000).is_ok())
        });
        a_moment();
        remains_usable(&cluster, "looks");
        drop(stopped);
    });
    for path in &paths {
        assert_eq!(path.metadata().expect("metadata").len(), 20_000);
    }
}

/// A daemon that makes a request to its own mount cannot end before it has answered that.
#[test]
fn a_mount_that_is_cut_off_while_its_services_are_gone() {
    needs_mount!();
    // A mount in use cannot simply be unmounted. (Closed after the mount is gone: closing it would hang with
    // it.)
    let used;
    let mut cluster = cluster();
    let (root, file) = (cluster.mnt(0), cluster.at(0, "file"));
    used = file::open_new(&file);
    cluster.kill_md();
    let looks = Arc::new(AtomicU64::new(0));
    // Not a scoped thread: if it hangs, the cluster removes the mount.
    let looker = std::thread::spawn({
        let looks = Arc::clone(&looks);
        move || {
            loop {
                looks.fetch_add(1, Ordering::SeqCst);
                if let Err(error) = root.metadata() {
                    break error;
                }
            }
        }
    });
    let (mut last, mut same) = (0, 0);
    poll::until_true("a look at the root that waits", || {
        let now = looks.load(Ordering::SeqCst);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same == 100
    });
    let (status, log) = cluster.cut_mount_off(0);
    assert_eq!(status, 1, "{log}");
    assert!(
        log.contains("cut off before everything was flushed"),
        "{log}"
    );
    poll::until_true("the end of that look", || looker.is_finished());
    let error = looker.join().expect("looked").raw_os_error();
    assert!(
        matches!(error, Some(libc::ECONNABORTED | libc::ENOTCONN)),
        "{error:?}"
    );
    drop(used);
}
