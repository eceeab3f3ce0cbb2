//! Tests of sessions: resent requests are executed once, silent sessions end, and with a session its opens end.

use parking_lot::Mutex;
use slabfs_model::SessionId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::support::*;
use crate::api::{Create, Kind, MdError, Metadata, Op, ROOT, Reply, Request, op};
use crate::client::Md;
use crate::kv::MemoryKv;
use crate::{Service, ServiceOptions};

fn remote_session(service: &Service, read_only: bool) -> SessionId {
    let op = Op::Attach(op::Attach {
        host: "there".into(),
        pid: 2,
        read_only,
        strict: false,
    });
    let request = Request {
        session: SessionId(0),
        seq: 0,
        done_below: 0,
        op,
    };
    match service.call_remote(request) {
        Ok(Reply::Attached(attached)) => attached.session,
        other => panic!("{other:?}"),
    }
}

fn ask(
    service: &Service,
    session: SessionId,
    seq: u64,
    done_below: u64,
    op: Op,
) -> Result<Reply, MdError> {
    service.call_remote(Request {
        session,
        seq,
        done_below,
        op,
    })
}

fn create(name: &str) -> Op {
    Op::Create(Create {
        open: true,
        ..new(ROOT, name, Kind::Object)
    })
}

fn unlink(name: &str) -> Op {
    Op::Unlink(op::Unlink {
        parent: ROOT,
        name: name.as_bytes().to_vec(),
    })
}

#[test]
fn a_retry_happens_once() {
    let service = service();
    let session = remote_session(&service, false);
    let first = ask(&service, session, 1, 1, create("a")).unwrap();
    assert_eq!(ask(&service, session, 1, 1, create("a")).unwrap(), first);
    assert_eq!(
        ask(&service, session, 2, 1, unlink("a")),
        Ok(Reply::Unlinked(Default::default()))
    );
    assert_eq!(
        ask(&service, session, 2, 1, unlink("a")),
        Ok(Reply::Unlinked(Default::default()))
    );
    assert_eq!(
        ask(&service, session, 3, 1, unlink("a")),
        Err(MdError::NotFound)
    );
    // Replies of acknowledged numbers are dropped.
    ask(&service, session, 4, 3, create("b")).unwrap();
    assert_eq!(
        ask(&service, session, 1, 3, create("a")),
        Err(MdError::Stale)
    );
    let zero = ask(&service, session, 0, 0, create("c"));
    assert!(matches!(zero, Err(MdError::Invalid(_))));
}

/// A mount abandons a request and sends others, which may be executed before the service reaches the abandoned one.
#[test]
fn an_abandoned_request_is_not_executed_after_later_ones() {
    let service = service();
    let session = remote_session(&service, false);
    ask(&service, session, 1, 1, create("a")).unwrap();
    ask(&service, session, 3, 3, create("b")).unwrap();
    let late = |seq| ask(&service, session, seq, seq, unlink("a"));
    assert_eq!(late(2), Err(MdError::Stale));
    // A refused request has the same effect.
    let refused = ask(&service, session, 5, 5, unlink("none"));
    assert_eq!(refused, Err(MdError::NotFound));
    assert_eq!(late(4), Err(MdError::Stale));
    assert_eq!(late(6), Ok(Reply::Unlinked(Default::default())));
}

#[test]
fn a_retry_happens_once_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    let session = remote_session(&service, false);
    let first = ask(&service, session, 1, 1, create("a")).unwrap();
    service.close().unwrap();
    drop(service);
    let service = service_in(dir.path());
    assert_eq!(ask(&service, session, 1, 1, create("a")).unwrap(), first);
    assert_eq!(
        ask(&service, session, 2, 1, unlink("a")),
        Ok(Reply::Unlinked(Default::default()))
    );
}

#[test]
fn the_reply_cache_is_bounded() {
    let service = service();
    let session = remote_session(&service, false);
    let most = crate::sessions::MAX_REPLIES as u64;
    let nothing = || Op::Release(op::Release { inos: Vec::new() });
    for seq in 1..=most + 76 {
        ask(&service, session, seq, 1, nothing()).unwrap();
    }
    assert_eq!(
        ask(&service, session, 10, 1, nothing()),
        Err(MdError::Stale)
    );
    assert!(ask(&service, session, most, 1, nothing()).is_ok());
}

