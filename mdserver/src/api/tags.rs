//! Messages about tags and the search for them.

use serde::{Deserialize, Deserializer, Serialize};
use slabfs_model::Tag;

use super::bounded;
use super::types::Ino;

/// Most names that one [`super::op::Tag`] sets or removes, over all its inodes. Each change of one of an inode's
/// tags, up to 16 KiB, rewrites all of them, and one step writes at most 32 MiB: so of inodes with this many tags,
/// fewer can be changed at a time.
pub const MAX_TAG_NAMES: usize = 8192;
/// Most bytes of names and values in one [`super::op::Tag`].
pub const MAX_TAG_BYTES: usize = 8 << 20;
/// About the most bytes of names and values in one page of [`super::Reply::Tags`]: with one more tag they still fit a
/// reply of a mount, however JSON escapes them.
pub const TAGS_PAGE: usize = 1 << 20;

/// A change of the tags of one inode. Names are without `user.`; removals come before settings, and removing a
/// missing tag is no error.
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

/// Reply of [`super::op::Tags`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TagsPage {
    /// Names and values, by name.
    pub tags: Vec<(String, Tag)>,
    /// There are more; the next page begins after the last of these.
    pub more: bool,
}
