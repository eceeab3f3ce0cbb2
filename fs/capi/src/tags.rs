//! The calls for tags: set and remove many in one request, get all of an object or container.

use std::ffi::{c_char, c_void};
use std::path::Path;

use slabfs_fs::session::{Tag, TagEdit, TagKind};
use slabfs_model::{Elem, Exact};

use crate::argument::{MAX_TEXT, bytes, list, nth, path, result, text};
use crate::error::{Failure, call};
use crate::handles::{SESSIONS, TAGS, slabfs_session, slabfs_tags};

/// Untyped text or bytes, like the value of an extended attribute.
pub const SLABFS_TAG_AUTO: u32 = 0;
/// An integer: `integer`.
pub const SLABFS_TAG_INT: u32 = 1;
/// A floating-point number: `real`.
pub const SLABFS_TAG_FLOAT: u32 = 2;
/// UTF-8: `data` and `len`.
pub const SLABFS_TAG_TEXT: u32 = 3;
/// Bytes: `data` and `len`.
pub const SLABFS_TAG_BYTES: u32 = 4;
/// A list, as JSON in `data` and `len`: `[1, 2.5, "a"]`.
pub const SLABFS_TAG_LIST: u32 = 5;
/// Removes the tag; a missing tag is no error.
pub const SLABFS_TAG_REMOVE: u32 = 6;

/// The maximum number of tags in one request.
const MAX_EDITS: usize = 8192;

/// A tag of an object or a container, to set or remove, or as returned.
#[repr(C)]
#[derive(Debug)]
pub struct slabfs_tag {
    /// The path of the object or container from the root; NULL in returned tags.
    pub path: *const c_char,
    /// Its key.
    pub key: *const c_char,
    /// The type: SLABFS_TAG_INT etc.
    pub kind: u32,
    /// Must be zero.
    pub reserved: u32,
    /// The value of SLABFS_TAG_INT.
    pub integer: i64,
    /// The value of SLABFS_TAG_FLOAT.
    pub real: f64,
    /// The bytes of the other types; in returned tags also numbers, as text.
    pub data: *const c_void,
    /// The length of `data`.
    pub len: usize,
}

/// The key and the value; no value for a tag to be removed.
///
/// # Safety
/// Its pointers are valid.
pub(crate) unsafe fn value(tag: &slabfs_tag) -> Result<(String, Option<Tag>), Failure> {
    let invalid = |error: &dyn std::fmt::Display| Failure::invalid(error.to_string());
    // SAFETY: the caller's.
    let key = unsafe { text(tag.key, "key", MAX_TEXT)? };
    if tag.reserved != 0 {
        return Err(Failure::invalid(
            "a tag's reserved member is not 0; set the entire struct to zero first",
        ));
    }
    let kind = match tag.kind {
        SLABFS_TAG_REMOVE => return Ok((key.to_owned(), None)),
        SLABFS_TAG_INT => return Ok((key.to_owned(), Some(Tag::int(tag.integer)))),
        SLABFS_TAG_FLOAT => {
            let value = Tag::float(tag.real).map_err(|error| invalid(&error))?;
            return Ok((key.to_owned(), Some(value)));
        }
        SLABFS_TAG_AUTO => TagKind::Auto,
        SLABFS_TAG_TEXT => TagKind::Text,
        SLABFS_TAG_BYTES => TagKind::Bytes,
        SLABFS_TAG_LIST => TagKind::List,
        other => {
            return Err(Failure::invalid(format!(
                "{other} is not a type of tag; use SLABFS_TAG_INT etc."
            )));
        }
    };
    // SAFETY: the caller's.
    let data = unsafe { bytes(tag.data, tag.len)? };
    let value = Tag::from_attribute(kind, data).map_err(|error| invalid(&error))?;
    Ok((key.to_owned(), Some(value)))
}

