//! The arguments of operations that are types of their own; those of locks, rights, tags and tilings are with their
//! subjects.

use serde::{Deserialize, Serialize};
use slabfs_model::{Hyperslab, ServerId, Tag};

use super::bounded;
use super::spec::SpecChange;
use super::tiling::Stored;
use super::types::{Ino, Time};

/// Flags of a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RenameFlags {
    /// Replaces the target of the new name, if POSIX allows.
    #[default]
    Replace,
    /// Refuses when the new name exists (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swaps the two (`RENAME_EXCHANGE`).
    Exchange,
}

/// Flags of setting an extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum XattrFlags {
    /// Sets it whether it exists or not.
    #[default]
    Either,
    /// Refuses if it exists (`XATTR_CREATE`).
    Create,
    /// Refuses if it does not (`XATTR_REPLACE`).
    Replace,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// This one.
    To(Time),
    /// The service's clock.
    Now,
}

/// Attributes to set; `None` leaves one as it is. The change time is set by the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission bits, 12 bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
}

/// An object that [`super::op::CreateMany`] creates. As with [`super::op::Create`], the container's defaults supply everything that
/// is not given here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewObject {
    /// Container it is created in.
    pub parent: Ino,
    /// Its name there, which must be free.
    pub name: Vec<u8>,
    /// Permission bits, after the umask.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group; a setgid directory gives its own instead.
    pub gid: u32,
    /// Its declaration as an array; empty for a byte object.
    pub spec: SpecChange,
    /// Its tags, without `user.`.
    #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_FIRST_TAGS }>")]
    pub tags: Vec<(String, Tag)>,
}

/// The source of an [`super::op::Resize`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResizeHow {
    /// By `truncate`: only the slowest axis of an object that is unlimited there changes.
    Truncate,
    /// By `slabfs set --dims`: every axis grows up to its greatest dim, or shrinks.
    SetDims,
}

/// A write permit of a grid object; the number is chosen by the session, a new one for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Permit {
    /// To write into its chunks, concurrently with others.
    Write(u64),
    /// To copy chunks to this server, exclusively.
    Move(u64, ServerId),
    /// Returns the permit.
    Back(u64),
}

/// The data of an object, rewritten for a change of its declaration. The caller has synced the new chunks; the old
/// ones are deleted once the journal is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewrite {
    /// [`super::Attr::change`] when the data was read; the op is [`super::MdError::Busy`] when
    /// something changed since.
    pub if_change: u64,
    /// Generation and servers of the new chunks when the new layout is a grid, as
    /// [`super::op::SpareGeneration`] gave them.
    pub spare: Option<super::Spare>,
    /// The new chunks when the new layout is `aligned`, in cells of the new declaration.
    #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_COMMIT_RECORDS }>")]
    pub records: Vec<(Hyperslab, Stored)>,
}
