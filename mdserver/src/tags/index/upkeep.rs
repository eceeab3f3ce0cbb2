//! Persists tables to files, and merges many files into few: called by the owner's upkeep thread.
//!
//! A run is merged with all newer ones if these together have a quarter of its entries. So every run has more than
//! four times the entries of all newer ones: five runs for 43 M entries written 100,000 at a time; and each time an
//! entry is rewritten, its new run is at least a quarter larger than the previous one.

use super::manifest::{Manifest, remove};
use super::memtable::{MemCursor, Memtable};
use super::merge::{Cursor, Merge};
use super::run::{Run, RunCursor};
use super::write::RunWriter;
use super::{Index, IndexError, Published, dirty};
use crate::kv::Lsn;
use std::sync::Arc;

/// A run is merged with the newer ones if it has less than this many times their entries.
const RATIO: u64 = 4;

/// Sources being merged into a run.
#[derive(Debug)]
pub(super) struct Merging {
    /// The newest of the runs being merged, and how many of them there are: those after it.
    newest: u64,
    count: usize,
    /// There is no older run: removals are left out.
    oldest: bool,
    writer: RunWriter,
    sources: Merge,
}

impl Merging {
    /// Copies the entry at which the sources are.
    #[inline]
    fn take(&mut self) -> Result<(), IndexError> {
        let gone = self.sources.gone();
        if gone && self.oldest {
            return Ok(());
        }
        self.writer.push(self.sources.key(), gone)
    }

    /// The run; `None` if it would be empty.
    fn finish(self) -> Result<Option<Arc<Run>>, IndexError> {
        if self.writer.entries() == 0 {
            return Ok(None);
        }
        Ok(Some(Arc::new(self.writer.finish()?)))
    }
}

impl Index {
    /// Declares this the moment of commit `lsn`: all changes up to it are applied, and none after it. Takes
    /// microseconds, so it can be called under the lock that orders commits. Nothing is written yet:
    /// [`Self::persist`] does that, when the journal up to `lsn` is on disk. (An index that is ahead of the journal
    /// after a crash could lack what the journal still has.)
    pub fn seal(&self, lsn: Lsn) {
        let mut sealed = self.writer.lock();
        *sealed = (*sealed).max(lsn);
        let mut view = self.view.write();
        if view.active.is_empty() {
            return;
        }
        let view = Arc::make_mut(&mut view);
        view.sealed.insert(0, std::mem::take(&mut view.active));
    }

    /// True if there are more changes in memory than the settings allow: call [`Self::seal`] and [`Self::persist`]
    /// soon.
    pub fn wants_persist(&self) -> bool {
        dirty(&self.now().0) > self.options.dirty_bytes
    }

    /// True if there are so many changes in memory that a caller should persist before it adds more.
    pub fn needs_persist(&self) -> bool {
        dirty(&self.now().0) > 2 * self.options.dirty_bytes
    }

    /// Makes the state of the last [`Self::seal`] durable and returns its commit; readers and writers continue
    /// meanwhile. After an error nothing has changed, and it can be called again.
    pub fn persist(&self) -> Result<Lsn, IndexError> {
        let mut published = self.upkeep.lock();
        let (lsn, view) = {
            let sealed = self.writer.lock();
            (*sealed, Arc::clone(&self.view.read()))
        };
        if view.sealed.is_empty() {
            if lsn != published.lsn {
                self.publish(&mut published, lsn, &view.runs, None)?;
            }
            return Ok(lsn);
        }
        let sources = view.sealed.iter().map(everything).collect();
        let run = self.write_run(&mut published, sources, view.runs.is_empty())?;
        let runs: Vec<_> = run.iter().chain(&view.runs).cloned().collect();
        self.publish(&mut published, lsn, &runs, run.as_ref())?;
        let written = view.sealed.len();
        let mut view = self.view.write();
        let view = Arc::make_mut(&mut view);
        view.sealed.truncate(view.sealed.len() - written);
        view.runs = runs;
        Ok(lsn)
    }

    /// Merges runs where that is due, for some ten milliseconds; false if nothing is left to do. Readers, writers
    /// and, between two calls, [`Self::persist`] continue meanwhile.
    pub fn merge(&self) -> Result<bool, IndexError> {
        let mut published = self.upkeep.lock();
        let begun = match published.merging.take() {
            Some(merging) => Some(merging),
            None => self.begin_merge(&mut published)?,
        };
        let Some(mut merging) = begun else {
            return Ok(false);
        };
        // An error drops the partial merge, and its file with it.
        for _ in 0..self.options.merge_step {
            if !merging.sources.advance()? {
                self.end_merge(&mut published, merging)?;
                return Ok(true);
            }
            merging.take()?;
        }
        published.merging = Some(merging);
        Ok(true)
    }

    fn begin_merge(&self, published: &mut Published) -> Result<Option<Merging>, IndexError> {
        // Runs change only under `upkeep`.
        let all = self.view.read().runs.clone();
        let sizes: Vec<u64> = all.iter().map(|run| run.entries()).collect();
        let Some(count) = due(&sizes) else {
            return Ok(None);
        };
        Ok(Some(Merging {
            newest: all[0].number(),
            count,
            oldest: count == all.len(),
            writer: self.new_run(published)?,
            sources: Merge::new(all_of(&all[..count])?),
        }))
    }

