//! The defaults of a container for objects created in it, and the rule by which they are inherited.
//!
//! Defaults apply where nothing else is given. An explicit setting always wins, and a default that does not fit (a
//! grid of two axes for an array of three, a codec for a grid) is omitted rather than refused: [`inherit`] is the
//! only place that knows how. dtype and fill make an object an array, so they apply only once it is declared as one;
//! a file that is only written stays a byte object.

use serde::{Deserialize, Serialize};
use slabfs_model::{Codec, Fill, Layout, Tag, check_tag_key};

use super::MdError;
use super::bounded;
use super::info::ArrayInfo;
use super::spec::{Resolved, SpecChange, SpecError, SpecPlan, check_chunk, check_codec};

/// Most bytes of a container's tags for new objects: all of them are written with every object.
pub const MAX_DEFAULT_TAGS: usize = 8 << 10;

/// The defaults of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Defaults {
    /// Properties; dims and max dims are never among them.
    pub spec: SpecChange,
    /// Tags, by key.
    #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_FIRST_TAGS }>")]
    pub tags: Vec<(String, Tag)>,
}

/// A change of a container's defaults: first some are cleared, then some are set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DefaultsChange {
    /// The defaults to clear; a missing one is no error.
    #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_FIRST_TAGS }>")]
    pub clear: Vec<DefaultKey>,
    /// The defaults to set.
    pub set: Defaults,
}

/// One of the defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DefaultKey {
    /// All of them.
    All,
    /// The element type.
    Dtype,
    /// The fill value.
    Fill,
    /// The layout.
    Layout,
    /// The codec.
    Codec,
    /// The placement.
    Placement,
    /// The coupling.
    Couple,
    /// All tags.
    Tags,
    /// One tag.
    Tag(String),
}

impl Defaults {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spec.is_empty() && self.tags.is_empty()
    }

    /// These defaults after a change.
    ///
    /// # Errors
    /// [`MdError::Invalid`]: a property that cannot be a default, or conflicting ones.
    pub fn changed(&self, change: &DefaultsChange) -> Result<Self, MdError> {
        let mut new = self.clone();
        for key in &change.clear {
            new.clear(key);
        }
        let DefaultsChange { set, .. } = change;
        if set.spec.dims.is_some() || set.spec.max_dims.is_some() {
            return Err(MdError::Invalid(
                "dims cannot be a default: every array has its own".to_owned(),
            ));
        }
        new.spec = set.spec.or(&new.spec);
        for (key, tag) in &set.tags {
            match new.tags.binary_search_by(|(there, _)| there.cmp(key)) {
                Ok(at) => new.tags[at].1 = tag.clone(),
                Err(at) => new.tags.insert(at, (key.clone(), tag.clone())),
            }
        }
        new.check()?;
        Ok(new)
    }

    fn clear(&mut self, key: &DefaultKey) {
        let spec = &mut self.spec;
        match key {
            DefaultKey::All => *self = Self::default(),
            DefaultKey::Dtype => spec.dtype = None,
            DefaultKey::Fill => spec.fill = None,
            DefaultKey::Layout => spec.layout = None,
            DefaultKey::Codec => spec.codec = None,
            DefaultKey::Placement => spec.placement = None,
            DefaultKey::Couple => spec.couple = None,
            DefaultKey::Tags => self.tags.clear(),
            DefaultKey::Tag(key) => self.tags.retain(|(there, _)| there != key),
        }
    }

    fn check(&self) -> Result<(), MdError> {
        let SpecChange {
            dtype,
            fill,
            layout,
            codec,
            ..
        } = &self.spec;
        if let (Some(dtype), Some(fill)) = (dtype, fill) {
            Fill::parse(fill, dtype).map_err(|error| {
                MdError::Invalid(format!(
                    "fill: {error}; set or clear dtype and fill together"
                ))
            })?;
        }
        let codec = codec.unwrap_or(Codec::None);
        if !codec.is_valid() {
            return Err(SpecError::Codec(codec.to_string()).into());
        }
        if let Some(layout) = layout {
            check_codec(layout, codec)?;
            check_chunk(layout, 1)?;
        }
        let mut size = 0;
        for (key, tag) in &self.tags {
            let wrong = |why: String| MdError::Invalid(format!("default tag {key}: {why}"));
            check_tag_key(key).map_err(|error| wrong(error.to_string()))?;
            tag.check().map_err(|error| wrong(error.to_string()))?;
            size += key.len() + tag.bytes.len();
        }
        if size > MAX_DEFAULT_TAGS {
            return Err(MdError::Invalid(format!(
                "the default tags of a container have at most {MAX_DEFAULT_TAGS} bytes; these have {size}"
            )));
        }
        Ok(())
    }
}

