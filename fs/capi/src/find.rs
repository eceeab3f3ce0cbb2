//! Searches.

use std::ffi::c_char;

use slabfs_fs::session::Query;

use crate::argument::{MAX_QUERY, Out, one, path_or_none, text, text_or_none, unused};
use crate::error::{Failure, call};
use crate::handles::{ENTRIES, SESSIONS, slabfs_entries, slabfs_session};
use crate::names::{Entry, time};

/// A search; all but `text` may be zero.
#[repr(C)]
#[derive(Debug)]
pub struct slabfs_query {
    /// In the language of `slabfs find`: step >= 10 and project = climate.
    pub text: *const c_char,
    /// Only below this container. NULL: everywhere.
    pub below: *const c_char,
    /// The key of the order, least first: path, name, size, mtime, `dims[0]` or a tag's. NULL: no order.
    pub sort: *const c_char,
    /// At most so many hits. 0: all.
    pub limit: u64,
    /// Only share `part`, from 0, of `parts`, for programs that search together. Both 0: all.
    pub part: u32,
    /// How many shares there are.
    pub parts: u32,
    /// Zero.
    pub reserved: [u64; 4],
}

/// # Safety
/// What it points to is there.
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

/// Everything a query finds, of what this user may list.
///
/// # Safety
/// What `search` points to is there; `entries` is a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_find(
    session: slabfs_session,
    search: *const slabfs_query,
    entries: *mut slabfs_entries,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let (search, out) = unsafe { (query(search)?, Out::new(entries, "entries")?) };
        let mut found = Vec::new();
        SESSIONS.get(session.id)?.find_each(&search, |one| {
            let (mtime, _) = time(one.mtime);
            found.push(Entry::new(one.path.into(), one.kind, one.size, mtime));
            true
        })?;
        let id = ENTRIES.put(found);
        out.set(slabfs_entries { id });
        Ok(())
    })
}

/// How many a query finds.
///
/// # Safety
/// What `search` points to is there; `count` is a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_count(
    session: slabfs_session,
    search: *const slabfs_query,
    count: *mut u64,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let (search, out) = unsafe { (query(search)?, Out::new(count, "count")?) };
        out.set(SESSIONS.get(session.id)?.count(&search)?);
        Ok(())
    })
}
