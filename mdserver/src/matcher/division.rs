//! Which matcher has which cells of an object: blocks of the slowest axis, in rotation.
//!
//! An object whose slowest axis grows has no last row to divide by: its blocks have a fixed size. Pure.

use slabfs_model::Region;

use crate::api::ArrayInfo;

/// Bytes of a block of an object that grows, at least.
const BLOCK: u64 = 16 << 20;
/// A box that lies in more blocks than this is with all announcements ([`Division::parts`]).
const MOST_BLOCKS: u64 = 64;

/// The division of an object's cells over matchers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Division {
    matchers: usize,
    /// Cells of a block along the slowest axis.
    block: u64,
}

impl Division {
    /// The division of an object over so many matchers.
    pub(crate) fn new(info: &ArrayInfo, matchers: usize) -> Division {
        let cells = info.cells().unwrap_or_default();
        let rows = cells.first().copied().unwrap_or(1);
        let block = match info.unlimited_rows() {
            false => rows.div_ceil(matchers as u64),
            true => {
                let row: u64 = cells.iter().skip(1).product();
                BLOCK / row.max(1)
            }
        };
        Division {
            matchers,
            block: block.max(1),
        }
    }

    /// The number of matchers.
    pub(crate) fn matchers(&self) -> usize {
        self.matchers
    }

    /// Tables that there are: one for each matcher, and the last for boxes that are not divided.
    pub(crate) fn tables(&self) -> usize {
        self.matchers + 1
    }

    /// The parts of a box, each with its table. A box in too many blocks is not divided.
    pub(crate) fn parts(&self, region: &Region) -> Vec<(usize, Region)> {
        if region.is_empty() || region.rank() == 0 {
            return Vec::new();
        }
        let (first, last) = (
            region.offset[0] / self.block,
            (region.end(0) - 1) / self.block,
        );
        if self.matchers == 1 {
            return vec![(0, region.clone())];
        }
        if last - first >= MOST_BLOCKS {
            return vec![(self.matchers, region.clone())];
        }
        (first..=last)
            .map(|block| {
                let from = region.offset[0].max(block * self.block);
                let to = region.end(0).min((block + 1).saturating_mul(self.block));
                let mut part = region.clone();
                part.offset[0] = from;
                part.shape[0] = to - from;
                ((block % self.matchers as u64) as usize, part)
            })
            .collect()
    }

    /// The tables with boxes that may overlap a box.
    pub(crate) fn tables_of(&self, region: &Region) -> Vec<usize> {
        let mut tables: Vec<usize> = match self.parts(region).as_slice() {
            [(table, _)] if *table == self.matchers => (0..self.matchers).collect(),
            parts => parts.iter().map(|(table, _)| *table).collect(),
        };
        tables.push(self.matchers);
        tables.sort_unstable();
        tables.dedup();
        tables
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_are_the_box_and_meet_announcements(
            matchers in 1usize..9, block in 1u64..40,
            (a, b) in (0u64..3000, 1u64..3000), (c, d) in (0u64..3000, 1u64..3000),
        ) {
            let division = Division { matchers, block };
            let missing = Region::new(&[a, 5], &[b, 3]);
            let parts = division.parts(&missing);
            let rows: u64 = parts.iter().map(|(_, part)| part.shape[0]).sum();
            prop_assert_eq!(rows, b);
            let mut at = a;
            for (table, part) in &parts {
                prop_assert!(*table < division.tables());
                prop_assert_eq!(part.offset[0], at);
                at += part.shape[0];
            }
            let data = Region::new(&[c, 0], &[d, 100]);
            let tables = division.tables_of(&data);
            for (table, part) in &parts {
                prop_assert!(!part.overlaps(&data) || tables.contains(table));
            }
        }
    }
}
