//! Writes to a chunk's file: data goes directly from the caller's memory to the page cache, and each byte is
//! checksummed once.

use std::io::{self, IoSlice};

use nix::fcntl::{FallocateFlags, fallocate};
use smallvec::SmallVec;

use super::group::{BLOCK, GROUP, sum_of};
use super::{FileChunk, PAGE, State, data_at, page_at, read_up_to, size_of};
use crate::checksum::{combined, crc32c, crc32c_of, padded, replaced};
use crate::error::{Result, StoreError};
use crate::fill::paint;
use crate::store::extent::Extent;
use crate::store::local::pieces::{self, Pieces};

/// Blocks and their new checksums. One MiB touches at most 17 blocks.
type Sums = SmallVec<[(usize, u32); 17]>;

impl FileChunk {
    /// Writes content at `offset`. If it fails for lack of space, nothing has changed.
    pub(in crate::store::local) fn write(
        &self,
        state: &mut State,
        offset: u64,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        let total = pieces::len(data);
        let before = state.len;
        let mut done = 0;
        while done < total {
            let at = offset + done;
            let len = (total - done).min(GROUP - at % GROUP);
            let outcome = if len == total {
                self.write_in_group(state, at, data)
            } else {
                self.write_in_group(state, at, &pieces::part(data, done, len))
            };
            if let Err(error) = outcome {
                if offset >= before && state.len > before {
                    self.truncate(state, before)?;
                }
                return Err(error);
            }
            done += len;
        }
        Ok(())
    }

