//! The places of all chunks of a dataset, read from the file without the library.
//!
//! HDF5 1.10 finds the n-th chunk by counting, so that a list of n chunks takes n² steps. Files of HDF5 1.8, which NetCDF
//! writes, index their chunks by a B-tree of version 1; it is read here in one pass. The format is that of the "HDF5 File
//! Format Specification Version 3.0", sections III.A.1 (B-trees), IV.A.1 (object headers) and IV.A.2.i (layouts).
//!
//! Nothing in the file is believed: blocks have limits, levels of the tree fall, and there are no more nodes and chunks than
//! the file has room for.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::{FormatError, Result};

/// A stored chunk of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its first element.
    pub offset: Vec<u64>,
    /// Where it is in the file.
    pub address: u64,
    /// How many bytes it has there.
    pub size: u64,
    /// A bit is set for each filter that it did not go through.
    pub mask: u32,
}

/// The most bytes of an object header that are searched for the layout.
const MOST_HEADER: u64 = 1 << 26;
/// An address of nothing.
const NOWHERE: u64 = u64::MAX;
/// The type of the message that has the layout, and of the one that continues a header elsewhere.
const LAYOUT: u16 = 0x08;
const CONTINUATION: u16 = 0x10;

/// Reads the index of the dataset whose header is at `header` in `file`, in chunks of `shape`; `path` is named in errors and
/// `base` is that of [`super::File::base`]. `None` if the index is not of this kind.
///
/// # Errors
/// The file is damaged.
pub fn stored_chunks(
    (file, path): (&File, &Path),
    base: u64,
    header: u64,
    shape: &[u64],
) -> Result<Option<Vec<Chunk>>> {
    let failed = |error: std::io::Error| FormatError::Library {
        path: path.to_owned(),
        what: "reading its index of chunks".to_owned(),
        why: error.to_string(),
    };
    let len = file.metadata().map_err(failed)?.len();
    let source = Source { file, len, base };
    let damaged = |why: Damage| match why {
        Damage::Io(error) => failed(error),
        Damage::Invalid(what) => FormatError::Unsupported {
            path: path.to_owned(),
            what: "its index of chunks".to_owned(),
            why: format!("is damaged: {what}"),
        },
    };
    let layout = source.layout(header).map_err(damaged)?;
    match layout {
        Some(Layout { tree, rank }) if rank == shape.len() => {
            let mut walk = Walk {
                source: &source,
                shape,
                nodes: 0,
                chunks: Vec::new(),
            };
            if tree != NOWHERE {
                walk.node(tree, None).map_err(damaged)?;
            }
            Ok(Some(walk.chunks))
        }
        _ => Ok(None),
    }
}

/// Why an index cannot be read.
#[derive(Debug)]
enum Damage {
    Io(std::io::Error),
    Invalid(&'static str),
}

struct Source<'a> {
    file: &'a File,
    len: u64,
    base: u64,
}

/// Where the B-tree of a chunked dataset is.
struct Layout {
    tree: u64,
    rank: usize,
}

