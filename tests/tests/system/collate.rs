//! `slabfs collate`: tiles of all kinds, joined and compared by `tests/scripts/collate_cases.py`; and that it runs by the name of
//! `slabfs`, with its statuses and messages.

use std::path::Path;
use std::time::Duration;

use slabfs_tests::tool::{run, run_within, slabfs};
use slabfs_tests::{Area, binary, inputs};

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
