//! The rules by which dtype, dims, max dims, fill, layout, codec and placement of an object may be set.
//!
//! [`SpecChange::resolve`] is the only place that knows them; it is pure, so a client can predict the service's
//! answer. In short: everything may be set while the object is empty, each property separately and in any order. Once
//! it has data, dims and dtype may be set once more if the number of bytes stays the same, and the data is then
//! rewritten in the new shape. Dims given before a dtype count elements of `u1` until the dtype is set, and stay
//! then. The placement may be set at any time: it applies to new chunks, not to existing ones.

use serde::{Deserialize, Serialize};
use slabfs_model::{
    Codec, Coords, Coupling, DType, Fill, Layout, MAX_RANK, MaxDim, Placement, format_dims,
    format_max_dims,
};
use thiserror::Error;

use super::info::ArrayInfo;

/// Largest chunk of a grid, in bytes; larger ones would make every read of a codec or a checksum log unwieldy.
/// `canonical` is not limited by it.
pub const MAX_GRID_CHUNK: u64 = 1 << 30;

/// What to set; `None` leaves a thing as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SpecChange {
    /// Element type.
    pub dtype: Option<DType>,
    /// Dims in elements.
    pub dims: Option<Coords>,
    /// Greatest dims.
    pub max_dims: Option<Vec<MaxDim>>,
    /// Text of the fill value, read with the dtype the object has afterwards.
    pub fill: Option<String>,
    /// Layout.
    pub layout: Option<Layout>,
    /// Codec of new chunks.
    pub codec: Option<Codec>,
    /// Placement of new chunks.
    pub placement: Option<Placement>,
    /// Coupling.
    pub couple: Option<Coupling>,
}

/// What a change requires of the object's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecPlan {
    /// Nothing changes at all.
    Nothing,
    /// Only the declaration changes; the data, if any, stays as it is stored.
    InPlace,
    /// The bytes stay the same, but have to be rewritten: see [`super::Rewrite`].
    Rewrite,
}

/// The outcome of a change that is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The object afterwards. Generation, stripe and tiling version are still the old ones.
    pub info: ArrayInfo,
    /// What that requires of the data.
    pub plan: SpecPlan,
}

/// Why a change of declaration or size is refused, and what is allowed instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// Too many axes.
    #[error("{rank} axes; at most {MAX_RANK} are possible")]
    TooManyAxes {
        /// How many were given.
        rank: usize,
    },
    /// Larger than the largest size.
    #[error("the object would have 2^63 bytes or more")]
    TooLarge,
    /// Another number of axes than the object has.
    #[error("{given} axes given, the object has {rank}")]
    Rank {
        /// Axes given.
        given: usize,
        /// Axes of the object.
        rank: usize,
    },
    /// Dims and max dims differ in rank.
    #[error("dims {dims} and max_dims {max} differ in their number of axes; set both together")]
    MaxRank {
        /// The dims, as text.
        dims: String,
        /// The greatest dims, as text.
        max: String,
    },
    /// A dim above its greatest.
    #[error("axis {axis} cannot have {dim} elements: its max dim is {max}")]
    AboveMax {
        /// The axis, from 0.
        axis: usize,
        /// Elements wanted.
        dim: u64,
        /// Elements allowed.
        max: u64,
    },
    /// Dims of an array with data.
    #[error(
        "the object has data and dims {dims}; `slabfs set --dims` (or the attribute \
         user.slabfs.resize) grows or shrinks it"
    )]
    HasDims {
        /// Its dims, as text.
        dims: String,
    },
    /// The existing bytes do not match the dims.
    #[error(
        "dims {dims} of {dtype} are {wanted} bytes, the object has {size}; set the dtype first or \
         together with the dims, or set them while the object is empty"
    )]
    Bytes {
        /// The dims wanted, as text.
        dims: String,
        /// The dtype, as text.
        dtype: String,
        /// Bytes they need.
        wanted: u64,
        /// Bytes there are.
        size: u64,
    },
    /// Bytes that are not a multiple of the element size.
    #[error("the object has {size} bytes, which is not a multiple of the size of {dtype}")]
    PartOfElement {
        /// Bytes there are.
        size: u64,
        /// The dtype wanted, as text.
        dtype: String,
    },
    /// A dtype of another size for an array with data.
    #[error("the object has data of {now}; only a dtype of the same size can replace it")]
    HasDtype {
        /// Its dtype, as text.
        now: String,
    },
    /// A fill value that was given for another dtype.
    #[error("the fill value was given for {now}; set fill together with dtype {dtype}")]
    FillOfOtherDtype {
        /// The dtype now, as text.
        now: String,
        /// The dtype wanted, as text.
        dtype: String,
    },
    /// A fill that cannot be read.
    #[error("fill: {0}")]
    Fill(String),
    /// A fill for plain bytes.
    #[error("a byte object's holes are zero; give it a dtype or dims to give it a fill value")]
    FillOfBytes,
    /// A grid whose chunk has another rank than the object.
    #[error("layout {layout} has {given} axes, the object has {rank}")]
    LayoutRank {
        /// The layout, as text.
        layout: String,
        /// Its axes.
        given: usize,
        /// Axes of the object.
        rank: usize,
    },
    /// A grid whose chunk is empty or too large.
    #[error(
        "a chunk of layout {layout} would have {bytes} bytes; 1 to {MAX_GRID_CHUNK} are possible"
    )]
    ChunkSize {
        /// The layout, as text.
        layout: String,
        /// Bytes of its chunk, at most `u64::MAX`.
        bytes: u64,
    },
    /// A codec on chunks that are written in place.
    #[error("codec {codec} needs layout aligned; chunks of layout {layout} are written in place")]
    CodecOfGrid {
        /// The codec, as text.
        codec: String,
        /// The layout, as text.
        layout: String,
    },
    /// A coupling of chunks that are written in place.
    #[error(
        "an object that is coupled in memory needs layout aligned, and this one has {layout}; couple it while it is \
         empty, or with keep=file"
    )]
    CoupleOfGrid {
        /// The layout, as text.
        layout: String,
    },
    /// Another coupling for data that is in memory.
    #[error(
        "the object has data, which may be in the memory of mounts; copy it to another one, or truncate it before its \
         coupling is changed to that"
    )]
    CoupledData,
    /// A codec with a level it does not have.
    #[error("codec {0} has a level that does not exist")]
    Codec(String),
    /// A size for an array of fixed dims.
    #[error(
        "the object has fixed dims and {size} bytes; it can be truncated to 0 (all fill) or to that \
         size"
    )]
    FixedSize {
        /// Its bytes.
        size: u64,
    },
    /// A size that ends inside a row.
    #[error("the object grows and shrinks by complete rows of {row} bytes")]
    PartOfRow {
        /// Bytes of a row.
        row: u64,
    },
    /// A write past the end of an object that does not grow.
    #[error("past the end: the object has fixed dims and {size} bytes")]
    PastEnd {
        /// Its bytes.
        size: u64,
    },
}

