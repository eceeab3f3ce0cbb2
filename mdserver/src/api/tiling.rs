//! Wire form of the tiling of an `aligned` object: one record per chunk.

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
    /// The data server that has it.
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

    /// Its form, for the slab of its record and the object it belongs to.
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

/// The content of a record of a tiling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stored {
    /// Data in a chunk.
    Chunk(StoredChunk),
    /// A punched hole: reads as fill, and hides older records.
    Fill,
    /// Steps of a coupled object that its queue has dropped: reads of them fail.
    Dropped,
}

/// Which part of a large tiling is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedPart {
    /// The cells that are read. A tiling of few records is sent completely in any case.
    pub region: Region,
    /// About this many records around them may be included.
    pub most: u32,
}

/// The tiling of an object, as far as the caller does not have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TilingReply {
    /// Nothing changed since the version that the caller knows.
    Unchanged {
        /// That version.
        version: Version,
    },
    /// All of it (over a socket in pages, which [`crate::client::Md::tiling`] merges).
    All {
        /// Its version.
        version: Version,
        /// Generation of the object it belongs to.
        generation: u32,
        /// The cells at that version.
        cells: Coords,
        /// Its records by growing order.
        records: Vec<Record<Stored>>,
        /// Whether records with greater orders follow.
        more: bool,
    },
    /// All records in a box, or around it, of a tiling with many records (over a socket in pages, too).
    Part {
        /// The version of the tiling.
        version: Version,
        /// Generation of the object it belongs to.
        generation: u32,
        /// The cells at that version.
        cells: Coords,
        /// The box, which contains the requested cells.
        region: Region,
        /// The records by growing order.
        records: Vec<Record<Stored>>,
        /// Whether records with greater orders follow.
        more: bool,
    },
    /// Records added and dropped since the version that the caller knows.
    Changes {
        /// Its version.
        version: Version,
        /// New records by growing order.
        added: Vec<Record<Stored>>,
        /// Orders of records that are gone.
        dropped: Vec<u64>,
    },
}

/// What the pages of a tiling have in common.
pub(crate) struct TilingPage<'a> {
    pub(crate) version: Version,
    /// The box, of a part.
    pub(crate) region: Option<&'a Region>,
    pub(crate) records: &'a mut Vec<Record<Stored>>,
    pub(crate) more: &'a mut bool,
}

impl TilingReply {
    /// The caller's version once it has applied this.
    #[must_use]
    pub fn version(&self) -> Version {
        match self {
            Self::Unchanged { version }
            | Self::All { version, .. }
            | Self::Part { version, .. }
            | Self::Changes { version, .. } => *version,
        }
    }

    /// The records, if there may be more of them on other pages.
    pub(crate) fn page(&mut self) -> Option<TilingPage<'_>> {
        let (version, region, records, more) = match self {
            Self::All {
                version,
                records,
                more,
                ..
            } => (*version, None, records, more),
            Self::Part {
                version,
                region,
                records,
                more,
                ..
            } => (*version, Some(&*region), records, more),
            Self::Unchanged { .. } | Self::Changes { .. } => return None,
        };
        Some(TilingPage {
            version,
            region,
            records,
            more,
        })
    }

    /// Updates a tiling of the version named in the request to [`Self::version`]. After a part, the tiling has only
    /// the records of that part.
    ///
    /// # Errors
    /// If the reply does not fit the tiling: the request named another version, or the reply is bad.
    pub fn apply(self, tiling: &mut Tiling<Stored>) -> Result<(), TilingError> {
        match self {
            Self::Unchanged { .. } => {}
            Self::All { cells, records, .. } | Self::Part { cells, records, .. } => {
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
