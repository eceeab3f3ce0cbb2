//! Encoded chunks as a stream of bytes: what a program writes to a file of a mount, or reads from it, once it has made
//! the file one of chunks (`docs/formats/chunk-stream.md`).
//!
//! Integers are little-endian. A chunk is a head and its encoded bytes:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `SLEC` |
//! | 1 | version, 1 |
//! | 1 | rank |
//! | 1 | codec, as in `docs/formats/chunks.md` |
//! | 1 | zero |
//! | 4 | level of the codec |
//! | 4 | number of encoded bytes |
//! | 8 × rank | offset of the chunk in the array, in elements |
//! | 8 × rank | its shape |
//! | 8 × rank | offset of the part of it that is shown |
//! | 8 × rank | its shape |

use crate::{Codec, Coords, MAX_RANK, Region};

/// The most encoded bytes of a chunk.
pub const MAX_ENCODED: usize = 64 << 20;

const MAGIC: [u8; 4] = *b"SLEC";
const VERSION: u8 = 1;
/// Bytes of a head before its regions.
const FIXED: usize = 16;

/// What stands before the bytes of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkHead {
    /// The chunk's box of the array, in elements; it may reach beyond the array.
    pub chunk: Region,
    /// The part of it that is shown.
    pub shown: Region,
    /// How the bytes are encoded.
    pub codec: Codec,
    /// The number of encoded bytes.
    pub bytes: u32,
}

/// Why a stream cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a stream of encoded chunks: {0}")]
pub struct StreamError(String);

/// The chunks that a part of a stream completes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Completed<'a> {
    /// The one that began in an earlier part, and its bytes.
    pub first: Option<(ChunkHead, Vec<u8>)>,
    /// Those within this part.
    pub others: Vec<(ChunkHead, &'a [u8])>,
}

/// The end of a stream so far: a chunk of which bytes are missing.
#[derive(Debug, Default)]
pub struct ChunkStream {
    /// The bytes of its head, until that is complete.
    head: Vec<u8>,
    /// The chunk, once its head is complete, and its bytes so far.
    begun: Option<(ChunkHead, Vec<u8>)>,
}

impl ChunkHead {
    /// Appends the head to `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        let (codec, level) = self.codec.number();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.chunk.rank() as u8, codec, 0]);
        out.extend_from_slice(&level.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        for region in [&self.chunk, &self.shown] {
            for value in region.offset.iter().chain(&region.shape) {
                out.extend_from_slice(&value.to_le_bytes());
            }
        }
    }

    /// The head at the beginning of `bytes`, and its length; `None` if bytes of it are missing.
    ///
    /// # Errors
    /// If it is no head.
    pub fn read(bytes: &[u8]) -> Result<Option<(ChunkHead, usize)>, StreamError> {
        let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED>() else {
            return match bytes.iter().zip(&MAGIC).all(|(one, other)| one == other) {
                true => Ok(None),
                false => Err(not_a_head()),
            };
        };
        let [a, b, c, d, version, rank, codec, zero, rest_of_fixed @ ..] = *fixed;
        if [a, b, c, d] != MAGIC {
            return Err(not_a_head());
        }
        if version != VERSION || zero != 0 {
            return Err(StreamError(format!(
                "version {version}, and this program knows {VERSION}"
            )));
        }
        let rank = usize::from(rank);
        if rank > MAX_RANK {
            return Err(StreamError(format!(
                "{rank} axes, at most {MAX_RANK} are possible"
            )));
        }
        let [l0, l1, l2, l3, b0, b1, b2, b3] = rest_of_fixed;
        let level = i32::from_le_bytes([l0, l1, l2, l3]);
        let codec = Codec::of_number(codec, level)
            .ok_or_else(|| StreamError(format!("codec {codec} of level {level} is unknown")))?;
        let bytes = u32::from_le_bytes([b0, b1, b2, b3]);
        if bytes as usize > MAX_ENCODED {
            return Err(StreamError(format!(
                "a chunk of {bytes} encoded bytes, at most {MAX_ENCODED} are possible"
            )));
        }
        let Some(numbers) = rest.get(..rank * 4 * size_of::<u64>()) else {
            return Ok(None);
        };
        let numbers = numbers.as_chunks::<8>().0.iter().copied();
        let numbers: Vec<u64> = numbers.map(u64::from_le_bytes).collect();
        let region = |at: usize| Region {
            offset: Coords::from_slice(&numbers[at * rank..(at + 1) * rank]),
            shape: Coords::from_slice(&numbers[(at + 1) * rank..(at + 2) * rank]),
        };
        let head = ChunkHead {
            chunk: region(0),
            shown: region(2),
            codec,
            bytes,
        };
        Ok(Some((head, FIXED + rank * 4 * size_of::<u64>())))
    }
}

fn not_a_head() -> StreamError {
    StreamError("the bytes are no head of a chunk".to_owned())
}

impl ChunkStream {
    /// Whether a chunk has begun and bytes of it are missing.
    #[must_use]
    pub fn is_within_chunk(&self) -> bool {
        !self.head.is_empty() || self.begun.is_some()
    }

