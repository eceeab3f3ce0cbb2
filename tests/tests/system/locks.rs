//! Advisory locks: `fcntl` and `flock` of two mounts, and their release by `close`, signals, and the end of a
//! mount.
//!
//! For locks this process is a different owner on each mount. Where more owners are needed, `locker.py` is one.

use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs::File, io};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use slabfs_tests::file::{self, errno, named};
use slabfs_tests::tool::{create, slabfs, stats};
use slabfs_tests::{Cluster, Service, inputs, needs_mount, poll};

use crate::views::set_view;

const SHARED: i16 = libc::F_RDLCK as i16;
const EXCLUSIVE: i16 = libc::F_WRLCK as i16;
const NONE: i16 = libc::F_UNLCK as i16;

/// A record lock: `len` 0 is to the end of all files.
fn lock(mode: i16, first: i64, len: i64) -> libc::flock {
    libc::flock {
        l_type: mode,
        l_whence: libc::SEEK_SET as i16,
        l_start: first,
        l_len: len,
        l_pid: 0,
    }
}

fn record(file: &File, command: i32, mut lock: libc::flock) -> io::Result<libc::flock> {
    // SAFETY: the descriptor is open, and the pointer is to a lock that outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock),
    }
}

fn try_record(file: &File, mode: i16, first: i64, len: i64) -> io::Result<libc::flock> {
    record(file, libc::F_SETLK, lock(mode, first, len))
}

fn wait_record(file: &File, mode: i16, first: i64, len: i64) -> io::Result<libc::flock> {
    record(file, libc::F_SETLKW, lock(mode, first, len))
}

fn flock(file: &File, how: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    match unsafe { libc::flock(file.as_raw_fd(), how) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The lock that conflicts with such a lock.
fn in_the_way(file: &File, mode: i16, first: i64, len: i64) -> libc::flock {
    record(file, libc::F_GETLK, lock(mode, first, len)).expect("F_GETLK")
}

/// A file that both mounts have open.
fn both(cluster: &Cluster) -> (File, File) {
    file::write(&cluster.at(0, "f"), [0; 100]);
    (
        file::open(&cluster.at(0, "f")),
        file::open(&cluster.at(1, "f")),
    )
}

fn locker(cluster: &Cluster, name: &str, steps: &[String]) -> Service {
    let mut command = Command::new("python3");
    command.arg(inputs::script("locker.py")).args(steps);
    Service::start_command(cluster.area().path(), name, command)
}

/// Waits until a locker has printed a line.
fn said(locker: &Service, line: &str) {
    poll::until_true(line, || {
        let out = locker.out();
        assert!(
            locker.ended().is_none() || out.lines().any(|said| said == line),
            "it has ended:\n{out}{}",
            locker.log()
        );
        out.lines().any(|said| said == line)
    });
}

fn waiting(mount: &Path, count: u64) {
    poll::until_true("requests that wait", || {
        stats(mount)["locks_waiting"] == count
    });
}

fn steps(text: &[&str]) -> Vec<String> {
    text.iter().map(|&step| step.to_owned()).collect()
}

fn open_step(path: &Path) -> String {
    format!("open,f,{}", path.display())
}

#[test]
fn record_locks_exclude_across_mounts() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (one, two) = both(&cluster);
    try_record(&one, EXCLUSIVE, 10, 10).expect("free");
    for mode in [SHARED, EXCLUSIVE] {
        assert_eq!(errno(try_record(&two, mode, 19, 5)), Errno::EAGAIN);
    }
    try_record(&two, EXCLUSIVE, 0, 10).expect("before it");
    try_record(&two, EXCLUSIVE, 20, 0).expect("behind it, to the end");
    let seen = in_the_way(&two, SHARED, 0, 0);
    assert_eq!((seen.l_type, seen.l_start, seen.l_len), (EXCLUSIVE, 10, 10));
    assert_eq!(
        seen.l_pid, 0,
        "a process of another mount has no number here"
    );
    let seen = in_the_way(&one, SHARED, 15, 0);
    assert_eq!((seen.l_type, seen.l_start, seen.l_len), (EXCLUSIVE, 20, 0));
    // Half of it is released, and half converted to a shared lock.
    try_record(&one, NONE, 10, 5).expect("released");
    try_record(&one, SHARED, 15, 5).expect("converted");
    try_record(&two, EXCLUSIVE, 10, 5).expect("free");
    try_record(&two, SHARED, 15, 5).expect("with another reader");
    assert_eq!(errno(try_record(&one, EXCLUSIVE, 15, 5)), Errno::EAGAIN);
    assert_eq!(in_the_way(&one, SHARED, 15, 5).l_type, NONE);
}

#[test]
fn flock_locks_exclude_across_mounts_and_ignore_record_locks() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (one, two) = both(&cluster);
    flock(&one, libc::LOCK_EX).expect("free");
    let now = |how| how | libc::LOCK_NB;
    assert_eq!(errno(flock(&two, now(libc::LOCK_SH))), Errno::EWOULDBLOCK);
    try_record(&two, EXCLUSIVE, 0, 0).expect("another family");
    flock(&one, libc::LOCK_SH).expect("converted");
    flock(&two, now(libc::LOCK_SH)).expect("with another reader");
    assert_eq!(errno(flock(&one, now(libc::LOCK_EX))), Errno::EWOULDBLOCK);
    // The kernel's `flock` loses the old lock when a conversion fails, and so does this one.
    flock(&two, now(libc::LOCK_EX)).expect("alone");
    flock(&two, libc::LOCK_UN).expect("released");
    // The open file description owns the lock, so a duplicate of the descriptor does not conflict.
    let copy = one.try_clone().expect("a copy");
    flock(&one, now(libc::LOCK_EX)).expect("free");
    drop(one);
    assert_eq!(errno(flock(&two, now(libc::LOCK_EX))), Errno::EWOULDBLOCK);
    flock(&copy, now(libc::LOCK_SH)).expect("its own");
    drop(copy);
    flock(&two, libc::LOCK_EX).expect("the last close has freed it");
}

