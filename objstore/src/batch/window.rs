//! A window: pieces that lie close together in a chunk are packed or copied from one look at it, or put into it by one
//! change.

use slabfs_model::batch::{Cursor, Part, Steps, pack, unpack};
use slabfs_model::layout::boxes_of_run;
use slabfs_model::{Coords, Hyperslab, Region};

use super::{GAP, Memory, SPAN, Share};
use crate::error::{Result, StoreError};
use crate::fill::paint_slab;
use crate::name::{ChunkForm, ChunkName};
use crate::store::{ChunkSource, Patch};

/// Parts of a window, at most.
const MOST_PARTS: usize = 1024;

/// Parts that are taken together, and what of the chunk they reach over.
#[derive(Debug, Default)]
pub(crate) struct Window {
    parts: Vec<Part>,
    from: u64,
    to: u64,
    bytes: u64,
    /// The pieces lie one behind the other.
    is_dense: bool,
}

impl Window {
    /// Takes the next parts that lie close together, at most `room` bytes; false at the end.
    pub(crate) fn take(&mut self, cursor: &mut Cursor<'_>, room: usize) -> bool {
        let room = (room as u64).min(SPAN);
        self.parts.clear();
        self.bytes = 0;
        while self.parts.len() < MOST_PARTS && self.bytes < room {
            let Some(part) = cursor.take(room - self.bytes, SPAN, GAP) else {
                break;
            };
            let span = part.chunk_span();
            let run = part.run;
            let together = run.count == 1 || run.file_stride == run.bytes as i64;
            if self.parts.is_empty() {
                (self.from, self.to) = (span.start, span.end);
                self.is_dense = together;
            } else {
                let near = span.start <= self.to.saturating_add(GAP)
                    && self.from <= span.end.saturating_add(GAP);
                let (from, to) = (self.from.min(span.start), self.to.max(span.end));
                if !near || to - from > SPAN {
                    cursor.put_back(part);
                    break;
                }
                self.is_dense &= together && span.start == self.to;
                (self.from, self.to) = (from, to);
            }
            self.bytes += part.bytes();
            self.parts.push(part);
        }
        !self.parts.is_empty()
    }

    /// Bytes of its pieces.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// The place of the chunk that it reaches over.
    pub(crate) fn patch(&self) -> Patch {
        Patch {
            from: self.from,
            to: self.to,
            is_whole: self.is_dense,
        }
    }

    /// Puts packed pieces into the bytes of the chunk that the window reaches over.
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

    /// Packs the pieces out of the bytes of the chunk that the window reaches over.
    fn pack(&self, chunk: &[u8], mut out: &mut [u8]) {
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

    /// Copies the pieces out of the bytes of the chunk that the window reaches over.
    fn carry(&self, chunk: &[u8], memory: &Memory<'_>) {
        for part in &self.parts {
            let source = Steps {
                at: (part.chunk - self.from) as usize,
                stride: part.run.file_stride as isize,
            };
            memory.put(chunk, source, &part.run);
        }
    }
}

/// The boxes of a chunk of this shape that are, one behind the other, its bytes `from..to`.
fn boxes(shape: &[u64], from: u64, to: u64, boxes: &mut Vec<Region>) -> Result<()> {
    let invalid = || StoreError::Invalid("a chunk beyond 2^63 bytes".into());
    let mut shape = Coords::from_slice(shape);
    let pitch = shape[1..]
        .iter()
        .try_fold(1u64, |pitch, &len| pitch.checked_mul(len))
        .ok_or_else(invalid)?;
    // It may be without bound along the first axis.
    if let Some(first) = shape.first_mut() {
        *first = to.div_ceil(pitch.max(1));
    }
    boxes_of_run(&shape, from, to - from, boxes);
    Ok(())
}

/// Packs a window of a chunk into `out`, which has exactly its bytes. `scratch` is room for what does not lie together.
pub(crate) fn read_window(
    store: &(impl ChunkSource + ?Sized),
    share: &Share<'_>,
    window: &Window,
    scratch: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<()> {
    look_at(store, share, window, scratch, &mut |bytes| {
        window.pack(bytes, out);
    })
}

/// Copies a window of a chunk to where its pieces belong.
pub(crate) fn carry_window(
    store: &(impl ChunkSource + ?Sized),
    share: &Share<'_>,
    window: &Window,
    scratch: &mut Vec<u8>,
    memory: &Memory<'_>,
) -> Result<()> {
    look_at(store, share, window, scratch, &mut |bytes| {
        window.carry(bytes, memory);
    })
}

/// Gives `f` what a window reaches over: where it lies, or read into `scratch`.
fn look_at(
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
            // It was there a moment ago; where there is no chunk of a grid there is fill.
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

/// Whether a chunk is there: a read of nothing says it.
pub(crate) fn is_there(
    store: &(impl ChunkSource + ?Sized),
    name: &ChunkName,
    form: &ChunkForm,
) -> Result<bool> {
    let zeros = || form.shape.iter().map(|_| 0).collect();
    let nothing = Hyperslab::from_region(&Region {
        offset: zeros(),
        shape: zeros(),
    });
    match store.read(name, form, &nothing, &mut []) {
        Ok(()) => Ok(true),
        Err(StoreError::Missing(_)) => Ok(false),
        Err(e) => Err(e),
    }
}
