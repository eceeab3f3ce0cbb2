//! Buffers for bytes that outlive the request they came with.
//!
//! fuser provides the bytes of a write as a slice of its own buffer, so a write that another thread executes must be
//! copied. Fresh memory costs a page fault per 4 KiB, so idle buffers are cached and reused, the most recent one
//! first: it is still in the processor's cache. The cache is bounded.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

/// Bytes that all idle buffers together may hold.
const IDLE_LIMIT: usize = 16 << 20;
/// Smaller buffers are not worth caching.
const LEAST: usize = 16 << 10;

/// The idle buffers of a mount.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// A copy of some bytes. Dropping it returns its memory to the cache.
#[derive(Debug)]
pub(super) struct Copied {
    bytes: Vec<u8>,
    owner: Arc<Buffers>,
}

impl Buffers {
    /// An empty buffer; a new one has room for `len` bytes.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> Copied {
        let cached = (len >= LEAST)
            .then(|| {
                let mut idle = self.idle.lock();
                let buffer = idle.buffers.pop()?;
                idle.bytes -= buffer.capacity();
                Some(buffer)
            })
            .flatten();
        Copied {
            bytes: cached.unwrap_or_else(|| Vec::with_capacity(len)),
            owner: self.clone(),
        }
    }

    /// A copy of `bytes`.
    pub(super) fn copy(self: &Arc<Self>, bytes: &[u8]) -> Copied {
        let mut copied = self.take(bytes.len());
        copied.append(bytes);
        copied
    }
}

impl Copied {
    /// Appends `bytes`.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Resizes the buffer to exactly `len` bytes, for the caller to overwrite.
    pub(super) fn sized(&mut self, len: usize) -> &mut [u8] {
        self.bytes.resize(len, 0);
        &mut self.bytes
    }

    /// Discards the bytes and retains the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }
}

impl Deref for Copied {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.bytes);
        let mut idle = self.owner.idle.lock();
        if buffer.capacity() >= LEAST && idle.bytes + buffer.capacity() <= IDLE_LIMIT {
            buffer.clear();
            idle.bytes += buffer.capacity();
            idle.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_reused_without_its_bytes() {
        let buffers = Arc::new(Buffers::default());
        let first = buffers.copy(&[1; 100_000]);
        let address = first.as_ptr();
        drop(first);
        let second = buffers.copy(&[2; 50_000]);
        assert_eq!(second.as_ptr(), address);
        assert_eq!(&second[..], &[2; 50_000]);
        assert!(buffers.idle.lock().buffers.is_empty());
    }

    #[test]
    fn idle_memory_is_bounded() {
        let buffers = Arc::new(Buffers::default());
        let many: Vec<_> = (0..64).map(|_| buffers.copy(&[0; 1 << 20])).collect();
        drop(many);
        assert!(buffers.idle.lock().bytes <= IDLE_LIMIT);
        drop(buffers.copy(&[0; 10]));
        assert!(buffers.idle.lock().bytes <= IDLE_LIMIT);
    }
}
