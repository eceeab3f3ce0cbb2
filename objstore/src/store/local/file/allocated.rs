//! Reports which bytes of a chunk's file are allocated.
//!
//! The underlying filesystem knows, to a page (`SEEK_DATA`, `SEEK_HOLE`): blocks that were never written or were
//! punched are holes in the file.

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use super::group::{BLOCK, GROUP};
use super::{FileChunk, State, data_at};
use crate::error::Result;
use crate::store::Allocated;

impl FileChunk {
    /// The number of allocated bytes, and the first allocated run from byte `from` on.
    pub(in crate::store::local) fn allocated(&self, from: u64) -> Result<Allocated> {
        let len = self.state.read().len;
        // Growth of the chunk in between counts as having happened later.
        let state = self.read_lock(0, len);
        let mut allocated = Allocated {
            bytes: self.present(&state, len)?,
            next: None,
        };
        let mut at = from;
        while at < len {
            let end = len.min((at / GROUP + 1) * GROUP);
            let found = self.next_in_group(&state, at, end)?;
            match (&mut allocated.next, found) {
                (None, None) => {}
                (None, Some(run)) => allocated.next = Some(run),
                (Some((_, upto)), Some((first, last))) if *upto == first => *upto = last,
                (Some(_), _) => return Ok(allocated),
            }
            // A run continues into the next group only if it reaches the group's end.
            if allocated.next.is_some_and(|(_, upto)| upto < end) {
                return Ok(allocated);
            }
            at = end;
        }
        Ok(allocated)
    }

    /// The bytes of all blocks that are present.
    fn present(&self, state: &State, len: u64) -> Result<u64> {
        let mut bytes = 0;
        for at in (0..len).step_by(BLOCK as usize) {
            let group = state.group((at / GROUP) as usize);
            let group = group.map_err(|why| self.damaged(why))?;
            if group.is_some_and(|group| group.has((at % GROUP / BLOCK) as usize)) {
                bytes += BLOCK.min(len - at);
            }
        }
        Ok(bytes)
    }

    /// The first allocated run in `from..end`, a range of one group.
    fn next_in_group(&self, state: &State, from: u64, end: u64) -> Result<Option<(u64, u64)>> {
        let start = data_at(state.area, from);
        let limit = start + (end - from);
        let seek = |at: u64, whence| match lseek(&self.file, at as i64, whence) {
            Ok(found) => Ok(Some((found as u64).min(limit))),
            Err(Errno::ENXIO) => Ok(None),
            Err(errno) => Err(self.read_error("its allocation", &errno.into())),
        };
        let Some(data) = seek(start, Whence::SeekData)?.filter(|&at| at < limit) else {
            return Ok(None);
        };
        let hole = seek(data, Whence::SeekHole)?.unwrap_or(limit);
        Ok(Some((from + (data - start), from + (hole - start))))
    }
}
