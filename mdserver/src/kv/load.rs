//! Makes a store from a checkpoint that was copied elsewhere: the way back from a dump.
//!
//! The file is checked from end to end before anything is made. Then come a mark, the first journal file
//! and the checkpoint under its name; last the mark goes. A directory with the mark is never opened: it
//! would look like a store that was just born, or like one that lost its checkpoint.

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

/// The name of the mark.
const UNFINISHED: &str = "unfinished-load";

/// What a load makes of a value, given its key.
type Change = dyn Fn(&[u8], Vec<u8>) -> Vec<u8>;

/// A checkpoint to make a store from.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    blocks: Blocks,
}

impl Source {
    /// Opens the file, if every byte of it is as it was written.
    ///
    /// # Errors
    /// [`KvError::Invalid`] says what is wrong with the file, and where.
    pub fn open(path: &Path) -> Result<Self, KvError> {
        match Blocks::open_any(path) {
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

    /// Makes a store of it in `dir`, which must be empty or missing, or hold what a load that did not come
    /// to its end left; `other` takes the place of what the file has under the same keys, and every other
    /// value is what `change` makes of it. Answers how many pairs the store has.
    ///
    /// # Errors
    /// [`KvError::Invalid`] when there is something in `dir` already.
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
        // Nobody else makes anything here from now on.
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
        let rotten = |broken: Broken| refused(&self.path, &broken);
        let mut rows = self.blocks.reader().map_err(rotten)?;
        while let Some((key, value)) = rows.next().map_err(rotten)? {
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

/// Refuses a directory in which there is something that a load has not left.
fn check_free(dir: &Path) -> Result<(), KvError> {
    if dir.join(UNFINISHED).exists() {
        return Ok(());
    }
    let entries = fs::read_dir(dir).map_err(|error| KvError::io("list", dir, &error))?;
    match entries.flatten().find(|entry| entry.file_name() != LOCK) {
        None => Ok(()),
        Some(entry) => Err(KvError::Invalid(format!(
            "{} is not empty ({} is in it); a dump is loaded into a directory of its own: give another one, or move what is there away",
            dir.display(),
            entry.file_name().display()
        ))),
    }
}

/// Marks the directory as one that holds no store yet, and takes away what an earlier try left.
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

/// Refuses a directory into which a dump was not loaded to its end.
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
