//! What writes a file, whatever its format.

use std::path::Path;

use crate::boxes::{Block, Boxes};
use crate::h5::{self, Dialect};
use crate::hdf5::Filter;
use crate::tree::{Group, Variable};
use crate::{FormatError, Result, npy, npz, zarr};

/// A file that is being written; it has its name when [`Sink::finish`] returns, and is removed if it is dropped before.
pub trait Sink: Send {
    /// The boxes in which a variable is best written, of about `part` bytes. `group` is the path of its group.
    fn boxes(&self, group: &str, variable: &Variable, part: u64) -> Boxes {
        let _ = group;
        Boxes::rows(&variable.shape(), variable.dtype.size(), part)
    }

    /// Writes a box of a variable; `data` has exactly its elements, in row-major order.
    ///
    /// # Errors
    /// Of the library and the filesystem.
    fn write(&mut self, group: &str, variable: &Variable, block: &Block, data: &[u8])
    -> Result<()>;

    /// The shape and the filters of the stored chunks of a variable, if it has chunks that can be written by
    /// [`Sink::write_stored`].
    ///
    /// # Errors
    /// Of the library.
    fn stored(&self, group: &str, variable: &Variable) -> Result<Option<(Vec<u64>, Vec<Filter>)>> {
        let _ = (group, variable);
        Ok(None)
    }

    /// Writes a chunk that went through the filters, but for those in `mask`; `offset` is its first element.
    ///
    /// # Errors
    /// Of the library and the filesystem, and for a variable for which there is no [`Sink::stored`].
    fn write_stored(
        &mut self,
        group: &str,
        variable: &Variable,
        offset: &[u64],
        (mask, bytes): (u32, &[u8]),
    ) -> Result<()> {
        let _ = (group, offset, mask, bytes);
        let why = "has no chunks with filters in this format";
        Err(FormatError::unsupported(Path::new(""), &variable.name, why))
    }

    /// Completes it: it is on disk, and has its name.
    ///
    /// # Errors
    /// Of the library and the filesystem; it is then removed.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// The formats that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// NetCDF-4.
    NetCdf,
    /// HDF5.
    Hdf5,
    /// One array of NumPy.
    Npy,
    /// Several of these.
    Npz,
    /// A Zarr version 3 directory.
    Zarr,
}

impl Format {
    /// The format that the ending of a name says.
    pub fn of(path: &Path) -> Option<Format> {
        Some(match path.extension()?.to_str()? {
            "nc" | "nc4" => Format::NetCdf,
            "h5" | "hdf5" | "hdf" => Format::Hdf5,
            "npy" => Format::Npy,
            "npz" => Format::Npz,
            "zarr" => Format::Zarr,
            _ => return None,
        })
    }
}

/// Creates an output with everything but the data. `array` says that `tree` has nothing but one variable that was
/// exported alone.
///
/// # Errors
/// The directory cannot be written; the format cannot have what the tree has.
pub fn create(path: &Path, format: Format, tree: &Group, array: bool) -> Result<Box<dyn Sink>> {
    Ok(match format {
        Format::NetCdf => Box::new(h5::Writer::create(path, Dialect::NetCdf, tree)?),
        Format::Hdf5 => Box::new(h5::Writer::create(path, Dialect::Plain, tree)?),
        Format::Npy if array => Box::new(npy::Writer::create(path, tree)?),
        Format::Npy => {
            return Err(FormatError::unsupported(
                path,
                "a directory",
                "does not fit a .npy file, which is one array; export to .npz, or export the array",
            ));
        }
        Format::Npz => Box::new(npz::Writer::create(path, tree)?),
        Format::Zarr => Box::new(zarr::Writer::create(path, tree)?),
    })
}
