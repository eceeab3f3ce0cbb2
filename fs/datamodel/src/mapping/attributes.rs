//! Attributes and tags.
//!
//! An attribute is a tag of the same name that can be read and searched. What a tag does not say, types and dataspaces of
//! HDF5 and JSON of Zarr, is in the tag [`FORMS`] of the same object: `{"NAME": {"type": …, "space": …}}`, or
//! `{"NAME": "json"}` for a tag that is JSON. Where a tag was changed and does not fit its form any more, the form is
//! ignored.

use crate::error::{In, invalid};
use crate::tree::{Attribute, Hdf5Value, Space, Value};
use crate::types::Hdf5Type;
use serde_json::{Map, Value as Json, json};
use slabfs_model::{DType, DTypeKind, Elem, Exact, Tag, TagKind, check_tag_key, hex};

use super::order::Order;
use super::{DIM_NAMES, is_reserved};

/// The tag with what other tags do not say. If it would be too long there are more, with numbers.
const FORMS: &str = "_slabfs_attributes";
/// Most bytes of one of these tags.
const FORM_BYTES: usize = 200 << 10;

pub(super) fn strings(members: impl Iterator<Item = String>) -> Json {
    json!({ "string[]": Json::from(members.collect::<Vec<String>>()).to_string() })
}

/// The tags of attributes.
pub(super) fn tags_of(attributes: &[Attribute]) -> crate::Result<Map<String, Json>> {
    let mut tags = Map::new();
    let mut forms = Map::new();
    for Attribute { name, value } in attributes {
        let what = || format!("attribute {name}");
        if name == DIM_NAMES || is_reserved(name) {
            return Err(invalid(format!(
                "it has an attribute {name}, a name that slabfs uses itself; rename it with `ncrename`"
            )));
        }
        check_tag_key(name).within(what)?;
        let json = tag_of(value).within(what)?;
        Tag::from_json(&json).within(what)?;
        if let Some(form) = form_of(value) {
            forms.insert(name.clone(), form);
        }
        tags.insert(name.clone(), json);
    }
    let mut parts: Vec<(Map<String, Json>, usize)> = Vec::new();
    for (name, form) in forms {
        let bytes = name.len() + form.to_string().len() + 8;
        match parts.last_mut() {
            Some((part, size)) if *size + bytes <= FORM_BYTES => {
                part.insert(name, form);
                *size += bytes;
            }
            _ => parts.push((Map::from_iter([(name, form)]), bytes)),
        }
    }
    for (at, (part, _)) in parts.into_iter().enumerate() {
        let text = Json::Object(part).to_string();
        tags.insert(numbered(at), json!(text));
    }
    Ok(tags)
}

fn numbered(at: usize) -> String {
    match at {
        0 => FORMS.to_owned(),
        at => format!("{FORMS}_{at}"),
    }
}

/// A value as a tag in JSON.
fn tag_of(value: &Value) -> crate::Result<Json> {
    Ok(match value {
        Value::Text(text) => json!(text),
        Value::Hdf5(value) => tag_of(&value.elements)?,
        Value::Json(json) => match json_tag(json) {
            true => json.clone(),
            false => json!(json.to_string()),
        },
        Value::Chars(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => json!({ "char": text }),
            Err(_) => json!({ "bytes": hex(bytes) }),
        },
        Value::Strings(texts) => strings(texts.iter().cloned()),
        Value::Numbers { dtype, bytes } => {
            let members = bytes.chunks_exact(dtype.size() as usize);
            let members: Vec<String> = members
                .map(|one| number(dtype, one))
                .collect::<crate::Result<_>>()?;
            match members.as_slice() {
                [one] if dtype.to_string() == "i8" => json!({ "int": one }),
                [one] if dtype.to_string() == "f8" && one != "nan" && one != "-0.0" => {
                    json!({ "float": one })
                }
                [one] if dtype.to_string() != "f8" => json!({ dtype.to_string(): one }),
                _ => json!({ format!("{dtype}[]"): format!("[{}]", members.join(",")) }),
            }
        }
    })
}