impl SpecChange {
    /// Whether nothing is to be set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The object after this change, or why the change is refused.
    ///
    /// # Errors
    /// Names what is allowed; no part of the change is applied.
    pub fn resolve(&self, now: &ArrayInfo) -> Result<Resolved, SpecError> {
        let empty = now.is_empty();
        let size = now.size()?;
        let mut new = now.clone();
        self.set_dtype(now, &mut new, empty, size)?;
        self.set_dims(now, &mut new, empty, size)?;
        let bytes = new.size()?;
        if !empty && bytes != size {
            return Err(SpecError::Bytes {
                dims: format_dims(&new.dims),
                dtype: new.dtype.to_string(),
                wanted: bytes,
                size,
            });
        }
        if let Some(couple) = &self.couple {
            new.couple = couple.clone();
        }
        if now.couple.is_in_memory() && !new.couple.is_in_memory() && now.holds {
            return Err(SpecError::CoupledData);
        }
        self.set_layout(now, &mut new)?;
        self.set_fill(now, &mut new)?;
        if let Some(placement) = self.placement {
            new.placement = placement;
        }
        let plan = plan(now, &new, empty);
        Ok(Resolved { info: new, plan })
    }

    fn set_dtype(
        &self,
        now: &ArrayInfo,
        new: &mut ArrayInfo,
        empty: bool,
        size: u64,
    ) -> Result<(), SpecError> {
        let Some(dtype) = &self.dtype else {
            return Ok(());
        };
        new.dtype = *dtype;
        new.given.dtype = true;
        new.declared = true;
        if empty || dtype.size() == now.dtype.size() || self.dims.is_some() {
            return Ok(());
        }
        if now.given.dims {
            return Err(SpecError::HasDtype {
                now: now.dtype.to_string(),
            });
        }
        if !size.is_multiple_of(dtype.size()) {
            return Err(SpecError::PartOfElement {
                size,
                dtype: dtype.to_string(),
            });
        }
        new.dims = Coords::from_slice(&[size / dtype.size()]);
        Ok(())
    }

