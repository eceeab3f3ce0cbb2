//! The slabs of a flush: makes dirty runs of an `aligned` object into the boxes and lattices that become chunks.
//!
//! A writer's runs become boxes (`layout::coalesce`), and many small boxes at equal steps become one lattice
//! (`layout::lattice`): every fourth 4 KiB piece of a gibibyte is one chunk and not 65 536. See
//! docs/decisions/04-strided-chunks.md for the cost of a lattice, and for the reason why the number of overlapping ones
//! is limited.

use slabfs_model::Hyperslab;
use slabfs_model::layout::{Run, Steps, boxes_of_run, coalesce, join_steps};

use crate::client::Client;
use crate::client::buffer::runs::Runs;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::stored::tilings::{Need, around};

/// Larger boxes, in bytes, become chunks of their own.
const SMALL: u64 = 64 << 10;
/// The minimum number of boxes in a lattice.
const LEAST: u64 = 8;
/// If this many lattices overlap a new one and are out of step with it, boxes are written instead: they hide the chunks
/// below them.
const MOST_OUT_OF_STEP: usize = 8;

impl Client {
    /// The slabs that together are the runs of a flush; none exceeds the chunk size limit.
    pub(in crate::client) fn slabs_of(
        &self,
        object: &Object,
        geometry: &Geometry,
        cells: &[u64],
        taken: &Runs,
    ) -> Vec<Hyperslab> {
        let mut slabs = Vec::new();
        for writer in taken.writers() {
            let ranges = taken.own_ranges(writer);
            slabs.extend(self.slabs_of_runs(object, geometry, cells, &ranges));
        }
        let mut boxes = Vec::new();
        for run in taken.shared_ranges() {
            boxes_of_run(cells, run.offset, run.len, &mut boxes);
        }
        slabs.extend(boxes.iter().map(Hyperslab::from_region));
        slabs
    }

    /// The slabs that together are these runs, which are sorted and disjoint.
    pub(in crate::client) fn slabs_of_runs(
        &self,
        object: &Object,
        geometry: &Geometry,
        cells: &[u64],
        runs: &[Run],
    ) -> Vec<Hyperslab> {
        let boxes = coalesce(cells, runs, self.chunk_limit());
        if geometry.blocks.is_some() {
            // With placement `region` a chunk lies in one block.
            let split = self.split(geometry, boxes);
            return split.iter().map(Hyperslab::from_region).collect();
        }
        let steps = Steps {
            elem: geometry.info.dtype.size(),
            small: SMALL,
            least: LEAST,
            most: self.chunk_limit(),
        };
        let joined = join_steps(&boxes, &steps);
        if joined.len() < boxes.len() && self.is_crowded(object, geometry, &joined) {
            return boxes.iter().map(Hyperslab::from_region).collect();
        }
        joined
    }

    /// Whether too many lattices overlap one of these.
    pub(in crate::client) fn is_crowded(
        &self,
        object: &Object,
        geometry: &Geometry,
        slabs: &[Hyperslab],
    ) -> bool {
        let lattices = slabs.iter().filter(|slab| !slab.is_box());
        let around = lattices
            .filter_map(Hyperslab::bounds)
            .reduce(|one, other| around(&one, &other));
        let Some(around) = around else {
            return false;
        };
        let crowded = self.with_tiling(object, geometry, Need::Within(&around), |tiling| {
            slabs
                .iter()
                .filter(|slab| !slab.is_box())
                .any(|slab| tiling.out_of_step(slab, MOST_OUT_OF_STEP) >= MOST_OUT_OF_STEP)
        });
        // If the tiling is unavailable, a commit will hardly succeed; boxes are correct in any case.
        crowded.unwrap_or(true)
    }
}
