//! The rules of [`SpecChange::resolve`], one by one.

use super::*;
use crate::api::{ArrayInfo, Given, Truncate};
use slabfs_model::{Version, parse_dims, parse_max_dims};

fn bytes(size: u64) -> ArrayInfo {
    ArrayInfo {
        dtype: DType::BYTE,
        dims: Coords::from_slice(&[size]),
        max_dims: vec![MaxDim::Unlimited],
        fill: Fill::zero(),
        layout: Layout::Grid(Coords::from_slice(&[8 << 20])),
        codec: Codec::None,
        declared: false,
        given: Given::default(),
        holds: size > 0,
        generation: 1,
        placement: slabfs_model::Placement::Dynamic,
        stripe: Vec::new(),
        blocks: None,
        tiling: Version(1),
        chunk_limit: 64 << 20,
        couple: slabfs_model::Coupling::Off,
    }
}

fn change(text: &str) -> SpecChange {
    let mut change = SpecChange::default();
    for item in text.split_whitespace() {
        let (name, value) = item.split_once('=').unwrap();
        match name {
            "dtype" => change.dtype = Some(value.parse().unwrap()),
            "dims" => change.dims = Some(parse_dims(value).unwrap()),
            "max" => change.max_dims = Some(parse_max_dims(value).unwrap()),
            "fill" => change.fill = Some(value.to_owned()),
            "layout" => change.layout = Some(value.parse().unwrap()),
            "codec" => change.codec = Some(value.parse().unwrap()),
            "couple" => change.couple = Some(format!("keep={value}").parse().unwrap()),
            other => panic!("{other}"),
        }
    }
    change
}

fn resolve(now: &ArrayInfo, text: &str) -> Result<Resolved, SpecError> {
    change(text).resolve(now)
}

fn set(now: &ArrayInfo, text: &str) -> ArrayInfo {
    resolve(now, text).unwrap().info
}

#[test]
fn empty_objects_take_anything_in_any_order() {
    let one = set(&bytes(0), "dtype=f4 dims=16,16");
    let two = set(&set(&bytes(0), "dtype=f4"), "dims=16,16");
    let three = set(&set(&bytes(0), "dims=16,16"), "dtype=f4");
    assert_eq!(one, two);
    assert_eq!(one, three);
    assert_eq!(one.size(), Ok(1024));
    assert_eq!(one.layout, Layout::Aligned);
    assert_eq!(one.max_dims, vec![MaxDim::Fixed(16); 2]);
}

#[test]
fn dims_can_be_set_again_while_empty() {
    let info = set(&set(&bytes(0), "dims=4,4"), "dims=2,2,2");
    assert_eq!(info.dims.as_slice(), [2, 2, 2]);
    assert_eq!(info.max_dims, vec![MaxDim::Fixed(2); 3]);
}

#[test]
fn given_max_dims_stay() {
    let info = set(&set(&bytes(0), "max=unlimited,16"), "dims=3,16");
    assert_eq!(info.max_dims, vec![MaxDim::Unlimited, MaxDim::Fixed(16)]);
    assert!(matches!(
        resolve(&info, "dims=3,17"),
        Err(SpecError::AboveMax {
            axis: 1,
            dim: 17,
            max: 16
        })
    ));
    assert!(matches!(
        resolve(&info, "dims=3"),
        Err(SpecError::MaxRank { .. })
    ));
    assert_eq!(set(&bytes(0), "max=unlimited,16").dims.as_slice(), [0, 16]);
}

#[test]
fn data_becomes_an_array_when_the_bytes_fit() {
    let resolved = resolve(&bytes(1024), "dtype=f4").unwrap();
    assert_eq!(resolved.plan, SpecPlan::Rewrite);
    assert_eq!(resolved.info.dims.as_slice(), [256]);
    let resolved = resolve(&resolved.info, "dims=16,16").unwrap();
    assert_eq!(resolved.plan, SpecPlan::Rewrite);
    assert_eq!(resolved.info.max_dims, vec![MaxDim::Fixed(16); 2]);
    assert!(matches!(
        resolve(&bytes(1024), "dims=16,16"),
        Err(SpecError::Bytes {
            wanted: 256,
            size: 1024,
            ..
        })
    ));
    assert!(matches!(
        resolve(&bytes(1023), "dtype=f4"),
        Err(SpecError::PartOfElement { .. })
    ));
}

