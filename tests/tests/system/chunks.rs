//! Chunks that are stored as they are encoded, and read as they are stored (`docs/formats/chunk-stream.md`).

use std::path::Path;

use slabfs_tests::tool::{run, slabfs};
use slabfs_tests::{Cluster, Up, inputs, needs_mount};

fn script(args: &[&Path], what: &str) {
    let mut command = std::process::Command::new(inputs::PYTHON);
    command
        .arg(inputs::script("encoded.py"))
        .arg(what)
        .args(args);
    run(&mut command).ok();
}

fn create(path: &Path, more: &[&str]) {
    let path = path.to_str().expect("text");
    let args = ["create", path, "--dims", "100,70", "--dtype", "i4"];
    slabfs(args.iter().chain(more)).ok();
}

#[test]
fn encoded_chunks_are_stored_and_read_as_they_are() {
    needs_mount!();
    let up = Up::start();
    let array = up.mnt().join("a");
    create(&array, &["--codec", "shuffle+deflate:4"]);
    script(&[&array], "write");
}

#[test]
fn wrong_encoded_chunks_change_nothing() {
    needs_mount!();
    let up = Up::start();
    let array = up.mnt().join("a");
    create(&array, &[]);
    create(&up.mnt().join("a.grid"), &["--layout", "grid:10,10"]);
    script(&[&array], "wrong");
}

/// Over sockets, written by one mount and read by another.
#[test]
fn another_mount_reads_encoded_chunks_of_other_servers() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    let [one, two] = [0, 1].map(|i| cluster.mnt(i).join("a"));
    create(&one, &["--codec", "shuffle+deflate:4"]);
    script(&[&one, &two], "write");
}
