//! The index: one sled tree, fast to read, never the only copy of anything.
//!
//! Its rows are grouped into pages (`pages`), each stored under its fence; a key is in the page with the greatest fence
//! that is not greater than the key. Every page carries a checksum over itself and its fence. The empty key holds the
//! format of the tree and the number of the last commit applied. sled may react to damage with an error or a panic;
//! both become a [`Fault`], after which the index is rebuilt.
//!
//! The page of a key is looked up in a set of all fences, which is read when the tree is opened. sled's own backward
//! search does not terminate for some keys (0.34.7 guesses the predecessor of a key, assuming that no more than four
//! bytes of 255 follow each other).
//!
//! One thread changes the tree while any number of threads read it. A page that is split is written back to front:
//! first the new pages, then the remainder under the old fence. A reader that finds nothing looks up the page again if
//! pages were added or removed meanwhile (`page_changes`), so it finds a row at every moment. A kill between the two
//! steps leaves rows at or after the fence of the next page: no reader sees them there, and the comparison at the next
//! start removes them.

use super::Lsn;
use super::disk::{Disk, le64};
use super::entries::Entries;
use super::filter::Filter;
use super::key::Key;
use super::memtable::Change;
use super::pages::{self, Editor, Malformed};
use super::sled_files::{release, wait_unlocked};
use crc_fast::crc32_iscsi as crc32c;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The index cannot be trusted any more; the text is sled's, or names a wrong checksum.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(super) struct Fault(pub(super) String);

/// The smallest cache that sled is given, in bytes.
const MIN_CACHE: u64 = 4 << 20;

/// How often the log may shrink while space past its end is being preallocated.
const TRIES: usize = 4;

/// The most characters of sled's panic message that are reported.
const PANIC: usize = 300;

/// The key of the format and of the number of the last commit applied.
const APPLIED: &[u8] = b"";
/// The format of the tree: pages of rows.
const FORM: u8 = 2;
/// The first byte of a page's key; the fence follows.
const PAGE: u8 = b'p';

/// The open index.
#[derive(Debug)]
pub(super) struct Index {
    /// `None` only during drop.
    db: Option<sled::Db>,
    /// sled's log.
    log: File,
    /// The keys that the index may have; complete once every row was compared.
    filter: Filter,
    /// The fences of all pages.
    fences: RwLock<BTreeSet<Key>>,
    /// Counts how often pages were added or removed.
    page_changes: AtomicU64,
}

