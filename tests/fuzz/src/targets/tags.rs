//! Tags and a query: the first line is the query, each other one a tag. An object that the query matches is
//! among the candidates from the index; tags are equal after printing and parsing, as text and as JSON.

use std::collections::BTreeSet;

use super::super::Thing;
use slabfs_mdserver::tags::entry::{entries, ino_of};
use slabfs_mdserver::tags::query::{Access, Query};
use slabfs_model::{ObjectId, Tag, TagKind};

const INO: ObjectId = ObjectId(9);

fn gives(access: &Access, index: &BTreeSet<Vec<u8>>) -> bool {
    match access {
        Access::Scan => true,
        Access::Range(range) => {
            let mut found = index.range(range.from.clone()..range.to.clone());
            found.next().is_some_and(|entry| ino_of(entry) == Some(INO))
        }
        Access::And(parts) => parts.iter().all(|part| gives(part, index)),
        Access::Or(parts) => parts.iter().any(|part| gives(part, index)),
    }
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut lines = data.split(|&byte| byte == b'\n');
    let query = lines.next().and_then(|line| std::str::from_utf8(line).ok());
    let mut thing = Thing::default();
    for line in lines.take(64) {
        let (key, tag) = match std::str::from_utf8(line) {
            Ok(text) => match Tag::parse_assignment(text) {
                Ok(tag) => tag,
                Err(_) => continue,
            },
            Err(_) => ("raw".to_owned(), Tag::auto(line)),
        };
        tag.check().expect("a parsed tag is canonical");
        let json = tag.to_json();
        let again = Tag::from_json(&json).expect("its own JSON");
        if !matches!(tag.kind, TagKind::Auto | TagKind::Exact(_)) {
            assert_eq!(again, tag);
        }
        if !matches!(tag.kind, TagKind::Bytes) && std::str::from_utf8(&tag.bytes).is_ok() {
            let again = Tag::from_json(&tag.to_typed_json()).expect("its own JSON");
            assert_eq!(again, tag);
        }
        thing.tags.insert(key, tag);
    }
    if let Ok(json) = serde_json::from_slice(data)
        && let Ok(tag) = Tag::from_json(&json)
    {
        tag.check().expect("a parsed tag is canonical");
    }
    let tags: Vec<_> = thing
        .tags
        .iter()
        .map(|(key, tag)| (key, tag.clone()))
        .collect();
    let index: BTreeSet<_> = entries(INO, &tags).into_iter().collect();
    if let Some(Ok(query)) = query.map(Query::parse)
        && query.matches(&thing)
    {
        assert!(gives(&query.access(), &index));
        let known = |pattern: &slabfs_mdserver::tags::query::KeyPattern| {
            let fit = thing.tags.keys().filter(|key| pattern.fits(key));
            Some(fit.cloned().collect())
        };
        assert!(gives(&query.access_with(&mut { known }), &index));
    }
}
