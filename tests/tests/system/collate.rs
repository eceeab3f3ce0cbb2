//! `slabfs collate`: tiles of all kinds, joined and compared by `tests/scripts/collate_cases.py`; and that it runs by the name of
//! `slabfs`, with its statuses and messages.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use slabfs_tests::tool::{create, run, run_within, slabfs};
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
    cases(&[
        "options",
        "missing_tiles",
        "chunks_of_classic_tiles",
        "other_programs",
    ]);
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

/// `-f` replaces what was joined or imported, not other directories.
#[test]
fn directories_and_arrays_are_not_replaced() {
    needs_mount!();
    let up = Up::start();
    let dir = Area::new();
    tiles(&["make", "small-2", text(dir.path())]);
    let inputs = tiles_in(dir.path());
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    std::fs::create_dir(up.at("runs")).expect("made");
    std::fs::write(up.at("runs/thesis"), "text").expect("written");
    create(&up.at("array"), "3", "f4", &[]);
    for name in ["runs", "array"] {
        let out = up.at(name);
        let line = [&["collate", "-f", "-o", text(&out)], &inputs[..]].concat();
        slabfs(&line).fails(1, &[name, "remove it first"]);
    }
    assert_eq!(std::fs::read(up.at("runs/thesis")).expect("read"), b"text");
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

/// Two tiles of noise, in chunks of 100 KB.
const NOISE: &str = "
import sys, numpy as np, netCDF4
for n in 0, 1:
    d = netCDF4.Dataset(sys.argv[1] + '/noise.nc.000%d' % n, 'w')
    d.createDimension('t', int(sys.argv[2]))
    d.createDimension('x', 200)
    d.createVariable('x', 'f8', ('x',))[:] = np.arange(200) + 200 * n
    d['x'].domain_decomposition = np.array([1, 400, 200 * n + 1, 200 * n + 200], 'i4')
    d.createDimension('y', 128)
    v = d.createVariable('v', 'i4', ('t', 'y', 'x'), zlib=True, complevel=1, chunksizes=(1, 128, 200))
    v[:] = np.random.default_rng(n).integers(-1 << 30, 1 << 30, v.shape, dtype='i4')
    d.close()
";

/// Makes those tiles in a directory, with so many chunks each.
pub(crate) fn noise(dir: &Path, chunks: &str) -> Vec<String> {
    let mut command = std::process::Command::new(inputs::PYTHON);
    run(command.args(["-c", NOISE, text(dir), chunks])).ok();
    tiles_in(dir)
}

/// Whether a container is the joined tiles.
pub(crate) fn is_joined(container: &Path, dir: &Path, inputs: &[&str]) {
    let out = dir.join("back-of-joined.nc");
    slabfs(["export", text(container), text(&out)]).ok();
    tiles(&[&["check", text(&out)], inputs].concat());
    std::fs::remove_file(out).expect("removed");
}

/// A tile is cut off after the plan was made, while its chunks are written.
#[test]
fn a_tile_is_cut_off_while_a_container_is_written() {
    needs_mount!();
    let cluster = Cluster::with(1, 1, &[]);
    let dir = Area::new();
    let inputs = noise(dir.path(), "256");
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let mount = cluster.mnt(0);
    let container = mount.join("joined");
    let line = [&["collate", "-o", text(&container)], &inputs[..]].concat();
    let entire = std::fs::read(inputs[1]).expect("read");

    let child = std::process::Command::new(binary::path())
        .args(&line)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("started");
    let is_begun = || {
        let mut entries = std::fs::read_dir(&mount).expect("a directory");
        entries.any(|entry| {
            let array = entry.expect("an entry").path().join("unfinished.nc/v");
            array.exists()
        })
    };
    // It has 50 MB to write then.
    let start = Instant::now();
    while !is_begun() {
        assert!(start.elapsed() < Duration::from_secs(60), "no array");
    }
    cluster.server(0).signal(Signal::SIGSTOP);
    let file = std::fs::OpenOptions::new().write(true).open(inputs[1]);
    file.expect("open").set_len(3 << 20).expect("cut off");
    cluster.server(0).signal(Signal::SIGCONT);
    let output = child.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("noise.nc.0001"), "{said}");
    let left: Vec<_> = std::fs::read_dir(&mount).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");

    std::fs::write(inputs[1], entire).expect("written");
    slabfs(&line).ok();
    is_joined(&container, dir.path(), &inputs);
}
