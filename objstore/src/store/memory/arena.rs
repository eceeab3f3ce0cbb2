//! The arena: memory that this process fills with chunks and that other processes on this host read. The only file of the
//! memory store with `unsafe`; its counterpart in the reading process is `client/same_host/memory.rs`.
//!
//! Three files without names (`memfd_create`):
//!
//! - the *arena*: blocks of complete pages
//! - the *labels*: a number for each page of the arena. Where a block begins, it is the number of that block, which no
//!   other block has or gets; elsewhere, and where nothing is stored, it is 0
//! - the *pins*, one file for each reading process: the pages (plus 1) of the blocks that it reads at the moment
//!
//! Memory is used again, since new pages cost about ten times as much as the copy into them. A reader must not see that:
//! it writes its pin, and then checks the label; the owner clears the label, and then checks the pins. Both orders are
//! sequentially consistent, so that either the reader finds the label cleared, and reads nothing, or the owner finds the
//! pin, and the block stays as it is until a later look finds no pin.
//!
//! A reading process holds a lock of its file of pins (`F_OFD_SETLK`) until it ends. Pins of one that has ended do not
//! count.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use memmap2::{Advice, MmapOptions, MmapRaw};
use parking_lot::Mutex;

use super::extents::Extents;

/// The unit of the arena, in bytes.
pub(crate) const PAGE: u64 = 4096;
/// Pins of one reading process.
pub(crate) const PINS: usize = 512;
/// Free pages that keep their memory.
const MOST_IDLE: u64 = (512 << 20) / PAGE;
/// Most reading processes.
const MOST_READERS: usize = 1024;
/// A reader that has not locked its pins after this time has ended.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// The memory of a memory store.
#[derive(Debug)]
pub(super) struct Arena {
    file: File,
    bytes: MmapRaw,
    labels_file: File,
    labels: MmapRaw,
    state: Mutex<State>,
    /// The number of the next block.
    next: AtomicU64,
    /// Pages in blocks.
    used: AtomicU64,
    pages: u64,
}

#[derive(Debug)]
struct State {
    extents: Extents,
    /// About how many free pages have memory.
    idle: u64,
    /// Pages of blocks that were freed while they were read: start and number.
    pinned: Vec<(u64, u64)>,
    readers: Vec<Reader>,
    /// The blocks, by their first page.
    blocks: BTreeMap<u64, Weak<Block>>,
}

#[derive(Debug)]
struct Reader {
    file: File,
    pins: MmapRaw,
    since: Instant,
}

/// Some pages of the arena.
#[derive(Debug)]
pub(super) struct Block {
    arena: Arc<Arena>,
    page: u64,
    pages: u64,
    number: u64,
}

/// Bytes in the arena, which do not change any more. A store takes them as a chunk without a copy.
#[derive(Debug, Clone)]
pub struct MemoryBytes {
    block: Arc<Block>,
    at: usize,
    len: usize,
}

/// Where bytes of the arena are, for a reading process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MemoryPlace {
    /// The first page of the block.
    pub page: u64,
    /// The number of the block, which its label has.
    pub block: u64,
    /// The offset in the arena.
    pub at: u64,
    /// The length.
    pub len: u64,
}

/// The files of an arena for a reading process.
#[derive(Debug)]
pub struct MemoryFiles {
    /// The arena, for reading.
    pub arena: File,
    /// The labels, for reading.
    pub labels: File,
    /// Pins of this process.
    pub pins: File,
}

/// A file in memory of this length, which cannot be changed.
fn memory_file(len: u64) -> io::Result<File> {
    // SAFETY: a name that ends with 0; the descriptor is new, and owned by the `File`.
    let file = unsafe {
        let fd = libc::memfd_create(
            c"slabfs".as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
        );
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from_raw_fd(fd)
    };
    file.set_len(len)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: an open file, and no memory.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens a file in memory another time: it then has locks of its own.
fn reopened(file: &File, writes: bool) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(writes).open(path)
}

