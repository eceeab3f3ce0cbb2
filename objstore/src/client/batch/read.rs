//! Reading batches.
//!
//! Servers answer concurrently, so bytes that overlay another server's are not put into the caller's buffer as they
//! arrive: they are *deferred* until all servers have answered. Several stages are requested together as long as at
//! most [`DEFER_MOST`] bytes are deferred. If one server has everything, nothing is deferred: its messages are taken
//! in order.

use std::io::IoSliceMut;

use super::{Asked, BatchAsk, Section, first, sections, shared, sort};
use crate::batch::{Feed, Memory, PART, SPAN, Share, Window, is_there, with_span};
use crate::client::counters::touched;
use crate::client::fanout::{
    Asker, Failure, Message, Request, Sorter, decode, encode, remote_messages,
};
use crate::client::{Servers, Table};
use crate::error::StoreError;
use crate::name::{ChunkForm, ChunkName};
use crate::store::ChunkSource;
use crate::wire::messages::{Answer, BatchFound, kind};
use crate::wire::{Incoming, TRAILER, WireResult, read_trailer};

/// The most bytes that are deferred, except those of a single stage.
const DEFER_MOST: u64 = if cfg!(test) { 64 << 10 } else { 256 << 20 };

impl Servers {
    /// Reads the bytes that batches, also of several objects, select of their pieces into their memory: one message a
    /// server for all of them. A chunk that does not exist is not an error.
    ///
    /// # Errors
    /// The failed batch and its error, of a server or of the request; the memory of all batches is then unspecified.
    pub fn read_batches(
        &self,
        asks: &mut [BatchAsk<'_, &mut [u8]>],
    ) -> Result<(), (usize, StoreError)> {
        let table = self.table();
        let mut all = Vec::with_capacity(asks.len());
        let until = self.until();
        for (number, ask) in asks.iter().enumerate() {
            all.push(Asked::new(number, ask, ask.memory.len(), until)?);
        }
        let memories: Vec<Memory<'_>> = asks
            .iter_mut()
            .map(|ask| Memory::new(ask.memory, ask.part.base))
            .collect();
        let mut found = Vec::new();
        let mut rest = sections(&all);
        while !rest.is_empty() {
            let (together, defer) = together(&rest);
            let later = rest.split_off(together);
            self.read_sections(&table, rest, defer, &memories, &mut found)?;
            rest = later;
        }
        drop(memories);
        for (number, piece, there) in found {
            asks[number].pieces[piece].found = there;
        }
        Ok(())
    }

    /// Reads sections, those of higher stages over lower ones. `defer`: bytes of the higher stages wait for all
    /// answers. Appends for each piece whether it was found.
    fn read_sections(
        &self,
        table: &Table,
        sections: Vec<Section<'_>>,
        defer: bool,
        memories: &[Memory<'_>],
        found: &mut Vec<(usize, usize, bool)>,
    ) -> Result<(), Failure> {
        let defer_from = match sections.first() {
            Some(first) if defer => first.stage + 1,
            _ => usize::MAX,
        };
        let mut sorter = Sorter::new();
        let fresh = || Read {
            sections: Vec::new(),
            memories,
            defer_from,
            deferred: Vec::new(),
            found: Vec::new(),
        };
        sort(sections, &mut sorter, fresh, |read| &mut read.sections);
        let mut jobs = sorter.jobs();
        self.fan_out(table, &mut jobs, false)?;
        let side = &self.counters.read;
        side.answered(remote_messages(&jobs));
        let mut deferred: Vec<(&Read<'_, '_>, usize, &[u8])> = Vec::new();
        for message in jobs.iter().flat_map(|job| &job.messages) {
            for (section, answer) in message.sections.iter().zip(&message.found) {
                let number = section.asked.number;
                for (item, there) in section.items.iter().zip(&answer.found) {
                    found.push((number, item.number, *there));
                }
                let there = section.items.iter().zip(&answer.found);
                let there = there.filter(|(_, found)| **found).map(|(item, _)| item);
                for (item, bytes) in shared(answer.bytes, there) {
                    side.piece(bytes, touched(item.share.form, bytes));
                }
            }
            let bytes = message
                .deferred
                .iter()
                .map(|(at, bytes)| (message, *at, &bytes[..]));
            deferred.extend(bytes);
        }
        deferred.sort_by_key(|(message, at, _)| message.sections[*at].stage);
        for (message, at, bytes) in deferred {
            let (section, answer) = (&message.sections[at], &message.found[at]);
            let number = section.asked.number;
            let mut feed = section.feed(answer);
            if !feed.give(bytes, &memories[number]) || !feed.is_done() {
                let text = format!(
                    "data server {}: other bytes than a batch selects",
                    section.server
                );
                return Err((number, StoreError::Protocol(text)));
            }
        }
        Ok(())
    }
}

/// How many of these sections, which are sorted by stage, are requested together, and whether any of them are
/// deferred.
fn together(sections: &[Section<'_>]) -> (usize, bool) {
    let Some(first) = sections.first() else {
        return (0, false);
    };
    if sections.iter().all(|other| other.server == first.server) {
        return (sections.len(), false);
    }
    let mut deferred = 0u64;
    let mut until = 0;
    for stage in sections.chunk_by(|one, other| one.stage == other.stage) {
        if until > 0 {
            let bytes = stage.iter().map(|section| section.bytes);
            deferred = bytes.fold(deferred, u64::saturating_add);
            if deferred > DEFER_MOST {
                break;
            }
        }
        until += stage.len();
    }
    (until, deferred > 0)
}

struct Read<'a, 'm> {
    sections: Vec<Section<'a>>,
    /// By the number of the batch.
    memories: &'a [Memory<'m>],
    /// The bytes of sections of this stage and higher ones are deferred.
    defer_from: usize,
    /// Deferred packed bytes, with the index of their section; filled by the reply.
    deferred: Vec<(usize, Vec<u8>)>,
    /// One for each section; filled by the reply.
    found: Vec<BatchFound>,
}

impl<'a> Section<'a> {
    fn feed<'b>(&'b self, answer: &'b BatchFound) -> Feed<'b, impl Iterator<Item = &'b Share<'a>>> {
        let there = self.items.iter().zip(&answer.found);
        let there = there.filter(|(_, found)| **found);
        let shares = there.map(|(item, _)| &item.share);
        Feed::new(self.asked.part.plan, self.packed.clone(), shares)
    }
}

impl<'a> Message<'a> for Read<'a, '_> {
    fn first(&self) -> usize {
        first(&self.sections)
    }

    fn bytes(&self) -> u64 {
        self.sections.iter().map(|section| section.bytes).sum()
    }

    fn request(&self, _asker: Asker) -> WireResult<Request<'a>> {
        let requests: Vec<_> = self.sections.iter().map(Section::request).collect();
        Ok(Request::bare(kind::READ_BATCH, encode(&requests)?))
    }

    fn take(
        &mut self,
        control: &[u8],
        incoming: &mut Incoming<'_>,
    ) -> WireResult<Result<(), Failure>> {
        self.deferred.clear();
        match decode::<Answer<Vec<BatchFound>>>(control, incoming)? {
            Err(e) => return Ok(Err((self.first(), e))),
            Ok(found) => self.found = found,
        }
        let fits = |(section, answer): (&Section<'_>, &BatchFound)| {
            section.items.len() == answer.found.len()
        };
        if self.found.len() != self.sections.len()
            || !self.sections.iter().zip(&self.found).all(fits)
        {
            return Err(incoming.protocol("answers that do not match the request"));
        }
        let all = self
            .found
            .iter()
            .try_fold(TRAILER as u64, |all, answer| all.checked_add(answer.bytes));
        if all != Some(incoming.left() as u64) {
            return Err(incoming.protocol("batches without their trailer"));
        }
        let mut part = vec![0; (incoming.left() - TRAILER).min(PART)];
        for (at, (section, answer)) in self.sections.iter().zip(&self.found).enumerate() {
            if section.stage >= self.defer_from {
                let mut bytes = vec![0; answer.bytes as usize];
                incoming.read_vectored(&mut [IoSliceMut::new(&mut bytes)])?;
                self.deferred.push((at, bytes));
                continue;
            }
            let memory = &self.memories[section.asked.number];
            let mut feed = section.feed(answer);
            let mut left = answer.bytes as usize;
            while left > 0 {
                if let Some(place) = feed.straight(left as u64) {
                    left -= (place.end - place.start) as usize;
                    memory.receive(place, incoming)?;
                    continue;
                }
                let len = left.min(PART);
                incoming.read_vectored(&mut [IoSliceMut::new(&mut part[..len])])?;
                left -= len;
                if !feed.give(&part[..len], memory) {
                    return Err(incoming.protocol("more bytes than a batch selects"));
                }
            }
            if !feed.is_done() {
                return Err(incoming.protocol("fewer bytes than a batch selects"));
            }
        }
        let mut trailer = [0; TRAILER];
        incoming.read_vectored(&mut [IoSliceMut::new(&mut trailer)])?;
        match read_trailer(&trailer) {
            Some(None) => Ok(Ok(())),
            Some(Some(e)) => Ok(Err((self.first(), e))),
            None => Err(incoming.protocol("the end of a batch cannot be read")),
        }
    }

    fn chunks(&self) -> Vec<(&'a ChunkName, &'a ChunkForm)> {
        let items = self.sections.iter().flat_map(|section| &section.items);
        items
            .map(|item| (item.share.name, item.share.form))
            .collect()
    }

    fn read_from(&mut self, source: &(impl ChunkSource + ?Sized)) -> Result<(), Failure> {
        self.found.clear();
        self.deferred.clear();
        let mut scratch = Vec::new();
        for (at, section) in self.sections.iter().enumerate() {
            let number = section.asked.number;
            let mut answer = BatchFound {
                found: Vec::with_capacity(section.items.len()),
                bytes: 0,
            };
            for item in &section.items {
                let there = is_there(source, item.share.name, item.share.form);
                answer.found.push(there.map_err(|e| (number, e))?);
            }
            let defers = section.stage >= self.defer_from;
            let mut deferred = Vec::new();
            let mut bytes = 0;
            let mut window = Window::default();
            let memory = &self.memories[number];
            let items = section.items.iter().zip(&answer.found);
            for (item, _) in items.filter(|(_, found)| **found) {
                let mut cursor = item.share.cursor(section.asked.part.plan, &section.packed);
                while window.take(&mut cursor, SPAN as usize) {
                    let behind = bytes + window.bytes();
                    if defers {
                        deferred.resize(behind, 0);
                    }
                    let out = deferred.get_mut(bytes..).unwrap_or_default();
                    let place = &mut |span: &[u8]| match defers {
                        true => window.pack(span, out),
                        false => window.carry(span, memory),
                    };
                    let read = with_span(source, &item.share, &window, &mut scratch, place);
                    read.map_err(|e| (number, e))?;
                    bytes = behind;
                }
            }
            if defers {
                self.deferred.push((at, deferred));
            }
            answer.bytes = bytes as u64;
            self.found.push(answer);
        }
        Ok(())
    }
}
