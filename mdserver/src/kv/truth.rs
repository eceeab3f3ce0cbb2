//! Finds the authoritative state on disk: the newest good checkpoint, and the journal after it.

use super::blocks::Blocks;
use super::checkpoint::{Broken, Head, Reader};
use super::direct::Direct;
use super::disk::{Ground, checkpoint_name, numbered};
use super::replay::{Changes, From, Replay, replay};
use super::salvage::{SALVAGE, Salvaged};
use super::{Damage, KvError, Lsn};
use std::path::Path;
use std::sync::Arc;

/// The name of sled's directory.
pub(super) const SLED: &str = "sled";

/// The checkpoint and the journal that were found.
#[derive(Debug)]
pub(super) struct Found {
    /// The checkpoint in use, completely verified.
    pub(super) checkpoint: Option<Arc<Blocks>>,
    /// An older checkpoint, retained in case the one in use is damaged later.
    pub(super) previous: Option<Head>,
    /// Checkpoints that cannot be used.
    pub(super) broken: Vec<u64>,
    /// The journal.
    pub(super) replay: Replay,
    /// The checkpoint is the temporary one that replaces a damaged one.
    pub(super) stand_in: bool,
    /// No store existed.
    pub(super) new: bool,
}

impl Found {
    /// The last commit in the checkpoint in use.
    pub(super) fn checkpoint_lsn(&self) -> Lsn {
        self.checkpoint
            .as_ref()
            .map_or(Lsn(0), |blocks| blocks.lsn())
    }

    /// Returns what is needed to read it.
    pub(super) fn direct(&self) -> Direct {
        Direct {
            checkpoint: self.checkpoint.clone(),
            changes: Changes {
                after: self.checkpoint_lsn(),
                overlay: self.replay.overlay.clone(),
            },
            last: self.replay.last,
            salvage: self.salvage(),
            new: self.new,
        }
    }

    /// The last of the lost commits, as far as known; `None` if nothing is lost.
    fn salvage(&self) -> Option<Lsn> {
        let unknown = Lsn(self.replay.last.0 + 1);
        let in_journal = self
            .replay
            .losses
            .iter()
            .filter(|loss| !loss.file.to_string_lossy().starts_with("checkpoint"));
        let journal = in_journal
            .map(|loss| loss.lost.map_or(unknown, |(_, last)| last))
            .max();
        journal.max(self.stand_in.then(|| self.checkpoint_lsn()))
    }
}

/// The error that refuses a damaged store.
pub(super) fn damaged(dir: &Path, damage: Vec<Damage>) -> KvError {
    KvError::Damaged {
        path: dir.to_owned(),
        damage,
    }
}

fn damage(lsn: u64, broken: Broken) -> Damage {
    let Broken { offset, detail } = broken;
    Damage {
        file: checkpoint_name(lsn).into(),
        offset,
        lost: None,
        keys: Vec::new(),
        detail,
    }
}

/// The checkpoints in a directory.
#[derive(Debug, Default)]
struct Checkpoints {
    newest: Option<Arc<Blocks>>,
    previous: Option<Head>,
    broken: Vec<u64>,
    damages: Vec<Damage>,
}

/// Finds the newest good checkpoint and the one before it.
fn checkpoints(dir: &Path) -> Result<Checkpoints, KvError> {
    let mut found = Checkpoints::default();
    for lsn in numbered(dir, "checkpoint")?.into_iter().rev() {
        let path = dir.join(checkpoint_name(lsn));
        if found.newest.is_some() {
            // It is read completely only if it is ever needed; the header names the journal that it needs.
            match Reader::open(&path, Some(lsn)) {
                Ok(reader) => found.previous = Some(reader.head()),
                Err(_) => found.broken.push(lsn),
            }
            break;
        }
        match Blocks::open(&path, Some(lsn)) {
            Ok(good) => found.newest = Some(Arc::new(good)),
            Err(Broken { detail, .. }) if detail.starts_with("format version") => {
                return Err(KvError::Invalid(format!(
                    "{}: {detail}",
                    checkpoint_name(lsn)
                )));
            }
            Err(bad) => {
                found.broken.push(lsn);
                found.damages.push(damage(lsn, bad));
            }
        }
    }
    Ok(found)
}

/// Reads checkpoint and journal in `dir`. Losses are listed in the replay; the caller decides whether they are
/// accepted.
pub(super) fn find(dir: &Path, ground: &Ground) -> Result<Found, KvError> {
    let Checkpoints {
        newest,
        previous,
        broken,
        mut damages,
    } = checkpoints(dir)?;
    let journals = numbered(dir, "journal")?;
    // A new store creates the first journal file, the empty checkpoint and sled's directory, in this order.
    let unborn = newest.is_none() && broken.is_empty() && !dir.join(SLED).exists();
    let new = unborn && journals.is_empty();
    let begun = unborn && journals.iter().all(|&number| number == 1);
    let from = match &newest {
        Some(blocks) => behind(blocks.head()),
        None => From {
            after: Lsn(0),
            file: 1,
            store: None,
            must_exist: !begun,
        },
    };
    let mut replay = replay(dir, from, ground)?;
    let older = journals.iter().filter(|&&number| number < from.file);
    replay
        .firsts
        .splice(0..0, older.map(|&number| (number, Lsn(0))));
    if newest.is_none() && !replay.losses.is_empty() {
        let ranges = broken.iter().map(|&lsn| Some((Lsn(1), Lsn(lsn))));
        damages
            .iter_mut()
            .zip(ranges)
            .for_each(|(damage, lost)| damage.lost = lost);
        replay.losses.splice(0..0, damages);
    } else {
        replay.healed.extend(damages);
    }
    Ok(Found {
        checkpoint: newest,
        previous,
        broken,
        replay,
        stand_in: false,
        new,
    })
}

/// Reads `dir` with the temporary checkpoint in place of the damaged one.
pub(super) fn find_behind(
    dir: &Path,
    ground: &Ground,
    salvaged: Salvaged,
) -> Result<Found, KvError> {
    let Salvaged { head, losses } = salvaged;
    let stand_in = Blocks::open(&dir.join(SALVAGE), Some(head.lsn.0))
        .map_err(|broken| damaged(dir, vec![damage(head.lsn.0, broken)]))?;
    let mut replay = replay(dir, behind(head), ground)?;
    replay.losses.splice(0..0, losses);
    Ok(Found {
        checkpoint: Some(Arc::new(stand_in)),
        previous: None,
        broken: Vec::new(),
        replay,
        stand_in: true,
        new: false,
    })
}

fn behind(head: Head) -> From {
    From {
        after: head.lsn,
        file: head.journal,
        store: Some(head.store),
        must_exist: true,
    }
}
