//! Reads that include batches: all of them are read as batches, so that one message a server is enough.
//!
//! A selection becomes a batch, too: a pattern of its packed bytes. Otherwise as in `get`: the overlay of this mount is
//! looked up, the committed bytes are read, the overlay is painted over them. The overlay on a batch was written back
//! before.

use std::ops::Range;
use std::sync::Arc;

use slabfs_model::batch::{Batch, Plan as Pattern};
use slabfs_model::layout::boxes_of_run;
use slabfs_model::{Coords, Region};

use super::super::Client;
use super::super::batch::{Wanted, invalid_batch};
use super::super::error::FsError;
use super::super::geometry::Geometry;
use super::super::object::Object;
use super::super::overlay::Overlay;
use super::convert::Conversion;
use super::core::Begun;
use super::get::deliver;
use super::put::{first_away, note_away};
use super::run::{Group, Hold, Verdict};

/// A transfer in progress.
struct Item<'a> {
    object: &'a Object,
    geometry: &'a Geometry,
    cells: Coords,
    pattern: Arc<Pattern>,
    packed: Range<u64>,
    base: u64,
    /// Boxes that contain all its bytes.
    boxes: Vec<Region>,
    /// The overlay on a selection.
    overlay: Overlay,
    convert: Option<Conversion>,
}