/// Whether a process holds the lock of a file of pins.
fn is_locked(file: &File) -> io::Result<bool> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: `lock` is a valid structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) } {
        0 => Ok(libc::c_int::from(lock.l_type) != libc::F_UNLCK),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number at a place of a mapping of numbers.
///
/// # Panics
/// If it lies outside.
pub(crate) fn number(map: &MmapRaw, at: usize) -> &AtomicU64 {
    assert!(at < map.len() / size_of::<AtomicU64>());
    // SAFETY: it lies in the mapping, which exists as long as the reference, and is aligned, since mappings are. All
    // accesses to these mappings are atomic.
    unsafe { AtomicU64::from_ptr(map.as_mut_ptr().cast::<u64>().add(at)) }
}

impl Arena {
    /// An arena of this size, which takes memory only as it is used.
    pub(super) fn new(size: u64) -> io::Result<Arena> {
        let pages = size.div_ceil(PAGE).max(1);
        let file = memory_file(pages * PAGE)?;
        let bytes = MmapOptions::new().map_raw(&file)?;
        if let Err(error) = bytes.advise(Advice::HugePage) {
            tracing::debug!(%error, "memory of coupled objects has small pages");
        }
        let labels_file = memory_file(pages * size_of::<u64>() as u64)?;
        let labels = MmapOptions::new().map_raw(&labels_file)?;
        Ok(Arena {
            file,
            bytes,
            labels_file,
            labels,
            state: Mutex::new(State {
                extents: Extents::new(pages),
                idle: 0,
                pinned: Vec::new(),
                readers: Vec::new(),
                blocks: BTreeMap::new(),
            }),
            next: AtomicU64::new(1),
            used: AtomicU64::new(0),
            pages,
        })
    }

    /// Its size in bytes, and how many of them are used.
    pub(super) fn space(&self) -> (u64, u64) {
        (self.pages * PAGE, self.used.load(Ordering::Relaxed) * PAGE)
    }

    /// The files for another reading process.
    pub(super) fn files(&self) -> io::Result<MemoryFiles> {
        let pins_file = memory_file((PINS * size_of::<u64>()) as u64)?;
        let pins = MmapOptions::new().map_raw(&pins_file)?;
        let files = MemoryFiles {
            arena: reopened(&self.file, false)?,
            labels: reopened(&self.labels_file, false)?,
            pins: reopened(&pins_file, true)?,
        };
        let mut state = self.state.lock();
        state.remove_ended();
        if state.readers.len() >= MOST_READERS {
            return Err(io::Error::other("too many processes read this memory"));
        }
        state.readers.push(Reader {
            file: pins_file,
            pins,
            since: Instant::now(),
        });
        Ok(files)
    }

    fn at(&self, byte: usize) -> NonNull<u8> {
        // SAFETY: callers give offsets of blocks, which lie in the mapping.
        unsafe { NonNull::new_unchecked(self.bytes.as_mut_ptr().add(byte)) }
    }

    fn take(self: &Arc<Self>, len: usize) -> Option<Block> {
        let pages = (len as u64).div_ceil(PAGE).max(1);
        let mut state = self.state.lock();
        state.settle_pinned(&self.file);
        let page = state.extents.take(pages)?;
        state.idle = state.idle.saturating_sub(pages);
        drop(state);
        self.used.fetch_add(pages, Ordering::Relaxed);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Some(Block {
            arena: Arc::clone(self),
            page,
            pages,
            number,
        })
    }

    /// New bytes, copied from these; `None` if there is no room.
    pub(super) fn copy<'a>(
        self: &Arc<Self>,
        len: usize,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Option<MemoryBytes> {
        let block = self.take(len)?;
        let start = (block.page * PAGE) as usize;
        let mut done = 0;
        for part in parts {
            assert!(part.len() <= len - done, "more bytes than announced");
            // SAFETY: the block has room for `len` bytes, of which `done` are written. It has no label, so that no other
            // process reads it, and no other bytes of this process are there.
            unsafe {
                let to = self.at(start + done).as_ptr();
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
            }
            done += part.len();
        }
        assert_eq!(done, len, "fewer bytes than announced");
        Some(self.share(block, len))
    }

    /// From now on other processes may read a block, and it is not written to.
    fn share(&self, block: Block, len: usize) -> MemoryBytes {
        number(&self.labels, block.page as usize).store(block.number, Ordering::SeqCst);
        let block = Arc::new(block);
        let mut state = self.state.lock();
        state.blocks.insert(block.page, Arc::downgrade(&block));
        drop(state);
        MemoryBytes { block, at: 0, len }
    }

    /// These bytes, if they are in the arena and of one block.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<MemoryBytes> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize)?;
        let (from, len) = (offset as u64, bytes.len() as u64);
        if bytes.is_empty() || from + len > self.pages * PAGE {
            return None;
        }
        let state = self.state.lock();
        let (_, block) = state.blocks.range(..=from / PAGE).next_back()?;
        let block = block.upgrade()?;
        drop(state);
        let at = from - block.page * PAGE;
        (at + len <= block.pages * PAGE).then_some(MemoryBytes {
            block,
            at: at as usize,
            len: bytes.len(),
        })
    }

    fn release(&self, block: &Block) {
        number(&self.labels, block.page as usize).store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.used.fetch_sub(block.pages, Ordering::Relaxed);
        let mut state = self.state.lock();
        if let Some(known) = state.blocks.get(&block.page)
            && known.strong_count() == 0
        {
            state.blocks.remove(&block.page);
        }
        match state.is_pinned(block.page) {
            true => state.pinned.push((block.page, block.pages)),
            false => state.free(&self.file, block.page, block.pages),
        }
        state.settle_pinned(&self.file);
    }
}

