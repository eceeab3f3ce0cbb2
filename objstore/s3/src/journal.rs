//! The journal of the cache: what is in it, and what of that the bucket does not have, so that a process that is killed loses nothing.
//!
//! A record is appended before a reply says that something was written. A killed process leaves its records, and the files of the
//! cache, to the system, which has them until the machine stops. The next process on the same directory reads them, if no other
//! one has had the identity meanwhile ([`Begin`] says which segment this one began with) and the machine was not restarted. If it was,
//! what is not known to be synced may be lost or half there: all is dropped, or, where a sync waits for the local disk alone, all that
//! the bucket has.
//!
//! Order: before cells of a grid chunk change, their blocks are recorded as changing: what the bucket has of them is right until they are
//! recorded as dirty, after the change. A chunk is recorded as clean under its stripe, so that no change of it is under way. A chunk
//! without a record is not in the cache, whatever the files say. After a start of the machine blocks that are dirty are right
//! if they were recorded as synced, which is after their bytes were.
//!
//! A record that the end of the file cuts is one that a killed process has not completed. Any other damage is an error: records behind
//! it were acknowledged.
//!
//! If a record cannot be written the journal is given up, and removed: the next process begins with an empty cache, as if there was
//! none.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crc_fast::crc32_iscsi as crc32c;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use slabfs_objstore::{ChunkForm, ChunkName};

use crate::segment::Writer;

const NAME: &str = "journal";
const FIRST: &[u8] = b"slabfs cache 2\n";
/// The journal is rewritten when it has this size, or four times what it needed the last time.
const LARGE: u64 = 16 << 20;
/// The longest record.
const MAX_RECORD: usize = 1 << 26;

/// The first record: whose journal it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// The system's id of the time since the machine was started.
    pub(crate) boot: String,
    /// The identity in the bucket.
    pub(crate) uuid: [u8; 16],
    pub(crate) writer: Writer,
    /// The segment with which this process began.
    pub(crate) number: u64,
    pub(crate) verifier: u64,
}

/// A change of the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record {
    Begin(Begin),
    /// An immutable chunk, or a stream that becomes one; a sealed one is not in the bucket if it is dirty.
    Free {
        name: ChunkName,
        form: ChunkForm,
        sealed: bool,
        dirty: bool,
        bytes: u64,
    },
    /// Blocks of a grid chunk are about to change.
    Changing {
        name: ChunkName,
        blocks: BTreeSet<u64>,
    },
    /// Blocks of a grid chunk: from the bucket, or changed.
    Blocks {
        name: ChunkName,
        form: ChunkForm,
        blocks: BTreeSet<u64>,
        dirty: bool,
    },
    /// In the bucket now.
    Stored {
        name: ChunkName,
        /// Of a grid chunk.
        blocks: BTreeSet<u64>,
    },
    /// Dirty blocks of a grid chunk that are on the local disk.
    Synced {
        name: ChunkName,
        blocks: BTreeSet<u64>,
    },
    /// Not in the cache any more.
    Removed(ChunkName),
    /// Another process on this directory may have begun.
    Successor(Writer),
}

/// A chunk of the cache, as records say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Free {
        form: ChunkForm,
        sealed: bool,
        dirty: bool,
        bytes: u64,
    },
    Grid {
        form: ChunkForm,
        here: BTreeSet<u64>,
        dirty: BTreeSet<u64>,
        /// Those of the dirty ones that are on the local disk.
        synced: BTreeSet<u64>,
    },
}

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) begin: Begin,
    pub(crate) chunks: HashMap<ChunkName, Entry>,
    /// Processes that may have begun on this directory since, and did not come to write a journal.
    pub(crate) successors: Vec<Writer>,
}

