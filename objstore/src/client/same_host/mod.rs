//! Large immutable chunks of servers on the same host, read from their files instead of through a socket.
//!
//! The first large read of such chunks requests their file descriptors instead of their bytes (`SAME_HOST_FILES`), as
//! many in a message as it can carry. From then on they are read like chunks of a store in this process: the sums are checked here,
//! and no request is sent. An immutable chunk never changes, so no invalidation is needed; but an open descriptor
//! retains the disk space of a deleted chunk. A descriptor is therefore closed when it is unused for 5 seconds (by a
//! thread that waits for no server), when there are too many or too large ones, and when the user of this client
//! hears that others are about to write there.
//!
//! An error with a file is not reported: the client then requests the bytes, as over TCP, and that reply reports what
//! is wrong.
//!
//! A store in memory hands out no files but its memory, once, and the places of chunks in it (`memory`).
//!
//! `files` bounds the cache; `refused` remembers for a while which files did not come.

mod chunk;
mod files;
mod memory;
mod refused;

use std::fs::File;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use slabfs_model::{ChunkId, Hyperslab, ServerId};
use smallvec::SmallVec;

pub(in crate::client) use self::chunk::Chunk;
use self::files::{Files, Held, Key, MOST_BYTES};
use self::memory::Memories;
use self::refused::Refused;
use super::fanout::encode;
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};
use crate::store::{ChunkSource, MemoryFiles, SameHostChunk, SameHostFile};
use crate::wire::messages::{Answer, Handed, SameHostAsk, SameHostFiles, kind};
use crate::wire::{MAX_FILES, Pool, Until, WireResult};

/// Reads of fewer bytes request no files: opening one costs more than sending the bytes.
const FROM: u64 = 64 << 10;
/// Smaller chunks share files.
const SMALLEST: u64 = 64 << 10;

/// The descriptors that are open at present, and the thread that closes them.
#[derive(Debug)]
pub(super) struct SameHost {
    files: Arc<Files>,
    memory: Memories,
    refused: Mutex<Refused>,
    sweeper: Mutex<Option<JoinHandle<()>>>,
}

/// The chunks one message reads, all of them from files.
pub(super) struct SameHostChunks(SmallVec<[(ChunkId, Arc<Held>); 8]>);

impl SameHost {
    pub(super) fn new() -> SameHost {
        SameHost {
            files: Arc::default(),
            memory: Memories::default(),
            refused: Mutex::default(),
            sweeper: Mutex::default(),
        }
    }

    /// Whether there are any.
    pub(super) fn are_any(&self) -> bool {
        self.files.are_any()
    }

    /// Whether this chunk's file is open here.
    pub(super) fn has(&self, server: ServerId, name: &ChunkName) -> bool {
        key(server, name).is_some_and(|key| self.files.has(&key))
    }

    /// Calls `f` with a chunk whose file is open here; `None` if it is not, or if the file is damaged.
    pub(super) fn with<T>(
        &self,
        server: ServerId,
        name: &ChunkName,
        f: impl FnOnce(&Chunk) -> Result<T>,
    ) -> Option<T> {
        let held = self.files.get(&key(server, name)?)?;
        let done = f(&held.chunk);
        done.map_err(|error| self.discard_damaged(server, name, &error))
            .ok()
    }

