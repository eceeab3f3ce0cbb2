//! What a data server and the metadata service tell each other in a heartbeat.

use serde::{Deserialize, Serialize};
use slabfs_model::{ObjectId, ServerId, SessionId};

use crate::{error::Result, name::ChunkName, store::Space};

/// Where a data server reports to.
pub trait Registrar: Send + Sync {
    /// Reports, and takes orders. Safe to repeat.
    fn heartbeat(&self, report: ServerReport) -> Result<ServerOrders>;
}

/// What a data server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerReport {
    /// UntilNext in its directory: the same store is the same server, wherever it runs.
    pub uuid: [u8; 16],
    /// The id it was given, if it knows it already.
    pub id: Option<ServerId>,
    /// Where mounts reach it; nothing for a store inside a mount's own process.
    pub addr: Option<String>,
    /// The machine it runs on, by name: mounts of the same name are near.
    pub host: String,
    /// Its room.
    pub space: Space,
    /// Chunks it holds; of a large store as of the last walk over all of them.
    pub chunks: u64,
    /// Bytes those take.
    pub stored: u64,
    /// Orders of earlier replies that have been carried out and are on disk.
    pub deleted: Vec<Retire>,
    /// The version of the list of sessions that is obeyed: by now no session that is over in it changes
    /// anything here.
    pub obeys: u64,
}

/// What a data server is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerOrders {
    /// Its id.
    pub id: ServerId,
    /// What nobody needs any more. Ordered again until acknowledged.
    pub delete: Vec<Retire>,
    /// Which sessions live, where the server does not obey the newest list yet.
    pub sessions: Option<Alive>,
    /// A server that was silent for so many milliseconds is counted as one that obeys all lists.
    pub lease_ms: u64,
}

/// The sessions that live.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// Grows with each change.
    pub version: u64,
    /// Sessions from here on are newer than the list.
    pub next: SessionId,
    /// Those below that live.
    pub live: Vec<SessionId>,
}

/// So many sessions are never attached while a list of them is good: the number of one further on is of another
/// filesystem, whose sessions are numbered from elsewhere.
const MOST_NEWER: u64 = 1 << 20;

impl Alive {
    /// Whether the session is over, or none of this filesystem's. `live` is in order.
    #[must_use]
    pub fn is_over(&self, session: SessionId) -> bool {
        match session.0.checked_sub(self.next.0) {
            None => self.live.binary_search(&session).is_err(),
            // Before the first list nothing is known of anybody.
            Some(newer) => self.version > 0 && newer >= MOST_NEWER,
        }
    }
}

/// Data that nobody needs any more.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Retire {
    /// These chunks.
    Chunks(Vec<ChunkName>),
    /// The grid chunks of an object's generations below this one.
    Generation {
        /// The object.
        object: ObjectId,
        /// The first generation that stays.
        below: u32,
    },
    /// All grid chunks of an object.
    Object(ObjectId),
}
