//! The attributes by which a dataset and its dimension scales refer to each other.
//!
//! They are those of the "HDF5 Dimension Scale Specification": `DIMENSION_LIST` of a dataset has a list of references for
//! each axis, `REFERENCE_LIST` of a scale the datasets and axes that use it. A reference to an object is the address of
//! its header.

use std::ffi::c_void;

use hdf5_metno_sys::h5t::{self, H5T_class_t, hvl_t};
use hdf5_metno_sys::{h5a, h5d, h5p};

use super::attribute::{Attributed, put};
use super::dataset::Dataset;
use super::datatype::{Class, Datatype};
use super::handle::{Handle, checked, with_lock};
use super::space::Space;
use crate::Result;

/// The attribute with a dataset's scales.
pub const DIMENSION_LIST: &str = "DIMENSION_LIST";
/// The attribute with a scale's datasets.
pub const REFERENCE_LIST: &str = "REFERENCE_LIST";

/// A reference of `REFERENCE_LIST` in memory.
#[repr(C)]
struct Reference {
    dataset: u64,
    axis: u32,
}

impl Dataset {
    /// The addresses of the scales of each axis; `None` if it has no such list.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn scales(&self) -> Result<Option<Vec<Vec<u64>>>> {
        let Some(attribute) = self.attribute(DIMENSION_LIST)? else {
            return Ok(None);
        };
        let datatype = attribute.datatype()?;
        let axes = attribute.space()?.elements().unwrap_or(0) as usize;
        let right = datatype.class()? == Class::VariableLength
            && datatype.has(Class::Reference)?
            && axes == self.space()?.dims().len();
        let file = &self.handle().file;
        let what = format!("{DIMENSION_LIST} of {}", self.name());
        if !right {
            return Err(self
                .handle()
                .unsupported(what, "is not a list of references for each axis"));
        }
        let space = attribute.space_handle()?;
        let mut lists: Vec<hvl_t> = (0..axes).map(|_| hvl_t::default()).collect();
        let typ = datatype.handle().id;
        checked(file, &what, || {
            // SAFETY: the attribute has that many lists, and the type of each is a list of references.
            unsafe { h5a::H5Aread(attribute.handle().id, typ, lists.as_mut_ptr().cast()) }
        })?;
        let scales = lists
            .iter()
            .map(|list| match list.p.is_null() {
                true => Vec::new(),
                // SAFETY: the library wrote that many references of 8 bytes.
                false => unsafe {
                    let references = list.p.cast::<u64>();
                    (0..list.len)
                        .map(|at| references.add(at).read_unaligned())
                        .collect()
                },
            })
            .collect();
        checked(file, &what, || {
            // SAFETY: what the lists point to is not used any more.
            unsafe {
                h5d::H5Dvlen_reclaim(typ, space.id, h5p::H5P_DEFAULT, lists.as_mut_ptr().cast())
            }
        })?;
        Ok(Some(scales))
    }

    /// Sets the scale of each axis, by its address; `None` where an axis has none.
    ///
    /// # Errors
    /// Of the library.
    pub fn put_scales(&self, scales: &[Option<u64>]) -> Result<()> {
        let mut references: Vec<u64> = scales.iter().map(|scale| scale.unwrap_or(0)).collect();
        let lists: Vec<hvl_t> = scales
            .iter()
            .zip(&mut references)
            .map(|(scale, reference)| match scale {
                Some(_) => hvl_t {
                    len: 1,
                    p: std::ptr::from_mut(reference).cast::<c_void>(),
                },
                None => hvl_t::default(),
            })
            .collect();
        let reference = self.reference()?;
        let id = reference.handle().id;
        let list = Handle::new(&self.handle().file, "a type", || {
            // SAFETY: the type is open.
            unsafe { h5t::H5Tvlen_create(id) }
        })?;
        let space = Space::fixed(&[scales.len() as u64]);
        let data = lists.as_ptr().cast();
        put(
            self.id(),
            DIMENSION_LIST,
            &Datatype::new(list),
            &space,
            data,
        )
    }

    /// Sets the datasets that use this scale: their addresses, and the axis of each.
    ///
    /// # Errors
    /// Of the library.
    pub fn put_users(&self, users: &[(u64, u32)]) -> Result<()> {
        let list: Vec<Reference> = users
            .iter()
            .map(|&(dataset, axis)| Reference { dataset, axis })
            .collect();
        let reference = self.reference()?;
        let file = &self.handle().file;
        let record = Handle::new(file, "a type", || {
            // SAFETY: a class and a size.
            unsafe { h5t::H5Tcreate(H5T_class_t::H5T_COMPOUND, size_of::<Reference>()) }
        })?;
        checked(file, "a type", || {
            // SAFETY: the types are open, the names C strings, and the positions those of `Reference`.
            unsafe {
                let int = *h5t::H5T_NATIVE_INT;
                h5t::H5Tinsert(record.id, c"dataset".as_ptr(), 0, reference.handle().id)
                    .min(h5t::H5Tinsert(record.id, c"dimension".as_ptr(), 8, int))
            }
        })?;
        let space = Space::fixed(&[list.len() as u64]);
        let data = list.as_ptr().cast();
        put(
            self.id(),
            REFERENCE_LIST,
            &Datatype::new(record),
            &space,
            data,
        )
    }

    /// The type of references to objects.
    fn reference(&self) -> Result<Datatype> {
        with_lock(|| ());
        let handle = Handle::new(&self.handle().file, "a type", || {
            // SAFETY: a type of the library.
            unsafe { h5t::H5Tcopy(*h5t::H5T_STD_REF_OBJ) }
        })?;
        Ok(Datatype::new(handle))
    }
}
