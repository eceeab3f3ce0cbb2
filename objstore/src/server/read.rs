//! Answers READ requests: the bytes of pieces of chunks.
//!
//! Large pieces of immutable chunks are sent without a copy: a single piece from the store's mapping or file, several
//! pieces out of their files, whose duplicated descriptors stay open until the reply is sent. All other pieces are
//! copied into the connection's buffer. Up to [`COPIED`] bytes are read before the reply begins, so that missing chunks
//! and errors are reported ahead of the bytes. Beyond that, they are sent while they are read (`sending`), as those of
//! batches are.

use std::io::IoSlice;

use super::check;
use super::handler::{decode, encode};
use super::in_file::{Files, InFile};
use super::sending::{Ending, Sending};
use crate::batch::is_there;
use crate::error::{Result, StoreError};
use crate::name::ChunkName;
use crate::store::ChunkStore;
use crate::wire::messages::{Found, ReadItem, ReadReply};
use crate::wire::{Call, MAX_DATA, Replier, WireResult};

/// From this size on, a read of one immutable chunk is sent from the store's mapping; below, a copy is cheaper than
/// looking up the mapping.
const SHOW_FROM: u64 = 32 << 10;

/// From this size on, it is sent out of its file (`sendfile`), without a copy; below, the system calls cost more.
const SENDFILE_FROM: u64 = 128 << 10;

/// Up to this size, all copied pieces are read into the buffer before the reply begins.
const COPIED: u64 = 1 << 20;

/// Answers a READ: copies pieces into the connection's buffer; sends large ones of immutable chunks without a copy.
pub(super) fn read(store: &dyn ChunkStore, call: Call<'_>) -> WireResult<()> {
    let Call {
        control,
        spare,
        mut reply,
        ..
    } = call;
    let items = decode::<Vec<ReadItem>>(control);
    let checked = items.as_ref().map_err(Clone::clone);
    let mut pieces = match checked.and_then(|items| check_all(items)) {
        Ok(pieces) => pieces,
        // The error of the first piece applies to all of them.
        Err(e) => {
            let control = encode(&ReadReply::before(vec![Found::Failed(e)]))?;
            return reply.send(&control, &[]);
        }
    };
    if let [piece] = &pieces[..]
        && piece.bytes >= SHOW_FROM
        && matches!(piece.item.name, ChunkName::Free(_))
    {
        match send_from_store(store, piece, reply)? {
            Some(unsent) => reply = unsent,
            None => return Ok(()),
        }
    }
    let mut files = Files::default();
    for piece in &mut pieces {
        if matches!(piece.item.name, ChunkName::Free(_)) && piece.bytes >= SENDFILE_FROM {
            piece.in_file = files.part(store, piece.item, reply.sums());
        }
    }
    let copied = pieces.iter().filter(|piece| piece.in_file.is_none());
    match copied.map(|piece| piece.bytes).sum::<u64>() {
        copied if copied > COPIED => send_as_read(store, &pieces, spare, reply),
        copied => read_and_send(store, &pieces, copied as usize, spare, reply),
    }
}

/// A requested piece.
struct Piece<'a> {
    item: &'a ReadItem,
    bytes: u64,
    /// The range of a file that it is sent out of.
    in_file: Option<InFile>,
}

/// Reads all copied pieces, `room` bytes in all, then sends the reply.
fn read_and_send(
    store: &dyn ChunkStore,
    pieces: &[Piece<'_>],
    room: usize,
    spare: &mut Vec<u8>,
    reply: Replier<'_>,
) -> WireResult<()> {
    if spare.len() < room {
        spare.resize(room, 0);
    }
    let mut full = 0;
    let mut read = |piece: &Piece<'_>| {
        if piece.in_file.is_some() {
            return Found::Yes;
        }
        let ReadItem { name, form, slab } = piece.item;
        let end = full + piece.bytes as usize;
        let found = found(store.read(name, form, slab, &mut spare[full..end]));
        if found == Found::Yes {
            full = end;
        }
        found
    };
    let answer = ReadReply::before(pieces.iter().map(&mut read).collect());
    let control = encode(&answer)?;
    let files = pieces.iter().filter_map(|piece| piece.in_file.as_ref());
    let in_files: u64 = files.map(|in_file| in_file.len).sum();
    if in_files == 0 {
        return reply.send(&control, &[IoSlice::new(&spare[..full])]);
    }
    let mut outgoing = reply.begin(&control, full as u64 + in_files)?;
    let (mut from, mut to) = (0, 0);
    for (piece, found) in pieces.iter().zip(&answer.pieces) {
        let Some(in_file) = &piece.in_file else {
            to += match found {
                Found::Yes => piece.bytes as usize,
                Found::No | Found::Failed(_) => 0,
            };
            continue;
        };
        outgoing.give(&spare[from..to])?;
        from = to;
        in_file.send(&mut outgoing)?;
    }
    outgoing.give(&spare[from..to])
}

