//! Flushes: write dirty runs back as boxes (`slabs`), store the boxes as chunks, and commit the chunks to the object.
//!
//! **Data first, receipt, then commit.** A flush takes runs out of the dirty map (reads still see them), seals the
//! streams in its scope, sends all data to the servers, one message a server, and commits once. Only then are the
//! taken runs dropped. If a step fails, the runs go back into the dirty map, below data written meanwhile, and the
//! next flush tries again.
//!
//! Chunks that the servers have, but not yet on disk, are listed in `unsynced`. `fsync` syncs them, then the metadata
//! journal, then settles the object, which lets the servers delete replaced chunks.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slabfs_mdserver::api::{Commit, CommitReply, Entry, MdError, Stored, StoredChunk};
use slabfs_model::layout::{Record, coalesce};
use slabfs_model::{Coords, Hyperslab, Region, ServerId};
use slabfs_objstore::client::{WriteKind, WritePiece};
use slabfs_objstore::{ChunkForm, ChunkName, StoreError};

use super::error::FsError;
use super::geometry::Geometry;
use super::handle::Handle;
use super::object::{Object, ends_of};
use super::payload::{Payload, Slices, slices_of};
use super::runs::Runs;
use super::stream::Stream;
use super::writer::HandleId;
use super::{Client, FORM_TRIES};

/// The data a flush writes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The dirty data of one handle.
    Handle(HandleId),
    /// Everything.
    All,
    /// Everything but an incomplete last row: memory is short, and the writer continues.
    Pressure,
    /// Only the open streams.
    Streams,
}

/// A slab that becomes a chunk.
pub(super) struct NewChunk<'a> {
    /// The bounding box of the slab.
    region: Region,
    pub(super) slab: Hyperslab,
    pub(super) stored: StoredChunk,
    pub(super) name: ChunkName,
    pub(super) form: ChunkForm,
    pub(super) data: Slices<'a>,
}

impl Handle {
    /// Writes back this handle's dirty data, as `close(2)` does, and returns a deferred error.
    ///
    /// # Errors
    /// Of this flush, or of one in the background since the last call.
    pub fn flush(&self) -> Result<(), FsError> {
        let flushed = match self.writable {
            true => self
                .client
                .admit(&self.object)
                .and_then(|_| match self.has_dirty() {
                    true => self
                        .client
                        .flush_object(&self.object, Scope::Handle(self.id)),
                    false => Ok(()),
                }),
            false => Ok(()),
        };
        self.clear_up(&flushed);
        // Descriptors are shared by `dup` and `fork`, and every `close` flushes. `close` returns the error but does not
        // clear it: a child that exits must not consume the error that the parent's `fsync` has to return.
        flushed.and(self.waiting.look())
    }

    /// After a lost session, waits for the recovery that reports the loss to all handles; this call returns it now.
    fn clear_up(&self, flushed: &Result<(), FsError>) {
        if flushed.as_ref().is_err_and(FsError::is_loss) {
            self.client.suspect();
            if let Err(error) = self.client.wait_alive() {
                tracing::debug!(object = %self.object.ino, %error, "the session has not recovered yet");
            }
        }
    }

    /// Writes back everything of the object, and returns when it is on the servers' disks and in the metadata
    /// service's journal. If the mount is not strict, also refreshes the object's form, so that later reads see what
    /// other mounts wrote back before.
    ///
    /// # Errors
    /// Of this flush, or of one in the background since the last call.
    pub fn fsync(&self) -> Result<(), FsError> {
        let synced = self
            .client
            .admit(&self.object)
            .and_then(|_| self.client.sync_object(&self.object))
            .and_then(|()| match self.client.strict() {
                true => Ok(()),
                // The second sync of sync-barrier-sync: from here on, data that another mount synced before is visible.
                false => self.client.refresh(&self.object),
            });
        self.clear_up(&synced);
        let waited = self.waiting.take();
        synced.and(waited)
    }

