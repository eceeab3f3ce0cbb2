//! Draining a data server: moves all its chunks to other servers, a slice at a time.
//!
//! The caller calls [`Client::drain_slice`] again and again; between two calls the only state is the mark at the
//! metadata service, so a drain that was interrupted can simply be started again.
//!
//! A chunk of an `aligned` object is copied under a new id, synced, and replaces the old one if that still exists.
//! Grid chunks are copied under an exclusive permit, under their names, and then the object's stripe names another
//! server. Writers wait for the latter and never for the former; readers wait for neither. Of a grid chunk only the
//! pages that are not fill are copied, and no fill after the last of them: the copy is as sparse as the chunk, and no
//! longer.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use slabfs_mdserver::api::{Entry, Ino, MdError, ServerInfo, Stored, StoredChunk, op};
use slabfs_model::layout::{Grid, Record, boxes_of_run};
use slabfs_model::{ChunkId, Coords, Fill, Hyperslab, ObjectId, ServerId};
use slabfs_objstore::client::{Verifiers, WriteKind, WritePiece};
use slabfs_objstore::{ChunkName, StoreError};

use crate::client::Client;
use crate::client::commit::Unsynced;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::stored::grid_io::GridChunk;
use crate::client::stored::tilings::Need;

/// Duration of a slice; the chunks being copied are finished.
const SLICE: Duration = Duration::from_millis(700);
/// Bytes copied before the records are committed, and bytes in one step.
const BATCH_BYTES: u64 = 64 << 20;
const STEP: u64 = 8 << 20;
/// Chunks copied before the records are committed.
const BATCH_CHUNKS: usize = 1000;
/// Pages of a grid chunk that are all fill are not copied.
const PAGE: usize = 4096;

/// A copied chunk: its record, its old id, its copy, and its bytes.
struct Copied {
    order: u64,
    old: ChunkId,
    copy: StoredChunk,
    bytes: u64,
    /// Those of the server that the copy was written to.
    verifiers: Verifiers,
}

/// The result of a slice of a drain.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Drained {
    /// Chunks moved.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that have to be visited again: they are being written to, or not every mount knows the mark yet.
    pub busy: u64,
    /// Objects of which some chunk could not be moved.
    pub failed: u64,
    /// The error of the last of them.
    pub error: Option<String>,
    /// Where the next slice begins; none when all objects were visited.
    pub next: Option<u64>,
    /// From the first object to where the next slice begins, no object had a chunk on the server.
    pub clean: bool,
    /// The server holds no chunk.
    pub empty: bool,
    /// The server is offline; it is empty according to the metadata.
    pub away: bool,
}

impl Client {
    /// Marks a server as being drained, so that it gets no new chunks, or removes the mark.
    ///
    /// # Errors
    /// There is no such server, or none that could take its chunks.
    pub fn set_draining(&self, server: ServerId, draining: bool) -> Result<(), FsError> {
        self.md().call(op::SetDraining { server, draining })?;
        self.ask_servers()?;
        Ok(())
    }

    /// Moves chunks off a marked server, beginning after object `after` (0 for all); `clean` is the value that the
    /// previous slice returned. A server is empty when a complete round has found no chunk, over all pages of
    /// objects; in the last round, that of the last shard, it is asked for its chunks itself, unless it is known to be `away`.
    ///
    /// # Errors
    /// When the metadata service or the server is unreachable, or the server is not marked (any more); an error of a
    /// single object is reported in the result.
    pub fn drain_slice(
        self: &Arc<Self>,
        server: ServerId,
        after: u64,
        clean: bool,
        (last, away): (bool, bool),
    ) -> Result<Drained, FsError> {
        // Also so that no copy uses a list from before the mark.
        if !self.ask_servers()?.draining.contains(&server) {
            return Err(FsError::Invalid(format!(
                "data server {server} is not marked as being emptied; the mark may just have been removed"
            )));
        }
        let until = Instant::now() + SLICE;
        let mut done = Drained::default();
        let mut clean = clean || after == 0;
        let mut after = ObjectId(after);
        while let Some(next) = self.drain_page(server, after, until, &mut done, &mut clean)? {
            after = next;
            if Instant::now() >= until {
                done.next = Some(next.0);
                break;
            }
        }
        done.clean = clean;
        if clean && last && done.next.is_none() {
            let servers = self.md().call(op::Servers {})?;
            let offline = |known: &ServerInfo| known.id == server && !known.online;
            done.away = away || servers.iter().any(offline);
            // Chunks it may still store are garbage: it has to delete them when it returns.
            done.empty = done.away || {
                self.ensure_known(server)?;
                self.servers().list(server, None, 1)?.is_empty()
            };
        }
        Ok(done)
    }

