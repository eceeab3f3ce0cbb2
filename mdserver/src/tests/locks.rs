//! Tests of locks through the service: several sessions, resends, events, and a restart of the service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slabfs_model::SessionId;

use super::support::*;
use crate::Service;
use crate::api::{
    HeldLocks, Ino, LockAsk, LockDecision, LockEpoch, LockEvent, LockFile, LockKind, LockMode,
    LockNews, LockOutcome, LockOwner, LockReply, LockSpan, LockTicket, LockWant, LocksReclaimed,
    LostLocks, MdError, Metadata, Op, Reply, Request, op,
};
use crate::client::Md;

const FILE: Ino = slabfs_model::ObjectId(7);
const NOW: Duration = Duration::ZERO;

/// A mount that requests locks.
struct Mount {
    md: Md,
    epoch: LockEpoch,
}

fn mount(service: &Arc<Service>) -> Mount {
    let remote = Arc::new(Remote(Arc::clone(service)));
    let (md, attached) = Md::attach(remote, "there", 1, false).unwrap();
    Mount {
        md,
        epoch: attached.locks,
    }
}

fn ask(owner: u64, span: (u64, u64), want: LockWant) -> LockAsk {
    static TICKETS: AtomicU64 = AtomicU64::new(1);
    LockAsk {
        file: LockFile {
            ino: FILE,
            selection: None,
        },
        kind: LockKind::Record,
        owner: LockOwner(owner),
        pid: owner as u32,
        span: LockSpan {
            first: span.0,
            last: span.1,
        },
        want,
        ticket: LockTicket(TICKETS.fetch_add(1, Ordering::Relaxed)),
    }
}

impl Mount {
    fn lock(&self, owner: u64, span: (u64, u64), want: LockWant) -> LockReply {
        self.md.lock(self.epoch, ask(owner, span, want)).unwrap()
    }

    fn events(&self, seen: u64, wait: Duration) -> Vec<LockEvent> {
        match self.md.lock_events(self.epoch, seen, wait).unwrap() {
            LockNews::Events(events) => events,
            LockNews::Over => panic!("another epoch"),
        }
    }
}

const TRY: LockWant = LockWant::Try(LockMode::Exclusive);
const WAIT: LockWant = LockWant::Wait(LockMode::Exclusive);

fn done(change: u64) -> LockReply {
    LockReply::Decided {
        outcome: LockOutcome::Done,
        change: Some(change),
    }
}

fn held(reply: LockReply) -> bool {
    matches!(
        reply,
        LockReply::Decided {
            outcome: LockOutcome::Held(_),
            ..
        }
    )
}

const QUEUED: LockReply = LockReply::Queued { change: None };

#[test]
fn locks_of_two_mounts_exclude_each_other() {
    let service = service();
    let (one, two) = (mount(&service), mount(&service));
    assert_eq!(one.lock(1, (0, 9), TRY), done(1));
    // The same owner number on another mount is another owner.
    let LockReply::Decided {
        outcome: LockOutcome::Held(conflict),
        change: None,
    } = two.lock(1, (9, 12), TRY)
    else {
        panic!("the lock was granted twice");
    };
    assert_eq!((conflict.session, conflict.pid), (one.md.session(), 1));
    assert_eq!((conflict.span.first, conflict.span.last), (0, 9));
    assert_eq!(two.lock(1, (10, 12), TRY), done(1));
    assert_eq!(one.lock(1, (0, 4), LockWant::Unlock), done(2));
    assert_eq!(two.lock(1, (0, 4), TRY), done(2));
    assert!(held(two.lock(1, (0, 5), LockWant::Test(LockMode::Shared))));
    // There is nothing to release, so nothing changes.
    let nothing = LockReply::Decided {
        outcome: LockOutcome::Done,
        change: None,
    };
    assert_eq!(one.lock(5, (0, 4), LockWant::Unlock), nothing);
    let wrong = one.md.lock(one.epoch, ask(1, (5, 4), TRY));
    assert!(matches!(wrong, Err(MdError::Invalid(_))));
}

