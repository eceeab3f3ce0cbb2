//! Tests of the deletion of chunks: which chunks are deleted, and when.

use slabfs_model::{ChunkId, Coords, SessionId};
use slabfs_objstore::ChunkName;
use slabfs_objstore::server::Retire;

use super::support::*;
use crate::Service;
use crate::api::{MdError, Op, ROOT, Reply, Request, ResizeHow, SpecChange, op};

/// Chunks ordered to be deleted now.
fn ordered(service: &Service) -> Vec<u64> {
    let mut chunks: Vec<u64> = beat(service, vec![])
        .delete
        .iter()
        .flat_map(|order| match order {
            Retire::Chunks(names) => names.clone(),
            _ => vec![],
        })
        .map(|name| match name {
            ChunkName::Free(ChunkId(chunk)) => chunk,
            ChunkName::Grid { .. } => panic!("a grid chunk by name"),
        })
        .collect();
    chunks.sort_unstable();
    chunks
}

fn orders(service: &Service) -> Vec<Retire> {
    let orders = beat(service, vec![]).delete;
    orders
        .into_iter()
        .filter(|order| !matches!(order, Retire::Chunks(_)))
        .collect()
}

#[test]
fn replaced_chunks_go_after_settle_and_sync() {
    let (service, md) = ready();
    let ino = array(&md, "a", &[8, 8]);
    let (first, _) = put(&md, ino, &[0, 0], &[8, 8]).unwrap();
    let (_, reply) = put(&md, ino, &[0, 0], &[8, 8]).unwrap();
    md.call(op::Sync {}).unwrap();
    assert!(ordered(&service).is_empty(), "not settled");
    md.settle(ino, reply.before).unwrap();
    md.call(op::Sync {}).unwrap();
    assert!(ordered(&service).is_empty(), "settled an older version");
    md.settle(ino, reply.version).unwrap();
    assert!(ordered(&service).is_empty(), "settled, but not on disk");
    md.call(op::Sync {}).unwrap();
    assert_eq!(ordered(&service), [first.0]);
    assert_eq!(ordered(&service), [first.0], "until it is acknowledged");
    beat(&service, vec![Retire::Chunks(vec![ChunkName::Free(first)])]);
    assert!(ordered(&service).is_empty());
}

#[test]
fn orders_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    beat(&service, vec![]);
    let md = attach(&service);
    let ino = array(&md, "a", &[8, 8]);
    let (first, _) = put(&md, ino, &[0, 0], &[8, 8]).unwrap();
    let (second, _) = put(&md, ino, &[0, 0], &[8, 8]).unwrap();
    md.call(op::Detach { clean: true }).unwrap();
    service.close().unwrap();
    drop(service);

    let service = service_in(dir.path());
    let md = attach(&service);
    assert!(ordered(&service).is_empty(), "still not settled");
    let version = info(md.call(op::GetAttr { ino }).unwrap()).tiling;
    md.settle(ino, version).unwrap();
    md.unlink(ROOT, b"a").unwrap();
    service.settle_down().unwrap();
    md.call(op::Detach { clean: true }).unwrap();
    service.close().unwrap();
    drop(service);

    let service = service_in(dir.path());
    assert_eq!(ordered(&service), [first.0, second.0]);
    beat(&service, vec![Retire::Chunks(vec![ChunkName::Free(first)])]);
    assert_eq!(ordered(&service), [second.0]);
}

#[test]
fn settled_commits_need_no_settle() {
    let (service, md) = ready();
    let ino = array(&md, "a", &[8, 8]);
    let (first, _) = put(&md, ino, &[0, 0], &[8, 8]).unwrap();
    let lease = md.call(op::LeaseChunks { count: 1 }).unwrap();
    let mut commit = commit_of(&md, ino);
    commit.records = vec![(slab(&[0, 0], &[8, 8]), stored(&lease, 0))];
    commit.settled = true;
    md.call(commit).unwrap();
    md.call(op::Sync {}).unwrap();
    assert_eq!(ordered(&service), [first.0]);
}

#[test]
fn removed_emptied_and_cut_objects_give_their_chunks_back() {
    let (service, md) = ready();
    let ino = array(&md, "a", &[8, 8]);
    let (cut, _) = put(&md, ino, &[6, 0], &[2, 8]).unwrap();
    let (cleared, _) = put(&md, ino, &[0, 0], &[2, 8]).unwrap();
    md.resize(ino, Coords::from_slice(&[5, 8]), ResizeHow::SetDims)
        .unwrap();
    md.call(op::Sync {}).unwrap();
    assert_eq!(ordered(&service), [cut.0]);
    md.call(op::Clear { ino }).unwrap();
    let (removed, _) = put(&md, ino, &[0, 0], &[2, 8]).unwrap();
    service.settle_down().unwrap();
    md.call(op::Sync {}).unwrap();
    assert_eq!(ordered(&service), [cut.0, cleared.0]);
    md.call(op::Open { ino }).unwrap();
    md.unlink(ROOT, b"a").unwrap();
    service.settle_down().unwrap();
    md.call(op::Sync {}).unwrap();
    assert_eq!(ordered(&service), [cut.0, cleared.0], "still open");
    md.release(vec![ino]).unwrap();
    service.settle_down().unwrap();
    md.call(op::Sync {}).unwrap();
    assert_eq!(ordered(&service), [cut.0, cleared.0, removed.0]);
}

