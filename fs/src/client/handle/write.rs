//! Writes: a write takes one of three paths.
//!
//! - **Into memory**: small writes become dirty runs and wait for a flush, which makes boxes of them.
//! - **In place**: a large write to a `grid` object, or any write through a selection of one, goes directly to the
//!   chunks.
//! - **Into a stream**: consecutive complete rows, and selections written from their start, go to a chunk that grows
//!   as the writer appends to it (`stream.rs`).
//!
//! On every path, a read that starts after the write has returned sees it, and the write trims older dirty bytes in
//! its range. See docs/decisions/05-write-paths.md for why there are three.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use slabfs_mdserver::api::{RightMode, Time};
use slabfs_model::{Coords, Hyperslab, Region, for_each_run};
use slabfs_objstore::client::{WriteKind, WritePiece};
use slabfs_objstore::{ChunkForm, ChunkName};

use crate::client::Client;
use crate::client::buffer::flush::Scope;
use crate::client::buffer::overlap::Running;
use crate::client::buffer::payload::Payload;
use crate::client::buffer::stream::{Progress, Stream};
use crate::client::coherence::rights::{BoxSet, By, Need, Op, Span};
use crate::client::error::FsError;
use crate::client::handle::{Handle, Want, Written};
use crate::client::object::fresh::FRESH_FOR;
use crate::client::object::geometry::Geometry;
use crate::client::object::{Object, ends_of};
use crate::client::placement::place::is_full;

/// With more open streams on one object than this, they are flushed: each holds a file open on a server.
const STREAMS_LIMIT: usize = 16;

/// The result of an attempt to write into a stream.
enum Streamed {
    /// This many bytes were written.
    Taken(usize),
    /// A stream does not fit this write.
    Unfit,
    /// Another stream holds older bytes of the same region; it must be committed first.
    InTheWay,
}

impl Handle {
    /// Whether a write of `len` bytes at `offset` may block on a server.
    pub fn may_block_write(&self, offset: u64, len: usize) -> bool {
        if self.may_await_room(offset, len) {
            return true;
        }
        if self.client.local() {
            return false;
        }
        let is_direct = len >= self.client.options.direct_min;
        is_direct && !self.object.coupled.in_memory()
            || self.form_due()
            || self.client.lapsed()
            || self.selected.is_some()
            || self.append
            || self.client.over_budget()
            || self.object.spilled.load(Ordering::Acquire) > 0
            || self.may_wait_for_flush()
            || self
                .object
                .geometry
                .try_read()
                .is_none_or(|geometry| offset.saturating_add(len as u64) > geometry.size_limit())
    }

    /// Whether a small write waits for a running flush: a write into memory does not, the next bytes of a stream do.
    fn may_wait_for_flush(&self) -> bool {
        self.object.flushing.is_locked_exclusive()
            && self.stream.try_lock().is_none_or(|stream| stream.is_some())
    }

    /// Whether a check for changes of the object's form by another mount is due.
    fn form_due(&self) -> bool {
        self.client.form_due(&self.object)
    }

