//! Reads: the committed chunks, with the overlay of uncommitted data painted over them.
//!
//! A request is a few boxes of cells. For each box, in this order: dirty data is looked up first (so that a flush that
//! ends meanwhile cannot hide it); the committed bytes are read from the servers, one message a server; then the open
//! streams, the runs being flushed and the dirty runs are painted over them, each replacing the one before. Holes read
//! as the fill value.
//!
//! If a request has no overlay and its bytes are contiguous in one chunk of this process, the reply comes from the
//! chunk's mapping without a copy (docs/decisions/03-mapped-reads.md).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slabfs_mdserver::api::RightMode;
use slabfs_model::{Hyperslab, scatter};
use slabfs_objstore::StoreError;

use crate::client::coherence::rights::{BoxSet, By, Need, Op, Span};
use crate::client::coupling::{Awaited, Early};
use crate::client::error::FsError;
use crate::client::handle::{Handle, ReadSink, Want};
use crate::client::object::Object;
use crate::client::object::fresh::FRESH_FOR;
use crate::client::object::geometry::Geometry;
use crate::client::stored::block_cache::BLOCK;
use crate::client::stored::committed::unwritten;
use crate::client::stored::same_host::AtOnce;
use crate::client::{Client, FORM_TRIES};

/// Reads up to this size of chunks in this process are served from a block in memory once they repeat: mapping the
/// pages costs more than copying so little.
const SMALL: usize = 16 << 10;

/// How long a known end of file is trusted, so that a small file read right after its open needs no second request.
const END_FOR: Duration = Duration::from_millis(5);

/// The largest reply buffer that is retained for a later read, and how many of them.
const MAX_BUFFER: usize = 4 << 20;
const MOST_BUFFERS: usize = 8;

/// Pause before the matcher is asked about a mount that does not answer.
const GONE: Duration = Duration::from_millis(200);

/// The parameters of a read.
#[derive(Debug, Clone, Copy)]
struct Asked {
    offset: u64,
    len: usize,
    /// Set if the read must not block: the way to serve it.
    at_once: Option<AtOnce>,
    awaited: Awaited,
}

/// Reply buffers stay faulted in: a fresh one would cost a quarter of the speed. They are of the process and not of a
/// thread, since thousands of threads may wait in reads.
static BUFFERS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// A reply buffer. Dropping it makes it available to the next read.
struct Buffer(Vec<u8>);

impl Buffer {
    fn take(len: usize) -> Buffer {
        let mut bytes = BUFFERS.lock().pop().unwrap_or_default();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        Buffer(bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        let mut idle = BUFFERS.lock();
        if bytes.len() <= MAX_BUFFER && idle.len() < MOST_BUFFERS {
            idle.push(bytes);
        }
    }
}

impl Handle {
    /// Whether a check for changes by another mount is due: periodically, and when a read reaches the end, which
    /// another mount may have moved.
    pub(in crate::client) fn due(&self, offset: u64, len: usize) -> bool {
        if self.client.strict() || self.client.alone() {
            return false;
        }
        let age = self.object.checked.lock().elapsed();
        age > FRESH_FOR || age > END_FOR && self.selected.is_none() && self.reaches_end(offset, len)
    }

    fn reaches_end(&self, offset: u64, len: usize) -> bool {
        let Some(geometry) = self.object.geometry.try_read() else {
            return true;
        };
        offset.saturating_add(len as u64) > self.object.size(&geometry)
    }

    /// Reads at most `len` bytes at `offset` of the handle's space; fewer at its end.
    ///
    /// # Errors
    /// Of the servers; damage names the chunk. `sink` gets nothing then.
    pub fn read(&self, offset: u64, len: usize, sink: &mut dyn ReadSink) -> Result<(), FsError> {
        self.read_by(By::Program, offset, len, sink)
    }

    /// As [`Handle::read`], for the kernel, which caches the bytes in a page.
    ///
    /// # Errors
    /// As [`Handle::read`].
    pub fn read_page(
        &self,
        offset: u64,
        len: usize,
        sink: &mut dyn ReadSink,
    ) -> Result<(), FsError> {
        self.read_by(By::PageOut, offset, len, sink)
    }

