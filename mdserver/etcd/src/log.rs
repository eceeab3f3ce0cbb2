//! [`Log`]: the journal in etcd. The leader appends blocks, everybody reads them, and what is in a checkpoint is removed.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slabfs_mdserver::kv::{Batch, Lsn};

use crate::block::{self, Head, batches, decode, decode_head};
use crate::client::{Do, Etcd, Found, If};
use crate::error::EtcdError;
use crate::lease::Lease;

/// The time of one request; a leader repeats it as long as its lease is valid.
pub(crate) const REQUEST: Duration = Duration::from_secs(10);
/// Blocks read at a time.
const PAGE: i64 = 16;
/// The pause before a write to a full etcd is repeated.
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// The key that says what the prefix holds.
const STORE: &str = "store";
/// The key of the newest checkpoint.
const CHECKPOINT: &str = "checkpoint";
/// The key that says how many shards the filesystem has. It is below the prefix of the filesystem, and not of a shard.
const SHARDS: &str = "shards";
/// The format of keys and values.
const FORMAT: u32 = 1;

/// Agrees with all other services of a filesystem on the number of its shards; the first one says it. `etcd` has the prefix of the
/// filesystem.
///
/// # Errors
/// There is a filesystem with another number.
pub fn agree_on_shards(etcd: &Etcd, shards: u8) -> Result<(), EtcdError> {
    let key = etcd.key(SHARDS);
    let value = shards.to_string().into_bytes();
    let other = |found: &str| {
        EtcdError::Content(format!(
            "the filesystem at {} has {found} and not {shards}: give --shard I/N as to its other services, or another prefix",
            etcd.addr()
        ))
    };
    if etcd.get(&key, REQUEST)?.is_none() {
        // Of one whose services did not say it yet.
        let undivided = etcd.get(&etcd.key(STORE), REQUEST)?.is_some();
        let divided = etcd
            .get(&etcd.key(&format!("shard-0/{STORE}")), REQUEST)?
            .is_some();
        match (shards, undivided, divided) {
            (1, _, true) => return Err(other("several shards")),
            (2.., true, _) => return Err(other("one shard")),
            _ => {}
        }
        let put = Do::Put(key.clone(), value.clone());
        etcd.transact(&[If::Absent(key.clone())], &[put], REQUEST)?;
    }
    match etcd.get(&key, REQUEST)? {
        Some(found) if found.value == value => Ok(()),
        Some(found) => {
            let found = String::from_utf8_lossy(&found.value).into_owned();
            Err(other(&format!("{found} shards")))
        }
        None => Err(EtcdError::Content(format!(
            "{}: the key with the number of shards was removed",
            etcd.addr()
        ))),
    }
}

/// The value of the key `store`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Store {
    format: u32,
    /// Random, chosen by the first service.
    id: String,
}

/// The value of the key `checkpoint`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pointer {
    /// The file's name.
    pub(crate) name: String,
    /// The last commit in it.
    pub(crate) last: u64,
    pub(crate) bytes: u64,
}

/// What reading the log from a commit on gives.
#[derive(Debug)]
pub(crate) enum Read {
    /// The commits that follow, in order; none at the end.
    Commits(Vec<(Lsn, Batch)>),
    /// The next commit is not in the log any more: it is in the checkpoint.
    Removed,
}

/// The journal of one filesystem in etcd.
#[derive(Debug)]
pub struct Log {
    etcd: Arc<Etcd>,
    id: String,
}

