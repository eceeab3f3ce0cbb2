//! The calls for names: create, list, remove, rename, stat.

use std::ffi::{OsString, c_char};
use std::os::unix::ffi::OsStringExt;

use slabfs_fs::session::{Kind, MaxDim, RenameFlags, Stat, Time};

use crate::argument::{MAX_RANK, nth, path, result};
use crate::error::{Failure, call};
use crate::handles::{SESSIONS, Table, slabfs_entries, slabfs_session};

/// A container: a directory.
pub const SLABFS_CONTAINER: u32 = 1;
/// An object: an array, or plain bytes.
pub const SLABFS_OBJECT: u32 = 2;
/// A symbolic link, a pipe or another node of a mount.
pub const SLABFS_OTHER: u32 = 3;

/// An existing entry with the new name is replaced.
pub const SLABFS_REPLACE: u32 = 0;
/// The new name must not exist.
pub const SLABFS_NOREPLACE: u32 = 1;
/// The two entries are exchanged.
pub const SLABFS_EXCHANGE: u32 = 2;

/// An unlimited axis, in `max_dims`.
pub const SLABFS_UNLIMITED: u64 = u64::MAX;

/// The attributes of an object or a container.
#[repr(C)]
#[derive(Debug)]
pub struct slabfs_stat {
    /// The inode number; never reused.
    pub ino: u64,
    /// The size in bytes.
    pub size: u64,
    /// Increases with every change of data or attributes.
    pub version: u64,
    /// Last change of data, in seconds since 1970.
    pub mtime: i64,
    /// The nanoseconds of `mtime`.
    pub mtime_nsec: u32,
    /// SLABFS_CONTAINER, SLABFS_OBJECT or SLABFS_OTHER.
    pub kind: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The rank, for an object.
    pub rank: u32,
    /// Elements per axis, slowest first.
    pub dims: [u64; 32],
    /// The maximum of each axis, or SLABFS_UNLIMITED.
    pub max_dims: [u64; 32],
    /// The element size in bytes.
    pub element_bytes: u64,
    /// The element type in NumPy notation, NUL-terminated.
    pub dtype: [c_char; 32],
    /// Not 0: it was declared as an array; 0: it is a byte object.
    pub declared: u32,
    /// Must be zero.
    pub reserved: [u32; 7],
}

/// An entry of a list of names. Its pointers are valid until the list is freed.
#[repr(C)]
#[derive(Debug)]
pub struct slabfs_entry {
    /// The name in a container, or the path from the root in the result of a search; NUL-terminated.
    pub path: *const c_char,
    /// Its length in bytes, without the NUL.
    pub path_len: usize,
    /// SLABFS_CONTAINER, SLABFS_OBJECT or SLABFS_OTHER.
    pub kind: u32,
    /// Must be zero.
    pub reserved: u32,
    /// The size in bytes, in the result of a search; otherwise 0.
    pub size: u64,
    /// The last change of data in seconds since 1970, in the result of a search; otherwise 0.
    pub mtime: i64,
}

/// Lists of names.
pub(crate) static ENTRIES: Table<Vec<Entry>> = Table::new("list of entries");

/// An entry of a list, as stored.
pub(crate) struct Entry {
    path: Vec<u8>,
    kind: u32,
    size: u64,
    mtime: i64,
}

impl Entry {
    pub(crate) fn new(path: OsString, kind: Kind, size: u64, mtime: i64) -> Entry {
        let mut path = path.into_vec();
        path.push(0);
        Entry {
            path,
            kind: number(kind),
            size,
            mtime,
        }
    }
}

fn number(kind: Kind) -> u32 {
    match kind {
        Kind::Directory => SLABFS_CONTAINER,
        Kind::Object => SLABFS_OBJECT,
        _ => SLABFS_OTHER,
    }
}