#[test]
fn a_waiting_lock_is_granted_by_an_earlier_poll() {
    let service = service();
    let (one, two) = (mount(&service), mount(&service));
    one.lock(1, (0, 9), TRY);
    assert_eq!(
        two.events(0, Duration::from_secs(10)),
        [],
        "nothing to wait for"
    );
    assert_eq!(two.lock(2, (0, 9), WAIT), QUEUED);
    assert_eq!(two.events(0, NOW), []);
    std::thread::scope(|scope| {
        let poll = scope.spawn(|| two.events(0, Duration::from_secs(10)));
        one.lock(1, (0, 9), LockWant::Unlock);
        let events = poll.join().unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].number, events[0].kind.change), (1, Some(1)));
        assert_eq!(events[0].kind.outcome, LockOutcome::Done);
    });
    // The event is repeated until the mount acknowledges it.
    assert_eq!(two.events(0, NOW).len(), 1);
    assert_eq!(two.events(1, NOW), []);
    assert!(held(one.lock(1, (0, 0), TRY)));
}

#[test]
fn a_cancelled_wait_unblocks_the_next() {
    let service = service();
    let (one, two) = (mount(&service), mount(&service));
    one.lock(1, (0, 9), LockWant::Try(LockMode::Shared));
    let writer = ask(2, (0, 9), WAIT);
    assert_eq!(two.md.lock(two.epoch, writer.clone()).unwrap(), QUEUED);
    let shared = LockWant::Wait(LockMode::Shared);
    assert_eq!(two.lock(3, (0, 9), shared), QUEUED);
    assert!(!one.md.cancel_lock(writer.ticket).unwrap(), "not its own");
    assert!(two.md.cancel_lock(writer.ticket).unwrap());
    assert!(!two.md.cancel_lock(writer.ticket).unwrap());
    assert_eq!(two.events(0, NOW).len(), 1, "the reader behind it");
}

#[test]
fn locks_of_a_dead_mount_are_free_once_data_servers_refuse_its_writes() {
    let service = service();
    beat(&service, vec![]);
    let (dead, next) = (mount(&service), mount(&service));
    beat(&service, vec![]);
    dead.lock(1, (0, 9), TRY);
    assert_eq!(next.lock(2, (0, 9), WAIT), QUEUED);
    dead.md.call(op::Detach { clean: false }).unwrap();
    assert_eq!(
        next.events(0, NOW),
        [],
        "its writes under the lock may still arrive"
    );
    assert!(held(next.lock(3, (0, 0), TRY)));
    beat(&service, vec![]);
    let events = next.events(0, NOW);
    assert_eq!(
        (events.len(), events[0].kind.outcome),
        (1, LockOutcome::Done)
    );
}

#[test]
fn an_ended_session_releases_its_locks_and_gets_no_more() {
    let service = service();
    let (one, two) = (mount(&service), mount(&service));
    one.lock(1, (0, 9), TRY);
    assert_eq!(two.lock(2, (0, 9), WAIT), QUEUED);
    let three = mount(&service);
    assert_eq!(three.lock(3, (0, 9), WAIT), QUEUED);
    two.md.call(op::Detach { clean: true }).unwrap();
    one.md.call(op::Detach { clean: true }).unwrap();
    assert_eq!(three.events(0, NOW).len(), 1);
    let late = one.md.lock(one.epoch, ask(1, (20, 29), TRY));
    assert_eq!(late, Err(MdError::SessionLost));
    let late = one.md.lock_events(one.epoch, 0, NOW);
    assert_eq!(late, Err(MdError::SessionLost));
}

#[test]
fn a_read_only_session_may_lock() {
    let service = service();
    let remote = Arc::new(Remote(Arc::clone(&service)));
    let (md, attached) = Md::attach(remote, "there", 1, true).unwrap();
    let reply = md.lock(attached.locks, ask(1, (0, 9), TRY));
    assert_eq!(reply, Ok(done(1)));
}

#[test]
fn a_resent_request_is_not_repeated() {
    let service = service();
    let one = mount(&service);
    let request = |seq, done_below, want| Request {
        session: one.md.session(),
        seq,
        done_below,
        op: Op::Lock(op::Lock {
            epoch: one.epoch,
            ask: ask(1, (0, 9), want),
        }),
    };
    let lock = request(1, 1, TRY);
    let first = service.call_remote(lock.clone()).unwrap();
    assert_eq!(first, Reply::Lock(done(1)));
    assert_eq!(service.call_remote(lock.clone()).unwrap(), first);
    let unlock = request(2, 2, LockWant::Unlock);
    assert_eq!(service.call_remote(unlock).unwrap(), Reply::Lock(done(2)));
    // A late copy of the first request, whose reply was acknowledged.
    assert_eq!(service.call_remote(lock), Err(MdError::Stale));
    let two = mount(&service);
    assert_eq!(two.lock(1, (0, 9), TRY), done(1));
}

