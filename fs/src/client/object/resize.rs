//! Changes of an object's form: truncate, dims, declaration, punched holes.
//!
//! All of them hold the object's geometry lock exclusively, so that no read, write or flush of this mount runs
//! meanwhile, and first fetch the form from the metadata service. Data that a smaller form cuts off is cleared on the
//! data servers **before** the form changes: a crash in between leaves zeros in place of data that was to be removed
//! anyway, never old bytes where zeros belong.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLockWriteGuard;
use slabfs_mdserver::api::{
    Commit, Entry, Ino, MdError, ResizeHow, Resolved, Rewrite, RightMode, SetAttr, SpecChange,
    SpecPlan, Stored, Truncate, op,
};
use slabfs_model::layout::boxes_of_run;
use slabfs_model::{Coords, Hyperslab, Layout, Placement, Region, gather};

use crate::client::buffer::flush::Scope;
use crate::client::buffer::payload::{Payload, Slices};
use crate::client::coherence::rights::{BoxSet, By, Need, Op, Span};
use crate::client::error::FsError;
use crate::client::handle::Handle;
use crate::client::object::Object;
use crate::client::object::deferred::NO_HANDLE;
use crate::client::object::geometry::Geometry;
use crate::client::{Client, FORM_TRIES};

/// `fallocate` modes of the kernel.
const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE;
const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE;

/// After a change of the form without an answer, which the service may have made.
fn unsure(object: &Object, error: &MdError) {
    if matches!(error, MdError::Unavailable { .. }) {
        object.own.outdate();
    }
}

impl Client {
    /// Sets attributes; `size` truncates or extends by the rules of semantics.md under "Bytes".
    ///
    /// # Errors
    /// `Invalid` for a size the object cannot have; errors of the services.
    pub fn setattr(
        self: &Arc<Self>,
        ino: Ino,
        set: SetAttr,
        size: Option<u64>,
    ) -> Result<Entry, FsError> {
        if let Some(size) = size {
            self.wait_alive()?;
            let object = self.borrow(ino)?;
            self.truncate(&object, size)?;
        }
        if set != SetAttr::default() {
            // A later flush must not overwrite a modification time that was set.
            let open = set.mtime.and_then(|_| self.keep_open(ino));
            if let Some(object) = &open {
                self.flush_object(object, Scope::All)?;
            }
            let entry = self.md().call(op::SetAttr { ino, set })?;
            return Ok(self.with_unflushed(entry));
        }
        self.getattr(ino)
    }

    /// Adopts the newest form of the object, under the lock the caller holds.
    pub(in crate::client) fn renew(
        &self,
        object: &Object,
        geometry: &mut Geometry,
    ) -> Result<(), FsError> {
        let entry = self.md().call(op::GetAttr { ino: object.ino })?;
        self.adopt(object, geometry, &entry)?;
        Ok(())
    }

    /// Flushes all of an object under the lock the caller holds.
    fn flush_alone(&self, object: &Object, geometry: &mut Geometry) -> Result<(), FsError> {
        for _ in 0..FORM_TRIES {
            match self.flush_shaped(object, geometry, Scope::All) {
                Ok(None) => return Ok(()),
                Ok(Some(reply)) => return self.adopt_reply(object, geometry, &reply),
                Err(error) if error.is_stale() => self.renew(object, geometry)?,
                Err(error) => return Err(error),
            }
        }
        Err(FsError::Unsettled(
            "a flush gave up; the data stays dirty".into(),
        ))
    }

    /// Adopts a form that this mount itself set, and drops cached state of the old one.
    fn reform(
        &self,
        object: &Object,
        geometry: &mut Geometry,
        entry: &Entry,
    ) -> Result<(), FsError> {
        self.adopt(object, geometry, entry)?;
        object.grown.store(0, Ordering::Release);
        object.tiling.outdate();
        self.cache().forget_object(object);
        Ok(())
    }