/// Converts a stat to the C struct.
pub(crate) fn shown(stat: &Stat) -> slabfs_stat {
    let mtime = Time::from(stat.mtime);
    let mut shown = slabfs_stat {
        ino: stat.ino,
        size: stat.size,
        version: stat.version,
        mtime: mtime.sec,
        mtime_nsec: mtime.nsec,
        kind: number(stat.kind),
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        rank: 0,
        dims: [0; MAX_RANK],
        max_dims: [0; MAX_RANK],
        element_bytes: 0,
        dtype: [0; 32],
        declared: 0,
        reserved: [0; 7],
    };
    if let Some(array) = &stat.array {
        shown.rank = array.dims.len() as u32;
        for (place, &dim) in shown.dims.iter_mut().zip(&array.dims) {
            *place = dim;
        }
        for (place, max) in shown.max_dims.iter_mut().zip(&array.max_dims) {
            *place = match max {
                MaxDim::Fixed(max) => *max,
                MaxDim::Unlimited => SLABFS_UNLIMITED,
            };
        }
        shown.element_bytes = array.dtype.size();
        // The last byte remains the terminating NUL.
        let room = shown.dtype.len() - 1;
        for (place, byte) in shown.dtype[..room]
            .iter_mut()
            .zip(array.dtype.to_string().bytes())
        {
            *place = byte as c_char;
        }
        shown.declared = u32::from(array.declared);
    }
    shown
}

/// Creates a container; its parent must exist.
///
/// # Safety
/// Strings are NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_container_create(
    session: slabfs_session,
    container: *const c_char,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let container = unsafe { path(container, "path")? };
        SESSIONS.get(session.id)?.create_container(container)?;
        Ok(())
    })
}

/// Removes an object's name, or an empty container. An object stays usable while it is open.
///
/// # Safety
/// Strings are NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_remove(session: slabfs_session, name: *const c_char) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let name = unsafe { path(name, "path")? };
        Ok(SESSIONS.get(session.id)?.root().remove(name)?)
    })
}

/// Renames an object or a container; `how` is SLABFS_REPLACE, SLABFS_NOREPLACE or SLABFS_EXCHANGE.
///
/// # Safety
/// Strings are NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_rename(
    session: slabfs_session,
    from: *const c_char,
    to: *const c_char,
    how: u32,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let (from, to) = unsafe { (path(from, "from")?, path(to, "to")?) };
        let flags = match how {
            SLABFS_REPLACE => RenameFlags::Replace,
            SLABFS_NOREPLACE => RenameFlags::NoReplace,
            SLABFS_EXCHANGE => RenameFlags::Exchange,
            other => {
                return Err(Failure::invalid(format!(
                    "{other} is not a rename mode; use SLABFS_REPLACE, SLABFS_NOREPLACE or SLABFS_EXCHANGE"
                )));
            }
        };
        Ok(SESSIONS.get(session.id)?.root().rename(from, to, flags)?)
    })
}

/// Returns the attributes of a path; an empty path is the root.
///
/// # Safety
/// Strings are NUL-terminated; `stat` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_stat_path(
    session: slabfs_session,
    name: *const c_char,
    stat: *mut slabfs_stat,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        result(stat, "stat", || {
            let name = path(name, "path")?;
            Ok(shown(&SESSIONS.get(session.id)?.root().stat(name)?))
        })
    }
}

/// Lists a container; an empty path is the root.
///
/// # Safety
/// Strings are NUL-terminated; `entries` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_list(
    session: slabfs_session,
    container: *const c_char,
    entries: *mut slabfs_entries,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        result(entries, "entries", || {
            let container = path(container, "path")?;
            let listed: Result<Vec<Entry>, slabfs_fs::session::Error> = SESSIONS
                .get(session.id)?
                .container(container)?
                .list()?
                .map(|listed| listed.map(|one| Entry::new(one.name, one.kind, 0, 0)))
                .collect();
            let id = ENTRIES.put(listed?);
            Ok(slabfs_entries { id })
        })
    }
}

/// The number of entries of a list.
///
/// # Safety
/// `count` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_entries_count(entries: slabfs_entries, count: *mut usize) -> i32 {
    // SAFETY: the caller's.
    unsafe { result(count, "count", || Ok(ENTRIES.get(entries.id)?.len())) }
}

/// The entry `index`, from 0, of a list.
///
/// # Safety
/// `entry` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_entries_get(
    entries: slabfs_entries,
    index: usize,
    entry: *mut slabfs_entry,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        result(entry, "entry", || {
            let entries = ENTRIES.get(entries.id)?;
            let found = nth(&entries, index, "entry")?;
            Ok(slabfs_entry {
                path: found.path.as_ptr().cast(),
                path_len: found.path.len() - 1,
                kind: found.kind,
                reserved: 0,
                size: found.size,
                mtime: found.mtime,
            })
        })
    }
}

/// Frees a list, and the data that its entries point to.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_entries_free(entries: slabfs_entries) -> i32 {
    call(|| ENTRIES.take(entries.id).map(drop))
}
