//! Attributes, types and trees become tags and come back.

use std::path::Path;

use crate::tree::{Attribute, Exact, Group, Hdf5Value, Link, Space, Value, Variable};
use crate::types::{Hdf5Type, Pad};
use serde_json::{Map, Value as Json, json};
use slabfs_model::{DType, Tag};

use super::attributes::{attributes_of, tags_of};
use super::{exact, order, plan, variable_of};

fn dtype(text: &str) -> DType {
    text.parse().expect("a dtype")
}

/// The tags as a mount returns them.
fn stored(tags: &Map<String, Json>) -> Map<String, Json> {
    let stored = tags.iter().map(|(name, json)| {
        let tag = Tag::from_json(json).expect(name);
        (name.clone(), tag.to_typed_json())
    });
    stored.collect()
}

fn attribute(name: &str, value: Value) -> Attribute {
    Attribute {
        name: name.to_owned(),
        value,
    }
}

fn numbers(text: &str, bytes: &[u8]) -> Value {
    Value::Numbers {
        dtype: dtype(text),
        bytes: bytes.to_vec(),
    }
}

fn hdf5(typ: Hdf5Type, space: Space, elements: Value) -> Value {
    Value::Hdf5(Box::new(Hdf5Value {
        typ,
        space,
        elements,
    }))
}

fn padded() -> Hdf5Type {
    Hdf5Type::String {
        len: Some(3),
        pad: Pad::SpacePad,
        utf8: true,
    }
}

#[test]
fn attributes_come_back() {
    let all = vec![
        attribute("z", Value::Chars("größe".as_bytes().to_vec())),
        attribute("bytes", Value::Chars(vec![0xff, 0])),
        attribute("empty", Value::Chars(Vec::new())),
        attribute("text", Value::Text("123".to_owned())),
        attribute("texts", Value::Strings(vec![String::new(), "ü".to_owned()])),
        attribute("i8", numbers("i8", &i64::MIN.to_le_bytes())),
        attribute("u8", numbers("u8", &[255; 8])),
        attribute("f4", numbers("f4", &f32::NAN.to_le_bytes())),
        attribute("zero", numbers("f8", &(-0.0_f64).to_le_bytes())),
        attribute("list", numbers("i2", &[1, 0, 255, 255])),
        attribute("none", numbers("f8", &[])),
        attribute("null", Value::Json(Json::Null)),
        attribute("mixed", Value::Json(json!([1, 2.5, "a"]))),
        attribute("deep", Value::Json(json!({"a": [[true]]}))),
        attribute("one", Value::Json(json!([1]))),
        attribute(
            "grid",
            hdf5(
                Hdf5Type::Number(dtype(">i2")),
                Space::Simple(vec![1, 2]),
                numbers("i2", &[1, 0, 2, 0]),
            ),
        ),
        attribute(
            "pads",
            hdf5(padded(), Space::Scalar, Value::Chars(b"ab ".to_vec())),
        ),
        attribute(
            "nothing",
            hdf5(padded(), Space::Null, Value::Chars(Vec::new())),
        ),
    ];
    let mut tags = tags_of(&all).expect("tags");
    order::add(&mut tags, &all, std::iter::empty());
    assert_eq!(attributes_of(&stored(&tags)).expect("attributes"), all);
    // A tag that was changed does not fit its form any more.
    tags.insert("pads".to_owned(), json!("new"));
    tags.insert("grid".to_owned(), json!({ "i2[]": "[1,2,3]" }));
    let changed = attributes_of(&stored(&tags)).expect("attributes");
    let value = |name: &str| {
        &changed
            .iter()
            .find(|one| one.name == name)
            .expect(name)
            .value
    };
    assert_eq!(value("pads"), &Value::Text("new".to_owned()));
    assert_eq!(value("grid"), &numbers("i2", &[1, 0, 2, 0, 3, 0]));
}

