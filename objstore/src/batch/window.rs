//! A window is a group of pieces close together in a chunk, which are packed or copied with one read of the chunk, or
//! written with one change to it.

use slabfs_model::batch::{Cursor, Part, Steps, pack, unpack};
use slabfs_model::layout::boxes_of_run;
use slabfs_model::{Coords, Hyperslab, Region};

use super::{GAP, Memory, SPAN, Share};
use crate::error::{Result, StoreError};
use crate::fill::paint_slab;
use crate::name::{ChunkForm, ChunkName};
use crate::store::{ChunkSource, Patch};

/// The maximum number of parts of a window.
const MAX_PARTS: usize = 1024;

/// Parts that are processed together, and their span in the chunk: `from..to`.
#[derive(Debug, Default)]
pub(crate) struct Window {
    parts: Vec<Part>,
    from: u64,
    to: u64,
    bytes: u64,
    /// The pieces are contiguous and in order, so they fill the span.
    is_dense: bool,
}

impl Window {
    /// Takes the next parts that are close together, at most `room` bytes; returns false if none is left.
    pub(crate) fn take(&mut self, cursor: &mut Cursor<'_>, room: usize) -> bool {
        let room = (room as u64).min(SPAN);
        self.parts.clear();
        self.bytes = 0;
        while self.parts.len() < MAX_PARTS && self.bytes < room {
            let Some(part) = cursor.take(room - self.bytes, SPAN, GAP) else {
                break;
            };
            let span = part.chunk_span();
            let run = part.run;
            let contiguous = run.count == 1 || run.file_stride == run.bytes as i64;
            if self.parts.is_empty() {
                (self.from, self.to) = (span.start, span.end);
                self.is_dense = contiguous;
            } else {
                let close = span.start <= self.to.saturating_add(GAP)
                    && self.from <= span.end.saturating_add(GAP);
                let (from, to) = (self.from.min(span.start), self.to.max(span.end));
                if !close || to - from > SPAN {
                    cursor.put_back(part);
                    break;
                }
                self.is_dense &= contiguous && span.start == self.to;
                (self.from, self.to) = (from, to);
            }
            self.bytes += part.bytes();
            self.parts.push(part);
        }
        !self.parts.is_empty()
    }

    /// The number of bytes of its pieces.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Its span, as a change to the chunk.
    pub(crate) fn patch(&self) -> Patch {
        Patch {
            from: self.from,
            to: self.to,
            is_complete: self.is_dense,
        }
    }

    /// Unpacks the pieces into `chunk`, the bytes of the window's span.
    pub(crate) fn unpack(&self, mut packed: &[u8], chunk: &mut [u8]) {
        for part in &self.parts {
            let (pieces, rest) = packed.split_at(part.bytes() as usize);
            packed = rest;
            let run = part.run;
            unpack(
                pieces,
                chunk,
                (part.chunk - self.from) as usize,
                run.file_stride as isize,
                run.bytes as usize,
            );
        }
    }

    /// Packs the pieces from `chunk`, the bytes of the window's span, into `out`, which has exactly their length.
    pub(crate) fn pack(&self, chunk: &[u8], mut out: &mut [u8]) {
        for part in &self.parts {
            let (packed, rest) = out.split_at_mut(part.bytes() as usize);
            out = rest;
            let run = part.run;
            pack(
                chunk,
                (part.chunk - self.from) as usize,
                run.file_stride as isize,
                run.bytes as usize,
                packed,
            );
        }
    }

    /// Copies the pieces from `chunk`, the bytes of the window's span, to the caller's buffer.
    pub(crate) fn carry(&self, chunk: &[u8], memory: &Memory<'_>) {
        for part in &self.parts {
            let source = Steps {
                at: (part.chunk - self.from) as usize,
                stride: part.run.file_stride as isize,
            };
            memory.put(chunk, source, &part.run);
        }
    }
}

/// Appends the boxes that make up, in order, the bytes `from..to` of a chunk of this shape.
fn boxes(shape: &[u64], from: u64, to: u64, boxes: &mut Vec<Region>) -> Result<()> {
    let invalid = || StoreError::Invalid("a chunk larger than 2^63 bytes".into());
    let mut shape = Coords::from_slice(shape);
    let pitch = shape[1..]
        .iter()
        .try_fold(1u64, |pitch, &len| pitch.checked_mul(len))
        .ok_or_else(invalid)?;
    // The first axis may be unlimited; only the rows up to `to` matter.
    if let Some(first) = shape.first_mut() {
        *first = to.div_ceil(pitch.max(1));
    }
    boxes_of_run(&shape, from, to - from, boxes);
    Ok(())
}

/// Calls `f` with the bytes of a window's span: in place if the store can show them, else read into `scratch`. `f`
/// packs the window, or carries it to the caller's buffer.
pub(crate) fn with_span(
    store: &(impl ChunkSource + ?Sized),
    share: &Share<'_>,
    window: &Window,
    scratch: &mut Vec<u8>,
    f: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    let mut found = Vec::with_capacity(4);
    boxes(&share.form.shape, window.from, window.to, &mut found)?;
    if let [one] = &found[..] {
        let slab = Hyperslab::from_region(one);
        match store.show(share.name, share.form, &slab, f) {
            Ok(true) => return Ok(()),
            Ok(false) | Err(StoreError::Missing(ChunkName::Grid { .. })) => {}
            Err(e) => return Err(e),
        }
    }
    let span = (window.to - window.from) as usize;
    if scratch.len() < span {
        scratch.resize(span, 0);
    }
    let mut at = 0;
    for one in &found {
        let len = one.volume() as usize;
        let slab = Hyperslab::from_region(one);
        let out = &mut scratch[at..at + len];
        match store.read(share.name, share.form, &slab, out) {
            Ok(()) => {}
            // The chunk was there before and is gone now. A missing grid chunk reads as fill.
            Err(StoreError::Missing(ChunkName::Grid { .. })) => {
                paint_slab(share.form, &slab, out);
            }
            Err(e) => return Err(e),
        }
        at += len;
    }
    f(&scratch[..span]);
    Ok(())
}

/// Whether a chunk exists, tested by an empty read.
pub(crate) fn is_there(
    store: &(impl ChunkSource + ?Sized),
    name: &ChunkName,
    form: &ChunkForm,
) -> Result<bool> {
    let zeros = || form.shape.iter().map(|_| 0).collect();
    let empty = Hyperslab::from_region(&Region {
        offset: zeros(),
        shape: zeros(),
    });
    match store.read(name, form, &empty, &mut []) {
        Ok(()) => Ok(true),
        Err(StoreError::Missing(_)) => Ok(false),
        Err(e) => Err(e),
    }
}
