//! Writing batches into grid chunks, in place, and new complete immutable chunks in the same messages.

use slabfs_model::batch::pack;
use smallvec::SmallVec;

use super::{Asked, BatchAsk, BatchPart, BatchPiece, Item, Section, first, sections, sort};
use crate::batch::Patching;
use crate::client::counters::touched;
use crate::client::fanout::{
    Asker, Failure, Message, Request, Sorter, decode, encode, remote_messages, weight,
};
use crate::client::pieces::bytes;
use crate::client::write::failure;
use crate::client::{Servers, WriteKind, WritePiece};
use crate::error::StoreError;
use crate::store::ChunkStore;
use crate::wire::messages::{BatchWrites, BySession, Outcome, WriteItem, WriteOp, kind};
use crate::wire::{Incoming, MAX_DATA, WireResult};

impl Servers {
    /// Writes the bytes that the batch selects of the pieces, which are parts of grid chunks, from the memory. If two
    /// places of the buffer map to the same byte, the later one wins. On an error some pieces, or parts of them, may
    /// be written.
    ///
    /// # Errors
    /// Of a server or of the request.
    pub fn write_batch<'a>(
        &self,
        part: &BatchPart<'a>,
        pieces: Vec<BatchPiece<'a>>,
        memory: &[u8],
    ) -> Result<(), StoreError> {
        let ask = BatchAsk {
            part: part.clone(),
            pieces,
            memory,
        };
        self.write_batches(&[], &[ask])
    }

    /// As [`Servers::write_batch`] for several batches, in order, and for complete immutable chunks: one message a
    /// server for all.
    ///
    /// # Errors
    /// Of a server; `Invalid` for a put that is not a complete chunk or is larger than a message.
    pub fn write_batches(
        &self,
        puts: &[WritePiece<'_>],
        asks: &[BatchAsk<'_, &[u8]>],
    ) -> Result<(), StoreError> {
        let table = self.table();
        let mut all = Vec::with_capacity(asks.len());
        for (number, ask) in asks.iter().enumerate() {
            all.push(Asked::new(number, ask, ask.memory.len()).map_err(|(_, e)| e)?);
        }
        let memories: Vec<&[u8]> = asks.iter().map(|ask| ask.memory).collect();
        let fresh = || Write {
            puts: Vec::new(),
            sections: Vec::new(),
            memories: &memories,
            failed: None,
        };
        let mut sorter = Sorter::new();
        for put in puts {
            let given = bytes(put.data);
            let is_chunk = matches!(put.kind, WriteKind::Put) && put.form.volume() == Some(given);
            if !is_chunk || given > MAX_DATA as u64 {
                let text = format!("{}: {given} bytes are not a complete chunk", put.name);
                return Err(StoreError::Invalid(text));
            }
            let weight = weight(put.name, Some(put.form), None);
            sorter
                .message(put.server, given, weight, fresh)
                .puts
                .push(put);
        }
        sort(sections(&all), &mut sorter, fresh, |write| {
            &mut write.sections
        });
        let mut jobs = sorter.jobs();
        self.fan_out(&table, &mut jobs, false).map_err(|(_, e)| e)?;
        let side = &self.counters.write;
        side.answered(remote_messages(&jobs));
        for put in puts {
            let sent = bytes(put.data);
            side.piece(sent, sent);
        }
        for asked in &all {
            let bytes = asked.bytes();
            let each = bytes / (asked.items.len() as u64).max(1);
            let mut rest = bytes - each * asked.items.len() as u64;
            for item in &asked.items {
                let bytes = each + std::mem::take(&mut rest);
                side.piece(bytes, touched(item.share.form, bytes));
            }
        }
        Ok(())
    }
}

struct Write<'a> {
    puts: Vec<&'a WritePiece<'a>>,
    sections: Vec<Section<'a>>,
    /// By the number of the batch.
    memories: &'a [&'a [u8]],
    failed: Option<Failure>,
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

    /// The index of the batch that an item of the message belongs to. A put has none and is reported as the first.
    fn number(&self, item: usize) -> usize {
        let mut behind = self.puts.len();
        for section in &self.sections {
            behind += section.items.len();
            if item < behind {
                return section.asked.number;
            }
        }
        self.first()
    }
}

impl<'a> Message<'a> for Write<'a> {
    fn first(&self) -> usize {
        first(&self.sections)
    }

    fn bytes(&self) -> u64 {
        let puts = self.puts.iter().map(|put| bytes(put.data));
        let sections = self.sections.iter().map(|section| section.bytes);
        puts.chain(sections).sum()
    }

    fn request(&self, asker: Asker) -> WireResult<Request<'a>> {
        let mut made = Vec::new();
        for section in &self.sections {
            for item in &section.items {
                self.gather(section, item, &mut made);
            }
        }
        let mut payload = SmallVec::new();
        let mut puts = Vec::with_capacity(self.puts.len());
        for put in &self.puts {
            payload.extend(put.data.iter().copied());
            puts.push(WriteItem {
                name: put.name,
                form: put.form,
                op: WriteOp::<&slabfs_model::Hyperslab>::Put,
                bytes: bytes(put.data),
            });
        }
        Ok(Request {
            kind: kind::WRITE_BATCH,
            control: encode(&BySession {
                session: asker.session,
                epoch: asker.epoch,
                items: BatchWrites {
                    puts,
                    batches: self
                        .sections
                        .iter()
                        .map(Section::request)
                        .collect::<Vec<_>>(),
                },
            })?,
            payload,
            made,
        })
    }

    fn take(&mut self, control: &[u8], incoming: &mut Incoming<'_>) -> WireResult<()> {
        let outcome: Outcome = decode(control, incoming)?;
        let items = self.sections.iter().map(|section| section.items.len());
        let items = self.puts.len() + items.sum::<usize>();
        self.failed = failure(outcome, incoming, items, |i| self.number(i))?;
        Ok(())
    }

    fn verdict(&mut self) -> Result<(), Failure> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn local(&mut self, store: &dyn ChunkStore) -> Result<(), Failure> {
        for put in &self.puts {
            store
                .put(put.name, put.form, put.data)
                .map_err(|e| (self.first(), e))?;
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
