//! Checks directories: the inodes that their slots name, the slots of names, and that every directory is reachable from
//! the root.

use super::{CheckError, Class, Facts, PAGE, Walk, inodes};
use crate::api::{Ino, Kind, MAX_NAME, ROOT};
use crate::keys;
use crate::namespace::first_slot;
use crate::records::{Body, Slot, decode};

/// The longest chain that a lookup follows.
const MAX_CHAIN: u64 = 4096;

/// The directory whose slots are being read.
#[derive(Default)]
struct Here {
    dir: Option<u64>,
    collided: bool,
    /// The first and the last slot of the gapless run to which the last slot belongs.
    run: (u64, u64),
    /// The names in this run, for a directory in which collisions moved names out of their own slots.
    names: Vec<Vec<u8>>,
}

/// Reads all slots, then follows directories to the root.
pub(super) fn check(walk: &mut Walk<'_>, facts: &mut Facts) -> Result<(), CheckError> {
    let mut here = Here::default();
    walk.each(keys::table(b'd'), PAGE, |walk, key, value| {
        let Some([dir, at]) = walk.numbers(key, [8, 8]) else {
            return Ok(());
        };
        if here.dir != Some(dir) {
            enter(walk, facts, &mut here, dir)?;
        }
        if here.run.1.checked_add(1) == Some(at) && at > 0 {
            here.run.1 = at;
        } else {
            here.run = (at, at);
            here.names.clear();
        }
        match walk.record::<Slot>(key, value) {
            Some(Slot::Entry { name, ino }) => entry(walk, facts, &mut here, (key, at), name, ino),
            Some(Slot::Gone) if !here.collided => walk.report_key(
                Class::Name,
                key,
                "is the rest of a chain in a directory without chains",
            ),
            Some(Slot::Gone) | None => {}
        }
        Ok(())
    })?;
    noted(walk, facts)?;
    to_the_root(walk, facts);
    Ok(())
}

/// Reads the rows of places of inodes with more places than fit into their records.
fn noted(walk: &mut Walk<'_>, facts: &mut Facts) -> Result<(), CheckError> {
    walk.each(keys::table(b'n'), PAGE, |walk, key, value| {
        let Some([ino, dir, at]) = walk.numbers(key, [8, 8, 8]) else {
            return Ok(());
        };
        let named = walk.record::<Vec<u8>>(key, value);
        let slot = keys::slot(slabfs_model::ObjectId(dir), at);
        let there = walk.kv.get(&slot)?;
        let there = there.and_then(|value| decode::<Slot>(&slot, &value).ok());
        let right = match (&named, there) {
            (Some(named), Some(Slot::Entry { name, ino: of })) => *named == name && of.0 == ino,
            _ => false,
        };
        if !right {
            walk.report_key(
                Class::Links,
                key,
                "is not where the inode is found: searches return a wrong path",
            );
        }
        if let Some(row) = inodes::of(walk, facts, ino, (Class::Links, key)) {
            row.noted = row.noted.saturating_add(1);
            row.places = row.places.wrapping_add(inodes::place(dir, at));
        }
        Ok(())
    })
}

fn enter(
    walk: &mut Walk<'_>,
    facts: &mut Facts,
    here: &mut Here,
    dir: u64,
) -> Result<(), CheckError> {
    *here = Here {
        dir: Some(dir),
        ..Here::default()
    };
    let inode = walk.inode(slabfs_model::ObjectId(dir))?;
    match inode.map(|inode| inode.body) {
        Some(Body::Directory { collided, .. }) => here.collided = collided,
        Some(_) => walk.report(
            Class::Directory,
            format!("inode {dir}"),
            "has entries and is not a directory",
        ),
        None if facts.row(dir).is_none() => walk.report(
            Class::Directory,
            format!("inode {dir}"),
            "does not exist and has entries",
        ),
        None => {}
    }
    Ok(())
}

