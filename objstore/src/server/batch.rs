//! Answers READ_BATCH and WRITE_BATCH: gathers the pieces of a batch from parts of chunks into one packed reply, and
//! scatters packed bytes into grid chunks in place. A message holds several batches, which are processed in order.
//!
//! The length of a reply must be known before it begins, so the runs are walked twice: once to count, once to send. An
//! error in between is reported behind the bytes; the remaining bytes are zeros, which maintains the framing of the
//! connection. One request may take at most [`PATIENCE`].

use std::io::IoSlice;
use std::time::{Duration, Instant};

use slabfs_model::batch::{Plan, Rows};

use super::check;
use super::handler::{decode, encode};
use crate::batch::{PART, Patching, Patience, Share, Window, is_there, read_window};
use crate::error::{Result, StoreError};
use crate::store::ChunkStore;
use crate::wire::messages::{Answer, BatchFound, BatchItem, BatchRequest, BatchRequests};
use crate::wire::{Call, MAX_DATA, TRAILER, WireResult, trailer};

/// The time limit of one request; a client waits 30 seconds for the reply.
const PATIENCE: Duration = Duration::from_secs(15);

/// Answers a read of a batch.
pub(super) fn read(store: &dyn ChunkStore, call: Call<'_>) -> WireResult<()> {
    let Call {
        control,
        spare,
        reply,
        ..
    } = call;
    let patience = Patience {
        until: Instant::now() + PATIENCE,
    };
    let refuse = |e| Answer::<Vec<BatchFound>>::Err(e);
    let requests: BatchRequests = match decode(control) {
        Ok(requests) => requests,
        Err(e) => return reply.send(&encode(&refuse(e))?, &[]),
    };
    let mut bytes = 0;
    let asked: Result<Vec<Asked<'_>>> = (requests.0.iter())
        .map(|request| Asked::new(store, request, patience, &mut bytes))
        .collect();
    let asked = match asked {
        Ok(asked) => asked,
        Err(e) => return reply.send(&encode(&refuse(e))?, &[]),
    };
    let found = asked.iter().map(|asked| (&asked.found, asked.bytes));
    // Encodes to the same bytes as `BatchFound`s.
    let control = encode(&Answer::Ok(found.collect::<Vec<_>>()))?;
    if spare.len() < PART {
        spare.resize(PART, 0);
    }
    let out = &mut spare[..PART];
    let mut packing = Packing {
        store,
        asked: &asked,
        scratch: Vec::new(),
        next: (0, 0),
        cursor: None,
        window: Window::default(),
        patience,
    };
    if bytes <= PART as u64 {
        let out = &mut out[..bytes as usize];
        let failed = packing.pack(out).err();
        if failed.is_some() {
            out.fill(0);
        }
        let trailer = trailer(failed.as_ref());
        return reply.send(&control, &[IoSlice::new(out), IoSlice::new(&trailer)]);
    }
    let mut failed = None;
    let mut outgoing = reply.begin(&control, bytes + TRAILER as u64)?;
    while outgoing.left() > TRAILER as u64 {
        let len = (outgoing.left() - TRAILER as u64).min(PART as u64) as usize;
        let out = &mut out[..len];
        if failed.is_none() {
            failed = packing.pack(out).err();
        }
        if failed.is_some() {
            out.fill(0);
        }
        outgoing.give(out)?;
    }
    outgoing.give(&trailer(failed.as_ref()))
}

/// A validated request and its plan.
struct Asked<'a> {
    plan: Plan,
    packed: std::ops::Range<u64>,
    shares: Vec<Share<'a>>,
    /// Whether each item's chunk exists; `shares` has an entry for each that does.
    found: Vec<bool>,
    bytes: u64,
}

impl<'a> Asked<'a> {
    /// Adds the bytes of this request to `all`, the bytes of the message so far.
    fn new(
        store: &dyn ChunkStore,
        request: &'a BatchRequest,
        patience: Patience,
        all: &mut u64,
    ) -> Result<Asked<'a>> {
        let plan = (request.batch.plan()).map_err(|e| StoreError::Invalid(e.to_string()))?;
        let mut asked = Asked {
            plan,
            packed: request.packed.0..request.packed.1,
            shares: Vec::with_capacity(request.items.len()),
            found: Vec::with_capacity(request.items.len()),
            bytes: 0,
        };
        for item in &request.items {
            let share = share(item, &request.cells)?;
            let there = is_there(store, &item.name, &item.form)?;
            asked.found.push(there);
            if !there {
                continue;
            }
            let (bytes, _) = share.measure(&asked.plan, &asked.packed, &patience)?;
            asked.bytes = asked.bytes.saturating_add(bytes);
            *all = all.saturating_add(bytes);
            if *all > MAX_DATA as u64 {
                return Err(StoreError::Invalid(format!(
                    "a read of more than {MAX_DATA} bytes of batches in one message"
                )));
            }
            asked.shares.push(share);
        }
        Ok(asked)
    }
}

