//! Getlk: `fcntl` asks for a lock that conflicts with a given one.
//!
//! The conflicting process is reported by its id if its lock was taken through this mount. On another mount, perhaps on
//! another machine, the id would denote another process here, so 0 is reported.

use std::sync::Arc;

use fuser::{Errno, ReplyLock};
use slabfs_mdserver::api::{LockConflict, LockMode, LockTicket, LockWant};

use super::setlk::Wanted;
use crate::client::Locked;
use crate::mount::errno::report;
use crate::mount::shared::Shared;

/// The last byte that the kernel accepts in a reply.
const LAST: u64 = i64::MAX as u64;

/// Asks the lock server, and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    (request, ticket): (u64, LockTicket),
    inode: u64,
    handle: u64,
    wanted: Wanted,
    reply: ReplyLock,
) {
    let asked = shared
        .handles
        .get(handle)
        .ok_or(Errno::EBADF)
        .and_then(|open| {
            let mode = wanted.mode()?.ok_or(Errno::EINVAL)?;
            wanted.ask(&open, LockWant::Test(mode), ticket)
        });
    let (ask, open) = match asked {
        Ok(asked) => asked,
        Err(errno) => {
            shared.interrupts.leave(request);
            return reply.error(errno);
        }
    };
    let then = {
        let shared = shared.clone();
        move |result| {
            shared.interrupts.leave(request);
            match result {
                Ok(Locked::Done | Locked::Free | Locked::Deadlock | Locked::TooMany) => {
                    reply.locked(0, 0, libc::F_UNLCK, 0);
                }
                Ok(Locked::Held(conflict)) => show(&shared, &conflict, reply),
                Ok(Locked::Interrupted) => reply.error(Errno::EINTR),
                Err(error) => {
                    let error: slabfs_mdserver::api::MdError = error;
                    reply.error(report("getlk", inode, &error.into()));
                }
            }
        }
    };
    shared.client.lock(ask, open, Box::new(then));
}

fn show(shared: &Shared, conflict: &LockConflict, reply: ReplyLock) {
    let typ = match conflict.mode {
        LockMode::Shared => libc::F_RDLCK,
        LockMode::Exclusive => libc::F_WRLCK,
    };
    let here = conflict.session == shared.client.md().session();
    let pid = if here { conflict.pid } else { 0 };
    let span = conflict.span;
    reply.locked(span.first.min(LAST), span.last.min(LAST), typ, pid);
}
