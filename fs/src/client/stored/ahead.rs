//! Strided read-ahead: small reads at equal steps are fetched many at a time.
//!
//! An MPI library reads a box of an array, or every n-th piece, with one `pread` a piece: of one length, at equal
//! distances. From the third such read of a handle on, missing data is fetched as one selection (`layout::ladder`) of
//! 256 KiB or 64 pieces, whichever is less; each time that was read to its end, the next is twice as large, up to 4 MiB
//! or 8192 pieces. That is the handle's *window*; reads that lie in one of its pieces are served from it. A jump
//! between two similar runs of reads (the planes of a box of three axes) is assumed to begin another such run.
//!
//! A window holds committed bytes only, as the block cache does, and is invalidated in the same way: it was read at an
//! epoch of the object, and every change of committed bytes, or loss of the right to read them, advances the epoch. The
//! overlay of this mount is checked before the window. No right is held for bytes read ahead: a later read of them
//! acquires its right first, and a grant advances the epoch.
//!
//! The windows of a mount share a limit, half of `--cache`: with many readers each has less; the oldest is dropped
//! first.
//!
//! Deliberately not here: consecutive reads (small ones come in blocks, large ones gain nothing), and prefetching
//! before a request.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use slabfs_model::layout::ladder;
use slabfs_model::{Fill, Hyperslab};

use crate::client::handle::Handle;
use crate::client::handle::writer::HandleId;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;

/// Minimum and maximum size of a handle's window in bytes.
const FIRST: u64 = 256 << 10;
const MOST: u64 = 4 << 20;
/// Minimum and maximum size in pieces: for a single byte, a server reads and checksums a block, so with small pieces
/// the cost of a wasted read is counted in pieces.
const FIRST_PIECES: u64 = 64;
const MOST_PIECES: u64 = 8192;

/// Number of consecutive equal steps after which the next one is predicted.
const ENOUGH: u32 = 2;

/// Pieces at equal steps, as committed at an epoch of the object.
#[derive(Debug)]
pub(in crate::client) struct Window {
    of: HandleId,
    epoch: u64,
    /// The first byte of the first piece.
    first: u64,
    /// Bytes of a piece.
    len: u64,
    /// Distance between the starts of two pieces.
    step: u64,
    /// The pieces, concatenated.
    bytes: Vec<u8>,
}

impl Window {
    fn find(&self, offset: u64, len: usize) -> Option<Range<usize>> {
        let from = offset.checked_sub(self.first)?;
        let (piece, within) = (from / self.step, from % self.step);
        if within + len as u64 > self.len {
            return None;
        }
        let at = usize::try_from(piece.checked_mul(self.len)? + within).ok()?;
        let end = at.checked_add(len)?;
        (end <= self.bytes.len()).then_some(at..end)
    }
}

/// The windows of all handles.
#[derive(Debug)]
pub(in crate::client) struct Windows {
    /// At most one per handle, the oldest first.
    held: Mutex<VecDeque<Arc<Window>>>,
    /// Maximum total size in bytes.
    limit: u64,
}

impl Windows {
    /// Windows of at most `limit` bytes in all.
    pub(in crate::client) fn new(limit: u64) -> Windows {
        Windows {
            held: Mutex::default(),
            limit,
        }
    }

    /// Removes a handle's window; returns its buffer, if no reader uses it, and the maximum size of the next one.
    fn take(&self, of: HandleId) -> (Vec<u8>, u64) {
        let mut held = self.held.lock();
        let at = held.iter().position(|window| window.of == of);
        let old = at.and_then(|at| held.remove(at));
        let share = self.limit / (held.len() as u64 + 1);
        drop(held);
        let bytes = old.and_then(|old| Arc::try_unwrap(old).ok());
        (bytes.map(|old| old.bytes).unwrap_or_default(), share)
    }

    fn put(&self, window: Arc<Window>) {
        let mut held = self.held.lock();
        held.push_back(window);
        let mut bytes: u64 = held.iter().map(|window| window.bytes.len() as u64).sum();
        while bytes > self.limit && held.len() > 1 {
            bytes -= held.pop_front().map_or(0, |old| old.bytes.len() as u64);
        }
    }

    /// Drops the window of a handle that is closed.
    pub(in crate::client) fn forget(&self, of: HandleId) {
        self.held.lock().retain(|window| window.of != of);
    }
}

/// The read pattern of a handle, and its window.
#[derive(Debug, Default)]
pub(in crate::client) struct Ahead(Mutex<Pattern>);

/// The recent reads.
#[derive(Debug, Default)]
struct Pattern {
    at: u64,
    len: u64,
    /// Distance from the last read but one to the last.
    step: u64,
    /// Number of consecutive repetitions of that step.
    steps: u32,
    /// Reads expected to remain in this run, if it follows a similar one.
    left: Option<u64>,
    /// Reads of this run.
    run: u64,
    /// The end of the window, and its size.
    end: u64,
    size: u64,
    window: Weak<Window>,
}

