//! Reads cells of a compressed chunk: decompresses only the blocks that contain them, each once; those that are read in
//! parts stay decoded for a while (`decoded`).

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use slabfs_model::Codec;

use super::decoded::Decoded;
use crate::codec::coded::{BLOCK_MAX, TAIL_LEN, Table};
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};
use crate::store::extent::Extent;

thread_local! {
    /// The raw bytes of the current block.
    static BLOCK: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Receives stored bytes.
pub(super) type Take<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// Calls a closure with the stored bytes of a range.
pub(super) type Fetch<'a> = dyn FnMut(Range<u64>, &mut Take<'_>) -> Result<()> + 'a;

/// A compressed chunk, with everything needed to decompress it.
pub(super) struct Packed<'a> {
    name: &'a ChunkName,
    codec: Codec,
    elem: usize,
    table: &'a Table,
}

/// Reads the table of a compressed chunk of `stored` bytes.
pub(super) fn table(
    name: &ChunkName,
    form: &ChunkForm,
    stored: u64,
    fetch: &mut Fetch<'_>,
) -> Result<Table> {
    let damaged = |detail: String| StoreError::damaged(name, detail);
    let mut needs = Err("it is too short to have one".to_owned());
    if stored >= TAIL_LEN {
        fetch(stored - TAIL_LEN..stored, &mut |tail| {
            needs = Table::needs(tail);
            Ok(())
        })?;
    }
    let needs = needs.and_then(|needs| {
        if needs <= stored {
            Ok(needs)
        } else {
            Err("it is larger than the chunk".to_owned())
        }
    });
    let needs = needs.map_err(|why| damaged(format!("the table of packed blocks: {why}")))?;
    let mut table = Err(String::new());
    fetch(stored - needs..stored, &mut |bytes| {
        table = Table::parse(bytes, stored);
        Ok(())
    })?;
    let table = table.map_err(damaged)?;
    if form.volume() != Some(table.raw_len()) {
        let detail = format!(
            "it unpacks to {} bytes, and its shape is {:?}",
            table.raw_len(),
            form.shape
        );
        return Err(damaged(detail));
    }
    Ok(table)
}

impl<'a> Packed<'a> {
    /// The compressed chunk of this form, with its table.
    pub(super) fn new(name: &'a ChunkName, form: &ChunkForm, table: &'a Table) -> Self {
        Self {
            name,
            codec: form.codec,
            elem: form.elem as usize,
            table,
        }
    }

    /// Reads the cells, packed together, into `out`.
    pub(super) fn read(
        &self,
        decoded: &Decoded,
        extent: &Extent<'_>,
        out: &mut [u8],
        fetch: &mut Fetch<'_>,
    ) -> Result<()> {
        let mut raw = BLOCK.take();
        let outcome = self.read_with(&mut raw, decoded, extent, out, fetch);
        if raw.capacity() as u64 > 2 * BLOCK_MAX {
            raw = Vec::new();
        }
        BLOCK.set(raw);
        outcome
    }

    fn read_with(
        &self,
        raw: &mut Vec<u8>,
        decoded: &Decoded,
        extent: &Extent<'_>,
        out: &mut [u8],
        fetch: &mut Fetch<'_>,
    ) -> Result<()> {
        let mut held = None;
        let mut cached: Option<(usize, Arc<Vec<u8>>)> = None;
        let mut packed = 0;
        extent.runs(&mut |at, len| {
            let mut at = at;
            let end = at + len;
            while at < end {
                let block = self.table.block_at(at);
                let range = self.table.raw_range(block);
                let upto = end.min(range.end);
                let part = &mut out[packed..packed + (upto - at) as usize];
                packed += part.len();
                if Decoded::takes((range.end - range.start) as usize)
                    && (at, upto) != (range.start, range.end)
                {
                    let bytes = match cached.take().filter(|(last, _)| *last == block) {
                        Some((_, bytes)) => bytes,
                        None => self.cached(decoded, block, fetch)?,
                    };
                    let from = (at - range.start) as usize;
                    part.copy_from_slice(&bytes[from..from + part.len()]);
                    cached = Some((block, bytes));
                } else if held != Some(block) && at == range.start && upto == range.end {
                    fetch(self.table.stored_range(block), &mut |bytes| {
                        let (codec, elem) = (self.codec, self.elem);
                        let unpacked = self.table.unpack_into(block, codec, elem, bytes, part);
                        unpacked.map_err(|e| self.damaged(block, &e))
                    })?;
                } else {
                    if held != Some(block) {
                        held = None;
                        self.unpack(block, raw, fetch)?;
                        held = Some(block);
                    }
                    let from = (at - range.start) as usize;
                    part.copy_from_slice(&raw[from..from + part.len()]);
                }
                at = upto;
            }
            Ok(())
        })
    }

    /// A block that is read in parts.
    fn cached(
        &self,
        decoded: &Decoded,
        block: usize,
        fetch: &mut Fetch<'_>,
    ) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = decoded.get(self.name, block) {
            return Ok(bytes);
        }
        let mut bytes = Vec::new();
        self.unpack(block, &mut bytes, fetch)?;
        let bytes = Arc::new(bytes);
        decoded.insert(self.name, block, bytes.clone());
        Ok(bytes)
    }

    /// Decompresses all blocks to verify them.
    pub(super) fn verify(&self, fetch: &mut Fetch<'_>) -> Result<()> {
        let mut raw = Vec::new();
        for block in 0..self.table.blocks() {
            self.unpack(block, &mut raw, fetch)?;
        }
        Ok(())
    }

    fn unpack(&self, block: usize, raw: &mut Vec<u8>, fetch: &mut Fetch<'_>) -> Result<()> {
        fetch(self.table.stored_range(block), &mut |bytes| {
            let table = self.table;
            let unpacked = table.unpack_block(block, self.codec, self.elem, bytes, raw);
            unpacked.map_err(|e| self.damaged(block, &e))
        })
    }

    fn damaged(&self, block: usize, error: &impl std::fmt::Display) -> StoreError {
        let detail = format!(
            "packed block {block} cannot be unpacked, although its checksum matches: {error}"
        );
        StoreError::damaged(self.name, detail)
    }
}
