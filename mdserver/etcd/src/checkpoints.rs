//! [`Checkpoints`]: where the checkpoints are: files in a directory that all metadata services reach, or objects in a bucket.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use slabfs_mdserver::kv::{Lsn, Snapshot};
use slabfs_objstore::StoreError;
use slabfs_s3::{Bucket, Durability, S3Addr};

use crate::error::EtcdError;
use crate::log::Pointer;

/// The folder of all checkpoints in a bucket.
const FOLDER: &str = "checkpoints";

/// Where checkpoints are: a directory, or `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointsAddr {
    /// A directory that all services reach.
    Directory(PathBuf),
    /// A prefix in a bucket.
    Bucket(S3Addr),
}

impl FromStr for CheckpointsAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<CheckpointsAddr, String> {
        match text.starts_with("s3:") {
            true => match text.parse::<S3Addr>()? {
                addr if addr.durability() != Durability::Bucket => {
                    Err("checkpoints are always in the bucket: leave durability out".to_owned())
                }
                addr => Ok(CheckpointsAddr::Bucket(addr)),
            },
            false if text.is_empty() => Err("an empty path is no directory".to_owned()),
            false => Ok(CheckpointsAddr::Directory(text.into())),
        }
    }
}

impl CheckpointsAddr {
    /// The place of a part of the filesystem: in a directory, which exists, another one is created for it.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn below(&self, part: &str) -> Result<CheckpointsAddr, EtcdError> {
        match self {
            CheckpointsAddr::Bucket(addr) => Ok(CheckpointsAddr::Bucket(addr.below(part))),
            CheckpointsAddr::Directory(dir) => {
                let below = dir.join(part);
                match fs::create_dir(&below) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        Err(EtcdError::io("create the directory", &below, &error))
                    }
                    _ => Ok(CheckpointsAddr::Directory(below)),
                }
            }
        }
    }
}

/// The checkpoints: files in a directory, or objects in a bucket.
#[derive(Debug, Clone)]
pub enum Checkpoints {
    /// A directory.
    Directory(PathBuf),
    /// Each checkpoint is a folder with its parts.
    Bucket(Arc<Bucket>),
}

