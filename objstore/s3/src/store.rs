//! [`S3Store`]: the chunk store over a bucket.
//!
//! Lock order: a chunk's stripe, then the state; uploading, then the state. The state's lock is held for lookups and changes of
//! the maps only, never for I/O. A stripe is locked by calls that change what the cache has of a chunk, and shared by those that
//! read it, so that nothing is evicted under them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::io::IoSlice;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crc_fast::crc32_iscsi as crc32c;
use parking_lot::{Condvar, Mutex, RwLock, RwLockWriteGuard};
use slabfs_model::{Hyperslab, ObjectId, for_each_run};
use slabfs_objstore::store::{Allocated, LocalOptions, LocalStore, Patch, Patches, Space};
use slabfs_objstore::{ChunkForm, ChunkName, ChunkStore, StoreError};

use crate::bucket::{Bucket, Made};
use crate::cache::{Cache, Kind};
use crate::index::{Index, Object, Span, Stored, of_object};
use crate::segment::{BLOCK, Draft, HEADER, Writer, check, head, table};

type Result<T> = std::result::Result<T, StoreError>;

/// Number of locks for changes, selected by name.
const STRIPES: usize = 64;
/// Bytes of a segment that are read at first: mostly all of its table.
const FIRST_READ: u64 = 64 << 10;
/// How long what no sync names stays in the cache alone.
const LATEST: Duration = Duration::from_secs(2);
/// How often it is looked whether another process has the identity.
const LOOK: Duration = Duration::from_millis(500);
/// How long after such a look this process may answer.
const OWNED: Duration = Duration::from_secs(2);
/// How long a process that takes over waits for the one before, if that has not ended in order: it answers nothing any more then.
const GRACE: Duration = Duration::from_millis(2500);
/// The longest name of an identity, in bytes.
const MAX_NAME: usize = 64;
/// Chunks that are looked at for one eviction.
const CANDIDATES: usize = 32;
/// What a store in a bucket says of its space: there is no limit.
const PLENTY: u64 = 1 << 50;

/// Options of the store.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// Bytes of the cache, about.
    pub cache_bytes: u64,
}

impl Default for S3Options {
    fn default() -> Self {
        Self {
            cache_bytes: 8 << 30,
        }
    }
}

/// What is known of the chunks.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) index: Index,
    pub(crate) cache: Cache,
    /// Chunks that were in the index and are deleted, and that no segment names as such; each with objects of its own.
    pub(crate) deleted: BTreeMap<ChunkName, Vec<String>>,
}

impl State {
    /// Whether the cache has all of a chunk, and changes that the bucket has not.
    fn is_newer_here(&self, name: &ChunkName, stored: &Stored) -> bool {
        match (
            self.cache.chunks.get(name).map(|cached| &cached.kind),
            stored,
        ) {
            (Some(Kind::Grid { here, dirty }), Stored::Grid { blocks, .. }) => {
                !dirty.is_empty() && blocks.keys().all(|block| here.contains(block))
            }
            _ => false,
        }
    }
}

/// A chunk store in a bucket, with a cache in a local directory.
#[derive(Debug)]
pub struct S3Store {
    pub(crate) bucket: Bucket,
    pub(crate) local: LocalStore,
    pub(crate) id: String,
    pub(crate) writer: Writer,
    uuid: [u8; 16],
    dir: PathBuf,
    options: S3Options,
    pub(crate) state: Mutex<State>,
    stripes: Box<[RwLock<()>]>,
    /// What syncs wait for that nothing uploads yet.
    pub(crate) wanted: Mutex<BTreeSet<ChunkName>>,
    /// Held while something is uploaded; counts segments.
    pub(crate) uploading: Mutex<u64>,
    /// Objects that nothing refers to, once the index is stored.
    pub(crate) garbage: Mutex<Vec<String>>,
    /// Objects that uploads which failed may have created.
    pub(crate) tried: Mutex<Vec<String>>,
    is_replaced: AtomicBool,
    replacing: (Mutex<()>, Condvar),
    /// When this process had the identity for certain, in milliseconds of the clock that counts suspended time.
    owned: AtomicU64,
    closing: Arc<(Mutex<bool>, Condvar)>,
}

/// The thread that uploads what no sync names; ends when dropped.
#[derive(Debug)]
pub struct Uploads {
    closing: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Uploads {
    fn drop(&mut self) {
        *self.closing.0.lock() = true;
        self.closing.1.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that uploads panicked");
        }
    }
}

