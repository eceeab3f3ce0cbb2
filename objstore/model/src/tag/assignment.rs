//! Tags as written on a command line: `key=value`, and `key:type=value` to force a type.
//!
//! Without a type, a value that is the canonical text of a number is that number, `[…]` is a list, and anything else
//! is text. A number in another form (`007`, `1.10`, `1e3`) retains its text and is also found as a number.
//!
//! A key may be written as its attribute's name, with the prefix `user.` ([`bare_key`]). An equals sign in it is
//! written `\=`, and a backslash there may be written `\\`. [`Tag::show_assignment`] formats every tag so that it is
//! read back as the same.

use super::{MAX_TAG_KEY, Num, Tag, TagError, TagKind, hex, json, num};

impl Tag {
    /// The key and the tag of `key=value`.
    ///
    /// # Errors
    /// If the text has no `=`, the key is not allowed, or the value does not have the given type.
    pub fn parse_assignment(text: &str) -> Result<(String, Self), TagError> {
        let shown = || TagError::NoValue(text.chars().take(80).collect());
        let (left, value) = split(text).ok_or_else(shown)?;
        // A colon may be part of a key (`dc:title=x`): only the name of a type is removed.
        let (key, tag) = match left.rsplit_once(':') {
            Some((key, kind)) => match kind.parse() {
                Ok(kind) => (key, Tag::parse(kind, value)?),
                Err(error) if OTHER_TYPES.contains(&kind) => return Err(error),
                Err(_) => (&left[..], Tag::infer(value)?),
            },
            None => (&left[..], Tag::infer(value)?),
        };
        let key = bare_key(key);
        check_tag_key(key)?;
        Ok((key.to_owned(), tag))
    }

    /// The text that [`Tag::parse_assignment`] reads as this tag under this key: the shortest of its candidates. An
    /// untyped tag whose bytes are not text becomes one of bytes, and so does every tag with a zero byte.
    pub fn show_assignment(&self, key: &str) -> String {
        let (kind, value) = match (self.kind, std::str::from_utf8(&self.bytes)) {
            (TagKind::Bytes, _) | (_, Err(_)) => (TagKind::Bytes, hex(&self.bytes)),
            // No argument of a command can have a zero byte.
            (_, Ok(text)) if text.contains('\0') => (TagKind::Bytes, hex(&self.bytes)),
            (kind, Ok(text)) => (kind, text.to_owned()),
        };
        let user = match key.starts_with(USER) {
            true => USER,
            false => "",
        };
        let escaped = key.replace('\\', "\\\\").replace('=', "\\=");
        let typed = format!("{user}{escaped}:{kind}={value}");
        let reads_back = |text: &String| {
            let read = Tag::parse_assignment(text);
            read.is_ok_and(|(name, tag)| name == key && tag == *self)
        };
        [
            format!("{user}{key}={value}"),
            format!("{user}{key}:{kind}={value}"),
            format!("{user}{escaped}={value}"),
        ]
        .into_iter()
        .find(reads_back)
        .unwrap_or(typed)
    }

    /// The tag of a value without a type.
    ///
    /// # Errors
    /// If it is too long, or a malformed list.
    pub fn infer(text: &str) -> Result<Self, TagError> {
        super::check_size(text.len())?;
        if text.starts_with('[') {
            return match text.ends_with(']') {
                true => json::parse_list(text),
                false => Err(TagError::OpenList),
            };
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

/// Names of types elsewhere. Behind a colon they are a mistake for a type of tags rather than a part of the key; such a
/// key has to be written with a type of its own.
const OTHER_TYPES: [&str; 10] = [
    "integer", "number", "real", "double", "str", "bool", "boolean", "long", "i8", "f8",
];

/// The prefix of the names of attributes that are tags.
const USER: &str = "user.";

/// A key without the prefix `user.`, which is removed once.
pub fn bare_key(key: &str) -> &str {
    key.strip_prefix(USER).unwrap_or(key)
}

/// The part before the first unescaped `=`, without its backslashes, and the part after it.
fn split(text: &str) -> Option<(String, &str)> {
    let mut left = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        match char {
            '=' => return Some((left, &text[at + 1..])),
            '\\' => match chars.next_if(|(_, next)| matches!(next, '=' | '\\')) {
                Some((_, next)) => left.push(next),
                None => left.push('\\'),
            },
            char => left.push(char),
        }
    }
    None
}

/// Whether a tag can have this key: not empty, no zero byte, at most [`MAX_TAG_KEY`] bytes, and not
/// one of the attributes of slabfs itself.
///
/// # Errors
/// If it cannot; the error states why.
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
