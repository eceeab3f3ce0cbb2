//! Replies to reads of pieces.
//!
//! Large pieces of immutable chunks are sent from where they lie: a single one while the store shows it, several out of
//! their files, which are open once more until the reply has gone. All else is copied into the connection's buffer first,
//! since what is missing or wrong is said in front of the bytes.

use std::fs::File;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::resource::{Resource, getrlimit};

use super::check;
use super::handler::{decode, encode};
use crate::error::{Result, StoreError};
use crate::name::ChunkName;
use crate::store::ChunkStore;
use crate::wire::messages::{Found, ReadItem, ReadReply};
use crate::wire::{Call, MAX_PAYLOAD, WireResult};

/// From here on a read of one immutable chunk is sent from where the store has it mapped; below, the
/// copy is cheaper than the look-up of the mapping.
const SHOW_FROM: u64 = 32 << 10;

/// From here on it is sent out of its file, without a copy; below, the calls of the system cost more.
const LEND_FROM: usize = 128 << 10;

/// Reads pieces into the connection's buffer; large ones of immutable chunks are sent from where they lie.
pub(super) fn read(store: &dyn ChunkStore, call: Call<'_>) -> WireResult<()> {
    let checked = decode::<Vec<ReadItem>>(call.control).and_then(|items| {
        let sizes = sizes(&items)?;
        Ok((items, sizes))
    });
    let (items, sizes) = match checked {
        Ok(checked) => checked,
        // The first piece stands for all of them.
        Err(e) => {
            return call.reply(
                &encode(&ReadReply {
                    pieces: vec![Found::Failed(e)],
                })?,
                &[],
            );
        }
    };
    if let ([item], &[bytes]) = (&items[..], &sizes[..])
        && bytes >= SHOW_FROM
        && matches!(item.name, ChunkName::Free(_))
    {
        return read_one(store, call, item, bytes as usize);
    }
    let Call { spare, reply, .. } = call;
    let mut at = 0;
    let mut pieces = Vec::with_capacity(items.len());
    let mut parts: Vec<Part> = Vec::new();
    let mut opened: Option<(&ChunkName, Arc<Opened>)> = None;
    let may_lend = |item: &ReadItem, bytes: u64| {
        matches!(item.name, ChunkName::Free(_)) && bytes >= LEND_FROM as u64
    };
    let copied = items.iter().zip(&sizes);
    let copied = copied.filter(|&(item, &bytes)| !may_lend(item, bytes));
    let room = copied.map(|(_, &bytes)| bytes as usize).sum();
    if spare.len() < room {
        spare.resize(room, 0);
    }
    for (item, bytes) in items.iter().zip(sizes) {
        let is_lent = may_lend(item, bytes);
        let bytes = bytes as usize;
        if is_lent {
            let known = opened.take().filter(|(name, _)| **name == item.name);
            let mut file = known.map(|(_, file)| file);
            let mut lent = None;
            // What is wrong with the chunk is found again below, and told.
            let _ = store.lend(&item.name, &item.form, &item.slab, &mut |part| {
                file = file.take().or_else(|| Opened::again(part.file));
                lent = (file.clone()).map(|file| Part::File(file, part.at, part.len));
            });
            opened = file.map(|file| (&item.name, file));
            if let Some(lent) = lent {
                parts.push(lent);
                pieces.push(Found::Yes);
                continue;
            }
        }
        if spare.len() < at + bytes {
            spare.resize(at + bytes, 0);
        }
        let out = &mut spare[at..at + bytes];
        let found = found(store.read(&item.name, &item.form, &item.slab, out));
        if found == Found::Yes {
            match parts.last_mut() {
                Some(Part::Copied(range)) => range.end += bytes,
                _ => parts.push(Part::Copied(at..at + bytes)),
            }
            at += bytes;
        }
        pieces.push(found);
    }
    let control = encode(&ReadReply { pieces })?;
    if !parts.iter().any(|part| matches!(part, Part::File(..))) {
        return reply.send(&control, &[IoSlice::new(&spare[..at])]);
    }
    let total = parts.iter().map(Part::len).sum();
    let mut outgoing = reply.begin(&control, total)?;
    parts.iter().try_for_each(|part| match part {
        Part::Copied(range) => outgoing.give(&spare[range.clone()]),
        Part::File(file, at, len) => outgoing.give_file(&file.0, *at, *len),
    })
}

