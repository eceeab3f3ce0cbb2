//! Looking for the next request for a moment before sleeping (`Config::busy_poll`).
//!
//! A program that makes files, or looks at them, one after the other waits for each answer: the event loop
//! and the program put each other to sleep and wake each other for each request, and a processor that has
//! nothing else to do meanwhile goes idle. On a virtual machine waking an idle processor takes longer
//! than all the rest of such a request.
//!
//! An event loop looks only
//! - after a row of requests about names and attributes of one and the same thread of a program, whichever loops
//!   they came to: with several at work there is mostly a request waiting, and for data others may be at work
//!   on the answer;
//! - while no more than [`MOST`] loops of the session look;
//! - giving its processor away between two looks to whoever else can use it, and not again for long once
//!   it came back late: then there is somebody who can.
//!
//! What it looked for in vain it does not look for the next times, up to [`MOST_SKIPPED`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::channel::Channel;
use crate::ll::fuse_abi::fuse_opcode;

/// Event loops that look at the same time.
const MOST: u32 = 2;
/// Requests of one thread after which it is worth looking.
const ROW: u32 = 8;
/// Requests for which a loop does not look after it has looked in vain several times.
const MOST_SKIPPED: u32 = 64;
/// A processor that was given away for so long is needed by others.
const LATE: Duration = Duration::from_micros(200);
/// Requests for which a loop does not look after that, the first time and at most.
const LATE_SKIPPED: (u32, u32) = (256, 1 << 16);

/// What the event loops of a session know together. It need not be exact.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// How many look.
    looking: AtomicU32,
    /// Whose the last requests were (the upper half), and how many in a row.
    row: AtomicU64,
}

/// What an event loop knows.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    window: Duration,
    shared: Arc<Shared>,
    /// The descriptor does not block now.
    nonblocking: bool,
    /// For so many requests it does not look.
    skip: u32,
    /// How many it skips when it looks in vain again, and when it comes back late again.
    in_vain: u32,
    late: u32,
}

impl BusyPoll {
    /// Of a loop that looks for at most `window`; `shared` is that of all loops of a session.
    pub(crate) fn new(window: Duration, shared: Arc<Shared>) -> Self {
        Self {
            window,
            shared,
            nonblocking: false,
            skip: 0,
            in_vain: 1,
            late: LATE_SKIPPED.0,
        }
    }

    /// The next request. The channel's descriptor has to be the loop's own.
    pub(crate) fn receive(&mut self, ch: &Channel, buffer: &mut [u8]) -> nix::Result<usize> {
        if self.skip == 0 && self.row().1 >= ROW {
            if let Some(found) = self.look(ch, buffer) {
                return found;
            }
        } else {
            self.skip = self.skip.saturating_sub(1);
        }
        self.set_nonblocking(ch, false)?;
        ch.receive_retrying(buffer)
    }

    /// Notes what a request was.
    pub(crate) fn note(&self, opcode: u32, pid: u32) {
        match fuse_opcode::try_from(opcode) {
            // Nobody waits for these.
            Ok(
                fuse_opcode::FUSE_RELEASE
                | fuse_opcode::FUSE_RELEASEDIR
                | fuse_opcode::FUSE_FORGET
                | fuse_opcode::FUSE_BATCH_FORGET,
            ) => {}
            Ok(opcode) if is_about_names(&opcode) => {
                let (last, row) = self.row();
                match last == pid {
                    true if row >= ROW => {}
                    true => self.set_row(pid, row + 1),
                    false => self.set_row(pid, 0),
                }
            }
            _ => self.set_row(pid, 0),
        }
    }

    /// Whose the last requests were, and how many in a row.
    fn row(&self) -> (u32, u32) {
        let row = self.shared.row.load(Ordering::Relaxed);
        ((row >> 32) as u32, row as u32)
    }

    fn set_row(&self, pid: u32, row: u32) {
        let row = u64::from(pid) << 32 | u64::from(row);
        self.shared.row.store(row, Ordering::Relaxed);
    }

