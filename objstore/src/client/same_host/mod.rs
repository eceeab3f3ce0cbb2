//! Large immutable chunks of servers on the same machine, read from their files and not through a socket.
//!
//! The first time that much is read of such chunks the server is asked for their files in place of their bytes (LOANS),
//! one message for all of them; from then on they are read like chunks of a store in this process, their sums checked
//! here, and nobody is asked. A chunk that is immutable stays what it is, so there is nothing to be told of; but the room
//! of one that is deleted is taken for as long as its file is open. So a same-host files ends when it has not been used for 5 seconds
//! (a thread sees to that, which waits for nobody), when there are too many, or too large ones, and when whoever uses this
//! client hears that others want to write there.
//!
//! Whatever goes wrong with a file is nobody's error: the server is asked for the bytes then, as over TCP, and says what
//! is wrong.
//!
//! `files` keeps them within their bounds; `refused` remembers for a while what did not come.

mod files;
mod refused;

use std::fs::File;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use slabfs_model::{ChunkId, Hyperslab, ServerId};
use smallvec::SmallVec;

use self::files::{Files, Held, Key, MOST_BYTES};
use self::refused::Refused;
use super::fanout::encode;
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};
use crate::store::{ChunkSource, SameHostChunk, SameHostFile};
use crate::wire::messages::{Answer, SameHostFiles as Marks, kind};
use crate::wire::{MAX_FILES, Pool, Until, WireResult};

/// For fewer bytes no files are asked for: opening one costs more than to send them.
const FROM: u64 = 64 << 10;
/// Smaller chunks share files.
const SMALLEST: u64 = 64 << 10;
/// The files that are lent at present, and the thread that gives them back.
#[derive(Debug)]
pub(super) struct SameHost {
    files: Arc<Files>,
    refused: Mutex<Refused>,
    sweeper: Mutex<Option<JoinHandle<()>>>,
}

/// What one message reads, all of it from files.
pub(super) struct SameHostChunks(SmallVec<[(ChunkId, Arc<Held>); 8]>);

impl SameHost {
    pub(super) fn new() -> SameHost {
        SameHost {
            files: Arc::default(),
            refused: Mutex::default(),
            sweeper: Mutex::default(),
        }
    }

    /// Whether there are any.
    pub(super) fn are_any(&self) -> bool {
        self.files.are_any()
    }

    /// Whether a chunk is lent.
    pub(super) fn has(&self, server: ServerId, name: &ChunkName) -> bool {
        let ChunkName::Free(id) = name else {
            return false;
        };
        self.files.has(&(server, *id))
    }

