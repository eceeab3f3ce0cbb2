//! Opens a store: takes the lock, reads checkpoint and journal, opens the index, and prepares the journal for
//! appending.

use super::base::Base;
use super::checkpoint::{Head, Writer};
use super::disk::{
    CHECKPOINT_TEMP, Ground, Id, checkpoint_name, free_name, journal_name, new_id, numbered,
    remove, set_aside, sync_dir,
};
use super::frame::{Draft, HEADER};
use super::index::Index;
use super::journal::{Journal, JournalFile};
use super::load::check_finished;
use super::local::KvOptions;
use super::memtable::Memtable;
use super::reconcile::Surroundings;
use super::replay::Changes;
use super::salvage::{SALVAGE, salvage};
use super::truth::{Found, damaged, find, find_behind};
use super::verify::open_index;
use super::{KvError, Lsn, Recovery};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

/// An opened store, before its threads run.
#[derive(Debug)]
pub(super) struct Started {
    /// Excludes other processes.
    pub(super) lock: Flock<File>,
    /// The end of the journal; everything in it is on disk.
    pub(super) journal: Journal,
    /// Bytes of journal after the checkpoint in use.
    pub(super) journal_bytes: u64,
    /// The identity of the store.
    pub(super) store: Id,
    /// What lies below the tables.
    pub(super) base: Base,
    /// The changes that the index lacks, if it is open.
    pub(super) memtable: Memtable,
    /// The checkpoint in use, its length, and the one before it.
    pub(super) checkpoint: (Head, u64),
    pub(super) previous: Option<Head>,
    /// The changes read from the journal.
    pub(super) changes: Changes,
    /// The report.
    pub(super) recovery: Recovery,
}

/// Opens the store in `dir`. Without a loss the index is not touched: it is opened and compared while the store serves
/// requests.
pub(super) fn start(dir: &Path, options: &KvOptions, ground: &Ground) -> Result<Started, KvError> {
    create(dir)?;
    let lock = lock(dir)?;
    check_finished(dir)?;
    remove(&dir.join(CHECKPOINT_TEMP))?;
    let found = truth(dir, options, ground)?;
    let store = store_of(&found)?;
    // sled's directory is created last: if it exists, a journal and a checkpoint existed.
    let direct = found.direct();
    let changes = direct.changes.clone();
    let mut recovery = report(&found);
    let known = found.checkpoint.as_ref();
    let known = known.map(|blocks| (blocks.head(), blocks.bytes()));
    let first = Head {
        store,
        lsn: Lsn(0),
        journal: 1,
    };
    let (journal, checkpoint, base, memtable);
    if found.replay.losses.is_empty() {
        journal = resume_journal(dir, options, ground, &found, store)?;
        checkpoint = match known {
            Some(known) => known,
            None => (first, Writer::new(dir, ground, first)?.finish()?),
        };
        for &lsn in &found.broken {
            set_aside(dir, &checkpoint_name(lsn), "damaged-checkpoint")?;
        }
        (base, memtable) = (Base::Direct(direct), Memtable::default());
    } else {
        checkpoint = known.unwrap_or((first, 0));
        let opened = open_index(dir, options, ground, &direct, &Alone)?;
        if opened.reconciled.salvaged > 0 {
            recovery.last = recovery.last.max(opened.applied);
        }
        opened.report(&mut recovery);
        (base, memtable) = (Base::Index(opened.index), opened.reconciled.memtable);
        let limit = options.file_limit();
        let file = next_file(dir, limit, ground, (store, None))?;
        let firsts = firsts(&found, file.number);
        let end = (file, HEADER as u64);
        journal = Journal::new(ground.clone(), end, recovery.last, firsts, limit);
    }
    Ok(Started {
        lock,
        changes,
        journal,
        journal_bytes: found.replay.bytes,
        store,
        base,
        memtable,
        checkpoint,
        previous: found.previous,
        recovery,
    })
}

/// Surroundings of a store that serves no requests yet.
struct Alone;

impl Surroundings for Alone {
    fn stopping(&self) -> bool {
        false
    }

    fn make_room(&self, _index: &Index) -> Result<(), KvError> {
        Ok(())
    }
}

/// Creates the directory, if it does not exist.
pub(super) fn create(dir: &Path) -> Result<(), KvError> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir).map_err(|error| KvError::io("create", dir, &error))?;
    dir.parent()
        .filter(|parent| parent.is_dir())
        .map_or(Ok(()), sync_dir)
}

/// Reads checkpoint and journal; fails on a loss unless it is accepted.
fn truth(dir: &Path, options: &KvOptions, ground: &Ground) -> Result<Found, KvError> {
    let found = find(dir, ground)?;
    if found.replay.losses.is_empty() {
        return Ok(found);
    }
    if !options.accept_loss {
        return Err(damaged(dir, found.replay.losses));
    }
    match found.broken.first() {
        Some(&lsn) if found.checkpoint.is_none() => {
            let store = store_of(&found)?;
            find_behind(dir, ground, salvage(dir, ground, lsn, store)?)
        }
        _ => Ok(found),
    }
}

fn store_of(found: &Found) -> Result<Id, KvError> {
    match found
        .replay
        .store
        .or(found.checkpoint.as_ref().map(|blocks| blocks.head().store))
    {
        Some(store) => Ok(store),
        None => new_id(),
    }
}

/// The name of the lock file.
pub(super) const LOCK: &str = "LOCK";

/// Takes the lock that excludes other processes.
pub(super) fn lock(dir: &Path) -> Result<Flock<File>, KvError> {
    let path = dir.join(LOCK);
    let opened = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let file = opened.map_err(|error| KvError::io("open", &path, &error))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        nix::errno::Errno::EWOULDBLOCK => KvError::Locked {
            path: dir.to_owned(),
        },
        other => KvError::io("lock", &path, &other.into()),
    })
}

