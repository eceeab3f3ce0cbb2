//! Which of a container's defaults new objects take, and which they do not.

use slabfs_model::{Coords, DType, MaxDim, Version};

use super::*;
use crate::api::Given;

fn spec(pairs: &[(&str, &str)]) -> SpecChange {
    let mut spec = SpecChange::default();
    for &(key, value) in pairs {
        match key {
            "dtype" => spec.dtype = Some(value.parse().unwrap()),
            "dims" => spec.dims = Some(slabfs_model::parse_dims(value).unwrap()),
            "fill" => spec.fill = Some(value.to_owned()),
            "layout" => spec.layout = Some(value.parse().unwrap()),
            "codec" => spec.codec = Some(value.parse().unwrap()),
            _ => panic!("{key}"),
        }
    }
    spec
}

fn fresh() -> Layout {
    Layout::Grid(Coords::from_slice(&[8 << 20]))
}

fn file() -> ArrayInfo {
    ArrayInfo {
        dtype: DType::BYTE,
        dims: Coords::from_slice(&[0]),
        max_dims: vec![MaxDim::Unlimited],
        fill: Fill::zero(),
        layout: fresh(),
        codec: Codec::None,
        declared: false,
        given: Given::default(),
        holds: false,
        generation: 1,
        placement: slabfs_model::Placement::Dynamic,
        stripe: Vec::new(),
        blocks: None,
        tiling: Version(1),
        chunk_limit: 64 << 20,
        couple: slabfs_model::Coupling::Off,
    }
}

/// dtype, fill, layout and codec of a new object.
fn made(defaults: &[(&str, &str)], change: &[(&str, &str)]) -> [String; 4] {
    let inherited = spec(defaults);
    let made = inherit(&inherited, &SpecChange::default(), &file(), &fresh()).unwrap();
    let (mut info, waits) = (made.0.info, made.1);
    if !change.is_empty() {
        let waits = waits.unwrap_or_default();
        info = inherit(&waits, &spec(change), &info, &fresh())
            .unwrap()
            .0
            .info;
    }
    [
        info.dtype.to_string(),
        info.fill.show(&info.dtype),
        info.layout.to_string(),
        info.codec.to_string(),
    ]
}

#[test]
fn a_file_stays_a_byte_object_and_takes_layout_and_codec() {
    let all = [("dtype", "f4"), ("fill", "nan"), ("codec", "lz4")];
    assert_eq!(made(&all, &[]), ["u1", "0", "aligned", "lz4"]);
    assert_eq!(
        made(&[("layout", "grid:64,64")], &[])[2],
        "grid:8388608",
        "of another rank"
    );
    assert_eq!(made(&[("layout", "grid:4096")], &[])[2], "grid:4096");
}

#[test]
fn an_array_takes_what_was_not_given() {
    let all = [("dtype", "f4"), ("fill", "nan"), ("codec", "lz4")];
    let dims = ("dims", "4,4");
    assert_eq!(made(&all, &[dims]), ["f4", "nan", "aligned", "lz4"]);
    assert_eq!(made(&all, &[dims, ("codec", "none")])[3], "none");
    assert_eq!(made(&all, &[dims, ("fill", "1")])[1], "1");
    // Defaults that conflict with an explicit setting are left out.
    assert_eq!(
        made(&all, &[dims, ("dtype", "i4")]),
        ["i4", "0", "aligned", "lz4"]
    );
    assert_eq!(
        made(&all, &[dims, ("layout", "grid:2,2")]),
        ["f4", "nan", "grid:2,2", "none"]
    );
    let grid = [("layout", "grid:2,2")];
    assert_eq!(made(&grid, &[dims])[2], "grid:2,2");
    assert_eq!(made(&grid, &[("dims", "4,4,4")])[2], "aligned");
    assert_eq!(made(&grid, &[dims, ("codec", "lz4")])[2], "aligned");
}

#[test]
fn invalid_settings_are_refused() {
    let inherited = spec(&[("dtype", "f4"), ("layout", "grid:2,2")]);
    let wrong = spec(&[("dims", "4,4"), ("fill", "red")]);
    let error = inherit(&inherited, &wrong, &file(), &fresh()).unwrap_err();
    assert!(matches!(error, SpecError::Fill(_)), "{error}");
}

#[test]
fn properties_one_by_one() {
    let inherited = spec(&[("dtype", "f4"), ("codec", "lz4")]);
    let (made, waits) = inherit(&inherited, &SpecChange::default(), &file(), &fresh()).unwrap();
    let coded = spec(&[("codec", "none")]);
    let (made, waits) = inherit(&waits.unwrap(), &coded, &made.info, &fresh()).unwrap();
    assert_eq!(made.plan, SpecPlan::InPlace);
    let shaped = spec(&[("dims", "3")]);
    let (made, waits) = inherit(&waits.unwrap(), &shaped, &made.info, &fresh()).unwrap();
    assert_eq!(
        (made.info.dtype.to_string(), waits),
        ("f4".to_owned(), None)
    );
    assert!(made.info.codec.is_none());
}

#[test]
fn defaults_are_checked_and_cleared() {
    let set = |pairs: &[(&str, &str)], tags: &[(&str, i64)]| DefaultsChange {
        clear: Vec::new(),
        set: Defaults {
            spec: spec(pairs),
            tags: tags
                .iter()
                .map(|&(key, value)| (key.to_owned(), Tag::int(value)))
                .collect(),
        },
    };
    let none = Defaults::default();
    for wrong in [
        set(&[("dims", "4")], &[]),
        set(&[("dtype", "f4"), ("fill", "red")], &[]),
        set(&[("layout", "canonical"), ("codec", "lz4")], &[]),
        set(&[], &[("slabfs.x", 1)]),
    ] {
        let error = none.changed(&wrong).unwrap_err();
        assert!(matches!(error, MdError::Invalid(_)), "{error}");
    }
    let some = none
        .changed(&set(&[("dtype", "f4")], &[("b", 1), ("a", 2)]))
        .unwrap();
    let more = some
        .changed(&set(&[("codec", "lz4")], &[("b", 3)]))
        .unwrap();
    assert_eq!(
        more.tags,
        [("a".to_owned(), Tag::int(2)), ("b".to_owned(), Tag::int(3))]
    );
    assert!(more.spec.dtype.is_some() && more.spec.codec.is_some());
    let clear = |clear: Vec<DefaultKey>| DefaultsChange {
        clear,
        set: Defaults::default(),
    };
    let fewer = more
        .changed(&clear(vec![DefaultKey::Dtype, DefaultKey::Tag("a".into())]))
        .unwrap();
    assert_eq!((fewer.spec.dtype, fewer.tags.len()), (None, 1));
    assert!(
        fewer
            .changed(&clear(vec![DefaultKey::All]))
            .unwrap()
            .is_empty()
    );
}
