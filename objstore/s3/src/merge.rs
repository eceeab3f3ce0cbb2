//! Merging segments: what is still used of small ones, and of those of which little is used, goes into new ones.
//!
//! Each sync makes a segment, so without this a bucket has as many objects as there were syncs, and a segment stays as long as one
//! block of it is used. Nothing is copied within the bucket: the chunks and blocks are fetched into the cache and marked as dirty, and the
//! next upload stores them like any other change. The old segments are deleted with the next index, which does not need them any more.

use std::collections::{BTreeMap, BTreeSet};

use crate::cache::Kind;
use crate::fetch::Wanted;
use crate::store::{Result, S3Store};

/// Segments below this size are small.
const SMALL: u64 = 1 << 20;
/// Used bytes of the segments that are merged at a time, about.
const AT_ONCE: u64 = 32 << 20;

/// The segments to merge, oldest first: `sizes` has those of all, `used` how much of each is used. A single small one stays as it
/// is.
pub(crate) fn choose(sizes: &[(u64, u64)], used: &BTreeMap<u64, u64>) -> BTreeSet<u64> {
    let (mut chosen, mut bytes, mut sparse) = (BTreeSet::new(), 0, false);
    for (number, size) in sizes {
        let Some(&of_it) = used.get(number) else {
            continue;
        };
        let is_sparse = of_it < size / 2;
        if (is_sparse || *size < SMALL) && bytes + of_it <= AT_ONCE {
            bytes += of_it;
            sparse |= is_sparse;
            chosen.insert(*number);
        }
    }
    if chosen.len() < 2 && !sparse {
        chosen.clear();
    }
    chosen
}

impl S3Store {
    /// Marks what is used of the segments that were chosen when the index was stored, so that the next upload stores it again.
    pub(crate) fn merge(&self) -> Result<()> {
        let segments = std::mem::take(&mut *self.to_merge.lock());
        if segments.is_empty() {
            return Ok(());
        }
        let within = self.state.lock().index.within(&segments);
        for (name, form, blocks) in within {
            let _stripe = self.lock(&name);
            let wanted = match blocks.is_empty() {
                true => Wanted::Everything,
                false => Wanted::Blocks(blocks.iter().copied().collect()),
            };
            if !self.bring(&name, &form, &wanted)? {
                // Deleted since.
                continue;
            }
            let mut state = self.state.lock();
            if !state.index.chunks.contains_key(&name) {
                continue;
            }
            let change = state.cache.change();
            let Some(cached) = state.cache.used(&name) else {
                continue;
            };
            match &mut cached.kind {
                Kind::Free { dirty, .. } => *dirty = Some(change),
                // A block that was changed since is dirty already, or in another segment: it is stored once more.
                Kind::Grid { here, dirty, .. } => {
                    let blocks = blocks.iter().filter(|block| here.contains(block));
                    dirty.extend(blocks.map(|block| (*block, change)));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_sparse_segments_are_chosen() {
        let large = 8 << 20;
        let used = BTreeMap::from([(1, 10), (2, 20), (3, large), (4, large / 4), (6, 5)]);
        let sizes = [
            (1, 100),
            (2, 100),
            (3, large),
            (4, large),
            (5, 100),
            (6, 100),
        ];
        assert_eq!(choose(&sizes, &used), BTreeSet::from([1, 2, 4, 6]));
        // One that is small and used is not stored again and again.
        assert_eq!(
            choose(&[(1, 15)], &BTreeMap::from([(1, 10)])),
            BTreeSet::new()
        );
        assert_eq!(
            choose(&[(1, 100)], &BTreeMap::from([(1, 10)])),
            BTreeSet::from([1])
        );
        // Not all at once.
        let many: Vec<(u64, u64)> = (0..20).map(|number| (number, 40 << 20)).collect();
        let used = many.iter().map(|(number, _)| (*number, 10 << 20)).collect();
        assert_eq!(choose(&many, &used), BTreeSet::from([0, 1, 2]));
    }
}
