//! A NetCDF-4 file with groups, an inherited dimension, all types, and attributes of all kinds.

use std::path::Path;

use slabfs_formats::netcdf::Writer;
use slabfs_formats::tree::{Attribute, Deflate, Dim, DimRef, Group, Value, Variable};

fn dim(name: &str, len: u64, unlimited: bool) -> Dim {
    let name = name.to_owned();
    Dim {
        name,
        len,
        unlimited,
    }
}

fn number(text: &str, bytes: &[u8]) -> Value {
    Value::Numbers {
        dtype: text.parse().expect("a type"),
        bytes: bytes.to_vec(),
    }
}

/// Groups, an inherited dimension, all types, attributes of all kinds.
pub(crate) fn example() -> Group {
    let (time, x) = (dim("time", 2, true), dim("x", 3, false));
    let of = |dim: &Dim, up| DimRef {
        dim: dim.clone(),
        up,
    };
    let attribute = |name: &str, value| Attribute {
        name: name.to_owned(),
        value,
    };
    let variable = |name: &str, dtype: &str, dims: Vec<DimRef>, fill: Option<Vec<u8>>| {
        let attributes = fill
            .iter()
            .map(|fill| attribute("_FillValue", number(dtype, fill)));
        Variable {
            name: name.to_owned(),
            dtype: dtype.parse().expect("a type"),
            dims,
            attributes: attributes.collect(),
            fill,
            chunk: None,
            deflate: None,
        }
    };
    let types = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"];
    let mut variables: Vec<Variable> = types
        .iter()
        .map(|dtype| {
            let size = dtype[1..].parse().expect("a size");
            variable(
                &format!("v_{dtype}"),
                dtype,
                vec![of(&time, 0), of(&x, 0)],
                Some(vec![7; size]),
            )
        })
        .collect();
    variables[3].chunk = Some(vec![1, 3]);
    variables[3].deflate = Some(Deflate {
        level: 4,
        shuffle: true,
    });
    let below = Group {
        name: "below".to_owned(),
        dims: vec![dim("y", 4, false)],
        variables: vec![variable(
            "z",
            "f8",
            vec![of(&x, 1), of(&dim("y", 4, false), 0)],
            Some(vec![1; 8]),
        )],
        ..Group::default()
    };
    Group {
        dims: vec![time, x],
        attributes: vec![
            attribute("title", Value::Chars("größe".as_bytes().to_vec())),
            attribute(
                "names",
                Value::Strings(vec!["a".into(), String::new(), "ü".into()]),
            ),
            attribute("empty", Value::Chars(Vec::new())),
            attribute("range", number("f4", &[0, 0, 128, 63, 0, 0, 192, 127])),
            attribute("one", number("u8", &[255; 8])),
        ],
        variables,
        groups: vec![below],
        ..Group::default()
    }
}

pub(crate) fn made(path: &Path) {
    let tree = example();
    let mut writer = Writer::create(path, &tree).expect("created");
    tree.each(&mut |path, group| {
        for variable in &group.variables {
            let shape = variable.shape();
            let bytes = shape.iter().product::<u64>() * variable.dtype.size();
            let data: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            writer
                .write(path, variable, &vec![0; shape.len()], &shape, &data)
                .expect("written");
        }
    });
    writer.finish().expect("finished");
}
