//! Counts the pages that the kernel sends to be written, so that an unmount can wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pages that the kernel sends to be written.
#[derive(Debug, Default)]
pub(super) struct PageWrites {
    came: AtomicU64,
    under_way: AtomicU64,
}

/// A write of pages that has not ended.
pub(super) struct PageWrite(Arc<PageWrites>);

impl PageWrites {
    /// One has come; it ends when what this gives is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> PageWrite {
        self.came.fetch_add(1, Relaxed);
        self.under_way.fetch_add(1, Relaxed);
        PageWrite(self.clone())
    }

    /// How many have come.
    pub(super) fn came(&self) -> u64 {
        self.came.load(Relaxed)
    }

    /// Whether one has not ended.
    pub(super) fn are_under_way(&self) -> bool {
        self.under_way.load(Relaxed) > 0
    }
}

impl Drop for PageWrite {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}
