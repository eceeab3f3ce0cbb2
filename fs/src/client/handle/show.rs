//! Replies without a copy: from the memory in which chunks are, of this process or mapped from another one on this host.
//!
//! A store shows a chunk's bytes to a closure and keeps them in place meanwhile. So a reply from several chunks is built
//! inside nested closures, one for each.

use std::io::IoSlice;

use slabfs_model::Hyperslab;
use slabfs_objstore::{ChunkName, StoreError};
use smallvec::SmallVec;

use crate::client::Client;
use crate::client::error::FsError;
use crate::client::handle::ReadSink;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::stored::committed::{Committed, Piece};

/// Most chunks that a read is answered from without a copy.
pub(in crate::client) const MOST_SHOWN: usize = 4;

/// The bytes of a piece, and those in front of them.
struct Shown<'a> {
    bytes: &'a [u8],
    before: Option<&'a Shown<'a>>,
}

impl Client {
    /// Gives `sink` the bytes of `slab` from their mapping, if they are contiguous in one chunk of this process and
    /// have no overlay. `wanted` is the plan, if both have been checked already.
    pub(super) fn show(
        &self,
        object: &Object,
        geometry: &Geometry,
        slab: &Hyperslab,
        wanted: Option<Committed>,
        sink: &mut dyn ReadSink,
    ) -> Result<bool, FsError> {
        let plan = match wanted {
            Some(plan) => plan,
            None => {
                if !self.local() || !geometry.info.codec.is_none() {
                    return Ok(false);
                }
                {
                    let state = object.state.lock();
                    if !state.runs.is_empty() || state.taken.is_some() || !state.streams.is_empty()
                    {
                        return Ok(false);
                    }
                }
                let mut plan = Committed::default();
                self.plan(object, geometry, slab, &mut plan)?;
                plan
            }
        };
        self.show_plan(slab, &plan, sink)
    }

    /// Gives `sink` the bytes of a plan from where they are, if they are in few chunks of this process or of its host,
    /// contiguous in each, one after the other.
    pub(in crate::client) fn show_plan(
        &self,
        slab: &Hyperslab,
        plan: &Committed,
        sink: &mut dyn ReadSink,
    ) -> Result<bool, FsError> {
        if !plan.holes.is_empty() || plan.pieces.len() > MOST_SHOWN {
            return Ok(false);
        }
        // Chunks of a store in this process are locked while they are shown, one at a time.
        let is_locked = |piece: &Piece| {
            self.servers().is_local(piece.server) && !self.is_own_memory(piece.server)
        };
        if plan.pieces.len() > 1 && plan.pieces.iter().any(is_locked) {
            return Ok(false);
        }
        let Some(pieces) = plan.in_order(slab) else {
            return Ok(false);
        };
        let mut shown = false;
        let done = self.show_pieces(&pieces, None, &mut |parts| {
            shown = true;
            match parts {
                [one] => sink.give(one),
                several => sink.give_parts(several),
            }
        });
        match done {
            // A grid chunk that was never written.
            Err(FsError::Store(StoreError::Missing(ChunkName::Grid { .. }))) => Ok(false),
            Err(error) => Err(error),
            Ok(()) => Ok(shown),
        }
    }

    /// Calls `f` with the bytes of all pieces, and of those `before` them; does not if one cannot be shown.
    fn show_pieces(
        &self,
        pieces: &[&Piece],
        before: Option<&Shown<'_>>,
        f: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), FsError> {
        let [piece, rest @ ..] = pieces else {
            let mut parts: SmallVec<[IoSlice<'_>; MOST_SHOWN]> = SmallVec::new();
            let mut shown = before;
            while let Some(Shown { bytes, before }) = shown {
                parts.insert(0, IoSlice::new(bytes));
                shown = *before;
            }
            f(&parts);
            return Ok(());
        };
        let mut inner = Ok(());
        self.servers().show(
            piece.server,
            &piece.name,
            &piece.form,
            &piece.chunk,
            &mut |bytes| inner = self.show_pieces(rest, Some(&Shown { bytes, before }), f),
        )?;
        inner
    }
}
