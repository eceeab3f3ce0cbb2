//! Tests of the search: against a naive implementation, in pages and shares, with permissions, and after damage to the
//! index.

use proptest::prelude::*;
use slabfs_model::{Tag, TagKind};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::support::*;
use crate::Service;
use crate::api::{
    Caller, Find, Hit, Ino, Kind, MdError, ROOT, RenameFlags, SetAttr, TagChange, XattrFlags, op,
};
use crate::client::Md;

fn query(text: &str) -> Find {
    Find {
        query: text.to_owned(),
        limit: 100,
        ..Find::default()
    }
}

/// All hits, in pages.
fn all(md: &Md, mut find: Find) -> Vec<Hit> {
    let mut hits = Vec::new();
    for _ in 0..100_000 {
        let page = md.call(find.clone()).unwrap();
        assert_eq!(page.count, page.hits.len() as u64);
        hits.extend(page.hits);
        match page.next {
            Some(next) => find.after = Some(next),
            None => return hits,
        }
    }
    panic!("a search without an end")
}

fn paths_of(hits: Vec<Hit>) -> Vec<String> {
    let mut paths: Vec<_> = hits
        .into_iter()
        .map(|hit| String::from_utf8(hit.path).unwrap())
        .collect();
    paths.sort();
    paths
}

fn paths(md: &Md, text: &str) -> Vec<String> {
    paths_of(all(md, query(text)))
}

fn tag(md: &Md, ino: Ino, name: &str, tag: Tag) {
    md.tag(ino, vec![(name.to_owned(), tag)], vec![]).unwrap();
}

#[test]
fn tagged_objects_are_found_at_once() {
    let (_service, md) = ready();
    let d = make(&md, ROOT, "d", Kind::Directory).unwrap();
    let a = file(&md, "a");
    let b = make(&md, d, "b", Kind::Object).unwrap();
    tag(&md, a, "project", Tag::text("climate"));
    tag(&md, b, "project", Tag::text("climate model"));
    tag(&md, d, "project", Tag::text("climate"));
    md.setxattr(a, b"user.step", b"12", XattrFlags::Either)
        .unwrap();
    tag(&md, b, "step", Tag::int(7));
    for (text, expected) in [
        ("project = climate", &["/a"][..]),
        ("project = climate*", &["/a", "/d/b"]),
        ("project = *model", &["/d/b"]),
        ("project = *mat*", &["/a", "/d/b"]),
        ("project = *li*", &["/a", "/d/b"]),
        ("step > 7", &["/a"]),
        ("step in 3..12", &["/a", "/d/b"]),
        ("step = 12 and project = climate*", &["/a"]),
        ("step = 12 or step = 7", &["/a", "/d/b"]),
        ("has step", &["/a", "/d/b"]),
        ("not step = 7", &["/a"]),
        ("proj* = climate*", &["/a", "/d/b"]),
        ("has *oj*", &["/a", "/d/b"]),
        ("name = b", &["/d/b"]),
        ("path = /d/*", &["/d/b"]),
        ("kind = container and project = climate", &["/d"]),
        ("has none", &[]),
    ] {
        assert_eq!(paths(&md, text), expected, "{text}");
    }
    md.tag(b, vec![], vec!["step".to_owned()]).unwrap();
    assert_eq!(paths(&md, "has step"), ["/a"]);
    md.rename(ROOT, b"d", ROOT, b"e", RenameFlags::Replace)
        .unwrap();
    assert_eq!(paths(&md, "project = *model"), ["/e/b"]);
    md.link(a, d, b"a2").unwrap();
    md.unlink(ROOT, b"a").unwrap();
    assert_eq!(paths(&md, "has step"), ["/e/a2"]);
    md.unlink(d, b"a2").unwrap();
    assert!(paths(&md, "has step").is_empty());
    let error = md.call(query("step = = 3")).unwrap_err();
    assert!(
        matches!(&error, MdError::Invalid(text) if text.contains('^')),
        "{error}"
    );
}

