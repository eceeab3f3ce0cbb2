//! A selection as a file: its dims, its size, its attributes.
//!
//! A selection node is a regular file with the owner, mode and times of its object and the size of the selected
//! elements. It has one name, is never sparse, and its size is fixed. A write past its end fails. A truncate to 0 or to
//! its own size has no effect (so `cp block 'temp@[0:10,0:9]'` leaves the other elements unchanged); any other size is
//! refused.

use slabfs_mdserver::api::{ArrayInfo, Attr};
use slabfs_model::{Coords, Selection, SelectionError};

/// The dims and the size of a selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Elements per axis; the rank is the object's.
    pub dims: Coords,
    /// Bytes of all selected elements.
    pub bytes: u64,
}

/// The shape of a selection on an object with its current dims.
pub fn shape(selection: &Selection, info: &ArrayInfo) -> Result<Shape, SelectionError> {
    let elements = selection.resolve(&info.dims)?;
    Ok(Shape {
        // At most the object's own size, which is below 2^63: the product cannot overflow.
        bytes: elements.volume().saturating_mul(info.dtype.size()),
        dims: elements.packed_shape(),
    })
}

/// The attributes of a selection of `bytes` bytes of an object with the attributes `of`.
pub fn attributes(of: &Attr, bytes: u64) -> Attr {
    Attr {
        nlink: 1,
        size: bytes,
        stored: bytes,
        ..of.clone()
    }
}
