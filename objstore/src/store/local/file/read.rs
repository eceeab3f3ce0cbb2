//! Reading a chunk's file: through its mapping, each block checked before a byte of it goes out. What goes out of the
//! file without a look at it (`lend`) is read into a buffer to be checked.
//!
//! A block that matched counts as checked for a second, so that many small reads sum it once; the
//! pages in between are the page cache's, where they do not rot.

use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::FileExt;

use super::group::{BLOCK, GROUP, Group, sum_of};
use super::map::Map;
use super::{FileChunk, PAGE, State, data_at};
use crate::checksum::{combined, crc32c};
use crate::error::{Result, StoreError};
use crate::fill::paint;
use crate::store::FilePart;

/// For how long a block that matched is trusted, in milliseconds.
const CHECK_LIFE: u64 = 1000;

/// Bytes that are summed at once: of what is only summed; and from what is read on, where the block before was summed
/// lately, since the kernel is asked once for all of them whether they are in memory.
const AHEAD: u64 = 4 * BLOCK;

thread_local! {
    /// What is only summed is read into this.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl FileChunk {
    /// Copies content into `out`, which it fills; holes are fill. The state came from
    /// [`FileChunk::read_lock`] for at least this range.
    pub(in crate::store::local) fn read(
        &self,
        state: &State,
        offset: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let len = ((out.len() - done) as u64).min(GROUP - at % GROUP) as usize;
            self.read_in_group(state, at, &mut out[done..done + len])?;
            done += len;
        }
        Ok(())
    }

    fn read_in_group(&self, state: &State, offset: u64, out: &mut [u8]) -> Result<()> {
        let g = (offset / GROUP) as usize;
        let group = state.group(g).map_err(|why| self.damaged(why))?;
        let end = offset + out.len() as u64;
        let mut map = None;
        let mut at = offset;
        while at < end {
            let present = group.filter(|group| group.has(block_of(at)));
            let mut upto = at;
            while upto < end
                && group.is_some_and(|group| group.has(block_of(upto))) == present.is_some()
            {
                upto = end.min((upto / BLOCK + 1) * BLOCK);
            }
            let out = &mut out[(at - offset) as usize..(upto - offset) as usize];
            match present {
                None => self.paint_hole(state, at, out)?,
                Some(group) => {
                    if map.is_none() {
                        map = Some(self.map(state, g)?);
                    }
                    let Some(map) = &map else { continue };
                    let have = (state.len.clamp(at, upto) - at) as usize;
                    let bytes = self.checked(state, group, map, at..upto)?;
                    out[..have].copy_from_slice(bytes);
                    out[have..].fill(0);
                }
            }
            at = upto;
        }
        Ok(())
    }

    fn paint_hole(&self, state: &State, offset: u64, out: &mut [u8]) -> Result<()> {
        if state.head.sealed {
            return Err(self.damaged(format!(
                "bytes {offset}..{} are missing",
                offset + out.len() as u64
            )));
        }
        paint(&state.head.form, offset, out);
        Ok(())
    }

    /// Gives `f` the bytes where they lie, when they lie together and none is a hole.
    pub(in crate::store::local) fn show(
        &self,
        state: &State,
        offset: u64,
        len: u64,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        let Some(group) = self.together(state, offset, len)? else {
            return Ok(false);
        };
        let map = self.map(state, (offset / GROUP) as usize)?;
        f(self.checked(state, group, &map, offset..offset + len)?);
        Ok(true)
    }

    /// As [`FileChunk::show`] for an `f` that has the kernel copy the bytes, without waiting for a disk: false also where
    /// not all is in memory that has to be looked at.
    ///
    /// Of blocks that were summed lately the kernel is not asked whether they are in memory: they were then. Should
    /// they have been evicted since, it brings them back as it copies; where somebody has cut the file, it tells `f` so
    /// (`EFAULT`). This process touches none of them. A kernel that `keeps` what it copies, as pages of a mapping, would
    /// keep the zeros behind a cut inside a page as well: for that the file is looked at each time.
    pub(in crate::store::local) fn show_at_once(
        &self,
        state: &State,
        offset: u64,
        len: u64,
        keeps: bool,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        let Some(group) = self.together(state, offset, len)? else {
            return Ok(false);
        };
        let map = self.map(state, (offset / GROUP) as usize)?;
        let look = self.looks(state, group, offset..offset + len);
        if !look.sums && !keeps {
            f(map
                .summed(look.place())
                .map_err(|e| self.cannot_look(&look, &e))?);
            return Ok(true);
        }
        let found = |look: &Look| {
            map.look_at_once(&self.file, look.place())
                .map_err(|e| self.cannot_look(look, &e))
        };
        // What lies behind may be damaged, or not all there: that is none of this read's.
        if look.sums
            && let Some(further) = self.further(state, group, &look)
            && let Ok(Some(found)) = found(&further)
            && let Ok(bytes) = self.verified(group, &further, found)
        {
            f(bytes);
            return Ok(true);
        }
        let Some(found) = found(&look)? else {
            return Ok(false);
        };
        f(self.verified(group, &look, found)?);
        Ok(true)
    }

    /// The same look at more blocks behind, where the one before was summed lately: somebody reads one after the other.
    fn further(&self, state: &State, group: &Group, look: &Look) -> Option<Look> {
        let first = *look.blocks.start();
        if first == 0 || !group.is_checked(first - 1, look.now, CHECK_LIFE) {
            return None;
        }
        let begins = look.whole.start;
        let end = (begins + AHEAD)
            .min((begins / GROUP + 1) * GROUP)
            .min(state.len);
        let there = || (first..=block_of(end - 1)).all(|block| group.has(block));
        (end > look.whole.end && there()).then(|| Look {
            bytes: look.bytes.clone(),
            whole: begins..end,
            blocks: first..=block_of(end - 1),
            sums: true,
            now: look.now,
        })
    }

    /// Gives `f` the bytes as a part of the file, when they lie together and none is a hole.
    pub(in crate::store::local) fn file_part(
        &self,
        state: &State,
        offset: u64,
        len: u64,
        f: &mut dyn FnMut(FilePart<'_>),
    ) -> Result<bool> {
        let Some(group) = self.together(state, offset, len)? else {
            return Ok(false);
        };
        self.check(state, group, offset..offset + len)?;
        f(FilePart {
            file: &self.file,
            at: data_at(state.area, offset),
            len,
            sum: &|| self.sum_of_range(state, group, offset, offset + len),
        });
        Ok(true)
    }

    /// The checksum of a range of one group, all of it there: those that are stored put together, and of blocks that are
    /// only in part in it one of that part.
    fn sum_of_range(&self, state: &State, group: &Group, start: u64, end: u64) -> Result<u32> {
        let mut all = 0;
        let mut at = start;
        while at < end {
            let upto = end.min((at / BLOCK + 1) * BLOCK);
            let whole = upto - at == BLOCK;
            let sum = match group.sum(block_of(at)).filter(|_| whole) {
                Some(sum) => sum,
                None => BUFFER.with_borrow_mut(|buffer| {
                    buffer.resize(AHEAD as usize, 0);
                    let bytes = &mut buffer[..(upto - at) as usize];
                    self.file
                        .read_exact_at(bytes, data_at(state.area, at))
                        .map_err(|e| self.read_error(&format!("bytes {at}..{upto}"), &e))?;
                    Ok(crc32c(bytes))
                })?,
            };
            all = combined(all, sum, upto - at);
            at = upto;
        }
        Ok(all)
    }

    /// The group of bytes that lie together, none of which is a hole.
    fn together<'s>(&self, state: &'s State, offset: u64, len: u64) -> Result<Option<&'s Group>> {
        let end = offset + len;
        let g = (offset / GROUP) as usize;
        if len == 0 || end > state.len || (end - 1) / GROUP != g as u64 {
            return Ok(None);
        }
        let group = state.group(g).map_err(|why| self.damaged(why))?;
        Ok(group
            .filter(|group| (block_of(offset)..=block_of(end - 1)).all(|block| group.has(block))))
    }

    /// The bytes of a range of one group, as far as the content goes, all of its blocks present and checked.
    fn checked<'m>(
        &self,
        state: &State,
        group: &Group,
        map: &'m Map,
        range: Range<u64>,
    ) -> Result<&'m [u8]> {
        let look = self.looks(state, group, range);
        self.verified(group, &look, self.look(map, &look)?)
    }

    /// Checks the blocks of a range of one group, all of them present, unless that was done lately. Nobody looks at the
    /// bytes afterwards, so they are read into a buffer that stays in the cache: through a mapping each page would have
    /// to be mapped for it, which costs more than to copy it.
    fn check(&self, state: &State, group: &Group, range: Range<u64>) -> Result<()> {
        let all = self.looks(state, group, range);
        let mut at = all.whole.start;
        while all.sums && at < all.whole.end {
            let end = (at + AHEAD).min(all.whole.end);
            let look = self.looks(state, group, at..end);
            at = end;
            if !look.sums {
                continue;
            }
            BUFFER.with_borrow_mut(|buffer| {
                buffer.resize(AHEAD as usize, 0);
                let bytes = &mut buffer[..(look.whole.end - look.whole.start) as usize];
                (self.file)
                    .read_exact_at(bytes, data_at(state.area, look.whole.start))
                    .map_err(|e| self.cannot_look(&look, &e))?;
                self.verified(group, &look, bytes).map(|_| ())
            })?;
        }
        Ok(())
    }

    fn look<'m>(&self, map: &'m Map, look: &Look) -> Result<&'m [u8]> {
        map.look(&self.file, look.place())
            .map_err(|e| self.cannot_look(look, &e))
    }

    /// What has to be looked at for a range of one group.
    fn looks(&self, state: &State, group: &Group, range: Range<u64>) -> Look {
        let now = self.shared.now();
        let blocks = block_of(range.start)..=block_of(range.end - 1);
        let bytes = range.start..state.len.clamp(range.start, range.end);
        let sums = !(blocks.clone()).all(|block| group.is_checked(block, now, CHECK_LIFE));
        let whole = match sums {
            // Whole blocks: what was summed just now is there, and the kernel need not be asked again.
            true => {
                let start = range.start / BLOCK * BLOCK;
                start..range.end.next_multiple_of(BLOCK).min(state.len).max(start)
            }
            false => bytes.clone(),
        };
        Look {
            bytes,
            whole,
            blocks,
            sums,
            now,
        }
    }

    /// The bytes of `look` of those that were `found`, after the blocks were compared with their sums that were not lately.
    fn verified<'m>(&self, group: &Group, look: &Look, found: &'m [u8]) -> Result<&'m [u8]> {
        for (i, block) in look.blocks.clone().enumerate() {
            if !look.sums || group.is_checked(block, look.now, CHECK_LIFE) {
                continue;
            }
            let at = (i * BLOCK as usize).min(found.len());
            let summed = &found[at..found.len().min(at + BLOCK as usize)];
            if group.sum(block) != Some(sum_of(summed)) {
                let first = look.whole.start + i as u64 * BLOCK;
                let number = first / BLOCK;
                return Err(self.damaged(format!(
                    "block {number} (bytes {first}..{}) does not match its checksum",
                    first + BLOCK
                )));
            }
            group.note_checked(block);
        }
        let from = (look.bytes.start - look.whole.start) as usize;
        let len = (look.bytes.end - look.bytes.start) as usize;
        Ok(if len == 0 {
            &[]
        } else {
            &found[from..from + len]
        })
    }

    /// Checks all blocks up to `end` that were ever written.
    pub(in crate::store::local) fn verify_blocks(&self, state: &State, end: u64) -> Result<()> {
        let mut at = 0;
        while at < end {
            let group = state
                .group((at / GROUP) as usize)
                .map_err(|why| self.damaged(why))?;
            match group.filter(|group| group.has(block_of(at))) {
                Some(group) => {
                    group.doubt(block_of(at));
                    self.check(state, group, at..end.min(at + BLOCK))?;
                }
                None if state.head.sealed => {
                    return Err(self.damaged(format!("block {} is missing", at / BLOCK)));
                }
                None => {}
            }
            at += BLOCK;
        }
        Ok(())
    }

    fn cannot_look(&self, look: &Look, error: &std::io::Error) -> StoreError {
        let Range { start, end } = look.whole;
        self.read_error(
            &format!("block {} (bytes {start}..{end})", start / BLOCK),
            error,
        )
    }
}

/// What is looked at of a group, in bytes of the content.
struct Look {
    /// What is wanted, as far as the content goes.
    bytes: Range<u64>,
    /// And what lies around it that has to be summed.
    whole: Range<u64>,
    /// The blocks of it.
    blocks: RangeInclusive<usize>,
    /// Whether any of them has to be.
    sums: bool,
    /// On the clock of checks.
    now: u64,
}

impl Look {
    /// Where it lies in the group's mapping.
    fn place(&self) -> Range<usize> {
        let from = (PAGE + self.whole.start % GROUP) as usize;
        from..from + (self.whole.end - self.whole.start) as usize
    }
}

fn block_of(offset: u64) -> usize {
    (offset % GROUP / BLOCK) as usize
}
