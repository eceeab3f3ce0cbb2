//! The extended attributes `user.slabfs.*`: their values on an object, and the changes that setting them requests.
//!
//! | name | read | set | listed |
//! |---|---|---|---|
//! | `dtype`, `dims`, `max_dims`, `fill` | text | declares | no |
//! | `layout`, `codec` | text | declares | on byte objects that were given them |
//! | `placement` | text | any time, for data written later | no |
//! | `couple` | text | in memory while the object is empty, `keep=file` and `off` any time | no |
//! | `spec` | JSON object of the seven above | declares all of them at once | on arrays |
//! | `resize` | no | dims text: `slabfs set --dims` | no |
//! | `info` | JSON, see [`super::describe`] | no | no |
//! | `chunks`, `version` | number | no | no |
//!
//! Of an array only `spec` is listed, so that a tool that copies attributes one by one (`cp -a`, `rsync -X`, in any
//! order) makes the copy an array in one step: dims set before the dtype would be refused. Byte objects without a
//! given layout or codec list none of these, so plain files are copied as plain files.
//!
//! Attributes of directories are in [`super::defaults`]. The metadata service stores other `user.*` and `trusted.*`
//! attributes unchanged. `security.*` attributes never exist, and neither they nor `system.*` (ACLs) can be set: a disk
//! filesystem mounted without them gives the same answers, which every tool knows. The rules for changes are in
//! `SpecChange::resolve`, not here.

use serde_json::{Map, Value};
use slabfs_mdserver::api::{ArrayInfo, Attr, SpecChange};
use slabfs_model::{
    Codec, Coords, Coupling, DType, Layout, MaxDim, Placement, format_dims, format_max_dims,
    parse_dims, parse_max_dims,
};
use thiserror::Error;

use super::defaults::{self, DefaultAttribute};
use super::describe;

const PREFIX: &[u8] = b"user.slabfs.";

/// An attribute of slabfs's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute {
    /// The element type.
    Dtype,
    /// Elements per axis.
    Dims,
    /// How far each axis may grow.
    MaxDims,
    /// The element that unwritten parts read as.
    Fill,
    /// How the object is cut into chunks.
    Layout,
    /// How chunks are encoded.
    Codec,
    /// The rule that chooses the data server for new data.
    Placement,
    /// Whether programs exchange its data as it is written, and how.
    Couple,
    /// All of those but the coupling, as JSON.
    Spec,
    /// Grows or shrinks an array that has data.
    Resize,
    /// Everything about the object, as JSON.
    Info,
    /// The number of its chunks.
    Chunks,
    /// A number that grows with every change.
    Version,
}

const TABLE: [(&str, Attribute); 13] = [
    ("dtype", Attribute::Dtype),
    ("dims", Attribute::Dims),
    ("max_dims", Attribute::MaxDims),
    ("fill", Attribute::Fill),
    ("layout", Attribute::Layout),
    ("codec", Attribute::Codec),
    ("placement", Attribute::Placement),
    ("couple", Attribute::Couple),
    ("spec", Attribute::Spec),
    ("resize", Attribute::Resize),
    ("info", Attribute::Info),
    ("chunks", Attribute::Chunks),
    ("version", Attribute::Version),
];

/// Who defines an attribute, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// An attribute of slabfs, of objects.
    Slabfs(Attribute),
    /// An attribute of slabfs, of containers.
    Default(DefaultAttribute),
    /// In slabfs's namespace, but there is no such attribute.
    Unknown,
    /// A user's attribute: the metadata service stores it.
    Stored,
    /// `security.*`: never exists, cannot be set.
    Security,
    /// `system.*`, or an unknown namespace: not supported.
    Foreign,
}

/// The change that setting an attribute requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Declare the object, or more of it.
    Declare(SpecChange),
    /// Give an array other dims.
    Resize(Coords),
}

/// Why a value cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AttributeError {
    /// There is no such attribute.
    #[error("\"{name}\" is no attribute of slabfs; there are {}", names())]
    Unknown {
        /// The name that was given.
        name: String,
    },
    /// The attribute is read-only.
    #[error("user.slabfs.{0} can be read but not set")]
    ReadOnly(&'static str),
    /// The value is malformed.
    #[error("user.slabfs.{name}: {reason}")]
    Malformed {
        /// The attribute.
        name: &'static str,
        /// What is wrong with the value.
        reason: String,
    },
}

