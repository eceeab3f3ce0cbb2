//! `fsx` (a crate with a binary; Avadis Tevanian's File System eXerciser): random reads, writes,
//! truncates and mappings of one byte object, each compared with memory.

use slabfs_tests::tool::program;
use slabfs_tests::{Cluster, Up, inputs, needs_mount};

fn exercise(object: &std::path::Path, area: &std::path::Path, operations: u32, seed: u32) {
    let config = area.join("fsx.toml");
    std::fs::write(
        &config,
        "flen = 600000\n[opsize]\nmax = 70000\n[weights]\nclose_open = 2\npunch_hole = 1\nread = 10\nwrite = 10\nmapread = 3\nmapwrite = 3\ntruncate = 3\nfsync = 0.2\nfdatasync = 0.2\ninvalidate = 0\nposix_fallocate = 0.5\nsendfile = 2\ncopy_file_range = 2\n",
    )
    .expect("the config");
    let (operations, seed) = (operations.to_string(), seed.to_string());
    program(
        &inputs::fsx().display().to_string(),
        [
            "-q",
            "-N",
            &operations,
            "-S",
            &seed,
            "-P",
            &area.display().to_string(),
            "-f",
            &config.display().to_string(),
            &object.display().to_string(),
        ],
    )
    .ok();
}

#[test]
fn twenty_thousand_operations() {
    needs_mount!();
    let mut up = Up::with(&["--servers", "2"]);
    exercise(&up.at("x"), up.area().path(), 20_000, 7);
    up.restart();
    let size = up.at("x").metadata().expect("still there").len();
    assert_eq!(slabfs_tests::file::read(&up.at("x")).len() as u64, size);
}

#[test]
fn over_sockets() {
    needs_mount!();
    let cluster = Cluster::start(2, 1);
    exercise(&cluster.at(0, "x"), cluster.area().path(), 3_000, 8);
}