impl S3Store {
    /// Opens the store of this identity; if none is given, of that which `dir` names, or of a new one. The cache in `dir` is
    /// emptied.
    ///
    /// # Errors
    /// No bucket, damaged segments, a directory that is in use, a name that is none.
    pub fn open(
        dir: &Path,
        bucket: Bucket,
        identity: Option<&str>,
        options: S3Options,
    ) -> Result<S3Store> {
        let failed = |what: &str, error: std::io::Error| StoreError::Io {
            what: format!("{what} {}", dir.display()),
            detail: error.to_string(),
            errno: error.raw_os_error(),
        };
        std::fs::create_dir_all(dir).map_err(|error| failed("creating", error))?;
        let named = dir.join("identity");
        let known = match std::fs::read_to_string(&named) {
            Ok(text) => Some(text.trim().to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("reading the identity in", error)),
        };
        let id = match (identity, known) {
            (Some(given), Some(known)) if given != known => {
                return Err(StoreError::Invalid(format!(
                    "{} is the cache of {known} and not of {given}; give another directory",
                    dir.display()
                )));
            }
            (Some(given), _) => given.to_owned(),
            (None, Some(known)) => known,
            (None, None) => hex(&random()?),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if id.is_empty() || id.len() > MAX_NAME || !id.chars().all(is_name) || id.starts_with('.') {
            return Err(StoreError::Invalid(format!(
                "{id:?} is no name for an identity: use letters, digits, '-', '_' and '.', at most {MAX_NAME}"
            )));
        }
        std::fs::write(&named, &id).map_err(|error| failed("naming the identity in", error))?;
        let uuid = uuid_of(&bucket, &id)?;
        let cache = dir.join("cache");
        // It may have what was never acknowledged, and what another process has changed since.
        match std::fs::remove_dir_all(&cache) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("emptying the cache in", error));
            }
            _ => {}
        }
        let local = LocalStore::open(
            &cache,
            LocalOptions {
                fsync: false,
                open_files: None,
            },
        )?;
        let mut store = S3Store {
            bucket,
            local,
            id,
            writer: random()?,
            uuid,
            dir: dir.to_owned(),
            options,
            state: Mutex::default(),
            stripes: (0..STRIPES).map(|_| RwLock::new(())).collect(),
            wanted: Mutex::default(),
            uploading: Mutex::new(0),
            garbage: Mutex::default(),
            tried: Mutex::default(),
            is_replaced: AtomicBool::new(false),
            replacing: Default::default(),
            owned: AtomicU64::new(0),
            closing: Arc::default(),
        };
        store.load()?;
        Ok(store)
    }

    /// Starts the thread that uploads what no sync names.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_uploads(self: &Arc<Self>) -> Result<Uploads> {
        let (store, closing) = (Arc::clone(self), Arc::clone(&self.closing));
        let thread = std::thread::Builder::new()
            .name("s3-upload".to_owned())
            .spawn(move || store.upload_now_and_then());
        let thread = thread.map_err(|error| StoreError::Io {
            what: "starting a thread".to_owned(),
            detail: error.to_string(),
            errno: error.raw_os_error(),
        })?;
        Ok(Uploads {
            closing,
            thread: Some(thread),
        })
    }

    fn upload_now_and_then(&self) {
        let (closing, wake) = &*self.closing;
        let mut last = Instant::now();
        loop {
            {
                let mut closing = closing.lock();
                if !*closing {
                    wake.wait_for(&mut closing, LOOK);
                }
                if *closing {
                    return;
                }
            }
            if let Err(error) = self.look_for_another() {
                tracing::warn!(
                    "it is not certain that no other process serves these chunks: {error}"
                );
                continue;
            }
            if last.elapsed() < LATEST {
                continue;
            }
            last = Instant::now();
            if let Err(error) = self.upload_all() {
                tracing::warn!("chunks stay in the cache alone for now: {error}");
            }
        }
    }

    fn upload_all(&self) -> Result<()> {
        let dirty = self.state.lock().cache.dirty().cloned().collect();
        self.upload(&dirty)
    }

    /// The id of the store.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.uuid
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Requests to the bucket so far.
    #[must_use]
    pub fn counts(&self) -> crate::BucketCounts {
        self.bucket.counts()
    }

    /// Uploads everything, and stores the index.
    ///
    /// # Errors
    /// Those of the bucket.
    pub fn close(&self) -> Result<()> {
        self.upload_all()?;
        let _uploading = self.uploading.lock();
        self.check()?;
        self.store_index()?;
        // The next process need not wait for this one, which answers nothing any more. (Of an empty object no store would
        // give a range.)
        let number = self.state.lock().index.next;
        self.note_end();
        self.bucket
            .create(&self.closed_key(number), Bytes::from_static(b"closed"))
            .map(drop)
    }

    pub(crate) fn segment_key(&self, number: u64) -> String {
        format!("{}/segments/{number:016x}", self.id)
    }

    fn closed_key(&self, number: u64) -> String {
        format!("{}/closed/{number:016x}", self.id)
    }

    pub(crate) fn index_key(&self, number: u64) -> String {
        format!("{}/index/{number:016x}", self.id)
    }

    /// Reads the newest index, and the tables of the segments behind it.
    fn load(&mut self) -> Result<()> {
        let damaged = |key: &str, why: String| StoreError::Io {
            what: format!("reading {key}"),
            detail: why,
            errno: None,
        };
        let mut index = Index::default();
        if let Some(newest) = self.bucket.list(&format!("{}/index", self.id))?.last() {
            let key = format!("{}/index/{newest}", self.id);
            let bytes = self.bucket.get(&key, None)?;
            let (crc, bytes) = bytes
                .split_at_checked(4)
                .ok_or_else(|| damaged(&key, "it is too short".to_owned()))?;
            if crc32c(bytes).to_le_bytes() != crc {
                return Err(damaged(&key, "it is damaged".to_owned()));
            }
            index =
                postcard::from_bytes(bytes).map_err(|error| damaged(&key, error.to_string()))?;
        }
        let mut garbage = Vec::new();
        let segments = self.bucket.list(&format!("{}/segments", self.id))?;
        let numbers = segments
            .iter()
            .filter_map(|name| u64::from_str_radix(name, 16).ok());
        for number in numbers {
            if number < index.next {
                continue;
            }
            let key = self.segment_key(number);
            if number > index.next {
                let missing = format!("segment {} before it is missing", index.next);
                return Err(damaged(&key, missing));
            }
            let mut bytes = self.first_bytes(&key, FIRST_READ)?;
            let found = head(&bytes, number).map_err(|why| damaged(&key, why))?;
            if (bytes.len() as u64) < found.payload {
                bytes = self.bucket.get(&key, Some(0..found.payload))?;
            }
            let entries = table(&found, &bytes).map_err(|why| damaged(&key, why))?;
            garbage.extend(index.apply(number, found.payload, entries));
        }
        self.state.get_mut().index = index;
        *self.garbage.get_mut() = garbage;
        // What another process of this identity still uploads fails from here on.
        self.take_over()
    }

    fn first_bytes(&self, key: &str, len: u64) -> Result<Bytes> {
        self.bucket.get(key, Some(0..len))
    }

    /// Creates a segment without chunks: a process that this one replaces can create none of that number any more.
    fn take_over(&self) -> Result<()> {
        let number = self.state.lock().index.next;
        let bytes = Draft::default().finish(number, self.writer)?;
        let begun = now_ms();
        let made = self
            .bucket
            .create(&self.segment_key(number), bytes.into())?;
        if made == Made::Exists {
            return Err(self.replaced());
        }
        self.state.lock().index.next = number + 1;
        let has_ended = self.bucket.find(&self.closed_key(number), 1)?.is_some();
        if number > 0 && !has_ended {
            tracing::info!(
                "waiting until the process that served these chunks before answers nothing any more"
            );
            std::thread::sleep(GRACE);
            return self.look_for_another();
        }
        self.note_owned(begun);
        Ok(())
    }

    /// Looks whether another process has the identity: then it has created the next segment.
    fn look_for_another(&self) -> Result<()> {
        let begun = now_ms();
        let number = self.state.lock().index.next;
        let key = self.segment_key(number);
        if let Some(bytes) = self.bucket.find(&key, HEADER as u64)? {
            let is_own = head(&bytes, number).is_ok_and(|head| head.writer == self.writer);
            if !is_own {
                return Err(self.replaced());
            }
        }
        self.note_owned(begun);
        Ok(())
    }

    /// Notes that this process had the identity at this time.
    pub(crate) fn note_owned(&self, begun: u64) {
        self.owned.fetch_max(begun, Ordering::AcqRel);
    }

    /// Blocks until another process has this identity, or this one is closed.
    pub fn wait_replaced(&self) {
        let mut waiting = self.replacing.0.lock();
        while !self.is_replaced.load(Ordering::Acquire) {
            self.replacing.1.wait(&mut waiting);
        }
    }

    /// Ends all that `wait_replaced` waits for.
    fn note_end(&self) {
        let _waiting = self.replacing.0.lock();
        self.is_replaced.store(true, Ordering::Release);
        self.replacing.1.notify_all();
    }

    /// Fails if another process has this identity now, or may have.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_replaced.load(Ordering::Acquire) {
            return Err(self.replaced());
        }
        let since = now_ms().saturating_sub(self.owned.load(Ordering::Acquire));
        match since < OWNED.as_millis() as u64 {
            true => Ok(()),
            // It was stopped, or the bucket did not answer.
            false => self.look_for_another(),
        }
    }

    /// Notes that another process has this identity.
    pub(crate) fn replaced(&self) -> StoreError {
        if !self.is_replaced.load(Ordering::Acquire) {
            tracing::error!("another process serves the chunks of {} now", self.id);
            self.note_end();
        }
        StoreError::Io {
            what: format!("storing chunks of {}", self.id),
            detail: "another process has taken them over; this one has to be started again"
                .to_owned(),
            errno: None,
        }
    }

    fn stripe(&self, name: &ChunkName) -> &RwLock<()> {
        let mut hasher = std::hash::DefaultHasher::new();
        name.hash(&mut hasher);
        &self.stripes[hasher.finish() as usize % STRIPES]
    }

    fn lock(&self, name: &ChunkName) -> RwLockWriteGuard<'_, ()> {
        self.stripe(name).write()
    }

    /// The bytes of a span.
    fn fetch(&self, name: &ChunkName, span: &Span) -> Result<Bytes> {
        let key = match &span.object {
            Object::Segment(number) => self.segment_key(*number),
            Object::Own(key) => key.clone(),
        };
        if span.len == 0 {
            return Ok(Bytes::new());
        }
        let bytes = self.bucket.get(&key, Some(span.at..span.at + span.len))?;
        check(name, span.crc, &bytes)?;
        Ok(bytes)
    }

    /// Brings the blocks of a slab, or all of a chunk, into the cache. The caller holds the stripe. Returns false if there is
    /// no such chunk.
    fn bring(&self, name: &ChunkName, form: &ChunkForm, blocks: &Wanted) -> Result<bool> {
        loop {
            let before = self.state.lock().index.chunks.get(name).cloned();
            let brought = self.try_bring(name, form, blocks);
            // An upload may have put it elsewhere, and the index may have been stored: what was there is deleted then.
            let moved = || self.state.lock().index.chunks.get(name) != before.as_ref();
            if brought.is_ok() || !moved() {
                return brought;
            }
        }
    }

    fn try_bring(&self, name: &ChunkName, form: &ChunkForm, blocks: &Wanted) -> Result<bool> {
        let stored = {
            let mut state = self.state.lock();
            let there = state.cache.used(name).is_some();
            match state.index.chunks.get(name) {
                // All that there is of it is in the cache.
                None => return Ok(there),
                Some(Stored::Chunk { .. }) if there => return Ok(true),
                Some(stored) => stored.clone(),
            }
        };
        match stored {
            Stored::Chunk {
                form,
                encoded,
                span,
            } => {
                let bytes = self.fetch(name, &span)?;
                let slices = [IoSlice::new(&bytes)];
                match encoded {
                    true => self.local.put_encoded(name, &form, &slices)?,
                    false => self.local.put(name, &form, &slices)?,
                }
                let kind = Kind::Free {
                    sealed: true,
                    dirty: None,
                };
                let mut state = self.state.lock();
                state.cache.put(name, &form, kind, span.len);
            }
            Stored::Grid { blocks: all, .. } => {
                let missing: Vec<(u64, Span)> = {
                    let state = self.state.lock();
                    let here = match state.cache.chunks.get(name).map(|cached| &cached.kind) {
                        Some(Kind::Grid { here, .. }) => Some(here),
                        _ => None,
                    };
                    let wanted = all.into_iter().filter(|(block, _)| {
                        blocks.contains(*block) && !here.is_some_and(|here| here.contains(block))
                    });
                    wanted.collect()
                };
                let mut fetched = Vec::new();
                for (block, span) in &missing {
                    fetched.push((*block, self.fetch(name, span)?));
                }
                let end = fetched
                    .iter()
                    .map(|(block, bytes)| block * BLOCK + bytes.len() as u64)
                    .max();
                let mut patches = Bring {
                    rest: fetched.iter().collect(),
                    now: None,
                    // A chunk of fill has to exist in the cache, too.
                    touch: end.is_none(),
                };
                self.local
                    .patch(name, form, end.unwrap_or(1), &mut patches)?;
                let bytes: u64 = missing.iter().map(|(_, span)| span.len).sum();
                let mut state = self.state.lock();
                if !state.cache.chunks.contains_key(name) {
                    let kind = Kind::Grid {
                        here: BTreeSet::new(),
                        dirty: BTreeMap::new(),
                    };
                    state.cache.put(name, form, kind, 0);
                }
                state.cache.grow(name, bytes);
                if let Some(Kind::Grid { here, .. }) = state
                    .cache
                    .chunks
                    .get_mut(name)
                    .map(|cached| &mut cached.kind)
                {
                    here.extend(missing.iter().map(|(block, _)| *block));
                }
            }
        }
        self.evict();
        Ok(true)
    }

    /// Removes chunks from the cache until it has its size again. The caller may hold a stripe.
    fn evict(&self) {
        let candidates = {
            let state = self.state.lock();
            match state.cache.bytes > self.options.cache_bytes {
                true => state.cache.oldest_clean(CANDIDATES),
                false => return,
            }
        };
        for name in candidates {
            // One that is being read, or about to be used by the caller, stays.
            let Some(_stripe) = self.stripe(&name).try_write() else {
                continue;
            };
            {
                let mut state = self.state.lock();
                if state.cache.bytes <= self.options.cache_bytes {
                    return;
                }
                let clean = state.cache.chunks.get(&name);
                if clean.is_none_or(|cached| cached.is_dirty()) {
                    continue;
                }
                state.cache.remove(&name);
            }
            if let Err(error) = self.local.delete(std::slice::from_ref(&name)) {
                tracing::warn!("{name} stays in the cache: {error}");
            }
        }
    }

    /// Makes room in the cache by uploading what is dirty.
    fn make_room(&self) -> Result<()> {
        let full = {
            let state = self.state.lock();
            state.cache.bytes > self.options.cache_bytes && state.cache.oldest_clean(1).is_empty()
        };
        if full {
            self.upload_all()?;
        }
        Ok(())
    }

    /// Notes that an immutable chunk was written to the cache.
    fn note_free(&self, name: &ChunkName, form: &ChunkForm, sealed: bool, bytes: u64) {
        let mut state = self.state.lock();
        if state.index.chunks.contains_key(name) {
            // It was sent again.
            return;
        }
        let change = state.cache.change();
        let kind = Kind::Free {
            sealed,
            dirty: sealed.then_some(change),
        };
        state.cache.put(name, form, kind, bytes);
        drop(state);
        self.evict();
    }

    /// Changes a grid chunk in the cache, of which `needed` has to be there. `work` returns the blocks that it changed, or
    /// may have changed.
    fn change(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        needed: BTreeSet<u64>,
        work: impl FnOnce() -> (BTreeSet<u64>, Result<()>),
    ) -> Result<()> {
        self.check()?;
        self.make_room()?;
        let _stripe = self.lock(name);
        self.change_locked(name, form, needed, work)
    }

    /// The same; the caller holds the stripe.
    fn change_locked(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        needed: BTreeSet<u64>,
        work: impl FnOnce() -> (BTreeSet<u64>, Result<()>),
    ) -> Result<()> {
        self.bring(name, form, &Wanted::Blocks(needed))?;
        let (touched, done) = work();
        let mut state = self.state.lock();
        if !state.cache.chunks.contains_key(name) {
            let kind = Kind::Grid {
                here: BTreeSet::new(),
                dirty: BTreeMap::new(),
            };
            state.cache.put(name, form, kind, 0);
        }
        let mut more = 0;
        let change = state.cache.change();
        if let Some(cached) = state.cache.used(name) {
            cached.form = form.clone();
            if let Kind::Grid { here, dirty } = &mut cached.kind {
                more = touched.iter().filter(|block| !here.contains(block)).count() as u64;
                here.extend(&touched);
                // Also after an error, which may have changed something.
                dirty.extend(touched.iter().map(|block| (*block, change)));
            }
        }
        state.cache.grow(name, more * BLOCK);
        drop(state);
        self.evict();
        done
    }

    /// Runs `work` on a chunk of which what `wanted` names is in the cache.
    fn with<T>(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        wanted: &Wanted,
        work: &mut dyn FnMut() -> Result<T>,
    ) -> Result<T> {
        self.check()?;
        {
            let _shared = self.stripe(name).read();
            if self.has(name, wanted) {
                return work();
            }
        }
        let stripe = self.lock(name);
        if !self.bring(name, form, wanted)? {
            return Err(StoreError::Missing(name.clone()));
        }
        let _shared = RwLockWriteGuard::downgrade(stripe);
        work()
    }

    /// Whether the cache has what is wanted of a chunk.
    fn has(&self, name: &ChunkName, wanted: &Wanted) -> bool {
        let mut state = self.state.lock();
        let State { index, cache, .. } = &mut *state;
        let Some(cached) = cache.used(name) else {
            return false;
        };
        match (&cached.kind, index.chunks.get(name)) {
            (Kind::Grid { here, .. }, Some(Stored::Grid { blocks, .. })) => match wanted {
                Wanted::Everything => blocks.keys().all(|block| here.contains(block)),
                Wanted::Blocks(wanted) => wanted
                    .iter()
                    .all(|block| here.contains(block) || !blocks.contains_key(block)),
            },
            _ => true,
        }
    }

    fn remove(&self, names: impl Iterator<Item = ChunkName>) -> Result<()> {
        let names: Vec<ChunkName> = names.collect();
        // A segment that names them again must not be under way.
        let _uploading = self.uploading.lock();
        for name in &names {
            let _stripe = self.lock(name);
            let mut state = self.state.lock();
            state.cache.remove(name);
            // It is not there any more, although the bucket does not know that yet.
            if let Some(stored) = state.index.remove(name) {
                let own = stored.own_objects();
                state.deleted.entry(name.clone()).or_default().extend(own);
            }
        }
        self.local.delete(&names)
    }
}

