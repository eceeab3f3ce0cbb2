//! Streams: chunks that grow on a data server while their writer writes.
//!
//! A handle that writes whole rows one behind the other, or a selection from its beginning, need not keep
//! its bytes here until it closes: they go to a data server as they come, into a chunk whose packed order
//! is the order they arrive in. The chunk is no part of the object until it is sealed and committed; until
//! then this mount's reads look into it.
//!
//! Invariants: a stream's region is rows `[first, first + rows)` of its handle's space, where `rows` is
//! as many as fit into a chunk; `stored` bytes of it lie on the server and `tail` behind them here; the
//! regions of an object's open streams do not overlap; a stream belongs to one handle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use slabfs_model::layout::boxes_of_run;
use slabfs_model::{ChunkId, Coords, Hyperslab, Region, ServerId};
use slabfs_objstore::{ChunkForm, ChunkName};

use super::writer::HandleId;

/// A chunk in the making.
#[derive(Debug)]
pub(super) struct Stream {
    /// Whose it is.
    pub(super) writer: HandleId,
    /// Where its first byte lies in the packed bytes of the handle's space.
    pub(super) begins: u64,
    /// The cells of the object the whole stream stands for.
    pub(super) slab: Hyperslab,
    /// The packed shape of `slab`.
    pub(super) shape: Coords,
    /// The id its chunk will be committed under.
    pub(super) chunk: ChunkId,
    /// The same, as data servers name it.
    pub(super) name: ChunkName,
    /// The server that holds it.
    pub(super) server: ServerId,
    /// The form of the chunk if the stream gets as long as it may.
    pub(super) form: ChunkForm,
    /// When it was begun.
    pub(super) since: Instant,
    /// Bytes written, what is being written included.
    pub(super) reach: AtomicU64,
    /// Where it ends for those who look from now on: what was behind the cut is among the object's runs. Changed under
    /// the lock of those.
    pub(super) ends: AtomicU64,
    /// How far it is.
    pub(super) progress: Mutex<Progress>,
}

/// How far a stream is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes on the server.
    pub(super) stored: u64,
    /// Bytes that are here: those behind what [stays](Progress::stays) on the server.
    pub(super) tail: Vec<u8>,
    /// No more bytes may come: it is being sealed.
    pub(super) ended: bool,
    /// Where it was cut: the bytes of its whole rows. What was behind them is a dirty run by now.
    pub(super) cut: Option<u64>,
    /// The server has sealed it.
    pub(super) sealed: bool,
    /// The server has no room for more of it.
    pub(super) full: bool,
}

impl Progress {
    /// Bytes written to the stream.
    pub(super) fn len(&self) -> u64 {
        self.stays() + self.tail.len() as u64
    }

    /// Bytes that are read on the server: what it has behind the cut goes when it seals, and is in the tail.
    pub(super) fn stays(&self) -> u64 {
        self.cut.unwrap_or(u64::MAX).min(self.stored)
    }
}

impl Stream {
    /// Bytes of one row of the slowest axis.
    pub(super) fn row(&self) -> u64 {
        self.shape[1..].iter().product()
    }

    /// How many of `bytes` make up whole rows; of a single axis, whole elements: a selection with steps
    /// can be cut between elements only.
    pub(super) fn whole(&self, bytes: u64) -> u64 {
        let unit = if self.shape.len() == 1 {
            u64::from(self.form.elem)
        } else {
            self.row()
        };
        bytes - bytes % unit.max(1)
    }

    /// The most bytes it takes.
    pub(super) fn capacity(&self) -> u64 {
        self.shape.iter().product()
    }
}

impl Stream {
    /// Boxes that hold what was written so far, what is on its way included; a little wide.
    pub(super) fn held(&self) -> impl Iterator<Item = Region> {
        let reach = self.reach.load(Ordering::Acquire);
        let mut written = Region::whole(&self.shape);
        written.shape[0] = reach.div_ceil(self.row().max(1));
        self.slab
            .parts(&written)
            .into_iter()
            .filter_map(move |(_, slab)| slab.bounds().filter(|_| reach > 0))
    }

    /// The boxes, in packed coordinates, of the bytes from `from` to `to` of the stream.
    pub(super) fn packed_boxes(&self, from: u64, to: u64) -> Vec<Region> {
        let mut boxes = Vec::new();
        if from < to {
            boxes_of_run(&self.shape, from, to - from, &mut boxes);
        }
        boxes
    }

    /// Whether what it holds, and the box around `slab`, have cells in common.
    pub(super) fn may_hold(&self, slab: &Hyperslab) -> bool {
        let Some(bounds) = slab.bounds() else {
            return false;
        };
        self.held().any(|held| held.intersect(&bounds).is_some())
    }
}