    /// Shows cells of a chunk that is lent; `None` if it is not, or if its file is not what it should be.
    pub(super) fn show(
        &self,
        server: ServerId,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Option<bool> {
        let held = self.get(server, name)?;
        match held.chunk.show(form, slab, f) {
            Ok(shown) => Some(shown),
            Err(error) => {
                self.doubt(server, name, &error);
                None
            }
        }
    }

    /// As [`SameHost::show`], without waiting for a disk: false where that is not possible.
    pub(super) fn show_at_once(
        &self,
        server: ServerId,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        keeps: bool,
        f: &mut dyn FnMut(&[u8]),
    ) -> bool {
        let Some(held) = self.get(server, name) else {
            return false;
        };
        match held.chunk.show_at_once(form, slab, keeps, f) {
            Ok(shown) => shown,
            Err(error) => {
                self.doubt(server, name, &error);
                false
            }
        }
    }

    /// Reads cells of a chunk that is lent; false if it is not, or if its file is not what it should be.
    pub(super) fn read(
        &self,
        server: ServerId,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> bool {
        let Some(held) = self.get(server, name) else {
            return false;
        };
        match held.chunk.read(form, slab, out) {
            Ok(()) => true,
            Err(error) => {
                self.doubt(server, name, &error);
                false
            }
        }
    }

    /// The files of all these chunks; `None` if there is one without.
    pub(super) fn all<'a>(
        &self,
        server: ServerId,
        names: impl Iterator<Item = &'a ChunkName>,
    ) -> Option<SameHostChunks> {
        if !self.are_any() {
            return None;
        }
        let mut chunks_here: SmallVec<[(ChunkId, Arc<Held>); 8]> = SmallVec::new();
        for name in names {
            let ChunkName::Free(id) = name else {
                return None;
            };
            if chunks_here.last().is_some_and(|(last, _)| last == id) {
                continue;
            }
            chunks_here.push((*id, self.files.get(&(server, *id))?));
        }
        chunks_here.sort_unstable_by_key(|(id, _)| *id);
        chunks_here.dedup_by_key(|(id, _)| *id);
        Some(SameHostChunks(chunks_here))
    }

    /// The same, and those that are missing are asked for if that is worth while. The second tells whether a message was
    /// sent.
    pub(super) fn borrow(
        &self,
        server: ServerId,
        pool: &Pool,
        chunks: &[(&ChunkName, &ChunkForm)],
        bytes: u64,
        until: Until,
    ) -> (Option<SameHostChunks>, bool) {
        let names = || chunks.iter().map(|(name, _)| *name);
        if let Some(chunks_here) = self.all(server, names()) {
            return (Some(chunks_here), false);
        }
        if bytes < FROM || !pool.hands_files() || !chunks.iter().all(is_for_same_host) {
            return (None, false);
        }
        {
            let refused = self.refused.lock();
            if names().any(|name| refused.has(server, name)) {
                return (None, false);
            }
        }
        let mut missing: Vec<&ChunkName> = names().filter(|name| !self.has(server, name)).collect();
        missing.sort_unstable();
        missing.dedup();
        let all: u64 = chunks.iter().filter_map(|(_, form)| form.volume()).sum();
        if missing.len() > MAX_FILES.min(self.files.limit()) || all > MOST_BYTES {
            return (None, false);
        }
        match self.ask(server, pool, &missing, until) {
            Ok(()) => (self.all(server, names()), true),
            Err(error) => {
                tracing::debug!(addr = %pool.addr(), "chunks are sent and not read from files: {error}");
                (None, true)
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
        let asked = encode(names)?;
        let Some((control, files)) = pool.call_for_files(kind::SAME_HOST_FILES, &asked, until)?
        else {
            return Ok(());
        };
        let marks = match postcard::from_bytes::<Answer<Marks>>(&control) {
            Ok(Ok(marks)) if marks.len() == names.len() => marks,
            // What it does not like it says again when it is asked for the bytes.
            _ => return Ok(()),
        };
        let mut files = files.into_iter().map(File::from);
        for (name, mark) in names.iter().zip(marks) {
            let ChunkName::Free(id) = name else { continue };
            let key = (server, *id);
            let Some(mark) = mark else {
                self.refused.lock().note(key);
                continue;
            };
            let Some(file) = files.next() else {
                tracing::info!(addr = %pool.addr(), "no files come from this data server: its chunks are sent for a while");
                let mut refused = self.refused.lock();
                refused.note_server(server);
                break;
            };
            match SameHostChunk::new(SameHostFile { file, mark }, name) {
                Some(chunk) => self.hold(key, chunk),
                None => self.refused.lock().note(key),
            }
        }
        Ok(())
    }

    fn hold(&self, key: Key, chunk: SameHostChunk) {
        self.files.hold(key, chunk);
        let mut sweeper = self.sweeper.lock();
        if sweeper.is_none() {
            let files = self.files.clone();
            let thread = std::thread::Builder::new().name("slabfs-samehost".into());
            match thread.spawn(move || files.sweep()) {
                Ok(thread) => *sweeper = Some(thread),
                Err(error) => {
                    tracing::warn!("no files of data servers are kept: {error}");
                    self.clear();
                }
            }
        }
    }

    /// Ends all same-host files.
    pub(super) fn clear(&self) {
        self.files.clear();
    }

    /// As if nobody had used any for long.
    #[cfg(test)]
    pub(super) fn age(&self) {
        self.files.age();
    }

    #[cfg(test)]
    pub(super) fn tidy(&self) {
        self.files.tidy();
    }

    /// Ends same-host files of these chunks.
    pub(super) fn forget<'a>(&self, server: ServerId, names: impl Iterator<Item = &'a ChunkName>) {
        let ids = names.filter_map(|name| match name {
            ChunkName::Free(id) => Some((server, *id)),
            ChunkName::Grid { .. } => None,
        });
        self.files.forget(ids);
    }

    /// Ends same-host files of chunks that are deleted, or replaced by others, so that their room comes back at once.
    pub(super) fn forget_all(&self, names: &[(ServerId, ChunkName)]) {
        if self.are_any() {
            for (server, name) in names {
                self.forget(*server, std::iter::once(name));
            }
        }
    }

    /// A file is not what it should be: it is given back, and its chunk asked for as others are for a while.
    pub(super) fn doubt(&self, server: ServerId, name: &ChunkName, error: &StoreError) {
        tracing::debug!("a chunk is asked for and not read from its file: {error}");
        self.forget(server, std::iter::once(name));
        if let ChunkName::Free(id) = name {
            self.refused.lock().note((server, *id));
        }
    }

    fn get(&self, server: ServerId, name: &ChunkName) -> Option<Arc<Held>> {
        let ChunkName::Free(id) = name else {
            return None;
        };
        self.files.get(&(server, *id))
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

/// Whether a chunk may have a file of its own that holds it as it is.
fn is_for_same_host((name, form): &(&ChunkName, &ChunkForm)) -> bool {
    matches!(name, ChunkName::Free(_))
        && form.codec.is_none()
        && form
            .volume()
            .is_some_and(|volume| (SMALLEST..=MOST_BYTES).contains(&volume))
}

impl SameHostChunks {
    fn get(&self, name: &ChunkName) -> Result<&SameHostChunk> {
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
