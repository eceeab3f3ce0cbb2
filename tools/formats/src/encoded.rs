//! Arrays that are written chunk by chunk, as the chunks are encoded: a stream of chunks to the mount
//! (docs/formats/chunk-stream.md).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use slabfs_model::chunk_stream::ChunkHead;

/// Bytes that are written at a time: those of one request of the kernel.
const AT_ONCE: usize = 1 << 20;

/// Makes an open file of a mount one of encoded chunks: `_IO('s', 5)`.
const CHUNKS: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(b's', 5);

/// An array to which encoded chunks are written.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    path: PathBuf,
    file: File,
    /// Where the stream goes on.
    at: u64,
    buffer: Vec<u8>,
}

impl ChunkWriter {
    pub(crate) fn open(path: &Path) -> anyhow::Result<ChunkWriter> {
        let with = || format!("opening {}", path.display());
        let file = OpenOptions::new()
            .write(true)
            .open(path)
            .with_context(with)?;
        // SAFETY: the command has no argument, and changes nothing of this process.
        let done = unsafe { rustix::ioctl::ioctl(&file, rustix::ioctl::NoArg::<CHUNKS>::new()) };
        done.with_context(with)?;
        Ok(ChunkWriter {
            path: path.to_owned(),
            file,
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