#[test]
fn a_range_lock_is_released_before_it_is_changed() {
    let service = service();
    let (one, two) = (mount(&service), mount(&service));
    let range_lock = |mount: &Mount, owner, want| {
        let mut ask = ask(owner, (0, 99), want);
        ask.kind = LockKind::File;
        mount.md.lock(mount.epoch, ask).unwrap()
    };
    let shared = LockWant::Try(LockMode::Shared);
    assert_eq!(range_lock(&one, 1, shared), done(1));
    assert_eq!(range_lock(&two, 1, shared), done(1));
    // Refused, and the old lock is released: that is a change as well.
    let LockReply::Decided { outcome, change } = range_lock(&one, 1, TRY) else {
        panic!("queued");
    };
    assert!(matches!(outcome, LockOutcome::Held(_)) && change == Some(2));
    assert_eq!(range_lock(&two, 1, TRY), done(2));
    assert_eq!(range_lock(&one, 1, WAIT), QUEUED);
    assert_eq!(range_lock(&two, 2, WAIT), QUEUED);
    // The request goes to the end of the queue.
    assert_eq!(
        range_lock(&two, 1, LockWant::Wait(LockMode::Shared)),
        LockReply::Queued { change: Some(3) }
    );
    assert_eq!(one.events(0, NOW).len(), 1);
    // `fcntl` locks do not conflict with it.
    assert_eq!(one.lock(9, (0, 99), TRY), done(4));
}

/// A non-blocking request waits if the holder's file is being closed: the lock is about to be released, or not.
#[test]
fn a_non_blocking_request_waits_for_a_lock_whose_file_is_closed() {
    let service = service();
    let (one, two) = (mount(&service), mount(&service));
    let of = |kind| {
        move |mount: &Mount, owner, want| {
            let mut ask = ask(owner, (0, 99), want);
            ask.kind = kind;
            mount.md.lock(mount.epoch, ask).unwrap()
        }
    };
    let range_lock = of(LockKind::File);
    let long = Duration::from_secs(10);
    let nothing = LockReply::Decided {
        outcome: LockOutcome::Done,
        change: None,
    };
    assert_eq!(
        range_lock(&one, 1, LockWant::Ending),
        nothing,
        "no lock held"
    );
    assert_eq!(range_lock(&one, 1, TRY), done(1));
    assert!(held(range_lock(&two, 2, TRY)));
    assert_eq!(range_lock(&one, 1, LockWant::Ending), nothing);
    assert!(held(range_lock(
        &two,
        2,
        LockWant::Test(LockMode::Exclusive)
    )));
    assert_eq!(range_lock(&two, 2, TRY), QUEUED);
    assert_eq!(two.events(0, NOW), []);
    assert_eq!(range_lock(&one, 1, LockWant::Unlock), done(2));
    let events = two.events(0, NOW);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind.outcome, LockOutcome::Done);
    // The closed descriptor was not the last one: the request is refused, and a later request is refused at once.
    assert_eq!(range_lock(&two, 2, LockWant::Ending), nothing);
    assert_eq!(range_lock(&one, 1, TRY), QUEUED);
    let events = one.events(0, long);
    assert!(matches!(
        events[..],
        [LockEvent {
            kind: LockDecision {
                outcome: LockOutcome::Held(_),
                ..
            },
            ..
        }]
    ));
    assert!(held(range_lock(&one, 3, TRY)));
    assert_eq!(one.events(1, long), [], "no request waits");
    // Nor does a request wait after the holder has requested the lock again.
    assert_eq!(range_lock(&two, 2, LockWant::Ending), nothing);
    assert_eq!(range_lock(&two, 2, TRY), done(2));
    assert!(held(range_lock(&one, 1, TRY)));
    // A request waits only if all conflicting locks are ending.
    let shared = LockWant::Try(LockMode::Shared);
    assert_eq!(range_lock(&two, 2, shared), done(3));
    assert_eq!(range_lock(&one, 4, shared), done(3));
    assert_eq!(range_lock(&two, 2, LockWant::Ending), nothing);
    assert!(held(range_lock(&one, 3, TRY)));
    // A waiting non-blocking request is cancelled like any wait, and the end of a session releases its locks.
    assert_eq!(range_lock(&one, 4, LockWant::Ending), nothing);
    let mut tried = ask(3, (0, 99), TRY);
    tried.kind = LockKind::File;
    assert_eq!(one.md.lock(one.epoch, tried.clone()).unwrap(), QUEUED);
    assert!(one.md.cancel_lock(tried.ticket).unwrap());
    assert_eq!(range_lock(&one, 3, TRY), QUEUED);
    assert_eq!(range_lock(&one, 4, LockWant::Unlock), done(4));
    assert_eq!(one.events(1, NOW), []);
    two.md.call(op::Detach { clean: true }).unwrap();
    let events = one.events(1, NOW);
    assert!(matches!(
        events[..],
        [LockEvent {
            kind: LockDecision {
                outcome: LockOutcome::Done,
                ..
            },
            ..
        }]
    ));
    // Other requests do not wait behind a non-blocking one.
    let two = mount(&service);
    assert_eq!(
        range_lock(&one, 3, shared),
        LockReply::Decided {
            outcome: LockOutcome::Done,
            change: Some(6)
        }
    );
    assert_eq!(range_lock(&one, 3, LockWant::Ending), nothing);
    assert_eq!(range_lock(&two, 2, TRY), QUEUED);
    assert_eq!(
        range_lock(&two, 5, LockWant::Wait(LockMode::Shared)),
        done(1)
    );
    let events = two.events(0, long);
    assert!(matches!(
        events[..],
        [LockEvent {
            kind: LockDecision {
                outcome: LockOutcome::Held(_),
                ..
            },
            ..
        }]
    ));
    // Record locks are refused at once: a wait could look like a deadlock.
    let record = of(LockKind::Record);
    let two = mount(&service);
    record(&one, 1, TRY);
    assert_eq!(record(&one, 1, LockWant::Ending), nothing);
    assert!(held(record(&two, 2, TRY)));
}