/// A part of a reply.
enum Part {
    /// These bytes of the connection's buffer.
    Copied(Range<usize>),
    /// So many bytes from there in a file, which stays although the chunk may be deleted meanwhile.
    File(Arc<Opened>, u64, u64),
}

/// A chunk's file, open once more for a reply. Of all that this process may open these take a small share, so that peers
/// that do not take their replies keep it from nothing else.
#[derive(Debug)]
struct Opened(File);

static OPENED: AtomicU64 = AtomicU64::new(0);

impl Opened {
    /// Opens it, unless too many are.
    fn again(file: &File) -> Option<Arc<Opened>> {
        let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft / 16);
        if OPENED.fetch_add(1, Ordering::Relaxed) < most
            && let Ok(file) = file.try_clone()
        {
            return Some(Arc::new(Opened(file)));
        }
        OPENED.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        OPENED.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Part::Copied(range) => range.len() as u64,
            Part::File(_, _, len) => *len,
        }
    }
}

/// Sends an immutable chunk's cells from where they lie, if the store can show them.
fn read_one(
    store: &dyn ChunkStore,
    call: Call<'_>,
    item: &ReadItem,
    bytes: usize,
) -> WireResult<()> {
    let Call { spare, reply, .. } = call;
    let mut reply = Some(reply);
    let mut sent = Ok(());
    let yes = encode(&ReadReply {
        pieces: vec![Found::Yes],
    })?;
    if bytes >= LEND_FROM {
        // What is wrong with the chunk is found again below, and told.
        let _ = store.lend(&item.name, &item.form, &item.slab, &mut |part| {
            if let Some(reply) = reply.take() {
                sent = reply.send_file(&yes, part.file, part.at, part.len);
            }
        });
        if reply.is_none() {
            return sent;
        }
    }
    let shown = store.show(&item.name, &item.form, &item.slab, &mut |cells| {
        if let Some(reply) = reply.take() {
            sent = reply.send(&yes, &[IoSlice::new(cells)]);
        }
    });
    let Some(reply) = reply else { return sent };
    let result = match shown {
        Ok(_) => {
            if spare.len() < bytes {
                spare.resize(bytes, 0);
            }
            store.read(&item.name, &item.form, &item.slab, &mut spare[..bytes])
        }
        Err(e) => Err(e),
    };
    match found(result) {
        Found::Yes => reply.send(&yes, &[IoSlice::new(&spare[..bytes])]),
        other => reply.send(
            &encode(&ReadReply {
                pieces: vec![other],
            })?,
            &[],
        ),
    }
}

fn found(result: Result<()>) -> Found {
    match result {
        Ok(()) => Found::Yes,
        Err(StoreError::Missing(_)) => Found::No,
        Err(e) => Found::Failed(e),
    }
}

/// The bytes of each piece, all pieces checked.
fn sizes(items: &[ReadItem]) -> Result<Vec<u64>> {
    let mut total = 0u64;
    items
        .iter()
        .map(|item| {
            check::form(&item.name, &item.form)?;
            let bytes = check::slab(&item.name, &item.form, &item.slab)?;
            total = total.saturating_add(bytes);
            if total > MAX_PAYLOAD as u64 {
                return Err(StoreError::Invalid(format!(
                    "a read of more than {MAX_PAYLOAD} bytes in one message"
                )));
            }
            Ok(bytes)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_open_a_share_of_the_files_that_may_be_open() {
        let (may, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let file = tempfile::tempfile().unwrap();
        let all: Vec<_> = (0..may).map_while(|_| Opened::again(&file)).collect();
        assert!(
            !all.is_empty() && all.len() as u64 <= may / 16,
            "{}",
            all.len()
        );
        drop(all);
        assert!(Opened::again(&file).is_some());
    }
}