/// Runs the reads of objects that were entered; returns the groups to run again.
pub(super) fn get(client: &Client, held: Vec<(Group, Hold<'_>)>) -> Vec<Group> {
    let (mut groups, holds): (Vec<Group>, Vec<Hold<'_>>) = held.into_iter().unzip();
    let objects: Vec<_> = groups.iter().map(|group| group.object.clone()).collect();
    let verdicts = {
        let mut items = Vec::new();
        let mut own: Vec<Option<Vec<u8>>> = Vec::new();
        for ((group, hold), object) in groups.iter().zip(&holds).zip(&objects) {
            for begun in &group.items {
                let item = client.batch_item(object, &hold.geometry, begun);
                let plan = &begun.plan;
                let gathered = plan.batch.is_none()
                    && match &item {
                        Ok(item) => item.convert.is_some() || plan.memory.run.is_none(),
                        Err(_) => false,
                    };
                own.push(gathered.then(|| vec![0; begun.moved() as usize]));
                items.push(item);
            }
        }
        let slabs: Vec<_> = groups
            .iter()
            .flat_map(|group| &group.items)
            .map(|begun| begun.plan.slab.clone())
            .collect();
        let mut outs: Vec<&mut [u8]> = Vec::with_capacity(items.len());
        let all = groups.iter_mut().flat_map(|group| &mut group.items);
        for (begun, own) in all.zip(&mut own) {
            let is_batch = begun.plan.batch.is_some();
            outs.push(match (own, begun.plan.memory.run) {
                (Some(own), _) => own,
                (None, _) if is_batch => begun.bytes_mut(),
                (None, Some((at, len))) => &mut begun.bytes_mut()[at..at + len],
                (None, None) => &mut [],
            });
        }
        let verdicts = client.receive_batches(&items, &slabs, &mut outs);
        drop(outs);
        let all = groups.iter_mut().flat_map(|group| &mut group.items);
        let ended = verdicts.into_iter().zip(items).zip(all).zip(own);
        ended
            .map(|(((verdict, item), begun), own)| match verdict {
                Some(verdict) => verdict,
                None if begun.is_cancelled() => Verdict::Over(Err(FsError::Cancelled)),
                None => {
                    client.counters().read.transfer(begun.moved());
                    let convert = item.ok().and_then(|item| item.convert);
                    Verdict::Over(own.map_or(Ok(()), |bytes| deliver(begun, convert, bytes)))
                }
            })
            .collect::<Vec<Verdict>>()
    };
    drop(holds);
    let mut verdicts = verdicts.into_iter();
    let mut again = Vec::new();
    for group in groups {
        let own = verdicts.by_ref().take(group.items.len()).collect();
        again.extend(group.judge(client, own));
    }
    again
}

impl Client {
    /// A transfer as a batch.
    fn batch_item<'a>(
        &self,
        object: &'a Object,
        geometry: &'a Geometry,
        begun: &Begun,
    ) -> Result<Item<'a>, FsError> {
        let plan = &begun.plan;
        let size = object.size(geometry);
        let cells = geometry.cells_at(size);
        let mut boxes = Vec::new();
        if let Some(batch) = &plan.batch {
            if let Some((from, to)) = batch.span {
                boxes_of_run(&cells, from, to - from, &mut boxes);
            }
            return Ok(Item {
                object,
                geometry,
                cells,
                pattern: batch.plan.clone(),
                packed: batch.packed.clone(),
                base: batch.base,
                boxes,
                overlay: Overlay::default(),
                convert: None,
            });
        }
        let mut overlay = Overlay::default();
        if let Some(bounds) = &plan.bounds {
            overlay = self.overlay(object, geometry, size, &plan.slab);
            if !overlay.covers {
                boxes.push(bounds.clone());
            }
        }
        let pattern = Pattern::packed(&Batch::of_slab(&cells, &plan.slab), 1);
        let pattern = pattern.map_err(invalid_batch)?;
        Ok(Item {
            object,
            geometry,
            cells,
            packed: 0..pattern.bytes(),
            pattern: Arc::new(pattern),
            base: 0,
            boxes,
            overlay,
            convert: plan.memory.outward()?,
        })
    }

    /// Reads all items, and returns the verdicts on those that failed.
    fn receive_batches(
        &self,
        items: &[Result<Item<'_>, FsError>],
        slabs: &[slabfs_model::Hyperslab],
        outs: &mut [&mut [u8]],
    ) -> Vec<Option<Verdict>> {
        let mut wanted = Vec::with_capacity(items.len());
        let mut verdicts: Vec<Option<Verdict>> = Vec::with_capacity(items.len());
        for (item, out) in items.iter().zip(outs.iter_mut()) {
            let found = item.as_ref().map_err(Clone::clone).and_then(|item| {
                let mut wanted = item.wanted();
                self.find_batch(item.object, &mut wanted, &item.boxes, out)?;
                Ok(wanted)
            });
            verdicts.push(found.as_ref().err().cloned().map(Verdict::from));
            wanted.push(found.ok());
        }
        let mut away = Vec::new();
        if let Err(error) = self.read_together(&wanted, outs, &mut verdicts) {
            if let FsError::Store(error) = &error {
                note_away(&mut away, error);
            }
            // Read them one by one to find which of them fail.
            for at in 0..wanted.len() {
                let (Some(one), None) = (&wanted[at], &verdicts[at]) else {
                    continue;
                };
                let servers = one.stages.iter().flatten().map(|piece| piece.server);
                let read = match first_away(&away, servers) {
                    Some(error) => Err(error.into()),
                    None => {
                        let all = at..at + 1;
                        self.read_together(
                            &wanted[all.clone()],
                            &mut outs[all.clone()],
                            &mut verdicts[all],
                        )
                    }
                };
                if let Err(error) = read {
                    if let FsError::Store(error) = &error {
                        note_away(&mut away, error);
                    }
                    verdicts[at] = Some(Verdict::from(error));
                }
            }
        }
        for (at, item) in items.iter().enumerate() {
            if let (Ok(item), None) = (item, &verdicts[at])
                && let Err(error) = self.paint_overlay(&item.overlay, &slabs[at], outs[at])
            {
                verdicts[at] = Some(Verdict::from(error));
            }
        }
        verdicts
    }

    /// Reads those without a verdict together.
    fn read_together(
        &self,
        wanted: &[Option<Wanted<'_>>],
        outs: &mut [&mut [u8]],
        verdicts: &mut [Option<Verdict>],
    ) -> Result<(), FsError> {
        let (mut numbers, mut all) = (Vec::new(), Vec::new());
        let both = wanted.iter().zip(outs.iter_mut());
        for (at, (one, out)) in both.enumerate() {
            if let (Some(one), None) = (one, &verdicts[at]) {
                numbers.push(at);
                all.push((one, &mut **out));
            }
        }
        for (number, error) in self.read_wanted(&mut all)? {
            verdicts[numbers[number]] = Some(Verdict::from(error));
        }
        Ok(())
    }
}

impl Item<'_> {
    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            plan: &self.pattern,
            packed: self.packed.clone(),
            base: self.base,
            cells: self.cells.clone(),
            geometry: self.geometry,
            stages: Vec::new(),
        }
    }
}
