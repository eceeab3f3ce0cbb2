//! What a mount knows of an object's form: dims, layout, size; and the arithmetic that follows from it.
//!
//! A `Geometry` is held behind a lock that writers and readers hold shared for the length of a request,
//! and that truncation, declaration and news from the metadata service take alone: while a request runs,
//! the form of its object does not change under it.

use std::sync::atomic::{AtomicU64, Ordering};

use slabfs_mdserver::api::{Attr, Entry, SharedInfo};
use slabfs_model::layout::Blocks;
use slabfs_model::layout::grid::Grid;
use slabfs_model::{Coords, Hyperslab, Layout, MaxDim, Placement};

use super::error::FsError;

/// The number of the next form.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Which form, and at what size: what follows from these two alone need not be found out again while both stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    number: u64,
    size: u64,
}

/// The form of an object as the metadata service last told it. It is replaced, never changed.
#[derive(Debug, Clone)]
pub(super) struct Geometry {
    /// Which one it is of all that this process has had.
    pub(super) number: u64,
    /// dtype, dims, layout and so on.
    pub(super) info: SharedInfo,
    /// Mode, owner, times and committed size.
    pub(super) attr: Attr,
    /// Cells: dims with the last axis in bytes, as committed.
    pub(super) cells: Coords,
    /// Bytes of one row of the slowest axis (of one element, if there is only one axis).
    pub(super) row: u64,
    /// The chunk grid, if the layout has one.
    pub(super) grid: Option<Grid>,
    /// The cut of placement `region`: of a grid as it was when its chunks were begun, of other layouts as
    /// it is now.
    pub(super) blocks: Option<Blocks>,
}

impl Geometry {
    pub(super) fn new(entry: &Entry) -> Result<Geometry, FsError> {
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

    /// This one, if the object had `size` bytes.
    pub(super) fn form(&self, size: u64) -> Form {
        Form {
            number: self.number,
            size,
        }
    }

    /// Bytes the object has by what is committed.
    pub(super) fn size(&self) -> u64 {
        self.cells.iter().product()
    }

    /// Whether a write past the end makes the object longer.
    pub(super) fn grows(&self) -> bool {
        matches!(self.info.max_dims.first(), Some(MaxDim::Unlimited)) && self.row > 0
    }

    /// The most bytes the object may have: dims grow by writing only along an unlimited slowest axis.
    pub(super) fn size_limit(&self) -> u64 {
        if self.grows() {
            // RangeLocks rows only.
            let most = i64::MAX as u64;
            most - most % self.row.max(1)
        } else {
            self.size()
        }
    }

    /// The cells of the object if it had `size` bytes.
    pub(super) fn cells_at(&self, size: u64) -> Coords {
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

    /// `end` rounded up to whole rows: the size a write that ends there gives a growing object.
    pub(super) fn whole_rows(&self, end: u64) -> u64 {
        match self.row {
            0 | 1 => end,
            row => end.div_ceil(row).saturating_mul(row),
        }
    }

    /// The dims, in elements, of the object at `size` bytes.
    pub(super) fn dims_at(&self, size: u64) -> Coords {
        let mut dims = self.info.dims.clone();
        if self.grows() && size > self.size() && !dims.is_empty() {
            dims[0] = size / self.row;
        }
        dims
    }
}

/// Cells of `part`, which is given in packed coordinates of the box `slab`.
pub(super) fn moved(part: &Hyperslab, slab: &Hyperslab) -> Hyperslab {
    let mut cells = part.clone();
    for (axis, base) in cells.axes.iter_mut().zip(&slab.axes) {
        axis.start += base.start;
    }
    cells
}
