//! Adopts a changed form of an object.
//!
//! Dirty runs are stored by their offset in canonical bytes. When another mount has changed the dims, an offset means
//! another cell: the runs are moved, cell by cell, and cells outside the new dims are dropped, as committed data is.
//! Unlike committed data, such a run may have been written after the other mount's change, so the open handles get an
//! error. Streams record cells and need no change; the metadata service cuts off their parts outside the dims, and the
//! flush reports that.

use std::sync::atomic::Ordering;

use slabfs_mdserver::api::Entry;
use slabfs_model::layout::boxes_of_run;
use slabfs_model::{Coords, Hyperslab, Region, for_each_run, gather};

use crate::client::Client;
use crate::client::buffer::runs::Runs;
use crate::client::error::FsError;
use crate::client::handle::writer::HandleId;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;

impl Client {
    /// Adopts the entry that the metadata service returned, if it is later than the known one; returns whether it was.
    ///
    /// Needs the geometry lock exclusively. The epoch advances before anything is dropped, so that a read that
    /// started with the old form cannot leave its bytes in the cache.
    pub(in crate::client) fn adopt(
        &self,
        object: &Object,
        geometry: &mut Geometry,
        entry: &Entry,
    ) -> Result<bool, FsError> {
        if entry.attr.change <= geometry.attr.change {
            return Ok(false);
        }
        let fresh = Geometry::new(entry)?;
        object.epoch.fetch_add(1, Ordering::AcqRel);
        if fresh.info.generation != geometry.info.generation {
            object.reserved.store(0, Ordering::Release);
        }
        self.carry_over(object, geometry, &fresh)?;
        object.committed.store(0, Ordering::Release);
        object.coupled.set(&fresh.info);
        if fresh.cells.first() < geometry.cells.first() {
            object.coupled.restart();
        }
        *geometry = fresh;
        self.cache().forget_object(object);
        Ok(true)
    }

    fn carry_over(&self, object: &Object, old: &Geometry, new: &Geometry) -> Result<(), FsError> {
        let old_cells = old.cells_at(object.size(old));
        if old.cells.get(1..) == new.cells.get(1..) && (new.grows() || old.size() <= new.size()) {
            if new.grows() && new.size() < old.size() {
                // Data that was inside lies beyond the end now, and extends the object again.
                let state = object.state.lock();
                let taken = state.taken.as_ref().and_then(|taken| taken.end());
                if let Some(end) = state.runs.end().max(taken) {
                    object.grow(new, end);
                }
            }
            return Ok(());
        }
        let mut state = object.state.lock();
        if state.runs.is_empty() {
            return Ok(());
        }
        let older = std::mem::take(&mut state.runs);
        if old_cells.len() != new.cells.len() || old.info.dtype.size() != new.info.dtype.size() {
            self.account(&mut state);
            drop(state);
            let error = FsError::Invalid(
                "another mount changed the object's form; data not flushed here is lost".into(),
            );
            tracing::error!(object = %object.ino, %error);
            object.blame(&error);
            return Ok(());
        }
        let mut limits = new.cells.clone();
        if new.grows() {
            limits[0] = u64::MAX;
        }
        let mut all = true;
        for writer in older.writers() {
            for (offset, bytes) in older.pieces_of(writer) {
                all &= carry_run(&mut state.runs, &old_cells, &limits, offset, bytes, writer);
            }
        }
        if new.grows()
            && let Some(end) = state.runs.end()
        {
            object.regrow(new, end);
        }
        self.account(&mut state);
        drop(state);
        if !all {
            object.blame_cut(&new.info.dims);
        }
        Ok(())
    }
}

/// Puts a run of an object with `old` cells at the place of its cells in one with `new` cells; returns whether all of
/// it has a place there.
fn carry_run(
    runs: &mut Runs,
    old: &[u64],
    new: &Coords,
    offset: u64,
    bytes: &[u8],
    writer: HandleId,
) -> bool {
    let mut all = true;
    let mut boxes = Vec::new();
    boxes_of_run(old, offset, bytes.len() as u64, &mut boxes);
    let mut at = 0;
    for region in boxes {
        let dense = &bytes[at..at + region.volume() as usize];
        at += dense.len();
        let held = region.intersect(&Region::all(new));
        all &= held.as_ref() == Some(&region);
        let Some(held) = held else { continue };
        let inside: Coords = held
            .offset
            .iter()
            .zip(&region.offset)
            .map(|(held, start)| held - start)
            .collect();
        let mut packed = vec![0; held.volume() as usize];
        gather(
            dense,
            &region.shape,
            &Hyperslab::from_region(&Region::new(&inside, &held.shape)),
            &mut packed,
        );
        let mut from = 0;
        for_each_run(new, &Hyperslab::from_region(&held), &mut |start, len| {
            runs.insert(start as u64, &packed[from..from + len], writer);
            from += len;
        });
    }
    all
}
