//! Messages about tags and the search for them.

use serde::{Deserialize, Deserializer, Serialize};
use slabfs_model::Tag;

use super::bounded;
use super::types::Ino;

/// Most names that one [`super::Op::Tag`] sets or removes, over all its inodes. An inode's tags of up to
/// 16 KiB are written anew with each change of one, and one step writes at most 32 MiB: so of inodes with
/// so many tags fewer can be changed at a time.
pub const MAX_TAG_NAMES: usize = 8192;
/// Most bytes of names and values in one [`super::Op::Tag`].
pub const MAX_TAG_BYTES: usize = 8 << 20;
/// About the most bytes of names and values in one page of [`super::Reply::Tags`]: with one tag more they
/// fit an answer of a mount however they are written in JSON.
pub const TAGS_PAGE: usize = 1 << 20;

/// What is to become of the tags of one inode. Names are without `user.`; removals come before
/// settings, and removing what is not there is no error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagChange {
    /// The object or container.
    pub ino: Ino,
    /// Tags to set.
    #[serde(deserialize_with = "bounded::list::<_, _, { MAX_TAG_NAMES }>")]
    pub set: Vec<(String, Tag)>,
    /// Names of tags to remove.
    #[serde(deserialize_with = "bounded::list::<_, _, { MAX_TAG_NAMES }>")]
    pub remove: Vec<String>,
}

/// Reads changes of at most [`MAX_TAG_NAMES`] names together.
pub(super) fn changes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<TagChange>, D::Error> {
    bounded::weighed(from, MAX_TAG_NAMES, |change: &TagChange| {
        change.set.len() + change.remove.len()
    })
}

/// Reply of [`super::Op::Tags`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TagsPage {
    /// Names and values, by name.
    pub tags: Vec<(String, Tag)>,
    /// There are more; they are asked for after the last of these.
    pub more: bool,
}
