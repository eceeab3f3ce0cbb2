//! Setting, removing and reading tags, many at a time.

use super::rows::{self, Change, tag_name, xattr_name};
use crate::api::{Ino, MAX_TAG_NAMES, MdError, TAGS_PAGE, TagChange, TagsPage, op};
use crate::core::{Core, Ctx};

/// Makes all changes in one step, or none.
pub(crate) fn tag(core: &Core, ctx: &Ctx, op: op::Tag) -> Result<(), MdError> {
    let all = flat(op.changes)?;
    let mut txn = core.begin(ctx)?;
    let mut all = all.into_iter().peekable();
    while let Some((ino, first)) = all.next() {
        let mut of_one = vec![first];
        while let Some((_, next)) = all.next_if(|(of, _)| *of == ino) {
            of_one.push(next);
        }
        let mut inode = txn.inode(ino)?;
        if !txn.change_xattrs(&mut inode, of_one)?.is_empty() {
            txn.put(inode);
        }
    }
    txn.commit(())
}

/// Checks the changes and sorts them by inode and name; the last change of each name wins.
fn flat(changes: Vec<TagChange>) -> Result<Vec<(Ino, Change)>, MdError> {
    let names = |change: &TagChange| change.set.len() + change.remove.len();
    let count: usize = changes.iter().map(names).sum();
    if count > MAX_TAG_NAMES {
        return Err(MdError::Invalid(format!(
            "at most {MAX_TAG_NAMES} tags in one request; this one has {count}: send several"
        )));
    }
    let mut bytes = 0;
    let mut all: Vec<(Ino, Change)> = Vec::with_capacity(count);
    for TagChange { ino, set, remove } in changes {
        for name in remove {
            all.push((ino, (xattr_name(&name)?, None)));
        }
        for (name, tag) in set {
            rows::count_tag(&name, &tag, &mut bytes)?;
            all.push((ino, (xattr_name(&name)?, Some(tag))));
        }
    }
    rows::check_bytes(bytes)?;
    // Stable, so that the last of equal ones is the latest.
    all.sort_by(|(a, (x, _)), (b, (y, _))| (a, x).cmp(&(b, y)));
    all.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0 && later.1.0 == earlier.1.0;
        if same {
            std::mem::swap(&mut later.1.1, &mut earlier.1.1);
        }
        same
    });
    Ok(all)
}

/// The tags of an inode after a name, a page at a time.
pub(crate) fn tags(core: &Core, _: &Ctx, op: op::Tags) -> Result<TagsPage, MdError> {
    let op::Tags { ino, after } = op;
    rows::reread(core, ino, |inode| {
        let mut page = TagsPage::default();
        let mut bytes = 0;
        let after = after.as_deref();
        let behind = after.map(|after| format!("user.{after}"));
        let behind = behind.as_deref().unwrap_or_default().as_bytes();
        rows::each(&*core.kv, inode.place(), behind, |xattr| {
            let Some(name) = tag_name(xattr.name) else {
                return true;
            };
            if after.is_some_and(|after| name <= after) {
                return true;
            }
            if bytes > TAGS_PAGE {
                page.more = true;
                return false;
            }
            bytes += name.len() + xattr.bytes.len();
            page.tags.push((name.to_owned(), xattr.tag()));
            true
        })?;
        Ok(page)
    })
}
