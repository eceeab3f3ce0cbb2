//! Storage of the extended attributes of an inode, including tags.
//!
//! All are in one row, sorted by name, as long as that is short: a search reads it once per hit, and a million
//! objects have a million rows and not ten. An inode with more than [`ROW_LIMIT`] of them is *spread*, one row per
//! name, so that changing one does not write megabytes; it stays so until its last attribute is removed.

use serde::{Deserialize, Serialize};
use slabfs_model::{Tag, TagKind};
use std::sync::Arc;

use crate::api::{Ino, MAX_TAG_BYTES, MAX_XATTR_LIST, MAX_XATTRS, MdError};
use crate::core::Core;
use crate::keys;
use crate::kv::{MetaKv, pairs};
use crate::records::{Inode, Xattrs, decode_borrowed, encode};
use crate::txn::Txn;

/// Longest row of all attributes of an inode, in bytes.
pub(crate) const ROW_LIMIT: usize = 16 << 10;

/// An attribute in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Xattr<'a> {
    /// Full name, as `user.project`.
    #[serde(borrow)]
    pub(crate) name: &'a [u8],
    /// Type of the value.
    pub(crate) kind: TagKind,
    /// Value of the attribute.
    #[serde(borrow)]
    pub(crate) bytes: &'a [u8],
}

impl Xattr<'_> {
    /// Its value as a tag.
    pub(crate) fn tag(&self) -> Tag {
        tag(self.kind, self.bytes)
    }
}

/// The row of a name of a spread inode.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Single<'a> {
    kind: TagKind,
    #[serde(borrow)]
    bytes: &'a [u8],
}

/// One name and its new value; `None` removes it.
pub(crate) type Change = (Vec<u8>, Option<Tag>);

/// A name that changed, its value before, and after.
pub(crate) type ChangedOne = (Vec<u8>, Option<Tag>, Option<Tag>);

/// What a change did.
pub(crate) type Changed = Vec<ChangedOne>;

/// The attributes in the bytes of a row.
pub(crate) fn row<'a>(key: &[u8], bytes: &'a [u8]) -> Result<Vec<Xattr<'a>>, MdError> {
    decode_borrowed(key, bytes)
}

