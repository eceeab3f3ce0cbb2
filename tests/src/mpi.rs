//! Programs of MPI-IO: compiled and run with each of Debian's MPIs.
//!
//! The programs are in `tests/mpi`, one a subject. They compare every byte themselves and end with a
//! message and a status when one is wrong. Four ranks run them on this machine alone: over shared memory
//! and the loopback, not bound to processors, so that tests may run side by side.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Area, Outcome, tool};

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
    mpi: Mpi,
    path: PathBuf,
    /// Where MPI puts its own files.
    temporary: PathBuf,
    /// What gives the processor away where MPI waits; only for MPICH.
    yielding: Option<PathBuf>,
    environment: Vec<(String, String)>,
    _alone: MutexGuard<'static, ()>,
}

/// Ranks wait by looking again and again: two programs at once take each other's processors.
static ALONE: Mutex<()> = Mutex::new(());

impl Mpi {
    /// Compiles `tests/mpi/NAME.c`, once no other test has such a program: a test asks for it before it
    /// starts anything.
    ///
    /// # Panics
    /// When the compiler is missing, fails or warns.
    #[track_caller]
    pub fn program(self, area: &Area, name: &str) -> Program {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let temporary = area.mkdir("mpi");
        let path = temporary.join(name);
        let compiler = match self {
            Mpi::Mpich => "mpicc.mpich",
            Mpi::Ompio | Mpi::OpenRomio => "mpicc.openmpi",
        };
        compile(compiler, name, &path, &[]);
        let yielding = (self == Mpi::Mpich).then(|| {
            let path = temporary.join("yield.so");
            compile("cc", "yield", &path, &["-shared", "-fPIC"]);
            path
        });
        Program {
            mpi: self,
            path,
            temporary,
            yielding,
            environment: Vec::new(),
            _alone: alone,
        }
    }
}

#[track_caller]
fn compile(compiler: &str, name: &str, to: &Path, more: &[&str]) {
    let source =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/mpi")).join(format!("{name}.c"));
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]);
    command.args(more).arg(source).arg("-o").arg(to);
    tool::run(&mut command).ok();
}

impl Program {
    /// Sets a variable of the environment it runs in.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Program {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs it with four ranks.
    ///
    /// # Panics
    /// When `mpirun` cannot be started or does not end.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Outcome {
        let mut command = match self.mpi {
            Mpi::Mpich => self.hydra(),
            Mpi::Ompio => self.open_mpi("ompio"),
            Mpi::OpenRomio => self.open_mpi(&open_romio()),
        };
        command.arg(&self.path).args(args);
        command.env("TMPDIR", &self.temporary);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        tool::run(&mut command)
    }

    fn hydra(&self) -> Command {
        let mut command = Command::new("mpirun.mpich");
        command.args(["-launcher", "fork", "-iface", "lo", "-bind-to", "none"]);
        if let Some(library) = &self.yielding {
            command.args(["-genv", "LD_PRELOAD"]).arg(library);
        }
        command.args(["-genv", "UCX_TLS", "self,sm", "-n", "4"]);
        command
    }

    fn open_mpi(&self, io: &str) -> Command {
        let mut command = Command::new("mpirun.openmpi");
        command.args(["--allow-run-as-root", "--oversubscribe"]);
        command.args(["--bind-to", "none", "-n", "4"]);
        for (name, value) in [
            ("io", io),
            // No other machines: no ssh, no network cards.
            ("plm", "isolated"),
            ("pml", "ob1"),
            ("btl", "self,vader"),
            ("oob_tcp_if_include", "lo"),
            // Reading another process's memory may be forbidden, in containers for one.
            ("btl_vader_single_copy_mechanism", "none"),
            ("mpi_yield_when_idle", "1"),
        ] {
            command.args(["--mca", name, value]);
        }
        command
    }
}

/// What Open MPI calls its ROMIO: the name has a version in it.
#[track_caller]
fn open_romio() -> String {
    let said = tool::program("ompi_info", ["--parsable"]).ok();
    let name = said.text().lines().find_map(|line| {
        let name = line.strip_prefix("mca:io:")?.split(':').next()?;
        name.starts_with("romio").then(|| name.to_owned())
    });
    name.unwrap_or_else(|| panic!("no ROMIO: {}", said.report()))
}
