//! A run: an immutable file of leaves in order, and a reader's position in it.
//!
//! An open run has its directory in memory: for each leaf the shortest separator between it and the previous leaf,
//! and its offset. Leaves come from the cache or from the file, which stays readable through its descriptor after it
//! is removed.

use super::IndexError;
use super::bytes::{le32, le64, take_varint, unseal};
use super::cache::Cache;
use super::leaf::{Leaf, Place, Wrong};
use crc_fast::crc32_iscsi as crc32c;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const MAGIC: &[u8; 8] = b"SLABTAGR";
pub(super) const END_MAGIC: &[u8; 8] = b"SLABTAGE";
pub(super) const VERSION: u32 = 1;
/// Bytes of a run's header.
pub(super) const HEADER: usize = 28;
/// Bytes of a run's footer.
pub(super) const FOOTER: usize = 64;

/// The name of run `number`.
pub(super) fn name(number: u64) -> String {
    format!("run-{number:020}")
}

/// The offsets of the leaves of a run, and their separators.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// The separators one after the other; the first is empty.
    pub(super) bytes: Vec<u8>,
    /// The end of each separator.
    pub(super) ends: Vec<usize>,
    /// The offset of each leaf in the file, and the end of the last one.
    pub(super) offsets: Vec<u64>,
}

impl Directory {
    /// Number of leaves.
    pub(super) fn leaves(&self) -> usize {
        self.ends.len()
    }

    fn separator(&self, leaf: usize) -> &[u8] {
        let from = if leaf == 0 { 0 } else { self.ends[leaf - 1] };
        &self.bytes[from..self.ends[leaf]]
    }

    /// The leaf that has `key`, if any leaf has it, between `from` and the end.
    fn find(&self, key: &[u8], from: usize) -> usize {
        let (mut low, mut high) = (from + 1, self.leaves());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.separator(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low - 1
    }

    fn memory(&self) -> usize {
        let words = self.ends.capacity() * size_of::<usize>() + self.offsets.capacity() * 8;
        self.bytes.capacity() + words
    }
}

/// An open run.
#[derive(Debug)]
pub(super) struct Run {
    number: u64,
    path: PathBuf,
    file: File,
    len: u64,
    entries: u64,
    gone: u64,
    directory: Directory,
    cache: Arc<Cache>,
}

impl Run {
    /// A run that was just written.
    pub(super) fn written(
        (number, path, file): (u64, PathBuf, File),
        (len, entries, gone): (u64, u64, u64),
        directory: Directory,
        cache: Arc<Cache>,
    ) -> Self {
        Self {
            number,
            path,
            file,
            len,
            entries,
            gone,
            directory,
            cache,
        }
    }

