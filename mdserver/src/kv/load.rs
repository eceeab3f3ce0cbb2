//! Creates a store from a checkpoint file, which is how a dump is restored.
//!
//! The file is checked completely before anything is written. Then a marker file, the first journal file and the
//! checkpoint under its name are created; last the marker is removed. A directory with the marker is never opened: it
//! would look like a new store, or like one that lost its checkpoint.

use super::blocks::Blocks;
use super::checkpoint::{Broken, Head, Writer};
use super::disk::{
    CHECKPOINT_TEMP, Ground, checkpoint_name, journal_name, new_id, numbered, remove, sync_dir,
};
use super::journal::JournalFile;
use super::local::KvOptions;
use super::start::{LOCK, create, lock};
use super::{KvError, Lsn};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The name of the marker file.
const UNFINISHED: &str = "unfinished-load";

/// Converts a value during a load, given its key.
type Change = dyn Fn(&[u8], Vec<u8>) -> Vec<u8>;

/// A checkpoint to create a store from.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    blocks: Blocks,
}

impl Source {
    /// Opens the file and verifies every checksum.
    ///
    /// # Errors
    /// [`KvError::Invalid`] describes the damage and where it is.
    pub fn open(path: &Path) -> Result<Self, KvError> {
        match Blocks::open(path, None) {
            Ok(blocks) => Ok(Self {
                path: path.to_owned(),
                blocks,
            }),
            Err(broken) => Err(refused(path, &broken)),
        }
    }

    /// The last commit in it.
    pub fn last(&self) -> Lsn {
        self.blocks.lsn()
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.bytes()
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let value = self.blocks.get(key);
        value.map_err(|broken| refused(&self.path, &broken))
    }

    /// Creates a store from it in `dir`, which must be missing, empty, or hold the remains of an unfinished load.
    /// `other` replaces the values that the file has under the same keys; `change` converts all other values. Returns
    /// the number of pairs in the store.
    ///
    /// # Errors
    /// [`KvError::Invalid`] if `dir` is not empty.
    pub fn load(
        &self,
        dir: &Path,
        other: BTreeMap<Vec<u8>, Vec<u8>>,
        change: &Change,
    ) -> Result<u64, KvError> {
        self.load_on(dir, other, change, &Ground::real())
    }

    pub(super) fn load_on(
        &self,
        dir: &Path,
        mut other: BTreeMap<Vec<u8>, Vec<u8>>,
        change: &Change,
        ground: &Ground,
    ) -> Result<u64, KvError> {
        create(dir)?;
        check_free(dir)?;
        let _lock = lock(dir)?;
        // Checked again under the lock.
        check_free(dir)?;
        begin(dir)?;
        let head = Head {
            store: new_id()?,
            lsn: self.blocks.lsn(),
            journal: 1,
        };
        let limit = KvOptions::default().file_limit();
        JournalFile::create(dir, ground, (head.store, head.journal), limit)?;
        let mut writer = Writer::new(dir, ground, head)?;
        let mut pairs = 0;
        let unreadable = |broken: Broken| refused(&self.path, &broken);
        let mut rows = self.blocks.from(b"").map_err(unreadable)?;
        while let Some((key, value)) = rows.next().map_err(unreadable)? {
            while let Some(first) = other.first_entry().filter(|first| *first.key() < key) {
                writer.push(first.key(), first.get())?;
                first.remove();
                pairs += 1;
            }
            let value = match other.remove(&key) {
                Some(other) => other,
                None => change(&key, value),
            };
            writer.push(&key, &value)?;
            pairs += 1;
        }
        for (key, value) in &other {
            writer.push(key, value)?;
            pairs += 1;
        }
        writer.finish()?;
        remove(&dir.join(UNFINISHED))?;
        sync_dir(dir)?;
        Ok(pairs)
    }
}

/// Refuses a directory that contains anything but the lock file and the remains of a load.
fn check_free(dir: &Path) -> Result<(), KvError> {
    if dir.join(UNFINISHED).exists() {
        return Ok(());
    }
    let entries = fs::read_dir(dir).map_err(|error| KvError::io("list", dir, &error))?;
    match entries.flatten().find(|entry| entry.file_name() != LOCK) {
        None => Ok(()),
        Some(entry) => Err(KvError::Invalid(format!(
            "{} is not empty ({} is in it); a dump is loaded into an empty directory: give another one, or move its contents away",
            dir.display(),
            entry.file_name().display()
        ))),
    }
}

/// Creates the marker, and removes the remains of an earlier attempt.
fn begin(dir: &Path) -> Result<(), KvError> {
    let mark = dir.join(UNFINISHED);
    let made = File::create(&mark).and_then(|file| file.sync_all());
    made.map_err(|error| KvError::io("create", &mark, &error))?;
    sync_dir(dir)?;
    for number in numbered(dir, "journal")? {
        remove(&dir.join(journal_name(number)))?;
    }
    for lsn in numbered(dir, "checkpoint")? {
        remove(&dir.join(checkpoint_name(lsn)))?;
    }
    remove(&dir.join(CHECKPOINT_TEMP))?;
    sync_dir(dir)
}

/// Refuses a directory that holds an unfinished load.
pub(super) fn check_finished(dir: &Path) -> Result<(), KvError> {
    if !dir.join(UNFINISHED).exists() {
        return Ok(());
    }
    Err(KvError::Invalid(format!(
        "a dump was not loaded to its end into {} ({UNFINISHED} is in it): load it again with `slabfs meta load`, or remove the directory",
        dir.display()
    )))
}

fn refused(path: &Path, broken: &Broken) -> KvError {
    let Broken { offset, detail } = broken;
    KvError::Invalid(format!(
        "{} cannot be loaded: at byte {offset}: {detail}; load another copy of it, or another dump",
        path.display()
    ))
}
