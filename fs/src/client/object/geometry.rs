//! The form of an object, as known to this mount: dims, layout, size; and the arithmetic that follows from it.
//!
//! A `Geometry` is behind a lock that reads and writes hold shared for the length of a request, and that truncation,
//! declaration and updates from the metadata service take exclusively: the form of an object does not change during a
//! request.

use std::sync::atomic::{AtomicU64, Ordering};

use slabfs_mdserver::api::{Attr, Entry, SharedInfo};
use slabfs_model::layout::Blocks;
use slabfs_model::layout::grid::Grid;
use slabfs_model::{Coords, Hyperslab, Layout, MaxDim, Placement};

use crate::client::error::FsError;

/// The number of the next form.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Identifies a form and a size: results computed from these two alone are valid while both are unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) struct Form {
    number: u64,
    size: u64,
}

/// The form of an object as last received from the metadata service. It is replaced, never changed.
#[derive(Debug, Clone)]
pub(in crate::client) struct Geometry {
    /// Its number among all forms of this process.
    pub(in crate::client) number: u64,
    /// dtype, dims, layout and so on.
    pub(in crate::client) info: SharedInfo,
    /// Mode, owner, times and committed size.
    pub(in crate::client) attr: Attr,
    /// The dims with the last axis in bytes, as committed.
    pub(in crate::client) cells: Coords,
    /// Bytes of one row of the slowest axis (of one element, if there is only one axis).
    pub(in crate::client) row: u64,
    /// The chunk grid, if the layout has one.
    pub(in crate::client) grid: Option<Grid>,
    /// The cut of placement `region`: for a grid, the cut from when its chunks were begun; for other layouts, the
    /// current one.
    pub(in crate::client) blocks: Option<Blocks>,
}

impl Geometry {
    pub(in crate::client) fn new(entry: &Entry) -> Result<Geometry, FsError> {
        let info = entry
            .info
            .clone()
            .ok_or_else(|| FsError::Invalid("this is not an object with data".into()))?;
        let space = info.space();
        let cells = space
            .cells()
            .map_err(|error| FsError::Invalid(error.to_string()))?;
        let row = if cells.len() == 1 {
            space.elem
        } else {
            cells[1..].iter().product()
        };
        let grid = match &info.layout {
            Layout::Aligned => None,
            layout => {
                Grid::of(layout, &space).map_err(|error| FsError::Invalid(error.to_string()))?
            }
        };
        let extents = match grid {
            Some(_) => info.blocks.clone(),
            None => (info.placement == Placement::Region).then(|| info.extents()),
        };
        let blocks = extents.map(|extents| Blocks::new(&extents, space.elem, info.stripe.len()));
        Ok(Geometry {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            blocks,
            info,
            attr: entry.attr.clone(),
            cells,
            row,
            grid,
        })
    }

    /// This form at `size` bytes.
    pub(in crate::client) fn form(&self, size: u64) -> Form {
        Form {
            number: self.number,
            size,
        }
    }

    /// The committed size in bytes.
    pub(in crate::client) fn size(&self) -> u64 {
        self.cells.iter().product()
    }

    /// Whether a write past the end extends the object.
    pub(in crate::client) fn grows(&self) -> bool {
        matches!(self.info.max_dims.first(), Some(MaxDim::Unlimited)) && self.row > 0
    }

    /// The most bytes the object may have: dims grow by writing only along an unlimited slowest axis.
    pub(in crate::client) fn size_limit(&self) -> u64 {
        if self.grows() {
            // Complete rows only.
            let most = i64::MAX as u64;
            most - most % self.row.max(1)
        } else {
            self.size()
        }
    }

    /// The cells of the object if it had `size` bytes.
    pub(in crate::client) fn cells_at(&self, size: u64) -> Coords {
        let mut cells = self.cells.clone();
        if self.grows() && size > self.size() {
            cells[0] = if cells.len() == 1 {
                size
            } else {
                size / self.row
            };
        }
        cells
    }

    /// `end` rounded up to complete rows: the size that a write ending there gives a growing object.
    pub(in crate::client) fn full_rows(&self, end: u64) -> u64 {
        match self.row {
            0 | 1 => end,
            row => end.div_ceil(row).saturating_mul(row),
        }
    }

    /// The dims, in elements, of the object at `size` bytes.
    pub(in crate::client) fn dims_at(&self, size: u64) -> Coords {
        let mut dims = self.info.dims.clone();
        if self.grows() && size > self.size() && !dims.is_empty() {
            dims[0] = size / self.row;
        }
        dims
    }
}

/// The cells of `part`, which is given in packed coordinates of the box `slab`.
pub(in crate::client) fn moved(part: &Hyperslab, slab: &Hyperslab) -> Hyperslab {
    let mut cells = part.clone();
    for (axis, base) in cells.axes.iter_mut().zip(&slab.axes) {
        axis.start += base.start;
    }
    cells
}