    /// Opens run `number` of `dir`, which was `len` bytes long.
    pub(super) fn open(
        dir: &Path,
        number: u64,
        len: u64,
        cache: Arc<Cache>,
    ) -> Result<Self, IndexError> {
        let path = dir.join(name(number));
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(IndexError::damaged(&path, 0, "the file is missing"));
            }
            Err(error) => return Err(IndexError::io("open", &path, &error)),
        };
        let found = file
            .metadata()
            .map_err(|error| IndexError::io("read", &path, &error))?;
        let wrong = |offset, detail: &str| IndexError::damaged(&path, offset, detail);
        if found.len() != len || len < (HEADER + FOOTER) as u64 {
            let detail = format!("it has {} bytes where {len} are expected", found.len());
            return Err(IndexError::damaged(&path, found.len().min(len), detail));
        }
        let header = read(&file, &path, 0, HEADER)?;
        let good = unseal(&header).filter(|header| {
            header.starts_with(MAGIC)
                && le32(header, 8) == Some(VERSION)
                && le32(header, 12) == Some(HEADER as u32)
                && le64(header, 16) == Some(number)
        });
        good.ok_or_else(|| wrong(0, "the header is not the one that was written"))?;
        let end = len - FOOTER as u64;
        let footer = read(&file, &path, end, FOOTER)?;
        let footer = Footer::decode(&footer, number, len)
            .ok_or_else(|| wrong(end, "the footer is damaged"))?;
        let bytes = read(
            &file,
            &path,
            footer.directory,
            (end - footer.directory) as usize,
        )?;
        if crc32c(&bytes) != footer.directory_crc {
            return Err(wrong(
                footer.directory,
                "the checksum of the directory does not fit its bytes",
            ));
        }
        let directory = parse_directory(&bytes, &footer)
            .ok_or_else(|| wrong(footer.directory, "the directory makes no sense"))?;
        let sizes = (len, footer.entries, footer.gone);
        Ok(Self::written((number, path, file), sizes, directory, cache))
    }

    /// Its number, which is unique for the lifetime of the index.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Its file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file's length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Number of entries, including removals.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Number of those entries that are removals.
    pub(super) fn gone(&self) -> u64 {
        self.gone
    }

    /// Bytes of memory it uses, not counting the cache.
    pub(super) fn memory(&self) -> usize {
        self.directory.memory() + size_of::<Self>()
    }

    /// Estimates the number of entries from `from` up to but not including `to`: to a dozen if both ends are in the
    /// same or adjacent leaves, to a leaf or two if they are far apart.
    pub(super) fn estimate(&self, from: &[u8], to: Option<&[u8]>) -> Result<u64, IndexError> {
        let leaves = self.directory.leaves();
        if leaves == 0 || to.is_some_and(|to| to <= from) {
            return Ok(0);
        }
        let first = self.directory.find(from, 0);
        let last = to.map_or(leaves - 1, |to| self.directory.find(to, first));
        if last - first > 1 {
            return Ok((last - first) as u64 * (self.entries / leaves as u64));
        }
        let begin = self.leaf(first, true)?;
        let before = begin
            .about_below(from)
            .map_err(|wrong| self.wrong(first, wrong))?;
        let (end, skipped) = match last - first {
            0 => (begin, 0),
            _ => (self.leaf(last, true)?, begin.about()),
        };
        let upto = match to {
            Some(to) => end
                .about_below(to)
                .map_err(|wrong| self.wrong(last, wrong))?,
            None => end.about(),
        };
        Ok((skipped + upto).saturating_sub(before) as u64 + 1)
    }

    fn leaf(&self, number: usize, through_cache: bool) -> Result<Arc<Leaf>, IndexError> {
        let id = (self.number, number as u32);
        if through_cache && let Some(leaf) = self.cache.get(id) {
            return Ok(leaf);
        }
        let offset = self.directory.offsets[number];
        let len = (self.directory.offsets[number + 1] - offset) as usize;
        let bytes = read(&self.file, &self.path, offset, len)?;
        let leaf =
            Leaf::new(bytes, self.number, offset).map_err(|wrong| self.wrong(number, wrong))?;
        let leaf = Arc::new(leaf);
        if through_cache {
            self.cache.put(id, &leaf);
        }
        Ok(leaf)
    }

    fn wrong(&self, leaf: usize, wrong: Wrong) -> IndexError {
        IndexError::damaged(&self.path, self.directory.offsets[leaf], wrong)
    }
}

/// Reads bytes of a file that are known to be within its length.
fn read(file: &File, path: &Path, offset: u64, len: usize) -> Result<Vec<u8>, IndexError> {
    let mut bytes = vec![0; len];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(IndexError::damaged(path, offset, "the file is cut off"))
        }
        Err(error) => Err(IndexError::io("read", path, &error)),
    }
}

/// The content of the footer.
struct Footer {
    directory: u64,
    entries: u64,
    gone: u64,
    leaves: usize,
    directory_crc: u32,
}

impl Footer {
    fn decode(bytes: &[u8], number: u64, len: u64) -> Option<Self> {
        let bytes = unseal(bytes)?;
        let footer = Self {
            directory: le64(bytes, 16)?,
            entries: le64(bytes, 32)?,
            gone: le64(bytes, 40)?,
            leaves: le32(bytes, 48)? as usize,
            directory_crc: le32(bytes, 52)?,
        };
        let good = bytes.starts_with(END_MAGIC)
            && le64(bytes, 8)? == number
            && footer.directory >= HEADER as u64
            && le64(bytes, 24)? == len
            && footer.directory <= len - FOOTER as u64
            && footer.gone <= footer.entries;
        good.then_some(footer)
    }
}

