//! Block cache: committed bytes for small reads, of objects with remote or encoded chunks, and of others that are read
//! repeatedly.
//!
//! A block is up to 64 KiB of an object's canonical bytes, as the servers have them; it never holds dirty bytes. A
//! change of committed bytes first advances the object's epoch and then drops the blocks; a fill that began at an older
//! epoch is not inserted. Sharded; each shard evicts the least recently used blocks (second chance, by a clock hand).
//!
//! Blocks belong to an [`Object`], which lasts from the first open of an inode on this mount to the last close, and not
//! to the inode: an open during the last close, or during a read that began before it, must neither find nor leave
//! there the data that the servers had earlier.

use std::sync::atomic::{AtomicU32, Ordering};

use foldhash::HashMap;
use parking_lot::Mutex;
use slabfs_model::{Hyperslab, for_each_run};

use crate::client::buffer::runs::Runs;
use crate::client::object::Object;

/// Bytes of a block; blocks begin at multiples of it.
pub(in crate::client) const BLOCK: u64 = 64 << 10;

const SHARDS: usize = 16;

/// Slots for marks of requested blocks. Few, so that if far more is read than the cache holds, a mark is gone before
/// its block is requested again: reading a block of 64 KiB for each 4 KiB would cost more than the cache gains.
const ASKED: usize = 256;

/// The cache; see the top of the module.
#[derive(Debug)]
pub(in crate::client) struct BlockCache {
    shards: Vec<Mutex<Shard>>,
    /// Maximum number of blocks in a shard.
    limit: usize,
    /// Marks of blocks that were requested and are not cached; two may share a slot.
    asked: Vec<AtomicU32>,
}

/// The number of an object, and the start of the block.
type Key = (u64, u64);

#[derive(Debug, Default)]
struct Shard {
    blocks: HashMap<Key, Block>,
    clock: std::collections::VecDeque<Key>,
}

#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    used: bool,
}

impl BlockCache {
    /// A cache of about `bytes` bytes.
    pub(in crate::client) fn new(bytes: u64) -> BlockCache {
        BlockCache {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            limit: usize::try_from(bytes / BLOCK)
                .unwrap_or(usize::MAX)
                .div_ceil(SHARDS)
                .max(1),
            asked: (0..ASKED).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Whether the block at `offset` is cached, or was requested once before.
    pub(in crate::client) fn is_wanted(&self, object: &Object, offset: u64) -> bool {
        let start = offset / BLOCK * BLOCK;
        let key = (object.number, start);
        if self.shard(key).lock().blocks.contains_key(&key) {
            return true;
        }
        // By inode, because it may be opened again for each read.
        let ino = object.ino;
        let mixed = (ino.0.rotate_left(32) ^ (start / BLOCK)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mark = mixed as u32 | 1;
        let place = &self.asked[(mixed >> 40) as usize % ASKED];
        place.swap(mark, Ordering::Relaxed) == mark
    }

    fn shard(&self, (number, block): Key) -> &Mutex<Shard> {
        let mixed = (number ^ (block / BLOCK).rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 60) as usize % SHARDS]
    }

    /// Copies `out.len()` bytes at `offset` out of the block that contains them; false if it is not cached.
    pub(in crate::client) fn copy(&self, object: &Object, offset: u64, out: &mut [u8]) -> bool {
        let start = offset / BLOCK * BLOCK;
        let key = (object.number, start);
        let mut shard = self.shard(key).lock();
        let Some(block) = shard.blocks.get_mut(&key) else {
            return false;
        };
        let from = (offset - start) as usize;
        match block.bytes.get(from..from + out.len()) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                block.used = true;
                true
            }
            // The object has grown since.
            None => false,
        }
    }

    /// Whether all of `[from, to)` is cached.
    pub(in crate::client) fn holds(&self, object: &Object, from: u64, to: u64) -> bool {
        let mut at = from;
        while at < to {
            let start = at / BLOCK * BLOCK;
            let upto = to.min(start + BLOCK);
            let key = (object.number, start);
            let shard = self.shard(key).lock();
            match shard.blocks.get(&key) {
                Some(block) if block.bytes.len() as u64 >= upto - start => {}
                _ => return false,
            }
            at = upto;
        }
        true
    }

