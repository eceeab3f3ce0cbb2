//! Every format that can be written is read again as it was; what a format has not is refused by name.

use std::path::Path;

use slabfs_formats::source::open;
use slabfs_formats::tree::{
    Attribute, Exact, Group, Hdf5Value, Link, NamedType, Space, Value, Variable,
};
use slabfs_formats::types::{Hdf5Type, Pad};

mod example;
use example::{example, made, read, write};

fn dtype(text: &str) -> slabfs_model::DType {
    text.parse().expect("a dtype")
}

/// Data that is never the same twice.
fn data(_: &str, variable: &Variable) -> Vec<u8> {
    let bytes = variable.shape().iter().product::<u64>() * variable.dtype.size();
    match variable.exact {
        // Texts are UTF-8, and the padding has no meaning.
        Some(Exact::Strings { .. }) => {
            let text = "ü€".as_bytes();
            let elem = variable.dtype.size() as usize;
            let mut all = vec![0; bytes as usize];
            for (at, one) in all.chunks_exact_mut(elem).enumerate() {
                let len = [0, 2, 5][at % 3].min(elem);
                one[..len].copy_from_slice(&text[..len]);
            }
            all
        }
        _ if variable.dtype == dtype("b1") => (0..bytes).map(|at| at as u8 % 2).collect(),
        _ => (0..bytes).map(|at| (at * 7 % 251) as u8).collect(),
    }
}

fn variables() -> Vec<Variable> {
    let of = |text: &str| Variable::new(format!("v_{}", text.replace('>', "big_")), dtype(text));
    let mut all: Vec<Variable> = [
        "i1", "u2", ">i4", "u8", "f2", ">f4", "f8", "b1", "c8", ">c16", "S1", "S5", "V3",
    ]
    .into_iter()
    .map(|text| of(text).with_axes(&[3, 4, 5]))
    .collect();
    all.push(of("f4").with_axes(&[]));
    all.push(Variable::new("empty", dtype("i2")).with_axes(&[2, 0, 3]));
    all.push(Variable {
        fill: Some(f64::NAN.to_le_bytes().to_vec()),
        ..Variable::new("filled", dtype("f8")).with_axes(&[7])
    });
    all.push(Variable {
        exact: Some(Exact::Strings { utf8: true }),
        ..Variable::new("texts", dtype("S5")).with_axes(&[2, 3])
    });
    all
}

fn attribute(name: &str, value: Value) -> Attribute {
    Attribute {
        name: name.to_owned(),
        value,
    }
}

fn tree(variables: Vec<Variable>) -> Group {
    Group {
        variables,
        attributes: vec![
            attribute("text", Value::Text("größe".to_owned())),
            attribute(
                "numbers",
                Value::Numbers {
                    dtype: dtype("i8"),
                    bytes: [1_i64, -2]
                        .iter()
                        .flat_map(|one| one.to_le_bytes())
                        .collect(),
                },
            ),
        ],
        ..Group::default()
    }
}

/// Writes a tree and returns what is read again.
fn again(name: &str, tree: &Group) -> Group {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(name);
    write(&path, tree, data).expect(name);
    let source = open(&path).expect(name);
    let mut found = source.tree().clone();
    found
        .variables
        .sort_by(|one, other| one.name.cmp(&other.name));
    for variable in &tree.variables {
        let copy = found.variables.iter().find(|one| one.name == variable.name);
        let copy = copy.expect(&variable.name);
        assert_eq!(copy.dtype, variable.dtype, "{name}: {}", variable.name);
        assert_eq!(copy.shape(), variable.shape(), "{name}: {}", variable.name);
        assert_eq!(copy.exact, variable.exact, "{name}: {}", variable.name);
        if variable.fill.is_some() && name != "a.npz" {
            assert_eq!(copy.fill, variable.fill, "{name}: {}", variable.name);
        }
        let same = read(&*source, "", copy) == data("", variable);
        assert!(same, "{name}: {}", variable.name);
    }
    assert_eq!(found.variables.len(), tree.variables.len());
    found
}

#[test]
fn all_dtypes_come_back() {
    for name in ["a.h5", "a.npz", "a.zarr"] {
        let mut variables = variables();
        if name != "a.h5" {
            variables.push(Variable::new("wide", dtype("U3")).with_axes(&[4]));
        }
        if name == "a.npz" {
            // NumPy has no texts of any length.
            variables.retain(|one| one.name != "texts");
        }
        let found = again(name, &tree(variables));
        if name != "a.npz" {
            assert_eq!(found.attributes, tree(Vec::new()).attributes, "{name}");
        }
    }
}

#[test]
fn compressed_chunks_come_back() {
    for shuffle in [true, false] {
        let deflate = Some(slabfs_formats::tree::Deflate { level: 3, shuffle });
        let mut all = variables();
        for variable in &mut all {
            variable.deflate = deflate;
        }
        for name in ["a.h5", "a.zarr"] {
            again(name, &tree(all.clone()));
        }
    }
}

fn named_types() -> Vec<NamedType> {
    let sky = Hdf5Type::Enum {
        base: dtype("u2"),
        members: vec![("Clear".to_owned(), 0), ("Ünknown".to_owned(), 65535)],
    };
    vec![NamedType {
        name: "sky".to_owned(),
        typ: sky,
    }]
}

