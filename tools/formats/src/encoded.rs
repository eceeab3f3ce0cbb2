//! Arrays that are written and read chunk by chunk, as the chunks are encoded: a stream of chunks to the mount
//! (docs/formats/chunk-stream.md).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use slabfs_formats::hdf5::Filter;
use slabfs_model::chunk_stream::ChunkHead;
use slabfs_model::{Codec, Region};

/// Bytes that are written at a time: those of one request of the kernel.
const AT_ONCE: usize = 1 << 20;

/// Encoded chunks up to this size need little memory of the mount while they arrive.
pub(crate) const SMALL: usize = AT_ONCE;

/// Makes an open file of a mount one of encoded chunks: `_IO('s', 5)`.
const CHUNKS: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(b's', 5);

/// What has to be done with a stored chunk of HDF5 to make it one of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// It is stored as it is, with this codec.
    Copy(Codec),
    /// The same, when the checksum behind it has been compared and removed.
    Summed(Codec),
    /// It is decoded.
    Decode,
}

impl How {
    /// For a chunk that went through `filters` but for those in `mask`; elements have `elem` bytes, and the array has
    /// `level`.
    pub(crate) fn of(filters: &[Filter], mask: u32, elem: u64, level: u32) -> How {
        let applied = filters.iter().enumerate();
        let applied =
            applied.filter(|(at, _)| mask & 1_u32.checked_shl(*at as u32).unwrap_or(0) == 0);
        let mut applied: Vec<&Filter> = applied.map(|(_, filter)| filter).collect();
        let summed = applied
            .pop_if(|last| last.id == Filter::FLETCHER32)
            .is_some();
        let ids: Vec<u32> = applied.iter().map(|filter| filter.id).collect();
        let shuffles = |filter: &Filter| {
            filter
                .values
                .first()
                .is_none_or(|&size| u64::from(size) == elem)
        };
        let codec = match ids.as_slice() {
            [] => Codec::None,
            [Filter::DEFLATE] => Codec::Deflate(level),
            [Filter::SHUFFLE, Filter::DEFLATE] if shuffles(applied[0]) => match elem {
                1 => Codec::Deflate(level),
                _ => Codec::ShuffleDeflate(level),
            },
            _ => return How::Decode,
        };
        match summed {
            true => How::Summed(codec),
            false => How::Copy(codec),
        }
    }
}

/// The head of a chunk of an array: its first element and shape, and those of what is shown of it.
pub(crate) fn head(
    (start, shape): (&[u64], &[u64]),
    (shown, count): (&[u64], &[u64]),
    codec: Codec,
    bytes: u32,
) -> ChunkHead {
    ChunkHead {
        chunk: Region::new(start, shape),
        shown: Region::new(shown, count),
        codec,
        bytes,
    }
}

/// An array to which encoded chunks are written.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    path: PathBuf,
    file: File,
    /// Where the stream goes on.
    at: u64,
    buffer: Vec<u8>,
}

/// Opens an array for reading or writing encoded chunks.
pub(crate) fn open_chunks(path: &Path, write: bool) -> anyhow::Result<File> {
    let with = || format!("opening {}", path.display());
    // Not through the page cache, which has the bytes of the array.
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let open = |write| {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(write)
            .custom_flags(direct)
            .open(path)
    };
    // Chunks of which a part is hidden are for those only who may write the array.
    let file = match open(true) {
        Err(_) if !write => open(false),
        opened => opened,
    };
    let file = file.with_context(with)?;
    // SAFETY: the command has no argument, and changes nothing of this process.
    let done = unsafe { rustix::ioctl::ioctl(&file, rustix::ioctl::NoArg::<CHUNKS>::new()) };
    done.with_context(with)?;
    Ok(file)
}

impl ChunkWriter {
    pub(crate) fn open(path: &Path) -> anyhow::Result<ChunkWriter> {
        Ok(ChunkWriter {
            path: path.to_owned(),
            file: open_chunks(path, true)?,
            at: 0,
            buffer: Vec::with_capacity(AT_ONCE),
        })
    }

    /// Writes a chunk.
    pub(crate) fn push(&mut self, head: &ChunkHead, bytes: &[u8]) -> anyhow::Result<()> {
        head.put(&mut self.buffer);
        let mut rest = bytes;
        while !rest.is_empty() {
            self.make_room()?;
            let room = AT_ONCE - self.buffer.len();
            let (now, later) = rest.split_at(rest.len().min(room));
            self.buffer.extend_from_slice(now);
            rest = later;
        }
        Ok(())
    }

    /// Writes a chunk whose bytes `read` brings in parts: it fills the buffer that it is given, from this position on.
    pub(crate) fn push_read(
        &mut self,
        head: &ChunkHead,
        read: &mut dyn FnMut(u64, &mut [u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        head.put(&mut self.buffer);
        let mut done = 0;
        while done < head.bytes as usize {
            self.make_room()?;
            let begin = self.buffer.len();
            let len = (AT_ONCE - begin).min(head.bytes as usize - done);
            self.buffer.resize(begin + len, 0);
            read(done as u64, &mut self.buffer[begin..])?;
            done += len;
        }
        Ok(())
    }

    /// Writes a large chunk, after what was pushed before. False if the mount has no memory for it, and nothing of it is
    /// written.
    pub(crate) fn try_large(
        &mut self,
        head: &ChunkHead,
        read: &mut dyn FnMut(u64, &mut [u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        if !self.buffer.is_empty() {
            self.send()?;
        }
        let written = self.push_read(head, read).and_then(|()| self.send());
        let Err(error) = written else { return Ok(true) };
        let no_memory = error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.raw_os_error() == Some(libc::ENOMEM));
        match no_memory {
            true => {
                // A stream that is broken off takes nothing more.
                *self = ChunkWriter::open(&self.path.clone())?;
                Ok(false)
            }
            false => Err(error),
        }
    }

    fn make_room(&mut self) -> anyhow::Result<()> {
        match self.buffer.len() < AT_ONCE {
            true => Ok(()),
            false => self.send(),
        }
    }

    fn send(&mut self) -> anyhow::Result<()> {
        let written = self.file.write_all_at(&self.buffer, self.at);
        written.with_context(|| format!("writing {}", self.path.display()))?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what is left.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        match self.buffer.is_empty() {
            true => Ok(()),
            false => self.send(),
        }
    }
}