    /// Whether `flush` would have data to write back or would have to wait.
    pub fn has_dirty(&self) -> bool {
        if self.object.flushing.is_locked_exclusive() || self.object.geometry.try_read().is_none() {
            return true;
        }
        let state = self.object.state.lock();
        state.taken.is_some()
            || state.runs.has(self.id)
            || state.streams.iter().any(|stream| stream.writer == self.id)
            || (self.writable && self.object.touched.load(Ordering::Acquire))
    }
}

impl Client {
    /// Flushes; refreshes the object's form and retries if the form has changed on the server.
    pub(super) fn flush_object(&self, object: &Object, scope: Scope) -> Result<(), FsError> {
        for _ in 0..FORM_TRIES {
            let result = {
                let geometry = object.geometry.read();
                self.flush_shaped(object, &geometry, scope)
            };
            match result {
                Ok(None) => return Ok(()),
                Ok(Some(reply)) => return self.take_reply(object, &reply),
                Err(error) if error.is_stale() => self.refresh(object)?,
                Err(error) => return Err(error),
            }
        }
        Err(FsError::Unsettled(
            "a flush gave up; the data is retained for the next".into(),
        ))
    }

    /// Adopts the reply to a commit.
    pub(super) fn take_reply(&self, object: &Object, reply: &CommitReply) -> Result<(), FsError> {
        let mut geometry = object.geometry.write();
        self.adopt_reply(object, &mut geometry, reply)
    }

    /// As `take_reply`, under a geometry lock that the caller holds.
    pub(super) fn adopt_reply(
        &self,
        object: &Object,
        geometry: &mut Geometry,
        reply: &CommitReply,
    ) -> Result<(), FsError> {
        let written = Region::all(&geometry.cells_at(object.size(geometry)));
        self.adopt(
            object,
            geometry,
            &Entry {
                attr: reply.attr.clone(),
                info: Some(reply.info.clone()),
            },
        )?;
        self.cut_outside(object, geometry, &written)?;
        // Committed growth need not be remembered. Growth by a write in place after the flush looked at the size
        // stays: this lock is exclusive here, so such a write is either complete or not begun.
        if object.grown.load(Ordering::Acquire) <= geometry.size() {
            object.grown.store(0, Ordering::Release);
        }
        Ok(())
    }

    /// Another mount may have shrunk a grid object while this one wrote to its chunks: data that is outside now
    /// must not reappear when the object grows again.
    fn cut_outside(
        &self,
        object: &Object,
        geometry: &Geometry,
        written: &Region,
    ) -> Result<(), FsError> {
        let Some(grid) = &geometry.grid else {
            return Ok(());
        };
        let mut keep = geometry.cells_at(object.size(geometry));
        if written.rank() != keep.len() {
            return Ok(());
        }
        // Not after the last row: another mount may have data there that it has not committed yet.
        keep[0] = keep[0].max(written.end(0));
        if Region::all(&keep).contains(written) {
            return Ok(());
        }
        let mut outside = Vec::new();
        written.subtract(&Region::all(&keep), &mut outside);
        for gone in outside {
            self.cut_chunks(object, geometry, grid, &gone, &keep)?;
        }
        Ok(())
    }

    /// Flushes under a geometry lock that the caller holds; returns the reply to the commit, if there was one.
    pub(super) fn flush_shaped(
        &self,
        object: &Object,
        geometry: &Geometry,
        scope: Scope,
    ) -> Result<Option<CommitReply>, FsError> {
        let _alone = object.flushing.write();
        let streams = self.end_streams(object, geometry, scope)?;
        let taken = self.take_runs(object, geometry, scope);
        let result = self.write_back(object, geometry, &streams, &taken);
        let mut state = object.state.lock();
        state.taken = None;
        match &result {
            Ok(committed) => {
                object.stuck.store(false, Ordering::Release);
                if committed.is_some() {
                    self.flushes.fetch_add(1, Ordering::Relaxed);
                }
                let done: Vec<*const Stream> = streams.iter().map(Arc::as_ptr).collect();
                state.streams.retain(|s| !done.contains(&Arc::as_ptr(s)));
                for stream in &streams {
                    self.charge(-(stream.progress.lock().tail.len() as i64));
                }
            }
            // The object was closed meanwhile: no handle is left to try again.
            Err(_) if state.opens == 0 => {
                if !taken.is_empty() || !streams.is_empty() {
                    object.give_up();
                }
            }
            Err(error) => {
                object.stuck.store(true, Ordering::Release);
                tracing::warn!(object = %object.ino, %error, "flush failed; data is retained while the file is open");
                match Arc::try_unwrap(taken) {
                    Ok(taken) => state.runs.put_back(taken),
                    // A read still uses the runs: put back a copy.
                    Err(shared) => {
                        let mut copy = Runs::default();
                        shared.copy_into(&mut copy);
                        state.runs.put_back(copy);
                    }
                }
            }
        }
        self.account(&mut state);
        result
    }