/// The kernel sends the last close to a mount after `close` has returned.
#[test]
fn a_lock_is_free_once_close_has_returned() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (one, two) = both(&cluster);
    drop((one, two));
    let at = [cluster.at(0, "f"), cluster.at(1, "f")];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Load makes a late release later.
        for _ in 0..8 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let refused = (0..300).find_map(|round| {
            let file = file::open(&at[round % 2]);
            let locked = flock(&file, libc::LOCK_EX | libc::LOCK_NB);
            locked.err().map(|error| (round, error))
        });
        over.store(true, Ordering::Relaxed);
        assert!(refused.is_none(), "{refused:?}");
    });
}

#[test]
fn a_waiter_on_one_mount_is_woken_by_another() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (one, two) = both(&cluster);
    for round in 0..20 {
        try_record(&one, EXCLUSIVE, 0, 10).expect("free");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| wait_record(&two, SHARED, 5, 10));
            if round % 2 == 0 {
                waiting(&cluster.mnt(1), 1);
            }
            try_record(&one, NONE, 0, 0).expect("released");
            waiter.join().expect("no panic").expect("granted");
        });
        try_record(&two, NONE, 0, 0).expect("released");
    }
    flock(&one, libc::LOCK_EX).expect("free");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| flock(&two, libc::LOCK_EX));
        waiting(&cluster.mnt(1), 1);
        flock(&one, libc::LOCK_UN).expect("released");
        waiter.join().expect("no panic").expect("granted");
    });
}

