//! Joined files against a naive model: each element is that of a tile that has it, or the fill value.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use slabfs_formats::Result;
use slabfs_formats::boxes::Block;
use slabfs_formats::collate::{self, Chunks, Done, Plan, Wish};
use slabfs_formats::h5::{Dialect, Writer};
use slabfs_formats::netcdf::Reader;
use slabfs_formats::sink::Sink;
use slabfs_formats::source::Source;
use slabfs_formats::tree::{Attribute, Deflate, Dim, DimRef, Group, Value, Variable};

const FILL: i32 = -9;

/// A box of `y` and `x`: start and end of each.
type Box = [(u64, u64); 2];

fn numbers(values: &[i32]) -> Value {
    Value::Numbers {
        dtype: "i4".parse().unwrap(),
        bytes: values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    }
}

fn attribute(name: &str, value: Value) -> Attribute {
    let name = name.to_owned();
    Attribute { name, value }
}

fn dim(name: &str, len: u64) -> Dim {
    Dim {
        name: name.to_owned(),
        len,
        unlimited: name == "t",
    }
}

/// The value of an element of everything.
fn value(t: u64, y: u64, x: u64) -> i32 {
    (t * 10_000 + y * 100 + x) as i32
}

/// What a set of tiles is like.
#[derive(Debug, Clone)]
struct Set {
    shape: [u64; 3],
    boxes: Vec<Box>,
    chunk: Option<Vec<u64>>,
    deflate: Option<Deflate>,
}

fn variable(name: &str, dims: &[Dim], set: &Set) -> Variable {
    let large = name == "v";
    let lens = dims.iter().map(|dim| dim.len.max(1));
    let chunk = set.chunk.as_ref().filter(|_| large);
    Variable {
        dims: dims
            .iter()
            .map(|dim| DimRef {
                dim: dim.clone(),
                up: 0,
            })
            .collect(),
        chunk: chunk.map(|chunk| {
            chunk
                .iter()
                .zip(lens)
                .map(|(&len, most)| len.min(most))
                .collect()
        }),
        deflate: set.deflate.filter(|_| large),
        attributes: match large {
            true => vec![
                attribute("_FillValue", numbers(&[FILL])),
                attribute("units", Value::Chars(b"K".to_vec())),
            ],
            false => Vec::new(),
        },
        ..Variable::new(name, "i4".parse().unwrap())
    }
}

/// Writes the tile of a box; `v` is `v(t, y, x)`, with coordinates of all of them.
fn write_tile(path: &Path, set: &Set, [y, x]: Box, change: impl FnOnce(&mut Group)) {
    let dims = [
        dim("t", set.shape[0]),
        dim("y", y.1 - y.0),
        dim("x", x.1 - x.0),
    ];
    let mut tree = Group {
        dims: dims.to_vec(),
        attributes: vec![
            attribute("title", Value::Chars(b"tiles".to_vec())),
            attribute("NumFilesInSet", numbers(&[9])),
        ],
        variables: dims
            .iter()
            .map(|dim| variable(&dim.name, std::slice::from_ref(dim), set))
            .collect(),
        ..Group::default()
    };
    tree.variables.push(variable("v", &dims, set));
    for (at, (name, range)) in [("y", y), ("x", x)].into_iter().enumerate() {
        let first = 500;
        let place = [
            first,
            first + set.shape[1 + at] as i32 - 1,
            first + range.0 as i32,
            first + range.1 as i32 - 1,
        ];
        let own = tree
            .variables
            .iter_mut()
            .find(|one| one.name == name)
            .unwrap();
        own.attributes
            .push(attribute("domain_decomposition", numbers(&place)));
    }
    change(&mut tree);
    let writer = Writer::create(path, Dialect::NetCdf, &tree).unwrap();
    let mut writer = std::boxed::Box::new(writer);
    let block = |start: &[u64], count: &[u64]| Block {
        start: start.to_vec(),
        count: count.to_vec(),
    };
    for (name, start, end) in [("t", 0, set.shape[0]), ("y", y.0, y.1), ("x", x.0, x.1)] {
        let own = tree.variables.iter().find(|one| one.name == name).unwrap();
        let bytes: Vec<u8> = (start..end)
            .flat_map(|at| (at as i32).to_le_bytes())
            .collect();
        let all = block(&[0], &[end - start]);
        writer.write("", own, &all, &bytes).unwrap();
    }
    let own = tree.variables.iter().find(|one| one.name == "v").unwrap();
    let mut bytes = Vec::new();
    for t in 0..set.shape[0] {
        for at in y.0..y.1 {
            bytes.extend((x.0..x.1).flat_map(|x| value(t, at, x).to_le_bytes()));
        }
    }
    let count = [set.shape[0], y.1 - y.0, x.1 - x.0];
    let all = block(&[0, 0, 0], &count);
    writer.write("", own, &all, &bytes).unwrap();
    writer.finish().unwrap();
}