#[test]
fn below_a_container_in_shares_and_counted() {
    let (_service, md) = ready();
    let dirs: Vec<_> = ["x", "y"]
        .iter()
        .map(|name| make(&md, ROOT, name, Kind::Directory).unwrap())
        .collect();
    for n in 0..100 {
        let name = n.to_string();
        let ino = make(&md, dirs[n % 2], &name, Kind::Object).unwrap();
        tag(&md, ino, "n", Tag::int(n as i64));
    }
    let mut below = query("n < 50");
    below.under = Some(dirs[1]);
    assert_eq!(all(&md, below.clone()).len(), 25);
    below.count_only = true;
    let counted = md.call(below).unwrap();
    assert_eq!((counted.count, counted.hits.len()), (25, 0));
    for text in ["n >= 0", "not n = 5"] {
        let mut together = Vec::new();
        for share in 0..3 {
            let mut find = query(text);
            find.part = Some((share, 3));
            find.limit = 7;
            together.extend(all(&md, find));
        }
        assert_eq!(paths_of(together), paths(&md, text));
    }
    let mut wrong = query("n = 1");
    wrong.part = Some((3, 3));
    assert!(matches!(md.call(wrong), Err(MdError::Invalid(_))));
    let mut with = query("n = 7");
    with.with_tags = true;
    with.with_tag = Some("n".to_owned());
    let hit = all(&md, with).remove(0);
    assert_eq!(hit.tags, [("n".to_owned(), Tag::int(7))]);
    assert_eq!(hit.tag, Some(Tag::int(7)));
}

#[test]
fn a_user_finds_only_listable_objects() {
    let (_service, md) = ready();
    let mut under = ROOT;
    let mut dirs = Vec::new();
    for name in ["open", "closed"] {
        let mut create = new(under, name, Kind::Directory);
        (create.uid, create.gid, create.mode) = (1, 20, 0o755);
        under = md.call(create).unwrap().entry.attr.ino;
        dirs.push(under);
        let ino = make(&md, under, "f", Kind::Object).unwrap();
        tag(&md, ino, "t", Tag::int(1));
    }
    let as_user = |uid, gids: &[u32]| {
        let mut find = query("t = 1");
        find.who = Some(Caller {
            uid,
            gids: gids.to_vec(),
        });
        paths_of(all(&md, find))
    };
    let mode = |ino, mode| {
        let set = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        md.setattr(ino, set).unwrap();
    };
    let (inner, outer) = ("/open/closed/f".to_owned(), "/open/f".to_owned());
    assert_eq!(as_user(5, &[]), [inner.clone(), outer.clone()]);
    mode(dirs[1], 0o750);
    assert_eq!(as_user(5, &[]), std::slice::from_ref(&outer));
    assert_eq!(as_user(5, &[20]), [inner.clone(), outer.clone()]);
    assert_eq!(as_user(1, &[]), [inner.clone(), outer.clone()]);
    assert_eq!(as_user(0, &[]), [inner.clone(), outer.clone()]);
    // Search permission without read permission: known names can be looked up, but not listed.
    mode(dirs[1], 0o711);
    assert_eq!(as_user(5, &[]), std::slice::from_ref(&outer));
    mode(dirs[1], 0o755);
    mode(dirs[0], 0o711);
    assert_eq!(as_user(5, &[]), std::slice::from_ref(&inner));
    mode(dirs[0], 0o744);
    assert!(as_user(5, &[]).is_empty());
}

#[test]
fn tags_of_unreadable_objects_are_neither_matched_nor_returned() {
    let (_service, md) = ready();
    let private = file(&md, "private");
    let group = file(&md, "group");
    let public = file(&md, "public");
    let closed = make(&md, ROOT, "closed", Kind::Directory).unwrap();
    for (ino, mode, gid) in [
        (private, 0o600, 0),
        (group, 0o640, 20),
        (public, 0o644, 0),
        (closed, 0o711, 0),
    ] {
        let set = SetAttr {
            mode: Some(mode),
            uid: Some(1),
            gid: Some(gid),
            ..SetAttr::default()
        };
        md.setattr(ino, set).unwrap();
        tag(&md, ino, "perm", Tag::int(1));
        tag(&md, ino, "note", Tag::text("a secret"));
    }
    // Tags in rows of their own take another code path.
    let many = (0..300).map(|n| (format!("spread{n}"), Tag::text("x".repeat(100))));
    md.tag(private, many.collect(), vec![]).unwrap();
    let asked = |uid, gids: &[u32], text: &str| {
        let mut find = query(text);
        find.who = Some(Caller {
            uid,
            gids: gids.to_vec(),
        });
        find.with_tags = true;
        find.with_tag = Some("perm".to_owned());
        let counted = Find {
            count_only: true,
            ..find.clone()
        };
        let hits = all(&md, find);
        assert_eq!(md.call(counted).unwrap().count, hits.len() as u64);
        for hit in &hits {
            let ino = hit.ino;
            let seen = uid < 2 || ino == public || ino == group && gids.contains(&20);
            assert_eq!(hit.tags.is_empty(), !seen, "{uid} {text}");
            assert_eq!(hit.tag.is_none(), !seen, "{uid} {text}");
        }
        paths_of(hits)
    };
    for text in [
        "perm = 1",
        "perm != 2",
        "perm in 0..3",
        "note = a*",
        "note = *secret",
        "note = *sec*",
        "note = *e*",
        "has perm",
        "has *er*",
        "p* = 1",
        "perm = 1 and has note",
        "perm = 1 or note = b",
        "size >= 0 and perm = 1",
        "size < 0 or perm = 1",
        "not not perm = 1",
    ] {
        assert_eq!(asked(0, &[], text).len(), 3, "{text}");
        assert_eq!(asked(1, &[], text).len(), 3, "{text}");
        assert_eq!(asked(5, &[], text), ["/public"], "{text}");
        assert_eq!(asked(5, &[20], text), ["/group", "/public"], "{text}");
    }
    assert_eq!(asked(0, &[], "has spread7"), ["/private"]);
    assert!(asked(5, &[], "has spread7 or spread* = x*").is_empty());
    // The object matches as if it had no tags.
    for text in [
        "not perm = 1",
        "not perm = 2",
        "not has perm",
        "name = pri*",
    ] {
        assert!(
            asked(5, &[], text).contains(&"/private".to_owned()),
            "{text}"
        );
    }
    assert!(asked(5, &[], "kind = container and has perm").is_empty());
    assert_eq!(asked(1, &[], "kind = container and has perm"), ["/closed"]);
    let mut one = query("perm = 1");
    one.only = Some(private);
    one.who = Some(Caller {
        uid: 5,
        gids: vec![],
    });
    assert_eq!(md.call(one).unwrap().count, 0);
}

