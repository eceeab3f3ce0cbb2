//! The calls that read and write elements: boxes, strided hyperslabs and text selections, packed or with strides.

use std::ffi::{c_char, c_void};
use std::ptr::null;

use slabfs_fs::session::{Axis, Hyperslab, Memory, Select};

use crate::argument::{MAX_TEXT, axes, bytes, bytes_mut, one, text};
use crate::error::{Failure, call};
use crate::handles::{OBJECTS, slabfs_object};

/// A strided hyperslab as in HDF5: on each axis, slowest first, `count` blocks of `block` elements, whose starts
/// are `stride` elements apart.
#[repr(C)]
#[derive(Debug)]
pub struct slabfs_slab {
    /// The rank of the object.
    pub rank: usize,
    /// The first element.
    pub start: *const u64,
    /// The distance between the starts of blocks; NULL: blocks are adjacent.
    pub stride: *const u64,
    /// The number of blocks.
    pub count: *const u64,
    /// Elements per block; NULL: one.
    pub block: *const u64,
}

/// # Safety
/// Each pointer is NULL or points to `rank` numbers.
pub(crate) unsafe fn slab(slab: &slabfs_slab) -> Result<Hyperslab, Failure> {
    let rank = slab.rank;
    // SAFETY: the caller's.
    let (start, count, stride, block) = unsafe {
        (
            axes(slab.start, rank, "start")?,
            axes(slab.count, rank, "count")?,
            match slab.stride.is_null() {
                true => None,
                false => Some(axes(slab.stride, rank, "stride")?),
            },
            match slab.block.is_null() {
                true => None,
                false => Some(axes(slab.block, rank, "block")?),
            },
        )
    };
    let axes = (0..rank).map(|axis| {
        let block = block.map_or(1, |block| block[axis]);
        Axis {
            start: start[axis],
            stride: stride.map_or(block, |stride| stride[axis]),
            count: count[axis],
            block,
        }
    });
    Ok(Hyperslab {
        axes: axes.collect(),
    })
}

/// A selection, and the number of strides that a buffer for it has.
type Selected<'a> = Result<(Select<'a>, usize), Failure>;

/// # Safety
/// Both point to `rank` numbers.
unsafe fn region<'a>(rank: usize, offset: *const u64, shape: *const u64) -> Selected<'a> {
    // SAFETY: the caller's.
    let (offset, shape) = unsafe { (axes(offset, rank, "offset")?, axes(shape, rank, "shape")?) };
    let axes = offset.iter().zip(shape);
    let axes = axes.map(|(&start, &len)| Axis::span(start, len)).collect();
    Ok((Select::Slab(Hyperslab { axes }), rank))
}

/// # Safety
/// It is NULL or points to valid data.
unsafe fn strided<'a>(hyperslab: *const slabfs_slab) -> Selected<'a> {
    // SAFETY: the caller's.
    unsafe {
        let hyperslab = one(hyperslab, "hyperslab")?;
        Ok((Select::Slab(slab(hyperslab)?), hyperslab.rank))
    }
}

/// # Safety
/// It is NULL or NUL-terminated.
unsafe fn written<'a>(selection: *const c_char) -> Selected<'a> {
    // SAFETY: the caller's.
    let text = unsafe { text(selection, "selection", MAX_TEXT)? };
    Ok((Select::Text(text), 0))
}

/// # Safety
/// The strides are NULL or as many as the selection has axes.
unsafe fn memory(strides: *const u64, rank: usize) -> Result<Memory, Failure> {
    if strides.is_null() {
        return Ok(Memory::packed());
    }
    // SAFETY: the caller's.
    let strides = unsafe { axes(strides, rank, "strides")? };
    Ok(Memory::strides(strides))
}

