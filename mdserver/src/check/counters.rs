//! Checks counters, which must be above every allocated number; and reports keys of no table.

use super::{CheckError, Class, Facts, PAGE, Walk};
use crate::api::{ROOT, Shard};
use crate::keys;
use crate::records::Later;

/// The letters of the tables.
const TABLES: &[u8] = b"bdeilmnopqrstuvwxyz";

/// Numbers below these may have been allocated.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) ino: u64,
    pub(super) chunk: u64,
    pub(super) session: u64,
    pub(super) server: u64,
    /// For each load of a dump: the first inode number and the first chunk id allocated after it.
    pub(super) later: Vec<Later>,
    /// The recorded number of inodes.
    pub(super) inodes: Option<u64>,
    /// Which shard it is.
    pub(super) shard: Shard,
}

impl Limits {
    /// Whether the names of an inode are in another shard.
    pub(super) fn nameless(&self, ino: u64) -> bool {
        !self.shard.has_names() && ino != ROOT.0
    }
}

/// Reads the counters.
pub(super) fn read(walk: &mut Walk<'_>, facts: &mut Facts) -> Result<(), CheckError> {
    // The counters of a new store.
    facts.limits = Limits {
        ino: 2,
        chunk: 1,
        session: 1,
        server: 1,
        later: Vec::new(),
        inodes: None,
        shard: Shard::default(),
    };
    let mut format = false;
    walk.each(keys::table(b'm'), PAGE, |walk, key, value| {
        let limits = &mut facts.limits;
        let (place, number) = match key {
            keys::FORMAT => {
                format = walk.record::<u32>(key, value).is_some();
                return Ok(());
            }
            // The first is present until the first start after a dump was loaded.
            keys::LOADED | keys::LOSSY => {
                walk.record::<bool>(key, value);
                return Ok(());
            }
            keys::SHARD => {
                limits.shard = walk.record(key, value).unwrap_or_default();
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
                walk.report_key(Class::UnknownKey, key, "no such counter");
                return Ok(());
            }
        };
        // An unreadable counter is reported already; nothing is compared with it.
        *place = number.unwrap_or(u64::MAX);
        Ok(())
    })?;
    if !format {
        walk.report(
            Class::Counter,
            "the format of the store",
            "is missing: this is not a metadata store, or it has lost everything",
        );
    }
    unknown(walk)
}

/// Reports keys outside all tables.
fn unknown(walk: &mut Walk<'_>) -> Result<(), CheckError> {
    let mut from = vec![0];
    for &letter in TABLES.iter().chain(&[u8::MAX]) {
        walk.each((from, vec![letter]), PAGE, |walk, key, _| {
            walk.report_key(Class::UnknownKey, key, "no such table");
            Ok(())
        })?;
        from = vec![letter.saturating_add(1)];
    }
    Ok(())
}

/// Checks the recorded number of inodes.
pub(super) fn count(walk: &mut Walk<'_>, facts: &Facts) {
    let found = facts.census.inodes;
    if let Some(recorded) = facts.limits.inodes.filter(|recorded| *recorded != found) {
        walk.report(
            Class::Counter,
            "the number of inodes",
            format!("is recorded as {recorded}, and there are {found}"),
        );
    }
}

/// Reports a number that was not allocated yet.
pub(super) fn below(
    walk: &mut Walk<'_>,
    limit: u64,
    number: u64,
    subject: impl FnOnce() -> String,
) {
    if number >= limit {
        walk.report(
            Class::Counter,
            subject(),
            format!("the counter is at {limit}: it would be allocated a second time"),
        );
    }
}