/// The blocks that a call needs.
enum Wanted {
    Everything,
    Blocks(BTreeSet<u64>),
}

impl Wanted {
    fn contains(&self, block: u64) -> bool {
        match self {
            Wanted::Everything => true,
            Wanted::Blocks(blocks) => blocks.contains(&block),
        }
    }
}

/// Writes fetched blocks to the cache.
struct Bring<'a> {
    rest: Vec<&'a (u64, Bytes)>,
    now: Option<&'a Bytes>,
    touch: bool,
}

impl Patches for Bring<'_> {
    fn next(&mut self) -> Option<Patch> {
        if std::mem::take(&mut self.touch) {
            self.now = None;
            return Some(Patch {
                from: 0,
                to: 1,
                is_complete: false,
            });
        }
        loop {
            if self.rest.is_empty() {
                return None;
            }
            let (block, bytes) = self.rest.remove(0);
            if bytes.is_empty() {
                continue;
            }
            self.now = Some(bytes);
            return Some(Patch {
                from: block * BLOCK,
                to: block * BLOCK + bytes.len() as u64,
                is_complete: true,
            });
        }
    }

    fn apply(&mut self, bytes: &mut [u8]) {
        if let Some(fetched) = self.now {
            bytes.copy_from_slice(fetched);
        }
    }
}

