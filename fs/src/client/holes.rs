//! `SEEK_DATA` and `SEEK_HOLE`: where an object has data.
//!
//! Holes are told only where the fill is zero, since tools turn holes into zeros. They are told by whole
//! chunks: of a grid of one axis (byte objects among them) those nobody wrote; of other objects only if
//! nothing was ever written. Everything else counts as data, which is allowed.

use slabfs_mdserver::api::RightMode;

use super::error::FsError;
use super::flush::Scope;
use super::grid_io::PLACES_WALKED;
use super::handle::Handle;
use super::rights::{By, Cells};

/// Chunks looked for in one request.
const LOOK_AHEAD: u64 = 64;

impl Handle {
    /// The first byte at or after `offset` that is not in a hole.
    ///
    /// # Errors
    /// `NoSuchExtent` where only holes follow.
    pub fn seek_data(&self, offset: u64) -> Result<u64, FsError> {
        self.seek(offset, true)?.ok_or(FsError::NoSuchExtent)
    }

    /// The first byte at or after `offset` that is in a hole; the end counts as one.
    ///
    /// # Errors
    /// `NoSuchExtent` past the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64, FsError> {
        Ok(self.seek(offset, false)?.unwrap_or_else(|| self.size()))
    }

    fn seek(&self, offset: u64, data: bool) -> Result<Option<u64>, FsError> {
        self.client.admit(&self.object)?;
        let _op =
            self.client
                .enter(&self.object, By::Program, RightMode::Read, None, &|_, _| {
                    Cells::All
                })?;
        let size = self.size();
        if offset >= size {
            return Err(FsError::NoSuchExtent);
        }
        let everything_is_data = data.then_some(offset);
        if self.selected.is_some() {
            return Ok(everything_is_data);
        }
        let object = &self.object;
        self.client.flush_object(object, Scope::All)?;
        let geometry = object.geometry.read();
        if !geometry.info.fill.is_zero() {
            return Ok(everything_is_data);
        }
        if !geometry.info.holds || geometry.info.stripe.is_empty() && geometry.grid.is_some() {
            return Ok((!data).then_some(offset));
        }
        let Some(grid) = geometry.grid.as_ref().filter(|grid| grid.chunk.len() == 1) else {
            return Ok(everything_is_data);
        };
        let width = grid.chunk[0];
        let mut chunk = offset / width;
        let end = size.div_ceil(width);
        if end - chunk > PLACES_WALKED {
            let existing = self.client.existing(object, &geometry)?;
            let mut places = existing.iter().map(|at| at[0]).filter(|at| *at >= chunk);
            let found = if data {
                places.next()
            } else {
                // The first place from `chunk` on that is not among them.
                let mut free = chunk;
                while places.next() == Some(free) {
                    free += 1;
                }
                (free < end).then_some(free)
            };
            return Ok(found
                .filter(|at| *at < end)
                .map(|at| offset.max(at * width)));
        }
        while chunk < end {
            let upto = end.min(chunk + LOOK_AHEAD);
            let present = self.client.present(object, &geometry, grid, chunk..upto)?;
            if let Some(at) = present.iter().position(|present| *present == data) {
                return Ok(Some(offset.max((chunk + at as u64) * width)));
            }
            chunk = upto;
        }
        Ok(None)
    }
}
