//! The directory of a store: its lock, its identity, the names of its files.
//!
//! ```text
//! FORMAT            text: what this is, the format's number, the store's id; and a copy, FORMAT.copy
//! opened            how often the store was opened, and whether it was closed cleanly; and a copy, opened.copy
//! sessions          text: the sessions that may change grid chunks, see `server/fence.rs`
//! catalogue         the locations of small chunks at the last clean close, see `catalogue`
//! lock              locked (flock) while a process has the store open; its pid inside
//! segments/N.seg    small chunks, see `segment`
//! free/AAA/BBB/ID.chunk                     one large free chunk, see `file`
//! grid/AAA/BBB/OBJECT-GENERATION-AT.chunk   one large grid chunk
//! ```
//!
//! AAA and BBB are the upper and the middle bits of the id, so that consecutively created chunks share a directory of
//! at most 1024 ids.

mod identity;
mod opened;
mod stems;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use self::identity::lock;
use self::stems::{grid_stem, parse_stem};
use super::shared::Shared;
use crate::error::{Result, StoreError};
use crate::name::ChunkName;

/// The open, locked directory.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    id: [u8; 16],
    /// Held for its lock.
    _lock: File,
    /// Directories whose entries changed since they were last synced.
    changed: Mutex<HashSet<PathBuf>>,
}

/// A file found in the tree.
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// `None` if the file's name is a hash; the head holds the name then.
    pub(super) name: Option<ChunkName>,
}

impl Directory {
    /// Opens the store in `path`, creating it if the directory is empty, and locks it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let fail = |what: &str| {
            let path = path.to_owned();
            let what = what.to_owned();
            move |e: io::Error| StoreError::from_io(&what, &path, &e)
        };
        // Before anything is created in it.
        identity::find(path)?;
        fs::create_dir_all(path).map_err(fail("create"))?;
        let lock = lock(path)?;
        let id = identity::establish(path)?;
        for sub in ["segments", "free", "grid"] {
            fs::create_dir_all(path.join(sub)).map_err(fail("create in"))?;
        }
        sync_dir(path)?;
        Ok(Self {
            path: path.to_owned(),
            id,
            _lock: lock,
            changed: Mutex::default(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn id(&self) -> [u8; 16] {
        self.id
    }

    pub(super) fn segments(&self) -> PathBuf {
        self.path.join("segments")
    }

    /// The file of a large chunk.
    pub(super) fn chunk_path(&self, name: &ChunkName) -> PathBuf {
        let (kind, id, stem) = match name {
            ChunkName::Free(id) => ("free", id.0, format!("{:016x}", id.0)),
            ChunkName::Grid {
                object,
                generation,
                at,
            } => ("grid", object.0, grid_stem(*object, *generation, at)),
        };
        self.path.join(format!(
            "{kind}/{:03x}/{:03x}/{stem}.chunk",
            id >> 20,
            id >> 10 & 0x3ff
        ))
    }

    /// Creates a file with `create`, and before it the parent directories if they are missing.
    pub(super) fn create<T>(&self, file: &Path, create: impl Fn() -> io::Result<T>) -> Result<T> {
        let made = match create() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.make_parents(file)?;
                create()
            }
            other => other,
        };
        made.map_err(|e| StoreError::from_io("create", file, &e))
    }

    fn make_parents(&self, file: &Path) -> Result<()> {
        let Some(parent) = file.parent() else {
            return Ok(());
        };
        fs::create_dir_all(parent).map_err(|e| StoreError::from_io("create", parent, &e))?;
        let mut changed = self.changed.lock();
        changed.extend(
            parent
                .ancestors()
                .skip(1)
                .take_while(|dir| dir.starts_with(&self.path))
                .map(Path::to_owned),
        );
        Ok(())
    }

    /// Notes that an entry was added to or removed from the directory of `file`.
    pub(super) fn note_change(&self, file: &Path) {
        if let Some(parent) = file.parent() {
            let mut changed = self.changed.lock();
            if !changed.contains(parent) {
                changed.insert(parent.to_owned());
            }
        }
    }

    /// Syncs the changed directories above these files, or all changed directories.
    pub(super) fn sync<'a>(
        &self,
        shared: &Shared,
        files: impl IntoIterator<Item = &'a Path>,
        all: bool,
    ) -> Result<()> {
        let mut due = HashSet::new();
        {
            let mut changed = self.changed.lock();
            if all {
                due = std::mem::take(&mut *changed);
            } else {
                for file in files {
                    due.extend(file.ancestors().skip(1).filter_map(|dir| changed.take(dir)));
                }
            }
        }
        for dir in &due {
            if let Err(error) = shared.sync_dir(dir) {
                let error = StoreError::from_io("sync directory", dir, &error);
                self.changed.lock().extend(due);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Lists all files of large chunks. Removes temporary files that a crash left behind.
    pub(super) fn chunk_files(&self, found: &mut dyn FnMut(Found) -> Result<()>) -> Result<()> {
        for kind in ["free", "grid"] {
            for upper in entries(&self.path.join(kind))? {
                for middle in entries(&upper)? {
                    for path in entries(&middle)? {
                        match path.extension().and_then(|e| e.to_str()) {
                            Some("chunk") => found(Found {
                                name: parse_stem(&path),
                                path,
                            })?,
                            Some("tmp") => {
                                fs::remove_file(&path)
                                    .map_err(|e| StoreError::from_io("remove", &path, &e))?;
                            }
                            _ => tracing::warn!(
                                "{} does not belong to the chunk store",
                                path.display()
                            ),
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let fail = |e: io::Error| StoreError::from_io("list", dir, &e);
    match fs::read_dir(dir) {
        Ok(list) => list
            .map(|entry| entry.map(|e| e.path()).map_err(fail))
            .collect(),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            tracing::warn!("{} does not belong to the chunk store", dir.display());
            Ok(Vec::new())
        }
        Err(e) => Err(fail(e)),
    }
}

fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|d| d.sync_all())
        .map_err(|e| StoreError::from_io("sync directory", dir, &e))
}

#[cfg(test)]
mod tests {
    use slabfs_model::{ChunkId, Coords, ObjectId};

    use super::*;

    #[test]
    fn file_names_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Directory::open(dir.path()).unwrap();
        let short = ChunkName::Grid {
            object: ObjectId(77),
            generation: 2,
            at: [3, 0, 255].into_iter().collect(),
        };
        let long = ChunkName::Grid {
            object: ObjectId(77),
            generation: 2,
            at: (0..32).map(|x| u64::MAX - x).collect(),
        };
        let scalar = ChunkName::Grid {
            object: ObjectId(u64::MAX),
            generation: 0,
            at: Coords::new(),
        };
        for name in [ChunkName::Free(ChunkId(0x1234_5678)), short, scalar] {
            assert_eq!(parse_stem(&dir.chunk_path(&name)), Some(name));
        }
        assert_eq!(parse_stem(&dir.chunk_path(&long)), None);
        assert!(dir.chunk_path(&long).file_name().unwrap().len() < 255);
    }

    #[test]
    fn a_second_opener_gets_the_pid_of_the_holder() {
        let tmp = tempfile::tempdir().unwrap();
        let held = Directory::open(tmp.path()).unwrap();
        let error = Directory::open(tmp.path()).unwrap_err().to_string();
        assert!(
            error.contains(&tmp.path().display().to_string()) && error.contains("another process"),
            "{error}"
        );
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        let id = held.id();
        drop(held);
        assert_eq!(Directory::open(tmp.path()).unwrap().id(), id);
    }
}
