//! Payloads: the slices of memory that make up a box in packed order.
//!
//! A flush sends boxes whose rows lie in many runs; a write in place sends the caller's buffer. Both are sent as slices
//! of the memory they are in, without a copy before the store or the socket. Only where rows are so short that the
//! slices would cost more than the bytes are they gathered first.

use std::io::IoSlice;

use slabfs_model::{Hyperslab, for_each_run};

use crate::client::buffer::runs::Runs;

/// Below this many bytes a piece on average, gathering costs less than handling the slices.
const GATHER_BELOW: usize = 1024;

/// The bytes of a slab of cells.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) enum Payload<'a> {
    /// Packed, contiguous.
    Packed(&'a [u8]),
    /// In the dirty runs of the object, which has these cells.
    Runs(&'a Runs, &'a [u64]),
}

/// The packed bytes of a part of a payload.
#[derive(Debug)]
pub(in crate::client) enum Slices<'a> {
    /// In place.
    Borrowed(Vec<&'a [u8]>),
    /// Gathered.
    Owned(Vec<u8>),
}

impl Slices<'_> {
    /// The slices.
    pub(in crate::client) fn parts(&self) -> Vec<&[u8]> {
        match self {
            Slices::Borrowed(parts) => parts.clone(),
            Slices::Owned(bytes) => vec![bytes],
        }
    }

    /// The first slice: all bytes, if they are contiguous.
    pub(in crate::client) fn contiguous(&self) -> &[u8] {
        match self {
            Slices::Borrowed(parts) => parts.first().copied().unwrap_or_default(),
            Slices::Owned(bytes) => bytes,
        }
    }

    /// The same, for a vectored write.
    pub(in crate::client) fn io(&self) -> Vec<IoSlice<'_>> {
        match self {
            Slices::Borrowed(parts) => parts.iter().map(|part| IoSlice::new(part)).collect(),
            Slices::Owned(bytes) => vec![IoSlice::new(bytes)],
        }
    }

    /// Gathers them, if that costs less than handling the slices.
    pub(in crate::client) fn settle(self, len: usize) -> Self {
        match self {
            Slices::Borrowed(parts) if parts.len() > 8 && len / parts.len() < GATHER_BELOW => {
                let mut bytes = Vec::with_capacity(len);
                for part in parts {
                    bytes.extend_from_slice(part);
                }
                Slices::Owned(bytes)
            }
            other => other,
        }
    }
}

impl<'a> Payload<'a> {
    /// The bytes of `part` (packed coordinates of `slab`, whose cells the payload holds).
    pub(in crate::client) fn slices(&self, slab: &Hyperslab, part: &Hyperslab) -> Slices<'a> {
        let len = part.volume() as usize;
        let mut parts: Vec<&'a [u8]> = Vec::new();
        match *self {
            Payload::Packed(bytes) => {
                if len == bytes.len() {
                    parts.push(bytes);
                } else {
                    for_each_run(&slab.packed_shape(), part, &mut |at, len| {
                        parts.push(&bytes[at..at + len]);
                    });
                }
            }
            Payload::Runs(runs, cells) => {
                // The runs hold boxes of cells; `part` of a box, moved by its offset, is cells again.
                return slices_of(
                    runs,
                    cells,
                    &crate::client::object::geometry::moved(part, slab),
                );
            }
        }
        Slices::Borrowed(parts).settle(len)
    }
}

/// The bytes of these cells of an object with dims `cells`; the runs contain all of them.
pub(in crate::client) fn slices_of<'a>(
    runs: &'a Runs,
    cells: &[u64],
    slab: &Hyperslab,
) -> Slices<'a> {
    let mut parts: Vec<&'a [u8]> = Vec::new();
    for_each_run(cells, slab, &mut |at, len| {
        let pieces = runs.pieces(at as u64, (at + len) as u64);
        parts.extend(pieces.map(|(_, bytes)| bytes));
    });
    Slices::Borrowed(parts).settle(slab.volume() as usize)
}
