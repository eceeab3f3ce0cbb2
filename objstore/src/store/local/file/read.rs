//! Reads a chunk's file through its mapping, verifying each block's checksum before any byte of it is returned. For
//! ranges that are sent straight from the file (`file_part`), the blocks are read into a buffer to be verified.
//!
//! A verified block stays trusted for one second, so that many small reads verify it once. In that time its pages are
//! in the page cache, where disk errors cannot reach them.

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

/// How long a verified block is trusted, in milliseconds.
const CHECK_VALID_MS: u64 = 1000;

/// Bytes that are checksummed at once: the buffer for ranges that are only verified; and the read-ahead of sequential
/// reads, where one `mincore` call covers all of them.
const AHEAD: u64 = 4 * BLOCK;

thread_local! {
    /// Buffer for ranges that are only verified.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl FileChunk {
    /// Copies content to `out`, all of it; holes read as fill. The state must come from [`FileChunk::read_lock`] for at
    /// least this range.
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

    /// Calls `f` with the mapped bytes, if they are contiguous and without holes.
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

    /// Like [`FileChunk::show`], without waiting for a disk, for an `f` that lets the kernel copy the bytes. Returns
    /// false also if pages that must be read are not in memory.
    ///
    /// Recently verified blocks are not checked for residency again. If they were evicted since, the kernel reads them
    /// back while it copies; if the file was truncated, the copy fails with `EFAULT`. This process touches none of
    /// these pages. If the kernel `keeps` the copied bytes as pages of a mapping, it would also keep the zeros behind a
    /// truncation within a page; in that case the file size is checked each time.
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
        // The blocks behind may be damaged or missing; this read does not depend on them.
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

    /// The look extended by the blocks behind, if the block before was verified recently: a sequential read.
    fn further(&self, state: &State, group: &Group, look: &Look) -> Option<Look> {
        let first = *look.blocks.start();
        if first == 0 || !group.is_checked(first - 1, look.now, CHECK_VALID_MS) {
            return None;
        }
        let begins = look.around.start;
        let end = (begins + AHEAD)
            .min((begins / GROUP + 1) * GROUP)
            .min(state.len);
        let there = || (first..=block_of(end - 1)).all(|block| group.has(block));
        (end > look.around.end && there()).then(|| Look {
            bytes: look.bytes.clone(),
            around: begins..end,
            blocks: first..=block_of(end - 1),
            sums: true,
            now: look.now,
        })
    }

    /// Calls `f` with the bytes as a range of the file, if they are contiguous and without holes.
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

    /// The checksum of a range of one group without holes: combined from the stored checksums of complete blocks, and
    /// computed for partial blocks.
    fn sum_of_range(&self, state: &State, group: &Group, start: u64, end: u64) -> Result<u32> {
        let mut all = 0;
        let mut at = start;
        while at < end {
            let upto = end.min((at / BLOCK + 1) * BLOCK);
            let is_complete = upto - at == BLOCK;
            let sum = match group.sum(block_of(at)).filter(|_| is_complete) {
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

    /// The group of a range, if the range is contiguous and without holes.
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

    /// The verified bytes of a range of one group, up to the end of the content. All of its blocks must be present.
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

    /// Verifies the blocks of a range of one group, all of them present, unless that was done recently. The bytes are
    /// not used afterwards, so they are read into a buffer that stays in the CPU cache: faulting in each page of a
    /// mapping costs more than the copy.
    fn check(&self, state: &State, group: &Group, range: Range<u64>) -> Result<()> {
        let all = self.looks(state, group, range);
        let mut at = all.around.start;
        while all.sums && at < all.around.end {
            let end = (at + AHEAD).min(all.around.end);
            let look = self.looks(state, group, at..end);
            at = end;
            if !look.sums {
                continue;
            }
            BUFFER.with_borrow_mut(|buffer| {
                buffer.resize(AHEAD as usize, 0);
                let bytes = &mut buffer[..(look.around.end - look.around.start) as usize];
                (self.file)
                    .read_exact_at(bytes, data_at(state.area, look.around.start))
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

    /// The bytes and blocks to read and verify for a range of one group.
    fn looks(&self, state: &State, group: &Group, range: Range<u64>) -> Look {
        let now = self.shared.now();
        let blocks = block_of(range.start)..=block_of(range.end - 1);
        let bytes = range.start..state.len.clamp(range.start, range.end);
        let sums = !(blocks.clone()).all(|block| group.is_checked(block, now, CHECK_VALID_MS));
        let around = match sums {
            // Complete blocks: they are in memory after the checksum, so the kernel need not be asked again.
            true => {
                let start = range.start / BLOCK * BLOCK;
                start..range.end.next_multiple_of(BLOCK).min(state.len).max(start)
            }
            false => bytes.clone(),
        };
        Look {
            bytes,
            around,
            blocks,
            sums,
            now,
        }
    }

    /// The bytes of `look` out of `found`, after verifying the blocks that were not verified recently.
    fn verified<'m>(&self, group: &Group, look: &Look, found: &'m [u8]) -> Result<&'m [u8]> {
        for (i, block) in look.blocks.clone().enumerate() {
            if !look.sums || group.is_checked(block, look.now, CHECK_VALID_MS) {
                continue;
            }
            let at = (i * BLOCK as usize).min(found.len());
            let summed = &found[at..found.len().min(at + BLOCK as usize)];
            if group.sum(block) != Some(sum_of(summed)) {
                let first = look.around.start + i as u64 * BLOCK;
                let number = first / BLOCK;
                return Err(self.damaged(format!(
                    "block {number} (bytes {first}..{}) does not match its checksum",
                    first + BLOCK
                )));
            }
            group.note_checked(block);
        }
        let from = (look.bytes.start - look.around.start) as usize;
        let len = (look.bytes.end - look.bytes.start) as usize;
        Ok(if len == 0 {
            &[]
        } else {
            &found[from..from + len]
        })
    }

    /// Verifies all blocks up to `end` that were ever written.
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
        let Range { start, end } = look.around;
        self.read_error(
            &format!("block {} (bytes {start}..{end})", start / BLOCK),
            error,
        )
    }
}

/// A read of one group, in bytes of the content.
struct Look {
    /// The requested bytes, up to the end of the content.
    bytes: Range<u64>,
    /// The bytes to read: `bytes`, extended to complete blocks if those must be verified.
    around: Range<u64>,
    /// The blocks of that range.
    blocks: RangeInclusive<usize>,
    /// Whether any of the blocks must be verified.
    sums: bool,
    /// The time, on the clock of verifications.
    now: u64,
}

impl Look {
    /// The range in the group's mapping.
    fn place(&self) -> Range<usize> {
        let from = (PAGE + self.around.start % GROUP) as usize;
        from..from + (self.around.end - self.around.start) as usize
    }
}

fn block_of(offset: u64) -> usize {
    (offset % GROUP / BLOCK) as usize
}
