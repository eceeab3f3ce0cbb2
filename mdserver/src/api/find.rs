//! Messages of the search.

use serde::{Deserialize, Serialize};
use slabfs_model::{Coords, DType, Tag};

use super::bounded;
use super::types::{Ino, Kind, Time};

/// Most hits in one page.
pub const MAX_HITS: u32 = 4096;

/// Most bytes of keys and values of tags returned with one hit; [`super::op::Tags`] returns all.
pub const MAX_HIT_TAGS: usize = 256 << 10;

/// The credentials of the process that searches.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Caller {
    /// User; 0 may list everything.
    pub uid: u32,
    /// Groups, the first and the supplementary ones.
    #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_GROUPS }>")]
    pub gids: Vec<u32>,
}

impl Caller {
    /// Whether permission bits (of a file with this owner, group and mode) grant all of `want`: 4 for reading, 2 for
    /// writing, 1 for searching.
    #[must_use]
    pub fn may(&self, uid: u32, gid: u32, mode: u32, want: u32) -> bool {
        let bits = match (uid == self.uid, self.gids.contains(&gid)) {
            (true, _) => mode >> 6,
            (false, true) => mode >> 3,
            (false, false) => mode,
        };
        self.uid == 0 || bits & want == want
    }
}

/// A result of the search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// Its inode.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// One of its paths: names with a slash before each.
    pub path: Vec<u8>,
    /// Bytes.
    pub size: u64,
    /// Last change of data.
    pub mtime: Time,
    /// Its tags by name, if wanted and if the caller may read it; the first of them if [`Self::tags_cut`].
    pub tags: Vec<(String, Tag)>,
    /// It has more tags than are returned here.
    pub tags_cut: bool,
    /// The tag of [`super::Find::with_tag`].
    pub tag: Option<Tag>,
    /// Its form and owner, if wanted.
    pub form: Option<Form>,
}

/// Further built-in properties of a hit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Form {
    /// User.
    pub uid: u32,
    /// Of an object: element type and dims.
    pub array: Option<(DType, Coords)>,
}

/// Reply of [`super::op::Find`]: a page of hits, in no order. Changes between pages may be seen or not; what moves in
/// the index may be returned twice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Found {
    /// The hits; may be empty before the end.
    pub hits: Vec<Hit>,
    /// Number of hits counted in this page.
    pub count: u64,
    /// Where to continue; `None` at the end. [`super::MdError::Invalid`] means to start again, if tag keys were added
    /// or removed in a way that changes how the query is evaluated.
    pub next: Option<Vec<u8>>,
}
