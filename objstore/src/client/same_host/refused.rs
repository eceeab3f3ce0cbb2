//! Chunks and servers whose files did not come, remembered so that not every read requests them again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use slabfs_model::ServerId;

use super::files::Key;
use crate::name::ChunkName;

/// How long no file is requested of such a chunk or server.
const REFUSED: Duration = Duration::from_secs(10);
/// The most chunks remembered.
const MOST_REFUSED: usize = 1024;

/// The refusals, and when each came.
#[derive(Debug, Default)]
pub(super) struct Refused {
    chunks: HashMap<Key, Instant>,
    servers: HashMap<ServerId, Instant>,
}

impl Refused {
    /// Records that a chunk has no file, or a damaged one.
    pub(super) fn note(&mut self, key: Key) {
        if self.chunks.len() >= MOST_REFUSED {
            self.chunks.retain(|_, at| at.elapsed() < REFUSED);
        }
        if self.chunks.len() < MOST_REFUSED {
            self.chunks.insert(key, Instant::now());
        }
    }

    /// Records that no files come from a server.
    pub(super) fn note_server(&mut self, server: ServerId) {
        self.servers.insert(server, Instant::now());
    }

    /// Whether a file of this chunk, or any file of its server, was refused recently.
    pub(super) fn has(&self, server: ServerId, name: &ChunkName) -> bool {
        let ChunkName::Free(id) = name else {
            return true;
        };
        let recent = |at: Option<&Instant>| at.is_some_and(|at| at.elapsed() < REFUSED);
        recent(self.servers.get(&server)) || recent(self.chunks.get(&(server, *id)))
    }
}
