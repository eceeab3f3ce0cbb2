//! Opens the index and makes it agree with checkpoint and journal, from which the store serves meanwhile.
//!
//! An index that cannot be used is renamed and rebuilt. It is not read before every entry was compared.

use super::direct::Direct;
use super::disk::{Ground, set_aside};
use super::index::{Fault, Index};
use super::local::KvOptions;
use super::reconcile::{Failure, Reconciled, Surroundings, reconcile};
use super::truth::SLED;
use super::{KvError, Lsn, Recovery};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// With less free space than this sled is expected to fail without its files being damaged.
const FULL: u64 = 1 << 20;

/// How many directories of damaged sled files are retained.
const DAMAGED_SLEDS: u64 = 3;

/// An index that agrees with checkpoint and journal.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) index: Index,
    pub(super) reconciled: Reconciled,
    /// The last commit that the index had recorded as applied.
    pub(super) applied: Lsn,
    /// Why it was rebuilt, if it was.
    rebuilt: Option<String>,
    /// The new name of the damaged files, if the index was rebuilt because of damage.
    set_aside: Option<PathBuf>,
}

impl Opened {
    /// Adds the results to the report on opening the store.
    pub(super) fn report(&self, recovery: &mut Recovery) {
        recovery.repaired = self.reconciled.repaired;
        recovery.salvaged = self.reconciled.salvaged;
        recovery.rebuilt = self.rebuilt.clone();
        recovery.set_aside = self.set_aside.clone();
        recovery.clean &= self.rebuilt.is_none() && recovery.repaired == 0;
    }

    /// Logs the result of the comparison.
    pub(super) fn log(&self, took: Duration) {
        let repaired = self.reconciled.repaired;
        match &self.rebuilt {
            Some(why) => tracing::warn!(?took, "index rebuilt ({why})"),
            None if repaired > 0 => {
                tracing::warn!(?took, "{repaired} wrong entries of the index set right");
            }
            None => tracing::info!(?took, "the index agrees with checkpoint and journal"),
        }
    }
}

/// Opens the index and makes it agree with checkpoint and journal. An index that cannot be used is renamed and rebuilt.
pub(super) fn open_index(
    dir: &Path,
    options: &KvOptions,
    ground: &Ground,
    truth: &Direct,
    around: &dyn Surroundings,
) -> Result<Opened, KvError> {
    let existed = dir.join(SLED).exists();
    let fault = match try_index(dir, options, truth, around) {
        Ok(mut opened) => {
            // Before the first checkpoint the index may be empty: a store may be closed before its index is open.
            let empty = opened.applied == Lsn(0) && truth.checkpoint_lsn() > Lsn(0);
            let gone = !existed && truth.checkpoint_lsn() > Lsn(0);
            if !truth.new && (gone || empty) {
                let why = if existed {
                    "it was empty"
                } else {
                    "its files were gone"
                };
                opened.rebuilt = Some(why.to_owned());
                opened.reconciled.repaired = 0;
            }
            return Ok(opened);
        }
        Err(Failure::Truth(error)) => return Err(error),
        Err(Failure::Index(fault)) => fault,
    };
    let free = ground
        .disk
        .free(dir)
        .map_err(|error| KvError::io("query the free space of", dir, &error))?;
    if free < FULL {
        tracing::error!(%fault, "the index does not open, and the disk is full");
        return Err(KvError::NoSpace {
            path: dir.join(SLED),
        });
    }
    let renamed = set_aside(dir, SLED, "sled.damaged")?;
    tracing::error!(%fault, renamed = %renamed.display(), "the index cannot be used and is rebuilt from checkpoint and journal");
    remove_old(dir)?;
    match try_index(dir, options, truth, around) {
        Ok(mut opened) => {
            opened.rebuilt = Some(fault.to_string());
            opened.set_aside = Some(renamed);
            opened.reconciled.repaired = 0;
            Ok(opened)
        }
        Err(Failure::Truth(error)) => Err(error),
        Err(Failure::Index(Fault(detail))) => Err(KvError::Index { detail }),
    }
}

fn try_index(
    dir: &Path,
    options: &KvOptions,
    truth: &Direct,
    around: &dyn Surroundings,
) -> Result<Opened, Failure> {
    let index = Index::open(&dir.join(SLED), options.sled_cache())?;
    let applied = index.applied()?;
    let reconciled = reconcile(truth, &index, around)?;
    let right = applied.max(truth.checkpoint_lsn()).min(truth.last);
    index.apply(&[], Some(right))?;
    Ok(Opened {
        index,
        reconciled,
        applied,
        rebuilt: None,
        set_aside: None,
    })
}

/// Removes the oldest directories of damaged sled files.
fn remove_old(dir: &Path) -> Result<(), KvError> {
    let failed = |error| KvError::io("list", dir, &error);
    let mut renamed = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("sled.damaged-")?.parse::<u64>().ok());
        renamed.extend(number);
    }
    renamed.sort_unstable();
    let surplus = renamed.len().saturating_sub(DAMAGED_SLEDS as usize);
    for number in &renamed[..surplus] {
        let path = dir.join(format!("sled.damaged-{number}"));
        fs::remove_dir_all(&path).map_err(|error| KvError::io("remove", &path, &error))?;
    }
    Ok(())
}
