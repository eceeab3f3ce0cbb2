//! The filters deflate, shuffle and fletcher32 of HDF5, without the library, which does one thing at a time.
//!
//! Formats: "HDF5 File Format Specification", IV.A.2.l, and the library's `H5Zshuffle.c` and `H5checksum.c`. Chunks with other
//! filters go through the library.

use libdeflater::{CompressionLvl, Compressor, Decompressor};

use super::noise::Noise;

use crate::hdf5::Filter;

/// Why a chunk cannot be decoded or encoded.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The compressed bytes are none, or are too many.
    #[error("its compressed data is damaged")]
    Deflate,
    /// The checksum does not fit.
    #[error("its checksum is wrong")]
    Checksum,
    /// The chunk has another size than its shape says.
    #[error("it has {found} bytes and not {expected}")]
    Size {
        /// How many it has.
        found: usize,
        /// How many it should have.
        expected: usize,
    },
    /// A filter that is not known here.
    #[error("its filter {0} is not known")]
    Unknown(u32),
}

/// Whether all filters are known here.
pub fn is_native(filters: &[Filter]) -> bool {
    let known = [Filter::DEFLATE, Filter::SHUFFLE, Filter::FLETCHER32];
    filters.iter().all(|filter| known.contains(&filter.id))
}

/// Decodes and encodes chunks; one a thread.
#[derive(Default)]
pub struct Codec {
    decompressor: Option<Decompressor>,
    compressor: Option<(i32, Compressor)>,
    noise: Option<Noise>,
    spare: Vec<u8>,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}

impl Codec {
    /// Undoes the filters of a stored chunk that its mask does not exclude; the result has `size` bytes, in elements of `elem`.
    ///
    /// # Errors
    /// The chunk is damaged.
    pub fn decode(
        &mut self,
        stored: &[u8],
        filters: &[Filter],
        mask: u32,
        (elem, size): (usize, usize),
    ) -> Result<Vec<u8>, CodecError> {
        let mut bytes = stored.to_vec();
        for (at, filter) in filters.iter().enumerate().rev() {
            if mask & 1_u32.checked_shl(at as u32).unwrap_or(0) != 0 {
                continue;
            }
            match filter.id {
                Filter::FLETCHER32 => check(&mut bytes)?,
                Filter::DEFLATE => {
                    // Filters before this one can have added a checksum.
                    self.spare.resize(size + 4 * at, 0);
                    let decompressor = self.decompressor.get_or_insert_with(Decompressor::new);
                    let len = decompressor
                        .zlib_decompress(&bytes, &mut self.spare)
                        .map_err(|_| CodecError::Deflate)?;
                    self.spare.truncate(len);
                    std::mem::swap(&mut bytes, &mut self.spare);
                }
                Filter::SHUFFLE => {
                    self.spare.resize(bytes.len(), 0);
                    unshuffle(&bytes, &mut self.spare, elem);
                    std::mem::swap(&mut bytes, &mut self.spare);
                }
                other => return Err(CodecError::Unknown(other)),
            }
        }
        match bytes.len() == size {
            true => Ok(bytes),
            false => Err(CodecError::Size {
                found: bytes.len(),
                expected: size,
            }),
        }
    }

    /// Applies the filters to the elements of a chunk of this shape, of `elem` bytes each.
    ///
    /// # Errors
    /// A filter is not known here.
    pub fn encode(
        &mut self,
        chunk: &[u8],
        filters: &[Filter],
        (elem, shape): (usize, &[u64]),
    ) -> Result<Vec<u8>, CodecError> {
        let mut bytes: Option<Vec<u8>> = None;
        let mut shuffled = false;
        for filter in filters {
            let from = bytes.as_deref().unwrap_or(chunk);
            let next = match filter.id {
                Filter::FLETCHER32 => {
                    let mut summed = from.to_vec();
                    summed.extend(fletcher32(from).to_le_bytes());
                    summed
                }
                Filter::DEFLATE => {
                    let level = filter
                        .values
                        .first()
                        .map_or(6, |&level| level.min(9) as i32);
                    let noise = match shuffled {
                        true => self
                            .noise
                            .get_or_insert_with(Noise::new)
                            .prefix(from, elem, shape),
                        false => 0,
                    };
                    self.compress(from, level, noise)?
                }
                Filter::SHUFFLE => {
                    self.spare.resize(from.len(), 0);
                    shuffle(from, &mut self.spare, elem);
                    let last = bytes.take().unwrap_or_default();
                    std::mem::replace(&mut self.spare, last)
                }
                other => return Err(CodecError::Unknown(other)),
            };
            shuffled = filter.id == Filter::SHUFFLE;
            bytes = Some(next);
        }
        Ok(bytes.unwrap_or_else(|| chunk.to_vec()))
    }