/// Whether a list of JSON is a tag from which the same JSON is read.
fn json_tag(json: &Json) -> bool {
    let tag = json.is_array().then(|| Tag::from_json(json).ok()).flatten();
    tag.is_some_and(|tag| serde_json::from_slice::<Json>(&tag.bytes).ok().as_ref() == Some(json))
}

/// What the tag of a value does not say.
fn form_of(value: &Value) -> Option<Json> {
    match value {
        Value::Json(_) => Some(json!("json")),
        Value::Hdf5(value) => {
            let space = match &value.space {
                Space::Null => json!("null"),
                Space::Scalar => json!("scalar"),
                Space::Simple(dims) => json!(dims),
            };
            Some(json!({ "type": value.typ.to_json(), "space": space }))
        }
        _ => None,
    }
}

fn number(dtype: &DType, bytes: &[u8]) -> crate::Result<String> {
    let mut wide = [0; 8];
    let len = bytes.len().min(8);
    wide[..len].copy_from_slice(&bytes[..len]);
    let bits = u64::from_le_bytes(wide);
    let unused = 64 - 8 * len;
    Ok(match (dtype.kind(), dtype.size()) {
        (DTypeKind::Int, 1..=8) => (((bits << unused) as i64) >> unused).to_string(),
        (DTypeKind::UInt, 1..=8) => bits.to_string(),
        (DTypeKind::Float, 4) => float(format!("{:?}", f32::from_bits(bits as u32))),
        (DTypeKind::Float, 8) => float(format!("{:?}", f64::from_bits(bits))),
        _ => {
            return Err(invalid(format!(
                "an attribute of type {dtype} cannot be a tag"
            )));
        }
    })
}

fn float(shown: String) -> String {
    match shown.as_str() {
        "NaN" => "nan".to_owned(),
        _ => shown,
    }
}

/// The attributes of tags, without those that slabfs uses itself.
pub fn attributes_of(tags: &Map<String, Json>) -> crate::Result<Vec<Attribute>> {
    let forms = forms(tags)?;
    let mut attributes = Vec::new();
    for (name, json) in tags {
        if name == DIM_NAMES || is_reserved(name) {
            continue;
        }
        let what = || format!("tag {name}");
        let tag = Tag::from_json(json).within(what)?;
        let form = forms.get(name);
        let value = match form.and_then(|form| formed(&tag, form)) {
            Some(value) => value,
            None => value_of(&tag).within(what)?,
        };
        let name = name.clone();
        attributes.push(Attribute { name, value });
    }
    let order = Order::of_attributes(tags);
    attributes.sort_by_cached_key(|one| order.key(&one.name));
    Ok(attributes)
}

fn forms(tags: &Map<String, Json>) -> crate::Result<Map<String, Json>> {
    let mut forms = Map::new();
    for at in 0.. {
        let name = numbered(at);
        let Some(json) = tags.get(&name) else { break };
        let tag = Tag::from_json(json)?;
        let part: Map<String, Json> = serde_json::from_slice(&tag.bytes)
            .within(|| format!("its tag {name} is not an object of JSON; remove it"))?;
        forms.extend(part);
    }
    Ok(forms)
}