fn entry(
    walk: &mut Walk<'_>,
    facts: &mut Facts,
    here: &mut Here,
    (key, at): (&[u8], u64),
    name: Vec<u8>,
    ino: Ino,
) {
    facts.census.names += 1;
    let dir = here.dir.unwrap_or_default();
    let subject = || {
        format!(
            "name {:?} of directory {dir}",
            String::from_utf8_lossy(&name)
        )
    };
    if name.is_empty()
        || name.len() > MAX_NAME
        || name.iter().any(|byte| [0, b'/'].contains(byte))
        || [&b"."[..], b".."].contains(&&*name)
    {
        walk.report(Class::Name, subject(), "is not a valid name");
    }
    let own = first_slot(&name);
    let found =
        at == own || here.collided && own < at && here.run.0 <= own && at - own <= MAX_CHAIN;
    if !found {
        walk.report(
            Class::Name,
            subject(),
            format!("is in slot {at} and is looked up in {own}: it cannot be found"),
        );
    }
    if here.collided {
        if here.names.contains(&name) {
            walk.report(Class::Name, subject(), "exists twice");
        }
        here.names.push(name.clone());
    }
    if let Some(row) = facts.row(dir) {
        row.left -= 1;
    }
    let Some(named) = facts.row(ino.0) else {
        walk.report(
            Class::Name,
            subject(),
            format!("names inode {ino}, which does not exist"),
        );
        return;
    };
    named.names = named.names.saturating_add(1);
    named.places = named.places.wrapping_sub(inodes::place(dir, at));
    if named.kind != Kind::Directory {
        return;
    }
    let (parent, before) = (named.parent, named.found_in);
    named.found_in = dir;
    if before != 0 {
        walk.report(
            Class::Directory,
            format!("inode {ino}"),
            format!("is in directory {before} and in {dir}"),
        );
    }
    if parent != dir {
        walk.report(
            Class::Directory,
            format!("inode {ino}"),
            format!(
                "records that its parent is {parent} and is in {dir} ({})",
                keys::describe(key)
            ),
        );
    }
    if let Some(row) = facts.row(dir) {
        row.subdirectories = row.subdirectories.saturating_add(1);
    }
}

/// Follows each directory to the root; reports one directory of each group that does not reach it.
fn to_the_root(walk: &mut Walk<'_>, facts: &mut Facts) {
    #[derive(Clone, Copy, PartialEq)]
    enum Path {
        Unknown,
        Ancestor,
        Reached,
        Lost,
    }
    let rows = &facts.inodes;
    let place = |ino: u64| rows.binary_search_by_key(&ino, |row| row.ino).ok();
    let mut paths = vec![Path::Unknown; rows.len()];
    let mut lost = Vec::new();
    let mut path = Vec::new();
    for start in 0..rows.len() {
        if rows[start].kind != Kind::Directory {
            continue;
        }
        path.clear();
        let mut at = Some(start);
        let end = loop {
            let Some(here) = at else {
                break Path::Lost;
            };
            match paths[here] {
                Path::Unknown => {}
                Path::Ancestor => {
                    lost.push((rows[here].ino, "is inside itself"));
                    break Path::Lost;
                }
                known => break known,
            }
            path.push(here);
            paths[here] = Path::Ancestor;
            let row = &rows[here];
            if row.ino == ROOT.0 {
                break Path::Reached;
            }
            if row.found_in == 0 && row.nlink > 0 {
                lost.push((row.ino, "cannot be reached from the root"));
            }
            // Unlinked and still open: it has no path, which is no error.
            if row.found_in == 0 {
                break Path::Lost;
            }
            at = place(row.found_in);
        };
        for &visited in &path {
            paths[visited] = end;
        }
    }
    if let Some(at) = place(ROOT.0) {
        let row = &rows[at];
        if row.parent != ROOT.0 || row.found_in != 0 {
            lost.push((ROOT.0, "is the root and is in a directory"));
        }
    }
    for (ino, why) in lost {
        walk.report(Class::Directory, format!("inode {ino}"), why);
    }
}
