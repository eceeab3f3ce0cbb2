//! The checksum page of a group of 512 blocks of 64 KiB each.
//!
//! It precedes the group's data:
//!
//! ```text
//!    0    4  magic "SLGP"
//!    4    4  number of the group
//!    8    8  writer: 0, or the mark of the process that writes to the group in place
//!   16    4  CRC-32C of bytes 0..2176, with this field zero
//!   20   44  zero
//!   64   64  one bit per block: whether it was ever written (otherwise it reads as fill)
//!  128 2048  one CRC-32C per block (u32), of its bytes zero-padded to 64 KiB
//! ```
//!
//! A page with the mark of an earlier process is stale: the checksums of its group are recomputed from the data, so
//! that blocks that were merely overwritten do not fail. The same holds for a page that does not match its own
//! checksum, if a power failure may have torn it, that is, if the store was not closed cleanly and the page has a
//! writer mark. Otherwise such a page is damage, and its checksums are unusable.

use std::sync::atomic::{AtomicU64, Ordering};

use super::PAGE;
use crate::checksum::{crc32c, padded};
use crate::store::local::labels::{u32_at, u64_at};

/// Bytes of a block.
pub(in crate::store::local) const BLOCK: u64 = crate::store::SUMMED;
/// Blocks of a group.
pub(in crate::store::local) const BLOCKS: usize = 512;
/// Bytes of data of a group.
pub(in crate::store::local) const GROUP: u64 = BLOCK * BLOCKS as u64;
/// Bytes of the page that are used.
pub(super) const USED: usize = 2176;

const MAGIC: &[u8; 4] = b"SLGP";
const WORDS: usize = BLOCKS / 64;

/// The current checksums of a group; the page in the file may be older.
#[derive(Debug)]
pub(super) struct Group {
    sums: [u32; BLOCKS],
    present: [u64; WORDS],
    /// Blocks that were verified recently, and since when (milliseconds of the store's clock).
    checked: [AtomicU64; WORDS],
    checked_at: AtomicU64,
    /// The page in the file differs from this.
    pub(super) dirty: bool,
    /// The page has this process's mark.
    pub(super) marked: bool,
    /// The page is in the file.
    pub(super) stored: bool,
}

/// The result of reading a page.
pub(super) enum Read {
    /// Nothing was ever written to the group.
    Empty,
    /// The checksums are valid.
    Good(Group),
    /// An earlier process was writing; the checksums are only hints.
    Stale(Group),
    /// Damaged.
    Bad(String),
}

impl Group {
    pub(super) fn new() -> Self {
        Self {
            sums: [0; BLOCKS],
            present: [0; WORDS],
            checked: Default::default(),
            checked_at: AtomicU64::new(0),
            dirty: false,
            marked: false,
            stored: false,
        }
    }

    pub(super) fn has(&self, block: usize) -> bool {
        self.present[block / 64] & bit(block) != 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.present == [0; WORDS]
    }

    /// The checksum of a block, if it was written.
    pub(super) fn sum(&self, block: usize) -> Option<u32> {
        self.has(block).then(|| self.sums[block])
    }

    pub(super) fn set(&mut self, block: usize, sum: Option<u32>) {
        match sum {
            Some(_) => self.present[block / 64] |= bit(block),
            None => self.present[block / 64] &= !bit(block),
        }
        self.sums[block] = sum.unwrap_or(0);
        self.doubt(block);
        self.dirty = true;
    }

    /// Whether the block was verified within the last `valid` milliseconds before `now`.
    pub(super) fn is_checked(&self, block: usize, now: u64, valid: u64) -> bool {
        let at = self.checked_at.load(Ordering::Acquire);
        if now.saturating_sub(at) > valid {
            if self
                .checked_at
                .compare_exchange(at, now, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                for word in &self.checked {
                    word.store(0, Ordering::Release);
                }
            }
            return false;
        }
        self.checked[block / 64].load(Ordering::Acquire) & bit(block) != 0
    }

    pub(super) fn note_checked(&self, block: usize) {
        self.checked[block / 64].fetch_or(bit(block), Ordering::Release);
    }

    /// Clears the verified state of a block.
    pub(super) fn doubt(&self, block: usize) {
        self.checked[block / 64].fetch_and(!bit(block), Ordering::Release);
    }