    /// Bytes of memory that the chunk of which bytes are missing takes, when it is complete.
    #[must_use]
    pub fn memory(&self) -> usize {
        let begun = self
            .begun
            .as_ref()
            .map_or(0, |(head, _)| head.bytes as usize);
        self.head.len() + begun
    }

    /// Takes the next part of the stream.
    ///
    /// # Errors
    /// If it is not one of chunks; the stream is then of no use any more.
    pub fn take<'a>(&mut self, part: &'a [u8]) -> Result<Completed<'a>, StreamError> {
        let mut completed = Completed::default();
        let mut rest = self.finish_head(part)?;
        if let Some((head, bytes)) = &mut self.begun {
            let missing = head.bytes as usize - bytes.len();
            let (own, others) = rest.split_at(missing.min(rest.len()));
            bytes.extend_from_slice(own);
            rest = others;
            if bytes.len() < head.bytes as usize {
                return Ok(completed);
            }
            completed.first = self.begun.take();
        }
        while !rest.is_empty() {
            let Some((head, len)) = ChunkHead::read(rest)? else {
                self.head = rest.to_vec();
                break;
            };
            let bytes = &rest[len..];
            match bytes.split_at_checked(head.bytes as usize) {
                Some((own, others)) => {
                    completed.others.push((head, own));
                    rest = others;
                }
                None => {
                    self.begun = Some((head, bytes.to_vec()));
                    break;
                }
            }
        }
        Ok(completed)
    }

    /// Completes the head that an earlier part began; returns what follows it.
    fn finish_head<'a>(&mut self, part: &'a [u8]) -> Result<&'a [u8], StreamError> {
        let mut rest = part;
        while !self.head.is_empty() && !rest.is_empty() {
            let more = rest.len().min(4 * size_of::<u64>());
            let before = self.head.len();
            self.head.extend_from_slice(&rest[..more]);
            rest = &rest[more..];
            if let Some((head, len)) = ChunkHead::read(&self.head)? {
                // What was taken behind the head goes back.
                let behind = self.head.len() - len;
                debug_assert!(len > before || behind <= more);
                rest = &part[part.len() - rest.len() - behind..];
                self.head = Vec::new();
                self.begun = Some((head, Vec::new()));
            }
        }
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunk() -> impl Strategy<Value = (ChunkHead, Vec<u8>)> {
        let codec = prop_oneof![
            Just(Codec::None),
            Just(Codec::ShuffleDeflate(4)),
            Just(Codec::Zstd(-3))
        ];
        (0..5usize, codec, 0..200usize, any::<u64>()).prop_map(|(rank, codec, len, seed)| {
            let numbers = |at: u64| (0..rank as u64).map(|i| seed ^ (at * 31 + i)).collect();
            let region = |at| Region {
                offset: numbers(at),
                shape: numbers(at + 1),
            };
            let bytes: Vec<u8> = (0..len).map(|i| (seed as usize + i * 7) as u8).collect();
            let head = ChunkHead {
                chunk: region(0),
                shown: region(2),
                codec,
                bytes: len as u32,
            };
            (head, bytes)
        })
    }

    proptest! {
        /// However a stream is cut into parts, the same chunks come out of it.
        #[test]
        fn chunks_come_out_of_any_parts(
            chunks in prop::collection::vec(chunk(), 0..6),
            cuts in prop::collection::vec(1..90usize, 0..40),
        ) {
            let mut bytes = Vec::new();
            for (head, data) in &chunks {
                head.put(&mut bytes);
                bytes.extend_from_slice(data);
            }
            let mut stream = ChunkStream::default();
            let mut found = Vec::new();
            let mut rest = &bytes[..];
            for cut in cuts.iter().copied().chain([usize::MAX]) {
                let (part, others) = rest.split_at(cut.min(rest.len()));
                rest = others;
                let completed = stream.take(part).unwrap();
                found.extend(completed.first);
                found.extend(completed.others.into_iter().map(|(head, own)| (head, own.to_vec())));
            }
            prop_assert!(!stream.is_within_chunk());
            prop_assert_eq!(found, chunks);
        }

        #[test]
        fn other_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 16..300)) {
            prop_assume!(!bytes.starts_with(b"SLEC"));
            prop_assert!(ChunkStream::default().take(&bytes).is_err());
        }
    }

    #[test]
    fn limits_are_checked_before_memory_is_taken() {
        let region = Region::new(&[0], &[1]);
        let head = ChunkHead {
            chunk: region.clone(),
            shown: region,
            codec: Codec::None,
            bytes: MAX_ENCODED as u32 + 1,
        };
        let mut bytes = Vec::new();
        head.put(&mut bytes);
        assert!(ChunkHead::read(&bytes).is_err());
        bytes[12..16].copy_from_slice(&1u32.to_le_bytes());
        assert!(ChunkHead::read(&bytes).unwrap().is_some());
        for (at, value) in [(4, 2), (5, 33), (6, 9), (7, 1)] {
            let mut bad = bytes.clone();
            bad[at] = value;
            assert!(ChunkHead::read(&bad).is_err(), "{at}");
        }
    }
}
