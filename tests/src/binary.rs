//! The `slabfs` binary under test: built once, from the current sources.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Path of the binary. `$SLABFS_BINARY` overrides the one next to the tests.
///
/// # Panics If it cannot be built.
pub fn path() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("SLABFS_BINARY") {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

/// Builds it in the profile and target directory of this test, so that it is never outdated. With `$SLABFS_BUILT` it has
/// just been built (`tools/test`): by itself it would have other features of the same packages, and build scripts
/// another environment, and nearly everything would be compiled again while the first tests wait.
fn build() -> PathBuf {
    let dir = profile_dir();
    let binary = dir.join("slabfs");
    if std::env::var_os("SLABFS_BUILT").is_some() {
        assert!(
            binary.exists(),
            "{} is missing: SLABFS_BUILT says that it is built",
            binary.display()
        );
        return binary;
    }
    let target = dir.parent().expect("the target directory");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--package", "slabfs", "--target-dir"])
        .arg(target);
    if dir.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    let output = cargo
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .expect("cargo");
    assert!(
        output.status.success(),
        "cargo build: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        binary.exists(),
        "{} is missing after the build",
        binary.display()
    );
    binary
}

/// `target/debug`: test executables are in its folder `deps`.
pub(crate) fn profile_dir() -> PathBuf {
    let test = std::env::current_exe().expect("this executable");
    let dir = test.parent().expect("its folder");
    if dir.ends_with("deps") {
        dir.parent().expect("the profile's folder").to_owned()
    } else {
        dir.to_owned()
    }
}
