//! Taking packed bytes apart as they come, into the caller's buffer: what lies there in one piece is received where
//! it belongs, the rest through a buffer that stays in the cache.

use std::ops::Range;

use slabfs_model::batch::{Cursor, Plan, Steps};

use super::{Memory, Share};

/// Pieces of this length in the caller's buffer are received where they belong: shorter ones cost more calls than
/// their bytes are worth.
const STRAIGHT: u64 = 32 << 10;

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
        while !bytes.is_empty() {
            let Some(part) = self.take(bytes.len() as u64) else {
                return false;
            };
            let (packed, rest) = bytes.split_at(part.bytes() as usize);
            bytes = rest;
            let source = Steps {
                at: 0,
                stride: part.run.bytes as isize,
            };
            memory.put(packed, source, &part.run);
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
