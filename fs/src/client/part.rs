//! A selection of an object that is open as a whole: read and written without opening anything anew.
//!
//! A [`Part`] is its handle with another space: what is written through it counts as that handle's, so that the
//! handle's flush brings it out, with its neighbours in one box, and errors of the background wait there.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use slabfs_model::{Hyperslab, Selection};

use super::ahead::Ahead;
use super::error::FsError;
use super::geometry::Geometry;
use super::handle::{Handle, Selected};

/// Bytes that are read or written in one go. What is more is done in several, each of which others see wholly or
/// not at all.
const PIECE: u64 = 64 << 20;

/// What of an object is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// What a text says, `[0:10,::2]`, of the dims there are.
    Selection(Selection),
    /// These elements.
    Slab(Hyperslab),
}

/// A selection through an open handle, for as long as that is borrowed.
#[derive(Debug)]
pub struct Part<'a> {
    handle: Handle,
    shape: slabfs_model::Coords,
    bytes: u64,
    of: PhantomData<&'a Handle>,
}

impl Handle {
    /// A selection of the object this handle is open on.
    ///
    /// # Errors
    /// `Invalid` if it does not fit the object, or if this handle itself is open on a selection.
    pub fn part(&self, wanted: &Wanted) -> Result<Part<'_>, FsError> {
        if self.selected.is_some() {
            return Err(FsError::Invalid(
                "this handle is open on a selection, which has no parts; open the object itself"
                    .into(),
            ));
        }
        let here = {
            let geometry = self.object.geometry.read();
            chosen(wanted, &geometry, self.object.size(&geometry))
        };
        // What others have not flushed may make it larger, and an open end means theirs.
        let open_ended = matches!(wanted, Wanted::Selection(_));
        let (selected, shape) = if self.client.shared() && (open_ended || here.is_err()) {
            let entry = self
                .client
                .with_unflushed(self.client.md().stat(self.object.ino)?);
            let geometry = Geometry::new(&entry)?;
            chosen(wanted, &geometry, geometry.size())?
        } else {
            here?
        };
        Ok(Part {
            bytes: selected.bytes,
            shape,
            handle: Handle {
                client: self.client.clone(),
                object: self.object.clone(),
                id: self.id,
                writable: self.writable,
                append: false,
                selected: Some(selected),
                stream: Mutex::new(None),
                waiting: self.waiting.clone(),
                ahead: Ahead::default(),
                transfers: AtomicU64::new(0),
                released: AtomicBool::new(false),
            },
            of: PhantomData,
        })
    }
}

/// The selection in cells, and its packed shape in elements.
fn chosen(
    wanted: &Wanted,
    geometry: &Geometry,
    size: u64,
) -> Result<(Selected, slabfs_model::Coords), FsError> {
    let dims = geometry.dims_at(size);
    let slab = match wanted {
        Wanted::Selection(selection) => selection
            .resolve(&dims)
            .map_err(|error| FsError::Invalid(error.to_string()))?,
        Wanted::Slab(slab) => {
            slab.validate(&dims)
                .map_err(|error| FsError::Invalid(error.to_string()))?;
            slab.clone()
        }
    };
    let shape = slab.packed_shape();
    Ok((Selected::of(&slab, geometry)?, shape))
}

impl Part<'_> {
    /// Its packed shape, in elements.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads all of it, packed in row-major order.
    ///
    /// # Errors
    /// `Invalid` if `into` has another length than [`Part::bytes`]; as [`Handle::read`].
    pub fn read(&self, into: &mut [u8]) -> Result<(), FsError> {
        self.fits(into.len())?;
        for (piece, at) in into
            .chunks_mut(PIECE as usize)
            .zip((0..).step_by(PIECE as usize))
        {
            let mut got = 0;
            self.handle.read(at, piece.len(), &mut |bytes: &[u8]| {
                got = bytes.len().min(piece.len());
                piece[..got].copy_from_slice(&bytes[..got]);
            })?;
            if got < piece.len() {
                return Err(FsError::Invalid(
                    "the object has become smaller than this selection while it was read".into(),
                ));
            }
        }
        Ok(())
    }

    /// Writes all of it, packed in row-major order.
    ///
    /// # Errors
    /// `Invalid` if `from` has another length than [`Part::bytes`]; as [`Handle::write`].
    pub fn write(&self, from: &[u8]) -> Result<(), FsError> {
        self.fits(from.len())?;
        for (piece, at) in from
            .chunks(PIECE as usize)
            .zip((0..).step_by(PIECE as usize))
        {
            self.handle.write(at, piece)?;
        }
        Ok(())
    }

    fn fits(&self, len: usize) -> Result<(), FsError> {
        if len as u64 == self.bytes {
            return Ok(());
        }
        Err(FsError::Invalid(format!(
            "the selection has {} bytes, the buffer {len}; give one of that length",
            self.bytes
        )))
    }
}
