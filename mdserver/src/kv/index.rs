//! The index: one sled tree, fast to read, never the only copy of anything.
//!
//! Rows lie in it by pages (`pages`), each under its fence; a key is in the page with the last fence that is not behind it.
//! Every page carries a checksum over itself and its fence. The empty key holds the form of the tree and the number of the
//! last commit applied. sled may answer damage with an error or a panic; both become a [`Fault`], after which the index is
//! rebuilt.
//!
//! Which page a key is in is known from a set of all fences, which is read when the tree is opened: sled's own search
//! backwards does not end for some keys (0.34.7 guesses what comes before one, as if there were no more than four bytes
//! of 255 in a row).
//!
//! One thread changes it while any number read. A page that is cut is put in from behind: first the new pages, then what
//! is left under the old fence. So a row is found at every moment, by who looks for the page once more when it finds nothing
//! and pages came or went meanwhile (`page_changes`). Whoever is killed between the two leaves rows behind the fence of the next
//! page: nobody reads them there, and the comparison at the next start takes them away.

use super::Lsn;
use super::disk::{Disk, le64};
use super::entries::Entries;
use super::filter::Filter;
use super::key::Key;
use super::memtable::Change;
use super::pages::{self, Editor, Malformed};
use super::sled_files::{let_go, release};
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

/// The index cannot be trusted any more; the words are sled's, or ours about a checksum.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(super) struct Fault(pub(super) String);

/// The least cache sled is given, in bytes.
const MIN_CACHE: u64 = 4 << 20;

/// How often the log may become shorter while room behind it is set aside.
const TRIES: usize = 4;

/// So much is told of what sled says when it panics.
const PANIC: usize = 300;

/// The key of the form and of the number of the last commit applied.
const APPLIED: &[u8] = b"";
/// The form of the tree: pages of rows.
const FORM: u8 = 2;
/// With what the keys of pages begin; the fence follows.
const PAGE: u8 = b'p';

/// The open index.
#[derive(Debug)]
pub(super) struct Index {
    /// `None` only while it is dropped.
    db: Option<sled::Db>,
    /// sled's log.
    log: File,
    /// The keys it may have, once all of it was compared.
    filter: Filter,
    /// Of all pages.
    fences: RwLock<BTreeSet<Key>>,
    /// How often pages came or went.
    page_changes: AtomicU64,
}

