//! The stored form of a packed chunk: blocks that unpack one by one.
//!
//! The bytes of the chunk are cut into blocks of one length, complete rows where rows are shorter than 1 MiB, so that
//! a small read unpacks little. The packed blocks follow each other; after them comes a table of their lengths (u32
//! each; a length equal to that of the raw block means "unpacked", and the highest bit "packed, whatever the length"),
//! and after the table a tail of 24 bytes: raw bytes (u64), raw bytes a block (u32), number of blocks (u32), CRC-32C of
//! the table and the 16 bytes before it (u32), and the magic `SLCB`.
//!
//! A chunk that came packed, from a file of another format, is one block ([`end_of_one_block`]).

use slabfs_model::Codec;

use super::{CodecError, pack, unpack, unpack_always};
use crate::checksum::crc32c;

/// The most raw bytes in a block that is packed here.
pub const BLOCK_MAX: u64 = 1 << 20;

/// The most raw bytes of a chunk that came packed: it is unpacked into memory as one block.
pub const ONE_BLOCK_MAX: u64 = 64 << 20;

/// In the length of a block: it is packed, even if it is as long as the raw block.
const ALWAYS: u32 = 1 << 31;

/// The bytes of the tail.
pub const TAIL_LEN: u64 = 24;

const MAGIC: [u8; 4] = *b"SLCB";

/// The raw bytes of a block of a chunk of this shape: as many complete rows (planes, cubes ..) as make at most 1 MiB.
#[must_use]
pub fn block_len(shape: &[u64]) -> u32 {
    let mut unit = 1;
    for &len in shape.iter().rev() {
        match u64::checked_mul(unit, len.max(1)) {
            Some(more) if more <= BLOCK_MAX => unit = more,
            _ => return (BLOCK_MAX / unit * unit) as u32,
        }
    }
    unit as u32
}

/// Table and tail of a chunk of `raw` bytes whose only block was packed elsewhere, into `packed` bytes. `None` if one
/// of the lengths is out of range.
#[must_use]
pub fn end_of_one_block(raw: u64, packed: u64) -> Option<Vec<u8>> {
    let block = u32::try_from(raw).ok()?;
    let len = u32::try_from(packed).ok().filter(|len| *len < ALWAYS)?;
    if raw == 0 || raw > ONE_BLOCK_MAX {
        return None;
    }
    let mut out = Vec::with_capacity(4 + TAIL_LEN as usize);
    put_end(&mut out, &[len | ALWAYS], raw, block);
    Some(out)
}

/// Appends table and tail.
fn put_end(out: &mut Vec<u8>, lens: &[u32], raw: u64, block: u32) {
    let table = out.len();
    for len in lens {
        out.extend_from_slice(&len.to_le_bytes());
    }
    out.extend_from_slice(&raw.to_le_bytes());
    out.extend_from_slice(&block.to_le_bytes());
    out.extend_from_slice(&(lens.len() as u32).to_le_bytes());
    let crc = crc32c(&out[table..]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&MAGIC);
}

/// Packs a chunk block by block.
#[derive(Debug)]
pub struct Encoder {
    codec: Codec,
    elem: usize,
    block: u32,
    raw: u64,
    lens: Vec<u32>,
    out: Vec<u8>,
}

impl Encoder {
    /// An encoder for a chunk with blocks of `block` raw bytes.
    #[must_use]
    pub fn new(codec: Codec, elem: usize, block: u32) -> Self {
        Self {
            codec,
            elem,
            block,
            raw: 0,
            lens: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Adds the next block. All but the last must have exactly that length.
    pub fn push(&mut self, raw: &[u8]) -> Result<(), CodecError> {
        if raw.len() > self.block as usize
            || self.raw != self.lens.len() as u64 * u64::from(self.block)
        {
            let detail = "a block of another length than announced".to_owned();
            return Err(CodecError {
                codec: self.codec,
                detail,
            });
        }
        let len = pack(self.codec, self.elem, raw, &mut self.out)?;
        self.lens.push(len as u32);
        self.raw += raw.len() as u64;
        Ok(())
    }

    /// The bytes to store.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        put_end(&mut self.out, &self.lens, self.raw, self.block);
        self.out
    }
}

/// The offsets of the blocks of a packed chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    raw: u64,
    block: u32,
    /// The offset of each block in the stored bytes, and the end of the last one.
    starts: Vec<u64>,
    /// The blocks that are packed even if they are as long as the raw block, in order.
    always: Vec<usize>,
}

