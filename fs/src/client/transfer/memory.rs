//! The memory side of a transfer: which elements of the caller's buffer, in which order, of which type.
//!
//! As HDF5's memory space: the buffer is an array with dims of its own, of any rank, and a hyperslab in it
//! says which elements take part. They pair up with the elements of the object's selection in row-major order
//! of both, so that only their numbers have to agree, not their shapes.

use slabfs_model::{Coords, DType, Hyperslab, Space};

use super::super::error::FsError;
use super::convert::Conversion;

/// A selection of the caller's buffer.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Dims of the buffer and what of it is selected; nothing if the buffer is exactly the elements.
    part: Option<(Coords, Hyperslab)>,
    dtype: Option<DType>,
}

impl Memory {
    /// The buffer is exactly the elements, one behind the other.
    pub fn packed() -> Memory {
        Memory::default()
    }

    /// The buffer is an array of these dims, in elements, and `slab` is what of it takes part.
    pub fn part(dims: &[u64], slab: Hyperslab) -> Memory {
        Memory {
            part: Some((Coords::from_slice(dims), slab)),
            dtype: None,
        }
    }

    /// The elements in memory are of this type, not of the object's; see the module's head for the rules.
    #[must_use]
    pub fn of_type(self, dtype: DType) -> Memory {
        Memory {
            dtype: Some(dtype),
            ..self
        }
    }

    /// Fits it to a buffer of `len` bytes and `elements` elements of an object of type `dtype`.
    pub(super) fn fit(&self, len: usize, elements: u64, dtype: DType) -> Result<Fitted, FsError> {
        let own = self.dtype.unwrap_or(dtype);
        let wrong = |text: String| Err(FsError::Invalid(text));
        let cells = match &self.part {
            None => {
                if elements.checked_mul(own.size()) != Some(len as u64) {
                    return wrong(format!(
                        "{elements} elements of dtype {own} are selected, and the buffer has {len} bytes"
                    ));
                }
                None
            }
            Some((dims, slab)) => {
                let space = Space::new(dims, own.size());
                let geometry = |error: slabfs_model::GeometryError| {
                    FsError::Invalid(format!("the selection of memory: {error}"))
                };
                if space.bytes().map_err(geometry)? != len as u64 {
                    return wrong(format!(
                        "the buffer has {len} bytes, and dims {} of dtype {own} need {}",
                        slabfs_model::format_dims(dims),
                        space.bytes().map_err(geometry)?
                    ));
                }
                slab.validate(dims).map_err(geometry)?;
                let selected = slab.volume();
                if selected != elements {
                    return wrong(format!(
                        "{elements} elements of the object are selected and {selected} of memory"
                    ));
                }
                let cells = space.cells().map_err(geometry)?;
                Some((cells, slab.to_cells(own.size()).map_err(geometry)?))
            }
        };
        let run = match &cells {
            None => Some((0, len)),
            Some(_) if elements == 0 => Some((0, 0)),
            Some((cells, slab)) => super::super::committed::dense_range(cells, slab),
        };
        Ok(Fitted {
            len: elements as usize * own.size() as usize,
            run,
            part: cells.filter(|_| run.is_none()),
            dtype: own,
            object: dtype,
        })
    }
}

/// A selection of memory that fits its buffer.
#[derive(Debug)]
pub(super) struct Fitted {
    /// Bytes of the selected elements.
    pub(super) len: usize,
    /// Where they lie, if together: first byte and number of bytes.
    pub(super) run: Option<(usize, usize)>,
    /// Else the buffer's dims and the selection, last axis in bytes.
    pub(super) part: Option<(Coords, Hyperslab)>,
    dtype: DType,
    /// The object's type that it was fitted to.
    pub(super) object: DType,
}

impl Fitted {
    /// What has to be done to elements on their way to the object.
    pub(super) fn inward(&self) -> Result<Option<Conversion>, FsError> {
        Conversion::of(self.dtype, self.object)
    }

    /// What has to be done to elements that come from the object.
    pub(super) fn outward(&self) -> Result<Option<Conversion>, FsError> {
        Conversion::of(self.object, self.dtype)
    }
}
