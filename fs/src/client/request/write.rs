//! Writes: the data of all objects first, one message a server, then one commit an object.
//!
//! In an `aligned` object a transfer becomes a chunk (see `cut`), straight from the caller's memory; a `grid` is
//! written in place. If a combined message fails, the transfers are sent one by one, so that each has its own result;
//! chunks that are already stored stay as they are when they are sent again.
//!
//! Overlapping dirty runs are older and are dropped when reads can find the new bytes, as after every direct write
//! (`overlaps`); no flush runs meanwhile, and streams with older bytes below were committed before.

use std::ops::Range;
use std::sync::atomic::Ordering;

use slabfs_mdserver::api::{CommitReply, MAX_COMMIT_RECORDS, Stored, Time};
use slabfs_model::{Coords, Hyperslab};
use slabfs_objstore::client::Verifiers;

use super::away::Away;
use super::core::Begun;
use super::cut::{Part, as_boxes, cut};
use super::elements::some_of;
use super::group::{Group, Hold, Runner, Verdict};
use super::in_place::Sent;
use super::plan::Plan;
use crate::client::Client;
use crate::client::buffer::flush::Scope;
use crate::client::buffer::overlap::Running;
use crate::client::buffer::payload::Slices;
use crate::client::commit::{BatchWrite, Change, GridWrite, NewChunk, is_cut};
use crate::client::error::FsError;
use crate::client::object::geometry::Geometry;
use crate::client::object::{Object, ends_of};
use crate::client::placement::permit::Allowed;
use crate::client::stored::committed::grid_parts;

/// A transfer in progress.
struct Item<'a> {
    begun: &'a Begun,
    geometry: &'a Geometry,
    /// Its bytes, in packed order.
    packed: Slices<'a>,
    /// The chunks they become.
    parts: Vec<Part>,
    /// The same, for a batch or a transfer that is sent together with one.
    batch: Sent<'a>,
    verdict: Option<Verdict>,
}

/// The pieces of all transfers, grouped by transfer.
#[derive(Default)]
struct Pieces<'a> {
    chunks: Vec<NewChunk<'a>>,
    grid: Vec<GridWrite<'a>>,
    of: Vec<(Range<usize>, Range<usize>)>,
}

/// The part of one object in a batch of transfers.
struct Site<'a> {
    object: &'a Object,
    geometry: &'a Geometry,
    items: Range<usize>,
    running: Option<Running<'a>>,
    allowed: Option<Allowed<'a>>,
    reply: Option<CommitReply>,
}

/// Runs the writes of objects that were entered; returns the groups to run again.
pub(super) fn write(runner: Runner<'_>, held: Vec<(Group, Hold<'_>)>) -> Vec<Group> {
    let client = runner.client;
    let (mut verdicts, replies) = {
        let mut items = Vec::new();
        let mut sites = Vec::new();
        // If one grid gets batches, all writes to grids are sent as batches, in one message a server.
        let as_batches = held
            .iter()
            .any(|(group, hold)| hold.geometry.grid.is_some() && group.has_batches());
        for (group, hold) in &held {
            let begins = items.len();
            let made = group.items.iter();
            let item = |begun| client.item(group, &hold.geometry, begun, as_batches);
            items.extend(made.map(item));
            sites.push(client.site(&group.object, &hold.geometry, &mut items, begins));
        }
        let mut settled = settle(client, &items, &mut sites);
        for (item, verdict) in items.iter_mut().zip(&mut settled) {
            if let Some(verdict) = verdict.take() {
                item.verdict = Some(verdict);
            }
        }
        let replies: Vec<Option<CommitReply>> = sites.iter_mut().map(|s| s.reply.take()).collect();
        let verdicts: Vec<Verdict> = items
            .into_iter()
            .map(|item| item.verdict.unwrap_or(Verdict::Over(Ok(()))))
            .collect();
        (verdicts.into_iter(), replies)
    };
    let groups: Vec<Group> = held.into_iter().map(|(group, _)| group).collect();
    let mut again = Vec::new();
    for (group, reply) in groups.into_iter().zip(replies) {
        let mut own: Vec<Verdict> = verdicts.by_ref().take(group.items.len()).collect();
        if group.items.iter().any(|begun| begun.plan.commits) {
            client.after(&group.object, reply, &mut own);
        } else if let Some(reply) = reply {
            client.take_late(&group.object, &reply);
        }
        again.extend(runner.judge(group, own));
    }
    again
}

