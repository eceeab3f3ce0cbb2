//! Merges several ordered sources into one: where two have the same entry, the newer one wins.

use super::IndexError;
use super::memtable::MemCursor;
use super::run::RunCursor;

/// A position in one source.
#[derive(Debug)]
pub(super) enum Cursor {
    /// In memory.
    Mem(MemCursor),
    /// In a file.
    Run(RunCursor),
}

impl Cursor {
    #[inline]
    fn valid(&self) -> bool {
        match self {
            Self::Mem(cursor) => cursor.valid(),
            Self::Run(cursor) => cursor.valid(),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match self {
            Self::Mem(cursor) => cursor.key(),
            Self::Run(cursor) => cursor.key(),
        }
    }

    #[inline]
    fn gone(&self) -> bool {
        match self {
            Self::Mem(cursor) => cursor.gone(),
            Self::Run(cursor) => cursor.gone(),
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<(), IndexError> {
        match self {
            Self::Mem(cursor) => {
                cursor.advance();
                Ok(())
            }
            Self::Run(cursor) => cursor.advance(),
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<(), IndexError> {
        match self {
            Self::Mem(cursor) => {
                cursor.seek(key);
                Ok(())
            }
            Self::Run(cursor) => cursor.seek(key),
        }
    }
}

/// Several sources, newest first, as one.
#[derive(Debug)]
pub(super) struct Merge {
    sources: Vec<Cursor>,
    /// Sources that are at an entry, as a heap: the least entry first, for equal ones the newest. Invalid until
    /// `ready`.
    heap: Vec<usize>,
    ready: bool,
    /// The entry of the first in the heap was returned.
    given: bool,
    /// Index in the heap of the least entry of the others; past its end if there are none.
    rival: usize,
}

impl Merge {
    /// All of `sources`, which are at the start of the read.
    pub(super) fn new(sources: Vec<Cursor>) -> Self {
        Self {
            heap: Vec::with_capacity(sources.len()),
            sources,
            ready: false,
            given: false,
            rival: 1,
        }
    }

    /// Steps to the next entry; false at the end.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<bool, IndexError> {
        if self.given {
            let lead = self.heap[0];
            self.sources[lead].advance()?;
            // While one source is alone in front, no other has to be compared.
            let first = &self.sources[lead];
            if first.valid() {
                let rival = self.heap.get(self.rival);
                if rival.is_none_or(|&rival| first.key() < self.sources[rival].key()) {
                    return Ok(true);
                }
            }
        }
        self.choose()
    }

    /// Moves the least entry to the front, and advances the older sources that have the same one past it.
    fn choose(&mut self) -> Result<bool, IndexError> {
        if self.ready {
            self.settle(0);
        } else {
            self.heap.clear();
            self.heap
                .extend((0..self.sources.len()).filter(|&at| self.sources[at].valid()));
            for at in (0..self.heap.len() / 2).rev() {
                self.sink(at);
            }
            self.ready = true;
        }
        self.given = !self.heap.is_empty();
        for child in [1, 2] {
            // Everything between the first and an equal one is equal too.
            while child < self.heap.len() && self.key_at(child) == self.key_at(0) {
                let source = self.heap[child];
                self.sources[source].advance()?;
                self.settle(child);
            }
        }
        self.rival = if 2 < self.heap.len() && self.less(2, 1) {
            2
        } else {
            1
        };
        Ok(self.given)
    }

    fn key_at(&self, at: usize) -> &[u8] {
        self.sources[self.heap[at]].key()
    }

    fn less(&self, a: usize, b: usize) -> bool {
        (self.key_at(a), self.heap[a]) < (self.key_at(b), self.heap[b])
    }

    /// Moves the source at `at` to its place; it is the first or its child, and has advanced or ended.
    fn settle(&mut self, at: usize) {
        if at < self.heap.len() && !self.sources[self.heap[at]].valid() {
            self.heap.swap_remove(at);
        }
        self.sink(at);
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            for child in [left, right] {
                if child < self.heap.len() && self.less(child, least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    /// The entry returned last; empty before the first and after the last.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        if self.given { self.key_at(0) } else { &[] }
    }

    /// Whether the entry returned last is a removal.
    #[inline]
    pub(super) fn gone(&self) -> bool {
        self.given && self.sources[self.heap[0]].gone()
    }

    /// Advances so that the next entry is the first one not less than `key`.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<(), IndexError> {
        if self.given && self.key_at(0) >= key {
            return Ok(());
        }
        // In this order, an error on the way leaves nothing that could be returned wrongly.
        (self.ready, self.given) = (false, false);
        for source in &mut self.sources {
            if source.valid() && source.key() < key {
                source.seek(key)?;
            }
        }
        Ok(())
    }
}
