//! Reading: the committed chunks first, and what is newer painted over them.
//!
//! A request is a few boxes of cells. For each, in this order: what is dirty here is looked up first (so
//! that a flush that ends meanwhile cannot hide it), the committed bytes come from the servers, one message
//! a server, and then the open streams, the runs that are being flushed and the dirty runs are painted
//! over, each newer than the one before. Holes are fill.
//!
//! Where nothing newer lies on a request and its bytes lie together in one chunk in this process, the
//! reply is given from the chunk's mapping and nothing is copied (docs/decisions/mapped-reads.md).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slabfs_mdserver::api::{RightMode, Stored};
use slabfs_model::layout::{Grid, Tiling};
use slabfs_model::{
    Coords, Hyperslab, Region, ServerId, Version, fill_slab, fill_slab_at, for_each_run, intersect,
    scatter,
};
use slabfs_objstore::client::ReadPiece;
use slabfs_objstore::{ChunkForm, ChunkName, StoreError};

use super::block_cache::BLOCK;
use super::error::FsError;
use super::geometry::Geometry;
use super::handle::{Handle, ReadSink, Want};
use super::object::Object;
use super::rights::{By, Cells, Op, Span};
use super::stream::Stream;
use super::{Client, FORM_TRIES};

/// Reads of chunks in this process up to this size are worth a block in memory once they come again:
/// asking for the pages of a mapping costs more than to copy so little.
const SMALL: usize = 16 << 10;

/// How old a mount's idea of an object may be while other mounts are attached, if it is not strict.
pub(super) const FRESH_FOR: Duration = Duration::from_secs(1);
/// How long the end is believed; a small file that is read right after it was opened is not asked for twice.
const END_FOR: Duration = Duration::from_millis(5);

/// A reply buffer that a thread keeps for its next request is at most this large.
const KEPT_BUFFER: usize = 4 << 20;