/// Calls `work` for the attributes in a row of either form.
pub(crate) fn in_row(
    key: &[u8],
    bytes: &[u8],
    mut work: impl FnMut(Xattr<'_>),
) -> Result<(), MdError> {
    match keys::xattr_of(key) {
        Some((_, name)) if !name.is_empty() => {
            let Single { kind, bytes } = decode_borrowed(key, bytes)?;
            work(Xattr { name, kind, bytes });
        }
        _ => row(key, bytes)?.into_iter().for_each(work),
    }
    Ok(())
}

/// The attribute in the row of a name.
pub(crate) fn single(key: &[u8], bytes: &[u8]) -> Result<Tag, MdError> {
    let Single { kind, bytes } = decode_borrowed(key, bytes)?;
    Ok(tag(kind, bytes))
}

fn tag(kind: TagKind, bytes: &[u8]) -> Tag {
    Tag {
        kind,
        bytes: bytes.to_vec(),
    }
}

/// Where the attributes of an inode are, and in which form.
pub(crate) type Place = (Ino, Xattrs);

/// An attribute.
pub(crate) fn get(
    kv: &dyn MetaKv,
    (ino, xattrs): Place,
    name: &[u8],
) -> Result<Option<Tag>, MdError> {
    if xattrs.count == 0 {
        return Ok(None);
    }
    if xattrs.spread {
        let key = keys::xattr(ino, name);
        return kv.get(&key)?.map(|bytes| single(&key, &bytes)).transpose();
    }
    let key = keys::xattr(ino, b"");
    let Some(bytes) = kv.get(&key)? else {
        return Ok(None);
    };
    let row = row(&key, &bytes)?;
    let at = row.binary_search_by(|xattr| xattr.name.cmp(name));
    Ok(at.ok().map(|at| tag(row[at].kind, row[at].bytes)))
}

/// Calls `work` for all attributes, by name, until it says `false`; names up to and including `behind` may be left
/// out.
pub(crate) fn each(
    kv: &dyn MetaKv,
    (ino, xattrs): Place,
    behind: &[u8],
    mut work: impl FnMut(Xattr<'_>) -> bool,
) -> Result<(), MdError> {
    if xattrs.count == 0 {
        return Ok(());
    }
    if !xattrs.spread {
        let key = keys::xattr(ino, b"");
        if let Some(bytes) = kv.get(&key)? {
            let _ended = row(&key, &bytes)?.into_iter().all(work);
        }
        return Ok(());
    }
    // Values may be long: a few at a time.
    const PAGE: usize = 16;
    let (first, to) = keys::xattrs(ino);
    let from = keys::after(&keys::xattr(ino, behind));
    for pair in pairs(kv, (from, to), PAGE) {
        let (key, bytes) = pair?;
        let Single { kind, bytes } = decode_borrowed(&key, &bytes)?;
        let name = &key[first.len()..];
        if !name.is_empty() && !work(Xattr { name, kind, bytes }) {
            break;
        }
    }
    Ok(())
}

/// Reads the attributes of an inode with `read`, which accesses the store several times: it is repeated if the inode
/// changed meanwhile.
pub(crate) fn reread<T>(
    core: &Core,
    ino: Ino,
    mut read: impl FnMut(&Inode) -> Result<T, MdError>,
) -> Result<T, MdError> {
    const TRIES: usize = 100;
    let mut inode = core.inode(ino)?;
    for _ in 0..TRIES {
        let found = read(&inode)?;
        let now = core.inode(ino)?;
        if now.attr.change == inode.attr.change {
            return Ok(found);
        }
        inode = now;
    }
    Err(MdError::Busy)
}

impl Txn<'_> {
    /// Changes attributes of an inode and stores both; `changes` are sorted by name, each name once.
    pub(crate) fn change_xattrs(
        &mut self,
        inode: &mut Arc<Inode>,
        changes: Vec<Change>,
    ) -> Result<Changed, MdError> {
        let changed = if inode.xattrs.spread {
            self.change_spread(inode, changes)?
        } else {
            self.change_row(inode, changes)?
        };
        self.tags.note(inode.attr.ino, &changed);
        let xattrs = &mut Arc::make_mut(inode).xattrs;
        if xattrs.count == 0 {
            xattrs.spread = false;
        }
        Ok(changed)
    }

    fn change_row(
        &mut self,
        inode: &mut Arc<Inode>,
        changes: Vec<Change>,
    ) -> Result<Changed, MdError> {
        let ino = inode.attr.ino;
        let key = keys::xattr(ino, b"");
        let bytes = match inode.xattrs.count {
            0 => None,
            _ => self.core.kv.get(&key)?,
        };
        let old = match &bytes {
            Some(bytes) => row(&key, bytes)?,
            None => Vec::new(),
        };
        let mut changed = Vec::with_capacity(changes.len());
        for (name, new) in changes {
            let at = old.binary_search_by(|xattr| xattr.name.cmp(&name));
            let before = at.ok().map(|at| tag(old[at].kind, old[at].bytes));
            if before != new {
                changed.push((name, before, new));
            }
        }
        count(inode, &changed)?;
        let merged = merge(&old, &changed);
        if merged.is_empty() {
            if bytes.is_some() {
                self.batch.delete(key);
            }
            return Ok(changed);
        }
        let encoded = encode(&merged)?;
        if encoded.len() <= ROW_LIMIT {
            self.batch.put(key, encoded);
            return Ok(changed);
        }
        for Xattr { name, kind, bytes } in merged {
            let value = encode(&Single { kind, bytes })?;
            self.batch.put(keys::xattr(ino, name), value);
        }
        if bytes.is_some() {
            self.batch.delete(key);
        }
        Arc::make_mut(inode).xattrs.spread = true;
        Ok(changed)
    }

    fn change_spread(
        &mut self,
        inode: &mut Arc<Inode>,
        changes: Vec<Change>,
    ) -> Result<Changed, MdError> {
        let ino = inode.attr.ino;
        let mut changed = Vec::with_capacity(changes.len());
        for (name, new) in changes {
            let before = get(&*self.core.kv, inode.place(), &name)?;
            if before == new {
                continue;
            }
            let key = keys::xattr(ino, &name);
            match &new {
                Some(Tag { kind, bytes }) => {
                    let kind = *kind;
                    self.batch.put(key, encode(&Single { kind, bytes })?)
                }
                None => self.batch.delete(key),
            };
            changed.push((name, before, new));
        }
        count(inode, &changed)?;
        Ok(changed)
    }

    /// Deletes the rows of all attributes of an inode that is being deleted.
    pub(crate) fn delete_xattrs(&mut self, inode: &Inode) -> Result<(), MdError> {
        let ino = inode.attr.ino;
        if inode.xattrs.count == 0 {
            return Ok(());
        }
        let Self {
            core, batch, tags, ..
        } = self;
        if !inode.xattrs.spread {
            batch.delete(keys::xattr(ino, b""));
        }
        each(&*core.kv, inode.place(), b"", |xattr| {
            if inode.xattrs.spread {
                batch.delete(keys::xattr(ino, xattr.name));
            }
            if let Some(name) = tag_name(xattr.name) {
                tags.gone(ino, name, xattr.tag());
            }
            true
        })
    }
}

/// Updates the counts of an inode's attributes, within the limits.
fn count(inode: &mut Arc<Inode>, changed: &Changed) -> Result<(), MdError> {
    let mut xattrs = inode.xattrs;
    for (name, before, after) in changed {
        let bytes = name.len() as u32 + 1;
        match (before, after) {
            (None, Some(_)) => {
                xattrs.count += 1;
                xattrs.names += bytes;
            }
            (Some(_), None) => {
                xattrs.count = xattrs.count.saturating_sub(1);
                xattrs.names = xattrs.names.saturating_sub(bytes);
            }
            _ => {}
        }
    }
    let more = xattrs.count > inode.xattrs.count;
    if more && (xattrs.count > MAX_XATTRS || xattrs.names as usize > MAX_XATTR_LIST) {
        return Err(MdError::TooManyTags);
    }
    Arc::make_mut(inode).xattrs = xattrs;
    Ok(())
}

/// The old attributes with the changes applied, both sorted by name.
fn merge<'a>(old: &[Xattr<'a>], changed: &'a Changed) -> Vec<Xattr<'a>> {
    let mut merged = Vec::with_capacity(old.len() + changed.len());
    let mut old = old.iter().copied().peekable();
    for (name, _, after) in changed {
        while let Some(xattr) = old.next_if(|xattr| xattr.name < &name[..]) {
            merged.push(xattr);
        }
        let _replaced = old.next_if(|xattr| xattr.name == &name[..]);
        if let Some(Tag { kind, bytes }) = after {
            merged.push(Xattr {
                name,
                kind: *kind,
                bytes,
            });
        }
    }
    merged.extend(old);
    merged
}

