//! Reading the index: the entries of a range, as of the moment the reader began.

use super::IndexError;
use super::memtable::{MemCursor, Memtable};
use super::merge::{Cursor, Merge};
use super::run::{Run, RunCursor};
use std::sync::Arc;

/// The parts of the index at a moment; newer parts override older ones.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    /// Where changes go.
    pub(super) active: Arc<Memtable>,
    /// Tables that do not change any more and are in no file yet, newest first.
    pub(super) sealed: Vec<Arc<Memtable>>,
    /// Files, newest first.
    pub(super) runs: Vec<Arc<Run>>,
}

impl View {
    /// A reader of `[from, to)` that sees batches up to `batch`.
    pub(super) fn iter(
        &self,
        batch: u64,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<Iter, IndexError> {
        let to: Option<Arc<[u8]>> = to.map(Arc::from);
        let mut sources = Vec::with_capacity(1 + self.sealed.len() + self.runs.len());
        if to.as_deref().is_none_or(|to| from < to) {
            for table in std::iter::once(&self.active).chain(&self.sealed) {
                if !table.is_empty() {
                    let cursor = MemCursor::new(Arc::clone(table), batch, from, to.clone());
                    sources.push(Cursor::Mem(cursor));
                }
            }
            for run in &self.runs {
                let cursor = RunCursor::new(Arc::clone(run), from, to.clone(), true)?;
                sources.push(Cursor::Run(cursor));
            }
        }
        Ok(Iter {
            merge: Merge::new(sources),
            to,
            ended: false,
        })
    }
}

/// The entries of a range in ascending order, as of the moment [`super::Index::iter`] was called, whatever changes
/// meanwhile. Holds no lock. Drop it soon: it prevents the deletion of what it reads.
#[derive(Debug)]
pub struct Iter {
    merge: Merge,
    to: Option<Arc<[u8]>>,
    ended: bool,
}

impl Iter {
    /// The next entry; `None` at the end of the range. After an error, which means that the index has to be rebuilt
    /// or that the disk does not respond, there are no further entries.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<Option<&[u8]>, IndexError> {
        while !self.ended {
            // An error ends the iteration: the sources may be at any position.
            self.ended = true;
            if !self.merge.advance()? {
                break;
            }
            if self
                .to
                .as_ref()
                .is_some_and(|to| self.merge.key() >= &to[..])
            {
                break;
            }
            self.ended = false;
            if !self.merge.gone() {
                return Ok(Some(self.merge.key()));
            }
        }
        Ok(None)
    }

    /// Advances so that [`Self::next`] returns the first entry that is not less than `key`; never moves back. Costs
    /// at most about as much as a new iterator, and less if `key` is close.
    pub fn seek(&mut self, key: &[u8]) -> Result<(), IndexError> {
        if self.ended {
            return Ok(());
        }
        let sought = self.merge.seek(key);
        self.ended = sought.is_err();
        sought
    }
}