thread_local! {
    /// Reply buffers stay faulted in: a fresh one would cost a quarter of the speed.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One part of a request in one chunk.
#[derive(Debug)]
pub(super) struct Piece {
    /// Where in the request's packed box the cells go.
    pub(super) want: Hyperslab,
    /// Which cells of the chunk.
    pub(super) chunk: Hyperslab,
    /// The chunk is a lattice with gaps: what lies under it is not cut, it is painted over it.
    pub(super) over: bool,
    pub(super) server: ServerId,
    pub(super) name: ChunkName,
    pub(super) form: ChunkForm,
}

/// What a request finds of the committed object.
#[derive(Debug, Default)]
pub(super) struct Committed {
    /// Oldest first.
    pub(super) pieces: Vec<Piece>,
    /// Packed boxes nothing is stored for.
    pub(super) holes: Vec<Region>,
}

/// What a request finds that is newer than what is committed.
#[derive(Debug, Default)]
pub(super) struct Newer {
    streams: Vec<Arc<Stream>>,
    /// Where in the packed bytes, and what.
    patches: Vec<(usize, Vec<u8>)>,
    /// Dirty bytes are all of it: nothing else is looked at.
    pub(super) covers: bool,
}

/// Where the pieces of a plan are read to.
#[derive(Debug)]
pub(super) struct Laid {
    /// Where they lie together in the packed bytes: first byte, length, piece; in this order.
    direct: Vec<(usize, usize, usize)>,
    /// Others, by way of their own bytes.
    detours: Vec<(usize, Vec<u8>)>,
}

impl Handle {
    /// Whether a read of `len` bytes at `offset` may have to wait for a server.
    pub fn would_block(&self, offset: u64, len: usize) -> bool {
        if self.client.local() {
            return false;
        }
        if self.selected.is_some() || self.client.lapsed() || self.due(offset, len) {
            return true;
        }
        let Some(geometry) = self.object.geometry.try_read() else {
            return true;
        };
        let end = (offset + len as u64).min(self.object.size(&geometry));
        let state = self.object.state.lock();
        if !state.streams.is_empty() || state.taken.is_some() {
            return true;
        }
        if !state.runs.overlaps(offset, end) && self.is_ahead(offset, len) {
            return false;
        }
        if len as u64 > BLOCK {
            return true;
        }
        !state.runs.covers(offset, end) && !self.client.cache().holds(self.object.ino, offset, end)
    }

    /// Whether it is time to ask whether another mount has changed the object: now and then, and when a
    /// read reaches the end, since it may not be the end any more.
    pub(super) fn due(&self, offset: u64, len: usize) -> bool {
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
    /// Of the servers; damage names the chunk. Nothing is given to `sink` then.
    pub fn read(&self, offset: u64, len: usize, sink: &mut dyn ReadSink) -> Result<(), FsError> {
        self.read_by(By::Program, offset, len, sink)
    }

    /// The same for the kernel, which is going to keep the bytes in a page.
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
        loop {
            self.client.admit(&self.object)?;
            if self.due(offset, len) {
                self.client.refresh(&self.object)?;
            }
            let needs = self.needs_to_read(by, offset, len);
            let op = self.client.enter(
                &self.object,
                by,
                RightMode::Read,
                self.page(by, offset, len),
                &needs,
            )?;
            let _turn = self.begin_whole(by, false, Some(offset), len);
            if self.read_in(&op, by, &needs, offset, len, sink)? {
                return Ok(());
            }
        }
    }

    /// Reads without waiting for rights or servers; false, and nothing is done, where that is not possible.
    /// `page`: it is the kernel that reads, which is going to keep the bytes.
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
        if self.would_block(offset, len) {
            return Ok(false);
        }
        self.client.admit(&self.object)?;
        let by = if page { By::PageOut } else { By::Program };
        let needs = self.needs_to_read(by, offset, len);
        let Some(op) = self.client.enter_now(
            &self.object,
            by,
            RightMode::Read,
            self.page(by, offset, len),
            &needs,
        ) else {
            return Ok(false);
        };
        let Some(_turn) = self.try_begin_whole(by, false, Some(offset), len) else {
            return Ok(false);
        };
        self.read_in(&op, by, &needs, offset, len, sink)
    }

    /// The bytes of a page.
    fn page(&self, by: By, offset: u64, len: usize) -> Option<Span> {
        match (by, &self.selected) {
            (By::Program, _) => None,
            (_, None) => Some(Span::of(offset, len as u64)),
            (_, Some(_)) => Some(Span::ALL),
        }
    }

    fn needs_to_read(
        &self,
        by: By,
        offset: u64,
        len: usize,
    ) -> impl Fn(&Geometry, u64) -> Cells + '_ {
        move |geometry, size| match by {
            By::Program => self.read_needs(geometry, size, offset, len as u64),
            By::Truncate | By::PageOut | By::PageBack => Cells::All,
        }
    }

    /// Reads in an operation that has begun; false if it has to begin anew.
    fn read_in(
        &self,
        op: &Op,
        by: By,
        needs: &dyn Fn(&Geometry, u64) -> Cells,
        offset: u64,
        len: usize,
        sink: &mut dyn ReadSink,
    ) -> Result<bool, FsError> {
        let mut last = None;
        for _ in 0..FORM_TRIES {
            match self.read_shaped(op, by, needs, offset, len, sink) {
                // A chunk that was there when the tiling was read has been replaced since.
                Err(FsError::Store(StoreError::Missing(name))) => {
                    // The same chunk twice in a row is not replaced, it is gone.
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
        by: By,
        needs: &dyn Fn(&Geometry, u64) -> Cells,
        offset: u64,
        len: usize,
        sink: &mut dyn ReadSink,
    ) -> Result<bool, FsError> {
        let object = &*self.object;
        let geometry = object.geometry.read();
        let size = object.size(&geometry);
        if !op.covers(|| needs(&geometry, size)) {
            return Ok(false);
        }
        if by == By::Program {
            self.waiting.check_locks()?;
        }
        let end = match &self.selected {
            Some(selected) => selected.bytes,
            None => size,
        }
        .min(offset.saturating_add(len as u64));
        if offset >= end {
            sink.give(&[]);
            return Ok(true);
        }
        let len = (end - offset) as usize;
        self.client.counters().read.transfer(len as u64);
        if let Some((window, range)) = self.ahead(&geometry, size, offset, len) {
            sink.give(window.bytes(range));
            return Ok(true);
        }
        let wants = self.wants(&geometry, size, offset, len as u64)?;
        let cached =
            self.selected.is_none() && self.client.is_for_cache(object, &geometry, offset, len);
        if !cached
            && let [want] = wants.as_slice()
            && want.within.is_none()
            && self.client.show(object, &geometry, &want.slab, sink)?
        {
            return Ok(true);
        }
        BUFFER.with(|cell| {
            // A sink that reads again on this thread would find the buffer taken: it gets one of its own.
            let mut kept = cell.try_borrow_mut().ok();
            let mut own = Vec::new();
            let buffer = kept.as_deref_mut().unwrap_or(&mut own);
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            let out = &mut buffer[..len];
            if cached
                && self
                    .client
                    .read_cached(object, &geometry, size, offset, out)
            {
                sink.give(out);
            } else {
                self.fill(&geometry, size, &wants, out)?;
                sink.give(&buffer[..len]);
            }
            if buffer.len() > KEPT_BUFFER {
                *buffer = Vec::new();
            }
            Ok(true)
        })
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

impl Client {
    /// Gives the bytes of `slab` from where they lie, if they lie together in one chunk of this process
    /// and nothing newer is here.
    fn show(
        &self,
        object: &Object,
        geometry: &Geometry,
        slab: &Hyperslab,
        sink: &mut dyn ReadSink,
    ) -> Result<bool, FsError> {
        if !self.local() || !geometry.info.codec.is_none() {
            return Ok(false);
        }
        {
            let state = object.state.lock();
            if !state.runs.is_empty() || state.taken.is_some() || !state.streams.is_empty() {
                return Ok(false);
            }
        }
        let mut plan = Committed::default();
        self.plan(object, geometry, slab, &mut plan)?;
        let [piece] = plan.pieces.as_slice() else {
            return Ok(false);
        };
        if !plan.holes.is_empty() || piece.want.volume() != slab.volume() {
            return Ok(false);
        }
        let shown = self.servers().show(
            piece.server,
            &piece.name,
            &piece.form,
            &piece.chunk,
            &mut |bytes| sink.give(bytes),
        );
        match shown {
            // A place of a grid that nobody wrote.
            Err(StoreError::Missing(ChunkName::Grid { .. })) => Ok(false),
            other => Ok(other?),
        }
    }

    /// Reads the cells of `slab`, packed, into `out`.
    pub(super) fn read_slab(
        &self,
        object: &Object,
        geometry: &Geometry,
        size: u64,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let newer = self.newer(object, geometry, size, slab);
        if !newer.covers {
            self.read_committed(object, geometry, slab, out)?;
        }
        self.paint_newer(&newer, slab, out)
    }

    /// One look at everything that is newer, before the committed bytes are read: a flush that ends
    /// meanwhile then cannot hide anything.
    pub(super) fn newer(
        &self,
        object: &Object,
        geometry: &Geometry,
        size: u64,
        slab: &Hyperslab,
    ) -> Newer {
        let state = object.state.lock();
        let holding = state.streams.iter().filter(|stream| stream.may_hold(slab));
        let mut newer = Newer {
            streams: holding.cloned().collect(),
            ..Newer::default()
        };
        let taken = state.taken.as_ref().filter(|taken| !taken.is_empty());
        if taken.is_some() || !state.runs.is_empty() {
            let cells = geometry.cells_at(size);
            let (mut at, mut covered) = (0, 0);
            for_each_run(&cells, slab, &mut |start, len| {
                let (from, to) = (start as u64, (start + len) as u64);
                if let Some(taken) = taken {
                    for (offset, bytes) in taken.pieces(from, to) {
                        let place = at + (offset - from) as usize;
                        newer.patches.push((place, bytes.to_vec()));
                    }
                }
                for (offset, bytes) in state.runs.pieces(from, to) {
                    covered += bytes.len();
                    let place = at + (offset - from) as usize;
                    newer.patches.push((place, bytes.to_vec()));
                }
                at += len;
            });
            newer.covers = covered >= at;
        }
        newer
    }

    /// Paints it over the committed bytes of `slab`.
    pub(super) fn paint_newer(
        &self,
        newer: &Newer,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        if !newer.covers {
            for stream in &newer.streams {
                self.paint_stream(stream, slab, out)?;
            }
        }
        for (at, bytes) in &newer.patches {
            out[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Finds the chunks of `slab`.
    pub(super) fn plan(
        &self,
        object: &Object,
        geometry: &Geometry,
        slab: &Hyperslab,
        plan: &mut Committed,
    ) -> Result<(), FsError> {
        if let Some(grid) = &geometry.grid {
            return self.plan_grid(object, geometry, grid, slab, plan);
        }
        self.with_tiling(object, geometry, |tiling| {
            let mut parts = Vec::new();
            tiling.plan(slab, &mut parts, &mut plan.holes);
            for part in parts {
                match &part.record.value {
                    Stored::Fill => push_holes(&part.want, &mut plan.holes),
                    Stored::Chunk(stored) => plan.pieces.push(Piece {
                        server: stored.server,
                        name: stored.name(),
                        form: stored.form(&part.record.slab, &geometry.info),
                        over: !part.solid,
                        want: part.want,
                        chunk: part.chunk,
                    }),
                }
            }
        })
    }

    fn plan_grid(
        &self,
        object: &Object,
        geometry: &Geometry,
        grid: &Grid,
        slab: &Hyperslab,
        plan: &mut Committed,
    ) -> Result<(), FsError> {
        if geometry.info.stripe.is_empty() {
            // No server was ever there to take data.
            plan.holes.push(Region::whole(&slab.packed_shape()));
            return Ok(());
        }
        let mut parts = Vec::new();
        grid.plan(slab, &mut parts);
        for part in parts {
            let chunk = self.grid_chunk(object, geometry, grid, part.at)?;
            plan.pieces.push(Piece {
                server: chunk.server,
                name: chunk.name,
                form: chunk.form,
                want: part.want,
                chunk: part.chunk,
                over: false,
            });
        }
        Ok(())
    }

    /// Reads what is committed of `slab`, packed, into `out`.
    pub(super) fn read_committed(
        &self,
        object: &Object,
        geometry: &Geometry,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let mut plan = Committed::default();
        self.plan(object, geometry, slab, &mut plan)?;
        for piece in &plan.pieces {
            self.ensure_known(piece.server)?;
        }
        let mut laid = plan.lay(slab);
        plan.fill_holes(geometry, slab, out);
        let mut requests = Vec::with_capacity(plan.pieces.len());
        plan.requests(&mut laid, out, &mut requests);
        self.servers()
            .read(&mut requests)
            .map_err(|(_, error)| error)?;
        let found: Vec<bool> = requests.iter().map(|request| request.found).collect();
        drop(requests);
        self.settle_read(geometry, &plan, slab, laid, &found, out)
    }

    /// A chunk of a grid that is not on a server which is being emptied may be elsewhere by now: then the
    /// error says so, and the object is looked at anew.
    pub(super) fn unless_moved(&self, geometry: &Geometry, piece: &Piece) -> Result<(), FsError> {
        let entry = self.md().getattr(geometry.attr.ino)?;
        let same = entry
            .info
            .is_some_and(|info| info.stripe == geometry.info.stripe);
        if same {
            return Ok(());
        }
        Err(StoreError::Missing(piece.name.clone()).into())
    }

    /// Takes over what was read of a plan: `found` tells of its requests whether there was such a chunk.
    pub(super) fn settle_read(
        &self,
        geometry: &Geometry,
        plan: &Committed,
        slab: &Hyperslab,
        laid: Laid,
        found: &[bool],
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let pieces = &plan.pieces;
        let missing: Vec<usize> = laid
            .order()
            .zip(found)
            .filter(|(_, found)| !**found)
            .map(|(index, _)| index)
            .collect();
        // A place of a grid that nobody wrote is fill; a chunk that the tiling names has to be there.
        if let Some(index) = missing
            .iter()
            .find(|index| matches!(pieces[**index].name, ChunkName::Free(_)))
        {
            return Err(StoreError::Missing(pieces[*index].name.clone()).into());
        }
        if missing.is_empty() && laid.detours.is_empty() {
            return Ok(());
        }
        let draining = self.known.lock().draining.clone();
        if let Some(index) = missing
            .iter()
            .find(|index| draining.contains(&pieces[**index].server))
        {
            self.unless_moved(geometry, &pieces[*index])?;
        }
        let (shape, first) = packed_form(slab);
        for index in &missing {
            paint_fill(out, &shape, &pieces[*index].want, geometry, first);
        }
        for (index, bytes) in laid.detours {
            if !missing.contains(&index) {
                scatter(&bytes, &pieces[index].want, out, &shape);
            }
        }
        Ok(())
    }

    /// Paints what an open stream holds of `slab` over `out`.
    fn paint_stream(
        &self,
        stream: &Stream,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let shape = slab.packed_shape();
        let progress = stream.progress.lock();
        let mut pairs = Vec::new();
        for region in stream.packed_boxes(0, progress.len()) {
            for (packed, cells) in stream.slab.parts(&region) {
                pairs.clear();
                intersect(slab, &cells, &mut pairs);
                for (want, held) in &pairs {
                    // `held` counts within `packed`; the chunk counts within the stream.
                    let chunk = super::geometry::moved(held, &Hyperslab::from_region(&packed));
                    let bytes = self.stream_bytes(stream, &progress, &chunk)?;
                    scatter(&bytes, want, out, &shape);
                }
            }
        }
        Ok(())
    }

    /// Packed bytes of cells of a stream's chunk, from the server and from the tail.
    fn stream_bytes(
        &self,
        stream: &Stream,
        progress: &super::stream::Progress,
        chunk: &Hyperslab,
    ) -> Result<Vec<u8>, FsError> {
        let mut bytes = vec![0; chunk.volume() as usize];
        let mut ranges: Vec<(u64, u64, usize)> = Vec::new();
        let mut at = 0;
        let mut reach = 0;
        for_each_run(&stream.shape, chunk, &mut |start, len| {
            ranges.push((start as u64, len as u64, at));
            reach = reach.max((start + len) as u64);
            at += len;
        });
        if reach <= progress.stored {
            self.read_one(stream.server, &stream.name, &stream.form, chunk, &mut bytes)?;
            return Ok(bytes);
        }
        for (start, len, at) in ranges {
            let end = start + len;
            let here = start.max(progress.stored);
            let mut from = start;
            for region in stream.packed_boxes(start, end.min(progress.stored)) {
                let part = region.volume();
                let to = at + (from - start) as usize;
                self.read_one(
                    stream.server,
                    &stream.name,
                    &stream.form,
                    &Hyperslab::from_region(&region),
                    &mut bytes[to..to + part as usize],
                )?;
                from += part;
            }
            if here < end {
                let tail = &progress.tail
                    [(here - progress.stored) as usize..(end - progress.stored) as usize];
                let to = at + (here - start) as usize;
                bytes[to..to + tail.len()].copy_from_slice(tail);
            }
        }
        Ok(bytes)
    }

    /// Reads cells of one chunk.
    pub(super) fn read_one(
        &self,
        server: ServerId,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let mut piece = [ReadPiece {
            server,
            name,
            form,
            slab,
            out,
            found: true,
        }];
        self.servers()
            .read(&mut piece)
            .map_err(|(_, error)| error)?;
        if !piece[0].found {
            return Err(StoreError::Missing(name.clone()).into());
        }
        Ok(())
    }

    /// Runs `f` on the tiling of an `aligned` object, fetched first if it is behind.
    pub(super) fn with_tiling<R>(
        &self,
        object: &Object,
        geometry: &Geometry,
        f: impl FnOnce(&Tiling<Stored>) -> R,
    ) -> Result<R, FsError> {
        {
            let chunks = object.tiling.read();
            if chunks
                .version
                .is_some_and(|version| version >= geometry.info.tiling)
            {
                return Ok(f(&chunks.tiling));
            }
        }
        let mut chunks = object.tiling.write();
        if chunks
            .version
            .is_none_or(|version| version < geometry.info.tiling)
        {
            let known = chunks.version.unwrap_or(Version(0));
            let reply = self.md().tiling(object.ino, known)?;
            let version = reply.version();
            if chunks.version.is_none() || chunks.tiling.rank() != geometry.cells.len() {
                chunks.tiling = Tiling::new(geometry.cells.len());
            }
            reply
                .apply(&mut chunks.tiling)
                .map_err(|error| FsError::Invalid(error.to_string()))?;
            chunks.version = Some(version);
        }
        Ok(f(&chunks.tiling))
    }

    /// Forgets the tiling and compares the form with the metadata service's.
    pub(super) fn refresh_tiling(&self, object: &Object) -> Result<(), FsError> {
        object.tiling.write().version = None;
        self.refresh(object)
    }

    /// Compares the form with the metadata service's.
    pub(super) fn refresh(&self, object: &Object) -> Result<(), FsError> {
        let entry = self.md().getattr(object.ino)?;
        *object.checked.lock() = Instant::now();
        if entry.attr.change <= object.geometry.read().attr.change {
            return Ok(());
        }
        let mut geometry = object.geometry.write();
        self.adopt(object, &mut geometry, &entry)?;
        Ok(())
    }

    /// Reads small pieces by way of the block cache; false if this read is none of those.
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
            if !self.cache().copy(object.ino, at, part) {
                let epoch = object.epoch.load(Ordering::Acquire);
                let block_end = (block + BLOCK).min(size);
                // Whatever is wrong with the block may lie beside what was asked for: who asked finds out.
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

    /// Whether a read goes through the cache: those of far and coded chunks do; small ones of chunks in this
    /// process once their block was asked for before, so that bytes read once displace nothing.
    fn is_for_cache(&self, object: &Object, geometry: &Geometry, offset: u64, len: usize) -> bool {
        if !self.local() || !geometry.info.codec.is_none() {
            return len as u64 <= BLOCK;
        }
        len <= SMALL
            && offset / BLOCK == (offset + len as u64 - 1) / BLOCK
            && self.cache().is_wanted(object.ino, offset)
    }
}

impl Committed {
    /// Where the pieces of `slab` are read to: those that land together in the packed bytes go there, others take
    /// a detour.
    pub(super) fn lay(&self, slab: &Hyperslab) -> Laid {
        let shape = slab.packed_shape();
        // Solid parts are disjoint and may be read in any order. As soon as a lattice with gaps is among
        // them, parts may overlap and are painted in theirs.
        let disjoint = !self.pieces.iter().any(|piece| piece.over);
        let mut laid = Laid {
            direct: Vec::new(),
            detours: Vec::new(),
        };
        for (index, piece) in self.pieces.iter().enumerate() {
            match dense_range(&shape, &piece.want).filter(|_| disjoint) {
                Some((at, len)) => laid.direct.push((at, len, index)),
                None => {
                    let bytes = vec![0; piece.want.volume() as usize];
                    laid.detours.push((index, bytes));
                }
            }
        }
        laid.direct.sort_unstable();
        laid
    }

    /// Fills what nothing is stored for.
    pub(super) fn fill_holes(&self, geometry: &Geometry, slab: &Hyperslab, out: &mut [u8]) {
        if self.holes.is_empty() {
            return;
        }
        let (shape, first) = packed_form(slab);
        for hole in &self.holes {
            paint_fill(out, &shape, &Hyperslab::from_region(hole), geometry, first);
        }
    }

    /// Appends the requests for the packed bytes `out`, in the order of [`Laid::order`].
    pub(super) fn requests<'a>(
        &'a self,
        laid: &'a mut Laid,
        out: &'a mut [u8],
        requests: &mut Vec<ReadPiece<'a>>,
    ) {
        let mut rest = out;
        let mut passed = 0;
        for (at, len, index) in &laid.direct {
            let (_, tail) = std::mem::take(&mut rest).split_at_mut(at - passed);
            let (part, tail) = tail.split_at_mut(*len);
            rest = tail;
            passed = at + len;
            requests.push(request(&self.pieces[*index], part));
        }
        for (index, bytes) in &mut laid.detours {
            requests.push(request(&self.pieces[*index], bytes));
        }
    }
}

impl Laid {
    /// The pieces, in the order in which they are asked for.
    fn order(&self) -> impl Iterator<Item = usize> {
        let direct = self.direct.iter().map(|(_, _, index)| *index);
        direct.chain(self.detours.iter().map(|(index, _)| *index))
    }
}

/// The packed shape of a slab, and the cell its last axis begins with: inside an element only where a selection
/// is cut there.
fn packed_form(slab: &Hyperslab) -> (Coords, u64) {
    let first = slab.axes.last().map_or(0, |axis| axis.start);
    (slab.packed_shape(), first)
}

fn request<'a>(piece: &'a Piece, out: &'a mut [u8]) -> ReadPiece<'a> {
    ReadPiece {
        server: piece.server,
        name: &piece.name,
        form: &piece.form,
        slab: &piece.chunk,
        out,
        found: true,
    }
}

/// Where `slab` lies in a dense buffer of `shape`, if its bytes lie together there.
pub(super) fn dense_range(shape: &[u64], slab: &Hyperslab) -> Option<(usize, usize)> {
    let region = slab.as_region()?;
    let mut at = 0u64;
    let mut whole = true;
    for axis in (0..shape.len()).rev() {
        if !whole && region.shape[axis] != 1 {
            return None;
        }
        whole &= region.shape[axis] == shape[axis];
    }
    for (dim, offset) in shape.iter().zip(&region.offset) {
        at = at * dim + offset;
    }
    Some((at as usize, region.volume() as usize))
}

/// A punched part: every cell of it reads as fill.
fn push_holes(want: &Hyperslab, holes: &mut Vec<Region>) {
    if let Some(region) = want.as_region() {
        holes.push(region);
    }
}

fn paint_fill(out: &mut [u8], shape: &[u64], slab: &Hyperslab, geometry: &Geometry, first: u64) {
    if first.is_multiple_of(geometry.info.dtype.size().max(1)) {
        fill_slab(out, shape, slab, &geometry.info.fill);
    } else {
        fill_slab_at(out, shape, slab, &geometry.info.fill, first);
    }
}
