//! Boxes of elements, and copying between buffers that hold boxes.

use crate::boxes::Boxes;

/// A box of an array: the first element and the number of elements along each axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Region {
    /// The first element.
    pub start: Vec<u64>,
    /// The number of elements along each axis.
    pub count: Vec<u64>,
}

impl Region {
    /// A box.
    pub fn new(start: Vec<u64>, count: Vec<u64>) -> Region {
        Region { start, count }
    }

    /// The end of an axis: one more than its last element.
    pub fn end(&self, axis: usize) -> u64 {
        self.start[axis] + self.count[axis]
    }

    /// The number of elements.
    pub fn elements(&self) -> u64 {
        self.count.iter().product()
    }

    /// What both boxes have; `None` if that is nothing.
    pub fn intersection(&self, other: &Region) -> Option<Region> {
        let mut both = self.clone();
        for axis in 0..self.start.len() {
            let start = self.start[axis].max(other.start[axis]);
            let end = self.end(axis).min(other.end(axis));
            if start >= end {
                return None;
            }
            both.start[axis] = start;
            both.count[axis] = end - start;
        }
        Some(both)
    }

    /// The box as seen from another origin, which is not after its start.
    pub fn from_origin(&self, origin: &[u64]) -> Region {
        let start = self
            .start
            .iter()
            .zip(origin)
            .map(|(start, from)| start - from);
        Region::new(start.collect(), self.count.clone())
    }

    /// Cuts it into boxes in row-major order with at most `most` elements each; one after the other, since there can be many.
    pub fn parts(&self, most: u64) -> impl Iterator<Item = Region> + use<> {
        let origin = self.start.clone();
        Boxes::rows(&self.count, 1, most.max(1)).map(move |block| {
            let start = block.start.iter().zip(&origin);
            let start = start.map(|(at, from)| at + from);
            Region::new(start.collect(), block.count)
        })
    }
}

/// Copies the elements of `part`, of `size` bytes each, from a buffer that holds the box `from` to one that holds `to`. Both
/// boxes contain `part`, and all three have the same origin.
pub fn copy(
    part: &Region,
    size: usize,
    (source, from): (&[u8], &Region),
    (dest, to): (&mut [u8], &Region),
) {
    let rank = part.count.len();
    // The last axes are one run as long as both buffers have nothing else between their elements.
    let (mut axis, mut run) = (rank, 1_u64);
    while axis > 0 {
        axis -= 1;
        run *= part.count[axis];
        if part.count[axis] != from.count[axis] || part.count[axis] != to.count[axis] {
            break;
        }
    }
    let run = run as usize * size;
    let mut at = part.start[..axis].to_vec();
    let place = |of: &Region, at: &[u64]| {
        let mut index = 0;
        for i in 0..rank {
            let here = at.get(i).copied().unwrap_or(part.start[i]);
            index = index * of.count[i] + (here - of.start[i]);
        }
        index as usize * size
    };
    loop {
        let (source_at, dest_at) = (place(from, &at), place(to, &at));
        dest[dest_at..dest_at + run].copy_from_slice(&source[source_at..source_at + run]);
        if !advance(&mut at, part) {
            return;
        }
    }
}

/// Goes to the next position of the first axes of `part`; false after the last.
pub(super) fn advance(at: &mut [u64], part: &Region) -> bool {
    for axis in (0..at.len()).rev() {
        at[axis] += 1;
        if at[axis] < part.end(axis) {
            return true;
        }
        at[axis] = part.start[axis];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_of_it_in_order() {
        let all = Region::new(vec![2, 0, 3], vec![3, 4, 5]);
        for most in [1, 2, 5, 7, 10, 20, 39, 60, 1000] {
            let mut seen = Vec::new();
            for part in all.parts(most) {
                assert!(part.elements() <= most);
                let mut at = part.start.clone();
                loop {
                    seen.push(at.clone());
                    if !advance(&mut at, &part) {
                        break;
                    }
                }
            }
            assert_eq!(seen.len(), 60, "{most}");
            assert!(seen.is_sorted(), "{most}");
        }
        assert_eq!(Region::new(vec![], vec![]).parts(9).count(), 1);
        assert_eq!(Region::new(vec![1], vec![0]).parts(9).count(), 0);
        let large = Region::new(vec![0, 0], vec![1 << 31, 1 << 31]);
        assert_eq!(
            large.parts(1 << 20).take(3).count(),
            3,
            "none of them is made before"
        );
    }

    #[test]
    fn copies_what_two_boxes_share() {
        let from = Region::new(vec![2, 0, 3], vec![3, 4, 5]);
        let to = Region::new(vec![0, 1, 0], vec![4, 3, 7]);
        let part = from.intersection(&to).expect("they overlap");
        assert_eq!(part, Region::new(vec![2, 1, 3], vec![2, 3, 4]));
        let source: Vec<u8> = (0..60).collect();
        let mut dest = vec![255; 84];
        copy(&part, 1, (&source, &from), (&mut dest, &to));
        for z in 0..4_u64 {
            for y in 1..4_u64 {
                for x in 0..7_u64 {
                    let there = z >= 2 && x >= 3;
                    let expected = match there {
                        true => ((z - 2) * 20 + y * 5 + (x - 3)) as u8,
                        false => 255,
                    };
                    assert_eq!(dest[(z * 21 + (y - 1) * 7 + x) as usize], expected);
                }
            }
        }
        let mut one = [0];
        copy(
            &Region::new(vec![], vec![]),
            1,
            (&[7], &Region::new(vec![], vec![])),
            (&mut one, &Region::new(vec![], vec![])),
        );
        assert_eq!(one, [7]);
    }
}