/// The blocks of a slab, each with the bytes of it that are in the slab. None of a slab that is not valid, which the store
/// below refuses.
fn coverage(form: &ChunkForm, slab: &Hyperslab) -> BTreeMap<u64, u64> {
    let mut blocks = BTreeMap::new();
    if slab.validate(&form.shape).is_err() {
        return blocks;
    }
    let Some(bounds) = slab.bounds() else {
        return blocks;
    };
    let mut shape = form.shape.clone();
    if let Some(first) = shape.first_mut() {
        *first = bounds.end(0);
    }
    let bytes = shape
        .iter()
        .try_fold(1u64, |bytes, axis| bytes.checked_mul(*axis));
    if bytes.is_none_or(|bytes| bytes > i64::MAX as u64 / 2) {
        return blocks;
    }
    for_each_run(&shape, slab, &mut |at, len| {
        let (mut at, mut len) = (at as u64, len as u64);
        while len > 0 {
            let part = len.min(BLOCK - at % BLOCK);
            *blocks.entry(at / BLOCK).or_insert(0) += part;
            at += part;
            len -= part;
        }
    });
    blocks
}

/// Notes which blocks are changed.
struct Noting<'a> {
    patches: &'a mut dyn Patches,
    touched: BTreeSet<u64>,
}

