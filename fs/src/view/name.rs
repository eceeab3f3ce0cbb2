//! One component of a path on the mount.
//!
//! `@[` begins a selection: `temp@[0:10,0:9]` is those elements of `temp`. A stored name that really holds
//! `@[` is shown and reached with one more `@`. To keep that a bijection the rule is about runs: *k* `@`
//! in front of a `[` stand for a selection if *k* = 1, and for *k* - 1 stored `@` and a `[` otherwise. So
//! every stored name has exactly one shown name, and whatever `readdir` shows opens again.
//!
//! Names are bytes, as everywhere in POSIX; only the text of a selection must be UTF-8 (it is ASCII).

use std::borrow::Cow;

use slabfs_model::Selection;
use thiserror::Error;

/// The folder in the root of a mount under which the hidden files lie; `readdir` does not list it.
pub const HIDDEN: &[u8] = b".slabfs";

/// What a path component means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name<'a> {
    /// An entry of the directory, under its stored name.
    Plain(Cow<'a, [u8]>),
    /// Some elements of an entry.
    Selected(Selected<'a>),
}

/// `base@[text]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected<'a> {
    /// The stored name of the object.
    pub base: Cow<'a, [u8]>,
    /// The selection with its brackets, as it was written.
    pub text: &'a str,
}

/// Why a component means nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// `@[` without a name in front of it.
    #[error("\"{0}\": a selection needs the object's name in front of \"@[\"")]
    NoObject(String),
    /// `@[` that is not closed by a `]` at the end.
    #[error(
        "\"{0}\": \"@[\" begins a selection and \"]\" must end it, as in temp@[0:10,0:9]; a name that \
         really holds \"@[\" is written with \"@@[\""
    )]
    NotClosed(String),
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
    /// Reads a component as a program gave it.
    pub fn parse(shown: &[u8]) -> Result<Name<'_>, NameError> {
        match selection_start(shown) {
            None => Ok(Name::Plain(unescape(shown))),
            Some(at) => parse_selected(shown, at).map(Name::Selected),
        }
    }
}

impl Selected<'_> {
    /// The selection, parsed; its rank and bounds are checked where it meets an object.
    pub fn selection(&self) -> Result<Selection, NameError> {
        self.text
            .parse::<Selection>()
            .map_err(|e| NameError::Malformed {
                name: format!("{}@{}", String::from_utf8_lossy(&self.base), self.text),
                reason: e.to_string(),
            })
    }
}

/// The name under which the mount shows a stored name.
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

/// The stored name behind a shown one that holds no selection.
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

/// Where the first `@[` stands that no other `@` precedes.
fn selection_start(shown: &[u8]) -> Option<usize> {
    (0..shown.len().saturating_sub(1))
        .find(|&i| &shown[i..i + 2] == b"@[" && (i == 0 || shown[i - 1] != b'@'))
}

fn parse_selected(shown: &[u8], at: usize) -> Result<Selected<'_>, NameError> {
    let whole = || String::from_utf8_lossy(shown).into_owned();
    if at == 0 {
        return Err(NameError::NoObject(whole()));
    }
    if shown.last() != Some(&b']') {
        return Err(NameError::NotClosed(whole()));
    }
    let text = std::str::from_utf8(&shown[at + 1..]).map_err(|_| NameError::Malformed {
        name: whole(),
        reason: "a selection holds digits, signs, colons and commas only".to_string(),
    })?;
    Ok(Selected {
        base: unescape(&shown[..at]),
        text,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(shown: &[u8]) -> Vec<u8> {
        match Name::parse(shown) {
            Ok(Name::Plain(stored)) => stored.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn selected(shown: &[u8]) -> (Vec<u8>, String) {
        match Name::parse(shown) {
            Ok(Name::Selected(s)) => (s.base.into_owned(), s.text.to_string()),
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
    fn a_selection_is_cut_off() {
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
    fn an_escaped_name_means_itself() {
        assert_eq!(plain(b"a@@[b"), b"a@[b");
        assert_eq!(plain(b"a@@@[b]"), b"a@@[b]");
        assert_eq!(&*escape(b"a@[0]"), b"a@@[0]");
        assert_eq!(&*escape(b"@[@@["), b"@@[@@@[");
    }

    #[test]
    fn what_means_nothing_is_told() {
        assert!(matches!(Name::parse(b"@[0]"), Err(NameError::NoObject(_))));
        assert!(matches!(Name::parse(b"t@[0"), Err(NameError::NotClosed(_))));
        assert!(matches!(
            Name::parse(b"t@[0]x"),
            Err(NameError::NotClosed(_))
        ));
        assert!(matches!(
            Name::parse(b"t@[\xff]"),
            Err(NameError::Malformed { .. })
        ));
        let Ok(Name::Selected(s)) = Name::parse(b"t@[0:1:0]") else {
            panic!()
        };
        assert!(matches!(s.selection(), Err(NameError::Malformed { .. })));
        let text = Name::parse(b"t@[0").unwrap_err().to_string();
        assert!(text.contains("@@["), "{text}");
    }

    proptest! {
        #[test]
        fn what_is_shown_opens_again(stored in "[@\\[\\]a0:]{1,12}") {
            prop_assert_eq!(plain(&escape(stored.as_bytes())), stored.as_bytes());
        }

        #[test]
        fn two_shown_names_never_mean_one(shown in "[@\\[\\]a0:]{1,12}") {
            if let Ok(Name::Plain(stored)) = Name::parse(shown.as_bytes()) {
                prop_assert_eq!(&*escape(&stored), shown.as_bytes());
            }
        }
    }
}
