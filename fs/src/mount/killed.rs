//! Ends requests of programs that are killed while they wait.
//!
//! The kernel does not let a thread end until its request is answered, even if the thread was killed. Where a request
//! waits for a service that is down, that may be minutes (`io_timeout`). So a thread of the mount periodically looks
//! for requests that have waited for longer than [`PATIENCE`] and whose senders are being killed, and answers them with
//! `EINTR`, which no program sees. The kernel's interrupts are not enough: it sends one for the first signal only,
//! which may be one that does not kill, and none for the `flush` with which a killed process closes its files.
//!
//! The operation itself continues, like one whose reply is lost: it may be done later, or not at all, and earlier
//! writes of the program are retained and written. Invariants:
//!
//! - A request is answered once: by the thread that removes it from fuser's table.
//! - What a late answer would have given the kernel is taken back: handles of `open` and `create`, lookups of virtual
//!   nodes. (Sending such a reply returns false.)
//! - A lock that is granted too late belongs to the file, not only to the dead process: a process that shares the open
//!   file may have had it before. It ends when the file or the process's descriptor is closed, or at once if that has
//!   happened already ([`abandon_lock`](crate::client::Client::abandon_lock)).
//! - The kernel releases a file when its requests are answered, not when they are done (`open_file.rs`).
//! - The kernel assumes that the request failed. After a late answer it drops its cached names and attributes, if it
//!   caches any ([`Shared::answered_late`]).
//! - Nothing is ended within [`PATIENCE`]: while the services are up, the last operation of a killed program is done
//!   when the program is gone, as with other filesystems.
//! - Pages that the kernel writes back have no sender (their requests have no thread), and are never ended.
//!
//! Not ended, since the kill is not visible, or since data would be lost:
//!
//! - requests of a thread whose id is not visible here, in a container that does not share its PID namespace with the
//!   mount;
//! - requests of a process that is already exiting normally and waits for its files to be written: the kernel does not
//!   deliver signals to it;
//! - the closes of another user's killed process that the mount's user may not trace;
//! - asynchronous I/O whose thread has ended before its process;
//! - pages of mappings, for which an exiting process waits in the kernel.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuser::{Errno, WaitingRequests};
use parking_lot::{Condvar, Mutex};

use crate::call::caller::line;

use super::shared::Shared;

/// The least age at which a request is ended while its sender is being killed.
const PATIENCE: Duration = Duration::from_secs(1);
/// The interval between two checks.
const LOOK: Duration = Duration::from_millis(500);
/// The interval while programs are exiting: each of their open files may be one more request.
const LOOK_SOON: Duration = Duration::from_millis(20);
/// Checks take at most this fraction (one in `SHARE`) of a processor's time.
const SHARE: u32 = 20;

/// The thread that checks; it ends when this is dropped.
pub(super) struct Watch {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts checking the requests of a mount.
    pub(super) fn start(waiting: WaitingRequests, shared: &Arc<Shared>) -> io::Result<Watch> {
        let of = Arc::downgrade(shared);
        let late = of.clone();
        waiting.when_late(move |_| {
            if let Some(shared) = late.upgrade() {
                shared.answered_late();
            }
        });
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("slabfs-killed".to_string())
            .spawn(move || look(&waiting, &of, &stopped))?;
        let thread = Some(thread);
        Ok(Watch { stop, thread })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that looks for killed programs panicked");
        }
    }
}

fn look(waiting: &WaitingRequests, mount: &Weak<Shared>, (stop, changed): &(Mutex<bool>, Condvar)) {
    // Threads of which a request was ended: they are exiting, and their other requests need not wait.
    let mut going = HashSet::new();
    let mut pause = LOOK;
    let mut stopped = stop.lock();
    while !*stopped {
        let woken = changed.wait_for(&mut stopped, pause);
        if !woken.timed_out() {
            continue;
        }
        drop(stopped);
        let began = Instant::now();
        let Some(shared) = mount.upgrade() else {
            return;
        };
        end_those_of_killed(waiting, &shared, &mut going);
        drop(shared);
        let often = if going.is_empty() { LOOK } else { LOOK_SOON };
        pause = often.max(began.elapsed() * SHARE);
        stopped = stop.lock();
    }
}

fn end_those_of_killed(waiting: &WaitingRequests, shared: &Shared, going: &mut HashSet<u32>) {
    going.retain(|&thread| is_killed(thread));
    let age = match going.is_empty() {
        true => PATIENCE,
        false => Duration::ZERO,
    };
    for request in waiting.older_than(age) {
        let thread = request.pid;
        let known = going.contains(&thread);
        if thread == 0 || !known && request.since.elapsed() < PATIENCE || !is_killed(thread) {
            continue;
        }
        // Before its process can close the file.
        if let Some(ticket) = shared.interrupts.ticket(request.unique.0) {
            shared.client.abandon_lock(ticket);
        }
        if waiting.end(request.unique, Errno::EINTR) {
            tracing::debug!(thread, request = request.unique.0, "killed while it waited");
            going.insert(thread);
        }
    }
}

