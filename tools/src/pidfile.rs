//! `DIR/slabfs.pid`: which process runs on a data directory, for `slabfs stop` and for scripts.
//!
//! The file holds the process number as text while the process runs. Its owner keeps it locked
//! (flock), so a file that a killed process left behind is told from a live one, and a number that
//! came to mean another process is never taken for it. It is a service to people: that a directory is used
//! by one process only is the locks of the stores themselves.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

const NAME: &str = "slabfs.pid";

/// The pid file of this process; gone when this is dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    _locked: File,
}

/// What a pid file says of a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This process runs on it.
    Running(u32),
    /// This process ran on it and was killed.
    Dead(u32),
    /// There is no (readable) file.
    Nothing,
}

/// Where the pid file of `dir` is.
pub(crate) fn path_in(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

impl PidFile {
    /// Writes the file of this process into `dir`, over what a killed one left.
    ///
    /// # Errors
    /// `ResourceBusy` when another process has one there. The directory was free when the caller looked
    /// ([`find`]), and an owner drops its file last, so that is another process that started this moment.
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

/// Looks up who runs on `dir`.
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
    fn tells_the_living_from_the_dead() {
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
