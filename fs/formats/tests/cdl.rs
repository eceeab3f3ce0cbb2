//! Compares CDL with that of `ncdump`. A binary of its own: a process that is started inherits the descriptors of files that
//! other tests have open, and with them the locks of the HDF5 library.

use slabfs_formats::source::open;

#[allow(dead_code)]
mod example;
use example::made;

#[test]
fn cdl_is_that_of_ncdump() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("made.nc");
    made(&path);
    let dumped = std::process::Command::new("ncdump")
        .arg("-h")
        .arg(&path)
        .output();
    let dumped = String::from_utf8(dumped.expect("ncdump runs").stdout).expect("text");
    let shown = slabfs_datamodel::cdl::show("made", open(&path).expect("opened").tree());
    let lines =
        |text: &str| -> Vec<String> { text.lines().map(|line| line.trim().to_owned()).collect() };
    assert_eq!(lines(&shown), lines(&dumped));
}
