//! Batches as transfers: nested strided patterns that are read or written asynchronously, alone or with other
//! transfers.
//!
//! For conflicts, a batch is a transfer of all rows of the object from its first byte to its last; it is entered, sent,
//! committed and cancelled like other transfers. If the length of the rows has changed before it runs, it is refused.
//! `put_batch` and `get_batch` contain the differences.

use std::ops::Range;
use std::sync::Arc;

use slabfs_model::batch::Plan as Pattern;
use slabfs_model::{Coords, Hyperslab, Region};

use super::super::batch::invalid_batch;
use super::super::error::FsError;
use super::super::geometry::Geometry;
use super::super::handle::Handle;
use super::super::write::too_big;
use super::core::{self, Plan};
use super::{Failed, Memory, Transfer};

/// The bytes of a batch that a transfer moves.
#[derive(Debug, Clone)]
pub(super) struct Batched {
    pub(super) plan: Arc<Pattern>,
    /// Their range in the packed bytes.
    pub(super) packed: Range<u64>,
    /// The position of the caller's memory in the buffer that the plan refers to.
    pub(super) base: u64,
    /// The start and the end of its bytes in the object; `None` if there are none.
    pub(super) span: Option<(u64, u64)>,
}

impl Handle {
    /// A transfer of the pieces of a batch from `buffer` to the object, which grows if it may. It ends with `Invalid`
    /// if dims other than the first change before it runs: its bytes would belong to other elements.
    ///
    /// # Errors
    /// `Invalid` for a handle on a selection or an appending one, and a buffer that is too small; `ReadOnly`.
    pub fn write_batch_transfer<B: AsRef<[u8]> + Send + 'static>(
        self: &Arc<Self>,
        batch: Pattern,
        buffer: B,
    ) -> Result<Transfer<B>, Failed<B>> {
        let all = 0..batch.bytes();
        let plan = |len| self.plan_batch(true, batch, all, len);
        match core::from_owned(buffer, self.client.transfers().counted(), plan) {
            Ok(own) => Ok(Transfer::new(own)),
            Err((error, buffer)) => Err(Failed { error, buffer }),
        }
    }

    /// A transfer of the pieces of a batch from the object to `buffer`; as for writes, dims other than the first must
    /// stay.
    ///
    /// # Errors
    /// `Invalid` for a handle on a selection, pieces that overlap in the buffer, and a buffer that is too small.
    pub fn read_batch_transfer<B: AsMut<[u8]> + Send + 'static>(
        self: &Arc<Self>,
        batch: Pattern,
        buffer: B,
    ) -> Result<Transfer<B>, Failed<B>> {
        let all = 0..batch.bytes();
        let plan = |len| self.plan_batch(false, batch, all, len);
        match core::into_owned(buffer, self.client.transfers().counted(), plan) {
            Ok(own) => Ok(Transfer::new(own)),
            Err((error, buffer)) => Err(Failed { error, buffer }),
        }
    }

    /// The plan of a transfer of some packed bytes of a batch into or out of a buffer of `len` bytes. If the buffer is
    /// the packed bytes themselves, it is just those of them.
    pub(super) fn plan_batch(
        self: &Arc<Self>,
        writes: bool,
        batch: Pattern,
        packed: Range<u64>,
        len: usize,
    ) -> Result<Plan, FsError> {
        if writes {
            self.check()?;
        }
        if self.selected.is_some() || (writes && self.append) {
            return Err(FsError::Invalid(
                "a batch counts bytes of an entire object; this handle shows a selection, or appends"
                    .into(),
            ));
        }
        let (base, end) = match batch.is_packed() {
            true => (packed.start, packed.end),
            false => (0, batch.memory_span().map_or(0, |span| span.1)),
        };
        if end - base > len as u64 {
            return Err(FsError::Invalid(format!(
                "the batch reaches up to byte {} of a buffer that has {len}",
                end - base
            )));
        }
        if !writes {
            batch.check_targets().map_err(invalid_batch)?;
        }
        let geometry = self.object.geometry.read();
        let span = batch.file_span_of(packed.clone());
        let bounds = span.and_then(|span| rows_of(span, &geometry));
        let nothing = Coords::from_elem(0, geometry.cells.len());
        let around = |bounds: &Region| Hyperslab::from_region(bounds);
        Ok(Plan {
            handle: self.clone(),
            writes,
            slab: (bounds.as_ref()).map_or_else(|| Hyperslab::all(&nothing), around),
            bounds,
            memory: Memory::packed().fit(0, &[0], geometry.info.dtype)?,
            batch: Some(Batched {
                plan: Arc::new(batch),
                packed,
                base,
                span,
            }),
        })
    }
}

impl Batched {
    /// Whether the object, as it is now, contains the bytes to read, or may grow to contain those to write, and they
    /// lie in the rows that were assumed for conflicts.
    pub(super) fn check(&self, plan: &Plan, geometry: &Geometry, size: u64) -> Result<(), FsError> {
        if self.span.and_then(|span| rows_of(span, geometry)) != plan.bounds {
            return Err(FsError::Invalid(
                "the object's dims were changed after the batch was made, so that its bytes are others; make it again"
                    .into(),
            ));
        }
        let end = self.span.map_or(0, |span| span.1);
        match plan.writes {
            true if end > geometry.size_limit() => Err(too_big(false, geometry.size_limit())),
            false if end > size => Err(FsError::Invalid(format!(
                "a batch reads up to byte {end} of an object of {size} bytes"
            ))),
            _ => Ok(()),
        }
    }
}

/// The rows of the object that contain a span of bytes.
fn rows_of((from, to): (u64, u64), geometry: &Geometry) -> Option<Region> {
    let rank = geometry.cells.len();
    let mut offset = Coords::from_elem(0, rank);
    let mut shape = geometry.cells.clone();
    let row = match rank {
        0 => return None,
        1 => 1,
        _ => geometry.row.max(1),
    };
    offset[0] = from / row;
    shape[0] = to.div_ceil(row) - offset[0];
    Some(Region { offset, shape })
}
