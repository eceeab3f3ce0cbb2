//! The calls for objects: create, open, stat, resize, flush, sync, close.

use std::ffi::c_char;
use std::path::Path;

use slabfs_fs::session::{Access, ObjectSpec};

use crate::argument::{axes, list, path, result};
use crate::error::{Failure, call};
use crate::handles::{OBJECTS, SESSIONS, SPECS, slabfs_object, slabfs_session, slabfs_spec};
use crate::names::{shown, slabfs_stat};

/// For reading.
pub const SLABFS_READ: u32 = 1;
/// For writing.
pub const SLABFS_WRITE: u32 = 2;
/// For reading and writing.
pub const SLABFS_READWRITE: u32 = 3;

/// The maximum number of objects created in one call.
const MAX_MANY: usize = 1 << 20;

/// Creates an object with this spec, under a name that must not exist, and opens it for reading and writing.
///
/// # Safety
/// Strings are NUL-terminated; `object` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_create(
    session: slabfs_session,
    name: *const c_char,
    spec: slabfs_spec,
    object: *mut slabfs_object,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        result(object, "object", || {
            let name = path(name, "path")?;
            let spec = SPECS.get(spec.id)?.lock().clone();
            let id = OBJECTS.put(SESSIONS.get(session.id)?.create(name, &spec)?);
            Ok(slabfs_object { id })
        })
    }
}

/// Creates `count` objects, in atomic requests of 1024 each. `specs` has one spec for each.
///
/// # Safety
/// `paths` and `specs` point to `count` elements each; strings are NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_create_many(
    session: slabfs_session,
    count: usize,
    paths: *const *const c_char,
    specs: *const slabfs_spec,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let (paths, specs) = unsafe {
            (
                list(paths, count, "paths", MAX_MANY)?,
                list(specs, count, "specs", MAX_MANY)?,
            )
        };
        let objects: Result<Vec<(&Path, ObjectSpec)>, Failure> = paths
            .iter()
            .zip(specs)
            .enumerate()
            .map(|(index, (&name, spec))| {
                // SAFETY: the caller's.
                let name = unsafe { path(name, "path") }.map_err(|error| error.at(index))?;
                let spec = SPECS.get(spec.id).map_err(|error| error.at(index))?;
                let spec = spec.lock().clone();
                Ok((name, spec))
            })
            .collect();
        SESSIONS.get(session.id)?.root().create_many(objects?)?;
        Ok(())
    })
}

/// Opens an object; `access` is SLABFS_READ, SLABFS_WRITE or SLABFS_READWRITE.
///
/// # Safety
/// Strings are NUL-terminated; `object` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_open(
    session: slabfs_session,
    name: *const c_char,
    access: u32,
    object: *mut slabfs_object,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        result(object, "object", || {
            let name = path(name, "path")?;
            let access = match access {
                SLABFS_READ => Access::Read,
                SLABFS_WRITE => Access::Write,
                SLABFS_READWRITE => Access::ReadWrite,
                other => {
                    return Err(Failure::invalid(format!(
                        "{other} is not an access mode; use SLABFS_READ, SLABFS_WRITE or SLABFS_READWRITE"
                    )));
                }
            };
            let id = OBJECTS.put(SESSIONS.get(session.id)?.open(name, access)?);
            Ok(slabfs_object { id })
        })
    }
}

/// Closes an object: waits for its started transfers and flushes its dirty data to the servers. The handle
/// becomes invalid, whatever the call returns.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_object_close(object: slabfs_object) -> i32 {
    call(|| {
        let object = OBJECTS.take(object.id)?;
        // If another thread's call still uses the object, the end of that call closes it, with its data flushed here.
        let flushed = match object.session().is_closed() {
            true => Ok(()),
            false => object.flush(),
        };
        drop(object);
        Ok(flushed?)
    })
}

/// Returns the current attributes of an object.
///
/// # Safety
/// `stat` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_object_stat(object: slabfs_object, stat: *mut slabfs_stat) -> i32 {
    // SAFETY: the caller's.
    unsafe { result(stat, "stat", || Ok(shown(&OBJECTS.get(object.id)?.stat()?))) }
}

/// Changes the dims of an object that is open for writing: each axis grows up to its max dim, or shrinks;
/// elements outside are discarded.
///
/// # Safety
/// `dims` points to `rank` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_set_dims(
    object: slabfs_object,
    rank: usize,
    dims: *const u64,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let dims = unsafe { axes(dims, rank, "dims")? };
        Ok(OBJECTS.get(object.id)?.set_dims(dims)?)
    })
}

/// Flushes data written through this handle to the servers.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_flush(object: slabfs_object) -> i32 {
    call(|| Ok(OBJECTS.get(object.id)?.flush()?))
}

/// Writes back all dirty data of an object and makes it durable on the servers.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_object_sync(object: slabfs_object) -> i32 {
    call(|| Ok(OBJECTS.get(object.id)?.sync()?))
}
