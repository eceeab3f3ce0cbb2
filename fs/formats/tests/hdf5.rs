//! The wrappers of the HDF5 library: what is written is read again, and chunks are found where they are stored.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt;
use std::path::Path;

use slabfs_formats::hdf5::{
    Attributed, Class, Create, Creation, Datatype, File, Filter, Layout, Space, Target, Time,
};

fn f4(path: &Path, big: bool) -> Datatype {
    Datatype::number(path, Class::Float, 4, big).unwrap()
}

/// A new file in a directory that goes with the test.
fn new(name: &str) -> (tempfile::TempDir, std::path::PathBuf, File) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    let file = File::create(&path, &path, Create::default()).unwrap();
    (dir, path, file)
}

#[test]
fn groups_attributes_and_types_come_back() {
    let (_dir, path, file) = new("a.h5");
    let root = file.root().unwrap();
    let group = root.create_group("zonal").unwrap();
    root.create_group("änders").unwrap();
    let big = Datatype::number(&path, Class::Integer { signed: true }, 2, true).unwrap();
    group
        .put_attribute("n", &big, &Space::fixed(&[2]), &[0, 1, 0, 2])
        .unwrap();
    group
        .put_attribute("empty", &big, &Space::fixed(&[0]), &[])
        .unwrap();
    group
        .put_attribute("null", &big, &Space::Null, &[])
        .unwrap();
    let texts = [b"one".to_vec(), b"".to_vec()];
    group
        .put_texts("texts", &Space::fixed(&[2]), &texts)
        .unwrap();
    let fixed = Datatype::text(&path, Some(5), false).unwrap();
    group
        .put_attribute("fixed", &fixed, &Space::Scalar, b"abc\0\0")
        .unwrap();
    let wrong = group
        .put_attribute("n", &big, &Space::Scalar, &[0, 1])
        .unwrap_err();
    assert!(wrong.to_string().contains("attribute n"), "{wrong}");
    file.close().unwrap();

    let file = File::open(&path).unwrap();
    let root = file.root().unwrap();
    let links = root.links().unwrap();
    let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["zonal", "änders"], "in the order of creation");
    assert!(matches!(links[0].target, Target::Group(_)));
    let group = root.group("zonal").unwrap();
    assert_eq!(
        group.attribute_names().unwrap(),
        ["n", "empty", "null", "texts", "fixed"]
    );
    let n = group.attribute("n").unwrap().unwrap();
    assert_eq!(n.read().unwrap(), [0, 1, 0, 2]);
    let datatype = n.datatype().unwrap();
    assert_eq!(datatype.class().unwrap(), Class::Integer { signed: true });
    assert!(datatype.is_big_endian() && datatype.size().unwrap() == 2);
    let decoded = Datatype::decode(&path, &datatype.encode().unwrap()).unwrap();
    assert!(decoded.equals(&datatype).unwrap());
    assert!(
        !decoded
            .equals(&datatype.with_order(false).unwrap())
            .unwrap()
    );
    let texts = group.attribute("texts").unwrap().unwrap();
    assert_eq!(
        texts.read_texts().unwrap(),
        [Some(b"one".to_vec()), Some(Vec::new())]
    );
    assert!(!texts.datatype().unwrap().is_flat().unwrap());
    let fixed = group.attribute("fixed").unwrap().unwrap();
    assert_eq!(fixed.read_texts().unwrap(), [Some(b"abc".to_vec())]);
    assert_eq!(
        group.attribute("null").unwrap().unwrap().space().unwrap(),
        Space::Null
    );
    assert!(group.attribute("none").unwrap().is_none());

    let (_copy, _, copy) = new("b.h5");
    let to = copy.root().unwrap();
    for name in group.attribute_names().unwrap() {
        let attribute = group.attribute(&name).unwrap().unwrap();
        attribute
            .copy_to(&to, &attribute.datatype().unwrap())
            .unwrap();
    }
    let texts = to.attribute("texts").unwrap().unwrap();
    assert_eq!(texts.read_texts().unwrap()[0], Some(b"one".to_vec()));
}

