//! Finds the truth on disk: the newest good checkpoint, and the journal behind it.

use super::checkpoint::{Broken, Head, Reader};
use super::disk::{Ground, checkpoint_name, numbered};
use super::replay::{From, Replay, replay};
use super::{Damage, KvError, Lsn};
use std::path::Path;

/// The name of sled's directory.
pub(super) const SLED: &str = "sled";

/// What checkpoint and journal say.
#[derive(Debug)]
pub(super) struct Found {
    /// The checkpoint in use, and its length in bytes.
    pub(super) checkpoint: Option<(Head, u64)>,
    /// An older checkpoint that is kept in case the one in use is damaged later.
    pub(super) previous: Option<Head>,
    /// Checkpoints that cannot be used.
    pub(super) broken: Vec<u64>,
    /// The journal.
    pub(super) replay: Replay,
    /// There was nothing at all.
    pub(super) new: bool,
}

impl Found {
    /// The commit the checkpoint in use reaches to.
    pub(super) fn checkpoint_lsn(&self) -> Lsn {
        self.checkpoint.map_or(Lsn(0), |(head, _)| head.lsn)
    }

    /// Opens the checkpoint in use for reading.
    pub(super) fn reader(&self, dir: &Path) -> Result<Option<Reader>, KvError> {
        let Some((head, _)) = self.checkpoint else {
            return Ok(None);
        };
        let opened = Reader::open(dir, head.lsn.0);
        opened
            .map(Some)
            .map_err(|broken| damaged(dir, vec![damage(head.lsn.0, broken)]))
    }

    /// The last of the lost commits, so far as that is known; `None` when nothing is lost.
    pub(super) fn salvage(&self) -> Option<Lsn> {
        let losses = &self.replay.losses;
        losses
            .iter()
            .map(|loss| {
                loss.lost
                    .map_or(Lsn(self.replay.last.0 + 1), |(_, last)| last)
            })
            .max()
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

/// Reads what is in `dir`. Losses are listed in the replay; whether they are accepted is for the
/// caller to know.
pub(super) fn find(dir: &Path, ground: &Ground) -> Result<Found, KvError> {
    let mut broken = Vec::new();
    let mut damages = Vec::new();
    let mut checkpoint = None;
    let mut previous = None;
    for lsn in numbered(dir, "checkpoint")?.into_iter().rev() {
        if checkpoint.is_some() {
            previous = Reader::open(dir, lsn).ok().map(|reader| reader.head());
            if previous.is_some() {
                break;
            }
            broken.push(lsn);
            continue;
        }
        match Reader::verify(dir, lsn) {
            Ok(good) => checkpoint = Some(good),
            Err(Broken { detail, .. }) if detail.starts_with("format version") => {
                return Err(KvError::Invalid(format!(
                    "{}: {detail}",
                    checkpoint_name(lsn)
                )));
            }
            Err(bad) => {
                broken.push(lsn);
                damages.push(damage(lsn, bad));
            }
        }
    }
    let journals = numbered(dir, "journal")?;
    // The first journal file and the empty checkpoint come before sled, in this order.
    let unborn = checkpoint.is_none() && broken.is_empty() && !dir.join(SLED).exists();
    let new = unborn && journals.is_empty();
    let begun = unborn && journals.iter().all(|&number| number == 1);
    let from = match checkpoint {
        Some((head, _)) => From {
            after: head.lsn,
            file: head.journal,
            store: Some(head.store),
            must_exist: true,
        },
        None => From {
            after: Lsn(0),
            file: 1,
            store: None,
            must_exist: !begun,
        },
    };
    let mut replay = replay(dir, from, ground)?;
    let kept: Vec<(u64, Lsn)> = journals
        .iter()
        .filter(|&&n| n < from.file)
        .map(|&n| (n, Lsn(0)))
        .collect();
    replay.firsts.splice(0..0, kept);
    if checkpoint.is_none() && !replay.losses.is_empty() {
        damages
            .iter_mut()
            .zip(&broken)
            .for_each(|(damage, &lsn)| damage.lost = Some((Lsn(1), Lsn(lsn))));
        replay.losses.splice(0..0, damages);
    } else {
        replay.healed.extend(damages);
    }
    Ok(Found {
        checkpoint,
        previous,
        broken,
        replay,
        new,
    })
}
