//! What reads a file, whatever its format, and how the format is found.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::boxes::{Block, Boxes};
use crate::hdf5::{Chunk, Filter};
use crate::tree::{Group, Variable};
use crate::{FormatError, Result, h5, netcdf, npy, npz, zarr};

/// An open file.
pub trait Source: Send + Sync {
    /// What it has, without the data.
    fn tree(&self) -> &Group;

    /// The boxes in which a variable is best read, of about `part` bytes. They cover it, except for elements that were
    /// never written. `group` is the path of its group.
    ///
    /// # Errors
    /// The file is damaged.
    fn boxes(&self, group: &str, variable: &Variable, part: u64) -> Result<Boxes> {
        let _ = group;
        Ok(Boxes::rows(&variable.shape(), variable.dtype.size(), part))
    }

    /// Reads a box of a variable: `out` gets exactly its elements, in row-major order.
    ///
    /// # Errors
    /// The file is damaged, or was changed.
    fn read(
        &self,
        group: &str,
        variable: &Variable,
        block: &Block,
        out: &mut Vec<u8>,
    ) -> Result<()>;

    /// The chunks of a variable as they are stored in the file; `None` if they cannot be read without decoding them.
    ///
    /// # Errors
    /// The file is damaged.
    fn stored(&self, group: &str, variable: &Variable) -> Result<Option<Stored>> {
        let _ = (group, variable);
        Ok(None)
    }

    /// The boxes of a variable are read fastest in order, one after the other.
    fn in_order(&self) -> bool {
        true
    }

    /// What of the file is dropped, though no value is lost.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// It is one array and not a group: the only variable of its tree is the file itself.
    fn is_array(&self) -> bool {
        false
    }
}

/// The stored chunks of a variable of an HDF5 file.
#[derive(Debug)]
pub struct Stored {
    /// The file, for `pread`.
    pub file: File,
    /// The lengths of the axes that have data; along unlimited dimensions others may be longer.
    pub dims: Vec<u64>,
    /// The shape of a chunk.
    pub shape: Vec<u64>,
    /// The filters.
    pub filters: Vec<Filter>,
    /// The chunks, and their places in the file.
    pub chunks: Vec<Chunk>,
}

/// The first bytes of a file that tell its format.
const HEAD: usize = 8;

/// Opens a file or directory; its content says the format.
///
/// # Errors
/// It cannot be opened, is of no known format, is damaged, or has what the model cannot represent.
pub fn open(path: &Path) -> Result<Box<dyn Source>> {
    let failed = |error: std::io::Error| FormatError::file(path, "opening it", &error);
    if path.metadata().map_err(failed)?.is_dir() {
        return Ok(Box::new(zarr::Reader::open(path)?));
    }
    let mut head = Vec::new();
    let file = File::open(path).map_err(failed)?;
    if h5::is_hdf5(&file) {
        return Ok(Box::new(h5::Reader::open(path)?));
    }
    file.take(HEAD as u64)
        .read_to_end(&mut head)
        .map_err(failed)?;
    match head.as_slice() {
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Ok(Box::new(npy::Reader::open(path)?)),
        [b'P', b'K', ..] => Ok(Box::new(npz::Reader::open(path)?)),
        _ => Ok(Box::new(netcdf::Reader::open(path)?)),
    }
}
