//! The entries of the index of tags: byte strings whose order is the lookup order.
//!
//! An entry is a table's letter, the tag's key with a terminating zero byte, a part that depends on the table, and
//! the inode's number in 8 big-endian bytes. Keys are UTF-8 without zero bytes.
//!
//! | table | between the key and the number | for |
//! |---|---|---|
//! | `g` | 8 bytes of a text from any position in it, padded with zero bytes at its end | infix: a short one is a prefix of a window; a longer one has several windows, which must all exist |
//! | `k` | nothing | all that have the key |
//! | `l` | nothing | texts with too many windows: candidates for every infix |
//! | `r` | the last 256 bytes of a text, reversed | suffix |
//! | `v` | 1 and a number, 2 and a text, 3 and bytes; the first 256 bytes of these | exact, prefix, range |
//!
//! A number is [`Num::sort_key`](slabfs_model::Num::sort_key), 10 bytes. Text and bytes are terminated by two zero
//! bytes, and a zero byte within them is followed by 255, so that order and prefixes are those of the value.
//!
//! Invariant: an object whose tag has a value has an entry in each [`Range`] that is built here for a condition which
//! that value fulfils. The reverse does not hold: values are cut, windows do not record their position, and the index
//! may have obsolete entries. Every hit is a candidate, to be verified.
//!
//! The length of a window is a compromise: a shorter one occurs in more texts the more there are (three letters in
//! one of some hundreds), and a search would read them all to find few.
//!
//! The index itself is not here, nor which lookups a query needs ([`super::query`]).

#[cfg(test)]
mod tests;

use slabfs_model::{ObjectId, Tag, Value};
use std::collections::BTreeSet;

use crate::api::Ino;

/// Bytes of a value that are indexed; candidates that differ only beyond them are verified away.
pub(super) const CUT: usize = 256;
/// Bytes of a window; for an infix of at most this length, the index has all texts that contain it.
pub(super) const WINDOW: usize = 8;
/// Most windows of one tag, each counted once; a tag with more has none in the index and is a candidate for every
/// infix.
const MAX_WINDOWS: usize = 512;
/// Most windows that are looked up for one infix: more hardly reduce the candidates.
const LOOKED_UP: usize = 8;

/// A part of the index: the entries from `from` up to but not including `to`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Range {
    /// The first possible entry.
    pub from: Vec<u8>,
    /// The first entry beyond it; not less than `from`.
    pub to: Vec<u8>,
    /// Whether the inode numbers ascend strictly from entry to entry, so that ranges can be joined as they are read.
    pub posting: bool,
    /// Whether these are candidates only because the index cannot decide.
    pub unsure: bool,
    /// Whether these are the windows with a short infix as their prefix: an inode may have many, in no order.
    pub windows: bool,
}

/// One bound of a range of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End<'a> {
    /// No bound on this side.
    Open,
    /// Up to and including this value.
    With(&'a Value<'a>),
    /// Up to but excluding this value.
    Without(&'a Value<'a>),
}

/// The entries of an inode that has these tags, in order. Keys that are not UTF-8 or have a zero byte cannot be
/// searched for and are left out.
pub fn entries<K: AsRef<[u8]>>(ino: Ino, tags: &[(K, Tag)]) -> Vec<Vec<u8>> {
    let mut entries = BTreeSet::new();
    for (key, tag) in tags {
        let key = key.as_ref();
        if !key.contains(&0) && std::str::from_utf8(key).is_ok() {
            of_tag(key, tag, &mut |entry: Vec<u8>| {
                let mut entry = entry;
                entry.extend_from_slice(&ino.0.to_be_bytes());
                entries.insert(entry);
            });
        }
    }
    entries.into_iter().collect()
}

