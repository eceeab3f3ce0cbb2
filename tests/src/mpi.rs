//! Programs of MPI-IO: compiled and run with each of Debian's MPIs.
//!
//! The programs are in `tests/mpi`, one per subject. They compare every byte themselves and exit with a message
//! and a status when one is wrong. Four ranks run them on this machine only, so that tests may run
//! concurrently: see `launcher`. `suites` has the test programs of other projects.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Area, Outcome, tool};

pub mod launcher;
pub mod suites;

pub use launcher::Launcher;

/// An implementation of MPI, and of MPI-IO in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mpi {
    /// MPICH, whose MPI-IO is ROMIO.
    Mpich,
    /// Open MPI with its own OMPIO.
    Ompio,
    /// Open MPI with the ROMIO it carries.
    OpenRomio,
}

/// A compiled program of `tests/mpi`, in the test's area.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    launcher: Launcher,
    _alone: Option<Alone>,
}

/// A guard that ensures that no other MPI program runs: ranks wait by polling, and two concurrent programs take
/// each other's processors.
#[derive(Debug)]
pub struct Alone {
    _guard: MutexGuard<'static, ()>,
}

impl Alone {
    /// Waits until no other test has it.
    pub fn wait() -> Alone {
        static ALONE: Mutex<()> = Mutex::new(());
        Alone {
            _guard: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl Mpi {
    /// Compiles `tests/mpi/NAME.c`, once no other test has such a program: a test calls this before it starts
    /// anything.
    ///
    /// # Panics If the compiler is missing, fails or warns.
    #[track_caller]
    pub fn program(self, area: &Area, name: &str) -> Program {
        self.linked(area, name, None)
    }

    /// The same, with a library that `pkg-config` knows.
    ///
    /// # Panics If the library or the compiler is missing, fails or warns.
    #[track_caller]
    pub fn linked(self, area: &Area, name: &str, library: Option<&str>) -> Program {
        let alone = Alone::wait();
        Program {
            _alone: Some(alone),
            ..self.another(area, name, library)
        }
    }

    /// The same, of a test that has another such program already and runs both at the same time.
    ///
    /// # Panics If the library or the compiler is missing, fails or warns.
    #[track_caller]
    pub fn another(self, area: &Area, name: &str, library: Option<&str>) -> Program {
        let launcher = self.launcher(area);
        let flags = library.map_or_else(Vec::new, |library| {
            let said = tool::program("pkg-config", ["--cflags", "--libs", library]).ok();
            said.text().split_whitespace().map(str::to_owned).collect()
        });
        let path = area.at("mpi").join(name);
        compile(self.compiler(), name, &path, &flags);
        Program {
            path,
            launcher,
            _alone: None,
        }
    }

    /// The launcher of ranks, with its files in the test's area.
    ///
    /// # Panics If its preloaded library cannot be compiled.
    #[track_caller]
    pub fn launcher(self, area: &Area) -> Launcher {
        let temporary = area.mkdir("mpi");
        let yielding = (self == Mpi::Mpich).then(|| {
            let path = temporary.join("yield.so");
            compile("cc", "yield", &path, &["-shared".into(), "-fPIC".into()]);
            path
        });
        Launcher::new(self, temporary, yielding)
    }

    /// Its C compiler.
    pub fn compiler(self) -> &'static str {
        match self {
            Mpi::Mpich => "mpicc.mpich",
            Mpi::Ompio | Mpi::OpenRomio => "mpicc.openmpi",
        }
    }
}

#[track_caller]
fn compile(compiler: &str, name: &str, to: &Path, more: &[String]) {
    let source =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/mpi")).join(format!("{name}.c"));
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]);
    command.arg(source).arg("-o").arg(to).args(more);
    tool::run(&mut command).ok();
}

impl Program {
    /// Sets an environment variable of the program.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Program {
        self.launcher.env(name, value);
        self
    }

    /// Sets the number of ranks.
    #[must_use]
    pub fn ranks(mut self, ranks: usize) -> Program {
        self.launcher.set_ranks(ranks);
        self
    }

    /// Runs it with four ranks.
    ///
    /// # Panics If `mpirun` cannot be started or does not end.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Outcome {
        self.launcher.run(&[launcher::line(&self.path, args)])
    }

    /// Runs it with four ranks, spread evenly over these arguments, so that ranks open one file by the paths of
    /// several mounts.
    ///
    /// # Panics If `mpirun` cannot be started or does not end.
    #[track_caller]
    pub fn run_each<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = Vec<S>>) -> Outcome {
        let lines = args
            .into_iter()
            .map(|args| launcher::line(&self.path, args));
        self.launcher.run(&lines.collect::<Vec<_>>())
    }
}
