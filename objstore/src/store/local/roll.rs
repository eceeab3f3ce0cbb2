//! The roll of grid chunks: which of them have a file of their own.
//!
//! ```text
//! magic "SLABROLL" | version u32, 1 | entries
//! an entry: length of what follows u32 | 1 is there, 0 is deleted u8 | name | CRC-32C of all before u32
//! ```
//!
//! Nobody else records which grid chunks there are, and one that does not exist reads as fill. A name
//! is put down once its file is on disk, so a name without a file is a loss, and is reported as damage.
//! The roll itself is written without waiting for the disk: what a loss of power takes from it costs no
//! data, only that a later loss of those files would not be noticed. But that a chunk was deleted is on
//! disk before anybody is told so.
//!
//! Deliberately elsewhere: small chunks, of which the segments and their catalogue tell; and free
//! chunks, which the metadata names.

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
/// Entries that are of no use any more before the roll is written anew at an opening.
const STALE: usize = 4096;

/// The roll of an open store.
#[derive(Debug)]
pub(super) struct Roll {
    path: PathBuf,
    shared: Arc<Shared>,
    /// Nothing of it was missing when it was opened.
    whole: bool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    file: Option<File>,
    names: HashSet<ChunkName>,
    /// Deletions that may not be on disk.
    deleted: bool,
}

/// What a roll says.
struct Read {
    names: HashSet<ChunkName>,
    entries: usize,
    whole: bool,
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
                whole: false,
            },
            Err(e) if e.raw_os_error() == Some(libc::EIO) => parse(&[]),
            Err(e) => return Err(StoreError::from_io("read", &path, &e)),
        };
        let stale = Stale {
            anew: !read.whole || read.entries > 2 * read.names.len() + STALE,
        };
        let inner = Inner {
            names: read.names,
            ..Inner::default()
        };
        let roll = Self {
            path,
            shared,
            whole: read.whole,
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
        self.whole && !self.inner.lock().names.contains(name)
    }

    /// Begins to be kept: `there` are the grid chunks that have files.
    pub(super) fn begin(&self, stale: &Stale, there: Vec<ChunkName>) {
        if stale.anew {
            let mut inner = self.inner.lock();
            inner.names.extend(there);
            // What was opened before is not the roll any more.
            inner.file = None;
            if let Err(error) = self.rewrite(&inner.names) {
                tracing::warn!("{}: cannot be written: {error}", self.path.display());
            }
        } else {
            self.note(&there, |_| true);
        }
    }

    /// Puts down chunks whose files are on disk, those that `stay`: it is asked under the lock under which
    /// a chunk that is being deleted is taken off, so that none comes back.
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

    /// Takes a chunk off that is being deleted.
    pub(super) fn forget(&self, name: &ChunkName) {
        let mut inner = self.inner.lock();
        if inner.names.remove(name) {
            let mut bytes = Vec::new();
            push(name, false, &mut bytes);
            inner.deleted = true;
            self.append(&mut inner, &bytes);
        }
    }

    /// Returns when deletions are on disk.
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

    /// Adds entries. What cannot be written is left out: that costs no data.
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
                // Half an entry would end the roll there.
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

/// How a roll was found.
pub(super) struct Stale {
    /// It has to be written anew.
    anew: bool,
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

/// Reads entries up to one that is not whole.
fn parse(bytes: &[u8]) -> Read {
    let mut read = Read {
        names: HashSet::new(),
        entries: 0,
        whole: true,
    };
    let head = bytes.get(..HEAD);
    if head.is_none_or(|head| head[..8] != *MAGIC || head[8..] != VERSION.to_le_bytes()) {
        read.whole = false;
        return read;
    }
    let mut rest = &bytes[HEAD..];
    while !rest.is_empty() {
        let Some((name, there, len)) = entry(rest) else {
            read.whole = false;
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
    fn a_torn_end_keeps_what_is_before() {
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        push(&grid(1), true, &mut bytes);
        push(&grid(2), true, &mut bytes);
        push(&grid(1), false, &mut bytes);
        let whole = parse(&bytes);
        assert!(whole.whole && whole.entries == 3);
        assert_eq!(whole.names, HashSet::from([grid(2)]));
        for len in 0..bytes.len() {
            let read = parse(&bytes[..len]);
            assert!(read.names.len() <= 2, "{len}");
        }
        for at in HEAD..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            assert!(!parse(&flipped).whole, "{at}");
        }
    }
}
