//! What all open files of a store share: who we are, the clock, and how full the disk is.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Below this much free room, writes into holes reserve their room first.
const TIGHT: u64 = 128 << 20;
/// How long an answer about free room holds, in milliseconds.
const ROOM_LIFE: u64 = 50;

/// Shared by all open files.
#[derive(Debug)]
pub(super) struct Shared {
    /// The mark of this opening of the store: random, never 0.
    pub(super) mark: u64,
    /// Whether the store had been left in order before this opening: then no page of sums is torn.
    pub(super) clean: bool,
    /// Whether to wait for the disk at all.
    pub(super) durable: bool,
    epoch: Instant,
    room: AtomicU64,
    room_at: AtomicU64,
    /// Told of everything that was brought to the disk.
    #[cfg(test)]
    pub(super) witness: parking_lot::Mutex<Option<Witness>>,
}

/// Who is told of files and directories that were synced.
#[cfg(test)]
pub(super) struct Witness(pub(super) Box<dyn FnMut(&Path) + Send>);

#[cfg(test)]
impl std::fmt::Debug for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Witness")
    }
}

impl Shared {
    pub(super) fn new(mark: u64, clean: bool, durable: bool) -> Self {
        Self {
            mark,
            clean,
            durable,
            epoch: Instant::now(),
            room: AtomicU64::new(0),
            room_at: AtomicU64::new(0),
            #[cfg(test)]
            witness: parking_lot::Mutex::default(),
        }
    }

    /// Brings the data of a file to the disk, and its length.
    pub(super) fn sync_file(&self, file: &File, path: &Path) -> io::Result<()> {
        if self.durable {
            file.sync_data()?;
            self.note_synced(path);
        }
        Ok(())
    }

    /// Brings the entries of a directory to the disk.
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
        if let Some(Witness(tell)) = &mut *self.witness.lock() {
            tell(path);
        }
    }

    /// Milliseconds on a clock that began, for all purposes, long ago.
    pub(super) fn now(&self) -> u64 {
        (1 << 32) + self.epoch.elapsed().as_millis() as u64
    }

    /// Whether the disk is so full that `bytes` more might not fit. An estimate, asked of the system
    /// every now and then; where the system does not say, it is assumed to be.
    pub(super) fn is_tight(&self, file: &File, bytes: u64) -> bool {
        let now = self.now();
        let known = self.room.load(Ordering::Relaxed);
        if now - self.room_at.load(Ordering::Relaxed) <= ROOM_LIFE && known > TIGHT + bytes {
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