#[test]
fn grid_objects_are_deleted_by_generation_or_completely() {
    let (service, md) = ready();
    let ino = file(&md, "a");
    md.call(op::Clear { ino }).unwrap();
    assert!(orders(&service).is_empty());
    md.call(op::Sync {}).unwrap();
    assert_eq!(
        orders(&service),
        [Retire::Generation {
            object: ino,
            below: 2
        }]
    );
    beat(
        &service,
        vec![Retire::Generation {
            object: ino,
            below: 2,
        }],
    );
    let mut commit = commit_of(&md, ino);
    commit.size_at_least = 10;
    md.call(commit.clone()).unwrap();
    md.resize(ino, Coords::from_slice(&[0]), ResizeHow::Truncate)
        .unwrap();
    md.call(op::Sync {}).unwrap();
    assert_eq!(
        orders(&service),
        [Retire::Generation {
            object: ino,
            below: 3
        }]
    );
    assert_eq!(md.call(commit), Err(MdError::Stale));
    md.unlink(ROOT, b"a").unwrap();
    md.call(op::Sync {}).unwrap();
    assert!(orders(&service).contains(&Retire::Object(ino)));
}

#[test]
fn an_object_turned_into_an_array_drops_its_grid() {
    let (service, md) = ready();
    let ino = file(&md, "a");
    let change = SpecChange {
        dims: Some(Coords::from_slice(&[4])),
        ..SpecChange::default()
    };
    md.declare(ino, change, None).unwrap();
    md.call(op::Sync {}).unwrap();
    assert_eq!(
        orders(&service),
        [Retire::Generation {
            object: ino,
            below: 2
        }]
    );
}

/// Ids leased and not committed are swept, those committed are not.
#[test]
fn a_dead_session_is_swept() {
    let (service, md) = ready();
    let ino = array(&md, "a", &[8, 8]);
    let lease = md.call(op::LeaseChunks { count: 3 }).unwrap();
    let mut commit = commit_of(&md, ino);
    commit.records = vec![(slab(&[0, 0], &[8, 8]), stored(&lease, 1))];
    md.call(commit).unwrap();
    let other = attach(&service);
    md.call(op::Detach { clean: false }).unwrap();
    assert!(ordered(&service).is_empty(), "its end is not on disk");
    other.call(op::Sync {}).unwrap();
    assert_eq!(ordered(&service), [lease.first.0, lease.first.0 + 2]);
    assert_eq!(md.call(op::GetAttr { ino }), Err(MdError::SessionLost));
    let beat = md.heartbeat(0).unwrap();
    assert!(beat.lost);
    md.call(op::Detach { clean: true }).unwrap();
}

#[test]
fn a_clean_end_sweeps_nothing() {
    let (service, md) = ready();
    md.call(op::LeaseChunks { count: 3 }).unwrap();
    let other = attach(&service);
    md.call(op::Detach { clean: true }).unwrap();
    other.call(op::Sync {}).unwrap();
    assert!(ordered(&service).is_empty());
}

#[test]
fn every_server_gets_the_orders_of_a_sweep() {
    let (service, md) = ready();
    let second = beat_of(&service, [8; 16], vec![]).id;
    assert_eq!(second.0, 2);
    assert_eq!(beat_of(&service, [8; 16], vec![]).id, second);
    md.call(op::LeaseChunks { count: 1 }).unwrap();
    md.call(op::Detach { clean: false }).unwrap();
    let md = attach(&service);
    md.call(op::Sync {}).unwrap();
    assert_eq!(ordered(&service).len(), 1);
    assert_eq!(beat_of(&service, [8; 16], vec![]).delete.len(), 1);
}

/// Chunk ids and inode numbers are not allocated again (after a power loss: see `power`).
#[test]
fn numbers_are_never_allocated_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut chunks = std::collections::BTreeSet::new();
    let mut inos = std::collections::BTreeSet::new();
    for round in 0..3 {
        let service = service_in(dir.path());
        let md = attach(&service);
        let lease = md.call(op::LeaseChunks { count: 10 }).unwrap();
        assert!((0..10).all(|i| chunks.insert(lease.first.0 + i)));
        assert!(inos.insert(file(&md, &format!("f{round}"))));
        service.close().unwrap();
    }
}

/// A request without a session does nothing but attach and register.
#[test]
fn an_unknown_session_is_refused() {
    let (service, md) = ready();
    for session in [0, 99] {
        let op = Op::Unlink(op::Unlink {
            parent: ROOT,
            name: b"a".to_vec(),
        });
        let request = Request {
            session: SessionId(session),
            seq: 1,
            done_below: 0,
            op,
        };
        assert_eq!(service.call(request), Err(MdError::SessionLost));
    }
    let op = Op::Servers(op::Servers {});
    let request = Request {
        session: md.session(),
        seq: 0,
        done_below: 0,
        op,
    };
    assert!(matches!(service.call(request), Ok(Reply::Servers(_))));
}
