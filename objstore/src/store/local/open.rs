//! Opening a store: what is there, and which of two homes of a chunk counts.
//!
//! A chunk can be found twice when the process died at the wrong moment: a newer record beside the
//! older one it superseded, or a file beside the record it grew out of. The higher sequence number
//! counts, unless that is a record that was not written to its end. A record that lacks its end and is all
//! there is of a chunk counts for nothing: nobody was told that it is there, and who sends it again must not
//! meet a damaged one. One that has its end and is damaged all the same is an error.

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
use super::{LocalOptions, LocalStore, STRIPES};
use crate::error::{Result, StoreError};
use crate::name::ChunkName;

/// Sequence numbers begin anew, higher, with each opening.
const SEQUENCES: u32 = 40;

impl LocalStore {
    /// Opens the store in a directory, which is made if it is not there. The directory is locked: a
    /// second opener gets [`StoreError::Locked`].
    pub fn open(dir: &Path, options: LocalOptions) -> Result<Self> {
        let directory = Arc::new(Directory::open(dir)?);
        let (opening, is_clean) = directory.note_opening(options.fsync)?;
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
        let shared = Arc::new(Shared::new(mark, is_clean, options.fsync));
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
            // Until it is wholly open there is nothing to leave in order.
            closed: AtomicBool::new(true),
        };
        let mut index = Index::default();
        let sequences = store.take_records(records, &mut index)?;
        store
            .directory
            .chunk_files(&mut |found| store.take_file(found, &sequences, &mut index))?;
        store.call_the_roll(&stale, &mut index);
        *store.index.write() = index;
        store.release_waiting()?;
        store
            .closed
            .store(false, std::sync::atomic::Ordering::SeqCst);
        Ok(store)
    }

    /// Enters the record that counts of each name, and says what it is.
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
                        "{}: a write of {} that was cut short when the server was killed; no fsync had told of it",
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

    /// Enters grid chunks that had files and have none: reading them is an error, and not fill. One of which there is
    /// a record was deleted and made anew, and the roll has lost that: it would be missed once the record goes.
    fn call_the_roll(&self, stale: &Stale, index: &mut Index) {
        let (mut lost, mut made_anew) = (Vec::new(), Vec::new());
        self.files.roll.each(|name| match index.get(name) {
            None => lost.push(name.clone()),
            Some(Entry::Small(_)) => made_anew.push(name.clone()),
            Some(Entry::File) => {}
        });
        made_anew
            .iter()
            .for_each(|name| self.files.roll.forget(name));
        // What is there is put down now; after a crash all of it was brought to the disk before.
        self.files.roll.begin(stale, index.grid_files());
        for name in lost {
            let path = self.directory.chunk_path(&name);
            tracing::error!("{}: gone, and with it {name}", path.display());
            index.set(&name, Entry::File);
        }
    }

    /// Whether the store ended between the making of a file and its first byte. Nobody was told then that
    /// the chunk is there, and who makes it again must not meet a damaged one. (Of a grid chunk the roll
    /// tells whether its file was on disk once: then it may have had cells of others.)
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
            tracing::info!("{}: was being made when the store ended", path.display());
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
            // A file whose head is damaged counts: it was on disk before its record was to die. One that has no head
            // never was: it was deleted, and the record is newer.
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

/// Whether there is nothing where the head of a file should be, as when the file was made and never synced.
fn lacks_head(path: &Path) -> bool {
    let mut begin = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(64).read_to_end(&mut begin));
    read.is_ok() && begin.iter().all(|byte| *byte == 0)
}
