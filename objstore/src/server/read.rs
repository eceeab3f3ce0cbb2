//! Answers READ requests: the bytes of pieces of chunks.
//!
//! Large pieces of immutable chunks are sent without a copy: a single piece from the store's mapping or file, several
//! pieces out of their files, whose duplicated descriptors stay open until the reply is sent. All other pieces are
//! copied into the connection's buffer. Up to [`COPIED`] bytes are read before the reply begins, so that missing chunks
//! and errors are reported ahead of the bytes. Beyond that, one part at a time is read and sent while it is in the CPU
//! cache; such a reply lists the chunks that exist ahead of the bytes, and reports an error behind them. Bytes after
//! the error are zeros, which maintains the framing of the connection.

use std::fs::File;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::resource::{Resource, getrlimit};

use slabfs_model::Hyperslab;

use super::check;
use super::handler::{decode, encode};
use crate::batch::{PART, is_there};
use crate::cut::cut;
use crate::error::{Result, StoreError};
use crate::fill::paint_slab;
use crate::name::ChunkName;
use crate::store::ChunkStore;
use crate::wire::messages::{Found, ReadItem, ReadReply};
use crate::wire::{Call, MAX_DATA, Outgoing, Replier, TRAILER, WireResult, trailer};

/// From this size on, a read of one immutable chunk is sent from the store's mapping; below, a copy is cheaper than
/// looking up the mapping.
const SHOW_FROM: u64 = 32 << 10;

/// From this size on, it is sent out of its file (`sendfile`), without a copy; below, the system calls cost more.
const SENDFILE_FROM: u64 = 128 << 10;

/// Up to this size, all copied pieces are read into the buffer before the reply begins.
const COPIED: u64 = 1 << 20;

/// The bytes of a piece that are read at a time, under the chunk's lock. Several compressed blocks (1 MiB at most
/// each), because a block across a cut is decompressed twice; not more, so that it stays in the cache.
const PART_OF_PIECE: u64 = 4 << 20;

/// Answers a READ: copies pieces into the connection's buffer; sends large ones of immutable chunks without a copy.
pub(super) fn read(store: &dyn ChunkStore, call: Call<'_>) -> WireResult<()> {
    let checked = decode::<Vec<ReadItem>>(call.control).and_then(|items| {
        let sizes = sizes(&items)?;
        Ok((items, sizes))
    });
    let (items, sizes) = match checked {
        Ok(checked) => checked,
        // The error of the first piece applies to all of them.
        Err(e) => {
            let control = encode(&ReadReply::before(vec![Found::Failed(e)]))?;
            return call.reply(&control, &[]);
        }
    };
    let Call { spare, reply, .. } = call;
    let mut reply = reply;
    if let ([item], &[bytes]) = (&items[..], &sizes[..])
        && bytes >= SHOW_FROM
        && matches!(item.name, ChunkName::Free(_))
    {
        match send_from_store(store, item, bytes, reply)? {
            Some(unsent) => reply = unsent,
            None => return Ok(()),
        }
    }
    let asked = Asked::new(store, &items, sizes, reply.sums());
    match asked.copied() > COPIED {
        true => send_as_read(store, &asked, spare, reply),
        false => read_and_send(store, &asked, spare, reply),
    }
}

/// The requested pieces.
struct Asked<'a> {
    items: &'a [ReadItem],
    /// Their bytes.
    sizes: Vec<u64>,
    /// File ranges of the pieces that are sent out of files; empty if there are none.
    in_file: Vec<Option<InFile>>,
}

/// A requested piece.
struct Piece<'a> {
    item: &'a ReadItem,
    bytes: u64,
    in_file: Option<&'a InFile>,
}

impl<'a> Asked<'a> {
    fn new(
        store: &dyn ChunkStore,
        items: &'a [ReadItem],
        sizes: Vec<u64>,
        summed: bool,
    ) -> Asked<'a> {
        let mut files = Files::default();
        let may_sendfile = |(item, bytes): (&ReadItem, &u64)| {
            matches!(item.name, ChunkName::Free(_)) && *bytes >= SENDFILE_FROM
        };
        let mut in_file = Vec::new();
        if items.iter().zip(&sizes).any(may_sendfile) {
            let each = items.iter().zip(&sizes);
            in_file.extend(each.map(|piece| {
                may_sendfile(piece)
                    .then(|| files.part(store, piece.0, summed))
                    .flatten()
            }));
        }
        Asked {
            items,
            sizes,
            in_file,
        }
    }

    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let each = self.items.iter().zip(&self.sizes).enumerate();
        each.map(|(at, (item, &bytes))| Piece {
            item,
            bytes,
            in_file: self.in_file.get(at).and_then(Option::as_ref),
        })
    }

    /// Bytes that are not sent out of files.
    fn copied(&self) -> u64 {
        let copied = self.pieces().filter(|piece| piece.in_file.is_none());
        copied.map(|piece| piece.bytes).sum()
    }
}

