//! Which pages of the arena are free. Pure.
//!
//! Freed pages are taken again before new ones: their memory is allocated already, and allocating a page costs many times
//! as much as copying into it.

use std::collections::{BTreeMap, BTreeSet};

/// The free pages of a file of `end` pages.
#[derive(Debug)]
pub(super) struct Extents {
    /// Length by start; no two of them adjoin.
    by_start: BTreeMap<u64, u64>,
    /// The same, by length and start.
    by_len: BTreeSet<(u64, u64)>,
    /// Pages from here on were never used.
    unused: u64,
    end: u64,
}

impl Extents {
    pub(super) fn new(end: u64) -> Extents {
        Extents {
            by_start: BTreeMap::new(),
            by_len: BTreeSet::new(),
            unused: 0,
            end,
        }
    }

    /// Takes this many adjoining pages, from the smallest free range that has them.
    pub(super) fn take(&mut self, pages: u64) -> Option<u64> {
        if let Some(&(len, start)) = self.by_len.range((pages, 0)..).next() {
            self.remove(start, len);
            if len > pages {
                self.insert(start + pages, len - pages);
            }
            return Some(start);
        }
        let end = self.unused.checked_add(pages)?;
        if end > self.end {
            return None;
        }
        Some(std::mem::replace(&mut self.unused, end))
    }

    /// Returns pages that were taken.
    pub(super) fn give(&mut self, start: u64, pages: u64) {
        let (mut start, mut len) = (start, pages);
        if let Some((&before, &its)) = self.by_start.range(..start).next_back()
            && before + its == start
        {
            self.remove(before, its);
            (start, len) = (before, its + len);
        }
        if let Some(&its) = self.by_start.get(&(start + len)) {
            self.remove(start + len, its);
            len += its;
        }
        match start + len == self.unused {
            true => self.unused = start,
            false => self.insert(start, len),
        }
    }

    fn insert(&mut self, start: u64, len: u64) {
        self.by_start.insert(start, len);
        self.by_len.insert((len, start));
    }

    fn remove(&mut self, start: u64, len: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_page_is_taken_twice(steps in prop::collection::vec((1u64..9, any::<prop::sample::Index>()), 1..200)) {
            const PAGES: u64 = 40;
            let mut extents = Extents::new(PAGES);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (pages, which) in steps {
                let mut used = [false; PAGES as usize];
                for &(start, len) in &taken {
                    used[start as usize..(start + len) as usize].fill(true);
                }
                let fits = used.chunk_by(|a, b| a == b).any(|run| !run[0] && run.len() as u64 >= pages);
                match extents.take(pages) {
                    Some(start) => {
                        prop_assert!(used[start as usize..(start + pages) as usize].iter().all(|used| !used));
                        taken.push((start, pages));
                    }
                    None => prop_assert!(!fits),
                }
                if pages % 2 == 0 && !taken.is_empty() {
                    let (start, len) = taken.swap_remove(which.index(taken.len()));
                    extents.give(start, len);
                }
            }
            for (start, len) in taken {
                extents.give(start, len);
            }
            prop_assert_eq!(extents.take(PAGES), Some(0));
        }
    }
}
