//! Reads: looked up together, one message a server, received directly into the caller's memory where it is contiguous.
//!
//! For each request, as for every read: first the overlay of this mount is looked up, then the committed bytes are read,
//! then the overlay is painted over them. If a combined message fails, the requests are read one by one, so that each
//! has its own result.
//!
//! If batches are among them, selections are read as batches, too, as patterns of their packed bytes, so that one message
//! a server is enough. The overlay on a batch was written back before.

use slabfs_model::batch::{Batch, Plan as Pattern};
use slabfs_model::{Hyperslab, Region, ServerId};
use slabfs_objstore::client::ReadPiece;

use super::away::Away;
use super::core::Begun;
use super::group::{Group, Hold, Runner, Verdict};
use super::wanted::Wanted;
use crate::client::Client;
use crate::client::buffer::overlay::Overlay;
use crate::client::coupling::Awaited;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::stored::committed::{Committed, Laid, unwritten};

/// A read in progress.
struct Item<'a> {
    object: &'a Object,
    geometry: &'a Geometry,
    slab: Hyperslab,
    overlay: Overlay,
    awaited: Awaited,
    found: Found<'a>,
    verdict: Option<Verdict>,
}

/// Where its committed bytes are.
enum Found<'a> {
    /// It needs none.
    Nothing,
    /// In these chunks.
    Parts(Committed),
    /// In so many that it takes several messages of its own.
    Many,
    /// They are read as a batch, whose bytes lie in these boxes.
    Batch(Box<Wanted<'a>>, Vec<Region>),
}

/// Runs the reads of objects that were entered; returns the groups to run again.
pub(super) fn read(runner: Runner<'_>, held: Vec<(Group, Hold<'_>)>) -> Vec<Group> {
    let client = runner.client;
    let as_batches = held.iter().any(|(group, _)| group.has_batches());
    let (mut groups, holds): (Vec<Group>, Vec<Hold<'_>>) = held.into_iter().unzip();
    let objects: Vec<_> = groups.iter().map(|group| group.object.clone()).collect();
    let verdicts = {
        let mut items: Vec<Item<'_>> = Vec::new();
        let mut own: Vec<Option<Vec<u8>>> = Vec::new();
        let mut filled = Vec::new();
        for ((group, hold), object) in groups.iter().zip(&holds).zip(&objects) {
            for begun in &group.items {
                let before = unwritten();
                let item = client.look_up(object, &hold.geometry, begun, as_batches);
                filled.push(unwritten() != before);
                let plan = &begun.plan;
                let direct = plan.batch.is_some() || plan.memory.direct().is_some();
                let gathered = !direct && item.verdict.is_none();
                own.push(gathered.then(|| vec![0; plan.moved() as usize]));
                items.push(item);
            }
        }
        let mut outs: Vec<&mut [u8]> = Vec::with_capacity(items.len());
        let all = groups.iter_mut().flat_map(|group| &mut group.items);
        for (begun, own) in all.zip(&mut own) {
            let is_batch = begun.plan.batch.is_some();
            outs.push(match (own, begun.plan.memory.direct()) {
                (Some(own), _) => own,
                (None, _) if is_batch => begun.bytes_mut(),
                (None, Some((at, len))) => &mut begun.bytes_mut()[at..at + len],
                (None, None) => &mut [],
            });
        }
        let before = unwritten();
        client.receive(&mut items, &mut outs);
        drop(outs);
        for (item, has_fill) in items.iter_mut().zip(filled) {
            let has_fill = has_fill || unwritten() != before;
            if has_fill && !item.is_done() && !item.awaited.allows_fill(item.object, item.geometry)
            {
                item.verdict = Some(Verdict::Again);
            }
        }
        let all = groups.iter_mut().flat_map(|group| &mut group.items);
        let ended = items.into_iter().zip(all).zip(own);
        ended
            .map(|((item, begun), own)| match item.verdict {
                Some(verdict) => verdict,
                None if begun.is_cancelled() => Verdict::Over(Err(FsError::Cancelled)),
                None => {
                    client.counters().read.transfer(begun.plan.moved());
                    Verdict::Over(own.map_or(Ok(()), |bytes| begun.put(&bytes)))
                }
            })
            .collect::<Vec<Verdict>>()
    };
    drop(holds);
    let mut verdicts = verdicts.into_iter();
    let mut again = Vec::new();
    for group in groups {
        let own = verdicts.by_ref().take(group.items.len()).collect();
        again.extend(runner.judge(group, own));
    }
    again
}

impl Item<'_> {
    fn is_done(&self) -> bool {
        self.verdict.is_some()
    }

    fn end(&mut self, result: Result<(), FsError>) {
        if let Err(error) = result {
            self.verdict = Some(Verdict::from(error));
        }
    }

    /// The servers that have its bytes.
    fn servers(&self) -> Vec<ServerId> {
        match &self.found {
            Found::Nothing | Found::Many => Vec::new(),
            Found::Parts(plan) => plan.pieces.iter().map(|piece| piece.server).collect(),
            Found::Batch(wanted, _) => wanted.servers().collect(),
        }
    }
}

