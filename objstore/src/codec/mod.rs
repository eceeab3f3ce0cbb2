//! The codecs: shuffle, then lz4, deflate or zstd.
//!
//! - [`pack`] and [`unpack`] convert one block of bytes.
//! - [`coded`] is the stored form of a packed chunk: blocks of at most 1 MiB that can be unpacked one by one.
//!
//! Contexts of the compressors are cached per thread: making them costs more than a small block.

pub mod coded;
mod shuffle;

use std::cell::RefCell;
use std::collections::HashMap;

use slabfs_model::Codec;

/// The error of packing or unpacking.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("codec {codec}: {detail}")]
pub struct CodecError {
    /// The codec.
    pub codec: Codec,
    /// The codec's message.
    pub detail: String,
}

impl CodecError {
    fn new(codec: Codec, detail: impl ToString) -> Self {
        Self {
            codec,
            detail: detail.to_string(),
        }
    }
}

/// The compressor that a codec uses after the shuffle.
enum Plain {
    None,
    Lz4,
    Deflate(u32),
    Zstd(i32),
}

fn plain(codec: Codec) -> Plain {
    match codec {
        Codec::None => Plain::None,
        Codec::Lz4 | Codec::ShuffleLz4 => Plain::Lz4,
        Codec::Deflate(level) | Codec::ShuffleDeflate(level) => Plain::Deflate(level),
        Codec::Zstd(level) | Codec::ShuffleZstd(level) => Plain::Zstd(level),
    }
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static PACKERS: RefCell<HashMap<i32, zstd::bulk::Compressor<'static>>> = RefCell::new(HashMap::new());
    static UNPACKER: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Appends the packed bytes of `raw` to `out` and returns their number: fewer than `raw` has, or, where packing does
/// not pay, the raw bytes unchanged.
pub fn pack(codec: Codec, elem: usize, raw: &[u8], out: &mut Vec<u8>) -> Result<usize, CodecError> {
    let start = out.len();
    if codec.shuffles() && elem > 1 {
        SCRATCH.with_borrow_mut(|shuffled| {
            shuffled.resize(raw.len(), 0);
            shuffle::shuffle(raw, elem, shuffled);
            pack_plain(codec, shuffled, out)
        })?;
    } else {
        pack_plain(codec, raw, out)?;
    }
    if out.len() - start >= raw.len() {
        out.truncate(start);
        out.extend_from_slice(raw);
    }
    Ok(out.len() - start)
}

fn pack_plain(codec: Codec, raw: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = out.len();
    let len = match plain(codec) {
        Plain::None => {
            out.extend_from_slice(raw);
            return Ok(());
        }
        Plain::Lz4 => {
            out.resize(
                start + lz4_flex::block::get_maximum_output_size(raw.len()),
                0,
            );
            lz4_flex::block::compress_into(raw, &mut out[start..])
                .map_err(|e| CodecError::new(codec, e))?
        }
        Plain::Deflate(level) => {
            // If the packed bytes do not fit the room of the raw bytes, the block is stored raw.
            out.resize(start + raw.len(), 0);
            let mut state = flate2::Compress::new(flate2::Compression::new(level), true);
            let done = state
                .compress(raw, &mut out[start..], flate2::FlushCompress::Finish)
                .map_err(|e| CodecError::new(codec, e))?;
            match done {
                flate2::Status::StreamEnd => state.total_out() as usize,
                flate2::Status::Ok | flate2::Status::BufError => raw.len(),
            }
        }
        Plain::Zstd(level) => {
            out.resize(start + zstd::zstd_safe::compress_bound(raw.len()), 0);
            PACKERS.with_borrow_mut(|packers| {
                let packer = match packers.entry(level) {
                    std::collections::hash_map::Entry::Occupied(held) => held.into_mut(),
                    std::collections::hash_map::Entry::Vacant(free) => {
                        let new = zstd::bulk::Compressor::new(level);
                        free.insert(new.map_err(|e| CodecError::new(codec, e))?)
                    }
                };
                packer
                    .compress_to_buffer(raw, &mut out[start..])
                    .map_err(|e| CodecError::new(codec, e))
            })?
        }
    };
    out.truncate(start + len);
    Ok(())
}

/// Unpacks the result of [`pack`] for exactly `raw.len()` bytes.
pub fn unpack(codec: Codec, elem: usize, packed: &[u8], raw: &mut [u8]) -> Result<(), CodecError> {
    if packed.len() == raw.len() {
        raw.copy_from_slice(packed);
        return Ok(());
    }
    unpack_always(codec, elem, packed, raw)
}

/// Unpacks bytes that are packed even if they are as many as the raw ones.
fn unpack_always(
    codec: Codec,
    elem: usize,
    packed: &[u8],
    raw: &mut [u8],
) -> Result<(), CodecError> {
    if codec.shuffles() && elem > 1 {
        SCRATCH.with_borrow_mut(|shuffled| {
            shuffled.resize(raw.len(), 0);
            unpack_plain(codec, packed, shuffled)?;
            shuffle::unshuffle(shuffled, elem, raw);
            Ok(())
        })
    } else {
        unpack_plain(codec, packed, raw)
    }
}

fn unpack_plain(codec: Codec, packed: &[u8], raw: &mut [u8]) -> Result<(), CodecError> {
    let len = match plain(codec) {
        Plain::None => packed.len(),
        Plain::Lz4 => {
            lz4_flex::block::decompress_into(packed, raw).map_err(|e| CodecError::new(codec, e))?
        }
        Plain::Deflate(_) => {
            let mut state = flate2::Decompress::new(true);
            let done = state
                .decompress(packed, raw, flate2::FlushDecompress::Finish)
                .map_err(|e| CodecError::new(codec, e))?;
            if done != flate2::Status::StreamEnd {
                return Err(CodecError::new(
                    codec,
                    "the packed bytes do not end where the block does",
                ));
            }
            state.total_out() as usize
        }
        Plain::Zstd(_) => UNPACKER.with_borrow_mut(|held| {
            if held.is_none() {
                *held =
                    Some(zstd::bulk::Decompressor::new().map_err(|e| CodecError::new(codec, e))?);
            }
            let Some(unpacker) = held else {
                return Err(CodecError::new(codec, "no context"));
            };
            unpacker
                .decompress_to_buffer(packed, raw)
                .map_err(|e| CodecError::new(codec, e))
        })?,
    };
    if len == raw.len() {
        return Ok(());
    }
    Err(CodecError::new(
        codec,
        format!("unpacks to {len} bytes and not {}", raw.len()),
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Codec; 7] = [
        Codec::None,
        Codec::Lz4,
        Codec::Deflate(6),
        Codec::Zstd(3),
        Codec::ShuffleZstd(-3),
        Codec::ShuffleDeflate(1),
        Codec::ShuffleLz4,
    ];

    #[test]
    fn smooth_data_gets_smaller() {
        let raw: Vec<u8> = (0..50_000u32).flat_map(|x| (x / 7).to_le_bytes()).collect();
        for codec in ALL {
            let mut out = Vec::new();
            let len = pack(codec, 4, &raw, &mut out).unwrap();
            assert!(
                codec == Codec::None || len < raw.len() * 2 / 3,
                "{codec}: {len}"
            );
        }
    }

    #[test]
    fn rubbish_is_an_error() {
        for codec in ALL {
            let mut raw = vec![0; 1000];
            assert!(unpack(codec, 4, &[0xA5; 100], &mut raw).is_err(), "{codec}");
            assert!(unpack(codec, 4, &[], &mut raw).is_err(), "{codec}");
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_unpacks(
            raw in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..2000),
                proptest::collection::vec(0u8..3, 0..2000),
            ],
            elem in 1usize..9,
        ) {
            for codec in ALL {
                let mut out = vec![1, 2, 3];
                let len = pack(codec, elem, &raw, &mut out).unwrap();
                prop_assert!(len <= raw.len());
                prop_assert_eq!(out.len(), 3 + len);
                let mut back = vec![9; raw.len()];
                unpack(codec, elem, &out[3..], &mut back).unwrap();
                prop_assert_eq!(&back, &raw);
            }
        }
    }
}
