//! Writing pieces.

use std::io::IoSlice;

use slabfs_model::Hyperslab;
use smallvec::SmallVec;

use super::blank::{self, Filling};
use super::{
    Servers, Table, Target, WriteKind, WritePiece,
    counters::touched,
    fanout::{
        Asker, Failure, Job, MUCH, Message, Request, Sorter, decode, encode, remote_messages,
        weight,
    },
    pieces::bytes,
};
use crate::{
    cut::cut,
    error::{Result, StoreError},
    store::ChunkStore,
    wire::{
        Incoming, MAX_DATA, WireResult,
        messages::{BySession, Outcome, WriteItem, WriteOp, kind},
    },
};

impl Servers {
    /// Writes all pieces, those of one server in order. On an error the later pieces of the same server are not
    /// written; those of other servers may be.
    pub fn write(&self, pieces: &[WritePiece<'_>]) -> Result<()> {
        let mut total = 0u64;
        for piece in pieces {
            let given = bytes(piece.data);
            let wanted = match piece.kind {
                WriteKind::Put => piece.form.volume(),
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
        let in_order = total <= MUCH || pieces.windows(2).all(|w| w[0].server == w[1].server);
        if !(in_order && all_local(&table, pieces)?) {
            let mut jobs = sort(&table, pieces)?;
            self.fan_out(&table, &mut jobs, false).map_err(|(_, e)| e)?;
            let messages = remote_messages(&jobs);
            self.counters.write.answered(messages);
        }
        for piece in pieces {
            let sent = bytes(piece.data);
            let touched_bytes = match piece.kind {
                WriteKind::Write(_) => touched(piece.form, sent),
                WriteKind::Put | WriteKind::Append { .. } => sent,
            };
            self.counters.write.piece(sent, touched_bytes);
        }
        Ok(())
    }
}

/// Writes the pieces in order if all servers are in this process; else returns `false`.
fn all_local(table: &Table, pieces: &[WritePiece<'_>]) -> Result<bool> {
    if !pieces
        .iter()
        .all(|p| matches!(table.get(&p.server), Some(Target::Local(_))))
    {
        return Ok(false);
    }
    for piece in pieces {
        if let Some(Target::Local(store)) = table.get(&piece.server) {
            local_write(store.as_ref(), piece)?;
        }
    }
    Ok(true)
}

fn local_write(store: &dyn ChunkStore, piece: &WritePiece<'_>) -> Result<()> {
    match piece.kind {
        WriteKind::Put => store.put(piece.name, piece.form, piece.data),
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

#[derive(Default)]
struct Write<'a> {
    parts: Vec<Part<'a>>,
    failed: Option<Failure>,
}

fn sort<'a>(table: &Table, pieces: &'a [WritePiece<'a>]) -> Result<Vec<Job<Write<'a>>>> {
    let mut sorter = Sorter::<Write<'a>>::new();
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
            let message = sorter.message(piece.server, bytes, weight, Write::default);
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
            WriteKind::Put => {
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
    Ok(sorter.jobs())
}

impl<'a> Part<'a> {
    fn op(&self) -> WriteOp<&Hyperslab> {
        match (self.piece.kind, &self.slab) {
            (WriteKind::Put, _) => WriteOp::Put,
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

impl<'a> Message<'a> for Write<'a> {
    fn first(&self) -> usize {
        self.parts.first().map_or(0, |p| p.number)
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.bytes).sum()
    }

    fn request(&self, asker: Asker) -> WireResult<Request<'a>> {
        let mut payload = SmallVec::new();
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
        Ok(Request {
            kind: kind::WRITE,
            control: encode(&BySession {
                session: asker.session,
                epoch: asker.epoch,
                items,
            })?,
            payload,
            made: Vec::new(),
        })
    }

    fn fillings(&self) -> Vec<Filling<'a>> {
        let is_large = |part: &Part<'_>| {
            let (piece, is_put) = (part.piece, matches!(part.piece.kind, WriteKind::Put));
            is_put && part.bytes >= blank::FROM && piece.form.codec.is_none()
        };
        if !self.parts.iter().all(is_large) {
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

    fn take(&mut self, control: &[u8], incoming: &mut Incoming<'_>) -> WireResult<()> {
        let outcome: Outcome = decode(control, incoming)?;
        self.failed = failure(outcome, incoming, self.parts.len(), |i| {
            self.parts[i].number
        })?;
        Ok(())
    }

    fn verdict(&mut self) -> Result<(), Failure> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn local(&mut self, store: &dyn ChunkStore) -> Result<(), Failure> {
        // Pieces for a local store are never cut.
        self.parts
            .iter()
            .try_for_each(|p| local_write(store, p.piece).map_err(|e| (p.number, e)))
    }
}

/// The failed piece of the caller according to an outcome.
pub(super) fn failure(
    outcome: Outcome,
    incoming: &Incoming<'_>,
    count: usize,
    number: impl FnOnce(usize) -> usize,
) -> WireResult<Option<Failure>> {
    match outcome.failed {
        None if outcome.done == count as u64 => Ok(None),
        None => Err(incoming.protocol(format!(
            "{} of {count} items done, and no error",
            outcome.done
        ))),
        Some(e) => Ok(Some((
            number((outcome.done as usize).min(count.saturating_sub(1))),
            e,
        ))),
    }
}
