//! Batches as transfers: nested strided patterns that are read or written while the program goes on.
//!
//! A batch is one message to each data server by itself, so it goes in no batch of the queue with others; to those it is a
//! transfer of all rows of the object from its first byte to its last. It runs as [`Handle::read_batch`] and
//! [`Handle::write_batch`] do, and what was written is flushed, so that a transfer of a batch has ended when others see it,
//! as all transfers have. Cancelled is only one that has not begun.

use std::sync::Arc;

use slabfs_model::{Coords, Hyperslab, Region, batch};

use super::super::Client;
use super::super::error::FsError;
use super::super::geometry::Geometry;
use super::super::handle::Handle;
use super::core::{self, Begun, Plan};
use super::{Failed, Memory, Transfer};

impl Handle {
    /// A transfer of the pieces of a batch from `buffer` to the object, which grows if it may.
    ///
    /// # Errors
    /// `Invalid` for a handle on a selection or one that appends, and a buffer that is too small; `ReadOnly`.
    pub fn write_batch_transfer<B: AsRef<[u8]> + Send + 'static>(
        self: &Arc<Self>,
        batch: batch::Plan,
        buffer: B,
    ) -> Result<Transfer<B>, Failed<B>> {
        let plan = |len| self.plan_batch(true, batch, len);
        match core::from_owned(buffer, self.client.transfers().counted(), plan) {
            Ok(own) => Ok(Transfer::new(own)),
            Err((error, buffer)) => Err(Failed { error, buffer }),
        }
    }

    /// A transfer of the pieces of a batch from the object to `buffer`.
    ///
    /// # Errors
    /// `Invalid` for a handle on a selection, pieces that overlap in the buffer, and a buffer that is too small.
    pub fn read_batch_transfer<B: AsMut<[u8]> + Send + 'static>(
        self: &Arc<Self>,
        batch: batch::Plan,
        buffer: B,
    ) -> Result<Transfer<B>, Failed<B>> {
        let plan = |len| self.plan_batch(false, batch, len);
        match core::into_owned(buffer, self.client.transfers().counted(), plan) {
            Ok(own) => Ok(Transfer::new(own)),
            Err((error, buffer)) => Err(Failed { error, buffer }),
        }
    }

    /// What a transfer of a batch into or out of a buffer of `len` bytes moves.
    pub(super) fn plan_batch(
        self: &Arc<Self>,
        writes: bool,
        batch: batch::Plan,
        len: usize,
    ) -> Result<Plan, FsError> {
        if writes {
            self.check()?;
        }
        if self.selected.is_some() || (writes && self.append) {
            return Err(FsError::Invalid(
                "a batch counts bytes of a whole object; this handle shows a selection, or appends"
                    .into(),
            ));
        }
        let end = batch.memory_span().map_or(0, |span| span.1);
        if end > len as u64 {
            return Err(FsError::Invalid(format!(
                "the batch reaches up to byte {end} of a buffer that has {len}"
            )));
        }
        if !writes {
            batch
                .check_targets()
                .map_err(|error| FsError::Invalid(error.to_string()))?;
        }
        let geometry = self.object.geometry.read();
        Ok(Plan {
            handle: self.clone(),
            writes,
            slab: Hyperslab::whole(&[0]),
            bounds: rows_of(&batch, &geometry),
            memory: Memory::packed().fit(0, &[0], geometry.info.dtype)?,
            batch: Some(Arc::new(batch)),
        })
    }
}

/// The rows of the object that a batch lies in.
fn rows_of(batch: &batch::Plan, geometry: &Geometry) -> Option<Region> {
    let (from, to) = batch.file_span()?;
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

/// Runs one to its end.
pub(super) fn run(client: &Arc<Client>, mut begun: Begun) {
    let result = match begun.is_cancelled() {
        true => Err(FsError::Cancelled),
        false => moved(&mut begun),
    };
    if result.as_ref().is_err_and(FsError::is_loss) {
        client.suspect();
    }
    client.transfers().end(vec![(begun, result)]);
}

fn moved(begun: &mut Begun) -> Result<(), FsError> {
    let Some(batch) = begun.plan.batch.clone() else {
        return Ok(());
    };
    let handle = begun.plan.handle.clone();
    if begun.plan.writes {
        handle.write_batch(&batch, 0..batch.bytes(), begun.bytes())?;
        return handle.flush();
    }
    handle.read_batch_checked(&batch, 0..batch.bytes(), begun.bytes_mut())
}