impl Found {
    fn apply(&mut self, record: Record) {
        match record {
            Record::Begin(begin) => self.begin = begin,
            Record::Free {
                name,
                form,
                sealed,
                dirty,
                bytes,
            } => {
                let entry = Entry::Free {
                    form,
                    sealed,
                    dirty,
                    bytes,
                };
                self.chunks.insert(name, entry);
            }
            Record::Changing { name, blocks } => {
                if let Some(Entry::Grid { here, dirty, .. }) = self.chunks.get_mut(&name) {
                    here.retain(|block| dirty.contains(block) || !blocks.contains(block));
                }
            }
            Record::Synced { name, blocks } => {
                if let Some(Entry::Grid { dirty, synced, .. }) = self.chunks.get_mut(&name) {
                    synced.extend(blocks.intersection(dirty));
                }
            }
            Record::Successor(writer) => self.successors.push(writer),
            Record::Blocks {
                name,
                form,
                blocks,
                dirty,
            } => {
                let entry = self.chunks.entry(name).or_insert_with(|| Entry::Grid {
                    form: form.clone(),
                    here: BTreeSet::new(),
                    dirty: BTreeSet::new(),
                    synced: BTreeSet::new(),
                });
                if let Entry::Grid {
                    form: known,
                    here,
                    dirty: changed,
                    ..
                } = entry
                {
                    *known = form;
                    if dirty {
                        changed.extend(&blocks);
                    }
                    here.extend(blocks);
                }
            }
            Record::Stored { name, blocks } => match self.chunks.get_mut(&name) {
                Some(Entry::Free { dirty, .. }) => *dirty = false,
                Some(Entry::Grid { dirty, synced, .. }) => {
                    dirty.retain(|block| !blocks.contains(block));
                    synced.retain(|block| !blocks.contains(block));
                }
                None => {}
            },
            Record::Removed(name) => {
                self.chunks.remove(&name);
            }
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    file: Option<File>,
    bytes: u64,
    /// The size at which it is rewritten.
    limit: u64,
}

impl Journal {
    /// The journal of the cache in `dir`; nothing is recorded before [`Journal::begin`].
    pub(crate) fn of(dir: &Path) -> Journal {
        Journal {
            path: dir.join(NAME),
            open: Mutex::default(),
        }
    }

    /// What the last process has left; `None` if there is nothing.
    ///
    /// # Errors
    /// A journal that cannot be read, or is damaged.
    pub(crate) fn read(&self) -> io::Result<Option<Found>> {
        let mut bytes = Vec::new();
        match File::open(&self.path) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let damaged = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let Some(mut rest) = bytes.strip_prefix(FIRST) else {
            return Err(damaged(format!(
                "{} is no journal of this version",
                self.path.display()
            )));
        };
        let mut found: Option<Found> = None;
        while !rest.is_empty() {
            let Some((record, behind)) = next(rest) else {
                // Cut by the end of the file, it was never acknowledged.
                let at = bytes.len() - rest.len();
                let Some(more) = (1..rest.len()).find(|more| next(&rest[*more..]).is_some()) else {
                    break;
                };
                return Err(damaged(format!(
                    "{} is damaged at byte {at}: there are records from byte {} on",
                    self.path.display(),
                    at + more
                )));
            };
            rest = behind;
            match (&mut found, record) {
                (Some(found), record) => found.apply(record),
                (None, Record::Begin(begin)) => {
                    found = Some(Found {
                        begin,
                        chunks: HashMap::new(),
                        successors: Vec::new(),
                    });
                }
                (None, _) => {
                    return Err(damaged(format!(
                        "{} does not begin as a journal does",
                        self.path.display()
                    )));
                }
            }
        }
        Ok(found)
    }

    /// Rewrites the journal: `begin`, and what is in the cache now.
    pub(crate) fn begin(
        &self,
        begin: Begin,
        chunks: impl Iterator<Item = Record>,
    ) -> io::Result<()> {
        let mut open = self.open.lock();
        self.rewrite(
            &mut open,
            std::iter::once(Record::Begin(begin)).chain(chunks),
        )
    }

    /// Notes on the disk that this process may begin now, behind what the last one has left. A record that a kill has
    /// cut goes: with another one behind it, the next start would take it for damage.
    pub(crate) fn announce(&self, writer: Writer) -> io::Result<()> {
        let mut bytes = Vec::new();
        append(&mut bytes, &Record::Successor(writer))?;
        let found = fs::read(&self.path)?;
        let mut rest = found.strip_prefix(FIRST).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "no journal of this version")
        })?;
        while let Some((_, behind)) = next(rest) {
            rest = behind;
        }
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        file.set_len((found.len() - rest.len()) as u64)?;
        file.write_all(&bytes)?;
        file.sync_data()
    }

    fn rewrite(&self, open: &mut Open, records: impl Iterator<Item = Record>) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut bytes = FIRST.to_vec();
        for record in records {
            append(&mut bytes, &record)?;
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&new)?;
        file.write_all(&bytes)?;
        file.sync_data()?;
        fs::rename(&new, &self.path)?;
        if let Some(dir) = self.path.parent() {
            File::open(dir)?.sync_all()?;
        }
        *open = Open {
            file: Some(file),
            bytes: bytes.len() as u64,
            limit: LARGE.max(4 * bytes.len() as u64),
        };
        Ok(())
    }

    /// Appends a record.
    pub(crate) fn note(&self, record: &Record) {
        let mut open = self.open.lock();
        let Some(file) = &mut open.file else { return };
        let mut bytes = Vec::with_capacity(128);
        let written = append(&mut bytes, record).and_then(|()| file.write_all(&bytes));
        match written {
            Ok(()) => open.bytes += bytes.len() as u64,
            Err(error) => self.give_up(&mut open, &error),
        }
    }

    /// Whether it should be rewritten.
    pub(crate) fn is_large(&self) -> bool {
        let open = self.open.lock();
        open.file.is_some() && open.bytes > open.limit
    }

    /// Rewrites it, with what is in the cache; no change may be under way.
    pub(crate) fn shorten(&self, begin: Begin, chunks: impl Iterator<Item = Record>) {
        let mut open = self.open.lock();
        if open.file.is_none() {
            return;
        }
        let records = std::iter::once(Record::Begin(begin)).chain(chunks);
        if let Err(error) = self.rewrite(&mut open, records) {
            self.give_up(&mut open, &error);
        }
    }

    /// Returns once all records are on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let file = {
            let open = self.open.lock();
            let file = open.file.as_ref().ok_or_else(|| {
                io::Error::other("the journal of the cache was given up after an error")
            })?;
            file.try_clone()?
        };
        file.sync_data()
    }

    fn give_up(&self, open: &mut Open, error: &io::Error) {
        tracing::error!(
            "{}: {error}; if this process is killed, what is not in the bucket yet is lost",
            self.path.display()
        );
        open.file = None;
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::error!("{}: {error}", self.path.display());
        }
    }
}

