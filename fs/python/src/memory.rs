//! The memory of a NumPy array, as the library takes it.

use numpy::npyffi::flags::NPY_ARRAY_WRITEABLE;
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use slabfs_fs::session::{DType, Memory};

use crate::error::invalid;

/// The memory of an array, which stays as long as this does. NumPy does not move or free it while something refers to
/// the array.
pub(crate) struct Array {
    start: *mut u8,
    len: usize,
    _array: Py<PyUntypedArray>,
}

// SAFETY: plain memory. Other threads of Python may change it meanwhile, as they may while NumPy itself works without
// the interpreter's lock; the session knows that memory is not steady.
unsafe impl Send for Array {}

impl AsRef<[u8]> for Array {
    fn as_ref(&self) -> &[u8] {
        match self.len {
            0 => &[],
            // SAFETY: `of` has computed the length from the array's shape and strides, and the array exists.
            len => unsafe { std::slice::from_raw_parts(self.start, len) },
        }
    }
}

impl AsMut<[u8]> for Array {
    fn as_mut(&mut self) -> &mut [u8] {
        match self.len {
            0 => &mut [],
            // SAFETY: as above; `of` has checked that it may be written.
            len => unsafe { std::slice::from_raw_parts_mut(self.start, len) },
        }
    }
}

/// Takes an array: its memory, and where its elements are in it. `dtype` is the type of its elements if it is not
/// that of the object. Strides must not be negative, and elements must not overlap.
pub(crate) fn of(
    array: &Bound<'_, PyUntypedArray>,
    written: bool,
    dtype: Option<&str>,
) -> PyResult<(Array, Memory)> {
    let py = array.py();
    let raw = array.as_array_ptr();
    // SAFETY: the pointer is that of an array which exists.
    let (start, flags) = unsafe { ((*raw).fields.data.cast::<u8>(), (*raw).fields.flags) };
    if written && flags & NPY_ARRAY_WRITEABLE == 0 {
        return Err(invalid(
            py,
            "the array to read into is read-only; give one that can be written",
        ));
    }
    let elem = array.dtype().itemsize();
    let shape = array.shape();
    let (mut last, mut strides) = (0usize, Vec::with_capacity(shape.len()));
    for (len, stride) in shape.iter().zip(array.strides()) {
        // That of an axis of one element may be anything.
        let stride = match len {
            0 | 1 => elem,
            _ => usize::try_from(*stride)
                .map_err(|_| invalid(py, "the array's strides are negative; give a copy of it"))?,
        };
        last += stride * len.saturating_sub(1);
        strides.push(stride as u64);
    }
    let empty = shape.contains(&0);
    let owned = Array {
        start,
        len: if empty { 0 } else { last + elem },
        _array: array.clone().unbind(),
    };
    let memory = match empty || array.is_c_contiguous() {
        true => Memory::packed(),
        false => {
            let shape: Vec<u64> = shape.iter().map(|len| *len as u64).collect();
            Memory::strided(0, shape, strides)
        }
    };
    match dtype {
        None => Ok((owned, memory)),
        Some(text) => {
            let dtype: DType = text
                .parse()
                .map_err(|error: slabfs_model::DTypeError| invalid(py, error.to_string()))?;
            Ok((owned, memory.of_type(dtype)))
        }
    }
}