#[test]
fn an_array_with_data_keeps_its_dims() {
    let mut info = set(&bytes(0), "dtype=f4 dims=16,16");
    info.holds = true;
    assert_eq!(
        resolve(&info, "dims=16,16").unwrap().plan,
        SpecPlan::Nothing
    );
    assert!(matches!(
        resolve(&info, "dims=8,32"),
        Err(SpecError::HasDims { .. })
    ));
    assert!(matches!(
        resolve(&info, "dtype=f8"),
        Err(SpecError::HasDtype { .. })
    ));
    assert_eq!(resolve(&info, "dtype=i4").unwrap().plan, SpecPlan::InPlace);
    assert_eq!(
        resolve(&info, "max=unlimited,16").unwrap().plan,
        SpecPlan::InPlace
    );
    assert_eq!(
        resolve(&info, "codec=zstd:3").unwrap().plan,
        SpecPlan::InPlace
    );
    assert_eq!(
        resolve(&info, "layout=grid:8,8").unwrap().plan,
        SpecPlan::Rewrite
    );
    assert_eq!(resolve(&info, "fill=1.5").unwrap().plan, SpecPlan::Rewrite);
}

#[test]
fn layouts_and_codecs_must_fit() {
    let now = bytes(0);
    assert!(matches!(
        resolve(&now, "dims=4,4 layout=grid:2"),
        Err(SpecError::LayoutRank { .. })
    ));
    assert!(matches!(
        resolve(&now, "dims=4,4 layout=grid:2,2 codec=lz4"),
        Err(SpecError::CodecOfGrid { .. })
    ));
    assert!(matches!(
        resolve(&now, "dims=4 layout=grid:9999999999"),
        Err(SpecError::ChunkSize { .. })
    ));
    let coded = set(&now, "codec=lz4");
    assert!(!coded.declared);
    assert_eq!(coded.layout, Layout::Aligned);
}

#[test]
fn objects_coupled_in_memory_are_aligned() {
    let coupled = set(&bytes(0), "couple=memory");
    assert_eq!(coupled.layout, Layout::Aligned);
    assert!(!coupled.declared && !coupled.given.layout && coupled.couple.is_in_memory());
    let file = set(&bytes(10), "couple=file");
    assert!(matches!(file.layout, Layout::Grid(_)));
    for (now, wanted) in [
        (bytes(10), "couple=memory"),
        (set(&bytes(0), "layout=canonical"), "couple=memory"),
        (bytes(0), "dims=4 couple=memory layout=grid:2"),
    ] {
        assert!(matches!(
            resolve(&now, wanted),
            Err(SpecError::CoupleOfGrid { .. })
        ));
    }
}

#[test]
fn fills_need_a_dtype() {
    assert!(matches!(
        resolve(&bytes(0), "fill=1"),
        Err(SpecError::FillOfBytes)
    ));
    let info = set(&bytes(0), "dtype=f4 dims=2 fill=1.5");
    assert!(!info.fill.is_zero());
    assert!(matches!(
        resolve(&info, "dtype=f8"),
        Err(SpecError::FillOfOtherDtype { .. })
    ));
    assert!(resolve(&info, "dtype=f8 fill=2").is_ok());
}

#[test]
fn sizes_are_checked() {
    assert!(matches!(
        resolve(&bytes(0), "dims=4294967296,4294967296"),
        Err(SpecError::TooLarge)
    ));
    assert_eq!(set(&bytes(0), "dims=0,5").size(), Ok(0));
    assert_eq!(set(&bytes(0), "dims=scalar dtype=f8").size(), Ok(8));
}

#[test]
fn truncation() {
    let fixed = set(&bytes(0), "dtype=f4 dims=4,4");
    assert_eq!(fixed.truncate(0), Ok(Truncate::Clear));
    assert_eq!(fixed.truncate(64), Ok(Truncate::Nothing));
    assert_eq!(fixed.truncate(60), Err(SpecError::FixedSize { size: 64 }));
    assert_eq!(fixed.grown_to(64), Ok(None));
    assert_eq!(fixed.grown_to(65), Err(SpecError::PastEnd { size: 64 }));

    let rows = set(&bytes(0), "dtype=f4 dims=4,4 max=unlimited,4");
    assert_eq!(rows.grown_to(65), Ok(Some(Coords::from_slice(&[5, 4]))));
    assert_eq!(
        rows.truncate(32),
        Ok(Truncate::Dims(Coords::from_slice(&[2, 4])))
    );
    assert_eq!(rows.truncate(33), Err(SpecError::PartOfRow { row: 16 }));

    assert_eq!(
        bytes(10).truncate(3),
        Ok(Truncate::Dims(Coords::from_slice(&[3])))
    );
    assert_eq!(bytes(10).truncate(0), Ok(Truncate::Clear));
    assert_eq!(bytes(0).truncate(0), Ok(Truncate::Nothing));
}