    /// Compresses to the format of zlib (RFC 1950); the first `noise` bytes are stored (RFC 1951, 3.2.4).
    fn compress(&mut self, bytes: &[u8], level: i32, noise: usize) -> Result<Vec<u8>, CodecError> {
        if self.compressor.as_ref().is_none_or(|(of, _)| *of != level) {
            let of = CompressionLvl::new(level).map_err(|_| CodecError::Deflate)?;
            self.compressor = Some((level, Compressor::new(of)));
        }
        let Some((_, compressor)) = &mut self.compressor else {
            return Err(CodecError::Deflate);
        };
        let (stored, rest) = bytes.split_at(noise);
        // Deflate with a window of 32 KiB, and a check of these two bytes.
        let mut out = vec![0x78, 0x9c];
        for block in stored.chunks(usize::from(u16::MAX)) {
            let len = block.len() as u16;
            // Not the last block, and stored: a byte of zeros, since each block ends with a byte.
            out.push(0);
            out.extend(len.to_le_bytes());
            out.extend((!len).to_le_bytes());
            out.extend(block);
        }
        let start = out.len();
        out.resize(start + compressor.deflate_compress_bound(rest.len()), 0);
        let len = compressor
            .deflate_compress(rest, &mut out[start..])
            .map_err(|_| CodecError::Deflate)?;
        out.truncate(start + len);
        out.extend(libdeflater::adler32(bytes).to_be_bytes());
        Ok(out)
    }
}

/// Removes the checksum at the end, and fails if it is wrong.
///
/// # Errors
/// It is wrong, or there is none.
pub fn check(bytes: &mut Vec<u8>) -> Result<(), CodecError> {
    let at = bytes.len().checked_sub(4).ok_or(CodecError::Checksum)?;
    let stored = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    bytes.truncate(at);
    let sum = fletcher32(bytes);
    // Old versions of the library on little-endian machines stored the bytes of each half in the other order.
    let swapped = [stored[1], stored[0], stored[3], stored[2]];
    match [stored, swapped].map(u32::from_le_bytes).contains(&sum) {
        true => Ok(()),
        false => Err(CodecError::Checksum),
    }
}

/// The checksum of Fletcher over big-endian words of two bytes, as HDF5 computes it.
fn fletcher32(bytes: &[u8]) -> u32 {
    let (mut one, mut two) = (0_u32, 0_u32);
    // As many words as can be added before the second sum overflows.
    for block in bytes.chunks(720) {
        for word in block.chunks(2) {
            let low = word.get(1).copied().unwrap_or(0);
            one += u32::from(word[0]) << 8 | u32::from(low);
            two += one;
        }
        one = (one & 0xffff) + (one >> 16);
        two = (two & 0xffff) + (two >> 16);
    }
    one = (one & 0xffff) + (one >> 16);
    two = (two & 0xffff) + (two >> 16);
    two << 16 | one
}

/// Puts all first bytes of the elements before all second bytes, and so on; bytes after the last element stay.
fn shuffle(from: &[u8], to: &mut [u8], elem: usize) {
    let count = from.len().checked_div(elem).unwrap_or(0);
    if elem < 2 || count < 2 {
        return to.copy_from_slice(from);
    }
    let end = count * elem;
    match elem {
        2 => planes::<2>(&from[..end], &mut to[..end]),
        4 => planes::<4>(&from[..end], &mut to[..end]),
        8 => planes::<8>(&from[..end], &mut to[..end]),
        _ => {
            for byte in 0..elem {
                for at in 0..count {
                    to[byte * count + at] = from[at * elem + byte];
                }
            }
        }
    }
    to[end..].copy_from_slice(&from[end..]);
}

/// Undoes [`shuffle`].
fn unshuffle(from: &[u8], to: &mut [u8], elem: usize) {
    let count = from.len().checked_div(elem).unwrap_or(0);
    if elem < 2 || count < 2 {
        return to.copy_from_slice(from);
    }
    let end = count * elem;
    match elem {
        2 => elements::<2>(&from[..end], &mut to[..end]),
        4 => elements::<4>(&from[..end], &mut to[..end]),
        8 => elements::<8>(&from[..end], &mut to[..end]),
        _ => {
            for byte in 0..elem {
                for at in 0..count {
                    to[at * elem + byte] = from[byte * count + at];
                }
            }
        }
    }
    to[end..].copy_from_slice(&from[end..]);
}

