//! Tests of declarations and sizes through the service (the rules themselves are tested with
//! [`crate::api::SpecChange`]).

use slabfs_model::{Coords, Layout, Placement, ServerId, parse_dims, parse_max_dims};

use super::support::*;
use crate::api::{MdError, ResizeHow, Rewrite, Spare, SpecChange, Truncate, op};

fn dims(text: &str) -> Coords {
    parse_dims(text).unwrap()
}

#[test]
fn a_new_object_is_bytes() {
    let (_service, md) = ready();
    let info = info(
        md.call(op::GetAttr {
            ino: file(&md, "a"),
        })
        .unwrap(),
    );
    assert!(!info.declared && info.is_grid() && info.is_empty() && info.unlimited_rows());
    assert_eq!(info.stripe.len(), 1);
    assert_eq!(info.tiling.0, 1);
}

#[test]
fn truncation_of_bytes() {
    let (_service, md) = ready();
    let ino = file(&md, "a");
    let resized = md.resize(ino, dims("100"), ResizeHow::Truncate).unwrap();
    assert_eq!((resized.entry.attr.size, resized.clipped), (100, false));
    let mut commit = commit_of(&md, ino);
    commit.size_at_least = 200;
    commit.stored = 150;
    let reply = md.call(commit).unwrap();
    assert_eq!((reply.attr.size, reply.attr.stored), (200, 150));
    let resized = md.resize(ino, dims("50"), ResizeHow::Truncate).unwrap();
    assert!(resized.clipped);
    assert_eq!(
        (resized.entry.attr.size, resized.entry.attr.stored),
        (50, 50)
    );
    let entry = md.call(op::Clear { ino }).unwrap();
    assert_eq!((entry.attr.size, info(entry).generation), (0, 2));
}

#[test]
fn fixed_dims_stay_when_cleared() {
    let (_service, md) = ready();
    let ino = array(&md, "a", &[4, 4]);
    put(&md, ino, &[0, 0], &[4, 4]).unwrap();
    let now = info(md.call(op::GetAttr { ino }).unwrap());
    assert_eq!(now.truncate(0), Ok(Truncate::Clear));
    let entry = md.call(op::Clear { ino }).unwrap();
    assert_eq!((entry.attr.size, entry.attr.stored), (16, 0));
    let now = info(entry);
    assert!(!now.holds && now.dims.as_slice() == [4, 4]);
    // The object is empty again, so it may get another declaration.
    let change = SpecChange {
        dtype: Some("f8".parse().unwrap()),
        ..SpecChange::default()
    };
    assert_eq!(md.declare(ino, change, None).unwrap().attr.size, 128);
}

#[test]
fn dims_grow_to_their_max_and_no_further() {
    let (_service, md) = ready();
    let ino = file(&md, "a");
    let change = SpecChange {
        dims: Some(dims("2,4")),
        max_dims: Some(parse_max_dims("unlimited,6").unwrap()),
        ..SpecChange::default()
    };
    md.declare(ino, change, None).unwrap();
    put(&md, ino, &[0, 0], &[2, 4]).unwrap();
    let set = |text| md.resize(ino, dims(text), ResizeHow::SetDims);
    assert!(!set("9,6").unwrap().clipped);
    assert!(matches!(set("9,7"), Err(MdError::Invalid(_))));
    assert!(matches!(set("9"), Err(MdError::Invalid(_))));
    assert!(set("1,6").unwrap().clipped);
    let cut = md.resize(ino, dims("1,5"), ResizeHow::Truncate);
    assert!(
        matches!(cut, Err(MdError::Invalid(_))),
        "truncation changes rows only"
    );
    md.resize(ino, dims("3,6"), ResizeHow::Truncate).unwrap();
    let entry = md.call(op::Clear { ino }).unwrap();
    assert_eq!(
        (entry.attr.size, info(entry).dims.as_slice()),
        (0, &[0, 6][..])
    );
}

