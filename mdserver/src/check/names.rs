//! Directories: what their slots name, where names stand, and that all of it hangs under the root.

use super::{CheckError, Class, Facts, PAGE, Walk, inodes};
use crate::api::{Ino, Kind, MAX_NAME, ROOT};
use crate::keys;
use crate::namespace::first_slot;
use crate::records::{Body, Slot, decode};

/// The longest chain a search follows.
const MAX_CHAIN: u64 = 4096;

/// The directory whose slots are being read.
#[derive(Default)]
struct Here {
    dir: Option<u64>,
    collided: bool,
    /// The run of slots without a gap that the last slot belongs to: where it began and ended, and the
    /// names in it, for a directory in which names were put off their own slots.
    run: (u64, u64),
    names: Vec<Vec<u8>>,
}

/// Reads all slots, then follows directories to the root.
pub(super) fn check(walk: &mut Walk<'_>, facts: &mut Facts) -> Result<(), CheckError> {
    let mut here = Here::default();
    walk.each(super::table(b'd'), PAGE, |walk, key, value| {
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
            Some(Slot::Gone) if !here.collided => walk.tell(
                Class::Name,
                keys::describe(key),
                "is the remains of a chain in a directory that has none",
            ),
            Some(Slot::Gone) | None => {}
        }
        Ok(())
    })?;
    noted(walk, facts)?;
    to_the_root(walk, facts);
    Ok(())
}

/// Reads the places of inodes that have more than fit their records.
fn noted(walk: &mut Walk<'_>, facts: &mut Facts) -> Result<(), CheckError> {
    walk.each(super::table(b'n'), PAGE, |walk, key, value| {
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
            walk.tell(
                Class::Links,
                keys::describe(key),
                "is not where the inode is found: searches tell a wrong path",
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
        Some(_) => walk.tell(
            Class::Directory,
            format!("inode {dir}"),
            "has entries and is no directory",
        ),
        None if facts.row(dir).is_none() => walk.tell(
            Class::Directory,
            format!("inode {dir}"),
            "is not there and has entries",
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
        walk.tell(Class::Name, subject(), "is no name");
    }
    let own = first_slot(&name);
    let found =
        at == own || here.collided && own < at && here.run.0 <= own && at - own <= MAX_CHAIN;
    if !found {
        walk.tell(
            Class::Name,
            subject(),
            format!("stands in slot {at} and is looked for in {own}: nobody can find it"),
        );
    }
    if here.collided {
        if here.names.contains(&name) {
            walk.tell(Class::Name, subject(), "is there twice");
        }
        here.names.push(name.clone());
    }
    if let Some(row) = facts.row(dir) {
        row.left -= 1;
    }
    let Some(named) = facts.row(ino.0) else {
        walk.tell(
            Class::Name,
            subject(),
            format!("names inode {ino}, which is not there"),
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
        walk.tell(
            Class::Directory,
            format!("inode {ino}"),
            format!("stands in directory {before} and in {dir}"),
        );
    }
    if parent != dir {
        walk.tell(
            Class::Directory,
            format!("inode {ino}"),
            format!(
                "says that its parent is {parent} and stands in {dir} ({})",
                keys::describe(key)
            ),
        );
    }
    if let Some(row) = facts.row(dir) {
        row.subdirectories = row.subdirectories.saturating_add(1);
    }
}

/// Follows each directory to the root; tells one of each group that does not get there.
fn to_the_root(walk: &mut Walk<'_>, facts: &mut Facts) {
    #[derive(Clone, Copy, PartialEq)]
    enum Way {
        Unknown,
        OnIt,
        Leads,
        Lost,
    }
    let rows = &facts.inodes;
    let place = |ino: u64| rows.binary_search_by_key(&ino, |row| row.ino).ok();
    let mut ways = vec![Way::Unknown; rows.len()];
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
                break Way::Lost;
            };
            match ways[here] {
                Way::Unknown => {}
                Way::OnIt => {
                    lost.push((rows[here].ino, "is inside itself"));
                    break Way::Lost;
                }
                known => break known,
            }
            path.push(here);
            ways[here] = Way::OnIt;
            let row = &rows[here];
            if row.ino == ROOT.0 {
                break Way::Leads;
            }
            if row.found_in == 0 && row.nlink > 0 {
                lost.push((row.ino, "cannot be reached from the root"));
            }
            // Unlinked and still open: nobody expects a way.
            if row.found_in == 0 {
                break Way::Lost;
            }
            at = place(row.found_in);
        };
        for &passed in &path {
            ways[passed] = end;
        }
    }
    if let Some(at) = place(ROOT.0) {
        let row = &rows[at];
        if row.parent != ROOT.0 || row.found_in != 0 {
            lost.push((ROOT.0, "is the root and stands in a directory"));
        }
    }
    for (ino, why) in lost {
        walk.tell(Class::Directory, format!("inode {ino}"), why);
    }
}