fn append(bytes: &mut Vec<u8>, record: &Record) -> io::Result<()> {
    let record = postcard::to_stdvec(record).map_err(io::Error::other)?;
    bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32c(&record).to_le_bytes());
    bytes.extend_from_slice(&record);
    Ok(())
}

/// The next complete record, and what is behind it.
fn next(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (crc, rest) = rest.split_first_chunk()?;
    let len = u32::from_le_bytes(*len) as usize;
    if len > MAX_RECORD {
        return None;
    }
    let (record, behind) = rest.split_at_checked(len)?;
    if crc32c(record) != u32::from_le_bytes(*crc) {
        return None;
    }
    Some((postcard::from_bytes(record).ok()?, behind))
}

/// The system's id of the time since the machine was started; empty if it has none, which is like no other.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map_or_else(
        |error| {
            tracing::warn!("no id of this start of the machine: {error}");
            String::new()
        },
        |id| id.trim().to_owned(),
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use slabfs_model::Codec;
    use slabfs_objstore::store::conformance::{form, free};

    /// Makes a journal one of another start of the machine.
    pub(crate) fn with_another_boot(path: &Path) {
        let bytes = fs::read(path).unwrap();
        let mut new = FIRST.to_vec();
        let mut rest = bytes.strip_prefix(FIRST).unwrap();
        while let Some((record, behind)) = next(rest) {
            rest = behind;
            let record = match record {
                Record::Begin(begin) => Record::Begin(Begin {
                    boot: "another".to_owned(),
                    ..begin
                }),
                other => other,
            };
            append(&mut new, &record).unwrap();
        }
        fs::write(path, new).unwrap();
    }

    #[test]
    fn records_come_back_up_to_the_damage() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::of(dir.path());
        assert_eq!(journal.read().unwrap(), None);
        let begin = Begin {
            boot: "b".to_owned(),
            uuid: [3; 16],
            writer: [1; 16],
            number: 7,
            verifier: 9,
        };
        let form = form(&[100], 1, Codec::None, &[]);
        let put = |id, dirty| Record::Free {
            name: free(id),
            form: form.clone(),
            sealed: true,
            dirty,
            bytes: 100,
        };
        let blocks = |blocks: &[u64], dirty| Record::Blocks {
            name: free(5),
            form: form.clone(),
            blocks: blocks.iter().copied().collect(),
            dirty,
        };
        journal
            .begin(begin.clone(), std::iter::once(put(1, true)))
            .unwrap();
        journal.note(&put(2, true));
        journal.note(&Record::Stored {
            name: free(2),
            blocks: BTreeSet::new(),
        });
        journal.note(&put(3, true));
        journal.note(&Record::Removed(free(3)));
        journal.note(&blocks(&[0, 1], false));
        journal.note(&blocks(&[1, 2], true));
        journal.note(&Record::Synced {
            name: free(5),
            blocks: BTreeSet::from([0, 1, 2]),
        });
        journal.note(&blocks(&[3], false));
        journal.note(&Record::Changing {
            name: free(5),
            blocks: BTreeSet::from([2, 3]),
        });
        journal.note(&Record::Stored {
            name: free(5),
            blocks: BTreeSet::from([2]),
        });
        let found = journal.read().unwrap().unwrap();
        assert_eq!(found.begin, begin);
        let entry = |dirty| Entry::Free {
            form: form.clone(),
            sealed: true,
            dirty,
            bytes: 100,
        };
        let grid = Entry::Grid {
            form: form.clone(),
            here: BTreeSet::from([0, 1, 2]),
            dirty: BTreeSet::from([1]),
            synced: BTreeSet::from([1]),
        };
        let chunks = HashMap::from([
            (free(1), entry(true)),
            (free(2), entry(false)),
            (free(5), grid),
        ]);
        assert_eq!(found.chunks, chunks);
        // Cut anywhere, it has the records before.
        let bytes = fs::read(dir.path().join(NAME)).unwrap();
        for cut in FIRST.len()..bytes.len() {
            fs::write(dir.path().join(NAME), &bytes[..cut]).unwrap();
            if let Some(found) = journal.read().unwrap() {
                assert_eq!(found.begin, begin);
            }
        }
        // Damaged anywhere else, it is an error.
        let records = bytes.len() - FIRST.len();
        for at in (0..records - 60).map(|at| FIRST.len() + at) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            fs::write(dir.path().join(NAME), &damaged).unwrap();
            assert!(journal.read().is_err(), "byte {at}");
        }
        let mut damaged = bytes.clone();
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        fs::write(dir.path().join(NAME), &damaged).unwrap();
        let found = journal.read().unwrap().unwrap();
        assert_eq!(
            found.chunks[&free(5)],
            Entry::Grid {
                form: form.clone(),
                here: BTreeSet::from([0, 1, 2]),
                dirty: BTreeSet::from([1, 2]),
                synced: BTreeSet::from([1, 2]),
            }
        );
        // Behind a record that was cut, and again.
        let cut = [&bytes[..], &bytes[FIRST.len()..FIRST.len() + 20]].concat();
        fs::write(dir.path().join(NAME), cut).unwrap();
        journal.announce([5; 16]).unwrap();
        journal.announce([6; 16]).unwrap();
        assert_eq!(
            journal.read().unwrap().unwrap().successors,
            [[5; 16], [6; 16]]
        );
    }
}
