//! Parses a word as a value of the type it is compared with. Errors are messages to the user.

use slabfs_model::{DType, Num};

use super::subject::{Builtin, KINDS};
use super::term::{Comparison, Key, Literal, Pattern};
use super::token::{Part, Word};
use super::when::When;

/// The value that `key` is compared with.
pub(super) fn value(key: &Key, comparison: Comparison, word: &Word) -> Result<Literal, String> {
    let literal = read(key, word)?;
    let equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
    match (&literal, key) {
        (Literal::When(when), _) if equality && when.is_relative() => Err(format!(
            "nothing is exactly that long ago; write e.g. mtime > {} for what changed since",
            word.text()
        )),
        (_, Key::Builtin(Builtin::Kind)) if !equality => {
            Err("a kind is compared with = or !=".to_owned())
        }
        _ => Ok(literal),
    }
}

fn read(key: &Key, word: &Word) -> Result<Literal, String> {
    match key {
        Key::Tag(_) | Key::Tags(_) => tag_value(word),
        Key::Builtin(builtin) => builtin_value(*builtin, word),
    }
}

/// Checks that such a name or path can exist, or begin so.
pub(super) fn can_be(key: &Key, text: &str) -> Result<(), String> {
    match key {
        Key::Builtin(Builtin::Path) if !text.starts_with('/') => {
            let text: String = text.chars().take(40).collect();
            Err(format!(
                "a path begins with a slash, at the top of the filesystem: write /{text}, or */{text} if it may lie deeper"
            ))
        }
        Key::Builtin(Builtin::Path) if text.contains("//") || text.contains("/../") => {
            Err("a path has single slashes and no .. in it, as /run1/temp".to_owned())
        }
        Key::Builtin(Builtin::Name) if text.contains('/') => {
            Err("a name has no slash; compare the path: path = */data/temp".to_owned())
        }
        _ => Ok(()),
    }
}

fn tag_value(word: &Word) -> Result<Literal, String> {
    if let [Part::Bare(x), Part::Quoted(digits)] = &word.parts[..]
        && x == "x"
    {
        return unhex(digits).map(Literal::Bytes);
    }
    Ok(match word.bare().and_then(Num::read) {
        Some(number) => Literal::Number(number),
        None => Literal::Text(word.text()),
    })
}

fn builtin_value(builtin: Builtin, word: &Word) -> Result<Literal, String> {
    let text = word.text();
    match builtin {
        Builtin::Name => Ok(Literal::Text(text)),
        Builtin::Path => path(text).map(Literal::Text),
        Builtin::DType => {
            let dtype: DType = text.parse().map_err(|error| format!("{error}"))?;
            Ok(Literal::Text(dtype.to_string()))
        }
        Builtin::Kind => match kind_named(&text) {
            Some(name) => Ok(Literal::Text(name.to_owned())),
            None => {
                let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                Err(format!("\"{text}\" is not a kind; write one of {names}"))
            }
        },
        Builtin::Rank | Builtin::Dim(_) => match Num::read(&text) {
            Some(number) => Ok(Literal::Number(number)),
            None => Err(format!("{builtin} is compared with a number, e.g. 3")),
        },
        Builtin::Size => match size(&text) {
            Some(number) => Ok(Literal::Number(number)),
            None => Err("a size is a number of bytes, or of 1024 with K, 1024² with M, and so on with G, T, P: 1.5G".to_owned()),
        },
        Builtin::Mtime => When::parse(&text).map(Literal::When),
        Builtin::Owner => Ok(match word.bare().and_then(Num::read) {
            Some(uid) if uid.as_i64().is_some() => Literal::Number(uid),
            _ => Literal::Text(text),
        }),
    }
}

/// The path with single slashes and without one at its end, as stored paths are; [`can_be`] refuses one without a
/// slash at its beginning.
fn path(text: String) -> Result<String, String> {
    if !text.starts_with('/') {
        return Ok(text);
    }
    let names = text.split('/').filter(|name| !matches!(*name, "" | "."));
    let names: Vec<&str> = names.collect();
    if names.contains(&"..") {
        return Err("a path has no .. in it; write the path to which it leads".to_owned());
    }
    Ok(format!("/{}", names.join("/")))
}

/// The name of a kind as in [`KINDS`]; some have aliases.
fn kind_named(text: &str) -> Option<&'static str> {
    let text = match text {
        "dir" | "directory" => "container",
        "file" => "object",
        "link" => "symlink",
        other => other,
    };
    KINDS
        .iter()
        .map(|(name, _)| *name)
        .find(|name| *name == text)
}