impl Source<'_> {
    fn bytes(&self, address: u64, len: u64) -> std::result::Result<Vec<u8>, Damage> {
        let start = address.checked_add(self.base);
        let fits =
            start.is_some_and(|start| start.checked_add(len).is_some_and(|end| end <= self.len));
        match start {
            Some(start) if fits && len <= MOST_HEADER => {
                let mut bytes = vec![0; len as usize];
                self.file
                    .read_exact_at(&mut bytes, start)
                    .map_err(Damage::Io)?;
                Ok(bytes)
            }
            _ => Err(Damage::Invalid("a part of it is not in the file")),
        }
    }

    /// The layout message of an object header. `None` if it is of another kind than a B-tree of version 1.
    fn layout(&self, header: u64) -> std::result::Result<Option<Layout>, Damage> {
        let start = self.bytes(header, 4)?;
        let (form, mut blocks) = match start.as_slice() == b"OHDR" {
            true => self.new_header(header)?,
            false => self.old_header(header)?,
        };
        let mut searched = 0;
        while let Some((address, len)) = blocks.pop() {
            searched += len;
            if searched > MOST_HEADER {
                return Err(Damage::Invalid("its header is too long"));
            }
            let block = self.bytes(address, len)?;
            for (kind, data) in messages(&block, form) {
                match kind {
                    LAYOUT => return Ok(layout(data)),
                    CONTINUATION => {
                        let (Some(at), Some(len)) = (number(data, 0), number(data, 8)) else {
                            return Err(Damage::Invalid("its header is cut off"));
                        };
                        // The newer form has a signature before the messages, and a checksum after them.
                        let (before, both) = match form {
                            Form::Old => (0, 0),
                            Form::New { .. } => (4, 8),
                        };
                        let inner = len.checked_sub(both);
                        let inner = inner.ok_or(Damage::Invalid("its header is cut off"))?;
                        let at = at.checked_add(before);
                        blocks.push((at.ok_or(Damage::Invalid("an address"))?, inner));
                    }
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    /// A header of version 2: where its messages are.
    fn new_header(&self, at: u64) -> std::result::Result<(Form, Vec<(u64, u64)>), Damage> {
        let start = self.bytes(at, 6)?;
        let flags = start[5];
        let mut skip = 6;
        // Four times, and two numbers of attributes.
        skip += if flags & 0x20 != 0 { 16 } else { 0 };
        skip += if flags & 0x10 != 0 { 4 } else { 0 };
        let width = 1_u64 << (flags & 3);
        let size = self.bytes(at + skip, width)?;
        let size = size
            .iter()
            .rev()
            .fold(0, |all, &byte| all << 8 | u64::from(byte));
        let ordered = flags & 4 != 0;
        Ok((Form::New { ordered }, vec![(at + skip + width, size)]))
    }

    /// A header of version 1: where its messages are.
    fn old_header(&self, at: u64) -> std::result::Result<(Form, Vec<(u64, u64)>), Damage> {
        let start = self.bytes(at, 16)?;
        if start[0] != 1 {
            return Err(Damage::Invalid("its header is of an unknown version"));
        }
        let size = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        Ok((Form::Old, vec![(at + 16, u64::from(size))]))
    }
}

/// How messages of a header begin.
#[derive(Clone, Copy)]
enum Form {
    Old,
    New { ordered: bool },
}

/// The messages of a block: type and data.
fn messages(block: &[u8], form: Form) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = block;
    std::iter::from_fn(move || {
        let (kind, size, start) = match form {
            Form::Old => {
                let head = rest.get(..8)?;
                let kind = u16::from_le_bytes([head[0], head[1]]);
                (kind, u16::from_le_bytes([head[2], head[3]]), 8)
            }
            Form::New { ordered } => {
                let start = if ordered { 6 } else { 4 };
                let head = rest.get(..start)?;
                let size = u16::from_le_bytes([head[1], head[2]]);
                (u16::from(head[0]), size, start)
            }
        };
        let end = start + usize::from(size);
        let data = rest.get(start..end)?;
        rest = &rest[end..];
        Some((kind, data))
    })
}

/// The layout message of versions 1 to 3 for chunks.
fn layout(data: &[u8]) -> Option<Layout> {
    let (class, dims, address) = match *data.first()? {
        1 | 2 => (*data.get(2)?, *data.get(1)?, 8),
        3 => (*data.get(1)?, *data.get(2)?, 3),
        _ => return None,
    };
    // The last axis is that of the bytes of an element.
    let rank = usize::from(dims).checked_sub(1)?;
    let tree = number(data, address)?;
    (class == 2).then_some(Layout { tree, rank })
}

fn number(data: &[u8], at: usize) -> Option<u64> {
    let bytes = data.get(at..at + 8)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

struct Walk<'a> {
    source: &'a Source<'a>,
    shape: &'a [u64],
    nodes: u64,
    chunks: Vec<Chunk>,
}

impl Walk<'_> {
    /// Takes the chunks of a node, which is on a lower level than `above`.
    fn node(&mut self, address: u64, above: Option<u8>) -> std::result::Result<(), Damage> {
        const HEAD: u64 = 24;
        let rank = self.shape.len() as u64;
        let (key, child) = (8 + 8 * (rank + 1), 8);
        self.nodes += 1;
        if self.nodes > self.source.len / HEAD {
            return Err(Damage::Invalid("it has a cycle"));
        }
        let head = self.source.bytes(address, HEAD)?;
        let level = head[5];
        if &head[..4] != b"TREE" || head[4] != 1 || above.is_some_and(|above| level >= above) {
            return Err(Damage::Invalid("a node is none"));
        }
        let used = u64::from(u16::from_le_bytes([head[6], head[7]]));
        let entries = self.source.bytes(address + HEAD, used * (key + child))?;
        for entry in entries.chunks_exact((key + child) as usize) {
            let (key, child) = entry.split_at(key as usize);
            let address = number(child, 0).ok_or(Damage::Invalid("an entry"))?;
            match level {
                0 => self.chunk(key, address)?,
                _ => self.node(address, Some(level))?,
            }
        }
        Ok(())
    }

    fn chunk(&mut self, key: &[u8], address: u64) -> std::result::Result<(), Damage> {
        let word = |at: usize| [key[at], key[at + 1], key[at + 2], key[at + 3]];
        let size = u64::from(u32::from_le_bytes(word(0)));
        let mask = u32::from_le_bytes(word(4));
        let offset: Vec<u64> = (0..self.shape.len())
            .filter_map(|axis| number(key, 8 + 8 * axis))
            .collect();
        let aligned = offset
            .iter()
            .zip(self.shape)
            .all(|(&at, &len)| len > 0 && at % len == 0);
        let address = address.checked_add(self.source.base);
        let end = address.and_then(|address| address.checked_add(size));
        match (address, end) {
            (Some(address), Some(end)) if aligned && end <= self.source.len && size > 0 => {
                // More chunks than bytes are entries that share some.
                if self.chunks.len() as u64 >= self.source.len {
                    return Err(Damage::Invalid("it has too many chunks"));
                }
                // Those of the library ascend; others could have two chunks for a place, and none for another.
                let last = self.chunks.last();
                if last.is_some_and(|last| last.offset >= offset) {
                    return Err(Damage::Invalid("its chunks are not in order"));
                }
                self.chunks.push(Chunk {
                    offset,
                    address,
                    size,
                    mask,
                });
                Ok(())
            }
            _ => Err(Damage::Invalid(
                "a chunk is not in the file; the file may be cut off",
            )),
        }
    }
}
