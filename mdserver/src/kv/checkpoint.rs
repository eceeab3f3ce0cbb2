//! Checkpoints: the entire map up to one commit, in one portable file.
//!
//! A checkpoint is written under a temporary name, synced, renamed, and the directory is synced, so a file with a
//! checkpoint's name is complete unless it was damaged later. Entries are in ascending order in blocks with checksums;
//! the footer counts them. `docs/formats/journal.md` specifies the format.

use super::blocks::Span;
use super::disk::{CHECKPOINT_TEMP, Ground, Id, checkpoint_name, le32, le64, remove, sync_dir};
use super::error::other_version;
use super::{KvError, Lsn};
use crc_fast::crc32_iscsi as crc32c;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"SLABCKPT";
const VERSION: u32 = 1;
/// Bytes of the file's header.
pub(super) const HEADER: usize = 64;
/// Bytes of a block's header, and of the footer.
pub(super) const BLOCK: usize = 24;
const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"SBLK");
const FOOTER_MAGIC: u32 = u32::from_le_bytes(*b"SEND");
/// A block is closed when it holds this many bytes: few, because a lookup reads an entire block.
const BLOCK_BYTES: usize = 16 << 10;
/// No block is longer: a block's bytes, and one entry more.
const MAX_BLOCK: usize = super::MAX_BATCH + BLOCK_BYTES;

/// The header of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// The store it belongs to.
    pub(super) store: Id,
    /// The last commit it holds.
    pub(super) lsn: Lsn,
    /// The journal file that holds the commit after it.
    pub(super) journal: u64,
}

impl Head {
    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(HEADER as u32).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store);
        bytes[32..40].copy_from_slice(&self.lsn.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.journal.to_le_bytes());
        let crc = crc32c(&bytes[..HEADER - 4]);
        bytes[HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER]) -> Result<Self, String> {
        if &bytes[..8] != MAGIC || le32(bytes, HEADER - 4) != crc32c(&bytes[..HEADER - 4]) {
            return Err("the header is damaged".to_owned());
        }
        match le32(bytes, 8) {
            VERSION => {}
            version => {
                return Err(other_version(version, VERSION));
            }
        }
        let mut store = Id::default();
        store.copy_from_slice(&bytes[16..32]);
        Ok(Self {
            store,
            lsn: Lsn(le64(bytes, 32)),
            journal: le64(bytes, 40),
        })
    }
}

/// A block's header: `[magic, entries, payload length, payload checksum, number, checksum]`; a
/// footer's: `[magic, blocks, entries (two words), 0, checksum]`.
fn words(words: [u32; 5]) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    for (i, word) in words.into_iter().enumerate() {
        bytes[4 * i..4 * i + 4].copy_from_slice(&word.to_le_bytes());
    }
    let crc = crc32c(&bytes[..BLOCK - 4]);
    bytes[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// A valid header of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockHead {
    pub(super) entries: u32,
    pub(super) len: usize,
    pub(super) crc: u32,
    pub(super) number: u32,
}

impl BlockHead {
    /// Reads the header at the start of `bytes`.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..BLOCK)?;
        let len = le32(bytes, 8) as usize;
        let good =
            le32(bytes, 0) == BLOCK_MAGIC && le32(bytes, BLOCK - 4) == crc32c(&bytes[..BLOCK - 4]);
        let head = Self {
            entries: le32(bytes, 4),
            len,
            crc: le32(bytes, 12),
            number: le32(bytes, 16),
        };
        (good && len <= MAX_BLOCK).then_some(head)
    }
}

/// Returns the ranges of the key and the value of the entry at `at` of a block.
pub(super) fn entry_at(block: &[u8], at: usize) -> Option<(Range<usize>, Range<usize>)> {
    let lengths = block.get(at..at + 8)?;
    let key = at + 8..at + 8 + le32(lengths, 0) as usize;
    let value = key.end..key.end + le32(lengths, 4) as usize;
    (value.end <= block.len()).then_some((key, value))
}