    fn read_by(
        &self,
        by: By,
        offset: u64,
        len: usize,
        sink: &mut dyn ReadSink,
    ) -> Result<(), FsError> {
        let len = match by {
            By::Program => self.within_queue(offset, len),
            // The kernel would take the rest of the page for zeros.
            By::Truncate | By::PageOut | By::PageBack => len,
        };
        let begun = Instant::now();
        loop {
            self.client.admit(&self.object)?;
            let mut awaited = Awaited::Nothing;
            if self.object.awaits_data() {
                let early = match by {
                    By::Program => self.read_header(offset, len, sink)?,
                    // The kernel would cache what is not there yet.
                    By::Truncate | By::PageOut | By::PageBack => Early::Other,
                };
                awaited = match early {
                    Early::Answered => return Ok(()),
                    Early::Matched(awaited) => awaited,
                    Early::Other if by == By::PageOut => self.await_page(offset, len, sink)?,
                    Early::Other => self.await_cells(offset, len, &|| sink.is_wanted())?,
                };
            } else if self.due(offset, len) {
                self.client.refresh(&self.object)?;
            }
            let cells = self.cells_to_read(by, offset, len);
            let need = self.need_to_read(by, offset, len, &cells);
            let (op, _range) = self.enter(&need, Some(offset), len)?;
            let asked = Asked {
                offset,
                len,
                at_once: None,
                awaited,
            };
            match self.read_in(&op, asked, &need, sink) {
                // The mount that had the data may be gone: the matcher will know.
                Err(FsError::Store(StoreError::Unavailable { .. }))
                    if self.awaits_data() && self.object.waits(begun) =>
                {
                    self.client.forget_watched(self.object.ino);
                    if self.client.pause(GONE) {
                        return Err(FsError::Cancelled);
                    }
                }
                read => {
                    if read? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Reads what is there of a coupled object, without waiting for more.
    ///
    /// # Errors
    /// As [`Handle::read`].
    pub(in crate::client) fn read_there(
        &self,
        offset: u64,
        len: usize,
        sink: &mut dyn ReadSink,
    ) -> Result<(), FsError> {
        let cells = self.cells_to_read(By::Program, offset, len);
        let need = self.need_to_read(By::Program, offset, len, &cells);
        let asked = Asked {
            offset,
            len,
            at_once: None,
            awaited: Awaited::Nothing,
        };
        loop {
            let (op, _range) = self.enter(&need, Some(offset), len)?;
            if self.read_in(&op, asked, &need, sink)? {
                return Ok(());
            }
        }
    }

    /// Reads without waiting for rights or servers; returns false, and has done nothing, if it would block. `page` is
    /// set for a read by the kernel, which caches the bytes. `sink` must have the kernel copy the bytes and must not
    /// access them itself: they may lie in a mapped file that has been truncated.
    ///
    /// # Errors
    /// As [`Handle::read`].
    pub fn try_read(
        &self,
        page: bool,
        offset: u64,
        len: usize,
        sink: &mut dyn ReadSink,
    ) -> Result<bool, FsError> {
        let len = self.within_queue(offset, len);
        let awaited = match self.object.awaits_data() {
            false => Awaited::Nothing,
            true if !page && self.knows_read(offset, len) => Awaited::Cells,
            true => return Ok(false),
        };
        let Some(at_once) = self.at_once(offset, len) else {
            return Ok(false);
        };
        self.client.admit(&self.object)?;
        let by = if page { By::PageOut } else { By::Program };
        let cells = self.cells_to_read(by, offset, len);
        let need = self.need_to_read(by, offset, len, &cells);
        let Some((op, _range)) = self.enter_now(&need, Some(offset), len) else {
            return Ok(false);
        };
        let asked = Asked {
            offset,
            len,
            at_once: Some(at_once),
            awaited,
        };
        self.read_in(&op, asked, &need, sink)
    }

    /// Whether pages that the kernel has retained since the object had this change number are current. If so, they count as
    /// handed out, under a right that this waits for. False also where they might be old.
    ///
    /// # Errors
    /// As [`Handle::read`].
    pub fn trust_pages(&self, change: u64) -> Result<bool, FsError> {
        if !self.may_trust(change) {
            return Ok(false);
        }
        let all = |_: &Geometry, _| BoxSet::All;
        let _op = self.client.enter(&self.object, &all_pages(&all))?;
        Ok(self.may_trust(change))
    }

    /// [`Handle::trust_pages`] without waiting; `None` where it would have to.
    pub fn try_trust_pages(&self, change: u64) -> Option<bool> {
        if !self.may_trust(change) {
            return Some(false);
        }
        let all = |_: &Geometry, _| BoxSet::All;
        let _op = self.client.enter_now(&self.object, &all_pages(&all))?;
        Some(self.may_trust(change))
    }

    /// Whether the object as this mount knows it has this change number, and no data of this mount that is not part of it.
    fn may_trust(&self, change: u64) -> bool {
        self.object.own.writers() == 0
            && !self.object.is_dirty()
            && !self.client.lapsed()
            && self.object.geometry.read().attr.change == change
    }

    fn need_to_read<'a>(
        &self,
        by: By,
        offset: u64,
        len: usize,
        cells: &'a dyn Fn(&Geometry, u64) -> BoxSet,
    ) -> Need<'a> {
        let span = match (by, &self.selected) {
            (By::Program, _) => None,
            (_, None) => Some(Span::of(offset, len as u64)),
            (_, Some(_)) => Some(Span::ALL),
        };
        Need {
            by,
            mode: RightMode::Read,
            long: false,
            span,
            cells,
        }
    }

    fn cells_to_read(
        &self,
        by: By,
        offset: u64,
        len: usize,
    ) -> impl Fn(&Geometry, u64) -> BoxSet + '_ {
        move |geometry, size| match by {
            By::Program => self.read_needs(geometry, size, offset, len as u64),
            By::Truncate | By::PageOut | By::PageBack => BoxSet::All,
        }
    }

    /// Reads within an operation that has begun; false if it has to restart, or cannot be served `at_once`.
    fn read_in(
        &self,
        op: &Op,
        asked: Asked,
        need: &Need<'_>,
        sink: &mut dyn ReadSink,
    ) -> Result<bool, FsError> {
        let mut last = None;
        for _ in 0..FORM_TRIES {
            match self.read_shaped(op, asked, need, sink) {
                // A chunk of the tiling that was read has been replaced since.
                Err(FsError::Store(StoreError::Missing(name))) => {
                    // The same chunk twice in a row is not replaced but lost.
                    if last.as_ref() == Some(&name) {
                        return Err(FsError::Store(StoreError::Missing(name)));
                    }
                    last = Some(name);
                    self.client.refresh_tiling(&self.object)?;
                }
                other => return other,
            }
        }
        Err(FsError::Unsettled(
            "chunks vanish faster than they can be read".into(),
        ))
    }

    fn read_shaped(
        &self,
        op: &Op,
        asked: Asked,
        need: &Need<'_>,
        sink: &mut dyn ReadSink,
    ) -> Result<bool, FsError> {
        let Asked {
            offset,
            len,
            at_once,
            awaited,
        } = asked;
        let object = &*self.object;
        let geometry = object.geometry.read();
        let size = object.size(&geometry);
        if !op.covers(need, object, &geometry) {
            return Ok(false);
        }
        if need.by == By::Program {
            self.waiting.check_locks()?;
        }
        let end = match &self.selected {
            Some(selected) => selected.bytes,
            None => size,
        }
        .min(offset.saturating_add(len as u64));
        let may_grow = self.selected.is_none() && geometry.grows();
        let is_short = offset.saturating_add(len as u64) > end;
        if is_short && may_grow && !awaited.allows_fill(object, &geometry) {
            return Ok(false);
        }
        if offset >= end {
            sink.give(&[]);
            return Ok(true);
        }
        let len = (end - offset) as usize;
        let cache = self.client.cache();
        let held = len as u64 <= BLOCK && cache.holds(object, offset, end);
        // Looking up a piece of a lattice costs more than serving it from a read-ahead window.
        let ready = held || self.is_ahead(offset, len);
        if at_once == Some(AtOnce::SameHost) {
            let shown = !ready && self.show_at_once(&geometry, size, (need.by, offset, len), sink);
            if shown {
                self.client.counters().read.transfer(len as u64);
            }
            return Ok(shown);
        }
        let wanted = match ready {
            true => None,
            false => self.read_same_host(&geometry, size, offset, len),
        };
        self.client.counters().read.transfer(len as u64);
        // The kernel reads ahead for its pages, and caches them.
        let by_kernel = need.by == By::PageOut;
        if wanted.is_none()
            && !by_kernel
            && let Some((window, range)) = self.ahead(&geometry, size, offset, len)
        {
            sink.give(window.bytes(range));
            return Ok(true);
        }
        let wants = self.wants(&geometry, size, offset, len as u64)?;
        let cached = wanted.is_none()
            && self.selected.is_none()
            && !(by_kernel && geometry.info.codec.is_none())
            && self.client.is_for_cache(object, &geometry, offset, len);
        if !cached
            && let [want] = wants.as_slice()
            && want.within.is_none()
            && self
                .client
                .show(object, &geometry, &want.slab, wanted, sink)?
        {
            return Ok(true);
        }
        let mut buffer = Buffer::take(len);
        let out = &mut buffer.0[..len];
        let from_cache = cached
            && self
                .client
                .read_cached(object, &geometry, size, offset, out);
        if !from_cache {
            let before = unwritten();
            self.fill(&geometry, size, &wants, out)?;
            if unwritten() != before && !awaited.allows_fill(object, &geometry) {
                return Ok(false);
            }
        }
        sink.give(out);
        Ok(true)
    }

    fn fill(
        &self,
        geometry: &Geometry,
        size: u64,
        wants: &[Want],
        out: &mut [u8],
    ) -> Result<(), FsError> {
        for want in wants {
            let dense = &mut out[want.at..want.at + want.len];
            match &want.within {
                None => self
                    .client
                    .read_slab(&self.object, geometry, size, &want.slab, dense)?,
                Some(within) => {
                    let mut packed = vec![0; within.volume() as usize];
                    self.client
                        .read_slab(&self.object, geometry, size, &want.slab, &mut packed)?;
                    scatter(&packed, &Hyperslab::from_region(within), dense, &want.shape);
                }
            }
        }
        Ok(())
    }
}

/// What handing out all pages of an object needs.
fn all_pages<'a>(all: &'a dyn Fn(&Geometry, u64) -> BoxSet) -> Need<'a> {
    Need {
        by: By::PageOut,
        mode: RightMode::Read,
        long: false,
        span: Some(Span::ALL),
        cells: all,
    }
}

