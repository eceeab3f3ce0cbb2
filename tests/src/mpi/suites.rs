//! The test programs of ROMIO, MPICH, HDF5 and PnetCDF, as built by `tools/mpi-suites`.
//!
//! They work in their current directory, on files with fixed names. Some report errors and exit with 0 all the
//! same: their output is checked too. The programs that have to succeed are not listed here: they are those
//! that succeed on the machine's own filesystem.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Alone, Launcher, Mpi};
use crate::{Area, Outcome, inputs};

/// A program that has not ended by then hangs, if it works at all.
pub const LIMIT: Duration = Duration::from_secs(300);

/// A source of test programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// ROMIO's own.
    Romio,
    /// MPICH's, of its MPI-IO.
    Mpich,
    /// Those of parallel HDF5.
    Hdf5,
    /// PnetCDF's, and its examples. With Open MPI only: Debian's library is linked with that.
    Pnetcdf,
}

impl Suite {
    fn name(self) -> &'static str {
        match self {
            Suite::Romio => "romio",
            Suite::Mpich => "mpich",
            Suite::Hdf5 => "hdf5",
            Suite::Pnetcdf => "pnetcdf",
        }
    }

    /// Programs that do not test a filesystem.
    fn leaves_out(self, name: &str) -> bool {
        match self {
            // Hints from a file, and nothing is written; and 4 GB of memory per rank.
            Suite::Romio => ["syshints", "coll_perf"].contains(&name),
            // Each takes 6.5 GB of memory.
            Suite::Mpich => name.ends_with("bigtype"),
            // The second of each pair requires that the first was killed.
            Suite::Hdf5 => name.starts_with("t_pflush"),
            // Files of gigabytes, whose exact size is unknown.
            Suite::Pnetcdf => name.starts_with("largefile_"),
        }
    }

    /// As in the suites' own scripts.
    fn ranks(self, name: &str) -> usize {
        match (self, name) {
            (Suite::Romio, "error" | "status") => 1,
            (Suite::Romio, "noncontig" | "i_noncontig" | "noncontig_coll" | "types_with_zeros") => {
                2
            }
            (Suite::Mpich, "getextent" | "i_noncontig" | "i_noncontig_coll") => 2,
            (Suite::Mpich, "i_types_with_zeros") => 2,
            (Suite::Mpich, "userioerr" | "resized" | "resized2" | "hindexed_io") => 1,
            (Suite::Mpich, "tst_fileview" | "external32_derived_dtype" | "i_hindexed_io") => 1,
            _ => super::launcher::RANKS,
        }
    }

    fn args(self, name: &str) -> &'static [&'static str] {
        match (self, name) {
            (Suite::Romio, "aggregation1") => &["-h", "-f", "test"],
            (
                Suite::Romio,
                "aggregation2" | "hindexed" | "types_with_zeros" | "darray_read" | "big_extents",
            ) => &["test"],
            (Suite::Romio, _) => &["-fname", "test"],
            (Suite::Mpich, "simple_collective") => &["test"],
            (Suite::Pnetcdf, _) => &["test.nc"],
            _ => &[],
        }
    }
}

/// A suite with one MPI.
#[derive(Debug)]
pub struct Programs {
    suite: Suite,
    mpi: Mpi,
    dir: PathBuf,
    launcher: Launcher,
    /// The path under which every rank finds its working directory.
    common: PathBuf,
    _alone: Alone,
}

impl Programs {
    /// The programs of `suite` built for `mpi`, once no other MPI program runs.
    ///
    /// # Panics If they were not built.
    #[track_caller]
    pub fn new(suite: Suite, mpi: Mpi, area: &Area) -> Programs {
        let alone = Alone::wait();
        let family = if mpi == Mpi::Mpich {
            "mpich"
        } else {
            "openmpi"
        };
        Programs {
            suite,
            mpi,
            dir: inputs::mpi_suites().join(family).join(suite.name()),
            launcher: mpi.launcher(area),
            common: area.mkdir("place"),
            _alone: alone,
        }
    }

    /// The names of all programs that were built.
    ///
    /// # Panics If there are none.
    #[track_caller]
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.dir).expect("the suite");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("a program").file_name())
            .filter_map(|name| name.into_string().ok())
            .filter(|name| !self.suite.leaves_out(name))
            .collect();
        names.sort();
        assert!(!names.is_empty(), "{} is empty", self.dir.display());
        names
    }

    /// Runs a program with its ranks spread evenly over `places`, directories that show the same files. A
    /// program that has not ended after `limit` hangs.
    ///
    /// # Errors The program's error output.
    pub fn run(&mut self, name: &str, places: &[PathBuf], limit: Duration) -> Result<(), String> {
        let mut line: Vec<OsString> = vec![self.dir.join(name).into()];
        line.extend(self.suite.args(name).iter().map(OsString::from));
        self.launcher.set_ranks(self.suite.ranks(name));
        let outcome = self.launcher.run_in(places, &self.common, &line, limit);
        let title = format!("{} with {:?}", self.name_of(name), self.mpi);
        match outcome {
            None => Err(format!("{title} does not end")),
            Some(outcome) if outcome.status == 0 && !complains(&outcome) => Ok(()),
            Some(outcome) => Err(format!("{title}: {}", outcome.report())),
        }
    }

    fn name_of(&self, name: &str) -> String {
        Path::new(self.suite.name())
            .join(name)
            .display()
            .to_string()
    }
}

/// Whether a program that exited with 0 reports an error.
fn complains(outcome: &Outcome) -> bool {
    let said = String::from_utf8_lossy(&outcome.stdout) + outcome.stderr.as_str();
    said.lines().any(|line| {
        // Phrases of HDF5's programs that succeed, and the name of one of their tests.
        let line = line.to_lowercase();
        let line = line
            .replace("no failures", "")
            .replace("hangs quickly on failure", "");
        let fine = ["no error", "0 error", "error code", "expected"];
        line.contains("fail")
            || line.contains("error") && !fine.iter().any(|word| line.contains(word))
    })
}
