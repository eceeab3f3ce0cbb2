//! Checks inodes, each by itself, and collects one row per inode for the comparison with the other tables.

use xxhash_rust::xxh3::xxh3_64;

use super::{CheckError, Class, Facts, SMALL_PAGE, Walk, counters};
use crate::api::{Attr, Kind, ROOT};
use crate::keys;
use crate::records::{Body, Inode, Object};

/// An inode's counts, minus the entries that were found in other tables.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) ino: u64,
    pub(super) kind: Kind,
    pub(super) nlink: u32,
    /// Names found.
    pub(super) names: u32,
    /// Directories found in it.
    pub(super) subdirectories: u32,
    /// Of a directory: the parent in its record.
    pub(super) parent: u64,
    /// Of a directory: the directory in which it was found.
    pub(super) found_in: u64,
    /// Of a directory: entries not found yet. Of an aligned object: stored bytes not found yet.
    pub(super) left: i64,
    /// Extended attributes not found yet.
    pub(super) xattrs: i64,
    /// Bytes of the names of these attributes.
    pub(super) xattr_names: i64,
    /// Whether each attribute has a row of its own.
    pub(super) spread: bool,
    /// The number of places it records.
    pub(super) noted: u32,
    /// The sum of all places it records, minus those where it was found: 0 if they are the same.
    pub(super) places: u64,
    pub(super) orphan: bool,
}

impl Facts {
    /// Returns the row of an inode.
    pub(super) fn row(&mut self, ino: u64) -> Option<&mut Row> {
        let at = self.inodes.binary_search_by_key(&ino, |row| row.ino).ok()?;
        self.inodes.get_mut(at)
    }
}

/// Reads all inodes.
pub(super) fn read(walk: &mut Walk<'_>, facts: &mut Facts) -> Result<(), CheckError> {
    walk.each(keys::inodes(), SMALL_PAGE, |walk, key, value| {
        facts.census.inodes += 1;
        let Some([ino]) = walk.numbers(key, [8]) else {
            return Ok(());
        };
        let subject = || format!("inode {ino}");
        if !facts.limits.nameless(ino) {
            let number = slabfs_model::ObjectId(ino).number();
            counters::below(walk, facts.limits.ino, number, subject);
        }
        let Some(inode) = walk.record::<Inode>(key, value) else {
            return Ok(());
        };
        check(walk, ino, &inode);
        if let Body::Object(object) = &inode.body {
            for server in &object.info.stripe {
                match facts.servers.get_mut(server) {
                    Some(known) => known.named = true,
                    None => walk.report(
                        Class::Server,
                        subject(),
                        format!("its chunks are on data server {server}, which is not known"),
                    ),
                }
            }
        }
        facts.inodes.push(row(ino, &inode));
        Ok(())
    })?;
    if facts
        .row(ROOT.0)
        .is_none_or(|row| row.kind != Kind::Directory)
    {
        walk.report(Class::Inode, "the root directory", "does not exist");
    }
    Ok(())
}

fn row(ino: u64, inode: &Inode) -> Row {
    let (parent, left) = match &inode.body {
        Body::Directory {
            parent, entries, ..
        } => (parent.0, *entries as i64),
        Body::Object(object) if !object.info.is_grid() => (0, object.stored as i64),
        _ => (0, 0),
    };
    Row {
        ino,
        kind: inode.attr.kind,
        nlink: inode.attr.nlink,
        names: 0,
        subdirectories: 0,
        parent,
        found_in: 0,
        left,
        xattrs: inode.xattrs.count.into(),
        xattr_names: inode.xattrs.names.into(),
        spread: inode.xattrs.spread,
        noted: inode.names.len() as u32,
        places: inode.names.iter().fold(0, |sum: u64, named| {
            sum.wrapping_add(place(named.parent.0, named.slot))
        }),
        orphan: false,
    }
}

/// A hash of a place (directory and slot), for sums.
pub(super) fn place(dir: u64, slot: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&dir.to_be_bytes());
    bytes[8..].copy_from_slice(&slot.to_be_bytes());
    xxh3_64(&bytes)
}

