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

#[test]
fn what_is_written_over_a_chunk_hides_it_at_once() {
    needs_mount!();
    let up = Up::start();
    let array = up.mnt().join("a");
    create(&array, &["--codec", "shuffle+deflate:4"]);
    script(&[&array], "hidden");
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

fn asis(args: &[&Path], what: &str) {
    let mut command = std::process::Command::new(inputs::python());
    command.arg(inputs::script("asis.py")).arg(what).args(args);
    run(&mut command).ok();
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Chunks that an array can have are not decoded on the way in and out, and the elements of all others are the same.
#[test]
fn chunks_of_hdf5_come_back_as_they_went_in() {
    needs_mount!();
    let up = Up::start();
    let [file, out] = ["a.h5", "b.h5"].map(|name| up.area().path().join(name));
    asis(&[&file], "make");
    let dest = up.mnt().join("a");
    slabfs(["import", "--verify", text(&file), text(&dest)]).ok();
    slabfs(["export", text(&dest), text(&out)]).ok();
    asis(&[&file, &out], "same");
    // Some cells have newer elements over them.
    asis(&[&dest], "change");
    slabfs(["export", text(&dest), text(&out)]).ok();
    asis(&[&file, &out], "changed");
}
