//! Tests of placements against a naive model that examines every element.

use super::*;
use proptest::prelude::*;

#[test]
fn placements_are_read_and_written() {
    for text in ["object", "region", "dynamic", "local", "server:3"] {
        assert_eq!(text.parse::<Placement>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "Object",
        "server",
        "server:",
        "server:x",
        "server:-1",
        "server:+1",
        "server:9999999999",
    ] {
        let error = text.parse::<Placement>().unwrap_err().to_string();
        assert!(error.contains("server:N"), "{error}");
    }
    assert_eq!(Placement::default(), Placement::Dynamic);
}

#[test]
fn the_hash_spreads_objects_and_moves_few() {
    let all: Vec<ServerId> = (1..=8).map(ServerId).collect();
    let mut counts = [0; 9];
    let mut moved = 0;
    for object in 0..8000 {
        let server = object_server(ObjectId(object), &all).unwrap();
        counts[server.0 as usize] += 1;
        let fewer = object_server(ObjectId(object), &all[..7]).unwrap();
        if server != fewer {
            assert_eq!(server, ServerId(8));
            moved += 1;
        }
    }
    assert!(
        counts[1..].iter().all(|&n| (850..1150).contains(&n)),
        "{counts:?}"
    );
    assert_eq!(moved, counts[8]);
    assert_eq!(object_server(ObjectId(1), &[]), None);
}

#[test]
fn complete_rows_stay_together_where_possible() {
    let blocks = Blocks::new(&[16, 16], 4, 4);
    assert_eq!((blocks.count(), blocks.rows_end(5)), (4, Some(8)));
    assert_eq!(blocks.rows_end(99), Some(u64::MAX));
    let blocks = Blocks::new(&[2, 100], 4, 4);
    assert_eq!((blocks.count(), blocks.rows_end(0)), (4, None));
    // Seven is cut into seven or not at all; otherwise one block an element.
    assert_eq!(Blocks::new(&[3, 100], 1, 7).count(), 7);
    assert_eq!(Blocks::new(&[3, 3], 1, 7).count(), 3);
    // A scalar, an array without elements, an unlimited axis.
    assert_eq!(Blocks::new(&[], 8, 4).count(), 1);
    assert_eq!(Blocks::new(&[0], 8, 4).count(), 1);
    assert_eq!(Blocks::new(&[0, 8], 8, 4).count(), 4);
    assert_eq!(Blocks::new(&[u64::MAX / 8], 8, 64).count(), 64);
}

/// The block of each element along an axis, by filling blocks of lengths that differ by one at most.
fn naive(extent: u64, parts: u64) -> Vec<u64> {
    let mut blocks = Vec::new();
    for part in 0..parts {
        while (blocks.len() as u64) * parts < (part + 1) * extent - (part + 1) * extent % parts {
            blocks.push(part);
        }
    }
    blocks
}

proptest! {
    #[test]
    fn blocks_are_even_and_splits_are_exact(
        extents in prop::collection::vec(1u64..12, 1..4),
        elem in 1u64..5,
        servers in 1usize..13,
        corner in prop::collection::vec((0.0..1.0f64, 0.0..1.0f64), 3),
    ) {
        let blocks = Blocks::new(&extents, elem, servers);
        prop_assert!(blocks.count() <= servers);
        let axes: Vec<Vec<u64>> =
            extents.iter().zip(&blocks.parts).map(|(&extent, &parts)| naive(extent, parts)).collect();
        for (axis, of) in axes.iter().enumerate() {
            for part in 0..blocks.parts[axis] {
                let len = of.iter().filter(|&&of| of == part).count() as u64;
                prop_assert!(len == extents[axis] / blocks.parts[axis] || len == extents[axis].div_ceil(blocks.parts[axis]));
            }
        }
        // A box that may reach beyond the array.
        let mut region = Region::all(&extents);
        for (axis, &(from, len)) in corner.iter().enumerate().take(extents.len()) {
            let unit = if axis + 1 == extents.len() { elem } else { 1 };
            let most = (extents[axis] + 2) * unit;
            region.offset[axis] = (from * most as f64) as u64;
            region.shape[axis] = 1 + (len * (most - region.offset[axis]) as f64) as u64;
        }
        let parts = blocks.split(&region);
        prop_assert_eq!(blocks.of_region(&region).is_some(), parts.len() == 1);
        prop_assert_eq!(parts.iter().map(|(_, part)| part.volume()).sum::<u64>(), region.volume());
        for (at, (block, part)) in parts.iter().enumerate() {
            prop_assert!(region.contains(part));
            prop_assert!(*block < blocks.count());
            prop_assert!(parts[..at].iter().all(|(_, other)| other.intersect(part).is_none()));
            let corners = [part.offset.clone(), (0..part.rank()).map(|axis| part.end(axis) - 1).collect::<Coords>()];
            for cell in corners {
                let expected = cell.iter().enumerate().fold(0, |block, (axis, &cell)| {
                    let unit = if axis + 1 == extents.len() { elem } else { 1 };
                    let element = ((cell / unit) as usize).min(axes[axis].len() - 1);
                    block * blocks.parts[axis] + axes[axis][element]
                });
                prop_assert_eq!(expected as usize, *block);
                prop_assert_eq!(blocks.of_cell(&cell), *block);
            }
        }
    }
}
