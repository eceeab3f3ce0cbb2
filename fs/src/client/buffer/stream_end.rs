//! The end of streams: a flush chooses the streams to seal, the bytes after their last complete row become dirty
//! runs, and their chunks are sealed on the servers.
//!
//! Between the cut and the commit the bytes after the cut are in two places: in the stream, for reads that looked
//! before the cut, and among the runs, for reads that look later (`Stream::ends`). Both copies are equal, and no read
//! asks the server for them (`Progress::stays`).

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slabfs_mdserver::api::{Stored, StoredChunk};
use slabfs_model::{Hyperslab, Region, for_each_run};
use slabfs_objstore::ChunkForm;
use slabfs_objstore::client::{SealPiece, WriteKind, WritePiece};

use crate::client::Client;
use crate::client::buffer::flush::Scope;
use crate::client::buffer::runs::Runs;
use crate::client::buffer::stream::{Progress, Stream};
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;

impl Client {
    /// Chooses the streams that a flush seals and closes them for writing. Bytes after the last complete row become
    /// dirty runs, below any runs written later.
    pub(in crate::client) fn end_streams(
        &self,
        object: &Object,
        geometry: &Geometry,
        scope: Scope,
    ) -> Result<Vec<Arc<Stream>>, FsError> {
        let chosen: Vec<Arc<Stream>> = {
            let state = object.state.lock();
            let runs = &state.runs;
            state
                .streams
                .iter()
                .filter(|stream| match scope {
                    Scope::All | Scope::Streams => true,
                    Scope::Handle(id) => {
                        stream.writer == id || (runs.has(id) && over_runs(stream, geometry, runs))
                    }
                    Scope::Pressure => over_runs(stream, geometry, runs),
                })
                .cloned()
                .collect()
        };
        for stream in &chosen {
            let mut progress = stream.progress.lock();
            progress.ended = true;
            // Data that a full server refused is written to another one, by way of memory.
            let cut = match progress.full {
                true => stream.full_rows(progress.stored),
                false => stream.full_rows(progress.len()),
            };
            if progress.cut.is_none() && cut < progress.len() {
                let rest = self.rest_of(stream, &progress, cut)?;
                self.runs_of_rest(object, geometry, stream, cut, &rest)?;
                if progress.stored > cut {
                    // Reads that looked before find these bytes in the stream, and the server drops them at the seal;
                    // reads that look now find them among the runs.
                    self.charge(rest.len() as i64 - progress.tail.len() as i64);
                    progress.tail = rest;
                }
            }
            progress.cut = Some(cut);
        }
        Ok(chosen)
    }

    /// The bytes of a stream from `cut` on.
    fn rest_of(&self, stream: &Stream, progress: &Progress, cut: u64) -> Result<Vec<u8>, FsError> {
        let mut rest = Vec::new();
        if progress.stored > cut {
            for region in stream.packed_boxes(cut, progress.stored) {
                let mut bytes = vec![0; region.volume() as usize];
                self.read_one(
                    stream.server,
                    &stream.name,
                    &stream.form,
                    &Hyperslab::from_region(&region),
                    &mut bytes,
                )?;
                rest.extend_from_slice(&bytes);
            }
            rest.extend_from_slice(&progress.tail);
        } else {
            rest.extend_from_slice(&progress.tail[(cut - progress.stored) as usize..]);
        }
        Ok(rest)
    }

    fn runs_of_rest(
        &self,
        object: &Object,
        geometry: &Geometry,
        stream: &Stream,
        cut: u64,
        rest: &[u8],
    ) -> Result<(), FsError> {
        let cells = geometry.cells_at(object.size(geometry));
        let mut older = Runs::default();
        let mut at = 0;
        for region in stream.packed_boxes(cut, cut + rest.len() as u64) {
            for (packed, slab) in stream.slab.parts(&region) {
                let inside = packed.within(&region);
                let dense = &rest[at..at + region.volume() as usize];
                let mut bytes = vec![0; inside.volume() as usize];
                slabfs_model::gather(
                    dense,
                    &region.shape,
                    &Hyperslab::from_region(&inside),
                    &mut bytes,
                );
                let mut from = 0;
                for_each_run(&cells, &slab, &mut |start, len| {
                    older.insert(start as u64, &bytes[from..from + len], stream.writer);
                    from += len;
                });
            }
            at += region.volume() as usize;
        }
        let mut state = object.state.lock();
        state.runs.put_back(older);
        stream.ends.store(cut, Ordering::Release);
        self.account(&mut state);
        Ok(())
    }

    /// Seals a stream's chunk on its server; `None` if no complete row was ever written to it.
    pub(in crate::client) fn seal(
        &self,
        object: &Object,
        geometry: &Geometry,
        stream: &Stream,
    ) -> Result<Option<(Hyperslab, Stored)>, FsError> {
        let mut progress = stream.progress.lock();
        let cut = progress.cut.unwrap_or(0);
        if cut == 0 {
            if progress.stored > 0 {
                self.discard_chunks(&[(stream.server, stream.name.clone())]);
            }
            return Ok(None);
        }
        let mut region = Region::all(&stream.shape);
        region.shape[0] = cut / stream.row().max(1);
        let mut parts = stream.slab.parts(&region);
        let slab = match (parts.len(), parts.pop()) {
            (1, Some((_, slab))) => slab,
            _ => return Err(FsError::Invalid("a stream's rows are no hyperslab".into())),
        };
        let form = ChunkForm {
            shape: slab.packed_shape(),
            ..stream.form.clone()
        };
        if !progress.sealed {
            let verifiers = if progress.stored == 0 {
                self.servers().write(&[WritePiece {
                    server: stream.server,
                    name: &stream.name,
                    form: &form,
                    kind: WriteKind::Put,
                    data: &[IoSlice::new(&progress.tail[..cut as usize])],
                }])?
            } else {
                if progress.stored < cut {
                    let fits = (cut - progress.stored) as usize;
                    self.servers().write(&[WritePiece {
                        server: stream.server,
                        name: &stream.name,
                        form: &stream.form,
                        kind: WriteKind::Append {
                            at: progress.stored,
                        },
                        data: &[IoSlice::new(&progress.tail[..fits])],
                    }])?;
                }
                self.servers().seal(&[SealPiece {
                    server: stream.server,
                    name: &stream.name,
                    form: &form,
                }])?
            };
            object.state.lock().unsynced.note(&verifiers);
            progress.sealed = true;
        }
        Ok(Some((
            slab,
            Stored::Chunk(StoredChunk {
                chunk: stream.chunk,
                server: stream.server,
                codec: geometry.info.codec,
            }),
        )))
    }
}

/// Whether dirty runs overlap the stream's bytes: they were written later and must not be committed before it.
fn over_runs(stream: &Stream, geometry: &Geometry, runs: &Runs) -> bool {
    stream.held().any(|held| {
        let mut first = 0u64;
        let mut last = 0u64;
        for axis in 0..held.rank() {
            let dim = geometry.cells[axis];
            first = if axis == 0 {
                held.offset[0]
            } else {
                first.saturating_mul(dim).saturating_add(held.offset[axis])
            };
            let end = held.end(axis).saturating_sub(1);
            last = if axis == 0 {
                end
            } else {
                last.saturating_mul(dim).saturating_add(end)
            };
        }
        runs.overlaps(first, last.saturating_add(1))
    })
}
