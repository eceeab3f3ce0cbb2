//! Streams: chunks that grow on a data server while their writer writes.
//!
//! A handle that writes consecutive complete rows, or a selection from its beginning, need not hold its bytes in memory
//! until it closes: they go to a data server as they are written, into a chunk whose packed order is the order of their
//! arrival. The chunk is no part of the object until it is sealed and committed; until then, reads of this mount read
//! it as part of their overlay.
//!
//! Invariants: a stream's region is rows `[first, first + rows)` of its handle's space, where `rows` is as many as fit
//! into a chunk; its first `stored` bytes are on the server, and `tail` holds the bytes after them; the regions of an
//! object's open streams do not overlap; a stream belongs to one handle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use slabfs_model::layout::boxes_of_run;
use slabfs_model::{ChunkId, Coords, Hyperslab, Region, ServerId};
use slabfs_objstore::{ChunkForm, ChunkName};

use crate::client::handle::writer::HandleId;

/// A chunk that is being written.
#[derive(Debug)]
pub(in crate::client) struct Stream {
    /// The handle that writes it.
    pub(in crate::client) writer: HandleId,
    /// The offset of its first byte in the packed bytes of the handle's space.
    pub(in crate::client) begins: u64,
    /// The cells of the object that the stream covers at full length.
    pub(in crate::client) slab: Hyperslab,
    /// The packed shape of `slab`.
    pub(in crate::client) shape: Coords,
    /// The id its chunk is committed under.
    pub(in crate::client) chunk: ChunkId,
    /// The same, as the data servers name it.
    pub(in crate::client) name: ChunkName,
    /// The server that holds it.
    pub(in crate::client) server: ServerId,
    /// The form of the chunk at full length.
    pub(in crate::client) form: ChunkForm,
    /// The time of its first write.
    pub(in crate::client) since: Instant,
    /// Bytes written, including a write in progress.
    pub(in crate::client) reach: AtomicU64,
    /// Its end for reads that look from now on: the bytes after the cut are among the object's runs. Changed under the
    /// lock of the runs.
    pub(in crate::client) ends: AtomicU64,
    /// Its state.
    pub(in crate::client) progress: Mutex<Progress>,
}

/// The state of a stream.
#[derive(Debug, Default)]
pub(in crate::client) struct Progress {
    /// Bytes on the server.
    pub(in crate::client) stored: u64,
    /// Bytes in memory: those after the part that [stays](Progress::stays) on the server.
    pub(in crate::client) tail: Vec<u8>,
    /// Closed for writes: it is being sealed.
    pub(in crate::client) ended: bool,
    /// The position of the cut: the size of its complete rows. The bytes after it are a dirty run.
    pub(in crate::client) cut: Option<u64>,
    /// The server has sealed it.
    pub(in crate::client) sealed: bool,
    /// The server has no space for more of it.
    pub(in crate::client) full: bool,
}

impl Progress {
    /// Bytes written to the stream.
    pub(in crate::client) fn len(&self) -> u64 {
        self.stays() + self.tail.len() as u64
    }

    /// Bytes to be read from the server: bytes after the cut are dropped there at the seal, and are in the tail.
    pub(in crate::client) fn stays(&self) -> u64 {
        self.cut.unwrap_or(u64::MAX).min(self.stored)
    }
}

impl Stream {
    /// Bytes of one row of the slowest axis.
    pub(in crate::client) fn row(&self) -> u64 {
        self.shape[1..].iter().product()
    }

    /// The size of the complete rows in the first `bytes` bytes; with a single axis, of the complete elements: a
    /// selection with steps can be cut only between elements.
    pub(in crate::client) fn full_rows(&self, bytes: u64) -> u64 {
        let unit = if self.shape.len() == 1 {
            u64::from(self.form.elem)
        } else {
            self.row()
        };
        bytes - bytes % unit.max(1)
    }

    /// Its size at full length, in bytes.
    pub(in crate::client) fn capacity(&self) -> u64 {
        self.shape.iter().product()
    }
}

impl Stream {
    /// Boxes that contain the bytes written so far, including a write in progress; possibly larger.
    pub(in crate::client) fn held(&self) -> impl Iterator<Item = Region> {
        let reach = self.reach.load(Ordering::Acquire);
        let mut written = Region::all(&self.shape);
        written.shape[0] = reach.div_ceil(self.row().max(1));
        self.slab
            .parts(&written)
            .into_iter()
            .filter_map(move |(_, slab)| slab.bounds().filter(|_| reach > 0))
    }

    /// The boxes, in packed coordinates, of the bytes from `from` to `to` of the stream.
    pub(in crate::client) fn packed_boxes(&self, from: u64, to: u64) -> Vec<Region> {
        let mut boxes = Vec::new();
        if from < to {
            boxes_of_run(&self.shape, from, to - from, &mut boxes);
        }
        boxes
    }

    /// Whether its bytes may overlap the bounding box of `slab`.
    pub(in crate::client) fn may_hold(&self, slab: &Hyperslab) -> bool {
        let Some(bounds) = slab.bounds() else {
            return false;
        };
        self.held().any(|held| held.intersect(&bounds).is_some())
    }
}
