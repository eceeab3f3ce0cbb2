//! Tests of dumps: taken while the service serves requests, loaded into an empty directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use slabfs_model::{Placement, SessionId, Version};
use std::time::Duration;

use super::support::*;
use crate::api::{Ino, Kind, MdError, ROOT, XattrFlags, op};
use crate::client::Md;
use crate::{Service, ServiceOptions, dump};

/// Takes a dump by the requests of a client.
pub(crate) fn taken(md: &Md, path: &Path) -> u64 {
    let (mut bytes, mut ticket) = (Vec::new(), None);
    loop {
        let page = md
            .call(op::Dump {
                ticket,
                offset: bytes.len() as u64,
            })
            .unwrap();
        ticket = Some(page.ticket);
        let Some(total) = page.total else { continue };
        bytes.extend_from_slice(&page.bytes);
        if page.bytes.is_empty() {
            assert_eq!(bytes.len() as u64, total);
            std::fs::write(path, bytes).unwrap();
            return total;
        }
    }
}

/// A service with an array of one chunk, a tag, a link and some hundred names.
fn filled(dir: &Path) -> (Arc<Service>, Md) {
    let service = service_in(dir);
    beat(&service, vec![]);
    let md = attach(&service);
    let ino = array(&md, "a", &[8, 8]);
    put(&md, ino, &[0, 0], &[8, 4]).unwrap();
    md.setxattr(ino, b"user.tag", b"value", XattrFlags::Either)
        .unwrap();
    md.link(ino, ROOT, b"b").unwrap();
    for i in 0..300 {
        md.call(new(ROOT, &format!("file{i}"), Kind::Object))
            .unwrap();
    }
    (service, md)
}

fn dumped() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (service, md) = filled(&dir.path().join("md"));
    let path = dir.path().join("dump");
    taken(&md, &path);
    drop(md);
    service.close().unwrap();
    (dir, path)
}

#[test]
fn a_load_restores_the_dump() {
    let dir = tempfile::tempdir().unwrap();
    let (service, md) = filled(&dir.path().join("md"));
    let path = dir.path().join("dump");
    assert!(taken(&md, &path) > 0);
    let at_the_dump = md.lookup(ROOT, b"a").unwrap();
    let (ino, tiling) = {
        let ino = at_the_dump.attr.ino;
        (ino, md.tiling(ino, Version(0)).unwrap())
    };
    // Later changes are not in the dump.
    let later = md
        .call(new(ROOT, "later", Kind::Object))
        .unwrap()
        .entry
        .attr
        .ino;
    let lease = md.call(op::LeaseChunks { count: 1 }).unwrap();

    let loaded = dump::load(&path, &dir.path().join("new")).unwrap();
    assert!(loaded.pairs > 600, "{loaded:?}");
    for _ in 0..2 {
        let (other, recovery) = Service::open(&dir.path().join("new"), quiet()).unwrap();
        assert_eq!((recovery.inodes, recovery.servers), (302, 1));
        let other = Arc::new(other);
        let there = attach(&other);
        assert_eq!(there.lookup(ROOT, b"a").unwrap(), at_the_dump);
        assert_eq!(there.lookup(ROOT, b"b").unwrap(), at_the_dump);
        assert_eq!(there.tiling(ino, Version(0)).unwrap(), tiling);
        assert_eq!(there.getxattr(ino, b"user.tag").unwrap(), b"value");
        assert_eq!(there.call(op::Servers {}).unwrap().len(), 1);
        assert_eq!(there.lookup(ROOT, b"file299").unwrap().attr.nlink, 1);
        assert!(matches!(
            there.lookup(ROOT, b"later"),
            Err(MdError::NotFound)
        ));
        // No number is allocated twice, although later allocations are not in the dump.
        let made = there.call(new(ROOT, "made", Kind::Object)).unwrap();
        assert!(made.entry.attr.ino > later);
        there.unlink(ROOT, b"made").unwrap();
        assert!(there.call(op::LeaseChunks { count: 1 }).unwrap().first > lease.first);
        drop(there);
        other.close().unwrap();
    }
    assert_eq!(md.lookup(ROOT, b"later").unwrap().attr.ino, later);
    drop(md);
    service.close().unwrap();
}