    fn take_runs(&self, object: &Object, geometry: &Geometry, scope: Scope) -> Arc<Runs> {
        let mut state = object.state.lock();
        let (writer, below) = match scope {
            Scope::Handle(id) => (Some(id), u64::MAX),
            Scope::All => (None, u64::MAX),
            // Streams end with complete rows; bytes after the last one are a dirty run now and may wait.
            Scope::Streams => (None, 0),
            Scope::Pressure => {
                let end = state.runs.end().unwrap_or(0);
                let rows_end = end - end % geometry.row.max(1);
                (None, if rows_end == 0 { u64::MAX } else { rows_end })
            }
        };
        let taken = if below == 0 {
            Arc::new(Runs::default())
        } else {
            Arc::new(state.runs.take(writer, below))
        };
        state.taken = Some(taken.clone());
        self.account(&mut state);
        taken
    }

    /// Seals streams, sends boxes of runs, and commits.
    fn write_back(
        &self,
        object: &Object,
        geometry: &Geometry,
        streams: &[Arc<Stream>],
        taken: &Runs,
    ) -> Result<Option<CommitReply>, FsError> {
        let size = object.size(geometry);
        let mut records = Vec::new();
        let mut written = BTreeSet::new();
        for stream in streams {
            if let Some(record) = self.seal(geometry, stream)? {
                written.insert((stream.server, stream.name.clone()));
                records.push(record);
            }
        }
        let cells = geometry.cells_at(size);
        let mut wrote = !records.is_empty();
        let mut boxes = Vec::new();
        if let Some(grid) = &geometry.grid {
            if !taken.is_empty() {
                let allowed = self.allowed(object, geometry)?;
                self.reserve(object, geometry, taken.end().unwrap_or(0))?;
                boxes = self.boxes_of(&cells, taken);
                for region in &boxes {
                    let slab = Hyperslab::from_region(region);
                    self.write_grid(object, geometry, grid, &slab, &Payload::Runs(taken, &cells))?;
                    self.counters().write.transfer(region.volume());
                    wrote = true;
                }
                allowed.end()?;
                object.epoch.fetch_add(1, Ordering::AcqRel);
                self.cache().forget_runs(object, taken);
            }
        } else if !taken.is_empty() {
            self.put_slabs(
                object,
                geometry,
                (&cells, taken),
                &mut records,
                &mut written,
            )?;
            wrote = true;
        }
        object.state.lock().unsynced.extend(written);
        let touched = object.touched.swap(false, Ordering::AcqRel);
        let placed = std::mem::take(&mut *object.placed.lock());
        // Only growth by this mount: other sizes it knows of may be out of date.
        let grown = object.grown.load(Ordering::Acquire);
        if !(wrote || touched || grown > geometry.size()) {
            return Ok(None);
        }
        let stored = object.stored.swap(0, Ordering::AcqRel);
        let commit = Commit {
            ino: object.ino,
            generation: geometry.info.generation,
            records: records.clone(),
            grow_to: None,
            size_at_least: grown,
            mtime: *object.written.lock(),
            wrote: wrote || touched,
            stored: stored.min(i64::MAX as u64) as i64,
            settled: false,
        };
        match self.md().commit(commit) {
            Ok(reply) => {
                let ends = records.iter().filter_map(|(slab, _)| slab.bounds());
                let ends = ends.chain(boxes.iter().cloned());
                let ends: Vec<Coords> = ends.map(|region| ends_of(&region)).collect();
                if is_cut(&reply, ends.iter().chain([&placed]))? {
                    object.blame_cut(&reply.info.dims);
                }
                self.insert_records(object, geometry, &reply, records);
                self.take_back(object, geometry, &reply, (boxes, placed))?;
                if geometry.grid.is_none() {
                    object.epoch.fetch_add(1, Ordering::AcqRel);
                    self.cache().forget_object(object);
                }
                Ok(Some(reply))
            }
            Err(error) => {
                object.touched.fetch_or(touched, Ordering::AcqRel);
                object.note_placed(&placed);
                object.stored.fetch_add(stored, Ordering::AcqRel);
                Err(error.into())
            }
        }
    }

