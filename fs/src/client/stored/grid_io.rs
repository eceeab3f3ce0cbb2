//! Reads and writes of grid chunks: a grid has no chunk records; the position of a chunk is computed.
//!
//! Before bytes beyond the committed size are written, the metadata service records how far they may reach
//! (`reserve`). If this mount dies before it commits, the next mount that extends the object clears that tail first,
//! so that uncommitted bytes never become visible.

use std::sync::atomic::Ordering;
use std::time::Duration;

use slabfs_mdserver::api::{MdError, op};
use slabfs_model::layout::{Grid, GridPart};
use slabfs_model::{Coords, Hyperslab, Region, ServerId};
use slabfs_objstore::client::{ClipPiece, PunchPiece};
use slabfs_objstore::{ChunkForm, ChunkName};

use crate::client::Client;
use crate::client::buffer::payload::Payload;
use crate::client::commit::GridWrite;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;

/// A reservation reaches at least this far beyond the requested end, so that one request serves many writes.
const RESERVE_STEP: u64 = 256 << 20;

/// Upper bound of that step, in chunks.
const RESERVE_CHUNKS: u64 = 1024;

/// How often a reservation is retried, and after which pause, while another mount clears the tail.
const RESERVE_TRIES: u32 = 300;
const RESERVE_PAUSE: Duration = Duration::from_millis(100);

/// A region of more chunk positions than this is not enumerated; existing chunks are listed instead.
pub(in crate::client) const PLACES_WALKED: u64 = 4096;

/// Names per list request.
const LIST_PAGE: u32 = 10_000;

/// A grid chunk: its name, its server and its form.
pub(in crate::client) struct GridChunk {
    pub(in crate::client) name: ChunkName,
    pub(in crate::client) server: ServerId,
    pub(in crate::client) form: ChunkForm,
}

impl Client {
    /// The chunk at these grid coordinates.
    pub(in crate::client) fn grid_chunk(
        &self,
        object: &Object,
        geometry: &Geometry,
        grid: &Grid,
        at: Coords,
    ) -> Result<GridChunk, FsError> {
        let stripe = &geometry.info.stripe;
        if stripe.is_empty() {
            return Err(self.restripe(object)?);
        }
        let server = match &geometry.blocks {
            Some(blocks) => stripe[blocks.of_cell(&grid.chunk_region(&at).offset) % stripe.len()],
            None => grid.server(object.ino, &at, stripe),
        };
        self.ensure_known(server)?;
        Ok(GridChunk {
            server,
            form: ChunkForm {
                shape: grid.chunk.clone(),
                elem: geometry.info.dtype.size() as u32,
                codec: geometry.info.codec,
                fill: geometry.info.fill.clone(),
            },
            name: ChunkName::Grid {
                object: object.ino,
                generation: geometry.info.generation,
                at,
            },
        })
    }

    /// Assigns servers to an object that was created before any data server was known, once there is one. The
    /// returned error makes the caller refresh the object.
    fn restripe(&self, object: &Object) -> Result<FsError, FsError> {
        self.takers()?;
        // The metadata service assigns servers when an object is opened.
        self.md().call(op::Open { ino: object.ino })?;
        self.releases.lock().push(object.ino);
        Ok(FsError::Md(MdError::Stale))
    }

    /// Writes the cells of slabs into their chunks: one message a server. A packed payload belongs to one slab.
    pub(in crate::client) fn write_grid(
        &self,
        object: &Object,
        geometry: &Geometry,
        grid: &Grid,
        slabs: &[Hyperslab],
        payload: &Payload<'_>,
    ) -> Result<(), FsError> {
        let mut writes: Vec<GridWrite<'_>> = Vec::new();
        let mut parts: Vec<GridPart> = Vec::new();
        for slab in slabs {
            grid.plan(slab, &mut parts);
            for part in parts.drain(..) {
                writes.push(GridWrite {
                    chunk: self.grid_chunk(object, geometry, grid, part.at)?,
                    want: None,
                    data: payload.slices(slab, &part.want),
                    slab: part.chunk,
                });
            }
        }
        self.note_unsynced(object, writes.iter().map(|write| &write.chunk));
        let verifiers = self.send(&[], &writes, &[])?;
        object.state.lock().unsynced.note(&verifiers);
        let stored = slabs.iter().map(Hyperslab::volume).sum();
        object.stored.fetch_add(stored, Ordering::AcqRel);
        Ok(())
    }