/// Checks that one inode does not contradict itself.
fn check(walk: &mut Walk<'_>, ino: u64, inode: &Inode) {
    let attr = &inode.attr;
    let mut wrong = |detail: String| walk.report(Class::Inode, format!("inode {ino}"), detail);
    if attr.ino.0 != ino {
        wrong(format!("its record has inode number {}", attr.ino));
    }
    let fits = match inode.body {
        Body::Directory { .. } => attr.kind == Kind::Directory,
        Body::Object(_) | Body::Remote(_) => attr.kind == Kind::Object,
        Body::Symlink(_) => attr.kind == Kind::Symlink,
        Body::Node => !matches!(attr.kind, Kind::Directory | Kind::Object | Kind::Symlink),
    };
    if !fits {
        wrong(format!(
            "is a {:?} and has the body of another kind",
            attr.kind
        ));
    }
    if attr.mode > 0o7777 {
        wrong(format!("its mode is {:o}", attr.mode));
    }
    if [attr.atime, attr.mtime, attr.ctime, attr.crtime]
        .iter()
        .any(|time| time.nsec >= 1_000_000_000)
    {
        wrong("a time has more than 10^9 nanoseconds".to_owned());
    }
    match &inode.body {
        Body::Object(object) => check_object(attr, object, &mut wrong),
        Body::Symlink(target) if attr.size != target.len() as u64 => wrong(format!(
            "its size is {} and its target has {} bytes",
            attr.size,
            target.len()
        )),
        _ => {}
    }
}

fn check_object(attr: &Attr, object: &Object, wrong: &mut impl FnMut(String)) {
    let info = &object.info;
    match info.size() {
        Ok(size) if size == attr.size => {}
        Ok(size) => wrong(format!(
            "its size is {} and its dims make {size}",
            attr.size
        )),
        Err(error) => wrong(format!("its dims: {error}")),
    }
    if attr.stored != object.stored.min(attr.size) {
        wrong(format!(
            "its attributes give {} stored bytes, and {} are stored",
            attr.stored, object.stored
        ));
    }
    if info.dims.len() != info.max_dims.len() {
        wrong(format!(
            "has {} dims and {} greatest dims",
            info.dims.len(),
            info.max_dims.len()
        ));
    } else if let Err(error) = info.check_dims(&info.dims) {
        wrong(format!("its dims: {error}"));
    }
    if !info.fill.fits(info.dtype.size()) {
        wrong("its fill value does not fit its dtype".to_owned());
    }
    if !info.codec.is_valid() {
        wrong("its codec does not exist".to_owned());
    }
    if info.generation > object.spare {
        wrong(format!(
            "its generation is {}, the greatest allocated {}",
            info.generation, object.spare
        ));
    }
}

/// Reports wrong counts, after every table was read.
pub(super) fn sum_up(walk: &mut Walk<'_>, facts: &Facts) {
    for row in &facts.inodes {
        let nameless = facts.limits.nameless(row.ino);
        places(walk, row);
        let subject = || format!("inode {}", row.ino);
        let directory = row.kind == Kind::Directory;
        let links = match (directory, row.ino == ROOT.0 || row.names > 0) {
            (true, true) => row.subdirectories.saturating_add(2),
            (true, false) => 0,
            (false, _) => row.names,
        };
        if row.nlink != links && !nameless {
            let what = if directory {
                format!("its subdirectories give {links}")
            } else {
                format!("{links} names were found")
            };
            walk.report(
                Class::Links,
                subject(),
                format!("its link count is {}, {what}", row.nlink),
            );
        }
        match (row.nlink == 0, row.orphan) {
            (true, false) => walk.report(
                Class::Orphan,
                subject(),
                "has no name and no orphan record: it would never be removed",
            ),
            (false, true) => walk.report(
                Class::Orphan,
                subject(),
                "has an orphan record and has a name",
            ),
            _ => {}
        }
        if row.left != 0 {
            let detail = if directory {
                format!("its count of entries is wrong by {}", row.left)
            } else {
                format!("its count of stored bytes is wrong by {}", row.left)
            };
            let class = if directory {
                Class::Directory
            } else {
                Class::Tile
            };
            walk.report(class, subject(), detail);
        }
        if row.xattrs != 0 || row.xattr_names != 0 {
            walk.report(
                Class::Attribute,
                subject(),
                format!(
                    "its count of attributes is wrong by {}, that of their names' bytes by {}",
                    row.xattrs, row.xattr_names
                ),
            );
        }
    }
}

/// Checks that the places an inode records, in its record and in rows, are those where it was found.
fn places(walk: &mut Walk<'_>, row: &Row) {
    let found = row.ino != ROOT.0 || row.names > 0;
    if row.places == 0 && (row.noted == row.names || !found) {
        return;
    }
    walk.report(
        Class::Links,
        format!("inode {}", row.ino),
        "the places it records are not those of its names: searches return a wrong path",
    );
}

/// Returns the inode that a row of another table refers to; reports a finding if it does not exist.
pub(super) fn of<'a>(
    walk: &mut Walk<'_>,
    facts: &'a mut Facts,
    ino: u64,
    (class, key): (Class, &[u8]),
) -> Option<&'a mut Row> {
    let row = facts.row(ino);
    if row.is_none() {
        walk.report_key(class, key, format!("inode {ino} does not exist"));
    }
    row
}
