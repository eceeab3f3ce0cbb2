//! Builds paths of inodes, and checks whether the caller could have listed and read them.
//!
//! A user finds what could be listed with that user's permissions: every directory on the way is searchable, and the
//! one that has the name is readable. Directories are looked up once per page of hits. The tags of a hit are returned
//! if the user may read it, as with `getxattr`.

use std::collections::HashMap;
use std::sync::Arc;

use super::subject::Candidate;
use crate::api::{Attr, Caller, Ino, MdError, ROOT, op};
use crate::core::{Core, Ctx, if_any};
use crate::records::{Body, Inode, InodeHead, Named};

/// [`op::Paths`].
pub(crate) fn paths(core: &Core, _: &Ctx, op: op::Paths) -> Result<Vec<Vec<u8>>, MdError> {
    let mut paths = Paths::new(core, op.who.as_ref(), None);
    op.inos
        .into_iter()
        .map(|ino| Ok(paths.of_ino(ino)?.unwrap_or_default()))
        .collect()
}

/// Deepest nesting that is followed: a deeper one is damage, or a directory that moved meanwhile.
const MAX_DEPTH: usize = 1 << 12;

/// A directory on the way to a hit.
#[derive(Debug)]
pub(super) struct Place {
    /// Its path, without a slash at the end.
    path: Vec<u8>,
    /// Whether it and everything on the way is searchable.
    search: bool,
    /// Whether its entries can be listed.
    list: bool,
    /// It is the container that is searched, or below it.
    under: bool,
}

/// The directories looked up so far.
pub(crate) struct Paths<'a> {
    core: &'a Core,
    who: Option<&'a Caller>,
    under: Option<Ino>,
    known: HashMap<Ino, Option<Arc<Place>>>,
}

const READ: u32 = 4;
const SEARCH: u32 = 1;

impl<'a> Paths<'a> {
    /// For a search by `who`, below the container `under`.
    pub(crate) fn new(core: &'a Core, who: Option<&'a Caller>, under: Option<Ino>) -> Self {
        Self {
            core,
            who: who.filter(|who| who.uid != 0),
            under,
            known: HashMap::new(),
        }
    }

    /// Whether the caller sees the tags of an inode that it can list.
    pub(super) fn may_read(&self, attr: &Attr) -> bool {
        self.may(attr, READ)
    }

    fn may(&self, attr: &Attr, want: u32) -> bool {
        self.who
            .is_none_or(|who| who.may(attr.uid, attr.gid, attr.mode, want))
    }

    /// A path of an inode that the caller could list, below the container that is searched, and where its name begins
    /// in it.
    pub(super) fn of(&mut self, inode: &InodeHead) -> Result<Option<(Vec<u8>, usize)>, MdError> {
        if inode.attr.ino == ROOT {
            let all = self.under.is_none_or(|under| under == ROOT);
            return Ok(all.then(|| (b"/".to_vec(), 1)));
        }
        for Named { parent, name, .. } in &inode.names {
            let Some(place) = self.directory(*parent)? else {
                continue;
            };
            if place.under && place.list {
                return Ok(Some(joined(&place.path, name)));
            }
        }
        Ok(None)
    }

    /// [`Paths::of`] by number; `None` also if there is no such inode.
    pub(crate) fn of_ino(&mut self, ino: Ino) -> Result<Option<Vec<u8>>, MdError> {
        let Some((inode, _)) = Candidate::read(self.core, ino)? else {
            return Ok(None);
        };
        Ok(self.of(&inode)?.map(|(path, _)| path))
    }

    /// A directory with its path; `None` if it is gone.
    fn directory(&mut self, ino: Ino) -> Result<Option<Arc<Place>>, MdError> {
        // Up to one that is known, and down again.
        let mut way = Vec::new();
        let mut at = ino;
        let mut above = loop {
            if let Some(known) = self.known.get(&at) {
                break known.clone();
            }
            if way.len() > MAX_DEPTH {
                break None;
            }
            let Some(inode) = self.look(at)? else {
                self.known.insert(at, None);
                break None;
            };
            let parent = inode.names.first().map(|named| named.parent);
            way.push(inode);
            match parent {
                Some(parent) if at != ROOT => at = parent,
                _ => break None,
            }
        };
        for inode in way.into_iter().rev() {
            let place = self.place(&inode, above.as_deref());
            above = place.map(Arc::new);
            self.known.insert(inode.attr.ino, above.clone());
        }
        Ok(above)
    }

    /// A directory; `None` if it is gone.
    fn look(&self, ino: Ino) -> Result<Option<Arc<Inode>>, MdError> {
        Ok(if_any(self.core.inode(ino))?.filter(|inode| {
            let named = ino == ROOT || !inode.names.is_empty();
            named && matches!(inode.body, Body::Directory { .. })
        }))
    }

    fn place(&self, inode: &Inode, above: Option<&Place>) -> Option<Place> {
        let name = inode.names.first().map_or(&b""[..], |named| &named.name);
        let attr = &inode.attr;
        let (path, searched, under) = match above {
            Some(above) => (
                joined(&above.path, name).0,
                above.search,
                above.under || self.under == Some(attr.ino),
            ),
            None if attr.ino == ROOT => {
                let under = self.under.is_none_or(|under| under == ROOT);
                (Vec::new(), true, under)
            }
            None => return None,
        };
        let search = searched && self.may(attr, SEARCH);
        Some(Place {
            path,
            search,
            list: search && self.may(attr, READ),
            under,
        })
    }
}

/// A path extended by a name, and where that begins.
fn joined(path: &[u8], name: &[u8]) -> (Vec<u8>, usize) {
    let mut joined = Vec::with_capacity(path.len() + 1 + name.len());
    joined.extend_from_slice(path);
    joined.push(b'/');
    let at = joined.len();
    joined.extend_from_slice(name);
    (joined, at)
}