impl Client {
    /// Reads the cells of `slab`, packed, into `out`.
    pub(in crate::client) fn read_slab(
        &self,
        object: &Object,
        geometry: &Geometry,
        size: u64,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let overlay = self.overlay(object, geometry, size, slab);
        if !overlay.covers {
            self.read_committed(object, geometry, slab, out)?;
        }
        self.paint_overlay(&overlay, slab, out)
    }

    /// Serves a small read from the block cache; false if it cannot be served from there.
    fn read_cached(
        &self,
        object: &Object,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        out: &mut [u8],
    ) -> bool {
        {
            let state = object.state.lock();
            if !state.streams.is_empty() || state.taken.is_some() {
                return false;
            }
            if !state.runs.is_empty() {
                if state.runs.covers(offset, offset + out.len() as u64) {
                    for (at, bytes) in state.runs.pieces(offset, offset + out.len() as u64) {
                        let at = (at - offset) as usize;
                        out[at..at + bytes.len()].copy_from_slice(bytes);
                    }
                    return true;
                }
                if state.runs.overlaps(offset, offset + out.len() as u64) {
                    return false;
                }
            }
        }
        let end = offset + out.len() as u64;
        let mut at = offset;
        while at < end {
            let block = at / BLOCK * BLOCK;
            let upto = end.min(block + BLOCK);
            let part = &mut out[(at - offset) as usize..(upto - offset) as usize];
            if !self.cache().copy(object, at, part) {
                let epoch = object.epoch.load(Ordering::Acquire);
                let block_end = (block + BLOCK).min(size);
                // An error may concern a part of the block outside this read: the direct read finds out.
                let Ok(bytes) = self.read_block(object, geometry, size, block, block_end) else {
                    return false;
                };
                part.copy_from_slice(&bytes[(at - block) as usize..(upto - block) as usize]);
                self.cache().insert(object, block, bytes, epoch);
            }
            at = upto;
        }
        true
    }

