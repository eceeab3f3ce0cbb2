//! The caller's buffer, which receives bytes from several servers at the same time, at any position.
//!
//! The buffer is divided into stripes, each with its own lock, so that copies to different stripes do not block each
//! other. A thread locks one stripe at a time, for the pieces in it, and holds no lock while it waits for bytes. The
//! pieces of one share are copied in order. If two servers' bytes have the same destination, either may be the last;
//! [`Memory::put`] does not mix them within a stripe, but [`Memory::receive`] releases the lock between partial reads.

use std::ops::Range;

use parking_lot::Mutex;
use slabfs_model::batch::{Run, Steps, carry};
use smallvec::SmallVec;

use crate::wire::{Incoming, WireResult};

/// The minimum length of a stripe, so that a part of a chunk is unpacked into few stripes.
const MIN_STRIPE: usize = if cfg!(test) { 2 << 10 } else { 256 << 10 };
/// The maximum number of stripes, whatever the length of the buffer.
const MAX_STRIPES: usize = 1024;

/// A buffer, and its start (`base`) in the memory offsets of a plan.
#[derive(Debug)]
pub(crate) struct Memory<'a> {
    stripes: SmallVec<[Mutex<&'a mut [u8]>; 1]>,
    /// The length of each stripe but the last.
    len: usize,
    base: u64,
}

impl<'a> Memory<'a> {
    pub(crate) fn new(bytes: &'a mut [u8], base: u64) -> Memory<'a> {
        let len = bytes.len().div_ceil(MAX_STRIPES).max(MIN_STRIPE);
        Memory {
            stripes: bytes.chunks_mut(len).map(Mutex::new).collect(),
            len,
            base,
        }
    }

    /// Receives the bytes of the memory range `place` directly into the buffer.
    pub(crate) fn receive(&self, place: Range<u64>, incoming: &mut Incoming<'_>) -> WireResult<()> {
        let mut at = (place.start - self.base) as usize;
        let end = (place.end - self.base) as usize;
        while at < end {
            let (stripe, within) = (at / self.len, at % self.len);
            let most = (end - at).min(self.len - within);
            let got =
                incoming.read_ready(&mut self.stripes[stripe].lock()[within..within + most])?;
            at += got;
            if got == 0 {
                incoming.wait()?;
            }
        }
        Ok(())
    }

    /// Copies the pieces of a run from `from`, at the positions `source`, into the buffer.
    ///
    /// # Panics
    /// If a piece lies outside `from` or the buffer.
    pub(crate) fn put(&self, from: &[u8], source: Steps, run: &Run) {
        let (bytes, mut left) = (run.bytes as usize, run.count as usize);
        let mut out = source.at;
        let mut at = (run.memory - self.base) as usize;
        let stride = run.memory_stride as isize;
        while left > 0 {
            let (stripe, within) = (at / self.len, at % self.len);
            let count = left.min(fitting(self.len, within, bytes, stride));
            let source = Steps {
                at: out,
                stride: source.stride,
            };
            if count == 0 {
                self.put_piece(&from[out..out + bytes], at);
            } else {
                let target = Steps { at: within, stride };
                let mut stripe = self.stripes[stripe].lock();
                carry(from, source, &mut stripe, target, bytes, count);
            }
            let done = count.max(1);
            left -= done;
            out = out.wrapping_add_signed(source.stride.wrapping_mul(done as isize));
            at = at.wrapping_add_signed(stride.wrapping_mul(done as isize));
        }
    }

    /// Copies one piece that spans several stripes.
    fn put_piece(&self, mut from: &[u8], mut at: usize) {
        while !from.is_empty() {
            let (stripe, within) = (at / self.len, at % self.len);
            let (piece, rest) = from.split_at(from.len().min(self.len - within));
            self.stripes[stripe].lock()[within..within + piece.len()].copy_from_slice(piece);
            (from, at) = (rest, at + piece.len());
        }
    }
}

/// The number of leading pieces that lie completely in a stripe of `len`. Each piece has `bytes` bytes; the first
/// begins at `within`, and each of the others `stride` after the previous one.
fn fitting(len: usize, within: usize, bytes: usize, stride: isize) -> usize {
    let Some(last) = len.checked_sub(bytes).filter(|last| within <= *last) else {
        return 0;
    };
    let room = match stride {
        0 => return usize::MAX,
        1.. => last - within,
        _ => within,
    };
    room / stride.unsigned_abs() + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares `put` with a copy of each piece into one plain buffer.
        #[test]
        fn put_copies_each_piece_to_its_destination(
            bytes in prop_oneof![1usize..80, 1usize..3 * MIN_STRIPE],
            count in 1usize..60,
            strides in (-5000isize..5000, -5000isize..5000),
            dense in (any::<bool>(), any::<bool>()),
            base in 0u64..1 << 40,
            slack in 0usize..100,
        ) {
            let stride = |stride, dense| if dense { bytes as isize } else { stride };
            let strides = [stride(strides.0, dense.0), stride(strides.1, dense.1)];
            // For each side: the position of the first piece, and the length of a buffer that holds all pieces.
            let [(first, from_len), (at, len)] = strides.map(|stride| {
                let far = stride.unsigned_abs() * (count - 1);
                (if stride < 0 { far } else { 0 }, far + bytes)
            });
            let from: Vec<u8> = (0..from_len).map(|at| (at ^ (at >> 8)) as u8).collect();
            let mut wanted = vec![0xee; slack + len];
            for piece in 0..count as isize {
                let out = first.wrapping_add_signed(piece * strides[0]);
                let into = slack + at.wrapping_add_signed(piece * strides[1]);
                wanted[into..into + bytes].copy_from_slice(&from[out..out + bytes]);
            }
            let mut buffer = vec![0xee; slack + len];
            let run = Run {
                file: 0,
                memory: base + (slack + at) as u64,
                packed: 0,
                bytes: bytes as u64,
                count: count as u64,
                file_stride: strides[0] as i64,
                memory_stride: strides[1] as i64,
            };
            let source = Steps { at: first, stride: strides[0] };
            Memory::new(&mut buffer, base).put(&from, source, &run);
            prop_assert!(buffer == wanted);
        }
    }

    #[test]
    fn the_number_of_stripes_is_limited() {
        let mut large = vec![0; MAX_STRIPES * MIN_STRIPE + 1];
        assert!(Memory::new(&mut large, 0).stripes.len() <= MAX_STRIPES);
        assert_eq!(Memory::new(&mut [], 0).stripes.len(), 0);
    }
}
