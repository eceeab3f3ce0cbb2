//! Lost replies of the metadata service: the mount sends its requests again, and each happens once. Done twice,
//! a create would find its own file, a rename would find nothing, and an appended record would be there twice.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::sys::signal::Signal;
use nix::sys::statvfs::statvfs;
use slabfs_tests::lossy::Lossy;
use slabfs_tests::{Area, Cluster, Service, file, mounts, needs_mount, poll};

const STEPS: usize = 150;

/// A mount gives up reporting the close of an object, and the service executes the close all the same. By then
/// the object may be open again: a second report would close that opening, and unlinking the object would
/// remove it from its reader.
#[test]
fn a_close_is_reported_once() {
    needs_mount!();
    let mut cluster = Cluster::with(1, 3, &["--io-timeout", "2s"]);
    let [read, other] = ["read", "other"].map(|name| cluster.at(1, name));
    // By a mount that has ended when the service is stopped, because it could give up reporting its own closes.
    file::write(&cluster.at(2, "read"), "what is in it");
    file::write(&cluster.at(2, "other"), "");
    cluster.stop_mount(2);
    let closed = std::fs::File::open(cluster.at(0, "read")).expect("open");
    let other_file = std::fs::File::open(cluster.at(0, "other")).expect("open");
    cluster.md().signal(Signal::SIGSTOP);
    drop(closed);
    poll::until_true("a release that is given up", || {
        cluster.mount(0).log().contains("could not be released")
    });
    cluster.md().signal(Signal::SIGCONT);
    // Requests made while the service was stopped may have been given up, too.
    let mut again = None;
    poll::until_true("the object to open again", || {
        again = std::fs::File::open(cluster.at(0, "read")).ok();
        again.is_some()
    });
    // Reports that were queued before are sent when this one is.
    poll::until_true("an object to be unlinked", || {
        std::fs::remove_file(&other).is_ok() || !other.exists()
    });
    let used = || {
        let stat = statvfs(&cluster.mnt(1)).expect("statvfs");
        stat.files() - stat.files_free()
    };
    let before = used();
    drop(other_file);
    poll::until_true("an unlinked object to go", || used() < before);
    std::fs::remove_file(&read).expect("unlinked");
    let mut bytes = [0; 13];
    let again = again.expect("open");
    again
        .read_exact_at(&mut bytes, 0)
        .expect("it is open, and not removed");
    assert_eq!(&bytes, b"what is in it");
    drop(again);
    cluster.stop_and_fsck().ok();
}

#[test]
fn a_resent_request_happens_once() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 0);
    let area = Area::new();
    let md = cluster.area().at("md.s");
    let lossy = Lossy::start(area.at("p.s"), &md, 12, 95);
    let mnt = area.mkdir("m");
    let args = ["mount", "--md", lossy.addr(), &mnt.display().to_string()]
        .map(str::to_owned)
        .to_vec();
    let mut mount = Service::start(area.path(), "mount", &args);
    mount.ready();
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let dir = mnt.join(format!("w{worker}"));
            scope.spawn(move || work(&dir));
        }
    });
    (0..2).for_each(|worker| check(&mnt.join(format!("w{worker}"))));
    assert!(lossy.lost() > 50, "only {} replies were lost", lossy.lost());
    println!("{} replies were lost", lossy.lost());
    mount.stop();
    mounts::detach(&mnt);
    cluster.stop_and_fsck().ok();
}

/// Replies about rights are lost, grants and recalls among them: a read on one mount still returns the last
/// write on the other.
#[test]
fn rights_requests_are_resent() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 0);
    let area = Area::new();
    let md = cluster.area().at("md.s");
    let sides = [0, 1].map(|i| {
        let lossy = Lossy::start(area.at(format!("p{i}.s")), &md, 6, 96 + i);
        let mnt = area.mkdir(&format!("m{i}"));
        let args = ["mount", "--md", lossy.addr(), &mnt.display().to_string()].map(str::to_owned);
        let mut mount = Service::start(area.path(), &format!("mount{i}"), &args);
        mount.ready();
        (lossy, mount, mnt)
    });
    drop(file::open_new(&sides[0].2.join("f")));
    let files = [0, 1].map(|i| file::open(&sides[i].2.join("f")));
    for round in 0..200u64 {
        let (writer, reader) = ((round % 2) as usize, 1 - (round % 2) as usize);
        files[writer]
            .write_all_at(&round.to_le_bytes(), round % 7 * 8)
            .expect("written");
        let mut seen = [0; 8];
        files[reader]
            .read_exact_at(&mut seen, round % 7 * 8)
            .expect("read");
        assert_eq!(u64::from_le_bytes(seen), round);
    }
    drop(files);
    let lost: u64 = sides.iter().map(|(lossy, ..)| lossy.lost()).sum();
    assert!(lost > 30, "only {lost} replies were lost");
    println!("{lost} replies were lost");
    for (_, mount, mnt) in &sides {
        mount.stop();
        mounts::detach(mnt);
    }
    cluster.stop_and_fsck().ok();
}

/// Operations that cannot be done twice.
#[track_caller]
fn work(dir: &Path) {
    let at = |name: String| dir.join(name);
    std::fs::create_dir(dir).expect("made once");
    let mut log = std::fs::OpenOptions::new()
        .append(true)
        .create_new(true)
        .open(at("log".into()))
        .expect("made once");
    for i in 0..STEPS {
        drop(file::open_new(&at(format!("new{i}"))));
        let name = at(format!("f{i}"));
        std::fs::rename(at(format!("new{i}")), &name).expect("renamed once");
        file::set_xattr(&name, "user.n", i.to_string(), libc::XATTR_CREATE).expect("set once");
        std::fs::hard_link(&name, at(format!("l{i}"))).expect("linked once");
        log.write_all(format!("record {i:6}\n").as_bytes())
            .expect("appended");
        if i % 3 == 0 {
            log.sync_all().expect("synced");
        }
        match i % 4 {
            0 => std::fs::remove_file(at(format!("l{i}"))).expect("removed once"),
            1 => file::remove_xattr(&name, "user.n").expect("removed once"),
            2 => std::fs::create_dir(at(format!("d{i}"))).expect("made once"),
            _ => std::os::unix::fs::symlink("to", at(format!("s{i}"))).expect("made once"),
        }
    }
    file::close(log).expect("stored");
}

#[track_caller]
fn check(dir: &Path) {
    let log = String::from_utf8(file::read(&dir.join("log"))).expect("text");
    let wanted: String = (0..STEPS).map(|i| format!("record {i:6}\n")).collect();
    assert_eq!(log, wanted);
    for i in 0..STEPS {
        use std::os::unix::fs::MetadataExt;
        let name = dir.join(format!("f{i}"));
        let links = if i % 4 == 0 { 1 } else { 2 };
        let meta = std::fs::metadata(&name).expect("there");
        assert_eq!(meta.nlink(), links, "f{i}");
        let tags = file::list_xattrs(&name)
            .iter()
            .filter(|name| *name == "user.n")
            .count();
        assert_eq!(tags, usize::from(i % 4 != 1), "f{i}");
    }
    let names = std::fs::read_dir(dir).expect("listed").count();
    let linked = (0..STEPS).filter(|i| i % 4 != 0).count();
    let more = (0..STEPS).filter(|i| i % 4 > 1).count();
    assert_eq!(names, 1 + STEPS + linked + more);
}
