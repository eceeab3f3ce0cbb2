//! An open file description: a program's view of an object, or of a selection of it.
//!
//! A handle has a *space*: for the plain file the object itself, for a selection its packed shape. Offsets of reads
//! and writes count bytes of that space in row-major order. Errors of flushes in the background are stored in the
//! handle and returned once, by the next `fsync` or `close`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use slabfs_mdserver::api::Ino;
use slabfs_model::layout::boxes_of_run;
use slabfs_model::{Coords, Hyperslab, Region, Selection};

use super::Client;
use super::ahead::Ahead;
use super::error::FsError;
use super::geometry::Geometry;
use super::object::Object;
use super::same_host::Place;
use super::stream::Stream;
use super::writer::{HandleId, Waiting};

/// The destination of a read; called once, with the bytes read (fewer than requested at the end).
pub trait ReadSink {
    /// Takes the bytes.
    fn give(&mut self, bytes: &[u8]);
}

impl<F: FnMut(&[u8])> ReadSink for F {
    fn give(&mut self, bytes: &[u8]) {
        self(bytes);
    }
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The object is longer than before.
    pub size_changed: bool,
}

/// The selection a handle was opened on.
#[derive(Debug, Clone)]
pub(super) struct Selected {
    /// The cells it names.
    pub(super) slab: Hyperslab,
    /// Its packed shape, last axis in bytes.
    pub(super) shape: Coords,
    /// Its bytes.
    pub(super) bytes: u64,
    /// Whether a write extends the object as needed, if allowed.
    pub(super) extends: bool,
}

/// An open file description.
#[derive(Debug)]
pub struct Handle {
    pub(super) client: Arc<Client>,
    pub(super) object: Arc<Object>,
    pub(super) id: HandleId,
    pub(super) writable: bool,
    pub(super) append: bool,
    pub(super) selected: Option<Selected>,
    pub(super) stream: Mutex<Option<Arc<Stream>>>,
    pub(super) waiting: Arc<Waiting>,
    pub(super) ahead: Ahead,
    pub(super) place: Mutex<Option<Arc<Place>>>,
    /// Where the last append ended, if that was within a row, and the size of the object including that entire row.
    pub(super) tail: Mutex<Option<(u64, u64)>>,
    /// Started transfers that have not ended.
    pub(super) transfers: AtomicU64,
    /// It is being released: no transfer starts any more.
    pub(super) released: AtomicBool,
}

/// A part of a request in the object's cells, and the place of its bytes in the request's buffer.
#[derive(Debug, Clone)]
pub(super) struct Want {
    /// The cells.
    pub(super) slab: Hyperslab,
    /// First byte in the buffer of the box `shape` that `within` is a part of.
    pub(super) at: usize,
    /// Bytes of that box.
    pub(super) len: usize,
    /// The packed shape of that box.
    pub(super) shape: Coords,
    /// The part of the box; `None` if it is all of it.
    pub(super) within: Option<Region>,
}

impl Handle {
    pub(super) fn new(
        client: Arc<Client>,
        object: Arc<Object>,
        id: HandleId,
        mode: OpenMode,
        selected: Option<Selected>,
    ) -> Handle {
        Handle {
            client,
            object,
            id,
            writable: mode.write,
            append: mode.append,
            selected,
            stream: Mutex::new(None),
            waiting: Arc::default(),
            ahead: Ahead::default(),
            place: Mutex::default(),
            tail: Mutex::default(),
            transfers: AtomicU64::new(0),
            released: AtomicBool::new(false),
        }
    }

    /// The object this handle is open on.
    pub fn ino(&self) -> Ino {
        self.object.ino
    }

    /// Bytes of an element of the object.
    pub fn elem(&self) -> u64 {
        self.object.geometry.read().info.dtype.size()
    }

    /// Whether the handle shows a selection.
    pub fn is_selection(&self) -> bool {
        self.selected.is_some()
    }

    /// Bytes of the handle's space now, unflushed growth included.
    pub fn size(&self) -> u64 {
        match &self.selected {
            Some(selected) => selected.bytes,
            None => self.object.size(&self.object.geometry.read()),
        }
    }

    /// The parts of `[offset, offset + len)` of the handle's space, in the object's cells.
    pub(super) fn wants(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Want>, FsError> {
        let mut boxes = Vec::new();
        let mut wants = Vec::new();
        let mut at = 0;
        match &self.selected {
            None => {
                boxes_of_run(&geometry.cells_at(size), offset, len, &mut boxes);
                for region in boxes {
                    let len = region.volume() as usize;
                    wants.push(Want {
                        slab: Hyperslab::from_region(&region),
                        at,
                        len,
                        shape: region.shape,
                        within: None,
                    });
                    at += len;
                }
            }
            Some(selected) => {
                selected.check(&geometry.cells_at(size))?;
                boxes_of_run(&selected.shape, offset, len, &mut boxes);
                for region in boxes {
                    let len = region.volume() as usize;
                    let parts = selected.slab.parts(&region);
                    let complete = parts.len() == 1;
                    for (packed, slab) in parts {
                        let within = (!complete).then(|| packed.within(&region));
                        wants.push(Want {
                            slab,
                            at,
                            len,
                            shape: region.shape.clone(),
                            within,
                        });
                    }
                    at += len;
                }
            }
        }
        Ok(wants)
    }
}

/// How a handle is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenMode {
    /// For writing.
    pub write: bool,
    /// Every write goes to the end.
    pub append: bool,
}

impl Selected {
    /// Resolves `selection` on an object of this form.
    pub(super) fn new(
        selection: &Selection,
        geometry: &Geometry,
        size: u64,
    ) -> Result<Selected, FsError> {
        let slab = selection
            .resolve(&geometry.dims_at(size))
            .map_err(|error| FsError::Invalid(error.to_string()))?;
        Selected::of(&slab, geometry)
    }

    /// The given elements of an object of this form, which contains them.
    pub(super) fn of(slab: &Hyperslab, geometry: &Geometry) -> Result<Selected, FsError> {
        let slab = slab
            .to_cells(geometry.info.space().elem)
            .map_err(|error| FsError::Invalid(error.to_string()))?;
        let shape = slab.packed_shape();
        Ok(Selected {
            bytes: slab.volume(),
            slab,
            shape,
            extends: false,
        })
    }

    /// The size in bytes that the object, of this form and with `size` bytes, has after this selection is written.
    pub(super) fn reach(&self, geometry: &Geometry, size: u64) -> u64 {
        let Some(bounds) = self.slab.bounds().filter(|_| self.extends) else {
            return size;
        };
        // In cells the only axis of an array with one axis counts bytes.
        let reach = match geometry.cells.len() {
            0 => 0,
            1 => geometry.full_rows(bounds.end(0)),
            _ => bounds.end(0).saturating_mul(geometry.row),
        };
        match geometry.grows() && reach <= geometry.size_limit() {
            true => size.max(reach),
            false => size,
        }
    }

    /// Whether the object, which may have shrunk, still holds the selection.
    pub(super) fn check(&self, cells: &[u64]) -> Result<(), FsError> {
        let Some(bounds) = self.slab.bounds() else {
            return Ok(());
        };
        if bounds.rank() == cells.len()
            && (0..cells.len()).all(|axis| bounds.end(axis) <= cells[axis])
        {
            return Ok(());
        }
        Err(FsError::Invalid(
            "the object has become smaller than this selection; open it again".into(),
        ))
    }
}
