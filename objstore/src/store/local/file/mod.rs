//! The file of a large chunk: format, checksums, and access.
//!
//! ```text
//! head | checksum page | 32 MiB of data | checksum page | 32 MiB of data | ...
//! ```
//!
//! The head ([`head`]) identifies the chunk; each 32 MiB of data, a *group*, is preceded by a page with the checksums
//! of its 512 blocks ([`group`]). A block that was never written is a hole and reads as the fill. One `fdatasync` syncs
//! the file, and one `pwritev` writes a complete chunk.
//!
//! Checksums are cached in memory while the file is open, and written to their pages when the chunk is sealed, synced
//! or closed. To survive a crash in between, a page is *marked* with the number of this opening of the store before its
//! group is written in place, and the mark is on disk before the data can be. A mark of an earlier opening means that
//! the checksums are stale, and they are recomputed. Marks are cleared when a file is closed with everything on disk.
//!
//! Readers hold the state's lock shared and read the file through a mapping ([`map`]); writers hold it exclusively.
//! Elsewhere: the meaning of the bytes (`large`), and which files are open (`files`).

mod allocated;
pub(super) mod clear;
mod filled;
pub(super) mod group;
pub(super) mod head;
mod map;
mod read;
mod same_host;
mod sync;
mod write;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(super) use self::filled::places;
use self::group::{BLOCK, BLOCKS, GROUP, Group};
use self::head::Head;
use self::map::Map;
pub(crate) use self::same_host::SameHostChunk;
use super::shared::Shared;
use crate::codec::coded::Table;
use crate::error::{Result, StoreError};
use crate::fill;
use crate::name::ChunkName;

/// The page size: heads and checksum pages are multiples of it.
pub(super) const PAGE: u64 = 4096;

/// An open file that holds one chunk.
#[derive(Debug)]
pub(super) struct FileChunk {
    pub(super) name: ChunkName,
    pub(super) path: PathBuf,
    file: File,
    pub(super) shared: Arc<Shared>,
    /// Whether the file was handed out by the store of another process.
    same_host: bool,
    state: RwLock<State>,
    maps: Mutex<Vec<(usize, Arc<Map>)>>,
    /// Held while the file is being synced, so that a caller that finds nothing unsynced returns only after a sync in
    /// progress.
    syncing: Mutex<()>,
    /// The table of a compressed chunk, loaded when first needed.
    pub(super) table: OnceLock<Table>,
}

/// The mutable state of a chunk's file.
#[derive(Debug)]
pub(super) struct State {
    pub(super) head: Head,
    /// Bytes of the head area.
    area: u64,
    /// Bytes of content: the end of the last byte ever written.
    pub(super) len: u64,
    groups: Vec<Slot>,
    head_dirty: bool,
    /// Some of it is not on disk yet.
    unsynced: bool,
    /// All of it was written before the `syncfs` that [`FileChunk::start_sync`] prepared.
    started: bool,
    /// Some data that must survive a crash may be on disk.
    lasting: bool,
    /// A sync failed: written data may be lost, and the kernel does not report that twice.
    poisoned: bool,
}

#[derive(Debug)]
enum Slot {
    /// The checksum page has not been read yet.
    Unread,
    Loaded(Box<Group>),
    /// The checksum page is damaged.
    Bad(String),
}

