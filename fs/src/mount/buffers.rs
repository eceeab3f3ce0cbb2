//! Buffers for bytes that outlive the request they came with.
//!
//! fuser lends the bytes of a write out of its own buffer, so a write that is handed to another thread must
//! be copied. Fresh memory from the system costs a page fault each 4 KiB, so buffers are kept and used
//! again, the last one first: it is still in the processor's cache. What is kept is bounded.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

/// Bytes kept for later, over all idle buffers.
const KEPT: usize = 16 << 20;
/// Smaller buffers are not worth keeping.
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

/// A copy of some bytes; its memory goes back when it is dropped.
#[derive(Debug)]
pub(super) struct Copied {
    bytes: Vec<u8>,
    owner: Arc<Buffers>,
}

impl Buffers {
    /// An empty buffer; with room for `len` bytes if it has to be made.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> Copied {
        let kept = (len >= LEAST)
            .then(|| {
                let mut idle = self.idle.lock();
                let buffer = idle.buffers.pop()?;
                idle.bytes -= buffer.capacity();
                Some(buffer)
            })
            .flatten();
        Copied {
            bytes: kept.unwrap_or_else(|| Vec::with_capacity(len)),
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
    /// Puts `bytes` behind those it has.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Exactly `len` bytes, to be written over.
    pub(super) fn sized(&mut self, len: usize) -> &mut [u8] {
        self.bytes.resize(len, 0);
        &mut self.bytes
    }

    /// Forgets the bytes, keeps the memory.
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
        if buffer.capacity() >= LEAST && idle.bytes + buffer.capacity() <= KEPT {
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
    fn memory_comes_back_and_bytes_do_not() {
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
    fn what_is_kept_is_bounded() {
        let buffers = Arc::new(Buffers::default());
        let many: Vec<_> = (0..64).map(|_| buffers.copy(&[0; 1 << 20])).collect();
        drop(many);
        assert!(buffers.idle.lock().bytes <= KEPT);
        drop(buffers.copy(&[0; 10]));
        assert!(buffers.idle.lock().bytes <= KEPT);
    }
}