#[test]
fn sigkill_frees_a_waiter_and_its_place() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (one, two) = both(&cluster);
    for (i, how) in ["fcntl,f,ex,0,10", "flock,f,ex", "ofd,f,ex,0,10"]
        .iter()
        .enumerate()
    {
        try_record(&one, SHARED, 0, 10).expect("free");
        flock(&one, libc::LOCK_SH).expect("free");
        let open = open_step(&cluster.at(1, "f"));
        let writer = locker(&cluster, &format!("writer{i}"), &[open, (*how).to_owned()]);
        waiting(&cluster.mnt(1), 1);
        // Queued behind the writer; otherwise granted together with the holder's lock.
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                wait_record(&two, SHARED, 0, 10).expect("granted");
                flock(&two, libc::LOCK_SH).expect("granted");
            });
            if i != 1 {
                waiting(&cluster.mnt(1), 2);
            }
            // Ends only if the wait does.
            writer.kill9();
            reader.join().expect("no panic");
        });
        waiting(&cluster.mnt(1), 0);
        for file in [&one, &two] {
            try_record(file, NONE, 0, 0).expect("released");
            flock(file, libc::LOCK_UN).expect("released");
        }
        try_record(&two, EXCLUSIVE, 0, 10).expect("nothing is left of it");
        try_record(&two, NONE, 0, 10).expect("released");
    }
}

#[test]
fn a_signal_ends_a_wait() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (one, _two) = both(&cluster);
    try_record(&one, EXCLUSIVE, 0, 10).expect("free");
    let mut wanted = steps(&["alarm", "fcntl,f,ex,0,5", "fcntl,f,ex!,20,5", "stay"]);
    wanted.insert(0, open_step(&cluster.at(1, "f")));
    let waiter = locker(&cluster, "waiter", &wanted);
    said(&waiter, "2 fcntl: interrupted");
    said(&waiter, "3 fcntl: ok");
    waiting(&cluster.mnt(1), 0);
    assert_eq!(errno(try_record(&one, EXCLUSIVE, 20, 5)), Errno::EAGAIN);
    waiter.kill9();
    wait_record(&one, EXCLUSIVE, 20, 5).expect("freed by its end");
}

#[test]
fn a_circle_of_waits_is_refused() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (one, two) = both(&cluster);
    try_record(&one, EXCLUSIVE, 0, 10).expect("free");
    try_record(&two, EXCLUSIVE, 10, 10).expect("free");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_record(&one, EXCLUSIVE, 10, 10));
        waiting(&cluster.mnt(0), 1);
        assert_eq!(errno(wait_record(&two, SHARED, 0, 10)), Errno::EDEADLK);
        try_record(&two, NONE, 10, 10).expect("released");
        waiter.join().expect("no panic").expect("granted");
    });
}

#[test]
fn close_ends_the_record_locks_of_the_process_and_of_no_other() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (one, _) = both(&cluster);
    let path = cluster.at(1, "f");
    // Closes of read-only descriptors that are older than the first lock on a file are not known in time (docs/posix.md).
    let first = file::open(&cluster.at(1, "f"));
    try_record(&first, SHARED, 0, 1).expect("free");
    drop(first);
    // Any descriptor of the file releases them, also a read-only one; locks of open file descriptions stay.
    let mut holder = steps(&["fcntl,f,ex,0,10", "ofd,f,ex,50,10", "close,g", "stay"]);
    holder.insert(0, format!("read,g,{}", path.display()));
    holder.insert(0, open_step(&path));
    let holder = locker(&cluster, "holder", &holder);
    let other = steps(&["fcntl,f,sh,20,10", "stay"]);
    let other = locker(&cluster, "other", &[vec![open_step(&path)], other].concat());
    said(&holder, "4 close: ok");
    said(&other, "1 fcntl: ok");
    try_record(&one, EXCLUSIVE, 0, 10).expect("freed by the close");
    assert_eq!(errno(try_record(&one, EXCLUSIVE, 20, 10)), Errno::EAGAIN);
    assert_eq!(errno(try_record(&one, EXCLUSIVE, 50, 10)), Errno::EAGAIN);
    // The end of a process closes its files.
    other.kill9();
    try_record(&one, EXCLUSIVE, 20, 10).expect("freed by its end");
    holder.kill9();
    wait_record(&one, EXCLUSIVE, 50, 10).expect("freed by the last close");
}

