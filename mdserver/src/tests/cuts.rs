//! Tests of operations that were being written to the journal when the process died. Wherever the record is cut off,
//! the store is consistent and as it was before the operation; with the complete record it is as it is afterwards.
//! (Cuts at every byte are tested in `kv::tests::damage`; here the subject is that every operation is one record.)

use slabfs_model::Coords;
use std::path::{Path, PathBuf};

use super::support::*;
use crate::api::{Kind, ROOT, RenameFlags, ResizeHow, SetAttr, XattrFlags, op};
use crate::check;
use crate::client::Md;
use crate::kv::{MetaKv, Pair};
use crate::{Service, ServiceOptions};

/// The store's files except the index, which is derived.
fn truth(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// The journal file that is being written, and its length.
fn journal(dir: &Path) -> (PathBuf, u64) {
    let mut files = truth(dir).into_iter().filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // A file without a record has only its header.
        name.starts_with("journal-") && path.metadata().unwrap().len() > 80
    });
    let path = files.next_back().unwrap();
    let len = path.metadata().unwrap().len();
    (path, len)
}

/// The contents of the store after a start with the journal cut off at `len`.
fn cut(dir: &Path, len: u64) -> Vec<Pair> {
    let copy = tempfile::tempdir().unwrap();
    let (last, _) = journal(dir);
    for path in truth(dir) {
        let to = copy.path().join(path.file_name().unwrap());
        std::fs::copy(&path, &to).unwrap();
        if path == last {
            let file = std::fs::OpenOptions::new().write(true).open(to).unwrap();
            file.set_len(len).unwrap();
        }
    }
    let (kv, recovery) = check::open(copy.path()).unwrap();
    assert!(recovery.losses.is_empty(), "{recovery}");
    let mut found = Vec::new();
    check::metadata(&kv, &mut |finding| found.push(finding)).unwrap();
    assert!(found.is_empty(), "cut at {len}: {found:#?}");
    kv.scan(&[0], &[255], usize::MAX).unwrap()
}

/// Executes an operation and checks the store after a cut at many places of its record.
#[track_caller]
fn wholly_or_not_at_all(dir: &Path, what: &str, work: impl FnOnce()) {
    let (file, before) = journal(dir);
    let as_it_was = cut(dir, before);
    work();
    let (now, after) = journal(dir);
    assert_eq!(now, file, "{what}: the journal continued in another file");
    assert!(after > before, "{what} wrote nothing");
    for len in (before..after).step_by(7) {
        assert!(
            cut(dir, len) == as_it_was,
            "{what}, cut at {len}: half done"
        );
    }
    assert!(
        cut(dir, after) != as_it_was,
        "{what}: the complete record changes nothing"
    );
}

#[test]
fn an_operation_that_was_cut_off_did_not_happen() {
    let dir = tempfile::tempdir().unwrap();
    let options = ServiceOptions {
        lease: std::time::Duration::from_secs(3600),
        ..quiet()
    };
    let (service, _) = Service::open(dir.path(), options).unwrap();
    let service = std::sync::Arc::new(service);
    beat(&service, vec![]);
    let md: Md = attach(&service);
    let a = array(&md, "a", &[8, 8]);
    let sub = make(&md, ROOT, "sub", Kind::Directory).unwrap();
    file(&md, "over");
    put(&md, a, &[0, 0], &[8, 8]).unwrap();
    let lease = md.call(op::LeaseChunks { count: 8 }).unwrap();
    md.call(op::Sync {}).unwrap();
    let dir = dir.path();
    let ok = |what: &str, work: &dyn Fn() -> Result<(), crate::api::MdError>| {
        wholly_or_not_at_all(dir, what, || work().unwrap());
    };
    ok("create", &|| make(&md, sub, "new", Kind::Object).map(drop));
    ok("mkdir", &|| make(&md, sub, "d", Kind::Directory).map(drop));
    ok("setxattr", &|| {
        md.setxattr(a, b"user.k", b"value", XattrFlags::Either)
    });
    ok("link", &|| md.link(a, sub, b"hard").map(drop));
    ok("rename over", &|| {
        md.rename(ROOT, b"a", ROOT, b"over", RenameFlags::Replace)
    });
    ok("rename of a directory", &|| {
        md.rename(sub, b"d", ROOT, b"d", RenameFlags::Replace)
    });
    ok("exchange", &|| {
        md.rename(ROOT, b"d", sub, b"new", RenameFlags::Exchange)
    });
    ok("commit", &|| {
        let mut commit = commit_of(&md, a);
        commit.records = vec![
            (slab(&[0, 0], &[4, 8]), stored(&lease, 0)),
            (slab(&[2, 0], &[6, 8]), stored(&lease, 1)),
        ];
        md.call(commit).map(drop)
    });
    ok("dims", &|| {
        md.resize(a, Coords::from_slice(&[3, 8]), ResizeHow::SetDims)
            .map(drop)
    });
    ok("setattr", &|| {
        let set = SetAttr {
            mode: Some(0o600),
            ..SetAttr::default()
        };
        md.setattr(a, set).map(drop)
    });
    ok("clear", &|| md.call(op::Clear { ino: a }).map(drop));
    ok("unlink", &|| md.unlink(ROOT, b"over"));
    ok("unlink of the last name", &|| md.unlink(sub, b"hard"));
    ok("rmdir", &|| md.rmdir(sub, b"new"));
}
