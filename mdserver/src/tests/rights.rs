//! Rights through the service: lives, asks and recalls by events, resends, sizes, ends of sessions, and a
//! service that is started anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slabfs_model::{Region, SessionId};

use super::support::*;
use crate::Service;
use crate::api::{
    Commit, Ino, Kind, Md, MdError, Metadata, Op, ROOT, Reply, Request, RightArea, RightAsk,
    RightEvent, RightEventKind, RightGive, RightGrant, RightHeld, RightMode, RightNews, RightReply,
    RightSerial, RightTicket, RightsBegun, RightsEpoch, Time, Unflushed,
};
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

/// Two mounts in lives in which they know of each other.
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

    /// Begins anew with this.
    fn keep(&mut self, ino: Ino, mode: RightMode, area: RightArea) {
        let kept = vec![RightHeld { ino, mode, area }];
        self.begun = self.md.reset_rights(kept).unwrap();
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
        self.md.give_rights(self.begun.epoch, gives).unwrap();
    }

    pub(super) fn poll(&self, seen: u64, wait: Duration) -> Vec<RightEvent> {
        match self.md.right_events(self.begun.epoch, seen, wait).unwrap() {
            RightNews::Events(events) => events,
            RightNews::Reset => panic!("the epoch is over"),
        }
    }

    fn hears_reset(&self) -> bool {
        let news = self.md.right_events(self.begun.epoch, 0, NOW).unwrap();
        news == RightNews::Reset
    }

    /// The only event after `seen`, which is a grant.
    fn hears_grant(&self, seen: u64) -> RightGrant {
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

    /// The only event after `seen`, which is a recall: what of, and what may stay.
    fn hears_recall(&self, seen: u64) -> (RightArea, Option<RightMode>) {
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
fn one_that_was_alone_gives_up_everything_before_another_gets_anything() {
    let service = service();
    let mut one = mount(&service);
    assert!(one.begun.alone);
    let ino = file(&one.md, "a");
    assert_eq!(one.poll(0, NOW), []);
    std::thread::scope(|scope| {
        let poll = scope.spawn(|| one.md.right_events(one.begun.epoch, 0, LONG));
        let two = mount(&service);
        assert_eq!(poll.join().unwrap(), Ok(RightNews::Reset));
        assert!(!two.begun.alone);
        assert_eq!(one.ask(ino, Read, RightArea::All), RightReply::Reset);
        two.queued(ino, Read, line(0, 1));
        assert_eq!(two.poll(0, NOW), []);
        // What it flushes meanwhile is in what the grant tells.
        let grown = Commit {
            size_at_least: 100,
            ..commit_of(&one.md, ino)
        };
        one.md.commit(grown).unwrap();
        let begun = one.md.reset_rights(Vec::new()).unwrap();
        assert!(!begun.alone && begun.epoch > two.begun.epoch);
        let grant = two.hears_grant(0);
        assert_eq!((grant.area, grant.entry.attr.size), (RightArea::All, 100));
        two.md.detach(true).unwrap();
    });
    one.reset();
    assert!(one.begun.alone, "the only one again");
}

/// What runs on a mount that was alone is not waited for: it keeps its rights, and others get everything else.
#[test]
fn who_was_alone_keeps_what_it_says_and_others_get_the_rest() {
    let service = service();
    let mut one = mount(&service);
    let (ino, other) = (file(&one.md, "a"), file(&one.md, "b"));
    let two = mount(&service);
    two.queued(ino, Write, line(0, 1));
    two.queued(other, Write, line(0, 1));
    one.keep(ino, Write, RightArea::All);
    assert!(!one.begun.alone);
    // Once more, as when no reply came in time: in between nobody gets what is kept.
    one.keep(ino, Write, RightArea::All);
    let grant = two.hears_grant(0);
    assert_eq!((grant.entry.attr.ino, grant.area), (other, RightArea::All));
    assert_eq!(one.hears_recall(0), (line(0, 1), None));
    // What was kept is given like what was granted.
    one.give(ino, None, line(0, 1));
    assert_eq!(two.hears_grant(1).area, line(0, 1));
    // Nobody keeps what another one has.
    let kept = |mode, area| vec![RightHeld { ino, mode, area }];
    let wrong = one.md.reset_rights(kept(Read, line(0, 5)));
    assert!(matches!(wrong, Err(MdError::Invalid(_))), "{wrong:?}");
    one.keep(ino, Read, line(1, 5));
    two.queued(ino, Write, line(3, 1));
    assert_eq!(one.hears_recall(0), (line(3, 1), None));
    two.granted(ino, Read, line(3, 1));
}

#[test]
fn what_others_want_is_recalled_and_granted_when_it_is_given() {
    let service = service();
    let (one, two) = two(&service);
    let ino = file(&one.md, "a");
    let grant = one.granted(ino, Write, line(0, 10));
    assert_eq!((grant.area, grant.serial.0), (RightArea::All, 1));
    two.queued(ino, Write, line(100, 50));
    two.queued(ino, Read, line(120, 1));
    assert_eq!(one.hears_recall(0), (line(100, 50), None));
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
    // A reader lets the writer keep what it has, to read.
    one.queued(ino, Read, line(60, 1));
    assert_eq!(two.hears_recall(2), (line(60, 1), Some(Read)));
    two.give(ino, Some(Read), line(60, 1));
    assert_eq!(one.hears_grant(1).area, line(60, 1));
}

#[test]
fn an_ask_that_is_taken_back_makes_room_for_the_next() {
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
        "one number twice"
    );
    three
        .md
        .cancel_right(three.begun.epoch, writer.ticket)
        .unwrap();
    two.md.cancel_right(RightsEpoch(1), writer.ticket).unwrap();
    assert_eq!(three.poll(0, NOW), [], "not its own; not its epoch");
    two.md.cancel_right(two.begun.epoch, writer.ticket).unwrap();
    assert_eq!(three.hears_grant(0).area, RightArea::All);
    assert_eq!(two.poll(0, NOW), []);
}

#[test]
fn asks_that_make_no_sense_are_refused() {
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
fn a_request_that_comes_again_does_nothing_again() {
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
    let ask = Op::AskRight {
        epoch,
        ask: ask_of(ino, Write, RightArea::All),
    };
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
    let give = Op::GiveRights {
        epoch,
        gives: gives.clone(),
    };
    let give = request(101, 101, give);
    assert_eq!(service.call_remote(give.clone()), Ok(Reply::Done));
    assert_eq!(service.call_remote(ask), Err(MdError::Stale));
    let again = Op::AskRight {
        epoch,
        ask: ask_of(ino, Write, RightArea::All),
    };
    service.call_remote(request(102, 101, again)).unwrap();
    // It was done, and takes nothing of what was granted since.
    assert_eq!(service.call_remote(give), Ok(Reply::Done));
    two.queued(ino, Read, line(0, 1));
    // Of two to begin anew, the older one comes last.
    let older = request(103, 101, Op::ResetRights { held: Vec::new() });
    let newer = service.call_remote(request(104, 101, Op::ResetRights { held: Vec::new() }));
    let Ok(Reply::RightsBegun(begun)) = newer else {
        panic!("{newer:?}");
    };
    assert_eq!(two.hears_grant(0).area, RightArea::All);
    let ask = Op::AskRight {
        epoch: begun.epoch,
        ask: ask_of(ino, Read, RightArea::All),
    };
    let reply = service.call_remote(request(105, 101, ask));
    assert!(matches!(reply, Ok(Reply::Right(RightReply::Granted(_)))));
    assert_eq!(service.call_remote(older), Err(MdError::Stale));
    two.queued(ino, Write, line(0, 1));
    // What was for another epoch does nothing.
    let give = request(106, 101, Op::GiveRights { epoch, gives });
    assert_eq!(service.call_remote(give), Ok(Reply::Done));
    assert_eq!(two.poll(1, NOW), []);
}

#[test]
fn rights_of_a_dead_mount_are_free_when_no_data_server_takes_a_write_of_it() {
    let service = service();
    beat(&service, vec![]);
    let (dead, next) = two(&service);
    beat(&service, vec![]);
    let ino = file(&next.md, "a");
    dead.granted(ino, Write, line(0, 1));
    next.queued(ino, Write, line(0, 1));
    dead.md.detach(false).unwrap();
    assert_eq!(next.poll(0, NOW), [], "what it wrote may come yet");
    assert!(!mount(&service).begun.alone);
    beat(&service, vec![]);
    assert_eq!(next.hears_grant(0).area, RightArea::All);
    let late = dead
        .md
        .ask_right(dead.begun.epoch, ask_of(ino, Read, line(0, 1)));
    assert_eq!(late, Err(MdError::SessionLost));
}

#[test]
fn one_that_was_alone_and_died_is_waited_for_until_it_is_closed() {
    let service = service();
    beat(&service, vec![]);
    let dead = mount(&service);
    assert!(dead.begun.alone);
    beat(&service, vec![]);
    let ino = file(&dead.md, "a");
    dead.md.detach(false).unwrap();
    let mut next = mount(&service);
    assert!(!next.begun.alone);
    next.queued(ino, Write, line(0, 1));
    beat(&service, vec![]);
    assert_eq!(next.hears_grant(0).area, RightArea::All);
    next.reset();
    assert!(next.begun.alone);
}

#[test]
fn a_dead_mount_waits_for_nothing() {
    let service = service();
    beat(&service, vec![]);
    let (one, dead) = two(&service);
    let three = mount(&service);
    beat(&service, vec![]);
    let ino = file(&one.md, "a");
    one.granted(ino, Write, RightArea::All);
    dead.queued(ino, Write, RightArea::All);
    three.queued(ino, Read, RightArea::All);
    dead.md.detach(false).unwrap();
    one.give(ino, None, RightArea::All);
    assert_eq!(three.hears_grant(0).area, RightArea::All);
}

#[test]
fn closing_gives_up_and_a_removed_object_is_no_more_waited_for() {
    let service = service();
    let (one, two) = two(&service);
    let ino = file(&one.md, "a");
    one.md.open(ino).unwrap();
    one.md.open(ino).unwrap();
    two.md.open(ino).unwrap();
    one.granted(ino, Write, RightArea::All);
    two.queued(ino, Write, RightArea::All);
    one.md.release(vec![ino]).unwrap();
    assert_eq!(two.poll(0, NOW), [], "still open");
    one.md.release(vec![ino]).unwrap();
    assert_eq!(two.hears_grant(0).area, RightArea::All);
    // A grant that was not fetched is none any more.
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

/// The number of the only question after `seen`.
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
fn sizes_are_those_of_who_writes() {
    let service = service();
    let (one, two) = two(&service);
    let three = mount(&service);
    let ino = file(&one.md, "a");
    let young = Time::now().sec + 100;
    assert_eq!(
        one.md.stat(ino, true).unwrap().attr.size,
        0,
        "nobody to ask"
    );
    one.granted(ino, Write, line(0, 10));
    assert_eq!(one.md.stat(ino, true).unwrap().attr.size, 0, "not itself");
    two.queued(ino, Write, line(100, u64::MAX - 100));
    one.give(ino, None, line(100, u64::MAX - 100));
    std::thread::scope(|scope| {
        let stat = scope.spawn(|| three.md.stat(ino, true).unwrap());
        let (of_one, of_two) = (question(&one, 1), question(&two, 1));
        assert_eq!(of_one, of_two);
        one.md.tell_size(of_one, unflushed(10, young)).unwrap();
        three.md.tell_size(of_two, unflushed(999, 0)).unwrap();
        one.md.tell_size(of_one, unflushed(999, 0)).unwrap();
        two.md.tell_size(of_two, unflushed(150, 5)).unwrap();
        let entry = stat.join().unwrap();
        assert_eq!(entry.attr.size, 150);
        assert_eq!(entry.info.unwrap().dims[..], [150]);
        assert_eq!((entry.attr.mtime.sec, entry.attr.ctime.sec), (young, young));
        // One that ends is not waited for, nor one that flushes everything.
        let stat = scope.spawn(|| three.md.stat(ino, true).unwrap());
        question(&one, 2);
        two.md.detach(true).unwrap();
        one.md.reset_rights(Vec::new()).unwrap();
        assert_eq!(stat.join().unwrap().attr.size, 0);
    });
    assert_eq!(
        three.md.stat(slabfs_model::ObjectId(99), true),
        Err(MdError::NotFound)
    );
}

#[test]
fn a_size_is_asked_again_of_who_begins_anew_and_keeps_the_object() {
    let service = service();
    let (mut one, two) = two(&service);
    let ino = file(&one.md, "a");
    one.granted(ino, Write, line(0, 10));
    std::thread::scope(|scope| {
        let stat = scope.spawn(|| two.md.stat(ino, true).unwrap());
        let asked = question(&one, 0);
        one.keep(ino, Write, line(0, 10));
        assert_eq!(question(&one, 0), asked);
        one.md.tell_size(asked, unflushed(10, 0)).unwrap();
        assert_eq!(stat.join().unwrap().attr.size, 10);
    });
}

#[test]
fn a_size_is_told_without_one_that_does_not_answer() {
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
        .tell_size(question(&one, 0), unflushed(10, 0))
        .unwrap();
}

/// Ends the service as a crash would, and starts one over what it left.
fn again(service: Arc<Service>, dir: &std::path::Path) -> Arc<Service> {
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
    Op::Heartbeat {
        floor: 0,
        servers_version: 0,
        knows: 0,
        strict,
    }
}

#[test]
fn a_service_that_is_started_anew_grants_nothing_before_all_have_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    let (one, two) = two(&service);
    let ino = file(&one.md, "a");
    let remote = Arc::new(Remote(Arc::clone(&service)));
    let (commit, _) = Md::attach(remote, "there", 1, false).unwrap();
    let commit = commit.session();
    one.granted(ino, Write, RightArea::All);
    let (epoch, one, two) = (one.begun.epoch, one.md.session(), two.md.session());
    let service = again(service, dir.path());

    let three = mount(&service);
    assert!(!three.begun.alone && three.begun.epoch > epoch);
    three.queued(ino, Write, RightArea::All);
    let ask = |epoch| Op::AskRight {
        epoch,
        ask: ask_of(ino, Read, RightArea::All),
    };
    let reset = Ok(Reply::Right(RightReply::Reset));
    assert_eq!(send(&service, one, 1000, ask(epoch)), reset);
    let poll = Op::RightEvents {
        epoch,
        seen: 0,
        wait_ms: 10_000,
    };
    let news = send(&service, one, 0, poll);
    assert_eq!(news, Ok(Reply::RightNews(RightNews::Reset)));
    let Ok(Reply::RightsBegun(begun)) =
        send(&service, one, 1001, Op::ResetRights { held: Vec::new() })
    else {
        panic!("not begun");
    };
    assert!(!begun.alone);
    let queued = Ok(Reply::Right(RightReply::Queued));
    assert_eq!(send(&service, one, 1002, ask(begun.epoch)), queued);
    send(&service, two, 0, heartbeat(true)).unwrap();
    send(&service, commit, 0, heartbeat(false)).unwrap();
    assert_eq!(three.poll(0, NOW), []);
    send(&service, two, 1000, Op::ResetRights { held: Vec::new() }).unwrap();
    // In their order; the one is recalled for the other at once.
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
    let wrong = send(&service, commit, 1000, Op::ResetRights { held: Vec::new() });
    assert!(matches!(wrong, Err(MdError::Invalid(_))));
}

#[test]
fn sessions_of_before_that_end_or_are_not_strict_are_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    let (one, two) = two(&service);
    let ino = file(&one.md, "a");
    let (one, two) = (one.md.session(), two.md.session());
    let service = again(service, dir.path());
    let three = mount(&service);
    three.queued(ino, Write, RightArea::All);
    send(&service, one, 0, Op::Detach { clean: true }).unwrap();
    assert_eq!(three.poll(0, NOW), []);
    send(&service, two, 0, heartbeat(false)).unwrap();
    assert_eq!(three.hears_grant(0).area, RightArea::All);
}

#[test]
fn who_attaches_before_writes_of_the_dead_are_refused_is_not_alone() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    beat(&service, vec![]);
    // It dies with the process.
    let metadata = Arc::new(crate::LocalMd(Arc::clone(&service)));
    let (md, attached) = Md::attach_as(metadata, "here", 1, false, true).unwrap();
    assert!(attached.rights.unwrap().alone);
    let ino = file(&md, "a");
    drop(md);
    let service = again(service, dir.path());
    let mut one = mount(&service);
    assert!(!one.begun.alone);
    one.queued(ino, Write, RightArea::All);
    beat(&service, vec![]);
    service.settle_down().unwrap();
    assert_eq!(one.hears_grant(0).area, RightArea::All);
    one.reset();
    assert!(one.begun.alone);
    one.md.detach(true).unwrap();
    // It ended as it should: nobody has to wait for anything.
    let service = again(service, dir.path());
    assert!(mount(&service).begun.alone);
}

