//! Validates requests from the wire before the store sees them.
//!
//! After these checks a slab lies within its chunk, sizes fit 63 bits, and the size of a piece follows from its slab.

use slabfs_model::{Hyperslab, MAX_RANK};

use crate::{
    error::{Result, StoreError},
    name::{ChunkForm, ChunkName},
};

/// The largest element.
const MAX_ELEM: u32 = 65536;

fn invalid<T>(text: String) -> Result<T> {
    Err(StoreError::Invalid(text))
}

/// Checks a name: its rank is within bounds.
pub(super) fn name(name: &ChunkName) -> Result<()> {
    match name {
        ChunkName::Grid { at, .. } if at.len() > MAX_RANK => invalid(format!(
            "a grid chunk's place has {} axes, at most {MAX_RANK} are possible",
            at.len()
        )),
        ChunkName::Grid { .. } | ChunkName::Free(_) => Ok(()),
    }
}

/// Checks a name and a form. The chunk's size must fit 63 bits, except for grid chunks, which may be unbounded.
pub(super) fn form(name: &ChunkName, form: &ChunkForm) -> Result<()> {
    self::name(name)?;
    let rank = form.shape.len();
    if rank == 0 || rank > MAX_RANK {
        return invalid(format!(
            "{name}: a chunk has 1 to {MAX_RANK} axes, not {rank}"
        ));
    }
    if form.elem == 0 || form.elem > MAX_ELEM {
        return invalid(format!(
            "{name}: elements of {} bytes, 1 to {MAX_ELEM} are possible",
            form.elem
        ));
    }
    if !form.fill.fits(u64::from(form.elem)) {
        return invalid(format!(
            "{name}: a fill value of {} bytes for elements of {}",
            form.fill.bytes().len(),
            form.elem
        ));
    }
    if !form.codec.is_valid() {
        return invalid(format!("{name}: codec {:?} does not exist", form.codec));
    }
    match name {
        ChunkName::Free(_) if form.volume().is_none() => {
            invalid(format!("{name}: its shape exceeds 2^63 bytes"))
        }
        ChunkName::Grid { .. } | ChunkName::Free(_) => Ok(()),
    }
}

/// Checks a slab of a chunk; returns the bytes of its cells.
pub(super) fn slab(name: &ChunkName, form: &ChunkForm, slab: &Hyperslab) -> Result<u64> {
    slab.validate(&form.shape)
        .map_err(|e| StoreError::Invalid(format!("{name}: {e}")))?;
    let bytes = slab
        .packed_shape()
        .iter()
        .try_fold(1u64, |n, &x| n.checked_mul(x));
    match bytes {
        Some(bytes) if bytes <= i64::MAX as u64 => Ok(bytes),
        _ => invalid(format!("{name}: the slab exceeds 2^63 bytes")),
    }
}

/// Checks the kind: only grid chunks are written in place, clipped and punched; only free ones put, appended, sealed.
pub(super) fn kind_of(name: &ChunkName, grid: bool, doing: &str) -> Result<()> {
    match (name, grid) {
        (ChunkName::Grid { .. }, true) | (ChunkName::Free(_), false) => Ok(()),
        _ => invalid(format!("{name} cannot be {doing}")),
    }
}