/// Reads and sends the copied pieces part by part.
fn send_as_read(
    store: &dyn ChunkStore,
    pieces: &[Piece<'_>],
    spare: &mut Vec<u8>,
    reply: Replier<'_>,
) -> WireResult<()> {
    let look = |piece: &Piece<'_>| match &piece.in_file {
        Some(_) => Found::Yes,
        None => match is_there(store, &piece.item.name, &piece.item.form) {
            Ok(true) => Found::Yes,
            Ok(false) => Found::No,
            Err(e) => Found::Failed(e),
        },
    };
    let reading = ReadReply {
        pieces: pieces.iter().map(look).collect(),
        status_follows: true,
    };
    let there = || {
        let all = (0u32..).zip(pieces).zip(&reading.pieces);
        all.filter_map(|(piece, found)| (*found == Found::Yes).then_some(piece))
    };
    let bytes: u64 = there().map(|(_, piece)| piece.bytes).sum();
    let mut sending = Sending::new(reply, encode(&reading)?, bytes, Ending::Numbered, spare);
    for (number, piece) in there() {
        match &piece.in_file {
            Some(in_file) => sending.file(in_file)?,
            None => sending.slab(store, piece.item, piece.bytes, number)?,
        }
    }
    sending.end()
}

/// Sends an immutable chunk's cells from the store's file or mapping, if possible; otherwise returns the reply unsent.
/// Errors are ignored here: the read that follows finds and reports them.
fn send_from_store<'a>(
    store: &dyn ChunkStore,
    piece: &Piece<'_>,
    reply: Replier<'a>,
) -> WireResult<Option<Replier<'a>>> {
    let item = piece.item;
    let mut reply = Some(reply);
    let mut sent = Ok(());
    let yes = encode(&ReadReply::before(vec![Found::Yes]))?;
    if piece.bytes >= SENDFILE_FROM {
        let _ = store.file_part(&item.name, &item.form, &item.slab, &mut |part| {
            // A checksum error is found again and reported by the read that follows.
            let summed = reply.as_ref().is_some_and(Replier::sums);
            let sum = if summed { (part.sum)() } else { Ok(0) };
            if let (Ok(sum), Some(reply)) = (sum, reply.take_if(|_| true)) {
                sent = reply.send_file(&yes, part.file, part.at, part.len, sum);
            }
        });
    }
    if reply.is_some() {
        let _ = store.show(&item.name, &item.form, &item.slab, &mut |cells| {
            if let Some(reply) = reply.take() {
                sent = reply.send(&yes, &[IoSlice::new(cells)]);
            }
        });
    }
    sent.map(|()| reply)
}

fn found(result: Result<()>) -> Found {
    match result {
        Ok(()) => Found::Yes,
        Err(StoreError::Missing(_)) => Found::No,
        Err(e) => Found::Failed(e),
    }
}

/// Checks and counts all pieces.
fn check_all(items: &[ReadItem]) -> Result<Vec<Piece<'_>>> {
    let mut total = 0u64;
    items
        .iter()
        .map(|item| {
            check::form(&item.name, &item.form)?;
            let bytes = check::slab(&item.name, &item.form, &item.slab)?;
            total = total.saturating_add(bytes);
            if total > MAX_DATA as u64 {
                return Err(StoreError::Invalid(format!(
                    "a read of more than {MAX_DATA} bytes in one message"
                )));
            }
            Ok(Piece {
                item,
                bytes,
                in_file: None,
            })
        })
        .collect()
}