impl Patches for Noting<'_> {
    fn next(&mut self) -> Option<Patch> {
        let patch = self.patches.next()?;
        if patch.from < patch.to {
            self.touched
                .extend(patch.from / BLOCK..=(patch.to - 1) / BLOCK);
        }
        Some(patch)
    }

    fn apply(&mut self, bytes: &mut [u8]) {
        self.patches.apply(bytes);
    }
}

/// The clock of ownership: it counts also while the machine is suspended.
pub(crate) fn now_ms() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(u64::MAX, |time| {
        time.tv_sec() as u64 * 1000 + time.tv_nsec() as u64 / 1_000_000
    })
}

fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| StoreError::Io {
        what: "drawing random numbers".to_owned(),
        detail: error.to_string(),
        errno: None,
    })?;
    Ok(bytes)
}

fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The id by which the metadata service knows an identity: random, in an object that its first process creates.
///
/// # Errors
/// Those of the bucket.
pub fn uuid_of(bucket: &Bucket, id: &str) -> Result<[u8; 16]> {
    let key = format!("{id}/uuid");
    let new = random()?;
    let bytes = match bucket.create(&key, Bytes::copy_from_slice(&new))? {
        Made::Created => return Ok(new),
        Made::Exists => bucket.get(&key, None)?,
    };
    <[u8; 16]>::try_from(&bytes[..]).map_err(|_| StoreError::Io {
        what: format!("reading {key}"),
        detail: format!("it has {} bytes and not 16", bytes.len()),
        errno: None,
    })
}

