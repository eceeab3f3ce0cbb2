//! Tests of searches during changes: names that are removed, tags whose storage form changes.

use parking_lot::Mutex;
use slabfs_model::Tag;
use std::sync::Arc;

use super::support::*;
use crate::Service;
use crate::api::{Find, ROOT, RenameFlags};
use crate::client::Md;
use crate::keys;
use crate::kv::{Batch, KvError, Lsn, MemoryKv, MetaKv, Pair};

fn paths(md: &Md, query: &str) -> Vec<String> {
    let find = Find {
        query: query.to_owned(),
        limit: 100,
        ..Find::default()
    };
    let hits = md.call(find).unwrap().hits;
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
    // A renamed link is still a name.
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

/// An action that runs before a key is read.
type Before = Option<(Vec<u8>, Box<dyn FnOnce() + Send>)>;

/// A store that runs an action before a certain key is read.
struct Interrupted {
    kv: MemoryKv,
    before: Arc<Mutex<Before>>,
}

impl MetaKv for Interrupted {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let due = self.before.lock().take_if(|(at, _)| at == key);
        if let Some((_, work)) = due {
            work();
        }
        self.kv.get(key)
    }
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        self.kv.scan(from, to, limit)
    }
    fn commit(&self, batch: Batch) -> Result<Lsn, KvError> {
        self.kv.commit(batch)
    }
    fn sync(&self) -> Result<Lsn, KvError> {
        self.kv.sync()
    }
    fn synced(&self) -> Lsn {
        self.kv.synced()
    }
    fn checkpoint(&self) -> Result<(), KvError> {
        self.kv.checkpoint()
    }
    fn close(&self) -> Result<(), KvError> {
        self.kv.close()
    }
}

#[test]
fn tags_that_are_spread_while_a_search_looks_are_found() {
    let before = Arc::new(Mutex::new(None));
    let kv = Interrupted {
        kv: MemoryKv::new(),
        before: Arc::clone(&before),
    };
    let service = Arc::new(Service::over(Box::new(kv), quiet()).unwrap().0);
    beat(&service, vec![]);
    let md = Arc::new(attach(&service));
    let ino = file(&md, "f");
    let long = || vec![("k".to_owned(), Tag::text("a long needle"))];
    md.tag(ino, long(), vec![]).unwrap();
    for query in [
        // Longer than the index entries.
        "k = *\"long need\"*",
        "k* = *eedl*",
        "not k = 3 and has k",
        "not k = 3",
    ] {
        let other = Arc::clone(&md);
        let spread = move || {
            let large = (0..20).map(|n| (format!("l{n}"), Tag::text("y".repeat(1000))));
            other.tag(ino, large.collect(), vec![]).unwrap();
        };
        *before.lock() = Some((keys::xattr(ino, b""), Box::new(spread)));
        assert_eq!(paths(&md, query), ["/f"], "{query}");
        assert!(before.lock().is_none(), "{query} read no tags");
        // The tags are stored in one row again.
        let names = md.tags(ino).unwrap().into_iter().map(|(name, _)| name);
        md.tag(ino, vec![], names.collect()).unwrap();
        md.tag(ino, long(), vec![]).unwrap();
    }
}