fn value() -> impl Strategy<Value = Tag> {
    prop_oneof![
        (0..5i64).prop_map(Tag::int),
        "[ab]{0,5}".prop_map(Tag::text),
        "[0-4]".prop_map(Tag::auto),
        prop::collection::vec("[0-4]|\"[ab]{1,4}\"", 1..4).prop_map(|members| {
            Tag::parse(TagKind::List, &format!("[{}]", members.join(","))).unwrap()
        }),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Tag(usize, usize, Tag),
    Untag(usize, usize),
    Unlink(usize),
    Restart(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..8usize, 0..3usize, value()).prop_map(|(a, b, c)| Step::Tag(a, b, c)),
        2 => (0..8usize, 0..3usize).prop_map(|(a, b)| Step::Untag(a, b)),
        1 => (0..8usize).prop_map(Step::Unlink),
        1 => any::<bool>().prop_map(Step::Restart),
    ]
}

fn term() -> impl Strategy<Value = String> {
    let key = prop_oneof!["k[0-2]", Just("k*".to_owned())];
    let test = prop_oneof![
        "= [0-4]",
        "!= [0-4]",
        "< [0-4]",
        ">= [0-4]",
        "= \"[ab]{1,4}\"",
        "= [ab]{1,3}\\*",
        "= \\*[ab]{1,3}",
        "= \\*[ab]{1,4}\\*",
        "in [0-2]\\.\\.[2-4]",
    ];
    (key, test).prop_map(|(key, test)| format!("{key} {test}"))
}

fn expression() -> impl Strategy<Value = String> {
    term().prop_recursive(3, 8, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            two.clone().prop_map(|(a, b)| format!("({a}) and ({b})")),
            two.prop_map(|(a, b)| format!("({a}) or ({b})")),
            inner.prop_map(|a| format!("not ({a})")),
        ]
    })
}

