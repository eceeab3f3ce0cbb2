//! File handles: the table from the number that the kernel sends with each read and write to the open file.
//!
//! A sharded slab: a number has its shard in the low bits and its slot above. A read takes the shard's lock shared and
//! clones an `Arc`; no lock is common to all requests. New handles are spread round-robin over the shards. Numbers are
//! reused after release, which is safe because the kernel sends nothing on a number after its release. No number is 0:
//! that is the handle of directories and of requests without a handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

const SHARDS: usize = 32;
const SHARD_BITS: u32 = SHARDS.trailing_zeros();

/// Aligned so that each shard has a cache line of its own.
#[repr(align(64))]
struct Shard<T>(RwLock<Slots<T>>);

struct Slots<T> {
    slots: Vec<Option<Arc<T>>>,
    free: Vec<u32>,
}

/// The table; see the module documentation.
pub(super) struct Handles<T> {
    shards: [Shard<T>; SHARDS],
    next: AtomicUsize,
}

impl<T> Handles<T> {
    pub(super) fn new() -> Handles<T> {
        let shard = |_| {
            Shard(RwLock::new(Slots {
                slots: Vec::new(),
                free: Vec::new(),
            }))
        };
        Handles {
            shards: std::array::from_fn(shard),
            next: AtomicUsize::new(0),
        }
    }

    /// Stores `what` and returns its number.
    pub(super) fn insert(&self, what: Arc<T>) -> u64 {
        let shard = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut slots = self.shards[shard].0.write();
        let slot = match slots.free.pop() {
            Some(slot) => {
                slots.slots[slot as usize] = Some(what);
                slot as usize
            }
            None => {
                slots.slots.push(Some(what));
                slots.slots.len() - 1
            }
        };
        (slot as u64 + 1) << SHARD_BITS | shard as u64
    }

    /// The entry of a number; `None` if the number was never given out, or was released.
    pub(super) fn get(&self, number: u64) -> Option<Arc<T>> {
        let (shard, slot) = place(number)?;
        self.shards[shard].0.read().slots.get(slot)?.clone()
    }

    /// The entry with the greatest key, of those that have one. Looks at all of them.
    pub(super) fn newest(&self, key: impl Fn(&T) -> Option<u64>) -> Option<Arc<T>> {
        let mut newest: Option<(u64, Arc<T>)> = None;
        for shard in &self.shards {
            for entry in shard.0.read().slots.iter().flatten() {
                if let Some(key) = key(entry)
                    && newest.as_ref().is_none_or(|(most, _)| key > *most)
                {
                    newest = Some((key, entry.clone()));
                }
            }
        }
        newest.map(|(_, entry)| entry)
    }

    /// Removes a number.
    pub(super) fn remove(&self, number: u64) -> Option<Arc<T>> {
        let (shard, slot) = place(number)?;
        let mut slots = self.shards[shard].0.write();
        let what = slots.slots.get_mut(slot)?.take()?;
        slots.free.push(slot as u32);
        Some(what)
    }

    /// Removes all numbers: for a session that ended without releases.
    pub(super) fn drain(&self) -> Vec<Arc<T>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut slots = shard.0.write();
            slots.free.clear();
            all.extend(std::mem::take(&mut slots.slots).into_iter().flatten());
        }
        all
    }
}

/// The shard and the slot of a number.
fn place(number: u64) -> Option<(usize, usize)> {
    let slot = (number >> SHARD_BITS).checked_sub(1)?;
    Some((
        (number & (SHARDS as u64 - 1)) as usize,
        usize::try_from(slot).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_find_their_entries() {
        let handles = Handles::new();
        let numbers: Vec<u64> = (0..1000).map(|i| handles.insert(Arc::new(i))).collect();
        for (i, &number) in numbers.iter().enumerate() {
            assert_eq!(handles.get(number).as_deref(), Some(&i));
        }
        assert_eq!(handles.remove(numbers[5]).as_deref(), Some(&5));
        assert!(handles.get(numbers[5]).is_none());
        assert!(handles.remove(numbers[5]).is_none());
        assert!(handles.get(u64::MAX).is_none());
        assert!((0..SHARDS as u64).all(|number| handles.get(number).is_none()));
    }

    #[test]
    fn released_numbers_are_used_again() {
        let handles = Handles::new();
        for i in 0..10_000 {
            let number = handles.insert(Arc::new(i));
            assert!(number < 2 * SHARDS as u64, "{number}");
            handles.remove(number);
        }
    }

    #[test]
    fn drain_empties_it() {
        let handles = Handles::new();
        let number = handles.insert(Arc::new(1));
        handles.insert(Arc::new(2));
        assert_eq!(handles.drain().len(), 2);
        assert!(handles.get(number).is_none());
        assert_eq!(handles.drain().len(), 0);
        handles.insert(Arc::new(3));
        assert_eq!(handles.drain().len(), 1);
    }
}
