//! The messages of the heartbeat between a data server and the metadata service.

use serde::{Deserialize, Serialize};
use slabfs_model::{ObjectId, ServerId, SessionId};

use crate::{error::Result, name::ChunkName, store::Space};

/// The receiver of a data server's reports: the metadata service.
pub trait Registrar: Send + Sync {
    /// Sends a report and returns the orders. Idempotent.
    fn heartbeat(&self, report: ServerReport) -> Result<ServerOrders>;
}

/// A data server's report: identity, address, space, acknowledgements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerReport {
    /// Stored in its directory: the same store is the same server, wherever it runs.
    pub uuid: [u8; 16],
    /// The id that the metadata service assigned, if this server has it already.
    pub id: Option<ServerId>,
    /// The address for mounts; `None` for a store inside a mount's own process.
    pub addr: Option<String>,
    /// The name of its host: mounts with the same name are on the same host.
    pub host: String,
    /// It is in the memory of a mount: its data ends with it, and only that mount writes to it.
    pub memory: bool,
    /// Total, free and used bytes.
    pub space: Space,
    /// Number of chunks; in a large store, as of the last complete walk.
    pub chunks: u64,
    /// Bytes of those chunks.
    pub stored: u64,
    /// Counters of the engine under the store: [`ChunkStore::counts`](crate::ChunkStore::counts).
    pub engine: Vec<(String, u64)>,
    /// Orders of earlier replies that have been carried out and are on disk.
    pub deleted: Vec<Retire>,
    /// The version of the session list in force: sessions that are over according to it can no longer change
    /// anything here.
    pub obeys: u64,
}

/// The reply of the metadata service to a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerOrders {
    /// Its id.
    pub id: ServerId,
    /// Unreferenced data to delete. Repeated until acknowledged.
    pub delete: Vec<Retire>,
    /// The live sessions, if the server does not have the newest list yet.
    pub sessions: Option<Alive>,
    /// After this many milliseconds of silence, the metadata service takes the server to refuse all sessions that are
    /// over.
    pub lease_ms: u64,
}

/// The list of live sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// Grows with each change.
    pub version: u64,
    /// Session ids from here on were assigned after the list was made.
    pub next: SessionId,
    /// The live sessions below `next`.
    pub live: Vec<SessionId>,
}

/// An upper bound on the sessions that attach while one list is in force. An id further beyond `next` belongs to
/// another filesystem, whose session ids start elsewhere.
const MAX_AHEAD: u64 = 1 << 20;

impl Alive {
    /// Whether the session is over, or belongs to another filesystem. `live` must be sorted.
    #[must_use]
    pub fn is_over(&self, session: SessionId) -> bool {
        match session.0.checked_sub(self.next.0) {
            None => self.live.binary_search(&session).is_err(),
            // Before the first list no session can be judged.
            Some(ahead) => self.version > 0 && ahead >= MAX_AHEAD,
        }
    }
}

/// Unreferenced data to delete.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Retire {
    /// These chunks.
    Chunks(Vec<ChunkName>),
    /// The grid chunks of an object's generations below this one.
    Generation {
        /// The object.
        object: ObjectId,
        /// The first generation to retain.
        below: u32,
    },
    /// All grid chunks of an object.
    Object(ObjectId),
}
