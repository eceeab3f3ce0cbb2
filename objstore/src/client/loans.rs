//! Large immutable chunks of servers on the same machine, read from their files and not through a socket.
//!
//! The first time that much is read of such chunks the server is asked for their files in place of their bytes (LOANS),
//! one message for all of them; from then on they are read like chunks of a store in this process, their sums checked
//! here, and nobody is asked. A chunk that is immutable stays what it is, so there is nothing to be told of: a loan ends
//! when it has not been used for [`IDLE`], so that the room of a chunk that was deleted comes back, or when there are
//! too many.
//!
//! Whatever goes wrong with a file is nobody's error: the server is asked for the bytes then, as over TCP, and says what
//! is wrong.

use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};
use parking_lot::{Mutex, RwLock};
use slabfs_model::{ChunkId, Hyperslab, ServerId};
use smallvec::SmallVec;

use super::fanout::encode;
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};
use crate::store::{ChunkSource, LentChunk, Loan};
use crate::wire::messages::{Answer, Loans as Marks, kind};
use crate::wire::{MAX_FILES, Pool, Until, WireResult};

/// For fewer bytes no files are asked for: opening one costs more than to send them.
const FROM: u64 = 64 << 10;
/// Smaller chunks share files.
const SMALLEST: u64 = 64 << 10;
/// A loan that was not used for so long ends.
const IDLE: Duration = Duration::from_secs(5);
/// Files kept at most, and the share of those that this process may open.
const MOST: usize = 256;
const SHARE: u64 = 4;

type Key = (ServerId, ChunkId);

#[derive(Debug)]
struct Held {
    chunk: LentChunk,
    /// When it was used last, in milliseconds of [`Loans::begun`].
    used: AtomicU64,
}

/// The files that are lent at present.
#[derive(Debug)]
pub(super) struct Loans {
    held: RwLock<HashMap<Key, Arc<Held>>>,
    /// How many, to be looked at without the lock.
    count: AtomicUsize,
    begun: Instant,
    limit: OnceLock<usize>,
    /// Servers whose files do not come through.
    without: Mutex<Vec<ServerId>>,
}

/// What one message reads, all of it from files.
pub(super) struct Lent(SmallVec<[(ChunkId, Arc<Held>); 8]>);

impl Loans {
    pub(super) fn new() -> Loans {
        Loans {
            held: RwLock::default(),
            count: AtomicUsize::new(0),
            begun: Instant::now(),
            limit: OnceLock::new(),
            without: Mutex::default(),
        }
    }

    /// Whether there are any.
    pub(super) fn are_any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Whether a chunk is lent.
    pub(super) fn has(&self, server: ServerId, name: &ChunkName) -> bool {
        let ChunkName::Free(id) = name else {
            return false;
        };
        self.are_any() && self.held.read().contains_key(&(server, *id))
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
    ) -> Option<Lent> {
        if !self.are_any() {
            return None;
        }
        let now = self.now();
        let held = self.held.read();
        let mut lent = SmallVec::new();
        for name in names {
            let ChunkName::Free(id) = name else {
                return None;
            };
            if lent.last().is_some_and(|(last, _)| last == id) {
                continue;
            }
            let one = held.get(&(server, *id))?;
            one.used.store(now, Relaxed);
            lent.push((*id, one.clone()));
        }
        lent.sort_unstable_by_key(|(id, _)| *id);
        lent.dedup_by_key(|(id, _)| *id);
        Some(Lent(lent))
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
    ) -> (Option<Lent>, bool) {
        let names = || chunks.iter().map(|(name, _)| *name);
        if let Some(lent) = self.all(server, names()) {
            return (Some(lent), false);
        }
        if bytes < FROM || !pool.hands_files() || !chunks.iter().all(is_for_loan) {
            return (None, false);
        }
        if self.without.lock().contains(&server) {
            return (None, false);
        }
        let mut missing: Vec<&ChunkName> = names().filter(|name| !self.has(server, name)).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.len() > MAX_FILES.min(self.limit()) {
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
        let Some((control, files)) = pool.call_for_files(kind::LOANS, &asked, until)? else {
            return Ok(());
        };
        let marks = match postcard::from_bytes::<Answer<Marks>>(&control) {
            Ok(Ok(marks)) if marks.len() == names.len() => marks,
            // What it does not like it says again when it is asked for the bytes.
            _ => return Ok(()),
        };
        let mut files = files.into_iter().map(File::from);
        for (name, mark) in names.iter().zip(marks) {
            let Some(mark) = mark else { continue };
            let Some(file) = files.next() else {
                tracing::info!(addr = %pool.addr(), "no files come from this data server: its chunks are sent");
                self.without.lock().push(server);
                break;
            };
            if let (ChunkName::Free(id), Some(chunk)) =
                (name, LentChunk::new(Loan { file, mark }, name))
            {
                self.hold((server, *id), chunk);
            }
        }
        Ok(())
    }

    fn hold(&self, key: Key, chunk: LentChunk) {
        let now = self.now();
        let entry = Arc::new(Held {
            chunk,
            used: AtomicU64::new(now),
        });
        let mut held = self.held.write();
        if held.len() >= self.limit() && !held.contains_key(&key) {
            let oldest = held.iter().min_by_key(|(_, one)| one.used.load(Relaxed));
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                held.remove(&oldest);
            }
        }
        held.insert(key, entry);
        self.count.store(held.len(), Relaxed);
    }

