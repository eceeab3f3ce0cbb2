//! For tests: geometry by listing every cell, and the strategies that generate small geometry.
//!
//! Slow and plain on purpose: the crate's computations axis by axis are compared with it.

use crate::{Axis, Coords, Hyperslab, MAX_RANK, Region};
use proptest::prelude::*;

/// The cells of a box, row-major.
pub(crate) fn points(region: &Region) -> Vec<Coords> {
    let mut points = vec![Coords::new()];
    for axis in 0..region.rank() {
        let mut longer = Vec::new();
        for point in points {
            for at in region.offset[axis]..region.end(axis) {
                let mut point = point.clone();
                point.push(at);
                longer.push(point);
            }
        }
        points = longer;
    }
    points
}

/// The cells of a hyperslab in packed order, straight from the definition.
pub(crate) fn cells(slab: &Hyperslab) -> Vec<Coords> {
    let mut points = vec![Coords::new()];
    for axis in &slab.axes {
        let mut longer = Vec::new();
        for point in points {
            for count in 0..axis.count {
                for within in 0..axis.block {
                    let mut point = point.clone();
                    point.push(axis.start + count * axis.stride + within);
                    longer.push(point);
                }
            }
        }
        points = longer;
    }
    points
}

/// Offset of a cell in a dense row-major array.
pub(crate) fn offset(shape: &[u64], point: &[u64]) -> usize {
    let axes = shape.iter().zip(point);
    axes.fold(0, |offset, (&len, &at)| offset * len + at) as usize
}

/// Dims of rank 0 to 4, axes of length 0 to 7; sometimes spread over 32 axes, the others 1.
pub(crate) fn dims() -> impl Strategy<Value = Coords> {
    let length = prop_oneof![1 => Just(0u64), 12 => 1..8u64];
    let low = prop::collection::vec(length, 0..=4);
    let places = prop::sample::subsequence((0..MAX_RANK).collect::<Vec<_>>(), 4);
    (low, prop::bool::weighted(0.15), places).prop_map(|(low, spread, places)| {
        if !spread {
            return Coords::from_vec(low);
        }
        let mut dims = Coords::from_elem(1, MAX_RANK);
        for (place, length) in places.into_iter().zip(low) {
            dims[place] = length;
        }
        dims
    })
}

fn axis(limit: u64) -> impl Strategy<Value = Axis> {
    (0..=limit, 0..4u64, 0..4u64, 0..6u64, any::<bool>()).prop_map(
        move |(start, block, gap, count, span)| {
            let room = limit - start;
            if span {
                return Axis::span(start, (block * count).min(room));
            }
            let block = block.min(room);
            let stride = (block + gap).max(1);
            let most = if block == 0 {
                1
            } else {
                (room - block) / stride + 1
            };
            let count = count.min(most);
            Axis {
                start,
                stride,
                count,
                block,
            }
        },
    )
}

/// A hyperslab within these dims; often a box or a lattice, sometimes empty.
pub(crate) fn slab(dims: &[u64]) -> impl Strategy<Value = Hyperslab> + use<> {
    let axes: Vec<_> = dims
        .iter()
        .map(|&limit| {
            // Full axes come often enough to test the fast paths.
            prop_oneof![1 => Just(Axis::span(0, limit)), 3 => axis(limit)]
        })
        .collect();
    axes.prop_map(|axes| Hyperslab {
        axes: axes.into_iter().collect(),
    })
}

/// A box within these dims.
pub(crate) fn region(dims: &[u64]) -> impl Strategy<Value = Region> + use<> {
    let axes: Vec<_> = dims
        .iter()
        .map(|&limit| (0..=limit, 0..=limit).prop_map(|(a, b)| (a.min(b), a.max(b) - a.min(b))))
        .collect();
    axes.prop_map(|axes| Region {
        offset: axes.iter().map(|axis| axis.0).collect(),
        shape: axes.iter().map(|axis| axis.1).collect(),
    })
}

/// Dims and two hyperslabs within them.
pub(crate) fn two_slabs() -> impl Strategy<Value = (Coords, Hyperslab, Hyperslab)> {
    dims().prop_flat_map(|dims| {
        let (one, two) = (slab(&dims), slab(&dims));
        (Just(dims), one, two)
    })
}

/// Dims and two boxes within them.
pub(crate) fn two_regions() -> impl Strategy<Value = (Coords, Region, Region)> {
    dims().prop_flat_map(|dims| {
        let (one, two) = (region(&dims), region(&dims));
        (Just(dims), one, two)
    })
}
