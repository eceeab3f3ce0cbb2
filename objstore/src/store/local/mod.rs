//! The chunk store over a local directory.
//!
//! A chunk that stores less than 64 KiB, or less than 512 KiB encoded, is a record in a segment file ([`segment`]); a larger one has a file of its own
//! ([`file`]). An index in memory ([`index`]) records which; it is built from the directory when the store is opened
//! ([`open`]).
//!
//! Changes of one chunk are serialised by one of a few locks (stripes), selected by its name; readers take none of
//! them. Lock order: the stripe, then an open file's lock, then the rest; the locks of the index and of lists are held
//! only for a lookup or update.
//!
//! Grid chunks are written in place and therefore stored uncompressed, whatever their codec.
//!
//! The formats, to the byte, are in `docs/formats/chunks.md`.

mod blank;
mod catalogue;
mod decode;
mod decoded;
mod directory;
mod file;
mod files;
mod free;
mod grid;
mod index;
mod inspect;
mod labels;
mod large;
mod open;
mod pieces;
mod removals;
mod roll;
mod segment;
mod shared;
mod small;
mod verifier;
mod windows;

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use slabfs_model::{Hyperslab, ObjectId};

use self::directory::Directory;
pub(crate) use self::file::SameHostChunk;
use self::files::Files;
use self::index::{Entry, Index};
pub use self::inspect::{Held, Inspect};
pub(crate) use self::pieces::{part, write_part};
use self::segment::{Place, Segments};
use self::shared::Shared;
use super::extent::Extent;
use super::{Allocated, Blank, ChunkStore, FilePart, Patches, SameHostFile, Space};
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};

/// Chunks that store fewer bytes than this are records in segments.
const SMALL: u64 = 64 << 10;
/// The same for encoded chunks, of which a read decodes complete blocks in any case: a file for each would cost more.
const SMALL_ENCODED: u64 = 512 << 10;
/// Number of locks for changes, selected by name.
const STRIPES: usize = 128;

/// Options of a local store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalOptions {
    /// Whether a sync waits for the disk. If false, writes run at memory speed and a power failure loses them: for
    /// tests, and for reproducible data.
    pub fsync: bool,
    /// The maximum number of cached open files; by default a quarter of `RLIMIT_NOFILE`.
    pub open_files: Option<usize>,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            fsync: true,
            open_files: None,
        }
    }
}

/// A chunk store in a local directory, which it locks.
#[derive(Debug)]
pub struct LocalStore {
    directory: Arc<Directory>,
    shared: Arc<Shared>,
    index: RwLock<Index>,
    stripes: Box<[Mutex<()>]>,
    files: Files,
    segments: Segments,
    /// Superseded records, to be deleted once the files that supersede them are on disk.
    waiting: Mutex<HashMap<ChunkName, Vec<Place>>>,
    /// The number of files created for clients to fill.
    blanks: AtomicU64,
    closed: AtomicBool,
}

impl LocalStore {
    /// The id of the store, drawn at random when its directory was created.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.directory.id()
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Syncs everything and marks the directory as cleanly closed. Dropping does the same, but can only log errors.
    pub fn close(self) -> Result<()> {
        self.shut()
    }

    /// Abandons the directory, as if the process was killed.
    #[cfg(any(test, feature = "conformance"))]
    pub fn crash(self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    fn shut(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.repair_torn();
        self.sync_all()?;
        self.files.settle_all()?;
        let small = self.index.read().small();
        if let Err(error) = catalogue::write(&self.directory, &self.shared, &small) {
            // Everything is on disk; the next opening reads the segments, as after a crash.
            let path = self.directory.path().display();
            tracing::warn!("{path}: closed without a catalogue: {error}");
            return Ok(());
        }
        self.directory.note_clean(self.shared.durable)
    }

    /// Repairs checksum pages torn by a crash, before the store is marked as clean. From then on a page that does not
    /// match its own checksum counts as damage.
    fn repair_torn(&self) {
        const NAMES: usize = 1024;
        if self.shared.clean || !self.shared.durable {
            return;
        }
        let mut after: Option<ChunkName> = None;
        loop {
            let page = self.index.read().after(after.as_ref(), NAMES);
            let Some((last, _)) = page.last() else { return };
            after = Some(last.clone());
            let files = page
                .iter()
                .filter(|(_, entry)| matches!(entry, Entry::File))
                .map(|(name, _)| name);
            for name in files {
                // A file that cannot be opened is damaged; reading it reports that.
                if let Ok(chunk) = self.files.get(name)
                    && chunk.repair_torn()
                {
                    self.files.note_unsynced(name);
                }
            }
        }
    }

    /// Locks a chunk against other changes.
    fn lock(&self, name: &ChunkName) -> MutexGuard<'_, ()> {
        let mut hash = std::hash::DefaultHasher::new();
        name.hash(&mut hash);
        self.stripes[(hash.finish() % STRIPES as u64) as usize].lock()
    }