#[test]
fn types_of_hdf5_come_back() {
    let types = named_types();
    let record = Hdf5Type::Compound {
        len: 12,
        members: vec![
            ("a".to_owned(), 0, Hdf5Type::Number(dtype(">i4"))),
            (
                "b".to_owned(),
                4,
                Hdf5Type::Array {
                    of: Box::new(Hdf5Type::Number(dtype("f4"))),
                    dims: vec![2],
                },
            ),
        ],
    };
    let padded = Hdf5Type::String {
        len: Some(4),
        pad: Pad::SpacePad,
        utf8: true,
    };
    let opaque = Hdf5Type::Opaque {
        len: 3,
        tag: "jpeg".to_owned(),
    };
    let bits = Hdf5Type::Bitfield(dtype("u1"));
    let mut tree = tree(Vec::new());
    for (name, typ) in [
        ("cloud", &types[0].typ),
        ("record", &record),
        ("padded", &padded),
        ("opaque", &opaque),
        ("bits", &bits),
    ] {
        tree.variables.push(Variable {
            exact: Some(Exact::Hdf5(typ.clone())),
            ..Variable::new(name, typ.dtype().expect("a dtype")).with_axes(&[5])
        });
    }
    tree.variables.push(Variable {
        exact: Some(Exact::Null(None)),
        ..Variable::new("nothing", dtype("i2")).with_axes(&[0])
    });
    tree.types = types;
    tree.links = vec![Link {
        name: "link".to_owned(),
        target: "/record".to_owned(),
    }];
    let stored = |typ: &Hdf5Type, space: Space, elements: Value| {
        Value::Hdf5(Box::new(Hdf5Value {
            typ: typ.clone(),
            space,
            elements,
        }))
    };
    tree.attributes = vec![
        attribute(
            "sky",
            stored(
                &tree.types[0].typ,
                Space::Simple(vec![1]),
                Value::Numbers {
                    dtype: dtype("u2"),
                    bytes: vec![255, 255],
                },
            ),
        ),
        attribute(
            "record",
            stored(&record, Space::Scalar, Value::Chars(vec![1; 12])),
        ),
        attribute(
            "none",
            stored(&padded, Space::Null, Value::Chars(Vec::new())),
        ),
        attribute(
            "grid",
            stored(
                &Hdf5Type::Number(dtype("i1")),
                Space::Simple(vec![2, 3]),
                Value::Numbers {
                    dtype: dtype("i1"),
                    bytes: vec![1, 2, 3, 4, 5, 6],
                },
            ),
        ),
    ];
    let found = again("a.h5", &tree);
    assert_eq!(found.types, tree.types);
    assert_eq!(found.links, tree.links);
    assert_eq!(found.attributes, tree.attributes);
    for name in ["b.zarr", "b.npz", "b.nc"] {
        let dir = tempfile::tempdir().expect("a directory");
        let error = write(&dir.path().join(name), &tree, data).expect_err(name);
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(entries(dir.path()), 0, "{name}");
    }
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).expect("listed").count()
}

#[test]
fn groups_and_dims_come_back() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["a.h5", "a.nc", "a.zarr"] {
        let path = dir.path().join(name);
        made(&path);
        let source = open(&path).expect(name);
        let below = &source.tree().groups[0];
        assert_eq!(below.name, "below");
        let names: Vec<&str> = below.variables[0]
            .dims
            .iter()
            .map(|dim| dim.dim.name.as_str())
            .collect();
        assert_eq!(names, ["x", "y"], "{name}");
        assert_eq!(below.variables[0].shape(), [3, 4], "{name}");
    }
    // An old directory is replaced, and only if it is one of Zarr.
    made_again(&dir.path().join("a.zarr"));
    let other = dir.path().join("other.zarr");
    std::fs::create_dir(&other).expect("made");
    let error = write(&other, &example(), data).expect_err("no Zarr directory");
    assert!(error.to_string().contains("other.zarr"), "{error}");
}

fn made_again(path: &Path) {
    std::fs::write(path.join("old"), "old").expect("written");
    let format = slabfs_formats::sink::Format::Zarr;
    let sink = slabfs_formats::sink::create(path, format, &example(), false).expect("created");
    assert!(path.join("old").exists());
    sink.finish().expect("finished");
    assert!(!path.join("old").exists());
    assert!(path.join("zarr.json").exists());
}

#[test]
fn one_array_is_a_npy_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.npy");
    let variable = Variable::new("a", dtype(">u2")).with_axes(&[3, 4]);
    let tree = tree(vec![variable.clone()]);
    let format = slabfs_formats::sink::Format::Npy;
    let mut sink = slabfs_formats::sink::create(&path, format, &tree, true).expect("created");
    for block in sink.boxes("", &variable, 1 << 20) {
        sink.write("", &variable, &block, &data("", &variable))
            .expect("written");
    }
    sink.finish().expect("finished");
    let source = open(&path).expect("opened");
    assert!(source.is_array());
    assert_eq!(source.tree().variables, std::slice::from_ref(&variable));
    assert_eq!(read(&*source, "", &variable), data("", &variable));
}
