//! Setlk: `fcntl` and `flock` take, change or release a lock, and wait for it if requested.
//!
//! A waiting request is answered when the lock server has decided, from the thread that receives the decision; no
//! thread of the mount waits meanwhile. A signal cancels the request ([`crate::mount::interrupts`]), SIGKILL too. Where
//! the lock server is down, a killed program ends before the decision (`killed.rs`); a lock that is granted after all
//! ends with the file.

use std::sync::Arc;

use fuser::{Errno, LkFlags, LockOwner, ReplyEmpty};
use slabfs_mdserver::api::{
    self, LockAsk, LockKind, LockMode, LockSpan, LockTicket, LockWant, MdError,
};

use crate::client::Locked;
use crate::mount::errno::report;
use crate::mount::open_file::Open;
use crate::mount::shared::Shared;

/// The kernel's lock request.
#[derive(Debug, Clone, Copy)]
pub(in crate::mount) struct Wanted {
    pub(in crate::mount) owner: LockOwner,
    pub(in crate::mount) first: u64,
    pub(in crate::mount) last: u64,
    pub(in crate::mount) typ: i32,
    pub(in crate::mount) pid: u32,
    pub(in crate::mount) flags: LkFlags,
}

impl Wanted {
    /// The requested mode; `None` for a release.
    fn mode(&self) -> Result<Option<LockMode>, Errno> {
        match self.typ {
            libc::F_RDLCK => Ok(Some(LockMode::Shared)),
            libc::F_WRLCK => Ok(Some(LockMode::Exclusive)),
            libc::F_UNLCK => Ok(None),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The request to the lock server for the open file, and the id of that file.
    fn ask(
        &self,
        open: &Open,
        want: LockWant,
        ticket: LockTicket,
    ) -> Result<(LockAsk, u64), Errno> {
        let Open::File(file) = open else {
            // Each open of a hidden file has its own text: there is no other holder to exclude.
            return Err(Errno::ENOLCK);
        };
        if self.first > self.last {
            return Err(Errno::EINVAL);
        }
        let (kind, owner) = match self.flags.contains(LkFlags::FUSE_LK_FLOCK) {
            // The kernel's owner is the address of the open file, which the next open file may get before the release
            // of this one is processed.
            true => (LockKind::File, file.id),
            false => (LockKind::Record, self.owner.0),
        };
        let ask = LockAsk {
            file: file.lock_file(),
            kind,
            owner: api::LockOwner(owner),
            pid: self.pid,
            span: LockSpan {
                first: self.first,
                last: self.last,
            },
            want,
            ticket,
        };
        Ok((ask, file.id))
    }
}

/// Whether the request can be interrupted; a release is done in any case.
pub(in crate::mount) fn may_wait(wanted: &Wanted) -> bool {
    wanted.typ != libc::F_UNLCK
}

/// Asks the lock server, and replies when it has decided.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    number: (u64, LockTicket),
    file: (u64, u64),
    wanted: Wanted,
    sleep: bool,
    reply: ReplyEmpty,
) {
    let want = |mode| {
        Ok(match mode {
            None => LockWant::Unlock,
            Some(mode) if sleep => LockWant::Wait(mode),
            Some(mode) => LockWant::Try(mode),
        })
    };
    ask(
        shared,
        ("setlk", number),
        file,
        wanted,
        want,
        |decided| match decided {
            Ok(Locked::Done | Locked::Free) => reply.ok(),
            Ok(Locked::Held(_)) => reply.error(Errno::EAGAIN),
            Ok(Locked::Deadlock) => reply.error(Errno::EDEADLK),
            Ok(Locked::TooMany) => reply.error(Errno::ENOLCK),
            Ok(Locked::Interrupted) => reply.error(Errno::EINTR),
            Err(errno) => reply.error(errno),
        },
    );
}

/// Asks the lock server, and gives its decision to `then`. If the request may wait, its number is registered among the
/// waiting ones until then.
pub(super) fn ask(
    shared: &Arc<Shared>,
    (operation, (request, ticket)): (&'static str, (u64, LockTicket)),
    (inode, handle): (u64, u64),
    wanted: Wanted,
    want: impl FnOnce(Option<LockMode>) -> Result<LockWant, Errno>,
    then: impl FnOnce(Result<Locked, Errno>) + Send + 'static,
) {
    let open = shared.handles.get(handle);
    if open
        .as_deref()
        .is_some_and(|open| matches!(open, Open::Composed(_)))
    {
        // A file of a view is never written, so its locks exclude no other. The HDF5 library opens no file without one.
        shared.interrupts.leave(request);
        return then(Ok(Locked::Done));
    }
    let asked = open.ok_or(Errno::EBADF).and_then(|open| {
        let want = want(wanted.mode()?)?;
        if let (Open::File(file), LockWant::Wait(_) | LockWant::Try(_)) = (&*open, &want) {
            shared.habits.note_locked(file.object);
            file.note_locker(&shared.client);
        }
        wanted.ask(&open, want, ticket)
    });
    let mount = shared.clone();
    let then = move |decided| {
        mount.interrupts.leave(request);
        then(decided);
    };
    let (ask, open) = match asked {
        Ok(asked) => asked,
        Err(errno) => return then(Err(errno)),
    };
    let then = move |decided: Result<Locked, MdError>| {
        then(decided.map_err(|error| report(operation, inode, &error.into())));
    };
    let client = shared.client.of(ask.file.ino);
    client.lock(ask, open, Box::new(then));
}
