//! The cells that a request needs a right for.
//!
//! A read within the known size needs just its cells. A read beyond it needs all cells from there on: while it holds
//! them, no other mount can extend the object. An append needs them in write mode. A request that does not fit the
//! known form needs everything: the form may have changed, and is known once the right is granted.

use slabfs_mdserver::api::MAX_RIGHT_BOXES;
use slabfs_model::layout::boxes_of_run;
use slabfs_model::{Coords, Region};

use crate::client::handle::Handle;
use crate::client::object::geometry::Geometry;
use slabfs_model::BoxSet;

impl Handle {
    /// The cells that a read of `len` bytes at `offset` needs.
    pub(in crate::client) fn read_needs(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        len: u64,
    ) -> BoxSet {
        if self.selected.is_some() {
            return self.selected_needs(geometry, size, offset, len);
        }
        let end = offset.saturating_add(len);
        if len == 0 {
            return BoxSet::default();
        }
        if end > size && (geometry.grows() || offset >= size) {
            return beyond(geometry, offset);
        }
        run(&geometry.cells_at(size), offset, end.min(size) - offset)
    }

    /// The cells that a write of `len` bytes at `offset` needs; an append has no offset.
    pub(in crate::client) fn write_needs(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: Option<u64>,
        len: u64,
    ) -> BoxSet {
        let Some(offset) = offset else {
            return beyond(geometry, self.append_at(size));
        };
        if self.selected.is_some() {
            return self.selected_needs(geometry, size, offset, len);
        }
        match offset.checked_add(len) {
            Some(end) if end <= geometry.size_limit() => {
                let reach = size.max(geometry.full_rows(end));
                run(&geometry.cells_at(reach), offset, len)
            }
            _ => BoxSet::All,
        }
    }

    fn selected_needs(&self, geometry: &Geometry, size: u64, offset: u64, len: u64) -> BoxSet {
        let Some(selected) = &self.selected else {
            return BoxSet::All;
        };
        let len = len.min(selected.bytes.saturating_sub(offset));
        // A write that extends the object needs cells of the new size.
        let size = selected.reach(geometry, size);
        match self.wants(geometry, size, offset, len) {
            Ok(wants) => {
                let boxes = wants.iter().filter_map(|want| want.slab.bounds());
                BoxSet::of(boxes).bounded(MAX_RIGHT_BOXES)
            }
            Err(_) => BoxSet::All,
        }
    }
}

fn run(cells: &[u64], offset: u64, len: u64) -> BoxSet {
    let mut boxes = Vec::new();
    boxes_of_run(cells, offset, len, &mut boxes);
    BoxSet::of(boxes).bounded(MAX_RIGHT_BOXES)
}

/// All cells from the row that contains byte `offset`.
fn beyond(geometry: &Geometry, offset: u64) -> BoxSet {
    let rank = geometry.cells.len();
    let first = match (rank, geometry.row) {
        (0, _) | (2.., 0) => return BoxSet::All,
        (1, _) => offset,
        (_, row) => offset / row,
    };
    let mut region = Region {
        offset: Coords::from_elem(0, rank),
        shape: Coords::from_elem(u64::MAX, rank),
    };
    region.offset[0] = first;
    region.shape[0] = u64::MAX - first;
    BoxSet::of([region])
}