#[test]
fn bytes_become_an_array() {
    let (_service, md) = ready();
    let ino = file(&md, "a");
    let mut commit = commit_of(&md, ino);
    commit.size_at_least = 16;
    md.call(commit).unwrap();
    let change = SpecChange {
        dims: Some(dims("4,4")),
        ..SpecChange::default()
    };
    assert_eq!(
        md.declare(ino, change.clone(), None),
        Err(MdError::NeedsRewrite)
    );
    let lease = md.call(op::LeaseChunks { count: 1 }).unwrap();
    let mut rewrite = Rewrite {
        if_change: md.call(op::GetAttr { ino }).unwrap().attr.change - 1,
        spare: None,
        records: vec![(slab(&[0, 0], &[4, 4]), stored(&lease, 0))],
    };
    let result = md.declare(ino, change.clone(), Some(rewrite.clone()));
    assert_eq!(result, Err(MdError::Busy), "something changed since");
    rewrite.if_change += 1;
    let entry = md.declare(ino, change, Some(rewrite)).unwrap();
    assert_eq!((entry.attr.size, entry.attr.stored), (16, 16));
    let info = info(entry);
    assert_eq!((info.generation, info.layout), (2, Layout::Aligned));
    let tiling = md.tiling(ino, slabfs_model::Version(0)).unwrap();
    assert!(matches!(tiling, crate::api::TilingReply::All { records, .. } if records.len() == 1));
}

#[test]
fn an_array_moves_to_a_grid() {
    let (_service, md) = ready();
    let ino = array(&md, "a", &[4, 4]);
    put(&md, ino, &[0, 0], &[4, 4]).unwrap();
    let spare = md
        .call(op::SpareGeneration {
            ino,
            placement: Placement::Dynamic,
        })
        .unwrap();
    let change = SpecChange {
        layout: Some("grid:2,2".parse().unwrap()),
        ..SpecChange::default()
    };
    let rewrite = |spare| Rewrite {
        if_change: md.call(op::GetAttr { ino }).unwrap().attr.change,
        spare,
        records: vec![],
    };
    let declare = |rewrite| md.declare(ino, change.clone(), Some(rewrite));
    assert!(matches!(declare(rewrite(None)), Err(MdError::Invalid(_))));
    let wrong = [
        Spare {
            generation: spare.generation + 1,
            ..spare.clone()
        },
        Spare {
            stripe: vec![ServerId(9)],
            ..spare.clone()
        },
        Spare {
            stripe: vec![],
            ..spare.clone()
        },
    ];
    for wrong in wrong {
        assert_eq!(declare(rewrite(Some(wrong))), Err(MdError::Stale));
    }
    let now = info(declare(rewrite(Some(spare.clone()))).unwrap());
    assert_eq!(
        (now.generation, &now.stripe),
        (spare.generation, &spare.stripe)
    );
    assert!(now.is_grid() && now.holds);
    assert_eq!(
        info(md.call(op::Clear { ino }).unwrap()).generation,
        spare.generation + 1
    );
}

#[test]
fn writes_for_an_old_shape_are_refused() {
    let (_service, md) = ready();
    let ino = file(&md, "a");
    let old = commit_of(&md, ino);
    let change = SpecChange {
        dims: Some(dims("4,4")),
        ..SpecChange::default()
    };
    md.declare(ino, change, None).unwrap();
    assert_eq!(md.call(old), Err(MdError::Stale));
}

#[test]
fn directories_are_no_arrays() {
    let (_service, md) = ready();
    assert_eq!(
        md.call(op::Clear {
            ino: crate::api::ROOT
        }),
        Err(MdError::IsDirectory)
    );
    let link = make(&md, crate::api::ROOT, "l", crate::api::Kind::Symlink).unwrap();
    assert!(matches!(
        md.call(op::Clear { ino: link }),
        Err(MdError::Invalid(_))
    ));
}
