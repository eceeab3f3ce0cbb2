//! Makes a store from a checkpoint that was copied elsewhere: the way back from a dump.
//!
//! The file is checked from end to end before anything is made. Then the first journal file comes, and
//! last the checkpoint under its name: a store that is there is whole.

use super::blocks::Blocks;
use super::checkpoint::{Broken, Head, Writer};
use super::disk::{Ground, new_id};
use super::journal::JournalFile;
use super::local::KvOptions;
use super::start::{create, lock};
use super::{KvError, Lsn};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

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

    /// Makes a store of it in `dir`, which must be empty or missing; `other` takes the place of what
    /// the file has under the same keys. Answers how many pairs the store has.
    ///
    /// # Errors
    /// [`KvError::Invalid`] when there is something in `dir` already.
    pub fn load(&self, dir: &Path, mut other: BTreeMap<Vec<u8>, Vec<u8>>) -> Result<u64, KvError> {
        create(dir)?;
        let entries = fs::read_dir(dir).map_err(|error| KvError::io("list", dir, &error))?;
        if let Some(entry) = entries.flatten().next() {
            return Err(KvError::Invalid(format!(
                "{} is not empty ({} is in it); a dump is loaded into a directory of its own: give another one, or move what is there away",
                dir.display(),
                entry.file_name().display()
            )));
        }
        let _lock = lock(dir)?;
        let ground = Ground::real();
        let head = Head {
            store: new_id()?,
            lsn: self.blocks.lsn(),
            journal: 1,
        };
        let limit = KvOptions::default().file_limit();
        JournalFile::create(dir, &ground, (head.store, head.journal), limit)?;
        let mut writer = Writer::new(dir, &ground, head)?;
        let mut pairs = 0;
        let rotten = |broken: Broken| refused(&self.path, &broken);
        let mut rows = self.blocks.reader().map_err(rotten)?;
        while let Some((key, value)) = rows.next().map_err(rotten)? {
            while let Some(first) = other.first_entry().filter(|first| *first.key() < key) {
                writer.push(first.key(), first.get())?;
                first.remove();
                pairs += 1;
            }
            let value = other.remove(&key).unwrap_or(value);
            writer.push(&key, &value)?;
            pairs += 1;
        }
        for (key, value) in &other {
            writer.push(key, value)?;
            pairs += 1;
        }
        writer.finish()?;
        Ok(pairs)
    }
}

fn refused(path: &Path, broken: &Broken) -> KvError {
    let Broken { offset, detail } = broken;
    KvError::Invalid(format!(
        "{} cannot be loaded: at byte {offset}: {detail}",
        path.display()
    ))
}
