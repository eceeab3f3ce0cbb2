//! The C library as programs get it: installed into a directory by `tools/library`, found by `pkg-config`, and
//! programs compiled with it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::{Area, Outcome, binary, tool};

/// Limit under valgrind, on a busy machine.
const CHECKED: Duration = Duration::from_secs(600);

/// The directory of the library; built from the current sources, once.
///
/// # Panics If it cannot be built.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let profile = binary::profile_dir();
        let prefix = profile.join("library");
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/library"));
        command.arg(&prefix).env(
            "CARGO_TARGET_DIR",
            profile.parent().expect("the target directory"),
        );
        if profile.file_name().is_some_and(|name| name == "debug") {
            command.arg("--dev");
        }
        tool::run(&mut command).ok();
        prefix
    })
}

/// A source of `tests/library`.
pub fn source(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/library")).join(name)
}

/// A program compiled with the library.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// Compiles a source into the test's area, with `compiler` and flags, and those of `pkg-config`.
    ///
    /// # Panics If that fails.
    pub fn compile(area: &Area, compiler: &str, flags: &[&str], source: &Path) -> Program {
        let said = tool::run(
            Command::new("pkg-config")
                .args(["--cflags", "--libs", "slabfs"])
                .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")),
        )
        .ok();
        Program::link(
            area,
            compiler,
            flags,
            source,
            said.text().split_whitespace(),
        )
    }

    /// Compiles a source with the static library.
    ///
    /// # Panics If that fails.
    pub fn compile_static(area: &Area, compiler: &str, flags: &[&str], source: &Path) -> Program {
        let include = format!("-I{}", prefix().join("include").display());
        let archive = prefix().join("lib/libslabfs.a").display().to_string();
        let libraries = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];
        let words = [include.as_str(), &archive];
        Program::link(
            area,
            compiler,
            flags,
            source,
            words.into_iter().chain(libraries),
        )
    }

    fn link<'a>(
        area: &Area,
        compiler: &str,
        flags: &[&str],
        source: &Path,
        library: impl Iterator<Item = &'a str>,
    ) -> Program {
        let name = source.file_stem().expect("a name");
        let path = area.at(name);
        tool::run(
            Command::new(compiler)
                .args(flags)
                .arg(source)
                .args(library)
                .arg("-o")
                .arg(&path),
        )
        .ok();
        Program { path }
    }

    /// Runs it.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Outcome {
        let mut command = Command::new(&self.path);
        tool::run(
            command
                .args(args)
                .env("LD_LIBRARY_PATH", prefix().join("lib")),
        )
    }

    /// Runs it under valgrind, which exits with 99 if it finds errors.
    pub fn run_checked<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Outcome {
        let mut command = Command::new("valgrind");
        command
            .args(["--quiet", "--error-exitcode=99", "--leak-check=full"])
            .args(["--errors-for-leak-kinds=definite,indirect,possible"])
            // Its threads run one at a time, and without this the busy ones delay the heartbeat of a session
            // until the session is lost.
            .arg("--fair-sched=try")
            .arg(&self.path)
            .args(args)
            .env("LD_LIBRARY_PATH", prefix().join("lib"));
        tool::run_within(&mut command, CHECKED)
            .unwrap_or_else(|| panic!("`{command:?}` does not end"))
    }
}
