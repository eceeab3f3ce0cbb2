//! Tests of the service over a real socket, with valid and invalid requests.

use slabfs_model::{Coords, ServerId, SessionId};
use slabfs_objstore::Addr;
use slabfs_objstore::server::{Registrar, ServerReport};
use slabfs_objstore::store::Space;
use slabfs_objstore::wire::{Listener, Pool};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::support::*;
use crate::api::{
    Commit, Kind, MdError, Metadata, Op, ROOT, Reply, Request, SpecChange, XattrFlags, op,
};
use crate::client::Md;
use crate::server::KIND_CALL;
use crate::{MdServer, RemoteMd, Service};

fn addr(dir: &Path) -> Addr {
    Addr::Unix(dir.join("md.sock"))
}

fn serve(dir: &Path, service: &Arc<Service>) -> MdServer {
    MdServer::start(
        Arc::clone(service),
        Listener::bind(&addr(dir), None).unwrap(),
    )
    .unwrap()
}

fn remote(dir: &Path) -> Arc<RemoteMd> {
    Arc::new(RemoteMd::connect(addr(dir), None, Duration::from_secs(10)))
}

fn report() -> ServerReport {
    let space = Space {
        total: 1,
        free: 1,
        used: 0,
        disk: None,
    };
    ServerReport {
        memory: false,
        uuid: UUID,
        id: None,
        addr: Some("unix:os".into()),
        host: "node1".into(),
        space,
        chunks: 0,
        stored: 0,
        engine: Vec::new(),
        deleted: vec![],
        obeys: 0,
    }
}

#[test]
fn a_session_over_a_socket() {
    let dir = tempfile::tempdir().unwrap();
    let service = service();
    let _server = serve(dir.path(), &service);
    let remote = remote(dir.path());
    assert_eq!(remote.heartbeat(report()).unwrap().id, ServerId(1));
    let (md, attached) = Md::attach(remote.clone(), "there", 3, false).unwrap();
    assert_eq!(attached.servers[0].addr.as_deref(), Some("unix:os"));
    let ino = array(&md, "a", &[8, 8]);
    let (_, reply) = put(&md, ino, &[0, 0], &[8, 8]).unwrap();
    assert_eq!(
        md.tiling(ino, slabfs_model::Version(0)).unwrap().version(),
        reply.version
    );
    assert_eq!(md.readdir(ROOT, 0, 10).unwrap().len(), 1);
    assert_eq!(md.lookup(ROOT, b"none"), Err(MdError::NotFound));
    md.setxattr(ino, b"user.x", &vec![7; 65536], XattrFlags::Either)
        .unwrap();
    assert_eq!(md.getxattr(ino, b"user.x").unwrap().len(), 65536);
    assert_eq!(remote.session_count(), 1);
    let other = attach(&service);
    md.heartbeat(0).unwrap();
    assert_eq!(remote.session_count(), 2);
    other.call(op::Detach { clean: true }).unwrap();
    md.call(op::Sync {}).unwrap();
    md.call(op::Detach { clean: true }).unwrap();
}

/// The service stops and restarts: calls wait, and continue.
#[test]
fn clients_carry_on_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("md");
    let service = service_in(&data);
    let server = serve(dir.path(), &service);
    let (md, _) = Md::attach(remote(dir.path()), "there", 3, false).unwrap();
    let ino = file(&md, "a");
    md.call(op::Open { ino }).unwrap();
    server.shutdown();
    service.close().unwrap();
    drop(service);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| make(&md, ROOT, "b", Kind::Object));
        let service = service_in(&data);
        let _server = serve(dir.path(), &service);
        let b = waiting.join().unwrap().unwrap();
        assert_ne!(b, ino);
        md.unlink(ROOT, b"a").unwrap();
        assert!(md.call(op::GetAttr { ino }).is_ok(), "open since before");
        md.release(vec![ino]).unwrap();
        assert_eq!(md.call(op::GetAttr { ino }), Err(MdError::NotFound));
    });
}

#[test]
fn the_error_for_a_missing_service_names_the_address() {
    let dir = tempfile::tempdir().unwrap();
    let remote = Arc::new(RemoteMd::connect(
        addr(dir.path()),
        None,
        Duration::from_millis(50),
    ));
    let error = Md::attach(remote, "there", 3, false).unwrap_err();
    assert!(matches!(&error, MdError::Unavailable { addr, .. } if addr.contains("md.sock")));
    assert!(error.is_transient());
}