/// The name of the tag stored in an attribute; `None` if the attribute is no tag.
pub(crate) fn tag_name(xattr: &[u8]) -> Option<&str> {
    let name = xattr.strip_prefix(b"user.")?;
    if name.is_empty() || name.starts_with(b"slabfs.") {
        return None;
    }
    std::str::from_utf8(name).ok()
}

/// Checks a tag of a request, and adds its bytes to those of the request.
pub(crate) fn count_tag(name: &str, tag: &Tag, bytes: &mut usize) -> Result<(), MdError> {
    tag.check()
        .map_err(|error| MdError::Invalid(format!("tag {name}: {error}")))?;
    *bytes += name.len() + tag.bytes.len();
    Ok(())
}

/// Checks the bytes of the tags of a request.
pub(crate) fn check_bytes(bytes: usize) -> Result<(), MdError> {
    if bytes > MAX_TAG_BYTES {
        return Err(MdError::Invalid(format!(
            "at most {MAX_TAG_BYTES} bytes of tags in one request; this one has {bytes}: send several"
        )));
    }
    Ok(())
}

/// The name of the attribute that stores a tag.
pub(crate) fn xattr_name(tag: &str) -> Result<Vec<u8>, MdError> {
    let name = format!("user.{tag}").into_bytes();
    if name.len() > crate::api::MAX_NAME {
        let most = crate::api::MAX_NAME - 5;
        return Err(MdError::Invalid(format!(
            "a tag's name has at most {most} bytes; this one has {}",
            tag.len()
        )));
    }
    if tag_name(&name).is_none() || name.contains(&0) {
        let shown = tag.escape_debug();
        return Err(MdError::Invalid(format!(
            "\"{shown}\" cannot be the key of a tag: it is empty, has a zero byte, or begins with \"slabfs.\", as the names \
             of properties do (slabfs set changes those)"
        )));
    }
    Ok(name)
}