fn planned(paths: &[PathBuf], wish: &Wish) -> Result<Plan> {
    let tiles = paths
        .iter()
        .map(|path| collate::inspect(path))
        .collect::<Result<Vec<_>>>()?;
    let plan = collate::plan(tiles, wish)?;
    collate::check(&plan, 2)?;
    Ok(plan)
}

fn write_tiles(dir: &Path, set: &Set) -> Vec<PathBuf> {
    let boxes = set.boxes.iter().enumerate();
    boxes
        .map(|(at, &one)| {
            let path = dir.join(format!("tile.{at:04}"));
            write_tile(&path, set, one, |_| {});
            path
        })
        .collect()
}

/// Joins the tiles, and compares all that comes out.
fn joined(set: &Set, wish: &Wish) -> (Plan, Done) {
    let dir = tempfile::tempdir().unwrap();
    let mut paths = write_tiles(dir.path(), set);
    paths.reverse();
    let plan = planned(&paths, wish).unwrap();
    let out = dir.path().join("out.nc");
    let done = collate::write(&plan, (&out, &out), 2, &mut |_| Ok(())).unwrap();
    let read = Reader::open(&out).unwrap();
    let tree = read.tree();
    let names: Vec<&str> = tree
        .attributes
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["title"]);
    assert_eq!(
        tree.dims,
        [
            dim("t", set.shape[0]),
            dim("y", set.shape[1]),
            dim("x", set.shape[2])
        ]
    );
    for variable in &tree.variables {
        let mut bytes = Vec::new();
        let mut part = Vec::new();
        for block in slabfs_formats::boxes::Boxes::rows(&variable.shape(), 4, 1 << 20) {
            read.read("", variable, &block, &mut part).unwrap();
            bytes.extend_from_slice(&part);
        }
        let values: Vec<i32> = bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&one| i32::from_le_bytes(one))
            .collect();
        assert_eq!(values, expected(set, &variable.name), "{}", variable.name);
        assert!(
            !variable
                .attributes
                .iter()
                .any(|one| one.name == "domain_decomposition")
        );
    }
    (plan, done)
}

/// What the variable has to be.
fn expected(set: &Set, name: &str) -> Vec<i32> {
    let [t, y, x] = set.shape;
    let inside = |range: (u64, u64), at: u64| range.0 <= at && at < range.1;
    // Coordinates are in all tiles of a row or a column.
    let along = |axis: usize, at: u64| match set.boxes.iter().any(|one| inside(one[axis], at)) {
        true => at as i32,
        false => -2_147_483_647,
    };
    match name {
        "t" => (0..t).map(|at| at as i32).collect(),
        "y" => (0..y).map(|at| along(0, at)).collect(),
        "x" => (0..x).map(|at| along(1, at)).collect(),
        _ => (0..t * y * x)
            .map(|at| {
                let (t, y, x) = (at / (x * y), at / x % y, at % x);
                let found = set
                    .boxes
                    .iter()
                    .any(|one| inside(one[0], y) && inside(one[1], x));
                if found { value(t, y, x) } else { FILL }
            })
            .collect(),
    }
}

