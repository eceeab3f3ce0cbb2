//! The roll: a log of the names of grid chunks that have a file of their own, to detect lost files.
//!
//! ```text
//! magic "SLABROLL" | version u32, 1 | entries
//! an entry: length of what follows u32 | 1 exists, 0 is deleted u8 | name | CRC-32C of all before u32
//! ```
//!
//! The metadata does not record which grid chunks exist, and a missing one reads as fill. A name is appended once its
//! file is on disk, so a name without a file means a lost file, and is reported as damage. Additions are written
//! without a sync: entries lost in a power failure cost no data; only a later loss of those files would go unnoticed. A
//! deletion, however, is on disk before it is acknowledged.
//!
//! Deliberately elsewhere: small chunks, which the segments and their catalogue record; and free chunks, which the
//! metadata records.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::directory::Directory;
use super::labels;
use super::shared::Shared;
use crate::checksum::crc32c;
use crate::error::{Result, StoreError};
use crate::name::ChunkName;

const MAGIC: &[u8; 8] = b"SLABROLL";
const VERSION: u32 = 1;
const HEAD: usize = 12;
const FILE: &str = "roll";
/// The number of obsolete entries above which the roll is rewritten when the store is opened.
const STALE: usize = 4096;

/// The roll of an open store.
#[derive(Debug)]
pub(super) struct Roll {
    path: PathBuf,
    shared: Arc<Shared>,
    /// The roll was complete and intact when it was opened.
    intact: bool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    file: Option<File>,
    names: HashSet<ChunkName>,
    /// Deletions that may not be on disk.
    deleted: bool,
}

/// The content of a roll.
struct Read {
    names: HashSet<ChunkName>,
    entries: usize,
    intact: bool,
}

impl Roll {
    /// Reads the roll of a directory.
    pub(super) fn open(directory: &Directory, shared: Arc<Shared>) -> Result<(Self, Stale)> {
        let path = directory.path().join(FILE);
        let read = match fs::read(&path) {
            Ok(bytes) => parse(&bytes),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Read {
                names: HashSet::new(),
                entries: 0,
                intact: false,
            },
            Err(e) if e.raw_os_error() == Some(libc::EIO) => parse(&[]),
            Err(e) => return Err(StoreError::from_io("read", &path, &e)),
        };
        let stale = Stale {
            rewrite: !read.intact || read.entries > 2 * read.names.len() + STALE,
        };
        let inner = Inner {
            names: read.names,
            ..Inner::default()
        };
        let roll = Self {
            path,
            shared,
            intact: read.intact,
            inner: Mutex::new(inner),
        };
        Ok((roll, stale))
    }

    /// Calls `f` for each name.
    pub(super) fn each(&self, mut f: impl FnMut(&ChunkName)) {
        self.inner.lock().names.iter().for_each(&mut f);
    }

    /// Whether the file of a grid chunk was never known to be on disk.
    pub(super) fn never_had(&self, name: &ChunkName) -> bool {
        self.intact && !self.inner.lock().names.contains(name)
    }

    /// Starts logging: `there` are the grid chunks that have files.
    pub(super) fn begin(&self, stale: &Stale, there: Vec<ChunkName>) {
        if stale.rewrite {
            let mut inner = self.inner.lock();
            inner.names.extend(there);
            // The open file is about to be replaced.
            inner.file = None;
            if let Err(error) = self.rewrite(&inner.names) {
                tracing::warn!("{}: cannot be written: {error}", self.path.display());
            }
        } else {
            self.note(&there, |_| true);
        }
    }

