//! Answering a request for a value with the length the program has room for.

use fuser::{Errno, ReplyXattr};

/// Gives `value` if it fits into `room` bytes; its length if no room was given; else `ERANGE`.
pub(super) fn give(value: &[u8], room: u32, reply: ReplyXattr) {
    if room == 0 {
        reply.size(value.len() as u32);
    } else if value.len() <= room as usize {
        reply.data(value);
    } else {
        reply.error(Errno::ERANGE);
    }
}