impl Table {
    /// How many of the last bytes of a chunk [`Self::parse`] needs, computed from its last [`TAIL_LEN`] bytes.
    pub fn needs(tail: &[u8]) -> Result<u64, String> {
        let (blocks, magic) = match (field(tail, 12), tail.last_chunk::<4>()) {
            (Some(blocks), Some(magic)) if tail.len() as u64 == TAIL_LEN => (blocks, magic),
            _ => {
                return Err(format!(
                    "a packed chunk of {} bytes has no table",
                    tail.len()
                ));
            }
        };
        if *magic != MAGIC {
            return Err("the table of packed blocks does not end as it should".to_owned());
        }
        Ok(TAIL_LEN + u64::from(blocks) * 4)
    }

    /// Parses table and tail of a complete chunk.
    pub fn of(stored: &[u8]) -> Result<Self, String> {
        let last = |len: u64| {
            let at = (stored.len() as u64).checked_sub(len);
            at.map_or(stored, |at| &stored[at as usize..])
        };
        Self::parse(last(Self::needs(last(TAIL_LEN))?), stored.len() as u64)
    }

    /// Parses table and tail, the last bytes of a chunk that has `stored` bytes in all.
    pub fn parse(bytes: &[u8], stored: u64) -> Result<Self, String> {
        let bad = |why: &str| Err(format!("the table of packed blocks is wrong: {why}"));
        let Some((table, tail)) = bytes
            .len()
            .checked_sub(TAIL_LEN as usize)
            .map(|at| bytes.split_at(at))
        else {
            return bad("too short");
        };
        let crc = field(tail, 16);
        if crc != Some(crc32c(&bytes[..bytes.len() - 8])) {
            return bad("its checksum does not match");
        }
        let (Some(raw), Some(block), Some(blocks)) = (
            tail.first_chunk().map(|b| u64::from_le_bytes(*b)),
            field(tail, 8),
            field(tail, 12),
        ) else {
            return bad("too short");
        };
        if block == 0
            || raw.div_ceil(u64::from(block)) != u64::from(blocks)
            || table.len() as u64 != u64::from(blocks) * 4
        {
            return bad("the number of blocks");
        }
        let mut starts = Vec::with_capacity(blocks as usize + 1);
        let mut always = Vec::new();
        let mut at = 0u64;
        starts.push(at);
        for (number, len) in table.as_chunks::<4>().0.iter().enumerate() {
            let len = u32::from_le_bytes(*len);
            if len & ALWAYS != 0 {
                always.push(number);
            }
            at += u64::from(len & !ALWAYS);
            starts.push(at);
        }
        if at + bytes.len() as u64 != stored {
            return bad("the lengths of the blocks");
        }
        Ok(Self {
            raw,
            block,
            starts,
            always,
        })
    }

    /// The raw bytes of the chunk.
    #[must_use]
    pub fn raw_len(&self) -> u64 {
        self.raw
    }

    /// The stored bytes of the only block, if there is one block and it is packed.
    #[must_use]
    pub fn only_packed(&self) -> Option<std::ops::Range<u64>> {
        let stored = (self.blocks() == 1).then(|| self.stored_range(0))?;
        let is_packed = stored.end - stored.start != self.raw || !self.always.is_empty();
        is_packed.then_some(stored)
    }

    /// The block that holds the raw byte `at`.
    #[must_use]
    pub fn block_at(&self, at: u64) -> usize {
        (at / u64::from(self.block)) as usize
    }

