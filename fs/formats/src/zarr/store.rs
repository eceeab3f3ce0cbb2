//! The files of a Zarr directory, for the crate `zarrs`.
//!
//! Files are opened relative to the directory with `RESOLVE_BENEATH`: neither a name nor a symbolic link leads out of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use zarrs::storage::byte_range::{ByteRange, ByteRangeIterator};
use zarrs::storage::{
    Bytes, MaybeBytes, MaybeBytesIterator, OffsetBytesIterator, ReadableStorageTraits,
    StorageError, StoreKey, StorePrefix, WritableStorageTraits,
};

/// Files larger than this are not read into memory at once.
const LARGEST: u64 = 4 << 30;

/// A directory.
#[derive(Debug)]
pub(super) struct Store {
    dir: File,
}

impl Store {
    pub(super) fn open(path: &Path) -> io::Result<Store> {
        Ok(Store {
            dir: File::open(path)?,
        })
    }

    /// Opens a file below it for reading, if there is one.
    pub(super) fn file(&self, name: &str) -> io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = openat2(&self.dir, name, flags, Mode::empty(), ResolveFlags::BENEATH);
        match opened {
            Ok(fd) => {
                let file = File::from(fd);
                match file.metadata()?.is_file() {
                    true => Ok(Some(file)),
                    false => Err(io::Error::other(format!("{name} is not a file"))),
                }
            }
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
            Err(rustix::io::Errno::XDEV) => Err(io::Error::other(format!(
                "{name} is a symbolic link that leads out of the directory"
            ))),
            Err(error) => Err(error.into()),
        }
    }

    /// The content of a file of at most `most` bytes, if there is one.
    pub(super) fn text(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.file(name)? else {
            return Ok(None);
        };
        let len = file.metadata()?.len();
        if len > most {
            return Err(io::Error::other(format!(
                "{name} has {len} bytes; at most {most} are read"
            )));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Some(bytes))
    }
}

fn failed(error: io::Error) -> StorageError {
    StorageError::IOError(Arc::new(error))
}

impl ReadableStorageTraits for Store {
    fn get(&self, key: &StoreKey) -> Result<MaybeBytes, StorageError> {
        let text = self.text(key.as_str(), LARGEST).map_err(failed)?;
        Ok(text.map(Bytes::from))
    }

    fn get_partial_many<'a>(
        &'a self,
        key: &StoreKey,
        byte_ranges: ByteRangeIterator<'a>,
    ) -> Result<MaybeBytesIterator<'a>, StorageError> {
        let Some(file) = self.file(key.as_str()).map_err(failed)? else {
            return Ok(None);
        };
        let size = file.metadata().map_err(failed)?.len();
        Ok(Some(Box::new(byte_ranges.map(move |range| {
            let (start, end) = match range {
                ByteRange::FromStart(start, None) => (start, size),
                ByteRange::FromStart(start, Some(len)) => (start, start.saturating_add(len)),
                ByteRange::Suffix(len) => (size.saturating_sub(len), size),
            };
            if start > end || end > size || end - start > LARGEST {
                return Err(failed(io::Error::other(
                    "a part is beyond the end of a file",
                )));
            }
            let mut bytes = vec![0; (end - start) as usize];
            file.read_exact_at(&mut bytes, start).map_err(failed)?;
            Ok(Bytes::from(bytes))
        }))))
    }

    fn size_key(&self, key: &StoreKey) -> Result<Option<u64>, StorageError> {
        let file = self.file(key.as_str()).map_err(failed)?;
        let size = file.map(|file| file.metadata().map(|metadata| metadata.len()));
        size.transpose().map_err(failed)
    }

    fn supports_get_partial(&self) -> bool {
        true
    }
}

/// A directory that is written, which no other process knows.
#[derive(Debug)]
pub(super) struct NewStore {
    pub(super) path: std::path::PathBuf,
}

impl NewStore {
    /// Creates a file with its directories.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let place = self.path.join(name);
        match std::fs::write(&place, bytes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(parent) = place.parent() {
                    std::fs::create_dir_all(parent)?;
                }
                std::fs::write(&place, bytes)
            }
            done => done,
        }
    }
}

impl WritableStorageTraits for NewStore {
    fn set(&self, key: &StoreKey, value: Bytes) -> Result<(), StorageError> {
        self.put(key.as_str(), &value).map_err(failed)
    }

    fn set_partial_many(
        &self,
        _key: &StoreKey,
        _offset_values: OffsetBytesIterator,
    ) -> Result<(), StorageError> {
        Err(failed(io::Error::other("chunks are written in one piece")))
    }

    fn erase(&self, key: &StoreKey) -> Result<(), StorageError> {
        match std::fs::remove_file(self.path.join(key.as_str())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    fn erase_prefix(&self, _prefix: &StorePrefix) -> Result<(), StorageError> {
        Err(failed(io::Error::other("nothing is removed")))
    }

    fn supports_set_partial(&self) -> bool {
        false
    }
}