fn of_tag(key: &[u8], tag: &Tag, add: &mut dyn FnMut(Vec<u8>)) {
    let mut windows = BTreeSet::new();
    add(table(b'k', key));
    for value in tag.values() {
        add(value_prefix(key, &value));
        if let Value::Text(text) = &value {
            add(reversed(key, text, true));
            let text = text.as_bytes();
            for at in 0..text.len() {
                // One more than allowed suffices to know that there are too many.
                if windows.len() > MAX_WINDOWS {
                    break;
                }
                // A long repetitive text has few distinct windows.
                windows.insert(window(&text[at..]));
            }
        }
    }
    if windows.len() > MAX_WINDOWS {
        return add(table(b'l', key));
    }
    for window in windows {
        let mut entry = table(b'g', key);
        entry.extend_from_slice(&window);
        add(entry);
    }
}

/// The first bytes of a text, padded.
fn window(text: &[u8]) -> [u8; WINDOW] {
    let mut window = [0; WINDOW];
    for (to, byte) in window.iter_mut().zip(text) {
        *to = *byte;
    }
    window
}

/// The inode of an entry.
pub fn ino_of(entry: &[u8]) -> Option<Ino> {
    let ino = entry.last_chunk()?;
    Some(ObjectId(u64::from_be_bytes(*ino)))
}

/// The key of an entry.
pub fn key_of(entry: &[u8]) -> Option<&str> {
    let key = entry.get(1..)?.split(|&byte| byte == 0).next()?;
    std::str::from_utf8(key).ok()
}

/// The entries of table `k` of all keys that begin with `prefix`. To enumerate the keys, read the first entry, take
/// its [`key_of`], and continue at the `to` of [`has_key`].
pub fn keys(prefix: &str) -> Range {
    let mut from = vec![b'k'];
    from.extend_from_slice(prefix.as_bytes());
    below(from, false)
}

/// All that have the key.
pub fn has_key(key: &str) -> Range {
    below(table(b'k', key.as_bytes()), true)
}

/// Tags that have this value, or begin with the same 256 bytes.
pub fn exact(key: &str, value: &Value<'_>) -> Range {
    below(value_prefix(key.as_bytes(), value), true)
}

/// Texts that begin with `prefix`.
pub fn prefix(key: &str, prefix: &str) -> Range {
    let mut from = table(b'v', key.as_bytes());
    from.push(TEXT);
    escape(cut(prefix.as_bytes()).iter(), &mut from);
    below(from, false)
}

/// Texts that end with `suffix`.
pub fn suffix(key: &str, suffix: &str) -> Range {
    below(reversed(key.as_bytes(), suffix, false), false)
}

/// Texts that may contain `infix` are in **all** of these, or in [`unseen`]. None if it is empty.
pub fn infix(key: &str, infix: &str) -> Vec<Range> {
    let within = |part: &[u8]| {
        let mut from = table(b'g', key.as_bytes());
        from.extend_from_slice(part);
        // A full window with all its inodes, or all windows with this prefix.
        let full = part.len() == WINDOW;
        Range {
            windows: !full,
            ..below(from, full)
        }
    };
    match infix.as_bytes() {
        [] => Vec::new(),
        short if short.len() < WINDOW => vec![within(short)],
        long => {
            let windows: BTreeSet<_> = long.windows(WINDOW).collect();
            // Spread out, as adjacent ones have much in common.
            let step = windows.len().div_ceil(LOOKED_UP);
            windows.into_iter().step_by(step).map(within).collect()
        }
    }
}

/// Texts with too many windows for the index: candidates for every infix.
pub fn unseen(key: &str) -> Range {
    Range {
        unsure: true,
        ..below(table(b'l', key.as_bytes()), true)
    }
}

