//! What a flush of an `aligned` object makes of dirty runs: the boxes, and lattices, that become chunks.
//!
//! A writer's runs become boxes (`layout::coalesce`), and many small boxes at equal steps one lattice
//! (`layout::lattice`): every fourth piece of 4 KiB of a gibibyte is one chunk and not 65 536. See
//! docs/decisions/strided-chunks.md for what a lattice costs, and why there is a bound on how many lie over
//! each other.

use slabfs_model::Hyperslab;
use slabfs_model::layout::{Run, Steps, coalesce, join_steps};

use super::Client;
use super::geometry::Geometry;
use super::object::Object;
use super::runs::Runs;
use super::tilings::{Need, around};

/// Boxes of more bytes are chunks worth having.
const SMALL: u64 = 64 << 10;
/// So many boxes make a lattice.
const LEAST: u64 = 8;
/// Where so many lattices lie that are out of step with a new one, boxes are written: those hide what lies
/// under them.
const MOST_OUT_OF_STEP: usize = 8;

impl Client {
    /// The slabs that are together the runs of a flush; none is larger than a chunk may be.
    pub(super) fn slabs_of(
        &self,
        object: &Object,
        geometry: &Geometry,
        cells: &[u64],
        taken: &Runs,
    ) -> Vec<Hyperslab> {
        let writers = taken.writers().into_iter();
        writers
            .flat_map(|writer| self.slabs_of_runs(object, geometry, cells, &taken.ranges(writer)))
            .collect()
    }

    /// The slabs that are together these runs, which are sorted and disjoint.
    pub(super) fn slabs_of_runs(
        &self,
        object: &Object,
        geometry: &Geometry,
        cells: &[u64],
        runs: &[Run],
    ) -> Vec<Hyperslab> {
        let boxes = coalesce(cells, runs, self.chunk_limit());
        if geometry.blocks.is_some() {
            // By placement `region` a chunk lies in one block.
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

    /// Whether too many lattices lie where one of these is to be.
    pub(super) fn is_crowded(
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
        // Who cannot be asked will hardly take a commit; boxes are right in any case.
        crowded.unwrap_or(true)
    }
}
