//! What all open files of a store share: who we are, the clock, and how full the disk is.

use std::fs::File;
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
    /// Whether to wait for the disk at all.
    pub(super) durable: bool,
    epoch: Instant,
    room: AtomicU64,
    room_at: AtomicU64,
}

impl Shared {
    pub(super) fn new(mark: u64, durable: bool) -> Self {
        Self { mark, durable, epoch: Instant::now(), room: AtomicU64::new(0), room_at: AtomicU64::new(0) }
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
