//! Requests that come through `io_uring`, where that differs from `/dev/fuse`: a request keeps an entry of its processor's
//! queue until it is answered. These run where `SLABFS_TEST_IO_URING` is 1, and then all other tests mount so too.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Barrier;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use slabfs_tests::file;
use slabfs_tests::tool::{program, stats};
use slabfs_tests::{Cluster, Service, Up, inputs, needs_mount, poll, rings};

/// Ends the test where mounts do not take requests from there.
macro_rules! needs_rings {
    () => {
        needs_mount!();
        if !rings::wanted() {
            return;
        }
        assert!(rings::offered(), "the kernel does not offer it");
    };
}

/// More than a queue begins with.
const MANY: usize = 24;

/// A process that takes locks, on the first processor, so that all of them ask the same queue.
fn locker(cluster: &Cluster, name: &str, steps: &[&str]) -> Service {
    let mut command = Command::new("taskset");
    command.args(["-c", "0", "python3"]);
    command.arg(inputs::script("locker.py")).args(steps);
    Service::start_command(cluster.area().path(), name, command)
}

fn said(locker: &Service, line: &str) {
    poll::until_true(line, || locker.out().lines().any(|said| said == line));
}

#[test]
fn a_mount_takes_requests_from_there_unless_told_otherwise() {
    needs_mount!();
    let mut up = Up::start();
    let bytes = vec![1; 3 << 20];
    file::write(&up.at("x"), &bytes);
    assert!(file::read(&up.at("x")) == bytes);
    let used = rings::used_by(up.service().pid());
    assert_eq!(used, rings::wanted() && rings::offered());
}

#[test]
fn more_wait_for_locks_than_a_queue_begins_with() {
    needs_rings!();
    let cluster = Cluster::start(1, 1);
    file::write(&cluster.at(0, "f"), [0; 10]);
    let open = format!("open,f,{}", cluster.at(0, "f").display());
    let holder = locker(&cluster, "holder", &[&open, "fcntl,f,ex,0,0", "stay"]);
    said(&holder, "1 fcntl: ok");
    let waiters: Vec<_> = (0..MANY)
        .map(|i| {
            let steps: &[&str] = &[&open, "fcntl,f,ex,0,0", "fcntl,f,un,0,0", "stay"];
            locker(&cluster, &format!("waiter{i}"), steps)
        })
        .collect();
    poll::until_true("all of them wait", || {
        stats(&cluster.mnt(0))["locks_waiting"] == MANY
    });
    // A waiter that is killed goes at once, and others ask and are answered meanwhile.
    let mut waiters = waiters.into_iter();
    waiters.next().expect("one of many").kill9();
    program(
        "taskset",
        ["-c", "0", "ls", &cluster.mnt(0).display().to_string()],
    )
    .ok();
    holder.kill9();
    for waiter in waiters {
        said(&waiter, "2 fcntl: ok");
        waiter.kill9();
    }
}

#[test]
fn an_end_does_not_wait_for_those_who_wait() {
    needs_rings!();
    let mut cluster = Cluster::start(1, 1);
    file::write(&cluster.at(0, "f"), [0; 10]);
    let open = format!("open,f,{}", cluster.at(0, "f").display());
    let holder = locker(&cluster, "holder", &[&open, "fcntl,f,ex,0,0", "stay"]);
    said(&holder, "1 fcntl: ok");
    let waiters: Vec<_> = (0..MANY)
        .map(|i| {
            locker(
                &cluster,
                &format!("waiter{i}"),
                &[&open, "fcntl,f,ex,0,0", "stay"],
            )
        })
        .collect();
    poll::until_true("all of them wait", || {
        stats(&cluster.mnt(0))["locks_waiting"] == MANY
    });
    cluster.kill_mount(0);
    for waiter in waiters {
        poll::until_true("it is told", || {
            waiter
                .out()
                .lines()
                .any(|line| line.starts_with("1 fcntl: E"))
        });
        waiter.kill9();
    }
    cluster.start_mount(0);
    file::write(&cluster.at(0, "g"), [1; 10]);
    holder.kill9();
}

/// Asks for a lock of the open file itself, so that threads stand in each other's way.
fn lock(file: &File, mode: i32) {
    let lock = libc::flock {
        l_type: mode as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the pointer is to a lock that outlives the call.
    let locked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &raw const lock) };
    assert_eq!(locked, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn more_ask_at_the_same_moment_than_a_queue_has_entries() {
    needs_rings!();
    let cluster = Cluster::start(1, 1);
    let path = cluster.at(0, "f");
    file::write(&path, [0; 10]);
    let holder = file::open(&path);
    lock(&holder, libc::F_WRLCK);
    let files: Vec<File> = (0..100).map(|_| file::open(&path)).collect();
    let together = Barrier::new(files.len());
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| {
                let mut first = CpuSet::new();
                first.set(0).expect("a processor");
                sched_setaffinity(Pid::from_raw(0), &first).expect("may run there");
                together.wait();
                lock(file, libc::F_WRLCK);
                lock(file, libc::F_UNLCK);
            });
        }
        poll::until_true("all of them wait", || {
            stats(&cluster.mnt(0))["locks_waiting"] == files.len()
        });
        lock(&holder, libc::F_UNLCK);
    });
}
