//! Messages of the search.

use serde::{Deserialize, Serialize};
use slabfs_model::{Coords, DType, Tag};

use super::bounded;
use super::types::{Ino, Kind, Time};

/// Most hits in one page.
pub const MAX_HITS: u32 = 4096;

/// Most bytes of keys and values of tags that are told with one hit; [`super::Op::Tags`] tells all.
pub const MAX_HIT_TAGS: usize = 256 << 10;

/// A search, or the next page of one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Find {
    /// In the language of `docs/search.md`.
    pub query: String,
    /// Only what lies below this container; `None` for everything.
    pub under: Option<Ino>,
    /// Who asks: only what they could list is found, and tags only of what they may read. `None` finds
    /// everything.
    pub who: Option<Caller>,
    /// Only this inode, if it is found.
    pub only: Option<Ino>,
    /// At most so many hits in this page; [`MAX_HITS`] are the most.
    pub limit: u32,
    /// Only share `.0` of `.1`: the shares are disjoint, and all together are everything.
    pub part: Option<(u32, u32)>,
    /// Only [`Found::count`] is wanted; as many as can be counted in a moment are in a page.
    pub count_only: bool,
    /// Hits with their tags, up to [`MAX_HIT_TAGS`].
    pub with_tags: bool,
    /// Hits with this tag, to sort them.
    pub with_tag: Option<String>,
    /// Hits with [`Hit::form`].
    pub with_form: bool,
    /// [`Found::next`] of the page before.
    pub after: Option<Vec<u8>>,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Caller {
    /// User; 0 may list everything.
    pub uid: u32,
    /// Groups, the first and the supplementary ones.
    #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_GROUPS }>")]
    pub gids: Vec<u32>,
}

impl Caller {
    /// Whether permission bits (of a file with this owner, group and mode) give all of `want`, as 4
    /// for reading, 2 for writing, 1 for searching.
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

/// Something that was found.
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
    /// Its tags, if wanted, and if whoever asks may read it, by name; the first of them if
    /// [`Self::tags_cut`].
    pub tags: Vec<(String, Tag)>,
    /// It has more tags than are told here.
    pub tags_cut: bool,
    /// The tag of [`Find::with_tag`].
    pub tag: Option<Tag>,
    /// Its form and owner, if wanted.
    pub form: Option<Form>,
}

/// What else is built in of something that was found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Form {
    /// User.
    pub uid: u32,
    /// Of an object: element type and dims.
    pub array: Option<(DType, Coords)>,
}

/// Reply of [`super::Op::Find`]: a page of hits, in no order. What changes between pages may be told
/// or not, and what moves in the index, twice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Found {
    /// What was found; may be empty and yet not the end.
    pub hits: Vec<Hit>,
    /// How many were found in this page.
    pub count: u64,
    /// Where to go on; `None` at the end. [`super::MdError::Invalid`] says to begin anew when keys of tags
    /// came or went in a way that changes how the query is looked up.
    pub next: Option<Vec<u8>>,
}