impl Log {
    /// Opens the log, and creates it if the prefix is empty.
    ///
    /// # Errors
    /// No etcd, or keys of another format.
    pub fn open(etcd: &Arc<Etcd>) -> Result<Log, EtcdError> {
        let key = etcd.key(STORE);
        let value = encode(&Store {
            format: FORMAT,
            id: Log::new_id()?,
        })?;
        let found = match etcd.get(&key, REQUEST)? {
            Some(found) => Some(found),
            None => {
                etcd.transact(
                    &[If::Absent(key.clone())],
                    &[Do::Put(key.clone(), value)],
                    REQUEST,
                )?;
                etcd.get(&key, REQUEST)?
            }
        };
        let found = found.ok_or_else(|| {
            EtcdError::Content(format!("{}: the store's key was removed", etcd.addr()))
        })?;
        let store: Store = serde_json::from_slice(&found.value).map_err(|error| {
            EtcdError::Content(format!(
                "{}: the keys there are not of a slabfs ({error}); choose another prefix",
                etcd.addr()
            ))
        })?;
        if store.format != FORMAT {
            return Err(EtcdError::Content(format!(
                "{}: the log has format {} and this program knows format {FORMAT} only",
                etcd.addr(),
                store.format
            )));
        }
        Ok(Log {
            etcd: Arc::clone(etcd),
            id: store.id,
        })
    }

    /// Fails if the prefix is in use.
    pub(crate) fn check_unused(etcd: &Arc<Etcd>) -> Result<(), EtcdError> {
        for key in [STORE, SHARDS] {
            if etcd.get(&etcd.key(key), REQUEST)?.is_some() {
                return Err(in_use(etcd));
            }
        }
        Ok(())
    }

    /// A new log behind a checkpoint.
    ///
    /// # Errors
    /// A prefix that is in use.
    pub(crate) fn create(
        etcd: &Arc<Etcd>,
        id: String,
        checkpoint: &Pointer,
    ) -> Result<Log, EtcdError> {
        let store = encode(&Store {
            format: FORMAT,
            id: id.clone(),
        })?;
        let key = etcd.key(STORE);
        let created = etcd.transact(
            &[If::Absent(key.clone())],
            &[
                Do::Put(key, store),
                Do::Put(etcd.key(CHECKPOINT), encode(checkpoint)?),
            ],
            REQUEST,
        )?;
        let log = Log {
            etcd: Arc::clone(etcd),
            id,
        };
        // A repeated request finds its own key.
        match created.done || Log::open(etcd)?.id == log.id {
            true => Ok(log),
            false => Err(in_use(etcd)),
        }
    }

