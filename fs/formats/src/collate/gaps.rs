//! Which parts of a shape are in none of some boxes.

use super::region::Region;

/// More cells than this are not looked at one by one.
const MOST_CELLS: usize = 1 << 22;

/// The parts of `shape` that no box covers, cut along the edges of the boxes and joined along the last axis; `None` if there
/// are too many edges to find out.
pub(super) fn gaps(shape: &[u64], boxes: &[Region]) -> Option<Vec<Region>> {
    let rank = shape.len();
    // The cells between the edges of all boxes.
    let edges: Vec<Vec<u64>> = (0..rank)
        .map(|axis| {
            let mut edges = vec![0, shape[axis]];
            edges.extend(
                boxes
                    .iter()
                    .flat_map(|one| [one.start[axis], one.end(axis)]),
            );
            edges.sort_unstable();
            edges.dedup();
            edges
        })
        .collect();
    let cells: Vec<u64> = edges.iter().map(|edges| edges.len() as u64 - 1).collect();
    let all = cells
        .iter()
        .try_fold(1_usize, |all, &len| all.checked_mul(len as usize));
    let all = all.filter(|&all| all <= MOST_CELLS)?;
    let mut covered = vec![false; all];
    for one in boxes {
        let index = |axis: usize, at: u64| edges[axis].partition_point(|&edge| edge < at) as u64;
        let start: Vec<u64> = (0..rank).map(|axis| index(axis, one.start[axis])).collect();
        let count = (0..rank)
            .map(|axis| index(axis, one.end(axis)) - start[axis])
            .collect();
        let part = Region::new(start, count);
        let mut at = part.start.clone();
        if part.count.contains(&0) {
            continue;
        }
        loop {
            covered[linear(&at, &cells)] = true;
            if !super::region::advance(&mut at, &part) {
                break;
            }
        }
    }
    let mut found: Vec<Region> = Vec::new();
    let grid = Region::new(vec![0; rank], cells.clone());
    let mut at = vec![0; rank];
    if grid.count.contains(&0) {
        return Some(found);
    }
    loop {
        if !covered[linear(&at, &cells)] {
            let start: Vec<u64> = (0..rank)
                .map(|axis| edges[axis][at[axis] as usize])
                .collect();
            let count = (0..rank)
                .map(|axis| edges[axis][at[axis] as usize + 1] - start[axis])
                .collect();
            add(&mut found, Region::new(start, count));
        }
        if !super::region::advance(&mut at, &grid) {
            return Some(found);
        }
    }
}

/// Adds a part, or makes the last one longer by it.
fn add(found: &mut Vec<Region>, part: Region) {
    let last = part.count.len().saturating_sub(1);
    if let Some(before) = found.last_mut()
        && before.start[..last] == part.start[..last]
        && before.count[..last] == part.count[..last]
        && before.end(last) == part.start[last]
    {
        before.count[last] += part.count[last];
        return;
    }
    found.push(part);
}

fn linear(at: &[u64], cells: &[u64]) -> usize {
    let index = at
        .iter()
        .zip(cells)
        .fold(0, |all, (at, len)| all * len + at);
    index as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_no_box_covers() {
        let one = |y: u64, x: u64, h: u64, w: u64| Region::new(vec![y, x], vec![h, w]);
        let boxes = [
            one(0, 0, 6, 5),
            one(0, 5, 6, 8),
            one(6, 0, 5, 5),
            one(6, 10, 5, 3),
        ];
        assert_eq!(gaps(&[11, 13], &boxes), Some(vec![one(6, 5, 5, 5)]));
        assert_eq!(gaps(&[11, 13], &[one(0, 0, 11, 13)]), Some(vec![]));
        assert_eq!(gaps(&[3], &[]), Some(vec![Region::new(vec![0], vec![3])]));
    }
}
