//! Programs and data for tests, as installed by `tools/setup --tests`.

use std::path::PathBuf;

/// Debian's Python, which has netCDF4 and NumPy; another `python3` in the path may have neither.
pub const PYTHON: &str = "/usr/bin/python3";
/// The directory of the NetCDF files of the package `ferret-datasets`.
pub const FERRET: &str = "/usr/share/ferret-vis/data";

fn dir() -> PathBuf {
    std::env::var_os("SLABFS_TEST_INPUTS").map_or_else(
        || {
            crate::binary::profile_dir()
                .parent()
                .expect("the target directory")
                .join("test-inputs")
        },
        PathBuf::from,
    )
}

/// The Python of `tools/setup --tests`, with the libraries of tests/scripts/requirements.txt.
///
/// # Panics If it is missing.
pub fn python() -> PathBuf {
    let dir = dir();
    let place = dir.parent().expect("a directory above");
    let path = place.join("python/bin/python");
    assert!(
        path.exists(),
        "{} is missing; run tools/setup --tests",
        path.display()
    );
    path
}

/// SeaweedFS, of the same installation.
///
/// # Panics If it is missing.
pub fn weed() -> PathBuf {
    python().with_file_name("weed")
}

/// The `fsx` program.
///
/// # Panics If it is missing.
pub fn fsx() -> PathBuf {
    installed("fsx")
}

/// The `pjdfstest` program.
///
/// # Panics If it is missing.
pub fn pjdfstest() -> PathBuf {
    installed("pjdfstest")
}

fn installed(name: &str) -> PathBuf {
    let path = dir().join("bin").join(name);
    assert!(
        path.exists(),
        "{} is missing; run tools/setup --tests",
        path.display()
    );
    path
}

/// The upstream archive of the Debian source package `bzip2`.
///
/// # Panics If it is missing.
pub fn bzip2_source() -> PathBuf {
    let dir = dir();
    let found = std::fs::read_dir(&dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with("bzip2_") && name.contains(".orig.tar."))
        });
    found.unwrap_or_else(|| {
        panic!(
            "no bzip2_*.orig.tar.* in {}; run tools/setup --tests",
            dir.display()
        )
    })
}

/// The directory into which `tools/mpi-suites` built test programs.
///
/// # Panics If it is missing.
pub fn mpi_suites() -> PathBuf {
    let path = dir().join("mpi-suites");
    assert!(
        path.join("built").exists(),
        "{} is missing or not complete; run tools/setup --tests",
        path.display()
    );
    path
}

/// A script of `tests/scripts`.
pub fn script(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts")).join(name)
}
