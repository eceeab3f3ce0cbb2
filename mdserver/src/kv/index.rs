//! The index: one sled tree, fast to read, never the only copy of anything.
//!
//! Every value carries a checksum over itself and its key; the empty key, which no commit may use,
//! holds the number of the last commit applied. sled may answer damage with an error or a panic;
//! both become a [`Fault`], after which the index is rebuilt.

use super::Lsn;
use super::disk::{Disk, le64};
use super::filter::Filter;
use super::memtable::Change;
use crc_fast::crc32_iscsi as crc32c;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

/// The index cannot be trusted any more; the words are sled's, or ours about a checksum.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(super) struct Fault(pub(super) String);

/// The least cache sled is given, in bytes.
const MIN_CACHE: u64 = 4 << 20;

/// How long a tree that was closed may take to let go of its files.
const LET_GO: Duration = Duration::from_secs(10);

/// The key of the number of the last commit applied.
const APPLIED: &[u8] = b"";

/// The open index.
#[derive(Debug)]
pub(super) struct Index {
    /// `None` only while it is dropped.
    db: Option<sled::Db>,
    /// sled's log.
    log: File,
    /// The keys it may have, once all of it was compared.
    filter: Filter,
}

/// Threads that change it together, at most, and changes from which on one more is worth it.
const CHANGERS: usize = 4;
const A_CHANGER: usize = 64;

/// One entry: the key, and the value unless its checksum is wrong.
pub(super) type Entry = (sled::IVec, Option<sled::IVec>);

fn guarded<T>(f: impl FnOnce() -> sled::Result<T>) -> Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Fault(error.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(Fault(format!(
                "sled panicked: {}",
                text.unwrap_or("without a message")
            )))
        }
    }
}

fn checksum(key: &[u8], value: &[u8]) -> [u8; 4] {
    (crc32c(value) ^ crc32c(key).rotate_left(16)).to_le_bytes()
}

fn sealed(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(value.len() + 4);
    stored.extend_from_slice(value);
    stored.extend_from_slice(&checksum(key, value));
    stored
}

/// The value in what is stored, when its checksum fits.
fn unsealed(key: &[u8], mut stored: sled::IVec) -> Option<sled::IVec> {
    let at = stored.len().checked_sub(4)?;
    let good = stored[at..] == checksum(key, &stored[..at]);
    good.then(|| {
        stored = stored.subslice(0, at);
        stored
    })
}

impl Index {
    /// Opens the tree in `dir`, creating it when there is none.
    pub(super) fn open(dir: &Path, cache_bytes: u64) -> Result<Self, Fault> {
        let config = sled::Config::new()
            .path(dir)
            .cache_capacity(cache_bytes.max(MIN_CACHE))
            .flush_every_ms(None)
            .mode(sled::Mode::HighThroughput);
        release(&dir.join("db"))?;
        let_go(&dir.join("db"));
        let db = guarded(|| config.open())?;
        let log = OpenOptions::new().write(true).open(dir.join("db"));
        let log = log.map_err(|error| Fault(format!("sled's log: {error}")))?;
        Ok(Self {
            db: Some(db),
            log,
            filter: Filter::default(),
        })
    }

    fn db(&self) -> Result<&sled::Db, Fault> {
        self.db
            .as_ref()
            .ok_or_else(|| Fault("the index is closed".to_owned()))
    }

    /// Sets room for `bytes` more aside behind the end of sled's log.
    pub(super) fn reserve(&self, disk: &dyn Disk, bytes: u64) -> io::Result<()> {
        let end = self.log.metadata()?.len();
        disk.reserve(&self.log, end, bytes)
    }

    /// The last commit applied; zero in a new tree.
    pub(super) fn applied(&self) -> Result<Lsn, Fault> {
        Ok(match self.look(APPLIED)? {
            Some(value) if value.len() == 8 => Lsn(le64(&value, 0)),
            _ => Lsn(0),
        })
    }

    /// Notes a key that was found in it. Nobody may [`Self::get`] before this was called for all keys.
    pub(super) fn note(&self, key: &[u8]) {
        self.filter.insert(key);
    }

    /// True when the filter has not seen `key`.
    pub(super) fn surely_lacks(&self, key: &[u8]) -> bool {
        !self.filter.may_have(key)
    }