    /// Adds chunks whose files are on disk, if they `stay`: this is evaluated under the lock that [`Roll::forget`]
    /// takes, so that a deleted chunk is not added again.
    pub(super) fn note<'a>(
        &self,
        chunks: impl IntoIterator<Item = &'a ChunkName>,
        stay: impl Fn(&ChunkName) -> bool,
    ) {
        let mut inner = self.inner.lock();
        let mut bytes = Vec::new();
        for name in chunks {
            let new = matches!(name, ChunkName::Grid { .. }) && !inner.names.contains(name);
            if new && stay(name) {
                push(name, true, &mut bytes);
                inner.names.insert(name.clone());
            }
        }
        self.append(&mut inner, &bytes);
    }

    /// Removes a chunk that is being deleted.
    pub(super) fn forget(&self, name: &ChunkName) {
        let mut inner = self.inner.lock();
        if inner.names.remove(name) {
            let mut bytes = Vec::new();
            push(name, false, &mut bytes);
            inner.deleted = true;
            self.append(&mut inner, &bytes);
        }
    }

    /// Makes deletions durable.
    pub(super) fn sync(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        if let (true, Some(file)) = (inner.deleted, &inner.file) {
            self.shared
                .sync_file(file, &self.path)
                .map_err(|e| StoreError::from_io("sync", &self.path, &e))?;
        }
        inner.deleted = false;
        Ok(())
    }

    /// Appends entries. A failure is only logged, since it costs no data.
    fn append(&self, inner: &mut Inner, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let opened = match inner.file.take() {
            Some(file) => Ok(file),
            None => OpenOptions::new().append(true).open(&self.path),
        };
        let written = opened.and_then(|mut file| {
            let before = file.metadata()?.len();
            if let Err(error) = file.write_all(bytes) {
                // A partial entry would end the roll there.
                file.set_len(before)?;
                return Err(error);
            }
            Ok(file)
        });
        match written {
            Ok(file) => inner.file = Some(file),
            Err(error) => tracing::warn!(
                "{}: cannot be written, a loss of chunks may go unnoticed: {error}",
                self.path.display()
            ),
        }
    }

    fn rewrite(&self, names: &HashSet<ChunkName>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEAD + names.len() * 48);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        for name in names {
            push(name, true, &mut bytes);
        }
        let temporary = self.path.with_extension("tmp");
        fs::write(&temporary, &bytes)?;
        fs::rename(&temporary, &self.path)
    }
}

/// The condition of a roll when it was opened.
pub(super) struct Stale {
    /// It must be rewritten.
    rewrite: bool,
}

fn push(name: &ChunkName, there: bool, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(u8::from(there));
    labels::write_name(name, out);
    let len = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
}

/// Reads entries up to the first incomplete or damaged one.
fn parse(bytes: &[u8]) -> Read {
    let mut read = Read {
        names: HashSet::new(),
        entries: 0,
        intact: true,
    };
    let head = bytes.get(..HEAD);
    if head.is_none_or(|head| head[..8] != *MAGIC || head[8..] != VERSION.to_le_bytes()) {
        read.intact = false;
        return read;
    }
    let mut rest = &bytes[HEAD..];
    while !rest.is_empty() {
        let Some((name, there, len)) = entry(rest) else {
            read.intact = false;
            return read;
        };
        read.entries += 1;
        if there {
            read.names.insert(name);
        } else {
            read.names.remove(&name);
        }
        rest = &rest[len..];
    }
    read
}

fn entry(bytes: &[u8]) -> Option<(ChunkName, bool, usize)> {
    let len = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let body = bytes.get(..len).filter(|body| body.len() > 5)?;
    let crc = bytes.get(len..)?.first_chunk::<4>()?;
    if crc32c(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let name = labels::read_name(&body[5..])?;
    Some((name, body[4] == 1, len + 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use slabfs_model::ObjectId;

    fn grid(at: u64) -> ChunkName {
        ChunkName::Grid {
            object: ObjectId(7),
            generation: 1,
            at: [at, 3].into_iter().collect(),
        }
    }

    #[test]
    fn a_torn_end_does_not_affect_earlier_entries() {
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        push(&grid(1), true, &mut bytes);
        push(&grid(2), true, &mut bytes);
        push(&grid(1), false, &mut bytes);
        let intact = parse(&bytes);
        assert!(intact.intact && intact.entries == 3);
        assert_eq!(intact.names, HashSet::from([grid(2)]));
        for len in 0..bytes.len() {
            let read = parse(&bytes[..len]);
            assert!(read.names.len() <= 2, "{len}");
        }
        for at in HEAD..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            assert!(!parse(&flipped).intact, "{at}");
        }
    }
}
