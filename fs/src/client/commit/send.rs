//! Sends the bytes of a request to the data servers: new chunks of `aligned` objects, and parts of grid chunks that are
//! written in place; one message a server. A chunk that a full server refuses goes to another one.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::ops::Range;
use std::time::{Duration, Instant};

use slabfs_mdserver::api::{Stored, StoredChunk};
use slabfs_model::batch::Plan as Pattern;
use slabfs_model::{Codec, Coords, Hyperslab, Region, ServerId};
use slabfs_objstore::client::{BatchAsk, BatchPart, BatchPiece, Verifiers, WriteKind, WritePiece};
use slabfs_objstore::{ChunkForm, ChunkName, StoreError};

use crate::client::Client;
use crate::client::buffer::payload::Slices;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::stored::grid_io::GridChunk;

/// How long chunks are sent again to a full memory server, while what was removed before is deleted there: its last close is
/// reported to the metadata service with others, and the server asks that what to delete.
const RECLAIMING: Duration = Duration::from_secs(10);

/// A slab that becomes a chunk.
pub(in crate::client) struct NewChunk<'a> {
    /// The bounding box of the slab.
    region: Region,
    pub(in crate::client) slab: Hyperslab,
    pub(in crate::client) stored: StoredChunk,
    pub(in crate::client) name: ChunkName,
    pub(in crate::client) form: ChunkForm,
    pub(in crate::client) data: Slices<'a>,
    /// What is shown of it, if that is not all.
    pub(in crate::client) clip: Option<Region>,
    /// `data` is encoded.
    is_encoded: bool,
}

/// A part of a grid chunk that is written in place.
pub(in crate::client) struct GridWrite<'a> {
    pub(in crate::client) chunk: GridChunk,
    /// Its cells of the object, if it is sent as a batch.
    pub(in crate::client) want: Option<Hyperslab>,
    /// Its cells of the chunk.
    pub(in crate::client) slab: Hyperslab,
    pub(in crate::client) data: Slices<'a>,
}

/// A batch that is written in place.
pub(in crate::client) struct BatchWrite<'a> {
    pub(in crate::client) pattern: &'a Pattern,
    /// The part of its packed bytes.
    pub(in crate::client) packed: Range<u64>,
    /// The position of `memory` in the buffer that the pattern refers to.
    pub(in crate::client) base: u64,
    /// The object's dims, the last in bytes.
    pub(in crate::client) cells: &'a Coords,
    pub(in crate::client) memory: &'a [u8],
    /// The parts of chunks that it writes to.
    pub(in crate::client) parts: &'a [GridWrite<'a>],
}

impl BatchWrite<'_> {
    fn ask(&self) -> BatchAsk<'_, &[u8]> {
        let pieces = self.parts.iter().filter_map(|part| {
            Some(BatchPiece {
                server: part.chunk.server,
                name: &part.chunk.name,
                form: &part.chunk.form,
                want: part.want.as_ref()?,
                slab: &part.slab,
                stage: 0,
                found: true,
            })
        });
        BatchAsk {
            part: BatchPart {
                plan: self.pattern,
                packed: self.packed.clone(),
                cells: self.cells,
                base: self.base,
            },
            pieces: pieces.collect(),
            memory: self.memory,
        }
    }
}

