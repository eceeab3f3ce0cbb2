//! Writing: pieces, and what batches select of grid chunks, in place. One message a server for all.

use std::io::IoSlice;

use slabfs_model::Hyperslab;
use slabfs_model::batch::pack;
use smallvec::SmallVec;

use super::batch::{Asked, BatchAsk, Item, Section, first, sections, shared, sort};
use super::blank::{self, Filling};
use super::{
    Servers, Table, Target, Verifiers, WriteKind, WritePiece,
    counters::touched,
    fanout::{
        Asker, Failure, MUCH, Message, Request, Sorter, decode, failure, remote_messages,
        verifiers, weight,
    },
    pieces::bytes,
};
use crate::{
    batch::Patching,
    cut::cut,
    error::{Result, StoreError},
    store::ChunkStore,
    wire::{
        Incoming, MAX_DATA, WireResult,
        messages::{BatchWrites, WriteItem, WriteOp, kind},
    },
};

impl Servers {
    /// Writes all pieces, those of one server in order; returns the servers' verifiers. On an error the later pieces of the
    /// same server are not written; those of other servers may be.
    pub fn write(&self, pieces: &[WritePiece<'_>]) -> Result<Verifiers> {
        self.write_batches(pieces, &[])
    }

    /// As [`Servers::write`] for complete immutable chunks, and then writes the bytes that batches select of their
    /// pieces, which are parts of grid chunks, from their memory, in order. If two places of a buffer map to the same
    /// byte, the later one wins. On an error some pieces, or parts of them, may be written.
    pub fn write_batches(
        &self,
        pieces: &[WritePiece<'_>],
        asks: &[BatchAsk<'_, &[u8]>],
    ) -> Result<Verifiers> {
        let mut total = 0u64;
        for piece in pieces {
            let given = bytes(piece.data);
            let wanted = match piece.kind {
                WriteKind::Put => piece.form.volume(),
                WriteKind::PutEncoded => Some(given),
                // A message with batches carries only complete chunks besides.
                _ if !asks.is_empty() => None,
                WriteKind::Append { .. } => Some(given),
                WriteKind::Write(slab) => Some(slab.volume()),
            };
            if wanted != Some(given) {
                return Err(StoreError::Invalid(format!(
                    "{}: {given} bytes for {wanted:?} cells",
                    piece.name
                )));
            }
            total += given;
        }
        let table = self.table();
        let side = &self.counters.write;
        let in_order = total <= MUCH || pieces.windows(2).all(|w| w[0].server == w[1].server);
        let local = match in_order && asks.is_empty() {
            true => all_local(&table, pieces)?,
            false => None,
        };
        let written = if let Some(verifiers) = local {
            verifiers
        } else {
            let mut all = Vec::with_capacity(asks.len());
            let until = self.until();
            for (number, ask) in asks.iter().enumerate() {
                let asked = Asked::new(number, ask, ask.memory.len(), until);
                all.push(asked.map_err(|(_, e)| e)?);
            }
            let memories: Vec<&[u8]> = asks.iter().map(|ask| ask.memory).collect();
            let fresh = || Write {
                parts: Vec::new(),
                sections: Vec::new(),
                memories: &memories,
                verifier: None,
            };
            let mut sorter = Sorter::new();
            sort_pieces(&table, pieces, &mut sorter, fresh)?;
            sort(sections(&all), &mut sorter, fresh, |write| {
                &mut write.sections
            });
            let mut jobs = sorter.jobs();
            self.fan_out(&table, &mut jobs, false).map_err(|(_, e)| {
                let batched = asks.iter().flat_map(|ask| &ask.pieces);
                let batched = batched.map(|piece| (piece.server, piece.name));
                let chunks = pieces.iter().map(|piece| (piece.server, piece.name));
                self.note_unanswered(&e, chunks.chain(batched));
                e
            })?;
            side.answered(remote_messages(&jobs));
            for asked in &all {
                for (item, bytes) in shared(asked.bytes(), asked.items.iter()) {
                    side.piece(bytes, touched(item.share.form, bytes));
                }
            }
            verifiers(&jobs)
        };
        for piece in pieces {
            let sent = bytes(piece.data);
            let touched_bytes = match piece.kind {
                WriteKind::Write(_) => touched(piece.form, sent),
                WriteKind::Put | WriteKind::PutEncoded | WriteKind::Append { .. } => sent,
            };
            side.piece(sent, touched_bytes);
        }
        Ok(written)
    }
}

/// Writes the pieces in order if all servers are in this process; else returns `None`.
fn all_local(table: &Table, pieces: &[WritePiece<'_>]) -> Result<Option<Verifiers>> {
    if !pieces
        .iter()
        .all(|p| matches!(table.get(&p.server), Some(Target::Local(_))))
    {
        return Ok(None);
    }
    let mut verifiers = Verifiers::new();
    for piece in pieces {
        if let Some(Target::Local(store)) = table.get(&piece.server) {
            local_write(store.as_ref(), piece)?;
            let one = (piece.server, store.verifier());
            if !verifiers.contains(&one) {
                verifiers.push(one);
            }
        }
    }
    Ok(Some(verifiers))
}

fn local_write(store: &dyn ChunkStore, piece: &WritePiece<'_>) -> Result<()> {
    match piece.kind {
        WriteKind::Put => store.put(piece.name, piece.form, piece.data),
        WriteKind::PutEncoded => store.put_encoded(piece.name, piece.form, piece.data),
        WriteKind::Append { at } => store.append(piece.name, piece.form, at, piece.data),
        WriteKind::Write(slab) => store.write(piece.name, piece.form, slab, piece.data),
    }
}

/// A piece, or a part of one that is too large for a message.
struct Part<'a> {
    number: usize,
    piece: &'a WritePiece<'a>,
    /// The offset in the piece's bytes.
    from: u64,
    bytes: u64,
    /// The cells, if they are not the piece's entire slab.
    slab: Option<Hyperslab>,
}

/// One message: pieces, and after them the bytes of batches.
struct Write<'a> {
    parts: Vec<Part<'a>>,
    sections: Vec<Section<'a>>,
    /// By the number of the batch.
    memories: &'a [&'a [u8]],
    /// Of the server that has performed it.
    verifier: Option<u64>,
}

/// Puts pieces into messages; those that are too large for one are cut.
fn sort_pieces<'a>(
    table: &Table,
    pieces: &'a [WritePiece<'a>],
    sorter: &mut Sorter<Write<'a>>,
    fresh: impl Fn() -> Write<'a>,
) -> Result<()> {
    let most = MAX_DATA as u64;
    for (number, piece) in pieces.iter().enumerate() {
        let all = bytes(piece.data);
        let mut put = |from, bytes, slab: Option<Hyperslab>| {
            let its = match (&slab, piece.kind) {
                (Some(slab), _) => Some(slab),
                (None, WriteKind::Write(slab)) => Some(slab),
                (None, _) => None,
            };
            let weight = weight(piece.name, Some(piece.form), its);
            let message = sorter.message(piece.server, bytes, weight, &fresh);
            message.parts.push(Part {
                number,
                piece,
                from,
                bytes,
                slab,
            });
        };
        if all <= most || matches!(table.get(&piece.server), Some(Target::Local(_))) {
            put(0, all, None);
            continue;
        }
        match piece.kind {
            WriteKind::Put | WriteKind::PutEncoded => {
                return Err(StoreError::Invalid(format!(
                    "{}: a chunk of {all} bytes does not fit one message of {most}; append to it in parts and seal it",
                    piece.name
                )));
            }
            WriteKind::Append { .. } => {
                let mut from = 0;
                while from < all {
                    let len = most.min(all - from);
                    put(from, len, None);
                    from += len;
                }
            }
            WriteKind::Write(slab) => {
                for part in cut(slab, most)? {
                    put(part.from, part.bytes, Some(part.slab));
                }
            }
        }
    }
    Ok(())
}