    /// Sets the size.
    fn truncate(&self, object: &Object, size: u64) -> Result<(), FsError> {
        let (_op, mut geometry) = self.enter_all(object, By::Truncate, None)?;
        self.renew(object, &mut geometry)?;
        self.set_size(object, &mut geometry, size)
    }

    /// Begins a change of an object's form, and locks the form. With `pages` the kernel then has no pages of it:
    /// their data would be written back to other positions of the object, or to none.
    pub(in crate::client) fn enter_all<'a>(
        &self,
        object: &'a Object,
        by: By,
        pages: Option<Span>,
    ) -> Result<(Op, RwLockWriteGuard<'a, Geometry>), FsError> {
        let need = Need {
            by,
            mode: RightMode::Write,
            long: false,
            span: pages,
            cells: &|_, _| BoxSet::All,
        };
        loop {
            let op = self.enter(object, &need)?;
            let geometry = object.geometry.write();
            if op.covers(&need, object, &geometry) {
                return Ok((op, geometry));
            }
        }
    }

    /// [`Client::truncate`] under a lock that is already held; the form is the newest.
    pub(in crate::client) fn set_size(
        &self,
        object: &Object,
        geometry: &mut Geometry,
        size: u64,
    ) -> Result<(), FsError> {
        let invalid = |error: slabfs_mdserver::api::SpecError| FsError::Invalid(error.to_string());
        // Uncommitted growth counts: programs see it.
        let now = object.size(geometry);
        if size == 0 {
            if now > 0 || geometry.info.holds {
                // Other mounts request its size meanwhile, without waiting for a lock: unflushed data counts until
                // the service has cleared the object. So no data is lost on an error either.
                let alone = object.flushing.write();
                let entry = self.md().call(op::Clear { ino: object.ino });
                let entry = entry.inspect_err(|error| unsure(object, error))?;
                self.forget_dirty_alone(object);
                drop(alone);
                object.reserved.store(0, Ordering::Release);
                self.reform(object, geometry, &entry)?;
            }
            return Ok(());
        }
        if now > geometry.size() || size < now {
            self.flush_alone(object, geometry)?;
        }
        self.clear_spilled(object, geometry)?;
        match geometry.info.truncate(size).map_err(invalid)? {
            Truncate::Nothing => Ok(()),
            Truncate::Clear => Err(FsError::Invalid("a size of 0 clears".into())),
            Truncate::Dims(dims) => self.resize(object, geometry, dims, ResizeHow::Truncate),
        }
    }

    /// Drops unflushed data, which will never be read again.
    pub(in crate::client) fn forget_dirty(&self, object: &Object) {
        let _alone = object.flushing.write();
        self.forget_dirty_alone(object);
    }

    /// [`Client::forget_dirty`] for a caller that holds `flushing` exclusively.
    fn forget_dirty_alone(&self, object: &Object) {
        let mut state = object.state.lock();
        let runs = std::mem::take(&mut state.runs);
        drop(runs);
        let streams = std::mem::take(&mut state.streams);
        self.account(&mut state);
        drop(state);
        object.grown.store(0, Ordering::Release);
        object.emptied_by.store(NO_HANDLE, Ordering::SeqCst);
        object.touched.store(false, Ordering::Release);
        object.placed.lock().clear();
        self.drop_streams(&streams);
    }

    /// Ends streams without committing them.
    pub(in crate::client) fn drop_streams(
        &self,
        streams: &[Arc<crate::client::buffer::stream::Stream>],
    ) {
        let mut names = Vec::new();
        for stream in streams {
            let mut progress = stream.progress.lock();
            progress.ended = true;
            self.charge(-(progress.tail.len() as i64));
            progress.tail = Vec::new();
            if progress.stored > 0 || progress.sealed {
                names.push((stream.server, stream.name.clone()));
            }
        }
        if !names.is_empty() {
            self.discard_chunks(&names);
        }
    }

    /// Gives an object other dims; all its data is flushed.
    fn resize(
        &self,
        object: &Object,
        geometry: &mut Geometry,
        dims: Coords,
        how: ResizeHow,
    ) -> Result<(), FsError> {
        let allowed = match geometry.grid {
            Some(_) => Some(self.allowed_alone(object, geometry)?),
            None => None,
        };
        if let Some(grid) = geometry.grid.clone() {
            let mut next = geometry.info.clone();
            next.dims = dims.clone();
            let keep = next
                .cells()
                .map_err(|error| FsError::Invalid(error.to_string()))?;
            let size: u64 = keep.iter().product();
            self.reserve(object, geometry, size)?;
            let present = Region::all(&geometry.cells);
            let mut outside = Vec::new();
            present.subtract(&Region::all(&keep), &mut outside);
            for gone in outside {
                self.cut_chunks(object, geometry, &grid, &gone, &keep)?;
            }
        }
        if let Some(allowed) = allowed {
            allowed.end()?;
        }
        let resized = self.md().call(op::Resize {
            ino: object.ino,
            dims,
            how,
        });
        let resized = resized.inspect_err(|error| unsure(object, error))?;
        self.reform(object, geometry, &resized.entry)
    }

    /// Sets the dims of an array (`slabfs set --dims`): axes grow up to their max dims, or shrink.
    ///
    /// # Errors
    /// `Invalid` where an axis may not have that length.
    pub fn set_dims(self: &Arc<Self>, ino: Ino, dims: Coords) -> Result<Entry, FsError> {
        let object = self.borrow(ino)?;
        {
            let (_op, mut geometry) = self.enter_all(&object, By::Program, Some(Span::ALL))?;
            self.renew(&object, &mut geometry)?;
            geometry
                .info
                .check_dims(&dims)
                .map_err(|error| FsError::Invalid(error.to_string()))?;
            self.flush_alone(&object, &mut geometry)?;
            if geometry.info.layout == Layout::Canonical
                && geometry.info.holds
                && geometry.info.dims.get(1..) != dims.get(1..)
            {
                return Err(FsError::Invalid(
                    "layout canonical stores all rows contiguously: only the slowest axis can \
                     change once there is data; layouts aligned and grid can change every axis"
                        .into(),
                ));
            }
            if geometry.info.dims != dims {
                self.resize(&object, &mut geometry, dims, ResizeHow::SetDims)?;
            }
        }
        self.getattr(ino)
    }

    /// Declares an object: dtype, dims and so on, by the rules of semantics.md under "Attributes". Existing data is
    /// stored again where the new form requires it.
    ///
    /// # Errors
    /// `Invalid`, with the reason.
    pub fn declare(self: &Arc<Self>, ino: Ino, change: SpecChange) -> Result<Entry, FsError> {
        let object = self.borrow(ino)?;
        {
            let (_op, mut geometry) = self.enter_all(&object, By::Program, Some(Span::ALL))?;
            let mut tries = 0;
            let entry = loop {
                self.renew(&object, &mut geometry)?;
                self.flush_alone(&object, &mut geometry)?;
                let info = &geometry.info;
                let rewrite = match change.resolve(info) {
                    Ok(Resolved {
                        info,
                        plan: SpecPlan::Rewrite,
                    }) => Some(self.rewrite(&object, &geometry, &info)?),
                    Ok(_) => None,
                    // Its container may have a policy: the service decides.
                    Err(_) if !info.declared && info.is_empty() => None,
                    Err(error) => return Err(FsError::Invalid(error.to_string())),
                };
                tries += 1;
                match self.md().call(op::Declare {
                    ino,
                    change: change.clone(),
                    rewrite,
                }) {
                    Ok(entry) => break entry,
                    // Another mount changed the object while this one copied it.
                    Err(MdError::Busy | MdError::NeedsRewrite) if tries < FORM_TRIES => {}
                    Err(error) => {
                        unsure(&object, &error);
                        return Err(error.into());
                    }
                }
            };
            object.reserved.store(0, Ordering::Release);
            self.reform(&object, &mut geometry, &entry)?;
        }
        self.getattr(ino)
    }

    /// Stores the bytes of an object again, in the form `info`; the bytes themselves stay the same.
    fn rewrite(
        &self,
        object: &Object,
        geometry: &Geometry,
        info: &slabfs_mdserver::api::ArrayInfo,
    ) -> Result<Rewrite, FsError> {
        let mut rewrite = Rewrite {
            if_change: geometry.attr.change,
            spare: None,
            records: Vec::new(),
        };
        let mut entry = Entry {
            attr: geometry.attr.clone(),
            info: Some(info.clone().into()),
        };
        if info.layout != Layout::Aligned {
            let spare = self.md().call(op::SpareGeneration {
                ino: object.ino,
                placement: info.placement,
            })?;
            if let Some(info) = &mut entry.info {
                info.generation = spare.generation;
                info.stripe.clone_from(&spare.stripe);
                info.blocks = (info.placement == Placement::Region).then(|| info.extents());
            }
            rewrite.spare = Some(spare);
        }
        let new = Geometry::new(&entry)?;
        let size = geometry.size();
        let step = self.chunk_limit().min(8 << 20);
        // Complete rows of the new form where they fit, so that chunks are boxes.
        let step = match new.row {
            0 => step,
            row if row <= step => step - step % row,
            row => row.min(self.chunk_limit()),
        };
        // Old holes would be stored as zeros: they become holes of the new form instead.
        let holes = match &geometry.grid {
            Some(grid) if grid.chunk.len() == 1 && new.info.fill.is_zero() => {
                Some((grid.chunk[0], self.existing(object, geometry)?))
            }
            _ => None,
        };
        let mut from = 0;
        let mut bytes = Vec::new();
        while from < size {
            if let Some((width, places)) = &holes {
                let next = places.partition_point(|at| at[0] < from / width);
                match places.get(next) {
                    None => break,
                    Some(at) => from = from.max(at[0] * width / step * step),
                }
            }
            let len = step.min(size - from);
            bytes.resize(len as usize, 0);
            let mut at = 0;
            for region in boxes(&geometry.cells, from, len) {
                let part = region.volume() as usize;
                let slab = Hyperslab::from_region(&region);
                self.read_slab(object, geometry, size, &slab, &mut bytes[at..at + part])?;
                at += part;
            }
            self.store_again(object, &new, from, &bytes, &mut rewrite)?;
            from += len;
        }
        Ok(rewrite)
    }

    fn store_again(
        &self,
        object: &Object,
        new: &Geometry,
        from: u64,
        bytes: &[u8],
        rewrite: &mut Rewrite,
    ) -> Result<(), FsError> {
        let mut at = 0;
        for region in boxes(&new.cells, from, bytes.len() as u64) {
            let part = &bytes[at..at + region.volume() as usize];
            at += part.len();
            let slab = Hyperslab::from_region(&region);
            if let Some(grid) = &new.grid {
                self.write_grid(
                    object,
                    new,
                    grid,
                    std::slice::from_ref(&slab),
                    &Payload::Packed(part),
                )?;
                continue;
            }
            let pieces = self.split(new, vec![region.clone()]).into_iter();
            let slabs = pieces.map(|piece| {
                let mut packed = vec![0; piece.volume() as usize];
                let inside = Hyperslab::from_region(&piece.within(&region));
                gather(part, &region.shape, &inside, &mut packed);
                (Hyperslab::from_region(&piece), Slices::Owned(packed))
            });
            self.store_slabs(object, new, slabs, &mut rewrite.records)?;
        }
        Ok(())
    }
}

