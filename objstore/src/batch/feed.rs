//! Unpacks packed bytes into the caller's buffer as they arrive. Long contiguous pieces are received directly into that
//! buffer, the others through a small buffer that fits the CPU cache.

use std::ops::Range;

use slabfs_model::batch::{Cursor, Plan, Steps};

use super::{Memory, Share};

/// The minimum length of a contiguous piece that is received directly into the caller's buffer. For shorter ones the
/// additional system calls cost more than a copy.
const STRAIGHT: u64 = 32 << 10;

/// The destinations of the packed bytes of several shares, in order.
#[derive(Debug)]
pub(crate) struct Feed<'a, S> {
    plan: &'a Plan,
    packed: Range<u64>,
    /// The shares that have not been started.
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

    /// Unpacks `bytes`; returns false if they are more than the shares have left.
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

    /// If the next bytes, at most `most`, are contiguous in memory and at least [`STRAIGHT`], takes them and returns
    /// their range in memory; otherwise takes nothing.
    pub(crate) fn straight(&mut self, most: u64) -> Option<Range<u64>> {
        if most < STRAIGHT {
            return None;
        }
        let part = self.take(most)?;
        let (run, len) = (part.run, part.bytes());
        let contiguous = run.count == 1 || run.memory_stride == run.bytes as i64;
        if contiguous && len >= STRAIGHT {
            return Some(run.memory..run.memory + len);
        }
        if let Some(cursor) = &mut self.cursor {
            cursor.put_back(part);
        }
        None
    }

    /// Whether the shares have no bytes left. If they have some, this takes one byte.
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