/// Ends the service as a crash would, and restarts it on the same directory.
fn restart(service: Arc<Service>, dir: &std::path::Path) -> Arc<Service> {
    service.close().unwrap();
    drop(service);
    service_in(dir)
}

fn all_of(owner: u64, span: (u64, u64)) -> Vec<HeldLocks> {
    let ask = ask(owner, span, TRY);
    vec![HeldLocks {
        file: ask.file,
        kind: ask.kind,
        owner: ask.owner,
        pid: ask.pid,
        spans: vec![(ask.span, LockMode::Exclusive)],
    }]
}

/// The part that is left of a reclaimed lock.
fn less(owner: u64, span: (u64, u64), left: Option<LockMode>) -> Vec<LostLocks> {
    let ask = ask(owner, span, TRY);
    vec![LostLocks {
        file: ask.file,
        kind: ask.kind,
        owner: ask.owner,
        spans: vec![(ask.span, left)],
    }]
}

impl Mount {
    /// Continues the session with a restarted service.
    fn with(self, service: &Arc<Service>) -> (SessionId, Arc<Remote>) {
        (self.md.session(), Arc::new(Remote(Arc::clone(service))))
    }
}

fn send(remote: &(SessionId, Arc<Remote>), seq: u64, op: Op) -> Result<Reply, MdError> {
    remote.1.call(Request {
        session: remote.0,
        seq,
        done_below: 1,
        op,
    })
}