fn cut(len: u64, cuts: &[u64]) -> Vec<(u64, u64)> {
    let mut edges: Vec<u64> = cuts.iter().map(|at| at % len).chain([0, len]).collect();
    edges.sort_unstable();
    edges.dedup();
    edges.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

fn sets() -> impl Strategy<Value = Set> {
    let cuts = || prop::collection::vec(0_u64..40, 0..4);
    let chunk = prop::option::of(prop::collection::vec(1_u64..9, 3));
    let deflate = prop::option::of((1_u32..10, any::<bool>()));
    (
        (1_u64..4, 2_u64..20, 2_u64..20),
        cuts(),
        cuts(),
        0_u64..3,
        prop::option::of(0_usize..16),
        chunk,
        deflate,
    )
        .prop_map(|((t, y, x), ys, xs, halo, gone, chunk, deflate)| {
            let (ys, xs) = (cut(y, &ys), cut(x, &xs));
            let wider = |(from, to): (u64, u64), len: u64| {
                (from.saturating_sub(halo), (to + halo).min(len))
            };
            let mut boxes: Vec<Box> = ys
                .iter()
                .flat_map(|&own| {
                    xs.iter()
                        .map(move |&other| [wider(own, y), wider(other, x)])
                })
                .collect();
            if let Some(gone) = gone.filter(|_| boxes.len() > 1) {
                boxes.remove(gone % boxes.len());
            }
            let deflate = deflate.map(|(level, shuffle)| Deflate { level, shuffle });
            Set {
                shape: [t, y, x],
                boxes,
                chunk,
                deflate,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_element_is_that_of_a_tile_or_the_fill_value(
        set in sets(),
        chunks in prop::option::of(prop::collection::vec(1_u64..12, 3)),
        deflate in prop::option::of(0_u32..10),
        shuffle in prop::option::of(any::<bool>()),
    ) {
        let chunks = chunks.map_or(Chunks::Tiles, Chunks::Axes);
        joined(&set, &Wish { chunks, deflate, shuffle });
    }
}

fn set(boxes: Vec<Box>, chunk: [u64; 3]) -> Set {
    let deflate = Some(Deflate {
        level: 3,
        shuffle: true,
    });
    Set {
        shape: [2, 11, 13],
        boxes,
        chunk: Some(chunk.to_vec()),
        deflate,
    }
}

#[test]
fn chunks_are_copied_where_grids_agree() {
    let all = |ys: &[(u64, u64)], xs: &[(u64, u64)]| -> Vec<Box> {
        ys.iter()
            .flat_map(|&y| xs.iter().map(move |&x| [y, x]))
            .collect()
    };
    // One row and one column of tiles are shorter: their chunks reach beyond the end, as the last ones of the output do.
    let aligned = set(
        all(&[(0, 6), (6, 11)], &[(0, 6), (6, 12), (12, 13)]),
        [1, 3, 3],
    );
    let (plan, done) = joined(&aligned, &Wish::default());
    assert_eq!(plan.variables[3].chunk.as_deref(), Some(&[1, 3, 3][..]));
    // Tiles of one column have chunks of one column, so those are encoded again.
    assert_eq!((done.copied, done.encoded), (2 * 4 * 4, 2 * 4));
    // Tiles of different sizes with a chunk each: what begins at a place of the grid and fits is copied.
    let uneven = set(all(&[(0, 11)], &[(0, 5), (5, 10), (10, 13)]), [2, 11, 13]);
    let (_, done) = joined(&uneven, &Wish::default());
    assert_eq!((done.copied, done.encoded), (2, 1));
    // Nothing is copied that a wish changes, and everything if it changes nothing.
    let wish = |deflate, shuffle| Wish {
        deflate,
        shuffle,
        ..Wish::default()
    };
    assert_eq!(
        joined(&uneven, &wish(Some(9), None)).1.copied,
        2,
        "the level does not matter to a reader"
    );
    assert_eq!(joined(&uneven, &wish(None, Some(false))).1.copied, 0);
    assert_eq!(joined(&uneven, &wish(Some(0), None)).1.copied, 0);
}

/// Refused by a text that has these words.
#[track_caller]
fn refused(paths: &[PathBuf], words: &[&str]) {
    let error = planned(paths, &Wish::default())
        .expect_err("it does not fit")
        .to_string();
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let halves: Vec<Box> = vec![[(0, 11), (0, 7)], [(0, 11), (7, 13)]];
    let good = set(halves.clone(), [1, 5, 5]);
    type Change = fn(&mut Group);
    let changes: &[(Change, &[&str])] = &[
        (
            |tree| tree.variables[3].attributes[1].value = Value::Chars(b"degC".to_vec()),
            &["tile.0001", "v", "units"],
        ),
        (
            |tree| {
                tree.variables[3]
                    .attributes
                    .push(attribute("scale_factor", numbers(&[2])))
            },
            &["tile.0001", "v", "scale_factor"],
        ),
        (
            |tree| tree.variables[3].attributes[0].value = numbers(&[7]),
            &["tile.0001", "v", "_FillValue"],
        ),
        (
            |tree| tree.variables[2].attributes.clear(),
            &["tile.0001", "x", "domain_decomposition"],
        ),
        (
            |tree| tree.variables[2].attributes[0].value = numbers(&[500, 512, 506, 511]),
            &["tile", "v", "another value"],
        ),
        (
            |tree| tree.variables[2].attributes[0].value = numbers(&[500, 512, 507, 513]),
            &["tile.0001", "x"],
        ),
        (
            |tree| tree.variables[2].attributes[0].value = numbers(&[500, 511, 506, 511]),
            &["tile.0001", "x"],
        ),
        (
            |tree| tree.variables[2].attributes[0].value = numbers(&[500, 512, 507]),
            &["tile.0001", "x", "four integers"],
        ),
        (
            |tree| tree.variables[2].attributes[0].value = numbers(&[i32::MIN, i32::MAX, 0, 5]),
            &["tile.0001", "x"],
        ),
        (
            |tree| {
                tree.variables.push(variable(
                    "more",
                    &tree.dims.clone(),
                    &set(Vec::new(), [1, 1, 1]),
                ))
            },
            &["tile.0001", "more"],
        ),
    ];
    for (change, words) in changes {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("tile.0000"), dir.path().join("tile.0001")];
        write_tile(&paths[0], &good, halves[0], |_| {});
        write_tile(&paths[1], &good, halves[1], change);
        refused(&paths, words);
        refused(&[paths[1].clone(), paths[0].clone()], &words[1..]);
    }
    let dir = tempfile::tempdir().unwrap();
    let paths = write_tiles(dir.path(), &good);
    refused(&[paths[0].clone(), paths[0].clone()], &["given twice"]);
    let short = dir.path().join("short");
    let less = Set {
        shape: [1, 11, 13],
        ..good.clone()
    };
    write_tile(&short, &less, halves[1], |_| {});
    refused(
        &[paths[0].clone(), short],
        &["t, the dimension of v", "short"],
    );
    let cut = dir.path().join("cut");
    let bytes = std::fs::read(&paths[1]).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() - 100]).unwrap();
    refused(&[paths[0].clone(), cut], &["cut", "truncated"]);
    refused(&[dir.path().join("none")], &["none", "No such file"]);
}

#[test]
fn tiles_that_change_or_vanish_stop_it() {
    let halves: Vec<Box> = vec![[(0, 11), (0, 7)], [(0, 11), (7, 13)]];
    for gone in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let good = set(halves.clone(), [1, 5, 5]);
        let paths = write_tiles(dir.path(), &good);
        let plan = planned(&paths, &Wish::default()).unwrap();
        match gone {
            true => std::fs::remove_file(&paths[1]).unwrap(),
            false => std::fs::File::options()
                .write(true)
                .open(&paths[1])
                .unwrap()
                .set_len(2000)
                .unwrap(),
        }
        let out = dir.path().join("out.nc");
        let error = collate::write(&plan, (&out, &out), 2, &mut |_| Ok(()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("tile.0001"), "{error}");
    }
}
