//! Overlapping writes without `fsync`, ordered from outside: the next worker has to see the previous writes.
//!
//! Under the promise commit each worker publishes its writes before it lets others continue, and opens again
//! before it reads.

use std::fs::File;
use std::os::fd::AsRawFd;

use super::Desk;
use super::cells::{SIDE, WIDTH, finish, run};
use super::object::Object;
use crate::file::{named, open};
use crate::history::{Answer, Call};

/// Ordered by `fcntl` locks on the cells that are read and written.
pub(super) fn by_locks(desk: &mut Desk) {
    let mut object = Object::open(desk, SIDE, WIDTH);
    // Closing any handle of a file releases the process's locks on it, so where handles are closed all the time
    // the locks are on another file.
    let lock = if desk.commits() {
        open(&named(&desk.task.object, ".lock"))
    } else {
        object.file().try_clone().expect("a second descriptor")
    };
    let locks = format!("{}.lock", desk.name());
    for _ in 0..desk.task.operations / 4 {
        let (from, to) = run(desk);
        let (first, len) = (from * WIDTH as u64, (to - from) * WIDTH as u64);
        let (exclusive, wait) = (!desk.random.one_in(4), !desk.random.one_in(4));
        let call = Call::Lock {
            first,
            len,
            exclusive,
            wait,
        };
        let mode = if exclusive {
            libc::F_WRLCK
        } else {
            libc::F_RDLCK
        };
        let command = if wait { libc::F_SETLKW } else { libc::F_SETLK };
        let held = desk.note(&locks, call, || record(&lock, command, mode, first, len));
        if held != Answer::Done {
            continue;
        }
        object.renew(desk);
        object.read(desk, from, to);
        if exclusive {
            object.write(desk, from, to);
            object.settle(desk);
        }
        desk.note(&locks, Call::Unlock, || {
            record(&lock, libc::F_SETLK, libc::F_UNLCK, 0, 0)
        });
    }
    finish(desk, &mut object);
}

/// Ordered by messages: a worker writes and notifies the next, which reads, writes and notifies.
pub(super) fn by_messages(desk: &mut Desk) {
    let mut object = Object::open(desk, SIDE, WIDTH);
    let others = u64::from(desk.task.processes);
    let mut step = 0;
    for _ in 0..desk.task.operations / 2 {
        let next = (step + desk.common.range(1, others) as u32) % desk.task.processes;
        if step == desk.task.process {
            object.renew(desk);
            object.read(desk, 0, SIDE * SIDE);
            let (from, to) = run(desk);
            object.write(desk, from, to);
            object.settle(desk);
            desk.peers.notify(next);
        } else if next == desk.task.process {
            desk.peers.hear();
        }
        step = next;
    }
    finish(desk, &mut object);
}

/// Ordered by barriers: one worker writes after the other, and in between all read.
pub(super) fn by_barriers(desk: &mut Desk) {
    let mut object = Object::open(desk, SIDE, WIDTH);
    for _ in 0..desk.task.operations / 4 {
        let writer = desk.common.range(0, u64::from(desk.task.processes)) as u32;
        if writer == desk.task.process {
            let (from, to) = run(desk);
            object.write(desk, from, to);
            object.settle(desk);
        }
        desk.peers.barrier();
        object.renew(desk);
        object.read(desk, 0, SIDE * SIDE);
        desk.peers.barrier();
    }
    finish(desk, &mut object);
}

fn record(file: &File, command: i32, mode: i32, first: u64, len: u64) -> std::io::Result<Answer> {
    let mut lock = libc::flock {
        l_type: mode as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: first as i64,
        l_len: len as i64,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the pointer is to a lock that outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(Answer::Done),
    }
}
