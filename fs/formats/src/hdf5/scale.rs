//! The dimensions of datasets, as the "HDF5 Dimension Scale Specification" has them and NetCDF-4 uses them.
//!
//! A dataset has for each axis references to datasets that are its scales (`DIMENSION_LIST`), and a scale has references to
//! the datasets and axes that use it (`REFERENCE_LIST`). A reference is the address of an object's header.

use hdf5_metno_sys::h5t;

use super::attribute::{Attributed, put};
use super::dataset::Dataset;
use super::datatype::{Class, Datatype};
use super::handle::{Handle, checked};
use super::space::Space;
use crate::Result;

/// The name of the attribute with the scales of each axis.
pub const DIMENSION_LIST: &str = "DIMENSION_LIST";
/// The name of the attribute with the users of a scale.
pub const REFERENCE_LIST: &str = "REFERENCE_LIST";
/// More scales of one axis are not believed.
const MOST_SCALES: usize = 1 << 10;

/// A sequence in memory: `hvl_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Sequence {
    len: usize,
    pointer: *const u64,
}

/// A user of a scale, as `REFERENCE_LIST` has it.
#[repr(C)]
#[derive(Clone, Copy)]
struct User {
    dataset: u64,
    axis: u32,
    unused: u32,
}

impl Dataset {
    /// The addresses of the scales of each axis; `None` if the dataset has none.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn scales(&self) -> Result<Option<Vec<Vec<u64>>>> {
        let Some(attribute) = self.attribute(DIMENSION_LIST)? else {
            return Ok(None);
        };
        let datatype = attribute.datatype()?;
        let references = datatype.class()? == Class::VariableLength
            && datatype.has_references()?
            && datatype.size()? == size_of::<Sequence>();
        if !references {
            return Err(self
                .handle()
                .unsupported(self.name(), "has dimensions of an unknown form"));
        }
        let mut bytes = attribute.read_raw(&datatype)?;
        let lists = bytes.chunks_exact(size_of::<Sequence>()).map(|bytes| {
            // SAFETY: the library wrote a sequence, whose pointer is to `len` addresses.
            unsafe {
                let list = bytes.as_ptr().cast::<Sequence>().read_unaligned();
                match list.len {
                    0 => Some(Vec::new()),
                    1..=MOST_SCALES if !list.pointer.is_null() => Some(
                        (0..list.len)
                            .map(|at| list.pointer.add(at).read_unaligned())
                            .collect(),
                    ),
                    _ => None,
                }
            }
        });
        let lists: Option<Vec<Vec<u64>>> = lists.collect();
        attribute.reclaim(&datatype, &mut bytes)?;
        match lists {
            Some(lists) => Ok(Some(lists)),
            None => Err(self
                .handle()
                .unsupported(self.name(), "has too many dimensions")),
        }
    }

    /// Sets the scales of each axis, by the addresses of their headers.
    ///
    /// # Errors
    /// Of the library.
    pub fn set_scales(&self, scales: &[Vec<u64>]) -> Result<()> {
        let file = &self.handle().file;
        let datatype = Handle::new(file, "dimensions", || {
            // SAFETY: a type of the library.
            unsafe { h5t::H5Tvlen_create(*h5t::H5T_STD_REF_OBJ) }
        })?;
        let lists: Vec<Sequence> = scales
            .iter()
            .map(|list| Sequence {
                len: list.len(),
                pointer: list.as_ptr(),
            })
            .collect();
        let space = Space::fixed(&[scales.len() as u64]);
        // The library reads the lists through the pointers, which live as long as `scales`.
        let data = lists.as_ptr().cast();
        put(
            self.id(),
            DIMENSION_LIST,
            &Datatype::new(datatype),
            &space,
            data,
        )
    }

    /// Sets the users of a scale, by the addresses of their headers and their axes.
    ///
    /// # Errors
    /// Of the library.
    pub fn set_users(&self, users: &[(u64, u32)]) -> Result<()> {
        let file = &self.handle().file;
        let datatype = Handle::new(file, "users of a dimension", || {
            // SAFETY: a size of a compound type.
            unsafe { h5t::H5Tcreate(h5t::H5T_class_t::H5T_COMPOUND, size_of::<User>()) }
        })?;
        checked(file, "users of a dimension", || {
            // SAFETY: the type is open, names are C strings, and members are where `User` has them.
            unsafe {
                let (reference, number) = (*h5t::H5T_STD_REF_OBJ, *h5t::H5T_STD_I32LE);
                h5t::H5Tinsert(datatype.id, c"dataset".as_ptr(), 0, reference).min(h5t::H5Tinsert(
                    datatype.id,
                    c"dimension".as_ptr(),
                    8,
                    number,
                ))
            }
        })?;
        let list: Vec<User> = users
            .iter()
            .map(|&(dataset, axis)| User {
                dataset,
                axis,
                unused: 0,
            })
            .collect();
        let space = Space::fixed(&[list.len() as u64]);
        let data = list.as_ptr().cast();
        put(
            self.id(),
            REFERENCE_LIST,
            &Datatype::new(datatype),
            &space,
            data,
        )
    }
}
