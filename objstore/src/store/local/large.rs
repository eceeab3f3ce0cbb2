//! Reads and writes slabs of chunks that have a file of their own.

use std::cell::Cell;
use std::io::IoSlice;
use std::ops::Range;

use slabfs_model::{Coords, Hyperslab, Region};

use super::decode::{self, Packed, Take};
use super::file::head::Encoding;
use super::file::{FileChunk, State};
use super::pieces;
use super::windows::{span, windows};
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};
use crate::store::extent::Extent;
use crate::store::{FilePart, Patches};

/// Cells with gaps up to this size are read together: blocks are verified in full anyway.
const READ_GAP: u64 = 32 << 10;
/// Cells with gaps up to this size are written together, including the bytes between.
const WRITE_GAP: u64 = 4 << 10;

thread_local! {
    static SPAN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Runs `f` with a reusable thread-local buffer of `len` bytes.
fn with_buffer<R>(len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut buf = SPAN.take();
    if buf.len() < len {
        buf.resize(len, 0);
    }
    let result = f(&mut buf[..len]);
    SPAN.set(buf);
    result
}

impl FileChunk {
    /// Reads cells, packed, into `out`.
    pub(super) fn read_slab(
        &self,
        form: &ChunkForm,
        extent: &Extent<'_>,
        out: &mut [u8],
    ) -> Result<()> {
        let state = self.read_lock(0, 0);
        self.check_readable(&state, form, extent)?;
        if state.head.encoding == Encoding::Coded {
            drop(state);
            return self.read_coded(extent, out);
        }
        drop(state);
        let from = extent.start();
        let state = self.read_lock(from, extent.end);
        if extent.single().is_some() {
            return self.read(&state, from, out);
        }
        windows(extent, READ_GAP, &mut |runs| {
            let (start, end) = span(runs);
            if let [run] = runs {
                let at = run.packed as usize;
                return self.read(&state, run.at, &mut out[at..at + run.len as usize]);
            }
            let mut gather = |bytes: &[u8]| {
                for run in runs {
                    let (from, to, len) = (
                        (run.at - start) as usize,
                        run.packed as usize,
                        run.len as usize,
                    );
                    out[to..to + len].copy_from_slice(&bytes[from..from + len]);
                }
            };
            if self.show(&state, start, end - start, &mut gather)? {
                return Ok(());
            }
            with_buffer((end - start) as usize, |buf| {
                self.read(&state, start, buf)?;
                gather(buf);
                Ok(())
            })
        })
    }

    /// Calls `f` with the mapped cells, if they are contiguous and uncompressed.
    pub(super) fn show_slab(
        &self,
        form: &ChunkForm,
        extent: &Extent<'_>,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        self.with_single(form, extent, &mut |state, at, len| {
            self.show(state, at, len, f)
        })
    }

    /// Like [`FileChunk::show_slab`], without waiting for a disk: false also if pages that must be read are not in
    /// memory. A block that was not verified recently must be read in full.
    pub(super) fn show_slab_at_once(
        &self,
        form: &ChunkForm,
        extent: &Extent<'_>,
        keeps: bool,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        self.with_single(form, extent, &mut |state, at, len| {
            self.show_at_once(state, at, len, keeps, f)
        })
    }

    /// Calls `f` with the cells as a range of the file, if they are contiguous and immutable.
    pub(super) fn file_part_of_slab(
        &self,
        form: &ChunkForm,
        extent: &Extent<'_>,
        f: &mut dyn FnMut(FilePart<'_>),
    ) -> Result<bool> {
        self.with_single(form, extent, &mut |state, at, len| {
            let fixed = matches!(self.name, ChunkName::Free(_)) && state.head.sealed;
            Ok(fixed && self.file_part(state, at, len, f)?)
        })
    }

    /// Calls `f` with the range of the cells in the content, if they are contiguous and uncompressed; otherwise false.
    fn with_single(
        &self,
        form: &ChunkForm,
        extent: &Extent<'_>,
        f: &mut dyn FnMut(&State, u64, u64) -> Result<bool>,
    ) -> Result<bool> {
        let Some((at, len)) = extent.single() else {
            return Ok(false);
        };
        let state = self.read_lock(at, at + len);
        self.check_readable(&state, form, extent)?;
        if state.head.encoding == Encoding::Coded {
            return Ok(false);
        }
        f(&state, at, len)
    }

    fn check_shape(&self, state: &State, form: &ChunkForm) -> Result<()> {
        let stored = &state.head.form;
        if form.shape.get(1..) != stored.shape.get(1..) || form.shape.len() != stored.shape.len() {
            return Err(StoreError::Invalid(format!(
                "{} has shape {:?} and was asked for as {:?}",
                self.name, stored.shape, form.shape
            )));
        }
        Ok(())
    }

    fn check_readable(&self, state: &State, form: &ChunkForm, extent: &Extent<'_>) -> Result<()> {
        self.check_shape(state, form)?;
        let stored = &state.head.form;
        let have = match (&self.name, state.head.sealed) {
            (ChunkName::Grid { .. }, _) => u64::MAX,
            (ChunkName::Free(_), true) => stored.volume().unwrap_or(0),
            (ChunkName::Free(_), false) => state.len,
        };
        if extent.end > have {
            return Err(StoreError::Invalid(format!(
                "bytes up to {} of {} were asked for, and it has {have}",
                extent.end, self.name
            )));
        }
        Ok(())
    }

    fn read_coded(&self, extent: &Extent<'_>, out: &mut [u8]) -> Result<()> {
        let (head, stored) = {
            let state = self.read_lock(0, 0);
            (state.head.clone(), state.head.content)
        };
        let state = self.read_lock(0, stored);
        let mut fetch = |range: Range<u64>, f: &mut Take<'_>| self.fetch(&state, range, f);
        if self.table.get().is_none() {
            // A concurrent caller may have set the same table.
            let _ = self
                .table
                .set(decode::table(&self.name, &head.form, stored, &mut fetch)?);
        }
        let Some(table) = self.table.get() else {
            return Ok(());
        };
        Packed::new(&self.name, &head.form, table).read(
            &self.shared.decoded,
            extent,
            out,
            &mut fetch,
        )
    }

    /// The stored bytes, if they are encoded.
    pub(super) fn encoded(&self) -> Result<Option<Vec<u8>>> {
        let (encoding, stored) = {
            let state = self.read_lock(0, 0);
            (state.head.encoding, state.head.content)
        };
        if encoding != Encoding::Coded {
            return Ok(None);
        }
        let mut bytes = vec![0; stored as usize];
        let state = self.read_lock(0, stored);
        self.read(&state, 0, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Calls `f` with stored bytes, mapped if they are contiguous, otherwise copied.
    pub(super) fn fetch(&self, state: &State, range: Range<u64>, f: &mut Take<'_>) -> Result<()> {
        let mut outcome = Ok(());
        if self.show(state, range.start, range.end - range.start, &mut |bytes| {
            outcome = f(bytes)
        })? {
            return outcome;
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.read(state, range.start, &mut bytes)?;
        f(&bytes)
    }

    /// Writes cells in place.
    pub(super) fn write_slab(
        &self,
        form: &ChunkForm,
        extent: &Extent<'_>,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        let mut state = self.write_lock();
        self.check_readable(&state, form, extent)?;
        if let Some((at, _)) = extent.single() {
            return self.write(&mut state, at, data);
        }
        self.make_room(&mut state, extent)?;
        windows(extent, WRITE_GAP, &mut |runs| {
            let (start, end) = span(runs);
            if let [run] = runs {
                return self.write(&mut state, run.at, &pieces::part(data, run.packed, run.len));
            }
            with_buffer((end - start) as usize, |buf| {
                self.merge(&mut state, start, buf, &mut |buf| {
                    for run in runs {
                        let at = (run.at - start) as usize;
                        pieces::copy(data, run.packed, &mut buf[at..at + run.len as usize]);
                    }
                })
            })
        })
    }

    /// Changes ranges, all under one lock.
    pub(super) fn patch(&self, form: &ChunkForm, patches: &mut dyn Patches) -> Result<()> {
        let mut state = self.write_lock();
        self.check_shape(&state, form)?;
        while let Some(patch) = patches.next() {
            with_buffer((patch.to - patch.from) as usize, |buf| {
                match patch.is_complete {
                    true => {
                        patches.apply(buf);
                        self.write(&mut state, patch.from, &[IoSlice::new(buf)])
                    }
                    false => self.merge(&mut state, patch.from, buf, &mut |buf| patches.apply(buf)),
                }
            })?;
        }
        Ok(())
    }

    /// Resets cells to fill.
    pub(super) fn punch_slab(&self, form: &ChunkForm, extent: &Extent<'_>) -> Result<()> {
        let mut state = self.write_lock();
        self.check_readable(&state, form, extent)?;
        windows(extent, 0, &mut |runs| {
            runs.iter()
                .try_for_each(|run| self.clear(&mut state, run.at, run.len))
        })
    }

    /// Resets cells at or beyond `keep` on any axis to fill.
    pub(super) fn clip_to(&self, form: &ChunkForm, keep: &[u64]) -> Result<()> {
        let len = {
            let mut state = self.write_lock();
            let rows = clip_rows(form, keep);
            self.truncate(&mut state, rows)?;
            state.len
        };
        clip_boxes(form, keep, len)
            .iter()
            .try_for_each(|slab| self.punch_slab(form, &Extent::new(form, slab)?))
    }

    /// Reads all of the chunk and verifies its checksums.
    pub(super) fn verify(&self) -> Result<()> {
        let (head, len) = {
            let state = self.read_lock(0, 0);
            (state.head.clone(), state.len)
        };
        let end = if head.sealed { head.content } else { len };
        let state = self.read_lock(0, end);
        self.verify_blocks(&state, end)?;
        if head.encoding == Encoding::Raw {
            return Ok(());
        }
        let mut fetch = |range: Range<u64>, f: &mut Take<'_>| self.fetch(&state, range, f);
        let table = decode::table(&self.name, &head.form, end, &mut fetch)?;
        Packed::new(&self.name, &head.form, &table).verify(&mut fetch)
    }
}

/// The elements in the rows of the first axis that a clip retains.
pub(super) fn clip_rows(form: &ChunkForm, keep: &[u64]) -> u64 {
    match keep.first() {
        Some(&rows) if !keep.contains(&0) => rows.saturating_mul(row_len(form)),
        _ => 0,
    }
}

/// The elements in a row of the first axis.
fn row_len(form: &ChunkForm) -> u64 {
    let others = form.shape.iter().skip(1);
    others.fold(1, |n: u64, &x| n.saturating_mul(x))
}

/// The boxes to clear in the retained rows, which have `len` bytes.
pub(super) fn clip_boxes(form: &ChunkForm, keep: &[u64], len: u64) -> Vec<Hyperslab> {
    let rows = len
        .div_ceil(row_len(form).max(1))
        .min(form.shape.first().copied().unwrap_or(0));
    let mut boxes = Vec::new();
    for axis in 1..form.shape.len() {
        if keep[axis] >= form.shape[axis] || rows == 0 {
            continue;
        }
        let mut region = Region {
            offset: Coords::from_elem(0, keep.len()),
            shape: form.shape.clone(),
        };
        region.shape[0] = rows;
        for (len, keep) in region.shape[1..axis].iter_mut().zip(&keep[1..axis]) {
            *len = (*len).min(*keep);
        }
        region.offset[axis] = keep[axis];
        region.shape[axis] -= keep[axis];
        boxes.push(Hyperslab::from_region(&region));
    }
    boxes
}