    fn set_dims(
        &self,
        now: &ArrayInfo,
        new: &mut ArrayInfo,
        empty: bool,
        size: u64,
    ) -> Result<(), SpecError> {
        if let Some(max) = &self.max_dims {
            too_many(max.len())?;
            new.max_dims = max.clone();
            new.given.max_dims = true;
            new.declared = true;
            if empty && !now.given.dims && self.dims.is_none() {
                new.dims = max
                    .iter()
                    .map(|max| match max {
                        MaxDim::Fixed(dim) => *dim,
                        MaxDim::Unlimited => 0,
                    })
                    .collect();
            }
        }
        if let Some(dims) = &self.dims {
            too_many(dims.len())?;
            let same = *dims == now.dims && new.dtype.size() == now.dtype.size();
            if !empty && now.given.dims && !same {
                return Err(SpecError::HasDims {
                    dims: format_dims(&now.dims),
                });
            }
            new.dims = dims.clone();
            new.given.dims = true;
            new.declared = true;
            if !new.given.max_dims {
                new.max_dims = dims.iter().map(|&dim| MaxDim::Fixed(dim)).collect();
            }
        }
        debug_assert!(empty || size > 0 || now.holds);
        if new.max_dims.len() != new.dims.len() {
            return Err(SpecError::MaxRank {
                dims: format_dims(&new.dims),
                max: format_max_dims(&new.max_dims),
            });
        }
        new.check_dims(&new.dims)
    }

    fn set_layout(&self, now: &ArrayInfo, new: &mut ArrayInfo) -> Result<(), SpecError> {
        if let Some(codec) = self.codec {
            if !codec.is_valid() {
                return Err(SpecError::Codec(codec.to_string()));
            }
            new.codec = codec;
        }
        if let Some(layout) = &self.layout {
            new.layout = layout.clone();
            new.given.layout = true;
        } else if !new.given.layout
            && (new.declared && !now.declared
                || !new.codec.is_none() && !new.declared
                || new.couple.is_in_memory() && !now.holds)
        {
            new.layout = Layout::Aligned;
        }
        if new.couple.is_in_memory() && new.layout != Layout::Aligned {
            return Err(SpecError::CoupleOfGrid {
                layout: new.layout.to_string(),
            });
        }
        if let Layout::Grid(chunk) = &new.layout
            && chunk.len() != new.dims.len()
        {
            return Err(SpecError::LayoutRank {
                layout: new.layout.to_string(),
                given: chunk.len(),
                rank: new.dims.len(),
            });
        }
        check_chunk(&new.layout, new.dtype.size())?;
        check_codec(&new.layout, new.codec)
    }

    fn set_fill(&self, now: &ArrayInfo, new: &mut ArrayInfo) -> Result<(), SpecError> {
        if let Some(text) = &self.fill {
            let fill = Fill::parse(text, &new.dtype)
                .map_err(|error| SpecError::Fill(error.to_string()))?;
            if !new.declared && !fill.is_zero() {
                return Err(SpecError::FillOfBytes);
            }
            new.fill = fill;
        } else if self.dtype.is_some() && new.dtype != now.dtype {
            if !now.fill.is_zero() {
                return Err(SpecError::FillOfOtherDtype {
                    now: now.dtype.to_string(),
                    dtype: new.dtype.to_string(),
                });
            }
            new.fill = Fill::zero();
        }
        Ok(())
    }
}

/// What the step from `now` to `new` requires of the data.
fn plan(now: &ArrayInfo, new: &ArrayInfo, empty: bool) -> SpecPlan {
    if now == new {
        return SpecPlan::Nothing;
    }
    let same_fill = now.fill == new.fill || now.fill.is_zero() && new.fill.is_zero();
    let same_place = now.dims == new.dims
        && now.dtype.size() == new.dtype.size()
        && now.layout == new.layout
        && same_fill;
    if empty || same_place {
        SpecPlan::InPlace
    } else {
        SpecPlan::Rewrite
    }
}

/// Checks the chunk of a grid, with elements of `elem` bytes.
pub(crate) fn check_chunk(layout: &Layout, elem: u64) -> Result<(), SpecError> {
    if let Layout::Grid(chunk) = layout {
        let bytes = chunk.iter().fold(elem, |bytes, &n| bytes.saturating_mul(n));
        if bytes == 0 || bytes > MAX_GRID_CHUNK {
            let layout = layout.to_string();
            return Err(SpecError::ChunkSize { layout, bytes });
        }
    }
    Ok(())
}

/// Refuses a codec on chunks that are written in place.
pub(super) fn check_codec(layout: &Layout, codec: Codec) -> Result<(), SpecError> {
    if !matches!(layout, Layout::Aligned) && !codec.is_none() {
        let (codec, layout) = (codec.to_string(), layout.to_string());
        return Err(SpecError::CodecOfGrid { codec, layout });
    }
    Ok(())
}

fn too_many(rank: usize) -> Result<(), SpecError> {
    if rank > MAX_RANK {
        Err(SpecError::TooManyAxes { rank })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
