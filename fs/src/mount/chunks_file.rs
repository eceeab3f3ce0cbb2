//! An open file of encoded chunks: a program writes chunks as another format has them, and they are stored without
//! being decoded (`client/request/encoded.rs`); or it reads the object's chunks as they are stored.
//!
//! A program makes an open file one by `ioctl` (`ops/ioctl.rs`); duplicates of the descriptor share that, and other opens
//! of the file are not affected. What it writes then, from offset 0 on and without gaps, is a stream of chunks
//! (`slabfs_model::chunk_stream`, docs/formats/chunk-stream.md). The chunks that a write completes are part of the object
//! when it returns. A read at the offset `n << 32` returns head and bytes of chunk `n` of the object's layout
//! (`.slabfs/layout`), or nothing if that chunk is gone or is not stored as one encoded block. The memory of a chunk of
//! which bytes are missing, and of one that is read in parts, counts as that of views does ([`Room`]).

use std::sync::Arc;

use fuser::Errno;
use parking_lot::Mutex;
use slabfs_model::chunk_stream::{ChunkHead, ChunkStream};

use super::errno::{Outcome, refused};
use super::viewed::{Counted, Room};
use crate::client::{EncodedChunk, FsError, Handle};

/// Bits of the offset of a read that count bytes; those above are the number of the chunk.
const OFFSET_BITS: u32 = 32;

/// What a file of encoded chunks has in addition to an open file.
#[derive(Debug)]
pub(super) struct ChunksFile {
    writing: Mutex<Writing>,
    reading: Mutex<Reading>,
}

#[derive(Debug)]
struct Reading {
    /// A chunk of which a part was read: its number, and head and bytes.
    last: Option<(u64, Arc<Vec<u8>>)>,
    counted: Counted,
}

#[derive(Debug)]
struct Writing {
    stream: ChunkStream,
    /// The offset at which the stream goes on.
    next: u64,
    /// A write failed: bytes of the stream are lost.
    is_broken: bool,
    counted: Counted,
}

impl ChunksFile {
    pub(super) fn new(room: &Room, user: u32) -> ChunksFile {
        ChunksFile {
            writing: Mutex::new(Writing {
                stream: ChunkStream::default(),
                next: 0,
                is_broken: false,
                counted: room.begin(user),
            }),
            reading: Mutex::new(Reading {
                last: None,
                counted: room.begin(user),
            }),
        }
    }

    /// Bytes of a chunk, with its head, for a read of `len` bytes, and the offset of the read in them. They are empty if
    /// the chunk cannot be read as it is stored.
    pub(super) fn read(
        &self,
        handle: &Handle,
        offset: u64,
        len: u32,
    ) -> Outcome<(Arc<Vec<u8>>, u64)> {
        let (order, at) = (offset >> OFFSET_BITS, offset & ((1 << OFFSET_BITS) - 1));
        let mut reading = self.reading.lock();
        // A read from the beginning finds out whether the chunk is still visible.
        let last = reading.last.as_ref().filter(|_| at > 0);
        if let Some((_, bytes)) = last.filter(|(known, _)| *known == order) {
            return Ok((bytes.clone(), at));
        }
        let mut bytes = Vec::new();
        if let Some((head, encoded)) = handle.read_chunk(order)? {
            head.put(&mut bytes);
            bytes.extend_from_slice(&encoded);
        }
        let bytes = Arc::new(bytes);
        reading.last = None;
        let is_part = at + u64::from(len) < bytes.len() as u64;
        reading
            .counted
            .set_memory(if is_part { bytes.len() } else { 0 })?;
        if is_part {
            reading.last = Some((order, bytes.clone()));
        }
        Ok((bytes, at))
    }

    /// Takes the next bytes of the stream, and stores the chunks that they complete.
    pub(super) fn write(&self, handle: &Arc<Handle>, offset: u64, data: &[u8]) -> Outcome<()> {
        let mut writing = self.writing.lock();
        if writing.is_broken {
            return refused(Errno::EIO, "an earlier write of encoded chunks failed");
        }
        if offset != writing.next {
            return refused(
                Errno::EINVAL,
                "encoded chunks are written from offset 0 on, one part after the other",
            );
        }
        writing.is_broken = true;
        let completed = match writing.stream.take(data) {
            Ok(completed) => completed,
            Err(error) => return Err(FsError::Invalid(error.to_string()).into()),
        };
        let memory = writing.stream.memory();
        writing.counted.set_memory(memory)?;
        let first = completed.first.as_ref();
        let first = first.map(|(head, bytes)| chunk(head, bytes));
        let others = completed.others.iter();
        let others = others.map(|(head, bytes)| chunk(head, bytes));
        let chunks: Vec<EncodedChunk<'_>> = first.into_iter().chain(others).collect();
        if !chunks.is_empty() {
            handle.write_chunks(&chunks)?;
        }
        writing.next += data.len() as u64;
        writing.is_broken = false;
        Ok(())
    }

    /// Fails if bytes of the last chunk are missing. After a failed write, which returned the error, it does not.
    pub(super) fn check(&self) -> Result<(), FsError> {
        let writing = self.writing.lock();
        match writing.stream.is_within_chunk() && !writing.is_broken {
            true => Err(FsError::Invalid(
                "the last encoded chunk is incomplete, and not stored".into(),
            )),
            false => Ok(()),
        }
    }
}

fn chunk<'a>(head: &ChunkHead, bytes: &'a [u8]) -> EncodedChunk<'a> {
    EncodedChunk {
        chunk: head.chunk.clone(),
        shown: head.shown.clone(),
        codec: head.codec,
        bytes,
    }
}
