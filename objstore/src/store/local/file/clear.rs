//! Resets ranges of a chunk's file to fill, and truncates it.

use std::io::IoSlice;

use nix::fcntl::{FallocateFlags, fallocate};

use super::group::{BLOCK, BLOCKS, GROUP};
use super::{FileChunk, PAGE, State, data_at, read_up_to, size_of};
use crate::checksum::{crc32c, padded, replaced};
use crate::error::{Result, StoreError};
use crate::fill::paint;

impl FileChunk {
    /// Resets `len` bytes from `offset` on to fill, and frees the space of complete blocks.
    pub(in crate::store::local) fn clear(
        &self,
        state: &mut State,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let end = offset.saturating_add(len);
        if end >= state.len {
            return self.truncate(state, offset);
        }
        let mut at = offset;
        while at < end {
            let upto = end.min((at / GROUP + 1) * GROUP);
            self.clear_in_group(state, at, upto)?;
            at = upto;
        }
        Ok(())
    }

    fn clear_in_group(&self, state: &mut State, from: u64, upto: u64) -> Result<()> {
        let g = (from / GROUP) as usize;
        self.load(state, g);
        let (first, last) = (from.next_multiple_of(BLOCK), upto / BLOCK * BLOCK);
        if first >= last {
            let middle = first.clamp(from, upto);
            self.clear_edge(state, g, from, middle)?;
            return self.clear_edge(state, g, middle, upto);
        }
        self.clear_edge(state, g, from, first)?;
        self.clear_edge(state, g, last, upto)?;
        let blocks = (first % GROUP / BLOCK) as usize..((last - 1) % GROUP / BLOCK) as usize + 1;
        let group = state.group_mut(g).map_err(|why| self.damaged(why))?;
        if !blocks.clone().any(|block| group.has(block)) {
            return Ok(());
        }
        if !group.marked {
            self.mark(state, g)?;
        }
        if !self.punch_bytes(state, first, last - first) {
            return self.write_fill(state, first, last - first);
        }
        state.note_unsynced();
        let group = state.group_mut(g).map_err(|why| self.damaged(why))?;
        for block in blocks {
            group.set(block, None);
        }
        Ok(())
    }

    /// Clears a part of one block, in place.
    fn clear_edge(&self, state: &mut State, g: usize, from: u64, upto: u64) -> Result<()> {
        let block = (from % GROUP / BLOCK) as usize;
        if from >= upto
            || !state
                .group(g)
                .map_err(|why| self.damaged(why))?
                .is_some_and(|group| group.has(block))
        {
            return Ok(());
        }
        self.write_fill(state, from, upto - from)?;
        if state.head.form.fill.is_zero() {
            // They are zeros already; as holes they take no space.
            let (first, last) = (from.next_multiple_of(PAGE), upto / PAGE * PAGE);
            if first < last {
                self.punch_bytes(state, first, last - first);
            }
        }
        Ok(())
    }

    fn write_fill(&self, state: &mut State, offset: u64, len: u64) -> Result<()> {
        let mut buf = vec![0; len.min(BLOCK) as usize];
        let mut done = 0;
        while done < len {
            let part = &mut buf[..(len - done).min(BLOCK) as usize];
            paint(&state.head.form, offset + done, part);
            self.write(state, offset + done, &[IoSlice::new(part)])?;
            done += part.len() as u64;
        }
        Ok(())
    }

    /// Punches a hole; returns whether the filesystem supports that.
    pub(super) fn punch_bytes(&self, state: &State, offset: u64, len: u64) -> bool {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(
            &self.file,
            flags,
            data_at(state.area, offset) as i64,
            len as i64,
        )
        .is_ok()
    }

    /// Resets everything from `len` on to fill, by truncating the file as far as possible.
    pub(in crate::store::local) fn truncate(&self, state: &mut State, len: u64) -> Result<()> {
        if len >= state.len {
            return Ok(());
        }
        let g = (len / GROUP) as usize;
        self.load(state, g);
        let within = len % BLOCK;
        if within > 0 && state.fills() {
            // The rest of the block is written as fill.
            let block_end = (len - within + BLOCK).min(state.len);
            if state
                .group(g)
                .map_err(|why| self.damaged(why))?
                .is_some_and(|group| group.has((len % GROUP / BLOCK) as usize))
            {
                self.write_fill(state, len, block_end - len)?;
            }
            return self.cut(state, block_end);
        }
        self.cut(state, len)
    }

    fn cut(&self, state: &mut State, len: u64) -> Result<()> {
        if len >= state.len {
            return Ok(());
        }
        let g = (len / GROUP) as usize;
        self.load(state, g);
        let (block, within) = ((len % GROUP / BLOCK) as usize, len % BLOCK);
        if len < state.head.content {
            // The head must not claim more content than there is once the truncation is on disk.
            state.head.content = len;
            self.write_head(state)?;
            self.shared
                .sync_file(&self.file, &self.path)
                .map_err(|e| StoreError::from_io("sync", &self.path, &e))?;
        }
        let group = state.group_mut(g).map_err(|why| self.damaged(why))?;
        if group.stored && !group.marked && len > g as u64 * GROUP {
            self.mark(state, g)?;
        }
        let tail = self.tail_sum(state, g, len)?;
        self.file
            .set_len(size_of(len, state.area))
            .map_err(|e| StoreError::from_io("truncate", &self.path, &e))?;
        let group = state.group_mut(g).map_err(|why| self.damaged(why))?;
        for after in block..BLOCKS {
            if after > block || within == 0 {
                group.set(after, None);
            }
        }
        if let Some(sum) = tail {
            group.set(block, Some(sum));
        }
        state.groups.truncate(len.div_ceil(GROUP) as usize);
        state.len = len;
        state.note_unsynced();
        Ok(())
    }

    /// The checksum of the block that contains `len` once its bytes from there on are zero.
    fn tail_sum(&self, state: &State, g: usize, len: u64) -> Result<Option<u32>> {
        let within = len % BLOCK;
        let group = state.group(g).map_err(|why| self.damaged(why))?;
        let sum = group.and_then(|group| group.sum((len % GROUP / BLOCK) as usize));
        let Some(sum) = sum.filter(|_| within > 0) else {
            return Ok(None);
        };
        let mut buf = [0; BLOCK as usize];
        let gone = &mut buf[..(state.len - len).min(BLOCK - within) as usize];
        read_up_to(&self.file, data_at(state.area, len), gone)
            .map_err(|e| self.read_error("the block to be cut", &e))?;
        let zeros = padded(0, gone.len() as u64);
        Ok(Some(replaced(
            sum,
            crc32c(gone),
            zeros,
            BLOCK - within - gone.len() as u64,
        )))
    }
}
