//! The tiling of an `aligned` object as it travels: one record a chunk.

use serde::{Deserialize, Serialize};
use slabfs_model::layout::tiling::{Record, Tiling, TilingError};
use slabfs_model::{ChunkId, Codec, Coords, Hyperslab, Region, ServerId, Version};
use slabfs_objstore::{ChunkForm, ChunkName};

use super::info::ArrayInfo;

/// A chunk on a data server. Its shape is that of the record's slab, packed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredChunk {
    /// Its id, which is its name.
    pub chunk: ChunkId,
    /// Who has it.
    pub server: ServerId,
    /// How it was encoded when it was stored.
    pub codec: Codec,
}

impl StoredChunk {
    /// Its name on the data server.
    #[must_use]
    pub fn name(&self) -> ChunkName {
        ChunkName::Free(self.chunk)
    }

    /// Its form, given the slab of its record and the object it belongs to.
    #[must_use]
    pub fn form(&self, slab: &Hyperslab, info: &ArrayInfo) -> ChunkForm {
        ChunkForm {
            shape: slab.packed_shape(),
            elem: info.dtype.size() as u32,
            codec: self.codec,
            fill: info.fill.clone(),
        }
    }
}

/// What a record of a tiling stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stored {
    /// Data in a chunk.
    Chunk(StoredChunk),
    /// A hole that was punched: reads as fill, and hides what is older.
    Fill,
}

/// Which part of a large tiling is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedPart {
    /// The cells that are read. All of a tiling of few records is sent all the same.
    pub region: Region,
    /// About so many records around them may come along.
    pub most: u32,
}

/// The tiling of an object, as far as the asker does not have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TilingReply {
    /// Nothing changed since the version the asker knows.
    Unchanged {
        /// That version.
        version: Version,
    },
    /// All of it (over a socket in pages, which [`super::Md::tiling`] puts together).
    Whole {
        /// Its version.
        version: Version,
        /// Generation of the object it belongs to.
        generation: u32,
        /// The cells at that version.
        cells: Coords,
        /// Its records by growing order.
        records: Vec<Record<Stored>>,
        /// Whether records with greater orders are still to come.
        more: bool,
    },
    /// All records that lie in a box, or around it, of a tiling that has many (over a socket in pages, too).
    Part {
        /// The version of the tiling.
        version: Version,
        /// Generation of the object it belongs to.
        generation: u32,
        /// The cells at that version.
        cells: Coords,
        /// The box, which holds what was asked for.
        region: Region,
        /// The records by growing order.
        records: Vec<Record<Stored>>,
        /// Whether records with greater orders are still to come.
        more: bool,
    },
    /// What was added and dropped since the version the asker knows.
    Changes {
        /// Its version.
        version: Version,
        /// New records by growing order.
        added: Vec<Record<Stored>>,
        /// Orders of records that are gone.
        dropped: Vec<u64>,
    },
}

impl TilingReply {
    /// The version the asker has once it has applied this.
    #[must_use]
    pub fn version(&self) -> Version {
        match self {
            Self::Unchanged { version }
            | Self::Whole { version, .. }
            | Self::Part { version, .. }
            | Self::Changes { version, .. } => *version,
        }
    }

    /// Brings a tiling of the version that was asked with up to [`Self::version`]. After a part the tiling has the records
    /// of that alone.
    ///
    /// # Errors
    /// When the reply does not fit the tiling: another version was asked with, or the reply is bad.
    pub fn apply(self, tiling: &mut Tiling<Stored>) -> Result<(), TilingError> {
        match self {
            Self::Unchanged { .. } => {}
            Self::Whole { cells, records, .. } | Self::Part { cells, records, .. } => {
                *tiling = Tiling::bulk(cells.len(), records)?
            }
            Self::Changes { added, dropped, .. } => {
                for record in added {
                    tiling.insert(record)?;
                }
                for order in dropped {
                    tiling.remove(order);
                }
            }
        }
        Ok(())
    }
}