impl Checkpoints {
    /// The directory, which has to exist (created by each service, it could be another one on each machine), or the bucket.
    ///
    /// # Errors
    /// If it is no directory; settings of the bucket that contradict each other.
    pub fn open(addr: &CheckpointsAddr) -> Result<Checkpoints, EtcdError> {
        let dir = match addr {
            CheckpointsAddr::Directory(dir) => dir,
            CheckpointsAddr::Bucket(addr) => {
                let bucket = Bucket::open(addr);
                let bucket = bucket.map_err(|error| EtcdError::Content(error.to_string()))?;
                return Ok(Checkpoints::Bucket(Arc::new(bucket)));
            }
        };
        match fs::metadata(dir) {
            Ok(found) if found.is_dir() => Ok(Checkpoints::Directory(dir.to_owned())),
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

    /// Fails if no checkpoint can be stored there, or the newest one is not there.
    pub(crate) fn check(&self, newest: Option<&Pointer>) -> Result<(), EtcdError> {
        let missing = |place: &str, pointer: &Pointer| {
            EtcdError::Content(format!(
                "the newest checkpoint {} is not in {place}; give all metadata services the same --checkpoints",
                pointer.name
            ))
        };
        match self {
            Checkpoints::Directory(dir) => {
                let probe = dir.join(".writable");
                let written = File::create(&probe).map(drop);
                written.map_err(|error| EtcdError::io("write", &probe, &error))?;
                match newest {
                    Some(pointer) if !dir.join(&pointer.name).exists() => {
                        Err(missing(&dir.display().to_string(), pointer))
                    }
                    _ => Ok(()),
                }
            }
            Checkpoints::Bucket(bucket) => {
                bucket
                    .probe(&folder(".writable"))
                    .map_err(|error| of_bucket(&error))?;
                let Some(pointer) = newest else { return Ok(()) };
                let parts = bucket
                    .list(&folder(&pointer.name))
                    .map_err(|error| of_bucket(&error))?;
                match parts.is_empty() {
                    true => Err(missing("the bucket", pointer)),
                    false => Ok(()),
                }
            }
        }
    }

    /// Stores a checkpoint of the metadata of this id, on disk.
    pub(crate) fn put(
        &self,
        snapshot: &mut Snapshot,
        (id, leader): (&str, i64),
    ) -> Result<Pointer, EtcdError> {
        let name = format!("{}{:020}-{leader}", prefix(id), snapshot.last.0);
        let stored = match self {
            Checkpoints::Directory(dir) => store_file(&mut snapshot.file, dir, &name)?,
            Checkpoints::Bucket(bucket) => bucket
                .store_parts(&folder(&name), &mut snapshot.file)
                .map_err(|error| of_bucket(&error))?,
        };
        match stored == snapshot.bytes {
            true => Ok(Pointer {
                name,
                last: snapshot.last.0,
                bytes: stored,
            }),
            false => Err(EtcdError::Content(format!(
                "{stored} of {} bytes of the checkpoint {name} were stored",
                snapshot.bytes
            ))),
        }
    }

    /// A file with a checkpoint; one that has to be fetched is put at `to`.
    pub(crate) fn file(&self, pointer: &Pointer, to: &Path) -> Result<PathBuf, EtcdError> {
        let dir = match self {
            Checkpoints::Directory(dir) => dir,
            Checkpoints::Bucket(bucket) => {
                let mut file =
                    File::create(to).map_err(|error| EtcdError::io("create", to, &error))?;
                let fetched = bucket.fetch_parts(&folder(&pointer.name), pointer.bytes, &mut file);
                fetched.map_err(|error| of_bucket(&error))?;
                return Ok(to.to_owned());
            }
        };
        let path = dir.join(&pointer.name);
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
        let prefix = prefix(id);
        let is_old = |name: &str| {
            let last = name.strip_prefix(&prefix).and_then(|rest| rest.get(..20));
            let last = last.and_then(|last| last.parse::<u64>().ok());
            last.is_some_and(|last| last < before.0)
        };
        let dir = match self {
            Checkpoints::Directory(dir) => dir,
            Checkpoints::Bucket(bucket) => {
                let removed = bucket.list(FOLDER).and_then(|mut keys| {
                    keys.retain(|key| is_old(key));
                    keys.iter_mut().for_each(|key| *key = folder(key));
                    bucket.delete_all(&keys)
                });
                return removed.map_err(|error| of_bucket(&error));
            }
        };
        let failed = |error: io::Error| EtcdError::io("list", dir, &error);
        for entry in fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().to_str().is_some_and(is_old)
                && let Err(error) = fs::remove_file(entry.path())
            {
                return Err(EtcdError::io("remove", &entry.path(), &error));
            }
        }
        Ok(())
    }
}

/// Stores a file under a name in a directory, on disk; returns its length.
fn store_file(from: &mut File, dir: &Path, name: &str) -> Result<u64, EtcdError> {
    let unfinished = dir.join(format!("{name}.tmp"));
    let copied = File::create(&unfinished).and_then(|mut file| {
        let bytes = io::copy(from, &mut file)?;
        file.sync_all()?;
        fs::rename(&unfinished, dir.join(name))?;
        File::open(dir)?.sync_all()?;
        Ok(bytes)
    });
    copied.map_err(|error| EtcdError::io("write", &unfinished, &error))
}

fn folder(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

fn of_bucket(error: &StoreError) -> EtcdError {
    EtcdError::Bucket {
        detail: error.to_string(),
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
        let checkpoints =
            Checkpoints::open(&CheckpointsAddr::Directory(dir.path().to_owned())).unwrap();
        checkpoints.remove_older("aa", Lsn(7)).unwrap();
        let left = fs::read_dir(dir.path()).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, names[1..]);
    }
}
