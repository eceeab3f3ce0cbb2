//! An object that this mount has open: its form, its dirty data, its tiling.
//!
//! All handles of an object share one `Object`. Its locks, in the order they are taken:
//!
//! 0. `syncing`: one sync at a time.
//! 1. `appending`: one append at a time, so that each sees the end that the previous one left.
//! 2. `geometry`: shared by every read, write and flush; exclusive for changes of the object's form (truncate,
//!    declare, punch, updates from the metadata service).
//! 3. `flushing`: shared by writes that go to data servers directly (in place, or into a stream); exclusive for a
//!    flush. So a flush never writes older bytes over those of a direct write.
//! 4. `committing`: one commit of transfers at a time, so that each finds the tiling that its reply is based on.
//! 5. `state`: the dirty runs, the open streams and the unsynced chunks; held for moments.
//! 6. `tiling`: the chunks of an `aligned` object.
//!
//! A read sees, newest last: the committed chunks, the open streams, the runs that a flush has taken, the dirty runs.
//! Direct writes trim the runs under them after the bytes are on the server.

pub(in crate::client) mod adopt;
pub(in crate::client) mod deferred;
pub(in crate::client) mod fresh;
pub(in crate::client) mod geometry;
pub(in crate::client) mod namespace;
pub(in crate::client) mod open;
pub(in crate::client) mod resize;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use slabfs_mdserver::api::{Entry, Ino, Time};
use slabfs_model::{Coords, Region, Version};

use crate::client::buffer::overlap::Overlaps;
use crate::client::buffer::runs::Runs;
use crate::client::buffer::stream::Stream;
use crate::client::coherence::range_lock::RangeLocks;
use crate::client::coherence::rights::Own;
use crate::client::commit::Unsynced;
use crate::client::coupling::Coupled;
use crate::client::error::FsError;
use crate::client::handle::writer::Waiting;
use crate::client::object::geometry::Geometry;
use crate::client::stored::tilings::Tiled;

/// The number of the next object.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// An open object; see the module documentation.
#[derive(Debug)]
pub(in crate::client) struct Object {
    pub(in crate::client) ino: Ino,
    /// Its number among all objects of this process: the cached blocks under this number are its own.
    pub(in crate::client) number: u64,
    pub(in crate::client) appending: Mutex<()>,
    /// Held by a sync of the object; taken before all other locks.
    pub(in crate::client) syncing: Mutex<()>,
    pub(in crate::client) geometry: RwLock<Geometry>,
    pub(in crate::client) flushing: RwLock<()>,
    pub(in crate::client) committing: Mutex<()>,
    pub(in crate::client) state: Mutex<State>,
    pub(in crate::client) tiling: Arc<Tiled>,
    /// The size that unflushed writes of this mount give the object; 0 if they leave it unchanged.
    pub(in crate::client) grown: AtomicU64,
    /// The size by the last commit of this mount, until its form is adopted; 0 if it is.
    pub(in crate::client) committed: AtomicU64,
    /// Grid data may be written up to this byte without a request (see `Reserve`).
    pub(in crate::client) reserved: AtomicU64,
    /// Data was written in place since the last commit: size or mtime must be committed.
    pub(in crate::client) touched: AtomicBool,
    /// The extent on each axis, in cells, of data written in place since the last commit.
    pub(in crate::client) placed: Mutex<Coords>,
    /// The end of what failed writes in place may have stored beyond the size; 0 for none.
    pub(in crate::client) spilled: AtomicU64,
    /// The handle whose truncate is deferred, or [`deferred::NO_HANDLE`]. Set and executed under `geometry`, exclusively.
    pub(in crate::client) emptied_by: AtomicU64,
    /// The last flush failed. Changed under the lock of `state`.
    pub(in crate::client) stuck: AtomicBool,
    /// When this mount last wrote to it.
    pub(in crate::client) written: Mutex<Option<Time>>,
    /// Bytes written in place since the last commit.
    pub(in crate::client) stored: AtomicU64,
    /// Incremented when bytes that the block cache may hold change; a fill that began before is not cached.
    pub(in crate::client) epoch: AtomicU64,
    /// The block cache may hold blocks of it.
    pub(in crate::client) cached: AtomicBool,
    /// When the form was last compared with the metadata service's.
    pub(in crate::client) checked: Mutex<Instant>,
    /// It was removed while this mount had no session that held it open.
    pub(in crate::client) gone: AtomicBool,
    /// Running reads and writes of programs. Waited for before all locks above are taken.
    pub(in crate::client) range_locks: RangeLocks,
    /// The rights of this mount on it. Before all locks above.
    pub(in crate::client) own: Arc<Own>,
    /// Whether it is coupled.
    pub(in crate::client) coupled: Coupled,
    /// Of a coupled file: where its data begins, by its header, in this generation.
    pub(in crate::client) data_from: Mutex<Option<(u32, u64)>>,
}

/// The ends of a region on each axis.
pub(in crate::client) fn ends_of(region: &Region) -> Coords {
    (0..region.rank()).map(|axis| region.end(axis)).collect()
}

