//! Decoded blocks of encoded chunks, for reads of parts of them: a program that reads an array row by row asks for a few
//! rows of a block at a time, and decoding it for each request would cost a multiple of the block.
//!
//! Only free chunks are encoded, and they are immutable: an entry is valid until its chunk is removed.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::name::ChunkName;

/// Bytes of all decoded blocks together.
const ROOM: usize = 64 << 20;
/// Shorter blocks are decoded again: that costs little, and there would be many.
const LEAST: usize = 64 << 10;

/// The decoded blocks of a store that were read last.
#[derive(Debug, Default)]
pub(super) struct Decoded(Mutex<Blocks>);

#[derive(Debug, Default)]
struct Blocks {
    by_chunk: HashMap<ChunkName, HashMap<usize, Block>>,
    bytes: usize,
    /// Grows with each use.
    clock: u64,
}

#[derive(Debug)]
struct Block {
    bytes: Arc<Vec<u8>>,
    used: u64,
}

impl Decoded {
    /// Whether a block of so many bytes is worth an entry.
    pub(super) fn takes(len: usize) -> bool {
        (LEAST..=ROOM).contains(&len)
    }

    pub(super) fn get(&self, name: &ChunkName, block: usize) -> Option<Arc<Vec<u8>>> {
        let mut blocks = self.0.lock();
        blocks.clock += 1;
        let now = blocks.clock;
        let found = blocks.by_chunk.get_mut(name)?.get_mut(&block)?;
        found.used = now;
        Some(found.bytes.clone())
    }

    /// Adds a block, and drops those that were not used for longest where there is no room.
    pub(super) fn insert(&self, name: &ChunkName, block: usize, bytes: Arc<Vec<u8>>) {
        let mut blocks = self.0.lock();
        blocks.clock += 1;
        let used = blocks.clock;
        blocks.bytes += bytes.len();
        let new = Block { bytes, used };
        let of_chunk = blocks.by_chunk.entry(name.clone()).or_default();
        if let Some(old) = of_chunk.insert(block, new) {
            blocks.bytes -= old.bytes.len();
        }
        while blocks.bytes > ROOM && blocks.drop_oldest() {}
    }

    /// Drops the blocks of a chunk that is removed.
    pub(super) fn forget(&self, name: &ChunkName) {
        let mut blocks = self.0.lock();
        let gone = blocks.by_chunk.remove(name).unwrap_or_default();
        blocks.bytes -= gone.values().map(|block| block.bytes.len()).sum::<usize>();
    }
}

impl Blocks {
    /// Drops the block that was not used for longest, of at most `ROOM / LEAST`; false if there is none.
    fn drop_oldest(&mut self) -> bool {
        let all = self.by_chunk.iter().flat_map(|(name, of_chunk)| {
            let blocks = of_chunk.iter();
            blocks.map(move |(number, block)| (block.used, name, *number))
        });
        let Some((_, name, number)) = all.min_by_key(|(used, ..)| *used) else {
            return false;
        };
        let name = name.clone();
        if let Some(of_chunk) = self.by_chunk.get_mut(&name) {
            let gone = of_chunk.remove(&number);
            self.bytes -= gone.map_or(0, |block| block.bytes.len());
            if of_chunk.is_empty() {
                self.by_chunk.remove(&name);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::ChunkId;

    use super::*;

    #[test]
    fn the_blocks_used_last_stay() {
        let decoded = Decoded::default();
        let name = |id| ChunkName::Free(ChunkId(id));
        let len = ROOM / 4;
        for id in 0..4 {
            decoded.insert(&name(id), 0, Arc::new(vec![id as u8; len]));
        }
        assert!(decoded.get(&name(0), 0).is_some());
        decoded.insert(&name(4), 0, Arc::new(vec![4; len]));
        decoded.insert(&name(4), 0, Arc::new(vec![5; len]));
        let there: Vec<u64> = (0..5)
            .filter(|&id| decoded.get(&name(id), 0).is_some())
            .collect();
        assert_eq!(there, [0, 2, 3, 4]);
        assert_eq!(decoded.get(&name(4), 0).map(|bytes| bytes[0]), Some(5));
        assert_eq!(decoded.0.lock().bytes, ROOM);
        decoded.forget(&name(4));
        assert!(decoded.get(&name(4), 0).is_none());
        assert_eq!(decoded.0.lock().bytes, ROOM / 4 * 3);
    }
}
