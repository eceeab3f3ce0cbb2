//! The description of an object to create.

use slabfs_mdserver::api::SpecChange;
use slabfs_model::{Codec, DType, Layout, MaxDim, Placement, Tag};

use super::error::Error;
use super::stat::Stat;
use crate::view::attributes::put_text;
use crate::view::describe;
use crate::view::like::like;

/// The description of an object to create; properties that are not set come from its container's defaults.
///
/// ```
/// use slabfs_fs::session::{DType, ObjectSpec, Tag};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let typed = ObjectSpec::array([0, 1000], "f8".parse::<DType>()?);
/// let texts = typed.with("max_dims", "unlimited,1000")?.with("fill", "nan")?;
/// let tagged = texts.tag("project", Tag::text("climate"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObjectSpec {
    pub(super) change: SpecChange,
    pub(super) tags: Vec<(String, Tag)>,
    pub(super) mode: Option<u32>,
}

impl ObjectSpec {
    /// A byte object, unless the container's defaults or later calls change that.
    pub fn new() -> ObjectSpec {
        ObjectSpec::default()
    }

    /// An array of these dims.
    pub fn array(dims: impl AsRef<[u64]>, dtype: DType) -> ObjectSpec {
        ObjectSpec::new().dims(dims).dtype(dtype)
    }

    /// Number of elements per axis, slowest first.
    #[must_use]
    pub fn dims(mut self, dims: impl AsRef<[u64]>) -> ObjectSpec {
        self.change.dims = Some(dims.as_ref().into());
        self
    }

    /// The dtype.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> ObjectSpec {
        self.change.dtype = Some(dtype);
        self
    }

    /// The maximum length of each axis; its length by default.
    #[must_use]
    pub fn max_dims(mut self, limits: impl Into<Vec<MaxDim>>) -> ObjectSpec {
        self.change.max_dims = Some(limits.into());
        self
    }

    /// The value of elements that were never written, as text: `0`, `1.5`, `nan`, or its bytes as `0x…`.
    #[must_use]
    pub fn fill(mut self, text: impl Into<String>) -> ObjectSpec {
        self.change.fill = Some(text.into());
        self
    }

    /// The layout of its chunks.
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> ObjectSpec {
        self.change.layout = Some(layout);
        self
    }

    /// The encoding of its chunks.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> ObjectSpec {
        self.change.codec = Some(codec);
        self
    }

    /// The placement of written data on data servers.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> ObjectSpec {
        self.change.placement = Some(placement);
        self
    }

    /// A tag.
    #[must_use]
    pub fn tag(mut self, key: impl Into<String>, tag: Tag) -> ObjectSpec {
        self.tags.push((key.into(), tag));
        self
    }

    /// Permission bits; by default 666 (octal) without the umask.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> ObjectSpec {
        self.mode = Some(mode & 0o7777);
        self
    }

    /// Sets a property by its name and its text, as `slabfs create` takes them: `dims`, `dtype`, `max_dims`, `fill`,
    /// `layout`, `codec`, `placement`.
    ///
    /// # Errors
    /// `Invalid`: there is no such property, or the text is not a value of it.
    pub fn with(mut self, property: &str, text: &str) -> Result<ObjectSpec, Error> {
        put_text(property, text, &mut self.change).map_err(Error::invalid)?;
        Ok(self)
    }

    /// Takes properties that are not set here from another object; neither its data nor its tags. Properties that
    /// contradict those set here are left out, such as limits below the dims, or a codec with a grid.
    ///
    /// # Errors
    /// `Invalid` if the other object is not an array.
    pub fn like(mut self, other: &Stat) -> Result<ObjectSpec, Error> {
        let Some(info) = other.info.as_ref().filter(|info| info.declared) else {
            return Err(Error::invalid(
                "the object to copy the form from is no array; give one, or dims and dtype",
            ));
        };
        self.change = like(self.change, describe::spec(info));
        Ok(self)
    }
}
