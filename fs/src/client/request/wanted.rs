//! Reads of batches: the chunks of a batch, and one message a server for several batches.
//!
//! The chunks within the span of a batch are looked up as for any read, and each server gets the batch and the parts of
//! its chunks; no pieces are listed. Where lattices lie over other chunks, later bytes are put over older ones when both
//! have arrived.

use std::ops::Range;

use slabfs_model::batch::{Parts, Plan as Pattern, Rows};
use slabfs_model::{Coords, Hyperslab, Region, ServerId, intersect};
use slabfs_objstore::client::{BatchAsk, BatchPart, BatchPiece};
use slabfs_objstore::{ChunkName, StoreError};

use crate::client::Client;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::{Geometry, moved};
use crate::client::stored::committed::{Committed, MOST_PARTS, Piece, too_many};

/// The maximum number of pairs of lattices that are compared to find those that overlap.
const MOST_LOOKS: u64 = 1 << 24;

/// A batch, or a range of its packed bytes, to be read, and the location of its bytes.
pub(super) struct Wanted<'a> {
    pub(super) plan: Pattern,
    pub(super) packed: Range<u64>,
    /// The position of the destination memory in the buffer that the plan refers to.
    pub(super) base: u64,
    /// The object's dims, the last in bytes.
    pub(super) cells: Coords,
    pub(super) geometry: &'a Geometry,
    /// The pieces of one stage do not overlap, and are older than those of later stages that they overlap.
    pub(super) stages: Vec<Vec<Piece>>,
}

impl Client {
    /// Finds the chunks of a batch whose bytes all lie in `boxes`, and fills the parts without stored data.
    pub(super) fn find_batch(
        &self,
        object: &Object,
        wanted: &mut Wanted<'_>,
        boxes: &[Region],
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let mut pieces = Vec::new();
        for region in boxes {
            let slab = Hyperslab::from_region(region);
            let mut found = Committed::default();
            self.plan(object, wanted.geometry, &slab, &mut found)?;
            for hole in &found.holes {
                let hole = moved(&Hyperslab::from_region(hole), &slab);
                wanted.paint(&hole, out)?;
            }
            pieces.extend(found.pieces.into_iter().map(|mut piece| {
                piece.want = moved(&piece.want, &slab);
                piece
            }));
        }
        for piece in &pieces {
            self.ensure_known(piece.server)?;
        }
        if pieces.len() > MOST_PARTS {
            return Err(too_many());
        }
        wanted.stages = stages(pieces)?;
        Ok(())
    }

