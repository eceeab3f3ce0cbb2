//! Segments: objects that an upload creates, with a table in front of the payload. Pure.
//!
//! `docs/formats/s3.md` has the bytes.

use crc_fast::crc32_iscsi as crc32c;
use serde::{Deserialize, Serialize};
use slabfs_objstore::{ChunkForm, ChunkName, StoreError};

const MAGIC: &[u8; 8] = b"SLABS3SG";
const VERSION: u32 = 1;
/// Bytes in front of the table.
pub(crate) const HEADER: usize = 44;
/// Bytes of a block of a grid chunk.
pub(crate) const BLOCK: u64 = 1 << 20;
/// Bytes of a table, at most.
const MAX_TABLE: usize = 256 << 20;

/// The name of a process that uploads, random: a segment that it finds in its way may be its own.
pub(crate) type Writer = [u8; 16];

/// What a segment says about a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: ChunkName,
    pub(crate) what: What,
}

/// See [`Entry`]. Ranges are relative to the end of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// An immutable chunk, complete.
    Chunk {
        form: ChunkForm,
        encoded: bool,
        place: Place,
    },
    /// Blocks of a grid chunk. The form is that of the last write.
    Blocks {
        form: ChunkForm,
        blocks: Vec<(u64, Option<Part>)>,
    },
    Deleted,
}

/// Where a chunk is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// In this segment.
    Here(Part),
    /// An object of its own.
    Object { key: String, len: u64, crc: u32 },
}

/// A range of a segment, and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) crc: u32,
}

/// A segment that is being built.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) entries: Vec<Entry>,
    payload: Vec<u8>,
}

impl Draft {
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len()
    }

    /// Appends bytes to the payload.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Part {
        let part = Part {
            at: self.payload.len() as u64,
            len: bytes.len() as u64,
            crc: crc32c(bytes),
        };
        self.payload.extend_from_slice(bytes);
        part
    }

    /// The object's bytes, and the length of its table.
    pub(crate) fn finish(&self, number: u64, writer: Writer) -> Result<Vec<u8>, StoreError> {
        let table = postcard::to_stdvec(&self.entries)
            .map_err(|error| StoreError::Invalid(format!("cannot encode a segment: {error}")))?;
        let mut bytes = Vec::with_capacity(HEADER + table.len() + self.payload.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(table.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&writer);
        bytes.extend_from_slice(&crc32c(&table).to_le_bytes());
        bytes.extend_from_slice(&table);
        bytes.extend_from_slice(&self.payload);
        Ok(bytes)
    }
}

/// A segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) writer: Writer,
    /// The end of the table, and the beginning of the payload.
    pub(crate) payload: u64,
    crc: u32,
}

/// Reads the header of segment `number`.
pub(crate) fn head(bytes: &[u8], number: u64) -> Result<Head, String> {
    let head = bytes.get(..HEADER).ok_or("it is too short")?;
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
    if &head[..8] != MAGIC {
        return Err("it is no segment".to_owned());
    }
    if word(8) != VERSION {
        return Err(format!(
            "it has format {} and this program knows format {VERSION}",
            word(8)
        ));
    }
    let stored = u64::from_le_bytes(head[16..24].try_into().unwrap_or_default());
    let table = word(12) as usize;
    if stored != number || table > MAX_TABLE {
        return Err("its header is damaged".to_owned());
    }
    Ok(Head {
        writer: head[24..40].try_into().unwrap_or_default(),
        payload: (HEADER + table) as u64,
        crc: word(40),
    })
}

/// Reads the table of a segment, from its first bytes.
pub(crate) fn table(head: &Head, bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let table = bytes
        .get(HEADER..head.payload as usize)
        .ok_or("it is too short")?;
    if crc32c(table) != head.crc {
        return Err("its table is damaged".to_owned());
    }
    postcard::from_bytes(table).map_err(|error| format!("its table is unreadable: {error}"))
}

/// Checks bytes that were read.
pub(crate) fn check(name: &ChunkName, crc: u32, bytes: &[u8]) -> Result<(), StoreError> {
    match crc32c(bytes) == crc {
        true => Ok(()),
        false => Err(StoreError::Damaged {
            name: name.clone(),
            detail: "its bytes in the bucket do not have their checksum".to_owned(),
        }),
    }
}