    /// Looks for a request, and tells what came of it; `None` when it is time to sleep.
    fn look(&mut self, ch: &Channel, buffer: &mut [u8]) -> Option<nix::Result<usize>> {
        if self.shared.looking.fetch_add(1, Ordering::Relaxed) >= MOST {
            self.shared.looking.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let found = match self.set_nonblocking(ch, true) {
            Ok(()) => self.look_on(ch, buffer),
            Err(error) => Some(Err(error)),
        };
        self.shared.looking.fetch_sub(1, Ordering::Relaxed);
        found
    }

    fn look_on(&mut self, ch: &Channel, buffer: &mut [u8]) -> Option<nix::Result<usize>> {
        let begun = Instant::now();
        loop {
            match ch.receive(buffer) {
                Err(Errno::EAGAIN) => {}
                Err(Errno::ENOENT | Errno::EINTR) => continue,
                found => {
                    self.in_vain = 1;
                    return Some(found);
                }
            }
            let now = Instant::now();
            if now.duration_since(begun) >= self.window {
                self.skip = self.in_vain;
                self.in_vain = (2 * self.in_vain).min(MOST_SKIPPED);
                return None;
            }
            thread::yield_now();
            if now.elapsed() >= LATE {
                self.skip = self.late;
                self.late = (4 * self.late).min(LATE_SKIPPED.1);
                return None;
            }
        }
    }

    fn set_nonblocking(&mut self, ch: &Channel, nonblocking: bool) -> nix::Result<()> {
        if self.nonblocking != nonblocking {
            ch.set_nonblocking(nonblocking)?;
            self.nonblocking = nonblocking;
        }
        Ok(())
    }
}

/// Requests that are answered from memory in most filesystems, as far as they are answered fast.
fn is_about_names(opcode: &fuse_opcode) -> bool {
    matches!(
        opcode,
        fuse_opcode::FUSE_LOOKUP
            | fuse_opcode::FUSE_GETATTR
            | fuse_opcode::FUSE_SETATTR
            | fuse_opcode::FUSE_READLINK
            | fuse_opcode::FUSE_SYMLINK
            | fuse_opcode::FUSE_MKNOD
            | fuse_opcode::FUSE_MKDIR
            | fuse_opcode::FUSE_UNLINK
            | fuse_opcode::FUSE_RMDIR
            | fuse_opcode::FUSE_RENAME
            | fuse_opcode::FUSE_RENAME2
            | fuse_opcode::FUSE_LINK
            | fuse_opcode::FUSE_OPEN
            | fuse_opcode::FUSE_CREATE
            | fuse_opcode::FUSE_FLUSH
            | fuse_opcode::FUSE_ACCESS
            | fuse_opcode::FUSE_GETXATTR
            | fuse_opcode::FUSE_SETXATTR
            | fuse_opcode::FUSE_LISTXATTR
            | fuse_opcode::FUSE_REMOVEXATTR
            | fuse_opcode::FUSE_OPENDIR
            | fuse_opcode::FUSE_READDIR
            | fuse_opcode::FUSE_READDIRPLUS
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKUP: u32 = fuse_opcode::FUSE_LOOKUP as u32;
    const READ: u32 = fuse_opcode::FUSE_READ as u32;
    const RELEASE: u32 = fuse_opcode::FUSE_RELEASE as u32;

    #[test]
    fn a_row_is_of_one_thread_and_about_names() {
        let shared = Arc::new(Shared::default());
        let loops = [0; 2].map(|_| BusyPoll::new(Duration::from_micros(50), shared.clone()));
        for number in 0..=ROW as usize {
            loops[number % 2].note(LOOKUP, 7);
            loops[number % 2].note(RELEASE, 0);
        }
        assert_eq!(loops[0].row(), (7, ROW));
        loops[1].note(LOOKUP, 8);
        assert_eq!(loops[0].row(), (8, 0));
        loops[0].note(LOOKUP, 8);
        loops[1].note(READ, 8);
        assert_eq!(loops[0].row(), (8, 0));
    }
}