#[test]
fn locks_of_open_file_descriptions_are_not_the_processs() {
    needs_mount!();
    let cluster = Cluster::start(1, 1);
    file::write(&cluster.at(0, "f"), [0; 100]);
    let (one, two) = (
        file::open(&cluster.at(0, "f")),
        file::open(&cluster.at(0, "f")),
    );
    let ofd = |file: &File, mode| record(file, libc::F_OFD_SETLK, lock(mode, 0, 10));
    ofd(&one, EXCLUSIVE).expect("free");
    assert_eq!(errno(ofd(&two, SHARED)), Errno::EAGAIN);
    assert_eq!(errno(try_record(&two, SHARED, 0, 10)), Errno::EAGAIN);
    // The process closes the file through another descriptor: that has no effect.
    drop(file::open(&cluster.at(0, "f")));
    assert_eq!(errno(ofd(&two, SHARED)), Errno::EAGAIN);
    drop(one);
    record(&two, libc::F_OFD_SETLKW, lock(EXCLUSIVE, 0, 10)).expect("freed by the last close");
}

#[test]
fn a_selection_has_locks_of_its_own() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    create(&cluster.at(0, "a"), "10,10", "u1", &[]);
    let part = |who| file::open(&named(&cluster.at(who, "a"), "@[0:5]"));
    let (one, two) = (part(0), part(1));
    try_record(&one, EXCLUSIVE, 0, 10).expect("free");
    assert_eq!(errno(try_record(&two, EXCLUSIVE, 0, 10)), Errno::EAGAIN);
    let all = file::open(&cluster.at(1, "a"));
    try_record(&all, EXCLUSIVE, 0, 10).expect("another file to programs");
}

#[test]
fn a_mount_that_dies_lets_go_of_its_locks() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 2);
    let (_, two) = both(&cluster);
    let path = cluster.at(0, "f");
    let holder = [
        vec![open_step(&path)],
        steps(&["fcntl,f,ex,0,10", "flock,f,ex", "stay"]),
    ];
    let holder = locker(&cluster, "holder", &holder.concat());
    said(&holder, "2 flock: ok");
    cluster.kill_mount(0);
    assert_eq!(errno(try_record(&two, SHARED, 0, 10)), Errno::EAGAIN);
    wait_record(&two, EXCLUSIVE, 0, 10).expect("when the session is over");
    flock(&two, libc::LOCK_EX | libc::LOCK_NB).expect("all at once");
    holder.kill9();
}

#[test]
fn locks_outlive_the_metadata_server() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 2);
    let (one, two) = both(&cluster);
    for round in 0..2 {
        try_record(&one, EXCLUSIVE, 0, 10).expect("free");
        flock(&one, libc::LOCK_EX).expect("free");
        std::thread::scope(|scope| {
            // Waits in the first epoch, and gets the lock in the second.
            let waiter = scope.spawn(|| wait_record(&two, SHARED, 0, 5));
            waiting(&cluster.mnt(1), 1);
            if round == 0 {
                cluster.kill_md();
            } else {
                cluster.stop_md();
            }
            cluster.start_md();
            assert_eq!(errno(try_record(&two, EXCLUSIVE, 5, 5)), Errno::EAGAIN);
            assert_eq!(
                errno(flock(&two, libc::LOCK_SH | libc::LOCK_NB)),
                Errno::EWOULDBLOCK
            );
            try_record(&two, EXCLUSIVE, 20, 5).expect("free");
            try_record(&one, NONE, 0, 0).expect("released");
            waiter.join().expect("no panic").expect("granted");
        });
        try_record(&two, NONE, 0, 0).expect("released");
        flock(&one, libc::LOCK_UN).expect("released");
    }
}

