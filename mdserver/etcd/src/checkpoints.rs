//! [`Checkpoints`]: where the checkpoints are: files in a directory that all metadata services reach.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use slabfs_mdserver::kv::{Lsn, Snapshot};

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

    /// Stores a checkpoint of the metadata of this id, on disk.
    pub(crate) fn put(
        &self,
        snapshot: &mut Snapshot,
        (id, leader): (&str, i64),
    ) -> Result<Pointer, EtcdError> {
        let name = format!("{}{:020}-{leader}", prefix(id), snapshot.last.0);
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

    /// Removes the checkpoints of this metadata that end before a commit. A leader that was replaced removes nothing that its
    /// successors have stored: their checkpoints end later.
    pub(crate) fn remove_older(&self, id: &str, before: Lsn) -> Result<(), EtcdError> {
        let failed = |error: io::Error| EtcdError::io("list", &self.dir, &error);
        let prefix = prefix(id);
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let last = name
                .to_str()
                .and_then(|name| name.strip_prefix(&prefix)?.get(..20)?.parse::<u64>().ok());
            if last.is_some_and(|last| last < before.0)
                && let Err(error) = fs::remove_file(entry.path())
            {
                return Err(EtcdError::io("remove", &entry.path(), &error));
            }
        }
        Ok(())
    }
}

/// The beginning of names: several filesystems may have one directory.
fn prefix(id: &str) -> String {
    format!("checkpoint-{id}-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_older_checkpoints_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let names = [
            "checkpoint-aa-00000000000000000005-9",
            "checkpoint-aa-00000000000000000007-9",
            "checkpoint-aa-00000000000000000009-12",
            "checkpoint-ab-00000000000000000001-3",
            "other",
        ];
        for name in names {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let checkpoints = Checkpoints::new(dir.path()).unwrap();
        checkpoints.remove_older("aa", Lsn(7)).unwrap();
        let left = fs::read_dir(dir.path()).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, names[1..]);
    }
}
