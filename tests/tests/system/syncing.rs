//! When `fsync` may return, and what it guarantees: nothing waits for a disk for ever, no space is lost.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use slabfs_tests::file::named;
use slabfs_tests::tool::create;
use slabfs_tests::{Cluster, Up, disk, file, needs_mount, poll};

/// Long enough for an `fsync` that does not wait to return.
const MOMENT: Duration = Duration::from_millis(400);

/// Whether `fsync` of `handle` blocks while the data server is stopped.
fn waits(cluster: &Cluster, handle: &std::fs::File, more: impl FnOnce()) -> bool {
    let returned = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| {
            let result = handle.sync_all();
            returned.store(true, Ordering::SeqCst);
            result
        });
        more();
        std::thread::sleep(MOMENT);
        let waited = !returned.load(Ordering::SeqCst);
        cluster.server(0).signal(Signal::SIGCONT);
        sync.join().expect("the thread").expect("fsync");
        waited
    })
}

/// In at least one of a few rounds: a round in which a background sync came first shows nothing.
fn in_some_round(what: &str, mut round: impl FnMut(usize) -> bool) {
    assert!(
        (0..3).any(&mut round),
        "{what}: fsync returns although the data server is stopped"
    );
}

#[test]
fn files_closed_before_are_synced() {
    needs_mount!();
    let cluster = Cluster::start(1, 1);
    in_some_round("written, closed, opened", |round| {
        let path = cluster.at(0, format!("f{round}"));
        let writer = file::open_new(&path);
        writer.write_all_at(&[7; 256 << 10], 0).expect("written");
        cluster.server(0).signal(Signal::SIGSTOP);
        file::close(writer).expect("closed");
        let handle = file::open(&path);
        waits(&cluster, &handle, || {})
    });
}

#[test]
fn a_second_fsync_waits_for_the_first() {
    needs_mount!();
    let cluster = Cluster::start(1, 1);
    in_some_round("the second", |round| {
        let path = cluster.at(0, format!("f{round}"));
        let first = file::open_new(&path);
        first.write_all_at(&[7; 256 << 10], 0).expect("written");
        // Another inode for the kernel, so that its own lock does not order the two.
        let second = file::open(&named(&path, "@[0:10]"));
        cluster.server(0).signal(Signal::SIGSTOP);
        std::thread::scope(|scope| {
            let sync = scope.spawn(|| first.sync_all());
            // The first is under way before the second begins, most of the time.
            std::thread::sleep(MOMENT);
            let waited = waits(&cluster, &second, || {});
            sync.join().expect("the thread").expect("fsync");
            waited
        })
    });
}

fn used_by(dir: &Path) -> u64 {
    disk::used(dir)
}

/// An array rewritten through one handle that stays open: replaced chunks are deleted.
#[test]
fn rewriting_through_an_open_handle_takes_no_more_space() {
    needs_mount!();
    let up = Up::start();
    let object = up.at("a");
    create(&object, "1024,1024", "f4", &[]);
    let handle = file::open(&object);
    for round in 0..40_u8 {
        handle
            .write_all_at(&vec![round + 1; 4 << 20], 0)
            .expect("rewritten");
    }
    // As after a program's fork, or when a duplicate of the descriptor is closed.
    file::close(handle.try_clone().expect("a descriptor")).expect("closed");
    poll::until_true("replaced chunks to be deleted", || {
        used_by(up.data()) < 60 << 20
    });
    assert_eq!(file::read(&object), vec![40; 4 << 20]);
    drop(handle);
}

/// Temporary files are created and removed before they are synced: that blocks nothing else.
#[test]
fn unsynced_files_block_nothing() {
    needs_mount!();
    let up = Up::start();
    for i in 0..5 {
        let path = up.at(format!("tmp{i}"));
        create(&path, "1000,1000", "u1", &[]);
        file::write_at(&path, 0, &vec![9; 1_000_000]);
        std::fs::remove_file(&path).expect("unlinked");
        file::write(&up.at("other"), "x");
        file::open(&up.at("other")).sync_all().expect("synced");
    }
    // Overwritten and closed, never synced by a program: the background does it, and frees space.
    let object = up.at("a");
    create(&object, "4096,1024", "u1", &[]);
    for round in 0..20_u8 {
        file::write_at(&object, 0, &vec![round + 1; 4 << 20]);
    }
    poll::until_true("replaced chunks to be deleted", || {
        used_by(up.data()) < 30 << 20
    });
    file::open(&object).sync_all().expect("synced");
    assert_eq!(file::read(&object), vec![20; 4 << 20]);
    let complaints = up.log().matches("trying again").count();
    assert!(complaints < 2, "{}", up.log());
}
