//! A leaf: some hundred entries in order, each without the bytes it shares with the previous one.
//!
//! Every sixteenth entry is stored in full, so that a search finds it by bisection and reads on from there. The
//! checksum also covers the leaf's position, so that a leaf in the wrong place is detected as damage. Entries that
//! record a removal are in the same order as the others.
//!
//! `docs/formats/tag-index.md` defines the bytes.

use super::bytes::{common, le32, push_varint, take_varint};
use crc_fast::crc32_iscsi as crc32c;

/// One in this many entries is stored in full.
const FULL_EVERY: u32 = 16;
/// Bytes after the entries and the positions of the full ones.
const TAIL: usize = 12;

/// Checksum of a leaf's bytes and its position.
fn checksum(bytes: &[u8], run: u64, offset: u64) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&run.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c(bytes) ^ crc32c(&place).rotate_left(16)
}

/// A leaf being made.
#[derive(Debug, Default)]
pub(super) struct LeafBuilder {
    bytes: Vec<u8>,
    fulls: Vec<u32>,
    entries: u32,
    last: Vec<u8>,
}

impl LeafBuilder {
    /// Adds an entry; they must ascend.
    pub(super) fn push(&mut self, key: &[u8], gone: bool) {
        let shared = if self.entries.is_multiple_of(FULL_EVERY) {
            self.fulls.push(self.bytes.len() as u32);
            0
        } else {
            common(&self.last, key)
        };
        let own = &key[shared..];
        push_varint(&mut self.bytes, shared as u64);
        push_varint(&mut self.bytes, (own.len() as u64) << 1 | u64::from(gone));
        self.bytes.extend_from_slice(own);
        self.last.truncate(shared);
        self.last.extend_from_slice(own);
        self.entries += 1;
    }

    /// The bytes the leaf takes if it is finished now.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + 4 * self.fulls.len() + TAIL
    }

    /// How many entries it has.
    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// The last entry added, also after [`Self::finish`].
    pub(super) fn last(&self) -> &[u8] {
        &self.last
    }

    /// Appends the leaf to `out`, as the one at `offset` of run `run`, and begins an empty one.
    pub(super) fn finish(&mut self, run: u64, offset: u64, out: &mut Vec<u8>) {
        let from = out.len();
        out.extend_from_slice(&self.bytes);
        for full in &self.fulls {
            out.extend_from_slice(&full.to_le_bytes());
        }
        out.extend_from_slice(&(self.fulls.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.entries.to_le_bytes());
        let crc = checksum(&out[from..], run, offset);
        out.extend_from_slice(&crc.to_le_bytes());
        self.bytes.clear();
        self.fulls.clear();
        self.entries = 0;
    }
}

/// A leaf as it was read, its checksum verified.
#[derive(Debug)]
pub(super) struct Leaf {
    bytes: Vec<u8>,
    /// Where the entries end and the positions of the full ones begin.
    end: usize,
    fulls: usize,
}

/// How the bytes of a leaf differ from what was written, in words.
pub(super) type Wrong = &'static str;

impl Leaf {
    /// Takes the bytes read at `offset` of run `run`.
    pub(super) fn new(bytes: Vec<u8>, run: u64, offset: u64) -> Result<Self, Wrong> {
        let tail = bytes.len().checked_sub(TAIL).ok_or("a leaf is too short")?;
        let word = |at| le32(&bytes, at).ok_or("a leaf is too short");
        if word(tail + 8)? != checksum(&bytes[..tail + 8], run, offset) {
            return Err("the checksum of a leaf does not fit its bytes");
        }
        let fulls = word(tail)? as usize;
        let end = fulls.checked_mul(4).and_then(|len| tail.checked_sub(len));
        let end = end.ok_or("a leaf has too many full entries")?;
        if fulls != word(tail + 4)?.div_ceil(FULL_EVERY) as usize || fulls == 0 {
            return Err("a leaf counts its entries wrongly");
        }
        Ok(Self { bytes, end, fulls })
    }