fn report(found: &Found) -> Recovery {
    let replay = &found.replay;
    Recovery {
        created: found.new,
        clean: replay.closed && replay.healed.is_empty(),
        last: replay.last,
        checkpoint: found.checkpoint_lsn(),
        replayed: replay.records,
        garbage: replay.garbage,
        healed: replay.healed.clone(),
        losses: replay.losses.clone(),
        unsynced: replay.unsynced,
        ..Recovery::default()
    }
}

/// Truncates the journal after its last good frame and continues in the next file; without space for one, in the last
/// file.
fn resume_journal(
    dir: &Path,
    options: &KvOptions,
    ground: &Ground,
    found: &Found,
    store: Id,
) -> Result<Journal, KvError> {
    let replay = &found.replay;
    let from = found
        .checkpoint
        .as_ref()
        .map_or(1, |blocks| blocks.head().journal);
    let empty = replay
        .empty
        .filter(|&empty| replay.end.map_or(from, |(last, _)| last + 1) == empty);
    cut_end(dir, ground, found, from, empty)?;
    let limit = options.file_limit();
    let next = next_file(dir, limit, ground, (store, empty));
    let announced = next.and_then(|file| announce(dir, ground, found, file));
    let (file, offset) = match (announced, replay.end) {
        (Ok(file), _) => (file, HEADER as u64),
        (Err(KvError::NoSpace { .. }), Some((last, end))) => {
            tracing::warn!("no space for a new journal file; continuing in the last one");
            (
                JournalFile::reuse(dir, ground, (store, last), (end, limit))?,
                end,
            )
        }
        (Err(error), _) => return Err(error),
    };
    let firsts = firsts(found, file.number);
    Ok(Journal::new(
        ground.clone(),
        (file, offset),
        replay.last,
        firsts,
        limit,
    ))
}

/// Opens the `empty` journal file, or creates a new one after the last.
fn next_file(
    dir: &Path,
    limit: u64,
    ground: &Ground,
    (store, empty): (Id, Option<u64>),
) -> Result<JournalFile, KvError> {
    match empty {
        Some(number) => JournalFile::reuse(dir, ground, (store, number), (HEADER as u64, limit)),
        None => {
            let number = numbered(dir, "journal")?.last().map_or(1, |last| last + 1);
            JournalFile::create(dir, ground, (store, number), limit)
        }
    }
}

/// Writes a frame to the end of the last file that names the next one. If that fails, the next file is removed.
fn announce(
    dir: &Path,
    ground: &Ground,
    found: &Found,
    file: JournalFile,
) -> Result<JournalFile, KvError> {
    let replay = &found.replay;
    let Some((last, end)) = replay.end.filter(|_| replay.next != Some(file.number)) else {
        return Ok(file);
    };
    let path = dir.join(journal_name(last));
    let mut next = Draft::next(file.number);
    let announced = OpenOptions::new().write(true).open(&path).and_then(|old| {
        ground
            .disk
            .write_at(&old, next.finish(replay.last, replay.last, last), end)?;
        // Frees the preallocated space, which is no longer needed.
        ground.disk.truncate(&old, end + next.len())?;
        ground.disk.sync_data(&old)
    });
    match announced {
        Ok(()) => Ok(file),
        Err(error) => {
            remove(&file.path)?;
            Err(KvError::io("end", &path, &error))
        }
    }
}

/// The files up to `number`, each with the first commit it may hold.
fn firsts(found: &Found, number: u64) -> Vec<(u64, Lsn)> {
    found
        .replay
        .firsts
        .iter()
        .copied()
        .filter(|&(file, _)| file <= number)
        .collect()
}

/// Removes everything after the last good frame, except the `empty` file, and syncs everything before it.
fn cut_end(
    dir: &Path,
    ground: &Ground,
    found: &Found,
    from: u64,
    empty: Option<u64>,
) -> Result<(), KvError> {
    let (last, end) = found.replay.end.unwrap_or_default();
    for number in numbered(dir, "journal")?.into_iter().rev() {
        let path = dir.join(journal_name(number));
        if number < from || Some(number) == empty {
            continue;
        }
        if number > last {
            remove(&path)?;
            continue;
        }
        let cut = OpenOptions::new().write(true).open(&path).and_then(|file| {
            if number == last && file.metadata()?.len() > end {
                ground.disk.truncate(&file, end)?;
            }
            ground.disk.sync_data(&file)
        });
        cut.map_err(|error| KvError::io("cut the end of", &path, &error))?;
    }
    sync_dir(dir)
}

/// After an accepted loss and a new checkpoint: moves the damaged files into a directory `lost-<n>`.
pub(super) fn retire(dir: &Path, checkpoint: Head) -> Result<PathBuf, KvError> {
    let target = free_name(dir, "lost");
    fs::create_dir(&target).map_err(|error| KvError::io("create", &target, &error))?;
    let journals = numbered(dir, "journal")?
        .into_iter()
        .filter(|&n| n < checkpoint.journal)
        .map(journal_name);
    let checkpoints = numbered(dir, "checkpoint")?
        .into_iter()
        .filter(|&n| n != checkpoint.lsn.0)
        .map(checkpoint_name);
    for name in journals.chain(checkpoints) {
        let source = dir.join(&name);
        fs::rename(&source, target.join(&name))
            .map_err(|error| KvError::io("move away", &source, &error))?;
    }
    sync_dir(dir)?;
    remove(&dir.join(SALVAGE))?;
    Ok(target)
}
