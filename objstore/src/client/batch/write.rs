//! Writing a batch into grid chunks, in place.

use slabfs_model::SessionId;
use slabfs_model::batch::pack;
use smallvec::SmallVec;

use super::{BatchPart, BatchPiece, Item, Section, items, jobs};
use crate::batch::Patching;
use crate::client::Servers;
use crate::client::counters::touched;
use crate::client::fanout::{Failure, Message, Request, decode, encode, remote_messages};
use crate::client::write::failure;
use crate::store::ChunkStore;
use crate::wire::messages::{BySession, Outcome, kind};
use crate::wire::{Incoming, WireResult};

impl Servers {
    /// Writes what the batch names of the pieces, which are parts of grid chunks, out of the memory. Of two places of
    /// the buffer that go to the same byte the later one counts. On an error some pieces may be written, or parts of
    /// them.
    ///
    /// # Errors
    /// Which piece, and why.
    pub fn write_batch(
        &self,
        part: &BatchPart<'_>,
        pieces: &[BatchPiece<'_>],
        memory: &[u8],
    ) -> Result<(), Failure> {
        part.check_memory(memory.len()).map_err(|e| (0, e))?;
        let table = self.table();
        let flat = part.plan.flat();
        let items = items(part, pieces)?;
        let mut jobs = jobs(part, &flat, &items, |section| Write {
            section,
            memory,
            failed: None,
        });
        self.fan_out(&table, &mut jobs, false)?;
        let side = &self.counters.write;
        side.answered(remote_messages(&table, &jobs));
        let all = part.packed.end - part.packed.start;
        let each = all / (items.len() as u64).max(1);
        let mut rest = all - each * items.len() as u64;
        for item in &items {
            let bytes = each + std::mem::take(&mut rest);
            side.piece(bytes, touched(item.share.form, bytes));
        }
        Ok(())
    }
}

struct Write<'a> {
    section: Section<'a>,
    memory: &'a [u8],
    failed: Option<Failure>,
}

impl Write<'_> {
    /// Adds the bytes of an item, packed.
    fn gather(&self, item: &Item<'_>, out: &mut Vec<u8>) {
        let part = self.section.part;
        for one in item.share.parts(part.plan, &self.section.packed) {
            let run = one.run;
            let at = out.len();
            out.resize(at + one.bytes() as usize, 0);
            pack(
                self.memory,
                (run.memory - part.base) as usize,
                run.memory_stride as isize,
                run.bytes as usize,
                &mut out[at..],
            );
        }
    }
}

impl<'a> Message<'a> for Write<'a> {
    fn first(&self) -> usize {
        self.section.first()
    }

    fn bytes(&self) -> u64 {
        self.section.bytes()
    }

    fn request(&self, session: SessionId) -> WireResult<Request<'a>> {
        let mut made = Vec::new();
        for item in &self.section.items {
            self.gather(item, &mut made);
        }
        Ok(Request {
            kind: kind::WRITE_BATCH,
            control: encode(&BySession {
                session,
                items: self.section.asked(),
            })?,
            payload: SmallVec::new(),
            made,
        })
    }

    fn take(&mut self, control: &[u8], incoming: &mut Incoming<'_>) -> WireResult<()> {
        let outcome: Outcome = decode(control, incoming)?;
        let items = &self.section.items;
        self.failed = failure(outcome, incoming, items.len(), |i| items[i].number)?;
        Ok(())
    }

    fn verdict(&mut self) -> Result<(), Failure> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn local(&mut self, store: &dyn ChunkStore) -> Result<(), Failure> {
        let (plan, packed) = (self.section.part.plan, &self.section.packed);
        let mut own = Vec::new();
        for item in &self.section.items {
            own.clear();
            self.gather(item, &mut own);
            let parts = item.share.parts(plan, packed);
            let end = parts.map(|one| one.chunk_span().end).max().unwrap_or(0);
            let mut patching = Patching::new(item.share.cursor(plan, packed), &own);
            store
                .patch(item.share.name, item.share.form, end, &mut patching)
                .map_err(|e| (item.number, e))?;
        }
        Ok(())
    }
}
