//! Receives large new chunks: writes them to their files piece by piece as they arrive.
//!
//! Receiving tens of MiB at once needs a fresh buffer each time: its pages are faulted in, zeroed twice, filled, and
//! have left the CPU cache by the time they are checksummed and written. Piece by piece, one buffer suffices and stays
//! in cache, and the file is written while the peer is still sending. The file is a [`Blank`], like those handed out to
//! clients on the same host: it has no name until it is complete, and disappears with a broken connection.

use std::io::IoSlice;

use smallvec::SmallVec;

use super::check;
use super::handler::decode;
use super::write::write_one;
use crate::checksum::{combined, crc32c, padded, sums_of_blocks};
use crate::error::{Result, StoreError};
use crate::store::{Blank, ChunkStore, SUMMED};
use crate::wire::messages::{BySession, Outcome, WriteItem, WriteOp};
use crate::wire::{Incoming, WireResult};

/// Payloads up to this size are received in full: their buffer is reused.
const FROM: usize = 1 << 20;

/// The size of a piece: a chunk is received and written in pieces of complete checksum blocks.
const PIECE: usize = 16 * SUMMED as usize;

/// Stores the chunks of a WRITE in order until one fails. Returns `None`, with nothing read, unless all items put
/// complete chunks and at least one is large.
pub(super) fn take(
    store: &dyn ChunkStore,
    control: &[u8],
    spare: &mut Vec<u8>,
    payload: &mut Incoming<'_>,
) -> WireResult<Option<Outcome>> {
    if payload.left() <= FROM {
        return Ok(None);
    }
    // Malformed messages are reported by the general path.
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
    // Where a checksum follows the payload, no chunk is stored before all have arrived and the checksum matches. The
    // files have no names until then.
    let summed = payload.is_summed();
    let mut outcome = Outcome {
        done: 0,
        failed: None,
        verifier: store.verifier(),
    };
    let mut arrived: SmallVec<[(&WriteItem, Arrived); 1]> = SmallVec::new();
    for item in &items {
        let one = arrive(store, item, spare, payload)?;
        let failed = matches!(one, Arrived::Failed(_));
        arrived.push((item, one));
        if !summed {
            payload.meanwhile(|| keep(store, &mut arrived, spare, &mut outcome));
        }
        if failed || outcome.failed.is_some() {
            break;
        }
    }
    // After a failure the rest is discarded, including the checksum.
    if summed && payload.left() > 0 {
        payload.throw_away()?;
    }
    payload.meanwhile(|| keep(store, &mut arrived, spare, &mut outcome));
    Ok(Some(outcome))
}

/// A received chunk, not stored yet.
enum Arrived {
    File(Blank, Vec<u32>),
    Bytes(Vec<u8>),
    Failed(StoreError),
}

/// Receives the next chunk.
fn arrive(
    store: &dyn ChunkStore,
    item: &WriteItem,
    spare: &mut Vec<u8>,
    payload: &mut Incoming<'_>,
) -> WireResult<Arrived> {
    let len = item.bytes as usize;
    let blank = match len > FROM {
        true => payload.meanwhile(|| blank(store, item)),
        false => Ok(None),
    };
    Ok(match blank {
        Ok(Some(blank)) => match receive(&blank, len, spare, payload)? {
            Ok(sums) => Arrived::File(blank, sums),
            Err(error) => Arrived::Failed(error),
        },
        Ok(None) => {
            let mut bytes = std::mem::take(spare);
            payload.read_next(len, &mut bytes)?;
            Arrived::Bytes(bytes)
        }
        Err(error) => Arrived::Failed(error),
    })
}

/// Stores received chunks in order until one fails.
fn keep(
    store: &dyn ChunkStore,
    arrived: &mut SmallVec<[(&WriteItem, Arrived); 1]>,
    spare: &mut Vec<u8>,
    outcome: &mut Outcome,
) {
    for (item, one) in arrived.drain(..) {
        let stored = match one {
            Arrived::File(blank, sums) => store.adopt(blank, &sums),
            Arrived::Bytes(bytes) => {
                let stored = write_one(store, item, &bytes[..item.bytes as usize]);
                if spare.is_empty() {
                    *spare = bytes;
                }
                stored
            }
            Arrived::Failed(error) => Err(error),
        };
        if let Err(error) = stored {
            outcome.failed = Some(error);
            return;
        }
        outcome.done += 1;
    }
}

fn blank(store: &dyn ChunkStore, item: &WriteItem) -> Result<Option<Blank>> {
    check::form(&item.name, &item.form)?;
    check::kind_of(&item.name, false, "put")?;
    match item.form.volume() == Some(item.bytes) {
        true => store.blank(&item.name, &item.form),
        // Not the complete chunk: `write_one` reports it.
        false => Ok(None),
    }
}

/// Writes the next `len` bytes of the payload to a file and returns the checksums of their blocks. Where the sender's
/// checksum follows, they are combined into the value compared with it, so the stored bytes are the sent bytes.
fn receive(
    blank: &Blank,
    len: usize,
    spare: &mut Vec<u8>,
    payload: &mut Incoming<'_>,
) -> WireResult<Result<Vec<u32>>> {
    if spare.len() < PIECE {
        spare.resize(PIECE, 0);
    }
    let mut sums = Vec::with_capacity(len.div_ceil(SUMMED as usize));
    let mut at = 0;
    while at < len {
        let piece = &mut spare[..PIECE.min(len - at)];
        payload.read_with(piece, |piece| {
            let in_blocks = piece.len() - piece.len() % SUMMED as usize;
            let (blocks, rest) = piece.split_at(in_blocks);
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
        if let Err(error) = payload.meanwhile(|| blank.write(at as u64, piece)) {
            return Ok(Err(error));
        }
        at += piece.len();
    }
    Ok(Ok(sums))
}
