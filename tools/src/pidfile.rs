//! `DIR/slabfs.pid`: the process that runs on a data directory, for `slabfs stop` and for scripts.
//!
//! The file contains the process number as text while the process runs. The process holds a lock on it (flock),
//! which distinguishes it from the file of a killed process, even if the number is in use again. It is for
//! convenience only: the locks of the stores ensure that one process uses a directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

const NAME: &str = "slabfs.pid";

/// The pid file of this process; removed when this is dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    _locked: File,
}

/// The state of a directory according to its pid file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This process runs on it.
    Running(u32),
    /// This process ran on it and was killed.
    Dead(u32),
    /// There is no (readable) file.
    Nothing,
}

/// The path of the pid file of `dir`.
pub(crate) fn path_in(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

impl PidFile {
    /// Writes the file of this process into `dir`, replacing that of a killed one.
    ///
    /// # Errors `ResourceBusy` if another process has one there. The caller has found the directory free
    /// ([`find`]), and a process removes its file last, so the other process has started at the same moment.
    pub(crate) fn write(dir: &Path) -> std::io::Result<PidFile> {
        let path = std::path::absolute(path_in(dir))?;
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ErrorKind::ResourceBusy.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes())?;
        Ok(PidFile {
            path,
            _locked: file,
        })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!("{} stays: {error}", self.path.display());
        }
    }
}

/// Finds the process that runs on `dir`.
pub(crate) fn find(dir: &Path) -> std::io::Result<Found> {
    let mut file = match File::open(path_in(dir)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let Ok(pid) = text.trim().parse() else {
        return Ok(Found::Nothing);
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Found::Dead(pid)),
        Err(TryLockError::WouldBlock) => Ok(Found::Running(pid)),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_running_from_dead_processes() {
        let dir = tempfile::tempdir().expect("dir");
        assert_eq!(find(dir.path()).expect("found"), Found::Nothing);
        let own = PidFile::write(dir.path()).expect("written");
        assert!(PidFile::write(dir.path()).is_err());
        let pid = std::process::id();
        assert_eq!(find(dir.path()).expect("found"), Found::Running(pid));
        drop(own);
        assert!(!path_in(dir.path()).exists());
        std::fs::write(path_in(dir.path()), "123456\n").expect("left behind");
        assert_eq!(find(dir.path()).expect("found"), Found::Dead(123_456));
        let _own = PidFile::write(dir.path()).expect("written over");
        assert_eq!(find(dir.path()).expect("found"), Found::Running(pid));
    }
}