impl FileChunk {
    /// Creates the file of a new chunk; its head is written with the first data.
    pub(super) fn create(path: &Path, head: Head, shared: &Arc<Shared>) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        let area = head.bytes().len() as u64;
        let state = State::new(head, area, 0, Vec::new(), true);
        Ok(Self::assemble(path, file, shared, state))
    }

    /// Opens the file of a chunk. An invalid head is reported as damage of the chunk `name`.
    pub(super) fn open(path: &Path, name: &ChunkName, shared: &Arc<Shared>) -> Result<Self> {
        let damaged = |detail| StoreError::damaged(name, format!("{}: {detail}", path.display()));
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(damaged("the file is gone".to_owned()));
            }
            Err(e) => return Err(StoreError::from_io("open", path, &e)),
        };
        let head = read_head(&file).map_err(|e| e.into_error(path, name))?;
        if head.name != *name {
            return Err(damaged(format!(
                "the file says that it holds {}",
                head.name
            )));
        }
        let size = file
            .metadata()
            .map_err(|e| StoreError::from_io("stat", path, &e))?
            .len();
        let area = head.bytes().len() as u64;
        // The head of a sealed chunk gives its length; the truncation of the file may have been lost in a crash.
        let len = len_of(size, area).min(if head.sealed { head.content } else { u64::MAX });
        let groups = (0..len.div_ceil(GROUP)).map(|_| Slot::Unread).collect();
        let state = State::new(head, area, len, groups, false);
        let chunk = Self::assemble(path, file, shared, state);
        chunk.note_cut(&mut chunk.state.write());
        Ok(chunk)
    }

    fn assemble(path: &Path, file: File, shared: &Arc<Shared>, state: State) -> Self {
        Self {
            name: state.head.name.clone(),
            path: path.to_owned(),
            file,
            shared: Arc::clone(shared),
            same_host: false,
            state: RwLock::new(state),
            maps: Mutex::default(),
            syncing: Mutex::default(),
            table: OnceLock::new(),
        }
    }

    /// Locks the state exclusively.
    pub(super) fn write_lock(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    /// Locks the state shared, with the checksums of the groups of `offset..end` loaded.
    pub(super) fn read_lock(&self, offset: u64, end: u64) -> RwLockReadGuard<'_, State> {
        let state = self.state.read();
        let groups = offset / GROUP..end.div_ceil(GROUP);
        let unread = |g: u64| matches!(state.groups.get(g as usize), Some(Slot::Unread));
        if !groups.clone().any(unread) {
            return state;
        }
        drop(state);
        let mut state = self.state.write();
        for g in groups {
            if (g as usize) < state.groups.len() {
                self.load(&mut state, g as usize);
            }
        }
        RwLockWriteGuard::downgrade(state)
    }

    /// Whether some data is not on disk yet.
    pub(super) fn is_unsynced(&self) -> bool {
        self.state.read().unsynced
    }

    /// Whether some data that must survive a crash may be on disk.
    pub(super) fn is_lasting(&self) -> bool {
        self.state.read().lasting
    }

    /// Whether a sync failed.
    pub(super) fn is_poisoned(&self) -> bool {
        self.state.read().poisoned
    }

    /// Notes that data written through an earlier descriptor of the file may not be on disk.
    pub(super) fn note_unsynced(&self) {
        self.state.write().note_unsynced();
    }

    fn damaged(&self, detail: impl std::fmt::Display) -> StoreError {
        StoreError::damaged(&self.name, format!("{}: {detail}", self.path.display()))
    }

    /// The error for a failed read of the file: media errors count as damage of the chunk.
    fn read_error(&self, what: &str, error: &io::Error) -> StoreError {
        match error.raw_os_error() {
            Some(libc::EIO | libc::EFAULT | libc::EHWPOISON | libc::EUCLEAN | libc::EBADMSG)
            | None => self.damaged(format!("{what} cannot be read: {error}")),
            Some(_) => StoreError::from_io("read", &self.path, error),
        }
    }

    fn write_error(&self, error: &io::Error) -> StoreError {
        StoreError::from_io("write", &self.path, error)
    }

    /// Loads the checksum page of a group, unless it is loaded already.
    fn load(&self, state: &mut State, g: usize) {
        while state.groups.len() <= g {
            // Beyond the stored groups: there is no page to read.
            state.groups.push(Slot::Loaded(Box::new(Group::new())));
        }
        if !matches!(state.groups[g], Slot::Unread) {
            return;
        }
        let mut page = [0; PAGE as usize];
        let slot = match read_up_to(&self.file, page_at(state.area, g), &mut page) {
            Err(e) => Slot::Bad(format!(
                "the page with the checksums of group {g} cannot be read: {e}"
            )),
            Ok(have) => match self.parse(&page[..have], g) {
                group::Read::Empty => Slot::Loaded(Box::new(Group::new())),
                group::Read::Good(group) => Slot::Loaded(Box::new(group)),
                group::Read::Bad(why) => Slot::Bad(why),
                group::Read::Stale(old) => Slot::Loaded(Box::new(self.resum(state, g, &old))),
            },
        };
        state.groups[g] = slot;
    }

    fn parse(&self, page: &[u8], g: usize) -> group::Read {
        Group::read(page, g as u32, self.shared.mark, self.shared.clean)
    }

    /// Recomputes the checksums of groups whose pages were torn by a crash; returns whether there were any.
    pub(super) fn repair_torn(&self) -> bool {
        let mut state = self.state.write();
        let mut repaired = false;
        for g in 0..state.groups.len() {
            let mut page = [0; PAGE as usize];
            let unread = matches!(state.groups[g], Slot::Unread);
            if unread
                && let Ok(have) = read_up_to(&self.file, page_at(state.area, g), &mut page)
                && matches!(self.parse(&page[..have], g), group::Read::Stale(group) if group.is_empty())
            {
                self.load(&mut state, g);
                repaired = true;
            }
        }
        repaired
    }

    /// Recomputes the checksums of a group that an earlier process left marked.
    fn resum(&self, state: &State, g: usize, old: &Group) -> Group {
        let mut group = Group::new();
        let mut buf = vec![0; BLOCK as usize];
        for block in 0..BLOCKS {
            let at = g as u64 * GROUP + block as u64 * BLOCK;
            let have = state.len.saturating_sub(at).min(BLOCK) as usize;
            if have == 0 {
                break;
            }
            let read = self
                .file
                .read_exact_at(&mut buf[..have], data_at(state.area, at));
            match read.and_then(|()| self.is_written(state, old.has(block), at, &mut buf[..have])) {
                Ok(true) => group.set(block, Some(group::sum_of(&buf[..have]))),
                Ok(false) => {}
                // Reading the block reports the error again.
                Err(error) => {
                    tracing::error!(
                        "{}: block {block} of group {g} of {} cannot be read: {error}",
                        self.path.display(),
                        self.name
                    );
                    group.set(block, Some(old.sum(block).unwrap_or(0)));
                }
            }
        }
        tracing::info!(
            "{}: checksums of group {g} of {} recomputed after a crash",
            self.path.display(),
            self.name
        );
        group.stored = true;
        // The page has another process's mark, which is as good as this one's until the page is rewritten.
        group.marked = true;
        group.dirty = true;
        group
    }

    /// Whether the block with these bytes was ever written; `known` is the answer of its checksum page, which may be
    /// ahead of the data. Where the fill is not zero, a new block was written in full, but parts of it may not have
    /// reached the disk: those are painted with the fill.
    fn is_written(
        &self,
        state: &State,
        known: bool,
        at: u64,
        bytes: &mut [u8],
    ) -> io::Result<bool> {
        if !state.fills() {
            return Ok(known || bytes.iter().any(|&b| b != 0));
        }
        let mut written = false;
        let mut painted = false;
        let len = bytes.len() as u64;
        for from in (0..len).step_by(PAGE as usize) {
            let page = &mut bytes[from as usize..len.min(from + PAGE) as usize];
            if page.iter().any(|&b| b != 0) || self.is_allocated(state, at + from)? {
                written = true;
            } else {
                fill::paint(&state.head.form, at + from, page);
                painted = true;
            }
        }
        if written && painted {
            self.file.write_all_at(bytes, data_at(state.area, at))?;
        }
        Ok(written)
    }

    /// Whether a page of the file is allocated, even if it holds zeros.
    fn is_allocated(&self, state: &State, at: u64) -> io::Result<bool> {
        let from = data_at(state.area, at) as i64;
        match nix::unistd::lseek(&self.file, from, nix::unistd::Whence::SeekData) {
            Ok(found) => Ok(found < from + PAGE as i64),
            Err(nix::Error::ENXIO) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The mapping of a group: its checksum page and its data, up to the end of the file.
    fn map(&self, state: &State, g: usize) -> Result<Arc<Map>> {
        /// The maximum number of cached mappings per file: 8 GiB of data.
        const CACHED: usize = 256;
        let mut maps = self.maps.lock();
        if let Some((_, map)) = maps.iter().rev().find(|(at, _)| *at == g) {
            return Ok(Arc::clone(map));
        }
        let at = page_at(state.area, g);
        let map = Map::new(&self.file, at, (PAGE + GROUP) as usize, self.same_host)
            .map_err(|e| StoreError::from_io("map", &self.path, &e))?;
        if maps.len() >= CACHED {
            maps.clear();
        }
        maps.push((g, Arc::clone(&map)));
        Ok(map)
    }
}

impl State {
    /// The state of a file that `is_new`, or that has this content and was on disk before.
    fn new(head: Head, area: u64, len: u64, groups: Vec<Slot>, is_new: bool) -> Self {
        Self {
            head,
            area,
            len,
            groups,
            head_dirty: is_new,
            unsynced: is_new,
            started: false,
            lasting: !is_new,
            poisoned: false,
        }
    }

    /// Notes that something was written.
    fn note_unsynced(&mut self) {
        (self.unsynced, self.started) = (true, false);
    }

    /// Whether holes read as a non-zero fill, so that blocks must be written in full.
    fn fills(&self) -> bool {
        !self.head.form.fill.is_zero() && matches!(self.head.name, ChunkName::Grid { .. })
    }

    /// The writer mark for checksum pages. 0 for a sealed chunk, which does not change. But a sealed chunk of which
    /// parts are on disk keeps the mark until all of it is: if a block was synced and then extended, a power failure
    /// may take the extension, and the block must not fail verification for that.
    fn writer(&self, mark: u64) -> u64 {
        if self.head.sealed && !self.lasting {
            0
        } else {
            mark
        }
    }

    /// The loaded checksums of a group; `None` for a group beyond the end.
    fn group(&self, g: usize) -> Result<Option<&Group>, String> {
        match self.groups.get(g) {
            None => Ok(None),
            Some(Slot::Loaded(group)) => Ok(Some(group)),
            Some(Slot::Bad(why)) => Err(why.clone()),
            Some(Slot::Unread) => Err(format!("the checksums of group {g} were not loaded")),
        }
    }

    fn group_mut(&mut self, g: usize) -> Result<&mut Group, String> {
        match self.groups.get_mut(g) {
            Some(Slot::Loaded(group)) => Ok(group),
            Some(Slot::Bad(why)) => Err(why.clone()),
            Some(Slot::Unread) | None => Err(format!("the checksums of group {g} were not loaded")),
        }
    }
}

/// The file offset of a group's checksum page.
fn page_at(area: u64, g: usize) -> u64 {
    area + g as u64 * (PAGE + GROUP)
}

/// The file offset of a byte of content.
fn data_at(area: u64, offset: u64) -> u64 {
    area + (offset / GROUP + 1) * PAGE + offset
}

/// The file size for a content length.
fn size_of(len: u64, area: u64) -> u64 {
    if len == 0 {
        area
    } else {
        data_at(area, len - 1) + 1
    }
}

/// The content length for a file size.
fn len_of(size: u64, area: u64) -> u64 {
    let rest = size.saturating_sub(area);
    rest / (PAGE + GROUP) * GROUP + (rest % (PAGE + GROUP)).saturating_sub(PAGE)
}

/// Why a head could not be read.
pub(super) enum HeadError {
    Io(io::Error),
    Damaged(String),
}

impl HeadError {
    pub(super) fn into_error(self, path: &Path, name: &ChunkName) -> StoreError {
        let why = match self {
            Self::Io(e) if e.raw_os_error() != Some(libc::EIO) => {
                return StoreError::from_io("read", path, &e);
            }
            Self::Io(e) => format!("its head cannot be read: {e}"),
            Self::Damaged(why) => why,
        };
        StoreError::damaged(name, format!("{}: {why}", path.display()))
    }
}

/// Reads the head of a chunk's file.
pub(super) fn read_head(file: &File) -> std::result::Result<Head, HeadError> {
    let mut area = vec![0; PAGE as usize];
    let have = read_up_to(file, 0, &mut area).map_err(HeadError::Io)?;
    let len = Head::area(&area[..have]).map_err(HeadError::Damaged)?;
    area.resize(len.max(PAGE as usize), 0);
    let have = if len > PAGE as usize {
        read_up_to(file, 0, &mut area).map_err(HeadError::Io)?
    } else {
        have
    };
    Head::parse(&area[..have]).map_err(HeadError::Damaged)
}

/// Reads until the buffer is full or the file ends.
fn read_up_to(file: &File, at: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], at + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
