//! The file of a view: what is laid out and the elements, put together, are a file that the reader opens.

use std::io::Write;

use slabfs_formats::h5::skeleton;
use slabfs_formats::source::open;
use slabfs_formats::tree::{Attribute, Dim, DimRef, Group, Value, Variable};

fn variable(name: &str, dtype: &str, dims: &[(&str, u64)], up: usize) -> Variable {
    let dims = dims.iter().map(|&(name, len)| DimRef {
        dim: Dim {
            name: name.to_owned(),
            len,
            unlimited: name == "time",
        },
        up,
    });
    Variable {
        dims: dims.collect(),
        attributes: vec![Attribute {
            name: "units".to_owned(),
            value: Value::Text("K".to_owned()),
        }],
        ..Variable::new(name, dtype.parse().expect("a dtype"))
    }
}

#[test]
fn elements_have_their_places() {
    let dim = |name: &str, len, unlimited| Dim {
        name: name.to_owned(),
        len,
        unlimited,
    };
    let tree = Group {
        dims: vec![dim("time", 3, true), dim("x", 1000, false)],
        variables: vec![
            variable("time", "f8", &[("time", 3)], 0),
            variable("temp", "f4", &[("time", 3), ("x", 1000)], 0),
            variable("scalar", ">i2", &[], 0),
        ],
        groups: vec![Group {
            name: "below".to_owned(),
            variables: vec![variable("deep", "u1", &[("x", 1000)], 1)],
            // No type of HDF5 has this.
            attributes: vec![Attribute {
                name: "nested".to_owned(),
                value: Value::Json(serde_json::json!({"a": [1]})),
            }],
            ..Group::default()
        }],
        ..Group::default()
    };
    let laid = skeleton(&tree).expect("laid out");
    let mut names: Vec<&str> = laid
        .elements
        .iter()
        .map(|(path, _)| path.as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["below/deep", "scalar", "temp", "time"]);

    let mut bytes = vec![0; laid.size as usize];
    for (at, part) in &laid.parts {
        bytes[*at as usize..*at as usize + part.len()].copy_from_slice(part);
    }
    let content = |path: &str| -> Vec<u8> {
        let (len, seed) = match path {
            "time" => (24, 1),
            "temp" => (12_000, 2),
            "scalar" => (2, 3),
            _ => (1000, 4),
        };
        (0..len).map(|at: usize| (at * 7 + seed) as u8).collect()
    };
    for (path, at) in &laid.elements {
        let content = content(path);
        bytes[*at as usize..*at as usize + content.len()].copy_from_slice(&content);
    }
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&bytes).expect("written");
    let source = open(file.path()).expect("opened");
    let mut read = Vec::new();
    source.tree().each(&mut |path, group| {
        assert_eq!(group.attributes.len(), 0, "{path}");
        for variable in &group.variables {
            let name = match path {
                "" => variable.name.clone(),
                path => format!("{path}/{}", variable.name),
            };
            let mut all = Vec::new();
            let boxes = source.boxes(path, variable, 1 << 20).expect("boxes");
            for block in boxes {
                let mut part = Vec::new();
                source
                    .read(path, variable, &block, &mut part)
                    .expect("read");
                all.extend(part);
            }
            assert_eq!(all, content(&name), "{name}");
            assert_eq!(variable.attributes.len(), 1);
            read.push(name);
        }
    });
    assert_eq!(read.len(), 4);
    let temp = source
        .tree()
        .variables
        .iter()
        .find(|one| one.name == "temp");
    let dims = &temp.expect("temp").dims;
    let names: Vec<&str> = dims.iter().map(|dim| dim.dim.name.as_str()).collect();
    assert_eq!(names, ["time", "x"]);
}