impl State {
    /// Whether a process reads the block that begins at this page.
    fn is_pinned(&mut self, page: u64) -> bool {
        let pins = |reader: &Reader| {
            (0..PINS).any(|at| number(&reader.pins, at).load(Ordering::SeqCst) == page + 1)
        };
        if !self.readers.iter().any(pins) {
            return false;
        }
        self.remove_ended();
        self.readers.iter().any(pins)
    }

    /// Forgets processes that have ended.
    fn remove_ended(&mut self) {
        self.readers.retain(|reader| {
            // If it cannot be determined, the process counts as alive.
            is_locked(&reader.file).unwrap_or(true) || reader.since.elapsed() < STARTS_WITHIN
        });
    }

    /// Frees the blocks that were read when they were freed, and are not any more.
    fn settle_pinned(&mut self, arena: &File) {
        for (page, pages) in std::mem::take(&mut self.pinned) {
            match self.is_pinned(page) {
                true => self.pinned.push((page, pages)),
                false => self.free(arena, page, pages),
            }
        }
    }

    fn free(&mut self, arena: &File, page: u64, pages: u64) {
        self.extents.give(page, pages);
        if self.idle + pages <= MOST_IDLE {
            self.idle += pages;
            return;
        }
        let (from, len) = ((page * PAGE) as i64, (pages * PAGE) as i64);
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: an open file. No reference to these bytes exists: the block is free.
        if unsafe { libc::fallocate(arena.as_raw_fd(), how, from, len) } != 0 {
            tracing::debug!(error = %io::Error::last_os_error(), "memory of coupled objects is free, and not returned");
            self.idle += pages;
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.arena.release(self);
    }
}

impl MemoryBytes {
    /// Where they are, for another process.
    pub(super) fn place(&self) -> MemoryPlace {
        MemoryPlace {
            page: self.block.page,
            block: self.block.number,
            at: self.block.page * PAGE + self.at as u64,
            len: self.len as u64,
        }
    }

    /// A part of them.
    ///
    /// # Panics
    /// If it lies outside.
    #[must_use]
    pub fn part(&self, from: usize, to: usize) -> MemoryBytes {
        assert!(from <= to && to <= self.len);
        MemoryBytes {
            block: Arc::clone(&self.block),
            at: self.at + from,
            len: to - from,
        }
    }
}

impl Deref for MemoryBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = (self.block.page * PAGE) as usize + self.at;
        // SAFETY: they lie in the block, which exists, and is not written to since it was shared.
        unsafe { std::slice::from_raw_parts(self.block.arena.at(start).as_ptr(), self.len) }
    }
}
