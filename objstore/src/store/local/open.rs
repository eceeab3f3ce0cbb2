//! Opens a store: finds all chunks, and resolves duplicates left by a crash.
//!
//! After a crash a chunk may be found twice: a newer record and the older one it superseded, or a file and the record
//! it grew out of. The higher sequence number wins, unless it belongs to a truncated record. If a truncated record is
//! the only copy of a chunk, it is dropped: the write was never acknowledged, and a retry must not meet a damaged
//! chunk. A record that is complete but damaged is an error.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Mutex, RwLock};

use super::catalogue;
use super::directory::{Directory, Found};
use super::file::read_head;
use super::files::{Files, raise_file_limit};
use super::index::{Entry, Index};
use super::roll::{Roll, Stale};
use super::segment::{FoundRecord, Known, Segments};
use super::shared::Shared;
use super::{LocalOptions, LocalStore, STRIPES, verifier};
use crate::error::{Result, StoreError};
use crate::name::ChunkName;

/// Bits of a sequence number within one opening: each opening starts at a higher base.
const SEQUENCES: u32 = 40;

impl LocalStore {
    /// Opens the store in a directory, creating it if it is missing. The directory is locked: a second process gets
    /// [`StoreError::Locked`].
    pub fn open(dir: &Path, options: LocalOptions) -> Result<Self> {
        let directory = Arc::new(Directory::open(dir)?);
        let (opening, is_clean) = directory.note_opening(options.fsync)?;
        let verifier = verifier::establish(directory.path(), is_clean)?;
        let catalogue = catalogue::read(&directory)?;
        let known = Known {
            is_current: is_clean && catalogue.is_some(),
            records: catalogue.unwrap_or_default(),
        };
        let mut mark = [0; 8];
        getrandom::fill(&mut mark).map_err(|e| StoreError::Io {
            what: "draw a mark".to_owned(),
            detail: e.to_string(),
            errno: None,
        })?;
        let mark = u64::from_le_bytes(mark).max(1);
        let shared = Arc::new(Shared::new((mark, verifier), is_clean, options.fsync));
        let (segments, records) = Segments::open(
            Arc::clone(&directory),
            Arc::clone(&shared),
            opening << SEQUENCES,
            known,
            options
                .open_files
                .unwrap_or_else(|| (raise_file_limit() / 8).clamp(16, 1024)),
        )?;
        let (roll, stale) = Roll::open(&directory, Arc::clone(&shared))?;
        let files = Files::new(
            Arc::clone(&directory),
            Arc::clone(&shared),
            roll,
            options.open_files,
        );
        let store = Self {
            directory,
            shared,
            index: RwLock::default(),
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            files,
            segments,
            waiting: Mutex::default(),
            blanks: AtomicU64::new(0),
            // A store that is not fully open must not be marked as cleanly closed.
            closed: AtomicBool::new(true),
        };
        let mut index = Index::default();
        let sequences = store.take_records(records, &mut index)?;
        store
            .directory
            .chunk_files(&mut |found| store.take_file(found, &sequences, &mut index))?;
        store.check_the_roll(&stale, &mut index);
        *store.index.write() = index;
        store.release_waiting()?;
        store
            .closed
            .store(false, std::sync::atomic::Ordering::SeqCst);
        Ok(store)
    }

    /// Enters the valid record of each name into the index; returns the sequence numbers of grid chunks.
    fn take_records(
        &self,
        mut records: Vec<FoundRecord>,
        index: &mut Index,
    ) -> Result<HashMap<ChunkName, u64>> {
        records.sort_unstable_by(|a, b| a.name.cmp(&b.name).then(b.sequence.cmp(&a.sequence)));
        let mut sequences = HashMap::new();
        for versions in records.chunk_by(|a, b| a.name == b.name) {
            let best = versions.iter().position(|r| r.sound);
            let best = best.or_else(|| versions.iter().position(|r| !r.cut));
            for (i, record) in versions.iter().enumerate() {
                if record.cut {
                    tracing::info!(
                        "{}: a write of {} that was cut short when the server was killed; no fsync had acknowledged it",
                        self.segments.describe(&record.place),
                        record.name
                    );
                }
                if Some(i) == best {
                    if !record.sound {
                        tracing::error!(
                            "{}: {} does not match its checksum",
                            self.segments.describe(&record.place),
                            record.name
                        );
                    }
                    index.set(&record.name, Entry::Small(record.place));
                    if matches!(record.name, ChunkName::Grid { .. }) {
                        sequences.insert(record.name.clone(), record.sequence);
                    }
                } else {
                    self.segments.kill(&record.place)?;
                }
            }
        }
        Ok(sequences)
    }

