//! Starts four ranks on this machine, with each of Debian's MPIs: over shared memory and the loopback, not
//! bound to processors, and yielding the processor while they wait.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Mpi;
use crate::{Outcome, tool};

/// In a private mount namespace, mounts the directory in the second argument over that in the first, and runs
/// the rest there.
///
/// The namespace begins with copies of the mounts of all tests, which would not end before this program: they go.
const UNDER_ONE_NAME: &str = "
mount --bind \"$2\" \"$1\" && cd \"$1\" || exit
findmnt -rno TARGET -t fuse.slabfs | grep -Fxv \"$1\" | xargs -r -d '\\n' umount --lazy 2>/dev/null
shift 2
exec \"$@\"";

/// The default number of ranks.
pub const RANKS: usize = 4;

/// Starts ranks.
#[derive(Debug)]
pub struct Launcher {
    mpi: Mpi,
    /// The directory of MPI's own files: each run has one in it, since runs of Open MPI that start at the same time make each
    /// other's session directories fail.
    temporary: PathBuf,
    /// The preloaded library that yields the processor while MPI waits; only for MPICH.
    yielding: Option<PathBuf>,
    environment: Vec<(String, String)>,
    ranks: usize,
}

impl Launcher {
    pub(super) fn new(mpi: Mpi, temporary: PathBuf, yielding: Option<PathBuf>) -> Launcher {
        Launcher {
            mpi,
            temporary,
            yielding,
            environment: Vec::new(),
            ranks: RANKS,
        }
    }

    pub(super) fn env(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Sets the number of ranks.
    pub fn set_ranks(&mut self, ranks: usize) {
        self.ranks = ranks;
    }

    /// A command whose ranks are spread evenly over these command lines, the first ranks on the first.
    fn command(&self, lines: &[Vec<OsString>]) -> Command {
        let mut command = match self.mpi {
            Mpi::Mpich => self.hydra(),
            Mpi::Ompio => self.open_mpi("ompio"),
            Mpi::OpenRomio => self.open_mpi(&open_romio()),
        };
        let lines = &lines[..lines.len().min(self.ranks)];
        for (i, line) in lines.iter().enumerate() {
            if i > 0 {
                command.arg(":");
            }
            let share = self.ranks * (i + 1) / lines.len() - self.ranks * i / lines.len();
            command.args(["-n", &share.to_string()]).args(line);
        }
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let own = self.temporary.join(format!("{}-{run}", std::process::id()));
        std::fs::create_dir_all(&own).expect("a directory for MPI");
        command.env("TMPDIR", &own);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs them to their end.
    ///
    /// # Panics If `mpirun` cannot be started or does not end.
    #[track_caller]
    pub fn run(&self, lines: &[Vec<OsString>]) -> Outcome {
        tool::run(&mut self.command(lines))
    }

    /// Runs one command line in a directory, or with the ranks spread evenly over several: then every rank
    /// finds its own under the name `common`, an empty directory, and starts in that; this needs the superuser.
    /// For programs in which one rank sends the path that it got to the others. `None` if it did not end within
    /// the limit.
    ///
    /// # Panics If `mpirun` cannot be started.
    #[track_caller]
    pub fn run_in(
        &self,
        places: &[PathBuf],
        common: &Path,
        line: &[OsString],
        limit: Duration,
    ) -> Option<Outcome> {
        if let [place] = places {
            let mut command = self.command(&[line.to_vec()]);
            return tool::run_within(command.current_dir(place), limit);
        }
        let own = |place: &PathBuf| {
            let words = ["unshare", "--mount", "sh", "-c", UNDER_ONE_NAME, "sh"];
            let mut own: Vec<OsString> = words.iter().map(OsString::from).collect();
            own.extend([common.into(), place.into()]);
            own.extend(line.iter().cloned());
            own
        };
        let lines: Vec<Vec<OsString>> = places.iter().map(own).collect();
        tool::run_within(&mut self.command(&lines), limit)
    }

    fn hydra(&self) -> Command {
        let mut command = Command::new("mpirun.mpich");
        command.args(["-launcher", "fork", "-iface", "lo", "-bind-to", "none"]);
        if let Some(library) = &self.yielding {
            command.args(["-genv", "LD_PRELOAD"]).arg(library);
        }
        command.args(["-genv", "UCX_TLS", "self,sm"]);
        command
    }

    fn open_mpi(&self, io: &str) -> Command {
        let mut command = Command::new("mpirun.openmpi");
        command.args(["--allow-run-as-root", "--oversubscribe"]);
        command.args(["--bind-to", "none"]);
        for (name, value) in [
            ("io", io),
            // No other machines: no ssh, no network cards.
            ("plm", "isolated"),
            ("pml", "ob1"),
            ("btl", "self,vader"),
            ("oob_tcp_if_include", "lo"),
            // Reading another process's memory may be forbidden, in containers for example.
            ("btl_vader_single_copy_mechanism", "none"),
            ("mpi_yield_when_idle", "1"),
        ] {
            command.args(["--mca", name, value]);
        }
        command
    }
}

/// A command line of a program.
pub(super) fn line<S: AsRef<OsStr>>(
    program: &Path,
    args: impl IntoIterator<Item = S>,
) -> Vec<OsString> {
    let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
    std::iter::once(program.into()).chain(args).collect()
}

/// Open MPI's name of its ROMIO, which contains a version.
#[track_caller]
fn open_romio() -> String {
    let said = tool::program("ompi_info", ["--parsable"]).ok();
    let name = said.text().lines().find_map(|line| {
        let name = line.strip_prefix("mca:io:")?.split(':').next()?;
        name.starts_with("romio").then(|| name.to_owned())
    });
    name.unwrap_or_else(|| panic!("no ROMIO: {}", said.report()))
}
