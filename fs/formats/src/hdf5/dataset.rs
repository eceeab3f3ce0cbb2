//! Datasets: their elements, and their chunks as they are stored.

use std::path::Path;
use std::sync::Arc;

use hdf5_metno_sys::h5::{haddr_t, herr_t, hsize_t};
use hdf5_metno_sys::h5i::hid_t;
use hdf5_metno_sys::{h5d, h5o, h5p};

use super::attribute::Attributed;
use super::creation::Creation;
use super::datatype::Datatype;
use super::handle::{Handle, checked, with_lock};
use super::index::{self, Chunk};
use super::space::{Space, select};
use crate::{FormatError, Result};

/// The most bytes of a stored chunk.
const MOST_STORED: u64 = 1 << 32;

/// The end of the library's error about a chunk that was never written.
const NOT_WRITTEN: &str = "chunk storage is not allocated";

unsafe extern "C" {
    // Not in hdf5-metno-sys: since HDF5 1.10.2.
    fn H5Dget_chunk_storage_size(
        dset_id: hid_t,
        offset: *const hsize_t,
        chunk_nbytes: *mut hsize_t,
    ) -> herr_t;
}

/// A dataset of an open file.
#[derive(Debug)]
pub struct Dataset {
    handle: Handle,
    name: String,
}

impl Attributed for Dataset {
    fn id(&self) -> (i64, &Arc<Path>) {
        (self.handle.id, &self.handle.file)
    }
}

impl Dataset {
    pub(super) fn new(handle: Handle, name: &str) -> Dataset {
        let name = name.to_owned();
        Dataset { handle, name }
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The bytes that its elements have in the file; 0 if nothing was written.
    pub fn stored(&self) -> u64 {
        // SAFETY: the dataset is open.
        with_lock(|| unsafe { h5d::H5Dget_storage_size(self.handle.id) })
    }

    /// The name by which it was opened or created.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn datatype(&self) -> Result<Datatype> {
        let handle = Handle::new(&self.handle.file, self.what("the type of"), || {
            // SAFETY: the dataset is open.
            unsafe { h5d::H5Dget_type(self.handle.id) }
        })?;
        Ok(Datatype::new(handle))
    }

