//! The list of inputs: names, patterns, and lists in files, in natural order.

use std::cmp::Ordering;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The most bytes of a list.
const LONGEST: u64 = 64 << 20;

/// All inputs, each as often as it is given: that a file is there twice is found when it is opened.
pub(super) fn list(given: &[PathBuf], more: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for input in given {
        match input.as_os_str().as_bytes().strip_prefix(b"@") {
            Some(name) if !input.exists() => {
                all.extend(lines(Path::new(std::ffi::OsStr::from_bytes(name)))?)
            }
            _ => all.extend(expanded(input)?),
        }
    }
    if let Some(list) = more {
        all.extend(lines(list)?);
    }
    if all.is_empty() {
        bail!("there is no input; give the files to join");
    }
    all.sort_by(|one, other| natural(one, other));
    Ok(all)
}

/// The files that a pattern stands for; a name that exists stands for itself.
fn expanded(input: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let pattern = input.to_str().filter(|text| text.contains(['*', '?', '[']));
    let Some(pattern) = pattern.filter(|_| !input.exists()) else {
        return Ok(vec![input.to_owned()]);
    };
    let found = glob::glob(pattern).with_context(|| format!("the pattern {pattern}"))?;
    let found = found
        .collect::<Result<Vec<PathBuf>, _>>()
        .with_context(|| format!("the pattern {pattern}"))?;
    if found.is_empty() {
        bail!("no file fits the pattern {pattern}");
    }
    Ok(found)
}

/// The names in a file, one a line; empty lines do not count.
fn lines(list: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let with = || format!("reading the list {}", list.display());
    let mut bytes = Vec::new();
    let read = match list == Path::new("-") {
        true => std::io::stdin().take(LONGEST).read_to_end(&mut bytes),
        false => std::fs::File::open(list)
            .with_context(with)?
            .take(LONGEST)
            .read_to_end(&mut bytes),
    };
    if read.with_context(with)? as u64 == LONGEST {
        bail!("the list {} is longer than 64 MiB", list.display());
    }
    let lines = bytes
        .split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let names = lines.filter(|line| !line.is_empty());
    Ok(names
        .map(|line| std::ffi::OsString::from_vec(line.to_vec()).into())
        .collect())
}

/// Compares names so that numbers in them count as numbers: `a.9` is before `a.10`.
fn natural(one: &Path, other: &Path) -> Ordering {
    let (mut one, mut other) = (one.as_os_str().as_bytes(), other.as_os_str().as_bytes());
    while let (Some(&first), Some(&second)) = (one.first(), other.first()) {
        let order = match first.is_ascii_digit() && second.is_ascii_digit() {
            true => {
                let (left, right) = (number(&mut one), number(&mut other));
                left.len().cmp(&right.len()).then_with(|| left.cmp(right))
            }
            false => {
                (one, other) = (&one[1..], &other[1..]);
                first.cmp(&second)
            }
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    one.len().cmp(&other.len())
}

/// Takes the digits at the beginning; the result has no leading zeros.
fn number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    let zeros = digits
        .iter()
        .position(|&byte| byte != b'0')
        .unwrap_or(digits.len());
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_as_numbers() {
        let mut names: Vec<PathBuf> = ["b.1", "a.10", "a.9", "a.0010", "a", "a.9b"]
            .iter()
            .map(PathBuf::from)
            .collect();
        names.sort_by(|one, other| natural(one, other));
        let names: Vec<&str> = names.iter().filter_map(|name| name.to_str()).collect();
        assert_eq!(names, ["a", "a.9", "a.9b", "a.10", "a.0010", "b.1"]);
    }

    #[test]
    fn lists_and_patterns_are_expanded() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for name in ["t.10", "t.9", "t.1", "u[1]"] {
            std::fs::write(at(name), "").expect("written");
        }
        let found = list(&[at("t.*"), at("u[1]")], None).expect("listed");
        assert_eq!(found, [at("t.1"), at("t.9"), at("t.10"), at("u[1]")]);
        std::fs::write(
            at("list"),
            format!("{}\n\n{}\r\n", at("t.9").display(), at("gone").display()),
        )
        .expect("written");
        let mut given = std::ffi::OsString::from("@");
        given.push(at("list"));
        assert_eq!(
            list(&[given.into()], None).expect("listed"),
            [at("gone"), at("t.9")]
        );
        assert_eq!(list(&[], Some(&at("list"))).expect("listed").len(), 2);
        assert!(
            list(&[at("v*")], None)
                .expect_err("none")
                .to_string()
                .contains("v*")
        );
        assert!(list(&[], None).is_err());
    }
}
