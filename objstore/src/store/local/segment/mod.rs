//! Segment files, which hold small chunks as records.
//!
//! A record ([`record`]) is appended with one write and never changes, except for the byte that marks it dead; a new
//! version of a chunk is a new record with a higher sequence number. A segment begins with 64 bytes (magic "SLABSEGM",
//! version u32, number u32, zeros) and holds up to 64 MiB. After a crash the segments are scanned for records
//! ([`scan`]); after a clean close the catalogue lists them.
//!
//! Space is freed early: adjacent dead records are punched out of the file when enough of them accumulate ([`dead`]),
//! and a full segment without live records is removed.
//!
//! Deliberately elsewhere: which record of a name is valid, and when an old one may be deleted (`small`).

mod dead;
mod descriptors;
pub(super) mod record;
mod scan;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use nix::fcntl::{FallocateFlags, fallocate};
use parking_lot::{Mutex, RwLock};

use self::dead::Dead;
use self::descriptors::{Descriptor, Descriptors};
pub(super) use self::record::Kind;
use self::record::{DEAD, STATE_AT};
pub(super) use self::scan::{FoundRecord, Known};
use super::directory::Directory;
use super::pieces::{self, Pieces};
use super::shared::Shared;
use crate::checksum::{crc32c, crc32c_of};
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};

/// Bytes of a full segment.
pub(super) const SEGMENT_MAX: u32 = 64 << 20;
/// Bytes of the head of a segment.
const SEGMENT_HEAD: u32 = 64;
/// The number of dead bytes that triggers punching.
const PUNCH_AT: u32 = 1 << 20;
const MAGIC: &[u8; 8] = b"SLABSEGM";
const VERSION: u32 = 1;

/// The location of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    segment: u32,
    offset: u32,
    head: u32,
    data: u32,
    crc: u32,
    /// The number of syncs begun in the segment when the record had been written.
    stamp: u32,
    pub(super) kind: Kind,
}

impl Place {
    pub(super) fn segment(&self) -> u32 {
        self.segment
    }

    /// Bytes of data.
    pub(super) fn data_len(&self) -> u32 {
        self.data
    }

    /// Appends the bytes of the place, for the catalogue.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for field in [self.segment, self.offset, self.head, self.data, self.crc] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.push(self.kind.number());
    }

    /// Decodes the bytes of [`Self::write`]; also returns the bytes that follow.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (fields, rest) = bytes.split_first_chunk::<21>()?;
        let mut numbers = fields
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| u32::from_le_bytes(*b));
        let mut next = || numbers.next();
        let (segment, offset, head, data, crc) = (next()?, next()?, next()?, next()?, next()?);
        let sane = head < SEGMENT_MAX && data < SEGMENT_MAX && offset < SEGMENT_MAX;
        let place = Self {
            segment,
            offset,
            head,
            data,
            crc,
            stamp: 0,
            kind: Kind::from_number(fields[20])?,
        };
        sane.then_some((place, rest))
    }

    /// Bytes of the record in its segment.
    pub(super) fn total(&self) -> u32 {
        record::total(self.head, self.data)
    }
}

#[derive(Debug)]
struct Segment {
    number: u32,
    path: PathBuf,
    descriptor: Arc<Descriptor>,
    salt: u64,
    state: Mutex<State>,
    /// Numbers of the last sync begun and done; both start at 1, so that stamp 0 is always on disk.
    begun: AtomicU32,
    done: AtomicU32,
    poisoned: AtomicBool,
    syncing: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    live: u64,
    dead: Dead,
    /// No more records are appended.
    full: bool,
}

/// The segment that is appended to, and its end.
#[derive(Debug, Default)]
struct Active {
    segment: Option<Arc<Segment>>,
    end: u32,
    next_number: u32,
}

/// All segments of a store.
#[derive(Debug)]
pub(super) struct Segments {
    directory: Arc<Directory>,
    shared: Arc<Shared>,
    list: RwLock<BTreeMap<u32, Arc<Segment>>>,
    active: Mutex<Active>,
    sequence: AtomicU64,
    descriptors: Arc<Descriptors>,
}

thread_local! {
    /// Buffers for label, head and foot of the record being written.
    static SCRATCH: std::cell::Cell<[Vec<u8>; 3]> = const { std::cell::Cell::new([const { Vec::new() }; 3]) };
}