fn boxes(cells: &[u64], offset: u64, len: u64) -> Vec<Region> {
    let mut boxes = Vec::new();
    boxes_of_run(cells, offset, len, &mut boxes);
    boxes
}

impl Handle {
    /// `fallocate`: reserving room (which only sets the size), punching holes and zeroing ranges.
    ///
    /// # Errors
    /// `NotSupported` for other modes, for selections, and for holes where the fill is not zero.
    pub fn allocate(&self, mode: i32, offset: u64, len: u64) -> Result<(), FsError> {
        if !self.writable {
            return Err(FsError::ReadOnly("the file is not open for writing".into()));
        }
        self.client.admit(&self.object)?;
        if self.selected.is_some() {
            return Err(FsError::NotSupported(
                "fallocate works on the object, not on a selection of it".into(),
            ));
        }
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= i64::MAX as u64)
            .ok_or_else(|| FsError::TooBig("the range ends beyond 2^63".into()))?;
        match mode {
            0 => self.extend_to(end),
            KEEP_SIZE => Ok(()),
            mode if mode == PUNCH_HOLE | KEEP_SIZE || mode == ZERO_RANGE | KEEP_SIZE => {
                self.punch(offset, end)
            }
            ZERO_RANGE => {
                self.extend_to(end)?;
                self.punch(offset, end)
            }
            _ => Err(FsError::NotSupported(
                "only plain allocation, FALLOC_FL_PUNCH_HOLE and FALLOC_FL_ZERO_RANGE work".into(),
            )),
        }
    }

    fn extend_to(&self, end: u64) -> Result<(), FsError> {
        let (client, object) = (&self.client, &self.object);
        if self.has_deferred() && end > object.geometry.read().size_limit() {
            self.withdraw_truncate();
        }
        let (_op, mut geometry) = client.enter_all(object, By::Program, None)?;
        client.renew(object, &mut geometry)?;
        let size = object.size(&geometry);
        if end <= size {
            return Ok(());
        }
        if end > geometry.size_limit() {
            return Err(FsError::TooBig(format!(
                "the object has fixed dims and {size} bytes"
            )));
        }
        let size = geometry.full_rows(end);
        client.set_size(object, &mut geometry, size)
    }

    /// Makes `[from, to)` read as zeros, and frees its storage where possible.
    fn punch(&self, from: u64, to: u64) -> Result<(), FsError> {
        let (client, object) = (&self.client, &self.object);
        let (_op, mut geometry) = client.enter_all(object, By::Program, None)?;
        if !geometry.info.fill.is_zero() {
            return Err(FsError::NotSupported(
                "the object's fill value is not zero: a hole would read as the fill".into(),
            ));
        }
        client.renew(object, &mut geometry)?;
        client.flush_alone(object, &mut geometry)?;
        let to = to.min(geometry.size());
        if from >= to {
            return Ok(());
        }
        let regions = boxes(&geometry.cells, from, to - from);
        object.epoch.fetch_add(1, Ordering::AcqRel);
        let mut commit = Commit {
            ino: object.ino,
            generation: geometry.info.generation,
            records: Vec::new(),
            clips: Vec::new(),
            grow_to: None,
            size_at_least: 0,
            mtime: None,
            wrote: true,
            stored: 0,
            settled: false,
        };
        match geometry.grid.clone() {
            Some(grid) => {
                let allowed = client.allowed_alone(object, &mut geometry)?;
                for region in &regions {
                    let freed = client.punch_grid(object, &geometry, &grid, region)?;
                    commit.stored -= freed.min(i64::MAX as u64) as i64;
                }
                allowed.end()?;
            }
            None => {
                commit.records = regions
                    .iter()
                    .map(|region| (Hyperslab::from_region(region), Stored::Fill))
                    .collect();
            }
        }
        let reply = client.md().call(commit)?;
        object.tiling.outdate();
        client.cache().forget_object(object);
        client.adopt_reply(object, &mut geometry, &reply)
    }
}