#[test]
fn no_session_continues_after_a_load() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(&dir.path().join("md"));
    let remote = |op| crate::api::Request {
        session: SessionId(0),
        seq: 0,
        done_below: 0,
        op,
    };
    let attach_op = crate::api::Op::Attach(crate::api::op::Attach {
        host: "elsewhere".to_owned(),
        pid: 1,
        read_only: false,
        strict: false,
    });
    service.call_remote(remote(attach_op)).unwrap();
    let md = attach(&service);
    let path = dir.path().join("dump");
    taken(&md, &path);
    drop(md);
    service.close().unwrap();
    let (service, recovery) = Service::open(&dir.path().join("md"), quiet()).unwrap();
    assert_eq!(recovery.sessions, 1);
    service.close().unwrap();
    dump::load(&path, &dir.path().join("new")).unwrap();
    let (service, recovery) = Service::open(&dir.path().join("new"), quiet()).unwrap();
    assert_eq!(recovery.sessions, 0);
    service.close().unwrap();
}

fn refused(path: &Path, dir: &Path) -> String {
    let text = dump::load(path, dir).unwrap_err().to_string();
    assert!(!dir.join("LOCK").exists(), "{text}");
    text
}

#[test]
fn a_damaged_dump_is_not_loaded() {
    let (dir, path) = dumped();
    let bytes = std::fs::read(&path).unwrap();
    let target = dir.path().join("new");
    for at in (0..bytes.len()).step_by(97) {
        let mut bad = bytes.clone();
        bad[at] ^= 4;
        std::fs::write(&path, bad).unwrap();
        let text = refused(&path, &target);
        assert!(text.contains("at byte"), "{text}");
    }
    for cut in [0, 10, 63, 64, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        refused(&path, &target);
    }
    std::fs::write(&path, [&bytes[..], b"x"].concat()).unwrap();
    refused(&path, &target);
    refused(&dir.path().join("missing"), &target);
    std::fs::write(&path, &bytes).unwrap();
    dump::load(&path, &target).unwrap();
    // A load does not overwrite an existing store.
    let error = dump::load(&path, &target).unwrap_err().to_string();
    assert!(error.contains("not empty"), "{error}");
}

#[test]
fn a_dump_of_another_version_is_refused() {
    let (dir, path) = dumped();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 9;
    let crc = crc_fast::crc32_iscsi(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let text = refused(&path, &dir.path().join("new"));
    assert!(
        text.contains("format version 9") && text.contains("the slabfs that wrote it"),
        "{text}"
    );
}

/// Empties an object; returns its new generation.
fn emptied(md: &Md, ino: Ino) -> u32 {
    info(md.call(op::Clear { ino }).unwrap()).generation
}

#[test]
fn no_generation_is_allocated_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut path = dir.path().join("md");
    let mut later = Vec::new();
    for incarnation in 0..3 {
        let service = service_in(&path);
        beat(&service, vec![]);
        let md = attach(&service);
        let inos = match incarnation {
            0 => ["g", "h", "i"].map(|name| file(&md, name)),
            _ => ["g", "h", "i"].map(|name| md.lookup(ROOT, name.as_bytes()).unwrap().attr.ino),
        };
        let dump = dir.path().join(format!("dump{incarnation}"));
        taken(&md, &dump);
        // Generations of an incarnation that is about to end: of an object emptied often, of one emptied once, and a
        // spare one.
        let given = [
            (0..50).map(|_| emptied(&md, inos[0])).max().unwrap(),
            emptied(&md, inos[1]),
            md.call(op::SpareGeneration {
                ino: inos[2],
                placement: Placement::Dynamic,
            })
            .unwrap()
            .generation,
        ];
        for (at, generation) in given.into_iter().enumerate() {
            assert!(
                later.iter().all(|of: &[u32; 3]| generation > of[at]),
                "{given:?} after {later:?}"
            );
        }
        later.push(given);
        drop(md);
        service.close().unwrap();
        path = dir.path().join(format!("incarnation{incarnation}"));
        dump::load(&dump, &path).unwrap();
    }
}

#[test]
fn an_abandoned_dump_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let options = ServiceOptions {
        dump_patience: Duration::ZERO,
        ..quiet()
    };
    let service = Arc::new(Service::open(&dir.path().join("md"), options).unwrap().0);
    let md = attach(&service);
    let ticket = loop {
        let page = md
            .call(op::Dump {
                ticket: None,
                offset: 0,
            })
            .unwrap();
        if page.total.is_some() {
            break page.ticket;
        }
    };
    assert!(
        !md.call(op::Dump {
            ticket: Some(ticket),
            offset: 1
        })
        .unwrap()
        .bytes
        .is_empty()
    );
    service.settle_down().unwrap();
    let error = md
        .call(op::Dump {
            ticket: Some(ticket),
            offset: 1,
        })
        .unwrap_err()
        .to_string();
    assert!(error.contains("begin again"), "{error}");
    drop(md);
    service.close().unwrap();
}
