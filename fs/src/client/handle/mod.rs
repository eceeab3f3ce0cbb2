//! An open file description: a program's view of an object, or of a selection of it.
//!
//! A handle has a *space*: for the plain file the object itself, for a selection its packed shape. Offsets of reads
//! and writes count bytes of that space in row-major order. Errors of flushes in the background are stored in the
//! handle and returned once, by the next `fsync` or `close`.

pub(in crate::client) mod part;
pub(in crate::client) mod read;
mod show;
pub(in crate::client) mod write;
pub(in crate::client) mod writer;

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use slabfs_mdserver::api::{Entry, Ino};
use slabfs_model::layout::boxes_of_run;
use slabfs_model::{Coords, Hyperslab, Region, Selection};

use crate::client::Client;
use crate::client::buffer::stream::Stream;
use crate::client::error::FsError;
use crate::client::handle::writer::{HandleId, Waiting};
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::stored::ahead::Ahead;
use crate::client::stored::same_host::Place;

/// The destination of a read; called once, with the bytes read (fewer than requested at the end).
pub trait ReadSink {
    /// Takes the bytes.
    fn give(&mut self, bytes: &[u8]);

    /// Takes the bytes, which are in several places.
    fn give_parts(&mut self, parts: &[IoSlice<'_>]) {
        self.give(
            &parts
                .iter()
                .flat_map(|part| part.iter().copied())
                .collect::<Vec<u8>>(),
        );
    }

    /// Whether the bytes are still wanted: a read that waits for data is given up otherwise.
    fn is_wanted(&self) -> bool {
        true
    }
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
pub(in crate::client) struct Selected {
    /// The cells it names.
    pub(in crate::client) slab: Hyperslab,
    /// Its packed shape, last axis in bytes.
    pub(in crate::client) shape: Coords,
    /// Its bytes.
    pub(in crate::client) bytes: u64,
    /// Whether a write extends the object as needed, if allowed.
    pub(in crate::client) extends: bool,
}

/// An open file description.
#[derive(Debug)]
pub struct Handle {
    pub(in crate::client) client: Arc<Client>,
    pub(in crate::client) object: Arc<Object>,
    pub(in crate::client) id: HandleId,
    pub(in crate::client) writable: bool,
    pub(in crate::client) append: bool,
    pub(in crate::client) selected: Option<Selected>,
    pub(in crate::client) stream: Mutex<Option<Arc<Stream>>>,
    pub(in crate::client) waiting: Arc<Waiting>,
    pub(in crate::client) ahead: Ahead,
    pub(in crate::client) place: Mutex<Option<Arc<Place>>>,
    /// Where the last append ended, if that was within a row, and the size of the object including that entire row.
    pub(in crate::client) tail: Mutex<Option<(u64, u64)>>,
    /// A write through it has reached a data server.
    pub(in crate::client) reached: AtomicBool,
    /// Started transfers that have not ended.
    pub(in crate::client) transfers: AtomicU64,
    /// It is being released: no transfer starts any more.
    pub(in crate::client) released: AtomicBool,
    /// It is counted among the opens of a coupled object.
    pub(in crate::client) counted: AtomicBool,
    /// Of a coupled object with a queue: the last row that it has begun to read or to write, plus 1; 0 for none.
    pub(in crate::client) row: Arc<AtomicU64>,
}

/// A part of a request in the object's cells, and the place of its bytes in the request's buffer.
#[derive(Debug, Clone)]
pub(in crate::client) struct Want {
    /// The cells.
    pub(in crate::client) slab: Hyperslab,
    /// First byte in the buffer of the box `shape` that `within` is a part of.
    pub(in crate::client) at: usize,
    /// Bytes of that box.
    pub(in crate::client) len: usize,
    /// The packed shape of that box.
    pub(in crate::client) shape: Coords,
    /// The part of the box; `None` if it is all of it.
    pub(in crate::client) within: Option<Region>,
}

impl Handle {
    pub(in crate::client) fn new(
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
            reached: AtomicBool::new(false),
            transfers: AtomicU64::new(0),
            released: AtomicBool::new(false),
            counted: AtomicBool::new(false),
            row: Arc::default(),
        }
    }

    /// The object as of its last change that this mount knows.
    pub(crate) fn entry(&self) -> Entry {
        let geometry = self.object.geometry.read();
        Entry {
            attr: geometry.attr.clone(),
            info: Some(geometry.info.clone()),
        }
    }

    /// The object this handle is open on.
    pub fn ino(&self) -> Ino {
        self.object.ino
    }

    /// Whether the object is coupled.
    pub fn is_coupled(&self) -> bool {
        self.object.coupled.any()
    }

    /// Whether bytes that the object gains are zeros until they are written, or it gains none. The kernel takes those of a
    /// page beyond the end for zeros.
    pub fn grows_by_zeros(&self) -> bool {
        let geometry = self.object.geometry.read();
        !geometry.grows() || geometry.info.fill.is_zero()
    }

    /// The number of axes of the object.
    pub fn rank(&self) -> usize {
        self.object.geometry.read().info.dims.len()
    }

    /// Whether this mount has the object open for writing.
    pub fn has_writers(&self) -> bool {
        self.object.own.writers() > 0
    }

    /// Whether reads through it may wait for data of a coupled object.
    pub fn awaits_data(&self) -> bool {
        !self.writable && self.object.awaits_data()
    }

    /// The current dims, if no request is needed to know them.
    pub fn known_dims(&self) -> Option<Coords> {
        self.client.known_dims(&self.object)
    }

    /// Fetches the form of the object.
    pub fn renew_form(&self) -> Result<(), FsError> {
        self.client.refresh(&self.object)
    }

    /// The dims as last received.
    pub fn received_dims(&self) -> Coords {
        self.object.geometry.read().info.dims.clone()
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
    pub(in crate::client) fn wants(
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
    pub(in crate::client) fn new(
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
    pub(in crate::client) fn of(
        slab: &Hyperslab,
        geometry: &Geometry,
    ) -> Result<Selected, FsError> {
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
    pub(in crate::client) fn reach(&self, geometry: &Geometry, size: u64) -> u64 {
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
    pub(in crate::client) fn check(&self, cells: &[u64]) -> Result<(), FsError> {
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