    fn end_merge(&self, published: &mut Published, merging: Merging) -> Result<(), IndexError> {
        let (newest, count) = (merging.newest, merging.count);
        let run = merging.finish()?;
        // Runs persisted meanwhile come before the merged one.
        let all = self.view.read().runs.clone();
        let from = all.iter().position(|run| run.number() == newest);
        let from = from.unwrap_or(all.len());
        let upto = (from + count).min(all.len());
        let runs: Vec<_> = all[..from]
            .iter()
            .chain(&run)
            .chain(&all[upto..])
            .cloned()
            .collect();
        let lsn = published.lsn;
        self.publish(published, lsn, &runs, run.as_ref())?;
        self.replace_runs(runs);
        drop_runs(&all[from..upto]);
        Ok(())
    }

    /// Makes `runs` the runs that readers see.
    pub(super) fn replace_runs(&self, runs: Vec<Arc<Run>>) {
        let mut view = self.view.write();
        let wanted: Vec<u64> = runs.iter().map(|run| run.number()).collect();
        Arc::make_mut(&mut view).runs = runs;
        drop(view);
        self.cache.keep_runs(|run| wanted.contains(&run));
    }

    /// Begins a new run.
    pub(super) fn new_run(&self, published: &mut Published) -> Result<RunWriter, IndexError> {
        let number = published.next;
        published.next += 1;
        let cache = Arc::clone(&self.cache);
        RunWriter::new(&self.dir, number, self.options.leaf_bytes, cache)
    }

    /// Writes sources, newest first, to a new run; `None` if it would be empty. Removals are left out in the `oldest`
    /// run, which has none below it.
    pub(super) fn write_run(
        &self,
        published: &mut Published,
        sources: Vec<Cursor>,
        oldest: bool,
    ) -> Result<Option<Arc<Run>>, IndexError> {
        let mut merging = Merging {
            newest: 0,
            count: sources.len(),
            oldest,
            writer: self.new_run(published)?,
            sources: Merge::new(sources),
        };
        while merging.sources.advance()? {
            merging.take()?;
        }
        merging.finish()
    }

    /// Removes a run that could not be published, unless the manifest names it nevertheless: its rename may have
    /// happened before the error.
    fn abandon(&self, run: &Arc<Run>) {
        match Manifest::read(&self.dir, self.options.identity) {
            Ok(manifest) => {
                let mut named = manifest.into_iter().flat_map(|manifest| manifest.runs);
                if !named.any(|(number, _)| number == run.number()) {
                    drop_run(run);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "unused runs of the index of tags were not removed")
            }
        }
    }

    /// Makes `runs` the index on disk; removes the `new` one of them if that fails.
    pub(super) fn publish(
        &self,
        published: &mut Published,
        lsn: Lsn,
        runs: &[Arc<Run>],
        new: Option<&Arc<Run>>,
    ) -> Result<(), IndexError> {
        let manifest = Manifest {
            identity: self.options.identity,
            lsn,
            next: published.next,
            runs: runs.iter().map(|run| (run.number(), run.len())).collect(),
        };
        if let Err(error) = manifest.write(&self.dir) {
            new.inspect(|run| self.abandon(run));
            return Err(error);
        }
        published.lsn = lsn;
        Ok(())
    }
}

/// Everything in these runs.
pub(super) fn all_of(runs: &[Arc<Run>]) -> Result<Vec<Cursor>, IndexError> {
    let cursor = |run: &Arc<Run>| RunCursor::new(Arc::clone(run), b"", None, false);
    runs.iter()
        .map(|run| cursor(run).map(Cursor::Run))
        .collect()
}

fn everything(table: &Arc<Memtable>) -> Cursor {
    // A sealed table has no invisible batch.
    Cursor::Mem(MemCursor::new(Arc::clone(table), u64::MAX >> 1, b"", None))
}

/// How many of the newest runs are to be merged; `sizes` are their entries, newest first.
fn due(sizes: &[u64]) -> Option<usize> {
    let mut newer = 0;
    let mut due = None;
    for (at, &size) in sizes.iter().enumerate() {
        if at > 0 && size <= newer * RATIO {
            due = Some(at + 1);
        }
        newer += size;
    }
    due
}

/// Removes the files of runs that will not be opened again; readers continue to read them.
pub(super) fn drop_runs(runs: &[Arc<Run>]) {
    runs.iter().for_each(drop_run);
}

fn drop_run(run: &Arc<Run>) {
    if let Err(error) = remove(run.path()) {
        tracing::warn!(%error, "a file of the index of tags was not removed; the next start removes it");
    }
}

#[cfg(test)]
mod tests {
    use super::due;

    #[test]
    fn runs_of_similar_size_are_merged() {
        assert_eq!(due(&[]), None);
        assert_eq!(due(&[5]), None);
        assert_eq!(due(&[1, 5]), None);
        assert_eq!(due(&[1, 4]), Some(2));
        assert_eq!(due(&[1, 100, 400]), Some(3));
        assert_eq!(due(&[1, 5, 1000]), None);
        assert_eq!(due(&[2, 5, 1000]), Some(2));
    }
}
