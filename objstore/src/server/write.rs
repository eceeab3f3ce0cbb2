//! Answers WRITE and WRITE_BATCH: writes parts of chunks. A WRITE is a WRITE_BATCH without batches.

use std::io::IoSlice;

use super::handler::Undone;
use super::{batch, check, handler};
use crate::error::{Result, StoreError};
use crate::store::ChunkStore;
use crate::wire::messages::{BatchRequests, BatchWrites, BySession, WriteItem, WriteOp, kind};

/// Decodes a request of one of the two kinds.
pub(super) fn decode(kind: u16, control: &[u8]) -> Result<BySession<BatchWrites>> {
    if kind == kind::WRITE_BATCH {
        let asked: BySession<BatchWrites> = handler::decode(control)?;
        let is_put = |item: &WriteItem| matches!(item.op, WriteOp::Put | WriteOp::PutEncoded);
        if !asked.items.puts.iter().all(is_put) {
            let text = "only complete chunks may accompany batches".into();
            return Err(StoreError::Protocol(text));
        }
        return Ok(asked);
    }
    let asked = handler::decode::<BySession<Vec<WriteItem>>>(control)?;
    Ok(BySession {
        session: asked.session,
        epoch: asked.epoch,
        items: BatchWrites {
            puts: asked.items,
            batches: BatchRequests::default(),
        },
    })
}

/// Whether a request may write in place, which only a session may that is not over.
pub(super) fn is_in_place(kind: u16, writes: &BatchWrites) -> bool {
    let in_place = |item: &WriteItem| matches!(item.op, WriteOp::Write(_));
    kind == kind::WRITE_BATCH || writes.puts.iter().any(in_place)
}

/// Writes pieces and batches in order until one fails; returns the number of items done. All lengths are checked
/// before the first write.
pub(super) fn write(
    store: &dyn ChunkStore,
    writes: &BatchWrites,
    mut payload: &[u8],
) -> Result<u64, Undone> {
    let BatchWrites { puts, batches } = writes;
    let bytes = puts
        .iter()
        .try_fold(0u64, |n, item| n.checked_add(item.bytes));
    let behind = bytes.and_then(|bytes| (payload.len() as u64).checked_sub(bytes));
    let behind = behind.ok_or_else(|| (0, batch::uneven()))?;
    let batches = batch::check_writes(batches, behind)?;
    let number = puts.len() as u64;
    for (done, item) in (0..).zip(puts) {
        let (data, rest) = payload.split_at(item.bytes as usize);
        payload = rest;
        write_one(store, item, data).map_err(|e| (done, e))?;
    }
    match batch::write(store, &batches, payload) {
        Ok(done) => Ok(number + done),
        Err((done, e)) => Err((number + done, e)),
    }
}

pub(super) fn write_one(store: &dyn ChunkStore, item: &WriteItem, data: &[u8]) -> Result<()> {
    let (name, form) = (&item.name, &item.form);
    check::form(name, form)?;
    let wrong = |text: &str| {
        Err(StoreError::Invalid(format!(
            "{name}: {} bytes {text}",
            data.len()
        )))
    };
    let slices = [IoSlice::new(data)];
    match &item.op {
        WriteOp::Put => {
            check::kind_of(name, false, "put")?;
            if form.volume() != Some(item.bytes) {
                return wrong("are not the complete chunk");
            }
            store.put(name, form, &slices)
        }
        WriteOp::PutEncoded => {
            check::kind_of(name, false, "put")?;
            store.put_encoded(name, form, &slices)
        }
        WriteOp::Append { at } => {
            check::kind_of(name, false, "appended to")?;
            match (at.checked_add(item.bytes), form.volume()) {
                (Some(end), Some(volume)) if end <= volume => {
                    store.append(name, form, *at, &slices)
                }
                _ => wrong("go beyond the end of the chunk"),
            }
        }
        WriteOp::Write(slab) => {
            check::kind_of(name, true, "written in place")?;
            if check::slab(name, form, slab)? != item.bytes {
                return wrong("are not the cells of the slab");
            }
            store.write(name, form, slab, &slices)
        }
    }
}