#[test]
fn many_forms_are_in_several_tags() {
    let all: Vec<Attribute> = (0..4000)
        .map(|at| {
            let value = hdf5(
                padded(),
                Space::Simple(vec![1]),
                Value::Chars(b"abc".to_vec()),
            );
            attribute(&format!("a{at:05}"), value)
        })
        .collect();
    let tags = tags_of(&all).expect("tags");
    assert!(tags.contains_key("_slabfs_attributes_1"));
    assert_eq!(attributes_of(&stored(&tags)).expect("attributes"), all);
}

#[test]
fn names_of_slabfs_are_refused() {
    for name in ["dim_names", "_slabfs_type", "_slabfs_other"] {
        let error = tags_of(&[attribute(name, Value::Text(String::new()))]);
        assert!(error.expect_err(name).to_string().contains(name));
    }
}

#[test]
fn variables_come_back() {
    let sky = Hdf5Type::Enum {
        base: dtype("u2"),
        members: vec![("clear".to_owned(), 0)],
    };
    for (text, exact) in [
        ("u2", Some(Exact::Hdf5(sky))),
        ("S3", Some(Exact::Hdf5(padded()))),
        ("S9", Some(Exact::Strings { utf8: false })),
        ("i8", Some(Exact::Numpy("'<M8[ns]'".to_owned()))),
        (
            "V5",
            Some(Exact::Numpy("[('a', '<i4'), ('b', '|u1')]".to_owned())),
        ),
        ("f4", None),
    ] {
        let mut variable = Variable {
            exact,
            fill: Some(vec![7; dtype(text).size() as usize]),
            max: vec![None, Some(5)],
            ..Variable::new("v", dtype(text)).with_axes(&[2, 3])
        };
        variable.dims[1].dim.name = "x".to_owned();
        let tree = Group {
            variables: vec![variable.clone()],
            ..Group::default()
        };
        let plan = plan(Path::new("a"), &tree).expect("a plan");
        let planned = &plan.arrays[0];
        let mut info = planned.object.clone();
        assert_eq!(info["max_dims"], json!(["unlimited", 5]));
        // As a mount describes it.
        info["max_dims"] = json!([null, 5]);
        let mut found = variable_of("v", &info, &stored(&planned.tags)).expect("a variable");
        assert!(found.dims[0].dim.unlimited);
        found.dims[0].dim.unlimited = false;
        assert_eq!(found, variable);
    }
}

#[test]
fn a_type_that_does_not_fit_the_dtype_is_ignored() {
    let variable = Variable::new("v", dtype("f4")).with_axes(&[2]);
    for exact in [
        Exact::Hdf5(padded()),
        Exact::Strings { utf8: true },
        Exact::Numpy("'<M8[s]'".to_owned()),
        Exact::Null(None),
    ] {
        let tag = exact::tag(&exact);
        assert_eq!(exact::of_tag(&tag, &variable).expect("a tag"), None);
    }
    assert!(exact::of_tag(&json!("no JSON"), &variable).is_err());
    assert!(exact::of_tag(&json!(r#"{"hdf5": {"string": 0}}"#), &variable).is_err());
}

#[test]
fn links_stay_inside() {
    let tree = |target: &str| Group {
        groups: vec![Group {
            name: "g".to_owned(),
            links: vec![Link {
                name: "l".to_owned(),
                target: target.to_owned(),
            }],
            ..Group::default()
        }],
        ..Group::default()
    };
    let absolute = tree("/a/b");
    let planned = plan(Path::new("a"), &absolute).expect("a plan");
    assert_eq!(planned.links, [("g/l".to_owned(), "../a/b".to_owned())]);
    for target in ["", "../../etc/passwd", "/../x"] {
        let tree = tree(target);
        let error = plan(Path::new("a"), &tree).expect_err(target);
        assert!(format!("{error:#}").contains("g/l"), "{error:#}");
    }
}
