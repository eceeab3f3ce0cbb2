//! Tests of tags: many at once, typed, in one row or in rows of their own; and of the recorded places of an inode.

use slabfs_model::{Tag, TagKind};

use super::support::*;
use crate::api::{
    Ino, Kind, MAX_TAG_NAMES, MAX_XATTRS, MdError, ROOT, RenameFlags, TagChange, XattrFlags, op,
};
use crate::client::Md;
use crate::kv::{MemoryKv, MetaKv};
use crate::{Service, keys};

fn int(name: &str, value: i64) -> (String, Tag) {
    (name.to_owned(), Tag::int(value))
}

fn names(md: &Md, ino: Ino) -> Vec<String> {
    let tags = md.tags(ino).unwrap();
    tags.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn many_tags_at_once_with_their_types() {
    let (_service, md) = ready();
    let ino = file(&md, "a");
    let set = vec![
        int("step", 3),
        ("note".to_owned(), Tag::text("3")),
        (
            "list".to_owned(),
            Tag::parse(TagKind::List, r#"[1,"a"]"#).unwrap(),
        ),
    ];
    md.tag(ino, set.clone(), vec![]).unwrap();
    let mut sorted = set;
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(md.tags(ino).unwrap(), sorted);
    // Tags are attributes; one that is set as an attribute has the type of its value.
    assert_eq!(md.getxattr(ino, b"user.step").unwrap(), b"3");
    md.setxattr(ino, b"user.step", b"4", XattrFlags::Replace)
        .unwrap();
    assert_eq!(md.tags(ino).unwrap()[2].1, Tag::int(4));
    // The last value of a name wins, removals are applied first, and a missing name may be removed.
    let set = vec![int("step", 5), int("step", 6)];
    let remove = ["step", "note", "none"].map(str::to_owned).to_vec();
    md.tag(ino, set, remove).unwrap();
    assert_eq!(names(&md, ino), ["list", "step"]);
    assert_eq!(md.tags(ino).unwrap()[1].1, Tag::int(6));
    // Other attributes are not tags.
    md.setxattr(ino, b"user.slabfs.x", b"1", XattrFlags::Either)
        .unwrap();
    md.setxattr(ino, b"trusted.x", b"1", XattrFlags::Either)
        .unwrap();
    md.setxattr(ino, b"user.\xff", b"1", XattrFlags::Either)
        .unwrap();
    assert_eq!(names(&md, ino), ["list", "step"]);
    assert_eq!(md.call(op::ListXattr { ino }).unwrap().len(), 5);
}

#[test]
fn all_inodes_of_a_batch_or_none() {
    let (_service, md) = ready();
    let (a, b) = (file(&md, "a"), file(&md, "b"));
    let change = |ino, value| TagChange {
        ino,
        set: vec![int("n", value)],
        remove: vec![],
    };
    md.call(op::Tag {
        changes: vec![change(a, 1), change(b, 2), change(a, 3)],
    })
    .unwrap();
    assert_eq!(md.tags(a).unwrap(), vec![int("n", 3)]);
    assert_eq!(md.tags(b).unwrap(), vec![int("n", 2)]);
    let gone = slabfs_model::ObjectId(1 << 40);
    assert_eq!(
        md.call(op::Tag {
            changes: vec![change(a, 9), change(gone, 9)]
        }),
        Err(MdError::NotFound)
    );
    assert_eq!(md.tags(a).unwrap(), vec![int("n", 3)]);
    for bad in ["", "slabfs.dims", "a\0b", &"x".repeat(251)] {
        let result = md.tag(a, vec![int(bad, 1)], vec![]);
        assert!(matches!(result, Err(MdError::Invalid(_))), "{bad:?}");
    }
    let mut forged = Tag::int(1);
    forged.bytes = b"x".to_vec();
    let result = md.tag(a, vec![("n".to_owned(), forged)], vec![]);
    assert!(matches!(result, Err(MdError::Invalid(_))));
    let many = (0..=MAX_TAG_NAMES)
        .map(|i| int(&i.to_string(), 1))
        .collect();
    assert!(matches!(md.tag(a, many, vec![]), Err(MdError::Invalid(_))));
    let b = file(&md, "many");
    let numbers: Vec<u32> = (0..=MAX_XATTRS).collect();
    let mut done = 0;
    for some in numbers.chunks(MAX_TAG_NAMES) {
        let some: Vec<_> = some.iter().map(|i| int(&i.to_string(), 1)).collect();
        let count = some.len() as u32;
        match md.tag(b, some, vec![]) {
            Ok(_) => done += count,
            Err(error) => assert_eq!((error, done), (MdError::TooManyTags, MAX_XATTRS)),
        }
    }
    assert_eq!(done, MAX_XATTRS);
    assert_eq!(md.tags(a).unwrap(), vec![int("n", 3)]);
}

/// The rows of attributes there are.
fn rows(kv: &dyn MetaKv) -> usize {
    kv.scan(b"x", b"y", usize::MAX).unwrap().len()
}

#[test]
fn many_bytes_are_spread_over_rows() {
    let kv = std::sync::Arc::new(MemoryKv::new());
    let service = Service::over(Box::new(Shared(kv.clone())), quiet())
        .unwrap()
        .0;
    let md = attach(&std::sync::Arc::new(service));
    let ino = file(&md, "a");
    let big = |n: usize| (format!("t{n:03}"), Tag::text("y".repeat(1000)));
    for n in 0..16 {
        md.tag(ino, vec![big(n)], vec![]).unwrap();
        assert_eq!(rows(&*kv), 1);
    }
    md.tag(ino, vec![big(16)], vec![]).unwrap();
    assert_eq!(rows(&*kv), 17);
    md.tag(ino, (17..300).map(big).collect(), vec!["t003".to_owned()])
        .unwrap();
    assert_eq!(names(&md, ino).len(), 299);
    assert_eq!(md.getxattr(ino, b"user.t250").unwrap().len(), 1000);
    assert_eq!(md.getxattr(ino, b"user.t003"), Err(MdError::NoData));
    assert_eq!(md.removexattr(ino, b"user.t003"), Err(MdError::NoData));
    md.removexattr(ino, b"user.t004").unwrap();
    assert_eq!(rows(&*kv), 298);
    // More than one page of a reply.
    let huge = |n: usize| (format!("h{n:03}"), Tag::text("z".repeat(65536)));
    for part in 0..4 {
        let set = (part * 60..part * 60 + 60).map(huge).collect();
        md.tag(ino, set, vec![]).unwrap();
    }
    let all = md.tags(ino).unwrap();
    assert_eq!(all.len(), 298 + 240);
    assert!(all.is_sorted_by(|a, b| a.0 < b.0));
    // Without attributes the inode starts again with one row; a removed inode's rows are removed.
    md.tag(ino, vec![], names(&md, ino)).unwrap();
    assert_eq!(rows(&*kv), 0);
    md.tag(ino, vec![int("n", 1)], vec![]).unwrap();
    assert_eq!(rows(&*kv), 1);
    md.tag(ino, (0..100).map(big).collect(), vec![]).unwrap();
    assert_eq!(rows(&*kv), 101);
    md.unlink(ROOT, b"a").unwrap();
    assert_eq!(rows(&*kv), 0);
}

/// A store that the test can read directly.
struct Shared(std::sync::Arc<MemoryKv>);

impl MetaKv for Shared {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, crate::kv::KvError> {
        self.0.get(key)
    }
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<crate::kv::Pair>, crate::kv::KvError> {
        self.0.scan(from, to, limit)
    }
    fn commit(&self, batch: crate::kv::Batch) -> Result<crate::kv::Lsn, crate::kv::KvError> {
        self.0.commit(batch)
    }
    fn sync(&self) -> Result<crate::kv::Lsn, crate::kv::KvError> {
        self.0.sync()
    }
    fn synced(&self) -> crate::kv::Lsn {
        self.0.synced()
    }
    fn checkpoint(&self) -> Result<(), crate::kv::KvError> {
        self.0.checkpoint()
    }
    fn close(&self) -> Result<(), crate::kv::KvError> {
        self.0.close()
    }
}

/// Checks that each inode records its places, and that the inode of each slot records the slot.
fn places_hold(kv: &MemoryKv) {
    use crate::records::{Inode, Named, Slot, decode};
    let inode = |ino: Ino| -> Inode {
        let key = keys::inode(ino);
        decode(&key, &kv.get(&key).unwrap().unwrap()).unwrap()
    };
    let mut places = 0;
    for (key, value) in kv.scan(b"d", b"e", usize::MAX).unwrap() {
        let [parent, slot] = keys::numbers(&key, [8, 8]).unwrap();
        if let Slot::Entry { ino, name } = decode(&key, &value).unwrap() {
            let place = Named {
                parent: slabfs_model::ObjectId(parent),
                slot,
                name,
            };
            assert!(inode(ino).names.contains(&place), "{ino:?} {place:?}");
            places += 1;
        }
    }
    let (from, to) = keys::inodes();
    let known: usize = kv
        .scan(&from, &to, usize::MAX)
        .unwrap()
        .iter()
        .map(|(key, value)| decode::<Inode>(key, value).unwrap().names.len())
        .sum();
    assert_eq!(known, places);
}

#[test]
fn an_inode_records_its_places() {
    let kv = std::sync::Arc::new(MemoryKv::new());
    let service = Service::over(Box::new(Shared(kv.clone())), quiet())
        .unwrap()
        .0;
    let md = attach(&std::sync::Arc::new(service));
    let d = make(&md, ROOT, "d", Kind::Directory).unwrap();
    let e = make(&md, d, "e", Kind::Directory).unwrap();
    let (a, b) = (file(&md, "a"), file(&md, "b"));
    places_hold(&kv);
    md.link(a, d, b"a2").unwrap();
    places_hold(&kv);
    use RenameFlags::{Exchange, Replace};
    for (from, name, to, new, flags) in [
        (ROOT, "a", d, "moved", Replace),
        (ROOT, "b", d, "a2", Exchange),
        (d, "e", ROOT, "b", Exchange),
        (d, "moved", d, "e", Replace),
        (d, "a2", d, "a2", Replace),
        (ROOT, "b", d, "back", Replace),
    ] {
        md.rename(from, name.as_bytes(), to, new.as_bytes(), flags)
            .unwrap();
        places_hold(&kv);
    }
    md.call(op::Open { ino: b }).unwrap();
    md.unlink(d, b"a2").unwrap();
    places_hold(&kv);
    md.release(vec![b]).unwrap();
    assert_eq!(md.lookup(d, b"back").unwrap().attr.ino, e);
    md.rmdir(d, b"back").unwrap();
    places_hold(&kv);
    assert!(md.call(op::GetAttr { ino: a }).is_ok());
}
