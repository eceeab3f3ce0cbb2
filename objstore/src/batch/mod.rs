//! Checks, counts, packs and unpacks the pieces of a batch that lie in the parts of chunks named by a message.
//!
//! Client and server build the same [`Share`] from a message and walk it in the same order, so a message carries no
//! list of pieces. Bytes move in [`PART`]s that fit the CPU cache: `window` packs pieces of a chunk, `patching` writes
//! packed bytes into a chunk, and `feed` unpacks them into the caller's buffer (`memory`). If chunk and buffer are in
//! one process, `window` copies from one to the other.
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
pub(crate) use window::{Window, is_there, with_span};

use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};

/// The number of bytes packed before they are sent, and received before they are unpacked.
pub(crate) const PART: usize = 256 << 10;
/// The maximum span of a window in the chunk, in bytes.
pub(crate) const SPAN: u64 = 1 << 20;
/// Pieces further apart than this are read one by one: stores verify blocks of 64 KiB.
const GAP: u64 = 128 << 10;
/// Steps of a walk between two checks of the time limit.
const CHECK_STEPS: u64 = 1 << 16;

/// A part of a chunk, and the order in which it is walked.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    pub(crate) name: &'a ChunkName,
    pub(crate) form: &'a ChunkForm,
    pub(crate) rows: Rows,
    pub(crate) by_pieces: bool,
}

impl Share<'_> {
    /// The parts of the packed bytes that lie in this share.
    pub(crate) fn parts<'b>(&'b self, plan: &'b Plan, packed: &Range<u64>) -> Parts<'b> {
        Parts::new(plan, packed.clone(), &self.rows, self.by_pieces)
    }

    /// As [`Share::parts`], to be taken in pieces of bounded size.
    pub(crate) fn cursor<'b>(&'b self, plan: &'b Plan, packed: &Range<u64>) -> Cursor<'b> {
        Cursor::new(self.parts(plan, packed))
    }

    /// The number of bytes that the batch selects in this share, and the end of the last one in the chunk. Counted by
    /// runs, not by pieces.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the time limit is exceeded.
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
            parts.pause_after(CHECK_STEPS);
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

/// The time limit of a batch on a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) until: Instant,
}

impl Patience {
    pub(crate) fn check(&self) -> Result<()> {
        match Instant::now() < self.until {
            true => Ok(()),
            false => Err(StoreError::Invalid(
                "this part of a batch exceeds a server's time limit; request fewer or larger pieces at once".into(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::batch::{Batch, Pattern, Place};
    use slabfs_model::{ChunkId, Codec, Fill, Hyperslab};

    use super::*;

    /// A walk that exceeds the time limit is aborted.
    #[test]
    fn a_walk_stops_at_the_time_limit() {
        let batch = Batch::repeated(
            Place::at(0).every(2),
            Place::default(),
            1 << 30,
            Pattern::Data(1),
        );
        let plan = Plan::packed(&[batch], 1).unwrap();
        // One row per piece.
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
            rows: Rows::new(&cells, &want, &shape, &Hyperslab::all(&shape)).unwrap(),
            by_pieces: false,
        };
        let expired = Patience {
            until: Instant::now(),
        };
        let result = share.measure(&plan, &(0..plan.bytes()), &expired);
        assert!(matches!(result, Err(StoreError::Invalid(_))));
    }
}
