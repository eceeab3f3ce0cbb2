//! Salvages the readable blocks of a damaged checkpoint, once its loss is accepted.
//!
//! The good blocks go into a temporary checkpoint that replaces the damaged one while the store opens. It never gets a
//! checkpoint's name: until a new, complete checkpoint is written, opening the store without accepting the loss still
//! fails.

use super::checkpoint::{BLOCK, BlockHead, HEADER, Head, Writer, entry_at};
use super::disk::{Ground, Id, checkpoint_name, numbered, remove};
use super::{Damage, KvError, Lsn};
use crc_fast::crc32_iscsi as crc32c;
use std::fs;
use std::path::Path;

/// The name of the temporary checkpoint.
pub(super) const SALVAGE: &str = "salvage.tmp";

/// The temporary checkpoint, and what it lacks.
#[derive(Debug)]
pub(super) struct Salvaged {
    /// The header of the damaged checkpoint, or a guess.
    pub(super) head: Head,
    /// The ranges of keys that are lost.
    pub(super) losses: Vec<Damage>,
}

/// Writes the temporary checkpoint in place of the damaged one of `lsn`.
pub(super) fn salvage(
    dir: &Path,
    ground: &Ground,
    lsn: u64,
    store: Id,
) -> Result<Salvaged, KvError> {
    let path = dir.join(checkpoint_name(lsn));
    let bytes = fs::read(&path).map_err(|error| KvError::io("read", &path, &error))?;
    let head = match bytes.first_chunk().map(Head::decode) {
        Some(Ok(head)) => head,
        // Replay skips records that the checkpoint already contains, so any older file will do.
        _ => Head {
            store,
            lsn: Lsn(lsn),
            journal: numbered(dir, "journal")?.first().copied().unwrap_or(1),
        },
    };
    remove(&dir.join(SALVAGE))?;
    let mut rescue = Rescue {
        writer: Writer::new(dir, ground, head)?,
        last: Vec::new(),
        hole: None,
        lsn,
        losses: Vec::new(),
    };
    let mut at = HEADER;
    let mut expected = 0;
    while let Some((found, block)) = next_block(&bytes, at, expected) {
        if found > at || block.number > expected {
            rescue.hole.get_or_insert(at);
        }
        let end = found + BLOCK + block.len;
        let payload = &bytes[found + BLOCK..end];
        if crc32c(payload) == block.crc {
            rescue.take(payload, block.entries)?;
        } else {
            rescue.hole.get_or_insert(found);
        }
        (at, expected) = (end, block.number + 1);
    }
    if BlockHead::decode(&bytes[at.min(bytes.len())..]).is_some() || bytes.len() != at + BLOCK {
        rescue.hole.get_or_insert(at);
    }
    rescue.end_hole(None);
    rescue.writer.finish_as(SALVAGE)?;
    Ok(Salvaged {
        head,
        losses: rescue.losses,
    })
}

/// Finds the next complete block with a good header and a number not below `expected`.
fn next_block(bytes: &[u8], from: usize, expected: u32) -> Option<(usize, BlockHead)> {
    (from..bytes.len().saturating_sub(BLOCK)).find_map(|at| {
        let block = BlockHead::decode(&bytes[at..])?;
        (block.number >= expected && at + BLOCK + block.len <= bytes.len()).then_some((at, block))
    })
}

struct Rescue {
    writer: Writer,
    last: Vec<u8>,
    /// Where the unreadable bytes since the last entry begin.
    hole: Option<usize>,
    lsn: u64,
    losses: Vec<Damage>,
}

impl Rescue {
    fn take(&mut self, block: &[u8], entries: u32) -> Result<(), KvError> {
        let mut at = 0;
        for _ in 0..entries {
            let Some((key, value)) = entry_at(block, at) else {
                break;
            };
            at = value.end;
            let (key, value) = (&block[key], &block[value]);
            if key > &self.last[..] {
                self.end_hole(Some(key));
                self.writer.push(key, value)?;
                self.last = key.to_vec();
            }
        }
        Ok(())
    }

    fn end_hole(&mut self, next: Option<&[u8]>) {
        let Some(offset) = self.hole.take() else {
            return;
        };
        let behind = match &self.last[..] {
            [] => "from the first key on".to_owned(),
            last => format!("behind key {}", last.escape_ascii()),
        };
        let before = next.map_or("to the last".to_owned(), |key| {
            format!("and before key {}", key.escape_ascii())
        });
        self.losses.push(Damage {
            file: checkpoint_name(self.lsn).into(),
            offset: offset as u64,
            lost: None,
            keys: Vec::new(),
            detail: format!("blocks cannot be read; gone: what was stored {behind} {before}"),
        });
    }
}