    /// Enters grid chunks whose files are lost, so that reading them is an error and not fill. If there is a record of
    /// such a chunk, it was deleted and recreated, and the roll lost that entry: its name is removed, or else the chunk
    /// would be reported as lost once the record is deleted.
    fn check_the_roll(&self, stale: &Stale, index: &mut Index) {
        let (mut lost, mut recreated) = (Vec::new(), Vec::new());
        self.files.roll.each(|name| match index.get(name) {
            None => lost.push(name.clone()),
            Some(Entry::Small(_)) => recreated.push(name.clone()),
            Some(Entry::File) => {}
        });
        recreated
            .iter()
            .for_each(|name| self.files.roll.forget(name));
        // Existing files are entered now; after a crash, all of them were synced before.
        self.files.roll.begin(stale, index.grid_files());
        for name in lost {
            let path = self.directory.chunk_path(&name);
            tracing::error!("{}: missing, so {name} is lost", path.display());
            index.set(&name, Entry::File);
        }
    }

    /// Whether the process ended after creating a file and before its first byte. Then the chunk was never
    /// acknowledged, and a retry must not meet a damaged one. (The roll records whether a grid chunk's file was ever on
    /// disk: then it may have held cells of other writers, and its loss is damage.)
    fn never_made(&self, name: &Option<ChunkName>, path: &Path) -> bool {
        let unknown = match name {
            Some(ChunkName::Free(_)) => true,
            Some(name @ ChunkName::Grid { .. }) => self.files.roll.never_had(name),
            None => false,
        };
        unknown && std::fs::metadata(path).is_ok_and(|file| file.len() == 0)
    }

    /// Enters the file of a chunk.
    fn take_file(
        &self,
        found: Found,
        sequences: &HashMap<ChunkName, u64>,
        index: &mut Index,
    ) -> Result<()> {
        let path = found.path;
        if !self.shared.clean && self.never_made(&found.name, &path) {
            tracing::info!("{}: creation was interrupted by a crash", path.display());
            return self.files.unlink(&path);
        }
        let head = |path: &Path| {
            std::fs::File::open(path)
                .ok()
                .and_then(|file| read_head(&file).ok())
        };
        let name = match found.name {
            Some(name) => name,
            None => match head(&path) {
                Some(head) => head.name,
                None => {
                    tracing::error!(
                        "{}: damaged, and which chunk it holds is unknown",
                        path.display()
                    );
                    return Ok(());
                }
            },
        };
        if let Some(record) = sequences.get(&name)
            && let Some(Entry::Small(place)) = index.get(&name)
        {
            // A file with a damaged head wins: it was on disk before its record was to be deleted. A file without a
            // head never was on disk: the chunk was deleted, and the record is newer.
            if head(&path).is_some_and(|head| head.sequence < *record) || lacks_head(&path) {
                return self.files.unlink(&path);
            }
            self.segments.kill(&place)?;
        } else if let Some(Entry::Small(_)) = index.get(&name) {
            return self.files.unlink(&path);
        }
        index.set(&name, Entry::File);
        Ok(())
    }
}

/// Whether a file is empty or zero in place of its head, as if it was created and never synced.
fn lacks_head(path: &Path) -> bool {
    let mut begin = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(64).read_to_end(&mut begin));
    read.is_ok() && begin.iter().all(|byte| *byte == 0)
}