/// Values between two bounds. Between bounds of different types there is nothing, and two open bounds give
/// [`has_key`].
pub fn between(key: &str, low: End<'_>, high: End<'_>) -> Range {
    let (End::With(value) | End::Without(value)) = (match low {
        End::Open => high,
        end => end,
    }) else {
        return has_key(key);
    };
    let kind = type_of(value);
    let bytes = key.as_bytes();
    let from = match low {
        End::Open => of_type(bytes, kind),
        End::With(value) => value_prefix(bytes, value),
        End::Without(value) if is_cut(value) => value_prefix(bytes, value),
        End::Without(value) => after(value_prefix(bytes, value)),
    };
    let to = match high {
        End::Open => of_type(bytes, kind + 1),
        End::Without(value) if !is_cut(value) => value_prefix(bytes, value),
        End::With(value) | End::Without(value) => after(value_prefix(bytes, value)),
    };
    let mixed = match (low, high) {
        (End::With(a) | End::Without(a), End::With(b) | End::Without(b)) => {
            type_of(a) != type_of(b)
        }
        _ => false,
    };
    let to = if mixed {
        from.clone()
    } else {
        to.max(from.clone())
    };
    Range {
        from,
        to,
        posting: false,
        unsure: false,
        windows: false,
    }
}

const NUMBER: u8 = 1;
const TEXT: u8 = 2;
const BYTES: u8 = 3;

fn type_of(value: &Value<'_>) -> u8 {
    match value {
        Value::Number(_) => NUMBER,
        Value::Text(_) => TEXT,
        Value::Bytes(_) => BYTES,
    }
}

/// Whether other values may have the same entry: values that were cut, and values that end where others are cut.
fn is_cut(value: &Value<'_>) -> bool {
    match value {
        Value::Number(_) => false,
        Value::Text(text) => text.len() >= CUT,
        Value::Bytes(bytes) => bytes.len() >= CUT,
    }
}

fn table(letter: u8, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(key.len() + 32);
    bytes.push(letter);
    bytes.extend_from_slice(key);
    bytes.push(0);
    bytes
}

/// The start of the values of a type.
fn of_type(key: &[u8], kind: u8) -> Vec<u8> {
    let mut bytes = table(b'v', key);
    bytes.push(kind);
    bytes
}

/// The common prefix of all entries of table `v` with this value.
fn value_prefix(key: &[u8], value: &Value<'_>) -> Vec<u8> {
    let mut bytes = of_type(key, type_of(value));
    match value {
        Value::Number(number) => bytes.extend_from_slice(&number.sort_key()),
        Value::Text(text) => escape_and_end(cut(text.as_bytes()).iter(), &mut bytes),
        Value::Bytes(value) => escape_and_end(cut(value).iter(), &mut bytes),
    }
    bytes
}

/// The common prefix of the entries of table `r` of texts that end with this one, or equal it if `complete`.
fn reversed(key: &[u8], text: &str, complete: bool) -> Vec<u8> {
    let mut bytes = table(b'r', key);
    let backwards = text.as_bytes().iter().rev().take(CUT);
    match complete {
        true => escape_and_end(backwards, &mut bytes),
        false => escape(backwards, &mut bytes),
    }
    bytes
}

fn cut(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(CUT)]
}

fn escape<'a>(from: impl Iterator<Item = &'a u8>, to: &mut Vec<u8>) {
    for &byte in from {
        to.push(byte);
        if byte == 0 {
            to.push(0xff);
        }
    }
}

fn escape_and_end<'a>(from: impl Iterator<Item = &'a u8>, to: &mut Vec<u8>) {
    escape(from, to);
    to.extend_from_slice(&[0, 0]);
}

/// The range of all entries that begin with `from`.
fn below(from: Vec<u8>, posting: bool) -> Range {
    let to = after(from.clone());
    Range {
        from,
        to,
        posting,
        unsure: false,
        windows: false,
    }
}

/// The first byte string after all that begin with this one, which has a byte below 255.
fn after(mut bytes: Vec<u8>) -> Vec<u8> {
    while bytes.pop_if(|last| *last == 0xff).is_some() {}
    if let Some(last) = bytes.last_mut() {
        *last += 1;
    }
    bytes
}