    /// The number of blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.starts.len() - 1
    }

    /// The raw bytes of a block.
    #[must_use]
    pub fn raw_range(&self, block: usize) -> std::ops::Range<u64> {
        let start = block as u64 * u64::from(self.block);
        start..self.raw.min(start + u64::from(self.block))
    }

    /// The stored bytes of a block.
    #[must_use]
    pub fn stored_range(&self, block: usize) -> std::ops::Range<u64> {
        self.starts[block]..self.starts[block + 1]
    }

    /// Unpacks the stored bytes of a block into `raw`, which has the block's raw length.
    pub fn unpack_into(
        &self,
        block: usize,
        codec: Codec,
        elem: usize,
        packed: &[u8],
        raw: &mut [u8],
    ) -> Result<(), CodecError> {
        match self.always.binary_search(&block) {
            Ok(_) => unpack_always(codec, elem, packed, raw),
            Err(_) => unpack(codec, elem, packed, raw),
        }
    }

    /// The same; `raw` is resized to the block's raw length.
    pub fn unpack_block(
        &self,
        block: usize,
        codec: Codec,
        elem: usize,
        packed: &[u8],
        raw: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        let range = self.raw_range(block);
        raw.resize((range.end - range.start) as usize, 0);
        self.unpack_into(block, codec, elem, packed, raw)
    }
}

fn field(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_complete_rows() {
        assert_eq!(block_len(&[]), 1);
        assert_eq!(block_len(&[10, 9]), 90);
        assert_eq!(block_len(&[1000, 300_000]), 900_000);
        assert_eq!(block_len(&[5, 1000, 1000]), 1_000_000);
        assert_eq!(block_len(&[1 << 30]), 1 << 20);
        assert_eq!(block_len(&[u64::MAX, 4096]), 1 << 20);
    }

    #[test]
    fn a_chunk_comes_back_block_by_block() {
        let raw: Vec<u8> = (0..10_000u32).flat_map(|x| x.to_le_bytes()).collect();
        let mut encoder = Encoder::new(Codec::ShuffleZstd(3), 4, 900);
        for block in raw.chunks(900) {
            encoder.push(block).unwrap();
        }
        let stored = encoder.finish();
        let tail = &stored[stored.len() - TAIL_LEN as usize..];
        let needs = Table::needs(tail).unwrap() as usize;
        let table = Table::parse(&stored[stored.len() - needs..], stored.len() as u64).unwrap();
        assert_eq!((table.raw_len(), table.blocks()), (40_000, 45));
        let mut out = Vec::new();
        for block in (0..45).rev() {
            let at = table.stored_range(block);
            let packed = &stored[at.start as usize..at.end as usize];
            table
                .unpack_block(block, Codec::ShuffleZstd(3), 4, packed, &mut out)
                .unwrap();
            let raw_at = table.raw_range(block);
            assert_eq!(out, raw[raw_at.start as usize..raw_at.end as usize]);
        }
        for flip in 0..needs {
            let mut bad = stored[stored.len() - needs..].to_vec();
            bad[flip] ^= 0x10;
            let needed = Table::needs(&bad[needs - TAIL_LEN as usize..]);
            assert!(
                needed != Ok(needs as u64) || Table::parse(&bad, stored.len() as u64).is_err(),
                "{flip}"
            );
        }
    }

    /// A block that was packed elsewhere may be as long as the raw block, or longer. Bytes after the end of the deflate
    /// stream do not count.
    #[test]
    fn a_block_that_came_packed_is_unpacked_whatever_its_length() {
        let raw: Vec<u8> = (0..1000u32).map(|x| (x * x * 7 + x / 3) as u8).collect();
        for (level, len) in [(0, 0), (1, 0), (9, 0), (9, raw.len()), (1, 3 * raw.len())] {
            let level = flate2::Compression::new(level);
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            std::io::Write::write_all(&mut encoder, &raw).unwrap();
            let mut packed = encoder.finish().unwrap();
            packed.resize(packed.len().max(len), 0);
            let end = end_of_one_block(raw.len() as u64, packed.len() as u64).unwrap();
            let table = Table::parse(&end, (packed.len() + end.len()) as u64).unwrap();
            let mut out = Vec::new();
            table
                .unpack_block(0, Codec::Deflate(1), 4, &packed, &mut out)
                .unwrap();
            assert_eq!(out, raw);
        }
        assert!(end_of_one_block(0, 1).is_none());
        assert!(end_of_one_block(ONE_BLOCK_MAX + 1, 1).is_none());
        assert!(end_of_one_block(1, 1 << 31).is_none());
    }

    #[test]
    fn an_empty_chunk_has_a_table() {
        let stored = Encoder::new(Codec::Lz4, 4, 1).finish();
        assert_eq!(Table::parse(&stored, TAIL_LEN).unwrap().blocks(), 0);
    }
}