    /// The files of all these chunks; `None` if one is missing.
    pub(super) fn all<'a>(
        &self,
        server: ServerId,
        names: impl Iterator<Item = &'a ChunkName>,
    ) -> Option<SameHostChunks> {
        if !self.are_any() {
            return None;
        }
        let mut same_host: SmallVec<[(ChunkId, Arc<Held>); 8]> = SmallVec::new();
        for name in names {
            let key = key(server, name)?;
            if same_host.last().is_some_and(|(last, _)| *last == key.1) {
                continue;
            }
            same_host.push((key.1, self.files.get(&key)?));
        }
        same_host.sort_unstable_by_key(|(id, _)| *id);
        same_host.dedup_by_key(|(id, _)| *id);
        Some(SameHostChunks(same_host))
    }

    /// As [`SameHost::all`], but requests missing files where that pays. The second value is the number of messages that
    /// were sent.
    pub(super) fn borrow(
        &self,
        server: ServerId,
        pool: &Pool,
        chunks: &[(&ChunkName, &ChunkForm)],
        bytes: u64,
        until: Until,
    ) -> (Option<SameHostChunks>, u64) {
        let names = || chunks.iter().map(|(name, _)| *name);
        if let Some(same_host) = self.all(server, names()) {
            return (Some(same_host), 0);
        }
        if bytes < FROM || !pool.hands_files() || !chunks.iter().all(is_for_same_host) {
            return (None, 0);
        }
        {
            let refused = self.refused.lock();
            if names().any(|name| refused.has(server, name)) {
                return (None, 0);
            }
        }
        let mut missing: Vec<&ChunkName> = names().filter(|name| !self.has(server, name)).collect();
        missing.sort_unstable();
        missing.dedup();
        let all: u64 = chunks.iter().filter_map(|(_, form)| form.volume()).sum();
        if missing.len() > self.files.limit() || all > MOST_BYTES {
            return (None, 0);
        }
        let mut asked = 0;
        for missing in missing.chunks(MAX_FILES) {
            asked += 1;
            if let Err(error) = self.ask(server, pool, missing, until) {
                tracing::debug!(addr = %pool.addr(), "receiving chunks instead of reading their files: {error}");
                return (None, asked);
            }
        }
        (self.all(server, names()), asked)
    }

    /// Requests the places of chunks in the memory of a server, ahead of their reads. Nothing, if its memory is not mapped
    /// here. Places that do not come are requested by the reads.
    pub(super) fn look_ahead(
        &self,
        server: ServerId,
        pool: &Pool,
        names: &[ChunkName],
        until: Until,
    ) {
        if self.memory.get(server).is_none() {
            return;
        }
        let missing: Vec<&ChunkName> = names
            .iter()
            .filter(|name| !self.has(server, name))
            .collect();
        for missing in missing.chunks(MAX_FILES) {
            if let Err(error) = self.ask(server, pool, missing, until) {
                tracing::debug!(addr = %pool.addr(), "places of chunks in memory did not come: {error}");
                return;
            }
        }
    }

    fn ask(
        &self,
        server: ServerId,
        pool: &Pool,
        names: &[&ChunkName],
        until: Until,
    ) -> WireResult<()> {
        let known = self.memory.get(server);
        let asked = encode(&SameHostAsk {
            names: names.to_vec(),
            mapped: known.is_some(),
        })?;
        let Some((control, files)) = pool.call_for_files(kind::SAME_HOST_FILES, &asked, until)?
        else {
            return Ok(());
        };
        let SameHostFiles { memory, chunks } =
            match postcard::from_bytes::<Answer<SameHostFiles>>(&control) {
                Ok(Ok(answer)) if answer.chunks.len() == names.len() => answer,
                // If the server refuses, the request for the bytes reports why.
                _ => return Ok(()),
            };
        let mut files = files.into_iter().map(File::from);
        let memory = match memory {
            true => match (files.next(), files.next(), files.next()) {
                (Some(arena), Some(labels), Some(pins)) => self.memory.add(
                    server,
                    MemoryFiles {
                        arena,
                        labels,
                        pins,
                    },
                ),
                _ => None,
            },
            false => known,
        };
        for (name, handed) in names.iter().zip(chunks) {
            let Some(key) = key(server, name) else {
                continue;
            };
            let chunk = match handed {
                Handed::No => None,
                Handed::Memory(place) => memory
                    .as_ref()
                    .and_then(|memory| memory.chunk(place))
                    .map(Chunk::Memory),
                Handed::File(mark) => {
                    let Some(file) = files.next() else {
                        tracing::info!(addr = %pool.addr(), "this data server's file descriptors do not arrive: it sends chunks through the socket for a while");
                        let mut refused = self.refused.lock();
                        refused.note_server(server);
                        break;
                    };
                    SameHostChunk::new(SameHostFile { file, mark }, name)
                        .map(|chunk| Chunk::File(Box::new(chunk)))
                }
            };
            match chunk {
                Some(chunk) => self.hold(key, chunk),
                None => self.refused.lock().note(key),
            }
        }
        Ok(())
    }

    fn hold(&self, key: Key, chunk: Chunk) {
        self.files.hold(key, chunk);
        let mut sweeper = self.sweeper.lock();
        if sweeper.is_none() {
            let files = self.files.clone();
            let thread = std::thread::Builder::new().name("slabfs-samehost".into());
            let memory = self.memory.clone();
            match thread.spawn(move || files.sweep(&|| memory.tidy())) {
                Ok(thread) => *sweeper = Some(thread),
                Err(error) => {
                    tracing::warn!("no file descriptors of data servers are cached: {error}");
                    self.clear();
                }
            }
        }
    }

    /// Closes all same-host file descriptors.
    pub(super) fn clear(&self) {
        self.files.clear();
        self.memory.clear();
    }

    /// Marks all descriptors as long unused.
    #[cfg(test)]
    pub(super) fn age(&self) {
        self.files.age();
    }

    #[cfg(test)]
    pub(super) fn tidy(&self) {
        self.files.tidy();
    }

    /// Closes the descriptors of chunks that are deleted or replaced, so that their disk space is freed at once.
    pub(super) fn forget_all(&self, names: &[(ServerId, ChunkName)]) {
        if self.are_any() {
            let keys = names.iter().filter_map(|(server, name)| key(*server, name));
            self.files.forget(keys);
        }
    }

    /// Closes a damaged file; for a while its chunk is read through the socket.
    pub(super) fn discard_damaged(&self, server: ServerId, name: &ChunkName, error: &StoreError) {
        tracing::debug!("reading a chunk through the socket instead of from its file: {error}");
        let Some(key) = key(server, name) else {
            return;
        };
        self.files.forget(std::iter::once(key));
        self.refused.lock().note(key);
    }
}

/// What a chunk's file is cached under; only immutable chunks have one.
fn key(server: ServerId, name: &ChunkName) -> Option<Key> {
    match name {
        ChunkName::Free(id) => Some((server, *id)),
        ChunkName::Grid { .. } => None,
    }
}

impl Drop for SameHost {
    fn drop(&mut self) {
        self.files.end();
        if let Some(thread) = self.sweeper.get_mut().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that gives files back panicked");
        }
    }
}

/// Whether a chunk may have a file of its own that stores it unencoded.
fn is_for_same_host((name, form): &(&ChunkName, &ChunkForm)) -> bool {
    matches!(name, ChunkName::Free(_))
        && form.codec.is_none()
        && form
            .volume()
            .is_some_and(|volume| (SMALLEST..=MOST_BYTES).contains(&volume))
}

impl SameHostChunks {
    fn get(&self, name: &ChunkName) -> Result<&Chunk> {
        let found = match name {
            ChunkName::Free(id) => self.0.binary_search_by_key(id, |(id, _)| *id).ok(),
            ChunkName::Grid { .. } => None,
        };
        found
            .map(|at| &self.0[at].1.chunk)
            .ok_or_else(|| StoreError::Missing(name.clone()))
    }
}

impl ChunkSource for SameHostChunks {
    fn read(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()> {
        self.get(name)?.read(form, slab, out)
    }

    fn show(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        self.get(name)?.show(form, slab, f)
    }
}
