//! The memory side of a read or write: the elements of the caller's buffer, their order, and their dtype.
//!
//! Like HDF5's memory space: the buffer is an array with its own dims, of any rank, and a hyperslab selects elements in
//! it; or elements lie at distances in bytes, as in NumPy's arrays. They pair up with the elements of the object's
//! selection in row-major order of both, so that only their numbers must agree, not their shapes.

use slabfs_model::{Coords, DType, Hyperslab, Space, for_each_run, gather, scatter};

use super::convert::Conversion;
use super::strided::Strided;
use crate::client::error::FsError;
use crate::client::stored::committed::dense_range;

/// A selection of the caller's buffer.
///
/// ```
/// use slabfs_fs::session::{Hyperslab, Memory, Region};
///
/// // The elements of the selection, contiguous.
/// let packed = Memory::packed();
/// // A block of a larger array, which has ghost cells around it.
/// let inner = Hyperslab::from_region(&Region::new(&[1, 1], &[8, 8]));
/// let block = Memory::part(&[10, 10], inner);
/// // A Fortran array, real(8) of 3 x 5, for a selection of 3 x 5; the object has floats of 4 bytes.
/// let fortran = Memory::strides([8, 24]).of_type("f8".parse().unwrap());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    lies: Lies,
    dtype: Option<DType>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Lies {
    #[default]
    Packed,
    /// The dims of the buffer and the selection in it.
    Part(Coords, Hyperslab),
    /// First byte, shape (that of the object's selection if `None`), strides in bytes.
    Strided(u64, Option<Coords>, Coords),
}

impl Memory {
    /// The buffer is exactly the elements, contiguous.
    pub fn packed() -> Memory {
        Memory::default()
    }

    /// The buffer is an array of these dims, in elements, and `slab` selects the elements in it.
    pub fn part(dims: &[u64], slab: Hyperslab) -> Memory {
        Memory {
            lies: Lies::Part(Coords::from_slice(dims), slab),
            dtype: None,
        }
    }

    /// The elements lie at these distances in bytes along each axis of the object's selection, slowest axis first, from
    /// the start of the buffer. Packed elements of 4 bytes and shape 2 × 3 have the strides 12, 4; in Fortran order 4,
    /// 8. Elements may not overlap.
    pub fn strides(bytes: impl AsRef<[u64]>) -> Memory {
        Memory {
            lies: Lies::Strided(0, None, Coords::from_slice(bytes.as_ref())),
            dtype: None,
        }
    }

    /// The elements are an array of this shape, which begins `offset` bytes from the start of the buffer and has these
    /// distances in bytes along its axes, slowest axis first. Elements may not overlap.
    pub fn strided(offset: u64, shape: impl AsRef<[u64]>, strides: impl AsRef<[u64]>) -> Memory {
        let shape = Some(Coords::from_slice(shape.as_ref()));
        Memory {
            lies: Lies::Strided(offset, shape, Coords::from_slice(strides.as_ref())),
            dtype: None,
        }
    }

    /// The dtype of the elements in memory, if it is not the object's. Integers, floats and bools convert to each other
    /// if the target dtype can represent the value; otherwise the read or write fails with an error that names the
    /// element. Floats convert to narrower ones, rounded to the nearest. Any dtype converts to itself in the other byte
    /// order.
    #[must_use]
    pub fn of_type(self, dtype: DType) -> Memory {
        Memory {
            dtype: Some(dtype),
            ..self
        }
    }

    /// Fits it to a buffer of `len` bytes and a selection of this shape of an object of dtype `dtype`.
    pub(in crate::client) fn fit(
        &self,
        len: usize,
        shape: &[u64],
        dtype: DType,
    ) -> Result<Fitted, FsError> {
        let own = self.dtype.unwrap_or(dtype);
        let elements = product(shape).ok_or_else(|| {
            FsError::Invalid("the selection has more elements than memory can".into())
        })?;
        let (run, scattered) = match &self.lies {
            Lies::Packed => (packed(len, elements, own)?, None),
            Lies::Part(dims, slab) => part(len, elements, own, dims, slab)?,
            Lies::Strided(offset, own_shape, strides) => {
                let strided = Strided {
                    offset: *offset,
                    shape: own_shape
                        .clone()
                        .unwrap_or_else(|| Coords::from_slice(shape)),
                    strides: strides.clone(),
                    elem: own.size(),
                };
                by_strides(len, elements, strided)?
            }
        };
        Ok(Fitted {
            len: elements as usize * own.size() as usize,
            run,
            scattered,
            dtype: own,
            object: dtype,
        })
    }
}

fn product(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |n, &len| n.checked_mul(len))
}

type Placed = (Option<(usize, usize)>, Option<Scattered>);

