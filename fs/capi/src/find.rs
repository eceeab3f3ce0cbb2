//! The calls for searches.

use std::ffi::c_char;

use slabfs_fs::session::{Query, Time};

use crate::argument::{MAX_QUERY, one, path_or_none, result, text, text_or_none, unused};
use crate::error::Failure;
use crate::handles::{SESSIONS, slabfs_entries, slabfs_session};
use crate::names::{ENTRIES, Entry};

/// A search; all members except `text` may be zero.
#[repr(C)]
#[derive(Debug)]
pub struct slabfs_query {
    /// The query in the language of `slabfs find`: step >= 10 and project = climate.
    pub text: *const c_char,
    /// Searches only below this container. NULL: everywhere.
    pub below: *const c_char,
    /// The sort key, ascending: path, name, size, mtime, `dims[0]` or the key of a tag. NULL: unsorted.
    pub sort: *const c_char,
    /// The maximum number of hits. 0: all.
    pub limit: u64,
    /// Returns only share `part`, counted from 0, of `parts` disjoint shares, for parallel searches. Both 0: all.
    pub part: u32,
    /// The number of shares.
    pub parts: u32,
    /// Must be zero.
    pub reserved: [u64; 4],
}

/// # Safety
/// Its pointers are valid.
unsafe fn query(query: *const slabfs_query) -> Result<Query, Failure> {
    // SAFETY: the caller's.
    let (given, below, sort, words) = unsafe {
        let given = one(query, "query")?;
        (
            given,
            path_or_none(given.below, "below")?,
            text_or_none(given.sort, "sort")?,
            text(given.text, "text", MAX_QUERY)?,
        )
    };
    unused(&given.reserved, "query")?;
    let mut query = Query::new(words);
    if let Some(below) = below {
        query = query.below(below);
    }
    if let Some(sort) = sort {
        query = query.sort(sort);
    }
    if given.limit > 0 {
        query = query.limit(given.limit);
    }
    if given.part != 0 || given.parts != 0 {
        query = query.part(given.part, given.parts);
    }
    Ok(query)
}

/// Returns the hits of a query that this user may list.
///
/// # Safety
/// `search` points to valid data; `entries` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_find(
    session: slabfs_session,
    search: *const slabfs_query,
    entries: *mut slabfs_entries,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        result(entries, "entries", || {
            let search = query(search)?;
            let mut found = Vec::new();
            SESSIONS.get(session.id)?.find_each(&search, |one| {
                let mtime = Time::from(one.mtime).sec;
                found.push(Entry::new(one.path.into(), one.kind, one.size, mtime));
                true
            })?;
            let id = ENTRIES.put(found);
            Ok(slabfs_entries { id })
        })
    }
}

/// Counts the hits of a query.
///
/// # Safety
/// `search` points to valid data; `count` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_count(
    session: slabfs_session,
    search: *const slabfs_query,
    count: *mut u64,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        result(count, "count", || {
            let search = query(search)?;
            Ok(SESSIONS.get(session.id)?.count(&search)?)
        })
    }
}