    fn entry(&self, name: &ChunkName) -> Option<Entry> {
        self.index.read().get(name)
    }

    fn sync_all(&self) -> Result<()> {
        self.segments.sync(None)?;
        self.files.sync(None)?;
        self.release_waiting()
    }

    fn remove(&self, name: &ChunkName) -> Result<()> {
        let _lock = self.lock(name);
        let entry = self.index.write().remove(name);
        self.shared.decoded.forget(name);
        let waiting = self.waiting.lock().remove(name).unwrap_or_default();
        let mut outcome = waiting
            .iter()
            .try_for_each(|place| self.segments.kill(place));
        match entry {
            None => {}
            Some(Entry::Small(place)) => outcome = outcome.and(self.segments.kill(&place)),
            Some(Entry::File) => outcome = outcome.and(self.files.remove(name)),
        }
        outcome
    }

    fn remove_all(&self, names: &[ChunkName]) -> Result<()> {
        let mut outcome = Ok(());
        for name in names {
            let removed = self.remove(name);
            outcome = outcome.and(removed);
        }
        outcome
    }

    /// Runs `small` or `large` on the chunk, depending on where it is stored. If the chunk is moved or deleted
    /// meanwhile, tries again.
    fn look<R>(
        &self,
        name: &ChunkName,
        small: &mut dyn FnMut(&Place, &[u8]) -> Result<R>,
        large: &mut dyn FnMut(&file::FileChunk) -> Result<R>,
    ) -> Result<R> {
        loop {
            let Some(entry) = self.entry(name) else {
                return Err(StoreError::Missing(name.clone()));
            };
            let outcome = match entry {
                Entry::Small(place) => self.with_record(name, &place, |bytes| small(&place, bytes)),
                Entry::File => self.files.get(name).and_then(|chunk| large(&chunk)),
            };
            match outcome {
                Err(StoreError::Damaged { .. }) if self.entry(name) != Some(entry) => {}
                other => return other,
            }
        }
    }
}

impl Drop for LocalStore {
    fn drop(&mut self) {
        if let Err(error) = self.shut() {
            tracing::error!(
                "{}: not closed cleanly: {error}",
                self.directory.path().display()
            );
        }
    }
}

impl ChunkStore for LocalStore {
    fn verifier(&self) -> u64 {
        self.shared.verifier
    }

    fn put(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        self.put_free(name, form, data)
    }

    fn put_encoded(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        self.put_free_encoded(name, form, data)
    }

    fn read_encoded(&self, name: &ChunkName) -> Result<Option<Vec<u8>>> {
        self.encoded(name)
    }

    fn blank(&self, name: &ChunkName, form: &ChunkForm) -> Result<Option<Blank>> {
        self.blank_free(name, form)
    }

    fn adopt(&self, blank: Blank, sums: &[u32]) -> Result<()> {
        self.adopt_free(blank, sums)
    }

    fn append(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        at: u64,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        self.append_free(name, form, at, data)
    }

    fn seal(&self, name: &ChunkName, form: &ChunkForm) -> Result<()> {
        self.seal_free(name, form)
    }

    fn write(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        self.write_grid(name, form, slab, data)
    }

    fn patch(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        end: u64,
        patches: &mut dyn Patches,
    ) -> Result<()> {
        self.patch_grid(name, form, end, patches)
    }