/// Whether a thread is being killed: it is exiting because of a signal, or a fatal signal is pending.
fn is_killed(thread: u32) -> bool {
    let of = |what: &str| std::fs::read(format!("/proc/{thread}/{what}"));
    match (of("stat"), of("status")) {
        (Ok(stat), Ok(status)) => {
            let known = ends_by_signal(&stat).zip(awaits_its_end(&status));
            let (ends, awaits) = known.unwrap_or_else(|| {
                tracing::error!(thread, "cannot parse the stat or status of a thread");
                (false, false)
            });
            ends || awaits
        }
        // The thread is gone.
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// Signals whose default action does not end a process.
const HARMLESS: u64 = {
    let harmless = [
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGURG,
        libc::SIGWINCH,
    ];
    let (mut set, mut at) = (0, 0);
    while at < harmless.len() {
        set |= 1 << (harmless[at] - 1);
        at += 1;
    }
    set
};

/// Whether a signal is pending for the thread or its process that will end the process. Reads the text of its `status`
/// (proc_pid_status(5)); `None` if that has another format. The kernel makes the first such signal a SIGKILL for
/// each thread, but not one that arrives when another signal is pending already.
fn awaits_its_end(status: &[u8]) -> Option<bool> {
    let status = String::from_utf8_lossy(status);
    let set = |name: &str| u64::from_str_radix(line(&status, name), 16).ok();
    let pending = set("SigPnd:")? | set("ShdPnd:")?;
    let spared = set("SigBlk:")? | set("SigIgn:")? | set("SigCgt:")?;
    Some(pending & !spared & !HARMLESS != 0)
}

/// Whether the thread is exiting because of a signal. Reads the text of its `stat` (proc_pid_stat(5)); `None` if that
/// has another format.
fn ends_by_signal(stat: &[u8]) -> Option<bool> {
    const EXITING: u64 = 0x4;
    let name_ends = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&stat[name_ends + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first field after the name is the third.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let (flags, exit_code) = (number(9)?, number(52)?);
    // A zombie, or a dead thread, has no requests.
    let ended = matches!(*fields.first()?, "Z" | "X");
    Some(!ended && flags & EXITING != 0 && exit_code & 0x7f != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    /// A line as the kernel writes it, with the fields that are checked.
    fn stat(name: &str, state: char, flags: u64, exit_code: u64) -> Vec<u8> {
        format!(
            "77 ({name}) {state} 1 77 77 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 5 4096 10 18446744073709551615 1 1 0 0 \
             0 0 0 4096 0 1 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 {exit_code}\n"
        )
        .into_bytes()
    }

    #[test]
    fn a_thread_that_exits_by_a_signal_is_killed() {
        assert_eq!(ends_by_signal(&stat("cat", 'D', 0x40_0000, 0)), Some(false));
        assert_eq!(ends_by_signal(&stat("cat", 'D', 0x40_0004, 9)), Some(true));
        // With a core dump.
        assert_eq!(
            ends_by_signal(&stat("cat", 'D', 0x40_0004, 0x80 | 11)),
            Some(true)
        );
        // A normal exit with a status.
        assert_eq!(
            ends_by_signal(&stat("cat", 'D', 0x40_0004, 3 << 8)),
            Some(false)
        );
        // Stopped by a tracer: the code is that of the stop.
        assert_eq!(ends_by_signal(&stat("cat", 'D', 0x40_0000, 5)), Some(false));
        // A zombie.
        assert_eq!(ends_by_signal(&stat("cat", 'Z', 0x40_0004, 9)), Some(false));
    }

    #[test]
    fn a_thread_with_a_fatal_pending_signal_is_killed() {
        let status = |own: u64, shared: u64, blocked: u64, ignored: u64, caught: u64| {
            let text = format!(
                "Name:\tcat\nSigQ:\t0/1\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n\
                 SigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
            );
            awaits_its_end(text.as_bytes())
        };
        let of = |signal: i32| 1u64 << (signal - 1);
        let (term, stop) = (of(libc::SIGTERM), of(libc::SIGTSTP));
        assert_eq!(status(0, 0, 0, 0, 0), Some(false));
        assert_eq!(status(of(libc::SIGKILL), 0, 0, 0, 0), Some(true));
        assert_eq!(status(0, term | stop, 0, 0, 0), Some(true));
        assert_eq!(status(0, of(libc::SIGQUIT), 0, 0, 0), Some(true));
        assert_eq!(status(0, stop | of(libc::SIGCHLD), 0, 0, 0), Some(false));
        assert_eq!(status(0, term, term, 0, 0), Some(false));
        assert_eq!(status(0, term, 0, term, 0), Some(false));
        assert_eq!(status(0, term, 0, 0, term), Some(false));
        assert_eq!(awaits_its_end(b"Name:\tcat\n"), None);
    }

    #[test]
    fn names_of_programs_are_not_trusted() {
        for name in ["a) D 1 2", "((", "x )", "\u{e4}"] {
            assert_eq!(
                ends_by_signal(&stat(name, 'D', 0x4, 9)),
                Some(true),
                "{name}"
            );
        }
        assert_eq!(ends_by_signal(b"77 \xff) D 1"), None);
        assert_eq!(ends_by_signal(b""), None);
    }

    #[test]
    fn the_files_of_this_kernel_are_parsed() {
        let of = |what: &str| std::fs::read(format!("/proc/self/{what}")).unwrap();
        assert_eq!(ends_by_signal(&of("stat")), Some(false));
        assert_eq!(awaits_its_end(&of("status")), Some(false));
        assert!(!is_killed(std::process::id()));
        let mut child = Command::new("sleep")
            .arg("1000")
            .process_group(0)
            .spawn()
            .unwrap();
        assert!(!is_killed(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_killed(child.id()));
    }
}
