//! Large new chunks that are written to their files as they come in.
//!
//! Received whole, tens of MiB lie in a buffer that is new each time: its pages are made, cleared twice, filled, and have
//! left the processor's cache when they are summed and when they are written. Piece by piece one buffer that stays warm
//! does, and the file is made while the peer is still sending. It is a [`Blank`], as those that are lent to others are: it
//! has no name before all of it is there, and is gone with a connection that breaks.

use std::io::IoSlice;

use super::check;
use super::handler::{decode, write_one};
use crate::checksum::{combined, crc32c, padded, sums_of_blocks};
use crate::error::{Result, StoreError};
use crate::store::{Blank, ChunkStore, SUMMED};
use crate::wire::messages::{BySession, Outcome, WriteItem, WriteOp};
use crate::wire::{Incoming, WireResult};

/// Payloads up to this are received whole: their buffer stays.
const FROM: usize = 1 << 20;

/// So much of a chunk is received before it is written: whole blocks that have sums.
const BITE: usize = 16 * SUMMED as usize;

/// Stores the chunks of a WRITE in order until one fails, if all it has are whole chunks and they are large.
pub(super) fn take(
    store: &dyn ChunkStore,
    control: &[u8],
    spare: &mut Vec<u8>,
    payload: &mut Incoming<'_>,
) -> WireResult<Option<Outcome>> {
    if payload.left() <= FROM {
        return Ok(None);
    }
    // What is wrong with the message is told where all are.
    let Ok(asked) = decode::<BySession<Vec<WriteItem>>>(control) else {
        return Ok(None);
    };
    let items = asked.items;
    let bytes = items
        .iter()
        .try_fold(0u64, |n, item| n.checked_add(item.bytes));
    let are_puts = items.iter().all(|item| item.op == WriteOp::Put);
    let is_any_large = items.iter().any(|item| item.bytes > FROM as u64);
    if bytes != Some(payload.left() as u64) || !are_puts || !is_any_large {
        return Ok(None);
    }
    if payload.is_summed() {
        return take_summed(store, &items, spare, payload).map(Some);
    }
    let mut done = 0;
    for item in &items {
        if let Err(error) = put(store, item, spare, payload)? {
            let failed = Some(error);
            return Ok(Some(Outcome { done, failed }));
        }
        done += 1;
    }
    Ok(Some(Outcome { done, failed: None }))
}

/// A chunk that has come in, and is stored once the checksum of all has matched.
enum Arrived {
    File(Blank, Vec<u32>),
    Bytes(Vec<u8>),
    Failed(StoreError),
}

/// The same where a checksum follows the payload: no chunk is stored before all have come and it has matched. The files
/// have no names until then.
fn take_summed(
    store: &dyn ChunkStore,
    items: &[WriteItem],
    spare: &mut Vec<u8>,
    payload: &mut Incoming<'_>,
) -> WireResult<Outcome> {
    let mut arrived = Vec::with_capacity(items.len());
    for item in items {
        let len = item.bytes as usize;
        let blank = match len > FROM {
            true => payload.meanwhile(|| blank(store, item)),
            false => Ok(None),
        };
        arrived.push(match blank {
            Ok(Some(blank)) => match receive(&blank, len, spare, payload)? {
                Ok(sums) => Arrived::File(blank, sums),
                Err(error) => Arrived::Failed(error),
            },
            Ok(None) => {
                let mut bytes = Vec::new();
                payload.read_next(len, &mut bytes)?;
                Arrived::Bytes(bytes)
            }
            Err(error) => Arrived::Failed(error),
        });
        if matches!(arrived.last(), Some(Arrived::Failed(_))) {
            break;
        }
    }
    // Behind one that failed the rest is thrown away, and the checksum with it.
    if payload.left() > 0 {
        payload.throw_away()?;
    }
    payload.meanwhile(|| {
        let mut done = 0;
        for (item, arrived) in items.iter().zip(arrived) {
            let stored = match arrived {
                Arrived::File(blank, sums) => store.adopt(blank, &sums),
                Arrived::Bytes(bytes) => write_one(store, item, &bytes),
                Arrived::Failed(error) => Err(error),
            };
            if let Err(error) = stored {
                let failed = Some(error);
                return Ok(Outcome { done, failed });
            }
            done += 1;
        }
        Ok(Outcome { done, failed: None })
    })
}

/// Stores the chunk that comes next.
fn put(
    store: &dyn ChunkStore,
    item: &WriteItem,
    spare: &mut Vec<u8>,
    payload: &mut Incoming<'_>,
) -> WireResult<Result<()>> {
    let len = item.bytes as usize;
    let blank = match len > FROM {
        true => payload.meanwhile(|| blank(store, item)),
        false => Ok(None),
    };
    match blank {
        Err(error) => Ok(Err(error)),
        Ok(Some(blank)) => fill(store, blank, len, spare, payload),
        Ok(None) => {
            payload.read_next(len, spare)?;
            Ok(payload.meanwhile(|| write_one(store, item, &spare[..len])))
        }
    }
}

fn blank(store: &dyn ChunkStore, item: &WriteItem) -> Result<Option<Blank>> {
    check::form(&item.name, &item.form)?;
    check::kind_of(&item.name, false, "put")?;
    match item.form.volume() == Some(item.bytes) {
        true => store.blank(&item.name, &item.form),
        // Not the whole chunk, which is said where others are put.
        false => Ok(None),
    }
}

fn fill(
    store: &dyn ChunkStore,
    blank: Blank,
    len: usize,
    spare: &mut Vec<u8>,
    payload: &mut Incoming<'_>,
) -> WireResult<Result<()>> {
    match receive(&blank, len, spare, payload)? {
        Ok(sums) => Ok(payload.meanwhile(|| store.adopt(blank, &sums))),
        Err(error) => Ok(Err(error)),
    }
}

/// Writes what comes to a file; gives the checksums of its blocks. Where the sender's checksum follows they are part of
/// what is compared with it: what is stored is what was sent.
fn receive(
    blank: &Blank,
    len: usize,
    spare: &mut Vec<u8>,
    payload: &mut Incoming<'_>,
) -> WireResult<Result<Vec<u32>>> {
    if spare.len() < BITE {
        spare.resize(BITE, 0);
    }
    let mut sums = Vec::with_capacity(len.div_ceil(SUMMED as usize));
    let mut at = 0;
    while at < len {
        let bite = &mut spare[..BITE.min(len - at)];
        payload.read_with(bite, |bite| {
            let whole = bite.len() - bite.len() % SUMMED as usize;
            let (blocks, rest) = bite.split_at(whole);
            let first = sums.len();
            sums.extend(sums_of_blocks(&[IoSlice::new(blocks)], SUMMED));
            let all = sums[first..]
                .iter()
                .fold(0, |all, &sum| combined(all, sum, SUMMED));
            if rest.is_empty() {
                return all;
            }
            let sum = crc32c(rest);
            sums.push(padded(sum, SUMMED - rest.len() as u64));
            combined(all, sum, rest.len() as u64)
        })?;
        if let Err(error) = payload.meanwhile(|| blank.write(at as u64, bite)) {
            return Ok(Err(error));
        }
        at += bite.len();
    }
    Ok(Ok(sums))
}
