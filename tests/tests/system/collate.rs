//! `slabfs collate`: tiles of all kinds, joined and compared by `tests/scripts/collate_cases.py`; and that it runs by the name of
//! `slabfs`, with its statuses and messages.

use std::path::Path;
use std::time::Duration;

use slabfs_tests::tool::{run, run_within, slabfs};
use slabfs_tests::{Area, Cluster, Up, binary, inputs, needs_mount};

/// How long a few cases may take.
const LIMIT: Duration = Duration::from_secs(600);

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Runs cases of the script, which compares what comes out.
#[track_caller]
fn cases(names: &[&str]) {
    let dir = Area::new();
    let mut command = std::process::Command::new(inputs::PYTHON);
    command.arg(inputs::script("collate_cases.py"));
    command.args([binary::path(), dir.path()]).args(names);
    let outcome = run_within(&mut command, LIMIT);
    outcome.expect("it ends").ok();
}

#[test]
fn random_decompositions_are_joined() {
    cases(&["random_decompositions"]);
}

#[test]
fn types_attributes_groups_and_dims_are_joined() {
    cases(&[
        "texts_and_types",
        "attributes",
        "groups",
        "unlimited",
        "order_of_bytes",
        "no_records",
    ]);
}

#[test]
fn chunks_and_filters_are_joined() {
    cases(&[
        "masks_and_unwritten_chunks",
        "user_blocks",
        "unknown_filters",
        "filters_of_the_library",
    ]);
}

#[test]
fn options_and_other_programs() {
    cases(&["options", "missing_tiles", "other_programs"]);
}

#[test]
fn what_does_not_fit_is_refused() {
    cases(&["misfits", "impossible_sizes"]);
}

#[test]
fn faults_leave_nothing() {
    cases(&["full_disk", "signals", "damaged_files"]);
}

#[test]
fn runs_as_a_command_of_slabfs() {
    let dir = Area::new();
    let mut command = std::process::Command::new(inputs::PYTHON);
    command.arg(inputs::script("tiles.py"));
    run(command.args(["make", "small-1", text(dir.path())])).ok();
    let out = dir.path().join("ocean.nc");
    let pattern = dir.path().join("ocean.nc.*");
    let line = ["collate", "-o", text(&out), text(&pattern)];
    slabfs(line).ok();
    slabfs(line).fails(1, &["exists already", "-f"]);
    slabfs(["collate", "-v", "-f", "-o", text(&out), text(&pattern)]).ok();
    slabfs(["collate", "-o", text(&out)]).fails(2, &["FILE"]);
    slabfs(["collate", text(&pattern)]).fails(2, &["--output"]);
}

fn tiles(args: &[&str]) {
    let mut command = std::process::Command::new(inputs::PYTHON);
    command.arg(inputs::script("tiles.py")).args(args);
    run(&mut command).ok();
}

/// The tiles in a directory.
fn tiles_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| text(&path).to_owned())
        .collect();
    names.sort();
    names
}

/// Joined to a container, and exported from it.
#[test]
fn random_decompositions_are_joined_to_containers() {
    needs_mount!();
    let up = Up::start();
    for seed in 1..=12 {
        let dir = up.area().path().join(format!("tiles{seed}"));
        std::fs::create_dir(&dir).expect("created");
        tiles(&["make", &format!("small-{seed}"), text(&dir)]);
        let inputs = tiles_in(&dir);
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let container = up.mnt().join(format!("joined{seed}"));
        let line = [&["collate", "-o", text(&container)], &inputs[..]].concat();
        slabfs(&line).ok();
        slabfs(&line).fails(1, &["exists already", "-f"]);
        let out = up.area().path().join(format!("joined{seed}.nc"));
        slabfs(["export", text(&container), text(&out)]).ok();
        tiles(&[&["check", text(&out)], &inputs[..]].concat());
        // In the place of an older one.
        let again = [&["collate", "-f", "-o", text(&container)], &inputs[..]].concat();
        slabfs(&again).ok();
        slabfs(["export", text(&container), text(&out)]).ok();
        tiles(&[&["check", text(&out)], &inputs[..]].concat());
    }
    let left = std::fs::read_dir(up.mnt()).expect("a directory");
    assert_eq!(left.count(), 12, "nothing but the containers");
}

/// A data server is away: a message, and nothing is left; the same command works when it is back.
#[test]
fn a_container_on_a_server_that_is_away() {
    needs_mount!();
    let mut cluster = Cluster::with(1, 1, &["--io-timeout", "2s"]);
    let dir = Area::new();
    tiles(&["make", "small-3", text(dir.path())]);
    let inputs = tiles_in(dir.path());
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let mount = cluster.mnt(0);
    let container = mount.join("joined");
    let line = [&["collate", "-o", text(&container)], &inputs[..]].concat();
    cluster.kill_server(0);
    slabfs(&line).fails(1, &["slabfs: "]);
    let left: Vec<_> = std::fs::read_dir(&mount).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
    cluster.start_server(0);
    slabfs(&line).ok();
    let out = dir.path().join("joined.nc");
    slabfs(["export", text(&container), text(&out)]).ok();
    tiles(&[&["check", text(&out)], &inputs[..]].concat());
}