fn len_of(data: &[IoSlice<'_>]) -> u64 {
    data.iter().map(|part| part.len() as u64).sum()
}

impl ChunkStore for S3Store {
    fn may_answer(&self) -> Result<()> {
        self.check()
    }

    fn put(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        self.check()?;
        self.make_room()?;
        let _stripe = self.lock(name);
        // A chunk that was sent again is compared with what there is.
        self.bring(name, form, &Wanted::Everything)?;
        self.local.put(name, form, data)?;
        self.note_free(name, form, true, len_of(data));
        Ok(())
    }

    fn put_encoded(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        self.check()?;
        self.make_room()?;
        let _stripe = self.lock(name);
        self.bring(name, form, &Wanted::Everything)?;
        self.local.put_encoded(name, form, data)?;
        self.note_free(name, form, true, len_of(data));
        Ok(())
    }

    fn read_encoded(&self, name: &ChunkName) -> Result<Option<Vec<u8>>> {
        let form = {
            let state = self.state.lock();
            match state.index.chunks.get(name) {
                Some(Stored::Chunk { form, .. }) => Some(form.clone()),
                _ => None,
            }
        };
        match form {
            None => self.local.read_encoded(name),
            Some(form) => self.with(name, &form, &Wanted::Everything, &mut || {
                self.local.read_encoded(name)
            }),
        }
    }

    fn append(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        at: u64,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        self.check()?;
        self.make_room()?;
        let _stripe = self.lock(name);
        self.bring(name, form, &Wanted::Everything)?;
        self.local.append(name, form, at, data)?;
        let known = {
            let mut state = self.state.lock();
            state.cache.used(name).is_some()
        };
        match known {
            true => self.state.lock().cache.grow(name, len_of(data)),
            false => self.note_free(name, form, false, len_of(data)),
        }
        Ok(())
    }

    fn seal(&self, name: &ChunkName, form: &ChunkForm) -> Result<()> {
        self.check()?;
        let _stripe = self.lock(name);
        self.bring(name, form, &Wanted::Everything)?;
        self.local.seal(name, form)?;
        self.note_free(name, form, true, form.volume().unwrap_or(0));
        Ok(())
    }

    fn write(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        let blocks = coverage(form, slab);
        let partial = blocks.iter().filter(|(_, bytes)| **bytes < BLOCK);
        let partial = partial.map(|(block, _)| *block).collect();
        self.change(name, form, partial, || {
            let done = self.local.write(name, form, slab, data);
            (blocks.into_keys().collect(), done)
        })
    }

    fn patch(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        end: u64,
        patches: &mut dyn Patches,
    ) -> Result<()> {
        // Which ranges come is known only as they come; they lie in front of the end.
        let needed: BTreeSet<u64> = (0..end.div_ceil(BLOCK)).collect();
        self.change(name, form, needed, || {
            let mut noting = Noting {
                patches,
                touched: BTreeSet::new(),
            };
            let done = self.local.patch(name, form, end, &mut noting);
            (noting.touched, done)
        })
    }

    fn read(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()> {
        let wanted = Wanted::Blocks(coverage(form, slab).into_keys().collect());
        self.with(name, form, &wanted, &mut || {
            self.local.read(name, form, slab, out)
        })
    }

    fn show(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        let wanted = Wanted::Blocks(coverage(form, slab).into_keys().collect());
        self.with(name, form, &wanted, &mut || {
            self.local.show(name, form, slab, f)
        })
    }

    fn clip(&self, name: &ChunkName, form: &ChunkForm, keep: &[u64]) -> Result<()> {
        self.reset(name, form, None, || self.local.clip(name, form, keep))
    }

    fn punch(&self, name: &ChunkName, form: &ChunkForm, slab: &Hyperslab) -> Result<()> {
        let blocks = coverage(form, slab).into_keys().collect();
        self.reset(name, form, Some(blocks), || {
            self.local.punch(name, form, slab)
        })
    }

    fn allocated(&self, name: &ChunkName, from: u64) -> Result<Allocated> {
        let stored = {
            let state = self.state.lock();
            match state.index.chunks.get(name) {
                Some(Stored::Grid { form, .. }) => Some(form.clone()),
                _ => None,
            }
        };
        match stored {
            None => self.local.allocated(name, from),
            Some(form) => self.with(name, &form, &Wanted::Everything, &mut || {
                self.local.allocated(name, from)
            }),
        }
    }

    fn delete(&self, names: &[ChunkName]) -> Result<()> {
        self.check()?;
        self.remove(names.iter().cloned())
    }

    fn delete_generation(&self, object: ObjectId, below: u32) -> Result<()> {
        self.check()?;
        let names = self.names(of_object(object, Some(below)));
        self.remove(names.into_iter())?;
        self.local.delete_generation(object, below)
    }

    fn delete_grid(&self, object: ObjectId) -> Result<()> {
        self.check()?;
        let names = self.names(of_object(object, None));
        self.remove(names.into_iter())?;
        self.local.delete_grid(object)
    }

    fn sync(&self, names: &[ChunkName]) -> Result<()> {
        if names.is_empty() {
            return self.upload_all();
        }
        {
            let state = self.state.lock();
            let missing = names.iter().find(|name| {
                matches!(name, ChunkName::Free(_))
                    && !state.cache.chunks.contains_key(*name)
                    && !state.index.chunks.contains_key(*name)
            });
            if let Some(name) = missing {
                return Err(StoreError::Missing(name.clone()));
            }
        }
        self.upload(&names.iter().cloned().collect())
    }

    fn list(&self, after: Option<ChunkName>, limit: usize) -> Result<Vec<(ChunkName, u64)>> {
        // Those that the bucket has not are in the cache.
        let mut all: BTreeMap<ChunkName, u64> =
            self.local.list(after.clone(), limit)?.into_iter().collect();
        let state = self.state.lock();
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let stored = state.index.chunks.range((from, Bound::Unbounded));
        for (name, stored) in stored.take(limit) {
            if !state.is_newer_here(name, stored) {
                all.insert(name.clone(), stored.bytes());
            }
        }
        Ok(all.into_iter().take(limit).collect())
    }

    fn space(&self) -> Result<Space> {
        let state = self.state.lock();
        let used = state.index.bytes;
        Ok(Space {
            total: PLENTY,
            free: PLENTY.saturating_sub(used),
            used,
            disk: None,
        })
    }

    fn verify(&self, name: &ChunkName) -> Result<()> {
        let stored = self.state.lock().index.chunks.get(name).cloned();
        let Some(stored) = stored else {
            return self.local.verify(name);
        };
        stored
            .spans()
            .try_for_each(|span| self.fetch(name, span).map(drop))
    }
}

impl S3Store {
    /// The names of chunks of which this is true.
    fn names(&self, of: impl Fn(&ChunkName) -> bool) -> Vec<ChunkName> {
        let state = self.state.lock();
        let stored = state.index.chunks.keys();
        let all: BTreeSet<ChunkName> = stored
            .chain(state.cache.chunks.keys())
            .filter(|name| of(name))
            .cloned()
            .collect();
        all.into_iter().collect()
    }

    /// Resets cells of a grid chunk, if it exists; of `blocks`, or of all that it has.
    fn reset(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        blocks: Option<BTreeSet<u64>>,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.check()?;
        self.make_room()?;
        let _stripe = self.lock(name);
        let known: BTreeSet<u64> = {
            let state = self.state.lock();
            let stored = match state.index.chunks.get(name) {
                Some(Stored::Grid { blocks, .. }) => blocks.keys().copied().collect(),
                _ => BTreeSet::new(),
            };
            let here = match state.cache.chunks.get(name).map(|cached| &cached.kind) {
                Some(Kind::Grid { here, .. }) => here.clone(),
                _ => BTreeSet::new(),
            };
            stored.union(&here).copied().collect()
        };
        let touched: BTreeSet<u64> = match blocks {
            Some(blocks) => known.intersection(&blocks).copied().collect(),
            None => known,
        };
        let exists = {
            let state = self.state.lock();
            state.index.chunks.contains_key(name) || state.cache.chunks.contains_key(name)
        };
        match exists {
            true => self.change_locked(name, form, touched.clone(), || (touched, work())),
            // It refuses wrong requests.
            false => work(),
        }
    }
}