#[test]
fn a_mount_stops_cleanly_while_a_process_waits() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 2);
    let (one, _) = both(&cluster);
    try_record(&one, EXCLUSIVE, 0, 10).expect("free");
    let path = cluster.at(1, "f");
    let waiter = locker(
        &cluster,
        "waiter",
        &[open_step(&path), "fcntl,f,ex,0,10".to_owned()],
    );
    waiting(&cluster.mnt(1), 1);
    let (status, log) = cluster.end_mount(1);
    assert_eq!(status, 0, "{log}");
    waiter.wait();
    assert!(waiter.out().contains("1 fcntl: E"), "{}", waiter.out());
}

/// Many locks from both mounts, half of them released by closing only.
#[test]
fn a_contended_lock_has_one_holder_at_a_time() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    file::write(&cluster.at(0, "lock"), [0; 10]);
    let held = std::sync::atomic::AtomicI32::new(0);
    std::thread::scope(|scope| {
        for who in [0, 1, 0, 1] {
            let (cluster, held) = (&cluster, &held);
            scope.spawn(move || {
                for round in 0..50 {
                    let file = file::open(&cluster.at(who, "lock"));
                    flock(&file, libc::LOCK_EX).expect("granted");
                    let others = held.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    assert_eq!(others, 0, "two at once");
                    held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    if round % 2 == 0 {
                        flock(&file, libc::LOCK_UN).expect("released");
                    }
                }
            });
        }
    });
}

/// A mount that is stopped keeps its locks as long as its session is valid.
#[test]
fn a_signal_to_the_mount_loses_no_lock() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (one, two) = both(&cluster);
    try_record(&one, EXCLUSIVE, 0, 10).expect("free");
    cluster.mount(0).signal(Signal::SIGSTOP);
    assert_eq!(errno(try_record(&two, EXCLUSIVE, 0, 10)), Errno::EAGAIN);
    cluster.mount(0).signal(Signal::SIGCONT);
    try_record(&one, NONE, 0, 10).expect("released");
    wait_record(&two, EXCLUSIVE, 0, 10).expect("free");
}

/// Data read under a lock that was lost with the session cannot be written back.
#[test]
fn a_lost_lock_is_reported_to_its_holder() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (one, two) = both(&cluster);
    let with_it = file::open(&cluster.at(0, "f"));
    try_record(&one, EXCLUSIVE, 0, 10).expect("free");
    one.write_all_at(b"100", 0).expect("written");
    one.sync_all().expect("synced");
    cluster.mount(0).signal(Signal::SIGSTOP);
    wait_record(&two, EXCLUSIVE, 0, 10).expect("the session of the other is over");
    two.write_all_at(b"150", 0).expect("written");
    two.sync_all().expect("synced");
    try_record(&two, NONE, 0, 10).expect("released");
    cluster.mount(0).signal(Signal::SIGCONT);
    assert_eq!(errno(one.write_all_at(b"101", 0)), Errno::EIO);
    let mut bytes = [0; 3];
    assert_eq!(errno(one.read_exact_at(&mut bytes, 0)), Errno::EIO);
    // A process without a lock has lost none.
    with_it.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(&bytes, b"150");
    try_record(&one, EXCLUSIVE, 0, 10).expect("free");
    one.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(&bytes, b"150");
    one.write_all_at(b"151", 0).expect("written");
    two.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(&bytes, b"151");
}

/// Events of the next session count from 1 again, in a lock server of the same epoch.
#[test]
fn waiters_of_the_next_session_get_their_locks() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (one, two) = both(&cluster);
    let contend = || {
        try_record(&two, EXCLUSIVE, 0, 10).expect("free");
        std::thread::scope(|threads| {
            let waiter = threads.spawn(|| wait_record(&one, EXCLUSIVE, 0, 10));
            waiting(&cluster.mnt(0), 1);
            try_record(&two, NONE, 0, 10).expect("released");
            waiter.join().expect("joined").expect("granted");
        });
        try_record(&one, NONE, 0, 10).expect("released");
    };
    for _ in 0..3 {
        contend();
    }
    try_record(&one, EXCLUSIVE, 0, 10).expect("free");
    cluster.mount(0).signal(Signal::SIGSTOP);
    wait_record(&two, EXCLUSIVE, 0, 10).expect("the session of the other is over");
    try_record(&two, NONE, 0, 10).expect("released");
    cluster.mount(0).signal(Signal::SIGCONT);
    poll::until_true("the other to be attached again", || {
        try_record(&one, EXCLUSIVE, 0, 10).is_ok()
    });
    try_record(&one, NONE, 0, 10).expect("released");
    contend();
}

