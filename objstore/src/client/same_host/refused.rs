//! What did not come when it was asked for: it is not asked for again at each read.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use slabfs_model::ServerId;

use super::files::Key;
use crate::name::ChunkName;

/// For so long a chunk, or a server, whose file did not come is not asked for one again.
const REFUSED: Duration = Duration::from_secs(10);
/// Chunks of which that is remembered.
const MOST_REFUSED: usize = 1024;

/// What did not come, and when.
#[derive(Debug, Default)]
pub(super) struct Refused {
    chunks: HashMap<Key, Instant>,
    servers: HashMap<ServerId, Instant>,
}

impl Refused {
    /// A chunk has none, or one that is not what it should be.
    pub(super) fn note(&mut self, key: Key) {
        if self.chunks.len() >= MOST_REFUSED {
            self.chunks.retain(|_, at| at.elapsed() < REFUSED);
        }
        if self.chunks.len() < MOST_REFUSED {
            self.chunks.insert(key, Instant::now());
        }
    }

    /// No files come from a server.
    pub(super) fn note_server(&mut self, server: ServerId) {
        self.servers.insert(server, Instant::now());
    }

    /// Whether a chunk, or anything of its server, did not come lately.
    pub(super) fn has(&self, server: ServerId, name: &ChunkName) -> bool {
        let ChunkName::Free(id) = name else {
            return true;
        };
        let recent = |at: Option<&Instant>| at.is_some_and(|at| at.elapsed() < REFUSED);
        recent(self.servers.get(&server)) || recent(self.chunks.get(&(server, *id)))
    }
}
