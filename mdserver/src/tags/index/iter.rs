//! Reading the index: the entries of a range, as of the moment the reader began.

use super::IndexError;
use super::memtable::{MemCursor, Memtable};
use super::merge::{Cursor, Merge};
use super::run::{Run, RunCursor};
use std::sync::Arc;

/// What the index is made of at a moment; newer parts speak before older ones.
#[derive(Debug)]
pub(super) struct View {
    /// Where changes go.
    pub(super) active: Arc<Memtable>,
    /// Tables that change no more and are in no file yet, newest first.
    pub(super) sealed: Vec<Arc<Memtable>>,
    /// Files, newest first.
    pub(super) runs: Vec<Arc<Run>>,
}

impl View {
    /// A reader of `[from, to)` who sees batches up to `batch`.
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

/// The entries of a range in ascending order, as of the moment [`super::Index::iter`] was called,
/// whatever changes meanwhile. Holds no lock. Drop it soon: it keeps alive what it reads.
#[derive(Debug)]
pub struct Iter {
    merge: Merge,
    to: Option<Arc<[u8]>>,
    ended: bool,
}

impl Iter {
    /// The next entry; nothing at the end of the range. After an error, which says that the index is to
    /// be rebuilt or that the disk does not answer, there is nothing more.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<Option<&[u8]>, IndexError> {
        while !self.ended {
            // An error is the end, too: the sources may stand anywhere.
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

    /// Goes forward so that [`Self::next`] gives the first entry that is not less than `key`; never
    /// goes back. Costs about as much as a new iterator at most, and less if `key` is near.
    pub fn seek(&mut self, key: &[u8]) -> Result<(), IndexError> {
        if self.ended {
            return Ok(());
        }
        let sought = self.merge.seek(key);
        self.ended = sought.is_err();
        sought
    }
}