/// A checkpoint being written.
#[derive(Debug)]
pub(super) struct Writer {
    ground: Ground,
    dir: PathBuf,
    temp: PathBuf,
    head: Head,
    file: File,
    offset: u64,
    block: Vec<u8>,
    in_block: u32,
    blocks: u32,
    entries: u64,
}

impl Writer {
    /// Begins the checkpoint `head` in `dir`.
    pub(super) fn new(dir: &Path, ground: &Ground, head: Head) -> Result<Self, KvError> {
        let temp = dir.join(CHECKPOINT_TEMP);
        remove(&temp)?;
        let file = File::create_new(&temp).map_err(|error| KvError::io("create", &temp, &error))?;
        let mut writer = Self {
            ground: ground.clone(),
            dir: dir.to_owned(),
            temp,
            head,
            file,
            offset: 0,
            block: Vec::with_capacity(BLOCK_BYTES * 2),
            in_block: 0,
            blocks: 0,
            entries: 0,
        };
        writer.write(&head.encode())?;
        Ok(writer)
    }

    /// How long the file is so far.
    pub(super) fn written(&self) -> u64 {
        self.offset
    }

    /// Adds an entry; keys must ascend.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        self.block
            .extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.block
            .extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(value);
        self.in_block += 1;
        if self.block.len() >= BLOCK_BYTES {
            self.end_block()
        } else {
            Ok(())
        }
    }

    /// Completes the checkpoint, makes it durable and gives it its name; returns its length.
    pub(super) fn finish(self) -> Result<u64, KvError> {
        let name = checkpoint_name(self.head.lsn.0);
        self.finish_as(&name)
    }

    /// Completes the checkpoint, makes it durable and names it `name`; returns its length.
    pub(super) fn finish_as(mut self, name: &str) -> Result<u64, KvError> {
        self.end_block()?;
        let (low, high) = (self.entries as u32, (self.entries >> 32) as u32);
        self.write(&words([FOOTER_MAGIC, self.blocks, low, high, 0]))?;
        self.file
            .sync_all()
            .map_err(|error| KvError::io("sync", &self.temp, &error))?;
        let path = self.dir.join(name);
        fs::rename(&self.temp, &path).map_err(|error| KvError::io("name", &path, &error))?;
        sync_dir(&self.dir)?;
        Ok(self.offset)
    }

    fn end_block(&mut self) -> Result<(), KvError> {
        if self.in_block == 0 {
            return Ok(());
        }
        let block = std::mem::take(&mut self.block);
        let (len, crc) = (block.len() as u32, crc32c(&block));
        self.write(&words([BLOCK_MAGIC, self.in_block, len, crc, self.blocks]))?;
        self.write(&block)?;
        self.entries += u64::from(self.in_block);
        self.blocks += 1;
        self.in_block = 0;
        self.block = block;
        self.block.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), KvError> {
        let written = self.ground.disk.write_at(&self.file, bytes, self.offset);
        written.map_err(|error| KvError::io("write", &self.temp, &error))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After `finish` the temporary name no longer exists, and this does nothing.
        if let Err(error) = remove(&self.temp) {
            tracing::warn!(%error, "an unfinished checkpoint could not be removed");
        }
    }
}

/// Damage that ends the reading of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    /// Where, in bytes.
    pub(super) offset: u64,
    /// A description of the damage.
    pub(super) detail: String,
}

/// A checkpoint being read from its beginning to its end, to verify it.
#[derive(Debug)]
pub(super) struct Reader {
    file: File,
    offset: u64,
    head: Head,
    block: Vec<u8>,
    blocks: u32,
    entries: u64,
    /// The last key of the blocks read so far.
    last: Vec<u8>,
}

