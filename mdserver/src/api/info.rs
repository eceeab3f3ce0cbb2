//! What the service knows of an object as an array, and the size rules that follow from it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use slabfs_model::{
    Codec, Coords, Coupling, DType, Fill, Layout, MaxDim, Placement, ServerId, Space, Version,
};

use super::spec::SpecError;

/// Which parts of a declaration the user gave, in contrast to defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Given {
    /// The element type.
    pub dtype: bool,
    /// The dims.
    pub dims: bool,
    /// The greatest dims.
    pub max_dims: bool,
    /// The layout.
    pub layout: bool,
}

/// An object as an array. `dims` and `max_dims` count elements and have the same rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayInfo {
    /// Element type; `u1` of a byte object.
    pub dtype: DType,
    /// Elements an axis, slowest first.
    pub dims: Coords,
    /// How far each axis may grow.
    pub max_dims: Vec<MaxDim>,
    /// The element that holes read as.
    pub fill: Fill,
    /// How the object is cut into chunks.
    pub layout: Layout,
    /// How new chunks are encoded.
    pub codec: Codec,
    /// Whether it was given a dtype, dims or max dims; otherwise it is a byte object.
    pub declared: bool,
    /// What of it the user gave.
    pub given: Given,
    /// Whether data was committed since it was created or last emptied.
    pub holds: bool,
    /// Generation of its grid chunks and of its tiling; grows when the object is emptied.
    pub generation: u32,
    /// Which data server gets the chunks that are written next.
    pub placement: Placement,
    /// The data servers that its placement chose: all servers its grid chunks are spread over, the one of placement
    /// `object`, the one of each block of placement `region`. Empty if no server was known.
    pub stripe: Vec<ServerId>,
    /// Of a grid of placement `region`: the extents ([`ArrayInfo::extents`]) by which its chunks were
    /// spread when the stripe was chosen. They stay as they are when the dims change.
    pub blocks: Option<Coords>,
    /// Grows with every commit that changes the tiling, and with every clip.
    pub tiling: Version,
    /// Largest chunk of the `aligned` layout, in bytes.
    pub chunk_limit: u64,
    /// Whether programs exchange its data as it is written, and how.
    pub couple: Coupling,
}

/// An [`ArrayInfo`] that is shared until it is modified (copy on write): the service's copies, its replies in this
/// process and the mount's copy are one allocation, and so are those of new files, which are all alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedInfo(Arc<ArrayInfo>);

impl From<ArrayInfo> for SharedInfo {
    fn from(info: ArrayInfo) -> Self {
        Self(Arc::new(info))
    }
}

impl From<SharedInfo> for ArrayInfo {
    fn from(shared: SharedInfo) -> Self {
        Arc::unwrap_or_clone(shared.0)
    }
}

impl Deref for SharedInfo {
    type Target = ArrayInfo;
    fn deref(&self) -> &ArrayInfo {
        &self.0
    }
}

/// Modifying it makes a private copy.
impl DerefMut for SharedInfo {
    fn deref_mut(&mut self) -> &mut ArrayInfo {
        Arc::make_mut(&mut self.0)
    }
}

impl Serialize for SharedInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SharedInfo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ArrayInfo::deserialize(deserializer).map(Self::from)
    }
}

/// The effect of setting an object's size to a number of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Truncate {
    /// None: it has that size.
    Nothing,
    /// It is emptied ([`super::op::Clear`]).
    Clear,
    /// It gets these dims ([`super::op::Resize`]).
    Dims(Coords),
}

impl ArrayInfo {
    /// The dims in elements with the element size.
    #[must_use]
    pub fn space(&self) -> Space {
        Space::new(&self.dims, self.dtype.size())
    }

    /// The space as cells: the last axis in bytes, a scalar as one axis of its element's size.
    ///
    /// # Errors
    /// When a product leaves the range of sizes.
    pub fn cells(&self) -> Result<Coords, SpecError> {
        self.space().cells().map_err(|_| SpecError::TooLarge)
    }

    /// Size in bytes.
    ///
    /// # Errors
    /// When the product leaves the range of sizes.
    pub fn size(&self) -> Result<u64, SpecError> {
        self.size_with(&self.dims)
    }