/// Sends all data and commits it; returns the verdicts on the items that have not failed before.
fn settle(client: &Client, items: &[Item<'_>], sites: &mut [Site<'_>]) -> Vec<Option<Verdict>> {
    let mut verdicts: Vec<Option<Verdict>> = Vec::new();
    let mut pieces = Pieces::default();
    // After one transfer has waited in vain, the others fail at once with its error.
    let mut in_vain: Option<FsError> = None;
    for site in &*sites {
        for item in &items[site.items.clone()] {
            let begins = (pieces.chunks.len(), pieces.grid.len());
            let made = match (&item.verdict, &in_vain) {
                (Some(_), _) => Ok(()),
                (None, Some(error)) => Err(error.clone()),
                (None, None) => client.pieces(site.object, item, &mut pieces),
            };
            if let Err(error) = &made
                && error.is_in_vain()
            {
                in_vain.get_or_insert_with(|| error.clone());
            }
            if made.is_err() {
                pieces.chunks.truncate(begins.0);
                pieces.grid.truncate(begins.1);
            }
            let own = (begins.0..pieces.chunks.len(), begins.1..pieces.grid.len());
            pieces.of.push(own);
            verdicts.push(made.err().map(Verdict::from));
        }
    }
    for site in &*sites {
        if site.geometry.grid.is_some() {
            let mut state = site.object.state.lock();
            for (_, grid) in &pieces.of[site.items.clone()] {
                let chunks = pieces.grid[grid.clone()].iter().map(|part| &part.chunk);
                let names = chunks.map(|chunk| (chunk.server, chunk.name.clone()));
                state.unsynced.extend(names);
            }
        }
    }
    let verifiers = client.send_items(items, &mut pieces, &mut verdicts);
    for site in &*sites {
        site.object.state.lock().unsynced.note(&verifiers);
    }
    for site in sites {
        match site.geometry.grid {
            Some(_) => client.placed(site, items, &mut verdicts),
            None => client.commit_transfers(site, items, &mut pieces, &mut verdicts),
        }
    }
    verdicts
}