    /// Encodes the page with this writer mark.
    pub(super) fn page(&self, number: u32, writer: u64) -> [u8; USED] {
        let mut page = [0; USED];
        page[..4].copy_from_slice(MAGIC);
        page[4..8].copy_from_slice(&number.to_le_bytes());
        page[8..16].copy_from_slice(&writer.to_le_bytes());
        for (out, word) in page[64..128]
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip(&self.present)
        {
            *out = word.to_le_bytes();
        }
        for (out, sum) in page[128..]
            .as_chunks_mut::<4>()
            .0
            .iter_mut()
            .zip(&self.sums)
        {
            *out = sum.to_le_bytes();
        }
        let crc = crc32c(&page);
        page[16..20].copy_from_slice(&crc.to_le_bytes());
        page
    }

    /// Reads the page of group `number`; `me` is the mark of this process. In a store that was closed cleanly
    /// (`clean`), no page is torn.
    pub(super) fn read(page: &[u8], number: u32, me: u64, clean: bool) -> Read {
        debug_assert!(USED <= PAGE as usize);
        if page.iter().all(|&b| b == 0) {
            return Read::Empty;
        }
        let Some(page) = page.first_chunk::<USED>() else {
            return Read::Bad(format!(
                "the file ends within the checksums of group {number}"
            ));
        };
        let mut group = Self::new();
        group.stored = true;
        let mut words = page[64..128].as_chunks::<8>().0.iter();
        group.present = std::array::from_fn(|_| words.next().map_or(0, |w| u64::from_le_bytes(*w)));
        let mut sums = page[128..].as_chunks::<4>().0.iter();
        group.sums = std::array::from_fn(|_| sums.next().map_or(0, |w| u32::from_le_bytes(*w)));
        let writer = u64_at(page, 8);
        let mut blank = *page;
        blank[16..20].fill(0);
        let sound =
            crc32c(&blank) == u32_at(page, 16) && &page[..4] == MAGIC && u32_at(page, 4) == number;
        match (sound, writer) {
            (true, 0) => Read::Good(group),
            (true, writer) if writer == me => {
                group.marked = true;
                Read::Good(group)
            }
            (true, _) => Read::Stale(group),
            (false, writer) if clean || writer == 0 => Read::Bad(format!(
                "the page with the checksums of group {number} does not match its own"
            )),
            (false, _) => {
                // Torn while it was rewritten: its content is unusable.
                let mut group = Self::new();
                group.stored = true;
                Read::Stale(group)
            }
        }
    }
}

fn bit(block: usize) -> u64 {
    1 << (block % 64)
}

/// The checksum of a block that holds these bytes and then zeros.
pub(super) fn sum_of(bytes: &[u8]) -> u32 {
    padded(crc32c(bytes), BLOCK - bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_round_trip() {
        let mut group = Group::new();
        group.set(0, Some(0));
        group.set(511, Some(7));
        group.set(64, Some(9));
        group.set(64, None);
        let page = group.page(5, 0);
        let Read::Good(back) = Group::read(&page, 5, 42, true) else {
            panic!("not good")
        };
        assert_eq!(
            (back.sum(0), back.sum(64), back.sum(511)),
            (Some(0), None, Some(7))
        );
        assert!(!back.marked && back.stored);
        assert!(matches!(Group::read(&page, 6, 42, false), Read::Bad(_)));
        assert!(matches!(Group::read(&group.page(5, 42), 5, 42, true), Read::Good(g) if g.marked));
        assert!(
            matches!(Group::read(&group.page(5, 41), 5, 42, true), Read::Stale(g) if g.sum(511) == Some(7))
        );
        assert!(matches!(Group::read(&[0; 4096], 5, 42, true), Read::Empty));
        assert!(matches!(
            Group::read(&page[..1000], 5, 42, false),
            Read::Bad(_)
        ));
        for at in 0..USED {
            let mut bad = page;
            bad[at] ^= 1;
            assert!(
                matches!(Group::read(&bad, 5, 42, true), Read::Bad(_)),
                "{at}"
            );
            let torn = (8..16).contains(&at);
            let read = Group::read(&bad, 5, 42, false);
            assert_eq!(matches!(read, Read::Stale(_)), torn, "{at}");
            assert_eq!(matches!(read, Read::Bad(_)), !torn, "{at}");
        }
    }

    #[test]
    fn verifications_expire_and_writes_reset_them() {
        let mut group = Group::new();
        assert!(!group.is_checked(3, 5000, 1000));
        group.note_checked(3);
        group.note_checked(4);
        assert!(group.is_checked(3, 5900, 1000));
        group.set(3, Some(1));
        assert!(!group.is_checked(3, 5900, 1000) && group.is_checked(4, 5900, 1000));
        assert!(!group.is_checked(4, 6100, 1000));
    }
}
