//! Taking packed bytes apart as they come, into the caller's buffer: what lies there in one piece is received where
//! it belongs, the rest through a buffer that stays in the cache.

use std::ops::Range;

use parking_lot::Mutex;
use slabfs_model::batch::{Cursor, Plan, unpack};

use super::Share;
use crate::wire::{Incoming, WireResult};

/// Pieces of this length in the caller's buffer are received where they belong: shorter ones cost more calls than
/// their bytes are worth.
const STRAIGHT: u64 = 32 << 10;

/// The caller's buffer. Several servers' bytes come at the same time and lie anywhere in it; each [`PART`] of them
/// is taken apart at a stretch.
///
/// [`PART`]: super::PART
#[derive(Debug)]
pub(crate) struct Memory<'a> {
    bytes: Mutex<&'a mut [u8]>,
    /// Where it begins in the memory that the plan names.
    base: u64,
}

impl<'a> Memory<'a> {
    pub(crate) fn new(bytes: &'a mut [u8], base: u64) -> Memory<'a> {
        Memory {
            bytes: Mutex::new(bytes),
            base,
        }
    }

    /// Receives bytes where they belong. The buffer is held for as long as bytes that have come are copied, and
    /// not while others are waited for.
    pub(crate) fn receive(&self, place: Range<u64>, incoming: &mut Incoming<'_>) -> WireResult<()> {
        let mut at = (place.start - self.base) as usize;
        let end = (place.end - self.base) as usize;
        while at < end {
            let got = incoming.read_ready(&mut self.bytes.lock()[at..end])?;
            at += got;
            if got == 0 {
                incoming.wait()?;
            }
        }
        Ok(())
    }
}

/// Where the bytes of some shares go, one behind the other.
#[derive(Debug)]
pub(crate) struct Feed<'a, S> {
    plan: &'a Plan,
    packed: Range<u64>,
    /// Those that have not begun.
    shares: S,
    cursor: Option<Cursor<'a>>,
}

impl<'a, 'b: 'a, S: Iterator<Item = &'a Share<'b>>> Feed<'a, S> {
    pub(crate) fn new(plan: &'a Plan, packed: Range<u64>, shares: S) -> Feed<'a, S> {
        Feed {
            plan,
            packed,
            shares,
            cursor: None,
        }
    }

    /// Takes bytes apart; false if these are more than the shares have.
    pub(crate) fn give(&mut self, mut bytes: &[u8], memory: &Memory<'_>) -> bool {
        let mut held = memory.bytes.lock();
        while !bytes.is_empty() {
            let Some(part) = self.take(bytes.len() as u64) else {
                return false;
            };
            let (packed, rest) = bytes.split_at(part.bytes() as usize);
            bytes = rest;
            let run = part.run;
            unpack(
                packed,
                &mut held,
                (run.memory - memory.base) as usize,
                run.memory_stride as isize,
                run.bytes as usize,
            );
        }
        true
    }

    /// The place in memory of the next bytes, at most `most`, if they are many that lie there one behind the other:
    /// then they are taken.
    pub(crate) fn straight(&mut self, most: u64) -> Option<Range<u64>> {
        if most < STRAIGHT {
            return None;
        }
        let part = self.take(most)?;
        let (run, len) = (part.run, part.bytes());
        let together = run.count == 1 || run.memory_stride == run.bytes as i64;
        if together && len >= STRAIGHT {
            return Some(run.memory..run.memory + len);
        }
        if let Some(cursor) = &mut self.cursor {
            cursor.put_back(part);
        }
        None
    }

    /// Whether the shares have no more bytes.
    pub(crate) fn is_done(&mut self) -> bool {
        self.take(1).is_none()
    }

    fn take(&mut self, most: u64) -> Option<slabfs_model::batch::Part> {
        loop {
            if let Some(cursor) = &mut self.cursor
                && let Some(part) = cursor.take(most, u64::MAX, u64::MAX)
            {
                return Some(part);
            }
            self.cursor = Some(self.shares.next()?.cursor(self.plan, &self.packed));
        }
    }
}
