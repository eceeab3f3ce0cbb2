//! Dataspaces: the shape of a dataset or an attribute.

use hdf5_metno_sys::h5s::{self, H5S_UNLIMITED, H5S_class_t};

use super::handle::{Handle, checked};
use crate::Result;

/// The most axes of a dataset.
const MAX_RANK: usize = 32;

/// The shape of a dataset or an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Space {
    /// It has no elements.
    Null,
    /// It has one element and no axes.
    Scalar,
    /// It has axes.
    Simple {
        /// Their lengths.
        dims: Vec<u64>,
        /// The most that they can grow to; `None` for any length.
        max_dims: Vec<Option<u64>>,
    },
}

impl Space {
    /// A shape that cannot grow; without axes it is a scalar.
    pub fn fixed(dims: &[u64]) -> Space {
        match dims.is_empty() {
            true => Space::Scalar,
            false => Space::Simple {
                dims: dims.to_vec(),
                max_dims: dims.iter().map(|&len| Some(len)).collect(),
            },
        }
    }

    /// A shape that cannot grow and has axes.
    pub fn fixed_axes(dims: &[u64]) -> Space {
        Space::Simple {
            dims: dims.to_vec(),
            max_dims: dims.iter().map(|&len| Some(len)).collect(),
        }
    }

    /// The lengths of the axes; of a scalar or null space, none.
    pub fn dims(&self) -> &[u64] {
        match self {
            Space::Simple { dims, .. } => dims,
            _ => &[],
        }
    }

    /// The number of elements; `None` if it does not fit into 64 bits.
    pub fn elements(&self) -> Option<u64> {
        match self {
            Space::Null => Some(0),
            _ => self
                .dims()
                .iter()
                .try_fold(1_u64, |all, &len| all.checked_mul(len)),
        }
    }

    /// What the library has under an identifier.
    pub(super) fn of(space: &Handle) -> Result<Space> {
        let file = &space.file;
        // SAFETY: the space is open.
        let class =
            unsafe { super::handle::with_lock(|| h5s::H5Sget_simple_extent_type(space.id)) };
        match class {
            H5S_class_t::H5S_NULL => return Ok(Space::Null),
            H5S_class_t::H5S_SCALAR => return Ok(Space::Scalar),
            _ => {}
        }
        let rank = checked(file, "a shape", || {
            // SAFETY: the space is open.
            unsafe { h5s::H5Sget_simple_extent_ndims(space.id) }
        })?;
        let rank = rank as usize;
        if rank > MAX_RANK {
            return Err(space.unsupported("a shape", format!("has {rank} axes")));
        }
        let (mut dims, mut max) = (vec![0; rank], vec![0; rank]);
        checked(file, "a shape", || {
            // SAFETY: both have as many members as the space has axes.
            unsafe { h5s::H5Sget_simple_extent_dims(space.id, dims.as_mut_ptr(), max.as_mut_ptr()) }
        })?;
        let max = max
            .into_iter()
            .map(|len| (len != H5S_UNLIMITED).then_some(len));
        Ok(Space::Simple {
            dims,
            max_dims: max.collect(),
        })
    }

    /// Creates it in the library, for an object of the file of `of`.
    pub(super) fn make(&self, of: &Handle) -> Result<Handle> {
        let class = match self {
            Space::Null => H5S_class_t::H5S_NULL,
            Space::Scalar => H5S_class_t::H5S_SCALAR,
            Space::Simple { dims, max_dims } => return simple(of, dims, max_dims),
        };
        Handle::new(&of.file, "a shape", || {
            // SAFETY: a class of the library.
            unsafe { h5s::H5Screate(class) }
        })
    }
}

fn simple(of: &Handle, dims: &[u64], max_dims: &[Option<u64>]) -> Result<Handle> {
    if dims.len() != max_dims.len() || dims.len() > MAX_RANK {
        return Err(of.unsupported("a shape", format!("has {} axes", dims.len())));
    }
    let max: Vec<u64> = max_dims
        .iter()
        .map(|max| max.unwrap_or(H5S_UNLIMITED))
        .collect();
    Handle::new(&of.file, "a shape", || {
        // SAFETY: both lists have that many members.
        unsafe { h5s::H5Screate_simple(dims.len() as i32, dims.as_ptr(), max.as_ptr()) }
    })
}

/// Selects a box of a space that has as many axes.
pub(super) fn select(space: &Handle, start: &[u64], count: &[u64]) -> Result<()> {
    let rank = Space::of(space)?.dims().len();
    if start.len() != rank || count.len() != rank {
        return Err(space.unsupported("a box", format!("has not {rank} axes")));
    }
    if rank == 0 {
        return Ok(());
    }
    checked(&space.file, "selecting a box", || {
        // SAFETY: the space is open, and both lists have a member for each of its axes.
        unsafe {
            h5s::H5Sselect_hyperslab(
                space.id,
                h5s::H5S_seloper_t::H5S_SELECT_SET,
                start.as_ptr(),
                std::ptr::null(),
                count.as_ptr(),
                std::ptr::null(),
            )
        }
    })?;
    Ok(())
}
