//! Tests of glances (lookups that do not wait for the state lock): they return the same results as all other lookups.

use parking_lot::Mutex;
use std::sync::{Arc, Weak};

use super::support::*;
use crate::api::{Kind, MdError, ROOT, RenameFlags, SetAttr, op};
use crate::core::Core;
use crate::kv::{Batch, KvError, Lsn, MemoryKv, MetaKv, Pair};
use crate::namespace::glance;
use crate::service::Service;

/// The result of a glance: no result without the state lock, no such name, or an inode and its mode.
type Seen = Option<Option<(u64, u32)>>;

/// The results of glances at `a` and `b`, and the change counter of their directory.
type Moment = (Seen, Seen, Option<u64>);

/// The results right before and right after a batch is committed, in the middle of its transaction.
#[derive(Default)]
struct Watch {
    core: Mutex<Weak<Core>>,
    seen: Mutex<Vec<(Moment, Moment)>>,
}

impl Watch {
    fn look(&self) -> Option<Moment> {
        let core = self.core.lock().upgrade()?;
        let name = |name: &[u8]| match glance(&core, ROOT, name)? {
            Ok(inode) => Some(Some((inode.attr.ino.0, inode.attr.mode))),
            Err(MdError::NotFound) => Some(None),
            Err(other) => panic!("{other}"),
        };
        let dir = core.seen.inode(ROOT).map(|dir| dir.attr.change);
        Some((name(b"a"), name(b"b"), dir))
    }
}

/// A store that records glances before and after each commit.
struct Watched {
    kv: MemoryKv,
    watch: Arc<Watch>,
}

impl MetaKv for Watched {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.kv.get(key)
    }
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        self.kv.scan(from, to, limit)
    }
    fn commit(&self, batch: Batch) -> Result<Lsn, KvError> {
        let before = self.watch.look();
        let lsn = self.kv.commit(batch)?;
        let after = self.watch.look();
        self.watch.seen.lock().extend(before.zip(after));
        Ok(lsn)
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
fn a_glance_never_contradicts_the_store() {
    let watch = Arc::new(Watch::default());
    let kv = Watched {
        kv: MemoryKv::new(),
        watch: Arc::clone(&watch),
    };
    let service = Arc::new(Service::over(Box::new(kv), quiet()).unwrap().0);
    beat(&service, vec![]);
    let md = attach(&service);
    let (core, reader) = (service.core(), attach(&service));
    *watch.core.lock() = Arc::downgrade(core);

    // Reads everything into the in-memory copies before each step.
    let warm = || {
        let found = |name: &[u8]| match reader.lookup(ROOT, name) {
            Ok(entry) => Some((entry.attr.ino.0, entry.attr.mode)),
            Err(MdError::NotFound) => None,
            Err(other) => panic!("{other}"),
        };
        let dir = reader.call(op::GetAttr { ino: ROOT }).unwrap().attr.change;
        (found(b"a"), found(b"b"), dir)
    };
    let step = |what: &str, work: &dyn Fn()| {
        let old = warm();
        watch.seen.lock().clear();
        work();
        let during = std::mem::take(&mut *watch.seen.lock());
        let new = warm();
        assert_eq!(during.len(), 1, "{what}: one batch");
        for (is, (a, b, dir)) in [(old, during[0].0), (new, during[0].1)] {
            assert!(
                a.is_none_or(|found| found == is.0),
                "{what}: a is {a:?}, not {:?}",
                is.0
            );
            assert!(
                b.is_none_or(|found| found == is.1),
                "{what}: b is {b:?}, not {:?}",
                is.1
            );
            assert!(
                dir.is_none_or(|found| found == is.2),
                "{what}: {dir:?}, not {}",
                is.2
            );
        }
        assert_ne!(old, new, "{what} did something");
    };
    let mode = |mode| SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    };
    let ino = |name: &[u8]| reader.lookup(ROOT, name).unwrap().attr.ino;
    let rename = |from: &[u8], to: &[u8]| {
        let flags = RenameFlags::Replace;
        md.rename(ROOT, from, ROOT, to, flags).unwrap();
    };
    step("create", &|| {
        make(&md, ROOT, "a", Kind::Object).unwrap();
    });
    step("chmod", &|| {
        drop(md.setattr(ino(b"a"), mode(0o700)).unwrap())
    });
    step("rename", &|| rename(b"a", b"b"));
    step("link", &|| drop(md.link(ino(b"b"), ROOT, b"a").unwrap()));
    step("unlink", &|| md.unlink(ROOT, b"b").unwrap());
    step("create again", &|| {
        make(&md, ROOT, "b", Kind::Object).unwrap();
    });
    step("replace", &|| rename(b"a", b"b"));
    step("mkdir", &|| {
        make(&md, ROOT, "a", Kind::Directory).unwrap();
    });
    step("rmdir", &|| md.rmdir(ROOT, b"a").unwrap());
}