impl SpecChange {
    /// This change, completed from `other` where this one sets nothing.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        // Destructured, so that adding a field fails to compile here.
        let Self {
            dtype,
            dims,
            max_dims,
            fill,
            layout,
            codec,
            placement,
            couple,
        } = self.clone();
        Self {
            dtype: dtype.or(other.dtype),
            dims: dims.or_else(|| other.dims.clone()),
            max_dims: max_dims.or_else(|| other.max_dims.clone()),
            fill: fill.or_else(|| other.fill.clone()),
            layout: layout.or_else(|| other.layout.clone()),
            codec: codec.or(other.codec),
            placement: placement.or(other.placement),
            couple: couple.or_else(|| other.couple.clone()),
        }
    }

    /// The parts of this change that `other` does not set.
    #[must_use]
    fn without(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.dtype.take_if(|_| other.dtype.is_some());
        left.fill.take_if(|_| other.fill.is_some());
        left.layout.take_if(|_| other.layout.is_some());
        left.codec.take_if(|_| other.codec.is_some());
        left.placement.take_if(|_| other.placement.is_some());
        left.couple.take_if(|_| other.couple.is_some());
        left
    }

    /// Whether it makes an array of the object it is applied to.
    fn declares(&self) -> bool {
        self.dtype.is_some() || self.dims.is_some() || self.max_dims.is_some()
    }
}

/// The result of `change` on `now`, an object that was created where `inherited` were the defaults and that is still
/// empty and undeclared; and the defaults that remain pending if it stays undeclared. `fresh` is the layout of a new
/// object without defaults.
///
/// # Errors
/// Those of [`SpecChange::resolve`] that the change itself causes.
pub fn inherit(
    inherited: &SpecChange,
    change: &SpecChange,
    now: &ArrayInfo,
    fresh: &Layout,
) -> Result<(Resolved, Option<SpecChange>), SpecError> {
    // The defaults inherited so far are reconsidered together with the change.
    let mut base = now.clone();
    if !base.given.layout {
        base.layout = fresh.clone();
    }
    if inherited.codec.is_some() {
        base.codec = Codec::None;
    }
    let declares = change.declares();
    let mut usable = inherited.without(change);
    if !declares {
        usable.dtype = None;
        usable.fill = None;
    }
    let mut info = loop {
        let error = match change.or(&usable).resolve(&base) {
            Ok(resolved) => break resolved.info,
            Err(error) => error,
        };
        let dropped = match &error {
            SpecError::Fill(_) | SpecError::FillOfBytes | SpecError::FillOfOtherDtype { .. } => {
                usable.fill.take().is_some()
            }
            SpecError::LayoutRank { .. } | SpecError::ChunkSize { .. } => {
                usable.layout.take().is_some()
            }
            SpecError::CoupleOfGrid { .. } => {
                usable.layout.take().is_some() || usable.couple.take().is_some()
            }
            SpecError::CodecOfGrid { .. } => {
                usable.codec.take().is_some() || usable.layout.take().is_some()
            }
            _ => false,
        };
        if !dropped {
            return Err(error);
        }
    };
    if !info.declared {
        info.given.layout = now.given.layout || change.layout.is_some();
    }
    let waits = (!info.declared).then(|| inherited.without(change));
    let plan = if info == *now {
        SpecPlan::Nothing
    } else {
        SpecPlan::InPlace
    };
    Ok((
        Resolved { info, plan },
        waits.filter(|waits| !waits.is_empty()),
    ))
}

#[cfg(test)]
mod tests;
