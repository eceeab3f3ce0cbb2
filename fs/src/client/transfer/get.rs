//! Reads: planned together, one message a server, received directly into the caller's memory where it is contiguous.
//!
//! For each transfer, as for every read: first the overlay of this mount is looked up, then the committed bytes are
//! read, then the overlay is painted over them. If a combined message fails, the transfers are read one by one.

use slabfs_objstore::client::ReadPiece;

use super::super::Client;
use super::super::committed::{Committed, Laid};
use super::super::error::FsError;
use super::super::geometry::Geometry;
use super::super::object::Object;
use super::super::overlay::Overlay;
use super::convert::Conversion;
use super::core::Begun;
use super::put::{first_away, note_away};
use super::run::{Group, Hold, Verdict};

/// A transfer in progress.
struct Item<'a> {
    object: &'a Object,
    geometry: &'a Geometry,
    overlay: Overlay,
    plan: Committed,
    laid: Option<Laid>,
    /// It lies in so many parts that it takes several requests of its own.
    many: bool,
    convert: Option<Conversion>,
    verdict: Option<Verdict>,
}

/// Runs the reads of objects that were entered; returns the groups to run again.
pub(super) fn get(client: &Client, held: Vec<(Group, Hold<'_>)>) -> Vec<Group> {
    let (mut groups, holds): (Vec<Group>, Vec<Hold<'_>>) = held.into_iter().unzip();
    let objects: Vec<_> = groups.iter().map(|group| group.object.clone()).collect();
    let verdicts = {
        let mut items: Vec<Item<'_>> = Vec::new();
        let mut own: Vec<Option<Vec<u8>>> = Vec::new();
        for ((group, hold), object) in groups.iter().zip(&holds).zip(&objects) {
            for begun in &group.items {
                let item = client.plan_read(object, &hold.geometry, begun);
                let direct = item.convert.is_none() && begun.plan.memory.run.is_some();
                let bytes = begun.moved() as usize;
                own.push((!direct && item.verdict.is_none()).then(|| vec![0; bytes]));
                items.push(item);
            }
        }
        let begun = || groups_items(&groups);
        let slabs: Vec<_> = begun().map(|begun| begun.plan.slab.clone()).collect();
        let mut outs: Vec<&mut [u8]> = Vec::with_capacity(items.len());
        let all = groups.iter_mut().flat_map(|group| &mut group.items);
        for (begun, own) in all.zip(&mut own) {
            outs.push(match (own, begun.plan.memory.run) {
                (Some(own), _) => own,
                (None, Some((at, len))) => &mut begun.bytes_mut()[at..at + len],
                (None, None) => &mut [],
            });
        }
        client.receive(&mut items, &slabs, &mut outs);
        drop(outs);
        let all = groups.iter_mut().flat_map(|group| &mut group.items);
        let ended = items.into_iter().zip(all).zip(own);
        ended
            .map(|((item, begun), own)| match item.verdict {
                Some(verdict) => verdict,
                None if begun.is_cancelled() => Verdict::Over(Err(FsError::Cancelled)),
                None => {
                    let moved = begun.moved();
                    client.counters().read.transfer(moved);
                    Verdict::Over(match own {
                        Some(bytes) => deliver(begun, item.convert, bytes),
                        None => Ok(()),
                    })
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

fn groups_items(groups: &[Group]) -> impl Iterator<Item = &Begun> {
    groups.iter().flat_map(|group| &group.items)
}

/// Puts the packed bytes of the object's elements at their places in memory.
pub(super) fn deliver(
    begun: &mut Begun,
    convert: Option<Conversion>,
    bytes: Vec<u8>,
) -> Result<(), FsError> {
    let len = begun.plan.memory.len;
    let run = begun.plan.memory.run;
    if let (Some(convert), Some((at, len))) = (convert, run) {
        return convert.run(&bytes, &mut begun.bytes_mut()[at..at + len]);
    }
    let elements = match convert {
        None => bytes,
        Some(convert) => {
            let mut converted = vec![0; len];
            convert.run(&bytes, &mut converted)?;
            converted
        }
    };
    if let Some(scattered) = begun.plan.memory.scattered.clone() {
        scattered.scatter(&elements, begun.bytes_mut());
    }
    Ok(())
}

impl Client {
    /// Looks up what a transfer reads.
    fn plan_read<'a>(&self, object: &'a Object, geometry: &'a Geometry, begun: &Begun) -> Item<'a> {
        let slab = &begun.plan.slab;
        let mut item = Item {
            object,
            geometry,
            overlay: Overlay::default(),
            plan: Committed::default(),
            laid: None,
            many: false,
            convert: None,
            verdict: None,
        };
        if begun.plan.bounds.is_none() {
            return item;
        }
        item.overlay = self.overlay(object, geometry, object.size(geometry), slab);
        let planned = begun.plan.memory.outward().and_then(|convert| {
            item.convert = convert;
            if item.overlay.covers {
                return Ok(());
            }
            item.many = !self.plan_if_few(object, geometry, slab, &mut item.plan)?;
            item.plan
                .pieces
                .iter()
                .try_for_each(|piece| self.ensure_known(piece.server))
        });
        match planned {
            Ok(()) => {
                item.laid = (!item.overlay.covers && !item.many).then(|| item.plan.lay(slab));
            }
            Err(error) => item.verdict = Some(Verdict::from(error)),
        }
        item
    }

    /// Reads the packed bytes of all items without a verdict.
    fn receive(
        &self,
        items: &mut [Item<'_>],
        slabs: &[slabfs_model::Hyperslab],
        outs: &mut [&mut [u8]],
    ) {
        let mut lays: Vec<Option<Laid>> = items.iter_mut().map(|item| item.laid.take()).collect();
        let mut requests: Vec<ReadPiece<'_>> = Vec::new();
        let mut counts = Vec::with_capacity(items.len());
        for (((item, laid), slab), out) in
            items.iter().zip(&mut lays).zip(slabs).zip(outs.iter_mut())
        {
            let before = requests.len();
            if let Some(laid) = laid {
                item.plan.fill_holes(item.geometry, slab, out);
                item.plan.requests(laid, out, &mut requests);
            }
            counts.push(requests.len() - before);
        }
        let failed = self.servers().read(&mut requests).err();
        let found: Vec<bool> = requests.iter().map(|request| request.found).collect();
        drop(requests);
        let mut away = Vec::new();
        if let Some((_, error)) = &failed {
            note_away(&mut away, error);
        }
        let mut found = found.as_slice();
        let all = items.iter_mut().zip(lays).zip(slabs).zip(outs);
        for ((((item, laid), slab), out), count) in all.zip(counts) {
            let (own, rest) = found.split_at(count);
            found = rest;
            if item.verdict.is_some() {
                continue;
            }
            let read = match laid {
                None if item.many => self.read_committed(item.object, item.geometry, slab, out),
                None => Ok(()),
                Some(laid) if failed.is_none() => {
                    self.settle_read(item.geometry, &item.plan, slab, laid, own, out)
                }
                Some(_) => {
                    let servers = item.plan.pieces.iter().map(|piece| piece.server);
                    match first_away(&away, servers) {
                        Some(error) => Err(error.into()),
                        None => self.read_committed(item.object, item.geometry, slab, out),
                    }
                }
            };
            let read = read.and_then(|()| self.paint_overlay(&item.overlay, slab, out));
            if let Err(error) = read {
                if let FsError::Store(error) = &error {
                    note_away(&mut away, error);
                }
                item.verdict = Some(Verdict::from(error));
            }
        }
    }
}
