//! State shared by all open files of a store: the mark of this opening, a clock, and an estimate of free space, and
//! blocks that were decoded.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::decoded::Decoded;

/// Below this much free space, writes into holes reserve their space first.
const TIGHT: u64 = 128 << 20;
/// How long a `statvfs` result is valid, in milliseconds.
const ROOM_VALID_MS: u64 = 50;

/// Shared by all open files.
#[derive(Debug)]
pub(super) struct Shared {
    /// The mark of this opening of the store: random, never 0.
    pub(super) mark: u64,
    /// The write verifier.
    pub(super) verifier: u64,
    /// Whether the store was closed cleanly before this opening: then no checksum page is torn.
    pub(super) clean: bool,
    /// Whether to sync at all.
    pub(super) durable: bool,
    pub(super) decoded: Decoded,
    epoch: Instant,
    room: AtomicU64,
    room_at: AtomicU64,
    /// Called for every file and directory that was synced.
    #[cfg(test)]
    pub(super) witness: parking_lot::Mutex<Option<Witness>>,
}

/// A callback for files and directories that were synced.
#[cfg(test)]
pub(super) struct Witness(pub(super) Box<dyn FnMut(&Path) + Send>);

#[cfg(test)]
impl std::fmt::Debug for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Witness")
    }
}

impl Shared {
    pub(super) fn new((mark, verifier): (u64, u64), clean: bool, durable: bool) -> Self {
        Self {
            mark,
            verifier,
            clean,
            durable,
            decoded: Decoded::default(),
            epoch: Instant::now(),
            room: AtomicU64::new(0),
            room_at: AtomicU64::new(0),
            #[cfg(test)]
            witness: parking_lot::Mutex::default(),
        }
    }

    /// Syncs a file's data and length (`fdatasync`).
    pub(super) fn sync_file(&self, file: &File, path: &Path) -> io::Result<()> {
        if self.durable {
            file.sync_data()?;
            self.note_synced(path);
        }
        Ok(())
    }

    /// Returns the error of an earlier write to the disk, if there was one. (`sync_file_range` reports it as `fdatasync`
    /// does, without flushing the disk's cache.)
    pub(super) fn check_written(&self, file: &File, path: &Path) -> io::Result<()> {
        let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        // SAFETY: an open file, and no memory.
        let done = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, all) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        self.note_synced(path);
        Ok(())
    }

    /// Syncs the entries of a directory.
    pub(super) fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.durable {
            match File::open(path).and_then(|dir| dir.sync_all()) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
            self.note_synced(path);
        }
        Ok(())
    }

    #[cfg(not(test))]
    fn note_synced(&self, _path: &Path) {}

    #[cfg(test)]
    fn note_synced(&self, path: &Path) {
        if let Some(Witness(notify)) = &mut *self.witness.lock() {
            notify(path);
        }
    }

    /// Milliseconds on a monotonic clock that starts far from 0.
    pub(super) fn now(&self) -> u64 {
        (1 << 32) + self.epoch.elapsed().as_millis() as u64
    }

    /// Whether the disk is so full that `bytes` more might not fit. An estimate, refreshed from `statvfs` now and then;
    /// if that fails, the disk is assumed to be full.
    pub(super) fn is_tight(&self, file: &File, bytes: u64) -> bool {
        let now = self.now();
        let known = self.room.load(Ordering::Relaxed);
        if now - self.room_at.load(Ordering::Relaxed) <= ROOM_VALID_MS && known > TIGHT + bytes {
            self.room.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        let Ok(stat) = nix::sys::statvfs::fstatvfs(file) else {
            return true;
        };
        let free = stat.blocks_available() * stat.fragment_size();
        self.room.store(free, Ordering::Relaxed);
        self.room_at.store(now, Ordering::Relaxed);
        free <= TIGHT + bytes
    }
}