    /// Its shape.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn space(&self) -> Result<Space> {
        Space::of(&self.space_handle()?)
    }

    pub(super) fn space_handle(&self) -> Result<Handle> {
        Handle::new(&self.handle.file, self.what("the shape of"), || {
            // SAFETY: the dataset is open.
            unsafe { h5d::H5Dget_space(self.handle.id) }
        })
    }

    /// How it is stored: a copy, which can be changed to create another.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn creation(&self) -> Result<Creation> {
        let handle = Handle::new(&self.handle.file, self.what("how to store"), || {
            // SAFETY: the dataset is open.
            unsafe { h5d::H5Dget_create_plist(self.handle.id) }
        })?;
        Ok(Creation::of(handle))
    }

    /// Changes the lengths of the axes of a chunked dataset, up to their maximum.
    ///
    /// # Errors
    /// Of the library.
    pub fn set_dims(&self, dims: &[u64]) -> Result<()> {
        self.has_rank(dims)?;
        checked(&self.handle.file, self.what("extending"), || {
            // SAFETY: the dataset is open, and `dims` has a member for each of its axes.
            unsafe { h5d::H5Dset_extent(self.handle.id, dims.as_ptr()) }
        })?;
        Ok(())
    }

    /// The address of its header in the file: two links to one dataset have the same.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn address(&self) -> Result<u64> {
        let mut info = h5o::H5O_info1_t::default();
        checked(&self.handle.file, self.what("looking at"), || {
            // SAFETY: the dataset is open, and `info` outlives the call.
            unsafe { h5o::H5Oget_info2(self.handle.id, &mut info, h5o::H5O_INFO_BASIC) }
        })?;
        Ok(info.addr)
    }

    /// Where the elements of a contiguous dataset begin in the file; `None` if nothing was written, or it is not contiguous.
    pub fn offset(&self) -> Option<u64> {
        // SAFETY: the dataset is open.
        let address: haddr_t = with_lock(|| unsafe { h5d::H5Dget_offset(self.handle.id) });
        (address != haddr_t::MAX).then_some(address)
    }

    /// Reads a box into `out`, which has exactly its elements of `datatype`, a type that is in one piece. Elements are
    /// converted if the dataset's type is another. Of a scalar, `start` and `count` are empty.
    ///
    /// # Errors
    /// The file is damaged; a filter is missing; the box is not in the shape.
    pub fn read(
        &self,
        datatype: &Datatype,
        start: &[u64],
        count: &[u64],
        out: &mut [u8],
    ) -> Result<()> {
        let (file, memory) = self.boxes(datatype, start, count, out.len())?;
        let Some(memory) = memory else { return Ok(()) };
        checked(&self.handle.file, self.what("reading"), || {
            // SAFETY: `out` has the elements of the box, as `boxes` found.
            unsafe {
                h5d::H5Dread(
                    self.handle.id,
                    datatype.handle().id,
                    memory.id,
                    file.id,
                    h5p::H5P_DEFAULT,
                    out.as_mut_ptr().cast(),
                )
            }
        })?;
        Ok(())
    }

    /// Writes a box from `data`, which has exactly its elements of `datatype`, a type that is in one piece.
    ///
    /// # Errors
    /// As for [`Dataset::read`].
    pub fn write(
        &self,
        datatype: &Datatype,
        start: &[u64],
        count: &[u64],
        data: &[u8],
    ) -> Result<()> {
        let (file, memory) = self.boxes(datatype, start, count, data.len())?;
        let Some(memory) = memory else { return Ok(()) };
        checked(&self.handle.file, self.what("writing"), || {
            // SAFETY: `data` has the elements of the box, as `boxes` found.
            unsafe {
                h5d::H5Dwrite(
                    self.handle.id,
                    datatype.handle().id,
                    memory.id,
                    file.id,
                    h5p::H5P_DEFAULT,
                    data.as_ptr().cast(),
                )
            }
        })?;
        Ok(())
    }

    /// Copies a box of elements with pointers (texts and sequences of any length) of a dataset of an equal type.
    ///
    /// # Errors
    /// As for [`Dataset::read`].
    pub fn copy_box(
        &self,
        from: &Dataset,
        (from_start, to_start): (&[u64], &[u64]),
        count: &[u64],
    ) -> Result<()> {
        let datatype = from.datatype()?;
        let space = Space::fixed(count);
        let bytes = space
            .elements()
            .and_then(|all| all.checked_mul(datatype.size().ok()? as u64))
            .filter(|&bytes| bytes <= MOST_STORED);
        let Some(bytes) = bytes else {
            return Err(self
                .handle
                .unsupported(&self.name, "has too many elements in a box"));
        };
        if bytes == 0 {
            return Ok(());
        }
        let (source, place) = (from.space_handle()?, self.space_handle()?);
        select(&source, from_start, count)?;
        select(&place, to_start, count)?;
        let memory = space.make(&self.handle)?;
        // Of 16-byte units: pointers have to be aligned.
        let mut buffer = vec![0_u128; (bytes as usize).div_ceil(16)];
        let typ = datatype.handle().id;
        let data = buffer.as_mut_ptr().cast();
        checked(&from.handle.file, from.what("reading"), || {
            // SAFETY: `buffer` has the elements of the box.
            unsafe {
                h5d::H5Dread(
                    from.handle.id,
                    typ,
                    memory.id,
                    source.id,
                    h5p::H5P_DEFAULT,
                    data,
                )
            }
        })?;
        let written = checked(&self.handle.file, self.what("writing"), || {
            // SAFETY: `buffer` has the elements that were read.
            unsafe {
                h5d::H5Dwrite(
                    self.handle.id,
                    typ,
                    memory.id,
                    place.id,
                    h5p::H5P_DEFAULT,
                    data,
                )
            }
        });
        checked(&from.handle.file, from.what("reading"), || {
            // SAFETY: `buffer` has the elements that were read; what they point to is not used any more.
            unsafe { h5d::H5Dvlen_reclaim(typ, memory.id, h5p::H5P_DEFAULT, data) }
        })?;
        written.map(|_| ())
    }

    /// The box in the file, and a space of its shape in memory; `None` if it has no elements.
    fn boxes(
        &self,
        datatype: &Datatype,
        start: &[u64],
        count: &[u64],
        bytes: usize,
    ) -> Result<(Handle, Option<Handle>)> {
        let file = self.space_handle()?;
        let size = datatype.size()? as u64;
        let memory = match Space::of(&file)? {
            Space::Null => Space::Null,
            _ => Space::fixed(count),
        };
        let expected = memory.elements().and_then(|all| all.checked_mul(size));
        if expected != Some(bytes as u64) || !datatype.is_flat()? {
            let why = "is not read or written by a buffer of this size";
            return Err(self
                .handle
                .unsupported(format!("a box of {}", self.name), why));
        }
        if bytes == 0 {
            return Ok((file, None));
        }
        select(&file, start, count)?;
        let memory = memory.make(&self.handle)?;
        Ok((file, Some(memory)))
    }

    /// The chunk that begins at `offset`, as it is stored, and its filter mask, in which a bit is set for each filter that it
    /// did not go through; `None` if it was never written.
    ///
    /// # Errors
    /// The file is damaged; no chunk begins there.
    pub fn read_chunk(&self, offset: &[u64]) -> Result<Option<(Vec<u8>, u32)>> {
        self.has_rank(offset)?;
        let what = self.what("reading a chunk of");
        let mut size = 0;
        let asked = checked(&self.handle.file, &what, || {
            // SAFETY: `offset` has a member for each axis, and `size` outlives the call.
            unsafe { H5Dget_chunk_storage_size(self.handle.id, offset.as_ptr(), &mut size) }
        });
        match asked {
            Ok(_) => {}
            // The library of 1.10 says so by an error that has no number of its own.
            Err(FormatError::Library { why, .. }) if why.ends_with(NOT_WRITTEN) => return Ok(None),
            Err(error) => return Err(error),
        }
        if size == 0 {
            return Ok(None);
        }
        if size > MOST_STORED {
            let why = format!("has a chunk of {size} bytes");
            return Err(self.handle.unsupported(&self.name, why));
        }
        let mut bytes = vec![0_u8; size as usize];
        let mut mask = 0;
        checked(&self.handle.file, &what, || {
            // SAFETY: `offset` has a member for each axis, and `bytes` the size that the library reported.
            unsafe {
                h5d::H5Dread_chunk(
                    self.handle.id,
                    h5p::H5P_DEFAULT,
                    offset.as_ptr(),
                    &mut mask,
                    bytes.as_mut_ptr().cast(),
                )
            }
        })?;
        Ok(Some((bytes, mask)))
    }

    /// Stores a chunk as it is.
    ///
    /// # Errors
    /// It cannot be written; no chunk begins there.
    pub fn write_chunk(&self, offset: &[u64], mask: u32, bytes: &[u8]) -> Result<()> {
        self.has_rank(offset)?;
        checked(&self.handle.file, self.what("writing a chunk of"), || {
            // SAFETY: `offset` has a member for each axis.
            unsafe {
                h5d::H5Dwrite_chunk(
                    self.handle.id,
                    h5p::H5P_DEFAULT,
                    mask,
                    offset.as_ptr(),
                    bytes.len(),
                    bytes.as_ptr().cast(),
                )
            }
        })?;
        Ok(())
    }

    /// All stored chunks of a dataset of a file that is open for reading only, with their places for `pread`.
    ///
    /// The index of files of HDF5 1.8 is read here, in one pass. Other indexes are asked through the library, which takes time
    /// that grows with the square of the number of chunks. `base` is that of [`super::File::base`].
    ///
    /// # Errors
    /// The file is damaged.
    pub fn chunks(&self, base: Option<u64>) -> Result<Vec<Chunk>> {
        let creation = self.creation()?;
        let shape = creation.chunk()?;
        let mut chunks = self.listed(base, &shape)?;
        if creation.skips_partial_chunks()? {
            let space = self.space()?;
            for chunk in &mut chunks {
                let axes = chunk.offset.iter().zip(&shape).zip(space.dims());
                if axes.into_iter().any(|((at, len), dim)| at + len > *dim) {
                    chunk.mask = u32::MAX;
                }
            }
        }
        Ok(chunks)
    }

    /// The chunks as the file lists them.
    fn listed(&self, base: Option<u64>, shape: &[u64]) -> Result<Vec<Chunk>> {
        if let Some(base) = base {
            let path = &self.handle.file;
            let file = std::fs::File::open(path).map_err(|error| FormatError::Library {
                path: path.to_path_buf(),
                what: self.what("the chunks of"),
                why: error.to_string(),
            })?;
            let read = index::stored_chunks((&file, path), base, self.address()?, shape)?;
            if let Some(chunks) = read {
                return Ok(chunks);
            }
        }
        let space = self.space_handle()?;
        let what = self.what("the chunks of");
        let mut count = 0;
        checked(&self.handle.file, &what, || {
            // SAFETY: the dataset and the space are open, and `count` outlives the call.
            unsafe { h5d::H5Dget_num_chunks(self.handle.id, space.id, &mut count) }
        })?;
        (0..count)
            .map(|at| {
                let mut offset = vec![0; shape.len()];
                let (mut mask, mut address, mut size) = (0, 0, 0);
                checked(&self.handle.file, &what, || {
                    // SAFETY: `offset` has a member for each axis; the numbers outlive the call.
                    unsafe {
                        h5d::H5Dget_chunk_info(
                            self.handle.id,
                            space.id,
                            at,
                            offset.as_mut_ptr(),
                            &mut mask,
                            &mut address,
                            &mut size,
                        )
                    }
                })?;
                Ok(Chunk {
                    offset,
                    address: address + base.unwrap_or(0),
                    size,
                    mask,
                })
            })
            .collect()
    }

    /// Fails unless `list` has a member for each axis.
    fn has_rank(&self, list: &[u64]) -> Result<()> {
        let rank = self.space()?.dims().len();
        match list.len() == rank {
            true => Ok(()),
            false => Err(self
                .handle
                .unsupported(&self.name, format!("has {rank} axes"))),
        }
    }

    fn what(&self, doing: &str) -> String {
        format!("{doing} {}", self.name)
    }
}