impl Client {
    /// Looks up what a request reads.
    fn look_up<'a>(
        &self,
        object: &'a Object,
        geometry: &'a Geometry,
        begun: &Begun,
        as_batch: bool,
    ) -> Item<'a> {
        let plan = &begun.plan;
        let mut item = Item {
            object,
            geometry,
            slab: plan.slab.clone(),
            overlay: Overlay::default(),
            awaited: begun.awaited,
            found: Found::Nothing,
            verdict: None,
        };
        if plan.bounds.is_none() {
            return item;
        }
        let size = object.size(geometry);
        if plan.batch.is_none() {
            item.overlay = self.overlay(object, geometry, size, &item.slab);
        }
        let found = match item.overlay.covers {
            true => Ok(Found::Nothing),
            false if as_batch => as_wanted(geometry, size, begun),
            false => self.find_parts(object, geometry, &item.slab),
        };
        match found {
            Ok(found) => item.found = found,
            Err(error) => item.verdict = Some(Verdict::from(error)),
        }
        item
    }

    fn find_parts<'a>(
        &self,
        object: &Object,
        geometry: &Geometry,
        slab: &Hyperslab,
    ) -> Result<Found<'a>, FsError> {
        let mut plan = Committed::default();
        if !self.plan_if_few(object, geometry, slab, &mut plan)? {
            return Ok(Found::Many);
        }
        let mut pieces = plan.pieces.iter();
        pieces.try_for_each(|piece| self.ensure_known(piece.server))?;
        Ok(Found::Parts(plan))
    }

    /// Reads the packed bytes of all items without a verdict.
    fn receive(&self, items: &mut [Item<'_>], outs: &mut [&mut [u8]]) {
        for (item, out) in items.iter_mut().zip(&mut *outs) {
            if let (Found::Batch(wanted, boxes), None) = (&mut item.found, &item.verdict) {
                let found = self.find_batch(item.object, wanted, boxes, out);
                item.end(found);
            }
        }
        if let Err(error) = self.read_together(items, outs) {
            let mut away = Away::default();
            away.note(&error);
            for (item, out) in items.iter_mut().zip(&mut *outs) {
                if item.is_done() {
                    continue;
                }
                let alone = away.check(item.servers()).and_then(|()| {
                    let (item, out) = (std::slice::from_mut(item), std::slice::from_mut(out));
                    self.read_together(item, out)
                });
                if let Err(error) = &alone {
                    away.note(error);
                }
                item.end(alone);
            }
        }
        for (item, out) in items.iter_mut().zip(&mut *outs) {
            if item.is_done() {
                continue;
            }
            let read = match &item.found {
                Found::Many => self.read_committed(item.object, item.geometry, &item.slab, out),
                _ => Ok(()),
            };
            let read = read.and_then(|()| self.paint_overlay(&item.overlay, &item.slab, out));
            item.end(read);
        }
    }

    /// Reads those without a verdict, one message a server.
    ///
    /// # Errors
    /// Of the messages: the state of all is unknown then.
    fn read_together(&self, items: &mut [Item<'_>], outs: &mut [&mut [u8]]) -> Result<(), FsError> {
        let mut lays: Vec<Option<Laid>> = items
            .iter()
            .map(|item| match &item.found {
                Found::Parts(plan) if !item.is_done() => Some(plan.lay(&item.slab)),
                _ => None,
            })
            .collect();
        let mut requests: Vec<ReadPiece<'_>> = Vec::new();
        let mut counts = Vec::with_capacity(items.len());
        let (mut numbers, mut batches) = (Vec::new(), Vec::new());
        let all = items.iter().zip(&mut lays).zip(&mut *outs).enumerate();
        for (number, ((item, laid), out)) in all {
            let before = requests.len();
            match (&item.found, laid) {
                (Found::Parts(plan), Some(laid)) => {
                    plan.fill_holes(item.geometry, &item.slab, out);
                    plan.requests(laid, out, &mut requests);
                }
                (Found::Batch(wanted, _), _) if !item.is_done() => {
                    numbers.push(number);
                    batches.push((&**wanted, &mut **out));
                }
                _ => {}
            }
            counts.push(requests.len() - before);
        }
        if !requests.is_empty() {
            let read = self.servers().read(&mut requests);
            read.map_err(|(_, error)| error)?;
        }
        let found: Vec<bool> = requests.iter().map(|request| request.found).collect();
        drop(requests);
        let failed = match batches.is_empty() {
            true => Vec::new(),
            false => self.read_wanted(&mut batches)?,
        };
        drop(batches);
        for (number, error) in failed {
            items[numbers[number]].end(Err(error));
        }
        let mut found = found.as_slice();
        for (((item, laid), count), out) in items.iter_mut().zip(lays).zip(counts).zip(outs) {
            let (own, rest) = found.split_at(count);
            found = rest;
            if let (Found::Parts(plan), Some(laid)) = (&item.found, laid) {
                let read = self.settle_read(item.geometry, plan, &item.slab, laid, own, out);
                item.end(read);
            }
        }
        Ok(())
    }
}

/// A request as a batch.
fn as_wanted<'a>(geometry: &'a Geometry, size: u64, begun: &Begun) -> Result<Found<'a>, FsError> {
    let plan = &begun.plan;
    let cells = geometry.cells_at(size);
    let boxes = plan.boxes(geometry, &cells);
    let (pattern, packed, base) = match &plan.batch {
        Some(batch) => (batch.plan.clone(), batch.packed.clone(), batch.base),
        None => {
            let pattern = Pattern::packed(&Batch::of_slab(&cells, &plan.slab), 1);
            let pattern = pattern?;
            let all = 0..pattern.bytes();
            (pattern, all, 0)
        }
    };
    let wanted = Wanted {
        plan: pattern,
        packed,
        base,
        cells,
        geometry,
        stages: Vec::new(),
    };
    Ok(Found::Batch(Box::new(wanted), boxes))
}
