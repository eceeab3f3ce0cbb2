//! An object that this mount has open: its form, its dirty data, its tiling.
//!
//! All handles of an object share one `Object`. Its locks, in the order they are taken:
//!
//! 0. `syncing`: one sync at a time.
//! 1. `appending`: one append at a time, so that each sees the end the one before it left.
//! 2. `geometry`: shared by every read, write and flush; alone by whatever changes the object's form
//!    (truncate, declare, punch, news from the metadata service).
//! 3. `flushing`: shared by writes that go to data servers directly (in place, or into a stream); alone by
//!    a flush. So a flush never carries older bytes over what a direct write just put there.
//! 4. `committing`: one commit of transfers at a time, so that each finds the tiling its reply goes on from.
//! 5. `state`: the dirty runs, the open streams and what waits for a sync; held for moments.
//! 6. `tiling`: the chunks of an `aligned` object.
//!
//! What a read sees, newest last: the committed chunks, the open streams, the runs a flush has taken out,
//! the dirty runs. Direct writes trim the runs under them after the bytes are on the server.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use slabfs_mdserver::api::{Entry, Ino, Time};
use slabfs_model::{Coords, Region, ServerId, Version};
use slabfs_objstore::ChunkName;

use super::error::FsError;
use super::geometry::Geometry;
use super::overlap::Overlaps;
use super::range_lock::RangeLocks;
use super::rights::Own;
use super::runs::Runs;
use super::stream::Stream;
use super::tilings::Tiled;
use super::writer::Waiting;

/// The number of the next object.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// An open object; see the module's head.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) ino: Ino,
    /// Which one it is of all that this process has had: the cached blocks under this number are its own.
    pub(super) number: u64,
    pub(super) appending: Mutex<()>,
    /// Held by whoever brings the object to the disks; taken before all other locks.
    pub(super) syncing: Mutex<()>,
    pub(super) geometry: RwLock<Geometry>,
    pub(super) flushing: RwLock<()>,
    pub(super) committing: Mutex<()>,
    pub(super) state: Mutex<State>,
    pub(super) tiling: Arc<Tiled>,
    /// The size unflushed writes of this mount give the object; 0 if they leave it as it is.
    pub(super) grown: AtomicU64,
    /// Grid data may be written up to this byte without asking (see `Reserve`).
    pub(super) reserved: AtomicU64,
    /// Something was written in place since the last commit: size or mtime must be told.
    pub(super) touched: AtomicBool,
    /// How far on each axis, in cells, what was written in place since the last commit reaches.
    pub(super) placed: Mutex<Coords>,
    /// The last flush failed. Changed under the lock of `state`.
    pub(super) stuck: AtomicBool,
    /// When this mount last wrote to it.
    pub(super) written: Mutex<Option<Time>>,
    /// Bytes written in place since the last commit.
    pub(super) stored: AtomicU64,
    /// Grows when bytes that the block cache may hold change; a fill that began before is not kept.
    pub(super) epoch: AtomicU64,
    /// The block cache may hold blocks of it.
    pub(super) cached: AtomicBool,
    /// When the form was last compared with the metadata service's.
    pub(super) checked: Mutex<Instant>,
    /// It was removed while this mount had no session that held it.
    pub(super) gone: AtomicBool,
    /// Reads and writes of programs that run. Waited for before all locks above are taken.
    pub(super) range_locks: RangeLocks,
    /// What this mount may do with it while others have it open. Before all locks above.
    pub(super) own: Arc<Own>,
}

/// How far a region reaches on each axis.
pub(super) fn ends_of(region: &Region) -> Coords {
    (0..region.rank()).map(|axis| region.end(axis)).collect()
}

