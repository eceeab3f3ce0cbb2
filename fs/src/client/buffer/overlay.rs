//! The overlay: uncommitted data over the committed chunks. It consists of open streams, runs being flushed, and
//! dirty runs, each newer than the one before. It is collected before the committed bytes are read, and painted over
//! them after.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use slabfs_model::{Hyperslab, for_each_run, intersect, scatter};

use crate::client::Client;
use crate::client::buffer::stream::{Progress, Stream};
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::{Geometry, moved};

/// The uncommitted data within a request.
#[derive(Debug, Default)]
pub(in crate::client) struct Overlay {
    /// Open streams, and the end of the bytes that count of each.
    streams: Vec<(Arc<Stream>, u64)>,
    /// Dirty bytes: the position in the packed bytes, and the data.
    patches: Vec<(usize, Vec<u8>)>,
    /// Dirty bytes cover all of it: neither streams nor committed bytes are read.
    pub(in crate::client) covers: bool,
}

impl Object {
    /// Whether there may be an overlay on these bytes that the servers do not have.
    pub(in crate::client) fn has_overlay(&self, (from, to): (u64, u64)) -> bool {
        let state = self.state.lock();
        let taken = state.taken.as_ref();
        state.runs.overlaps(from, to)
            || taken.is_some_and(|taken| taken.overlaps(from, to))
            || !state.streams.is_empty()
    }
}

impl Client {
    /// Collects all uncommitted data at once, before the committed bytes are read: data that a flush commits
    /// meanwhile is then in one of the two.
    pub(in crate::client) fn overlay(
        &self,
        object: &Object,
        geometry: &Geometry,
        size: u64,
        slab: &Hyperslab,
    ) -> Overlay {
        let state = object.state.lock();
        let holding = state.streams.iter().filter(|stream| stream.may_hold(slab));
        let as_far = |stream: &Arc<Stream>| (stream.clone(), stream.ends.load(Ordering::Acquire));
        let mut overlay = Overlay {
            streams: holding.map(as_far).collect(),
            ..Overlay::default()
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
                        overlay.patches.push((place, bytes.to_vec()));
                    }
                }
                for (offset, bytes) in state.runs.pieces(from, to) {
                    covered += bytes.len();
                    let place = at + (offset - from) as usize;
                    overlay.patches.push((place, bytes.to_vec()));
                }
                at += len;
            });
            overlay.covers = covered >= at;
        }
        overlay
    }

    /// Paints the overlay over the committed bytes of `slab`.
    pub(in crate::client) fn paint_overlay(
        &self,
        overlay: &Overlay,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        if !overlay.covers {
            for (stream, ends) in &overlay.streams {
                self.paint_stream(stream, *ends, slab, out)?;
            }
        }
        for (at, bytes) in &overlay.patches {
            out[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Paints the bytes of an open stream that lie in `slab` and before `ends` over `out`.
    fn paint_stream(
        &self,
        stream: &Stream,
        ends: u64,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let shape = slab.packed_shape();
        let progress = stream.progress.lock();
        let mut pairs = Vec::new();
        for region in stream.packed_boxes(0, progress.len().min(ends)) {
            for (packed, cells) in stream.slab.parts(&region) {
                pairs.clear();
                intersect(slab, &cells, &mut pairs);
                for (want, held) in &pairs {
                    // `held` counts within `packed`; the chunk counts within the stream.
                    let chunk = moved(held, &Hyperslab::from_region(&packed));
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
        progress: &Progress,
        chunk: &Hyperslab,
    ) -> Result<Vec<u8>, FsError> {
        let mut bytes = vec![0; chunk.volume() as usize];
        let there = progress.stays();
        let mut ranges: Vec<(u64, u64, usize)> = Vec::new();
        let mut at = 0;
        let mut reach = 0;
        for_each_run(&stream.shape, chunk, &mut |start, len| {
            ranges.push((start as u64, len as u64, at));
            reach = reach.max((start + len) as u64);
            at += len;
        });
        if reach <= there {
            self.read_one(stream.server, &stream.name, &stream.form, chunk, &mut bytes)?;
            return Ok(bytes);
        }
        for (start, len, at) in ranges {
            let end = start + len;
            let here = start.max(there);
            let mut from = start;
            for region in stream.packed_boxes(start, end.min(there)) {
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
                let tail = &progress.tail[(here - there) as usize..(end - there) as usize];
                let to = at + (here - start) as usize;
                bytes[to..to + tail.len()].copy_from_slice(tail);
            }
        }
        Ok(bytes)
    }
}
