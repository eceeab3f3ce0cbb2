//! Searches for what changes its form: names that go.

use slabfs_model::Tag;

use super::support::*;
use crate::api::{Find, Md, ROOT, RenameFlags};

fn paths(md: &Md, query: &str) -> Vec<String> {
    let find = Find {
        query: query.to_owned(),
        limit: 100,
        ..Find::default()
    };
    let hits = md.find(find).unwrap().hits;
    let path = |hit: crate::api::Hit| String::from_utf8(hit.path).unwrap();
    hits.into_iter().map(path).collect()
}

#[test]
fn an_object_with_very_many_names_is_found_by_any_that_is_left() {
    let (_service, md) = ready();
    let ino = file(&md, "n0");
    md.tag(ino, vec![("k".to_owned(), Tag::int(1))], vec![])
        .unwrap();
    let other = make(&md, ROOT, "d", crate::api::Kind::Directory).unwrap();
    for n in 1..100 {
        let parent = if n % 2 == 0 { ROOT } else { other };
        md.link(ino, parent, format!("n{n}").as_bytes()).unwrap();
    }
    // One that moves stays a name.
    md.rename(other, b"n99", ROOT, b"n99", RenameFlags::Replace)
        .unwrap();
    for n in 0..99 {
        let parent = if n % 2 == 0 { ROOT } else { other };
        md.unlink(parent, format!("n{n}").as_bytes()).unwrap();
        assert_eq!(paths(&md, "k = 1").len(), 1, "{n} names are gone");
    }
    assert_eq!(paths(&md, "k = 1"), ["/n99"]);
    md.unlink(ROOT, b"n99").unwrap();
    assert!(paths(&md, "k = 1").is_empty());
}