#[test]
fn ten_thousand_terms_are_searched() {
    let (_service, md) = ready();
    for n in 0..20 {
        let ino = file(&md, &format!("f{n}"));
        tag(&md, ino, "n", Tag::int(n * 500));
        let list = Tag::parse(TagKind::List, &format!("[{n},{}]", n + 1)).unwrap();
        tag(&md, ino, "list", list);
    }
    let terms: Vec<_> = (0..10_000).map(|n| format!("n = {n}")).collect();
    let mut find = query(&terms.join(" or "));
    find.limit = 7;
    assert_eq!(all(&md, find).len(), 20);
    // Each object is returned once, however many terms it matches.
    let mut find = query("list in 0..30 or list >= 3 or n >= 0 or has list");
    for limit in [1, 3, 100] {
        find.limit = limit;
        assert_eq!(all(&md, find.clone()).len(), 20);
    }
    let mut find = query(&format!("n = {}", "9".repeat(1 << 20)));
    assert!(matches!(md.call(find.clone()), Err(MdError::Invalid(_))));
    find.query = "(".repeat(1000);
    assert!(matches!(md.call(find.clone()), Err(MdError::Invalid(_))));
    find.query = "n = 1".to_owned();
    find.after = Some(b"forged".to_vec());
    assert!(md.call(find).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// The index finds the same objects as a full scan, after any steps.
    #[test]
    fn the_index_finds_what_a_scan_finds(
        steps in prop::collection::vec(step(), 1..60),
        queries in prop::collection::vec(expression(), 1..12),
        limit in 1..4u32,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut service = service_in(dir.path());
        let mut md = attach(&service);
        for step in steps {
            match step {
                Step::Tag(n, key, value) => {
                    let name = format!("f{n}");
                    let ino = match md.lookup(ROOT, name.as_bytes()) {
                        Ok(entry) => entry.attr.ino,
                        Err(_) => file(&md, &name),
                    };
                    tag(&md, ino, &format!("k{key}"), value);
                }
                Step::Untag(n, key) => {
                    if let Ok(entry) = md.lookup(ROOT, format!("f{n}").as_bytes()) {
                        md.tag(entry.attr.ino, vec![], vec![format!("k{key}")]).unwrap();
                    }
                }
                Step::Unlink(n) => {
                    md.unlink(ROOT, format!("f{n}").as_bytes()).ok();
                }
                Step::Restart(gone) => {
                    drop(md);
                    drop(service);
                    if gone {
                        std::fs::remove_dir_all(dir.path().join("index")).unwrap();
                    }
                    service = service_in(dir.path());
                    md = attach(&service);
                }
            }
        }
        for text in queries {
            // "size >= 0" is always true and never answered by the index.
            let scanned = paths(&md, &format!("({text}) or size < 0"));
            let mut find = query(&text);
            find.limit = limit;
            prop_assert_eq!(paths_of(all(&md, find)), scanned, "{}", text);
        }
    }
}

/// A text that always contains an infix is found once, even if its other parts change between two pages.
#[test]
fn a_text_that_changes_around_an_infix_is_found_once() {
    let (_service, md) = ready();
    let names = ["a", "b", "c"];
    let inos = names.map(|name| file(&md, name));
    for ino in inos {
        tag(&md, ino, "k", Tag::text("x-mid-m and mid-q"));
    }
    let mut find = query("k = *mid*");
    find.limit = 1;
    let mut paths = Vec::new();
    for text in ["x-mid-a", "x-mid-zz mid-0", "mid"] {
        let page = md.call(find.clone()).unwrap();
        paths.extend(paths_of(page.hits));
        find.after = page.next;
        for ino in inos {
            tag(&md, ino, "k", Tag::text(text));
        }
    }
    assert_eq!(paths, ["/a", "/b", "/c"]);
}

/// Repetitive texts, long and short, and texts that differ close to where they are cut.
fn long_text() -> impl Strategy<Value = String> {
    let words = prop::collection::vec("[a-d]{1,6}", 1..5);
    prop_oneof![
        (words, 0..2000usize).prop_map(|(words, len)| {
            let mut text: String = words
                .iter()
                .cycle()
                .take(len)
                .map(|word| &word[..])
                .collect();
            text.truncate(len);
            text
        }),
        (0..1500usize, "[a-g]{0,200}").prop_map(|(len, end)| "ab".repeat(len / 2) + &end),
        "[a-gp-z]{0,700}",
        (253..259usize, "[ab]{0,3}").prop_map(|(len, end)| "a".repeat(len) + &end),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// However long and repetitive a value is.
    #[test]
    fn long_values_are_found_as_by_a_scan(
        values in prop::collection::vec((long_text(), any::<bool>()), 1..8),
        parts in prop::collection::vec((0..8usize, 0..2000usize, 1..40usize), 1..6),
        literals in prop::collection::vec(prop_oneof![
            3 => (253..259usize, "[ab]{0,2}").prop_map(|(len, end)| "a".repeat(len) + &end),
            1 => long_text(),
        ], 1..4),
    ) {
        let (_service, md) = ready();
        for (n, (text, bytes)) in values.iter().enumerate() {
            let ino = file(&md, &format!("f{n}"));
            let value = match bytes {
                true => Tag::bytes(text.as_bytes()),
                false => Tag::text(text.clone()),
            };
            tag(&md, ino, "k", value);
        }
        let mut queries = Vec::new();
        for (n, at, len) in parts {
            let text = &values[n % values.len()].0;
            let at = at.min(text.len());
            let part = &text[at..text.len().min(at + len)];
            if !part.is_empty() {
                queries.push(format!("k = *{part}*"));
                queries.push(format!("k = {part}*"));
                queries.push(format!("k = *{part}"));
            }
            if at > 0 {
                queries.push(format!("k = {}*", &text[..at]));
                queries.push(format!("k = *{}", &text[text.len() - at..]));
            }
        }
        for literal in &literals {
            let hex: String = literal.bytes().map(|byte| format!("{byte:02x}")).collect();
            for literal in [format!("\"{literal}\""), format!("x\"{hex}\"")] {
                for test in ["=", "!=", "<", "<=", ">", ">="] {
                    queries.push(format!("k {test} {literal}"));
                }
                queries.push(format!("k in {literal}.."));
                queries.push(format!("k in ..{literal}"));
            }
        }
        for text in queries {
            let scanned = paths(&md, &format!("({text}) or size < 0"));
            prop_assert_eq!(paths(&md, &text), scanned, "{}", text);
        }
    }
}

/// A copy of the files of a running service, as a kill would leave them.
fn killed(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            killed(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn the_index_survives_kills_and_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (live, copy) = (dir.path().join("live"), dir.path().join("copy"));
    let service = service_in(&live);
    let md = attach(&service);
    let inos: Vec<_> = (0..50).map(|n| file(&md, &format!("f{n}"))).collect();
    let set = |from: usize, to: usize, value: i64| {
        let changes = inos[from..to].iter().map(|&ino| TagChange {
            ino,
            set: vec![("v".to_owned(), Tag::int(value))],
            remove: vec![],
        });
        md.call(op::Tag {
            changes: changes.collect(),
        })
        .unwrap();
    };
    set(0, 50, 1);
    service.checkpoint().unwrap();
    set(0, 20, 2);
    md.call(op::Sync {}).unwrap();
    killed(&live, &copy);
    let counts = |service: &Arc<Service>| {
        let md = attach(service);
        [1, 2].map(|value| paths(&md, &format!("v = {value}")).len())
    };
    // Later entries of the index are returned neither after the kill nor after one more restart.
    for _ in 0..2 {
        let after = service_in(&copy);
        assert_eq!(counts(&after), [30, 20]);
        after.close().unwrap();
    }
    // Damage in every file of the index, one at a time.
    let files: Vec<_> = std::fs::read_dir(copy.join("index"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(!files.is_empty());
    for file in files {
        let spoiled = dir.path().join("spoiled");
        killed(&copy, &spoiled);
        let path = spoiled.join("index").join(file.file_name().unwrap());
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        std::fs::write(&path, bytes).unwrap();
        let service = service_in(&spoiled);
        // Damage in a leaf is detected when it is read: the search fails, and the next background round repairs it.
        let md = attach(&service);
        if md.call(query("v = 1")).is_err() {
            service.settle_down().unwrap();
        }
        assert_eq!(counts(&service), [30, 20], "{}", path.display());
        drop((md, service));
        std::fs::remove_dir_all(&spoiled).unwrap();
    }
}

#[test]
fn an_index_with_the_rows_of_another_store_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let stores = ["one", "other"].map(|name| dir.path().join(name));
    for (value, store) in stores.iter().enumerate() {
        let service = service_in(store);
        let md = attach(&service);
        let tagged = TagChange {
            ino: file(&md, "f"),
            set: vec![("v".to_owned(), Tag::int(value as i64))],
            remove: vec![],
        };
        md.call(op::Tag {
            changes: vec![tagged],
        })
        .unwrap();
        drop(md);
        service.close().unwrap();
    }
    // The stores have the same length, so that the number of the last commit does not distinguish them.
    std::fs::remove_dir_all(stores[0].join("index")).unwrap();
    killed(&stores[1].join("index"), &stores[0].join("index"));
    let service = service_in(&stores[0]);
    let md = attach(&service);
    assert_eq!(paths(&md, "v = 0"), ["/f"]);
    assert_eq!(paths(&md, "v = 1"), [""; 0]);
}

#[test]
fn two_objects_are_never_mixed_up_while_they_change() {
    let (_service, md) = ready();
    let inos: Vec<_> = (0..200).map(|n| file(&md, &format!("f{n}"))).collect();
    let changes = |value: i64| {
        let change = |&ino: &Ino| TagChange {
            ino,
            set: vec![("v".to_owned(), Tag::int(value))],
            remove: vec![],
        };
        inos.iter().map(change).collect::<Vec<_>>()
    };
    md.call(op::Tag {
        changes: changes(0),
    })
    .unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..30 {
                md.call(op::Tag {
                    changes: changes(round),
                })
                .unwrap();
            }
        });
        while !writer.is_finished() {
            // Every object has the tag at any moment.
            let found: BTreeSet<_> = paths(&md, "has v").into_iter().collect();
            assert_eq!(found.len(), inos.len());
        }
        writer.join().unwrap();
    });
    assert_eq!(paths(&md, "v = 29").len(), inos.len());
}