impl Segments {
    /// The next sequence number, for a record or for the head of a file.
    pub(super) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends a record. If that fails, no scan finds it later.
    pub(super) fn append(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        kind: Kind,
        data: &[IoSlice<'_>],
    ) -> Result<Place> {
        let mut scratch = SCRATCH.take();
        let outcome = self.append_with(&mut scratch, name, form, kind, data);
        SCRATCH.set(scratch);
        outcome
    }

    fn append_with(
        &self,
        [label, head, foot]: &mut [Vec<u8>; 3],
        name: &ChunkName,
        form: &ChunkForm,
        kind: Kind,
        data: &[IoSlice<'_>],
    ) -> Result<Place> {
        let mut place = Place {
            segment: 0,
            offset: 0,
            head: record::head_len(name, form, label),
            data: pieces::len(data) as u32,
            crc: crc32c_of(data),
            stamp: 0,
            kind,
        };
        let (segment, offset) = self.allocate(place.total())?;
        (place.segment, place.offset) = (segment.number, offset);
        record::write(
            &place,
            self.next_sequence(),
            segment.salt,
            label,
            head,
            foot,
        );
        let mut all = Pieces::new();
        all.push(IoSlice::new(head));
        all.extend(data.iter().copied());
        all.push(IoSlice::new(foot));
        let file = match segment.descriptor.file() {
            Ok(file) => file,
            Err(error) => {
                // Nothing was written, so there is nothing to mark as dead.
                self.count_dead(&segment, &place);
                return Err(StoreError::from_io("open", &segment.path, &error));
            }
        };
        if let Err((_, error)) = pieces::write_at(&file, u64::from(offset), &all) {
            self.abandon(&segment, &place);
            return Err(StoreError::from_io("append to", &segment.path, &error));
        }
        place.stamp = segment.begun.load(Ordering::SeqCst);
        segment.descriptor.dirty.store(true, Ordering::SeqCst);
        Ok(place)
    }

    /// Allocates space for a record, in the active segment or in a new one.
    fn allocate(&self, bytes: u32) -> Result<(Arc<Segment>, u32)> {
        let mut active = self.active.lock();
        let fits = active
            .end
            .checked_add(bytes)
            .is_some_and(|end| end <= SEGMENT_MAX);
        let segment = match &active.segment {
            Some(segment) if fits && !segment.poisoned.load(Ordering::Relaxed) => {
                Arc::clone(segment)
            }
            _ => {
                let new = self.create(active.next_number)?;
                active.next_number += 1;
                active.end = SEGMENT_HEAD;
                if let Some(old) = active.segment.replace(Arc::clone(&new)) {
                    old.state.lock().full = true;
                    self.drop_if_dead(&old)?;
                }
                new
            }
        };
        let offset = active.end;
        active.end += bytes;
        segment.state.lock().live += u64::from(bytes);
        Ok((segment, offset))
    }

    fn create(&self, number: u32) -> Result<Arc<Segment>> {
        let path = self.directory.segments().join(format!("{number:08}.seg"));
        let fail = |e: io::Error| StoreError::from_io("create", &path, &e);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(fail)?;
        let mut head = [0; SEGMENT_HEAD as usize];
        head[..8].copy_from_slice(MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&number.to_le_bytes());
        file.write_all_at(&head, 0).map_err(fail)?;
        self.directory.note_change(&path);
        let descriptor = self.descriptors.opened(&path, file);
        let segment = Arc::new(Segment::new(number, path, descriptor, self.directory.id()));
        self.list.write().insert(number, Arc::clone(&segment));
        Ok(segment)
    }

    /// After a failed write: marks the partial record as dead, so that it is not mistaken for a valid one.
    fn abandon(&self, segment: &Arc<Segment>, place: &Place) {
        if let Err(error) = self.bury(segment, place) {
            tracing::error!(
                "{}: a partial record of a failed write at {} remains: {error}",
                segment.path.display(),
                place.offset
            );
        }
    }

    /// Marks a record as dead, so that its space can be freed.
    pub(super) fn kill(&self, place: &Place) -> Result<()> {
        match self.segment(place.segment) {
            Some(segment) => self.bury(&segment, place),
            None => Ok(()),
        }
    }

    fn bury(&self, segment: &Arc<Segment>, place: &Place) -> Result<()> {
        let foot = place.offset + record::foot_at(place.head, place.data);
        let file = segment.descriptor.file();
        let file = file.map_err(|e| StoreError::from_io("open", &segment.path, &e))?;
        for at in [place.offset, foot] {
            // Overwriting an existing byte needs no space on the disk.
            let written = file.write_all_at(&[DEAD], u64::from(at + STATE_AT));
            written.map_err(|e| StoreError::from_io("write", &segment.path, &e))?;
        }
        segment.descriptor.dirty.store(true, Ordering::SeqCst);
        self.count_dead(segment, place);
        let pages = {
            let mut state = segment.state.lock();
            if state.dead.pending() >= PUNCH_AT && !(state.full && state.live == 0) {
                state.dead.take_pages()
            } else {
                Vec::new()
            }
        };
        for range in pages {
            let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            // If the filesystem cannot punch, the space is freed when the segment is removed.
            if fallocate(&*file, flags, range.start.into(), range.len() as i64).is_err() {
                break;
            }
        }
        self.drop_if_dead(segment)
    }

    /// Counts the space of a record as dead.
    fn count_dead(&self, segment: &Segment, place: &Place) {
        let mut state = segment.state.lock();
        state.live -= u64::from(place.total());
        state.dead.add(place.offset..place.offset + place.total());
    }

    fn drop_if_dead(&self, segment: &Arc<Segment>) -> Result<()> {
        {
            let state = segment.state.lock();
            if !state.full || state.live > 0 {
                return Ok(());
            }
        }
        if self.list.write().remove(&segment.number).is_none() {
            return Ok(());
        }
        self.directory.note_change(&segment.path);
        std::fs::remove_file(&segment.path)
            .map_err(|e| StoreError::from_io("remove", &segment.path, &e))
    }

    fn segment(&self, number: u32) -> Option<Arc<Segment>> {
        self.list.read().get(&number).cloned()
    }

    /// Reads the data of a record. `Ok(None)`: it does not match its checksum, because it is damaged, or because it was
    /// deleted meanwhile.
    pub(super) fn read(&self, place: &Place, out: &mut Vec<u8>) -> Result<Option<()>> {
        let Some(segment) = self.segment(place.segment) else {
            return Ok(None);
        };
        out.resize(place.data as usize, 0);
        let read = segment
            .descriptor
            .file()
            .and_then(|file| file.read_exact_at(out, u64::from(place.offset + place.head)));
        match read {
            Ok(()) => Ok((crc32c(out) == place.crc).then_some(())),
            Err(e)
                if e.kind() == io::ErrorKind::UnexpectedEof
                    || e.raw_os_error() == Some(libc::EIO) =>
            {
                Ok(None)
            }
            Err(e) => Err(StoreError::from_io("read", &segment.path, &e)),
        }
    }

    /// The form of a record's chunk, from its head or its foot.
    pub(super) fn form(&self, place: &Place) -> Option<ChunkForm> {
        let segment = self.segment(place.segment)?;
        let foot = place.offset + record::foot_at(place.head, place.data);
        let file = segment.descriptor.file().ok()?;
        [place.offset, foot].into_iter().find_map(|at| {
            let mut bytes = vec![0; place.head as usize];
            file.read_exact_at(&mut bytes, u64::from(at)).ok()?;
            record::read(&bytes, at, segment.number, segment.salt).map(|record| record.form)
        })
    }

    /// Whether the record is durable against power failure.
    pub(super) fn is_durable(&self, place: &Place) -> bool {
        self.segment(place.segment)
            .is_none_or(|segment| segment.done.load(Ordering::SeqCst) > place.stamp)
    }

    /// Syncs these segments, or all.
    pub(super) fn sync(&self, numbers: Option<&[u32]>) -> Result<()> {
        let due: Vec<Arc<Segment>> = match numbers {
            None => self.list.read().values().cloned().collect(),
            Some(numbers) => numbers
                .iter()
                .filter_map(|number| self.segment(*number))
                .collect(),
        };
        for segment in &due {
            segment.sync(&self.shared)?;
        }
        self.directory.sync(
            &self.shared,
            due.iter().map(|segment| segment.path.as_path()),
            false,
        )
    }

    /// Describes a record for error messages.
    pub(super) fn describe(&self, place: &Place) -> String {
        let path = self
            .directory
            .segments()
            .join(format!("{:08}.seg", place.segment));
        format!("{}, record at byte {}", path.display(), place.offset)
    }
}

impl Segment {
    fn new(number: u32, path: PathBuf, descriptor: Arc<Descriptor>, store: [u8; 16]) -> Self {
        let mut seed = [0; 20];
        seed[..16].copy_from_slice(&store);
        seed[16..].copy_from_slice(&number.to_le_bytes());
        Self {
            number,
            path,
            descriptor,
            salt: xxhash_rust::xxh3::xxh3_64(&seed),
            state: Mutex::default(),
            begun: AtomicU32::new(1),
            done: AtomicU32::new(1),
            poisoned: AtomicBool::new(false),
            syncing: Mutex::default(),
        }
    }

    fn sync(&self, shared: &Shared) -> Result<()> {
        let _one_at_a_time = self.syncing.lock();
        let fail = |e: io::Error| StoreError::from_io("sync", &self.path, &e);
        if self.poisoned.load(Ordering::SeqCst) {
            return Err(fail(io::Error::other(
                "an earlier sync failed, and the data it covered may be lost",
            )));
        }
        if !self.descriptor.dirty.load(Ordering::SeqCst) {
            return Ok(());
        }
        // A dirty descriptor is never closed, so this is the one that was written to; hold it during the sync.
        let file = self.descriptor.file().map_err(fail)?;
        self.descriptor.dirty.store(false, Ordering::SeqCst);
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        if let Err(error) = shared.sync_file(&file, &self.path) {
            self.poisoned.store(true, Ordering::SeqCst);
            return Err(fail(error));
        }
        self.done.store(number, Ordering::SeqCst);
        Ok(())
    }
}