impl Reader {
    /// Opens the checkpoint in `path`, which must be of commit `lsn` if that is given.
    pub(super) fn open(path: &Path, lsn: Option<u64>) -> Result<Self, Broken> {
        let broken = |detail: String| Broken { offset: 0, detail };
        let mut file = File::open(path).map_err(|error| broken(error.to_string()))?;
        let mut header = [0; HEADER];
        file.read_exact(&mut header)
            .map_err(|error| broken(format!("no header: {error}")))?;
        let head = Head::decode(&header).map_err(broken)?;
        if lsn.is_some_and(|lsn| lsn != head.lsn.0) {
            return Err(broken(format!(
                "it is the checkpoint of commit {}",
                head.lsn
            )));
        }
        Ok(Self {
            file,
            offset: HEADER as u64,
            head,
            block: Vec::new(),
            blocks: 0,
            entries: 0,
            last: Vec::new(),
        })
    }

    /// The head, the bytes read, and the file.
    pub(super) fn into_parts(self) -> (Head, u64, File) {
        (self.head, self.offset, self.file)
    }

    /// The header.
    pub(super) fn head(&self) -> Head {
        self.head
    }

    /// Reads the next block, verifies it and returns its place; `None` at the footer, which is verified and ends the
    /// reading.
    pub(super) fn span(&mut self) -> Result<Option<Span>, Broken> {
        let mut header = [0; BLOCK];
        self.read(|file| file.read_exact(&mut header))?;
        if le32(&header, BLOCK - 4) != crc32c(&header[..BLOCK - 4]) {
            return Err(self.broken("the header of a block is damaged"));
        }
        if le32(&header, 0) == FOOTER_MAGIC {
            return self.footer(&header).map(|()| None);
        }
        let head = BlockHead::decode(&header).filter(|head| head.number == self.blocks);
        let head = head.ok_or_else(|| self.broken("a block is malformed or out of sequence"))?;
        let mut block = std::mem::take(&mut self.block);
        block.resize(head.len, 0);
        self.read(|file| file.read_exact(&mut block))?;
        if head.crc != crc32c(&block) {
            return Err(self.broken("the checksum of a block does not fit its bytes"));
        }
        let first = self.check(&block, head.entries)?;
        self.block = block;
        self.entries += u64::from(head.entries);
        self.blocks += 1;
        let offset = self.offset + BLOCK as u64;
        self.offset = offset + head.len as u64;
        Ok(Some(Span {
            first,
            offset,
            len: head.len as u32,
            crc: head.crc,
        }))
    }

    /// Checks the entries of a block and the order of their keys; returns the first key.
    fn check(&mut self, block: &[u8], entries: u32) -> Result<Box<[u8]>, Broken> {
        let malformed = || self.broken("an entry is malformed");
        let (first, _) = entry_at(block, 0).ok_or_else(malformed)?;
        let (mut at, mut count) = (0, 0);
        let mut last = &self.last[..];
        while at < block.len() {
            let (key, value) = entry_at(block, at).ok_or_else(malformed)?;
            if block[key.clone()] <= *last {
                return Err(self.broken("the keys are out of order"));
            }
            (last, at, count) = (&block[key], value.end, count + 1);
        }
        if count != entries {
            return Err(malformed());
        }
        self.last = last.to_vec();
        Ok(block[first].into())
    }

    fn footer(&mut self, footer: &[u8; BLOCK]) -> Result<(), Broken> {
        if le32(footer, 4) != self.blocks || le64(footer, 8) != self.entries {
            return Err(self.broken("the footer's counts of blocks and entries are wrong"));
        }
        self.offset += BLOCK as u64;
        let mut after = [0];
        match self.file.read(&mut after) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.broken("bytes follow the footer")),
            Err(error) => Err(self.broken(&error.to_string())),
        }
    }

    fn read(&mut self, f: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Broken> {
        f(&mut self.file).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.broken("the file is cut off"),
            _ => self.broken(&error.to_string()),
        })
    }

    fn broken(&self, detail: &str) -> Broken {
        Broken {
            offset: self.offset,
            detail: detail.to_owned(),
        }
    }
}
