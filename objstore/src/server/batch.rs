//! Reads and writes of batches: the bytes of pieces that lie in parts of chunks, packed as they are sent, and put into
//! grid chunks in place.
//!
//! How long the reply is has to be known before it begins: it is counted by a walk of runs, and then walked again to
//! be sent. What goes wrong on the way is told behind the bytes, of which the rest is zeros then, so that the
//! connection stays in step. A request may cost a server [`PATIENCE`], whatever it asks for.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use slabfs_model::batch::{Plan, Rows};

use super::check;
use super::handler::{decode, encode};
use crate::batch::{
    PART, Patching, Patience, SPAN, Share, TRAILER, Window, is_there, read_window, trailer,
};
use crate::error::{Result, StoreError};
use crate::store::ChunkStore;
use crate::wire::messages::{Answer, BatchItem, BatchRequest};
use crate::wire::{Call, MAX_PAYLOAD, WireResult};

/// How long one request may take: a client waits 30 seconds for it.
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
    let refuse = |e| Answer::<Vec<bool>>::Err(e);
    let request: BatchRequest = match decode(control) {
        Ok(request) => request,
        Err(e) => return reply.send(&encode(&refuse(e))?, &[]),
    };
    let asked = match Asked::new(store, &request, patience) {
        Ok(asked) => asked,
        Err(e) => return reply.send(&encode(&refuse(e))?, &[]),
    };
    let control = encode(&Answer::Ok(&asked.found))?;
    if spare.len() < PART + SPAN as usize {
        spare.resize(PART + SPAN as usize, 0);
    }
    let (out, scratch) = spare.split_at_mut(PART);
    let mut packing = Packing {
        store,
        asked: &asked,
        scratch,
        next: 0,
        cursor: None,
        window: Window::default(),
    };
    if asked.bytes <= PART as u64 {
        let out = &mut out[..asked.bytes as usize];
        let failed = packing.pack(out).err();
        if failed.is_some() {
            out.fill(0);
        }
        let trailer = trailer(failed.as_ref());
        return reply.send(&control, &[IoSlice::new(out), IoSlice::new(&trailer)]);
    }
    let mut failed = None;
    let mut outgoing = reply.begin(&control, asked.bytes + TRAILER as u64)?;
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

/// A request that was checked, and what it comes to.
struct Asked<'a> {
    plan: Plan,
    packed: std::ops::Range<u64>,
    shares: Vec<Share<'a>>,
    /// Which of the items' chunks are there; `shares` has those.
    found: Vec<bool>,
    bytes: u64,
    patience: Patience,
}

impl<'a> Asked<'a> {
    fn new(
        store: &dyn ChunkStore,
        request: &'a BatchRequest,
        patience: Patience,
    ) -> Result<Asked<'a>> {
        let plan = (request.batch.plan()).map_err(|e| StoreError::Invalid(e.to_string()))?;
        let mut asked = Asked {
            plan,
            packed: request.packed.0..request.packed.1,
            shares: Vec::with_capacity(request.items.len()),
            found: Vec::with_capacity(request.items.len()),
            bytes: 0,
            patience,
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
            if asked.bytes > (MAX_PAYLOAD - TRAILER) as u64 {
                return Err(StoreError::Invalid(format!(
                    "a read of more than {} bytes of a batch in one message",
                    MAX_PAYLOAD - TRAILER
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

/// The packed bytes of a request, made bit by bit.
struct Packing<'a> {
    store: &'a dyn ChunkStore,
    asked: &'a Asked<'a>,
    scratch: &'a mut [u8],
    next: usize,
    cursor: Option<(slabfs_model::batch::Cursor<'a>, &'a Share<'a>)>,
    window: Window,
}

impl Packing<'_> {
    /// Packs the next bytes, as many as `out` has: so many there are.
    fn pack(&mut self, out: &mut [u8]) -> Result<()> {
        let mut at = 0;
        while at < out.len() {
            if let Some((cursor, share)) = &mut self.cursor
                && self.window.take(cursor, out.len() - at)
            {
                self.asked.patience.check()?;
                let end = at + self.window.bytes();
                let into = &mut out[at..end];
                read_window(self.store, share, &self.window, self.scratch, into)?;
                at = end;
                continue;
            }
            let Some(share) = self.asked.shares.get(self.next) else {
                return Err(StoreError::Protocol("a batch was miscounted".into()));
            };
            self.next += 1;
            let cursor = share.cursor(&self.asked.plan, &self.asked.packed);
            self.cursor = Some((cursor, share));
        }
        Ok(())
    }
}

/// Puts the bytes of a batch into grid chunks; gives how many items were done.
pub(super) fn write(
    store: &dyn ChunkStore,
    request: &BatchRequest,
    mut payload: &[u8],
) -> Result<u64, (u64, StoreError)> {
    let patience = Patience {
        until: Instant::now() + PATIENCE,
    };
    let invalid = |e: slabfs_model::batch::BatchError| (0, StoreError::Invalid(e.to_string()));
    let plan = request.batch.plan().map_err(invalid)?;
    let packed = request.packed.0..request.packed.1;
    let mut shares = Vec::with_capacity(request.items.len());
    let mut left = payload.len() as u64;
    for (number, item) in (0u64..).zip(&request.items) {
        let checked = check::kind_of(&item.name, true, "written in place")
            .and_then(|()| share(item, &request.cells))
            .and_then(|share| Ok((share.measure(&plan, &packed, &patience)?, share)));
        let ((bytes, end), share) = checked.map_err(|e| (number, e))?;
        let uneven = || StoreError::Protocol("pieces and payload are not equally long".into());
        left = left.checked_sub(bytes).ok_or_else(|| (number, uneven()))?;
        shares.push((share, bytes, end));
    }
    if left > 0 {
        let text = "pieces and payload are not equally long";
        return Err((0, StoreError::Protocol(text.into())));
    }
    for (number, (share, bytes, end)) in (0u64..).zip(&shares) {
        let (own, rest) = payload.split_at(*bytes as usize);
        payload = rest;
        let mut patching = Patching::new(share.cursor(&plan, &packed), own);
        store
            .patch(share.name, share.form, *end, &mut patching)
            .map_err(|e| (number, e))?;
    }
    Ok(shares.len() as u64)
}