fn parse_directory(bytes: &[u8], footer: &Footer) -> Option<Directory> {
    // An entry has at least three bytes, so a false count allocates no more than the file has.
    if footer.leaves > bytes.len() / 3 {
        return None;
    }
    let mut directory = Directory {
        bytes: Vec::with_capacity(bytes.len()),
        ends: Vec::with_capacity(footer.leaves),
        offsets: Vec::with_capacity(footer.leaves + 1),
    };
    let (mut at, mut offset, mut last) = (0, HEADER as u64, 0);
    directory.offsets.push(offset);
    for _ in 0..footer.leaves {
        let shared = take_varint(bytes, &mut at)?;
        let own = take_varint(bytes, &mut at)?;
        let from = directory.bytes.len();
        if shared > from - last {
            return None;
        }
        directory.bytes.extend_from_within(last..last + shared);
        directory.bytes.extend_from_slice(bytes.get(at..at + own)?);
        at += own;
        last = from;
        directory.ends.push(directory.bytes.len());
        offset += take_varint(bytes, &mut at)? as u64;
        directory.offsets.push(offset);
    }
    directory.bytes.shrink_to_fit();
    (at == bytes.len() && offset == footer.directory).then_some(directory)
}

/// A reader's position in a run.
#[derive(Debug)]
pub(super) struct RunCursor {
    run: Arc<Run>,
    leaf: Option<(usize, Arc<Leaf>)>,
    place: Place,
    to: Option<Arc<[u8]>>,
    through_cache: bool,
}

impl RunCursor {
    /// A reader at the first entry from `from` on; it need not go beyond `to`.
    pub(super) fn new(
        run: Arc<Run>,
        from: &[u8],
        to: Option<Arc<[u8]>>,
        through_cache: bool,
    ) -> Result<Self, IndexError> {
        let mut cursor = Self {
            run,
            leaf: None,
            place: Place::default(),
            to,
            through_cache,
        };
        if cursor.run.directory.leaves() > 0 {
            let leaf = cursor.run.directory.find(from, 0);
            cursor.enter(leaf)?;
            cursor.seek_in_leaf(from)?;
        }
        Ok(cursor)
    }

    /// Whether it is at an entry.
    #[inline]
    pub(super) fn valid(&self) -> bool {
        self.leaf.is_some()
    }

    /// The entry; there must be one.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.place.key()
    }

    /// Whether the entry is a removal; there must be one.
    #[inline]
    pub(super) fn gone(&self) -> bool {
        self.place.gone()
    }

    /// Steps to the next entry.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<(), IndexError> {
        let Some((number, leaf)) = &self.leaf else {
            return Ok(());
        };
        match self.place.advance(leaf) {
            Ok(true) => Ok(()),
            Ok(false) => self.enter_next(),
            Err(wrong) => Err(self.run.wrong(*number, wrong)),
        }
    }

    /// Steps to the first entry from here on that is not less than `key`.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<(), IndexError> {
        let Some((number, _)) = self.leaf else {
            return Ok(());
        };
        if self.place.key() >= key {
            return Ok(());
        }
        let directory = &self.run.directory;
        let next = number + 1;
        if next < directory.leaves() && directory.separator(next) <= key {
            let found = directory.find(key, next);
            self.enter(found)?;
        }
        self.seek_in_leaf(key)
    }

    fn seek_in_leaf(&mut self, key: &[u8]) -> Result<(), IndexError> {
        let Some((number, leaf)) = &self.leaf else {
            return Ok(());
        };
        match self.place.seek(leaf, key) {
            Ok(true) => Ok(()),
            // Separators are shorter than entries: `key` may be after all of this leaf.
            Ok(false) => self.enter_next(),
            Err(wrong) => Err(self.run.wrong(*number, wrong)),
        }
    }

    fn enter(&mut self, number: usize) -> Result<(), IndexError> {
        self.leaf = None;
        let leaf = self.run.leaf(number, self.through_cache)?;
        self.leaf = Some((number, leaf));
        self.place.restart();
        Ok(())
    }

    /// Steps to the first entry of the next leaf.
    fn enter_next(&mut self) -> Result<(), IndexError> {
        let Some((number, _)) = self.leaf.take() else {
            return Ok(());
        };
        let next = number + 1;
        let directory = &self.run.directory;
        let beyond = |to: &Arc<[u8]>| directory.separator(next) >= &to[..];
        if next >= directory.leaves() || self.to.as_ref().is_some_and(beyond) {
            return Ok(());
        }
        self.enter(next)?;
        self.advance()
    }
}
