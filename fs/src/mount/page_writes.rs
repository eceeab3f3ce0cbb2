//! Counts the kernel's writes of mapped pages, so that an unmount can wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of page writes, begun and in progress.
#[derive(Debug, Default)]
pub(super) struct PageWrites {
    came: AtomicU64,
    under_way: AtomicU64,
}

/// A page write in progress; dropping this ends it.
pub(super) struct PageWrite(Arc<PageWrites>);

impl PageWrites {
    /// Counts a page write; it ends when the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> PageWrite {
        self.came.fetch_add(1, Relaxed);
        self.under_way.fetch_add(1, Relaxed);
        PageWrite(self.clone())
    }

    /// How many page writes have begun.
    pub(super) fn came(&self) -> u64 {
        self.came.load(Relaxed)
    }

    /// Whether a page write is in progress.
    pub(super) fn are_under_way(&self) -> bool {
        self.under_way.load(Relaxed) > 0
    }
}

impl Drop for PageWrite {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}
