//! A session's cache of names: names that it looked up, absent names, and attributes of directories.
//!
//! It caches only what the lock server permitted ([`crate::api::Looked`]), and the lock server recalls an entry before
//! another session changes it (`crate::rights`, docs/decisions/22-names.md). So a hit is what the service would answer.
//!
//! - **Late replies are not cached.** Permission was valid when the reply left the lock server; a recall may overtake
//!   the reply. So every drop stamps the directory ([`Cached::forget`]), and a reply is cached only if the directory
//!   was not stamped since the request ([`Asked`]).
//! - **Own changes.** The lock server does not notify a session of its own changes. From before such a request is
//!   sent until it is answered, nothing of its directories is answered from here. Then its names and their attributes
//!   are dropped, and replies to earlier requests are not cached. A request that is never answered may still be
//!   executed at any time: its directories are not cached from then on.
//! - **Expiry.** Entries of a directory expire with the permission ([`crate::api::NAMES_CACHED_FOR`] after the last
//!   request), and all entries are dropped if there are too many.
//!
//! Names of directories are cached with their numbers alone: a caller that follows one needs the cached entry of that
//! directory too. Objects are not cached, since they change with every write.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::api::{Entry, Ino, Kind, Looked, NAMES_CACHED_FOR, Op};

/// Most cached names and directories.
const MOST: usize = 1 << 17;
/// Number of stamps: directories share one if necessary.
const STAMPS: usize = 1 << 10;

/// The cache; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct NameCache {
    cached: Mutex<Cached>,
    /// Number of answers from the cache.
    hits: AtomicU64,
}

/// The time of a request, in drops.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    clock: u64,
    at: Instant,
}

#[derive(Debug)]
struct Cached {
    directories: HashMap<Ino, Directory>,
    /// Number of entries in them.
    count: usize,
    /// Number of drops so far.
    clock: u64,
    stamps: Vec<u64>,
    /// Directories that this session is changing.
    changing: HashMap<Ino, u32>,
}

#[derive(Debug)]
struct Directory {
    until: Instant,
    /// Its attributes.
    entry: Option<Entry>,
    /// Directories in it by name, and absent names.
    names: HashMap<Vec<u8>, Option<Ino>>,
}

impl Default for Cached {
    fn default() -> Self {
        Self {
            directories: HashMap::new(),
            count: 0,
            clock: 0,
            stamps: vec![0; STAMPS],
            changing: HashMap::new(),
        }
    }
}

impl NameCache {
    /// To be called before a request whose reply may be cached.
    pub(crate) fn asked(&self) -> Asked {
        Asked {
            clock: self.cached.lock().clock,
            at: Instant::now(),
        }
    }

    /// The target of a name: `None` if it is not cached, `Some(None)` if the name is absent.
    pub(crate) fn find(&self, parent: Ino, name: &[u8]) -> Option<Option<Entry>> {
        let cached = self.cached.lock();
        let found = match *cached.directory(parent)?.names.get(name)? {
            None => None,
            Some(ino) => Some(cached.directory(ino)?.entry.clone()?),
        };
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    /// Attributes of a directory, if they are cached.
    pub(crate) fn directory(&self, ino: Ino) -> Option<Entry> {
        let entry = self.cached.lock().directory(ino)?.entry.clone()?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(entry)
    }

    /// Number of answers from the cache.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Caches a reply.
    pub(crate) fn take(&self, asked: Asked, name: Option<(Ino, &[u8])>, looked: &Looked) {
        let mut cached = self.cached.lock();
        let directory = looked
            .found
            .as_ref()
            .filter(|entry| entry.attr.kind == Kind::Directory);
        if looked.keep_attributes
            && let Some(entry) = directory
            && let Some(known) = cached.open(asked, entry.attr.ino)
        {
            let fresh = known.entry.replace(entry.clone()).is_none();
            cached.count += usize::from(fresh);
        }
        if looked.keep_name
            && let Some((parent, name)) = name
            && (directory.is_some() || looked.found.is_none())
            && let Some(known) = cached.open(asked, parent)
        {
            let is = directory.map(|entry| entry.attr.ino);
            let fresh = known.names.insert(name.to_vec(), is).is_none();
            cached.count += usize::from(fresh);
        }
        if cached.count > MOST {
            cached.forget_all();
        }
    }

    /// Drops all entries of directories.
    pub(crate) fn forget(&self, inos: &[Ino]) {
        let mut cached = self.cached.lock();
        for &ino in inos {
            cached.forget(ino);
        }
    }

    /// Drops everything.
    pub(crate) fn forget_all(&self) {
        self.cached.lock().forget_all();
    }

    /// This session is about to send `op`: until the result is dropped, nothing is answered from the cache for the
    /// directories that it changes.
    pub(crate) fn change(&self, op: &Op) -> OwnChange<'_> {
        let names = names_of(op);
        let mut cached = self.cached.lock();
        for (ino, _) in &names {
            cached.stamp(*ino);
            *cached.changing.entry(*ino).or_default() += 1;
        }
        drop(cached);
        OwnChange { of: self, names }
    }
}