fn packed(len: usize, elements: u64, own: DType) -> Result<Option<(usize, usize)>, FsError> {
    if elements.checked_mul(own.size()) == Some(len as u64) {
        return Ok(Some((0, len)));
    }
    Err(FsError::Invalid(format!(
        "{elements} elements of dtype {own} are selected, {} bytes, and the buffer has {len}; give one of that length",
        elements.saturating_mul(own.size())
    )))
}

fn agree(elements: u64, selected: Option<u64>) -> Result<(), FsError> {
    if selected == Some(elements) {
        return Ok(());
    }
    let selected = selected.map_or("too many".into(), |selected| selected.to_string());
    Err(FsError::Invalid(format!(
        "{elements} elements of the object are selected and {selected} of memory"
    )))
}

fn part(
    len: usize,
    elements: u64,
    own: DType,
    dims: &Coords,
    slab: &Hyperslab,
) -> Result<Placed, FsError> {
    let space = Space::new(dims, own.size());
    let geometry = |error: slabfs_model::GeometryError| {
        FsError::Invalid(format!("the selection of memory: {error}"))
    };
    let bytes = space.bytes().map_err(geometry)?;
    if bytes != len as u64 {
        return Err(FsError::Invalid(format!(
            "the buffer has {len} bytes, and dims {} of dtype {own} need {bytes}",
            slabfs_model::format_dims(dims),
        )));
    }
    slab.validate(dims).map_err(geometry)?;
    agree(elements, Some(slab.volume()))?;
    if elements == 0 {
        return Ok((Some((0, 0)), None));
    }
    let cells = space.cells().map_err(geometry)?;
    let slab = slab.to_cells(own.size()).map_err(geometry)?;
    Ok(match dense_range(&cells, &slab) {
        Some(run) => (Some(run), None),
        None => (None, Some(Scattered::Part(cells, slab))),
    })
}

fn by_strides(len: usize, elements: u64, strided: Strided) -> Result<Placed, FsError> {
    agree(elements, product(&strided.shape))?;
    strided.check(len)?;
    if elements == 0 {
        return Ok((Some((0, 0)), None));
    }
    Ok(match strided.dense() {
        Some(run) => (Some(run), None),
        None => (None, Some(Scattered::Strided(strided))),
    })
}

/// A selection of memory that fits its buffer.
#[derive(Debug)]
pub(in crate::client) struct Fitted {
    /// Bytes of the selected elements.
    pub(in crate::client) len: usize,
    /// Their first byte and length, if they are contiguous.
    pub(in crate::client) run: Option<(usize, usize)>,
    /// Otherwise their layout.
    pub(in crate::client) scattered: Option<Scattered>,
    dtype: DType,
    /// The object's dtype that it was fitted to.
    pub(super) object: DType,
}

/// Elements of a buffer that are not contiguous.
#[derive(Debug, Clone)]
pub(in crate::client) enum Scattered {
    /// The buffer's dims and the selection, last axis in bytes.
    Part(Coords, Hyperslab),
    /// At strides in bytes.
    Strided(Strided),
}

impl Scattered {
    /// Calls `each` with the place and length of each run of bytes, in the order of the elements.
    pub(super) fn for_each_run(&self, each: &mut dyn FnMut(usize, usize)) {
        match self {
            Scattered::Part(dims, slab) => for_each_run(dims, slab, each),
            Scattered::Strided(strided) => strided.for_each_run(each),
        }
    }

    /// Copies the elements out of `buffer`, packed.
    pub(in crate::client) fn gather(&self, buffer: &[u8], packed: &mut [u8]) {
        match self {
            Scattered::Part(dims, slab) => gather(buffer, dims, slab, packed),
            Scattered::Strided(strided) => strided.gather(buffer, packed),
        }
    }

    /// Copies packed elements to their places in `buffer`.
    pub(in crate::client) fn scatter(&self, packed: &[u8], buffer: &mut [u8]) {
        match self {
            Scattered::Part(dims, slab) => scatter(packed, slab, buffer, dims),
            Scattered::Strided(strided) => strided.scatter(packed, buffer),
        }
    }
}

impl Fitted {
    /// Bytes of the elements in the object.
    pub(super) fn object_bytes(&self) -> u64 {
        self.len as u64 / self.dtype.size().max(1) * self.object.size()
    }

    /// The conversion of elements on their way to the object.
    pub(in crate::client) fn inward(&self) -> Result<Option<Conversion>, FsError> {
        Conversion::of(self.dtype, self.object)
    }

    /// The conversion of elements that come from the object.
    pub(in crate::client) fn outward(&self) -> Result<Option<Conversion>, FsError> {
        Conversion::of(self.object, self.dtype)
    }
}
