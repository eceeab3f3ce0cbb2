//! How much a store holds: chunks and their bytes, counted a page at a time.
//!
//! The room of a filesystem does not say it, since others write there too. The list of chunks does, but
//! walking all of a large one takes long; so each report walks one page, and the numbers of the last
//! whole walk stand until the next one is through. A store of one page is always told exactly.

use crate::{error::Result, name::ChunkName, store::ChunkStore};

/// Chunks looked at for one report.
const PAGE: usize = 4096;

/// What a store holds, as far as was counted.
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
    whole: Option<Held>,
}

impl Tally {
    /// Walks on by a page, and says what is known then. In the first walk that is what was seen so far.
    pub(super) fn step(&mut self, store: &dyn ChunkStore) -> Result<Held> {
        let page = store.list(self.after.take(), PAGE)?;
        for (_, bytes) in &page {
            self.walking.chunks += 1;
            self.walking.bytes = self.walking.bytes.saturating_add(*bytes);
        }
        if page.len() < PAGE {
            self.whole = Some(std::mem::take(&mut self.walking));
        } else {
            self.after = page.into_iter().next_back().map(|(name, _)| name);
        }
        Ok(self.whole.unwrap_or(self.walking))
    }
}