/// The value of a tag with a form; `None` if they do not fit.
fn formed(tag: &Tag, form: &Json) -> Option<Value> {
    if form == "json" {
        return serde_json::from_slice(&tag.bytes).ok().map(Value::Json);
    }
    let typ = Hdf5Type::from_json(form.get("type")?)?;
    let space = match form.get("space")? {
        Json::String(name) if name == "null" => Space::Null,
        Json::String(name) if name == "scalar" => Space::Scalar,
        dims => {
            let dims = dims.as_array()?.iter().map(Json::as_u64);
            Space::Simple(dims.collect::<Option<_>>()?)
        }
    };
    let count = match &space {
        Space::Null => 0,
        Space::Scalar => 1,
        Space::Simple(dims) => dims
            .iter()
            .try_fold(1_u64, |all, &len| all.checked_mul(len))?,
    };
    let elements = match (value_of(tag).ok()?, &typ) {
        (Value::Strings(texts), Hdf5Type::String { len: None, .. }) => {
            (texts.len() as u64 == count).then_some(Value::Strings(texts))?
        }
        (
            Value::Numbers { dtype, bytes },
            Hdf5Type::Number(of) | Hdf5Type::Enum { base: of, .. },
        ) => {
            let same = dtype.to_string() == of.to_string().trim_start_matches('>');
            let fits = same && count.checked_mul(dtype.size()) == Some(bytes.len() as u64);
            fits.then_some(Value::Numbers { dtype, bytes })?
        }
        (Value::Chars(bytes), typ) => {
            let size = typ.size().unwrap_or(0);
            (count.checked_mul(size) == Some(bytes.len() as u64)).then_some(Value::Chars(bytes))?
        }
        _ => return None,
    };
    Some(Value::Hdf5(Box::new(Hdf5Value {
        typ,
        space,
        elements,
    })))
}

fn value_of(tag: &Tag) -> crate::Result<Value> {
    let text = || std::str::from_utf8(&tag.bytes).map_err(|_| invalid("it is not text"));
    match tag.kind {
        TagKind::Bytes => Ok(Value::Chars(tag.bytes.clone())),
        TagKind::Auto | TagKind::Text => Ok(match std::str::from_utf8(&tag.bytes) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Chars(tag.bytes.clone()),
        }),
        TagKind::Int => numbers("i8", &[text()?]),
        TagKind::Float => numbers("f8", &[text()?]),
        TagKind::List => list(text()?),
        TagKind::Exact(Exact { of: Elem::Char, .. }) => Ok(Value::Chars(tag.bytes.clone())),
        TagKind::Exact(Exact {
            of: Elem::String, ..
        }) => Ok(Value::Strings(serde_json::from_str(text()?)?)),
        TagKind::Exact(exact) => {
            let dtype = tag.kind.name().trim_end_matches("[]");
            match exact.list {
                true => numbers(dtype, &members(text()?)),
                false => numbers(dtype, &[text()?]),
            }
        }
    }
}

/// A list that users made: of numbers, or of texts.
fn list(text: &str) -> crate::Result<Value> {
    let members: Vec<Json> = serde_json::from_str(text)?;
    if members.iter().all(Json::is_string) {
        let texts = members.iter().filter_map(Json::as_str).map(str::to_owned);
        return Ok(Value::Strings(texts.collect()));
    }
    if !members.iter().all(Json::is_number) {
        // Zarr has such attributes; the others refuse them.
        return Ok(Value::Json(Json::from(members)));
    }
    let dtype = match members.iter().all(Json::is_i64) {
        true => "i8",
        false => "f8",
    };
    let members: Vec<String> = members.iter().map(Json::to_string).collect();
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    numbers(dtype, &members)
}

fn members(text: &str) -> Vec<&str> {
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    inner.split(',').filter(|one| !one.is_empty()).collect()
}

fn numbers(dtype: &str, texts: &[&str]) -> crate::Result<Value> {
    let dtype: DType = dtype.parse()?;
    let mut bytes = Vec::new();
    for text in texts {
        match (dtype.kind(), dtype.size()) {
            (DTypeKind::Float, 4) => bytes.extend(text.parse::<f32>()?.to_le_bytes()),
            (DTypeKind::Float, _) => bytes.extend(text.parse::<f64>()?.to_le_bytes()),
            (_, size) => {
                let wide = text.parse::<i128>()?.to_le_bytes();
                bytes.extend(&wide[..size as usize]);
            }
        }
    }
    Ok(Value::Numbers { dtype, bytes })
}
