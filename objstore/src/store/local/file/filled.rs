//! Adopts files whose content another process wrote.

use std::cell::Cell;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::group::{BLOCK, BLOCKS, GROUP, Group, sum_of};
use super::head::Head;
use super::{FileChunk, Slot, State, data_at, read_up_to, size_of};
use crate::error::{Result, StoreError};
use crate::store::Place;
use crate::store::local::shared::Shared;

/// Bytes read at once for checksums; they fit the CPU cache.
const PIECE: u64 = 4 * BLOCK;

thread_local! {
    static BYTES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A group whose blocks have these checksums.
fn group_of(sums: &[u32]) -> Slot {
    let mut group = Box::new(Group::new());
    for (block, &sum) in sums.iter().enumerate() {
        group.set(block, Some(sum));
    }
    Slot::Loaded(group)
}

/// The file ranges of the content of a file with this head, group by group.
pub(in crate::store::local) fn places(head: &Head, content: u64) -> Vec<Place> {
    let area = head.bytes().len() as u64;
    let starts = (0..content).step_by(GROUP as usize);
    let place = |from: u64| Place {
        at: data_at(area, from),
        len: (content - from).min(GROUP),
    };
    starts.map(place).collect()
}

impl FileChunk {
    /// Converts a file that holds only content to a sealed chunk: writes the checksum pages and the head. `path` is its
    /// final name. If `sums` is empty, the checksums are computed from the content.
    pub(in crate::store::local) fn of_filled(
        path: &Path,
        file: File,
        head: Head,
        sums: &[u32],
        shared: &Arc<Shared>,
    ) -> Result<Self> {
        let (area, len) = (head.bytes().len() as u64, head.content);
        let state = State::new(head, area, len, Vec::new(), true);
        let chunk = Self::assemble(path, file, shared, state);
        let size = chunk
            .file
            .metadata()
            .map_err(|e| StoreError::from_io("stat", path, &e))?
            .len();
        if size != size_of(len, area) {
            return Err(StoreError::Invalid(format!(
                "{}: its file has {size} bytes, and with all of it would have {}",
                chunk.name,
                size_of(len, area)
            )));
        }
        let blocks = len.div_ceil(BLOCK);
        if !sums.is_empty() && sums.len() as u64 != blocks {
            return Err(StoreError::Invalid(format!(
                "{}: {} sums of {blocks} blocks",
                chunk.name,
                sums.len()
            )));
        }
        let mut state = chunk.write_lock();
        state.groups = match sums {
            [] => chunk.sum_groups(area, len)?,
            sums => sums.chunks(BLOCKS).map(group_of).collect(),
        };
        chunk.flush(&mut state)?;
        drop(state);
        Ok(chunk)
    }

    fn sum_groups(&self, area: u64, len: u64) -> Result<Vec<Slot>> {
        let mut bytes = BYTES.take();
        bytes.resize(PIECE as usize, 0);
        let groups = (0..len)
            .step_by(GROUP as usize)
            .map(|from| self.summed(area, from, len.min(from + GROUP), &mut bytes));
        let groups = groups.collect();
        BYTES.set(bytes);
        groups
    }

    /// A group with the checksums of the content `from..end`.
    fn summed(&self, area: u64, from: u64, end: u64, bytes: &mut [u8]) -> Result<Slot> {
        let mut group = Box::new(Group::new());
        for at in (from..end).step_by(PIECE as usize) {
            let bytes = &mut bytes[..(end - at).min(PIECE) as usize];
            let have = read_up_to(&self.file, data_at(area, at), bytes)
                .map_err(|e| StoreError::from_io("read", &self.path, &e))?;
            if have < bytes.len() {
                let text = format!("{}: its file was truncated while it was read", self.name);
                return Err(StoreError::Invalid(text));
            }
            let first = (at % GROUP / BLOCK) as usize;
            for (block, bytes) in bytes.chunks(BLOCK as usize).enumerate() {
                group.set(first + block, Some(sum_of(bytes)));
            }
        }
        Ok(Slot::Loaded(group))
    }
}
