//! Objects in shards: what a service learns about names of its objects, and what the shard of names keeps of objects.
//!
//! docs/decisions/33-shards.md has the design. The shard of names creates a name with the *birth* of its object, and the client creates
//! the object from that in its shard ([`super::op::Adopt`]). A change of an object's number of names is *unfinished* until the
//! object's shard has it ([`super::op::SetLinks`]); both may be done more than once, by any client.

use serde::{Deserialize, Serialize};
use slabfs_model::{ShardId, Tag};

use super::reply::Entry;
use super::spec::SpecChange;
use super::types::Ino;

/// Most shards of a filesystem.
pub const MAX_SHARDS: u8 = 64;
/// Most objects in one [`super::op::SetLinks`], [`super::op::Finish`], or reply of [`super::op::Unfinished`].
pub const MAX_UNFINISHED: usize = 4096;

/// A service among those that a filesystem is divided into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Its number.
    pub index: ShardId,
    /// How many there are; 1: the filesystem is not divided.
    pub of: u8,
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            index: ShardId::NAMES,
            of: 1,
        }
    }
}

impl Shard {
    /// Whether objects are in other shards than names.
    #[must_use]
    pub fn divided(self) -> bool {
        self.of > 1
    }

    /// Whether it has names: the only service of a filesystem, or the first.
    #[must_use]
    pub fn has_names(self) -> bool {
        self.index == ShardId::NAMES
    }

    /// The shard of the object with this running number.
    #[must_use]
    pub fn of_object(self, number: u64) -> ShardId {
        match self.of {
            0 | 1 => ShardId::NAMES,
            of => ShardId(1 + (number % u64::from(of - 1)) as u8),
        }
    }
}

/// All that the shard of an object needs to create it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Birth {
    /// Its attributes and array info.
    pub entry: Entry,
    /// The container's defaults that apply when it is declared.
    pub inherited: Option<SpecChange>,
    /// Its extended attributes by full name, tags among them.
    pub tags: Vec<(Vec<u8>, Tag)>,
}

/// How many names an object has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// The object.
    pub ino: Ino,
    /// Number of names.
    pub count: u32,
    /// Grows with each change; an older one has no effect.
    pub change: u64,
    /// Its shard may not have created it yet.
    pub unborn: bool,
}

/// Reply of operations that may remove a name of an object in another shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Unlinked {
    /// The object, if there was one.
    pub links: Option<Links>,
}
