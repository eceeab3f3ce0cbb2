//! Tests of the heartbeat: registration, deletions, acknowledgements.

use std::sync::mpsc;

use parking_lot::Mutex;
use slabfs_model::ServerId;

use super::*;
use crate::{error::Result, store::Space};

/// A registrar that records reports and replies from a script, including errors.
struct Office {
    script: Mutex<Vec<Option<Vec<Retire>>>>,
    reports: Mutex<mpsc::Sender<ServerReport>>,
}

impl Registrar for Office {
    fn heartbeat(&self, report: ServerReport) -> Result<ServerOrders> {
        let _ = self.reports.lock().send(report);
        match self.script.lock().pop() {
            Some(None) => Err(StoreError::Deadline),
            Some(Some(delete)) => Ok(ServerOrders { delete, ..orders() }),
            None => Ok(orders()),
        }
    }
}

fn no_fence() -> Arc<Fence> {
    Arc::new(Fence::in_memory())
}

fn orders() -> ServerOrders {
    ServerOrders {
        id: ServerId(4),
        delete: Vec::new(),
        sessions: None,
        lease_ms: 10_000,
    }
}

#[test]
fn the_heart_registers_deletes_and_acknowledges() {
    let store = Arc::new(Memory::default());
    for id in [2, 8, 9] {
        store
            .put(&free(id), &form(&[1]), &[IoSlice::new(b"x")])
            .unwrap();
    }
    // The deletion of chunk 2 fails.
    store.trap.store(2, Relaxed);
    let (first, second) = (Retire::Chunks(vec![free(8)]), Retire::Chunks(vec![free(2)]));
    let third = Retire::Object(ObjectId(7));
    let (reports, got) = mpsc::channel();
    let orders = vec![
        None,
        Some(vec![third.clone()]),
        Some(vec![first.clone(), second]),
        None,
    ];
    let office = Arc::new(Office {
        script: Mutex::new(orders),
        reports: Mutex::new(reports),
    });
    let options = HeartOptions {
        memory: false,
        shard: slabfs_model::ShardId::NAMES,
        host: "node1".into(),
        uuid: [6; 16],
        addr: Some(Addr::Tcp("node:1".into())),
        interval: Duration::from_millis(5),
    };
    let heart = Heart::start(store.clone(), office, no_fence(), options).unwrap();
    assert_eq!(
        heart.registered(Duration::from_secs(10)).unwrap(),
        ServerId(4)
    );
    let next = || got.recv_timeout(Duration::from_secs(10)).unwrap();
    let report = next();
    assert_eq!(
        (report.uuid, report.id, report.addr.as_deref()),
        ([6; 16], None, Some("tcp:node:1"))
    );
    assert_eq!(
        report.space,
        Space {
            total: 1 << 40,
            free: (1 << 40) - 3,
            used: 3,
            disk: None
        }
    );
    // The first report did not arrive; the reply to the second held two orders, one of which failed.
    assert!(next().deleted.is_empty());
    let report = next();
    assert_eq!(
        (report.id, report.deleted),
        (Some(ServerId(4)), vec![first])
    );
    // An acknowledgement that did not arrive is repeated.
    assert_eq!(next().deleted, vec![third.clone()]);
    assert_eq!(next().deleted, vec![third]);
    assert!(next().deleted.is_empty());
    assert!(
        store.synced.load(Relaxed) >= 1,
        "deletions are durable before they are acknowledged"
    );
    assert_eq!(store.list(None, 9).unwrap().len(), 2);
    heart.stop();
}

/// Deletions on a slow disk may take long; heartbeats continue meanwhile.
#[test]
fn heartbeats_continue_during_long_deletions() {
    let store = Arc::new(Memory::default());
    let (reports, got) = mpsc::channel();
    let all: Vec<Retire> = (1..4).map(|id| Retire::Chunks(vec![free(id)])).collect();
    let script = (0..3).map(|done| Some(all[done..].to_vec()));
    let office = Arc::new(Office {
        script: Mutex::new(script.rev().collect()),
        reports: Mutex::new(reports),
    });
    let options = HeartOptions {
        memory: false,
        // Any deletion takes longer than that.
        interval: Duration::ZERO,
        ..HeartOptions::new([6; 16], None)
    };
    let heart = Heart::start(store, office, no_fence(), options).unwrap();
    let next = || got.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(next().deleted.is_empty());
    for one in all {
        assert_eq!(next().deleted, vec![one]);
    }
    heart.stop();
}

#[test]
fn registration_fails_without_a_metadata_service() {
    let (reports, _got) = mpsc::channel();
    let office = Arc::new(Office {
        script: Mutex::new(vec![None; 100_000]),
        reports: Mutex::new(reports),
    });
    let heart = Heart::start(
        Arc::new(Memory::default()),
        office,
        no_fence(),
        HeartOptions::new([0; 16], None),
    )
    .unwrap();
    heart.hurry();
    assert_eq!(
        heart.registered(Duration::from_millis(50)).unwrap_err(),
        StoreError::Deadline
    );
    drop(heart);
}

/// A registrar that sends a session list until a report acknowledges it.
struct Registry(Alive, Mutex<mpsc::Sender<u64>>);

impl Registrar for Registry {
    fn heartbeat(&self, report: ServerReport) -> Result<ServerOrders> {
        let _ = self.1.lock().send(report.obeys);
        let news = report.obeys != self.0.version;
        Ok(ServerOrders {
            sessions: news.then(|| self.0.clone()),
            ..orders()
        })
    }
}

#[test]
fn a_session_list_is_acknowledged_at_once() {
    let (reports, got) = mpsc::channel();
    let alive = Alive {
        version: 8,
        next: SessionId(4),
        live: vec![SessionId(2)],
    };
    let fence = no_fence();
    let options = HeartOptions {
        memory: false,
        // The second report does not wait for the interval.
        interval: Duration::from_secs(3600),
        ..HeartOptions::new([6; 16], None)
    };
    let registry = Arc::new(Registry(alive, Mutex::new(reports)));
    let heart = Heart::start(
        Arc::new(Memory::default()),
        registry,
        fence.clone(),
        options,
    );
    let heart = heart.unwrap();
    let next = || got.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!((next(), next()), (0, 8));
    assert!(fence.enter(SessionId(2)).is_ok());
    assert_eq!(
        fence.enter(SessionId(3)).err(),
        Some(StoreError::Fenced(SessionId(3)))
    );
    heart.stop();
}
