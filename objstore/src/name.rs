//! The name of a chunk, and the form it is stored in.
//!
//! A data server needs only the name to find a chunk. The form travels with each request, and is stored next to the
//! data so that a store can be verified without the metadata service.

use std::fmt;

use serde::{Deserialize, Serialize};
use slabfs_model::{ChunkId, Codec, Coords, Fill, ObjectId};

/// The name of a chunk on a data server. The order is: free chunks by id, then grid chunks by
/// object, generation and place.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ChunkName {
    /// A chunk of an `aligned` object: its id was leased and is never used again; it is immutable
    /// once sealed.
    Free(ChunkId),
    /// A chunk of a `grid` object, written in place: its name is computed, not recorded.
    Grid {
        /// The object it belongs to.
        object: ObjectId,
        /// Bumped whenever the object is emptied; older generations are deleted.
        generation: u32,
        /// Its place in the grid, in chunks.
        at: Coords,
    },
}

impl fmt::Display for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free(id) => write!(f, "chunk {}", id.0),
            Self::Grid {
                object,
                generation,
                at,
            } => {
                write!(f, "grid chunk {}/{generation}/[", object.0)?;
                for (i, x) in at.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma}{x}")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// The form a chunk is stored in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkForm {
    /// The cells of the chunk: its dims, the last axis counted in bytes. The bytes of the chunk are
    /// these cells in row-major order. The first axis may be far larger than what is stored.
    pub shape: Coords,
    /// The size of an element in bytes; only codecs and the fill care.
    pub elem: u32,
    /// The codec. Grid chunks are written in place and therefore stored unpacked.
    pub codec: Codec,
    /// The value of cells that were never written.
    pub fill: Fill,
}

impl ChunkForm {
    /// The bytes of the complete chunk, or `None` above 2^63 - 1 (a grid chunk whose first axis is unlimited).
    #[must_use]
    pub fn volume(&self) -> Option<u64> {
        let bytes = self.shape.iter().try_fold(1u64, |n, &x| n.checked_mul(x))?;
        (bytes <= i64::MAX as u64).then_some(bytes)
    }
}
