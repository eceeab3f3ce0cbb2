//! Locks between commands, also on several mounts.
//!
//! A mount has no locks of directories that others see, so the lock of a directory is one of a file in it. The file is removed
//! when the lock is released; one that a killed command left has no lock, and is used again.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::signals;

/// The name of the file in a directory.
const NAME: &str = ".slabfs-lock";

/// A lock; dropping it releases it.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
    /// The file that is removed, if it was made for the lock.
    path: Option<PathBuf>,
}

impl Lock {
    /// Locks a directory, or a file. If another command has the lock, `wait` is called, and this waits if it returns true;
    /// otherwise there is no lock.
    pub(crate) fn of(path: &Path, wait: &dyn Fn() -> bool) -> anyhow::Result<Option<Lock>> {
        let is_directory = path
            .symlink_metadata()
            .with_context(|| format!("opening {}", path.display()))?
            .is_dir();
        let place = match is_directory {
            true => path.join(NAME),
            false => path.to_owned(),
        };
        let with = || format!("locking {}", place.display());
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            if is_directory {
                // Not a link that another user has put there.
                options.custom_flags(libc::O_NOFOLLOW);
            }
            let file = match is_directory {
                true => options.create(true).truncate(false).open(&place),
                false => options.open(&place),
            };
            let file = file.with_context(with)?;
            if !locked(&file, wait).with_context(with)? {
                return Ok(None);
            }
            // The one that had the lock has removed the file.
            let now = place.metadata().ok();
            let same =
                now.is_some_and(|now| file.metadata().is_ok_and(|own| own.ino() == now.ino()));
            if same {
                return Ok(Some(Lock {
                    _file: file,
                    path: is_directory.then_some(place),
                }));
            }
        }
    }

    /// The directory is removed with the file.
    pub(crate) fn leave_file(&mut self) {
        self.path = None;
    }

    /// The directory has another name now.
    pub(crate) fn moved(&mut self, to: &Path) {
        if let Some(path) = &mut self.path {
            *path = to.join(NAME);
        }
    }
}

fn locked(file: &File, wait: &dyn Fn() -> bool) -> anyhow::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        // A mount without locks.
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP) => return Ok(true),
        Err(Errno::WOULDBLOCK) if wait() => {}
        Err(Errno::WOULDBLOCK) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    loop {
        match flock(file, FlockOperation::LockExclusive) {
            Err(Errno::INTR) => signals::check()?,
            locked => return Ok(locked.map(|()| true)?),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it has the lock: the next one makes a new file. What cannot be removed is used again.
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}
