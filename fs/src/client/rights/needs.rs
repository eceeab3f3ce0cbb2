//! Which cells a request needs a right for.
//!
//! Who reads within the size he knows needs just those cells. Who reads beyond it needs all from there on: as
//! long as he has them nobody makes the object longer. Who appends needs them to write. What does not fit the
//! form that is known needs everything: the form may have changed, and is known when the right is there.

use slabfs_model::layout::boxes_of_run;
use slabfs_model::{Coords, Region};

use super::super::geometry::Geometry;
use super::super::handle::Handle;
use super::cells::Cells;

impl Handle {
    /// What a read of `len` bytes at `offset` needs.
    pub(in crate::client) fn read_needs(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        len: u64,
    ) -> Cells {
        if self.selected.is_some() {
            return self.selected_needs(geometry, size, offset, len);
        }
        let end = offset.saturating_add(len);
        if len == 0 {
            return Cells::default();
        }
        if end > size && (geometry.grows() || offset >= size) {
            return beyond(geometry, offset);
        }
        run(&geometry.cells_at(size), offset, end.min(size) - offset)
    }

    /// What a write of `len` bytes at `offset` needs; one that appends has no offset.
    pub(in crate::client) fn write_needs(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: Option<u64>,
        len: u64,
    ) -> Cells {
        let Some(offset) = offset else {
            return beyond(geometry, self.append_at(size));
        };
        if self.selected.is_some() {
            return self.selected_needs(geometry, size, offset, len);
        }
        match offset.checked_add(len) {
            Some(end) if end <= geometry.size_limit() => {
                let reach = size.max(geometry.whole_rows(end));
                run(&geometry.cells_at(reach), offset, len)
            }
            _ => Cells::All,
        }
    }

    fn selected_needs(&self, geometry: &Geometry, size: u64, offset: u64, len: u64) -> Cells {
        let Some(selected) = &self.selected else {
            return Cells::All;
        };
        let len = len.min(selected.bytes.saturating_sub(offset));
        // What makes the object longer needs what it will have.
        let size = selected.reach(geometry, size);
        match self.wants(geometry, size, offset, len) {
            Ok(wants) => Cells::of(wants.iter().filter_map(|want| want.slab.bounds())),
            Err(_) => Cells::All,
        }
    }
}

fn run(cells: &[u64], offset: u64, len: u64) -> Cells {
    let mut boxes = Vec::new();
    boxes_of_run(cells, offset, len, &mut boxes);
    Cells::of(boxes)
}

/// All from the row in which byte `offset` lies.
fn beyond(geometry: &Geometry, offset: u64) -> Cells {
    let rank = geometry.cells.len();
    let first = match (rank, geometry.row) {
        (0, _) | (2.., 0) => return Cells::All,
        (1, _) => offset,
        (_, row) => offset / row,
    };
    let mut region = Region {
        offset: Coords::from_elem(0, rank),
        shape: Coords::from_elem(u64::MAX, rank),
    };
    region.offset[0] = first;
    region.shape[0] = u64::MAX - first;
    Cells::of([region])
}
