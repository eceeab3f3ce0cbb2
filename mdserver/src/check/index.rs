//! Checks the index of tags: every tag must be found in it. Entries of removed tags may remain; searches verify
//! entries.

use std::path::Path;

use super::{CheckError, Class, Finding, Walk};
use crate::kv::{MetaKv, Recovery};
use crate::tags::{Live, each_row};

/// Bytes of the index that are cached in memory meanwhile.
const CACHE: u64 = 64 << 20;

/// Opens the index of the store in `dir` as the service does at its start, and looks up each tag in it. Returns the
/// number of entries looked up.
///
/// # Errors
/// If the store cannot be read. An index that cannot be used is a finding: the service rebuilds it.
pub fn index(
    kv: &dyn MetaKv,
    dir: &Path,
    recovery: &Recovery,
    report: &mut dyn FnMut(Finding),
) -> Result<u64, CheckError> {
    let mut walk = Walk { kv, report };
    let lossy = recovery.unsynced.is_some() || !recovery.losses.is_empty();
    let last = kv.sync()?;
    let live = match Live::open(&dir.join("index"), kv, (last, lossy), CACHE) {
        Ok(live) => live,
        Err(error) => {
            walk.report(Class::Index, "the index of tags", error);
            return Ok(0);
        }
    };
    let mut looked = 0;
    let read = each_row(kv, |_, entries| {
        for entry in &entries {
            looked += 1;
            if !live.has(entry)? {
                let ino = crate::tags::entry::ino_of(entry).unwrap_or_default();
                let key = crate::tags::entry::key_of(entry).unwrap_or_default();
                walk.report(
                    Class::Index,
                    format!("inode {ino}"),
                    format!("is not found by its tag {key:?}; remove DIR/index, it is rebuilt"),
                );
            }
        }
        Ok(())
    });
    if let Err(error) = read.and_then(|()| live.close(kv)) {
        walk.report(Class::Index, "the index of tags", error);
    }
    Ok(looked)
}
