//! Tracks the dead bytes of a segment that still occupy disk space.

use std::collections::BTreeMap;
use std::ops::Range;

/// Punching works on complete pages of the filesystem.
const PAGE: u32 = 4096;

/// Dead ranges; adjacent ones are merged.
#[derive(Debug, Default)]
pub(super) struct Dead {
    ranges: BTreeMap<u32, u32>,
    /// Dead bytes that were not punched yet.
    pending: u32,
}

impl Dead {
    /// Adds a range that was alive.
    pub(super) fn add(&mut self, range: Range<u32>) {
        let Range { mut start, mut end } = range;
        self.pending += end - start;
        if let Some((&before, &upto)) = self.ranges.range(..start).next_back()
            && upto == start
        {
            start = before;
        }
        if let Some(upto) = self.ranges.remove(&end) {
            end = upto;
        }
        self.ranges.insert(start, end);
    }

    /// Dead bytes that were not punched yet.
    pub(super) fn pending(&self) -> u32 {
        self.pending
    }

    /// Returns the complete pages within the dead ranges; they count as punched.
    pub(super) fn take_pages(&mut self) -> Vec<Range<u32>> {
        self.pending = 0;
        let pages = self
            .ranges
            .iter()
            .map(|(&start, &end)| start.next_multiple_of(PAGE)..end / PAGE * PAGE);
        pages.filter(|pages| pages.start < pages.end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_merge_into_pages() {
        let mut dead = Dead::default();
        dead.add(64..3000);
        dead.add(8000..9000);
        assert_eq!(dead.take_pages(), []);
        dead.add(3000..8000);
        assert_eq!(dead.pending(), 5000);
        assert_eq!(dead.take_pages(), vec![4096..8192; 1]);
        dead.add(9000..12288);
        assert_eq!(dead.take_pages(), vec![4096..12288; 1]);
        assert_eq!(dead.pending(), 0);
    }
}
