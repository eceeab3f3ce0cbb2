//! `SEEK_DATA` and `SEEK_HOLE`: finds the data of an object.
//!
//! Holes are reported only if the fill value is zero, since tools read holes as zeros. For a grid of one axis (byte
//! objects among them) they are those of the data servers, in pages; for other objects only if nothing was ever
//! written. Everything else counts as data, which is allowed.

use slabfs_mdserver::api::RightMode;
use slabfs_model::Coords;
use slabfs_model::layout::Grid;

use crate::client::Client;
use crate::client::buffer::flush::Scope;
use crate::client::coherence::rights::{BoxSet, By, Need};
use crate::client::error::FsError;
use crate::client::handle::Handle;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::stored::grid_io::PLACES_WALKED;

/// Chunks per request.
const LOOK_AHEAD: usize = 64;

impl Handle {
    /// The first byte at or after `offset` that is not in a hole.
    ///
    /// # Errors
    /// `NoSuchExtent` if only holes follow.
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
        if self.awaits_more()? {
            // Data may come anywhere.
            return Ok(Some(if data { offset } else { i64::MAX as u64 }));
        }
        let need = Need {
            by: By::Program,
            mode: RightMode::Read,
            long: false,
            span: None,
            cells: &|_, _| BoxSet::All,
        };
        let _op = self.client.enter(&self.object, &need)?;
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
        if !geometry.info.fill.is_zero() || geometry.info.couple.is_in_memory() {
            return Ok(everything_is_data);
        }
        if !geometry.info.holds || geometry.info.stripe.is_empty() && geometry.grid.is_some() {
            return Ok((!data).then_some(offset));
        }
        let Some(grid) = geometry.grid.as_ref().filter(|grid| grid.chunk.len() == 1) else {
            return Ok(everything_is_data);
        };
        let walk = Walk {
            client: &self.client,
            object,
            geometry: &geometry,
            grid,
            size,
        };
        if data {
            walk.data(offset)
        } else {
            walk.hole(offset)
        }
    }
}

/// A walk along the chunks of an object of one axis.
struct Walk<'a> {
    client: &'a Client,
    object: &'a Object,
    geometry: &'a Geometry,
    grid: &'a Grid,
    size: u64,
}

impl Walk<'_> {
    fn width(&self) -> u64 {
        self.grid.chunk[0]
    }

    /// The chunk positions from that of byte `from` on: all possible ones, or, if those are very many, the existing
    /// ones.
    fn places(&self, from: u64) -> Result<Vec<u64>, FsError> {
        let (first, end) = (from / self.width(), self.size.div_ceil(self.width()));
        if end - first <= PLACES_WALKED {
            return Ok((first..end).collect());
        }
        let existing = self.client.existing(self.object, self.geometry)?;
        let places = existing.iter().map(|at| at[0]);
        Ok(places.filter(|at| (first..end).contains(at)).collect())
    }

    /// For each of these chunks, its first allocated run of bytes from byte `from` of the object on.
    fn runs(&self, places: &[u64], from: u64) -> Result<Vec<Option<(u64, u64)>>, FsError> {
        let width = self.width();
        let named = |&at: &u64| {
            let place = Coords::from_slice(&[at]);
            let chunk = self
                .client
                .grid_chunk(self.object, self.geometry, self.grid, place)?;
            Ok((chunk.server, chunk.name, from.saturating_sub(at * width)))
        };
        let chunks: Vec<_> = places.iter().map(named).collect::<Result<_, FsError>>()?;
        let allocated = self.client.servers().allocated(&chunks)?;
        let runs = allocated.iter().zip(places).map(|(allocated, at)| {
            let (first, upto) = allocated.next?;
            Some((at * width + first, at * width + upto.min(width)))
        });
        Ok(runs.collect())
    }

    /// The first allocated byte from `from` on.
    fn data(&self, from: u64) -> Result<Option<u64>, FsError> {
        for places in self.places(from)?.chunks(LOOK_AHEAD) {
            let found = self.runs(places, from)?.into_iter().flatten().next();
            if let Some((first, _)) = found {
                return Ok(Some(first).filter(|first| *first < self.size));
            }
        }
        Ok(None)
    }

    /// The first unallocated byte from `from` on.
    fn hole(&self, from: u64) -> Result<Option<u64>, FsError> {
        let mut at = from;
        for places in self.places(from)?.chunks(LOOK_AHEAD) {
            for (place, run) in places.iter().zip(self.runs(places, from)?) {
                let end = (place + 1).saturating_mul(self.width());
                match run {
                    Some((first, upto)) if first <= at => at = upto,
                    _ => return Ok(Some(at)),
                }
                if at < end {
                    return Ok(Some(at).filter(|at| *at < self.size));
                }
            }
        }
        Ok(Some(at).filter(|at| *at < self.size))
    }
}