    /// Writes the first content, and the head even if there is none.
    pub(in crate::store::local) fn begin(&self, data: &[IoSlice<'_>]) -> Result<()> {
        let mut state = self.write_lock();
        self.write(&mut state, 0, data)?;
        match state.len {
            0 => self.flush(&mut state),
            _ => Ok(()),
        }
    }

    fn write_in_group(&self, state: &mut State, offset: u64, data: &[IoSlice<'_>]) -> Result<()> {
        let g = (offset / GROUP) as usize;
        self.load(state, g);
        if !state.fills() {
            return self.write_blocks(state, g, offset, data);
        }
        // A block is a hole entirely or not at all: in a new block, the bytes around the data are written as fill.
        let group = state.group(g).map_err(|why| self.damaged(why))?;
        let is_hole = |at: u64| group.is_none_or(|group| !group.has((at % GROUP / BLOCK) as usize));
        let end = offset + pieces::len(data);
        let from = if is_hole(offset) {
            offset / BLOCK * BLOCK
        } else {
            offset
        };
        let chunk_end = state.head.form.volume().unwrap_or(u64::MAX).max(end);
        let upto = if is_hole(end - 1) {
            end.next_multiple_of(BLOCK).min(chunk_end)
        } else {
            end
        };
        let mut before = vec![0; (offset - from) as usize];
        let mut behind = vec![0; (upto - end) as usize];
        paint(&state.head.form, from, &mut before);
        paint(&state.head.form, end, &mut behind);
        let mut all = Pieces::new();
        all.push(IoSlice::new(&before));
        all.extend(data.iter().copied());
        all.push(IoSlice::new(&behind));
        self.write_blocks(state, g, from, &all)
    }

    fn write_blocks(
        &self,
        state: &mut State,
        g: usize,
        offset: u64,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        let total = pieces::len(data);
        let sums = self.new_sums(state, g, offset, data)?;
        let appends = offset >= state.len;
        if !appends && self.shared.is_tight(&self.file, total) {
            self.reserve(state, g, offset, total)?;
        }
        self.put_with_page(state, g, offset, data, &sums)?;
        state.len = state.len.max(offset + total);
        state.note_unsynced();
        Ok(())
    }

    /// The new checksums of the blocks that the data touches.
    fn new_sums(&self, state: &State, g: usize, offset: u64, data: &[IoSlice<'_>]) -> Result<Sums> {
        let group = state.group(g).map_err(|why| self.damaged(why))?;
        let total = pieces::len(data);
        let mut sums = Sums::new();
        let mut done = 0;
        while done < total {
            let at = offset + done;
            let block = (at % GROUP / BLOCK) as usize;
            let within = at % BLOCK;
            let len = (total - done).min(BLOCK - within);
            let behind = BLOCK - within - len;
            let new = match data {
                [one] => crc32c(&one[done as usize..(done + len) as usize]),
                _ => crc32c_of(&pieces::part(data, done, len)),
            };
            let sum = match group.and_then(|group| group.sum(block)) {
                _ if len == BLOCK => new,
                None => padded(combined(padded(0, within), new, len), behind),
                Some(sum) => replaced(sum, self.present_crc(state, at, len)?, new, behind),
            };
            sums.push((block, sum));
            done += len;
        }
        Ok(sums)
    }

    /// The CRC of the present bytes of a range within a block.
    fn present_crc(&self, state: &State, at: u64, len: u64) -> Result<u32> {
        let have = state.len.saturating_sub(at).min(len);
        if have == 0 {
            return Ok(padded(0, len));
        }
        let mut buf = [0; BLOCK as usize];
        let buf = &mut buf[..have as usize];
        read_up_to(&self.file, data_at(state.area, at), buf)
            .map_err(|e| self.read_error("a block that is partly overwritten", &e))?;
        Ok(padded(crc32c(buf), len - have))
    }

    /// Writes the head and the checksum page if they must precede the data, then the data; updates the checksums.
    fn put_with_page(
        &self,
        state: &mut State,
        g: usize,
        offset: u64,
        data: &[IoSlice<'_>],
        sums: &Sums,
    ) -> Result<()> {
        let writer = state.writer(self.shared.mark);
        let area = state.area;
        let group = state.group_mut(g).map_err(|why| self.damaged(why))?;
        let fresh = !group.stored;
        if !fresh && !group.marked {
            self.mark(state, g)?;
        }
        let group = state.group_mut(g).map_err(|why| self.damaged(why))?;
        let old: Sums = sums
            .iter()
            .filter_map(|&(block, _)| Some((block, group.sum(block)?)))
            .collect();
        for &(block, sum) in sums {
            group.set(block, Some(sum));
        }
        let outcome = if fresh {
            let mut page = [0; PAGE as usize];
            page[..super::group::USED].copy_from_slice(&group.page(g as u32, writer));
            (group.stored, group.marked, group.dirty) = (true, writer != 0, false);
            let head = if state.head_dirty {
                state.head.bytes()
            } else {
                Vec::new()
            };
            self.put_fresh(state, g, &head, &page, offset, data)
        } else {
            pieces::write_at(&self.file, data_at(area, offset), data)
        };
        let Err((written, error)) = outcome else {
            state.head_dirty &= !fresh;
            return Ok(());
        };
        self.undo(state, g, offset, written, sums, &old, fresh);
        Err(self.write_error(&error))
    }

    /// Writes the head, checksum page and data of a group that is not in the file yet, in one call where they are
    /// adjacent.
    fn put_fresh(
        &self,
        state: &State,
        g: usize,
        head: &[u8],
        page: &[u8],
        offset: u64,
        data: &[IoSlice<'_>],
    ) -> Result<(), (u64, io::Error)> {
        let mut start = page_at(state.area, g);
        let mut all = Pieces::new();
        if !head.is_empty() {
            if g == 0 {
                start = 0;
                all.push(IoSlice::new(head));
            } else {
                pieces::write_at(&self.file, 0, &[IoSlice::new(head)]).map_err(|(_, e)| (0, e))?;
            }
        }
        all.push(IoSlice::new(page));
        let before = pieces::len(&all);
        if offset.is_multiple_of(GROUP) {
            all.extend(data.iter().copied());
            return pieces::write_at(&self.file, start, &all)
                .map_err(|(done, e)| (done.saturating_sub(before), e));
        }
        pieces::write_at(&self.file, start, &all).map_err(|(_, e)| (0, e))?;
        pieces::write_at(&self.file, data_at(state.area, offset), data)
    }

    /// Marks the page of a group in the file with this process's mark. The mark is on disk when this returns; otherwise
    /// a crash could leave new data with old checksums that appear valid.
    pub(super) fn mark(&self, state: &mut State, g: usize) -> Result<()> {
        let at = page_at(state.area, g);
        let mark = self.shared.mark;
        let group = state.group_mut(g).map_err(|why| self.damaged(why))?;
        let page = group.page(g as u32, mark);
        pieces::write_at(&self.file, at, &[IoSlice::new(&page)])
            .map_err(|(_, e)| self.write_error(&e))?;
        if !group.is_empty() {
            self.shared
                .sync_file(&self.file, &self.path)
                .map_err(|e| StoreError::from_io("sync", &self.path, &e))?;
        }
        (group.marked, group.dirty) = (true, false);
        Ok(())
    }

    /// Reserves space for a write of these bytes; if that fails, nothing has changed.
    fn reserve(&self, state: &State, g: usize, offset: u64, len: u64) -> Result<()> {
        let (at, bytes) = (data_at(state.area, offset) as i64, len as i64);
        match fallocate(&self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, at, bytes) {
            Ok(()) | Err(nix::Error::EOPNOTSUPP | nix::Error::ENOSYS) => Ok(()),
            Err(errno) => {
                self.free_holes(state, g, offset, len);
                Err(self.write_error(&errno.into()))
            }
        }
    }

    /// Reserves space for a write of these cells, run by run; if that fails, nothing has changed.
    pub(in crate::store::local) fn make_room(
        &self,
        state: &mut State,
        extent: &Extent<'_>,
    ) -> Result<()> {
        if !self.shared.is_tight(&self.file, extent.volume) {
            return Ok(());
        }
        extent.runs(&mut |at, len| {
            let mut done = 0;
            while done < len {
                let part = (len - done).min(GROUP - (at + done) % GROUP);
                let g = ((at + done) / GROUP) as usize;
                self.load(state, g);
                self.reserve(state, g, at + done, part)?;
                done += part;
            }
            Ok(())
        })
    }

    /// Read-modify-write of the bytes from `offset` on, as many as the buffer has: reads them, applies `change`, and
    /// writes them. Damage of the present bytes is an error.
    pub(in crate::store::local) fn merge(
        &self,
        state: &mut State,
        offset: u64,
        buf: &mut [u8],
        change: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()> {
        let end = offset + buf.len() as u64;
        for g in offset / GROUP..end.div_ceil(GROUP) {
            self.load(state, g as usize);
        }
        // This fails for a damaged block: otherwise the bytes between the cells would be lost for good.
        self.read(state, offset, buf)?;
        change(buf);
        self.write(state, offset, &[IoSlice::new(buf)])
    }

    /// Frees the reserved space in blocks that were never written, or beyond the end.
    fn free_holes(&self, state: &State, g: usize, offset: u64, len: u64) {
        let Ok(group) = state.group(g) else { return };
        let mut at = offset;
        while at < offset + len {
            let part = (offset + len - at).min(BLOCK - at % BLOCK);
            let block = (at % GROUP / BLOCK) as usize;
            if group.is_none_or(|group| !group.has(block)) {
                self.punch_bytes(state, at, part);
            }
            at += part;
        }
        // Truncating a file to its present length frees space reserved beyond it.
        if let Err(error) = self.file.set_len(size_of(state.len, state.area)) {
            tracing::warn!(
                "{}: space reserved beyond the end stays allocated: {error}",
                self.path.display()
            );
        }
    }

    /// After a failed write: new blocks become holes again, and the checksums of old blocks that were overwritten are
    /// recomputed from the present data.
    #[expect(clippy::too_many_arguments, reason = "the one caller has them at hand")]
    fn undo(
        &self,
        state: &mut State,
        g: usize,
        offset: u64,
        written: u64,
        sums: &Sums,
        old: &Sums,
        fresh: bool,
    ) {
        let (area, len) = (state.area, state.len);
        let Ok(group) = state.group_mut(g) else {
            return;
        };
        for &(block, _) in sums {
            group.set(block, None);
        }
        for &(block, sum) in old {
            group.set(block, Some(sum));
        }
        self.free_holes(state, g, offset, written);
        if offset < len && written > 0 {
            for &(block, _) in old {
                let at = g as u64 * GROUP + block as u64 * BLOCK;
                let mut buf = vec![0; len.saturating_sub(at).min(BLOCK) as usize];
                let read = read_up_to(&self.file, data_at(area, at), &mut buf);
                if let (Ok(_), Ok(group)) = (read, state.group_mut(g)) {
                    group.set(block, Some(sum_of(&buf)));
                }
            }
        }
        if fresh && state.len <= g as u64 * GROUP {
            // The truncation removed the page too.
            state.groups.truncate(g);
        }
    }
}
