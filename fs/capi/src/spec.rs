//! The calls for specs, which collect the properties of objects to create.

use std::ffi::c_char;

use parking_lot::Mutex;
use slabfs_fs::session::ObjectSpec;

use crate::argument::{MAX_TEXT, axes, one, path, result, text};
use crate::error::{Failure, call};
use crate::handles::{SESSIONS, SPECS, slabfs_session, slabfs_spec};
use crate::tags::{slabfs_tag, value};

/// Creates an empty spec: a byte object, unless the container has other defaults.
///
/// # Safety
/// `spec` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_spec_new(spec: *mut slabfs_spec) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        result(spec, "spec", || {
            let id = SPECS.put(Mutex::new(ObjectSpec::new()));
            Ok(slabfs_spec { id })
        })
    }
}

/// Frees a spec.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_spec_free(spec: slabfs_spec) -> i32 {
    call(|| SPECS.take(spec.id).map(drop))
}

/// Sets a property by name and text, with the syntax of `slabfs create`: dims (16,16), dtype (f4), max_dims
/// (unlimited,16), fill (nan), layout (aligned, canonical, grid:64,64), codec (shuffle+zstd:3), placement
/// (dynamic, region, object, local, server:3).
///
/// # Safety
/// Strings are NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_spec_set(
    spec: slabfs_spec,
    property: *const c_char,
    value: *const c_char,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let (property, value) = unsafe {
            (
                text(property, "property", MAX_TEXT)?,
                text(value, "value", MAX_TEXT)?,
            )
        };
        change(spec, |spec| Ok(spec.with(property, value)?))
    })
}

/// Sets the dims, slowest axis first.
///
/// # Safety
/// `dims` points to `rank` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_spec_dims(spec: slabfs_spec, rank: usize, dims: *const u64) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let dims = unsafe { axes(dims, rank, "dims")? };
        change(spec, |spec| Ok(spec.dims(dims)))
    })
}

/// Sets a tag; its `path` is ignored.
///
/// # Safety
/// The pointers in the tag are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_spec_tag(spec: slabfs_spec, tag: *const slabfs_tag) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let (key, tag) = unsafe { value(one(tag, "tag")?)? };
        let Some(tag) = tag else {
            return Err(Failure::invalid(
                "a spec cannot remove tags; do not use SLABFS_TAG_REMOVE",
            ));
        };
        change(spec, |spec| Ok(spec.tag(key, tag)))
    })
}

/// Sets the permission bits; the default is 0666 less the umask.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_spec_mode(spec: slabfs_spec, mode: u32) -> i32 {
    call(|| change(spec, |spec| Ok(spec.mode(mode))))
}

/// Takes all properties that are not set yet from another object, except its data and its tags. Properties that
/// conflict with those already set are skipped.
///
/// # Safety
/// Strings are NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_spec_like(
    spec: slabfs_spec,
    session: slabfs_session,
    other: *const c_char,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let other = unsafe { path(other, "path")? };
        let other = SESSIONS.get(session.id)?.root().stat(other)?;
        change(spec, |spec| Ok(spec.like(&other)?))
    })
}

/// Changes a spec; a failed change has no effect.
fn change(
    spec: slabfs_spec,
    how: impl FnOnce(ObjectSpec) -> Result<ObjectSpec, Failure>,
) -> Result<(), Failure> {
    let spec = SPECS.get(spec.id)?;
    let mut spec = spec.lock();
    *spec = how(spec.clone())?;
    Ok(())
}
