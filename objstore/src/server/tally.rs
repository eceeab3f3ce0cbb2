//! Counts a store's chunks and their bytes, one page of the chunk list per report.
//!
//! `statfs` cannot give these numbers, since other programs write to the filesystem too. A walk over all chunks of a
//! large store takes long, so each report walks one page and gives the numbers of the last complete walk. A store of
//! one page is always reported exactly.

use crate::{error::Result, name::ChunkName, store::ChunkStore};

/// Chunks walked for one report.
const PAGE: usize = 4096;

/// The numbers counted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Chunks.
    pub(super) chunks: u64,
    /// Bytes they take.
    pub(super) bytes: u64,
}

/// A walk over the chunks of a store.
#[derive(Debug, Default)]
pub(super) struct Tally {
    after: Option<ChunkName>,
    walking: Held,
    complete: Option<Held>,
}

impl Tally {
    /// Walks one more page and returns the numbers of the last complete walk; during the first walk, those so far.
    pub(super) fn step(&mut self, store: &dyn ChunkStore) -> Result<Held> {
        let page = store.list(self.after.take(), PAGE)?;
        for (_, bytes) in &page {
            self.walking.chunks += 1;
            self.walking.bytes = self.walking.bytes.saturating_add(*bytes);
        }
        if page.len() < PAGE {
            self.complete = Some(std::mem::take(&mut self.walking));
        } else {
            self.after = page.into_iter().next_back().map(|(name, _)| name);
        }
        Ok(self.complete.unwrap_or(self.walking))
    }
}
