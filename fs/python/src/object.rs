//! Open objects.

use std::sync::Arc;
use std::time::Duration;

use numpy::{PyReadonlyArray2, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use slabfs_fs::session::{self, Access, Axis, Batch, Hyperslab, Memory, Place, Unit};

use crate::error::{call, call_to_end, invalid};
use crate::index::{self, Axes};
use crate::memory::{self, Array};
use crate::own::Own;
use crate::session::described;
use crate::transfer::{Transfer, finish, made};

static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Pieces of the canonical order, in elements: rows of offset, place in memory, length.
type Pieces<'py> = PyReadonlyArray2<'py, u64>;

/// An open object.
#[pyclass(module = "slabfs._native", frozen)]
pub(crate) struct Object {
    inner: Own<Arc<session::Object>>,
}

fn slab(axes: &[(u64, u64, u64)]) -> Hyperslab {
    let axes = axes
        .iter()
        .map(|(start, step, count)| Axis::every(*start, *step, *count));
    Hyperslab {
        axes: axes.collect(),
    }
}

fn batch(pieces: &Pieces<'_>) -> PyResult<Vec<Batch>> {
    let rows = pieces.as_slice()?.chunks_exact(3);
    Ok(rows
        .map(|row| {
            let place = |at: u64| Place::at(at as i64);
            Batch::data(place(row[0]), place(row[1]), row[2])
        })
        .collect())
}

/// A transfer, or the error and the array.
type Made = Result<session::Transfer<Array>, session::Failed<Array>>;

/// Pieces name other elements if the dims are not those that they were computed for, but for the first one. If these
/// change after the transfer was made, it fails by itself.
fn same(py: Python<'_>, object: &session::Object, dims: &[u64]) -> PyResult<()> {
    let now = py.detach(|| object.received_dims());
    match now.get(1..) == dims.get(1..) {
        true => Ok(()),
        false => Err(invalid(
            py,
            "another user has changed the shape at this moment; try again",
        )),
    }
}

impl Object {
    pub(crate) fn new(object: session::Object) -> Object {
        Object {
            inner: Own::new(Arc::new(object)),
        }
    }

    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<Arc<session::Object>> {
        self.inner.with(py, Arc::clone)
    }

    /// Reads elements into an array.
    fn fill(
        &self,
        py: Python<'_>,
        slab: Hyperslab,
        array: &Bound<'_, PyUntypedArray>,
        dtype: Option<&str>,
    ) -> PyResult<()> {
        let (mut into, memory) = memory::of(array, true, dtype)?;
        let object = self.get(py)?;
        // In this thread, without a change to another one and back.
        if memory == Memory::packed() && into.as_ref().len() <= AT_ONCE {
            let read = call(py, || {
                let now = !object.awaits_data();
                let read = now.then(|| object.read_into(slab.clone(), into.as_mut(), &memory));
                read.transpose()
            });
            if read?.is_some() {
                return Ok(());
            }
        }
        self.move_now(py, |object| object.read_transfer(slab, &memory, into))
    }

    /// Moves elements now. In the main thread, which gets signals, the wait is one that they end.
    fn move_now(
        &self,
        py: Python<'_>,
        make: impl FnOnce(&session::Object) -> Made + Send,
    ) -> PyResult<()> {
        let object = self.get(py)?;
        finish(py, made(py, || make(&object))?)
    }
}

#[pymethods]
impl Object {
    /// Reads the selected elements into an array.
    #[pyo3(signature = (axes, array, dtype=None))]
    fn read(
        &self,
        py: Python<'_>,
        axes: Axes,
        array: &Bound<'_, PyUntypedArray>,
        dtype: Option<&str>,
    ) -> PyResult<()> {
        self.fill(py, slab(&axes), array, dtype)
    }

    /// What an index selects, as a new array or element: of integers, slices that go forwards, and an ellipsis, which are
    /// most. `None` for another index, or one that does not fit.
    fn item<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
        dtype: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let dims = self.dims(py)?;
        let Some((axes, shape)) = index::plain(index, &dims)? else {
            return Ok(None);
        };
        let array = EMPTY
            .import(py, "numpy", "empty")?
            .call1((PyTuple::new(py, shape)?, dtype))?
            .cast_into::<PyUntypedArray>()?;
        if !array.is_empty() {
            self.fill(py, slab(&axes), &array, None)?;
        }
        match array.ndim() {
            0 => array.get_item(()).map(Some),
            _ => Ok(Some(array.into_any())),
        }
    }

    /// Writes the selected elements from an array.
    #[pyo3(signature = (axes, array, dtype=None))]
    fn write(
        &self,
        py: Python<'_>,
        axes: Axes,
        array: &Bound<'_, PyUntypedArray>,
        dtype: Option<&str>,
    ) -> PyResult<()> {
        let (from, memory) = memory::of(array, false, dtype)?;
        self.move_now(py, |object| {
            object.write_transfer(slab(&axes), &memory, from)
        })
    }

    /// A read to be started.
    #[pyo3(signature = (axes, array, dtype=None))]
    fn read_transfer(
        &self,
        py: Python<'_>,
        axes: Axes,
        array: &Bound<'_, PyUntypedArray>,
        dtype: Option<&str>,
    ) -> PyResult<Transfer> {
        let object = self.get(py)?;
        let (into, memory) = memory::of(array, true, dtype)?;
        Transfer::of(py, || object.read_transfer(slab(&axes), &memory, into))
    }

    /// A write to be started.
    #[pyo3(signature = (axes, array, dtype=None))]
    fn write_transfer(
        &self,
        py: Python<'_>,
        axes: Axes,
        array: &Bound<'_, PyUntypedArray>,
        dtype: Option<&str>,
    ) -> PyResult<Transfer> {
        let object = self.get(py)?;
        let (from, memory) = memory::of(array, false, dtype)?;
        Transfer::of(py, || object.write_transfer(slab(&axes), &memory, from))
    }

    /// A read of pieces to be started, which were computed for `dims`.
    fn read_pieces_transfer(
        &self,
        py: Python<'_>,
        pieces: Pieces<'_>,
        array: &Bound<'_, PyUntypedArray>,
        dims: Vec<u64>,
    ) -> PyResult<Transfer> {
        let object = self.get(py)?;
        let (into, _) = memory::of(array, true, None)?;
        let batch = batch(&pieces)?;
        let made = Transfer::of(py, || {
            object.read_batch_transfer(&batch, Unit::Elements, into)
        })?;
        same(py, &object, &dims)?;
        Ok(made)
    }

    /// A write of pieces to be started, which were computed for `dims`.
    fn write_pieces_transfer(
        &self,
        py: Python<'_>,
        pieces: Pieces<'_>,
        array: &Bound<'_, PyUntypedArray>,
        dims: Vec<u64>,
    ) -> PyResult<Transfer> {
        let object = self.get(py)?;
        let (from, _) = memory::of(array, false, None)?;
        let batch = batch(&pieces)?;
        let made = Transfer::of(py, || {
            object.write_batch_transfer(&batch, Unit::Elements, from)
        })?;
        same(py, &object, &dims)?;
        Ok(made)
    }

    /// The attributes, as `Session.stat` gives them.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let object = self.get(py)?;
        let stat = call(py, || object.stat())?;
        described(py, &stat)
    }

    /// The current dims.
    fn dims(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let object = self.get(py)?;
        Ok(call(py, || object.dims())?.to_vec())
    }

    /// Changes the dims.
    fn set_dims(&self, py: Python<'_>, dims: Vec<u64>) -> PyResult<()> {
        let object = self.get(py)?;
        call(py, || object.set_dims(&dims))
    }

    /// The chunks, as JSON.
    fn layout(&self, py: Python<'_>) -> PyResult<String> {
        let object = self.get(py)?;
        let layout = call(py, || object.layout())?;
        serde_json::to_string(&layout).map_err(|error| invalid(py, error.to_string()))
    }

    /// Sends what was written to the servers.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let object = self.get(py)?;
        call_to_end(py, || object.flush())
    }

    /// Brings everything of the object to the servers' disks.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let object = self.get(py)?;
        call_to_end(py, || object.sync())
    }

    /// Closes it, with a flush. A second close has no effect.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(object) = self.inner.take()? else {
            return Ok(());
        };
        call_to_end(py, move || match Arc::try_unwrap(object) {
            Ok(object) => object.close(),
            // Another thread uses it still, and closes it when it is done.
            Err(object) => object.flush(),
        })
    }

    /// Whether it may be written.
    #[getter]
    fn writable(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.get(py)?.access() != Access::Read)
    }
}

/// Bytes up to which a read is made in the calling thread. Larger ones are faster as transfers, whose parts several threads
/// receive.
const AT_ONCE: usize = 1 << 20;

/// How often the main thread looks for signals while it waits.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