/// Nor through a view, whose bytes are sent as batches.
#[test]
fn a_lost_lock_is_reported_through_a_view() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (one, two) = both(&cluster);
    one.write_all_at(b"..100", 0).expect("written");
    one.sync_all().expect("synced");
    set_view(cluster.area(), &one, 2, 3);
    try_record(&one, EXCLUSIVE, 0, 10).expect("free");
    let mut bytes = [0; 3];
    one.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(&bytes, b"100");
    cluster.mount(0).signal(Signal::SIGSTOP);
    wait_record(&two, EXCLUSIVE, 0, 10).expect("the session of the other is over");
    two.write_all_at(b"150", 2).expect("written");
    two.sync_all().expect("synced");
    try_record(&two, NONE, 0, 10).expect("released");
    cluster.mount(0).signal(Signal::SIGCONT);
    assert_eq!(errno(one.write_all_at(b"101", 0)), Errno::EIO);
    assert_eq!(errno(one.read_exact_at(&mut bytes, 0)), Errno::EIO);
    try_record(&one, EXCLUSIVE, 0, 10).expect("free");
    one.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(&bytes, b"150");
    one.write_all_at(b"151", 0).expect("written");
    let mut all = [0; 5];
    two.read_exact_at(&mut all, 0).expect("read");
    assert_eq!(&all, b"..151");
}

#[test]
fn holders_and_waiters_are_listed() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (one, _two) = both(&cluster);
    let list = |path: &Path| slabfs([OsStr::new("locks"), path.as_os_str()]).ok();
    assert_eq!(list(&cluster.mnt(0)).text(), "no locks\n");
    try_record(&one, EXCLUSIVE, 10, 10).expect("free");
    let path = cluster.at(1, "f");
    let steps = [open_step(&path), "fcntl,f,sh,15,5".to_owned()];
    let waits = locker(&cluster, "waiter", &steps);
    waiting(&cluster.mnt(1), 1);
    let shown = list(&cluster.at(0, "f"));
    let lines: Vec<String> = shown
        .text()
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let host = nix::unistd::gethostname().expect("a name");
    let host = host.to_string_lossy();
    let holder = format!("holds {host} {} system", std::process::id());
    assert!(lines[1].starts_with(&holder), "{lines:?}");
    assert!(lines[1].contains("fcntl exclusive 10-19"), "{lines:?}");
    assert!(lines[1].ends_with(" f"), "{lines:?}");
    let waiter = format!("waits {host} {} python3 fcntl shared 15-19", waits.pid());
    assert!(lines[2].starts_with(&waiter), "{lines:?}");
    // From the other mount the same; of another file none.
    let there = cluster.mnt(1);
    let line = [OsStr::new("locks"), there.as_os_str(), OsStr::new("--json")];
    let json = slabfs(line).ok().json();
    assert_eq!(json["left"], 0);
    assert_eq!(json["locks"].as_array().map(Vec::len), Some(2), "{json}");
    assert_eq!(json["locks"][1]["waits"], true);
    assert_eq!(json["locks"][1]["path"], "f");
    file::write(&cluster.at(0, "g"), [0; 4]);
    assert_eq!(list(&cluster.at(0, "g")).text(), "no locks\n");
    try_record(&one, NONE, 0, 0).expect("released");
    said(&waits, "1 fcntl: ok");
}