#[test]
fn a_restarted_service_grants_no_lock_before_all_are_reclaimed() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    let (one, two) = (mount(&service), mount(&service));
    one.lock(1, (0, 9), TRY);
    let old = one.epoch;
    let service = restart(service, dir.path());
    let (one, two) = (one.with(&service), two.with(&service));

    let lock = |epoch, owner, span, want| {
        Op::Lock(op::Lock {
            epoch,
            ask: ask(owner, span, want),
        })
    };
    let reclaim = |held| {
        Op::ReclaimLocks(op::ReclaimLocks {
            held,
            first: true,
            last: true,
        })
    };
    assert_eq!(
        send(&two, 10, lock(old, 2, (5, 6), TRY)),
        Ok(Reply::Lock(LockReply::Reclaim))
    );
    let Ok(Reply::LocksReclaimed(LocksReclaimed { lost, epoch })) = send(&two, 11, reclaim(vec![]))
    else {
        panic!("not reclaimed");
    };
    assert_eq!(lost, []);
    assert!(epoch > old);
    // Not decided until the other mount has reclaimed its locks.
    let queued = Ok(Reply::Lock(QUEUED));
    assert_eq!(send(&two, 12, lock(epoch, 2, (5, 6), TRY)), queued);
    assert_eq!(send(&two, 13, lock(epoch, 2, (50, 60), TRY)), queued);
    let test = LockWant::Test(LockMode::Shared);
    assert_eq!(send(&two, 14, lock(epoch, 2, (70, 80), test)), queued);
    assert_eq!(send(&two, 15, lock(epoch, 2, (0, 9), WAIT)), queued);
    let reply = send(&one, 10, reclaim(all_of(1, (0, 9))));
    let Ok(Reply::LocksReclaimed(LocksReclaimed { lost, epoch: ones })) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(lost, []);
    let news = send(
        &two,
        0,
        Op::LockEvents(op::LockEvents {
            epoch,
            seen: 0,
            wait_ms: 0,
        }),
    );
    let Ok(Reply::LockNews(LockNews::Events(events))) = news else {
        panic!("{news:?}");
    };
    let outcomes: Vec<_> = events.iter().map(|event| event.kind.outcome).collect();
    assert!(matches!(
        outcomes[..],
        [LockOutcome::Held(_), LockOutcome::Done, LockOutcome::Free]
    ));
    let unlock = send(&one, 11, lock(ones, 1, (0, 9), LockWant::Unlock));
    assert_eq!(unlock, Ok(Reply::Lock(done(1))));
    let news = Op::LockEvents(op::LockEvents {
        epoch,
        seen: 3,
        wait_ms: 0,
    });
    let Ok(Reply::LockNews(LockNews::Events(events))) = send(&two, 0, news) else {
        panic!("no events");
    };
    assert_eq!((events[0].number, events[0].kind.change), (4, Some(2)));
}

#[test]
fn the_grace_period_ends_with_the_last_missing_session() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    let (one, two) = (mount(&service), mount(&service));
    one.lock(1, (0, 9), TRY);
    let service = restart(service, dir.path());
    let (one, two) = (one.with(&service), two.with(&service));
    let three = mount(&service);
    assert_eq!(three.lock(3, (0, 9), TRY), QUEUED);
    assert_eq!(
        send(&one, 0, Op::Detach(op::Detach { clean: false })),
        Ok(Reply::Done)
    );
    assert_eq!(three.events(0, NOW), []);
    assert_eq!(
        send(&two, 0, Op::Detach(op::Detach { clean: false })),
        Ok(Reply::Done)
    );
    assert_eq!(three.events(0, NOW).len(), 1);
}

/// A lock request during the grace period is decided afterwards like any other, with the locks that it releases.
#[test]
fn a_lock_tried_during_the_grace_period_is_refused_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    let (one, two, three) = (mount(&service), mount(&service), mount(&service));
    let range_lock = |owner, want| {
        let mut ask = ask(owner, (0, 99), want);
        ask.kind = LockKind::File;
        ask
    };
    let shared = LockWant::Try(LockMode::Shared);
    for (mount, owner) in [(&one, 1), (&two, 2)] {
        mount
            .md
            .lock(mount.epoch, range_lock(owner, shared))
            .unwrap();
    }
    let service = restart(service, dir.path());
    let (one, two, three) = (one.with(&service), two.with(&service), three.with(&service));
    let reclaim = |session: &(SessionId, Arc<Remote>), owner| {
        let ask = range_lock(owner, shared);
        let held = vec![HeldLocks {
            file: ask.file,
            kind: ask.kind,
            owner: ask.owner,
            pid: ask.pid,
            spans: vec![(ask.span, LockMode::Shared)],
        }];
        let (first, last) = (true, true);
        match send(
            session,
            10,
            Op::ReclaimLocks(op::ReclaimLocks { held, first, last }),
        ) {
            Ok(Reply::LocksReclaimed(LocksReclaimed { epoch, .. })) => epoch,
            other => panic!("{other:?}"),
        }
    };
    let (ones, twos) = (reclaim(&one, 1), reclaim(&two, 2));
    let lock = |epoch, ask| Op::Lock(op::Lock { epoch, ask });
    send(&one, 11, lock(ones, range_lock(1, LockWant::Ending))).unwrap();
    let queued = Ok(Reply::Lock(QUEUED));
    assert_eq!(send(&two, 11, lock(twos, range_lock(2, TRY))), queued);
    assert_eq!(
        send(&three, 0, Op::Detach(op::Detach { clean: false })),
        Ok(Reply::Done)
    );
    let news = |seen, wait_ms| {
        let epoch = twos;
        let news = Op::LockEvents(op::LockEvents {
            epoch,
            seen,
            wait_ms,
        });
        match send(&two, 0, news) {
            Ok(Reply::LockNews(LockNews::Events(events))) => events,
            other => panic!("{other:?}"),
        }
    };
    let events = news(0, 0);
    assert!(matches!(
        events[..],
        [LockEvent {
            kind: LockDecision {
                outcome: LockOutcome::Waits,
                ..
            },
            ..
        }]
    ));
    let events = news(1, 10_000);
    assert!(matches!(
        events[..],
        [LockEvent {
            kind: LockDecision {
                outcome: LockOutcome::Held(_),
                ..
            },
            ..
        }]
    ));
}