    /// Writes `data` at `offset` of the handle's space; an appending handle writes at the end instead.
    ///
    /// A write to a part that another mount has just cut off may still be accepted; then the flush reports the loss.
    ///
    /// # Errors
    /// `TooBig` beyond the object's maximum size, `Invalid` if the selection lies outside by now, errors of the
    /// servers.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<Written, FsError> {
        self.write_in(None, offset, data)
    }

    /// As [`Handle::write`], without waiting for rights or servers. `epoch` is set if the kernel writes back a page
    /// ([`Handle::write_page`]). Returns `None`, and has done nothing, if the write would block.
    ///
    /// # Errors
    /// As [`Handle::write`] and [`Handle::write_page`].
    pub fn try_write(
        &self,
        epoch: Option<u64>,
        offset: u64,
        data: &[u8],
    ) -> Result<Option<Written>, FsError> {
        if data.is_empty() || self.may_block_write(offset, data.len()) {
            return Ok(None);
        }
        self.check()?;
        let admitted = self.client.admit(&self.object)?;
        if self.client.over_budget() {
            return Ok(None);
        }
        let by = writer(epoch);
        let cells = self.cells_to_write(by, offset, data.len());
        let need = self.need_to_write(by, offset, data, &cells);
        let at = (!self.append).then_some(offset);
        let Some((op, _range)) = self.enter_now(&need, at, data.len()) else {
            return Ok(None);
        };
        let _appending = self.append.then(|| self.object.appending.lock());
        let epoch = epoch.unwrap_or(admitted);
        let shaped = |geometry: &Geometry| self.write_shaped(geometry, by, offset, data);
        let written = self.write_following(&op, &need, epoch, &shaped)?;
        Ok(written.inspect(|_| self.note_written()))
    }

    /// Fails if the handle is not writable.
    pub(in crate::client) fn check(&self) -> Result<(), FsError> {
        match self.writable {
            true => Ok(()),
            false => Err(FsError::ReadOnly("the file is not open for writing".into())),
        }
    }

    pub(in crate::client) fn note_written(&self) {
        *self.object.written.lock() = Some(Time::now());
        if self.object.coupled.in_memory() {
            self.client.coupled_written(self);
            self.client.announce(&self.object);
        }
    }

    fn need_to_write<'a>(
        &self,
        by: By,
        offset: u64,
        data: &[u8],
        cells: &'a dyn Fn(&Geometry, u64) -> BoxSet,
    ) -> Need<'a> {
        // An append begins at or after the known end: no operation of this mount truncates the object while the kernel
        // waits for the append.
        let span = match (&self.selected, self.append) {
            (Some(_), _) => Span::ALL,
            (None, false) => Span::of(offset, data.len() as u64),
            (None, true) => Span::of(self.append_at(self.size()), u64::MAX),
        };
        Need {
            by,
            mode: RightMode::Write,
            long: false,
            span: Some(span),
            cells,
        }
    }

    fn cells_to_write(
        &self,
        by: By,
        offset: u64,
        len: usize,
    ) -> impl Fn(&Geometry, u64) -> BoxSet + '_ {
        move |geometry, size| match by {
            By::Program => {
                let offset = (!self.append).then_some(offset);
                self.write_needs(geometry, size, offset, len as u64)
            }
            By::Truncate | By::PageOut | By::PageBack => BoxSet::All,
        }
    }

    /// As [`Handle::write`], for a page written back by the kernel that a program dirtied in `epoch` of the mount.
    /// Data lost with an earlier epoch must not reappear.
    ///
    /// # Errors
    /// Also `Lost`, if that epoch is over.
    pub fn write_page(&self, epoch: u64, offset: u64, data: &[u8]) -> Result<Written, FsError> {
        self.write_in(Some(epoch), offset, data)
    }

    fn write_in(&self, epoch: Option<u64>, offset: u64, data: &[u8]) -> Result<Written, FsError> {
        self.check()?;
        if self.has_deferred() {
            self.check_end(offset, data.len())
                .inspect_err(|_| self.withdraw_truncate())?;
        }
        self.write_entering(epoch, offset, data)
    }

    /// Fails if a write would end beyond the largest size of the object.
    fn check_end(&self, offset: u64, len: usize) -> Result<(), FsError> {
        let geometry = self.object.geometry.read();
        let offset = match self.append {
            true => self.append_at(self.object.size(&geometry)),
            false => offset,
        };
        self.end_of(&geometry, offset, len).map(drop)
    }

    /// The end of a write in the handle's space.
    fn end_of(&self, geometry: &Geometry, offset: u64, len: usize) -> Result<u64, FsError> {
        let limit = match &self.selected {
            Some(selected) => selected.bytes,
            None => geometry.size_limit(),
        };
        offset
            .checked_add(len as u64)
            .filter(|end| *end <= limit)
            .ok_or_else(|| {
                let FsError::TooBig(why) = too_big(self.selected.is_some(), limit) else {
                    return FsError::TooBig(String::new());
                };
                FsError::TooBig(format!("{len} bytes at byte {offset}: {why}"))
            })
    }

    fn write_entering(
        &self,
        epoch: Option<u64>,
        offset: u64,
        data: &[u8],
    ) -> Result<Written, FsError> {
        if data.is_empty() {
            return Ok(Written {
                size_changed: false,
            });
        }
        if self.append && self.object.coupled.in_memory() {
            // No right shows where the end is.
            self.client.refresh(&self.object)?;
        }
        self.await_room(offset, data.len())?;
        let by = writer(epoch);
        let cells = self.cells_to_write(by, offset, data.len());
        let shaped = |geometry: &Geometry| self.write_shaped(geometry, by, offset, data);
        let written = loop {
            let admitted = self.client.admit(&self.object)?;
            // Before the bytes are taken: a write that fails for lack of space must not leave them in memory.
            if self.client.over_budget() {
                self.client.relieve(&self.object)?;
            }
            let need = self.need_to_write(by, offset, data, &cells);
            let at = (!self.append).then_some(offset);
            let (op, _range) = self.enter(&need, at, data.len())?;
            let _appending = self.append.then(|| self.object.appending.lock());
            let begun = epoch.unwrap_or(admitted);
            match self.write_following(&op, &need, begun, &shaped)? {
                Some(written) => {
                    // Before the operation ends: other mounts may learn the time from then on.
                    self.note_written();
                    break written;
                }
                None if epoch.is_some_and(|epoch| epoch != self.client.epoch()) => {
                    return Err(FsError::Lost);
                }
                // The session was lost, or the form changed, before anything was written: the write restarts.
                None => {}
            }
        };
        Ok(written)
    }

    /// Writes by `shaped`; refreshes the object's form and retries if it has changed on the server. `None` if `epoch`
    /// was over by the time the form was locked, or if the operation has to restart: nothing was written.
    pub(in crate::client) fn write_following(
        &self,
        op: &Op,
        need: &Need<'_>,
        epoch: u64,
        shaped: &dyn Fn(&Geometry) -> Result<Written, FsError>,
    ) -> Result<Option<Written>, FsError> {
        if self.form_due() {
            self.client.refresh(&self.object)?;
        }
        // Under a right, cached metadata is valid.
        let mut asked = self.client.alone() || self.client.strict();
        for _ in 0..crate::client::FORM_TRIES {
            let result = {
                let geometry = self.object.geometry.read();
                // Under the lock: data written before the session is lost is dropped with the session.
                if epoch != self.client.epoch() || !op.covers(need, &self.object, &geometry) {
                    return Ok(None);
                }
                if need.by == By::Program {
                    self.waiting.check_locks()?;
                }
                shaped(&geometry)
            };
            match result {
                Err(error) if error.is_stale() => self.client.refresh(&self.object)?,
                // Another mount may have extended it since.
                Err(FsError::TooBig(_)) if !asked => {
                    asked = true;
                    self.client.refresh(&self.object)?;
                }
                other => return other.map(Some),
            }
        }
        Err(FsError::Unsettled("a write gave up".into()))
    }

    fn write_shaped(
        &self,
        geometry: &Geometry,
        by: By,
        offset: u64,
        data: &[u8],
    ) -> Result<Written, FsError> {
        let size = self.object.size(geometry);
        let data = match by {
            // The kernel writes back pages up to the size it believes in, including parts that a later change of dims
            // has cut off. Those are dropped, and the rest is stored.
            By::PageBack => within_limit(data, offset, geometry.size_limit()),
            By::Program | By::Truncate | By::PageOut => data,
        };
        if data.is_empty() {
            return Ok(Written {
                size_changed: false,
            });
        }
        let offset = match self.append {
            true => self.append_at(size),
            false => offset,
        };
        let end = self.end_of(geometry, offset, data.len())?;
        if end > size {
            self.client.clear_spilled(&self.object, geometry)?;
        }
        let size = self.extend(geometry, size);
        if geometry.grid.is_some() {
            if self.selected.is_some()
                || data.len() >= self.client.options.direct_min
                || self.appends_in_place()
            {
                self.write_in_place(geometry, size, offset, data)?;
                self.reached.store(true, Ordering::Relaxed);
            } else {
                self.remember(geometry, offset, data);
            }
        } else {
            self.write_aligned(geometry, size, offset, data)?;
        }
        if self.append {
            let row_end = geometry.full_rows(end);
            *self.tail.lock() = (row_end > end).then_some((end, row_end));
        }
        let size_changed = self.selected.is_none() && end > size;
        Ok(Written { size_changed })
    }

    /// The offset of an append to an object of this size: its end; or, within its last row, the end of the last append
    /// through this handle, if the object's size has not changed since. An array has complete rows only, and programs
    /// that append, as `cat >>` does, write blocks of any size.
    pub(in crate::client) fn append_at(&self, size: u64) -> u64 {
        match *self.tail.lock() {
            Some((end, row_end)) if row_end == size => end,
            _ => size,
        }
    }

    /// Whether an append goes to its data server at once. The first one through a handle does, and all of them after a
    /// flush failed: a shell's `>>` ignores an error of `close`, so an append to a server that is away has to fail in
    /// `write`.
    fn appends_in_place(&self) -> bool {
        let reached = self.reached.load(Ordering::Relaxed);
        self.append
            && !self.client.local()
            && (!reached || self.object.stuck.load(Ordering::Acquire))
    }

    /// Writes into memory: one dirty run.
    fn remember(&self, geometry: &Geometry, offset: u64, data: &[u8]) {
        let shared = match self.object.coupled.in_memory() {
            true => self.client.copy_to_memory(data),
            false => None,
        };
        let mut state = self.object.state.lock();
        match shared {
            Some(shared) => state.runs.insert_shared(offset, shared, self.id),
            None => state.runs.insert(offset, data, self.id),
        }
        state.overlaps.note(offset, offset + data.len() as u64);
        self.grow(geometry, offset + data.len() as u64);
        self.client.account(&mut state);
    }

    /// Extends the object to `end`. Called before a flush can see the bytes, so that no flush finds bytes outside the
    /// object.
    fn grow(&self, geometry: &Geometry, end: u64) {
        if self.selected.is_none() {
            self.object.grow(geometry, end);
        }
    }

    /// Extends the object to hold a selection that may lie beyond its end, and returns its new size. The first write
    /// extends it to the end of the selection: parts of a selection need not end at complete rows.
    fn extend(&self, geometry: &Geometry, size: u64) -> u64 {
        let Some(selected) = &self.selected else {
            return size;
        };
        let reach = selected.reach(geometry, size);
        if reach > size {
            self.object.grow(geometry, reach);
        }
        size.max(reach)
    }

    /// Writes into a stream as far as that fits, and the rest into memory.
    fn write_aligned(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<(), FsError> {
        let mut done = 0;
        while done < data.len() {
            match self.try_stream(geometry, size, offset + done as u64, &data[done..])? {
                Streamed::Taken(taken) => done += taken,
                Streamed::Unfit => break,
                Streamed::InTheWay => {
                    self.client
                        .flush_shaped(&self.object, geometry, Scope::Streams)?;
                }
            }
        }
        if done < data.len() {
            self.remember_parts(geometry, size, offset + done as u64, &data[done..])?;
        }
        Ok(())
    }

    /// Writes into memory, through the handle's space: a selection becomes one run per row.
    fn remember_parts(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<(), FsError> {
        if self.selected.is_none() {
            self.remember(geometry, offset, data);
            return Ok(());
        }
        let cells = geometry.cells_at(size);
        let wants = self.wants(geometry, size, offset, data.len() as u64)?;
        let mut packed = Vec::new();
        let mut state = self.object.state.lock();
        for want in &wants {
            let bytes = want.gather(data, &mut packed);
            let mut at = 0;
            for_each_run(&cells, &want.slab, &mut |start, len| {
                state
                    .runs
                    .insert(start as u64, &bytes[at..at + len], self.id);
                state.overlaps.note(start as u64, (start + len) as u64);
                at += len;
            });
        }
        self.client.account(&mut state);
        Ok(())
    }

    /// Writes in place: directly into the chunks of a grid.
    fn write_in_place(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<(), FsError> {
        let Some(grid) = &geometry.grid else {
            return Err(FsError::Invalid("the object has no chunk grid".into()));
        };
        let object = &self.object;
        let end = offset + data.len() as u64;
        // The wants of a write that grows the object lie in the grown object.
        let reach = if self.selected.is_some() {
            size
        } else {
            size.max(geometry.full_rows(end))
        };
        let wants = self.wants(geometry, reach, offset, data.len() as u64)?;
        let _shared = object.flushing.read();
        let allowed = self.client.allowed(object, geometry)?;
        if self.selected.is_none() {
            self.client.reserve(object, geometry, end)?;
        } else {
            self.client.reserve(object, geometry, size)?;
        }
        let running = object.begin_direct();
        let mut packed = Vec::new();
        let written = wants.iter().try_for_each(|want| {
            let bytes = want.gather(data, &mut packed);
            self.client.write_grid(
                object,
                geometry,
                grid,
                std::slice::from_ref(&want.slab),
                &Payload::Packed(bytes),
            )
        });
        if let Err(error) = written.and_then(|()| allowed.end()) {
            let slabs = wants.iter().map(|want| &want.slab);
            self.client.distrust(object, geometry, reach, slabs);
            if self.selected.is_none() && end > size {
                object.spilled.fetch_max(end, Ordering::AcqRel);
            }
            return Err(error);
        }
        for bounds in wants.iter().filter_map(|want| want.slab.bounds()) {
            object.note_placed(&ends_of(&bounds));
        }
        object.touched.store(true, Ordering::Release);
        self.grow(geometry, end);
        self.uncover(&geometry.cells_at(reach), &wants, running);
        self.client.counters().write.transfer(data.len() as u64);
        Ok(())
    }

    /// Drops what the bytes of these parts have replaced.
    fn uncover(&self, cells: &[u64], wants: &[Want], running: Running<'_>) {
        let slabs = wants.iter().map(|want| &want.slab);
        let older = slabs.clone();
        self.client
            .uncover(&self.object, cells, running, slabs, |runs| {
                older.for_each(|slab| runs.remove_slab(cells, slab));
            });
    }

    fn try_stream(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<Streamed, FsError> {
        let object = &self.object;
        let reach = size.max(geometry.full_rows(offset + data.len() as u64));
        let begin = self.stream_region(geometry, reach, offset, data.len());
        if begin.is_none() && self.stream.lock().is_none() {
            // Goes to memory, so there is no need to wait for a flush.
            return Ok(Streamed::Unfit);
        }
        let _shared = object.flushing.read();
        let mut current = self.stream.lock();
        if let Some(stream) = current.as_ref() {
            let mut progress = stream.progress.lock();
            let at = stream.begins + progress.len();
            if !progress.ended && at == offset && progress.len() < stream.capacity() {
                let room = stream.capacity() - progress.len();
                let take = data.len().min(usize::try_from(room).unwrap_or(usize::MAX));
                let wants = self.wants(
                    geometry,
                    size.max(geometry.full_rows(offset + take as u64)),
                    offset,
                    take as u64,
                )?;
                if self.another_stream_at(stream, &wants) {
                    return Ok(Streamed::InTheWay);
                }
                let running = object.begin_direct();
                stream.reach.fetch_add(take as u64, Ordering::AcqRel);
                match self.append(stream, &mut progress, &data[..take]) {
                    Err(FsError::Store(error))
                        if is_full(&error) && self.client.full(geometry, stream.server) =>
                    {
                        progress.ended = true;
                        progress.full = true;
                        return Ok(Streamed::InTheWay);
                    }
                    other => other?,
                }
                self.client.spend(stream.server, take as u64);
                self.grow(geometry, offset + take as u64);
                drop(progress);
                let reach = size.max(geometry.full_rows(offset + take as u64));
                self.uncover(&geometry.cells_at(reach), &wants, running);
                return Ok(Streamed::Taken(take));
            }
        }
        let Some((slab, shape)) = begin else {
            // The stream has ended, or this write does not follow it: drop it.
            if current
                .as_ref()
                .is_some_and(|stream| stream.progress.lock().ended)
            {
                *current = None;
            }
            return Ok(Streamed::Unfit);
        };
        if object.state.lock().streams.len() >= STREAMS_LIMIT {
            return Ok(Streamed::InTheWay);
        }
        let first = slab.bounds().unwrap_or_else(|| Region::all(&shape));
        let (chunk, server) = self.client.place(geometry, &first, 0)?;
        let form = ChunkForm {
            shape: shape.clone(),
            elem: geometry.info.space().elem as u32,
            codec: geometry.info.codec,
            fill: geometry.info.fill.clone(),
        };
        let stream = Arc::new(Stream {
            writer: self.id,
            begins: offset,
            slab,
            shape,
            chunk,
            name: ChunkName::Free(chunk),
            server,
            form,
            since: Instant::now(),
            reach: AtomicU64::new(0),
            ends: AtomicU64::new(u64::MAX),
            progress: parking_lot::Mutex::new(Progress::default()),
        });
        object.state.lock().streams.push(stream.clone());
        *current = Some(stream);
        // The caller's loop appends the first bytes as all others.
        Ok(Streamed::Taken(0))
    }

    /// The rows of a stream that begins with this write; `None` if it should not be a stream.
    fn stream_region(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        len: usize,
    ) -> Option<(Hyperslab, Coords)> {
        if self.object.coupled.in_memory() {
            // Its chunks are in memory: complete ones, without a request for each write.
            return None;
        }
        let limit = self.client.chunk_limit();
        let direct = self.client.options.direct_min;
        let (shape, row) = match &self.selected {
            Some(selected) => {
                let row: u64 = selected.shape[1..].iter().product();
                // With a single axis, elements take the place of rows.
                let unit = match selected.shape.len() {
                    1 => geometry.info.dtype.size(),
                    _ => row,
                };
                if row == 0
                    || !offset.is_multiple_of(unit.max(1))
                    || !(offset == 0 || len >= direct)
                {
                    return None;
                }
                (selected.shape.clone(), row)
            }
            None => {
                let row: u64 = geometry.cells[1..].iter().product();
                if row == 0
                    || !offset.is_multiple_of(geometry.row)
                    || len < direct
                    || (len as u64) < row
                {
                    return None;
                }
                let mut shape = geometry.cells_at(size);
                if geometry.grows() {
                    shape[0] = u64::MAX / row.max(1);
                }
                (shape, row)
            }
        };
        if row > limit {
            return None;
        }
        let first = offset / row;
        let mut rows = (limit / row).min(shape[0].checked_sub(first)?);
        if let (Some(blocks), None) = (&geometry.blocks, &self.selected) {
            // Not across a cut of placement `region`.
            rows = rows.min(blocks.rows_end(first)?.checked_sub(first)?);
        }
        if shape.len() == 1 {
            // A full chunk, too, ends with a complete element.
            let elem = geometry.info.dtype.size().max(1);
            if rows > elem {
                rows -= rows % elem;
            }
        }
        if rows == 0 {
            return None;
        }
        let mut region = Region::all(&shape);
        region.offset[0] = first;
        region.shape[0] = rows;
        let slab = match &self.selected {
            None => Hyperslab::from_region(&region),
            Some(selected) => {
                let mut parts = selected.slab.parts(&region);
                if parts.len() != 1 {
                    return None;
                }
                parts.pop()?.1
            }
        };
        if let (Some(blocks), Some(bounds)) = (&geometry.blocks, slab.bounds()) {
            blocks.of_region(&bounds)?;
        }
        Some((slab, region.shape))
    }

    /// Whether an open stream other than `own` holds bytes in the bounding box of these cells.
    fn another_stream_at(&self, own: &Arc<Stream>, wants: &[Want]) -> bool {
        let state = self.object.state.lock();
        state
            .streams
            .iter()
            .filter(|other| !Arc::ptr_eq(other, own))
            .any(|other| wants.iter().any(|want| other.may_hold(&want.slab)))
    }

    fn append(&self, stream: &Stream, progress: &mut Progress, data: &[u8]) -> Result<(), FsError> {
        // Large data is sent as it is; small data waits until there is enough for a request.
        let limit = self.client.options.tail_limit;
        if progress.tail.len() + data.len() <= limit && data.len() < limit.div_ceil(2) {
            progress.tail.extend_from_slice(data);
            self.client.charge(data.len() as i64);
        } else {
            let slices = [IoSlice::new(&progress.tail), IoSlice::new(data)];
            let slices = if progress.tail.is_empty() {
                &slices[1..]
            } else {
                &slices[..]
            };
            self.client.servers().write(&[WritePiece {
                server: stream.server,
                name: &stream.name,
                form: &stream.form,
                kind: WriteKind::Append {
                    at: progress.stored,
                },
                data: slices,
            }])?;
            progress.stored += (progress.tail.len() + data.len()) as u64;
            self.client.charge(-(progress.tail.len() as i64));
            progress.tail = Vec::new();
        }
        self.client.counters().write.transfer(data.len() as u64);
        Ok(())
    }
}

impl Client {
    /// Whether a check for changes of an object's form by another mount is due.
    pub(in crate::client) fn form_due(&self, object: &Object) -> bool {
        !self.strict() && !self.alone() && object.checked.lock().elapsed() > FRESH_FOR
    }
}

impl Want {
    /// The packed bytes of this part of a request's buffer, gathered into `scratch` if they are not contiguous.
    pub(in crate::client) fn gather<'a>(
        &self,
        data: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        let dense = &data[self.at..self.at + self.len];
        match &self.within {
            None => dense,
            Some(within) => {
                scratch.resize(within.volume() as usize, 0);
                slabfs_model::gather(dense, &self.shape, &Hyperslab::from_region(within), scratch);
                scratch
            }
        }
    }
}

/// The writer: the kernel, if an epoch of the mount is given.
fn writer(epoch: Option<u64>) -> By {
    match epoch {
        Some(_) => By::PageBack,
        None => By::Program,
    }
}

/// The part of a write that lies before a limit.
fn within_limit(data: &[u8], offset: u64, limit: u64) -> &[u8] {
    let room = limit.saturating_sub(offset);
    let len = usize::try_from(room).map_or(data.len(), |room| room.min(data.len()));
    &data[..len]
}

pub(in crate::client) fn too_big(selection: bool, limit: u64) -> FsError {
    FsError::TooBig(if selection {
        format!("a write past the end of the selection, which has {limit} bytes")
    } else {
        format!(
            "a write past the end of the object, which has {limit} bytes; dims grow only along an \
             unlimited slowest axis, or with `slabfs set --dims`"
        )
    })
}
