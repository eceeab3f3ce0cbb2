//! NetCDF files of the `ferret-datasets` package and made ones: read, written, read again.

use std::path::{Path, PathBuf};

use slabfs_formats::FormatError;
use slabfs_formats::netcdf::{Reader, Writer};
use slabfs_formats::tree::Attribute;

mod example;
use example::{example, made};

/// All data of a file, by the path of the variable.
fn data(reader: &Reader, part: u64) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    reader.tree().each(&mut |path, group| {
        for variable in &group.variables {
            let mut bytes = Vec::new();
            let read = reader.read::<FormatError>(path, variable, part, &mut |offset, part| {
                assert_eq!(offset, bytes.len() as u64);
                bytes.extend_from_slice(part);
                Ok(())
            });
            read.expect("read");
            all.push((format!("{path}/{}", variable.name), bytes));
        }
    });
    all
}

/// Writes what was read, and compares what is read from that.
fn copied(from: &Path) {
    let dir = tempfile::tempdir().expect("a directory");
    let to = dir.path().join("copy.nc");
    let reader = Reader::open(from).expect("opened");
    let before = data(&reader, 1 << 20);
    let mut writer = Writer::create(&to, reader.tree()).expect("created");
    reader.tree().each(&mut |path, group| {
        for variable in &group.variables {
            let (_, bytes) = before
                .iter()
                .find(|(name, _)| *name == format!("{path}/{}", variable.name))
                .expect("read before");
            let shape = variable.shape();
            if shape.contains(&0) {
                continue;
            }
            let start = vec![0; shape.len()];
            let written = writer.write(path, variable, &start, &shape, bytes);
            written.expect("written");
        }
    });
    assert!(!to.exists(), "it appears when it is complete");
    writer.finish().expect("finished");
    let again = Reader::open(&to).expect("opened again");
    assert_eq!(data(&again, 1 << 12), before, "{}", from.display());
    let mut named = Vec::new();
    again
        .tree()
        .each(&mut |path, group| named.push((path.to_owned(), group.clone())));
    reader.tree().each(&mut |path, group| {
        let (_, copy) = named
            .iter()
            .find(|(other, _)| other == path)
            .expect("the group");
        assert_eq!(copy.dims, group.dims, "{}: {path}", from.display());
        assert_eq!(sorted(&copy.attributes), sorted(&group.attributes));
        for (one, other) in copy.variables.iter().zip(&group.variables) {
            assert_eq!(one.name, other.name);
            assert_eq!(one.dtype, other.dtype);
            assert_eq!(one.dims, other.dims);
            assert_eq!(one.fill, other.fill, "{}", one.name);
            assert_eq!(
                sorted(&one.attributes),
                sorted(&other.attributes),
                "{}",
                one.name
            );
        }
    });
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
}

/// Attributes by name: `_FillValue` is set first.
fn sorted(attributes: &[Attribute]) -> Vec<Attribute> {
    let mut sorted = attributes.to_vec();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    sorted
}

#[test]
fn the_datasets_of_ferret() {
    let dir = Path::new("/usr/share/ferret-vis/data");
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .expect("the package ferret-datasets: tools/setup --tests installs it")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|end| end == "nc" || end == "cdf")
        })
        .collect();
    files.sort();
    assert!(files.len() > 5, "{files:?}");
    for file in files {
        copied(&file);
    }
}

#[test]
fn all_types_groups_and_attributes() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("made.nc");
    made(&path);
    copied(&path);
    let read = Reader::open(&path).expect("opened");
    assert_eq!(
        sorted(&read.tree().attributes),
        sorted(&example().attributes)
    );
    assert_eq!(
        read.tree().variables[3].deflate,
        example().variables[3].deflate
    );
    assert_eq!(read.tree().groups[0].variables[0].dims[0].up, 1);
}

#[test]
fn what_is_no_netcdf_file_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("text.nc");
    std::fs::write(&path, "no").expect("written");
    let error = Reader::open(&path).expect_err("no such file").to_string();
    assert!(error.contains("text.nc"), "{error}");
    let error = Reader::open(&dir.path().join("none.nc"))
        .expect_err("none")
        .to_string();
    assert!(error.contains("none.nc"), "{error}");
}