impl Pattern {
    /// Records a read.
    fn note(&mut self, at: u64, len: u64) {
        if at == self.at && len == self.len {
            return;
        }
        let step = at.checked_sub(self.at).filter(|_| len == self.len);
        match step {
            Some(step) if step == self.step => {
                self.steps = self.steps.saturating_add(1);
                self.run += 1;
                self.left = self.left.map(|left| left.saturating_sub(1));
            }
            // Another run like the one before.
            Some(_) if self.steps >= ENOUGH && self.left.is_none_or(|left| left <= 1) => {
                self.left = Some(self.run);
                self.run = 1;
                self.end = at;
            }
            Some(step) => {
                self.step = step;
                self.steps = 1;
                self.run = 2;
                self.left = None;
            }
            None => {
                *self = Pattern {
                    len,
                    run: 1,
                    window: std::mem::take(&mut self.window),
                    ..Pattern::default()
                };
            }
        }
        self.at = at;
    }

    /// The step of the predicted reads, and the size of a window that begins with this one; `None` if no step is
    /// predicted or the reads have no gaps.
    fn wish(&self) -> Option<(u64, u64)> {
        if self.steps < ENOUGH || self.step <= self.len || self.len == 0 {
            return None;
        }
        let first = FIRST.min(self.len.saturating_mul(FIRST_PIECES));
        let most = MOST.min(self.len.saturating_mul(MOST_PIECES));
        let size = match self.end == self.at {
            true => (self.size * 2).clamp(first, most),
            false => first,
        };
        let left = self.left.map_or(u64::MAX, |left| left * self.len);
        Some((self.step, size.min(left)))
    }
}

impl Ahead {
    fn window(&self, object: &Object) -> Option<Arc<Window>> {
        let window = self.0.lock().window.upgrade()?;
        (window.epoch == object.epoch.load(Ordering::Acquire)).then_some(window)
    }
}

impl Handle {
    /// Whether a read would be served from the window. Ignores the overlay.
    pub(in crate::client) fn is_ahead(&self, offset: u64, len: usize) -> bool {
        let window = self.ahead.window(&self.object);
        window.is_some_and(|window| window.find(offset, len).is_some())
    }

    /// The window with the bytes of this read, and their range in it: the existing window, or a new one if the previous
    /// reads justify it. The caller has begun the read, and `len` ends within `size`.
    pub(in crate::client) fn ahead(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        len: usize,
    ) -> Option<(Arc<Window>, Range<usize>)> {
        if self.client.local() || self.selected.is_some() || self.object.coupled.in_memory() {
            return None;
        }
        self.ahead.0.lock().note(offset, len as u64);
        let object = &*self.object;
        let end = offset + len as u64;
        {
            let state = object.state.lock();
            let overlay = state.taken.is_some() || !state.streams.is_empty();
            if overlay || state.runs.overlaps(offset, end) {
                return None;
            }
        }
        // After checking the overlay: a flush since then has advanced the epoch.
        if let Some(window) = self.ahead.window(object)
            && let Some(range) = window.find(offset, len)
        {
            return Some((window, range));
        }
        let wish = self.ahead.0.lock().wish();
        let (step, bytes) = wish?;
        if self.client.cache().holds(object, offset, end) {
            return None;
        }
        let (mut buffer, share) = self.client.windows().take(self.id);
        let count = bytes.min(share) / len as u64;
        let cells = geometry.cells_at(size);
        let (slab, pieces) = ladder(&cells, offset, len as u64, step, count)?;
        if !can_be_filled(&slab, &geometry.info.fill) {
            return None;
        }
        let epoch = object.epoch.load(Ordering::Acquire);
        buffer.resize(len * pieces as usize, 0);
        let read = self
            .client
            .read_committed(object, geometry, &slab, &mut buffer);
        if let Err(error) = read {
            // The error may concern data outside this read: the direct read finds out.
            tracing::debug!(object = %object.ino, %error, "not read ahead");
            return None;
        }
        let window = Arc::new(Window {
            of: self.id,
            epoch,
            first: offset,
            len: len as u64,
            step,
            bytes: buffer,
        });
        {
            let mut pattern = self.ahead.0.lock();
            pattern.end = offset + pieces * step;
            pattern.size = window.bytes.len() as u64;
            pattern.window = Arc::downgrade(&window);
        }
        self.client.windows().put(window.clone());
        Some((window, 0..len))
    }
}

/// Whether holes in a selection can be filled: in packed pieces of elements it is unknown which bytes of an element
/// they are. All bytes of most fill values are equal.
fn can_be_filled(slab: &Hyperslab, fill: &Fill) -> bool {
    let elem = fill.bytes().len() as u64;
    fill.uniform_byte().is_some()
        || slab.axes.last().is_none_or(|axis| {
            axis.count == 1 || axis.stride.is_multiple_of(elem) && axis.block.is_multiple_of(elem)
        })
}