    /// Another mount may have shrunk a grid object meanwhile. Boxes just written outside of it, and writes in place
    /// up to `placed`, are reset to the fill value, so that they do not reappear when the object grows.
    fn take_back(
        &self,
        object: &Object,
        geometry: &Geometry,
        reply: &CommitReply,
        (mut boxes, mut placed): (Vec<Region>, Coords),
    ) -> Result<(), FsError> {
        let Some(grid) = &geometry.grid else {
            return Ok(());
        };
        let now = reply
            .info
            .cells()
            .map_err(|error| FsError::Invalid(error.to_string()))?;
        if now.len() != geometry.cells.len() {
            return Ok(());
        }
        if placed.len() == now.len() {
            if geometry.grows() {
                // Not after the last row: another mount may have data there that it has not committed yet.
                placed[0] = placed[0].min(now[0]);
            }
            boxes.push(Region::all(&placed));
        }
        let object_box = Region::all(&now);
        let mut outside = Vec::new();
        for region in boxes.iter().filter(|region| !object_box.contains(region)) {
            region.subtract(&object_box, &mut outside);
        }
        for region in &outside {
            self.punch_grid(object, geometry, grid, region)?;
        }
        Ok(())
    }

    fn boxes_of(&self, cells: &[u64], taken: &Runs) -> Vec<Region> {
        let mut boxes = Vec::new();
        for writer in taken.writers() {
            boxes.extend(coalesce(cells, &taken.ranges(writer), self.chunk_limit()));
        }
        boxes
    }

    /// Stores each slab of an `aligned` object as a chunk; all servers get their chunks concurrently. Chunks that a
    /// full server refuses go to another one.
    fn put_slabs(
        &self,
        object: &Object,
        geometry: &Geometry,
        (cells, taken): (&[u64], &Runs),
        records: &mut Vec<(Hyperslab, Stored)>,
        written: &mut BTreeSet<(ServerId, ChunkName)>,
    ) -> Result<(), FsError> {
        let slabs = self.slabs_of(object, geometry, cells, taken);
        let mut chunks = Vec::with_capacity(slabs.len());
        for slab in slabs {
            self.counters().write.transfer(slab.volume());
            let data = slices_of(taken, cells, &slab);
            chunks.push(self.new_chunk(geometry, slab, data)?);
        }
        self.send_chunks(geometry, &mut chunks)?;
        for chunk in chunks {
            written.insert((chunk.stored.server, chunk.name));
            records.push((chunk.slab, Stored::Chunk(chunk.stored)));
        }
        Ok(())
    }

