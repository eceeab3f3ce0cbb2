//! [`Finding`]: one inconsistency or damage that a check found.

use serde::Serialize;
use std::fmt;

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

impl Class {
    /// Its name in the output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Unreadable => "unreadable",
            Self::UnknownKey => "unknown-key",
            Self::Counter => "counter",
            Self::Inode => "inode",
            Self::Name => "name",
            Self::Links => "links",
            Self::Directory => "directory",
            Self::Orphan => "orphan",
            Self::Attribute => "attribute",
            Self::Index => "index",
            Self::Tile => "tile",
            Self::ChunkId => "chunk-id",
            Self::Session => "session",
            Self::Server => "server",
            Self::Order => "order",
            Self::ServerGone => "server-gone",
            Self::ForeignServer => "foreign-server",
            Self::MissingChunk => "missing-chunk",
            Self::WrongForm => "wrong-form",
            Self::DamagedChunk => "damaged-chunk",
            Self::Garbage => "garbage",
            Self::NewerChunk => "newer-chunk",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