/// Calls sled; an error or a panic becomes a [`Fault`].
pub(super) fn guarded<T>(f: impl FnOnce() -> sled::Result<T>) -> Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Fault(error.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            // The message may print an entire tree.
            let text = text.unwrap_or("without a message");
            let short: String = text.chars().take(PANIC).collect();
            Err(Fault(format!("sled panicked: {short}")))
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

/// Returns the value without its checksum, if the checksum is right.
pub(super) fn unsealed(key: &[u8], mut stored: sled::IVec) -> Option<sled::IVec> {
    let at = stored.len().checked_sub(4)?;
    let good = stored[at..] == checksum(key, &stored[..at]);
    good.then(|| {
        stored = stored.subslice(0, at);
        stored
    })
}

impl Index {
    /// Opens the tree in `dir`, creating it if there is none.
    pub(super) fn open(dir: &Path, cache_bytes: u64) -> Result<Self, Fault> {
        let config = sled::Config::new()
            .path(dir)
            .cache_capacity(cache_bytes.max(MIN_CACHE))
            .flush_every_ms(None)
            .mode(sled::Mode::HighThroughput);
        release(&dir.join("db"))?;
        wait_unlocked(&dir.join("db"));
        let mut db = guarded(|| config.open())?;
        if !has_form(&db)? {
            if guarded(|| Ok(!db.is_empty()))? {
                tracing::info!(dir = %dir.display(), "the index has an older format and is rebuilt");
                guarded(|| {
                    drop(db);
                    Ok(())
                })?;
                wait_unlocked(&dir.join("db"));
                let gone = fs::remove_dir_all(dir);
                gone.map_err(|error| Fault(format!("an index of an older format: {error}")))?;
                db = guarded(|| config.open())?;
            }
            set_applied(&db, Lsn(0))?;
        }
        let mut fences = BTreeSet::new();
        let mut places = guarded(|| Ok(db.range(&[PAGE][..]..&[PAGE + 1][..]).keys()))?;
        while let Some(place) = guarded(|| places.next().transpose())? {
            fences.insert(Key::new(&place[1..]));
        }
        if !fences.contains(&[][..]) {
            // If other pages exist the first one is lost and its rows are unknown: the empty value has no valid
            // checksum, so that reading it is a fault.
            let first = match fences.is_empty() {
                true => sealed(&[PAGE], &[]),
                false => Vec::new(),
            };
            guarded(|| db.insert([PAGE], first))?;
            fences.insert(Key::new(&[]));
        }
        let log = OpenOptions::new().write(true).open(dir.join("db"));
        let log = log.map_err(|error| Fault(format!("sled's log: {error}")))?;
        Ok(Self {
            db: Some(db),
            log,
            filter: Filter::default(),
            fences: RwLock::new(fences),
            page_changes: AtomicU64::new(0),
        })
    }

    fn db(&self) -> Result<&sled::Db, Fault> {
        self.db
            .as_ref()
            .ok_or_else(|| Fault("the index is closed".to_owned()))
    }

    /// Ensures that at least `bytes` are preallocated past the end of sled's log; otherwise preallocates `ahead`, which
    /// is not less.
    pub(super) fn reserve(&self, disk: &dyn Disk, bytes: u64, ahead: u64) -> io::Result<()> {
        for _ in 0..TRIES {
            let log = self.log.metadata()?;
            let end = log.len();
            if log.blocks() * 512 >= end + bytes {
                break;
            }
            disk.reserve(&self.log, end, ahead)?;
            // sled's threads may have truncated the log meanwhile, which leaves a hole before the preallocated space.
            if self.log.metadata()?.len() >= end {
                break;
            }
        }
        Ok(())
    }

    /// Returns the last commit applied; zero in a new tree.
    pub(super) fn applied(&self) -> Result<Lsn, Fault> {
        let db = self.db()?;
        let Some(stored) = guarded(|| db.get(APPLIED))? else {
            return Ok(Lsn(0));
        };
        let value = unsealed(APPLIED, stored).ok_or_else(|| wrong_page(APPLIED))?;
        Ok(Lsn(value.get(1..9).map_or(0, |lsn| le64(lsn, 0))))
    }

    /// Adds a key found in the index to the filter. [`Self::get`] may not be called before this was called for all
    /// keys.
    pub(super) fn note(&self, key: &[u8]) {
        self.filter.insert(key);
    }

    /// True if the filter shows that `key` is not in the index.
    pub(super) fn surely_lacks(&self, key: &[u8]) -> bool {
        !self.filter.may_have(key)
    }

    /// Returns the value of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        if !self.filter.may_have(key) {
            return Ok(None);
        }
        loop {
            let page_changes = self.page_changes.load(Ordering::SeqCst);
            let place = self.place_of(key);
            let db = self.db()?;
            let stored = guarded(|| db.get(&place))?;
            if let Some(stored) = &stored {
                let page = unsealed(&place, stored.clone()).ok_or_else(|| wrong_page(&place))?;
                let found = pages::find(&page, key);
                if let Some(value) = found.map_err(|Malformed| wrong_page(&place))? {
                    return Ok(Some(page[value].to_vec()));
                }
            }
            if self.page_changes.load(Ordering::SeqCst) == page_changes {
                return match stored {
                    Some(_) => Ok(None),
                    None => Err(wrong_page(&place)),
                };
            }
        }
    }

    /// Returns the place of the page that `key` belongs to.
    fn place_of(&self, key: &[u8]) -> Place {
        let fences = self.fences.read();
        let upto = (Bound::Unbounded, Bound::Included(key));
        let fence = fences.range::<[u8], _>(upto).next_back();
        place(fence.map_or(&[], |fence| fence))
    }

    /// Returns the fence of the page after this one.
    fn fence_behind(&self, fence: &[u8]) -> Option<Key> {
        let fences = self.fences.read();
        let from = (Bound::Excluded(fence), Bound::Unbounded);
        fences.range::<[u8], _>(from).next().cloned()
    }

    /// Iterates over the rows with `from <= key`, and `key < to` if there is a `to`, ascending. An unreadable page is a
    /// fault.
    pub(super) fn range(&self, from: &[u8], to: Option<&[u8]>) -> Result<Entries, Fault> {
        self.rows(from, to, false)
    }

    /// Iterates over all rows, ascending. For an unreadable page it returns the fence without a value.
    pub(super) fn all(&self) -> Result<Entries, Fault> {
        self.rows(b"", None, true)
    }

    fn rows(&self, from: &[u8], to: Option<&[u8]>, skips: bool) -> Result<Entries, Fault> {
        let db = self.db()?;
        let first = self.place_of(from);
        let end = to.map_or_else(|| SmallVec::from_slice(&[PAGE + 1]), place);
        let bounds = (Bound::Included(&first[..]), Bound::Excluded(&end[..]));
        let iter = guarded(|| Ok(db.range::<&[u8], _>(bounds)))?;
        Ok(Entries::new(iter, from, to, skips))
    }

    /// Sets (`Some`) and removes (`None`) keys, ascending, then records `applied` in the tree, if given. An unreadable
    /// page is a fault.
    ///
    /// One page at a time: sled blocks readers while it applies a batch, and the changes need not appear together
    /// (readers look into the tables first, and each start compares every row).
    pub(super) fn apply(&self, changes: &[Change<'_>], applied: Option<Lsn>) -> Result<(), Fault> {
        self.change(changes, false)?;
        match applied {
            Some(lsn) => set_applied(self.db()?, lsn),
            None => Ok(()),
        }
    }

    /// Sets and removes keys, ascending, as the comparison of the entire index requires. An unreadable page is replaced
    /// by an empty one: it showed no rows, so the comparison sets all of them.
    pub(super) fn repair(&self, changes: &[Change<'_>]) -> Result<(), Fault> {
        self.change(changes, true)
    }

    /// Removes the rows of these pages that lie at or after the fence of the next page.
    pub(super) fn trim(&self, fences: &[Vec<u8>]) -> Result<(), Fault> {
        let mut editor = Editor::default();
        for fence in fences {
            // The page may be removed by now.
            if !self.fences.read().contains(fence.as_slice()) {
                continue;
            }
            self.edit(&place(fence), &[], &mut editor, false)?;
        }
        Ok(())
    }

    fn change(&self, mut changes: &[Change<'_>], repairs: bool) -> Result<(), Fault> {
        let mut editor = Editor::default();
        while let Some((first, _)) = changes.first() {
            let place = self.place_of(first);
            let next = self.fence_behind(&place[1..]);
            let here = next.map_or(changes.len(), |next| {
                changes.partition_point(|(key, _)| **key < *next)
            });
            let (here, rest) = changes.split_at(here);
            changes = rest;
            for (key, value) in here {
                if value.is_some() {
                    self.filter.insert(key);
                }
            }
            self.edit(&place, here, &mut editor, repairs)?;
        }
        Ok(())
    }

    /// Applies changes to one page.
    fn edit(
        &self,
        place: &[u8],
        changes: &[Change<'_>],
        editor: &mut Editor,
        repairs: bool,
    ) -> Result<(), Fault> {
        let db = self.db()?;
        let stored = guarded(|| db.get(place))?;
        let next = self.fence_behind(&place[1..]);
        let page = stored.and_then(|stored| unsealed(place, stored));
        let edited = page
            .as_deref()
            .ok_or(Malformed)
            .and_then(|page| editor.edit(page, next.as_deref(), changes));
        match edited {
            Ok(()) => {}
            // An unreadable page is treated as empty.
            Err(Malformed) if repairs => editor
                .edit(&[], next.as_deref(), changes)
                .map_err(|Malformed| wrong_page(place))?,
            Err(Malformed) => return Err(wrong_page(place)),
        }
        self.put(place, page.as_deref(), editor)
    }

    /// Writes an edited page back to its place, where it `was` before, and the pages split off from it after that
    /// place.
    fn put(&self, at: &[u8], was: Option<&[u8]>, editor: &Editor) -> Result<(), Fault> {
        let db = self.db()?;
        let pages = editor.pages();
        let Some(((_, page), behind)) = pages.split_first() else {
            return Ok(());
        };
        for (fence, page) in behind.iter().rev() {
            let at = place(fence.unwrap_or_default());
            guarded(|| db.insert(&at[..], sealed(&at, page)))?;
        }
        if !behind.is_empty() {
            let mut fences = self.fences.write();
            fences.extend(behind.iter().filter_map(|(fence, _)| fence.map(Key::new)));
            self.page_changes.fetch_add(1, Ordering::SeqCst);
        }
        if page.is_empty() && at != [PAGE] {
            return self.remove_page(at);
        }
        // If a long row gets a new neighbour, its own page stays as it was.
        if was != Some(*page) {
            guarded(|| db.insert(at, sealed(at, page)))?;
        }
        Ok(())
    }

    /// Removes an empty page. From then on the previous page covers its range, so rows of that range which a kill left
    /// in the previous page, invisible until now, are removed first.
    fn remove_page(&self, at: &[u8]) -> Result<(), Fault> {
        let db = self.db()?;
        let fence = &at[1..];
        let before = {
            let fences = self.fences.read();
            let mut before = fences.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(fence)));
            before.next_back().map(|fence| place(fence))
        };
        if let Some(place) = before
            && let Some(stored) = guarded(|| db.get(&place))?
        {
            let page = unsealed(&place, stored).ok_or_else(|| wrong_page(&place))?;
            let mut editor = Editor::default();
            let edited = editor.edit(&page, Some(fence), &[]);
            edited.map_err(|Malformed| wrong_page(&place))?;
            self.put(&place, Some(&page), &editor)?;
        }
        {
            let mut fences = self.fences.write();
            fences.remove(fence);
            self.page_changes.fetch_add(1, Ordering::SeqCst);
        }
        guarded(|| db.remove(at)).map(|_| ())
    }

    /// Damages the page of a key.
    #[cfg(test)]
    pub(super) fn spoil(&self, key: &str) {
        let place = self.place_of(key.as_bytes());
        let db = self.db.as_ref().unwrap();
        db.insert(&place[..], "spoiled").unwrap();
    }
}

/// The sled key of a page.
type Place = SmallVec<[u8; 64]>;

/// Returns the sled key of the page with this fence.
fn place(fence: &[u8]) -> Place {
    let mut place = SmallVec::with_capacity(1 + fence.len());
    place.push(PAGE);
    place.extend_from_slice(fence);
    place
}

/// The fault of an unreadable page.
pub(super) fn wrong_page(place: &[u8]) -> Fault {
    let fence = place.get(1..).unwrap_or_default().escape_ascii();
    Fault(format!(
        "the checksum of the rows from {fence:?} on is wrong",
        fence = fence.to_string()
    ))
}

/// True if the tree's format is the one that this program reads.
fn has_form(db: &sled::Db) -> Result<bool, Fault> {
    let stored = guarded(|| db.get(APPLIED))?;
    // The checksum is not checked here: `applied` does that.
    Ok(stored.is_some_and(|stored| stored.len() == 13 && stored[0] == FORM))
}

fn set_applied(db: &sled::Db, lsn: Lsn) -> Result<(), Fault> {
    let mut value = vec![FORM];
    value.extend(lsn.0.to_le_bytes());
    // A batch makes sled write its buffer, so that earlier changes are in the file after a kill.
    let mut end = sled::Batch::default();
    end.insert(APPLIED, sealed(APPLIED, &value));
    guarded(|| db.apply_batch(end))
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
