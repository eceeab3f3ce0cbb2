//! Mistakes: each is refused with advice, and the error marks its position.

use crate::tags::query::{MAX_NESTING, MAX_TERMS, MAX_TEXT, Query};

fn refused(query: &str, place: &str, part: &str) {
    let error = Query::parse(query).unwrap_err();
    assert_eq!(&query[error.span.clone()], place, "{error}");
    assert!(error.message.contains(part), "{error}");
}

#[test]
fn each_mistake_marks_its_position() {
    refused("", "", "nothing is searched for");
    refused("  \t", "", "nothing is searched for");
    refused("step", "", "write a comparison after step");
    refused("step =", "", "a value after =");
    refused("step = and x = 3", "and", "a word of the language");
    refused("step 3", "3", "write a comparison after step");
    refused("step == 3", "==", "not a comparison");
    refused("step =< 3", "=<", "not a comparison");
    refused("a = 1 b = 2", "b", "write \"and\" or \"or\"");
    refused("a = 1, b = 2", "b", "write \"and\" or \"or\"");
    refused("(a = 1", "(", "never closed");
    refused("a = 1)", ")", "closes nothing");
    refused("(a = 1 b = 2)", "b", "closing parenthesis");
    refused("()", ")", "a comparison, e.g.");
    refused("a = 1 and", "", "a comparison, e.g.");
    refused("not", "", "a comparison, e.g.");
    refused("has", "", "the key of a tag");
    refused("= 3", "=", "a comparison, e.g.");
    refused("name = \"x", "\"", "never closed");
    refused("name = o'brien", "'", "\\'");
    refused("name = x\\", "\\", "backslash");
    refused("a = x*y", "x*y", "not in the middle");
    refused("a*b = 3", "a*b", "not in the middle");
    refused("a < x*", "x*", "with = or !=, not with <");
    refused("rank = 2*", "2*", "takes no pattern");
    refused("step in 3", "3", "low..high");
    refused("step in 3 .. 9", "3", "low..high");
    refused("step in ..", "..", "needs an end");
    refused("step in 9..3", "9..3", "9 is more than 3");
    refused("step in 3..x", "3..x", "made text by quotes");
    refused("step in 3..9*", "3..9*", "no stars");
    refused("dims = 3", "dims", "which axis");
    refused("dims[99] = 3", "dims[99]", "an axis is written");
    refused("dims[x] = 3", "dims[x]", "an axis is written");
    refused("rank = two", "two", "compared with a number");
    refused("size > 3X", "3X", "a number of bytes");
    refused("size > 1e300P", "1e300P", "a number of bytes");
    refused("dtype = f32", "f32", "write f4");
    refused("kind = thing", "thing", "is not a kind");
    refused("path = d/b", "d/b", "write /d/b, or */d/b");
    refused("path != d/*", "d/*", "write /d/");
    refused("path in (/a, b)", "b", "write /b");
    refused("name = d/b", "d/b", "compare the path");
    refused("step = 3..9", "3..9", "with in");
    refused("step != 3..", "3..", "with in");
    refused("mtime = 2026-11..2026-12", "2026-11..2026-12", "with in");
    refused("size = 1K..", "1K..", "with in");
    refused("owner = 3..9", "3..9", "with in");
    refused("dtype = <f4", "<", "quoted");
    refused("dtype =<f4", "=<", "quotes");
    refused("k in (a b)", "b", "commas between values");
    refused("k in (a,,b)", "a,,b", "missing before a comma");
    refused("k in (a,)", ")", "write values");
    refused("k in ()", ")", "write values");
    refused("k in (a, (b))", "(", "write values");
    refused("k in (a, b", "(", "never closed");
    refused("k in (a, and)", "and", "in quotes");
    refused("mtime in (-2d, 2026-11)", "-2d,", "mtime > -2d");
    refused("user.slabfs.dims = 3", "user.slabfs.dims", "properties");
    refused("kind > object", "object", "= or !=");
    refused("mtime > yesterday", "yesterday", "a time is written");
    refused("mtime = -2d", "-2d", "mtime > -2d");
    refused("k = x\"0\"", "x\"0\"", "hexadecimal");
    refused("\"\" = 3", "\"\"", "empty");
    refused("slabfs.dims = 3", "slabfs.dims", "properties");
    refused("größe = ä*ö", "ä*ö", "not in the middle");
}

#[test]
fn the_position_is_marked_below_the_query() {
    let shown = Query::parse("step =  and\tx = 3").unwrap_err().to_string();
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines[1..], ["  step =  and x = 3", "          ^^^"]);
    // Only a part of a long query is shown.
    let long = format!("{} ä ( {}", "x = 1 or ".repeat(100), " y".repeat(100));
    let shown = Query::parse(&long).unwrap_err().to_string();
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines[1].chars().count() < 90 && lines[1].contains('…'));
    let at = lines[2].chars().position(|char| char == '^').unwrap();
    assert_eq!(lines[1].chars().nth(at), Some('('));
    // The part of the query in the message stays on its line.
    let shown = Query::parse("'a\nb'").unwrap_err().to_string();
    assert_eq!(shown.lines().count(), 3, "{shown}");
    let end = Query::parse("a =").unwrap_err().to_string();
    assert!(end.ends_with("  a =\n     ^"), "{end}");
}

#[test]
fn limits() {
    let deep = |n| format!("{}a = 1{}", "(".repeat(n), ")".repeat(n));
    assert!(Query::parse(&deep(MAX_NESTING)).is_ok());
    refused(&deep(MAX_NESTING + 1), "(", "nested more than 100 deep");
    let nots = |n: usize| format!("{}a = 1", "not ".repeat(n));
    assert!(Query::parse(&nots(MAX_NESTING)).is_ok());
    refused(&nots(MAX_NESTING + 1), "not", "nested more than 100 deep");
    let many = |n: usize| vec!["a = 1"; n].join(" and ");
    assert!(Query::parse(&many(MAX_TERMS)).is_ok());
    refused(&many(MAX_TERMS + 1), "a", "at most 10000 comparisons");
    let text = |n: usize| format!("a = {}", "x".repeat(n - 4));
    assert!(Query::parse(&text(MAX_TEXT)).is_ok());
    refused(&text(MAX_TEXT + 1), "", "at most 1048576 bytes");
    // Unbalanced, and as long as permitted.
    for hostile in [
        "(", ")", "not ", "\\", "\"", "*", "a=", "a=1 or (", "!", "a in ..",
    ] {
        let text = hostile.repeat(MAX_TEXT / hostile.len());
        assert!(Query::parse(&text).is_err());
    }
}

#[test]
fn an_owner_must_be_a_user() {
    let users = |name: &str| name == "alice";
    for text in [
        "owner = alice",
        "owner = 1000",
        "owner = a*",
        "owner < bob",
        "not owner != alice",
    ] {
        assert!(Query::parse_with(text, &users).is_ok(), "{text}");
    }
    let error = Query::parse_with("x = 1 and owner = bob", &users).unwrap_err();
    assert_eq!(error.span, 18..21, "{error}");
    assert!(error.message.contains("no user \"bob\""), "{error}");
}
