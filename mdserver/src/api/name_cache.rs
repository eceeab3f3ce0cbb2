//! What a session keeps of names: those it has looked up, those that are not there, and attributes of directories.
//!
//! It keeps only what the lock server allowed it to ([`super::Looked`]), and the lock server has it forget before somebody else
//! changes anything of that (`crate::rights`, docs/decisions/names.md). So a hit is what the service would answer.
//!
//! - **What comes late is not cached.** An answer was allowed to be cached when it left the lock server; on its way a call to
//!   forget may overtake it. So whatever is forgotten is stamped ([`Cached::forget`]), and an answer is cached only if the
//!   directory was not stamped since it was asked for ([`Asked`]).
//! - **Own changes.** The lock server does not tell a session of what it changes itself. From before such a request is sent
//!   until it is answered nothing of its directories is answered from here; then its names and their attributes are
//!   forgotten, and what was asked for before is not cached. One that is not answered may still be made at any time: nothing of its directories is cached
//!   from then on.
//! - **Not for ever.** What is cached of a directory ends with the permission ([`super::NAMES_CACHED_FOR`] after it was
//!   asked for last), and all of it when there is too much.
//!
//! Names of directories are cached with their numbers alone: whoever is sent on to the directory needs what is cached of
//! that too. Objects are not cached, since what they are changes with every write.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::{Entry, Ino, Kind, Looked, NAMES_CACHED_FOR, Op};

/// Most names and directories that are cached.
const MOST: usize = 1 << 17;
/// Stamps: directories share one where they have to.
const STAMPS: usize = 1 << 10;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct NameCache {
    cached: Mutex<Cached>,
    /// Answers from here.
    hits: AtomicU64,
}

/// When something was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    clock: u64,
    at: Instant,
}

#[derive(Debug)]
struct Cached {
    directories: HashMap<Ino, Directory>,
    /// How much there is in them.
    count: usize,
    /// How often something was forgotten.
    clock: u64,
    stamps: Vec<u64>,
    /// Directories that this session is changing.
    changing: HashMap<Ino, u32>,
}

#[derive(Debug)]
struct Directory {
    until: Instant,
    /// What it is.
    entry: Option<Entry>,
    /// Directories in it by their names, and names that are not there.
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
    /// To be taken before something is asked for that may be cached.
    pub(crate) fn asked(&self) -> Asked {
        Asked {
            clock: self.cached.lock().clock,
            at: Instant::now(),
        }
    }

    /// What has a name: nothing if that is not known here, `Some(None)` if nothing has it.
    pub(crate) fn find(&self, parent: Ino, name: &[u8]) -> Option<Option<Entry>> {
        let cached = self.cached.lock();
        let found = match *cached.directory(parent)?.names.get(name)? {
            None => None,
            Some(ino) => Some(cached.directory(ino)?.entry.clone()?),
        };
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    /// Attributes of a directory, if they are known here.
    pub(crate) fn directory(&self, ino: Ino) -> Option<Entry> {
        let entry = self.cached.lock().directory(ino)?.entry.clone()?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(entry)
    }

    /// How often something was answered from here.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Takes in an answer.
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

    /// Forgets all that is known of directories.
    pub(crate) fn forget(&self, inos: &[Ino]) {
        let mut cached = self.cached.lock();
        for &ino in inos {
            cached.forget(ino);
        }
    }

    /// Forgets everything.
    pub(crate) fn forget_all(&self) {
        self.cached.lock().forget_all();
    }

    /// This session is about to send `op`: until the answer is dropped nothing is known here of the directories that it
    /// changes.
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
    /// What is known of a directory and may be told now.
    fn directory(&self, ino: Ino) -> Option<&Directory> {
        let known = self.directories.get(&ino)?;
        (!self.changing.contains_key(&ino) && known.until > Instant::now()).then_some(known)
    }

    /// Where what was asked for then may be cached.
    fn open(&mut self, asked: Asked, ino: Ino) -> Option<&mut Directory> {
        if self.stamps[place(ino)] > asked.clock {
            return None;
        }
        let until = asked.at + NAMES_CACHED_FOR;
        let over = |known: &Directory| known.until <= Instant::now();
        if self.directories.get(&ino).is_some_and(over) {
            // The lock server may have had nobody forget it in between.
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
    /// It is not known whether the change was made, nor whether it still will be: nothing of its directories is cached any
    /// more.
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
    /// Directories, and the name in each that changes; none where only its attributes do.
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

/// The directories that an op changes, as far as a session knows: one that is moved or removed by its name it is told
/// by the lock server.
fn names_of(op: &Op) -> Vec<(Ino, Option<Vec<u8>>)> {
    let mut names = Vec::new();
    op.each_changed(|ino, name| names.push((ino, name.map(<[u8]>::to_vec))));
    names
}

fn place(ino: Ino) -> usize {
    // Numbers are given one after the other.
    (ino.0 % STAMPS as u64) as usize
}