impl Client {
    /// Sends chunks to the servers they were placed on, or to others where there is no room. After an error none is
    /// retained.
    pub(in crate::client) fn send_chunks(
        &self,
        geometry: &Geometry,
        chunks: &mut [NewChunk<'_>],
    ) -> Result<Verifiers, FsError> {
        let mut sent = self.send(chunks, &[], &[]);
        let (begun, mut tried) = (Instant::now(), false);
        while matches!(sent, Err(StoreError::NoSpace))
            && begun.elapsed() < RECLAIMING
            && self.reclaim_memory(geometry)
        {
            tried = true;
            sent = self.send(chunks, &[], &[]);
        }
        if tried {
            self.reclaimed(sent.is_ok());
        }
        while let Err(StoreError::NoSpace) = sent {
            // Each round finds at least one more full server, so the loop ends.
            if let Err(error) = self.put_elsewhere(geometry, chunks) {
                self.discard_new(chunks);
                return Err(error);
            }
            sent = self.send(chunks, &[], &[]);
        }
        sent.map_err(|error| {
            self.discard_new_but(chunks, |server| error.is_of(server));
            error.into()
        })
    }

    /// Stores slabs as new chunks, which the next commit has to list; all servers get theirs concurrently. Chunks that
    /// a full server refuses go to another one.
    pub(in crate::client) fn store_slabs<'a>(
        &self,
        object: &Object,
        geometry: &Geometry,
        slabs: impl Iterator<Item = (Hyperslab, Slices<'a>)>,
        records: &mut Vec<(Hyperslab, Stored)>,
    ) -> Result<(), FsError> {
        let chunks: Result<Vec<_>, FsError> = slabs
            .map(|(slab, data)| self.new_chunk(geometry, slab, data))
            .collect();
        let mut chunks = chunks?;
        let verifiers = self.send_chunks(geometry, &mut chunks)?;
        let mut state = object.state.lock();
        state.unsynced.note(&verifiers);
        for chunk in chunks {
            state.unsynced.insert((chunk.stored.server, chunk.name));
            records.push((chunk.slab, Stored::Chunk(chunk.stored)));
        }
        Ok(())
    }

    pub(in crate::client) fn new_chunk<'a>(
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
            clip: None,
            is_encoded: false,
        })
    }

    /// A chunk that is stored as it is encoded, with `codec`, and of which `shown` becomes part of the object.
    pub(in crate::client) fn encoded_chunk<'a>(
        &self,
        geometry: &Geometry,
        slab: Hyperslab,
        shown: Region,
        codec: Codec,
        data: Slices<'a>,
    ) -> Result<NewChunk<'a>, FsError> {
        let (chunk, server) = self.place(geometry, &shown, slab.volume())?;
        let stored = StoredChunk {
            chunk,
            server,
            codec,
        };
        Ok(NewChunk {
            name: stored.name(),
            form: stored.form(&slab, &geometry.info),
            data,
            region: shown.clone(),
            slab,
            stored,
            clip: Some(shown),
            is_encoded: !codec.is_none(),
        })
    }

    /// Sends new chunks, and either parts of grid chunks or batches: one message a server. Resending what is already
    /// stored changes nothing.
    pub(in crate::client) fn send(
        &self,
        chunks: &[NewChunk<'_>],
        grid: &[GridWrite<'_>],
        batches: &[BatchWrite<'_>],
    ) -> Result<Verifiers, StoreError> {
        let data = chunks.iter().map(|chunk| &chunk.data);
        let data = data.chain(grid.iter().map(|part| &part.data));
        let slices: Vec<Vec<IoSlice<'_>>> = data.map(Slices::io).collect();
        let puts = chunks.iter().map(|chunk| {
            let server = chunk.stored.server;
            let kind = match chunk.is_encoded {
                true => WriteKind::PutEncoded,
                false => WriteKind::Put,
            };
            (server, &chunk.name, &chunk.form, kind)
        });
        let writes = grid.iter().map(|part| {
            let (chunk, kind) = (&part.chunk, WriteKind::Write(&part.slab));
            (chunk.server, &chunk.name, &chunk.form, kind)
        });
        let pieces: Vec<WritePiece<'_>> = puts
            .chain(writes)
            .zip(&slices)
            .map(|((server, name, form, kind), data)| WritePiece {
                server,
                name,
                form,
                kind,
                data,
            })
            .collect();
        let asks: Vec<BatchAsk<'_, &[u8]>> = batches.iter().map(BatchWrite::ask).collect();
        self.servers().write_batches(&pieces, &asks)
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
                match self.send(std::slice::from_ref(chunk), &[], &[]) {
                    Ok(_) => {}
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

    pub(in crate::client) fn discard_new(&self, chunks: &[NewChunk<'_>]) {
        self.discard_new_but(chunks, |_| false);
    }

    /// As `discard_new`, except for chunks on servers that are away: a request would wait for them once more. Their
    /// chunks are deleted when this session ends.
    pub(in crate::client) fn discard_new_but(
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

    /// Deletes chunks that will never be committed; a failure costs space until the session ends.
    pub(in crate::client) fn discard_chunks(&self, names: &[(ServerId, ChunkName)]) {
        if let Err(error) = self.servers().delete(names) {
            tracing::warn!(%error, "discarded chunks stay until this mount's session ends");
        }
    }
}
