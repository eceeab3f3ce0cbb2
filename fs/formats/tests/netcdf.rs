//! NetCDF files of the `ferret-datasets` package and made ones: read, written, read again; also by the NetCDF library.

use std::path::{Path, PathBuf};

use slabfs_formats::netcdf;
use slabfs_formats::source::{Source, open};
use slabfs_formats::tree::{Attribute, Group};

mod example;
use example::{example, made, read, write};

/// The groups of a tree with their paths.
fn groups(tree: &Group) -> Vec<(String, &Group)> {
    let mut groups = Vec::new();
    tree.each(&mut |path, group| groups.push((path.to_owned(), group)));
    groups
}

/// Writes what was read, and compares what is read from that, here and by the NetCDF library.
fn copied(from: &Path) {
    let dir = tempfile::tempdir().expect("a directory");
    let to = dir.path().join("copy.nc");
    let source = open(from).expect("opened");
    write(&to, source.tree(), |group, variable| {
        read(&*source, group, variable)
    })
    .expect("written");
    same(from, &*source, &*open(&to).expect("opened again"));
    let library = netcdf::Reader::open(&to).expect("opened by the library");
    same(from, &*source, &library);
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
}

fn same(from: &Path, source: &dyn Source, copy: &dyn Source) {
    let copies = groups(copy.tree());
    for (path, group) in groups(source.tree()) {
        let found = copies.iter().find(|(other, _)| *other == path);
        let (_, copied) = found.expect("the group");
        assert_eq!(copied.dims, group.dims, "{}: {path}", from.display());
        assert_eq!(sorted(&copied.attributes), sorted(&group.attributes));
        assert_eq!(copied.variables.len(), group.variables.len());
        for one in &group.variables {
            let other = copied.variables.iter().find(|other| other.name == one.name);
            let other = other.expect("the variable");
            assert_eq!(one.dtype, other.dtype);
            assert_eq!(one.dims, other.dims);
            assert_eq!(one.fill, other.fill, "{}", one.name);
            assert_eq!(
                sorted(&one.attributes),
                sorted(&other.attributes),
                "{}",
                one.name
            );
            let data = read(source, &path, one) == read(copy, &path, other);
            assert!(data, "{}: {path}/{}", from.display(), one.name);
        }
    }
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
    let source = open(&path).expect("opened");
    let (tree, written) = (source.tree(), example());
    assert_eq!(sorted(&tree.attributes), sorted(&written.attributes));
    let variable = tree.variables.iter().find(|one| one.name == "v_i8");
    let variable = variable.expect("the variable");
    assert_eq!(variable.deflate, written.variables[3].deflate);
    assert_eq!(variable.chunk, Some(vec![1, 3]));
    assert_eq!(tree.groups[0].variables[0].dims[0].up, 1);
}

#[test]
fn what_is_no_netcdf_file_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("text.nc");
    std::fs::write(&path, "no").expect("written");
    for (file, name) in [
        (path, "text.nc"),
        (dir.path().join("none.nc"), "none.nc"),
        (dir.path().to_owned(), "no Zarr directory"),
    ] {
        let Err(error) = open(&file) else {
            panic!("{name} is opened");
        };
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_truncated_classic_file_is_refused() {
    let from = Path::new("/usr/share/ferret-vis/data/coads_climatology.cdf");
    let bytes = std::fs::read(from).expect("the package ferret-datasets");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("short.nc");
    for len in [bytes.len() - 1, bytes.len() / 2, 100] {
        std::fs::write(&path, &bytes[..len]).expect("written");
        let Err(error) = open(&path) else {
            panic!("a file of {len} bytes is opened");
        };
        assert!(error.to_string().contains("short.nc"), "{error}");
    }
}
