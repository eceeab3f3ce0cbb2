//! [`S3Store`]: the chunk store over a bucket.
//!
//! Lock order: a chunk's stripe, then the state; uploading, then the state. The state's lock is held for lookups and changes of
//! the maps only, never for I/O. A stripe is locked by calls that change what the cache has of a chunk, and shared by those that
//! read it, so that nothing is evicted under them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crc_fast::crc32_iscsi as crc32c;
use parking_lot::{Condvar, Mutex, RwLock, RwLockWriteGuard};
use slabfs_objstore::store::{LocalOptions, LocalStore};
use slabfs_objstore::{ChunkName, StoreError};

use crate::address::Durability;
use crate::bucket::{Bucket, Made};
use crate::cache::{Cache, Kind};
use crate::index::{Index, Stored};
use crate::journal::Journal;
use crate::owner::LOOK;
use crate::reuse::Left;
use crate::segment::{Entry, Head, Writer, head, table};
use crate::upload::Ahead;

pub(crate) type Result<T> = std::result::Result<T, StoreError>;

/// Number of locks for changes, selected by name.
const STRIPES: usize = 64;
/// Bytes of a segment that are read at first: mostly all of its table.
const FIRST_READ: u64 = 64 << 10;
/// How long what no sync names stays in the cache alone.
const LATEST: Duration = Duration::from_secs(2);
/// The longest name of an identity, in bytes.
const MAX_NAME: usize = 64;
/// What a store in a bucket says of its space: there is no limit.
pub(crate) const PLENTY: u64 = 1 << 50;

/// Options of the store.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// Bytes of the cache, about.
    pub cache_bytes: u64,
    /// What a sync waits for.
    pub durability: Durability,
}