#[test]
fn chunks_are_where_the_index_says() {
    let (_dir, path, file) = new("a.h5");
    let root = file.root().unwrap();
    let creation = Creation::new(&path).unwrap();
    creation.set_chunk(&[2, 3]).unwrap();
    let deflate = Filter {
        id: Filter::DEFLATE,
        flags: 1,
        values: vec![4],
    };
    creation
        .set_filters(std::slice::from_ref(&deflate))
        .unwrap();
    creation
        .set_fill(&f4(&path, true), &7_f32.to_be_bytes())
        .unwrap();
    creation.set_fill_time(Time::Default).unwrap();
    let space = Space::Simple {
        dims: vec![4, 3000],
        max_dims: vec![None, Some(3000)],
    };
    let data = root
        .create_dataset("t", &f4(&path, true), &space, &creation)
        .unwrap();
    // Every other chunk is stored as it is, which its mask says.
    for at in (0..1000_u64).step_by(2) {
        let chunk: Vec<u8> = (0..6)
            .flat_map(|i| ((at * 6 + i) as f32).to_be_bytes())
            .collect();
        data.write_chunk(&[2, at * 3], 1, &chunk).unwrap();
    }
    assert!(data.write_chunk(&[0], 1, &[0]).is_err());
    drop(data);
    file.close().unwrap();

    let file = File::open(&path).unwrap();
    let data = file.root().unwrap().dataset("t").unwrap();
    assert_eq!(data.space().unwrap(), space);
    let creation = data.creation().unwrap();
    assert_eq!(creation.layout().unwrap(), Layout::Chunked);
    assert_eq!(creation.filters().unwrap(), [deflate]);
    assert_eq!(
        creation.fill(&f4(&path, true)).unwrap().unwrap(),
        7_f32.to_be_bytes()
    );
    let base = file.base().unwrap();
    assert_eq!(base, Some(0));
    let fast = data.chunks(base).unwrap();
    assert_eq!(
        fast,
        data.chunks(None).unwrap(),
        "as the library lists them"
    );
    assert_eq!(fast.len(), 500);
    let open = std::fs::File::open(&path).unwrap();
    for chunk in &fast {
        let (bytes, mask) = data.read_chunk(&chunk.offset).unwrap().unwrap();
        let mut again = vec![0; chunk.size as usize];
        open.read_exact_at(&mut again, chunk.address).unwrap();
        assert_eq!((bytes, mask), (again, chunk.mask));
    }
    assert!(data.read_chunk(&[0, 0]).unwrap().is_none());
    let mut out = vec![0; 4 * 4 * 6];
    data.read(&f4(&path, false), &[0, 6], &[4, 6], &mut out)
        .unwrap();
    let values: Vec<f32> = out
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&one| f32::from_le_bytes(one))
        .collect();
    let expected: Vec<f32> = (0..24)
        .map(|at| match (at / 6, at % 6) {
            (row @ 2.., column @ ..3) => (12 + (row - 2) * 3 + column) as f32,
            _ => 7.0,
        })
        .collect();
    assert_eq!(values, expected);
    assert!(
        data.read(&f4(&path, false), &[0, 0], &[4, 6], &mut out[1..])
            .is_err()
    );
}

#[test]
fn unknown_filters_are_stood_in_for() {
    let (_dir, path, file) = new("a.h5");
    let odd = Filter {
        id: 40_000,
        flags: 0,
        values: vec![1, 2, 3],
    };
    assert!(!odd.is_available());
    let creation = Creation::new(&path).unwrap();
    creation.set_chunk(&[4]).unwrap();
    creation.set_filters(std::slice::from_ref(&odd)).unwrap();
    let root = file.root().unwrap();
    let (datatype, space) = (f4(&path, false), Space::fixed(&[8]));
    let refused = root
        .create_dataset("t", &datatype, &space, &creation)
        .unwrap_err();
    assert!(refused.to_string().contains("filter"), "{refused}");
    odd.stand_in(&path).unwrap();
    let data = root
        .create_dataset("t", &datatype, &space, &creation)
        .unwrap();
    data.write_chunk(&[4], 0, b"odd").unwrap();
    drop(data);
    file.close().unwrap();
    let data = File::open(&path)
        .unwrap()
        .root()
        .unwrap()
        .dataset("t")
        .unwrap();
    assert_eq!(data.creation().unwrap().filters().unwrap(), [odd]);
    assert_eq!(
        data.read_chunk(&[4]).unwrap().unwrap(),
        (b"odd".to_vec(), 0)
    );
    assert!(data.read(&datatype, &[4], &[4], &mut [0; 16]).is_err());
}

#[test]
fn errors_name_the_file_and_print_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text.h5");
    std::fs::write(&path, "no HDF5").unwrap();
    let error = File::open(&path).unwrap_err().to_string();
    assert!(
        error.contains("text.h5") && error.contains("signature"),
        "{error}"
    );
    let error = File::open(&dir.path().join("none.h5"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("No such file"), "{error}");
}
