//! Tests of a service that is restarted.

use std::sync::Arc;

use super::support::*;
use crate::api::{ROOT, XattrFlags, op};
use crate::kv::{KvError, MemoryKv};
use crate::{Service, ServiceError};

#[test]
fn everything_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    beat(&service, vec![]);
    let md = attach(&service);
    let ino = array(&md, "a", &[8, 8]);
    put(&md, ino, &[0, 0], &[8, 4]).unwrap();
    md.setxattr(ino, b"user.tag", b"value", XattrFlags::Either)
        .unwrap();
    let before = md.call(op::GetAttr { ino }).unwrap();
    let tiling = md.tiling(ino, slabfs_model::Version(0)).unwrap();
    service.close().unwrap();
    drop(service);

    let (service, recovery) = Service::open(dir.path(), quiet()).unwrap();
    assert_eq!(
        (recovery.inodes, recovery.servers, recovery.ended),
        (2, 1, 1)
    );
    let text = recovery.to_string();
    assert!(
        text.contains("closed cleanly") && text.contains("2 inodes"),
        "{text}"
    );
    let md = attach(&Arc::new(service));
    assert_eq!(md.call(op::GetAttr { ino }).unwrap(), before);
    assert_eq!(md.lookup(ROOT, b"a").unwrap(), before);
    assert_eq!(md.getxattr(ino, b"user.tag").unwrap(), b"value");
    assert_eq!(md.tiling(ino, slabfs_model::Version(0)).unwrap(), tiling);
    let servers = md.call(op::Servers {}).unwrap();
    assert!(servers.len() == 1 && !servers[0].online && servers[0].uuid == UUID);
}

#[test]
fn a_directory_has_one_service() {
    let dir = tempfile::tempdir().unwrap();
    let _service = service_in(dir.path());
    let second = Service::open(dir.path(), quiet());
    assert!(matches!(
        second,
        Err(ServiceError::Kv(KvError::Locked { .. }))
    ));
}

#[test]
fn a_store_of_another_format_is_refused() {
    use crate::kv::{Batch, MetaKv};
    let kv = MemoryKv::new();
    let mut batch = Batch::new();
    batch.put(crate::keys::FORMAT, crate::records::encode(&99u32).unwrap());
    kv.commit(batch).unwrap();
    let error = Service::over(Box::new(kv), quiet()).unwrap_err();
    assert!(error.to_string().contains("format 99"), "{error}");
}

#[test]
fn an_unreadable_record_is_an_error_and_not_a_panic() {
    use crate::kv::{Batch, MetaKv};
    let kv = MemoryKv::new();
    let mut batch = Batch::new();
    batch.put(crate::keys::inode(ROOT), vec![1, 2, 3]);
    kv.commit(batch).unwrap();
    let error = Service::over(Box::new(kv), quiet()).unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
}
