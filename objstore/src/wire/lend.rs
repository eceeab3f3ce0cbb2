//! Sending memory without copying it: its pages go through a pipe into a unix socket, and the peer copies out of them.
//!
//! Until the peer has taken the bytes they are those that the memory has *then*: whoever lends must leave it alone
//! until the reply has come, which tells that all was taken. When no reply comes the connection is given up, and a
//! peer that reads on may get whatever the memory holds by that time; so only bytes are lent of which a peer can make
//! nothing that counts without its reply being heard, as of a chunk nobody has committed.
//!
//! Measured with two pairs of processes on two processors: 19 GB/s, and 12 with a copy.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice, vmsplice};

/// From this many bytes on it is worth the calls of the system.
pub(super) const LEND_FROM: usize = 128 << 10;
/// What a pipe should hold; the kernel may refuse, and it works with less.
const PIPE: i32 = 1 << 20;

/// A pipe through which pages go.
#[derive(Debug)]
pub(super) struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

impl Pipe {
    pub(super) fn new() -> io::Result<Pipe> {
        let (out, into) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        // Users who have many pipes get short ones.
        let _ = fcntl(&into, FcntlArg::F_SETPIPE_SZ(PIPE));
        Ok(Pipe { out, into })
    }

    /// Puts pages into the pipe, which is empty; how many bytes went in.
    pub(super) fn fill(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(vmsplice(
            &self.into,
            &[IoSlice::new(bytes)],
            SpliceFFlags::empty(),
        )?)
    }

    /// Moves up to `len` bytes on into a socket.
    pub(super) fn drain(&self, socket: impl AsFd, len: usize) -> io::Result<usize> {
        let flags = SpliceFFlags::SPLICE_F_MORE;
        Ok(splice(&self.out, None, socket, None, len, flags)?)
    }
}
