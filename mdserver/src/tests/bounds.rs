//! Tests of the limits of one request: searches with many comparisons, objects with many tags, overlong lists.

use slabfs_model::{ChunkId, Hyperslab, ServerId, SessionId, Tag};
use std::collections::BTreeSet;
use std::sync::Arc;

use super::support::*;
use crate::LocalMd;
use crate::api::{
    Caller, Commit, DefaultKey, DefaultsChange, Find, Hit, Kind, MAX_COMMIT_RECORDS, MAX_CREATE,
    MAX_HIT_TAGS, MAX_TAG_NAMES, MdError, Metadata, NewObject, Op, ROOT, Request, SpecChange,
    Stored, StoredChunk, TagChange, op,
};
use crate::client::Md;

/// The most bytes of a cursor: small compared with a request, even in hexadecimal.
const SMALL: usize = 128 << 10;

fn query(text: &str, limit: u32) -> Find {
    Find {
        query: text.to_owned(),
        limit,
        ..Find::default()
    }
}

/// All hits, in pages whose cursors are small.
fn all(md: &Md, mut find: Find) -> Vec<Hit> {
    let mut hits = Vec::new();
    loop {
        let page = md.call(find.clone()).unwrap();
        hits.extend(page.hits);
        match page.next {
            Some(next) => {
                assert!(next.len() < SMALL, "{} bytes", next.len());
                find.after = Some(next);
            }
            None => return hits,
        }
    }
}

/// Every hit once.
fn count(md: &Md, find: Find) -> usize {
    let hits = all(md, find);
    let inos: BTreeSet<_> = hits.iter().map(|hit| hit.ino).collect();
    assert_eq!(inos.len(), hits.len());
    hits.len()
}

#[test]
fn many_comparisons_need_no_large_cursor() {
    let (_service, md) = ready();
    for n in 0..60 {
        let ino = file(&md, &format!("f{n}"));
        let tags = vec![
            ("id".to_owned(), Tag::text(format!("object-{n:06}"))),
            (format!("longkey{n}"), Tag::int(1)),
            ("n".to_owned(), Tag::int(n % 3)),
        ];
        md.tag(ino, tags, vec![]).unwrap();
    }
    let any = |terms: Vec<String>| terms.join(" or ");
    let exact = any((0..10_000).map(|n| format!("id = object-{n:06}")).collect());
    assert_eq!(count(&md, query(&exact, 7)), 60);
    // Conjunctions, so that no single comparison answers the query and they are read together.
    let both = (0..500).map(|n| format!("(id = *t-{n:06}* and n = {})", n % 3));
    assert_eq!(count(&md, query(&any(both.collect()), 7)), 60);
    // The same comparison many times.
    let keys = (0..300).map(|_| "longk* = 1".to_owned());
    assert_eq!(count(&md, query(&any(keys.collect()), 7)), 60);
    let keys = (0..3000).map(|n| format!("*y{n} = 1"));
    assert_eq!(count(&md, query(&any(keys.collect()), 7)), 60);
    // Comparisons that contain one another.
    let within = "id = *object* or has id or n >= 0 or n = 1 or (n = 2 and has id) or has long*";
    assert_eq!(count(&md, query(within, 7)), 60);
}

#[test]
fn new_keys_do_not_move_a_search() {
    let (_service, md) = ready();
    let key = |n: usize| format!("key{:02}", 10 * n);
    for n in 0..9 {
        let ino = file(&md, &format!("f{n}"));
        md.tag(ino, vec![(key(n), Tag::int(1))], vec![]).unwrap();
    }
    let mut find = query("key* = 1 or *9 = 1", 2);
    let first = md.call(find.clone()).unwrap();
    for n in 0..9 {
        let ino = file(&md, &format!("new{n}"));
        let tag = (format!("key{:02}", 10 * n + 5), Tag::int(1));
        md.tag(ino, vec![tag], vec![]).unwrap();
    }
    find.after = first.next;
    let mut hits = first.hits;
    hits.extend(all(&md, find));
    let paths: BTreeSet<_> = hits.iter().map(|hit| hit.path.clone()).collect();
    assert_eq!(paths.len(), hits.len());
    for n in 0..9 {
        assert!(paths.contains(format!("/f{n}").as_bytes()), "{n}");
    }
}

#[test]
fn a_search_does_not_continue_from_the_cursor_of_another() {
    let (_service, md) = ready();
    for n in 0..9 {
        let ino = file(&md, &format!("f{n}"));
        md.tag(ino, vec![("n".to_owned(), Tag::int(n))], vec![])
            .unwrap();
    }
    let next = md.call(query("n >= 0", 2)).unwrap().next;
    let mut other = query("n >= 1", 2);
    other.after = next;
    let error = md.call(other).unwrap_err();
    assert!(
        matches!(&error, MdError::Invalid(text) if text.contains("the search cannot")),
        "{error}"
    );
}

