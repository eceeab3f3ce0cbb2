//! The calls that read and write elements: boxes, strided hyperslabs and text selections, packed or with strides.

use std::ffi::{c_char, c_void};

use slabfs_fs::session::{Axis, Hyperslab, Memory, Object, Select};

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

/// # Safety
/// Both point to `rank` numbers.
unsafe fn region(rank: usize, offset: *const u64, shape: *const u64) -> Result<Hyperslab, Failure> {
    // SAFETY: the caller's.
    let (offset, shape) = unsafe { (axes(offset, rank, "offset")?, axes(shape, rank, "shape")?) };
    let axes = offset.iter().zip(shape);
    Ok(Hyperslab {
        axes: axes.map(|(&start, &len)| Axis::span(start, len)).collect(),
    })
}

/// A buffer of the caller, with its strides.
struct Buffer<P> {
    start: P,
    len: usize,
    strides: *const u64,
}

impl<P> Buffer<P> {
    /// # Safety
    /// The strides are NULL or as many as the selection has axes.
    unsafe fn memory(&self, rank: usize) -> Result<Memory, Failure> {
        if self.strides.is_null() {
            return Ok(Memory::packed());
        }
        // SAFETY: the caller's.
        let strides = unsafe { axes(self.strides, rank, "strides")? };
        Ok(Memory::strides(strides))
    }
}

/// # Safety
/// The buffer is the caller's for the call, and its strides are as many as the object has axes.
unsafe fn read(
    object: &Object,
    select: Select<'_>,
    rank: usize,
    buffer: &Buffer<*mut c_void>,
) -> Result<(), Failure> {
    // SAFETY: the caller's.
    let (into, memory) = unsafe { (bytes_mut(buffer.start, buffer.len)?, buffer.memory(rank)?) };
    Ok(object.read_into(select, into, &memory)?)
}

/// # Safety
/// As [`read`].
unsafe fn write(
    object: &Object,
    select: Select<'_>,
    rank: usize,
    buffer: &Buffer<*const c_void>,
) -> Result<(), Failure> {
    // SAFETY: the caller's.
    let (from, memory) = unsafe { (bytes(buffer.start, buffer.len)?, buffer.memory(rank)?) };
    Ok(object.write_from(select, from, &memory)?)
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
    call(|| {
        let buffer = Buffer {
            start: buffer,
            len,
            strides,
        };
        let object = OBJECTS.get(object.id)?;
        // SAFETY: the caller's.
        unsafe {
            let select = Select::Slab(region(rank, offset, shape)?);
            read(&object, select, rank, &buffer)
        }
    })
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
    call(|| {
        let buffer = Buffer {
            start: buffer,
            len,
            strides,
        };
        let object = OBJECTS.get(object.id)?;
        // SAFETY: the caller's.
        unsafe {
            let select = Select::Slab(region(rank, offset, shape)?);
            write(&object, select, rank, &buffer)
        }
    })
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
    call(|| {
        let buffer = Buffer {
            start: buffer,
            len,
            strides,
        };
        let object = OBJECTS.get(object.id)?;
        // SAFETY: the caller's.
        unsafe {
            let hyperslab = one(hyperslab, "hyperslab")?;
            let select = Select::Slab(slab(hyperslab)?);
            read(&object, select, hyperslab.rank, &buffer)
        }
    })
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
    call(|| {
        let buffer = Buffer {
            start: buffer,
            len,
            strides,
        };
        let object = OBJECTS.get(object.id)?;
        // SAFETY: the caller's.
        unsafe {
            let hyperslab = one(hyperslab, "hyperslab")?;
            let select = Select::Slab(slab(hyperslab)?);
            write(&object, select, hyperslab.rank, &buffer)
        }
    })
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
    call(|| {
        let buffer = Buffer {
            start: buffer,
            len,
            strides: std::ptr::null(),
        };
        let object = OBJECTS.get(object.id)?;
        // SAFETY: the caller's.
        unsafe {
            let select = Select::Text(text(selection, "selection", MAX_TEXT)?);
            read(&object, select, 0, &buffer)
        }
    })
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
    call(|| {
        let buffer = Buffer {
            start: buffer,
            len,
            strides: std::ptr::null(),
        };
        let object = OBJECTS.get(object.id)?;
        // SAFETY: the caller's.
        unsafe {
            let select = Select::Text(text(selection, "selection", MAX_TEXT)?);
            write(&object, select, 0, &buffer)
        }
    })
}
