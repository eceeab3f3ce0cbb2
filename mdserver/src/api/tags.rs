//! Messages about tags and the search for them.

use serde::{Deserialize, Serialize};
use slabfs_model::Tag;

use super::types::Ino;

/// Most names that one [`super::Op::Tag`] sets or removes, over all its inodes.
pub const MAX_TAG_NAMES: usize = 8192;
/// Most bytes of names and values in one [`super::Op::Tag`], and about the most in one page of
/// [`super::Reply::Tags`].
pub const MAX_TAG_BYTES: usize = 8 << 20;

/// What is to become of the tags of one inode. Names are without `user.`; removals come before
/// settings, and removing what is not there is no error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagChange {
    /// The object or container.
    pub ino: Ino,
    /// Tags to set.
    pub set: Vec<(String, Tag)>,
    /// Names of tags to remove.
    pub remove: Vec<String>,
}

/// Reply of [`super::Op::Tags`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TagsPage {
    /// Names and values, by name.
    pub tags: Vec<(String, Tag)>,
    /// There are more; they are asked for after the last of these.
    pub more: bool,
}
