//! Sends a request to `.slabfs/call` in parts by ioctl, for read-only mounts, where no file can be opened for
//! writing. `docs/formats/call.md` has the command.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;

/// Bytes of a part; the size field of a command has 14 bits.
const PART: usize = 8192;

/// Sends a request to an open call.
pub(super) fn ask(call: &File, request: &[u8]) -> Result<()> {
    for part in request.chunks(PART) {
        let command = 1 << 30 | part.len() << 16 | usize::from(b's') << 8 | 1;
        // SAFETY: the command number makes the kernel read as many bytes as `part` has, and write none.
        let result = unsafe { libc::ioctl(call.as_raw_fd(), command as _, part.as_ptr()) };
        if result < 0 {
            return Err(Error::last_os_error());
        }
    }
    Ok(())
}
