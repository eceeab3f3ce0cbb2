//! The elements after a header, in C or Fortran order.

use std::path::Path;

use slabfs_datamodel::npy::header::Header;

use crate::boxes::{Block, Boxes, transpose};
use crate::tree::Variable;
use crate::{FormatError, Result};

/// How the elements follow each other.
#[derive(Debug, Clone)]
pub(crate) struct Elements {
    pub(crate) shape: Vec<u64>,
    /// Bytes of an element.
    pub(crate) elem: u64,
    /// In column-major order.
    pub(crate) fortran: bool,
}

impl Elements {
    /// Those after a header.
    pub(crate) fn of(header: &Header) -> Elements {
        Elements {
            shape: header.shape.clone(),
            elem: header.dtype.size(),
            fortran: header.fortran,
        }
    }

    /// The bytes of all; `None` if that is no number.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.shape
            .iter()
            .try_fold(self.elem, |bytes, &len| bytes.checked_mul(len))
    }

    /// The boxes whose elements follow each other in the file.
    pub(crate) fn boxes(&self, part: u64) -> Boxes {
        match self.fortran {
            true => Boxes::columns(&self.shape, self.elem, part),
            false => Boxes::rows(&self.shape, self.elem, part),
        }
    }

    /// Reads such a box in row-major order; `read` gets a position after the header.
    pub(crate) fn read(
        &self,
        block: &Block,
        out: &mut Vec<u8>,
        read: impl FnOnce(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let (offset, bytes) = match self.fortran {
            true => {
                let shape: Vec<u64> = self.shape.iter().rev().copied().collect();
                (block.reversed().offset_in(&shape), block.elements())
            }
            false => (block.offset_in(&self.shape), block.elements()),
        };
        // Boxes are those of `boxes`.
        let offset = offset.unwrap_or(0) * self.elem;
        let bytes = (bytes * self.elem) as usize;
        out.resize(bytes, 0);
        if !self.fortran || block.count.iter().filter(|&&len| len > 1).count() < 2 {
            return read(offset, out);
        }
        let mut columns = vec![0; bytes];
        read(offset, &mut columns)?;
        transpose(&block.count, self.elem as usize, &columns, out);
        Ok(())
    }
}

/// The position of a box in the data of a variable in C order.
pub(crate) fn offset(variable: &Variable, block: &Block) -> Option<u64> {
    let index = block.offset_in(&variable.shape())?;
    Some(index * variable.dtype.size())
}

/// The error for a box that is not of consecutive elements.
pub(crate) fn no_row(path: &Path, variable: &Variable) -> FormatError {
    FormatError::unsupported(
        path,
        &variable.name,
        "can only be written in row-major order",
    )
}
