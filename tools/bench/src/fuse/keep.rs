//! The storage of a file's bytes: none, or one copy in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::FsKind;
use super::settings::MAX_WRITE;

/// Bytes of one block; a request that begins at a block touches one.
const BLOCK: usize = MAX_WRITE as usize;

type Block = Arc<RwLock<Box<[u8]>>>;

/// The bytes of one file.
pub(super) struct Bytes {
    kind: FsKind,
    size: AtomicU64,
    blocks: RwLock<Vec<Option<Block>>>,
}

impl Bytes {
    /// Of an empty file.
    pub(super) fn new(kind: FsKind) -> Bytes {
        Bytes {
            kind,
            size: AtomicU64::new(0),
            blocks: RwLock::new(Vec::new()),
        }
    }

    /// The size of the file.
    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Truncates or extends; new bytes read as zeros.
    pub(super) fn resize(&self, size: u64) {
        let mut blocks = self.blocks.write();
        self.size.store(size, Ordering::Relaxed);
        let count = usize::try_from(size.div_ceil(BLOCK as u64)).unwrap_or(usize::MAX);
        blocks.truncate(count);
        let rest = (size % BLOCK as u64) as usize;
        if let Some(Some(last)) = blocks.get(count.wrapping_sub(1))
            && rest > 0
        {
            last.write()[rest..].fill(0);
        }
    }

    /// Writes `data` at `offset`.
    pub(super) fn write(&self, offset: u64, data: &[u8]) {
        if self.kind == FsKind::Memory {
            let mut at = offset;
            let mut rest = data;
            while !rest.is_empty() {
                let within = (at % BLOCK as u64) as usize;
                let (part, tail) = rest.split_at(rest.len().min(BLOCK - within));
                let block = self.block_for_write((at / BLOCK as u64) as usize);
                block.write()[within..within + part.len()].copy_from_slice(part);
                at += part.len() as u64;
                rest = tail;
            }
        }
        self.size
            .fetch_max(offset + data.len() as u64, Ordering::Relaxed);
    }

    fn block_for_write(&self, index: usize) -> Block {
        if let Some(Some(block)) = self.blocks.read().get(index) {
            return Arc::clone(block);
        }
        let fresh: Block = Arc::new(RwLock::new(vec![0; BLOCK].into_boxed_slice()));
        let mut blocks = self.blocks.write();
        if blocks.len() <= index {
            blocks.resize(index + 1, None);
        }
        Arc::clone(blocks[index].get_or_insert(fresh))
    }

    /// Hands up to `len` bytes from `offset` to `give`, without a copy if they are contiguous.
    pub(super) fn read(&self, offset: u64, len: usize, give: impl FnOnce(&[u8])) {
        let end = self.size().min(offset.saturating_add(len as u64));
        let len = end.saturating_sub(offset) as usize;
        if len == 0 {
            return give(&[]);
        }
        let zeros = zeros();
        if self.kind == FsKind::Null && len <= zeros.len() {
            return give(&zeros[..len]);
        }
        let (first, within) = (
            (offset / BLOCK as u64) as usize,
            (offset % BLOCK as u64) as usize,
        );
        let blocks = self.blocks.read();
        if within + len <= BLOCK {
            match blocks.get(first).cloned().flatten() {
                Some(block) => {
                    drop(blocks);
                    give(&block.read()[within..within + len]);
                }
                None => give(&zeros[..len]),
            }
            return;
        }
        let mut out = vec![0; len];
        let mut done = 0;
        while done < len {
            let at = offset as usize + done;
            let (index, within) = (at / BLOCK, at % BLOCK);
            let part = (len - done).min(BLOCK - within);
            if let Some(Some(block)) = blocks.get(index) {
                out[done..done + part].copy_from_slice(&block.read()[within..within + part]);
            }
            done += part;
        }
        drop(blocks);
        give(&out);
    }
}

/// One buffer of zeros whose pages are allocated already: a new one would cost page faults per request.
fn zeros() -> &'static [u8] {
    static ZEROS: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    ZEROS.get_or_init(|| {
        let mut buffer = vec![1; BLOCK];
        buffer.fill(0);
        buffer
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &Bytes, offset: u64, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        bytes.read(offset, len, |part| out.extend_from_slice(part));
        out
    }

    #[test]
    fn memory_stores_written_data() {
        let bytes = Bytes::new(FsKind::Memory);
        let at = BLOCK as u64 - 3;
        bytes.write(at, b"abcdef");
        assert_eq!(bytes.size(), at + 6);
        assert_eq!(read(&bytes, at, 100), b"abcdef");
        assert_eq!(read(&bytes, 0, 2), [0, 0]);
        bytes.resize(at + 2);
        bytes.resize(at + 6);
        assert_eq!(read(&bytes, at, 100), b"ab\0\0\0\0");
        assert_eq!(read(&bytes, at + 6, 1), b"");
    }

    #[test]
    fn null_stores_only_the_size() {
        let bytes = Bytes::new(FsKind::Null);
        bytes.write(10, b"abc");
        assert_eq!(bytes.size(), 13);
        assert_eq!(read(&bytes, 10, 100), [0, 0, 0]);
    }
}
