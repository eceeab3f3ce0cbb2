//! Replies to a request for a value with the room that the program provides.

use fuser::{Errno, ReplyXattr};

/// Replies with `value` if it fits into `room` bytes, with its length if `room` is 0, and else with `ERANGE`.
pub(super) fn give(value: &[u8], room: u32, reply: ReplyXattr) {
    if room == 0 {
        reply.size(value.len() as u32);
    } else if value.len() <= room as usize {
        reply.data(value);
    } else {
        reply.error(Errno::ERANGE);
    }
}
