//! Tags as they are written on a command line: `key=value`, and `key:type=value` to force a type.
//!
//! Without a type a value that is the canonical text of a number is that number, `[…]` is a list,
//! anything else text. A number in another form (`007`, `1.10`, `1e3`) is kept as it was written and
//! found as a number too.

use super::{MAX_TAG_KEY, Num, Tag, TagError, json, num};

impl Tag {
    /// The key and the tag of `key=value`.
    ///
    /// # Errors
    /// It is not that, the key cannot be one, or the value is not of the type that was asked for.
    pub fn parse_assignment(text: &str) -> Result<(String, Self), TagError> {
        let shown = || TagError::NoValue(text.chars().take(80).collect());
        let (left, value) = text.split_once('=').ok_or_else(shown)?;
        // A colon may be part of a key (`dc:title=x`): only the name of a type is taken off.
        let forced = left.rsplit_once(':');
        let forced = forced.and_then(|(key, kind)| Some((key, kind.parse().ok()?)));
        let (key, tag) = match forced {
            Some((key, kind)) => (key, Tag::parse(kind, value)?),
            None => (left, Tag::infer(value)?),
        };
        check_tag_key(key)?;
        Ok((key.to_owned(), tag))
    }

    /// The tag of a value whose type nobody said.
    ///
    /// # Errors
    /// It is too long, or a list that is none.
    pub fn infer(text: &str) -> Result<Self, TagError> {
        super::check_size(text.len())?;
        if text.starts_with('[') && text.ends_with(']') {
            return json::parse_list(text);
        }
        if Num::read(text).is_none() {
            return Ok(Tag::text(text));
        }
        let int = num::parse_int(text).ok().map(Tag::int);
        let float = || num::parse_float(text).ok().and_then(|v| Tag::float(v).ok());
        match int.or_else(float) {
            Some(tag) if tag.bytes == text.as_bytes() => Ok(tag),
            _ => Ok(Tag::auto(text)),
        }
    }
}

/// Whether a tag can have this key: not empty, no zero byte, at most [`MAX_TAG_KEY`] bytes, and not
/// one of the attributes of slabfs itself.
///
/// # Errors
/// It cannot; the error says why.
pub fn check_tag_key(key: &str) -> Result<(), TagError> {
    let why = if key.is_empty() {
        "it is empty; write key=value"
    } else if key.len() > MAX_TAG_KEY {
        "it is longer than 250 bytes"
    } else if key.contains('\0') {
        "it has a zero byte"
    } else if key == "slabfs" || key.starts_with("slabfs.") {
        "names with slabfs. are properties; use slabfs set or user.slabfs attributes"
    } else {
        return Ok(());
    };
    let key = key.chars().take(80).collect();
    Err(TagError::Key { key, why })
}
