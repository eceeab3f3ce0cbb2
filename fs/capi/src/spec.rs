//! What an object is to be, said piece by piece.

use std::ffi::c_char;

use parking_lot::Mutex;
use slabfs_fs::session::ObjectSpec;

use crate::argument::{MAX_TEXT, Out, axes, one, path, text};
use crate::error::{Failure, call};
use crate::handles::{SESSIONS, SPECS, slabfs_session, slabfs_spec};
use crate::tags::{slabfs_tag, value};

/// A spec that says nothing yet: a byte object, unless the container's defaults say otherwise.
///
/// # Safety
/// `spec` is a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_spec_new(spec: *mut slabfs_spec) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let out = unsafe { Out::new(spec, "spec")? };
        let id = SPECS.put(Mutex::new(ObjectSpec::new()));
        out.set(slabfs_spec { id });
        Ok(())
    })
}

/// Gives a spec back.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_spec_free(spec: slabfs_spec) -> i32 {
    call(|| SPECS.take(spec.id).map(drop))
}

/// Says one property by its name and its text, as `slabfs create` takes them: dims (16,16), dtype (f4), max_dims
/// (unlimited,16), fill (nan), layout (aligned, canonical, grid:64,64), codec (shuffle+zstd:3), placement (dynamic,
/// region, object, local, server:3).
///
/// # Safety
/// Strings end with a zero.
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

/// Says the dims, slowest axis first.
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

/// Says a tag; its `path` does not matter.
///
/// # Safety
/// What the tag points to is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_spec_tag(spec: slabfs_spec, tag: *const slabfs_tag) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let (key, tag) = unsafe { value(one(tag, "tag")?)? };
        let Some(tag) = tag else {
            return Err(Failure::invalid(
                "a spec has no tags to remove; leave SLABFS_TAG_REMOVE out",
            ));
        };
        change(spec, |spec| Ok(spec.tag(key, tag)))
    })
}

/// Says the permission bits; what the umask leaves of 0666 if nothing is said.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_spec_mode(spec: slabfs_spec, mode: u32) -> i32 {
    call(|| change(spec, |spec| Ok(spec.mode(mode))))
}

/// Says all that is not said yet as another object has it, but for its data and its tags. What does not go with what
/// is said is left out.
///
/// # Safety
/// Strings end with a zero.
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

/// Changes a spec; a change that fails leaves it as it was.
fn change(
    spec: slabfs_spec,
    how: impl FnOnce(ObjectSpec) -> Result<ObjectSpec, Failure>,
) -> Result<(), Failure> {
    let spec = SPECS.get(spec.id)?;
    let mut spec = spec.lock();
    *spec = how(spec.clone())?;
    Ok(())
}
