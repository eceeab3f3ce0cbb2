//! Flushing: dirty runs become boxes (`slabs`), boxes become chunks, chunks become part of the object.
//!
//! **Data first, receipt, then commit.** A flush takes runs out of the dirty map (reads still see them),
//! seals the streams it must, sends all data to the servers, one message a server, and commits once. Only
//! then do the taken runs go. When anything fails they go back under what was written meanwhile, and the
//! next flush tries again.
//!
//! What is on the servers but not on their disks is remembered in `unsynced`; `fsync` syncs that, then the
//! metadata journal, then settles, which lets the servers delete what was replaced.

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

/// What a flush is to writes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// What one handle wrote.
    Handle(HandleId),
    /// Everything.
    All,
    /// Everything but a last row that is not complete yet: memory is short, and the writer goes on.
    Pressure,
    /// Only the open streams.
    Streams,
}

/// A slab that is to become a chunk.
pub(super) struct NewChunk<'a> {
    /// The box around it.
    region: Region,
    pub(super) slab: Hyperslab,
    pub(super) stored: StoredChunk,
    pub(super) name: ChunkName,
    pub(super) form: ChunkForm,
    pub(super) data: Slices<'a>,
}

impl Handle {
    /// writes back what this handle wrote, as `close(2)` does, and tells an error that waited.
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
        // A descriptor may have copies, in this process and in others: a `close` of one tells the error, and
        // leaves it to the `fsync` of another. The child that ends would use it up unseen.
        flushed.and(self.waiting.look())
    }

    /// What is lost is told to all handles when that is cleared up; this one is told now.
    fn clear_up(&self, flushed: &Result<(), FsError>) {
        if flushed.as_ref().is_err_and(FsError::is_loss) {
            self.client.suspect();
            if let Err(error) = self.client.wait_alive() {
                tracing::debug!(object = %self.object.ino, %error, "not cleared up yet");
            }
        }
    }

    /// writes back everything of the object, and returns when it is on the servers' disks and in the
    /// metadata service's journal. Where the mount is not strict it looks at the object anew as well, so that
    /// reads from here on have what other mounts written back before.
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
                // The second sync of sync-barrier-sync: what another mount synced before shows from here on.
                false => self.client.refresh(&self.object),
            });
        self.clear_up(&synced);
        let waited = self.waiting.take();
        synced.and(waited)
    }

    /// Whether `flush` would have anything to do, or to wait for.
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
    /// Flushes, looking at the object's form anew if it changed on the server.
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
            "a flush gave up; the data is kept for the next".into(),
        ))
    }

    /// Takes over what a commit answered.
    pub(super) fn take_reply(&self, object: &Object, reply: &CommitReply) -> Result<(), FsError> {
        let mut geometry = object.geometry.write();
        self.adopt_reply(object, &mut geometry, reply)
    }

    /// The same under a lock that is held already.
    pub(super) fn adopt_reply(
        &self,
        object: &Object,
        geometry: &mut Geometry,
        reply: &CommitReply,
    ) -> Result<(), FsError> {
        let written = Region::whole(&geometry.cells_at(object.size(geometry)));
        self.adopt(
            object,
            geometry,
            &Entry {
                attr: reply.attr.clone(),
                info: Some(reply.info.clone()),
            },
        )?;
        self.cut_outside(object, geometry, &written)?;
        // Growth that is committed need not be remembered. What a write in place grew after the flush had
        // looked stays: the lock is held alone here, so it is either all there or not begun.
        if object.grown.load(Ordering::Acquire) <= geometry.size() {
            object.grown.store(0, Ordering::Release);
        }
        Ok(())
    }

    /// Another mount may have made a grid object smaller while this one wrote to its chunks: what lies
    /// outside now must not show when it grows again.
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
        // Not behind the last row: the other mount may be writing there, and has not said so yet.
        keep[0] = keep[0].max(written.end(0));
        if Region::whole(&keep).contains(written) {
            return Ok(());
        }
        let mut outside = Vec::new();
        written.subtract(&Region::whole(&keep), &mut outside);
        for gone in outside {
            self.cut_chunks(object, geometry, grid, &gone, &keep)?;
        }
        Ok(())
    }

    /// Flushes under a geometry lock the caller holds; returns what the commit answered, if one was due.
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
            Ok(brought) => {
                object.stuck.store(false, Ordering::Release);
                if brought.is_some() {
                    self.flushes.fetch_add(1, Ordering::Relaxed);
                }
                let done: Vec<*const Stream> = streams.iter().map(Arc::as_ptr).collect();
                state.streams.retain(|s| !done.contains(&Arc::as_ptr(s)));
                for stream in &streams {
                    self.charge(-(stream.progress.lock().tail.len() as i64));
                }
            }
            // It was closed meanwhile: nobody is there who could try again.
            Err(_) if state.opens == 0 => {
                if !taken.is_empty() || !streams.is_empty() {
                    object.give_up();
                }
            }
            Err(error) => {
                object.stuck.store(true, Ordering::Release);
                tracing::warn!(object = %object.ino, %error, "a flush failed; the data is kept while the file is open");
                match Arc::try_unwrap(taken) {
                    Ok(taken) => state.runs.put_back(taken),
                    // A read still looks at the runs: put back a copy.
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
            // Streams end with whole rows; what was behind them is a run now and may wait.
            Scope::Streams => (None, 0),
            Scope::Pressure => {
                let end = state.runs.end().unwrap_or(0);
                let whole = end - end % geometry.row.max(1);
                (None, if whole == 0 { u64::MAX } else { whole })
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

    /// Sends streams' ends and boxes of runs, and commits.
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
        // Only what this mount grew itself: what it knows besides may be out of date.
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

    /// Another mount may have made a grid object smaller meanwhile: what was just written outside, or in
    /// place as far as `placed`, becomes fill again, so that it does not show when the object grows.
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
                // Not behind the last row: another mount may be writing there, and has not said so yet.
                placed[0] = placed[0].min(now[0]);
            }
            boxes.push(Region::whole(&placed));
        }
        let whole = Region::whole(&now);
        let mut outside = Vec::new();
        for region in boxes.iter().filter(|region| !whole.contains(region)) {
            region.subtract(&whole, &mut outside);
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

    /// Each slab of an `aligned` object becomes a chunk; the servers get theirs at the same time. What a
    /// full server refuses goes to another one.
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

    /// Sends chunks to where they were placed, or elsewhere where there is no room. On an error none is kept.
    pub(super) fn send_chunks(
        &self,
        geometry: &Geometry,
        chunks: &mut [NewChunk<'_>],
    ) -> Result<(), FsError> {
        let mut sent = self.put_chunks(chunks);
        while let Err(StoreError::NoSpace) = sent {
            // Each round finds one server or more full; with the last of them it ends.
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
            .unwrap_or_else(|| Region::whole(&slab.packed_shape()));
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

    /// Sends chunks. Sent again, those that are there already stay as they are.
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

    /// Finds out which servers are full, and places anew what they were to take.
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

    /// The same, but for those on servers that are away: to tell them would be to wait for them once more. What they
    /// have goes when this session ends.
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

    /// Puts the records of an own commit into the tiling this mount knows.
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
            // Somebody else committed or resized in between: fetched anew at the next read.
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
                tracing::error!(object = %object.ino, %error, "fetching the tiling anew");
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
        // What was replaced before it was synced need not be synced any more.
        let mut state = object.state.lock();
        for chunk in gone {
            state.unsynced.remove(&chunk);
        }
    }

    /// Flushes everything of an object and waits for the disks.
    pub(super) fn sync_object(&self, object: &Object) -> Result<(), FsError> {
        self.flush_object(object, Scope::All)?;
        self.sync_written(object)?;
        Ok(self.md().sync()?)
    }

    /// Brings what was sent to the servers to their disks, and settles it. One at a time: who comes second
    /// must not return, nor settle, before what the first one took is on disk.
    pub(super) fn sync_written(&self, object: &Object) -> Result<(), FsError> {
        let _one = object.syncing.lock();
        let version = object.version();
        let unsynced = std::mem::take(&mut object.state.lock().unsynced);
        // What earlier openings of the object left may still be on its way.
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
            // An object that is gone has nothing to settle.
            Ok(()) | Err(MdError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Brings chunks to their servers' disks. One that is not there any more was replaced, or its object
    /// was removed, since it was written: then there is nothing to bring.
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

    /// Tells servers that chunks nobody will commit may go; a failure costs space until the session ends.
    pub(super) fn discard_chunks(&self, names: &[(ServerId, ChunkName)]) {
        if let Err(error) = self.servers().delete(names) {
            tracing::warn!(%error, "chunks that were given up stay until this mount's session ends");
        }
    }
}

/// Whether something that reaches as far as one of `ends` lies partly outside the object as a commit left
/// it: another mount made it smaller meanwhile.
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
