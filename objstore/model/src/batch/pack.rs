//! The copy loops of batches: pack equal pieces at equal steps, unpack them, and copy them from steps to other steps.
//!
//! Small sizes have their own loops, in which a piece is a load and a store; pieces without gaps are one copy. A
//! stride may be negative or 0.

/// The positions of equal pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// The start of the first piece.
    pub at: usize,
    /// The distance from one piece to the next; unused for a single piece.
    pub stride: isize,
}

/// Copies `count` pieces of `bytes` from `from`, at the positions `source`, into `to`, at the positions `target`, in
/// order.
///
/// # Panics
/// If a piece lies outside `from` or `to`, or `bytes` is 0.
pub fn carry(from: &[u8], source: Steps, to: &mut [u8], target: Steps, bytes: usize, count: usize) {
    if count == 1 || target.stride == bytes as isize {
        let to = &mut to[target.at..target.at + bytes * count];
        return pack(from, source.at, source.stride, bytes, to);
    }
    if source.stride == bytes as isize {
        let from = &from[source.at..source.at + bytes * count];
        return unpack(from, to, target.at, target.stride, bytes);
    }
    match bytes {
        1 => carry_by::<1>(from, source, to, target, count),
        2 => carry_by::<2>(from, source, to, target, count),
        4 => carry_by::<4>(from, source, to, target, count),
        8 => carry_by::<8>(from, source, to, target, count),
        16 => carry_by::<16>(from, source, to, target, count),
        32 => carry_by::<32>(from, source, to, target, count),
        64 => carry_by::<64>(from, source, to, target, count),
        _ => {
            let (mut out, mut into) = (source.at, target.at);
            for _ in 0..count {
                to[into..into + bytes].copy_from_slice(&from[out..out + bytes]);
                out = out.wrapping_add_signed(source.stride);
                into = into.wrapping_add_signed(target.stride);
            }
        }
    }
}

/// Copies `out.len() / bytes` pieces of `bytes` from `from` into `out`, contiguously; the first begins at `at`, each
/// of the others `stride` after the previous one.
///
/// # Panics
/// If a piece lies outside `from`, or `bytes` is 0.
pub fn pack(from: &[u8], at: usize, stride: isize, bytes: usize, out: &mut [u8]) {
    if stride == bytes as isize {
        out.copy_from_slice(&from[at..at + out.len()]);
        return;
    }
    match bytes {
        1 => pack_by::<1>(from, at, stride, out),
        2 => pack_by::<2>(from, at, stride, out),
        4 => pack_by::<4>(from, at, stride, out),
        8 => pack_by::<8>(from, at, stride, out),
        16 => pack_by::<16>(from, at, stride, out),
        32 => pack_by::<32>(from, at, stride, out),
        64 => pack_by::<64>(from, at, stride, out),
        _ => {
            let mut at = at;
            for piece in out.chunks_exact_mut(bytes) {
                piece.copy_from_slice(&from[at..at + bytes]);
                at = at.wrapping_add_signed(stride);
            }
        }
    }
}

/// Copies the contiguous pieces of `packed`, `bytes` each, into `to`: the first to `at`, each of the others `stride`
/// after the previous one.
///
/// # Panics
/// If a piece lies outside `to`, or `bytes` is 0.
pub fn unpack(packed: &[u8], to: &mut [u8], at: usize, stride: isize, bytes: usize) {
    if stride == bytes as isize {
        to[at..at + packed.len()].copy_from_slice(packed);
        return;
    }
    match bytes {
        1 => unpack_by::<1>(packed, to, at, stride),
        2 => unpack_by::<2>(packed, to, at, stride),
        4 => unpack_by::<4>(packed, to, at, stride),
        8 => unpack_by::<8>(packed, to, at, stride),
        16 => unpack_by::<16>(packed, to, at, stride),
        32 => unpack_by::<32>(packed, to, at, stride),
        64 => unpack_by::<64>(packed, to, at, stride),
        _ => {
            let mut at = at;
            for piece in packed.chunks_exact(bytes) {
                to[at..at + bytes].copy_from_slice(piece);
                at = at.wrapping_add_signed(stride);
            }
        }
    }
}

fn pack_by<const BYTES: usize>(from: &[u8], at: usize, stride: isize, out: &mut [u8]) {
    let mut at = at;
    for piece in out.as_chunks_mut::<BYTES>().0 {
        piece.copy_from_slice(&from[at..at + BYTES]);
        at = at.wrapping_add_signed(stride);
    }
}

fn unpack_by<const BYTES: usize>(packed: &[u8], to: &mut [u8], at: usize, stride: isize) {
    let mut at = at;
    for piece in packed.as_chunks::<BYTES>().0 {
        to[at..at + BYTES].copy_from_slice(piece);
        at = at.wrapping_add_signed(stride);
    }
}

fn carry_by<const BYTES: usize>(
    from: &[u8],
    source: Steps,
    to: &mut [u8],
    target: Steps,
    count: usize,
) {
    let (mut out, mut into) = (source.at, target.at);
    for _ in 0..count {
        to[into..into + BYTES].copy_from_slice(&from[out..out + BYTES]);
        out = out.wrapping_add_signed(source.stride);
        into = into.wrapping_add_signed(target.stride);
    }
}
