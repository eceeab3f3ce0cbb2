//! `fsx` (a crate with a binary; Avadis Tevanian's File System eXerciser): random reads, writes, truncates,
//! holes and mappings of one byte object, each compared with memory. In a soak a hundred thousand.

use slabfs_tests::tool::program;
use slabfs_tests::{Cluster, Up, inputs, needs_mount, soak};

fn exercise(object: &std::path::Path, area: &std::path::Path, operations: u32, seed: u32) {
    let config = area.join("fsx.toml");
    std::fs::write(
        &config,
        "flen = 600000\n[opsize]\nmax = 70000\n[weights]\nclose_open = 2\npunch_hole = 2\nread = 10\nwrite = 10\nmapread = 5\nmapwrite = 5\ntruncate = 3\nfsync = 0.2\nfdatasync = 0.2\ninvalidate = 0.5\nposix_fallocate = 0.5\nsendfile = 2\ncopy_file_range = 2\n",
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
    // As many as fit into the time, on a slow machine too.
    let operations = soak::time().map_or(20_000, |time| {
        time.as_secs().saturating_mul(300).clamp(20_000, 100_000)
    });
    let mut up = Up::with(&["--servers", "2"]);
    exercise(&up.at("x"), up.area().path(), operations as u32, 7);
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