impl Cached {
    /// The entry of a directory, if it may be used now.
    fn directory(&self, ino: Ino) -> Option<&Directory> {
        let known = self.directories.get(&ino)?;
        (!self.changing.contains_key(&ino) && known.until > Instant::now()).then_some(known)
    }

    /// The entry into which the reply to that request may be cached.
    fn open(&mut self, asked: Asked, ino: Ino) -> Option<&mut Directory> {
        if self.stamps[place(ino)] > asked.clock {
            return None;
        }
        let until = asked.at + NAMES_CACHED_FOR;
        let over = |known: &Directory| known.until <= Instant::now();
        if self.directories.get(&ino).is_some_and(over) {
            // The lock server may have let others change it in between, without a recall.
            self.drop_directory(ino);
        }
        let known = self.directories.entry(ino).or_insert_with(|| {
            self.count += 1;
            Directory {
                until,
                entry: None,
                names: HashMap::new(),
            }
        });
        known.until = known.until.max(until);
        Some(known)
    }

    fn stamp(&mut self, ino: Ino) {
        self.clock += 1;
        self.stamps[place(ino)] = self.clock;
    }

    fn forget(&mut self, ino: Ino) {
        self.stamp(ino);
        self.drop_directory(ino);
    }

    fn drop_directory(&mut self, ino: Ino) {
        if let Some(known) = self.directories.remove(&ino) {
            self.count -= 1 + usize::from(known.entry.is_some()) + known.names.len();
        }
    }

    fn forget_all(&mut self) {
        self.clock += 1;
        let clock = self.clock;
        self.stamps.fill(clock);
        self.directories = HashMap::new();
        self.count = 0;
    }
}

impl OwnChange<'_> {
    /// The outcome of the change is unknown, and it may still happen: its directories are not cached any more.
    pub(crate) fn leave_unsure(mut self) {
        for (ino, _) in std::mem::take(&mut self.names) {
            self.of.cached.lock().forget(ino);
        }
    }
}

/// A change by this session; see [`NameCache::change`].
#[derive(Debug)]
pub(crate) struct OwnChange<'a> {
    of: &'a NameCache,
    /// Directories, and the name in each that changes; `None` if only the directory's attributes do.
    names: Vec<(Ino, Option<Vec<u8>>)>,
}

impl Drop for OwnChange<'_> {
    fn drop(&mut self) {
        let mut cached = self.of.cached.lock();
        for (ino, name) in &self.names {
            cached.stamp(*ino);
            let mut gone = 0;
            if let Some(known) = cached.directories.get_mut(ino) {
                gone += usize::from(known.entry.take().is_some());
                let removed = name.as_ref().and_then(|name| known.names.remove(name));
                gone += usize::from(removed.is_some());
            }
            cached.count -= gone;
            if let Some(count) = cached.changing.get_mut(ino) {
                *count -= 1;
                if *count == 0 {
                    cached.changing.remove(ino);
                }
            }
        }
    }
}

/// The directories that an op changes, as far as the session knows: of a directory that is itself moved or removed,
/// the lock server notifies it.
fn names_of(op: &Op) -> Vec<(Ino, Option<Vec<u8>>)> {
    let mut names = Vec::new();
    op.each_changed(|ino, name| names.push((ino, name.map(<[u8]>::to_vec))));
    names
}

fn place(ino: Ino) -> usize {
    // Numbers are assigned consecutively.
    (ino.0 % STAMPS as u64) as usize
}
