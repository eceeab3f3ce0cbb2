//! `.slabfs/find/QUERY/`: directories of links to search results.
//!
//! The kernel caches nothing of them, and each caller gets its own results: the objects that it may list.

use std::sync::Arc;

use fuser::Errno;
use slabfs_mdserver::api::{self, Kind, MdError, ROOT, op};
use slabfs_mdserver::tags::query::Query;

use super::readdir::{Listed, UNNUMBERED, What};
use crate::client::Search;
use crate::mount::errno::{Outcome, refused};
use crate::mount::searches::Lister;
use crate::mount::shared::{Caller, Shared, Shown};
use crate::view::search::{Target, link_name, link_target, query, target};

/// The directory of the query that a name in `.slabfs/find` holds.
pub(super) fn look_up_query(shared: &Shared, name: &[u8]) -> Outcome<Shown> {
    let Some(text) = query(name) else {
        return refused(
            Errno::EINVAL,
            "the name of a folder in .slabfs/find is a query in UTF-8, with %2F for a slash and %25 \
             for a per cent sign",
        );
    };
    Query::parse(&text).map_err(|error| MdError::Invalid(error.to_string()))?;
    let query: Arc<str> = text.into();
    let number = shared.nodes.look_up_search(query);
    Ok(shared.shown_search(number))
}

/// The link of that name in the directory of a query, if the query finds its object.
pub(super) fn look_up_found(
    shared: &Shared,
    caller: Caller,
    query: &str,
    name: &[u8],
) -> Outcome<Shown> {
    let (ino, path) = match target(name) {
        Some(Target::Path(names)) => {
            let mut ino = ROOT;
            let mut path = Vec::new();
            for name in &names {
                ino = shared
                    .client
                    .names()
                    .md()
                    .call(op::Lookup {
                        parent: ino,
                        name: name.to_vec(),
                    })?
                    .attr
                    .ino;
                path.push(b'/');
                path.extend_from_slice(name);
            }
            (ino, Some(path))
        }
        Some(Target::Ino(ino)) => (ino, None),
        None => return Err(MdError::NotFound.into()),
    };
    let search = Search {
        query: query.to_owned(),
        who: Some(who(caller)),
        ..Search::default()
    };
    let Some(hit) = shared.client.hit(&search, ino)? else {
        return Err(MdError::NotFound.into());
    };
    let path = path.unwrap_or(hit.path);
    let target: Arc<[u8]> = link_target(&path).into();
    let number = shared.nodes.look_up_found(Arc::clone(&target));
    Ok(shared.shown_found(number, &target))
}

/// Gives the links in the directory of a query, from `offset` on, to `add`.
pub(super) fn list(
    shared: &Shared,
    caller: Caller,
    (inode, query): (u64, &str),
    offset: u64,
    add: &mut dyn FnMut(Listed<'_>) -> bool,
) -> Outcome<()> {
    let search = Search {
        query: query.to_owned(),
        who: Some(who(caller)),
        ..Search::default()
    };
    let lister = Lister {
        inode,
        uid: caller.uid,
        pid: caller.pid,
    };
    // Offsets up to 2 are those of `.` and `..`.
    let from = offset.saturating_sub(2);
    let client = &shared.client;
    Ok(shared
        .searches
        .list(client, lister, &search, from, &mut |hit, next| {
            let target = link_target(&hit.path);
            add(Listed {
                inode: UNNUMBERED,
                name: &link_name(&hit.path, hit.ino),
                kind: Kind::Symlink,
                next: next + 2,
                what: What::Found(&target),
            })
        })?)
}

fn who(caller: Caller) -> api::Caller {
    crate::call::find::who(&caller.with_groups())
}

impl Shared {
    /// The attributes that the kernel gets of a query's directory.
    pub(in crate::mount) fn shown_search(&self, number: u64) -> Shown {
        self.shown_virtual(number, (Kind::Directory, 0o555), 0, None)
    }

    /// The attributes that the kernel gets of a link in such a directory.
    pub(in crate::mount) fn shown_found(&self, number: u64, target: &[u8]) -> Shown {
        let size = target.len() as u64;
        self.shown_virtual(number, (Kind::Symlink, 0o777), size, None)
    }
}
