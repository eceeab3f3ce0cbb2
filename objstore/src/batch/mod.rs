//! What of a batch lies in the parts of chunks that a message names: checked, counted, packed and taken apart.
//!
//! Client and server make the same [`Share`] from a message and go through it in the same order, so that a message
//! carries no list of pieces. Bytes move in [`PART`]s that stay in the cache: `window` packs pieces out of a
//! chunk, `patching` puts them into one, `feed` takes them apart into the caller's buffer, which is `memory`. Where chunk
//! and buffer are in one process, `window` copies from one to the other.
//!
//! Deliberately elsewhere: the order itself (`model::batch`), messages (`wire`), sockets (`server`, `client`).

mod feed;
mod memory;
mod patching;
mod window;

use std::ops::Range;
use std::time::Instant;

use slabfs_model::batch::{Cursor, Parts, Plan, Rows};

pub(crate) use feed::Feed;
pub(crate) use memory::Memory;
pub(crate) use patching::Patching;
pub(crate) use window::{Window, carry_window, is_there, read_window};

use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};

/// Bytes that are packed before they are sent, and received before they are taken apart.
pub(crate) const PART: usize = 256 << 10;
/// The most bytes of a chunk that one window reaches over.
pub(crate) const SPAN: u64 = 1 << 20;
/// Pieces further apart than this are looked at one by one: stores check blocks of 64 KiB.
const GAP: u64 = 128 << 10;
/// Steps of a walk between two looks at the clock.
const LOOK: u64 = 1 << 16;

/// A part of a chunk, and how it is gone through.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    pub(crate) name: &'a ChunkName,
    pub(crate) form: &'a ChunkForm,
    pub(crate) rows: Rows,
    pub(crate) by_pieces: bool,
}

impl Share<'_> {
    /// What of the packed bytes lies in it.
    pub(crate) fn parts<'b>(&'b self, plan: &'b Plan, packed: &Range<u64>) -> Parts<'b> {
        Parts::new(plan, packed.clone(), &self.rows, self.by_pieces)
    }

    /// The same, to be taken in bites.
    pub(crate) fn cursor<'b>(&'b self, plan: &'b Plan, packed: &Range<u64>) -> Cursor<'b> {
        Cursor::new(self.parts(plan, packed))
    }

    /// Bytes of it that the batch names, and behind the last of them in the chunk; by runs, not by pieces.
    pub(crate) fn measure(
        &self,
        plan: &Plan,
        packed: &Range<u64>,
        patience: &Patience,
    ) -> Result<(u64, u64)> {
        let mut parts = self.parts(plan, packed);
        let (mut bytes, mut end) = (0u64, 0);
        loop {
            patience.check()?;
            parts.pause_after(LOOK);
            for part in parts.by_ref() {
                bytes = bytes.saturating_add(part.bytes());
                end = end.max(part.chunk_span().end);
            }
            if !parts.is_paused() {
                break;
            }
        }
        Ok((bytes, end))
    }
}

/// How long a batch may take a server: so long that who asked has given up by then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) until: Instant,
}

impl Patience {
    pub(crate) fn check(&self) -> Result<()> {
        match Instant::now() < self.until {
            true => Ok(()),
            false => Err(StoreError::Invalid(
                "this part of a batch takes a server too long; ask for fewer pieces, or larger ones, at once".into(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::batch::{Batch, Pattern, Place};
    use slabfs_model::{ChunkId, Codec, Fill, Hyperslab};

    use super::*;

    /// What costs more than a server gives is given up in the middle.
    #[test]
    fn patience_ends() {
        let batch = Batch::repeated(
            Place::at(0).every(2),
            Place::default(),
            1 << 30,
            Pattern::Data(1),
        );
        let plan = Plan::packed(&[batch], 1).unwrap();
        // A row for each piece.
        let cells = [1u64 << 30, 2];
        let want = Hyperslab::from_region(&slabfs_model::Region::new(&[0, 0], &[1 << 30, 1]));
        let shape = [1u64 << 30, 1];
        let form = ChunkForm {
            shape: shape.into_iter().collect(),
            elem: 1,
            codec: Codec::None,
            fill: Fill::zero(),
        };
        let share = Share {
            name: &ChunkName::Free(ChunkId(1)),
            form: &form,
            rows: Rows::new(&cells, &want, &shape, &Hyperslab::whole(&shape)).unwrap(),
            by_pieces: false,
        };
        let over = Patience {
            until: Instant::now(),
        };
        let given_up = share.measure(&plan, &(0..plan.bytes()), &over);
        assert!(matches!(given_up, Err(StoreError::Invalid(_))));
    }
}