    /// The committed bytes of one block.
    fn read_block(
        &self,
        object: &Object,
        geometry: &Geometry,
        size: u64,
        block: u64,
        end: u64,
    ) -> Result<Vec<u8>, FsError> {
        let mut bytes = vec![0; (end - block) as usize];
        let mut boxes = Vec::new();
        slabfs_model::layout::boxes_of_run(
            &geometry.cells_at(size),
            block,
            end - block,
            &mut boxes,
        );
        let mut from = 0;
        for region in boxes {
            let len = region.volume() as usize;
            let slab = Hyperslab::from_region(&region);
            self.read_committed(object, geometry, &slab, &mut bytes[from..from + len])?;
            from += len;
        }
        Ok(bytes)
    }

    /// Whether a read goes through the cache: reads of remote and of encoded chunks do; small reads of chunks in this
    /// process do once their block was requested before, so that bytes read once displace nothing.
    fn is_for_cache(&self, object: &Object, geometry: &Geometry, offset: u64, len: usize) -> bool {
        if object.coupled.in_memory() {
            // The rest of a block may not be written, or be of a mount that is gone.
            return false;
        }
        if !self.local() || !geometry.info.codec.is_none() {
            return len as u64 <= BLOCK;
        }
        len <= SMALL
            && offset / BLOCK == (offset + len as u64 - 1) / BLOCK
            && self.cache().is_wanted(object, offset)
    }
}
