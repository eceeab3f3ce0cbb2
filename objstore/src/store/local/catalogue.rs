//! The catalogue: the locations of all small chunks when the store was last closed cleanly.
//!
//! ```text
//! magic "SLABCATL" | version u32, 1 | number of entries u64 | entries | CRC-32C of all before u32
//! an entry: length u32 | segment u32 | offset u32 | head u32 | data u32 | crc u32 | kind u8 | name
//! ```
//!
//! It duplicates information of the segments: after a clean close it is read instead of them. After a crash it is only
//! evidence: if it lists a record beyond the present end of the segment, the record was cut off, and its chunk is
//! reported as damaged rather than missing.

use std::fs;
use std::io;

use super::directory::Directory;
use super::labels;
use super::segment::Place;
use super::shared::Shared;
use crate::checksum::crc32c;
use crate::error::{Result, StoreError};
use crate::name::ChunkName;

const MAGIC: &[u8; 8] = b"SLABCATL";
const VERSION: u32 = 1;
const FILE: &str = "catalogue";

/// Writes the catalogue, and syncs it if the store syncs at all.
pub(super) fn write(
    directory: &Directory,
    shared: &Shared,
    entries: &[(ChunkName, Place)],
) -> Result<()> {
    let mut out = Vec::with_capacity(20 + entries.len() * 40);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(entries.len() as u64).to_le_bytes());
    for (name, place) in entries {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        place.write(&mut out);
        labels::write_name(name, &mut out);
        let len = (out.len() - start) as u32;
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    let path = directory.path().join(FILE);
    let temporary = path.with_extension("tmp");
    let written = || -> io::Result<()> {
        fs::write(&temporary, &out)?;
        shared.sync_file(&fs::File::open(&temporary)?, &temporary)?;
        fs::rename(&temporary, &path)?;
        shared.sync_dir(directory.path())
    };
    written().map_err(|e| StoreError::from_io("write", &path, &e))
}

/// Reads the catalogue; `None` if it is missing or damaged.
pub(super) fn read(directory: &Directory) -> Result<Option<Vec<(ChunkName, Place)>>> {
    let path = directory.path().join(FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.raw_os_error() == Some(libc::EIO) => Vec::new(),
        Err(e) => return Err(StoreError::from_io("read", &path, &e)),
    };
    let entries = parse(&bytes);
    if entries.is_none() {
        tracing::warn!("{}: damaged; the segments are read instead", path.display());
    }
    Ok(entries)
}

fn parse(bytes: &[u8]) -> Option<Vec<(ChunkName, Place)>> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if crc32c(body) != u32::from_le_bytes(*crc)
        || body.get(..8)? != MAGIC
        || body.get(8..12)? != VERSION.to_le_bytes()
    {
        return None;
    }
    let count = u64::from_le_bytes(*body.get(12..)?.first_chunk()?);
    let mut entries = Vec::new();
    let mut rest = &body[20..];
    while !rest.is_empty() {
        let len = u32::from_le_bytes(*rest.first_chunk()?) as usize;
        let entry = rest.get(4..len)?;
        rest = &rest[len..];
        let (place, name) = Place::read(entry)?;
        entries.push((labels::read_name(name)?, place));
    }
    (entries.len() as u64 == count).then_some(entries)
}