impl Client {
    /// The data of a transfer, and its parts.
    fn item<'a>(
        &self,
        group: &'a Group,
        geometry: &'a Geometry,
        begun: &'a Begun,
        as_batches: bool,
    ) -> Item<'a> {
        let object = &*group.object;
        let plan = &begun.plan;
        let mut parts = Vec::new();
        let is_batch = plan.batch.is_some();
        let is_encoded = plan.encoded.is_some();
        if plan.bounds.is_some() && geometry.grid.is_none() && !is_batch && !is_encoded {
            let most = self.chunk_limit();
            let elem = geometry.info.dtype.size();
            parts = cut(&plan.slab, elem, most, geometry.blocks.as_ref());
            let is_lattice = |part: &Part| !part.cells.is_box();
            if parts.iter().any(is_lattice) {
                let lattices: Vec<Hyperslab> =
                    parts.iter().map(|part| part.cells.clone()).collect();
                if self.is_crowded(object, geometry, &lattices) {
                    parts = parts.into_iter().flat_map(as_boxes).collect();
                }
            }
        }
        let one_chunk = geometry.grid.is_none() && parts.len() == 1;
        let nothing = || Slices::Borrowed(Vec::new());
        let packed = match is_batch || is_encoded {
            true => Ok(nothing()),
            false => plan.memory.take(begun.bytes(), one_chunk),
        };
        let sent = packed.and_then(|packed| match (is_batch, &geometry.grid) {
            (true, None) => Ok((nothing(), self.batch_as_chunks(group, geometry, begun)?)),
            (true, Some(_)) => Ok((nothing(), self.batch_in_place(object, geometry, begun))),
            (false, Some(_)) if as_batches => {
                let sent = self.selection_in_place(object, geometry, begun, packed)?;
                Ok((nothing(), sent))
            }
            (false, _) => Ok((packed, Sent::Selection)),
        });
        let (packed, batch, verdict) = match sent {
            Ok((packed, batch)) => (packed, batch, None),
            Err(error) => (nothing(), Sent::Selection, Some(Verdict::from(error))),
        };
        Item {
            begun,
            geometry,
            packed,
            parts,
            batch,
            verdict,
        }
    }

    /// Begins the writes of an object.
    fn site<'a>(
        &'a self,
        object: &'a Object,
        geometry: &'a Geometry,
        items: &mut [Item<'_>],
        begins: usize,
    ) -> Site<'a> {
        let mut allowed = None;
        let own = &mut items[begins..];
        if geometry.grid.is_some() {
            let reach = own.iter().map(|item| item.begun.plan.reach(geometry)).max();
            let permit = self.clear_spilled(object, geometry);
            let permit = permit.and_then(|()| self.allowed(object, geometry));
            let permit = permit.and_then(|allowed| {
                self.reserve(object, geometry, reach.unwrap_or(0))?;
                Ok(allowed)
            });
            match permit {
                Ok(permit) => allowed = Some(permit),
                Err(error) => {
                    for item in own.iter_mut() {
                        item.verdict = Some(Verdict::from(error.clone()));
                    }
                }
            }
        }
        Site {
            object,
            geometry,
            items: begins..items.len(),
            running: Some(object.begin_direct()),
            allowed,
            reply: None,
        }
    }

    /// Places the parts of a transfer on servers.
    fn pieces<'a>(
        &self,
        object: &Object,
        item: &'a Item<'_>,
        pieces: &mut Pieces<'a>,
    ) -> Result<(), FsError> {
        let slab = &item.begun.plan.slab;
        if item.begun.plan.bounds.is_none() {
            return Ok(());
        }
        match &item.batch {
            Sent::Selection => {}
            Sent::Chunks(chunks) => {
                for (slab, bytes) in chunks {
                    let data = Slices::Borrowed(vec![bytes]);
                    let chunk = self.new_chunk(item.geometry, slab.clone(), data)?;
                    pieces.chunks.push(chunk);
                }
                return Ok(());
            }
            Sent::InPlace(sent) => {
                return self.parts_in_place(object, item.geometry, sent, &mut pieces.grid);
            }
        }
        if let (Some(encoded), Some(shown)) = (&item.begun.plan.encoded, &item.begun.plan.bounds) {
            let data = Slices::Borrowed(vec![item.begun.bytes(), &encoded.end]);
            let (chunk, shown) = (encoded.chunk.clone(), shown.clone());
            let chunk = self.encoded_chunk(item.geometry, chunk, shown, encoded.codec, data)?;
            pieces.chunks.push(chunk);
            return Ok(());
        }
        if let Some(grid) = &item.geometry.grid {
            for part in grid_parts(grid, slab)? {
                pieces.grid.push(GridWrite {
                    chunk: self.grid_chunk(object, item.geometry, grid, part.at)?,
                    want: None,
                    data: some_of(&item.packed, slab, &part.want),
                    slab: part.chunk,
                });
            }
            return Ok(());
        }
        for part in &item.parts {
            let data = some_of(&item.packed, slab, &part.packed);
            let chunk = self.new_chunk(item.geometry, part.cells.clone(), data)?;
            pieces.chunks.push(chunk);
        }
        Ok(())
    }

    /// Sends all pieces together; if that fails, those of each transfer, so that each has its own result. A server that
    /// is away is waited for once.
    fn send_items(
        &self,
        items: &[Item<'_>],
        pieces: &mut Pieces<'_>,
        verdicts: &mut [Option<Verdict>],
    ) -> Verifiers {
        let mut away = Away::default();
        // A long batch is sent by itself; then so are the others.
        let most = self.most_at_once();
        if !items.iter().any(|item| item.batch.is_long(most)) {
            let both = items.iter().zip(&pieces.of);
            let batches = both.filter_map(|(item, (_, grid))| {
                let parts = &pieces.grid[grid.clone()];
                item.batch.as_batch(parts)
            });
            let batches: Vec<BatchWrite<'_>> = batches.collect();
            // With batches all parts of grids are theirs.
            let grid = match batches.is_empty() {
                true => pieces.grid.as_slice(),
                false => &[],
            };
            match self.send(&pieces.chunks, grid, &batches) {
                Ok(verifiers) => return verifiers,
                Err(error) => away.note(&error.into()),
            }
        }
        let mut verifiers = Verifiers::new();
        for (at, item) in items.iter().enumerate() {
            if item.verdict.is_some() || verdicts[at].is_some() {
                continue;
            }
            let (chunks, grid) = pieces.of[at].clone();
            let (chunks, grid) = (&mut pieces.chunks[chunks], &pieces.grid[grid]);
            let servers = chunks.iter().map(|chunk| chunk.stored.server);
            let servers = servers.chain(grid.iter().map(|part| part.chunk.server));
            let sent = match away.check(servers) {
                Err(error) => {
                    self.discard_new_but(chunks, |server| away.has(server));
                    Err(error)
                }
                Ok(()) if item.batch.is_long(most) => {
                    self.write_long_batch(item.begun, &item.batch, grid)
                }
                Ok(()) => self.send_chunks(item.geometry, chunks).and_then(|mut all| {
                    all.extend(match item.batch.as_batch(grid) {
                        _ if grid.is_empty() => Verifiers::new(),
                        Some(batch) => self.send(&[], &[], &[batch])?,
                        None => self.send(&[], grid, &[])?,
                    });
                    Ok(all)
                }),
            };
            match sent {
                Ok(sent) => verifiers.extend(sent),
                Err(error) => {
                    away.note(&error);
                    verdicts[at] = Some(Verdict::from(error));
                }
            }
        }
        verifiers
    }

    /// Completes writes in place of a grid; its commit follows when the object has been left.
    fn placed(&self, site: &mut Site<'_>, items: &[Item<'_>], verdicts: &mut [Option<Verdict>]) {
        let (object, geometry) = (site.object, site.geometry);
        let ended = site.allowed.take().map_or(Ok(()), Allowed::end);
        let mut done = Vec::new();
        let mut reach = 0;
        for at in site.items.clone() {
            if items[at].verdict.is_some() {
                continue;
            }
            if let (Err(error), None) = (&ended, &verdicts[at]) {
                verdicts[at] = Some(Verdict::from(error.clone()));
            }
            if verdicts[at].is_some() {
                let plan = &items[at].begun.plan;
                let reach = plan.reach(geometry).max(object.size(geometry));
                self.distrust(object, geometry, reach, std::iter::once(&plan.slab));
                continue;
            }
            let plan = &items[at].begun.plan;
            let Some(bounds) = &plan.bounds else { continue };
            object.note_placed(&ends_of(bounds));
            let moved = items[at].begun.plan.moved();
            object.stored.fetch_add(moved, Ordering::AcqRel);
            self.counters().write.transfer(moved);
            reach = reach.max(plan.reach(geometry));
            done.push(plan);
        }
        if done.is_empty() {
            return;
        }
        *object.written.lock() = Some(Time::now());
        object.touched.store(true, Ordering::Release);
        object.grow(geometry, reach);
        self.uncover_plans(site, reach, &done);
    }

    /// Commits the chunks of an object's transfers.
    fn commit_transfers(
        &self,
        site: &mut Site<'_>,
        items: &[Item<'_>],
        pieces: &mut Pieces<'_>,
        verdicts: &mut [Option<Verdict>],
    ) {
        let mut chosen: Vec<(usize, Range<usize>)> = Vec::new();
        let mut done: Vec<usize> = Vec::new();
        let mut records = 0;
        for at in site.items.clone() {
            let chunks = pieces.of[at].0.clone();
            if items[at].verdict.is_some() || verdicts[at].is_some() || chunks.is_empty() {
                continue;
            }
            if items[at].begun.is_cancelled() {
                self.discard_new(&pieces.chunks[chunks]);
                verdicts[at] = Some(Verdict::Over(Err(FsError::Cancelled)));
                continue;
            }
            done.push(at);
            // A transfer with more chunks than a commit takes is committed in parts.
            for from in chunks.clone().step_by(MAX_COMMIT_RECORDS) {
                let some = from..chunks.end.min(from + MAX_COMMIT_RECORDS);
                if records + some.len() > MAX_COMMIT_RECORDS {
                    self.commit_some(site, items, pieces, verdicts, &chosen);
                    chosen.clear();
                    records = 0;
                }
                records += some.len();
                chosen.push((at, some));
            }
        }
        if !chosen.is_empty() {
            self.commit_some(site, items, pieces, verdicts, &chosen);
        }
        done.retain(|&at| verdicts[at].is_none());
        if done.is_empty() {
            return;
        }
        for &at in &done {
            self.counters().write.transfer(items[at].begun.plan.moved());
        }
        let plans: Vec<&Plan> = done.iter().map(|&at| &items[at].begun.plan).collect();
        let reach = plans.iter().map(|plan| plan.reach(site.geometry)).max();
        self.uncover_plans(site, reach.unwrap_or(0), &plans);
    }

    /// One commit.
    fn commit_some(
        &self,
        site: &mut Site<'_>,
        items: &[Item<'_>],
        pieces: &Pieces<'_>,
        verdicts: &mut [Option<Verdict>],
        chosen: &[(usize, Range<usize>)],
    ) {
        let (object, geometry) = (site.object, site.geometry);
        let chunks = || {
            let own = chosen.iter().map(|(_, own)| own.clone());
            own.flat_map(|own| &pieces.chunks[own])
        };
        let records: Vec<(Hyperslab, Stored)> = chunks()
            .map(|chunk| (chunk.slab.clone(), Stored::Chunk(chunk.stored.clone())))
            .collect();
        let clips = match chunks().any(|chunk| chunk.clip.is_some()) {
            true => chunks().map(|chunk| chunk.clip.clone()).collect(),
            false => Vec::new(),
        };
        let written = chunks().map(|chunk| (chunk.stored.server, chunk.name.clone()));
        let reach = chosen
            .iter()
            .map(|(at, _)| items[*at].begun.plan.reach(geometry));
        let grown = object.grown.load(Ordering::Acquire);
        let reach = reach.max().unwrap_or(0);
        let now = Time::now();
        let _one = object.committing.lock();
        object.state.lock().unsynced.extend(written);
        let change = Change {
            size_at_least: if reach > geometry.size() {
                reach.max(grown)
            } else {
                grown
            },
            mtime: Some(now),
            wrote: true,
            stored: 0,
            reach,
        };
        match self.commit(object, geometry, records, clips, change) {
            Ok(reply) => {
                *object.written.lock() = Some(now);
                for (at, _) in chosen {
                    let bounds = items[*at].begun.plan.bounds.as_ref();
                    let ends: Option<Coords> = bounds.map(ends_of);
                    let cut = match is_cut(&reply, &ends) {
                        Ok(false) => None,
                        Ok(true) => Some(Verdict::Over(Err(FsError::TooBig(
                            "another mount shrank the object during the write".into(),
                        )))),
                        Err(error) => Some(Verdict::from(error)),
                    };
                    // An earlier failure of another part stays.
                    verdicts[*at] = verdicts[*at].take().or(cut);
                }
                site.reply = Some(reply);
            }
            Err(error) => {
                for (at, own) in chosen {
                    if error.is_stale() {
                        self.discard_new(&pieces.chunks[own.clone()]);
                    }
                    verdicts[*at] = Some(Verdict::from(error.clone()));
                }
            }
        }
    }

    /// Trims the dirty runs that existed when these writes began: the written data is later.
    fn uncover_plans(&self, site: &mut Site<'_>, reach: u64, plans: &[&Plan]) {
        let Some(running) = site.running.take() else {
            return;
        };
        let (object, geometry) = (site.object, site.geometry);
        let cells = geometry.cells_at(object.size(geometry).max(reach));
        // The commit of new chunks has dropped all cached blocks.
        let in_place = geometry.grid.is_some();
        let boxes = plans.iter().filter(|_| in_place);
        let boxes: Vec<Hyperslab> = boxes
            .flat_map(|plan| plan.boxes(geometry, &cells))
            .map(|region| Hyperslab::from_region(&region))
            .collect();
        self.uncover(object, &cells, running, boxes.iter(), |older| {
            for plan in plans {
                let Some(batch) = &plan.batch else {
                    older.remove_slab(&cells, &plan.slab);
                    continue;
                };
                // Its pieces are enumerated only if there are dirty runs below.
                if batch
                    .span
                    .is_some_and(|(from, to)| older.overlaps(from, to))
                {
                    batch.for_each_piece(&mut |from, to| older.remove(from, to));
                }
            }
        });
    }

    /// Adopts the form that a commit has returned, after the object has been left.
    fn take_late(&self, object: &Object, reply: &CommitReply) {
        let taken = match object.geometry.try_write() {
            Some(mut geometry) => self.adopt_reply(object, &mut geometry, reply),
            // A read holds the lock: the next commit or refresh returns the same form. Growth is remembered until
            // it is known to be committed.
            None if object.grown.load(Ordering::Acquire) == 0 => Ok(()),
            None => self.take_reply(object, reply),
        };
        if let Err(error) = taken {
            tracing::warn!(object = %object.ino, %error, "the reply to a commit could not be adopted");
        }
    }

    /// After the object has been left: commits a grid, and adopts the form that a commit has returned.
    fn after(&self, object: &Object, reply: Option<CommitReply>, verdicts: &mut [Verdict]) {
        if let Some(reply) = reply {
            return self.take_late(object, &reply);
        }
        let done = |verdict: &Verdict| matches!(verdict, Verdict::Over(Ok(())));
        if object.touched.load(Ordering::Acquire)
            && verdicts.iter().any(done)
            && let Err(error) = self.flush_object(object, Scope::Streams)
        {
            for verdict in verdicts.iter_mut().filter(|verdict| done(verdict)) {
                *verdict = Verdict::Over(Err(error.clone()));
            }
        }
    }
}