/// # Safety
/// The buffer is the caller's for the call, and its strides are NULL or as many as the selection has axes.
unsafe fn read<'a>(
    object: slabfs_object,
    (buffer, len): (*mut c_void, usize),
    strides: *const u64,
    select: impl FnOnce() -> Selected<'a>,
) -> i32 {
    call(|| {
        let object = OBJECTS.get(object.id)?;
        let (select, rank) = select()?;
        // SAFETY: the caller's.
        let (into, memory) = unsafe { (bytes_mut(buffer, len)?, memory(strides, rank)?) };
        Ok(object.read_into(select, into, &memory)?)
    })
}

/// # Safety
/// As [`read`].
unsafe fn write<'a>(
    object: slabfs_object,
    (buffer, len): (*const c_void, usize),
    strides: *const u64,
    select: impl FnOnce() -> Selected<'a>,
) -> i32 {
    call(|| {
        let object = OBJECTS.get(object.id)?;
        let (select, rank) = select()?;
        // SAFETY: the caller's.
        let (from, memory) = unsafe { (bytes(buffer, len)?, memory(strides, rank)?) };
        Ok(object.write_from(select, from, &memory)?)
    })
}

/// Reads a box into `len` bytes at `buffer`. `strides` gives the stride of each axis in bytes; NULL means packed
/// in row-major order, and then `len` is the size of the box.
///
/// # Safety
/// `offset`, `shape` and `strides` point to `rank` numbers; `buffer` points to `len` bytes that no other thread
/// uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_read_box(
    object: slabfs_object,
    rank: usize,
    offset: *const u64,
    shape: *const u64,
    buffer: *mut c_void,
    len: usize,
    strides: *const u64,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        read(object, (buffer, len), strides, || {
            region(rank, offset, shape)
        })
    }
}

/// Writes a box from `len` bytes at `buffer`; see `slabfs_read_box`. Along an unlimited slowest axis the object
/// grows to contain the box.
///
/// # Safety
/// `offset`, `shape` and `strides` point to `rank` numbers; `buffer` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_write_box(
    object: slabfs_object,
    rank: usize,
    offset: *const u64,
    shape: *const u64,
    buffer: *const c_void,
    len: usize,
    strides: *const u64,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        write(object, (buffer, len), strides, || {
            region(rank, offset, shape)
        })
    }
}

/// Reads a hyperslab; see `slabfs_read_box`.
///
/// # Safety
/// `hyperslab` points to valid data; otherwise as for `slabfs_read_box`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_read_slab(
    object: slabfs_object,
    hyperslab: *const slabfs_slab,
    buffer: *mut c_void,
    len: usize,
    strides: *const u64,
) -> i32 {
    // SAFETY: the caller's.
    unsafe { read(object, (buffer, len), strides, || strided(hyperslab)) }
}

/// Writes a hyperslab; see `slabfs_write_box`. The object grows likewise.
///
/// # Safety
/// As for `slabfs_read_slab`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_write_slab(
    object: slabfs_object,
    hyperslab: *const slabfs_slab,
    buffer: *const c_void,
    len: usize,
    strides: *const u64,
) -> i32 {
    // SAFETY: the caller's.
    unsafe { write(object, (buffer, len), strides, || strided(hyperslab)) }
}

/// Reads a selection given as text, like `[0:10,::2]` after the `@` of a path; packed.
///
/// # Safety
/// The string is NUL-terminated; `buffer` points to `len` bytes that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_read_text(
    object: slabfs_object,
    selection: *const c_char,
    buffer: *mut c_void,
    len: usize,
) -> i32 {
    // SAFETY: the caller's.
    unsafe { read(object, (buffer, len), null(), || written(selection)) }
}

/// Writes a selection given as text; see `slabfs_read_text`.
///
/// # Safety
/// The string is NUL-terminated; `buffer` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_write_text(
    object: slabfs_object,
    selection: *const c_char,
    buffer: *const c_void,
    len: usize,
) -> i32 {
    // SAFETY: the caller's.
    unsafe { write(object, (buffer, len), null(), || written(selection)) }
}