    /// The memory it takes, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + size_of::<Self>()
    }

    /// Number of entries, not counting the last up to fifteen.
    pub(super) fn about(&self) -> usize {
        (self.fulls - 1) * FULL_EVERY as usize
    }

    /// About how many entries are less than `key`: at most sixteen more are.
    pub(super) fn about_below(&self, key: &[u8]) -> Result<usize, Wrong> {
        let below = self.full_below(key)?;
        Ok(below.saturating_sub(1) * FULL_EVERY as usize)
    }

    /// Number of full entries that are less than `key`.
    fn full_below(&self, key: &[u8]) -> Result<usize, Wrong> {
        let (mut low, mut high) = (0, self.fulls);
        while low < high {
            let middle = usize::midpoint(low, high);
            let (_, full, ..) = self.entry(self.full_at(middle)?)?;
            if full < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn full_at(&self, number: usize) -> Result<usize, Wrong> {
        let at = le32(&self.bytes, self.end + 4 * number).map(|at| at as usize);
        at.filter(|&at| at < self.end)
            .ok_or("a leaf's places make no sense")
    }

    /// The entry at `at`: how many bytes it shares, its own bytes, whether it records a removal, and where the next
    /// one is.
    fn entry(&self, mut at: usize) -> Result<(usize, &[u8], bool, usize), Wrong> {
        let wrong = "an entry of a leaf makes no sense";
        let bytes = &self.bytes[..self.end];
        let shared = take_varint(bytes, &mut at).ok_or(wrong)?;
        let own = take_varint(bytes, &mut at).ok_or(wrong)?;
        let gone = own & 1 == 1;
        let next = at + (own >> 1);
        let own = bytes.get(at..next).ok_or(wrong)?;
        Ok((shared, own, gone, next))
    }
}

/// A position between or at the entries of a leaf.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Where the entry after the current one begins.
    next: usize,
    /// The current entry.
    key: Vec<u8>,
    gone: bool,
}

impl Place {
    /// The current entry.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether the current entry records a removal.
    #[inline]
    pub(super) fn gone(&self) -> bool {
        self.gone
    }

    /// Back before the first entry.
    pub(super) fn restart(&mut self) {
        self.next = 0;
        self.key.clear();
    }

    /// Steps to the next entry; false at the end.
    #[inline]
    pub(super) fn advance(&mut self, leaf: &Leaf) -> Result<bool, Wrong> {
        if self.next >= leaf.end {
            return Ok(false);
        }
        let (shared, own, gone, next) = leaf.entry(self.next)?;
        if shared > self.key.len() {
            return Err("an entry of a leaf makes no sense");
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(own);
        self.gone = gone;
        self.next = next;
        Ok(true)
    }

    /// Steps to the first entry from here on that is not less than `key`; false at the end.
    pub(super) fn seek(&mut self, leaf: &Leaf, key: &[u8]) -> Result<bool, Wrong> {
        // The last full entry that is less: the sought one is after it.
        let low = leaf.full_below(key)?;
        if low > 0 {
            let at = leaf.full_at(low - 1)?;
            if at > self.next {
                self.next = at;
            }
        }
        while self.advance(leaf)? {
            if self.key.as_slice() >= key {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf_of(keys: &[String]) -> Vec<u8> {
        let mut builder = LeafBuilder::default();
        for (i, key) in keys.iter().enumerate() {
            builder.push(key.as_bytes(), i % 3 == 0);
        }
        let len = builder.len();
        let mut bytes = Vec::new();
        builder.finish(7, 64, &mut bytes);
        assert_eq!(bytes.len(), len);
        bytes
    }

    fn keys(n: usize) -> Vec<String> {
        (0..n).map(|i| format!("key {:05}", i * 2)).collect()
    }

    #[test]
    fn entries_come_back_in_order_and_are_found() {
        for n in [1, 2, 15, 16, 17, 100] {
            let keys = keys(n);
            let leaf = Leaf::new(leaf_of(&keys), 7, 64).expect("leaf");
            let mut place = Place::default();
            for (i, key) in keys.iter().enumerate() {
                assert!(place.advance(&leaf).expect("entry"));
                assert_eq!(place.key(), key.as_bytes());
                assert_eq!(place.gone(), i % 3 == 0);
            }
            assert!(!place.advance(&leaf).expect("end"));
            for i in 0..2 * n {
                let wanted = format!("key {i:05}");
                place.restart();
                let found = place.seek(&leaf, wanted.as_bytes()).expect("seek");
                let expected = keys.iter().find(|key| **key >= wanted);
                assert_eq!(found, expected.is_some());
                if let Some(expected) = expected {
                    assert_eq!(place.key(), expected.as_bytes());
                }
            }
        }
    }

    #[test]
    fn the_example_of_the_page() {
        let mut builder = LeafBuilder::default();
        builder.push(b"tag/a", false);
        builder.push(b"tag/b", true);
        let mut bytes = Vec::new();
        builder.finish(1, 28, &mut bytes);
        bytes.truncate(bytes.len() - 4);
        let shown: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let page = include_str!("../../../../docs/formats/tag-index.md");
        let example = page
            .split("```text\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next());
        let example: Vec<&str> = example.unwrap_or_default().split_whitespace().collect();
        assert_eq!(shown, example);
    }

    #[test]
    fn every_flipped_bit_is_found_and_every_place_is_its_own() {
        let bytes = leaf_of(&keys(40));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            assert!(Leaf::new(bad, 7, 64).is_err(), "{at}");
        }
        assert!(Leaf::new(bytes.clone(), 8, 64).is_err());
        assert!(Leaf::new(bytes.clone(), 7, 65).is_err());
        assert!(Leaf::new(bytes[..5].to_vec(), 7, 64).is_err());
        assert!(Leaf::new(bytes, 7, 64).is_ok());
    }
}