#[test]
fn an_object_with_many_bytes_of_tags_is_returned_with_the_first_ones() {
    let (_service, md) = ready();
    let (fat, thin) = (file(&md, "fat"), file(&md, "thin"));
    for part in 0..4 {
        let huge = |n: usize| (format!("h{n:03}"), Tag::text("z".repeat(65536)));
        let set = (part * 100..part * 100 + 100).map(huge).collect();
        md.tag(fat, set, vec![]).unwrap();
    }
    md.tag(thin, vec![("h000".to_owned(), Tag::int(1))], vec![])
        .unwrap();
    let mut find = query("has h000", 100);
    find.with_tags = true;
    let hits = all(&md, find);
    let bytes = |hit: &Hit| -> usize { hit.tags.iter().map(|(_, tag)| tag.bytes.len()).sum() };
    let of = |ino| hits.iter().find(|hit| hit.ino == ino).unwrap();
    assert!(bytes(of(fat)) > 0 && bytes(of(fat)) <= MAX_HIT_TAGS);
    assert_eq!(of(fat).tags[0].0, "h000");
    assert_eq!((of(fat).tags_cut, of(thin).tags_cut), (true, false));
    assert_eq!(of(thin).tags.len(), 1);
    assert_eq!(md.tags(fat).unwrap().len(), 400);
}

#[test]
fn the_error_for_a_too_large_request_names_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    let md = attach(&service);
    let mut inos = Vec::new();
    for part in 0..3 {
        let objects = (0..800).map(|n| NewObject {
            parent: ROOT,
            name: format!("{part}-{n}").into_bytes(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            spec: SpecChange::default(),
            tags: vec![],
        });
        inos.extend(md.create_many(objects.collect()).unwrap());
    }
    let change = |key: &str, bytes: usize, of: &[_]| -> Vec<TagChange> {
        let changes = of.iter().map(|&ino| TagChange {
            ino,
            set: vec![(key.to_owned(), Tag::bytes(vec![7; bytes]))],
            remove: vec![],
        });
        changes.collect()
    };
    for part in inos.chunks(500) {
        md.call(op::Tag {
            changes: change("large", 15 << 10, part),
        })
        .unwrap();
    }
    let error = md
        .call(op::Tag {
            changes: change("small", 1, &inos),
        })
        .unwrap_err();
    assert!(
        matches!(&error, MdError::Invalid(text) if text.contains("fewer")),
        "{error}"
    );
    for part in inos.chunks(1200) {
        md.call(op::Tag {
            changes: change("small", 1, part),
        })
        .unwrap();
    }
    assert_eq!(md.tags(inos[2399]).unwrap().len(), 2);
}

/// A caller whose requests come over the wire.
struct Wire(LocalMd);

impl Metadata for Wire {
    fn call(&self, request: Request) -> Result<crate::api::Reply, MdError> {
        let control = postcard::to_stdvec(&request).unwrap();
        let request = crate::server::read(&control).map_err(MdError::Protocol)?;
        self.0.0.call_remote(request)
    }
    fn session_count(&self) -> u32 {
        1
    }
}

#[test]
fn overlong_lists_are_not_decoded() {
    let (service, md) = ready();
    let ino = file(&md, "f");
    let wire = Wire(LocalMd(Arc::clone(&service)));
    let stored = Stored::Chunk(StoredChunk {
        chunk: ChunkId(1),
        server: ServerId(1),
        codec: slabfs_model::Codec::None,
    });
    let record = (
        Hyperslab {
            axes: Default::default(),
        },
        stored.clone(),
    );
    let commit = Commit {
        records: vec![record; MAX_COMMIT_RECORDS + 1],
        ..commit_of(&md, ino)
    };
    let tags = |count: usize| vec![(String::new(), Tag::int(1)); count];
    let object = |count: usize| NewObject {
        parent: ROOT,
        name: vec![],
        mode: 0,
        uid: 0,
        gid: 0,
        spec: SpecChange::default(),
        tags: tags(count),
    };
    let change = |set, remove| TagChange { ino, set, remove };
    let find = Find {
        who: Some(Caller {
            uid: 1,
            gids: vec![0; 1 << 20],
        }),
        ..Find::default()
    };
    let clear = DefaultsChange {
        clear: vec![DefaultKey::All; 1 << 20],
        ..DefaultsChange::default()
    };
    for op in [
        Op::Commit(commit),
        Op::CreateMany(op::CreateMany {
            objects: vec![object(0); MAX_CREATE + 1],
        }),
        Op::CreateMany(op::CreateMany {
            objects: vec![object(1 << 16)],
        }),
        Op::Tag(op::Tag {
            changes: vec![change(vec![], vec![]); MAX_TAG_NAMES + 1],
        }),
        Op::Tag(op::Tag {
            changes: vec![change(tags(MAX_TAG_NAMES + 1), vec![])],
        }),
        Op::Tag(op::Tag {
            changes: vec![change(vec![], vec![String::new(); MAX_TAG_NAMES + 1])],
        }),
        // Many lists, none of which is too long.
        Op::Tag(op::Tag {
            changes: vec![change(tags(100), vec![]); 100],
        }),
        Op::Find(find),
        Op::SetDefaults(op::SetDefaults {
            ino: ROOT,
            change: clear,
        }),
        Op::Release(op::Release {
            inos: vec![ino; 1 << 20],
        }),
        Op::LeasePlaces(op::LeasePlaces {
            bytes: 1,
            spent: vec![(ServerId(1), 1); 1 << 20],
        }),
    ] {
        let request = Request {
            session: SessionId(1),
            seq: 1,
            done_below: 0,
            op,
        };
        let error = wire.call(request).unwrap_err();
        assert!(matches!(error, MdError::Protocol(_)), "{error}");
    }
    assert_eq!(md.lookup(ROOT, b"f").unwrap().attr.kind, Kind::Object);
}