/// Reads all copied pieces, then sends the reply.
fn read_and_send(
    store: &dyn ChunkStore,
    asked: &Asked<'_>,
    spare: &mut Vec<u8>,
    reply: Replier<'_>,
) -> WireResult<()> {
    let mut at = 0;
    let mut pieces = Vec::with_capacity(asked.items.len());
    let mut parts: Vec<Part<'_>> = Vec::new();
    let room = asked.copied() as usize;
    if spare.len() < room {
        spare.resize(room, 0);
    }
    for Piece {
        item,
        bytes,
        in_file,
    } in asked.pieces()
    {
        if let Some(in_file) = in_file {
            parts.push(Part::File(in_file));
            pieces.push(Found::Yes);
            continue;
        }
        let bytes = bytes as usize;
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
    let control = encode(&ReadReply::before(pieces))?;
    if !parts.iter().any(|part| matches!(part, Part::File(..))) {
        return reply.send(&control, &[IoSlice::new(&spare[..at])]);
    }
    let total = parts.iter().map(Part::len).sum();
    let mut outgoing = reply.begin(&control, total)?;
    parts.iter().try_for_each(|part| match part {
        Part::Copied(range) => outgoing.give(&spare[range.clone()]),
        Part::File(in_file) => in_file.send(&mut outgoing),
    })
}

/// A part of a reply.
enum Part<'a> {
    /// A range of the connection's buffer.
    Copied(Range<usize>),
    File(&'a InFile),
}

impl Part<'_> {
    fn len(&self) -> u64 {
        match self {
            Part::Copied(range) => range.len() as u64,
            Part::File(in_file) => in_file.len,
        }
    }
}

/// Reads and sends the copied pieces part by part.
fn send_as_read(
    store: &dyn ChunkStore,
    asked: &Asked<'_>,
    spare: &mut Vec<u8>,
    reply: Replier<'_>,
) -> WireResult<()> {
    let mut pieces = Vec::with_capacity(asked.items.len());
    let mut total = (size_of::<u32>() + TRAILER) as u64;
    for Piece {
        item,
        bytes,
        in_file,
    } in asked.pieces()
    {
        let found = match in_file {
            Some(_) => Found::Yes,
            None => match is_there(store, &item.name, &item.form) {
                Ok(true) => Found::Yes,
                Ok(false) => Found::No,
                Err(e) => Found::Failed(e),
            },
        };
        if found == Found::Yes {
            total += bytes;
        }
        pieces.push(found);
    }
    let reading = ReadReply {
        pieces,
        status_follows: true,
    };
    let mut sending = Sending {
        outgoing: reply.begin(&encode(&reading)?, total)?,
        spare,
        full: 0,
        failed: None,
    };
    let found = reading.pieces.iter().map(|found| *found == Found::Yes);
    for (number, (piece, is_there)) in (0u32..).zip(asked.pieces().zip(found)) {
        match piece.in_file {
            Some(in_file) => sending.file(in_file)?,
            None if is_there => sending.piece(store, &piece, number)?,
            None => {}
        }
    }
    sending.end()
}

/// A reply that is read and sent part by part.
struct Sending<'a> {
    outgoing: Outgoing<'a>,
    spare: &'a mut Vec<u8>,
    /// Bytes of `spare` that are not sent yet.
    full: usize,
    /// The first piece that could not be read, and the error.
    failed: Option<(u32, StoreError)>,
}