#[test]
fn a_reclaim_replaces_the_known_locks() {
    let service = service();
    let (one, two) = (mount(&service), mount(&service));
    one.lock(1, (0, 9), TRY);
    one.lock(1, (20, 29), TRY);
    assert_eq!(two.lock(2, (20, 29), WAIT), QUEUED);
    assert_eq!(two.lock(2, (0, 9), WAIT), QUEUED);
    let (lost, epoch) = one.md.reclaim_locks(all_of(1, (0, 9)), true, true).unwrap();
    assert_eq!(lost, []);
    assert_eq!(two.events(0, NOW).len(), 1, "of bytes 20 to 29");
    // Requests of an earlier epoch have no effect.
    assert_eq!(one.lock(1, (40, 49), TRY), LockReply::Reclaim);
    assert_eq!(one.md.lock_events(one.epoch, 0, NOW), Ok(LockNews::Over));
    let (lost, _) = one
        .md
        .reclaim_locks(all_of(1, (25, 26)), true, true)
        .unwrap();
    assert_eq!(lost, less(1, (25, 26), None), "others have it");
    assert_eq!(
        one.md.lock(epoch, ask(1, (0, 0), TRY)),
        Ok(LockReply::Reclaim)
    );
}

#[test]
fn a_reclaimed_lock_loses_only_ranges_that_others_hold() {
    let service = service();
    let (one, two) = (mount(&service), mount(&service));
    assert_eq!(one.lock(1, (0, 9), TRY), done(1));
    assert_eq!(one.lock(1, (3, 4), LockWant::Unlock), done(2));
    assert_eq!(two.lock(2, (3, 4), TRY), done(1));
    // The reply to the unlock was lost: the mount reclaims the locks that it had before.
    let reclaim = || one.md.reclaim_locks(all_of(1, (0, 9)), true, true).unwrap();
    let (lost, _) = reclaim();
    assert_eq!(lost, less(1, (3, 4), None));
    assert!(held(two.lock(2, (0, 2), TRY)), "never given up");
    assert!(held(two.lock(2, (5, 9), TRY)), "never given up");
    // A lock that was downgraded from exclusive to shared stays at least shared.
    assert_eq!(two.lock(2, (3, 4), LockWant::Unlock), done(2));
    let (lost, epoch) = reclaim();
    assert_eq!(lost, []);
    let shared = LockWant::Try(LockMode::Shared);
    let reply = one.md.lock(epoch, ask(1, (6, 7), shared)).unwrap();
    assert_eq!(reply, done(1));
    assert_eq!(two.lock(2, (7, 7), shared), done(3));
    let (lost, _) = reclaim();
    assert_eq!(lost, less(1, (7, 7), Some(LockMode::Shared)));
    assert!(held(two.lock(2, (7, 7), TRY)), "never given up");
    assert!(held(two.lock(2, (6, 6), shared)), "exclusive again");
}