    /// A random id for a new log.
    pub(crate) fn new_id() -> Result<String, EtcdError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)
            .map_err(|error| EtcdError::Content(format!("no random numbers: {error}")))?;
        Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The id of the filesystem's metadata.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn etcd(&self) -> &Arc<Etcd> {
        &self.etcd
    }

    /// The keys of all blocks.
    fn all(&self) -> (Vec<u8>, Vec<u8>) {
        (self.etcd.key("log/"), self.etcd.key("log0"))
    }

    /// Appends blocks, one transaction each. On return they are on the disks of etcd's majority.
    ///
    /// # Errors
    /// `NotLeader`, and then nothing that was not acknowledged by then will be in the log.
    pub(crate) fn append(
        &self,
        lease: &Lease,
        blocks: &[(String, Vec<u8>)],
    ) -> Result<(), EtcdError> {
        for (name, value) in blocks {
            let key = self.etcd.key(name);
            let changes = [Do::Put(key.clone(), value.clone())];
            let conditions = [lease.condition(), If::Absent(key.clone())];
            self.write(lease, &conditions, &changes, || {
                let found = self.etcd.get(&key, REQUEST)?;
                Ok(found.is_some_and(|found| found.value == *value))
            })?;
        }
        Ok(())
    }

    /// Makes a transaction of the leader, again and again as long as its lease is valid. `is_made`: whether an earlier
    /// attempt has made it.
    fn write(
        &self,
        lease: &Lease,
        conditions: &[If],
        changes: &[Do],
        is_made: impl Fn() -> Result<bool, EtcdError>,
    ) -> Result<(), EtcdError> {
        let mut said = false;
        loop {
            lease.check()?;
            let error = match self.etcd.transact(conditions, changes, REQUEST) {
                Ok(done) if done.done => return Ok(()),
                Ok(_) => match is_made() {
                    Ok(true) => return Ok(()),
                    Ok(false) => {
                        lease.lose();
                        return Err(EtcdError::NotLeader {
                            detail: "etcd refused its write, since another one has the lease"
                                .to_owned(),
                        });
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if !error.is_transient() {
                return Err(error);
            }
            if !said {
                tracing::warn!("the journal cannot be written, trying again: {error}");
                said = true;
            }
            if matches!(error, EtcdError::Full { .. }) {
                lease.watch(FULL_PAUSE);
            }
        }
    }

    /// Reads the commits behind `after`: some of them, at least one if there is one.
    pub(crate) fn read(&self, after: Lsn) -> Result<Read, EtcdError> {
        let next = Lsn(after.0 + 1);
        let (first, end) = self.all();
        let from = self.etcd.key(&block::name(next, 0));
        let mut found = self.etcd.first(from.clone(), end, PAGE, REQUEST)?;
        let begins = match found.first() {
            Some(one) => self.decoded(one)?.0.first == next,
            None => true,
        };
        if !begins || found.is_empty() {
            // The block with the next commit may begin before it.
            match self.etcd.last(first, from, REQUEST)? {
                // One that the copy has already may be damaged.
                Some(one) if self.head(&one)?.last() >= next => found.insert(0, one),
                _ if !begins => return Ok(Read::Removed),
                _ => {}
            }
        }
        let mut commits = Vec::new();
        let mut parts: Vec<u8> = Vec::new();
        let mut last = after;
        for one in &found {
            let (head, payload) = self.decoded(one)?;
            let payload = match head.parts {
                1 => payload,
                _ => {
                    if head.part == 0 {
                        parts.clear();
                    }
                    parts.extend_from_slice(payload);
                    if head.part + 1 < head.parts {
                        continue;
                    }
                    &parts
                }
            };
            if head.first.0 > last.0 + 1 {
                return Err(self.unreadable(one, &format!("commit {} is missing", last.0 + 1)));
            }
            let batches = batches(&head, payload).map_err(|why| self.unreadable(one, &why))?;
            for (lsn, batch) in (head.first.0..).zip(batches) {
                if lsn > last.0 {
                    last = Lsn(lsn);
                    commits.push((last, batch));
                }
            }
        }
        if commits.is_empty() && found.len() as i64 == PAGE {
            return self.read_long(next);
        }
        Ok(Read::Commits(commits))
    }

    /// Reads one commit that has more parts than a page.
    fn read_long(&self, next: Lsn) -> Result<Read, EtcdError> {
        let mut bytes = Vec::new();
        let mut part = 0;
        loop {
            let key = self.etcd.key(&block::name(next, part));
            let Some(found) = self.etcd.get(&key, REQUEST)? else {
                return Ok(Read::Commits(Vec::new()));
            };
            let (head, payload) = self.decoded(&found)?;
            bytes.extend_from_slice(payload);
            part += 1;
            if part == head.parts {
                let batches = batches(&head, &bytes);
                let batches = batches.map_err(|why| self.unreadable(&found, &why))?;
                let commits = batches.into_iter().map(|batch| (next, batch));
                return Ok(Read::Commits(commits.collect()));
            }
        }
    }

    fn decoded<'a>(&self, found: &'a Found) -> Result<(Head, &'a [u8]), EtcdError> {
        decode(&found.value).map_err(|why| self.unreadable(found, &why))
    }

    fn head(&self, found: &Found) -> Result<Head, EtcdError> {
        let decoded = decode_head(&found.value).map_err(|why| self.unreadable(found, &why))?;
        Ok(decoded.0)
    }

    /// Bytes of the blocks behind a commit.
    pub(crate) fn bytes_behind(&self, after: Lsn) -> Result<u64, EtcdError> {
        let (_, end) = self.all();
        let mut from = self.etcd.key(&block::name(Lsn(after.0 + 1), 0));
        let mut bytes = 0;
        loop {
            let found = self.etcd.first(from.clone(), end.clone(), PAGE, REQUEST)?;
            bytes += found.iter().map(|one| one.value.len() as u64).sum::<u64>();
            match found.last() {
                Some(last) if found.len() as i64 == PAGE => {
                    from = [&last.key[..], &[0]].concat();
                }
                _ => return Ok(bytes),
            }
        }
    }

    fn unreadable(&self, found: &Found, why: &str) -> EtcdError {
        EtcdError::Content(format!(
            "{}: the key {} cannot be used: {why}",
            self.etcd.addr(),
            String::from_utf8_lossy(&found.key)
        ))
    }

    /// Removes the parts of a record that a dead leader has not completed; `last`: the last complete commit.
    pub(crate) fn cut(&self, lease: &Lease, last: Lsn) -> Result<(), EtcdError> {
        let (_, end) = self.all();
        let from = self.etcd.key(&block::name(Lsn(last.0 + 1), 0));
        if self
            .etcd
            .first(from.clone(), end.clone(), 1, REQUEST)?
            .is_empty()
        {
            return Ok(());
        }
        let changes = [Do::DeleteRange(from.clone(), end.clone())];
        self.write(lease, &[lease.condition()], &changes, || {
            Ok(self
                .etcd
                .first(from.clone(), end.clone(), 1, REQUEST)?
                .is_empty())
        })
    }

    /// The newest checkpoint.
    pub(crate) fn checkpoint(&self) -> Result<Option<Pointer>, EtcdError> {
        let found = self.etcd.get(&self.etcd.key(CHECKPOINT), REQUEST)?;
        let pointer = found.map(|found| {
            serde_json::from_slice(&found.value)
                .map_err(|error| self.unreadable(&found, &error.to_string()))
        });
        pointer.transpose()
    }

    /// Names a new checkpoint, and removes the blocks whose commits are all in the one before it, `keep_after`. The
    /// space in etcd's database is free after a compaction, which this asks for, too.
    pub(crate) fn set_checkpoint(
        &self,
        lease: &Lease,
        pointer: &Pointer,
        keep_after: Lsn,
    ) -> Result<(), EtcdError> {
        let key = self.etcd.key(CHECKPOINT);
        let value = serde_json::to_vec(pointer)
            .map_err(|error| EtcdError::Content(format!("cannot encode a key: {error}")))?;
        let put = [Do::Put(key.clone(), value.clone())];
        self.write(lease, &[lease.condition()], &put, || {
            let found = self.etcd.get(&key, REQUEST)?;
            Ok(found.is_some_and(|found| found.value == value))
        })?;
        let (first, _) = self.all();
        let next = self.etcd.key(&block::name(Lsn(keep_after.0 + 1), 0));
        // The block before that key may have commits after it.
        let upto = match self.etcd.last(first.clone(), next.clone(), REQUEST)? {
            None => return Ok(()),
            Some(one) if self.head(&one)?.last() > keep_after => one.key,
            Some(_) => next,
        };
        let conditions = [lease.condition()];
        let delete = [Do::DeleteRange(first, upto)];
        let done = self.etcd.transact(&conditions, &delete, REQUEST)?;
        if done.done {
            // The space is free later if that fails: the next checkpoint, or another client of etcd, compacts as well.
            if let Err(error) = self.etcd.compact(done.revision, REQUEST) {
                tracing::debug!("etcd is not compacted: {error}");
            }
        }
        Ok(())
    }
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, EtcdError> {
    serde_json::to_vec(value)
        .map_err(|error| EtcdError::Content(format!("cannot encode a key: {error}")))
}

fn in_use(etcd: &Etcd) -> EtcdError {
    EtcdError::Content(format!(
        "{} has metadata already; choose another prefix",
        etcd.addr()
    ))
}
