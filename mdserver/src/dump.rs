//! Dumps: all metadata at one moment in one file, taken while the service runs; and loading a dump.
//! `docs/formats/dump.md` defines the file.
//!
//! A dump is a checkpoint. The service has one written, holds it open, and returns it in pages, so neither side needs
//! memory for it. The loaded metadata differs from the dumped in two ways: the next numbers of inodes, chunks,
//! sessions and of each object's generations are far ahead, so that no number assigned after the dump is assigned
//! again; and all sessions are over.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::api::{DumpPage, MdError, op};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::kv::{KvError, Lsn, Snapshot, Source};
use crate::records::{Body, Inode, Later, decode, encode};
use crate::service::FORMAT;

/// Bytes of a page.
pub const PAGE: usize = 1 << 20;
/// How long a request waits for the checkpoint before it replies that it takes longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Dumps that can be read at once; one more drops the oldest.
const OPEN: usize = 4;
/// How far the next numbers are advanced.
const AHEAD: u64 = 1 << 32;
/// Generations of an object per incarnation of the store. After a load, each object's generations continue at the
/// start of the incarnation after the next, so that neither its earlier generations nor those of the previous
/// incarnation are used again.
pub(crate) const INCARNATION: u32 = 1 << 20;

/// The dumps being read.
#[derive(Debug, Default)]
pub(crate) struct Dumps {
    open: Mutex<BTreeMap<u64, Given>>,
}

/// A dump being read. Its file occupies the disk as long as it is open, even if the checkpoint is deleted.
#[derive(Debug)]
struct Given {
    snapshot: Snapshot,
    /// Time of the last request for a page.
    asked: Instant,
}

impl Dumps {
    /// Drops those of which no page was requested lately.
    pub(crate) fn forget_idle(&self, patience: Duration) {
        let mut open = self.open.lock();
        open.retain(|_, given| given.asked.elapsed() < patience);
    }
}

/// Returns one page of the dump `ticket`; without a ticket a new dump is begun.
pub(crate) fn page(core: &Core, _: &Ctx, op: op::Dump) -> Result<DumpPage, MdError> {
    let op::Dump { ticket, offset } = op;
    let ticket = match ticket {
        Some(ticket) => ticket,
        None => core.kv.ask_snapshot()?,
    };
    let known = core.dumps.open.lock().contains_key(&ticket);
    if !known {
        if offset > 0 {
            return Err(MdError::Invalid(
                "this dump is not there any more: others were begun since, no page was requested for a long time, or the service was restarted; begin again".to_owned(),
            ));
        }
        let Some(snapshot) = core.kv.snapshot(ticket, PATIENCE)? else {
            return Ok(DumpPage {
                ticket,
                total: None,
                bytes: Vec::new(),
            });
        };
        let mut open = core.dumps.open.lock();
        let asked = Instant::now();
        open.insert(ticket, Given { snapshot, asked });
        if open.len() > OPEN {
            open.pop_first();
        }
    }
    let mut open = core.dumps.open.lock();
    let given = open
        .get_mut(&ticket)
        .ok_or_else(|| MdError::Invalid("too many dumps at once; begin again".to_owned()))?;
    given.asked = Instant::now();
    let snapshot = &given.snapshot;
    let total = snapshot.bytes;
    let len = total.saturating_sub(offset).min(PAGE as u64) as usize;
    let mut bytes = vec![0; len];
    let read = snapshot.file.read_exact_at(&mut bytes, offset);
    read.map_err(|error| MdError::Io(format!("cannot read the dump: {error}")))?;
    drop(open);
    if len == 0 {
        core.dumps.open.lock().remove(&ticket);
    }
    Ok(DumpPage {
        ticket,
        total: Some(total),
        bytes,
    })
}

/// The result of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// The last commit before the dump.
    pub last: Lsn,
    /// Number of keys.
    pub pairs: u64,
    /// The length of the dump.
    pub bytes: u64,
}

/// Reads the dump in `file` completely.
///
/// # Errors
/// Names what is wrong with it.
pub fn check(file: &Path) -> Result<(), MdError> {
    open(file).map(|_| ())
}

fn open(file: &Path) -> Result<Source, MdError> {
    let source = Source::open(file).map_err(refused)?;
    let format = source.get(keys::FORMAT).map_err(refused)?;
    let format: u32 = match format {
        Some(bytes) => decode(keys::FORMAT, &bytes)?,
        None => return Err(MdError::Io(format!("{} holds no metadata", file.display()))),
    };
    if format == FORMAT {
        return Ok(source);
    }
    Err(MdError::Io(format!(
        "{} holds metadata of format {format}, and this program knows {FORMAT}; load it with a slabfs of the version that wrote it",
        file.display()
    )))
}

/// Checks the dump in `file` and creates a metadata directory from it in `dir`, which must be empty or missing.
/// Nothing is created from a dump that is damaged or of a format that this program does not know.
///
/// # Errors
/// Names what is wrong with the file or the directory, and what to do.
pub fn load(file: &Path, dir: &Path) -> Result<Loaded, MdError> {
    let source = open(file)?;
    let mut other = BTreeMap::new();
    let mut ends = [0; 3];
    let counters = [keys::NEXT_INO, keys::NEXT_CHUNK, keys::NEXT_SESSION];
    for (key, end) in counters.into_iter().zip(&mut ends) {
        if let Some(bytes) = source.get(key).map_err(refused)? {
            let next: u64 = decode(key, &bytes)?;
            *end = next.saturating_add(AHEAD);
            other.insert(key.to_vec(), encode(end)?);
        }
    }
    let mut later: Vec<Later> = match source.get(keys::LATER).map_err(refused)? {
        Some(bytes) => decode(keys::LATER, &bytes)?,
        None => Vec::new(),
    };
    let [ino, chunk, _] = ends;
    later.push(Later { ino, chunk });
    other.insert(keys::LATER.to_vec(), encode(&later)?);
    other.insert(keys::LOADED.to_vec(), encode(&true)?);
    let pairs = source.load(dir, other, &aged).map_err(refused)?;
    Ok(Loaded {
        last: source.last(),
        pairs,
        bytes: source.bytes(),
    })
}

/// Converts a row for a load: advances the object's generations, so that none is used again.
fn aged(key: &[u8], value: Vec<u8>) -> Vec<u8> {
    let (from, to) = keys::inodes();
    if key < &from[..] || key >= &to[..] {
        return value;
    }
    // An unreadable row stays as it is; the check reports it.
    let Ok(mut inode) = decode::<Inode>(key, &value) else {
        return value;
    };
    let Body::Object(object) = &mut inode.body else {
        return value;
    };
    let given = object.spare.max(object.info.generation);
    let next = (given / INCARNATION).checked_add(2);
    // If the incarnations run out, after four thousand consecutive loads, half of the remaining numbers are skipped.
    object.spare = next
        .and_then(|incarnation| incarnation.checked_mul(INCARNATION))
        .unwrap_or(given + (u32::MAX - given) / 2);
    encode(&inode).unwrap_or(value)
}

fn refused(error: KvError) -> MdError {
    match error {
        KvError::Invalid(text) => MdError::Io(text),
        other => other.into(),
    }
}
