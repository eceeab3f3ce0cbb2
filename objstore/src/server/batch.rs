//! Checks the batches of READ_BATCH and WRITE_BATCH, answers the reads, and scatters packed bytes into grid chunks in
//! place. A message holds several batches, which are processed in order.
//!
//! The length of a reply must be known before it begins, so the runs are walked twice: once to count, once to send
//! (`sending`). One request may take at most [`PATIENCE`].

use std::ops::Range;
use std::time::{Duration, Instant};

use slabfs_model::batch::{Plan, Rows};

use super::check;
use super::handler::{decode, encode};
use super::sending::{Ending, Sending};
use crate::batch::{Patching, Patience, Share, is_there};
use crate::error::{Result, StoreError};
use crate::store::ChunkStore;
use crate::wire::messages::{Answer, BatchFound, BatchItem, BatchRequest, BatchRequests};
use crate::wire::{Call, MAX_DATA, WireResult};

/// The time limit of one request; a client waits 30 seconds for the reply.
const PATIENCE: Duration = Duration::from_secs(15);

/// A validated request and its plan.
pub(super) struct Asked<'a> {
    pub(super) plan: Plan,
    pub(super) packed: Range<u64>,
    pub(super) patience: Patience,
    shares: Vec<Counted<'a>>,
    /// Whether each item was accepted; `shares` has an entry for each that was.
    accepted: Vec<bool>,
}

/// A part of a chunk, and what the batch selects of it.
pub(super) struct Counted<'a> {
    pub(super) share: Share<'a>,
    pub(super) bytes: u64,
    /// The end of the last byte in the chunk.
    end: u64,
}

/// Checks requests and counts the bytes of the items that `accept` accepts, until one fails. All items together must
/// not exceed `room`, which is reduced by their bytes; beyond it, the error is `over`.
fn check_all<'a>(
    requests: &'a BatchRequests,
    room: &mut u64,
    over: fn() -> StoreError,
    accept: impl Fn(&BatchItem) -> Result<bool>,
) -> Result<Vec<Asked<'a>>, (u64, StoreError)> {
    let patience = Patience {
        until: Instant::now() + PATIENCE,
    };
    let mut number = 0;
    let mut check = |request: &'a BatchRequest| {
        let plan = (request.batch.plan()).map_err(|e| (number, StoreError::Invalid(e.to_string())));
        let mut asked = Asked {
            plan: plan?,
            packed: request.packed.0..request.packed.1,
            patience,
            shares: Vec::with_capacity(request.items.len()),
            accepted: Vec::with_capacity(request.items.len()),
        };
        for item in &request.items {
            let counted = count(&asked, item, &request.cells, room, over, &accept);
            let counted = counted.map_err(|e| (number, e))?;
            asked.accepted.push(counted.is_some());
            asked.shares.extend(counted);
            number += 1;
        }
        Ok(asked)
    };
    requests.0.iter().map(&mut check).collect()
}

fn count<'a>(
    asked: &Asked<'_>,
    item: &'a BatchItem,
    cells: &[u64],
    room: &mut u64,
    over: fn() -> StoreError,
    accept: impl Fn(&BatchItem) -> Result<bool>,
) -> Result<Option<Counted<'a>>> {
    check::form(&item.name, &item.form)?;
    check::slab(&item.name, &item.form, &item.slab)?;
    let rows = Rows::new(cells, &item.want, &item.form.shape, &item.slab);
    let share = Share {
        name: &item.name,
        form: &item.form,
        rows: rows.map_err(|e| StoreError::Invalid(format!("{}: {e}", item.name)))?,
        by_pieces: item.by_pieces,
    };
    if !accept(item)? {
        return Ok(None);
    }
    let (bytes, end) = share.measure(&asked.plan, &asked.packed, &asked.patience)?;
    *room = room.checked_sub(bytes).ok_or_else(over)?;
    Ok(Some(Counted { share, bytes, end }))
}

impl Asked<'_> {
    fn bytes(&self) -> u64 {
        self.shares.iter().map(|counted| counted.bytes).sum()
    }
}

/// Answers a read of batches.
pub(super) fn read(store: &dyn ChunkStore, call: Call<'_>) -> WireResult<()> {
    let requests: Result<BatchRequests> = decode(call.control);
    let over = || {
        StoreError::Invalid(format!(
            "a read of more than {MAX_DATA} bytes of batches in one message"
        ))
    };
    let there = |item: &BatchItem| is_there(store, &item.name, &item.form);
    let checked = requests.as_ref().map_err(Clone::clone);
    let checked = checked.and_then(|requests| {
        check_all(requests, &mut (MAX_DATA as u64), over, there).map_err(|(_, e)| e)
    });
    let all = match checked {
        Ok(all) => all,
        Err(e) => return call.reply(&encode(&Answer::<Vec<BatchFound>>::Err(e))?, &[]),
    };
    let found = all.iter().map(|asked| (&asked.accepted, asked.bytes()));
    // Encodes to the same bytes as `BatchFound`s.
    let control = encode(&Answer::Ok(found.collect::<Vec<_>>()))?;
    let bytes = all.iter().map(Asked::bytes).sum();
    let mut sending = Sending::new(call.reply, control, bytes, Ending::Plain, call.spare);
    for asked in &all {
        for counted in &asked.shares {
            sending.share(store, asked, counted)?;
        }
    }
    sending.end()
}

/// Checks batches whose packed bytes are exactly `bytes`, for [`write`].
pub(super) fn check_writes(
    requests: &BatchRequests,
    bytes: u64,
) -> Result<Vec<Asked<'_>>, (u64, StoreError)> {
    let mut left = bytes;
    let grid =
        |item: &BatchItem| check::kind_of(&item.name, true, "written in place").map(|()| true);
    let all = check_all(requests, &mut left, uneven, grid)?;
    match left {
        0 => Ok(all),
        _ => Err((0, uneven())),
    }
}

/// The lengths of items and of their payload differ.
pub(super) fn uneven() -> StoreError {
    StoreError::Protocol("pieces and payload are not equally long".into())
}

/// Writes the bytes of batches into grid chunks; returns the number of items done.
pub(super) fn write(
    store: &dyn ChunkStore,
    all: &[Asked<'_>],
    mut payload: &[u8],
) -> Result<u64, (u64, StoreError)> {
    let mut done = 0;
    for asked in all {
        for Counted { share, bytes, end } in &asked.shares {
            let (own, rest) = payload.split_at(*bytes as usize);
            payload = rest;
            let cursor = share.cursor(&asked.plan, &asked.packed);
            let mut patching = Patching::new(cursor, own, Some(asked.patience));
            store
                .patch(share.name, share.form, *end, &mut patching)
                .and_then(|()| patching.end())
                .map_err(|e| (done, e))?;
            done += 1;
        }
    }
    Ok(done)
}
