//! Layouts: how objects are cut into chunks, and which chunks a selection touches.
//!
//! Two layouts answer one question, *given this selection, which parts of which chunks?*:
//!
//! - [`Tiling`], the `aligned` layout: a record for each chunk, of any box or lattice, newest wins. The records are
//!   in an R-tree, so a plan costs O(log n + hits).
//! - [`Grid`], the `grid` and `canonical` layouts: chunks of one shape, so nothing is recorded and the position and
//!   the server of a chunk are computed.
//!
//! [`Placement`](crate::Placement) chooses the data server of a chunk; its arithmetic is in [`placement`].
//!
//! [`coalesce`](coalesce()) prepares data for the first: it converts the dirty byte runs of a flush into few boxes, and
//! [`join_steps`] makes lattices of small ones at equal steps; [`ladder`](ladder()) recognises reads at equal steps
//! as one selection. All geometry here is in cells.
//!
//! Deliberately elsewhere: storage of the records (`slabfs-mdserver`), transfer of the bytes (`slabfs-objstore`), and
//! the text of a layout ([`crate::Layout`]).

pub mod coalesce;
pub mod grid;
pub mod ladder;
pub mod lattice;
pub mod placement;
pub mod tiling;

mod flat;
mod rtree;

pub use coalesce::{Run, boxes_of_run, coalesce};
pub use grid::{Grid, GridPart};
pub use ladder::ladder;
pub use lattice::{Steps, join_steps};
pub use placement::{Blocks, object_server};
pub use tiling::{Part, Record, Tiling, TilingError, TooMany};