impl<'a> Part<'a> {
    fn op(&self) -> WriteOp<&Hyperslab> {
        match (self.piece.kind, &self.slab) {
            (WriteKind::Put, _) => WriteOp::Put,
            (WriteKind::PutEncoded, _) => WriteOp::PutEncoded,
            (WriteKind::Append { at }, _) => WriteOp::Append { at: at + self.from },
            (WriteKind::Write(_), Some(slab)) => WriteOp::Write(slab),
            (WriteKind::Write(slab), None) => WriteOp::Write(slab),
        }
    }

    /// Its bytes, as ranges of the caller's slices.
    fn data(&self, out: &mut SmallVec<[IoSlice<'a>; 8]>) {
        let (mut skip, mut left) = (self.from as usize, self.bytes as usize);
        let data: &'a [IoSlice<'a>] = self.piece.data;
        for slice in data {
            let slice: &'a [u8] = slice;
            let start = skip.min(slice.len());
            let len = left.min(slice.len() - start);
            skip -= start;
            left -= len;
            if len > 0 {
                out.push(IoSlice::new(&slice[start..start + len]));
            }
        }
    }
}

impl Write<'_> {
    /// Appends the bytes of an item, packed.
    fn gather(&self, section: &Section<'_>, item: &Item<'_>, out: &mut Vec<u8>) {
        let part = &section.asked.part;
        for one in item.share.parts(part.plan, &section.packed) {
            let run = one.run;
            let at = out.len();
            out.resize(at + one.bytes() as usize, 0);
            pack(
                self.memories[section.asked.number],
                (run.memory - part.base) as usize,
                run.memory_stride as isize,
                run.bytes as usize,
                &mut out[at..],
            );
        }
    }

    /// The caller's number of the piece, or of the batch, that an item of the message belongs to.
    fn number(&self, item: usize) -> usize {
        if let Some(part) = self.parts.get(item) {
            return part.number;
        }
        let mut behind = self.parts.len();
        for section in &self.sections {
            behind += section.items.len();
            if item < behind {
                return section.asked.number;
            }
        }
        first(&self.sections)
    }
}

