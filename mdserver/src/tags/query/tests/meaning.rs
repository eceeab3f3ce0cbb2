//! The meaning of each part of the language.

use super::support::{Thing, matches};
use slabfs_model::Tag;

fn all(thing: &Thing, yes: &[&str], no: &[&str]) {
    for query in yes {
        assert!(matches(thing, query), "{query} should match");
    }
    for query in no {
        assert!(!matches(thing, query), "{query} should not match");
    }
}

#[test]
fn comparisons_of_numbers() {
    all(
        &Thing::with(&["step=10", "temp=2.5"]),
        &[
            "step = 10",
            "step=10.0",
            "step = 1e1",
            "step != 9",
            "step < 11",
            "step <= 10",
            "step > 9.5",
            "step >= 10",
            "step in 3..10",
            "step in 10..",
            "step in ..10",
            "temp = 2.5",
            "temp in 2..3",
            "temp < 2.6",
        ],
        &[
            "step = 9",
            "step != 10",
            "step < 10",
            "step > 10",
            "step in 3..9",
            "step in 11..",
            "temp = 2",
            "temp >= 2.51",
            "step = x",
            "step < x",
        ],
    );
}

#[test]
fn integers_keep_their_precision() {
    all(
        &Thing::with(&["id=9007199254740993"]),
        &[
            "id = 9007199254740993",
            "id > 9007199254740992",
            "id < 9007199254740994.0",
        ],
        &["id = 9007199254740992", "id = 9007199254740992.0"],
    );
}

#[test]
fn comparisons_of_text() {
    all(
        &Thing::with(&["project=climate", "title=a b", "note=x*y", "empty="]),
        &[
            "project = climate",
            "project=climate",
            "\"project\" = 'climate'",
            "project != Climate",
            "project > cl",
            "project <= climate",
            "project in b..d",
            "project in climate..climate",
            "title = \"a b\"",
            "title = a\\ b",
            "title = a\" \"b",
            "note = x\\*y",
            "note = \"x*y\"",
            "project = c*",
            "project = *te",
            "project = *lima*",
            "project = *i*",
            "project = *",
            "project != d*",
            "title = \"a \"*",
            "title = *' b'",
            "empty = \"\"",
            "empty = *",
        ],
        &[
            "project = Climate",
            "project = clima",
            "project = x*",
            "project = *x",
            "project = *x*",
            "project != c*",
            "project in d..",
            "project < 3",
            "project > 3",
            "project = 3",
            "project != *",
            "empty != \"\"",
        ],
    );
}

#[test]
fn a_bare_number_is_a_number_and_a_quoted_one_is_text() {
    all(&Thing::with(&["k=3"]), &["k = 3"], &["k = \"3\"", "k = 3*"]);
    all(
        &Thing::with(&["k:text=3"]),
        &["k = \"3\"", "k = 3*", "k != 3"],
        &["k = 3"],
    );
    // Untyped: both.
    all(
        &Thing::with(&["k:auto=3"]),
        &[
            "k = 3",
            "k = \"3\"",
            "k = 3.0",
            "k = 3*",
            "k >= 3",
            "k >= \"3\"",
        ],
        &["k = \"3.0\"", "k != 3"],
    );
    all(
        &Thing::with(&["k=007"]),
        &["k = 7", "k = \"007\"", "k = 007"],
        &["k = \"7\""],
    );
}

#[test]
fn a_tag_that_is_missing() {
    all(
        &Thing::with(&["a=1"]),
        &[
            "not has b",
            "not b = 1",
            "not b != 1",
            "has a",
            "has a or has b",
            "a = 1 and not b = 1",
        ],
        &[
            "b = 1",
            "b != 1",
            "b = *",
            "b < 1",
            "b in 0..2",
            "has b",
            "b != x*",
            "has a and has b",
        ],
    );
}

#[test]
fn lists() {
    all(
        &Thing::with(&["k=[1, 2.5, \"abc\", {\"bytes\": \"00ff\"}]"]),
        &[
            "k = 1",
            "k = 2.5",
            "k = abc",
            "k = a*",
            "k > 2",
            "k != 3",
            "k = x\"00ff\"",
            "k in 2..3",
            "has k",
            "k != d*",
        ],
        // One member has to lie in a range, not two to both sides of it.
        &[
            "k in 1.5..2",
            "k = 3",
            "k != 1",
            "k != abc",
            "k != a*",
            "k = \"[1,2.5\"*",
        ],
    );
    all(
        &Thing::with(&["k=[]"]),
        &["has k", "k != 1", "k = *"],
        &["k = 1", "k < 1"],
    );
}

#[test]
fn bytes() {
    let mut thing = Thing::with(&["k:bytes=00ff41", "text=A"]);
    thing.tags.insert("raw".to_owned(), Tag::auto([0xff]));
    all(
        &thing,
        &[
            "k = x\"00ff41\"",
            "k = x'00FF41'",
            "k > x\"00\"",
            "k in x\"00\"..x\"01\"",
            "raw = x\"ff\"",
            "k != A",
        ],
        &["k = A", "text = x\"41\"", "k = *A", "raw = *a"],
    );
}