fn planes<const N: usize>(from: &[u8], to: &mut [u8]) {
    let count = from.len() / N;
    let mut rest = to;
    let planes: [&mut [u8]; N] = std::array::from_fn(|_| {
        let (plane, after) = std::mem::take(&mut rest).split_at_mut(count);
        rest = after;
        plane
    });
    for (at, element) in from.as_chunks::<N>().0.iter().enumerate() {
        for byte in 0..N {
            planes[byte][at] = element[byte];
        }
    }
}

fn elements<const N: usize>(from: &[u8], to: &mut [u8]) {
    let count = from.len() / N;
    let planes: [&[u8]; N] = std::array::from_fn(|byte| &from[byte * count..(byte + 1) * count]);
    for (at, element) in to.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        for byte in 0..N {
            element[byte] = planes[byte][at];
        }
    }
}

/// Reverses the bytes of each element.
pub fn swap(bytes: &mut [u8], elem: usize) {
    match elem {
        2 => bytes
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .for_each(|one| one.reverse()),
        4 => bytes
            .as_chunks_mut::<4>()
            .0
            .iter_mut()
            .for_each(|one| one.reverse()),
        8 => bytes
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .for_each(|one| one.reverse()),
        0 | 1 => {}
        _ => bytes.chunks_exact_mut(elem).for_each(|one| one.reverse()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(id: u32) -> Filter {
        Filter {
            id,
            flags: 0,
            values: vec![4],
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let mut codec = Codec::default();
        let chunk: Vec<u8> = (0..8 * 1001_u32).map(|at| ((at * at) >> 5) as u8).collect();
        let known = [Filter::SHUFFLE, Filter::DEFLATE, Filter::FLETCHER32];
        for elem in [1, 2, 3, 4, 8, 16] {
            for set in 0..8_u32 {
                let filters: Vec<Filter> = (0..3)
                    .filter(|at| set & 1 << at != 0)
                    .map(|at| filter(known[at]))
                    .collect();
                let stored = codec
                    .encode(&chunk, &filters, (elem, &[9]))
                    .expect("encoded");
                let size = (elem, chunk.len());
                let back = codec.decode(&stored, &filters, 0, size).expect("decoded");
                assert_eq!(back, chunk, "{elem} {set}");
                let reversed: Vec<Filter> = filters.iter().rev().cloned().collect();
                let stored = codec
                    .encode(&chunk, &reversed, (elem, &[9]))
                    .expect("encoded");
                assert_eq!(
                    codec.decode(&stored, &reversed, 0, size).expect("decoded"),
                    chunk
                );
            }
        }
        // Noise in the first planes, more than a stored block has.
        let mut state = 1_u64;
        let noisy: Vec<u8> = (0..300_000_u32)
            .flat_map(|at| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                [(state >> 33) as u8, (state >> 41) as u8, 7, (at >> 9) as u8]
            })
            .collect();
        let filters = [filter(Filter::SHUFFLE), filter(Filter::DEFLATE)];
        let stored = codec
            .encode(&noisy, &filters, (4, &[300, 1000]))
            .expect("encoded");
        assert!(stored.len() < 605_000, "{}", stored.len());
        let mut reference = Vec::new();
        let mut decoder = flate2::read::ZlibDecoder::new(&stored[..]);
        std::io::Read::read_to_end(&mut decoder, &mut reference).expect("a stream of zlib");
        let back = codec
            .decode(&stored, &filters, 0, (4, noisy.len()))
            .expect("decoded");
        assert!(back == noisy && reference.len() == noisy.len());
        let masked = codec
            .decode(&chunk, &filters, 3, (4, chunk.len()))
            .expect("as it is");
        assert_eq!(masked, chunk);
        for damaged in [&chunk[..0], &chunk[..5], &chunk[..]] {
            assert!(
                codec
                    .decode(damaged, &filters, 0, (4, chunk.len()))
                    .is_err()
            );
            assert!(
                codec
                    .decode(damaged, &[filter(Filter::FLETCHER32)], 0, (4, chunk.len()))
                    .is_err()
            );
        }
    }
}
