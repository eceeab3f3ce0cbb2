//! Reading a batch.

use std::io::IoSliceMut;

use slabfs_model::SessionId;
use smallvec::SmallVec;

use super::{BatchPart, BatchPiece, Item, Section, items, jobs};
use crate::batch::{Feed, Memory, PART, SPAN, Share, TRAILER, Window, is_there, read_window, told};
use crate::client::Servers;
use crate::client::counters::touched;
use crate::client::fanout::{Failure, Message, Request, decode, encode, remote_messages};
use crate::store::ChunkStore;
use crate::wire::messages::{Answer, kind};
use crate::wire::{Incoming, WireResult};

impl Servers {
    /// Reads what the batch names of the pieces into the memory; pieces must not overlap. On an error the memory is
    /// unspecified. A chunk that does not exist is no error.
    ///
    /// # Errors
    /// Which piece, and why.
    pub fn read_batch(
        &self,
        part: &BatchPart<'_>,
        pieces: &mut [BatchPiece<'_>],
        memory: &mut [u8],
    ) -> Result<(), Failure> {
        part.check_memory(memory.len()).map_err(|e| (0, e))?;
        let table = self.table();
        let flat = part.plan.flat();
        let memory = Memory::new(memory, part.base);
        let items = items(part, pieces)?;
        let mut jobs = jobs(part, &flat, &items, |section| Read {
            section,
            memory: &memory,
            found: Vec::new(),
            bytes: 0,
            failed: None,
        });
        self.fan_out(&table, &mut jobs, false)?;
        let side = &self.counters.read;
        side.answered(remote_messages(&table, &jobs));
        for message in jobs.iter().flat_map(|job| &job.messages) {
            for (item, found) in message.section.items.iter().zip(&message.found) {
                pieces[item.number].found = *found;
            }
            for (item, bytes) in message.moved() {
                side.piece(bytes, touched(item.share.form, bytes));
            }
        }
        Ok(())
    }
}

struct Read<'a> {
    section: Section<'a>,
    memory: &'a Memory<'a>,
    /// Whether the chunks are there; as long as the items when it was answered.
    found: Vec<bool>,
    bytes: u64,
    failed: Option<Failure>,
}

impl<'a> Read<'a> {
    fn feed(&self) -> Feed<'_, impl Iterator<Item = &Share<'a>>> {
        let there = self.section.items.iter().zip(&self.found);
        let there = there.filter(|(_, found)| **found);
        let shares = there.map(|(item, _)| &item.share);
        Feed::new(self.section.part.plan, self.section.packed.clone(), shares)
    }

    /// The items whose chunks are there, and about how many bytes each had.
    fn moved(&self) -> impl Iterator<Item = (&Item<'a>, u64)> {
        let there = self.found.iter().filter(|found| **found).count() as u64;
        let each = self.bytes / there.max(1);
        let mut rest = self.bytes - each * there;
        let items = self.section.items.iter().zip(&self.found);
        items.filter(|(_, found)| **found).map(move |(item, _)| {
            let bytes = each + std::mem::take(&mut rest);
            (*item, bytes)
        })
    }
}

impl<'a> Message<'a> for Read<'a> {
    fn first(&self) -> usize {
        self.section.first()
    }

    fn bytes(&self) -> u64 {
        self.section.bytes()
    }

    fn request(&self, _session: SessionId) -> WireResult<Request<'a>> {
        Ok(Request {
            kind: kind::READ_BATCH,
            control: encode(&self.section.asked())?,
            payload: SmallVec::new(),
            made: Vec::new(),
        })
    }

    fn take(&mut self, control: &[u8], incoming: &mut Incoming<'_>) -> WireResult<()> {
        self.failed = None;
        match decode::<Answer<Vec<bool>>>(control, incoming)? {
            Err(e) => {
                self.failed = Some((self.first(), e));
                return Ok(());
            }
            Ok(found) if found.len() != self.section.items.len() => {
                let text = format!(
                    "{} answers to {} items",
                    found.len(),
                    self.section.items.len()
                );
                return Err(incoming.protocol(text));
            }
            Ok(found) => self.found = found,
        }
        let Some(mut left) = incoming.left().checked_sub(TRAILER) else {
            return Err(incoming.protocol("a batch without its end"));
        };
        self.bytes = left as u64;
        let mut part = vec![0; left.min(PART)];
        let mut feed = self.feed();
        while left > 0 {
            let len = left.min(PART);
            incoming.read_vectored(&mut [IoSliceMut::new(&mut part[..len])])?;
            left -= len;
            if !feed.give(&part[..len], self.memory) {
                return Err(incoming.protocol("more bytes than a batch names"));
            }
        }
        let is_done = feed.is_done();
        drop(feed);
        if !is_done {
            return Err(incoming.protocol("fewer bytes than a batch names"));
        }
        let mut trailer = [0; TRAILER];
        incoming.read_vectored(&mut [IoSliceMut::new(&mut trailer)])?;
        match told(&trailer) {
            Some(failed) => self.failed = failed.map(|e| (self.first(), e)),
            None => return Err(incoming.protocol("the end of a batch cannot be read")),
        }
        Ok(())
    }

    fn verdict(&mut self) -> Result<(), Failure> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn local(&mut self, store: &dyn ChunkStore) -> Result<(), Failure> {
        self.found.clear();
        for item in &self.section.items {
            let there = is_there(store, item.share.name, item.share.form);
            self.found.push(there.map_err(|e| (item.number, e))?);
        }
        let mut bytes = 0;
        let mut buffer = vec![0; PART + SPAN as usize];
        let (out, scratch) = buffer.split_at_mut(PART);
        let mut window = Window::default();
        let mut feed = self.feed();
        for (item, _) in self
            .section
            .items
            .iter()
            .zip(&self.found)
            .filter(|(_, found)| **found)
        {
            let mut cursor = item
                .share
                .cursor(self.section.part.plan, &self.section.packed);
            while window.take(&mut cursor, PART) {
                let out = &mut out[..window.bytes()];
                read_window(store, &item.share, &window, scratch, out)
                    .map_err(|e| (item.number, e))?;
                bytes += out.len() as u64;
                feed.give(out, self.memory);
            }
        }
        drop(feed);
        self.bytes = bytes;
        Ok(())
    }
}