#[test]
fn concurrent_copies_of_a_request_are_executed_once() {
    let service = service();
    let session = remote_session(&service, false);
    for seq in 1..=50 {
        let name = format!("f{seq}");
        let replies: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| ask(&service, session, seq, 1, create(&name))))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(
            replies
                .iter()
                .all(|reply| reply.is_ok() && *reply == replies[0])
        );
    }
}

#[test]
fn a_read_only_session_changes_nothing() {
    let service = service();
    let session = remote_session(&service, true);
    let refused = ask(&service, session, 1, 1, create("a"));
    assert!(matches!(refused, Err(MdError::NotPermitted(_))));
    assert!(
        ask(
            &service,
            session,
            0,
            0,
            Op::GetAttr(op::GetAttr { ino: ROOT })
        )
        .is_ok()
    );
    assert!(ask(&service, session, 2, 1, Op::Open(op::Open { ino: ROOT })).is_ok());
}

#[test]
fn session_numbers_of_two_stores_differ() {
    let firsts = [(), ()].map(|()| {
        let dir = tempfile::tempdir().unwrap();
        let first = remote_session(&service_in(dir.path()), false);
        assert!((1 << 46..1 << 47).contains(&first.0), "{first}");
        // Numbering continues over a restart.
        let next = remote_session(&service_in(dir.path()), false);
        assert_eq!(next, SessionId(first.0 + 1));
        first
    });
    assert!(firsts[0].0.abs_diff(firsts[1].0) > 1 << 10, "{firsts:?}");
}

fn hasty() -> Arc<Service> {
    let options = ServiceOptions {
        lease: Duration::from_millis(30),
        ..quiet()
    };
    Arc::new(Service::over(Box::new(MemoryKv::new()), options).unwrap().0)
}

#[test]
fn a_silent_session_ends() {
    let service = hasty();
    let local = attach(&service);
    let silent = remote_session(&service, false);
    let reply = ask(&service, silent, 1, 1, create("a")).unwrap();
    let Reply::Created(created) = reply else {
        panic!("{reply:?}")
    };
    local.unlink(ROOT, b"a").unwrap();
    assert!(
        local
            .call(op::GetAttr {
                ino: created.entry.attr.ino
            })
            .is_ok(),
        "open there"
    );
    assert_eq!(service.session_count(), 2);
    std::thread::sleep(Duration::from_millis(60));
    service.settle_down().unwrap();
    assert_eq!(
        service.session_count(),
        1,
        "sessions in this process do not expire"
    );
    let get = || {
        ask(
            &service,
            silent,
            0,
            0,
            Op::GetAttr(op::GetAttr { ino: ROOT }),
        )
    };
    assert_eq!(get(), Err(MdError::SessionLost));
    assert_eq!(
        local.call(op::GetAttr {
            ino: created.entry.attr.ino
        }),
        Err(MdError::NotFound)
    );
    let beat = ask(
        &service,
        silent,
        0,
        0,
        Op::Heartbeat(op::Heartbeat {
            floor: 0,
            servers_version: 0,
            knows: 0,
            strict: false,
        }),
    );
    assert!(matches!(beat, Ok(Reply::Beat(beat)) if beat.lost));
}

#[test]
fn the_background_thread_ends_silent_sessions_and_servers() {
    let options = ServiceOptions {
        lease: Duration::from_millis(50),
        silence: Duration::from_millis(50),
        upkeep: Duration::from_millis(5),
        ..ServiceOptions::default()
    };
    let service = Service::over(Box::new(MemoryKv::new()), options).unwrap().0;
    let session = remote_session(&service, false);
    beat(&service, vec![]);
    let heartbeat = || {
        ask(
            &service,
            session,
            0,
            0,
            Op::Heartbeat(op::Heartbeat {
                floor: 0,
                servers_version: 0,
                knows: 0,
                strict: false,
            }),
        )
    };
    let Ok(Reply::Beat(first)) = heartbeat() else {
        panic!()
    };
    assert!(first.servers.unwrap()[0].online);
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while service.session_count() > 0 {
        assert!(std::time::Instant::now() < until);
        std::thread::yield_now();
    }
    let Ok(Reply::Beat(last)) = heartbeat() else {
        panic!()
    };
    assert!(last.lost && !last.servers.unwrap()[0].online);
    assert_ne!(last.servers_version, first.servers_version);
    service.close().unwrap();
}