/// What is dirty, streaming or unsynced.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) runs: Runs,
    /// Direct writes that run.
    pub(super) overlaps: Overlaps,
    pub(super) taken: Option<Arc<Runs>>,
    pub(super) streams: Vec<Arc<Stream>>,
    pub(super) unsynced: BTreeSet<(ServerId, ChunkName)>,
    pub(super) handles: Vec<Weak<Waiting>>,
    /// How often this mount has it open.
    pub(super) opens: u64,
    /// So many of these the metadata service does not know of: they are of a session that is over, or hold
    /// open what is open anyway.
    pub(super) untold: u64,
    /// What the dirty runs and tails cost, as the client's account has it.
    pub(super) charged: u64,
}

impl Object {
    pub(super) fn new(entry: &Entry, own: Arc<Own>, tiling: Arc<Tiled>) -> Result<Object, FsError> {
        Ok(Object {
            ino: entry.attr.ino,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            appending: Mutex::new(()),
            syncing: Mutex::new(()),
            geometry: RwLock::new(Geometry::new(entry)?),
            flushing: RwLock::new(()),
            committing: Mutex::new(()),
            state: Mutex::new(State::default()),
            tiling,
            grown: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            touched: AtomicBool::new(false),
            placed: Mutex::new(Coords::new()),
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
    pub(super) fn size(&self, geometry: &Geometry) -> u64 {
        geometry.size().max(self.grown.load(Ordering::Acquire))
    }

    /// The newest version of the tiling this mount knows of: the form's, or that of a commit whose answer
    /// the form has not taken over yet.
    pub(super) fn version(&self) -> Version {
        let form = self.geometry.read().info.tiling;
        let committed = self.tiling.read().version;
        committed.map_or(form, |version| version.max(form))
    }

    /// Notes that a write ended at `end`.
    pub(super) fn grow(&self, geometry: &Geometry, end: u64) {
        let size = geometry.whole_rows(end);
        if size > geometry.size() {
            self.grown.fetch_max(size, Ordering::AcqRel);
        }
    }

    /// Notes that all that was written ends at `end`, in one step: others may ask for it at any moment.
    pub(super) fn regrow(&self, geometry: &Geometry, end: u64) {
        let size = geometry.whole_rows(end);
        let grown = if size > geometry.size() { size } else { 0 };
        self.grown.store(grown, Ordering::Release);
    }

    /// Whether anything is here that the servers have not got or that no commit has told of.
    pub(super) fn is_dirty(&self) -> bool {
        let state = self.state.lock();
        !state.runs.is_empty()
            || state.taken.is_some()
            || !state.streams.is_empty()
            || self.touched.load(Ordering::Acquire)
    }

    /// Notes that cells were written in place which reach so far on each axis.
    pub(super) fn note_placed(&self, ends: &Coords) {
        let mut placed = self.placed.lock();
        if placed.len() < ends.len() {
            placed.resize(ends.len(), 0);
        }
        for (placed, &end) in placed.iter_mut().zip(ends) {
            *placed = end.max(*placed);
        }
    }

    /// Nobody has it open any more, and what was written did not all get out: whoever still works on it tells nothing of
    /// that, since a size without the bytes would show zeros. Under the lock of `state`.
    pub(super) fn give_up(&self) {
        tracing::error!(object = %self.ino, "closed with data that could not be flushed; that data is lost");
        self.grown.store(0, Ordering::Release);
        self.touched.store(false, Ordering::Release);
        self.stored.store(0, Ordering::Release);
        *self.placed.lock() = Coords::new();
    }

    /// Another mount made the object smaller, and something that was written here lies outside now: it
    /// is gone, and whoever has the object open is told.
    pub(super) fn blame_cut(&self, dims: &Coords) {
        let dims: Vec<String> = dims.iter().map(u64::to_string).collect();
        let error = FsError::TooBig(format!(
            "another mount gave the object dims {}: what was written outside of them and had not been \
             flushed is lost",
            dims.join(",")
        ));
        tracing::error!(object = %self.ino, %error);
        self.blame(&error);
    }

    /// Keeps an error for each handle that is open now.
    pub(super) fn blame(&self, error: &FsError) {
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