/// Any invalid request is answered with an error or ends its connection; the service continues for all other clients.
#[test]
fn hostile_requests_do_not_affect_other_clients() {
    let dir = tempfile::tempdir().unwrap();
    let service = service();
    beat(&service, vec![]);
    let _server = serve(dir.path(), &service);
    let (md, attached) = Md::attach(remote(dir.path()), "there", 3, false).unwrap();
    let ino = array(&md, "a", &[8, 8]);

    let pool = Pool::new(addr(dir.path()), None, Duration::from_secs(5));
    let mut payload = Vec::new();
    for (kind, control) in [
        (KIND_CALL, vec![]),
        (KIND_CALL, vec![0xff; 100]),
        (KIND_CALL, vec![0xff; 1 << 20]),
        (KIND_CALL + 1, vec![]),
        (u16::MAX >> 2, vec![1, 2, 3]),
    ] {
        assert!(
            pool.call(kind, &control, &[], &mut payload).is_err(),
            "{kind} {control:?}"
        );
    }
    let good = Request {
        session: attached.session,
        seq: 0,
        done_below: 0,
        op: Op::Servers(op::Servers {}),
    };
    let mut longer = postcard::to_stdvec(&good).unwrap();
    longer.push(0);
    assert!(pool.call(KIND_CALL, &longer, &[], &mut payload).is_err());

    let mut raw = UnixStream::connect(dir.path().join("md.sock")).unwrap();
    raw.write_all(&[0xaa; 4096]).ok();
    raw.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut end = Vec::new();
    raw.read_to_end(&mut end).ok();

    let mut seq = 100;
    let mut ask = |op: Op| {
        seq += 1;
        let session = attached.session;
        remote(dir.path()).call(Request {
            session,
            seq,
            done_below: 1,
            op,
        })
    };
    let huge = Coords::from_slice(&[u64::MAX, u64::MAX]);
    let generation = info(md.call(op::GetAttr { ino }).unwrap()).generation;
    let commit = |records, grow_to, size_at_least| {
        Op::Commit(Commit {
            ino,
            generation,
            records,
            clips: Vec::new(),
            grow_to,
            size_at_least,
            mtime: None,
            wrote: true,
            stored: i64::MAX,
            settled: true,
        })
    };
    let hostile_slab = |start, stride, count, block| {
        let axis = slabfs_model::Axis {
            start,
            stride,
            count,
            block,
        };
        slabfs_model::Hyperslab {
            axes: [axis, axis].into_iter().collect(),
        }
    };
    let fill = crate::api::Stored::Fill;
    let requests = vec![
        commit(
            vec![(
                hostile_slab(u64::MAX, u64::MAX, u64::MAX, u64::MAX),
                fill.clone(),
            )],
            None,
            0,
        ),
        commit(vec![(hostile_slab(1, 0, 5, 0), fill.clone())], None, 0),
        commit(vec![(hostile_slab(1, 1, 5, 3), fill.clone())], None, 0),
        commit(vec![(hostile_slab(0, 1, 0, 1), fill)], None, 0),
        commit(vec![], Some(huge.clone()), 0),
        commit(vec![], Some(Coords::from_slice(&[1; 33])), 0),
        commit(vec![], None, u64::MAX),
        Op::Resize(op::Resize {
            ino,
            dims: huge.clone(),
            how: crate::api::ResizeHow::SetDims,
        }),
        Op::Declare(op::Declare {
            ino,
            change: SpecChange {
                dims: Some(huge),
                ..SpecChange::default()
            },
            rewrite: None,
        }),
        Op::Declare(op::Declare {
            ino,
            change: SpecChange {
                dims: Some(Coords::from_elem(1, 1000)),
                ..SpecChange::default()
            },
            rewrite: None,
        }),
        Op::LeaseChunks(op::LeaseChunks { count: u32::MAX }),
        Op::LeaseChunks(op::LeaseChunks { count: 0 }),
        Op::Reserve(op::Reserve {
            ino,
            upto: u64::MAX,
        }),
        Op::Release(op::Release {
            inos: vec![ino; 100_000],
        }),
        Op::Create(crate::api::Create {
            mode: u32::MAX,
            ..new(ino, "x", Kind::Object)
        }),
        Op::Link(op::Link {
            ino: slabfs_model::ObjectId(u64::MAX),
            parent: ROOT,
            name: b"x".to_vec(),
        }),
        Op::Attach(op::Attach {
            host: "x".repeat(10_000),
            pid: 0,
            read_only: false,
            strict: false,
        }),
    ];
    let before = md.call(op::GetAttr { ino }).unwrap();
    for op in requests {
        let text = format!("{op:?}");
        assert!(ask(op).is_err(), "{}", &text[..text.len().min(200)]);
    }
    assert_eq!(md.call(op::GetAttr { ino }).unwrap(), before);
    assert!(
        matches!(ask(Op::ReadDir(op::ReadDir { ino: ROOT, cookie: u64::MAX, limit: u32::MAX })), Ok(Reply::Dir(entries)) if entries.is_empty())
    );
    assert!(
        ask(Op::Tiling(op::Tiling {
            ino,
            known: slabfs_model::Version(u64::MAX),
            after: Some(u64::MAX),
            wanted: None,
        }))
        .is_ok()
    );
    for (offset, shape) in [
        (vec![u64::MAX; 2], vec![u64::MAX; 2]),
        (vec![0], vec![0; 40]),
        (vec![1; 40], vec![1; 40]),
        (vec![], vec![]),
    ] {
        let region = slabfs_model::Region {
            offset: offset.into(),
            shape: shape.into(),
        };
        let answer = ask(Op::Tiling(op::Tiling {
            ino,
            known: slabfs_model::Version(0),
            after: None,
            wanted: Some(crate::api::WantedPart {
                region,
                most: u32::MAX,
            }),
        }));
        assert!(matches!(
            answer,
            Ok(Reply::Tiling(_)) | Err(MdError::Invalid(_))
        ));
    }
    assert!(
        ask(Op::Settle(op::Settle {
            ino,
            version: slabfs_model::Version(u64::MAX)
        }))
        .is_ok()
    );
    let stranger = Request {
        session: SessionId(u64::MAX),
        seq: 1,
        done_below: 0,
        op: Op::Sync(op::Sync {}),
    };
    assert_eq!(remote(dir.path()).call(stranger), Err(MdError::SessionLost));
    put(&md, ino, &[0, 0], &[8, 8]).unwrap();
}