impl<'a> Message<'a> for Write<'a> {
    fn first(&self) -> usize {
        self.number(0)
    }

    fn bytes(&self) -> u64 {
        let parts = self.parts.iter().map(|part| part.bytes);
        parts.chain(self.sections.iter().map(|s| s.bytes)).sum()
    }

    fn request(&self, asker: Asker) -> WireResult<Request<'a>> {
        let (mut payload, mut made) = (SmallVec::new(), Vec::new());
        let mut items = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let (name, form) = (part.piece.name, part.piece.form);
            items.push(WriteItem {
                name,
                form,
                op: part.op(),
                bytes: part.bytes,
            });
            part.data(&mut payload);
        }
        for section in &self.sections {
            for item in &section.items {
                self.gather(section, item, &mut made);
            }
        }
        let (kind, control) = match self.sections.is_empty() {
            true => (kind::WRITE, asker.encode(items)?),
            false => {
                let batches: Vec<_> = self.sections.iter().map(Section::request).collect();
                let puts = items;
                (
                    kind::WRITE_BATCH,
                    asker.encode(BatchWrites { puts, batches })?,
                )
            }
        };
        Ok(Request {
            kind,
            control,
            payload,
            made,
        })
    }

    fn fillings(&self) -> Vec<Filling<'a>> {
        let is_large = |part: &Part<'_>| {
            let (piece, is_put) = (part.piece, matches!(part.piece.kind, WriteKind::Put));
            is_put && part.bytes >= blank::FROM && piece.form.codec.is_none()
        };
        if !self.sections.is_empty() || !self.parts.iter().all(is_large) {
            return Vec::new();
        }
        let filling = |part: &Part<'a>| {
            let mut data = SmallVec::new();
            part.data(&mut data);
            let (name, form) = (part.piece.name, part.piece.form);
            Filling { name, form, data }
        };
        self.parts.iter().map(filling).collect()
    }

    fn take(
        &mut self,
        control: &[u8],
        incoming: &mut Incoming<'_>,
    ) -> WireResult<Result<(), Failure>> {
        let items = self.sections.iter().map(|section| section.items.len());
        let items = self.parts.len() + items.sum::<usize>();
        let done = failure(decode(control, incoming)?, incoming, items)?;
        self.verifier = done.as_ref().ok().copied();
        Ok(done.map(drop).map_err(|(item, e)| (self.number(item), e)))
    }

    fn filled(&mut self, verifier: u64) {
        self.verifier = Some(verifier);
    }

    fn verifier(&self) -> Option<u64> {
        self.verifier
    }

    fn local(&mut self, store: &dyn ChunkStore) -> Result<(), Failure> {
        self.verifier = Some(store.verifier());
        // Pieces for a local store are never cut.
        for part in &self.parts {
            local_write(store, part.piece).map_err(|e| (part.number, e))?;
        }
        let mut own = Vec::new();
        for section in &self.sections {
            let (plan, packed) = (section.asked.part.plan, &section.packed);
            for item in &section.items {
                own.clear();
                self.gather(section, item, &mut own);
                let parts = item.share.parts(plan, packed);
                let end = parts.map(|one| one.chunk_span().end).max().unwrap_or(0);
                let mut patching = Patching::new(item.share.cursor(plan, packed), &own, None);
                store
                    .patch(item.share.name, item.share.form, end, &mut patching)
                    .map_err(|e| (section.asked.number, e))?;
            }
        }
        Ok(())
    }
}