    /// Sends chunks to the servers they were placed on, or to others where there is no room. After an error none is
    /// retained.
    pub(super) fn send_chunks(
        &self,
        geometry: &Geometry,
        chunks: &mut [NewChunk<'_>],
    ) -> Result<(), FsError> {
        let mut sent = self.put_chunks(chunks);
        while let Err(StoreError::NoSpace) = sent {
            // Each round finds at least one more full server, so the loop ends.
            if let Err(error) = self.put_elsewhere(geometry, chunks) {
                self.discard_new(chunks);
                return Err(error);
            }
            sent = self.put_chunks(chunks);
        }
        if let Err(error) = sent {
            self.discard_new_but(chunks, |server| error.is_of(server));
            return Err(error.into());
        }
        Ok(())
    }

    pub(super) fn new_chunk<'a>(
        &self,
        geometry: &Geometry,
        slab: Hyperslab,
        data: Slices<'a>,
    ) -> Result<NewChunk<'a>, FsError> {
        let region = slab
            .bounds()
            .unwrap_or_else(|| Region::all(&slab.packed_shape()));
        let (chunk, server) = self.place(geometry, &region, slab.volume())?;
        let stored = StoredChunk {
            chunk,
            server,
            codec: geometry.info.codec,
        };
        Ok(NewChunk {
            name: stored.name(),
            form: stored.form(&slab, &geometry.info),
            data,
            region,
            slab,
            stored,
        })
    }

    /// Sends chunks. Resending a chunk that is already stored changes nothing.
    fn put_chunks(&self, chunks: &[NewChunk<'_>]) -> Result<(), StoreError> {
        let slices: Vec<Vec<IoSlice<'_>>> = chunks.iter().map(|chunk| chunk.data.io()).collect();
        let pieces: Vec<WritePiece<'_>> = chunks
            .iter()
            .zip(&slices)
            .map(|(chunk, data)| WritePiece {
                server: chunk.stored.server,
                name: &chunk.name,
                form: &chunk.form,
                kind: WriteKind::Put,
                data,
            })
            .collect();
        self.servers().write(&pieces)
    }

    /// Finds the full servers, and places their chunks on other ones.
    fn put_elsewhere(
        &self,
        geometry: &Geometry,
        chunks: &mut [NewChunk<'_>],
    ) -> Result<(), FsError> {
        let servers: BTreeSet<ServerId> = chunks.iter().map(|chunk| chunk.stored.server).collect();
        if !servers.iter().any(|id| self.has_choice(geometry, *id)) {
            return Err(StoreError::NoSpace.into());
        }
        let mut full = BTreeSet::new();
        for &server in &servers {
            let its = chunks.iter().filter(|chunk| chunk.stored.server == server);
            for chunk in its {
                match self.put_chunks(std::slice::from_ref(chunk)) {
                    Ok(()) => {}
                    Err(StoreError::NoSpace) if self.full(geometry, server) => {
                        full.insert(server);
                        break;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let refused = chunks
            .iter_mut()
            .filter(|chunk| full.contains(&chunk.stored.server));
        let mut left = Vec::new();
        for chunk in refused {
            left.push((chunk.stored.server, chunk.name.clone()));
            let (id, server) = self.place(geometry, &chunk.region, chunk.slab.volume())?;
            chunk.stored.chunk = id;
            chunk.stored.server = server;
            chunk.name = chunk.stored.name();
        }
        self.discard_chunks(&left);
        Ok(())
    }

    pub(super) fn discard_new(&self, chunks: &[NewChunk<'_>]) {
        self.discard_new_but(chunks, |_| false);
    }

    /// As `discard_new`, except for chunks on servers that are away: a request would wait for them once more. Their
    /// chunks are deleted when this session ends.
    pub(super) fn discard_new_but(
        &self,
        chunks: &[NewChunk<'_>],
        is_away: impl Fn(ServerId) -> bool,
    ) {
        let names: Vec<(ServerId, ChunkName)> = chunks
            .iter()
            .filter(|chunk| !is_away(chunk.stored.server))
            .map(|chunk| (chunk.stored.server, chunk.name.clone()))
            .collect();
        if !names.is_empty() {
            self.discard_chunks(&names);
        }
    }

    /// Inserts the records of this mount's own commit into its cached tiling.
    pub(super) fn insert_records(
        &self,
        object: &Object,
        geometry: &Geometry,
        reply: &CommitReply,
        records: Vec<(Hyperslab, Stored)>,
    ) {
        let mut chunks = object.tiling.write();
        let same_form = geometry.dims_at(reply.attr.size) == reply.info.dims;
        if chunks.version != Some(reply.before) || !same_form {
            // Another mount committed or resized in between: the next read fetches the tiling.
            chunks.version = None;
            return;
        }
        for (order, (slab, value)) in (reply.first_order..).zip(records) {
            let record = Record {
                slab,
                clip: None,
                order,
                value,
            };
            if let Err(error) = chunks.tiling.insert(record) {
                tracing::error!(object = %object.ino, %error, "a record does not fit; the tiling is fetched again");
                chunks.version = None;
                return;
            }
        }
        let mut gone = Vec::new();
        for order in &reply.dropped {
            if let Some(record) = chunks.tiling.remove(*order)
                && let Stored::Chunk(stored) = record.value
            {
                gone.push((stored.server, stored.name()));
            }
        }
        chunks.version = Some(reply.version);
        let weight = chunks.weight();
        drop(chunks);
        self.tilings.weigh(object.ino, &object.tiling, weight);
        // Chunks that were replaced before a sync need not be synced.
        let mut state = object.state.lock();
        for chunk in gone {
            state.unsynced.remove(&chunk);
        }
    }

    /// Flushes everything of an object and waits until it is on disk.
    pub(super) fn sync_object(&self, object: &Object) -> Result<(), FsError> {
        self.flush_object(object, Scope::All)?;
        self.sync_written(object)?;
        Ok(self.md().sync()?)
    }

    /// Syncs the sent chunks to the servers' disks, and settles the object. Serialised: a second caller must not
    /// return, nor settle, before the chunks that the first one took are on disk.
    pub(super) fn sync_written(&self, object: &Object) -> Result<(), FsError> {
        let _one = object.syncing.lock();
        let version = object.version();
        let unsynced = std::mem::take(&mut object.state.lock().unsynced);
        // Chunks left by earlier opens of the object may still be unsynced.
        let mut items: Vec<(ServerId, ChunkName)> = self
            .settling
            .lock()
            .iter()
            .filter(|left| left.ino == object.ino)
            .flat_map(|left| left.chunks.iter().cloned())
            .collect();
        items.extend(unsynced.iter().cloned());
        if items.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.sync_chunks(&items) {
            object.state.lock().unsynced.extend(unsynced);
            return Err(error.into());
        }
        match self.md().settle(object.ino, version) {
            // A removed object has nothing to settle.
            Ok(()) | Err(MdError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Syncs chunks to their servers' disks. A chunk that is missing was replaced, or its object was removed, since
    /// it was written: there is nothing to sync.
    pub(super) fn sync_chunks(&self, items: &[(ServerId, ChunkName)]) -> Result<(), StoreError> {
        match self.servers().sync(items) {
            Err(StoreError::Missing(_)) if items.len() > 1 => {
                let (left, right) = items.split_at(items.len() / 2);
                self.sync_chunks(left)?;
                self.sync_chunks(right)
            }
            Err(StoreError::Missing(name)) => {
                tracing::debug!(%name, "replaced before it was synced");
                Ok(())
            }
            other => other,
        }
    }

    /// Deletes chunks that will never be committed; a failure costs space until the session ends.
    pub(super) fn discard_chunks(&self, names: &[(ServerId, ChunkName)]) {
        if let Err(error) = self.servers().delete(names) {
            tracing::warn!(%error, "discarded chunks stay until this mount's session ends");
        }
    }
}

/// Whether a box that ends at one of `ends` lies partly outside the object as the commit left it, because another
/// mount shrank it meanwhile.
pub(super) fn is_cut<'a>(
    reply: &CommitReply,
    ends: impl IntoIterator<Item = &'a Coords>,
) -> Result<bool, FsError> {
    let cells = reply
        .info
        .cells()
        .map_err(|error| FsError::Invalid(error.to_string()))?;
    let beyond = |ends: &Coords| {
        ends.len() == cells.len() && ends.iter().zip(&cells).any(|(end, cell)| end > cell)
    };
    Ok(ends.into_iter().any(beyond))
}
