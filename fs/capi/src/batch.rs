//! The calls for nested batches: reads and validates them in the program's memory, and executes them.
//!
//! `include/slabfs_batch.h` declares the structure by hand, since `slabfs_ioctl.h` needs it without this library; a
//! test compares the two. A vector that contains itself is refused by the limits of depth and number.

use std::ffi::c_void;

use slabfs_fs::session::{Batch, Pattern, Place, Unit};
use slabfs_model::batch::{BatchError, MAX_DEPTH, MAX_NODES};

use crate::argument::{bytes, bytes_mut};
use crate::error::{Failure, SLABFS_ETOOLARGE, call};
use crate::handles::{OBJECTS, slabfs_object, slabfs_transfer};
use crate::pending::Borrowed;
use crate::transfer::create;

/// Offsets, strides and sizes of a batch are in bytes of the object in canonical order.
pub const SLABFS_BYTES: u32 = 0;
/// Offsets, strides and sizes of a batch are in elements of the object.
pub const SLABFS_ELEMENTS: u32 = 1;

/// See `slabfs_batch.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct slabfs_batch {
    /// Offset in the object.
    pub f_off: i64,
    /// Offset in memory.
    pub m_off: i64,
    /// Not 0: `f_off` counts from the start of the object.
    pub f_absolute: u8,
    /// Not 0: `m_off` counts from the start of the buffer.
    pub m_absolute: u8,
    /// Not 0: a vector is repeated.
    pub sub_vector: u8,
    /// The number of repetitions.
    pub quant: u64,
    /// The distance of repetitions in the object.
    pub f_stride: i64,
    /// The distance of repetitions in memory.
    pub m_stride: i64,
    /// Elements of the vector.
    pub subvec_len: u64,
    /// The repeated piece or vector.
    pub sub: slabfs_batch_sub,
}

/// The repeated part of a batch element.
#[repr(C)]
#[derive(Clone, Copy)]
pub union slabfs_batch_sub {
    /// The number of bytes or elements.
    pub size: u64,
    /// A vector.
    pub subvec: *const slabfs_batch,
}

/// An element of a program's batch.
pub(crate) trait Element: Sized {
    /// Reads the element; an error text if it is invalid.
    ///
    /// # Safety
    /// The union member that its flag selects was set.
    unsafe fn read(&self) -> Result<Read<Self>, String>;
}

/// The content of an element.
pub(crate) struct Read<E> {
    pub(crate) file: Place,
    pub(crate) memory: Place,
    pub(crate) count: u64,
    pub(crate) repeats: Repeats<E>,
}

/// The repeated part of an element.
pub(crate) enum Repeats<E> {
    Data(u64),
    Vector(*const E, u64),
}

impl Element for slabfs_batch {
    unsafe fn read(&self) -> Result<Read<slabfs_batch>, String> {
        // SAFETY: the caller's.
        let repeats = unsafe {
            match self.sub_vector {
                0 => Repeats::Data(self.sub.size),
                _ => Repeats::Vector(self.sub.subvec, self.subvec_len),
            }
        };
        let place = |offset, absolute: u8, stride| Place {
            offset,
            absolute: absolute != 0,
            stride,
        };
        Ok(Read {
            file: place(self.f_off, self.f_absolute, self.f_stride),
            memory: place(self.m_off, self.m_absolute, self.m_stride),
            count: self.quant,
            repeats,
        })
    }
}

/// Reads a vector of `n` elements, and all nested vectors.
///
/// # Safety
/// Every vector has the stated number of elements, or is NULL.
pub(crate) unsafe fn batches<E: Element>(vector: *const E, n: u64) -> Result<Vec<Batch>, Failure> {
    let mut seen = 0;
    // SAFETY: the caller's.
    unsafe { read(vector, n, &mut seen, &mut Vec::new(), None) }
}

/// # Safety
/// As [`batches`].
unsafe fn read<E: Element>(
    vector: *const E,
    n: u64,
    seen: &mut u64,
    path: &mut Vec<u32>,
    of: Option<u64>,
) -> Result<Vec<Batch>, Failure> {
    let whose = || match of {
        Some(number) => format!("the vector of element {number} of the batch"),
        None => "the batch".to_owned(),
    };
    let named = |failure: Failure, path: &[u32]| match of {
        Some(_) => failure.element(path.to_owned()),
        None => failure,
    };
    let wrong = |error: BatchError, path: &[u32]| {
        let text = format!("{}: {error}", whose());
        named(Failure::new(SLABFS_ETOOLARGE, text), path)
    };
    if path.len() >= MAX_DEPTH {
        return Err(wrong(BatchError::TooDeep, path));
    }
    if n > (MAX_NODES as u64).saturating_sub(*seen) {
        return Err(wrong(BatchError::TooLarge, path));
    }
    if n == 0 {
        return Ok(Vec::new());
    }
    if vector.is_null() || !vector.is_aligned() {
        let text = format!(
            "{} is at the invalid address {vector:p}, and its length is given as {n}",
            whose()
        );
        return Err(named(Failure::invalid(text), path));
    }
    let mut made = Vec::with_capacity(n as usize);
    for index in 0..n as usize {
        let number = *seen;
        *seen += 1;
        path.push(index as u32);
        // SAFETY: the caller's.
        let element = unsafe { (*vector.add(index)).read() }.map_err(|text| {
            Failure::invalid(format!("element {number} of the batch {text}")).element(path.clone())
        })?;
        let pattern = match element.repeats {
            Repeats::Data(size) => Pattern::Data(size),
            // SAFETY: the caller's.
            Repeats::Vector(vector, n) => {
                Pattern::Vector(unsafe { read(vector, n, seen, path, Some(number))? })
            }
        };
        made.push(Batch::repeated(
            element.file,
            element.memory,
            element.count,
            pattern,
        ));
        path.pop();
        if *seen > MAX_NODES as u64 {
            return Err(wrong(BatchError::TooLarge, path));
        }
    }
    Ok(made)
}

