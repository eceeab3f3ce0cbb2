//! Rebuilds the index: entries in any order are sorted a budget at a time and merged once.

use super::manifest::remove;
use super::run::Run;
use super::upkeep::{all_of, drop_runs};
use super::{Index, IndexError, Published, checked};
use crate::kv::Lsn;
use std::sync::Arc;

/// Parts merged at a time at the end; each takes a leaf of memory and a descriptor.
const FAN_IN: usize = 64;

/// Accepts the entries of a rebuild, in any order, possibly repeated.
#[derive(Debug)]
pub struct Loader<'a> {
    index: &'a Index,
    published: &'a mut Published,
    bytes: Vec<u8>,
    entries: Vec<(u32, u32)>,
    parts: Vec<Arc<Run>>,
}

impl Index {
    /// Rebuilds the index: empties it, inserts what `fill` pushes to the [`Loader`], and publishes it as complete up
    /// to `lsn`. Entries applied meanwhile are newer and stay. Until it returns, the index is incomplete and must not
    /// be read. After an error it is empty.
    pub fn rebuild<E: From<IndexError>>(
        &self,
        lsn: Lsn,
        fill: impl FnOnce(&mut Loader<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut published = self.upkeep.lock();
        self.empty(&mut published)?;
        let mut loader = Loader {
            index: self,
            published: &mut published,
            bytes: Vec::new(),
            entries: Vec::new(),
            parts: Vec::new(),
        };
        let filled = fill(&mut loader);
        let merged = filled.and_then(|()| Ok(loader.finish()?));
        drop_runs(&loader.parts);
        let run = merged?;
        self.publish(&mut published, lsn, run.as_slice(), run.as_ref())?;
        let mut sealed = self.writer.lock();
        *sealed = (*sealed).max(lsn);
        self.replace_runs(run.into_iter().collect());
        Ok(())
    }

    /// Empties the index, in memory and on disk; it is then complete up to no commit.
    pub fn clear(&self) -> Result<(), IndexError> {
        self.empty(&mut self.upkeep.lock())
    }

    fn empty(&self, published: &mut Published) -> Result<(), IndexError> {
        published.merging = None;
        self.publish(published, Lsn(0), &[], None)?;
        let mut sealed = self.writer.lock();
        let mut view = self.view.write();
        let before = std::mem::take(&mut *view);
        *sealed = Lsn(0);
        drop((view, sealed));
        self.cache.keep_runs(|_| false);
        drop_runs(&before.runs);
        Ok(())
    }
}

impl Loader<'_> {
    /// Adds an entry.
    pub fn push(&mut self, entry: &[u8]) -> Result<(), IndexError> {
        checked(entry.len())?;
        if entry.is_empty() {
            return Ok(());
        }
        let budget = self
            .index
            .options
            .load_bytes
            .min(u32::MAX as usize - super::MAX_ENTRY);
        let held = self.bytes.len() + self.entries.len() * size_of::<(u32, u32)>();
        if held + entry.len() > budget {
            self.end_part()?;
        }
        self.entries
            .push((self.bytes.len() as u32, entry.len() as u32));
        self.bytes.extend_from_slice(entry);
        Ok(())
    }

    /// Sorts the buffered entries and writes them as a part.
    fn end_part(&mut self) -> Result<(), IndexError> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let bytes = &self.bytes;
        let entry = |&(from, len): &(u32, u32)| &bytes[from as usize..from as usize + len as usize];
        self.entries.sort_unstable_by(|a, b| entry(a).cmp(entry(b)));
        let mut writer = self.index.new_run(self.published)?;
        let mut last: &[u8] = &[];
        for at in &self.entries {
            let entry = entry(at);
            if entry != last {
                writer.push(entry, false)?;
                last = entry;
            }
        }
        self.parts.push(Arc::new(writer.finish()?));
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<Arc<Run>>, IndexError> {
        self.end_part()?;
        (self.bytes, self.entries) = (Vec::new(), Vec::new());
        while self.parts.len() > 1 {
            let count = self.parts.len().min(FAN_IN);
            let sources = all_of(&self.parts[..count])?;
            let run = self.index.write_run(self.published, sources, false)?;
            for part in self.parts.drain(..count) {
                remove(part.path())?;
            }
            self.parts.extend(run);
        }
        Ok(self.parts.pop())
    }
}
