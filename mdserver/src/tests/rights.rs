//! Tests of rights through the service: epochs, requests and recalls by events, resends, sizes, ends of sessions, and a
//! restart of the service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slabfs_model::{Region, SessionId};

use super::support::*;
use crate::Service;
use crate::api::{
    Commit, Ino, Kind, MdError, Metadata, Op, ROOT, Reply, Request, RightArea, RightAsk,
    RightEvent, RightEventKind, RightGive, RightGrant, RightHeld, RightMode, RightNews, RightReply,
    RightSerial, RightTicket, RightsBegun, RightsEpoch, Time, Unflushed, op,
};
use crate::client::Md;
use RightMode::{Read, Write};

const NOW: Duration = Duration::ZERO;
pub(super) const LONG: Duration = Duration::from_secs(10);

/// A strict mount.
pub(super) struct Mount {
    pub(super) md: Md,
    pub(super) begun: RightsBegun,
}

pub(super) fn mount(service: &Arc<Service>) -> Mount {
    let remote = Arc::new(Remote(Arc::clone(service)));
    let (md, attached) = Md::attach_as(remote, "there", 1, false, true).unwrap();
    Mount {
        md,
        begun: attached.rights.unwrap(),
    }
}

/// Two mounts in epochs in which they know of each other.
pub(super) fn two(service: &Arc<Service>) -> (Mount, Mount) {
    let mut one = mount(service);
    let two = mount(service);
    one.reset();
    assert!(!one.begun.alone && !two.begun.alone);
    (one, two)
}

fn line(from: u64, len: u64) -> RightArea {
    RightArea::Boxes(vec![Region::new(&[from], &[len])])
}

fn ask_of(ino: Ino, mode: RightMode, area: RightArea) -> RightAsk {
    static TICKETS: AtomicU64 = AtomicU64::new(1);
    RightAsk {
        ino,
        mode,
        area,
        ticket: RightTicket(TICKETS.fetch_add(1, Ordering::Relaxed)),
    }
}

impl Mount {
    pub(super) fn reset(&mut self) {
        self.begun = self.md.reset_rights(Vec::new()).unwrap();
    }

    /// Begins a new epoch and retains this right.
    fn keep(&mut self, ino: Ino, mode: RightMode, area: RightArea) {
        let held = vec![RightHeld { ino, mode, area }];
        self.begun = self.md.reset_rights(held).unwrap();
    }

    fn ask(&self, ino: Ino, mode: RightMode, area: RightArea) -> RightReply {
        self.md
            .ask_right(self.begun.epoch, ask_of(ino, mode, area))
            .unwrap()
    }

    fn granted(&self, ino: Ino, mode: RightMode, area: RightArea) -> RightGrant {
        match self.ask(ino, mode, area) {
            RightReply::Granted(grant) => grant,
            other => panic!("{other:?}"),
        }
    }

    fn queued(&self, ino: Ino, mode: RightMode, area: RightArea) {
        assert_eq!(self.ask(ino, mode, area), RightReply::Queued);
    }

    fn give(&self, ino: Ino, keep: Option<RightMode>, area: RightArea) {
        let serial = RightSerial(u64::MAX);
        let gives = vec![RightGive {
            ino,
            serial,
            keep,
            area,
        }];
        self.md
            .call(op::GiveRights {
                epoch: self.begun.epoch,
                gives,
            })
            .unwrap();
    }

    pub(super) fn poll(&self, seen: u64, wait: Duration) -> Vec<RightEvent> {
        match self.md.right_events(self.begun.epoch, seen, wait).unwrap() {
            RightNews::Events(events) => events,
            RightNews::Over => panic!("the epoch is over"),
        }
    }

    fn is_reset(&self) -> bool {
        let news = self.md.right_events(self.begun.epoch, 0, NOW).unwrap();
        news == RightNews::Over
    }

