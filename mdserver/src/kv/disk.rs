//! The operating-system interface of the store: the few system calls whose failure matters, the names of its files, and
//! the ids of machine boot and store.
//!
//! Tests replace [`Disk`] by one that is full or fails to sync. sled does its own file I/O and does not use this
//! module; data that it loses is rebuilt.

use super::KvError;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// System calls on journal and checkpoint files.
pub(super) trait Disk: Send + Sync + Debug {
    /// Writes all of `bytes` at `offset`; after an error any part of them may be in the file.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts the file to `len` bytes.
    fn truncate(&self, file: &File, len: u64) -> io::Result<()>;
    /// Preallocates blocks for `len` bytes from `offset`, if the file system can; the file's length does not change.
    fn reserve(&self, file: &File, offset: u64, len: u64) -> io::Result<()>;
    /// `fdatasync`.
    fn sync_data(&self, file: &File) -> io::Result<()>;
    /// Bytes this process may still write below `dir`.
    fn free(&self, dir: &Path) -> io::Result<u64>;
}

/// The real disk.
#[derive(Debug)]
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn reserve(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        let offset = i64::try_from(offset).map_err(io::Error::other)?;
        let len = i64::try_from(len).map_err(io::Error::other)?;
        match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, offset, len) {
            Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn free(&self, dir: &Path) -> io::Result<u64> {
        let stat = nix::sys::statvfs::statvfs(dir)?;
        Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
    }
}

/// The unique id of a store, or of one boot of a machine.
pub(super) type Id = [u8; 16];

/// The store's environment, which tests replace.
#[derive(Debug, Clone)]
pub(super) struct Ground {
    /// System calls.
    pub(super) disk: Arc<dyn Disk>,
    /// The id of this boot of the machine; `None` if unknown. Files written during the same boot cannot have lost data,
    /// synced or not.
    pub(super) boot: Option<Id>,
}

impl Ground {
    /// The real machine.
    pub(super) fn real() -> Self {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self {
            disk: Arc::new(RealDisk),
            boot: parse_uuid(&text),
        }
    }
}

fn parse_uuid(text: &str) -> Option<Id> {
    let digits: String = text.trim().chars().filter(|&c| c != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut id = Id::default();
    for (i, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(id)
}

/// A random identity for a new store.
pub(super) fn new_id() -> Result<Id, KvError> {
    let path = Path::new("/dev/urandom");
    let mut id = Id::default();
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut id));
    read.map_err(|error| KvError::io("read", path, &error))?;
    Ok(id)
}

/// The name of journal file `number`.
pub(super) fn journal_name(number: u64) -> String {
    format!("journal-{number:020}")
}

/// The name of the checkpoint that reaches to commit `lsn`.
pub(super) fn checkpoint_name(lsn: u64) -> String {
    format!("checkpoint-{lsn:020}")
}

/// The name of a checkpoint until it is complete.
pub(super) const CHECKPOINT_TEMP: &str = "checkpoint.tmp";

/// The numbers of the files in `dir` named `<prefix>-<20 digits>`, ascending.
pub(super) fn numbered(dir: &Path, prefix: &str) -> Result<Vec<u64>, KvError> {
    let failed = |error: io::Error| KvError::io("list", dir, &error);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let digits = name
            .to_str()
            .and_then(|name| name.strip_prefix(prefix)?.strip_prefix('-'));
        let number = digits
            .filter(|digits| digits.len() == 20)
            .and_then(|digits| digits.parse::<u64>().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Makes the names in `dir` durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), KvError> {
    let sync = File::open(dir).and_then(|dir| dir.sync_all());
    sync.map_err(|error| KvError::io("sync", dir, &error))
}

/// Removes a file; a missing file is no error.
pub(super) fn remove(path: &Path) -> Result<(), KvError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(KvError::io("remove", path, &error))
        }
        _ => Ok(()),
    }
}

/// The first free name `<to>-<n>` in `dir`.
pub(super) fn free_name(dir: &Path, to: &str) -> PathBuf {
    let mut names = (1u64..).map(|n| dir.join(format!("{to}-{n}")));
    names
        .find(|path| !path.exists())
        .unwrap_or_else(|| dir.join(to))
}

/// Renames a file or directory to the first free name `<to>-<n>` in `dir`.
pub(super) fn set_aside(dir: &Path, name: &str, to: &str) -> Result<PathBuf, KvError> {
    let (source, target) = (dir.join(name), free_name(dir, to));
    fs::rename(&source, &target).map_err(|error| KvError::io("rename", &source, &error))?;
    Ok(target)
}

/// Reads a little-endian `u32`; the caller has checked the length.
pub(super) fn le32(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

/// Reads a little-endian `u64`; the caller has checked the length.
pub(super) fn le64(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}
