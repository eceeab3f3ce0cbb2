//! Requests that come through `io_uring`, where that differs from `/dev/fuse`: a request keeps an entry of its processor's
//! queue until it is answered. These run where `SLABFS_TEST_IO_URING` is 1, and then all other tests mount so too.

use std::process::Command;

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
    let used = rings::used_by(up.service().pid());
    assert_eq!(used, rings::wanted() && rings::offered());
    let bytes = vec![1; 3 << 20];
    file::write(&up.at("x"), &bytes);
    assert!(file::read(&up.at("x")) == bytes);
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