    /// Moves the chunks of one page of objects off a server; returns where the next page begins, if there is one and
    /// time is left. (When time is up within the page, `done` has where to continue.)
    fn drain_page(
        self: &Arc<Self>,
        server: ServerId,
        after: Ino,
        until: Instant,
        done: &mut Drained,
        clean: &mut bool,
    ) -> Result<Option<Ino>, FsError> {
        let page = self.md().call(op::Holdings { server, after })?;
        // Until every mount knows the mark, an object that was visited may still get a chunk there.
        *clean &= page.ready && page.objects.is_empty();
        for ino in &page.objects {
            let left = match self.drain_object(*ino, server, page.ready, until, done) {
                Ok(left) => left,
                Err(FsError::Md(MdError::NotFound)) => false,
                Err(FsError::Md(MdError::Stale | MdError::Busy)) => {
                    done.busy += 1;
                    false
                }
                Err(error) => {
                    tracing::warn!(object = %ino, %server, %error, "could not be moved");
                    done.failed += 1;
                    done.error = Some(format!("object {ino}: {error}"));
                    false
                }
            };
            if left {
                // Time is up within the object.
                done.next = Some(ino.0 - 1);
                return Ok(None);
            }
            if Instant::now() >= until {
                done.next = Some(ino.0);
                return Ok(None);
            }
        }
        Ok(page.next)
    }

    /// Moves an object's chunks off a server; true when time was up before the end.
    fn drain_object(
        self: &Arc<Self>,
        ino: Ino,
        server: ServerId,
        ready: bool,
        until: Instant,
        done: &mut Drained,
    ) -> Result<bool, FsError> {
        // Copies need a write permit, which ends with the session.
        let _attached = self.attached.read_recursive();
        let object = self.borrow(ino)?;
        self.refresh(&object)?;
        let geometry = object.geometry.read().clone();
        match &geometry.grid {
            None => self.drain_aligned(&object, &geometry, server, until, done),
            Some(_) if !ready => {
                done.busy += 1;
                Ok(false)
            }
            Some(_) => {
                self.drain_grid(&object, &geometry, server, done)?;
                Ok(false)
            }
        }
    }

    fn drain_aligned(
        &self,
        object: &Object,
        geometry: &Geometry,
        server: ServerId,
        until: Instant,
        done: &mut Drained,
    ) -> Result<bool, FsError> {
        let again;
        let mut geometry = geometry;
        if geometry.info.stripe.contains(&server) {
            // The stripe first: copies follow the new placement.
            self.commit_moves(object, geometry, Vec::new(), done)?;
            again = object.geometry.read().clone();
            geometry = &again;
            if geometry.grid.is_some() {
                return Err(FsError::Md(MdError::Stale));
            }
        }
        object.tiling.outdate();
        let records: Vec<Record<Stored>> = self.with_tiling(object, geometry, Need::All, |tiling| {
            let there = |record: &&Record<Stored>| matches!(&record.value, Stored::Chunk(chunk) if chunk.server == server);
            tiling.iter().filter(there).cloned().collect()
        })?;
        let mut records = records.into_iter().peekable();
        loop {
            let mut moves = Vec::new();
            let mut bytes = 0;
            while bytes < BATCH_BYTES && moves.len() < BATCH_CHUNKS && Instant::now() < until {
                let Some(record) = records.next() else { break };
                match self.copy_chunk(geometry, &record, server) {
                    Ok(Some(copied)) => {
                        bytes += copied.bytes;
                        moves.push(copied);
                    }
                    Ok(None) => {}
                    // Overwritten since.
                    Err(FsError::Store(StoreError::Missing(_))) => {}
                    Err(error) => {
                        self.commit_moves(object, geometry, moves, done)?;
                        return Err(error);
                    }
                }
            }
            self.commit_moves(object, geometry, moves, done)?;
            if records.peek().is_none() {
                return Ok(false);
            }
            if Instant::now() >= until {
                return Ok(true);
            }
        }
    }

