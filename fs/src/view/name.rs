//! Parser of one path component, which may be a selection.
//!
//! `@[` may begin a selection: `temp@[0:10,0:9]` is those elements of `temp`. But projects have files named
//! `+page@[id].svelte`, so the meaning of a name depends on the existing files (`call::meaning`). An entry of exactly
//! that name comes first. Otherwise the name is a selection if it ends in `]` and the part before its first `@[` names
//! a file. Any other name is plain.
//!
//! A second `@`, as in `temp@@[0]`, escapes the mark. The rule is about runs: *k* `@` in front of a `[` may begin a
//! selection if *k* = 1, and stand for *k* - 1 of them otherwise.
//!
//! Names are bytes, as everywhere in POSIX; only the text of a selection must be UTF-8 (it is ASCII).

use std::borrow::Cow;

use slabfs_model::Selection;
use thiserror::Error;

/// The directory in the root of a mount that holds the hidden files; `readdir` does not list it.
pub const HIDDEN: &[u8] = b".slabfs";

/// Whether a name contains `@[`, which may begin a selection.
pub fn has_mark(name: &[u8]) -> bool {
    name.windows(2).any(|w| w == b"@[")
}

/// The possible meaning of a path component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name<'a> {
    /// An entry of the directory, under its stored name.
    Plain(Cow<'a, [u8]>),
    /// Some elements of an entry, if there is such an object.
    Selected(Selected<'a>),
}

/// `base@[text]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected<'a> {
    /// The name of the object as it was written; an entry may have exactly this stored name.
    pub written: &'a [u8],
    /// The name of the object with its escapes removed.
    pub base: Cow<'a, [u8]>,
    /// The selection with its brackets, as it was written.
    pub text: &'a [u8],
}

/// Why a component is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// The brackets hold no selection.
    #[error("\"{name}\": {reason}")]
    Malformed {
        /// The component.
        name: String,
        /// What is wrong with its selection.
        reason: String,
    },
}

impl Name<'_> {
    /// Parses a component as a program gave it.
    pub fn parse(shown: &[u8]) -> Name<'_> {
        match selection_start(shown) {
            Some(at) if at > 0 && shown.ends_with(b"]") => Name::Selected(Selected {
                written: &shown[..at],
                base: unescape(&shown[..at]),
                text: &shown[at + 1..],
            }),
            // Without a closing bracket at the end, or without a name before the mark, it is no selection.
            Some(_) => Name::Plain(Cow::Borrowed(shown)),
            None => Name::Plain(unescape(shown)),
        }
    }
}

impl Selected<'_> {
    /// The selection, parsed; its rank and bounds are checked later, against an object.
    pub fn selection(&self) -> Result<Selection, NameError> {
        let malformed = |reason: String| NameError::Malformed {
            name: format!(
                "{}@{}",
                String::from_utf8_lossy(&self.base),
                String::from_utf8_lossy(self.text)
            ),
            reason,
        };
        let text = std::str::from_utf8(self.text).map_err(|_| {
            malformed("a selection holds digits, signs, colons and commas only".to_owned())
        })?;
        text.parse::<Selection>()
            .map_err(|error| malformed(error.to_string()))
    }
}

/// Escapes a stored name so that it is not parsed as a selection.
pub fn escape(stored: &[u8]) -> Cow<'_, [u8]> {
    if !stored.windows(2).any(|w| w == b"@[") {
        return Cow::Borrowed(stored);
    }
    let mut shown = Vec::with_capacity(stored.len() + 4);
    for (i, &byte) in stored.iter().enumerate() {
        if byte == b'[' && i > 0 && stored[i - 1] == b'@' {
            shown.push(b'@');
        }
        shown.push(byte);
    }
    Cow::Owned(shown)
}

/// Removes the escapes of a name.
fn unescape(shown: &[u8]) -> Cow<'_, [u8]> {
    if !shown.windows(3).any(|w| w == b"@@[") {
        return Cow::Borrowed(shown);
    }
    let mut stored = Vec::with_capacity(shown.len());
    for &byte in shown {
        if byte == b'[' && stored.ends_with(b"@@") {
            stored.pop();
        }
        stored.push(byte);
    }
    Cow::Owned(stored)
}

/// The position of the first `@[` that no other `@` precedes.
fn selection_start(shown: &[u8]) -> Option<usize> {
    (0..shown.len().saturating_sub(1))
        .find(|&i| &shown[i..i + 2] == b"@[" && (i == 0 || shown[i - 1] != b'@'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(shown: &[u8]) -> Vec<u8> {
        match Name::parse(shown) {
            Name::Plain(stored) => stored.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn selected(shown: &[u8]) -> (Vec<u8>, String) {
        match Name::parse(shown) {
            Name::Selected(s) => (
                s.base.into_owned(),
                String::from_utf8_lossy(s.text).into_owned(),
            ),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn plain_names_stay() {
        for name in [
            &b"temp"[..],
            b"a@b",
            b"x[0]",
            b"@",
            b"[",
            b"me@host[1]",
            b".slabfs",
            b"a@@b",
        ] {
            assert_eq!(plain(name), name);
            assert_eq!(&*escape(name), name);
        }
    }

    #[test]
    fn a_selection_is_split_off() {
        assert_eq!(
            selected(b"temp@[0:10,0:9]"),
            (b"temp".to_vec(), "[0:10,0:9]".into())
        );
        assert_eq!(
            selected(b"t@[ ::2, -1 ]"),
            (b"t".to_vec(), "[ ::2, -1 ]".into())
        );
        assert_eq!(selected(b"a@@[b@[3]"), (b"a@[b".to_vec(), "[3]".into()));
        assert_eq!(
            selected("größe@[1]".as_bytes()),
            ("größe".as_bytes().to_vec(), "[1]".into())
        );
    }

    #[test]
    fn an_escaped_name_is_plain() {
        assert_eq!(plain(b"a@@[b"), b"a@[b");
        assert_eq!(plain(b"a@@@[b]"), b"a@@[b]");
        assert_eq!(&*escape(b"a@[0]"), b"a@@[0]");
        assert_eq!(&*escape(b"@[@@["), b"@@[@@@[");
    }

    #[test]
    fn names_that_cannot_be_selections_are_plain() {
        for name in [
            &b"@[0]"[..],
            b"@[username]",
            b"t@[0",
            b"a@[1].txt",
            b"@[",
            b"@[x@@[y",
        ] {
            assert_eq!(plain(name), name);
        }
    }

    #[test]
    fn malformed_selections_are_errors() {
        for name in [&b"t@[\xff]"[..], b"t@[0:1:0]", b"t@[id]", b"t@[0]x]"] {
            let Name::Selected(s) = Name::parse(name) else {
                panic!()
            };
            assert!(matches!(s.selection(), Err(NameError::Malformed { .. })));
        }
    }

    proptest! {
        #[test]
        fn an_escaped_name_parses_to_the_stored_one(stored in "[@\\[\\]a0:]{1,12}") {
            prop_assert_eq!(plain(&escape(stored.as_bytes())), stored.as_bytes());
        }
    }
}