    /// The only event after `seen`, which is a grant.
    fn next_grant(&self, seen: u64) -> RightGrant {
        match &self.poll(seen, NOW)[..] {
            [
                RightEvent {
                    kind: RightEventKind::Granted(grant),
                    ..
                },
            ] => grant.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The only event after `seen`, which is a recall: the area, and the mode that may be retained.
    fn next_recall(&self, seen: u64) -> (RightArea, Option<RightMode>) {
        match &self.poll(seen, NOW)[..] {
            [
                RightEvent {
                    kind: RightEventKind::Recall(recall),
                    ..
                },
            ] => (recall.area.clone(), recall.keep),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_mount_that_was_alone_gives_up_everything_before_another_gets_a_right() {
    let service = service();
    let mut one = mount(&service);
    assert!(one.begun.alone);
    let ino = file(&one.md, "a");
    assert_eq!(one.poll(0, NOW), []);
    std::thread::scope(|scope| {
        let poll = scope.spawn(|| one.md.right_events(one.begun.epoch, 0, LONG));
        let two = mount(&service);
        assert_eq!(poll.join().unwrap(), Ok(RightNews::Over));
        assert!(!two.begun.alone);
        assert_eq!(one.ask(ino, Read, RightArea::All), RightReply::Reset);
        two.queued(ino, Read, line(0, 1));
        assert_eq!(two.poll(0, NOW), []);
        // The grant includes the effect of a flush that happened meanwhile.
        let grown = Commit {
            size_at_least: 100,
            ..commit_of(&one.md, ino)
        };
        one.md.call(grown).unwrap();
        let begun = one.md.reset_rights(Vec::new()).unwrap();
        assert!(!begun.alone && begun.epoch > two.begun.epoch);
        let grant = two.next_grant(0);
        assert_eq!((grant.area, grant.entry.attr.size), (RightArea::All, 100));
        two.md.call(op::Detach { clean: true }).unwrap();
    });
    one.reset();
    assert!(one.begun.alone, "the only one again");
}

/// A mount that was alone need not finish its running operations first: it retains their rights, and others get all
/// else.
#[test]
fn a_mount_that_was_alone_retains_rights_and_others_get_the_rest() {
    let service = service();
    let mut one = mount(&service);
    let (ino, other) = (file(&one.md, "a"), file(&one.md, "b"));
    let two = mount(&service);
    two.queued(ino, Write, line(0, 1));
    two.queued(other, Write, line(0, 1));
    one.keep(ino, Write, RightArea::All);
    assert!(!one.begun.alone);
    // Once more, as if no reply had come in time: no other mount gets the retained rights in between.
    one.keep(ino, Write, RightArea::All);
    let grant = two.next_grant(0);
    assert_eq!((grant.entry.attr.ino, grant.area), (other, RightArea::All));
    assert_eq!(one.next_recall(0), (line(0, 1), None));
    // A retained right can be given back like a granted one.
    one.give(ino, None, line(0, 1));
    assert_eq!(two.next_grant(1).area, line(0, 1));
    // A mount cannot retain a right that conflicts with another mount's.
    let held = |mode, area| vec![RightHeld { ino, mode, area }];
    let wrong = one.md.reset_rights(held(Read, line(0, 5)));
    assert!(matches!(wrong, Err(MdError::Invalid(_))), "{wrong:?}");
    one.keep(ino, Read, line(1, 5));
    two.queued(ino, Write, line(3, 1));
    assert_eq!(one.next_recall(0), (line(3, 1), None));
    two.granted(ino, Read, line(3, 1));
}

#[test]
fn a_conflicting_right_is_recalled_and_granted_when_given_back() {
    let service = service();
    let (one, two) = two(&service);
    let ino = file(&one.md, "a");
    let grant = one.granted(ino, Write, line(0, 10));
    assert_eq!((grant.area, grant.serial.0), (RightArea::All, 1));
    two.queued(ino, Write, line(100, 50));
    two.queued(ino, Read, line(120, 1));
    assert_eq!(one.next_recall(0), (line(100, 50), None));
    std::thread::scope(|scope| {
        let poll = scope.spawn(|| two.poll(0, LONG));
        one.give(ino, None, line(50, u64::MAX - 50));
        let events = poll.join().unwrap();
        let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
        assert_eq!(numbers, [1, 2], "one after the other, at once");
    });
    let events = two.poll(0, NOW);
    let RightEventKind::Granted(grant) = &events[0].kind else {
        panic!("{events:?}");
    };
    assert_eq!((&grant.area, grant.mode), (&line(50, u64::MAX - 50), Write));
    assert_eq!(grant.serial.0, 1);
    assert_eq!(two.poll(2, NOW), []);
    // For a read request the writer may retain its right for reading.
    one.queued(ino, Read, line(60, 1));
    assert_eq!(two.next_recall(2), (line(60, 1), Some(Read)));
    two.give(ino, Some(Read), line(60, 1));
    assert_eq!(one.next_grant(1).area, line(60, 1));
}

#[test]
fn a_cancelled_request_unblocks_the_next() {
    let service = service();
    let (one, two) = two(&service);
    let three = mount(&service);
    let ino = file(&one.md, "a");
    one.granted(ino, Read, line(0, 10));
    let writer = ask_of(ino, Write, line(0, 10));
    let reply = two.md.ask_right(two.begun.epoch, writer.clone());
    assert_eq!(reply, Ok(RightReply::Queued));
    three.queued(ino, Read, line(0, 10));
    let again = two.md.ask_right(two.begun.epoch, writer.clone());
    assert!(
        matches!(again, Err(MdError::Invalid(_))),
        "the same ticket twice"
    );
    three
        .md
        .call(op::CancelRight {
            epoch: three.begun.epoch,
            ticket: writer.ticket,
        })
        .unwrap();
    two.md
        .call(op::CancelRight {
            epoch: RightsEpoch(1),
            ticket: writer.ticket,
        })
        .unwrap();
    assert_eq!(three.poll(0, NOW), [], "not its own; not its epoch");
    two.md
        .call(op::CancelRight {
            epoch: two.begun.epoch,
            ticket: writer.ticket,
        })
        .unwrap();
    assert_eq!(three.next_grant(0).area, RightArea::All);
    assert_eq!(two.poll(0, NOW), []);
}

#[test]
fn invalid_requests_are_refused() {
    let service = service();
    let (one, two) = two(&service);
    let ino = array(&one.md, "a", &[4, 4]);
    let ask = |mount: &Mount, ino, area| {
        mount
            .md
            .ask_right(mount.begun.epoch, ask_of(ino, Read, area))
    };
    assert_eq!(
        ask(&one, ino, line(0, 1)),
        Err(MdError::Stale),
        "another rank"
    );
    assert_eq!(
        ask(&one, slabfs_model::ObjectId(999), RightArea::All),
        Err(MdError::NotFound)
    );
    assert_eq!(ask(&one, ROOT, RightArea::All), Err(MdError::IsDirectory));
    let fifo = make(&one.md, ROOT, "f", Kind::Fifo).unwrap();
    assert!(matches!(
        ask(&one, fifo, RightArea::All),
        Err(MdError::NotSupported(_))
    ));
    let mixed = RightArea::Boxes(vec![Region::new(&[0, 0], &[1, 1]), Region::new(&[0], &[1])]);
    assert!(matches!(ask(&two, ino, mixed), Err(MdError::Invalid(_))));
    let local = attach(&service);
    let wrong = local.ask_right(one.begun.epoch, ask_of(ino, Read, RightArea::All));
    assert!(matches!(wrong, Err(MdError::Invalid(_))), "not strict");
    assert!(matches!(
        local.reset_rights(Vec::new()),
        Err(MdError::Invalid(_))
    ));
    assert!(matches!(
        local.right_events(one.begun.epoch, 0, NOW),
        Err(MdError::Invalid(_))
    ));
    assert!(matches!(
        ask(&two, ino, RightArea::All),
        Ok(RightReply::Granted(_))
    ));
}

#[test]
fn a_resent_request_is_not_repeated() {
    let service = service();
    let (one, two) = two(&service);
    let ino = file(&one.md, "a");
    let request = |seq, done_below, op| Request {
        session: one.md.session(),
        seq,
        done_below,
        op,
    };
    let epoch = one.begun.epoch;
    let ask = Op::AskRight(op::AskRight {
        epoch,
        ask: ask_of(ino, Write, RightArea::All),
    });
    let ask = request(100, 100, ask);
    let first = service.call_remote(ask.clone()).unwrap();
    assert!(matches!(first, Reply::Right(RightReply::Granted(_))));
    assert_eq!(service.call_remote(ask.clone()).unwrap(), first);
    let gives = vec![RightGive {
        ino,
        serial: RightSerial(1),
        keep: None,
        area: RightArea::All,
    }];
    let give = Op::GiveRights(op::GiveRights {
        epoch,
        gives: gives.clone(),
    });
    let give = request(101, 101, give);
    assert_eq!(service.call_remote(give.clone()), Ok(Reply::Done));
    assert_eq!(service.call_remote(ask), Err(MdError::Stale));
    let again = Op::AskRight(op::AskRight {
        epoch,
        ask: ask_of(ino, Write, RightArea::All),
    });
    service.call_remote(request(102, 101, again)).unwrap();
    // The request was executed before; its copy does not give back a right that was granted since.
    assert_eq!(service.call_remote(give), Ok(Reply::Done));
    two.queued(ino, Read, line(0, 1));
    // Of two requests for a new epoch, the older one arrives last.
    let older = request(
        103,
        101,
        Op::ResetRights(op::ResetRights { held: Vec::new() }),
    );
    let later = service.call_remote(request(
        104,
        101,
        Op::ResetRights(op::ResetRights { held: Vec::new() }),
    ));
    let Ok(Reply::RightsBegun(begun)) = later else {
        panic!("{later:?}");
    };
    assert_eq!(two.next_grant(0).area, RightArea::All);
    let ask = Op::AskRight(op::AskRight {
        epoch: begun.epoch,
        ask: ask_of(ino, Read, RightArea::All),
    });
    let reply = service.call_remote(request(105, 101, ask));
    assert!(matches!(reply, Ok(Reply::Right(RightReply::Granted(_)))));
    assert_eq!(service.call_remote(older), Err(MdError::Stale));
    two.queued(ino, Write, line(0, 1));
    // A request of another epoch has no effect.
    let give = request(106, 101, Op::GiveRights(op::GiveRights { epoch, gives }));
    assert_eq!(service.call_remote(give), Ok(Reply::Done));
    assert_eq!(two.poll(1, NOW), []);
}

#[test]
fn rights_of_a_dead_mount_are_free_once_data_servers_refuse_its_writes() {
    let service = service();
    beat(&service, vec![]);
    let (dead, next) = two(&service);
    beat(&service, vec![]);
    let ino = file(&next.md, "a");
    dead.granted(ino, Write, line(0, 1));
    next.queued(ino, Write, line(0, 1));
    dead.md.call(op::Detach { clean: false }).unwrap();
    assert_eq!(next.poll(0, NOW), [], "its writes may still arrive");
    assert!(!mount(&service).begun.alone);
    beat(&service, vec![]);
    assert_eq!(next.next_grant(0).area, RightArea::All);
    let late = dead
        .md
        .ask_right(dead.begun.epoch, ask_of(ino, Read, line(0, 1)));
    assert_eq!(late, Err(MdError::SessionLost));
}

#[test]
fn a_dead_mount_that_was_alone_blocks_grants_until_it_is_closed() {
    let service = service();
    beat(&service, vec![]);
    let dead = mount(&service);
    assert!(dead.begun.alone);
    beat(&service, vec![]);
    let ino = file(&dead.md, "a");
    dead.md.call(op::Detach { clean: false }).unwrap();
    let mut next = mount(&service);
    assert!(!next.begun.alone);
    next.queued(ino, Write, line(0, 1));
    beat(&service, vec![]);
    assert_eq!(next.next_grant(0).area, RightArea::All);
    next.reset();
    assert!(next.begun.alone);
}

#[test]
fn requests_of_a_dead_mount_are_dropped() {
    let service = service();
    beat(&service, vec![]);
    let (one, dead) = two(&service);
    let three = mount(&service);
    beat(&service, vec![]);
    let ino = file(&one.md, "a");
    one.granted(ino, Write, RightArea::All);
    dead.queued(ino, Write, RightArea::All);
    three.queued(ino, Read, RightArea::All);
    dead.md.call(op::Detach { clean: false }).unwrap();
    one.give(ino, None, RightArea::All);
    assert_eq!(three.next_grant(0).area, RightArea::All);
}

#[test]
fn closing_gives_rights_back_and_requests_for_a_removed_object_are_refused() {
    let service = service();
    let (one, two) = two(&service);
    let ino = file(&one.md, "a");
    one.md.call(op::Open { ino }).unwrap();
    one.md.call(op::Open { ino }).unwrap();
    two.md.call(op::Open { ino }).unwrap();
    one.granted(ino, Write, RightArea::All);
    two.queued(ino, Write, RightArea::All);
    one.md.release(vec![ino]).unwrap();
    assert_eq!(two.poll(0, NOW), [], "still open");
    one.md.release(vec![ino]).unwrap();
    assert_eq!(two.next_grant(0).area, RightArea::All);
    // A grant that was not fetched is withdrawn.
    two.md.release(vec![ino]).unwrap();
    assert!(matches!(
        two.poll(0, NOW)[..],
        [RightEvent {
            kind: RightEventKind::Refused(_),
            ..
        }]
    ));
    one.granted(ino, Write, RightArea::All);
    two.queued(ino, Write, RightArea::All);
    one.md.unlink(ROOT, b"a").unwrap();
    assert!(matches!(
        two.poll(1, NOW)[..],
        [RightEvent {
            kind: RightEventKind::Refused(_),
            ..
        }]
    ));
}

fn unflushed(size: u64, sec: i64) -> Option<Unflushed> {
    let mtime = Some(Time { sec, nsec: 0 });
    Some(Unflushed { size, mtime })
}

/// The number of the only size request after `seen`.
fn question(mount: &Mount, seen: u64) -> u64 {
    match mount.poll(seen, LONG)[..] {
        [
            RightEvent {
                kind: RightEventKind::Size { question, .. },
                ..
            },
        ] => question,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn sizes_come_from_the_writing_mounts() {
    let service = service();
    let (one, two) = two(&service);
    let three = mount(&service);
    let ino = file(&one.md, "a");
    let young = Time::now().sec + 100;
    assert_eq!(
        one.md.stat(ino, true).unwrap().attr.size,
        0,
        "no writer to ask"
    );
    one.granted(ino, Write, line(0, 10));
    assert_eq!(one.md.stat(ino, true).unwrap().attr.size, 0, "not itself");
    two.queued(ino, Write, line(100, u64::MAX - 100));
    one.give(ino, None, line(100, u64::MAX - 100));
    std::thread::scope(|scope| {
        let stat = scope.spawn(|| three.md.stat(ino, true).unwrap());
        let (of_one, of_two) = (question(&one, 1), question(&two, 1));
        assert_eq!(of_one, of_two);
        one.md.report_size(of_one, unflushed(10, young)).unwrap();
        three.md.report_size(of_two, unflushed(999, 0)).unwrap();
        one.md.report_size(of_one, unflushed(999, 0)).unwrap();
        two.md.report_size(of_two, unflushed(150, 5)).unwrap();
        let entry = stat.join().unwrap();
        assert_eq!(entry.attr.size, 150);
        assert_eq!(entry.info.unwrap().dims[..], [150]);
        assert_eq!((entry.attr.mtime.sec, entry.attr.ctime.sec), (young, young));
        // `stat` waits neither for a mount that ends nor for one that flushes everything.
        let stat = scope.spawn(|| three.md.stat(ino, true).unwrap());
        question(&one, 2);
        two.md.call(op::Detach { clean: true }).unwrap();
        one.md.reset_rights(Vec::new()).unwrap();
        assert_eq!(stat.join().unwrap().attr.size, 0);
    });
    assert_eq!(
        three.md.stat(slabfs_model::ObjectId(99), true),
        Err(MdError::NotFound)
    );
}

#[test]
fn a_size_is_requested_again_from_a_mount_that_retains_the_object_in_a_new_epoch() {
    let service = service();
    let (mut one, two) = two(&service);
    let ino = file(&one.md, "a");
    one.granted(ino, Write, line(0, 10));
    std::thread::scope(|scope| {
        let stat = scope.spawn(|| two.md.stat(ino, true).unwrap());
        let asked = question(&one, 0);
        one.keep(ino, Write, line(0, 10));
        assert_eq!(question(&one, 0), asked);
        one.md.report_size(asked, unflushed(10, 0)).unwrap();
        assert_eq!(stat.join().unwrap().attr.size, 10);
    });
}

#[test]
fn a_size_is_returned_without_a_mount_that_does_not_answer() {
    let options = crate::ServiceOptions {
        lease: Duration::from_millis(20),
        ..quiet()
    };
    let kv = Box::new(crate::kv::MemoryKv::new());
    let service = Arc::new(Service::over(kv, options).unwrap().0);
    let (one, two) = two(&service);
    let ino = file(&one.md, "a");
    one.granted(ino, Write, line(0, 10));
    assert_eq!(two.md.stat(ino, true).unwrap().attr.size, 0);
    one.md
        .report_size(question(&one, 0), unflushed(10, 0))
        .unwrap();
}

/// Ends the service as a crash would, and restarts it on the same directory.
fn restart(service: Arc<Service>, dir: &std::path::Path) -> Arc<Service> {
    service.close().unwrap();
    drop(service);
    service_in(dir)
}

fn send(service: &Arc<Service>, session: SessionId, seq: u64, op: Op) -> Result<Reply, MdError> {
    Remote(Arc::clone(service)).call(Request {
        session,
        seq,
        done_below: 1,
        op,
    })
}

fn heartbeat(strict: bool) -> Op {
    Op::Heartbeat(op::Heartbeat {
        floor: 0,
        servers_version: 0,
        knows: 0,
        strict,
    })
}

#[test]
fn a_restarted_service_grants_nothing_before_all_have_begun_an_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    let (one, two) = two(&service);
    let ino = file(&one.md, "a");
    let remote = Arc::new(Remote(Arc::clone(&service)));
    let (commit, _) = Md::attach(remote, "there", 1, false).unwrap();
    let commit = commit.session();
    one.granted(ino, Write, RightArea::All);
    let (epoch, one, two) = (one.begun.epoch, one.md.session(), two.md.session());
    let service = restart(service, dir.path());

    let three = mount(&service);
    assert!(!three.begun.alone && three.begun.epoch > epoch);
    three.queued(ino, Write, RightArea::All);
    let ask = |epoch| {
        Op::AskRight(op::AskRight {
            epoch,
            ask: ask_of(ino, Read, RightArea::All),
        })
    };
    let reset = Ok(Reply::Right(RightReply::Reset));
    assert_eq!(send(&service, one, 1000, ask(epoch)), reset);
    let poll = Op::RightEvents(op::RightEvents {
        epoch,
        seen: 0,
        wait_ms: 10_000,
    });
    let news = send(&service, one, 0, poll);
    assert_eq!(news, Ok(Reply::RightNews(RightNews::Over)));
    let Ok(Reply::RightsBegun(begun)) = send(
        &service,
        one,
        1001,
        Op::ResetRights(op::ResetRights { held: Vec::new() }),
    ) else {
        panic!("not begun");
    };
    assert!(!begun.alone);
    let queued = Ok(Reply::Right(RightReply::Queued));
    assert_eq!(send(&service, one, 1002, ask(begun.epoch)), queued);
    send(&service, two, 0, heartbeat(true)).unwrap();
    send(&service, commit, 0, heartbeat(false)).unwrap();
    assert_eq!(three.poll(0, NOW), []);
    send(
        &service,
        two,
        1000,
        Op::ResetRights(op::ResetRights { held: Vec::new() }),
    )
    .unwrap();
    // In the order of the requests; the granted right is recalled at once for the other request.
    let events = three.poll(0, NOW);
    assert!(matches!(
        events[..],
        [
            RightEvent {
                kind: RightEventKind::Granted(_),
                ..
            },
            RightEvent {
                kind: RightEventKind::Recall(_),
                ..
            }
        ]
    ));
    let wrong = send(
        &service,
        commit,
        1000,
        Op::ResetRights(op::ResetRights { held: Vec::new() }),
    );
    assert!(matches!(wrong, Err(MdError::Invalid(_))));
}

#[test]
fn earlier_sessions_that_end_or_are_not_strict_do_not_block_grants() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    let (one, two) = two(&service);
    let ino = file(&one.md, "a");
    let (one, two) = (one.md.session(), two.md.session());
    let service = restart(service, dir.path());
    let three = mount(&service);
    three.queued(ino, Write, RightArea::All);
    send(&service, one, 0, Op::Detach(op::Detach { clean: true })).unwrap();
    assert_eq!(three.poll(0, NOW), []);
    send(&service, two, 0, heartbeat(false)).unwrap();
    assert_eq!(three.next_grant(0).area, RightArea::All);
}

#[test]
fn a_mount_is_not_alone_before_writes_of_dead_mounts_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    beat(&service, vec![]);
    // The session ends with the process.
    let metadata = Arc::new(crate::LocalMd(Arc::clone(&service)));
    let (md, attached) = Md::attach_as(metadata, "here", 1, false, true).unwrap();
    assert!(attached.rights.unwrap().alone);
    let ino = file(&md, "a");
    drop(md);
    let service = restart(service, dir.path());
    let mut one = mount(&service);
    assert!(!one.begun.alone);
    one.queued(ino, Write, RightArea::All);
    beat(&service, vec![]);
    service.settle_down().unwrap();
    assert_eq!(one.next_grant(0).area, RightArea::All);
    one.reset();
    assert!(one.begun.alone);
    one.md.call(op::Detach { clean: true }).unwrap();
    // The session ended cleanly: no other mount has to wait.
    let service = restart(service, dir.path());
    assert!(mount(&service).begun.alone);
}

/// Found by the model: the record of an ended session was removed before the data servers refused its writes, and a
/// service restarted at that moment granted rights to areas that the session might still write.
#[test]
fn a_mount_that_died_shortly_before_a_restart_blocks_grants() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    beat(&service, vec![]);
    let (dead, next) = two(&service);
    beat(&service, vec![]);
    let ino = file(&next.md, "a");
    dead.granted(ino, Write, RightArea::All);
    dead.md.call(op::Detach { clean: false }).unwrap();
    let next = next.md.session();
    // Twice: a restart does not consume the record of the ended session.
    let service = restart(service, dir.path());
    let service = restart(service, dir.path());
    send(
        &service,
        next,
        1000,
        Op::ResetRights(op::ResetRights { held: Vec::new() }),
    )
    .unwrap();
    let one = mount(&service);
    one.queued(ino, Write, RightArea::All);
    assert_eq!(one.poll(0, NOW), [], "its writes may still arrive");
    beat(&service, vec![]);
    service.settle_down().unwrap();
    assert_eq!(one.next_grant(0).area, RightArea::All);
    one.md.call(op::Detach { clean: true }).unwrap();
    send(&service, next, 1001, Op::Detach(op::Detach { clean: true })).unwrap();
    // No record is left of a session whose writes are refused.
    let service = restart(service, dir.path());
    assert!(mount(&service).begun.alone);
}

#[test]
fn a_session_in_this_process_has_rights_too() {
    let service = service();
    let metadata = Arc::new(crate::LocalMd(Arc::clone(&service)));
    let (md, attached) = Md::attach_as(metadata, "here", 1, false, true).unwrap();
    let mut local = Mount {
        md,
        begun: attached.rights.unwrap(),
    };
    assert!(local.begun.alone);
    let one = mount(&service);
    let ino = file(&one.md, "a");
    assert!(local.is_reset());
    local.reset();
    local.granted(ino, Write, RightArea::All);
    one.queued(ino, Write, line(3, 1));
    assert_eq!(local.next_recall(0), (line(3, 1), None));
    local.md.call(op::Detach { clean: true }).unwrap();
    assert_eq!(one.next_grant(0).area, RightArea::All);
}

#[test]
fn a_service_that_is_about_to_stop_blocks_no_caller() {
    let service = service();
    let (one, two) = two(&service);
    let ino = file(&one.md, "a");
    one.granted(ino, Write, RightArea::All);
    std::thread::scope(|scope| {
        let poll = scope.spawn(|| two.poll(0, LONG));
        let stat = scope.spawn(|| two.md.stat(ino, true).unwrap());
        question(&one, 0);
        service.hold_polls(false);
        assert_eq!(poll.join().unwrap(), []);
        assert_eq!(stat.join().unwrap().attr.size, 0);
    });
}