#[test]
fn keys_with_stars() {
    all(
        &Thing::with(&["temp_in=3", "temp_out=4", "x y=5"]),
        &[
            "temp* = 3",
            "temp* = 4",
            "*out > 3",
            "*emp* in 3..4",
            "has *emp*",
            "has *",
            "* = 5",
            "temp* != 3",
            "has *\"x y\"",
            "\"x y\" = 5",
            "not has y*",
        ],
        &["temp* = 5", "has out*", "*in = 4", "* = 6", "not has *"],
    );
}

#[test]
fn words_in_quotes_are_keys_and_values() {
    all(
        &Thing::with(&["and=or", "name=mine", "dims=3", "dc:title=x", "größe=ä"]),
        &[
            "\"and\" = \"or\"",
            "\"name\" = mine",
            "name = temp.dat",
            "\"dims\" = 3",
            "dc:title = x",
            "größe = ä",
            "größe = *ä",
        ],
        &["name = mine"],
    );
}

#[test]
fn built_in_properties() {
    all(
        &Thing::default(),
        &[
            "name = temp.dat",
            "name = temp*",
            "name = *.dat",
            "name != x",
            "path = /run1/*",
            "path in /run1..",
            "dtype = f4",
            "dtype = \"<f4\"",
            "dtype != f8",
            "dtype = f*",
            "rank = 2",
            "rank >= 2",
            "rank in 1..2",
            "dims[0] = 16",
            "dims[1] < 10",
            "has dims[1]",
            "size = 1536",
            "size = 1.5K",
            "size < 2k",
            "size > 1K",
            "size in 1K..1M",
            "owner = alice",
            "owner = 1000",
            "owner = al*",
            "owner != bob",
            "kind = object",
            "kind != container",
            "has kind",
            "not has dims[2]",
        ],
        &[
            "name = temp",
            "dtype = f8",
            "rank > 2",
            "dims[0] = 9",
            "dims[2] > 0",
            "dims[2] != 3",
            "size > 1G",
            "owner = bob",
            "owner = \"1000\"",
            "kind = container",
            "owner != al*",
        ],
    );
}

#[test]
fn times() {
    // It was changed on 2026-11-22 at 10:30:05 and 5 ns; the search is ten hours later.
    all(
        &Thing::default(),
        &[
            "mtime = 2026-11-22",
            "mtime >= 2026-11-22",
            "mtime <= 2026-11-22",
            "mtime < 2026-11-23",
            "mtime > 2026-11-21",
            "mtime = 2026-11-22T10:30",
            "mtime = 2026-11",
            "mtime in 2026-11-01..2026-11-22",
            "mtime > -2d",
            "mtime < -9h",
            "mtime > -11h",
            "mtime in -1d..",
            "mtime != 2026-11-21",
            "mtime = 2026-11-22T11:30:05+01:00",
            "mtime = \"2026-11-22 10:30\"",
        ],
        &[
            "mtime > 2026-11-22",
            "mtime < 2026-11-22",
            "mtime = 2026-11-21",
            "mtime > -9h",
            "mtime != 2026-11-22",
            "mtime in ..2026-11-21",
            "mtime < -1w",
        ],
    );
}

#[test]
fn and_binds_closer_than_or_and_not_closest() {
    all(
        &Thing::with(&["a=1", "b=2"]),
        &[
            "a = 1 or a = 2 and b = 3",
            "not a = 2 and b = 2",
            "not (a = 1 and b = 3)",
            "(a = 2 or b = 2) and a = 1",
            "NOT a=2 AND b=2",
            "not not a = 1",
            "((a = 1))",
        ],
        &[
            "(a = 1 or a = 2) and b = 3",
            "not a = 1 or b = 3",
            "not (a = 1 or b = 3)",
        ],
    );
}

#[test]
fn infinities_are_numbers() {
    all(
        &Thing::with(&["low:float=-inf", "high=inf", "far=Infinity", "who:text=inf"]),
        &[
            "low = -inf",
            "low < -1e308",
            "high = inf",
            "high = +Infinity",
            "high > 1e308",
            "high in 1..inf",
            "far = inf",
            "far = \"Infinity\"",
            "far = Inf*",
            "who = \"inf\"",
        ],
        &["low = inf", "high = \"inf\"", "who = inf", "high < inf"],
    );
}

#[test]
fn lists_of_values() {
    all(
        &Thing::with(&["step=10", "project=sea ice", "axes=[\"lat\", 3]"]),
        &[
            "step in (3, 10)",
            "step in(10)",
            "step in (3,10 , 12)",
            "project in (x, \"sea ice\")",
            "project in (\"a,b\", sea*)",
            "axes in (lon, lat)",
            "step in (3, 10) and not step in (3, 4)",
            "name in (temp.dat, other)",
            "kind in (dir, file)",
        ],
        &[
            "step in (3, 4)",
            "project in (sea, ice)",
            "kind in (dir, link)",
        ],
    );
}

#[test]
fn words_that_people_use() {
    all(
        &Thing::with(&["k=3", "user.user.k=4", "dir=a..b"]),
        &[
            "user.k = 3",
            "\"user.k\" = 4",
            "has user.k",
            "user.k* = 3",
            "kind = file",
            "kind != dir",
            "kind != directory",
            "dir = a..b",
            "dir = \"a..b\"",
        ],
        &["kind = dir", "kind = link", "user.k = 4"],
    );
}

#[test]
fn all_keys_with_the_prefix_of_tags_are_all_keys() {
    use crate::tags::query::Query;
    assert_eq!(Query::parse("user.* = f0"), Query::parse("* = f0"));
}
