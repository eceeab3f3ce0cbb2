//! Checks extended attributes: their inode exists and counts them, and they are stored in the form that it records.

use super::{CheckError, Class, Facts, SMALL_PAGE, Walk, inodes};
use slabfs_model::MAX_TAG_VALUE;

use crate::api::{MAX_NAME, MAX_XATTR_VALUE};
use crate::keys;
use crate::tags::rows;

/// Reads all attributes.
pub(super) fn check(walk: &mut Walk<'_>, facts: &mut Facts) -> Result<(), CheckError> {
    walk.each(keys::table(b'x'), SMALL_PAGE, |walk, key, value| {
        let Some((head, name)) = key.split_at_checked(9) else {
            walk.numbers(key, [8]);
            return Ok(());
        };
        let Some([ino]) = walk.numbers(head, [8]) else {
            return Ok(());
        };
        let mut row = Vec::new();
        let read = if name.is_empty() {
            rows::row(key, value).map(|all| {
                row.extend(all.iter().map(|one| (one.name.to_vec(), one.bytes.len())));
            })
        } else {
            rows::single(key, value).map(|tag| row.push((name.to_vec(), tag.bytes.len())))
        };
        if let Err(error) = read {
            walk.report_key(Class::Unreadable, key, error);
        }
        facts.census.attributes += row.len() as u64;
        if row.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            walk.report_key(Class::Attribute, key, "its names are not in order: some cannot be found",
            );
        }
        for (name, len) in &row {
            if name.is_empty()
                || name.contains(&0)
                || name.len() > MAX_NAME
                || *len > longest(name)
            {
                walk.report_key(Class::Attribute, key, format!("has a bad name, or {len} bytes"),
                );
            }
        }
        let Some(inode) = inodes::of(walk, facts, ino, (Class::Attribute, key)) else {
            return Ok(());
        };
        for (name, _) in &row {
            inode.xattrs -= 1;
            inode.xattr_names -= name.len() as i64 + 1;
        }
        if inode.spread == name.is_empty() {
            walk.report_key(Class::Attribute, key, "is one row for all attributes although the inode records one row each, or the other way round",
            );
        }
        Ok(())
    })
}

/// The most bytes of an attribute: a tag may be longer than what `setxattr` sets.
fn longest(name: &[u8]) -> usize {
    match name.starts_with(b"user.") {
        true => MAX_TAG_VALUE,
        false => MAX_XATTR_VALUE,
    }
}