    /// Ends loans that are not used.
    pub(super) fn tidy(&self) {
        if !self.are_any() {
            return;
        }
        let now = self.now();
        let mut held = self.held.write();
        held.retain(|_, one| now.saturating_sub(one.used.load(Relaxed)) < IDLE.as_millis() as u64);
        self.count.store(held.len(), Relaxed);
    }

    /// As if nobody had used any for long.
    #[cfg(test)]
    pub(super) fn age(&self) {
        for one in self.held.read().values() {
            one.used.store(0, Relaxed);
        }
    }

    /// Ends loans of these chunks.
    pub(super) fn forget<'a>(&self, server: ServerId, names: impl Iterator<Item = &'a ChunkName>) {
        let mut held = self.held.write();
        for name in names {
            if let ChunkName::Free(id) = name {
                held.remove(&(server, *id));
            }
        }
        self.count.store(held.len(), Relaxed);
    }

    /// Ends loans of chunks that are deleted, so that their room comes back at once.
    pub(super) fn forget_all(&self, names: &[(ServerId, ChunkName)]) {
        if self.are_any() {
            for (server, name) in names {
                self.forget(*server, std::iter::once(name));
            }
        }
    }

    fn doubt(&self, server: ServerId, name: &ChunkName, error: &StoreError) {
        tracing::debug!("a chunk is asked for and not read from its file: {error}");
        self.forget(server, std::iter::once(name));
    }

    fn get(&self, server: ServerId, name: &ChunkName) -> Option<Arc<Held>> {
        let ChunkName::Free(id) = name else {
            return None;
        };
        if !self.are_any() {
            return None;
        }
        let held = self.held.read().get(&(server, *id))?.clone();
        held.used.store(self.now(), Relaxed);
        Some(held)
    }

    /// Milliseconds on a clock that began long ago.
    fn now(&self) -> u64 {
        (IDLE + self.begun.elapsed()).as_millis() as u64
    }

    fn limit(&self) -> usize {
        *self.limit.get_or_init(|| {
            let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(MOST as u64, |(soft, _)| soft);
            (files / SHARE).min(MOST as u64) as usize
        })
    }
}

/// Whether a chunk may have a file of its own that holds it as it is.
fn is_for_loan((name, form): &(&ChunkName, &ChunkForm)) -> bool {
    matches!(name, ChunkName::Free(_))
        && form.codec.is_none()
        && form.volume().is_some_and(|volume| volume >= SMALLEST)
}

impl Lent {
    fn get(&self, name: &ChunkName) -> Result<&LentChunk> {
        let found = match name {
            ChunkName::Free(id) => self.0.binary_search_by_key(id, |(id, _)| *id).ok(),
            ChunkName::Grid { .. } => None,
        };
        found
            .map(|at| &self.0[at].1.chunk)
            .ok_or_else(|| StoreError::Missing(name.clone()))
    }
}

impl ChunkSource for Lent {
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
