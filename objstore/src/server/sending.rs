//! A reply whose bytes are read while it is sent: large reads of slabs, and all reads of batches.
//!
//! One part at a time is read into the connection's buffer, and sent while it is in the CPU cache. The length of the
//! reply is known before it begins; an error met meanwhile is reported by a trailer behind the bytes. Bytes after the
//! error are zeros, which maintains the framing of the connection.

use std::io::IoSlice;
use std::ops::Range;

use slabfs_model::Hyperslab;

use super::batch::{Asked, Counted};
use super::in_file::InFile;
use crate::batch::{PART, Window, with_span};
use crate::cut::cut;
use crate::error::{Result, StoreError};
use crate::fill::paint_slab;
use crate::name::ChunkName;
use crate::store::ChunkStore;
use crate::wire::messages::ReadItem;
use crate::wire::{Outgoing, Replier, TRAILER, WireResult, trailer};

/// The bytes of a slab that are read at a time, under the chunk's lock. Several compressed blocks (1 MiB at most each),
/// because a block across a cut is decompressed twice; not more, so that it stays in the cache.
const PART_OF_SLAB: u64 = 4 << 20;

/// What follows the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// A trailer.
    Plain,
    /// The number of the first piece that could not be read (u32), and a trailer.
    Numbered,
}

/// The reply.
pub(super) struct Sending<'a> {
    /// Until the first part is sent.
    reply: Option<Replier<'a>>,
    control: Vec<u8>,
    bytes: u64,
    ending: Ending,
    outgoing: Option<Outgoing<'a>>,
    spare: &'a mut Vec<u8>,
    /// Bytes of `spare` that are not sent yet.
    full: usize,
    /// The first piece that could not be read, and the error.
    failed: Option<(u32, StoreError)>,
    window: Window,
    scratch: Vec<u8>,
}

impl<'a> Sending<'a> {
    /// A reply of `bytes` bytes.
    pub(super) fn new(
        reply: Replier<'a>,
        control: Vec<u8>,
        bytes: u64,
        ending: Ending,
        spare: &'a mut Vec<u8>,
    ) -> Sending<'a> {
        Sending {
            reply: Some(reply),
            control,
            bytes,
            ending,
            outgoing: None,
            spare,
            full: 0,
            failed: None,
            window: Window::default(),
            scratch: Vec::new(),
        }
    }

    /// Reads the `bytes` of a slab, the piece of this number.
    pub(super) fn slab(
        &mut self,
        store: &dyn ChunkStore,
        item: &ReadItem,
        bytes: u64,
        number: u32,
    ) -> WireResult<()> {
        if bytes <= PART_OF_SLAB {
            return self.cells(store, item, &item.slab, bytes, number);
        }
        match cut(&item.slab, PART_OF_SLAB) {
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

    /// Packs what a batch selects of a part of a chunk.
    pub(super) fn share(
        &mut self,
        store: &dyn ChunkStore,
        asked: &Asked<'_>,
        counted: &Counted<'_>,
    ) -> WireResult<()> {
        let mut left = counted.bytes;
        let mut cursor = counted.share.cursor(&asked.plan, &asked.packed);
        while left > 0 && self.failed.is_none() {
            if self.full == PART {
                self.flush()?;
            }
            if !self.window.take(&mut cursor, PART - self.full) {
                self.failed = Some((0, StoreError::Protocol("a batch was miscounted".into())));
                break;
            }
            let room = self.room(self.window.bytes())?;
            left = left.saturating_sub(room.len() as u64);
            if let Err(e) = self.pack(store, asked, counted, room.clone()) {
                self.spare[room].fill(0);
                self.failed = Some((0, e));
            }
        }
        self.zeros(left)
    }

    fn pack(
        &mut self,
        store: &dyn ChunkStore,
        asked: &Asked<'_>,
        counted: &Counted<'_>,
        room: Range<usize>,
    ) -> Result<()> {
        asked.patience.check()?;
        let (window, out) = (&self.window, &mut self.spare[room]);
        let pack = &mut |bytes: &[u8]| window.pack(bytes, out);
        with_span(store, &counted.share, window, &mut self.scratch, pack)
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

    /// Sends a range of a chunk's file.
    pub(super) fn file(&mut self, in_file: &InFile) -> WireResult<()> {
        self.flush()?;
        match &mut self.outgoing {
            Some(outgoing) => in_file.send(outgoing),
            None => Ok(()),
        }
    }

    /// Sends what is in the buffer.
    fn flush(&mut self) -> WireResult<()> {
        if let Some(reply) = self.reply.take() {
            let number = match self.ending {
                Ending::Plain => 0,
                Ending::Numbered => size_of::<u32>(),
            };
            let total = self.bytes + (number + TRAILER) as u64;
            self.outgoing = Some(reply.begin(&self.control, total)?);
        }
        let full = std::mem::take(&mut self.full);
        match &mut self.outgoing {
            Some(outgoing) => outgoing.give(&self.spare[..full]),
            None => Ok(()),
        }
    }

    /// Sends the rest, and whether all could be read.
    pub(super) fn end(mut self) -> WireResult<()> {
        let number = self.failed.as_ref().map_or(0, |(number, _)| *number);
        let number = match self.ending {
            Ending::Plain => &[][..],
            Ending::Numbered => &number.to_le_bytes(),
        };
        let trailer = trailer(self.failed.as_ref().map(|(_, error)| error));
        if let Some(reply) = self.reply.take() {
            let full = &self.spare[..self.full];
            let payload = [full, number, &trailer].map(IoSlice::new);
            return reply.send(&self.control, &payload);
        }
        self.flush()?;
        match &mut self.outgoing {
            Some(outgoing) => {
                outgoing.give(number)?;
                outgoing.give(&trailer)
            }
            None => Ok(()),
        }
    }
}