impl Sending<'_> {
    /// Reads a piece; it is sent when the buffer is full.
    fn piece(&mut self, store: &dyn ChunkStore, piece: &Piece<'_>, number: u32) -> WireResult<()> {
        let Piece { item, bytes, .. } = *piece;
        if bytes <= PART_OF_PIECE {
            return self.cells(store, item, &item.slab, bytes, number);
        }
        match cut(&item.slab, PART_OF_PIECE) {
            Ok(parts) => parts
                .iter()
                .try_for_each(|part| self.cells(store, item, &part.slab, part.bytes, number)),
            Err(e) => {
                self.failed.get_or_insert((number, e));
                self.zeros(bytes)
            }
        }
    }

    fn cells(
        &mut self,
        store: &dyn ChunkStore,
        item: &ReadItem,
        slab: &Hyperslab,
        bytes: u64,
        number: u32,
    ) -> WireResult<()> {
        if self.failed.is_some() {
            return self.zeros(bytes);
        }
        let room = self.room(bytes as usize)?;
        let out = &mut self.spare[room];
        match store.read(&item.name, &item.form, slab, out) {
            Ok(()) => {}
            // Deleted since the reply began; a missing grid chunk reads as fill.
            Err(StoreError::Missing(ChunkName::Grid { .. })) => {
                paint_slab(&item.form, slab, out);
            }
            Err(e) => {
                out.fill(0);
                self.failed = Some((number, e));
            }
        }
        Ok(())
    }

    /// Reserves `bytes` more of the buffer.
    fn room(&mut self, bytes: usize) -> WireResult<Range<usize>> {
        if self.full + bytes > PART {
            self.flush()?;
        }
        let room = self.full..self.full + bytes;
        if self.spare.len() < room.end {
            self.spare.resize(room.end, 0);
        }
        self.full = room.end;
        Ok(room)
    }

    fn zeros(&mut self, mut bytes: u64) -> WireResult<()> {
        while bytes > 0 {
            let some = bytes.min(PART as u64);
            let room = self.room(some as usize)?;
            self.spare[room].fill(0);
            bytes -= some;
        }
        Ok(())
    }

    fn file(&mut self, in_file: &InFile) -> WireResult<()> {
        self.flush()?;
        in_file.send(&mut self.outgoing)
    }

    fn flush(&mut self) -> WireResult<()> {
        let full = std::mem::take(&mut self.full);
        self.outgoing.give(&self.spare[..full])
    }

    fn end(mut self) -> WireResult<()> {
        self.flush()?;
        let number = self.failed.as_ref().map_or(0, |(number, _)| *number);
        self.outgoing.give(&number.to_le_bytes())?;
        let failed = self.failed.as_ref().map(|(_, error)| error);
        self.outgoing.give(&trailer(failed))
    }
}

/// A range of a chunk's file, readable even if the chunk is deleted meanwhile.
struct InFile {
    file: Arc<Opened>,
    at: u64,
    len: u64,
    /// Its checksum, if the reply carries one.
    sum: u32,
}

impl InFile {
    fn send(&self, outgoing: &mut Outgoing<'_>) -> WireResult<()> {
        outgoing.give_file(&self.file.0, self.at, self.len, self.sum)
    }
}

/// The chunk files that a reply is sent out of.
#[derive(Default)]
struct Files<'a> {
    /// The last one, and its chunk.
    opened: Option<(&'a ChunkName, Arc<Opened>)>,
}

impl<'a> Files<'a> {
    /// The file range of a piece, if it can be sent from there. Errors are ignored here: the read that follows finds
    /// and reports them.
    fn part(&mut self, store: &dyn ChunkStore, item: &'a ReadItem, summed: bool) -> Option<InFile> {
        let known = self.opened.take().filter(|(name, _)| **name == item.name);
        let mut file = known.map(|(_, file)| file);
        let mut in_file = None;
        let _ = store.file_part(&item.name, &item.form, &item.slab, &mut |part| {
            let Ok(sum) = (if summed { (part.sum)() } else { Ok(0) }) else {
                return;
            };
            file = file.take().or_else(|| Opened::again(part.file));
            in_file = file.clone().map(|file| InFile {
                file,
                at: part.at,
                len: part.len,
                sum,
            });
        });
        self.opened = file.map(|file| (&item.name, file));
        in_file
    }
}

/// A duplicated descriptor of a chunk's file, open until its reply is sent. These may take only a small share of
/// `RLIMIT_NOFILE`, so that peers that do not read their replies cannot exhaust the process's descriptors.
#[derive(Debug)]
struct Opened(File);

static OPENED: AtomicU64 = AtomicU64::new(0);

impl Opened {
    /// Duplicates the descriptor, unless too many are open.
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

/// Sends an immutable chunk's cells from the store's file or mapping, if possible; otherwise returns the reply unsent.
/// Errors are ignored here: the read that follows finds and reports them.
fn send_from_store<'a>(
    store: &dyn ChunkStore,
    item: &ReadItem,
    bytes: u64,
    reply: Replier<'a>,
) -> WireResult<Option<Replier<'a>>> {
    let mut reply = Some(reply);
    let mut sent = Ok(());
    let yes = encode(&ReadReply::before(vec![Found::Yes]))?;
    if bytes >= SENDFILE_FROM {
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

/// Checks all pieces and returns the bytes of each.
fn sizes(items: &[ReadItem]) -> Result<Vec<u64>> {
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
            Ok(bytes)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_open_only_a_share_of_the_descriptor_limit() {
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