/// Sets and removes tags of objects and containers in one atomic request. `slabfs_error_index` gives the index of
/// the tag that caused an error.
///
/// # Safety
/// `tags` points to `count` tags, whose pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_tag_put(
    session: slabfs_session,
    count: usize,
    tags: *const slabfs_tag,
) -> i32 {
    call(|| {
        let session = SESSIONS.get(session.id)?;
        // SAFETY: the caller's.
        let tags = unsafe { list(tags, count, "tags", MAX_EDITS)? };
        // Consecutive tags of the same path are one edit; `firsts` has the index of its first tag.
        let mut edits: Vec<TagEdit> = Vec::new();
        let mut firsts = Vec::new();
        for (index, tag) in tags.iter().enumerate() {
            // SAFETY: the caller's.
            let read = unsafe { path(tag.path, "path").and_then(|path| Ok((path, value(tag)?))) };
            let (path, (key, value)): (&Path, _) = read.map_err(|error| error.at(index))?;
            let again = edits.last().is_some_and(|edit| {
                edit.path == path
                    && !edit.remove.contains(&key)
                    && edit.set.iter().all(|(set, _)| *set != key)
            });
            if !again {
                firsts.push(index);
                edits.push(TagEdit {
                    path: path.to_owned(),
                    ..TagEdit::default()
                });
            }
            if let Some(edit) = edits.last_mut() {
                match value {
                    Some(value) => edit.set.push((key, value)),
                    None => edit.remove.push(key),
                }
            }
        }
        session.root().tag(edits).map_err(|error| {
            let first = error.index().and_then(|index| firsts.get(index).copied());
            match first {
                Some(first) => Failure::from(error).at(first),
                None => error.into(),
            }
        })
    })
}

/// Returns all tags of an object or a container, sorted by key.
///
/// # Safety
/// Strings are NUL-terminated; `tags` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_tags_of(
    session: slabfs_session,
    name: *const c_char,
    tags: *mut slabfs_tags,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        result(tags, "tags", || {
            let name = path(name, "path")?;
            let found = SESSIONS.get(session.id)?.root().tags(name)?;
            let found = found.into_iter().map(|(key, mut tag)| {
                let mut key = key.into_bytes();
                key.push(0);
                // Make texts valid C strings.
                tag.bytes.push(0);
                (key, tag)
            });
            let id = TAGS.put(found.collect());
            Ok(slabfs_tags { id })
        })
    }
}

/// The number of tags of a list.
///
/// # Safety
/// `count` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_tags_count(tags: slabfs_tags, count: *mut usize) -> i32 {
    // SAFETY: the caller's.
    unsafe { result(count, "count", || Ok(TAGS.get(tags.id)?.len())) }
}

/// The tag `index`, from 0, of a list. Its pointers are valid until the list is freed; a NUL follows the bytes of
/// its value.
///
/// # Safety
/// `tag` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_tags_get(
    tags: slabfs_tags,
    index: usize,
    tag: *mut slabfs_tag,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        result(tag, "tag", || {
            let tags = TAGS.get(tags.id)?;
            let (key, found) = nth(&tags, index, "tag")?;
            let bytes = &found.bytes[..found.bytes.len() - 1];
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            let (kind, integer, real) = match found.kind {
                TagKind::Int => (SLABFS_TAG_INT, text.parse().unwrap_or(0), 0.0),
                TagKind::Float => (SLABFS_TAG_FLOAT, 0, text.parse().unwrap_or(0.0)),
                TagKind::Text => (SLABFS_TAG_TEXT, 0, 0.0),
                TagKind::Bytes => (SLABFS_TAG_BYTES, 0, 0.0),
                TagKind::List => (SLABFS_TAG_LIST, 0, 0.0),
                TagKind::Auto => (SLABFS_TAG_AUTO, 0, 0.0),
                TagKind::Exact(exact) => exact_of(exact, text),
            };
            Ok(slabfs_tag {
                path: std::ptr::null(),
                key: key.as_ptr().cast(),
                kind,
                reserved: 0,
                integer,
                real,
                data: bytes.as_ptr().cast(),
                len: bytes.len(),
            })
        })
    }
}

/// Frees a list, and the data that its tags point to.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_tags_free(tags: slabfs_tags) -> i32 {
    call(|| TAGS.take(tags.id).map(drop))
}

/// The kind and the number of a tag of an exact type: the nearest of those that this library has.
fn exact_of(exact: Exact, text: &str) -> (u32, i64, f64) {
    match (exact.list, exact.of) {
        (true, _) => (SLABFS_TAG_LIST, 0, 0.0),
        (false, Elem::Char | Elem::String) => (SLABFS_TAG_TEXT, 0, 0.0),
        (false, Elem::F4 | Elem::F8) => (SLABFS_TAG_FLOAT, 0, text.parse().unwrap_or(0.0)),
        (false, _) => match text.parse() {
            Ok(number) => (SLABFS_TAG_INT, number, 0.0),
            // Above the range of an int64_t.
            Err(_) => (SLABFS_TAG_FLOAT, 0, text.parse().unwrap_or(0.0)),
        },
    }
}
