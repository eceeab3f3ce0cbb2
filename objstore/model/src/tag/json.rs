//! Lists of tags, and tags as JSON.
//!
//! A list is a JSON array of numbers, strings and `{"bytes": "00ff"}`. Its canonical text has no spaces; floats have
//! a point or an exponent, which preserves their type.

use super::{Elem, Exact, MAX_TAG_LIST, Num, Tag, TagError, TagKind, Value, bytes_of_hex, hex};
use serde_json::{Map, Number, Value as Json};
use smallvec::SmallVec;
use std::borrow::Cow;

impl Tag {
    /// The tag of a JSON value: a number, a string (text), an array, or one of `{"bytes": "00ff"}`,
    /// `{"float": "inf"}` and `{"auto": "as it came"}`.
    ///
    /// # Errors
    /// For any other value, or one that is too large.
    pub fn from_json(json: &Json) -> Result<Self, TagError> {
        let tag = match json {
            Json::Number(number) => number_tag(number)?,
            Json::String(text) => Tag::parse(TagKind::Text, text)?,
            Json::Array(array) => list(array)?,
            Json::Object(object) => match single(object) {
                Some((kind, text)) => Tag::parse(kind.parse()?, text)?,
                None => return Err(not_a_value(json)),
            },
            Json::Null | Json::Bool(_) => return Err(not_a_value(json)),
        };
        super::check_size(tag.bytes.len())?;
        Ok(tag)
    }

    /// The tag as JSON, which [`Tag::from_json`] reads as the same tag, except that a [`TagKind::Auto`] that is text
    /// and a [`TagKind::Exact`] lose their types, since users expect plain text and numbers.
    pub fn to_json(&self) -> Json {
        let text = std::str::from_utf8(&self.bytes);
        let object = |kind: TagKind, text: &str| {
            let entry = (kind.name().to_owned(), Json::from(text));
            Json::Object(Map::from_iter([entry]))
        };
        match (self.kind, text) {
            (TagKind::Bytes, _) | (_, Err(_)) => object(TagKind::Bytes, &hex(&self.bytes)),
            (TagKind::Auto | TagKind::Text, Ok(text)) => Json::from(text),
            (TagKind::Exact(Exact { of: Elem::Char, .. }), Ok(text)) => Json::from(text),
            (_, Ok(text)) => serde_json::from_str(text).unwrap_or_else(|_| object(self.kind, text)),
        }
    }
}

impl Tag {
    /// As [`Tag::to_json`], but with an untyped tag as `{"auto": "as it came"}`, and one of an exact type as
    /// `{"i2": "3"}`: [`Tag::from_json`] reads it as the same tag, if its bytes are text or it has the type bytes.
    pub fn to_typed_json(&self) -> Json {
        match std::str::from_utf8(&self.bytes) {
            Ok(text) if matches!(self.kind, TagKind::Auto | TagKind::Exact(_)) => {
                let entry = (self.kind.name().to_owned(), Json::from(text));
                Json::Object(Map::from_iter([entry]))
            }
            _ => self.to_json(),
        }
    }
}

/// Parses a list, in its canonical form.
pub(super) fn parse_list(text: &str) -> Result<Tag, TagError> {
    list(&parse(text)?)
}

/// The members of a list's text.
pub(super) fn members<'a>(text: &str) -> Result<SmallVec<[Value<'a>; 2]>, TagError> {
    parse(text)?.iter().map(member).collect()
}

fn parse(text: &str) -> Result<Vec<Json>, TagError> {
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let what = message.split(" at line ").next().unwrap_or(&message);
        TagError::List(format!("{what} at character {}", error.column()))
    })
}

fn list(array: &[Json]) -> Result<Tag, TagError> {
    if array.len() > MAX_TAG_LIST {
        return Err(TagError::TooLarge {
            what: "the list of a tag",
            limit: "1024 members",
            found: array.len(),
        });
    }
    let mut text = String::from("[");
    for (at, json) in array.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        match json {
            // JSON formats numbers as other tags do: digits, or a point or an exponent.
            Json::Number(number) => {
                let tag = number_tag(number)?;
                text.push_str(&String::from_utf8_lossy(&tag.bytes));
            }
            Json::String(_) => text.push_str(&json.to_string()),
            _ => match member(json)? {
                Value::Bytes(bytes) => {
                    text.push_str(&format!("{{\"bytes\":\"{}\"}}", hex(&bytes)));
                }
                _ => return Err(not_a_value(json)),
            },
        }
    }
    text.push(']');
    let bytes = text.into_bytes();
    let kind = TagKind::List;
    Ok(Tag { kind, bytes })
}

fn member<'a>(json: &Json) -> Result<Value<'a>, TagError> {
    match json {
        Json::Number(number) => number_value(number).map(Value::Number),
        Json::String(text) => Ok(Value::Text(Cow::Owned(text.clone()))),
        Json::Object(object) => match single(object) {
            Some(("bytes", digits)) => Ok(Value::Bytes(Cow::Owned(bytes_of_hex(digits)?))),
            _ => Err(not_a_value(json)),
        },
        _ => Err(not_a_value(json)),
    }
}

fn single(object: &Map<String, Json>) -> Option<(&str, &str)> {
    let mut entries = object.iter();
    match (entries.next(), entries.next()) {
        (Some((key, Json::String(text))), None) => Some((key, text)),
        _ => None,
    }
}

fn number_tag(number: &Number) -> Result<Tag, TagError> {
    match (number.as_i64(), number.as_f64()) {
        (Some(value), _) => Ok(Tag::int(value)),
        (None, Some(value)) if number.is_f64() => Tag::float(value),
        _ => Err(TagError::Int(number.to_string())),
    }
}

fn number_value(number: &Number) -> Result<Num, TagError> {
    match (number.as_i64(), number.as_f64()) {
        (Some(value), _) => Ok(Num::int(value)),
        (None, Some(value)) => Num::float(value),
        (None, None) => Err(TagError::Float(number.to_string())),
    }
}

fn not_a_value(json: &Json) -> TagError {
    TagError::Json(match json {
        Json::Null => "null is not a value",
        Json::Bool(_) => "true and false are not values; write them in quotes, or 1 and 0",
        Json::Array(_) => "a list in a list is not a value",
        _ => "this object is not a value",
    })
}
