//! [`Finding`]: one thing that is not as it has to be.

use serde::Serialize;
use std::fmt;

/// What kind of thing is wrong. The names are stable: programs read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Acknowledged commits of the metadata are gone.
    Damaged,
    /// A record that cannot be read.
    Unreadable,
    /// A key of no known table.
    UnknownKey,
    /// A counter below what was given.
    Counter,
    /// An inode that contradicts itself.
    Inode,
    /// A name: of nothing, at the wrong place, or twice.
    Name,
    /// More or fewer names than an inode says.
    Links,
    /// What a directory says of itself: its parent, its entries, its way to the root.
    Directory,
    /// An inode without a name that no record of unlinked ones knows, or the other way round.
    Orphan,
    /// Extended attributes: of nothing, or another number of them.
    Attribute,
    /// A tag that searches do not find.
    Index,
    /// A record of a tiling, or of a chunk that was replaced.
    Tile,
    /// A chunk id that is used twice, or that is ordered to be deleted and used.
    ChunkId,
    /// Sessions, and what belongs to them.
    Session,
    /// Data servers.
    Server,
    /// An order to delete what is in use.
    Order,
    /// A data server whose chunks were not looked at, because its directory is not there.
    ServerGone,
    /// A directory of chunks that belongs to no data server of this metadata.
    ForeignServer,
    /// A chunk that is not on its server.
    MissingChunk,
    /// A chunk in another form than its record says.
    WrongForm,
    /// A chunk whose bytes are not those that were written.
    DamagedChunk,
    /// A chunk that nobody names.
    Garbage,
    /// A chunk that is newer than the metadata: the metadata is an old copy.
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

/// One thing that is not as it has to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind of thing.
    pub class: Class,
    /// What it is about: an inode, a chunk, a key.
    pub subject: String,
    /// What is wrong with it.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.class, self.subject, self.detail)
    }
}
