//! What a process takes over of the cache that the one before has left in its directory.

use std::collections::BTreeSet;
use std::path::Path;

use slabfs_objstore::store::Inspect;
use slabfs_objstore::{ChunkName, ChunkStore, StoreError};

use crate::address::Durability;
use crate::cache::Kind;
use crate::index::Stored;
use crate::journal::{Begin, Entry, Found, Journal, Record, boot_id};
use crate::segment::{BLOCK, Writer};
use crate::store::{Result, S3Options, S3Store, State};

/// Chunks listed at a time.
const PAGE: usize = 1024;

/// What is in the directory, while it is not certain that no other process has had the identity since.
#[derive(Debug)]
pub(crate) struct Left {
    found: Found,
    /// The machine runs since then: nothing is lost.
    same_boot: bool,
}

/// The cache is used again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reused {
    /// The verifier of the process before, if nothing that it had is lost.
    pub(crate) verifier: Option<u64>,
}

impl Left {
    /// What the last process has left in `dir`, for the identity with this id; `None` if it cannot be relied on.
    ///
    /// # Errors
    /// A journal that is damaged or of another identity, where what was synced may be in this directory alone.
    pub(crate) fn in_dir(dir: &Path, uuid: [u8; 16], options: &S3Options) -> Result<Option<Left>> {
        let found = Journal::of(dir).read().and_then(|found| match found {
            Some(found) if found.begin.uuid != uuid => Err(std::io::Error::other(
                "its journal is that of another identity",
            )),
            found => Ok(found),
        });
        let found = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(error) if options.durability == Durability::Local => {
                return Err(StoreError::Io {
                    what: format!("using the cache in {}", dir.display()),
                    detail: format!(
                        "{error}; it may have synced data that is nowhere else: copy the directory before you start on an \
                         empty one"
                    ),
                    errno: None,
                });
            }
            Err(error) => {
                tracing::warn!("the cache in {} begins empty: {error}", dir.display());
                return Ok(None);
            }
        };
        let boot = boot_id();
        let same_boot = !boot.is_empty() && boot == found.begin.boot;
        let left = Left { found, same_boot };
        Ok((same_boot || options.durability == Durability::Local).then_some(left))
    }

    /// Whether no process has begun after it, as far as the stored index says.
    pub(crate) fn follows(&self, last: Option<u64>) -> bool {
        last.is_none_or(|last| last <= self.found.begin.number)
    }

    /// Whether a segment is of the process that has left this, or of one before.
    pub(crate) fn wrote(&self, number: u64, writer: Writer) -> bool {
        number < self.found.begin.number
            || writer == self.found.begin.writer
            || self.found.successors.contains(&writer)
    }
}

impl S3Store {
    /// Puts what is left into the cache, and removes all other files of it.
    pub(crate) fn reuse(&mut self, left: Option<Left>) -> Result<Option<Reused>> {
        let Some(Left {
            mut found,
            same_boot,
        }) = left
        else {
            self.clear(|_| false)?;
            return Ok(None);
        };
        if !same_boot {
            self.keep_synced(&mut found)?;
        }
        let state = self.state.get_mut();
        let (mut chunks, mut dirty) = (0_u64, 0_u64);
        for (name, entry) in found.chunks {
            // Recorded before it was written, and never was.
            if self.local.describe(&name).is_err() {
                continue;
            }
            let there = put_back(state, &name, entry);
            chunks += u64::from(there);
            dirty += u64::from(state.cache.chunks.get(&name).is_some_and(|c| c.is_dirty()));
        }
        let used: std::collections::HashSet<ChunkName> =
            state.cache.chunks.keys().cloned().collect();
        self.clear(|name| used.contains(name))?;
        tracing::info!("the cache has {chunks} chunks, of which {dirty} are not in the bucket yet");
        Ok(Some(Reused {
            verifier: same_boot.then_some(found.begin.verifier),
        }))
    }

    /// After a start of the machine: what is not dirty may be of before or after the last change, and is fetched again. Of what is dirty,
    /// blocks are there if they were synced, and immutable chunks if their checksums say so.
    fn keep_synced(&self, found: &mut Found) -> Result<()> {
        let mut lost = Vec::new();
        for (name, entry) in &mut found.chunks {
            let keeps = match entry {
                Entry::Free { sealed, dirty, .. } => {
                    *sealed && *dirty && self.local.verify(name).is_ok()
                }
                Entry::Grid {
                    form,
                    here,
                    dirty,
                    synced,
                } => {
                    synced.retain(|block| match self.block(name, form, *block) {
                        Ok(_) => true,
                        Err(error) => {
                            tracing::error!(
                                "block {block} of {name} was synced and is lost: {error}"
                            );
                            false
                        }
                    });
                    here.clone_from(synced);
                    dirty.clone_from(synced);
                    !synced.is_empty()
                }
            };
            if !keeps {
                lost.push(name.clone());
            }
        }
        for name in lost {
            found.chunks.remove(&name);
        }
        Ok(())
    }