    /// Size in bytes if it had these dims.
    fn size_with(&self, dims: &[u64]) -> Result<u64, SpecError> {
        let space = Space::new(dims, self.dtype.size());
        space.bytes().map_err(|_| SpecError::TooLarge)
    }

    /// Whether writes past the end grow the object along its slowest axis.
    #[must_use]
    pub fn unlimited_rows(&self) -> bool {
        matches!(self.max_dims.first(), Some(MaxDim::Unlimited))
    }

    /// Bytes of one step along the slowest axis; for a scalar, its size.
    ///
    /// # Errors
    /// When the product leaves the range of sizes.
    pub fn row_bytes(&self) -> Result<u64, SpecError> {
        let mut bytes = self.dtype.size();
        for &dim in self.dims.iter().skip(1) {
            bytes = bytes.checked_mul(dim).ok_or(SpecError::TooLarge)?;
        }
        Ok(bytes)
    }

    /// Elements along each axis by which placement `region` cuts the array: its greatest dims, so that the cut does
    /// not move when the array grows; 0 (no cut) along an axis without a limit, if another axis can be cut.
    #[must_use]
    pub fn extents(&self) -> Coords {
        let axes = self.max_dims.iter().zip(&self.dims);
        let extents: Coords = axes
            .map(|(max, _)| match max {
                MaxDim::Fixed(max) => *max,
                MaxDim::Unlimited => 0,
            })
            .collect();
        if extents.iter().all(|&extent| extent <= 1) {
            return self.dims.clone();
        }
        extents
    }

    /// Whether chunks have one fixed shape and are written in place.
    #[must_use]
    pub fn is_grid(&self) -> bool {
        !matches!(self.layout, Layout::Aligned)
    }

    /// Whether it never contained data (a byte object of any size other than 0 is not empty).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.holds && (self.declared || self.dims.first() == Some(&0))
    }

    /// The dims that hold at least `bytes`: complete rows are added along an unlimited slowest axis. `None` if the
    /// bytes fit already.
    ///
    /// # Errors
    /// [`SpecError::PastEnd`] when the object cannot grow that way.
    pub fn grown_to(&self, bytes: u64) -> Result<Option<Coords>, SpecError> {
        let size = self.size()?;
        if bytes <= size {
            return Ok(None);
        }
        let row = self.row_bytes()?;
        if !self.unlimited_rows() || row == 0 {
            return Err(SpecError::PastEnd { size });
        }
        let mut dims = self.dims.clone();
        dims[0] = bytes.div_ceil(row);
        self.size_with(&dims)?;
        Ok(Some(dims))
    }

    /// The effect of `truncate(2)` to `bytes` on this object: fixed dims can be emptied (0) or left as they are; an
    /// unlimited slowest axis takes complete rows; a byte object any size.
    ///
    /// # Errors
    /// [`SpecError::FixedSize`] or [`SpecError::PartOfRow`].
    pub fn truncate(&self, bytes: u64) -> Result<Truncate, SpecError> {
        let size = self.size()?;
        if bytes == 0 && (size > 0 || self.holds) {
            return Ok(Truncate::Clear);
        }
        if bytes == size {
            return Ok(Truncate::Nothing);
        }
        let row = self.row_bytes()?;
        if !self.unlimited_rows() || row == 0 {
            return Err(SpecError::FixedSize { size });
        }
        if !bytes.is_multiple_of(row) {
            return Err(SpecError::PartOfRow { row });
        }
        let mut dims = self.dims.clone();
        dims[0] = bytes / row;
        self.size_with(&dims)?;
        Ok(Truncate::Dims(dims))
    }

    /// Checks new dims: same rank, none above its greatest dim.
    ///
    /// # Errors
    /// Names the axis and what is allowed.
    pub fn check_dims(&self, dims: &[u64]) -> Result<(), SpecError> {
        if dims.len() != self.dims.len() {
            return Err(SpecError::Rank {
                given: dims.len(),
                rank: self.dims.len(),
            });
        }
        for (axis, (&dim, max)) in dims.iter().zip(&self.max_dims).enumerate() {
            if let MaxDim::Fixed(max) = *max
                && dim > max
            {
                return Err(SpecError::AboveMax { axis, dim, max });
            }
        }
        self.size_with(dims).map(drop)
    }
}