/// Dirty, streaming and unsynced data.
#[derive(Debug, Default)]
pub(in crate::client) struct State {
    pub(in crate::client) runs: Runs,
    /// Running direct writes.
    pub(in crate::client) overlaps: Overlaps,
    pub(in crate::client) taken: Option<Arc<Runs>>,
    pub(in crate::client) streams: Vec<Arc<Stream>>,
    pub(in crate::client) unsynced: Unsynced,
    pub(in crate::client) handles: Vec<Weak<Waiting>>,
    /// How often this mount has it open.
    pub(in crate::client) opens: u64,
    /// The number of these opens that the metadata service does not count: opens of a lost session, and additional
    /// ones by `keep_open`.
    pub(in crate::client) uncounted: u64,
    /// The memory cost of the dirty runs and tails, as accounted by the client.
    pub(in crate::client) charged: u64,
}

impl Object {
    pub(in crate::client) fn new(
        entry: &Entry,
        own: Arc<Own>,
        tiling: Arc<Tiled>,
    ) -> Result<Object, FsError> {
        let geometry = Geometry::new(entry)?;
        Ok(Object {
            ino: entry.attr.ino,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            appending: Mutex::new(()),
            syncing: Mutex::new(()),
            coupled: Coupled::of(&geometry.info),
            data_from: Mutex::default(),
            geometry: RwLock::new(geometry),
            flushing: RwLock::new(()),
            committing: Mutex::new(()),
            state: Mutex::new(State::default()),
            tiling,
            grown: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            touched: AtomicBool::new(false),
            placed: Mutex::new(Coords::new()),
            spilled: AtomicU64::new(0),
            emptied_by: AtomicU64::new(deferred::NO_HANDLE),
            stuck: AtomicBool::new(false),
            written: Mutex::new(None),
            stored: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            cached: AtomicBool::new(false),
            checked: Mutex::new(Instant::now()),
            gone: AtomicBool::new(false),
            range_locks: RangeLocks::default(),
            own,
        })
    }

    /// The size in bytes, unflushed growth included.
    pub(in crate::client) fn size(&self, geometry: &Geometry) -> u64 {
        geometry.size().max(self.grown.load(Ordering::Acquire))
    }

    /// The newest version of the tiling this mount knows: the form's, or that of a commit whose reply the form has
    /// not adopted yet.
    pub(in crate::client) fn version(&self) -> Version {
        let form = self.geometry.read().info.tiling;
        let committed = self.tiling.read().version;
        committed.map_or(form, |version| version.max(form))
    }

    /// Records that a write ended at `end`.
    pub(in crate::client) fn grow(&self, geometry: &Geometry, end: u64) {
        let size = geometry.full_rows(end);
        if size > geometry.size() {
            self.grown.fetch_max(size, Ordering::AcqRel);
        }
    }

    /// Records in one step that all unflushed data ends at `end`: other mounts may request the size at any moment.
    pub(in crate::client) fn regrow(&self, geometry: &Geometry, end: u64) {
        let size = geometry.full_rows(end);
        let grown = if size > geometry.size() { size } else { 0 };
        self.grown.store(grown, Ordering::Release);
    }

    /// Whether there is data that the servers do not have or that is not committed.
    pub(in crate::client) fn is_dirty(&self) -> bool {
        let state = self.state.lock();
        !state.runs.is_empty()
            || state.taken.is_some()
            || !state.streams.is_empty()
            || self.touched.load(Ordering::Acquire)
            || self.is_to_be_emptied()
    }

    /// Records the extent of cells that were written in place.
    pub(in crate::client) fn note_placed(&self, ends: &Coords) {
        let mut placed = self.placed.lock();
        if placed.len() < ends.len() {
            placed.resize(ends.len(), 0);
        }
        for (placed, &end) in placed.iter_mut().zip(ends) {
            *placed = end.max(*placed);
        }
    }

    /// The last handle is closed, and not all data was flushed: operations that still run must not commit any of it,
    /// since a size without the bytes would show zeros. Under the lock of `state`.
    pub(in crate::client) fn give_up(&self) {
        tracing::error!(object = %self.ino, "closed with data that could not be flushed; that data is lost");
        self.grown.store(0, Ordering::Release);
        self.emptied_by.store(deferred::NO_HANDLE, Ordering::SeqCst);
        self.touched.store(false, Ordering::Release);
        self.stored.store(0, Ordering::Release);
        *self.placed.lock() = Coords::new();
    }

    /// Another mount made the object smaller, and unflushed data of this mount lies outside now: it is lost, and each
    /// open handle gets an error.
    pub(in crate::client) fn blame_cut(&self, dims: &Coords) {
        let dims: Vec<String> = dims.iter().map(u64::to_string).collect();
        let error = FsError::TooBig(format!(
            "another mount gave the object dims {}: what was written outside of them and had not been \
             flushed is lost",
            dims.join(",")
        ));
        tracing::error!(object = %self.ino, %error);
        self.blame(&error);
    }

    /// Defers an error to each open handle.
    pub(in crate::client) fn blame(&self, error: &FsError) {
        let handles: Vec<Arc<Waiting>> = self
            .state
            .lock()
            .handles
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for handle in handles {
            handle.keep(error.clone());
        }
    }
}
