//! [`Finding`]: one inconsistency or damage that a check found.

use serde::Serialize;
use std::fmt::{self, Write};

/// The kind of a finding. The names are stable: programs parse them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Acknowledged commits of the metadata are lost.
    Damaged,
    /// A record that cannot be read.
    Unreadable,
    /// A key of no known table.
    UnknownKey,
    /// A counter that is not above an allocated number.
    Counter,
    /// An inode that contradicts itself.
    Inode,
    /// A name of a missing inode, in the wrong slot, or present twice.
    Name,
    /// The number of names differs from the inode's link count.
    Links,
    /// A directory's parent, its entry count, or its path to the root is wrong.
    Directory,
    /// An unlinked inode without an orphan record, or an orphan record of a linked inode.
    Orphan,
    /// Extended attributes of a missing inode, or a wrong number of them.
    Attribute,
    /// A tag that searches do not find.
    Index,
    /// A wrong record of a tiling, or of a replaced chunk.
    Tile,
    /// A chunk id that is used twice, or that is both in use and ordered to be deleted.
    ChunkId,
    /// A wrong record of a session, or of a lease, a reply or an open of a session.
    Session,
    /// A wrong record of a data server, or a reference to an unknown one.
    Server,
    /// An order to delete chunks that are in use.
    Order,
    /// A data server whose chunks were not checked, because its directory is missing.
    ServerGone,
    /// A directory of chunks that belongs to no data server of this metadata.
    ForeignServer,
    /// A chunk that is missing on its server.
    MissingChunk,
    /// A chunk in another form than its record describes.
    WrongForm,
    /// A chunk whose bytes do not match its checksums.
    DamagedChunk,
    /// A chunk that no record refers to.
    Garbage,
    /// A chunk that was stored after the metadata: the metadata is an old copy.
    NewerChunk,
}

impl fmt::Display for Class {
    /// Writes its name in kebab case, as it is serialised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, letter) in format!("{self:?}").char_indices() {
            if at > 0 && letter.is_ascii_uppercase() {
                f.write_char('-')?;
            }
            f.write_char(letter.to_ascii_lowercase())?;
        }
        Ok(())
    }
}

/// One inconsistency or damage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind.
    pub class: Class,
    /// The affected inode, chunk or key.
    pub subject: String,
    /// A description of the error.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.class, self.subject, self.detail)
    }
}
