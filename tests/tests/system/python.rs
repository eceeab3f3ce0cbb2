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

#[test]
fn the_package_passes_its_tests() {
    needs_mount!();
    let area = Area::new();
    installed(&area);
    run(
        &area,
        "python",
        &["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
    );
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