    /// Copies the chunk of a record off the server `from`.
    fn copy_chunk(
        &self,
        geometry: &Geometry,
        record: &Record<Stored>,
        from: ServerId,
    ) -> Result<Option<Copied>, FsError> {
        let Stored::Chunk(old) = &record.value else {
            return Ok(None);
        };
        let form = old.form(&record.slab, &geometry.info);
        let mut data = vec![0; record.slab.volume() as usize];
        let slab = Hyperslab::all(&form.shape);
        self.ensure_known(old.server)?;
        self.read_one(old.server, &old.name(), &form, &slab, &mut data)?;
        loop {
            let Some(bounds) = record.slab.bounds() else {
                return Ok(None);
            };
            let (chunk, server) =
                self.place_off(geometry, &bounds, data.len() as u64, Some(from))?;
            let copy = StoredChunk {
                chunk,
                server,
                codec: old.codec,
            };
            let sent = self.servers().write(&[WritePiece {
                server,
                name: &copy.name(),
                form: &form,
                kind: WriteKind::Put,
                data: &[IoSlice::new(&data)],
            }]);
            let verifiers = match sent {
                Err(StoreError::NoSpace) if self.full(geometry, server) => continue,
                other => other?,
            };
            return Ok(Some(Copied {
                verifiers,
                order: record.order,
                old: old.chunk,
                copy,
                bytes: data.len() as u64,
            }));
        }
    }

    /// Syncs copies; fails if a server may have lost some of them, going by its verifiers when they were written.
    fn sync_copies(
        &self,
        copies: &[(ServerId, ChunkName)],
        written: Verifiers,
    ) -> Result<(), FsError> {
        if copies.is_empty() {
            return Ok(());
        }
        let mut unsynced = Unsynced::default();
        unsynced.extend(copies.iter().cloned());
        unsynced.note(&written);
        let synced = self.servers().sync(copies)?;
        match unsynced.lost_at(&synced) {
            Some(server) => Err(FsError::Unsynced(server)),
            None => Ok(()),
        }
    }

    /// Syncs copies and commits that they replace the chunks they were copied from.
    fn commit_moves(
        &self,
        object: &Object,
        geometry: &Geometry,
        moves: Vec<Copied>,
        done: &mut Drained,
    ) -> Result<(), FsError> {
        let names: Vec<(ServerId, ChunkName)> = moves
            .iter()
            .map(|moved| (moved.copy.server, moved.copy.name()))
            .collect();
        let written = moves.iter().flat_map(|moved| moved.verifiers.clone());
        self.sync_copies(&names, written.collect())?;
        let changes = moves
            .iter()
            .map(|moved| (moved.order, moved.old, moved.copy.clone()))
            .collect();
        let reply = self.md().call(op::Relocate {
            ino: object.ino,
            generation: geometry.info.generation,
            moves: changes,
        });
        let relocated = match reply {
            Ok(relocated) => relocated,
            Err(error) => {
                self.discard_chunks(&names);
                return Err(error.into());
            }
        };
        let useless: Vec<(ServerId, ChunkName)> = names
            .iter()
            .filter(
                |(_, name)| matches!(name, ChunkName::Free(id) if relocated.useless.contains(id)),
            )
            .cloned()
            .collect();
        for moved in &moves {
            if !relocated.useless.contains(&moved.copy.chunk) {
                done.chunks += 1;
                done.bytes += moved.bytes;
            }
        }
        if !useless.is_empty() {
            self.discard_chunks(&useless);
        }
        self.take_moved(object, &relocated.entry)
    }

