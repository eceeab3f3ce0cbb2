//! The directory of a store: its lock, its identity, the names of its files.
//!
//! ```text
//! FORMAT            text: what this is, the format's number, the store's id
//! opened            how often the store was opened, and whether it was left in order
//! catalogue         where the small chunks were when it was, see `catalogue`
//! lock              locked (flock) while a process has the store open; its pid inside
//! segments/N.seg    small chunks, see `segment`
//! free/AAA/BBB/ID.chunk                     one large free chunk, see `file`
//! grid/AAA/BBB/OBJECT-GENERATION-AT.chunk   one large grid chunk
//! ```
//!
//! AAA and BBB are the upper and the middle bits of the id, so that chunks made one after the other
//! share a directory of at most 1024 ids.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use slabfs_model::{ChunkId, Coords, ObjectId};

use super::shared::Shared;
use crate::error::{Result, StoreError};
use crate::name::ChunkName;

const FORMAT: u32 = 1;
const FIRST_LINE: &str = "slabfs chunk store";
/// Longer names are hashed: a file name has at most 255 bytes.
const STEM_MAX: usize = 200;

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
    /// Nothing where the file's name is a hash: its head says.
    pub(super) name: Option<ChunkName>,
}

impl Directory {
    /// Opens the store in `path`, makes it if there is nothing, and locks it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let fail = |what: &str| {
            let path = path.to_owned();
            let what = what.to_owned();
            move |e: io::Error| StoreError::from_io(&what, &path, &e)
        };
        fs::create_dir_all(path).map_err(fail("create"))?;
        let lock = lock(path)?;
        let mut format = String::new();
        let file = path.join("FORMAT");
        let id = match File::open(&file).and_then(|mut f| f.read_to_string(&mut format)) {
            Ok(_) => parse_format(path, &format)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => create_format(path)?,
            Err(e) => return Err(StoreError::from_io("read", &file, &e)),
        };
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

    /// Makes the directories above `file`.
    pub(super) fn make_parents(&self, file: &Path) -> Result<()> {
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

    /// Notes that an entry of the directory of `file` came or went.
    pub(super) fn note_change(&self, file: &Path) {
        if let Some(parent) = file.parent() {
            let mut changed = self.changed.lock();
            if !changed.contains(parent) {
                changed.insert(parent.to_owned());
            }
        }
    }

    /// Syncs the directories above these files that changed, or all with no files.
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

    /// Counts the openings of the store, on disk, and says which this is, and whether the last one ended
    /// in order. Where it did not, everything that is in the directory is brought to the disk, so
    /// that what is found can be relied on.
    pub(super) fn note_opening(&self, durable: bool) -> Result<(u64, bool)> {
        let path = self.path.join("opened");
        let (last, end) = match fs::read_to_string(&path) {
            Ok(text) => {
                let mut words = text.split_whitespace();
                let last = words.next().and_then(|n| n.parse::<u64>().ok());
                let last = last.ok_or_else(|| {
                    StoreError::Invalid(format!("{}: it should begin with the number of times the store was opened; write one that is surely larger", path.display()))
                })?;
                (last, words.next().unwrap_or("running").to_owned())
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => (0, "clean".to_owned()),
            Err(e) => return Err(StoreError::from_io("read", &path, &e)),
        };
        // "unsynced" is closed in order too, but perhaps not on disk.
        if end != "clean" {
            if end != "unsynced" {
                tracing::warn!("{}: the store was not closed in order", self.path.display());
            }
            if durable {
                let synced = File::open(&self.path)
                    .and_then(|dir| nix::unistd::syncfs(&dir).map_err(io::Error::from));
                synced.map_err(|e| StoreError::from_io("sync", &self.path, &e))?;
            }
        }
        self.write_opened(&format!("{} running\n", last + 1), durable)?;
        Ok((last + 1, end == "clean"))
    }

    /// Notes that the store is left in order, everything being on disk.
    pub(super) fn note_clean(&self, durable: bool) -> Result<()> {
        let path = self.path.join("opened");
        let text = fs::read_to_string(&path).map_err(|e| StoreError::from_io("read", &path, &e))?;
        let state = if durable { "clean" } else { "unsynced" };
        self.write_opened(
            &format!(
                "{} {state}\n",
                text.split_whitespace().next().unwrap_or("0")
            ),
            durable,
        )
    }

    fn write_opened(&self, text: &str, durable: bool) -> Result<()> {
        let (tmp, path) = (self.path.join("opened.tmp"), self.path.join("opened"));
        let write = || -> io::Result<()> {
            let mut file = File::create(&tmp)?;
            file.write_all(text.as_bytes())?;
            if durable {
                file.sync_all()?;
            }
            fs::rename(&tmp, &path)
        };
        write().map_err(|e| StoreError::from_io("write", &path, &e))?;
        if durable {
            sync_dir(&self.path)
        } else {
            Ok(())
        }
    }

    /// All files of large chunks. What a crash left behind under a temporary name is removed.
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

fn grid_stem(object: ObjectId, generation: u32, at: &Coords) -> String {
    let places: Vec<String> = at.iter().map(|x| format!("{x:x}")).collect();
    let stem = format!("{:016x}-{generation:x}-{}", object.0, places.join("."));
    if stem.len() <= STEM_MAX {
        return stem;
    }
    format!(
        "{:016x}-{generation:x}-h{:032x}",
        object.0,
        xxhash_rust::xxh3::xxh3_128(stem.as_bytes())
    )
}

fn parse_stem(path: &Path) -> Option<ChunkName> {
    let stem = path.file_stem()?.to_str()?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let Some((object, rest)) = stem.split_once('-') else {
        return hex(stem).map(|id| ChunkName::Free(ChunkId(id)));
    };
    let (generation, places) = rest.split_once('-')?;
    if places.starts_with('h') {
        return None;
    }
    let at: Option<Coords> = match places {
        "" => Some(Coords::new()),
        _ => places.split('.').map(hex).collect(),
    };
    Some(ChunkName::Grid {
        object: ObjectId(hex(object)?),
        generation: hex(generation)?.try_into().ok()?,
        at: at?,
    })
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

fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    let fail = |e: io::Error| StoreError::from_io("lock", &path, &e);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(fail)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut text = String::new();
            // The pid only makes the message better.
            let holder = file
                .read_to_string(&mut text)
                .ok()
                .and_then(|_| text.trim().parse().ok());
            return Err(StoreError::Locked {
                dir: dir.to_owned(),
                holder,
            });
        }
        Err(fs::TryLockError::Error(e)) => return Err(fail(e)),
    }
    file.set_len(0).map_err(fail)?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
        .map_err(fail)?;
    Ok(file)
}

