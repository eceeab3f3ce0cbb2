//! [`Recovery`]: the report on opening a store, for the log.

use super::{Damage, Lsn};
use std::fmt;
use std::path::PathBuf;

/// The report on opening a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The store did not exist and was created.
    pub created: bool,
    /// The last user closed the store, and nothing had to be repaired.
    pub clean: bool,
    /// The last commit.
    pub last: Lsn,
    /// The last commit in the checkpoint in use.
    pub checkpoint: Lsn,
    /// How many journal records after the checkpoint were read.
    pub replayed: u64,
    /// Bytes cut off after the last complete record.
    pub garbage: u64,
    /// The new name of sled's files, if they could not be used.
    pub set_aside: Option<PathBuf>,
    /// Why the index was rebuilt, if it was.
    pub rebuilt: Option<String>,
    /// Entries of a readable index that were wrong and were corrected.
    pub repaired: u64,
    /// Entries taken from the index because their records are lost.
    pub salvaged: u64,
    /// Damage that cost nothing, because another copy was good.
    pub healed: Vec<Damage>,
    /// Damage that lost commits. Empty unless the loss was accepted.
    pub losses: Vec<Damage>,
    /// Unsynced commits that a power loss destroyed.
    pub unsynced: Option<(Lsn, Lsn)>,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.created {
            return write!(f, "created");
        }
        let how = if self.clean {
            "closed cleanly"
        } else {
            "not closed cleanly"
        };
        write!(
            f,
            "{how}; checkpoint at {}, {} records replayed, last commit {}",
            self.checkpoint, self.replayed, self.last
        )?;
        if self.garbage > 0 {
            write!(
                f,
                "; {} bytes behind the last complete record cut off",
                self.garbage
            )?;
        }
        if let Some((first, last)) = self.unsynced {
            write!(
                f,
                "; commits {first} to {last} had not been synced when the machine stopped and are not there"
            )?;
        }
        if let Some(why) = &self.rebuilt {
            write!(f, "; index rebuilt ({why})")?;
        }
        if let Some(path) = &self.set_aside {
            write!(f, "; its old files are in {}", path.display())?;
        }
        if self.repaired > 0 {
            write!(
                f,
                "; {} wrong entries of the index set right",
                self.repaired
            )?;
        }
        if self.salvaged > 0 {
            write!(
                f,
                "; {} entries taken from the index, for which no record is left",
                self.salvaged
            )?;
        }
        for damage in &self.healed {
            write!(f, "; damaged but not needed: {damage}")?;
        }
        for damage in &self.losses {
            write!(f, "; LOST: {damage}")?;
        }
        Ok(())
    }
}
