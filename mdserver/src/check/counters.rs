//! Counters, which are above everything that was given; and keys of no table.

use super::{CheckError, Class, Facts, PAGE, Walk};
use crate::keys;
use crate::records::Later;

/// The letters of the tables.
const TABLES: &[u8] = b"bdeimnopqrstvwxz";

/// Numbers below these may have been given.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) ino: u64,
    pub(super) chunk: u64,
    pub(super) session: u64,
    pub(super) server: u64,
    /// Where the numbers of inodes and of chunks begin that were given since a dump was loaded, a pair for
    /// each load.
    pub(super) later: Vec<Later>,
    /// Inodes there are said to be.
    pub(super) inodes: Option<u64>,
}

/// Reads the counters.
pub(super) fn read(walk: &mut Walk<'_>, facts: &mut Facts) -> Result<(), CheckError> {
    // What a new store has before anything is given.
    facts.limits = Limits {
        ino: 2,
        chunk: 1,
        session: 1,
        server: 1,
        later: Vec::new(),
        inodes: None,
    };
    let mut format = false;
    walk.each(super::table(b'm'), PAGE, |walk, key, value| {
        let limits = &mut facts.limits;
        let (place, number) = match key {
            keys::FORMAT => {
                format = walk.record::<u32>(key, value).is_some();
                return Ok(());
            }
            keys::LOADED => {
                // Until the first start after a dump was loaded.
                walk.record::<bool>(key, value);
                return Ok(());
            }
            keys::LOSSY => {
                walk.record::<bool>(key, value);
                return Ok(());
            }
            keys::INODES => {
                limits.inodes = walk.record(key, value);
                return Ok(());
            }
            keys::LATER => {
                limits.later = walk.record(key, value).unwrap_or_default();
                return Ok(());
            }
            keys::NEXT_INO => (&mut limits.ino, walk.record(key, value)),
            keys::NEXT_CHUNK => (&mut limits.chunk, walk.record(key, value)),
            keys::NEXT_SESSION => (&mut limits.session, walk.record(key, value)),
            keys::NEXT_SERVER => (
                &mut limits.server,
                walk.record::<u32>(key, value).map(u64::from),
            ),
            _ => {
                walk.tell(Class::UnknownKey, keys::describe(key), "no such counter");
                return Ok(());
            }
        };
        // One that cannot be read was told already; it is held against nothing.
        *place = number.unwrap_or(u64::MAX);
        Ok(())
    })?;
    if !format {
        walk.tell(
            Class::Counter,
            "the format of the store",
            "is not there: this is no metadata store, or one that lost everything",
        );
    }
    unknown(walk)
}

/// Keys between and around the tables.
fn unknown(walk: &mut Walk<'_>) -> Result<(), CheckError> {
    let mut from = vec![0];
    for &letter in TABLES.iter().chain(&[u8::MAX]) {
        walk.each((from, vec![letter]), PAGE, |walk, key, _| {
            walk.tell(Class::UnknownKey, keys::describe(key), "no such table");
            Ok(())
        })?;
        from = vec![letter.saturating_add(1)];
    }
    Ok(())
}

/// The number of inodes is that of those there are.
pub(super) fn count(walk: &mut Walk<'_>, facts: &Facts) {
    let there = facts.census.inodes;
    if let Some(said) = facts.limits.inodes.filter(|said| *said != there) {
        walk.tell(
            Class::Counter,
            "the number of inodes",
            format!("is said to be {said}, and there are {there}"),
        );
    }
}

/// Tells of a number that was not given yet.
pub(super) fn below(
    walk: &mut Walk<'_>,
    limit: u64,
    number: u64,
    subject: impl FnOnce() -> String,
) {
    if number >= limit {
        walk.tell(
            Class::Counter,
            subject(),
            format!("the counter stands at {limit}: it would be given a second time"),
        );
    }
}
