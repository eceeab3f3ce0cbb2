//! The Python package: its own tests, with the libraries of `tests/scripts/requirements.txt`, from the wheel.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use slabfs_tests::{Area, binary, inputs, needs_mount, tool};

/// How long the tests of the package may take.
const LIMIT: Duration = Duration::from_secs(550);

fn package() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fs/python"))
}

/// Installs the wheel into a directory of its own.
fn installed(area: &Area) -> PathBuf {
    let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/wheel");
    tool::run(Command::new(tool).arg(area.path()).arg("--dev")).ok();
    let site = area.at("site");
    let wheel = std::fs::read_dir(area.path())
        .expect("the directory")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|end| end == "whl"));
    let mut pip = Command::new(inputs::python().with_file_name("pip"));
    pip.args(["install", "--quiet", "--no-deps", "--no-index", "--target"]);
    tool::run(pip.arg(&site).arg(wheel.expect("a wheel"))).ok();
    site
}

fn run(area: &Area, program: &str, args: &[&str]) {
    let mut command = Command::new(inputs::python().with_file_name(program));
    command.args(args).current_dir(package());
    command.env("SLABFS_BINARY", binary::path());
    command.env("PYTHONPATH", area.at("site"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let outcome = tool::run_within(&mut command, LIMIT);
    outcome.expect("it takes too long").ok();
}

/// Runs files of tests; several such runs share the machine better than one.
fn tests(files: &[&str]) {
    let area = Area::new();
    installed(&area);
    let files: Vec<String> = files
        .iter()
        .map(|name| format!("tests/test_{name}.py"))
        .collect();
    let mut args = vec!["-m", "pytest", "-q", "-p", "no:cacheprovider"];
    args.extend(files.iter().map(String::as_str));
    run(&area, "python", &args);
}

#[test]
fn arrays_and_servers() {
    needs_mount!();
    tests(&["arrays", "docs", "servers"]);
}

#[test]
fn indexes() {
    needs_mount!();
    tests(&["indexing", "mount"]);
}

#[test]
fn files_and_workers() {
    needs_mount!();
    tests(&["files", "distributed", "notebook"]);
}

#[test]
fn data_sets() {
    needs_mount!();
    tests(&["xarray", "backend", "grids"]);
}

/// Each file of tests is in one of the runs.
#[test]
fn all_files_are_run() {
    let source = include_str!("python.rs");
    for entry in std::fs::read_dir(package().join("tests")).expect("the tests") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_str().expect("text");
        if let Some(name) = name
            .strip_prefix("test_")
            .and_then(|name| name.strip_suffix(".py"))
        {
            assert!(source.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}

#[test]
fn types_and_style_are_checked() {
    let area = Area::new();
    installed(&area);
    run(&area, "ruff", &["check", "--no-cache", "python", "tests"]);
    run(
        &area,
        "ruff",
        &["format", "--no-cache", "--check", "python", "tests"],
    );
    let cache = area.at("mypy").display().to_string();
    run(
        &area,
        "mypy",
        &["--strict", "--cache-dir", &cache, "tests/program.py"],
    );
}