    /// Inserts a block that was read while the object was at `epoch`.
    pub(in crate::client) fn insert(
        &self,
        object: &Object,
        start: u64,
        bytes: Vec<u8>,
        epoch: u64,
    ) {
        let key = (object.number, start);
        let mut shard = self.shard(key).lock();
        if object.epoch.load(Ordering::Acquire) != epoch {
            return;
        }
        object.cached.store(true, Ordering::Release);
        let fresh = shard
            .blocks
            .insert(key, Block { bytes, used: true })
            .is_none();
        if fresh {
            shard.clock.push_back(key);
        }
        while shard.blocks.len() > self.limit {
            let Some(key) = shard.clock.pop_front() else {
                return;
            };
            match shard.blocks.get_mut(&key) {
                Some(block) if block.used => {
                    block.used = false;
                    shard.clock.push_back(key);
                }
                Some(_) => {
                    shard.blocks.remove(&key);
                }
                None => {}
            }
        }
    }

    fn forget_range(&self, number: u64, from: u64, to: u64) {
        // The range has more blocks than the cache: look at the cached ones instead.
        if (to - from) / BLOCK > (self.limit * SHARDS) as u64 {
            self.forget_where(|key| key.0 == number && key.1 + BLOCK > from && key.1 < to);
            return;
        }
        let mut start = from / BLOCK * BLOCK;
        while start < to {
            let key = (number, start);
            self.shard(key).lock().blocks.remove(&key);
            start += BLOCK;
        }
    }

    fn forget_where(&self, gone: impl Fn(&Key) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let Shard { blocks, clock } = &mut *shard;
            blocks.retain(|key, _| !gone(key));
            clock.retain(|key| blocks.contains_key(key));
        }
    }

    /// Drops the blocks that overlap these parts of an object of `cells`.
    pub(in crate::client) fn forget_slabs<'s>(
        &self,
        object: &Object,
        cells: &[u64],
        slabs: impl Iterator<Item = &'s Hyperslab>,
    ) {
        if self.is_empty() {
            return;
        }
        for slab in slabs {
            for_each_run(cells, slab, &mut |start, len| {
                self.forget_range(object.number, start as u64, (start + len) as u64);
            });
        }
    }

    /// Drops the blocks that overlap these runs.
    pub(in crate::client) fn forget_runs(&self, object: &Object, runs: &Runs) {
        if self.is_empty() {
            return;
        }
        for (start, bytes) in runs.pieces(0, u64::MAX) {
            self.forget_range(object.number, start, start + bytes.len() as u64);
        }
    }

    /// Drops all blocks of an object.
    pub(in crate::client) fn forget_object(&self, object: &Object) {
        self.forget_where(|key| key.0 == object.number);
    }

    fn is_empty(&self) -> bool {
        self.shards
            .iter()
            .all(|shard| shard.lock().blocks.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::coherence::rights::Rights;
    use crate::client::coherence::rights::model::entry;

    /// An inode may be opened again while its last close, or a read through a closed handle, is still in progress.
    #[test]
    fn a_reopened_inode_finds_no_earlier_blocks() {
        let rights = Rights::new(None);
        let entry = entry(1, 7);
        let open = || {
            Object::new(
                &entry,
                rights.own(entry.attr.ino),
                std::sync::Arc::default(),
            )
            .expect("an object")
        };
        let (cache, old) = (BlockCache::new(1 << 20), open());
        cache.insert(&old, 0, vec![1; 4], 0);
        let new = open();
        let mut bytes = [0; 4];
        assert!(cache.copy(&old, 0, &mut bytes));
        assert!(!cache.copy(&new, 0, &mut bytes) && !cache.holds(&new, 0, 4));
        cache.insert(&new, 0, vec![2; 4], 0);
        cache.insert(&old, 0, vec![1; 4], 0);
        assert!(cache.copy(&new, 0, &mut bytes));
        assert_eq!(bytes, [2; 4]);
        cache.forget_object(&old);
        assert!(cache.holds(&new, 0, 4) && !cache.holds(&old, 0, 4));
    }
}