fn share<'a>(item: &'a BatchItem, cells: &[u64]) -> Result<Share<'a>> {
    check::form(&item.name, &item.form)?;
    check::slab(&item.name, &item.form, &item.slab)?;
    let rows = Rows::new(cells, &item.want, &item.form.shape, &item.slab);
    Ok(Share {
        name: &item.name,
        form: &item.form,
        rows: rows.map_err(|e| StoreError::Invalid(format!("{}: {e}", item.name)))?,
        by_pieces: item.by_pieces,
    })
}

/// Produces the packed bytes of requests, one part at a time.
struct Packing<'a> {
    store: &'a dyn ChunkStore,
    asked: &'a [Asked<'a>],
    scratch: Vec<u8>,
    /// The next request, and the next share in it.
    next: (usize, usize),
    cursor: Option<(slabfs_model::batch::Cursor<'a>, &'a Share<'a>)>,
    window: Window,
    patience: Patience,
}

impl Packing<'_> {
    /// Fills `out` with the next packed bytes; the caller never asks for more than there are.
    fn pack(&mut self, out: &mut [u8]) -> Result<()> {
        let mut at = 0;
        while at < out.len() {
            if let Some((cursor, share)) = &mut self.cursor
                && self.window.take(cursor, out.len() - at)
            {
                self.patience.check()?;
                let end = at + self.window.bytes();
                let into = &mut out[at..end];
                read_window(self.store, share, &self.window, &mut self.scratch, into)?;
                at = end;
                continue;
            }
            let Some(asked) = self.asked.get(self.next.0) else {
                return Err(StoreError::Protocol("a batch was miscounted".into()));
            };
            let Some(share) = asked.shares.get(self.next.1) else {
                self.next = (self.next.0 + 1, 0);
                continue;
            };
            self.next.1 += 1;
            let cursor = share.cursor(&asked.plan, &asked.packed);
            self.cursor = Some((cursor, share));
        }
        Ok(())
    }
}

/// Writes the bytes of batches into grid chunks; returns the number of items done. All are checked before the first
/// write.
pub(super) fn write(
    store: &dyn ChunkStore,
    requests: &BatchRequests,
    mut payload: &[u8],
) -> Result<u64, (u64, StoreError)> {
    let patience = Patience {
        until: Instant::now() + PATIENCE,
    };
    let mut number = 0;
    let mut left = payload.len() as u64;
    let mut asked = Vec::with_capacity(requests.0.len());
    for request in &requests.0 {
        let packed = request.packed.0..request.packed.1;
        let invalid = |e: slabfs_model::batch::BatchError| StoreError::Invalid(e.to_string());
        let plan = request.batch.plan().map_err(|e| (number, invalid(e)))?;
        let mut shares = Vec::with_capacity(request.items.len());
        for item in &request.items {
            let checked = check::kind_of(&item.name, true, "written in place")
                .and_then(|()| share(item, &request.cells))
                .and_then(|share| Ok((share.measure(&plan, &packed, &patience)?, share)));
            let ((bytes, end), share) = checked.map_err(|e| (number, e))?;
            left = left.checked_sub(bytes).ok_or((number, uneven()))?;
            shares.push((share, bytes, end));
            number += 1;
        }
        asked.push((plan, packed, shares));
    }
    if left > 0 {
        return Err((0, uneven()));
    }
    let mut done = 0;
    for (plan, packed, shares) in &asked {
        for (share, bytes, end) in shares {
            let (own, rest) = payload.split_at(*bytes as usize);
            payload = rest;
            let mut patching = Patching::new(share.cursor(plan, packed), own, Some(patience));
            store
                .patch(share.name, share.form, *end, &mut patching)
                .and_then(|()| patching.end())
                .map_err(|e| (done, e))?;
            done += 1;
        }
    }
    Ok(done)
}

fn uneven() -> StoreError {
    StoreError::Protocol("pieces and payload are not equally long".into())
}