    /// The value of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        if !self.filter.may_have(key) {
            return Ok(None);
        }
        self.look(key)
    }

    /// The value of `key`, as sled says.
    fn look(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let db = self.db()?;
        match guarded(|| db.get(key))? {
            Some(stored) => match unsealed(key, stored) {
                Some(value) => Ok(Some(value.to_vec())),
                None => Err(Fault(format!(
                    "the checksum of the value of {} is wrong",
                    key.escape_ascii()
                ))),
            },
            None => Ok(None),
        }
    }

    /// The entries with `from <= key`, and `key < to` when there is a `to`, ascending.
    pub(super) fn range(&self, from: &[u8], to: Option<&[u8]>) -> Result<Entries, Fault> {
        let db = self.db()?;
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        let iter = guarded(|| Ok(db.range::<&[u8], _>((Bound::Included(from), end))))?;
        Ok(Entries {
            iter: Some(iter),
            last: Vec::new(),
        })
    }

    /// Sets (`Some`) and removes (`None`) keys; afterwards the tree says it has `applied`, if given.
    ///
    /// One at a time: sled holds off readers for as long as it takes to apply a batch, and nothing
    /// needs the changes to appear together (readers look at the tables first, and each start compares
    /// every entry).
    pub(super) fn apply(&self, changes: &[Change<'_>], applied: Option<Lsn>) -> Result<(), Fault> {
        let db = self.db()?;
        self.change_together(changes)?;
        let Some(lsn) = applied else {
            return Ok(());
        };
        // A batch ends sled's buffer, so that what came before is in the file after a kill.
        let mut end = sled::Batch::default();
        end.insert(APPLIED, sealed(APPLIED, &lsn.0.to_le_bytes()));
        guarded(|| db.apply_batch(end))
    }

    /// Makes changes with several threads, each a row of them: sled is slower at one than commits are.
    fn change_together(&self, changes: &[Change<'_>]) -> Result<(), Fault> {
        static HERE: OnceLock<usize> = OnceLock::new();
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (*HERE.get_or_init(processors))
            .min(CHANGERS)
            .min(changes.len() / A_CHANGER);
        if threads < 2 {
            return self.change(changes);
        }
        let mut rows = changes.chunks(changes.len().div_ceil(threads));
        let own = rows.next().unwrap_or_default();
        std::thread::scope(|scope| {
            let others: Vec<_> = rows
                .map(|row| {
                    let thread = std::thread::Builder::new().name("kv-upkeep".to_owned());
                    // It has the priority of who makes it. Where none can be made this one does it.
                    let made = thread.spawn_scoped(scope, || self.change(row));
                    made.map_err(|_| row)
                })
                .collect();
            let mut done = self.change(own);
            for other in others {
                let more = match other {
                    Ok(thread) => thread.join().unwrap_or_else(|_| {
                        Err(Fault("a thread that changed the index panicked".to_owned()))
                    }),
                    Err(row) => self.change(row),
                };
                done = done.and(more);
            }
            done
        })
    }

    fn change(&self, changes: &[Change<'_>]) -> Result<(), Fault> {
        let db = self.db()?;
        guarded(|| {
            for (key, value) in changes {
                match value {
                    Some(value) => {
                        self.filter.insert(key);
                        db.insert(key, sealed(key, value))?
                    }
                    None => db.remove(key)?,
                };
            }
            Ok(())
        })
    }

    /// Stores a value with a wrong checksum.
    #[cfg(test)]
    pub(super) fn spoil(&self, key: &str) {
        self.db.as_ref().unwrap().insert(key, "spoiled").unwrap();
    }
}

/// Gives back what [`Index::reserve`] set aside: sled writes other files when it opens.
fn release(log: &Path) -> Result<(), Fault> {
    let given_back = OpenOptions::new().write(true).open(log).and_then(|log| {
        let len = log.metadata()?.len();
        log.set_len(len)
    });
    match given_back {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Fault(format!("sled's log: {error}")))
        }
        _ => Ok(()),
    }
}

/// Waits until nobody holds sled's lock on its log, at most [`LET_GO`].
///
/// Dropping the tree does not end what sled's threads are about; the last of them to end lets go of the
/// lock. Other processes are kept out by the lock of the store, so whoever holds this one is of here.
fn let_go(log: &Path) {
    let Ok(file) = OpenOptions::new().write(true).open(log) else {
        return;
    };
    let Err((file, _)) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
        return;
    };
    let (done, waited) = mpsc::channel();
    std::thread::spawn(move || {
        let locked = Flock::lock(file, FlockArg::LockExclusive);
        drop(locked);
        // Whoever waited may have given up.
        let _ = done.send(());
    });
    if waited.recv_timeout(LET_GO).is_err() {
        tracing::warn!(log = %log.display(), "somebody holds the lock of the index's files");
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        let db = self.db.take();
        if let Err(fault) = guarded(|| {
            drop(db);
            Ok(())
        }) {
            tracing::warn!(%fault, "closing the index failed; its files are checked at the next start");
        }
    }
}

/// Entries in ascending order, without the index's own.
pub(super) struct Entries {
    /// `None` at the end, so that a tree that grows behind it is not read on.
    iter: Option<sled::Iter>,
    last: Vec<u8>,
}

impl Entries {
    /// The next entry; a fault also when keys do not ascend.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Fault> {
        loop {
            let Some(iter) = &mut self.iter else {
                return Ok(None);
            };
            let Some((key, stored)) = guarded(|| iter.next().transpose())? else {
                self.iter = None;
                return Ok(None);
            };
            if key.is_empty() {
                continue;
            }
            if *key <= *self.last {
                return Err(Fault("the keys of the index are out of order".to_owned()));
            }
            self.last.clear();
            self.last.extend_from_slice(&key);
            let value = unsealed(&key, stored);
            return Ok(Some((key, value)));
        }
    }
}
