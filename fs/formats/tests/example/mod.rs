//! Trees to write and to read, with what reads and writes their data. One is a file with groups, an inherited dimension, all types, and attributes of all kinds.

use std::path::Path;

use slabfs_formats::boxes::Boxes;
use slabfs_formats::sink::{Format, create};
use slabfs_formats::source::Source;
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
            dims,
            attributes: attributes.collect(),
            fill,
            ..Variable::new(name, dtype.parse().expect("a type"))
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

/// Writes a tree; `data` has the bytes of a variable.
pub(crate) fn write(
    path: &Path,
    tree: &Group,
    mut data: impl FnMut(&str, &Variable) -> Vec<u8>,
) -> slabfs_formats::Result<()> {
    let format = Format::of(path).expect("an ending that says the format");
    let mut sink = create(path, format, tree, false)?;
    let mut groups = Vec::new();
    tree.each(&mut |path, group| groups.push((path.to_owned(), group)));
    for (group, variable) in groups
        .iter()
        .flat_map(|(path, group)| group.variables.iter().map(move |one| (path, one)))
    {
        let all = data(group, variable);
        let elem = variable.dtype.size() as usize;
        for block in sink.boxes(group, variable, 64) {
            let mut bytes = Vec::new();
            for run in Boxes::within(&block, &variable.shape()) {
                let index = run.offset_in(&variable.shape()).expect("a run") as usize;
                bytes.extend(&all[index * elem..][..run.elements() as usize * elem]);
            }
            sink.write(group, variable, &block, &bytes)?;
        }
    }
    assert!(!path.exists(), "it appears when it is complete");
    sink.finish()
}

/// All data of a variable; what was never written is its fill value, or zero.
pub(crate) fn read(source: &dyn Source, group: &str, variable: &Variable) -> Vec<u8> {
    let elem = variable.dtype.size() as usize;
    let elements = variable.shape().iter().product::<u64>() as usize;
    let zero = vec![0; elem];
    let fill = variable.fill.as_ref().filter(|fill| fill.len() == elem);
    let mut all = fill.unwrap_or(&zero).repeat(elements);
    let mut bytes = Vec::new();
    for block in source.boxes(group, variable, 1 << 16).expect("boxes") {
        source
            .read(group, variable, &block, &mut bytes)
            .expect("read");
        let mut from = bytes.as_slice();
        for run in Boxes::within(&block, &variable.shape()) {
            let index = run.offset_in(&variable.shape()).expect("a run") as usize;
            let (now, rest) = from.split_at(run.elements() as usize * elem);
            all[index * elem..][..now.len()].copy_from_slice(now);
            from = rest;
        }
    }
    all
}

/// Writes [`example`].
pub(crate) fn made(path: &Path) {
    let data = |_: &str, variable: &Variable| {
        let bytes = variable.shape().iter().product::<u64>() * variable.dtype.size();
        (0..bytes).map(|at| at as u8).collect()
    };
    write(path, &example(), data).expect("written");
}