/// Whether a word that is compared is a range of an ordered type.
pub(super) fn is_range(key: &Key, word: &Word) -> bool {
    let Some((low, high)) = word.range() else {
        return false;
    };
    let ends = [low, high].into_iter().filter(|end| !end.parts.is_empty());
    let ordered = |end: &Word| {
        let read = read(key, end);
        end.bare().is_some() && matches!(read, Ok(Literal::Number(_) | Literal::When(_)))
    };
    let mut ends = ends.peekable();
    ends.peek().is_some() && ends.all(|end| ordered(&end))
}

fn size(text: &str) -> Option<Num> {
    let unit = text.chars().last()?;
    let power = "KMGTP".find(unit.to_ascii_uppercase());
    let Some(power) = power else {
        return Num::read(text);
    };
    let number = Num::read(&text[..text.len() - unit.len_utf8()])?;
    let unit = 1i64 << (10 * (power + 1));
    match number
        .as_i64()
        .and_then(|integer| integer.checked_mul(unit))
    {
        Some(bytes) => Some(Num::int(bytes)),
        None => Num::float(number.as_f64() * unit as f64)
            .ok()
            .filter(|bytes| bytes.as_f64().is_finite()),
    }
}

/// The bounds of the range of `key`.
pub(super) fn range(key: &Key, word: &Word) -> Result<(Option<Literal>, Option<Literal>), String> {
    let (low, high) = word
        .range()
        .ok_or("a range is written low..high without spaces, e.g. 3..9, or 3.. without an end")?;
    if word.has_star() {
        return Err("a range has no stars; quote one that is meant as a star".to_owned());
    }
    if matches!(key, Key::Builtin(Builtin::Kind)) {
        return Err("a kind is compared with = or !=".to_owned());
    }
    let end = |word: &Word| match word.parts.is_empty() {
        true => Ok(None),
        false => read(key, word).map(Some),
    };
    let (low, high) = (end(&low)?, end(&high)?);
    match (&low, &high) {
        (None, None) => Err("a range needs an end, e.g. 3..9, 3.. or ..9; has KEY asks for any value".to_owned()),
        (Some(low), Some(high)) => match (low, high) {
            (Literal::Number(low), Literal::Number(high)) if low > high => Err(format!(
                "nothing is in this range: {low} is more than {high}"
            )),
            _ if std::mem::discriminant(low) == std::mem::discriminant(high) => Ok(()),
            _ => Err("both ends of a range are numbers, or both are text; a number is made text by quotes".to_owned()),
        },
        _ => Ok(()),
    }?;
    Ok((low, high))
}

/// Whether `key` can be compared with a pattern.
pub(super) fn takes_patterns(key: &Key) -> Result<(), String> {
    match key {
        Key::Tag(_) | Key::Tags(_) => Ok(()),
        Key::Builtin(Builtin::Name | Builtin::Path | Builtin::DType | Builtin::Owner) => Ok(()),
        Key::Builtin(other) => Err(format!("{other} is not text, and takes no pattern")),
    }
}

/// The pattern that a word with a star denotes.
pub(super) fn pattern(word: &Word) -> Result<Pattern, String> {
    let star = |part: Option<&Part>| matches!(part, Some(Part::Star(_)));
    let (first, last) = (star(word.parts.first()), star(word.parts.last()));
    if word.parts.len() == 1 {
        return Ok(Pattern::Any);
    }
    let inner = &word.parts[usize::from(first)..word.parts.len() - usize::from(last)];
    let parts = inner.to_vec();
    let inner = Word { parts };
    if inner.has_star() {
        return Err("a * stands at the beginning or the end, not in the middle; write two comparisons, e.g. k = a* and k = *b, or quote a star that is meant as a star".to_owned());
    }
    let text = inner.text();
    Ok(match (text.is_empty(), first, last) {
        (true, ..) => Pattern::Any,
        (_, true, true) => Pattern::Infix(text),
        (_, true, false) => Pattern::Suffix(text),
        _ => Pattern::Prefix(text),
    })
}

fn unhex(digits: &str) -> Result<Vec<u8>, String> {
    let tag = slabfs_model::Tag::parse(slabfs_model::TagKind::Bytes, digits);
    tag.map(|tag| tag.bytes).map_err(|error| error.to_string())
}
