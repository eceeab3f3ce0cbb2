//! Copies between a dense buffer and the packed bytes of a hyperslab of it.
//!
//! Everything is one walk ([`walk`]): trailing axes that are covered in full are merged into one run, so that a box
//! of complete rows is one `memcpy`; the rest is visited as rows of equal runs at equal distances. Nothing is
//! allocated.
//!
//! A slab must lie inside the shape, and buffers must have exactly the bytes of shape and slab; a slab from the wire
//! must have been checked by [`Hyperslab::validate`]. Otherwise the functions panic before they touch anything out of
//! bounds.

mod walk;

use crate::batch::{pack, unpack};
use crate::{Fill, Hyperslab, region};
use walk::{Merge, walk};

/// Copies the cells of `slab` from the dense array `src` of shape `src_shape` into `packed`.
///
/// # Panics
/// If the buffers' lengths are not those of the shape and of the slab, or the slab is not inside the shape.
pub fn gather(src: &[u8], src_shape: &[u64], slab: &Hyperslab, packed: &mut [u8]) {
    check(src.len(), src_shape, slab);
    assert_eq!(
        packed.len() as u64,
        slab.volume(),
        "bytes of the packed buffer"
    );
    let mut at = 0;
    walk(src_shape, slab, Merge::All, |row| {
        let out = &mut packed[at..at + row.bytes()];
        at += out.len();
        pack(src, row.base, row.step as isize, row.len, out);
    });
}

/// Copies the packed cells of `slab` to their positions in the dense array `dst` of shape `dst_shape`.
///
/// # Panics
/// If the buffers' lengths are not those of the shape and of the slab, or the slab is not inside the shape.
pub fn scatter(packed: &[u8], slab: &Hyperslab, dst: &mut [u8], dst_shape: &[u64]) {
    check(dst.len(), dst_shape, slab);
    assert_eq!(
        packed.len() as u64,
        slab.volume(),
        "bytes of the packed buffer"
    );
    let mut at = 0;
    walk(dst_shape, slab, Merge::All, |row| {
        let from = &packed[at..at + row.bytes()];
        at += from.len();
        unpack(from, dst, row.base, row.step as isize, row.len);
    });
}

/// Calls `f` with offset and length of each contiguous run of `slab` in a dense array of this shape, in packed order.
/// Runs that touch across axes covered in full are one.
///
/// # Panics
/// If the slab is not inside the shape.
pub fn for_each_run(shape: &[u64], slab: &Hyperslab, f: &mut dyn FnMut(usize, usize)) {
    check_shape(shape, slab);
    walk(shape, slab, Merge::All, |row| {
        for from in row.starts() {
            f(from, row.len);
        }
    });
}

/// Fills the cells of `slab` in the dense array `dst`, whose last axis begins at the start of an element.
///
/// # Panics
/// If the buffer's length is not that of the shape, or the slab is not inside the shape.
pub fn fill_slab(dst: &mut [u8], shape: &[u64], slab: &Hyperslab, fill: &Fill) {
    fill_slab_at(dst, shape, slab, fill, 0);
}

/// Like [`fill_slab`], for a dense array whose last axis begins at cell `first` of the object's.
///
/// # Panics
/// If the buffer's length is not that of the shape, or the slab is not inside the shape.
pub fn fill_slab_at(dst: &mut [u8], shape: &[u64], slab: &Hyperslab, fill: &Fill, first: u64) {
    check(dst.len(), shape, slab);
    if let Some(byte) = fill.uniform_byte() {
        walk(shape, slab, Merge::All, |row| {
            for from in row.starts() {
                dst[from..from + row.len].fill(byte);
            }
        });
        return;
    }
    let elem = fill.bytes().len() as u64;
    let width = shape.last().copied().unwrap_or(1);
    // Elements continue from row to row only if rows consist of complete elements.
    let merge = if width.is_multiple_of(elem) {
        Merge::All
    } else {
        Merge::Rows
    };
    walk(shape, slab, merge, |row| {
        for from in row.starts() {
            let cell = first % elem + from as u64 % width;
            fill.paint(&mut dst[from..from + row.len], cell);
        }
    });
}

fn check(bytes: usize, shape: &[u64], slab: &Hyperslab) {
    assert_eq!(
        bytes as u64,
        region::volume(shape),
        "bytes of the dense buffer"
    );
    check_shape(shape, slab);
}

fn check_shape(shape: &[u64], slab: &Hyperslab) {
    if let Err(error) = slab.validate(shape) {
        panic!("a slab outside of its array: {error}");
    }
}

#[cfg(test)]
mod tests;