/// What sled says; a panic of it is a fault too.
pub(super) fn guarded<T>(f: impl FnOnce() -> sled::Result<T>) -> Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Fault(error.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            // It may print all of a tree.
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

/// The value in what is stored, when its checksum fits.
pub(super) fn unsealed(key: &[u8], mut stored: sled::IVec) -> Option<sled::IVec> {
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
        let mut db = guarded(|| config.open())?;
        if !has_form(&db)? {
            if guarded(|| Ok(!db.is_empty()))? {
                tracing::info!(dir = %dir.display(), "the index has an older form and is made anew");
                guarded(|| {
                    drop(db);
                    Ok(())
                })?;
                let_go(&dir.join("db"));
                let gone = fs::remove_dir_all(dir);
                gone.map_err(|error| Fault(format!("an index of an older form: {error}")))?;
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
            // Where there are others it is missing, and what it had is not known: nobody can read this.
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

    /// Sees to it that room for `bytes` more is set aside behind the end of sled's log; if it is not, sets `ahead` aside,
    /// which is no less.
    pub(super) fn reserve(&self, disk: &dyn Disk, bytes: u64, ahead: u64) -> io::Result<()> {
        for _ in 0..TRIES {
            let log = self.log.metadata()?;
            let end = log.len();
            if log.blocks() * 512 >= end + bytes {
                break;
            }
            disk.reserve(&self.log, end, ahead)?;
            // sled's threads may have cut it meanwhile: then there is a hole before what was set aside.
            if self.log.metadata()?.len() >= end {
                break;
            }
        }
        Ok(())
    }

    /// The last commit applied; zero in a new tree.
    pub(super) fn applied(&self) -> Result<Lsn, Fault> {
        let db = self.db()?;
        let Some(stored) = guarded(|| db.get(APPLIED))? else {
            return Ok(Lsn(0));
        };
        let value = unsealed(APPLIED, stored).ok_or_else(|| wrong_page(APPLIED))?;
        Ok(Lsn(value.get(1..9).map_or(0, |lsn| le64(lsn, 0))))
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

    /// The place of the page that has `key` if any has.
    fn place_of(&self, key: &[u8]) -> Place {
        let fences = self.fences.read();
        let upto = (Bound::Unbounded, Bound::Included(key));
        let fence = fences.range::<[u8], _>(upto).next_back();
        place(fence.map_or(&[], |fence| fence))
    }

    /// The fence of the page behind another.
    fn fence_behind(&self, fence: &[u8]) -> Option<Key> {
        let fences = self.fences.read();
        let from = (Bound::Excluded(fence), Bound::Unbounded);
        fences.range::<[u8], _>(from).next().cloned()
    }

    /// The rows with `from <= key`, and `key < to` when there is a `to`, ascending. A page that cannot be read is a fault.
    pub(super) fn range(&self, from: &[u8], to: Option<&[u8]>) -> Result<Entries, Fault> {
        self.rows(from, to, false)
    }

    /// All rows, ascending; in place of a page that cannot be read its fence, without a value.
    pub(super) fn all(&self) -> Result<Entries, Fault> {
        self.rows(b"", None, true)
    }

    fn rows(&self, from: &[u8], to: Option<&[u8]>, passes: bool) -> Result<Entries, Fault> {
        let db = self.db()?;
        let first = self.place_of(from);
        let end = to.map_or_else(|| SmallVec::from_slice(&[PAGE + 1]), place);
        let bounds = (Bound::Included(&first[..]), Bound::Excluded(&end[..]));
        let iter = guarded(|| Ok(db.range::<&[u8], _>(bounds)))?;
        Ok(Entries::new(iter, from, to, passes))
    }

    /// Sets (`Some`) and removes (`None`) keys, ascending; afterwards the tree says it has `applied`, if given. A page that
    /// cannot be read is a fault.
    ///
    /// One page at a time: sled holds off readers for as long as it takes to apply a batch, and nothing
    /// needs the changes to appear together (readers look at the tables first, and each start compares
    /// every row).
    pub(super) fn apply(&self, changes: &[Change<'_>], applied: Option<Lsn>) -> Result<(), Fault> {
        self.change(changes, false)?;
        match applied {
            Some(lsn) => set_applied(self.db()?, lsn),
            None => Ok(()),
        }
    }

    /// Sets and removes keys, ascending, where the whole index is compared: rows of a page that cannot be read will be set
    /// too, since it showed none.
    pub(super) fn repair(&self, changes: &[Change<'_>]) -> Result<(), Fault> {
        self.change(changes, true)
    }

    /// Takes away what pages have behind the fence of the next one.
    pub(super) fn trim(&self, fences: &[Vec<u8>]) -> Result<(), Fault> {
        let mut editor = Editor::default();
        for fence in fences {
            // It may be gone by now.
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

    /// Makes changes of one page.
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
            // Nothing of it is believed.
            Err(Malformed) if repairs => editor
                .edit(&[], next.as_deref(), changes)
                .map_err(|Malformed| wrong_page(place))?,
            Err(Malformed) => return Err(wrong_page(place)),
        }
        self.put(place, page.as_deref(), editor)
    }

    /// Puts an edited page into the place where it `was`, and what is cut from it behind that.
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
        // A long row stays where it is when another comes behind it.
        if was != Some(*page) {
            guarded(|| db.insert(at, sealed(at, page)))?;
        }
        Ok(())
    }

    /// Takes an empty page away. The one before has its place from then on, so what that has of it, which nobody could
    /// read any more, goes first.
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

    /// Spoils the page of a key.
    #[cfg(test)]
    pub(super) fn spoil(&self, key: &str) {
        let place = self.place_of(key.as_bytes());
        let db = self.db.as_ref().unwrap();
        db.insert(&place[..], "spoiled").unwrap();
    }
}

/// The key under which a page lies.
type Place = SmallVec<[u8; 64]>;

/// Under which key the page with this fence lies.
fn place(fence: &[u8]) -> Place {
    let mut place = SmallVec::with_capacity(1 + fence.len());
    place.push(PAGE);
    place.extend_from_slice(fence);
    place
}

/// What a page that cannot be read is.
pub(super) fn wrong_page(place: &[u8]) -> Fault {
    let fence = place.get(1..).unwrap_or_default().escape_ascii();
    Fault(format!(
        "the checksum of the rows from {fence:?} on is wrong",
        fence = fence.to_string()
    ))
}

/// Whether a tree says that it has the form that is known here.
fn has_form(db: &sled::Db) -> Result<bool, Fault> {
    let stored = guarded(|| db.get(APPLIED))?;
    // One that is damaged has a checksum that is wrong, as `applied` will find.
    Ok(stored.is_some_and(|stored| stored.len() == 13 && stored[0] == FORM))
}

fn set_applied(db: &sled::Db, lsn: Lsn) -> Result<(), Fault> {
    let mut value = vec![FORM];
    value.extend(lsn.0.to_le_bytes());
    // A batch ends sled's buffer, so that what came before is in the file after a kill.
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