#[test]
fn only_opens_of_other_processes_outlive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    let session = remote_session(&service, false);
    let local = attach(&service);
    let inos: Vec<_> = ["a", "b"].map(|name| file(&local, name)).into();
    ask(&service, session, 1, 1, Op::Open(op::Open { ino: inos[0] })).unwrap();
    ask(&service, session, 2, 1, Op::Open(op::Open { ino: inos[0] })).unwrap();
    local.call(op::Open { ino: inos[1] }).unwrap();
    local.unlink(ROOT, b"a").unwrap();
    local.unlink(ROOT, b"b").unwrap();
    assert!(local.call(op::GetAttr { ino: inos[1] }).is_ok());
    service.close().unwrap();
    drop(service);

    let (service, recovery) = Service::open(dir.path(), quiet()).unwrap();
    assert_eq!(
        (recovery.sessions, recovery.ended, recovery.orphans),
        (1, 1, 1),
        "{recovery}"
    );
    let get = |ino| ask(&service, session, 0, 0, Op::GetAttr(op::GetAttr { ino }));
    assert!(get(inos[0]).is_ok());
    assert_eq!(get(inos[1]), Err(MdError::NotFound));
    ask(
        &service,
        session,
        3,
        1,
        Op::Release(op::Release {
            inos: vec![inos[0]],
        }),
    )
    .unwrap();
    assert!(get(inos[0]).is_ok());
    ask(
        &service,
        session,
        4,
        1,
        Op::Release(op::Release {
            inos: vec![inos[0]],
        }),
    )
    .unwrap();
    assert_eq!(get(inos[0]), Err(MdError::NotFound));
}

/// What happens to requests over a [`Link`].
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Answered,
    /// The service executes the request, and the reply is lost.
    Unheard,
    /// The request does not reach the service.
    Unsent,
}

/// A connection that loses requests or replies.
struct Link {
    service: Arc<Service>,
    fate: Mutex<Fate>,
    unanswered: AtomicU64,
}

impl Metadata for Link {
    fn call(&self, request: Request) -> Result<Reply, MdError> {
        let fate = *self.fate.lock();
        if fate == Fate::Answered {
            return self.service.call_remote(request);
        }
        if fate == Fate::Unheard {
            self.service.call_remote(request).unwrap();
            self.unanswered.fetch_add(1, Ordering::SeqCst);
        }
        Err(MdError::Unavailable {
            addr: "there".into(),
            detail: "no answer in time".into(),
        })
    }

    fn session_count(&self) -> u32 {
        self.service.session_count()
    }

    fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::SeqCst)
    }
}

/// A release that may have been executed is not sent again: the object may be open again by then, and the service would
/// regard it as closed while a program reads it.
#[test]
fn an_open_is_not_released_twice() {
    let service = service();
    let link = Arc::new(Link {
        service: Arc::clone(&service),
        fate: Mutex::new(Fate::Answered),
        unanswered: AtomicU64::new(0),
    });
    let (md, _) = Md::attach(Arc::clone(&link) as Arc<dyn Metadata>, "there", 1, false).unwrap();
    let maker = attach(&service);
    for (name, fate) in [("a", Fate::Unsent), ("b", Fate::Unheard)] {
        let ino = file(&maker, name);
        maker.release(vec![ino]).unwrap();
        md.call(op::Open { ino }).unwrap();
        *link.fate.lock() = fate;
        let mut closed = vec![ino];
        let unavailable = md.release_all(&mut closed);
        assert!(matches!(unavailable, Err(MdError::Unavailable { .. })));
        *link.fate.lock() = Fate::Answered;
        md.call(op::Open { ino }).unwrap();
        assert_eq!(closed.len(), usize::from(fate == Fate::Unsent));
        md.release_all(&mut closed).unwrap();
        maker.unlink(ROOT, name.as_bytes()).unwrap();
        md.call(op::GetAttr { ino }).expect("it is open");
        md.release(vec![ino]).unwrap();
        assert_eq!(
            md.call(op::GetAttr { ino }).map(drop),
            Err(MdError::NotFound)
        );
    }
}