    /// Adopts the form of an object whose chunks have moved.
    fn take_moved(&self, object: &Object, entry: &Entry) -> Result<(), FsError> {
        let mut geometry = object.geometry.write();
        object.tiling.outdate();
        self.adopt(object, &mut geometry, entry)?;
        Ok(())
    }

    /// Moves the grid chunks of an object off a server to another one.
    fn drain_grid(
        &self,
        object: &Object,
        geometry: &Geometry,
        server: ServerId,
        done: &mut Drained,
    ) -> Result<(), FsError> {
        let to = self.other_server(&geometry.info.stripe, server)?;
        let Some((held, permitted)) = self.exclusive(object.ino, to)? else {
            done.busy += 1;
            return Ok(());
        };
        // No write is running now: this is the form that counts.
        let now = Geometry::new(&permitted.entry)?;
        let Some(grid) = now.grid.clone() else {
            return Err(FsError::Md(MdError::Stale));
        };
        if !now.info.stripe.contains(&server) {
            drop(held);
            return self.take_moved(object, &permitted.entry);
        }
        let (mut copies, mut bytes) = (Vec::new(), 0);
        let mut verifiers = Verifiers::new();
        for name in self.chunks_of(&now, object.ino, server)? {
            let ChunkName::Grid { at, .. } = &name else {
                continue;
            };
            if self.grid_chunk(object, &now, &grid, at.clone())?.server != server {
                continue;
            }
            let extent = extent_of(&now, &grid, at, permitted.reach);
            let moved = (server, to, &mut verifiers);
            bytes += self.copy_grid_chunk(object, &now, at, extent, moved)?;
            copies.push((to, name));
        }
        self.sync_copies(&copies, verifiers)?;
        let entry = self.md().call(op::Restripe {
            ino: object.ino,
            generation: now.info.generation,
            from: server,
            to,
        })?;
        done.chunks += copies.len() as u64;
        done.bytes += bytes;
        drop(held);
        self.take_moved(object, &entry)
    }

    /// A server to replace another one: one without chunks of the object, if there is one.
    fn other_server(&self, stripe: &[ServerId], from: ServerId) -> Result<ServerId, FsError> {
        let known = self.takers()?;
        let others = known.takers.iter().copied().filter(|id| *id != from);
        let others: Vec<ServerId> = others.collect();
        let fresh = others.iter().copied().filter(|id| !stripe.contains(id));
        let fresh: Vec<ServerId> = fresh.collect();
        let among = if fresh.is_empty() { &others } else { &fresh };
        self.emptiest(among, 0)
    }

    /// The names of an object's grid chunks on a server.
    fn chunks_of(
        &self,
        geometry: &Geometry,
        object: Ino,
        server: ServerId,
    ) -> Result<Vec<ChunkName>, FsError> {
        self.ensure_known(server)?;
        let generation = geometry.info.generation;
        let mut names = Vec::new();
        let mut after = ChunkName::Grid {
            object,
            generation,
            at: Coords::new(),
        };
        loop {
            let page = self.servers().list(server, Some(after.clone()), 10_000)?;
            let Some((last, _)) = page.last() else {
                return Ok(names);
            };
            after = last.clone();
            let count = page.len();
            let its = page.into_iter().map(|(name, _)| name).filter(|name| {
                matches!(name, ChunkName::Grid { object: of, generation: its, .. } if *of == object && *its == generation)
            });
            let before = names.len();
            names.extend(its);
            if names.len() - before < count {
                return Ok(names);
            }
        }
    }

