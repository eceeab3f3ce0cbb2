//! The subject of a query: an object or a container, its tags and its built-in properties.

use slabfs_model::Tag;
use std::borrow::Cow;
use std::fmt;

use crate::api::{Kind, Time};

/// Something that a query can match.
pub trait Subject {
    /// Its tag with this key.
    fn tag(&self, key: &str) -> Option<Cow<'_, Tag>>;

    /// Calls `f` with the keys of its tags until that returns true; returns whether it did.
    fn each_key(&self, f: &mut dyn FnMut(&str) -> bool) -> bool;

    /// The value of a built-in property. Text that is not UTF-8 is returned with replacement characters.
    fn builtin(&self, builtin: Builtin) -> Option<BuiltinValue<'_>>;

    /// The time of the search, the same for all subjects: for `mtime > -2d`.
    fn now(&self) -> Time;
}

/// The built-in properties of objects and containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// Its name in its container; with hard links any of them.
    Name,
    /// Its path from the root of the filesystem, with a leading slash.
    Path,
    /// The text of the dtype; of objects.
    DType,
    /// The number of axes; of objects.
    Rank,
    /// The length of this axis, from 0; of objects that have it.
    Dim(usize),
    /// Bytes.
    Size,
    /// When data last changed.
    Mtime,
    /// The owner.
    Owner,
    /// Its kind: [`kind_name`].
    Kind,
}

/// The value of a [`Builtin`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuiltinValue<'a> {
    /// Of name, path, dtype and kind.
    Text(Cow<'a, str>),
    /// Of rank, dims and size.
    Number(u64),
    /// Of mtime.
    Time(Time),
    /// Of owner.
    Owner {
        /// The number.
        uid: u32,
        /// The name, if there is one.
        name: Option<Cow<'a, str>>,
    },
}

const NAMES: [(&str, Builtin); 8] = [
    ("name", Builtin::Name),
    ("path", Builtin::Path),
    ("dtype", Builtin::DType),
    ("rank", Builtin::Rank),
    ("size", Builtin::Size),
    ("mtime", Builtin::Mtime),
    ("owner", Builtin::Owner),
    ("kind", Builtin::Kind),
];

impl Builtin {
    /// The property of this name; the error explains an invalid name of dims.
    pub(super) fn named(name: &str) -> Result<Option<Self>, &'static str> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        if let Some((_, builtin)) = found {
            return Ok(Some(*builtin));
        }
        if name == "dims" {
            return Err("say which axis, e.g. dims[0], or use rank; a tag is written \"dims\"");
        }
        let Some(axis) = name.strip_prefix("dims[") else {
            return Ok(None);
        };
        let axis = axis.strip_suffix(']').filter(|axis| axis.len() <= 2);
        let digits = axis.filter(|axis| axis.bytes().all(|byte| byte.is_ascii_digit()));
        let axis = digits.and_then(|digits| digits.parse().ok());
        let axis = axis.filter(|&axis| axis < slabfs_model::MAX_RANK);
        axis.map(|axis| Some(Self::Dim(axis)))
            .ok_or("an axis is written dims[0], dims[1] and so on")
    }
}

impl fmt::Display for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Dim(axis) = self {
            return write!(f, "dims[{axis}]");
        }
        let name = NAMES.iter().find(|(_, builtin)| builtin == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

/// The names of the kinds in `kind = …`.
pub(super) const KINDS: [(&str, Kind); 7] = [
    ("object", Kind::Object),
    ("container", Kind::Directory),
    ("symlink", Kind::Symlink),
    ("fifo", Kind::Fifo),
    ("socket", Kind::Socket),
    ("chardevice", Kind::CharDevice),
    ("blockdevice", Kind::BlockDevice),
];

/// The name of a kind in queries: `object`, `container`, `symlink`, `fifo`, `socket`, `chardevice`,
/// `blockdevice`.
pub fn kind_name(kind: Kind) -> &'static str {
    let found = KINDS.iter().find(|(_, known)| *known == kind);
    found.map_or("", |(name, _)| name)
}
