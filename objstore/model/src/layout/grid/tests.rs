//! Tests of the grid against a list of cells.

use super::*;
use crate::naive::{cells, dims, slab};
use proptest::prelude::*;
use std::collections::HashMap;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn each_cell_comes_once_from_its_chunk(
        (chunk, want) in dims().prop_flat_map(|dims| {
            let chunk: Vec<_> = dims.iter().map(|&dim| 1..dim.max(1) + 3).collect();
            (chunk, slab(&dims))
        })
    ) {
        let grid = Grid { chunk: chunk.into_iter().collect() };
        let mut parts = Vec::new();
        grid.plan(&want, &mut parts);
        let shape = want.packed_shape();
        let packed: HashMap<Coords, usize> =
            cells(&want).into_iter().enumerate().map(|(index, cell)| (cell, index)).collect();
        let mut seen = vec![false; packed.len()];
        for part in &parts {
            prop_assert_eq!(part.want.packed_shape(), part.chunk.packed_shape());
            prop_assert!(part.chunk.validate(&grid.chunk).is_ok());
            let region = grid.chunk_region(&part.at);
            for (to, from) in cells(&part.want).iter().zip(cells(&part.chunk)) {
                let cell: Coords = from.iter().zip(&region.offset).map(|(a, b)| a + b).collect();
                let index = crate::naive::offset(&shape, to);
                prop_assert_eq!(packed.get(&cell), Some(&index));
                prop_assert!(!std::mem::replace(&mut seen[index], true));
            }
        }
        prop_assert!(seen.into_iter().all(|seen| seen));
        let mut order: Vec<_> = parts.iter().map(|part| part.at.clone()).collect();
        prop_assert!(order.is_sorted());
        order.dedup();
        if want.is_box() {
            prop_assert_eq!(order.len(), parts.len(), "one part a chunk");
        }
    }
}

fn grid(layout: &str, dims: &[u64], elem: u64) -> Result<Option<Grid>, GeometryError> {
    Grid::of(&layout.parse().unwrap(), &Space::new(dims, elem))
}

#[test]
fn layouts_have_their_grids() {
    let chunk =
        |layout, dims: &[u64], elem| grid(layout, dims, elem).unwrap().map(|g| g.chunk.to_vec());
    assert_eq!(chunk("aligned", &[16, 16], 4), None);
    assert_eq!(chunk("grid:8,8", &[16, 16], 4), Some(vec![8, 32]));
    assert_eq!(chunk("grid:scalar", &[], 4), Some(vec![4]));
    assert_eq!(chunk("canonical", &[], 4), Some(vec![4]));
    assert_eq!(chunk("canonical", &[5], 4), Some(vec![MAX_BYTES / 4 * 4]));
    assert_eq!(
        chunk("canonical", &[5, 10], 4),
        Some(vec![MAX_BYTES / 40, 40])
    );
    assert_eq!(
        chunk("canonical", &[5, 0, 3], 1),
        Some(vec![MAX_BYTES / 3, 1, 3])
    );
    assert_eq!(
        chunk("canonical", &[0, 1 << 30, 1 << 30], 1).map(|chunk| chunk[0]),
        Some(7)
    );
}

#[test]
fn a_grown_canonical_object_has_the_same_chunk() {
    assert_eq!(
        grid("canonical", &[5, 10], 4),
        grid("canonical", &[50_000, 10], 4)
    );
    let canonical = grid("canonical", &[1 << 40], 1).unwrap().unwrap();
    let mut parts = Vec::new();
    canonical.plan(
        &Hyperslab::from_region(&Region::new(&[1 << 39], &[1 << 39])),
        &mut parts,
    );
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0].at.as_slice(), [0]);
    assert_eq!(
        parts[0].chunk.bounds(),
        Some(Region::new(&[1 << 39], &[1 << 39]))
    );
}

#[test]
fn wrong_grids_are_errors() {
    assert_eq!(
        grid("grid:8", &[16, 16], 4),
        Err(GeometryError::RankMismatch { got: 1, want: 2 })
    );
    let large = format!("grid:{},8", u64::MAX / 2);
    assert!(matches!(
        grid(&large, &[16, 16], 4),
        Err(GeometryError::TooLarge { .. })
    ));
    assert!(matches!(
        grid("canonical", &[1 << 62], 4),
        Err(GeometryError::TooLarge { .. })
    ));
}

#[test]
fn the_document_s_selections_touch_nine_chunks() {
    let grid = grid("grid:8,8", &[16, 16], 4).unwrap().unwrap();
    let touched = |offset: [u64; 2], shape: [u64; 2]| {
        let elements = Hyperslab::from_region(&Region::new(&offset, &shape));
        let mut parts = Vec::new();
        grid.plan(&elements.to_cells(4).unwrap(), &mut parts);
        parts.len()
    };
    assert_eq!(touched([0, 0], [10, 9]), 4);
    assert_eq!(touched([0, 9], [7, 7]), 1);
}

#[test]
fn the_edge_of_64_bits() {
    let grid = Grid {
        chunk: [1 << 40, 3].into_iter().collect(),
    };
    let mut parts = Vec::new();
    grid.plan(
        &Hyperslab::from_region(&Region::new(&[u64::MAX - 2, 0], &[2, 3])),
        &mut parts,
    );
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0].at.as_slice(), [(1 << 24) - 1, 0]);
    let last = grid.chunk_region(&[u64::MAX, u64::MAX]);
    assert_eq!(last.end(0), u64::MAX);
}

#[test]
fn servers_alternate_along_each_axis() {
    assert!(
        STEPS
            .iter()
            .all(|&step| (2..=256).all(|factor| step % factor != 0))
    );
    let grid = Grid {
        chunk: [8, 8, 8].into_iter().collect(),
    };
    for count in 1..40u32 {
        let stripe: Vec<ServerId> = (0..count).map(|id| ServerId(id + 7)).collect();
        for axis in 0..3 {
            let mut seen: Vec<ServerId> = (0..u64::from(count))
                .map(|step| {
                    let mut at = [5, u64::MAX - 100, 1 << 50];
                    at[axis] += step;
                    grid.server(ObjectId(42), &at, &stripe)
                })
                .collect();
            seen.sort();
            assert_eq!(seen, stripe, "axis {axis}, {count} servers");
        }
    }
    let stripe: Vec<ServerId> = (0..8).map(ServerId).collect();
    let first = |object| grid.server(ObjectId(object), &[0, 0, 0], &stripe);
    assert!(
        (0..50).any(|object| first(object) != first(0)),
        "objects start on different servers"
    );
    assert_eq!(grid.server(ObjectId(1), &[0, 0, 0], &[]), ServerId(0));
}