/// Classifies the name of an attribute.
pub fn owner(name: &[u8]) -> Owner {
    if let Some(default) = defaults::attribute(name) {
        return Owner::Default(default);
    }
    if let Some(short) = name.strip_prefix(PREFIX) {
        return TABLE
            .iter()
            .find(|(known, _)| known.as_bytes() == short)
            .map_or(Owner::Unknown, |&(_, attribute)| Owner::Slabfs(attribute));
    }
    if name.starts_with(b"user.") || name.starts_with(b"trusted.") {
        Owner::Stored
    } else if name.starts_with(b"security.") {
        Owner::Security
    } else {
        Owner::Foreign
    }
}

/// The names that the listing of an object shows before the user's own.
pub fn listed(info: &ArrayInfo) -> Vec<&'static str> {
    if info.declared {
        return vec!["user.slabfs.spec"];
    }
    let mut names = Vec::new();
    if info.given.layout {
        names.push("user.slabfs.layout");
    }
    if info.codec != Codec::None {
        names.push("user.slabfs.codec");
    }
    names
}

/// The names that the listing of a selection shows: those that make a copy of its bytes an array again.
pub const LISTED_OF_SELECTION: [&str; 1] = ["user.slabfs.spec"];

impl Attribute {
    /// The name behind `user.slabfs.`.
    pub fn name(self) -> &'static str {
        TABLE
            .iter()
            .find(|&&(_, attribute)| attribute == self)
            .map_or("", |&(name, _)| name)
    }

    /// Whether reading it needs the number of the object's chunks.
    pub fn needs_chunks(self) -> bool {
        matches!(self, Attribute::Info | Attribute::Chunks)
    }

    /// Its value on an object of `chunks` chunks (used only where [`Attribute::needs_chunks`]); `None` for an
    /// attribute that can only be set.
    pub fn read(self, attr: &Attr, info: &ArrayInfo, chunks: u64) -> Option<Vec<u8>> {
        let text = match self {
            Attribute::Dtype => info.dtype.to_string(),
            Attribute::Dims => format_dims(&info.dims),
            Attribute::MaxDims => format_max_dims(&info.max_dims),
            Attribute::Fill => describe::fill(info),
            Attribute::Layout => info.layout.to_string(),
            Attribute::Codec => info.codec.to_string(),
            Attribute::Placement => info.placement.to_string(),
            Attribute::Couple => info.couple.to_string(),
            Attribute::Spec => spec_text(info),
            Attribute::Info => describe::object(attr, info, chunks).to_string(),
            Attribute::Chunks => chunks.to_string(),
            Attribute::Version => attr.change.to_string(),
            Attribute::Resize => return None,
        };
        Some(text.into_bytes())
    }

    /// Its value on a selection of these dims; `None` unless it describes the selected bytes.
    pub fn read_selection(self, info: &ArrayInfo, dims: &[u64]) -> Option<Vec<u8>> {
        match self {
            Attribute::Dtype => Some(info.dtype.to_string().into_bytes()),
            Attribute::Dims => Some(format_dims(dims).into_bytes()),
            Attribute::Spec => {
                let part = ArrayInfo {
                    dims: Coords::from_slice(dims),
                    max_dims: dims.iter().map(|&dim| MaxDim::Fixed(dim)).collect(),
                    layout: Layout::Aligned,
                    ..info.clone()
                };
                Some(spec_text(&part).into_bytes())
            }
            _ => None,
        }
    }

    /// The change that setting it to `value` requests.
    pub fn set(self, value: &[u8]) -> Result<Change, AttributeError> {
        let name = self.name();
        let malformed = |reason: String| AttributeError::Malformed { name, reason };
        let text = std::str::from_utf8(value)
            .map_err(|_| malformed("the value must be text".to_string()))?
            .trim_end_matches(['\0', '\n']);
        match self {
            Attribute::Info | Attribute::Chunks | Attribute::Version => {
                Err(AttributeError::ReadOnly(name))
            }
            Attribute::Resize => parse_dims(text)
                .map(Change::Resize)
                .map_err(|error| malformed(error.to_string())),
            Attribute::Spec => parse_spec(text).map(Change::Declare).map_err(malformed),
            one => {
                let mut change = SpecChange::default();
                one.put(text, &mut change).map_err(malformed)?;
                Ok(Change::Declare(change))
            }
        }
    }

    /// Parses the text of one of the seven fields into a change.
    ///
    /// # Errors
    /// As text: it is no such field, or the text cannot be its value.
    pub fn put(self, text: &str, change: &mut SpecChange) -> Result<(), String> {
        match self {
            Attribute::Dtype => change.dtype = Some(parse::<DType>(text)?),
            Attribute::Dims => change.dims = Some(parse_dims(text).map_err(|e| e.to_string())?),
            Attribute::MaxDims => {
                change.max_dims = Some(parse_max_dims(text).map_err(|e| e.to_string())?);
            }
            Attribute::Fill => change.fill = Some(text.to_string()),
            Attribute::Layout => change.layout = Some(parse::<Layout>(text)?),
            Attribute::Codec => change.codec = Some(parse::<Codec>(text)?),
            Attribute::Placement => change.placement = Some(parse::<Placement>(text)?),
            Attribute::Couple => change.couple = Some(parse::<Coupling>(text)?),
            other => return Err(format!("\"{}\" is no part of a spec", other.name())),
        }
        Ok(())
    }
}