    /// Copies one grid chunk that has no data after `total`; returns the number of bytes copied.
    fn copy_grid_chunk(
        &self,
        object: &Object,
        geometry: &Geometry,
        at: &Coords,
        total: u64,
        (from, to, verifiers): (ServerId, ServerId, &mut Verifiers),
    ) -> Result<u64, FsError> {
        let Some(grid) = &geometry.grid else {
            return Err(FsError::Md(MdError::Stale));
        };
        let chunk = self.grid_chunk(object, geometry, grid, at.clone())?;
        // Data left there by an earlier attempt must not show through.
        self.servers().delete(&[(to, chunk.name.clone())])?;
        let (mut offset, mut copied) = (0, 0);
        let mut data = Vec::new();
        while offset < total {
            let len = STEP.min(total - offset);
            let mut boxes = Vec::new();
            boxes_of_run(&chunk.form.shape, offset, len, &mut boxes);
            for region in boxes {
                let slab = Hyperslab::from_region(&region);
                data.clear();
                data.resize(region.volume() as usize, 0);
                self.read_one(from, &chunk.name, &chunk.form, &slab, &mut data)?;
                // A box of a run is a run itself.
                let runs = written(&data, offset, &geometry.info.fill);
                for run in &runs {
                    let at = offset + run.start as u64;
                    verifiers.extend(self.put_run(&chunk, to, at, &data[run.clone()])?);
                    copied += run.len() as u64;
                }
                offset += data.len() as u64;
            }
        }
        Ok(copied)
    }

    /// Writes bytes of a grid chunk from `offset` on, to a server that is not yet the chunk's own.
    fn put_run(
        &self,
        chunk: &GridChunk,
        server: ServerId,
        offset: u64,
        data: &[u8],
    ) -> Result<Verifiers, FsError> {
        let mut boxes = Vec::new();
        boxes_of_run(&chunk.form.shape, offset, data.len() as u64, &mut boxes);
        let slabs: Vec<Hyperslab> = boxes.iter().map(Hyperslab::from_region).collect();
        let mut rest = data;
        let parts: Vec<[IoSlice<'_>; 1]> = boxes
            .iter()
            .map(|region| {
                let part;
                (part, rest) = rest.split_at(region.volume() as usize);
                [IoSlice::new(part)]
            })
            .collect();
        let pieces = slabs.iter().zip(&parts).map(|(slab, part)| WritePiece {
            server,
            name: &chunk.name,
            form: &chunk.form,
            kind: WriteKind::Write(slab),
            data: part,
        });
        Ok(self.servers().write(&pieces.collect::<Vec<_>>())?)
    }
}

/// The runs of pages of `data`, which lies at `offset` of a chunk, that are not all fill; trailing fill is not part
/// of a run.
fn written(data: &[u8], offset: u64, fill: &Fill) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut blank = [0; PAGE];
    for (page, bytes) in data.chunks(PAGE).enumerate() {
        let at = page * PAGE;
        let blank = &mut blank[..bytes.len()];
        if !fill.is_zero() {
            fill.paint(blank, offset + at as u64);
        }
        let Some(last) = bytes
            .iter()
            .zip(&*blank)
            .rposition(|(byte, fill)| byte != fill)
        else {
            continue;
        };
        let end = at + last + 1;
        match runs.last_mut() {
            // The rest of the previous run's last page is fill.
            Some(run) if run.end > at.saturating_sub(PAGE) => run.end = end,
            _ => runs.push(at..end),
        }
    }
    runs
}

/// Bytes of a grid chunk that may have been written: all of it, except for a file, or a very long chunk, only as far
/// as the object reaches.
fn extent_of(geometry: &Geometry, grid: &Grid, at: &Coords, reach: u64) -> u64 {
    let mut shape = grid.chunk.iter();
    let volume = shape.try_fold(1u64, |all, &n| all.checked_mul(n));
    if let [all] = grid.chunk[..] {
        let start = grid.chunk_region(at).offset[0];
        return all.min(reach.saturating_sub(start));
    }
    if let Some(volume) = volume.filter(|&volume| volume <= 1 << 30) {
        return volume;
    }
    // One chunk holds all rows, or elements.
    let row: u64 = geometry.cells.iter().skip(1).product();
    let start = grid.chunk_region(at).offset[0].saturating_mul(row);
    geometry.full_rows(reach.saturating_sub(start))
}
