//! Flushes: write dirty runs back as boxes (`slabs`), store the boxes as chunks, and commit the chunks to the object.
//!
//! **Data first, receipt, then commit.** A flush takes runs out of the dirty map (reads still see them), seals the
//! streams in its scope, sends all data to the servers, one message a server, and commits once. Only then are the
//! taken runs dropped. If a step fails, the runs go back into the dirty map, below data written meanwhile, and the
//! next flush tries again.
//!
//! Sending, commits and syncs are in `commit`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slabfs_mdserver::api::{CommitReply, Entry};
use slabfs_model::layout::coalesce;
use slabfs_model::{Coords, Hyperslab, Region};

use crate::client::buffer::payload::{Payload, slices_of};
use crate::client::buffer::runs::Runs;
use crate::client::buffer::stream::Stream;
use crate::client::commit::{Change, is_cut};
use crate::client::error::FsError;
use crate::client::handle::Handle;
use crate::client::handle::writer::HandleId;
use crate::client::object::geometry::Geometry;
use crate::client::object::{Object, ends_of};
use crate::client::{Client, FORM_TRIES};

/// Boxes of a grid object that are sent together; bounds the memory that a flush needs for them.
const BOXES_AT_ONCE: usize = 1024;

/// The data a flush writes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Scope {
    /// The dirty data of one handle.
    Handle(HandleId),
    /// Everything.
    All,
    /// Everything but an incomplete last row: memory is short, and the writer continues.
    Pressure,
    /// Only the open streams.
    Streams,
}

impl Handle {
    /// Writes back this handle's dirty data, as `close(2)` does, and returns a deferred error.
    ///
    /// # Errors
    /// Of this flush, or of one in the background since the last call.
    pub fn flush(&self) -> Result<(), FsError> {
        let flushed = match self.writable {
            true => self.client.admit(&self.object).and_then(|_| {
                // The size that a flush commits includes all growth: data of other handles that a flush could not
                // write must not be left behind it, since a closed one's is dropped.
                let scope = match self.object.stuck.load(Ordering::Acquire) {
                    true => Scope::All,
                    false => Scope::Handle(self.id),
                };
                match self.has_data() {
                    true => self.client.flush_object(&self.object, scope),
                    false => Ok(()),
                }
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

    /// Whether `flush` or `release` would have something to write back, or would have to wait.
    pub fn has_dirty(&self) -> bool {
        self.has_data() || self.has_deferred()
    }

    /// Whether `flush` would have data to write back or would have to wait.
    fn has_data(&self) -> bool {
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
    pub(in crate::client) fn flush_object(
        &self,
        object: &Object,
        scope: Scope,
    ) -> Result<(), FsError> {
        self.settle_truncate(object)?;
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
    pub(in crate::client) fn take_reply(
        &self,
        object: &Object,
        reply: &CommitReply,
    ) -> Result<(), FsError> {
        let mut geometry = object.geometry.write();
        self.adopt_reply(object, &mut geometry, reply)
    }

    /// As `take_reply`, under a geometry lock that the caller holds.
    pub(in crate::client) fn adopt_reply(
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
    pub(in crate::client) fn flush_shaped(
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
            if let Some(record) = self.seal(object, geometry, stream)? {
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
                // Many boxes in one message a server: programs that write small pieces leave very many.
                for some in boxes.chunks(BOXES_AT_ONCE) {
                    let slabs: Vec<Hyperslab> = some.iter().map(Hyperslab::from_region).collect();
                    self.write_grid(
                        object,
                        geometry,
                        grid,
                        &slabs,
                        &Payload::Runs(taken, &cells),
                    )?;
                    for region in some {
                        self.counters().write.transfer(region.volume());
                    }
                    wrote = true;
                }
                allowed.end()?;
                object.epoch.fetch_add(1, Ordering::AcqRel);
                self.cache().forget_runs(object, taken);
            }
        } else if !taken.is_empty() {
            let slabs = self.slabs_of(object, geometry, &cells, taken).into_iter();
            let slabs = slabs.map(|slab| {
                self.counters().write.transfer(slab.volume());
                let data = slices_of(taken, &cells, &slab);
                (slab, data)
            });
            self.store_slabs(object, geometry, slabs, &mut records)?;
            wrote = true;
        }
        object.state.lock().unsynced.extend(written);
        let touched = object.touched.swap(false, Ordering::AcqRel);
        let placed = std::mem::take(&mut *object.placed.lock());
        // Only growth by this mount: other sizes it knows of may be out of date.
        let grown = object.grown.load(Ordering::Acquire);
        let known = geometry
            .size()
            .max(object.committed.load(Ordering::Acquire));
        let written_to = match geometry.grows() && object.coupled.in_memory() {
            // Another mount may have emptied it: what is announced after that is in the object again.
            true => taken.end().map_or(0, |end| geometry.full_rows(end)),
            false => 0,
        };
        if !(wrote || touched || grown > known) {
            return Ok(None);
        }
        let stored = object.stored.swap(0, Ordering::AcqRel);
        let change = Change {
            size_at_least: grown.max(written_to),
            mtime: *object.written.lock(),
            wrote: wrote || touched,
            stored,
            reach: 0,
        };
        let ends = records.iter().filter_map(|(slab, _)| slab.bounds());
        let ends = ends.chain(boxes.iter().cloned());
        let ends: Vec<Coords> = ends.map(|region| ends_of(&region)).collect();
        match self.commit(object, geometry, records, Vec::new(), change) {
            Ok(reply) => {
                if is_cut(&reply, ends.iter().chain([&placed]))? {
                    object.blame_cut(&reply.info.dims);
                }
                self.take_back(object, geometry, &reply, (boxes, placed))?;
                Ok(Some(reply))
            }
            Err(error) => {
                object.touched.fetch_or(touched, Ordering::AcqRel);
                object.note_placed(&placed);
                object.stored.fetch_add(stored, Ordering::AcqRel);
                Err(error)
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
}
