//! [`Batch`]: the changes of one commit. They are absolute (set this key to that value), so that replaying them twice
//! does no harm. Puts come before deletes; a later put of a key overrides an earlier one.

use super::frame::{Draft, parse};
use super::{Key, KvError, MAX_BATCH, MAX_KEY};

/// The puts and deletes of one atomic commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    pub(super) puts: Vec<(Key, Vec<u8>)>,
    pub(super) deletes: Vec<Key>,
    /// Which of the puts are of keys that do not exist, ascending.
    pub(super) new: Vec<usize>,
}

impl Batch {
    /// A batch that changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: impl Into<Key>, value: impl Into<Vec<u8>>) -> &mut Self {
        self.puts.push((key.into(), value.into()));
        self
    }

    /// Sets `key`, which does not exist yet, to `value`. If it is deleted before it is moved into the index, nothing
    /// goes into the index.
    pub fn put_new(&mut self, key: impl Into<Key>, value: impl Into<Vec<u8>>) -> &mut Self {
        self.new.push(self.puts.len());
        self.put(key, value)
    }

    /// Removes `key`, which need not exist. A delete overrides a put of the same key.
    pub fn delete(&mut self, key: impl Into<Key>) -> &mut Self {
        self.deletes.push(key.into());
        self
    }

    /// True if nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty()
    }

    /// How many keys are named.
    pub fn len(&self) -> usize {
        self.puts.len() + self.deletes.len()
    }

    /// The bytes of keys and values with their lengths, as a journal record holds them.
    pub fn bytes(&self) -> usize {
        let puts: usize = self
            .puts
            .iter()
            .map(|(key, value)| 8 + key.len() + value.len())
            .sum();
        let deletes: usize = self.deletes.iter().map(|key| 4 + key.len()).sum();
        8 + puts + deletes
    }

    /// The batch as the payload of a journal record (`docs/formats/journal.md`).
    pub fn to_record(&self) -> Vec<u8> {
        Draft::record(self).into_payload()
    }

    /// Reads the payload of a journal record; `None` if it is malformed, or not a batch that may be committed.
    pub fn from_record(payload: &[u8]) -> Option<Self> {
        parse(payload).filter(|batch| batch.check().is_ok())
    }

    /// Fails if a record cannot hold the batch: an empty or overlong key, or too many bytes.
    pub(super) fn check(&self) -> Result<(), KvError> {
        let keys = self.puts.iter().map(|(key, _)| key).chain(&self.deletes);
        for key in keys {
            if key.is_empty() || key.len() > MAX_KEY {
                let len = key.len();
                return Err(KvError::Invalid(format!(
                    "a key of {len} bytes; 1 to {MAX_KEY} are allowed"
                )));
            }
        }
        match self.bytes() {
            bytes if bytes > MAX_BATCH => Err(KvError::Invalid(format!(
                "a batch of {bytes} bytes; at most {MAX_BATCH} are allowed"
            ))),
            _ => Ok(()),
        }
    }
}