fn parse<T: std::str::FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.trim()
        .parse()
        .map_err(|error: T::Err| error.to_string())
}

/// Parses `{"dtype": "f4", "dims": [16, 16], ...}`; each value is the attribute's text, or the equivalent JSON.
fn parse_spec(text: &str) -> Result<SpecChange, String> {
    let map: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        format!("a spec is a JSON object, e.g. {{\"dtype\":\"f4\",\"dims\":\"16,16\"}}: {error}")
    })?;
    spec_of_json(&map)
}

/// The change declared by a map from names of attributes to their texts, or to the equivalent JSON.
///
/// # Errors
/// As text: the unknown key, or the key with an invalid value.
pub fn spec_of_json(map: &Map<String, Value>) -> Result<SpecChange, String> {
    let mut change = SpecChange::default();
    for (key, value) in map {
        let attribute = named(key)?;
        match json_text(value).ok_or_else(|| format!("\"{key}\": {value} cannot be its value"))? {
            Given::Nothing => {}
            Given::NoAxes if attribute == Attribute::Dims => change.dims = Some(Coords::new()),
            Given::NoAxes if attribute == Attribute::MaxDims => {
                change.max_dims = Some(Vec::<MaxDim>::new())
            }
            Given::NoAxes => return Err(format!("\"{key}\": [] cannot be its value")),
            Given::Text(text) => attribute
                .put(&text, &mut change)
                .map_err(|reason| format!("\"{key}\": {reason}"))?,
        }
    }
    Ok(change)
}

/// Parses the text of one declaring attribute into a change.
///
/// # Errors
/// As text: there is no such attribute, or the text cannot be its value.
pub fn put_text(key: &str, text: &str, change: &mut SpecChange) -> Result<(), String> {
    named(key)?
        .put(text, change)
        .map_err(|reason| format!("\"{key}\": {reason}"))
}

fn named(key: &str) -> Result<Attribute, String> {
    TABLE
        .iter()
        .find(|(name, _)| *name == key)
        .map(|&(_, attribute)| attribute)
        .ok_or_else(|| {
            format!(
                "\"{key}\" is no part of a spec, which has dtype, dims, max_dims, fill, layout, codec, placement, couple"
            )
        })
}

/// The value of the attribute `spec`.
fn spec_text(info: &ArrayInfo) -> String {
    Value::Object(json_of_spec(&describe::spec(info))).to_string()
}

/// A change as a map from names of attributes to texts; the inverse of [`spec_of_json`].
pub fn json_of_spec(spec: &SpecChange) -> Map<String, Value> {
    let texts = [
        ("dtype", spec.dtype.map(|dtype| dtype.to_string())),
        ("dims", spec.dims.as_ref().map(|dims| format_dims(dims))),
        (
            "max_dims",
            spec.max_dims.as_ref().map(|max| format_max_dims(max)),
        ),
        ("fill", spec.fill.clone()),
        ("layout", spec.layout.as_ref().map(ToString::to_string)),
        ("codec", spec.codec.map(|codec| codec.to_string())),
        (
            "placement",
            spec.placement.map(|placement| placement.to_string()),
        ),
        ("couple", spec.couple.as_ref().map(ToString::to_string)),
    ];
    texts
        .into_iter()
        .filter_map(|(name, text)| Some((name.to_owned(), Value::String(text?))))
        .collect()
}

/// A value of a spec.
enum Given {
    /// `null`: leaves the field unchanged.
    Nothing,
    /// `[]`: a scalar.
    NoAxes,
    Text(String),
}

fn json_text(value: &Value) -> Option<Given> {
    let text = match value {
        Value::Null => return Some(Given::Nothing),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) if items.is_empty() => return Some(Given::NoAxes),
        Value::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(axis_text).collect();
            items?.join(",")
        }
        Value::Bool(_) | Value::Object(_) => return None,
    };
    Some(Given::Text(text))
}

fn axis_text(item: &Value) -> Option<String> {
    match item {
        Value::Null => Some("unlimited".to_string()),
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn names() -> String {
    TABLE.map(|(name, _)| name).join(", ")
}

#[cfg(test)]
mod tests;
