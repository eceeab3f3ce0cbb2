//! The most frequent indexes, without a way through Python: `_index.py` has all of them, and the errors.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PySlice, PyTuple};

/// What is selected along each axis: start, step and number of elements.
pub(crate) type Axes = Vec<(u64, u64, u64)>;

/// The selection of integers, slices that go forwards and one ellipsis, and the shape of the result; `None` for other
/// indexes, and those that do not fit.
pub(crate) fn plain(index: &Bound<'_, PyAny>, dims: &[u64]) -> PyResult<Option<(Axes, Vec<u64>)>> {
    let mut axes = Axes::with_capacity(dims.len());
    let mut shape = Vec::with_capacity(dims.len());
    let one = std::slice::from_ref(index);
    let tuple = index.cast::<PyTuple>().ok();
    let items: &[Bound<'_, PyAny>] = match &tuple {
        Some(tuple) => &tuple.iter().collect::<Vec<_>>(),
        None => one,
    };
    let is_ellipsis = |item: &Bound<'_, PyAny>| item.is_instance_of::<PyEllipsis>();
    let ellipses = items.iter().filter(|item| is_ellipsis(item)).count();
    let Some(missing) = dims.len().checked_sub(items.len() - ellipses) else {
        return Ok(None);
    };
    // An element with an ellipsis is an array.
    if ellipses > 1 || (ellipses == 1 && dims.len() == items.len() - 1) {
        return Ok(None);
    }
    let all = |axes: &mut Axes, shape: &mut Vec<u64>| {
        for len in &dims[axes.len()..axes.len() + missing] {
            axes.push((0, 1, *len));
            shape.push(*len);
        }
    };
    for item in items {
        if is_ellipsis(item) {
            all(&mut axes, &mut shape);
            continue;
        }
        let len = dims[axes.len()];
        if let Ok(slice) = item.cast::<PySlice>() {
            let Ok(len) = isize::try_from(len) else {
                return Ok(None);
            };
            // Bounds may be objects with an `__index__` that fails.
            let Ok(found) = slice.indices(len) else {
                return Ok(None);
            };
            if found.step < 0 {
                return Ok(None);
            }
            let count = found.slicelength as u64;
            let step = if count > 1 { found.step as u64 } else { 1 };
            axes.push((found.start as u64, step, count));
            shape.push(count);
        } else if item.is_exact_instance_of::<PyInt>() && !item.is_instance_of::<PyBool>() {
            let Ok(number) = item.extract::<i64>() else {
                return Ok(None);
            };
            let place = match number < 0 {
                true => len.checked_sub(number.unsigned_abs()),
                false => Some(number as u64),
            };
            let Some(place) = place.filter(|place| *place < len) else {
                return Ok(None);
            };
            axes.push((place, 1, 1));
        } else {
            return Ok(None);
        }
    }
    if ellipses == 0 {
        all(&mut axes, &mut shape);
    }
    Ok(Some((axes, shape)))
}