    pub(in crate::client) fn note_unsynced<'a>(
        &self,
        object: &Object,
        chunks: impl IntoIterator<Item = &'a GridChunk>,
    ) {
        let mut state = object.state.lock();
        for chunk in chunks {
            state.unsynced.insert((chunk.server, chunk.name.clone()));
        }
    }

    /// Reserves space so that data may be written up to byte `end` of a grid object.
    pub(in crate::client) fn reserve(
        &self,
        object: &Object,
        geometry: &Geometry,
        end: u64,
    ) -> Result<(), FsError> {
        if end <= geometry.size() || end <= object.reserved.load(Ordering::Acquire) {
            return Ok(());
        }
        // Bounded, so that clearing the tail never takes very many chunks.
        let chunk: u64 = geometry.grid.as_ref().map_or(0, |grid| {
            grid.chunk
                .iter()
                .fold(1, |bytes, n| bytes.saturating_mul(*n))
        });
        let step = RESERVE_STEP
            .max(end / 2)
            .min(chunk.saturating_mul(RESERVE_CHUNKS));
        let upto = end.saturating_add(step).min(i64::MAX as u64);
        let mut tries = 0;
        loop {
            let reply = match self.md().call(op::Reserve {
                ino: object.ino,
                upto,
            }) {
                // Another mount is clearing the uncommitted tail of a dead one.
                Err(MdError::Busy) if tries < RESERVE_TRIES => {
                    tries += 1;
                    self.pause(RESERVE_PAUSE);
                    continue;
                }
                other => other?,
            };
            match reply.clear {
                None => {
                    object.reserved.store(reply.upto, Ordering::Release);
                    return Ok(());
                }
                Some((from, to)) => {
                    tracing::info!(object = %object.ino, from, to,
                        "clearing bytes that a mount wrote and never committed");
                    self.clear_grid(object, geometry, from, to)?;
                }
            }
        }
    }

    /// Resets bytes `from` to `to` of a grid object to the fill value.
    pub(in crate::client) fn clear_grid(
        &self,
        object: &Object,
        geometry: &Geometry,
        from: u64,
        to: u64,
    ) -> Result<(), FsError> {
        let Some(grid) = &geometry.grid else {
            return Ok(());
        };
        if from >= to || geometry.row == 0 {
            return Ok(());
        }
        // Sizes of grid objects are complete rows, so the tail is a box.
        let rows = |bytes: u64| match geometry.cells.len() {
            1 => bytes,
            _ => bytes.div_ceil(geometry.row),
        };
        let mut keep = geometry.cells.clone();
        keep[0] = rows(from);
        let mut tail = Region::all(&geometry.cells);
        tail.offset[0] = rows(from);
        tail.shape[0] = rows(to).saturating_sub(rows(from));
        self.cut_chunks(object, geometry, grid, &tail, &keep)
    }

    /// Clears what failed writes may have stored beyond the size, before the object grows over it. Waits until no such
    /// write can be carried out any more.
    pub(in crate::client) fn clear_spilled(
        &self,
        object: &Object,
        geometry: &Geometry,
    ) -> Result<(), FsError> {
        if object.spilled.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        // No write is under way meanwhile, so all that was acknowledged lies below the size.
        let _alone = object.flushing.write();
        let to = object.spilled.load(Ordering::Acquire);
        self.servers().end_unanswered(object.ino)?;
        self.clear_grid(object, geometry, object.size(geometry), to)?;
        object.spilled.store(0, Ordering::Release);
        Ok(())
    }

    /// Clips the chunks that `gone` touches to the cells below `keep`; chunks with no cells below it are deleted.
    pub(in crate::client) fn cut_chunks(
        &self,
        object: &Object,
        geometry: &Geometry,
        grid: &Grid,
        gone: &Region,
        keep: &[u64],
    ) -> Result<(), FsError> {
        if gone.is_empty() {
            return Ok(());
        }
        let mut deleted = Vec::new();
        let mut cut = Vec::new();
        for at in self.places(object, geometry, grid, gone)? {
            let region = grid.chunk_region(&at);
            let chunk = self.grid_chunk(object, geometry, grid, at)?;
            let left: Coords = (0..region.rank())
                .map(|axis| {
                    keep[axis]
                        .saturating_sub(region.offset[axis])
                        .min(region.shape[axis])
                })
                .collect();
            if left.contains(&0) {
                deleted.push((chunk.server, chunk.name));
            } else {
                cut.push((chunk, left));
            }
        }
        let pieces: Vec<ClipPiece<'_>> = cut
            .iter()
            .map(|(chunk, keep)| ClipPiece {
                server: chunk.server,
                name: &chunk.name,
                form: &chunk.form,
                keep,
            })
            .collect();
        self.note_unsynced(object, cut.iter().map(|(chunk, _)| chunk));
        // A deletion that a server loses shows old data when the object grows again.
        object.state.lock().unsynced.extend(deleted.iter().cloned());
        let verifiers = self.servers().clip(&pieces)?;
        object.state.lock().unsynced.note(&verifiers);
        self.servers().delete(&deleted)?;
        Ok(())
    }

    /// Punches a box of cells out of a grid object; returns the number of bytes freed.
    pub(in crate::client) fn punch_grid(
        &self,
        object: &Object,
        geometry: &Geometry,
        grid: &Grid,
        region: &Region,
    ) -> Result<u64, FsError> {
        // A chunk that is punched completely is deleted: a chunk that was never written is a hole.
        let mut deleted = Vec::new();
        let mut holed = Vec::new();
        for at in self.places(object, geometry, grid, region)? {
            let place = grid.chunk_region(&at);
            let Some(hole) = place.intersect(region) else {
                continue;
            };
            let hole = hole.within(&place);
            let chunk = self.grid_chunk(object, geometry, grid, at)?;
            if hole.shape == place.shape {
                deleted.push((chunk.server, chunk.name));
            } else {
                holed.push((chunk, Hyperslab::from_region(&hole)));
            }
        }
        let pieces: Vec<PunchPiece<'_>> = holed
            .iter()
            .map(|(chunk, slab)| PunchPiece {
                server: chunk.server,
                name: &chunk.name,
                form: &chunk.form,
                slab,
            })
            .collect();
        self.note_unsynced(object, holed.iter().map(|(chunk, _)| chunk));
        object.state.lock().unsynced.extend(deleted.iter().cloned());
        let holed = holed.iter().map(|(chunk, _)| (chunk.server, &chunk.name));
        let touched = deleted
            .iter()
            .map(|(server, name)| (*server, name))
            .chain(holed);
        let touched: Vec<_> = touched
            .map(|(server, name)| (server, name.clone(), u64::MAX))
            .collect();
        let bytes = || -> Result<u64, FsError> {
            let allocated = self.servers().allocated(&touched)?;
            Ok(allocated.iter().map(|one| one.bytes).sum())
        };
        let before = bytes()?;
        self.servers().delete(&deleted)?;
        let verifiers = self.servers().punch(&pieces)?;
        object.state.lock().unsynced.note(&verifiers);
        Ok(before.saturating_sub(bytes()?))
    }

    /// The chunk positions of a grid that a region touches; for a very large region, only those of existing chunks.
    fn places(
        &self,
        object: &Object,
        geometry: &Geometry,
        grid: &Grid,
        region: &Region,
    ) -> Result<Vec<Coords>, FsError> {
        let count = (0..region.rank())
            .map(|axis| {
                let (first, last) = (region.offset[axis], region.end(axis).saturating_sub(1));
                last / grid.chunk[axis] - first / grid.chunk[axis] + 1
            })
            .fold(1u64, u64::saturating_mul);
        if count <= PLACES_WALKED {
            let mut parts = Vec::new();
            grid.plan(&Hyperslab::from_region(region), &mut parts);
            return Ok(parts.into_iter().map(|part| part.at).collect());
        }
        let mut places = self.existing(object, geometry)?;
        places.retain(|at| {
            at.len() == region.rank() && grid.chunk_region(at).intersect(region).is_some()
        });
        Ok(places)
    }

    /// The sorted positions of the existing chunks of a grid object, as listed by the servers.
    pub(in crate::client) fn existing(
        &self,
        object: &Object,
        geometry: &Geometry,
    ) -> Result<Vec<Coords>, FsError> {
        let (ino, generation) = (object.ino, geometry.info.generation);
        // Names listed after these belong to other objects.
        let most = geometry.grid.as_ref().map_or(u64::MAX, |grid| {
            let counts = geometry.cells.iter().zip(&grid.chunk);
            counts
                .map(|(cells, chunk)| cells.div_ceil(*chunk))
                .fold(1, u64::saturating_mul)
        });
        let limit = most.saturating_add(1).min(LIST_PAGE.into()) as u32;
        let mut places = Vec::new();
        for &server in &geometry.info.stripe {
            self.ensure_known(server)?;
            let mut after = Some(ChunkName::Grid {
                object: ino,
                generation,
                at: Coords::new(),
            });
            loop {
                let page = self.servers().list(server, after.take(), limit)?;
                let mut beyond = page.is_empty();
                for (name, _) in page {
                    match &name {
                        ChunkName::Grid {
                            object,
                            generation: of,
                            at,
                        } if *object == ino && *of == generation => places.push(at.clone()),
                        _ => beyond = true,
                    }
                    after = Some(name);
                }
                if beyond {
                    break;
                }
            }
        }
        places.sort_unstable();
        places.dedup();
        Ok(places)
    }
}