#[test]
fn a_late_reclaim_is_stale() {
    let service = service();
    let one = mount(&service);
    let of = |seq, held, first, last| Request {
        session: one.md.session(),
        seq,
        // The reply to another request is still missing.
        done_below: 1,
        op: Op::ReclaimLocks(op::ReclaimLocks { held, first, last }),
    };
    // A reclaim that the mount has given up, and a later one that it sent instead.
    let late = [of(2, vec![], true, true), of(3, vec![], true, false)];
    let reclaim = of(4, all_of(1, (0, 4)), true, false);
    service.call_remote(reclaim).unwrap();
    for late in &late {
        assert_eq!(service.call_remote(late.clone()), Err(MdError::Stale));
    }
    let reclaim = of(5, all_of(1, (6, 9)), false, true);
    let Ok(Reply::LocksReclaimed(LocksReclaimed { lost, epoch })) = service.call_remote(reclaim)
    else {
        panic!("not reclaimed");
    };
    assert_eq!(lost, []);
    for late in late {
        assert_eq!(service.call_remote(late), Err(MdError::Stale));
    }
    let two = mount(&service);
    for span in [(0, 4), (6, 9)] {
        assert!(held(two.lock(2, span, TRY)), "given twice");
    }
    assert_eq!(two.lock(2, (5, 5), TRY), done(1));
    let unlock = Op::Lock(op::Lock {
        epoch,
        ask: ask(1, (0, 9), LockWant::Unlock),
    });
    let remote = Arc::new(Remote(service));
    let reply = send(&(one.md.session(), remote), 6, unlock);
    assert_eq!(reply, Ok(Reply::Lock(done(1))), "the epoch continues");
}

#[test]
fn a_session_in_this_process_ends_with_its_locks_as_others_do() {
    let service = service();
    let local = attach(&service);
    let epoch = local.heartbeat(0).unwrap().locks;
    let one = mount(&service);
    assert_eq!(local.lock(epoch, ask(1, (0, 9), TRY)), Ok(done(1)));
    assert_eq!(one.lock(1, (10, 19), TRY), done(1));
    assert_eq!(one.lock(1, (0, 9), WAIT), QUEUED);
    std::thread::scope(|scope| {
        assert_eq!(local.lock(epoch, ask(2, (10, 19), WAIT)), Ok(QUEUED));
        let poll = scope.spawn(|| local.lock_events(epoch, 0, Duration::from_secs(10)));
        local.call(op::Detach { clean: true }).unwrap();
        assert_eq!(poll.join().unwrap(), Err(MdError::SessionLost));
    });
    assert_eq!(one.events(0, NOW).len(), 1);
    assert_eq!(one.lock(1, (0, 19), LockWant::Unlock), done(3));
    let late = local.lock(epoch, ask(1, (0, 9), TRY));
    assert_eq!(late, Err(MdError::SessionLost));
    let late = local.reclaim_locks(all_of(1, (0, 9)), true, true);
    assert_eq!(late, Err(MdError::SessionLost));
    assert_eq!(one.lock(2, (0, 19), TRY), done(4));
}

#[test]
fn no_lock_of_a_session_in_this_process_outlives_it() {
    for _ in 0..50 {
        let service = service();
        let local = attach(&service);
        let epoch = local.heartbeat(0).unwrap().locks;
        std::thread::scope(|scope| {
            for owner in 0..2 {
                let local = &local;
                scope.spawn(move || {
                    for byte in (owner..).step_by(2) {
                        let ask = ask(owner, (2 * byte, 2 * byte), TRY);
                        match local.lock(epoch, ask) {
                            Ok(LockReply::Decided { .. }) => {}
                            Err(MdError::SessionLost) => break,
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
            local.call(op::Detach { clean: true }).unwrap();
        });
        let one = mount(&service);
        assert_eq!(one.lock(1, (0, u64::MAX), TRY), done(1));
    }
}

#[test]
fn the_grace_period_ends_without_silent_sessions() {
    let options = crate::ServiceOptions {
        lease: Duration::ZERO,
        ..quiet()
    };
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    let one = mount(&service);
    one.lock(1, (0, 9), TRY);
    service.close().unwrap();
    drop(service);
    let service = Arc::new(Service::open(dir.path(), options).unwrap().0);
    let local = attach(&service);
    let attached = local.heartbeat(0).unwrap();
    let reply = local.lock(attached.locks, ask(2, (0, 9), TRY));
    assert_eq!(reply, Ok(QUEUED));
    service.settle_down().unwrap();
    let news = local.lock_events(attached.locks, 0, NOW).unwrap();
    assert!(matches!(news, LockNews::Events(events) if events.len() == 1));
}