fn unit_of(unit: u32) -> Result<Unit, Failure> {
    match unit {
        SLABFS_BYTES => Ok(Unit::Bytes),
        SLABFS_ELEMENTS => Ok(Unit::Elements),
        other => Err(Failure::invalid(format!(
            "{other} is not a unit; use SLABFS_BYTES or SLABFS_ELEMENTS"
        ))),
    }
}

/// Reads the pieces of `n` elements of `batch` into `len` bytes at `buffer`, with one request to each data
/// server, however many pieces there are. `unit` is SLABFS_BYTES or SLABFS_ELEMENTS. Pieces must not overlap in
/// the buffer.
///
/// # Safety
/// Every vector of the batch has the stated number of elements; `buffer` points to `len` bytes that no other
/// thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_read_batch(
    object: slabfs_object,
    batch: *const slabfs_batch,
    n: usize,
    unit: u32,
    buffer: *mut c_void,
    len: usize,
) -> i32 {
    call(|| {
        let object = OBJECTS.get(object.id)?;
        // SAFETY: the caller's.
        let (batch, into) = unsafe { (batches(batch, n as u64)?, bytes_mut(buffer, len)?) };
        Ok(object.read_batch(&batch, unit_of(unit)?, into)?)
    })
}

/// Writes the pieces of `n` elements of `batch` from `len` bytes at `buffer`; see `slabfs_read_batch`. Where
/// pieces overlap in the object, the later one wins.
///
/// # Safety
/// As for `slabfs_read_batch`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_write_batch(
    object: slabfs_object,
    batch: *const slabfs_batch,
    n: usize,
    unit: u32,
    buffer: *const c_void,
    len: usize,
) -> i32 {
    call(|| {
        let object = OBJECTS.get(object.id)?;
        // SAFETY: the caller's.
        let (batch, from) = unsafe { (batches(batch, n as u64)?, bytes(buffer, len)?) };
        Ok(object.write_batch(&batch, unit_of(unit)?, from)?)
    })
}

/// Creates a transfer that reads a batch like `slabfs_read_batch`. The batch is copied. From
/// `slabfs_transfer_start` until the transfer has ended, the library owns the entire buffer.
///
/// # Safety
/// `buffer` points to `len` bytes until the transfer has ended or was freed; otherwise as for
/// `slabfs_read_batch`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_transfer_read_batch(
    object: slabfs_object,
    batch: *const slabfs_batch,
    n: usize,
    unit: u32,
    buffer: *mut c_void,
    len: usize,
    transfer: *mut slabfs_transfer,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        create(object, transfer, |object| {
            let batch = batches(batch, n as u64)?;
            let buffer = Borrowed::new(buffer, len)?;
            Ok(object.read_batch_transfer(&batch, unit_of(unit)?, buffer))
        })
    }
}

/// Creates a transfer that writes a batch like `slabfs_write_batch`. The batch is copied. From
/// `slabfs_transfer_start` until the transfer has ended, the buffer must not be changed.
///
/// # Safety
/// As for `slabfs_transfer_read_batch`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_transfer_write_batch(
    object: slabfs_object,
    batch: *const slabfs_batch,
    n: usize,
    unit: u32,
    buffer: *const c_void,
    len: usize,
    transfer: *mut slabfs_transfer,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        create(object, transfer, |object| {
            let batch = batches(batch, n as u64)?;
            let buffer = Borrowed::new(buffer, len)?;
            Ok(object.write_batch_transfer(&batch, unit_of(unit)?, buffer))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf() -> slabfs_batch {
        slabfs_batch {
            f_off: 0,
            m_off: 0,
            f_absolute: 0,
            m_absolute: 0,
            sub_vector: 0,
            quant: 0,
            f_stride: 0,
            m_stride: 0,
            subvec_len: 0,
            sub: slabfs_batch_sub { size: 1 },
        }
    }

    /// The last allowed element is a vector, whose own elements exceed the limit.
    #[test]
    fn a_vector_beyond_the_last_element_is_too_large() {
        let one = leaf();
        let vector = |len| slabfs_batch {
            sub_vector: 1,
            subvec_len: len,
            sub: slabfs_batch_sub { subvec: &one },
            ..leaf()
        };
        for len in [0, 1, 1 << 40, u64::MAX] {
            let mut many = vec![leaf(); MAX_NODES];
            many[0] = vector(1);
            many[MAX_NODES - 1] = vector(len);
            // SAFETY: no element of a vector beyond the limit is read.
            let read = unsafe { batches(many.as_ptr(), many.len() as u64) };
            assert!(read.is_err(), "{len}");
        }
    }
}