fn create_format(dir: &Path) -> Result<[u8; 16]> {
    let strangers: Vec<PathBuf> = entries(dir)?
        .into_iter()
        .filter(|p| {
            !matches!(
                p.file_name().and_then(|n| n.to_str()),
                Some("lock" | "lost+found" | "FORMAT.tmp")
            )
        })
        .collect();
    if let Some(stranger) = strangers.first() {
        return Err(StoreError::Invalid(format!(
            "{} is not a chunk store and not empty (it has {}): choose an empty directory; if it was a store, its FORMAT file is lost: put it back from a backup",
            dir.display(),
            stranger.display(),
        )));
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|e| StoreError::Io {
        what: "draw a store id".to_owned(),
        detail: e.to_string(),
        errno: None,
    })?;
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let (tmp, path) = (dir.join("FORMAT.tmp"), dir.join("FORMAT"));
    let text = format!("{FIRST_LINE}\nformat {FORMAT}\nid {hex}\n");
    let write = || -> io::Result<()> {
        let mut file = File::create(&tmp)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&tmp, &path)
    };
    write().map_err(|e| StoreError::from_io("create", &path, &e))?;
    Ok(id)
}

fn parse_format(dir: &Path, text: &str) -> Result<[u8; 16]> {
    let bad = |why: &str| StoreError::Invalid(format!("{}: {why}", dir.join("FORMAT").display()));
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err(bad(
            "this is not the FORMAT file of a slabfs chunk store; choose another directory",
        ));
    }
    let version = lines
        .next()
        .and_then(|l| l.strip_prefix("format "))
        .and_then(|v| v.trim().parse::<u32>().ok());
    match version {
        Some(FORMAT) => {}
        Some(other) => {
            return Err(bad(&format!(
                "the store has format {other} and this slabfs reads format {FORMAT}: use the slabfs that wrote it, or choose another directory"
            )));
        }
        None => {
            return Err(bad(
                "the line `format N` is missing; put the file back from a backup",
            ));
        }
    }
    let hex = lines
        .next()
        .and_then(|l| l.strip_prefix("id "))
        .map_or("", str::trim);
    let digits = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    let id = u128::from_str_radix(hex, 16).ok().filter(|_| digits);
    id.map(u128::to_be_bytes)
        .ok_or_else(|| bad("the line `id` is not 32 hex digits; put the file back from a backup"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_read_back() {
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
    fn a_second_opener_is_told_who_has_it() {
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

    #[test]
    fn what_is_no_store_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("thesis.tex"), "x").unwrap();
        assert!(
            Directory::open(tmp.path())
                .unwrap_err()
                .to_string()
                .contains("thesis.tex")
        );
        fs::remove_file(tmp.path().join("thesis.tex")).unwrap();
        drop(Directory::open(tmp.path()).unwrap());
        let format = tmp.path().join("FORMAT");
        let text = fs::read_to_string(&format).unwrap();
        for (from, to, why) in [
            ("format 1", "format 9", "use the slabfs that wrote it"),
            ("slabfs chunk", "other", "choose another directory"),
            ("id ", "id x", "32 hex digits"),
            ("format 1", "", "missing"),
        ] {
            fs::write(&format, text.replace(from, to)).unwrap();
            let error = Directory::open(tmp.path()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
