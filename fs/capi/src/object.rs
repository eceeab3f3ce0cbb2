//! Objects: made, opened, measured, closed.

use std::ffi::c_char;
use std::path::Path;

use slabfs_fs::session::{Access, ObjectSpec};

use crate::argument::{Out, axes, list, path};
use crate::error::{Failure, call};
use crate::handles::{OBJECTS, SESSIONS, SPECS, slabfs_object, slabfs_session, slabfs_spec};
use crate::names::{shown, slabfs_stat};

/// For reading.
pub const SLABFS_READ: u32 = 1;
/// For writing.
pub const SLABFS_WRITE: u32 = 2;
/// For both.
pub const SLABFS_READWRITE: u32 = 3;

/// Most objects that are made in one call.
const MAX_MANY: usize = 1 << 20;

/// Makes an object of this spec, whose name must be free, and opens it for reading and writing.
///
/// # Safety
/// Strings end with a zero; `object` is a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_create(
    session: slabfs_session,
    name: *const c_char,
    spec: slabfs_spec,
    object: *mut slabfs_object,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let (name, out) = unsafe { (path(name, "path")?, Out::new(object, "object")?) };
        let spec = SPECS.get(spec.id)?.lock().clone();
        let made = SESSIONS.get(session.id)?.create(name, &spec)?;
        let id = OBJECTS.put(made);
        out.set(slabfs_object { id });
        Ok(())
    })
}

/// Makes `count` objects, in requests of 1024, each of which is done wholly or not at all. `specs` has one for each.
///
/// # Safety
/// `paths` and `specs` point to `count` each; strings end with a zero.
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
/// Strings end with a zero; `object` is a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_open(
    session: slabfs_session,
    name: *const c_char,
    access: u32,
    object: *mut slabfs_object,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let (name, out) = unsafe { (path(name, "path")?, Out::new(object, "object")?) };
        let access = match access {
            SLABFS_READ => Access::Read,
            SLABFS_WRITE => Access::Write,
            SLABFS_READWRITE => Access::ReadWrite,
            other => {
                return Err(Failure::invalid(format!(
                    "{other} is no access; give SLABFS_READ, SLABFS_WRITE or SLABFS_READWRITE"
                )));
            }
        };
        let id = OBJECTS.put(SESSIONS.get(session.id)?.open(name, access)?);
        out.set(slabfs_object { id });
        Ok(())
    })
}

/// Closes an object: its transfers that were started end first, and what was written goes to the servers. The handle is none any more, whatever the call returns.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_object_close(object: slabfs_object) -> i32 {
    call(|| {
        let object = OBJECTS.take(object.id)?;
        // Another thread's call that still runs closes it then, with what was written flushed.
        let flushed = match object.session().is_closed() {
            true => Ok(()),
            false => object.flush(),
        };
        drop(object);
        Ok(flushed?)
    })
}

/// Says what an object is now.
///
/// # Safety
/// `stat` is a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_object_stat(object: slabfs_object, stat: *mut slabfs_stat) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let out = unsafe { Out::new(stat, "stat")? };
        out.set(shown(&OBJECTS.get(object.id)?.stat()?));
        Ok(())
    })
}

/// Gives an object other dims: each axis grows up to its max dim, or shrinks, and what is outside then is gone. The object is open for writing.
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

/// Sends what was written through this handle to the servers.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_flush(object: slabfs_object) -> i32 {
    call(|| Ok(OBJECTS.get(object.id)?.flush()?))
}

/// Brings everything of an object onto the servers' disks.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_object_sync(object: slabfs_object) -> i32 {
    call(|| Ok(OBJECTS.get(object.id)?.sync()?))
}