impl Window {
    /// Its bytes in this range.
    pub(in crate::client) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pattern: &mut Pattern, reads: impl IntoIterator<Item = u64>) -> Option<(u64, u64)> {
        for at in reads {
            pattern.note(at, 10);
        }
        pattern.wish()
    }

    // With pieces of 10 bytes.
    const FIRST_OF_SMALL: u64 = 10 * FIRST_PIECES;
    const MOST_OF_SMALL: u64 = 10 * MOST_PIECES;

    #[test]
    fn equal_steps_are_learned_and_forgotten() {
        let mut pattern = Pattern::default();
        assert_eq!(read(&mut pattern, [500, 600]), None);
        assert_eq!(read(&mut pattern, [700]), Some((100, FIRST_OF_SMALL)));
        // Repeating a read changes nothing.
        assert_eq!(read(&mut pattern, [700]), Some((100, FIRST_OF_SMALL)));
        // After reading to the end of a window, the next one is larger.
        (pattern.end, pattern.size) = (800, FIRST_OF_SMALL);
        assert_eq!(read(&mut pattern, [800]), Some((100, 2 * FIRST_OF_SMALL)));
        (pattern.end, pattern.size) = (900, MOST_OF_SMALL);
        assert_eq!(read(&mut pattern, [900]), Some((100, MOST_OF_SMALL)));
        // Backwards, with another length, without gaps.
        assert_eq!(read(&mut pattern, [100]), None);
        assert_eq!(read(&mut pattern, [200, 300]), Some((100, FIRST_OF_SMALL)));
        pattern.note(400, 11);
        assert_eq!(pattern.wish(), None);
        assert_eq!(read(&mut pattern, [0, 10, 20, 30]), None);
    }

    /// The cost of a window for a server depends on its bytes if pieces are large, and on its pieces if they are small.
    #[test]
    fn windows_are_limited_in_bytes_and_in_pieces() {
        for (len, first, most) in [
            (1, 64, 8192),
            (512, 64 * 512, 4 << 20),
            (4096, 256 << 10, 4 << 20),
            (100_000, 256 << 10, 4 << 20),
        ] {
            let mut pattern = Pattern::default();
            for at in 0..3 {
                pattern.note(at << 20, len);
            }
            assert_eq!(pattern.wish(), Some((1 << 20, first)), "of {len} bytes");
            for at in 3..30 {
                (pattern.end, pattern.size) = (at << 20, pattern.wish().unwrap().1);
                pattern.note(at << 20, len);
            }
            assert_eq!(pattern.wish(), Some((1 << 20, most)), "of {len} bytes");
        }
    }

    #[test]
    fn a_jump_begins_a_run_of_the_same_length() {
        let mut pattern = Pattern::default();
        read(&mut pattern, [0, 100, 200, 300]);
        assert_eq!(read(&mut pattern, [1000]), Some((100, 40)));
        assert_eq!(read(&mut pattern, [1100]), Some((100, 30)));
        assert_eq!(read(&mut pattern, [1200, 1300]), Some((100, 10)));
        assert_eq!(read(&mut pattern, [2000]), Some((100, 40)));
        // The prediction was wrong: no reads are predicted until a new step is learned.
        assert_eq!(read(&mut pattern, [2070]), None);
        assert_eq!(read(&mut pattern, [2140]), Some((70, FIRST_OF_SMALL)));
    }

    fn window(of: u64, bytes: usize) -> Arc<Window> {
        Arc::new(Window {
            of: HandleId(of),
            epoch: 0,
            first: 1000,
            len: 10,
            step: 100,
            bytes: vec![0; bytes],
        })
    }

    #[test]
    fn a_window_contains_only_its_pieces() {
        let window = window(1, 30);
        assert_eq!(window.find(1000, 10), Some(0..10));
        assert_eq!(window.find(1203, 5), Some(23..28));
        for (offset, len) in [(999, 2), (1000, 11), (1109, 2), (1050, 1), (1300, 1)] {
            assert_eq!(window.find(offset, len), None);
        }
    }

    #[test]
    fn windows_share_a_limit() {
        let windows = Windows::new(100);
        assert_eq!(windows.take(HandleId(1)).1, 100);
        windows.put(window(1, 60));
        assert_eq!(windows.take(HandleId(2)).1, 50);
        windows.put(window(2, 50));
        // The oldest was dropped.
        assert_eq!(windows.held.lock().len(), 1);
        assert_eq!(windows.take(HandleId(2)).0.len(), 50);
        windows.put(window(3, 50));
        windows.forget(HandleId(3));
        assert!(windows.held.lock().is_empty());
    }
}