/// The model found it: the record of a session that is over was gone before its end was closed, and a service
/// that was started anew just then gave away what it might still write.
#[test]
fn one_that_died_shortly_before_a_restart_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    beat(&service, vec![]);
    let (dead, next) = two(&service);
    beat(&service, vec![]);
    let ino = file(&next.md, "a");
    dead.granted(ino, Write, RightArea::All);
    dead.md.detach(false).unwrap();
    let next = next.md.session();
    // Twice: what is known of it is not used up by a start.
    let service = again(service, dir.path());
    let service = again(service, dir.path());
    send(&service, next, 1000, Op::ResetRights { held: Vec::new() }).unwrap();
    let one = mount(&service);
    one.queued(ino, Write, RightArea::All);
    assert_eq!(one.poll(0, NOW), [], "what it wrote may come yet");
    beat(&service, vec![]);
    service.settle_down().unwrap();
    assert_eq!(one.hears_grant(0).area, RightArea::All);
    one.md.detach(true).unwrap();
    send(&service, next, 1001, Op::Detach { clean: true }).unwrap();
    // Of what is closed nothing is left.
    let service = again(service, dir.path());
    assert!(mount(&service).begun.alone);
}

#[test]
fn a_session_in_this_process_takes_part() {
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
    assert!(local.hears_reset());
    local.reset();
    local.granted(ino, Write, RightArea::All);
    one.queued(ino, Write, line(3, 1));
    assert_eq!(local.hears_recall(0), (line(3, 1), None));
    local.md.detach(true).unwrap();
    assert_eq!(one.hears_grant(0).area, RightArea::All);
}

#[test]
fn a_service_that_is_about_to_stop_holds_nobody() {
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