impl Default for S3Options {
    fn default() -> Self {
        Self {
            cache_bytes: 8 << 30,
            durability: Durability::Bucket,
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
    pub(crate) fn is_newer_here(&self, name: &ChunkName, stored: &Stored) -> bool {
        match (
            self.cache.chunks.get(name).map(|cached| &cached.kind),
            stored,
        ) {
            (Some(Kind::Grid { here, dirty, .. }), Stored::Grid { blocks, .. }) => {
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
    pub(crate) uuid: [u8; 16],
    /// Of this process: what is not in the bucket is lost with it.
    pub(crate) verifier: u64,
    pub(crate) dir: PathBuf,
    pub(crate) options: S3Options,
    pub(crate) journal: Journal,
    pub(crate) state: Mutex<State>,
    pub(crate) stripes: Box<[RwLock<()>]>,
    /// What syncs wait for that nothing uploads yet.
    pub(crate) wanted: Mutex<BTreeSet<ChunkName>>,
    /// Held while something is uploaded; counts segments.
    pub(crate) uploading: Mutex<u64>,
    /// Objects that nothing refers to, once the index is stored.
    pub(crate) garbage: Mutex<Vec<String>>,
    /// Objects that uploads which failed may have created.
    pub(crate) tried: Mutex<Vec<String>>,
    /// Objects of large chunks that no segment names yet.
    pub(crate) ahead: Mutex<HashMap<ChunkName, Ahead>>,
    /// Segments that are merged next.
    pub(crate) to_merge: Mutex<BTreeSet<u64>>,
    pub(crate) is_replaced: AtomicBool,
    pub(crate) replacing: (Mutex<()>, Condvar),
    /// When this process had the identity for certain, in milliseconds of the clock that counts suspended time.
    pub(crate) owned: AtomicU64,
    pub(crate) closing: Arc<(Mutex<bool>, Condvar)>,
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
    /// used again if it can be relied on (`journal`), and emptied else.
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
        let (known, uuid) = match std::fs::read_to_string(&named) {
            // The second word is the id in the bucket.
            Ok(text) => {
                let mut words = text.split_whitespace().map(str::to_owned);
                (words.next(), words.next())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (None, None),
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
        // Before anything is changed, here or there.
        if let Some(uuid) = uuid
            && bucket.find(&uuid_key(&id), 16)?.map(|bytes| hex(&bytes)) != Some(uuid)
        {
            return Err(StoreError::Invalid(format!(
                "{} is the cache of {id} in another bucket, or below another prefix, than {}; give the right URL, or another directory",
                dir.display(),
                bucket.shown()
            )));
        }
        let uuid = uuid_of(&bucket, &id)?;
        let left = Left::in_dir(dir, uuid, &options)?;
        std::fs::write(&named, format!("{id} {}\n", hex(&uuid)))
            .map_err(|error| failed("naming the identity in", error))?;
        let cache = dir.join("cache");
        if left.is_none() {
            // It may have what was never acknowledged, and what another process has changed since.
            match std::fs::remove_dir_all(&cache) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed("emptying the cache in", error));
                }
                _ => {}
            }
        }
        let local = LocalStore::open(
            &cache,
            LocalOptions {
                fsync: options.durability == Durability::Local,
                open_files: None,
            },
        )?;
        let verifier = random()?;
        let mut store = S3Store {
            bucket,
            local,
            id,
            writer: random()?,
            uuid,
            verifier: u64::from_le_bytes(std::array::from_fn(|i| verifier[i])),
            dir: dir.to_owned(),
            options,
            journal: Journal::of(dir),
            state: Mutex::default(),
            stripes: (0..STRIPES).map(|_| RwLock::new(())).collect(),
            wanted: Mutex::default(),
            uploading: Mutex::new(0),
            garbage: Mutex::default(),
            tried: Mutex::default(),
            ahead: Mutex::default(),
            to_merge: Mutex::default(),
            is_replaced: AtomicBool::new(false),
            replacing: Default::default(),
            owned: AtomicU64::new(0),
            closing: Arc::default(),
        };
        store.load(left)?;
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

    pub(crate) fn upload_now_and_then(&self) {
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
            self.shorten_journal();
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
            if let Err(error) = self.merge() {
                tracing::warn!("segments are merged later: {error}");
            }
            if let Err(error) = self.upload_all() {
                tracing::warn!("chunks stay in the cache alone for now: {error}");
            }
        }
    }

    pub(crate) fn upload_all(&self) -> Result<()> {
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
        // The next process need not wait for this one, which answers nothing any more, and has the same verifier.
        let number = self.state.lock().index.next;
        self.note_end();
        self.bucket
            .create(
                &self.closed_key(number),
                Bytes::copy_from_slice(&self.verifier.to_le_bytes()),
            )
            .map(drop)
    }

    pub(crate) fn segment_key(&self, number: u64) -> String {
        format!("{}/segments/{number:016x}", self.id)
    }

    pub(crate) fn closed_key(&self, number: u64) -> String {
        format!("{}/closed/{number:016x}", self.id)
    }

    pub(crate) fn index_key(&self, number: u64) -> String {
        format!("{}/index/{number:016x}", self.id)
    }

    /// Reads the newest index, and the tables of the segments behind it; takes over what is `left` of the cache, and the identity.
    pub(crate) fn load(&mut self, left: Option<Left>) -> Result<()> {
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
        let had = left.is_some();
        let mut left = left.filter(|left| left.follows(index.handovers.last().copied()));
        let (mut garbage, mut writer) = (Vec::new(), None);
        let segments = self.bucket.list(&format!("{}/segments", self.id))?;
        let numbers = segments
            .iter()
            .filter_map(|name| u64::from_str_radix(name, 16).ok());
        for number in numbers {
            if number < index.next {
                continue;
            }
            if number > index.next {
                let missing = format!("segment {} before it is missing", index.next);
                return Err(damaged(&self.segment_key(number), missing));
            }
            let (found, entries) = self.read_table(number)?;
            left = left.filter(|left| left.wrote(number, found.writer));
            if writer.replace(found.writer) != Some(found.writer) {
                index.note_handover(number);
            }
            garbage.extend(index.apply(number, found.payload, entries));
        }
        self.state.get_mut().index = index;
        *self.garbage.get_mut() = garbage;
        if left.is_some() {
            // If this process ends between the segment that it begins with and its journal, the next one knows that it was this.
            let announced = self.journal.announce(self.writer);
            announced.map_err(|error| StoreError::Io {
                what: format!("writing the journal of the cache in {}", self.dir.display()),
                detail: error.to_string(),
                errno: error.raw_os_error(),
            })?;
        } else if had {
            tracing::warn!(
                "another process has served these chunks since: the cache in {} begins empty, and what only it had is lost",
                self.dir.display()
            );
        }
        let reused = self.reuse(left)?;
        // What another process of this identity still uploads fails from here on.
        self.take_over(reused)?;
        self.begin_journal();
        Ok(())
    }

    /// Reads the header and the table of a segment.
    pub(crate) fn read_table(&self, number: u64) -> Result<(Head, Vec<Entry>)> {
        let key = self.segment_key(number);
        let mut bytes = self.bucket.get(&key, Some(0..FIRST_READ))?;
        let found = head(&bytes, number).map_err(|why| damaged(&key, why))?;
        if (bytes.len() as u64) < found.payload {
            bytes = self.bucket.get(&key, Some(0..found.payload))?;
        }
        let entries = table(&found, &bytes).map_err(|why| damaged(&key, why))?;
        Ok((found, entries))
    }

    pub(crate) fn stripe(&self, name: &ChunkName) -> &RwLock<()> {
        let mut hasher = std::hash::DefaultHasher::new();
        name.hash(&mut hasher);
        &self.stripes[hasher.finish() as usize % STRIPES]
    }

    pub(crate) fn lock(&self, name: &ChunkName) -> RwLockWriteGuard<'_, ()> {
        self.stripe(name).write()
    }
}

pub(crate) fn damaged(key: &str, why: String) -> StoreError {
    StoreError::Io {
        what: format!("reading {key}"),
        detail: why,
        errno: None,
    }
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn uuid_key(id: &str) -> String {
    format!("{id}/uuid")
}

/// The same of an identity that exists; `None` if the bucket has none of this name.
///
/// # Errors
/// Those of the bucket.
pub fn find_uuid(bucket: &Bucket, id: &str) -> Result<Option<[u8; 16]>> {
    let found = bucket.find(&uuid_key(id), 16)?;
    Ok(found.and_then(|bytes| <[u8; 16]>::try_from(&bytes[..]).ok()))
}

/// Whether an identity has stored anything.
///
/// # Errors
/// Those of the bucket.
pub fn has_chunks(bucket: &Bucket, id: &str) -> Result<bool> {
    Ok(!bucket.list(&format!("{id}/segments"))?.is_empty())
}

/// The id by which the metadata service knows an identity: random, in an object that its first process creates.
///
/// # Errors
/// Those of the bucket.
pub fn uuid_of(bucket: &Bucket, id: &str) -> Result<[u8; 16]> {
    let key = uuid_key(id);
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
