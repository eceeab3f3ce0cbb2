//! Tests of the names, values and listing of attributes.

use slabfs_mdserver::api::{Given as GivenParts, Kind, Time};
use slabfs_model::{Fill, ObjectId, Version};

use super::*;

fn info(dtype: &str, dims: &[u64]) -> ArrayInfo {
    ArrayInfo {
        dtype: dtype.parse().unwrap(),
        dims: Coords::from_slice(dims),
        max_dims: dims.iter().map(|&dim| MaxDim::Fixed(dim)).collect(),
        fill: Fill::zero(),
        layout: Layout::Aligned,
        codec: Codec::None,
        declared: true,
        given: GivenParts::default(),
        holds: false,
        generation: 0,
        placement: slabfs_model::Placement::Dynamic,
        stripe: Vec::new(),
        blocks: None,
        tiling: Version(0),
        chunk_limit: 1 << 26,
        couple: slabfs_model::Coupling::Off,
    }
}

fn attr() -> Attr {
    Attr {
        ino: ObjectId(9),
        kind: Kind::Object,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 1024,
        stored: 512,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
        crtime: Time::default(),
        change: 77,
    }
}

fn read(attribute: Attribute, info: &ArrayInfo) -> String {
    String::from_utf8(attribute.read(&attr(), info, 4).unwrap()).unwrap()
}

fn declared(attribute: Attribute, value: &str) -> SpecChange {
    match attribute.set(value.as_bytes()).unwrap() {
        Change::Declare(change) => change,
        Change::Resize(_) => panic!("a resize"),
    }
}

#[test]
fn every_name_has_an_owner() {
    assert_eq!(owner(b"user.slabfs.dims"), Owner::Slabfs(Attribute::Dims));
    assert_eq!(owner(b"user.slabfs.dim"), Owner::Unknown);
    assert_eq!(owner(b"user.project"), Owner::Stored);
    assert_eq!(owner(b"trusted.overlay.opaque"), Owner::Stored);
    assert_eq!(owner(b"security.capability"), Owner::Security);
    assert_eq!(owner(b"system.posix_acl_access"), Owner::Foreign);
    assert_eq!(owner(b"nonsense"), Owner::Foreign);
    for (name, attribute) in TABLE {
        assert_eq!(attribute.name(), name);
    }
}

#[test]
fn values_read_back_as_they_were_set() {
    let mut info = info("f4", &[16, 16]);
    info.max_dims[0] = MaxDim::Unlimited;
    assert_eq!(read(Attribute::Dims, &info), "16,16");
    assert_eq!(read(Attribute::MaxDims, &info), "unlimited,16");
    assert_eq!(read(Attribute::Version, &info), "77");
    assert_eq!(read(Attribute::Chunks, &info), "4");
    assert!(Attribute::Resize.read(&attr(), &info, 4).is_none());
    let change = declared(Attribute::Spec, &read(Attribute::Spec, &info));
    assert_eq!(change.dtype, Some(info.dtype));
    assert_eq!(change.dims, Some(info.dims.clone()));
    assert_eq!(change.max_dims, Some(info.max_dims.clone()));
    assert_eq!(change.fill.as_deref(), Some("0"));
    assert_eq!(change.layout, Some(Layout::Aligned));
    assert_eq!(change.codec, Some(Codec::None));
    let json: Value = serde_json::from_str(&read(Attribute::Info, &info)).unwrap();
    assert_eq!(json["dims"], serde_json::json!([16, 16]));
    assert_eq!(json["max_dims"], serde_json::json!([null, 16]));
    assert_eq!(json["chunks"], 4);
    assert_eq!(json["kind"], "array");
}

#[test]
fn one_attribute_changes_one_thing() {
    let change = declared(Attribute::Dims, "10, 9\n");
    assert_eq!(
        change,
        SpecChange {
            dims: Some(Coords::from_slice(&[10, 9])),
            ..Default::default()
        }
    );
    let change = declared(Attribute::Fill, "nan");
    assert_eq!(
        change,
        SpecChange {
            fill: Some("nan".into()),
            ..Default::default()
        }
    );
    assert_eq!(
        Attribute::Resize.set(b"3,4").unwrap(),
        Change::Resize(Coords::from_slice(&[3, 4]))
    );
}

#[test]
fn a_spec_takes_texts_and_json() {
    let change = declared(
        Attribute::Spec,
        r#"{"dtype":"i8","dims":[2,3],"max_dims":[null,3],"fill":-1,"layout":null}"#,
    );
    assert_eq!(change.dims, Some(Coords::from_slice(&[2, 3])));
    assert_eq!(
        change.max_dims,
        Some(vec![MaxDim::Unlimited, MaxDim::Fixed(3)])
    );
    assert_eq!(change.fill.as_deref(), Some("-1"));
    assert_eq!(change.layout, None);
    assert_eq!(
        declared(Attribute::Spec, r#"{"dims":[]}"#).dims,
        Some(Coords::new())
    );
    for bad in [
        "16,16",
        "[]",
        r#"{"dim":"3"}"#,
        r#"{"info":"x"}"#,
        r#"{"dims":true}"#,
        r#"{"dims":"x"}"#,
    ] {
        assert!(
            matches!(
                Attribute::Spec.set(bad.as_bytes()),
                Err(AttributeError::Malformed { .. })
            ),
            "{bad}"
        );
    }
}

#[test]
fn errors_name_the_attribute() {
    let text = Attribute::Dims.set(b"16x16").unwrap_err().to_string();
    assert!(
        text.contains("user.slabfs.dims") && text.contains("16,16"),
        "{text}"
    );
    assert_eq!(
        Attribute::Info.set(b"{}"),
        Err(AttributeError::ReadOnly("info"))
    );
    assert!(Attribute::Dtype.set(b"\xff").is_err());
}

#[test]
fn the_listing_is_what_a_copy_needs() {
    let mut plain = info("u1", &[100]);
    plain.declared = false;
    plain.layout = Layout::Canonical;
    assert!(listed(&plain).is_empty());
    plain.given.layout = true;
    plain.codec = "zstd:3".parse().unwrap();
    assert_eq!(listed(&plain), ["user.slabfs.layout", "user.slabfs.codec"]);
    let mut array = info("f4", &[16, 16]);
    array.max_dims[0] = MaxDim::Unlimited;
    array.given.layout = true;
    assert_eq!(listed(&array), ["user.slabfs.spec"]);
}

#[test]
fn a_selection_has_its_own_dims() {
    let info = info("f4", &[16, 16]);
    assert_eq!(
        Attribute::Dims.read_selection(&info, &[10, 9]).unwrap(),
        b"10,9"
    );
    assert_eq!(
        Attribute::Dtype.read_selection(&info, &[10, 9]).unwrap(),
        b"f4"
    );
    assert!(Attribute::Chunks.read_selection(&info, &[10, 9]).is_none());
    let spec = Attribute::Spec.read_selection(&info, &[10, 9]).unwrap();
    let spec: Value = serde_json::from_slice(&spec).unwrap();
    assert_eq!(spec["dims"], "10,9");
    assert_eq!(spec["max_dims"], "10,9");
}