    /// Deletes chunks from the cache's files that are not used again.
    fn clear(&self, keeps: impl Fn(&ChunkName) -> bool) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.local.list(after, PAGE)?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            let names: Vec<ChunkName> = page
                .into_iter()
                .map(|(name, _)| name)
                .filter(|name| !keeps(name))
                .collect();
            self.local.delete(&names)?;
        }
    }

    /// Begins the journal of this process.
    pub(crate) fn begin_journal(&self) {
        let begun = {
            let state = self.state.lock();
            self.journal.begin(self.beginning(&state), records(&state))
        };
        if let Err(error) = begun {
            tracing::warn!(
                "{}: {error}; if this process is killed, what is not in the bucket yet is lost",
                self.dir.display()
            );
        }
    }

    fn beginning(&self, state: &State) -> Begin {
        let last = state.index.handovers.last();
        Begin {
            boot: boot_id(),
            uuid: self.uuid,
            writer: self.writer,
            number: last.copied().unwrap_or_default(),
            verifier: self.verifier,
        }
    }

    /// Rewrites the journal if it has become large.
    pub(crate) fn shorten_journal(&self) {
        if !self.journal.is_large() {
            return;
        }
        // No change is under way whose record would be missing.
        let _stripes: Vec<_> = self.stripes.iter().map(|stripe| stripe.write()).collect();
        let state = self.state.lock();
        let begin = self.beginning(&state);
        self.journal.shorten(begin, records(&state));
    }

    /// A sync that waits for the local disk.
    pub(crate) fn sync_locally(&self, names: &[ChunkName]) -> Result<()> {
        self.check()?;
        let (mut here, mut blocks) = (Vec::new(), Vec::new());
        {
            let state = self.state.lock();
            for name in names {
                let Some(cached) = state.cache.chunks.get(name).filter(|one| one.is_dirty()) else {
                    continue;
                };
                here.push(name.clone());
                if let Kind::Grid { dirty, .. } = &cached.kind {
                    let changed: BTreeSet<u64> = dirty.keys().copied().collect();
                    blocks.push((name.clone(), changed));
                }
            }
        }
        if here.is_empty() {
            return Ok(());
        }
        self.local.sync(&here)?;
        for (name, blocks) in blocks {
            // An upload that has them now records that under the stripe, too.
            let _stripe = self.stripe(&name).read();
            {
                let mut state = self.state.lock();
                let cached = state.cache.chunks.get_mut(&name);
                if let Some(Kind::Grid { dirty, synced, .. }) = cached.map(|one| &mut one.kind) {
                    synced.extend(blocks.iter().filter(|block| dirty.contains_key(block)));
                }
            }
            self.journal.note(&Record::Synced { name, blocks });
        }
        self.journal.sync().map_err(|error| StoreError::Io {
            what: format!("syncing the journal of the cache in {}", self.dir.display()),
            detail: error.to_string(),
            errno: error.raw_os_error(),
        })
    }
}

/// Puts a chunk into the cache as the journal says it was; false if the bucket says that it is gone.
fn put_back(state: &mut State, name: &ChunkName, entry: Entry) -> bool {
    let change = state.cache.change();
    match entry {
        Entry::Free {
            form,
            sealed,
            dirty,
            bytes,
        } => {
            let stored = matches!(state.index.chunks.get(name), Some(Stored::Chunk { .. }));
            if sealed && !dirty && !stored {
                return false;
            }
            let dirty = (sealed && dirty && !stored).then_some(change);
            state
                .cache
                .put(name, &form, Kind::Free { sealed, dirty }, bytes);
        }
        Entry::Grid {
            form,
            here,
            dirty,
            synced,
        } => {
            // Of dirty blocks that the bucket has not the length is not known.
            let known = here
                .last()
                .map_or(0, |last| match state.index.chunks.get(name) {
                    Some(Stored::Grid { blocks, .. }) if blocks.contains_key(last) => {
                        blocks[last].len
                    }
                    _ => BLOCK,
                });
            let end = here.last().map_or(0, |last| last * BLOCK + known);
            let dirty = dirty.into_iter().map(|block| (block, change)).collect();
            let kind = Kind::Grid {
                here,
                dirty,
                synced,
            };
            state.cache.put(name, &form, kind, 0);
            state.cache.measure(name, end);
        }
    }
    true
}

/// The cache as records.
fn records(state: &State) -> impl Iterator<Item = Record> {
    state.cache.chunks.iter().flat_map(|(name, cached)| {
        let (name, form) = (name.clone(), cached.form.clone());
        match &cached.kind {
            Kind::Free { sealed, dirty } => vec![Record::Free {
                name,
                form,
                sealed: *sealed,
                dirty: dirty.is_some(),
                bytes: cached.bytes,
            }],
            Kind::Grid {
                here,
                dirty,
                synced,
            } => {
                let blocks = |blocks, dirty| Record::Blocks {
                    name: name.clone(),
                    form: form.clone(),
                    blocks,
                    dirty,
                };
                let mut all = vec![
                    blocks(here.clone(), false),
                    blocks(dirty.keys().copied().collect(), true),
                ];
                if !synced.is_empty() {
                    all.push(Record::Synced {
                        name: name.clone(),
                        blocks: synced.clone(),
                    });
                }
                all
            }
        }
    })
}