    fn read(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()> {
        let extent = Extent::new(form, slab)?;
        extent.check_len(out.len() as u64)?;
        let cell = std::cell::RefCell::new(out);
        self.look(
            name,
            &mut |place, bytes| {
                self.read_small(name, form, place, bytes, &extent, &mut cell.borrow_mut())
            },
            &mut |chunk| chunk.read_slab(form, &extent, &mut cell.borrow_mut()),
        )
    }

    fn show(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        let extent = Extent::new(form, slab)?;
        let cell = std::cell::RefCell::new(f);
        self.look(
            name,
            &mut |place, bytes| small::show(place, bytes, &extent, &mut *cell.borrow_mut()),
            &mut |chunk| chunk.show_slab(form, &extent, &mut *cell.borrow_mut()),
        )
    }

    fn file_part(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(FilePart<'_>),
    ) -> Result<bool> {
        let extent = Extent::new(form, slab)?;
        self.look(name, &mut |_, _| Ok(false), &mut |chunk| {
            chunk.file_part_of_slab(form, &extent, f)
        })
    }

    fn same_host_file(&self, name: &ChunkName) -> Result<Option<SameHostFile>> {
        match self.look(name, &mut |_, _| Ok(None), &mut |chunk| {
            chunk.same_host_file()
        }) {
            Err(StoreError::Missing(_)) => Ok(None),
            other => other,
        }
    }

    fn clip(&self, name: &ChunkName, form: &ChunkForm, keep: &[u64]) -> Result<()> {
        self.clip_grid(name, form, keep)
    }

    fn punch(&self, name: &ChunkName, form: &ChunkForm, slab: &Hyperslab) -> Result<()> {
        self.punch_grid(name, form, slab)
    }

    fn allocated(&self, name: &ChunkName, from: u64) -> Result<Allocated> {
        let found = self.look(
            name,
            &mut |_, bytes| Ok(small::allocated(bytes, from)),
            &mut |chunk| chunk.allocated(from),
        );
        match found {
            Err(StoreError::Missing(_)) => Ok(Allocated::default()),
            other => other,
        }
    }

    fn delete(&self, names: &[ChunkName]) -> Result<()> {
        self.remove_all(names)
    }

    fn delete_generation(&self, object: ObjectId, below: u32) -> Result<()> {
        let names = self.index.read().grid_of(object, Some(below));
        self.remove_all(&names)
    }

    fn delete_grid(&self, object: ObjectId) -> Result<()> {
        let names = self.index.read().grid_of(object, None);
        self.remove_all(&names)
    }

    fn sync(&self, names: &[ChunkName]) -> Result<()> {
        if names.is_empty() {
            return self.sync_all();
        }
        let mut segments = Vec::new();
        let mut files = Vec::new();
        let mut gone = false;
        for name in names {
            match self.entry(name) {
                Some(Entry::Small(place)) if segments.contains(&place.segment()) => {}
                Some(Entry::Small(place)) => segments.push(place.segment()),
                Some(Entry::File) => files.push(name),
                None if matches!(name, ChunkName::Free(_)) => {
                    return Err(StoreError::Missing(name.clone()));
                }
                None => gone = true,
            }
        }
        if gone {
            return self.sync_all();
        }
        if !files.is_empty()
            && let Err(error) = self.files.sync(Some(&files))
        {
            // One may have been removed since it was found.
            let is_file = |name: &&ChunkName| matches!(self.entry(name), Some(Entry::File));
            return match files.iter().all(is_file) {
                true => Err(error),
                false => self.sync(names),
            };
        }
        if !segments.is_empty() {
            self.segments.sync(Some(&segments))?;
            self.release_waiting()?;
        }
        Ok(())
    }

    fn list(&self, after: Option<ChunkName>, limit: usize) -> Result<Vec<(ChunkName, u64)>> {
        let found = self.index.read().after(after.as_ref(), limit);
        let mut out = Vec::with_capacity(found.len());
        for (name, entry) in found {
            match entry {
                Entry::Small(place) => out.push((name, place.total().into())),
                Entry::File => out.extend(self.taken(&name)?.map(|bytes| (name, bytes))),
            }
        }
        Ok(out)
    }

    fn space(&self) -> Result<Space> {
        let path = self.directory.path();
        let stat = nix::sys::statvfs::statvfs(path)
            .map_err(|e| StoreError::from_io("statvfs", path, &e.into()))?;
        let unit = stat.fragment_size();
        Ok(Space {
            total: stat.blocks() * unit,
            free: stat.blocks_available() * unit,
            used: (stat.blocks() - stat.blocks_free()) * unit,
            disk: Some(stat.filesystem_id()).filter(|disk| *disk != 0),
        })
    }

    fn verify(&self, name: &ChunkName) -> Result<()> {
        self.look(
            name,
            &mut |place, bytes| self.verify_small(name, place, bytes),
            &mut |chunk| chunk.verify(),
        )
    }
}

/// Checks that `docs/formats/chunks.md` shows these bytes.
#[cfg(test)]
fn assert_on_the_page(bytes: &[u8]) {
    let line = |line: &[u8]| {
        let words: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        words.join(" ")
    };
    let hex: Vec<_> = bytes.chunks(16).map(line).collect();
    let hex = hex.join("\n");
    let page = include_str!("../../../../docs/formats/chunks.md");
    assert!(page.contains(&hex), "the page does not show\n{hex}");
}

#[cfg(test)]
mod tests;
