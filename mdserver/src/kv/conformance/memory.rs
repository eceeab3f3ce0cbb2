//! [`MemoryKv`]: the map in memory, for tests of the layers above.

use crate::kv::{Batch, Key, KvError, Lsn, MetaKv, Pair};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A store whose contents are lost when it is dropped.
#[derive(Debug, Default)]
pub struct MemoryKv {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    map: BTreeMap<Key, Vec<u8>>,
    last: Lsn,
    synced: Lsn,
    closed: bool,
}

impl MemoryKv {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Inner {
    fn open(&self) -> Result<(), KvError> {
        if self.closed {
            Err(KvError::Closed)
        } else {
            Ok(())
        }
    }
}

impl MetaKv for MemoryKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let inner = self.inner.read();
        inner.open()?;
        Ok(inner.map.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        let inner = self.inner.read();
        inner.open()?;
        if from >= to {
            return Ok(Vec::new());
        }
        let range = (Bound::Included(from), Bound::Excluded(to));
        let pairs = inner.map.range::<[u8], _>(range).take(limit);
        Ok(pairs
            .map(|(key, value)| (key.to_vec(), value.clone()))
            .collect())
    }

    fn commit(&self, batch: Batch) -> Result<Lsn, KvError> {
        batch.check()?;
        let mut inner = self.inner.write();
        inner.open()?;
        inner.map.extend(batch.puts);
        for key in &batch.deletes {
            inner.map.remove(key);
        }
        inner.last.0 += 1;
        Ok(inner.last)
    }

    fn sync(&self) -> Result<Lsn, KvError> {
        let mut inner = self.inner.write();
        inner.open()?;
        inner.synced = inner.last;
        Ok(inner.synced)
    }

    fn synced(&self) -> Lsn {
        self.inner.read().synced
    }

    fn checkpoint(&self) -> Result<(), KvError> {
        self.sync().map(|_| ())
    }

    fn close(&self) -> Result<(), KvError> {
        let mut inner = self.inner.write();
        inner.synced = inner.last;
        inner.closed = true;
        Ok(())
    }
}
