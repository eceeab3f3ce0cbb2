//! Getlk: `fcntl` asks for a lock that conflicts with a given one.
//!
//! The conflicting process is reported by its id if its lock was taken through this mount. On another mount, perhaps on
//! another machine, the id would denote another process here, so 0 is reported.

use std::sync::Arc;

use fuser::{Errno, ReplyLock};
use slabfs_mdserver::api::{LockConflict, LockMode, LockTicket, LockWant};

use super::setlk::{Wanted, ask};
use crate::client::Locked;
use crate::mount::shared::Shared;

/// The last byte that the kernel accepts in a reply.
const LAST: u64 = i64::MAX as u64;

/// Asks the lock server, and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    number: (u64, LockTicket),
    file: (u64, u64),
    wanted: Wanted,
    reply: ReplyLock,
) {
    let want = |mode: Option<LockMode>| mode.map(LockWant::Test).ok_or(Errno::EINVAL);
    let mount = shared.clone();
    ask(
        shared,
        ("getlk", number),
        file,
        wanted,
        want,
        move |decided| match decided {
            Ok(Locked::Done | Locked::Free | Locked::Deadlock | Locked::TooMany) => {
                reply.locked(0, 0, libc::F_UNLCK, 0);
            }
            Ok(Locked::Held(conflict)) => show(&mount, &conflict, reply),
            Ok(Locked::Interrupted) => reply.error(Errno::EINTR),
            Err(errno) => reply.error(errno),
        },
    );
}

fn show(shared: &Shared, conflict: &LockConflict, reply: ReplyLock) {
    let typ = match conflict.mode {
        LockMode::Shared => libc::F_RDLCK,
        LockMode::Exclusive => libc::F_WRLCK,
    };
    let here = conflict.session == shared.client.names().md().session();
    let pid = if here { conflict.pid } else { 0 };
    let span = conflict.span;
    reply.locked(span.first.min(LAST), span.last.min(LAST), typ, pid);
}
