//! The head of a large chunk's file.
//!
//! ```text
//!  0  8  magic "SLABCHNK"
//!  8  4  version, 1
//! 12  4  length of the head area H: a multiple of 4096; the first group begins there
//! 16  8  sequence number: larger than that of any earlier record or file
//! 24  1  encoding: 0 raw, 1 compressed (codec::coded)
//! 25  1  1 once the chunk is sealed (immutable)
//! 26  6  zero
//! 32  8  bytes of content if sealed; otherwise 0, and the file's length determines it
//! 40  4  length of name and form
//! 44  4  CRC-32C of bytes 0..44 and of name and form
//! 48     name and form (`labels`)
//! ```

use super::PAGE;
use crate::checksum::{combined, crc32c};
use crate::name::{ChunkForm, ChunkName};
use crate::store::local::labels::{self, u32_at, u64_at};

const MAGIC: &[u8; 8] = b"SLABCHNK";
const VERSION: u32 = 1;
const FIXED: usize = 48;
/// The maximum length. Most heads are one page; a fill value of 64 KiB needs more.
const LEN_MAX: u32 = 1 << 17;

/// The encoding of a chunk's bytes in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::local) enum Encoding {
    /// Unencoded.
    Raw,
    /// Compressed in blocks, see `codec::coded`.
    Coded,
}

/// The content of a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::local) struct Head {
    pub(in crate::store::local) name: ChunkName,
    pub(in crate::store::local) form: ChunkForm,
    pub(in crate::store::local) sequence: u64,
    pub(in crate::store::local) encoding: Encoding,
    pub(in crate::store::local) sealed: bool,
    /// Bytes of content of a sealed chunk.
    pub(in crate::store::local) content: u64,
}

impl Head {
    /// The bytes of the head area, zero-padded. The length of a head never changes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut label = Vec::new();
        labels::write(&self.name, &self.form, &mut label);
        let area = (FIXED + label.len()).next_multiple_of(PAGE as usize);
        let mut out = Vec::with_capacity(area);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(area as u32).to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.push(u8::from(self.encoding == Encoding::Coded));
        out.push(u8::from(self.sealed));
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.content.to_le_bytes());
        out.extend_from_slice(&(label.len() as u32).to_le_bytes());
        let crc = combined(crc32c(&out), crc32c(&label), label.len() as u64);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&label);
        out.resize(area, 0);
        out
    }

    /// The length of the head area, read from its first page.
    pub(super) fn area(first: &[u8]) -> Result<usize, String> {
        if first.len() < FIXED {
            return Err(format!(
                "the file ends after {} bytes, within its head",
                first.len()
            ));
        }
        if &first[..8] != MAGIC {
            return Err("the head of the file does not begin as it should".to_owned());
        }
        let area = u32_at(first, 12);
        if area == 0 || area > LEN_MAX || !u64::from(area).is_multiple_of(PAGE) {
            return Err(format!(
                "the head of the file gives itself a length of {area} bytes"
            ));
        }
        Ok(area as usize)
    }

    /// Reads a head area.
    pub(super) fn parse(area: &[u8]) -> Result<Self, String> {
        Self::area(area)?;
        let label = area
            .get(FIXED..)
            .and_then(|rest| rest.get(..u32_at(area, 40) as usize));
        let label = label.ok_or("the file ends within its head")?;
        if combined(crc32c(&area[..44]), crc32c(label), label.len() as u64) != u32_at(area, 44) {
            return Err("the checksum of the file's head does not match".to_owned());
        }
        let version = u32_at(area, 8);
        if version != VERSION {
            return Err(format!(
                "the file has version {version}, this slabfs reads version {VERSION}: use the slabfs that wrote it"
            ));
        }
        let (name, form, _) = labels::read(label).ok_or("the head of the file makes no sense")?;
        let encoding = match area[24] {
            0 => Encoding::Raw,
            1 => Encoding::Coded,
            other => {
                return Err(format!(
                    "the file has encoding {other}, which this slabfs does not know"
                ));
            }
        };
        Ok(Self {
            name,
            form,
            sequence: u64_at(area, 16),
            encoding,
            sealed: area[25] == 1,
            content: u64_at(area, 32),
        })
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::{ChunkId, Codec, Fill};

    use super::*;

    #[test]
    fn the_example_of_the_page() {
        let form = ChunkForm {
            shape: [4, 8].into_iter().collect(),
            elem: 8,
            codec: Codec::Lz4,
            fill: Fill::zero(),
        };
        let head = Head {
            name: ChunkName::Free(ChunkId(3)),
            form,
            sequence: 1 << 40,
            encoding: Encoding::Coded,
            sealed: true,
            content: 77,
        };
        let bytes = head.bytes();
        crate::store::local::assert_on_the_page(&bytes[..FIXED + u32_at(&bytes, 40) as usize]);
    }

    #[test]
    fn heads_round_trip_and_bit_flips_are_detected() {
        for fill in [Fill::zero(), Fill::from_bytes(&[9; 50_000])] {
            let form = ChunkForm {
                shape: [4, 8].into_iter().collect(),
                elem: 8,
                codec: Codec::Lz4,
                fill,
            };
            let head = Head {
                name: ChunkName::Free(ChunkId(3)),
                form,
                sequence: 1 << 40,
                encoding: Encoding::Coded,
                sealed: true,
                content: 77,
            };
            let mut bytes = head.bytes();
            assert_eq!(bytes.len() as u64 % PAGE, 0);
            assert_eq!(Head::area(&bytes[..4096]), Ok(bytes.len()));
            assert_eq!(Head::parse(&bytes), Ok(head.clone()));
            let used = FIXED + u32_at(&bytes, 40) as usize;
            for at in 0..used.min(200) {
                bytes[at] ^= 4;
                assert!(Head::parse(&bytes).is_err(), "{at}");
                bytes[at] ^= 4;
            }
            assert!(Head::parse(&bytes[..70]).is_err());
        }
    }
}
