//! A selection of an open object: read and written through the open handle, without another open.
//!
//! A [`Part`] is its handle with another space: data written through it belongs to that handle, so that the handle's
//! flush writes it back, with its neighbours in one box, and errors of background flushes are deferred there.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use slabfs_model::{DType, GeometryError, Hyperslab, Selection};

use crate::client::error::FsError;
use crate::client::handle::{Handle, Selected};
use crate::client::object::geometry::Geometry;
use crate::client::request::{Memory, room};
use crate::client::stored::ahead::Ahead;

/// The maximum size of one read or write in bytes. Larger ones are split, and each piece is atomic for concurrent
/// readers.
const PIECE: u64 = 64 << 20;

/// A requested selection of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A parsed selection, `[0:10,::2]`, to be resolved against the current dims.
    Selection(Selection),
    /// These elements.
    Slab(Hyperslab),
}

/// A selection through an open handle, for as long as that is borrowed.
#[derive(Debug)]
pub struct Part<'a> {
    handle: Handle,
    shape: slabfs_model::Coords,
    dtype: DType,
    bytes: u64,
    of: PhantomData<&'a Handle>,
}

impl Handle {
    /// A selection of the object this handle is open on.
    ///
    /// # Errors
    /// `Invalid` if it does not fit the object, or if this handle itself is open on a selection.
    pub fn part(&self, wanted: &Wanted) -> Result<Part<'_>, FsError> {
        self.part_for(wanted, false)
    }

    /// As [`Handle::part`], for writing: if the object's slowest axis is unlimited, elements given as a slab may lie
    /// beyond its end, and a write extends it.
    ///
    /// # Errors
    /// As [`Handle::part`]; `TooBig` for elements beyond the object's maximum size.
    pub fn part_to_write(&self, wanted: &Wanted) -> Result<Part<'_>, FsError> {
        self.part_for(wanted, true)
    }

    fn part_for(&self, wanted: &Wanted, writes: bool) -> Result<Part<'_>, FsError> {
        if self.selected.is_some() {
            return Err(FsError::Invalid(
                "this handle is open on a selection, which has no parts; open the object itself"
                    .into(),
            ));
        }
        let open_ended = matches!(wanted, Wanted::Selection(_));
        let (selected, shape, dtype) = self.by_form(open_ended, &|geometry, size| {
            let slab = chosen(wanted, geometry, size, writes)?;
            let dtype = geometry.info.dtype;
            let selected = Selected {
                extends: writes && !open_ended,
                ..Selected::of(&slab, geometry)?
            };
            Ok((selected, slab.packed_shape(), dtype))
        })?;
        Ok(Part {
            bytes: selected.bytes,
            shape,
            dtype,
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
                place: Mutex::default(),
                tail: Mutex::default(),
                reached: AtomicBool::new(false),
                transfers: AtomicU64::new(0),
                released: AtomicBool::new(false),
                counted: AtomicBool::new(false),
                row: self.row.clone(),
            },
            of: PhantomData,
        })
    }

    /// The selected elements, with the current dims. A slab is not compared with the dims: a transfer may extend the
    /// object.
    ///
    /// # Errors
    /// `Invalid` for a selection that does not fit the object.
    pub fn elements(&self, wanted: &Wanted) -> Result<Hyperslab, FsError> {
        match wanted {
            Wanted::Slab(slab) => Ok(slab.clone()),
            Wanted::Selection(_) => self.by_form(true, &|geometry, size| {
                chosen(wanted, geometry, size, false)
            }),
        }
    }

    /// Calls `what` with the object's form and size: the cached ones, or the server's if the cached ones may be stale.
    fn by_form<T>(
        &self,
        open_ended: bool,
        what: &dyn Fn(&Geometry, u64) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let here = {
            let geometry = self.object.geometry.read();
            what(&geometry, self.object.size(&geometry))
        };
        // Unflushed data of other mounts may extend the object, and an open end refers to the extended size.
        if !self.client.shared() || (!open_ended && here.is_ok()) {
            return here;
        }
        let entry = self
            .client
            .with_unflushed(self.client.md().stat(self.object.ino, false)?);
        let geometry = Geometry::new(&entry)?;
        what(&geometry, geometry.size())
    }
}

/// The selection, in elements.
fn chosen(
    wanted: &Wanted,
    geometry: &Geometry,
    size: u64,
    writes: bool,
) -> Result<Hyperslab, FsError> {
    let dims = geometry.dims_at(size);
    match wanted {
        Wanted::Selection(selection) => selection
            .resolve(&dims)
            .map_err(|error| FsError::Invalid(error.to_string())),
        Wanted::Slab(slab) => {
            let mut limits = dims.clone();
            if writes && geometry.grows() {
                limits[0] = limits[0].max(geometry.size_limit() / geometry.row);
            }
            slab.validate(&limits).map_err(|error| match error {
                GeometryError::Outside { axis, end, .. } => {
                    let text = beyond(&dims, axis, end);
                    match writes && geometry.grows() && axis == 0 {
                        true => FsError::TooBig(text),
                        false => FsError::Invalid(text),
                    }
                }
                other => FsError::Invalid(other.to_string()),
            })?;
            Ok(slab.clone())
        }
    }
}

/// The message for a selection of elements that do not exist and cannot be added.
fn beyond(dims: &[u64], axis: usize, end: u64) -> String {
    let dims = slabfs_model::format_dims(dims);
    format!(
        "the selection reaches to {end} on axis {axis} of the object, whose dims are {dims}; a write makes it longer \
         along an unlimited slowest axis, everything else is done by setting its dims"
    )
}

impl Part<'_> {
    /// Its packed shape, in elements.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads all of it into new memory, packed in row-major order.
    ///
    /// # Errors
    /// `TooBig` if there is no memory for it; as [`Handle::read`].
    pub fn read_all(&self) -> Result<Vec<u8>, FsError> {
        let mut bytes = room(self.bytes)?;
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads all of it into the elements that `memory` selects.
    ///
    /// # Errors
    /// `Invalid` if `memory` does not match the buffer or the selection; `NotRepresentable`; as [`Part::read_all`].
    pub fn read_into(&self, memory: &Memory, into: &mut [u8]) -> Result<(), FsError> {
        let memory = memory.fit(into.len(), &self.shape, self.dtype)?;
        if let Some((at, len)) = memory.direct() {
            return self.read(&mut into[at..at + len]);
        }
        memory.put(&self.read_all()?, into)
    }

    /// Writes all of it from the elements that `memory` selects.
    ///
    /// # Errors
    /// As [`Part::read_into`] and [`Handle::write`].
    pub fn write_from(&self, memory: &Memory, from: &[u8]) -> Result<(), FsError> {
        let memory = memory.fit(from.len(), &self.shape, self.dtype)?;
        self.write(memory.take(from, false)?.contiguous())
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
                    "the object shrank below this selection during the read".into(),
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