    /// Reads several batches, one message a server; returns the batches that failed individually.
    ///
    /// # Errors
    /// Of the messages: the state of all batches is unknown then.
    pub(super) fn read_wanted(
        &self,
        all: &mut [(&Wanted<'_>, &mut [u8])],
    ) -> Result<Vec<(usize, FsError)>, FsError> {
        let mut asks = Vec::with_capacity(all.len());
        for (wanted, out) in all.iter_mut() {
            let wanted = *wanted;
            asks.push(BatchAsk {
                part: BatchPart {
                    plan: &wanted.plan,
                    packed: wanted.packed.clone(),
                    cells: &wanted.cells,
                    base: wanted.base,
                },
                pieces: wanted.asked().collect(),
                memory: &mut **out,
            });
        }
        self.servers()
            .read_batches(&mut asks)
            .map_err(|(_, error)| error)?;
        let missing: Vec<Vec<usize>> = asks
            .iter()
            .map(|ask| {
                let pieces = ask.pieces.iter().enumerate();
                let missing = pieces.filter(|(_, piece)| !piece.found);
                missing.map(|(at, _)| at).collect()
            })
            .collect();
        drop(asks);
        let mut failed = Vec::new();
        for (number, missing) in missing.into_iter().enumerate() {
            let (wanted, out) = &mut all[number];
            if let Err(error) = self.settle_missing(wanted, &missing, out) {
                failed.push((number, error));
            }
        }
        Ok(failed)
    }

    /// Fills pieces whose chunks do not exist, if they may be missing.
    fn settle_missing(
        &self,
        wanted: &Wanted<'_>,
        missing: &[usize],
        out: &mut [u8],
    ) -> Result<(), FsError> {
        if missing.is_empty() {
            return Ok(());
        }
        let pieces: Vec<&Piece> = wanted.stages.iter().flatten().collect();
        for piece in missing.iter().map(|&at| pieces[at]) {
            // A grid chunk that was never written reads as fill, and no later piece lies over it. A chunk in the tiling
            // must exist.
            if matches!(piece.name, ChunkName::Free(_)) {
                return Err(StoreError::Missing(piece.name.clone()).into());
            }
            let draining = self.known.lock().draining.contains(&piece.server);
            if draining {
                self.unless_moved(wanted.geometry, piece)?;
            }
            wanted.paint(&piece.want, out)?;
        }
        Ok(())
    }
}

impl Piece {
    fn asked(&self, stage: usize) -> BatchPiece<'_> {
        BatchPiece {
            server: self.server,
            name: &self.name,
            form: &self.form,
            want: &self.want,
            slab: &self.chunk,
            stage,
            found: true,
        }
    }
}

/// Distributes pieces, oldest first, over as few stages as necessary: the pieces of one stage do not overlap.
fn stages(pieces: Vec<Piece>) -> Result<Vec<Vec<Piece>>, FsError> {
    let mut stages: Vec<Vec<Piece>> = Vec::new();
    let mut pairs = Vec::new();
    let looked = std::cell::Cell::new(0u64);
    let mut overlaps = |one: &Piece, other: &Piece| {
        looked.set(looked.get() + 1);
        pairs.clear();
        intersect(&one.want, &other.want, &mut pairs);
        !pairs.is_empty()
    };
    for piece in pieces {
        // Solid pieces do not overlap, and later chunks are cut out of a lattice.
        let above = match piece.over {
            true => stages
                .iter()
                .rposition(|stage| stage.iter().any(|other| overlaps(&piece, other)))
                .map_or(0, |at| at + 1),
            false => 0,
        };
        match stages.get_mut(above) {
            Some(stage) => stage.push(piece),
            None => stages.push(vec![piece]),
        }
        if looked.get() > MOST_LOOKS {
            return Err(too_many());
        }
    }
    Ok(stages)
}

impl Wanted<'_> {
    /// The servers that have its bytes.
    pub(super) fn servers(&self) -> impl Iterator<Item = ServerId> {
        self.stages.iter().flatten().map(|piece| piece.server)
    }

    /// Its pieces, stage by stage.
    fn asked(&self) -> impl Iterator<Item = BatchPiece<'_>> {
        let stages = self.stages.iter().enumerate();
        stages.flat_map(|(stage, pieces)| pieces.iter().map(move |piece| piece.asked(stage)))
    }

    /// Fills the parts of `slab` that the batch names.
    fn paint(&self, slab: &Hyperslab, out: &mut [u8]) -> Result<(), FsError> {
        let fill = &self.geometry.info.fill;
        let cells = &self.cells;
        let rows = Rows::new(cells, slab, cells, slab)
            .map_err(|error| FsError::Invalid(error.to_string()))?;
        let by_pieces = Parts::few_pieces(&self.plan, &self.packed, &rows);
        for part in Parts::new(&self.plan, self.packed.clone(), &rows, by_pieces) {
            let run = part.run;
            let mut at = (run.memory - self.base) as usize;
            let mut cell = run.file;
            for _ in 0..run.count {
                let piece = out.get_mut(at..at + run.bytes as usize);
                let piece = piece.ok_or_else(|| {
                    FsError::Invalid("the buffer is too small for the batch".into())
                })?;
                fill.paint(piece, cell);
                at = at.wrapping_add_signed(run.memory_stride as isize);
                cell = cell.wrapping_add_signed(run.file_stride);
            }
        }
        Ok(())
    }
}
