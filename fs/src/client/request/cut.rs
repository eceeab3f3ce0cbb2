//! Division of a written selection into chunks: one chunk if possible.
//!
//! A selection larger than a chunk may be is cut along its slowest axes and between elements; with placement `region`
//! also at the boundaries of blocks. Pure.

use slabfs_model::layout::Blocks;
use slabfs_model::{Coords, Hyperslab, Region, intersect};

use crate::client::object::geometry::moved;

/// A selection of more blocks than this stays a lattice, however many lattices lie there already.
const MOST_BOXES: u64 = 4096;

/// A part of a selection that becomes a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Its cells in the packed selection.
    pub(super) packed: Hyperslab,
    /// The same as cells of the object.
    pub(super) cells: Hyperslab,
}

/// The parts of `slab`: complete elements of `elem` bytes, at most `most` bytes each.
pub(super) fn cut(slab: &Hyperslab, elem: u64, most: u64, blocks: Option<&Blocks>) -> Vec<Part> {
    let mut parts = Vec::new();
    if slab.volume() <= most {
        let packed = Hyperslab::all(&slab.packed_shape());
        parts.push(Part {
            packed,
            cells: slab.clone(),
        });
    } else {
        for region in boxes_of(&slab.packed_shape(), elem, most) {
            for (packed, cells) in slab.parts(&region) {
                let packed = Hyperslab::from_region(&packed);
                parts.push(Part { packed, cells });
            }
        }
    }
    match blocks {
        None => parts,
        Some(blocks) => parts
            .iter()
            .flat_map(|part| within_blocks(part, blocks))
            .collect(),
    }
}

/// Divides a lattice into its blocks, if lattices are to be avoided; unless there are too many.
pub(super) fn as_boxes(part: Part) -> Vec<Part> {
    let axes = &part.cells.axes;
    let count = |n: u64, axis: &slabfs_model::Axis| n.saturating_mul(axis.normal().count);
    let dense = part.packed.is_box();
    if !dense || axes.iter().fold(1, count) > MOST_BOXES {
        return vec![part];
    }
    let blocks: Coords = axes.iter().map(|axis| axis.normal().block).collect();
    let shape = part.cells.packed_shape();
    let mut parts = Vec::new();
    for region in tiles(&shape, &blocks) {
        for (inside, cells) in part.cells.parts(&region) {
            let packed = moved(&Hyperslab::from_region(&inside), &part.packed);
            parts.push(Part { packed, cells });
        }
    }
    parts
}

/// Boxes of at most `most` cells that make up `shape`, in packed order.
fn boxes_of(shape: &[u64], elem: u64, most: u64) -> Vec<Region> {
    let rank = shape.len();
    let mut tile = Coords::from_elem(1, rank);
    let mut below = 1u64;
    for axis in (0..rank).rev() {
        let unit = if axis + 1 == rank { elem.max(1) } else { 1 };
        let fit = (most / below.max(1)).max(1);
        tile[axis] = (fit - fit % unit).max(unit).min(shape[axis]);
        if tile[axis] < shape[axis] {
            break;
        }
        below = below.saturating_mul(shape[axis]);
    }
    tiles(shape, &tile)
}

/// The tiles of `shape`, in row-major order.
fn tiles(shape: &[u64], tile: &[u64]) -> Vec<Region> {
    let mut all = Vec::new();
    if shape.contains(&0) || tile.contains(&0) {
        return all;
    }
    let mut at = Coords::from_elem(0, shape.len());
    loop {
        let sizes = at.iter().zip(shape).zip(tile);
        let sizes: Coords = sizes
            .map(|((at, len), tile)| (len - at).min(*tile))
            .collect();
        all.push(Region::new(&at, &sizes));
        let next = (0..shape.len())
            .rev()
            .find(|&axis| at[axis] + tile[axis] < shape[axis]);
        let Some(axis) = next else { return all };
        at[axis] += tile[axis];
        at[axis + 1..].fill(0);
    }
}

fn within_blocks(part: &Part, blocks: &Blocks) -> Vec<Part> {
    let Some(bounds) = part.cells.bounds() else {
        return Vec::new();
    };
    if blocks.of_region(&bounds).is_some() {
        return vec![part.clone()];
    }
    let mut parts = Vec::new();
    let mut pairs = Vec::new();
    for (_, region) in blocks.split(&bounds) {
        let block = Hyperslab::from_region(&region);
        pairs.clear();
        intersect(&part.cells, &block, &mut pairs);
        for (inside, cells) in &pairs {
            parts.push(Part {
                packed: moved(inside, &part.packed),
                cells: moved(cells, &block),
            });
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slabfs_model::{Axis, for_each_run};

    use super::*;

    fn cells(shape: &[u64], slab: &Hyperslab) -> Vec<usize> {
        let mut all = Vec::new();
        for_each_run(shape, slab, &mut |at, len| all.extend(at..at + len));
        all
    }

    fn axis() -> impl Strategy<Value = Axis> {
        (0..4u64, 1..4u64, 0..3u64, 1..4u64).prop_map(|(start, block, gap, count)| Axis {
            start,
            stride: block + gap,
            count,
            block,
        })
    }

    proptest! {
        #[test]
        fn parts_make_up_the_selection(
            axes in prop::collection::vec(axis(), 1..4),
            elem in 1..4u64,
            most in 12..60u64,
            servers in 0..4usize,
            boxes in any::<bool>(),
        ) {
            let slab = Hyperslab { axes: axes.into_iter().collect() }.to_cells(elem).unwrap();
            let shape: Vec<u64> = slab.axes.iter().map(Axis::end).collect();
            let mut extents = shape.clone();
            *extents.last_mut().unwrap() /= elem;
            let blocks = (servers > 0).then(|| Blocks::new(&extents, elem, servers));
            let all = cells(&shape, &slab);
            let mut found = vec![None; all.len()];
            let mut parts = cut(&slab, elem, most, blocks.as_ref());
            if boxes {
                parts = parts.into_iter().flat_map(as_boxes).collect();
            }
            for part in parts {
                prop_assert!(part.cells.volume() <= most && part.cells.volume() % elem == 0);
                if let (Some(blocks), Some(bounds)) = (&blocks, part.cells.bounds()) {
                    prop_assert!(blocks.of_region(&bounds).is_some());
                }
                let own = cells(&shape, &part.cells);
                let places = cells(&slab.packed_shape(), &part.packed);
                prop_assert_eq!(own.len(), places.len());
                for (place, cell) in places.into_iter().zip(own) {
                    prop_assert!(found[place].replace(cell).is_none());
                }
            }
            prop_assert_eq!(found.into_iter().collect::<Option<Vec<_>>>(), Some(all));
        }
    }
}
