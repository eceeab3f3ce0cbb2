//! [`Checkpoints`]: where the checkpoints are: files in a directory that all metadata services reach.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use slabfs_mdserver::kv::Snapshot;

use crate::error::EtcdError;
use crate::log::Pointer;

/// A directory of checkpoints.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    dir: PathBuf,
}

impl Checkpoints {
    /// The directory, which has to exist: created by each service, it could be another one on each machine.
    ///
    /// # Errors
    /// If it is no directory.
    pub fn new(dir: &Path) -> Result<Checkpoints, EtcdError> {
        match fs::metadata(dir) {
            Ok(found) if found.is_dir() => Ok(Checkpoints {
                dir: dir.to_owned(),
            }),
            Ok(_) => Err(EtcdError::Content(format!(
                "{} is not a directory",
                dir.display()
            ))),
            Err(error) => Err(EtcdError::io(
                "use the directory of checkpoints",
                dir,
                &error,
            )),
        }
    }

    /// Stores a checkpoint, on disk.
    pub(crate) fn put(&self, snapshot: &mut Snapshot, leader: i64) -> Result<Pointer, EtcdError> {
        let name = format!("checkpoint-{:020}-{leader}", snapshot.last.0);
        let path = self.dir.join(&name);
        let unfinished = self.dir.join(format!("{name}.tmp"));
        let copied = File::create(&unfinished).and_then(|mut file| {
            let bytes = io::copy(&mut snapshot.file, &mut file)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            File::open(&self.dir)?.sync_all()?;
            Ok(bytes)
        });
        match copied {
            Ok(bytes) if bytes == snapshot.bytes => Ok(Pointer {
                name,
                last: snapshot.last.0,
                bytes,
            }),
            Ok(bytes) => Err(EtcdError::Content(format!(
                "{}: {bytes} of {} bytes were copied",
                path.display(),
                snapshot.bytes
            ))),
            Err(error) => Err(EtcdError::io("write", &unfinished, &error)),
        }
    }

    /// The file of a checkpoint.
    pub(crate) fn file(&self, pointer: &Pointer) -> Result<PathBuf, EtcdError> {
        let path = self.dir.join(&pointer.name);
        match fs::metadata(&path) {
            Ok(found) if found.len() == pointer.bytes => Ok(path),
            Ok(found) => Err(EtcdError::Content(format!(
                "{} has {} bytes and not {}",
                path.display(),
                found.len(),
                pointer.bytes
            ))),
            Err(error) => Err(EtcdError::Content(format!(
                "the newest checkpoint {} is not there ({error}); give all metadata services the same directory with --checkpoints",
                path.display()
            ))),
        }
    }

    /// Removes all checkpoints but these, and what broken copies have left.
    pub(crate) fn remove_others(&self, keep: &[&str]) -> Result<(), EtcdError> {
        let failed = |error: io::Error| EtcdError::io("list", &self.dir, &error);
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let other = name
                .to_str()
                .is_some_and(|name| name.starts_with("checkpoint-") && !keep.contains(&name));
            if other && let Err(error) = fs::remove_file(entry.path()) {
                return Err(EtcdError::io("remove", &entry.path(), &error));
            }
        }
        Ok(())
    }
}
