//! Tests of the client library's locks, over a connection that counts messages and drops some of them.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use slabfs_fs::client::{Client, ClientOptions, Locked};
use slabfs_mdserver::api::{
    LockAsk, LockFile, LockKind, LockMode, LockOwner, LockSpan, LockTicket, LockWant, MdError,
    Metadata, Op, Reply, Request,
};
use slabfs_mdserver::service::{Service, ServiceOptions};
use slabfs_model::ObjectId;
use slabfs_objstore::client::{Options, Servers};

const TRY: LockWant = LockWant::Try(LockMode::Exclusive);
const WAIT: LockWant = LockWant::Wait(LockMode::Exclusive);
const DEADLINE: Duration = Duration::from_secs(60);

/// A connection to a service in another process, as far as the service can see.
struct Line {
    service: Arc<Service>,
    /// Number of messages about locks, not counting polls.
    messages: AtomicU64,
    /// Percentage of such messages that are lost: half of them requests, half replies.
    lost: AtomicU64,
    /// While set, all replies to lock requests are lost, and reclaim requests do not arrive.
    cut: AtomicBool,
    random: AtomicU64,
}

impl Line {
    fn new(service: &Arc<Service>) -> Arc<Line> {
        Arc::new(Line {
            service: service.clone(),
            messages: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            cut: AtomicBool::new(false),
            random: AtomicU64::new(1),
        })
    }

    fn draw(&self) -> u64 {
        // Steele and Vigna's splitmix64.
        let mut z = self
            .random
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Metadata for Line {
    fn call(&self, request: Request) -> Result<Reply, MdError> {
        let about_locks = matches!(
            request.op,
            Op::Lock(_) | Op::CancelLock(_) | Op::ReclaimLocks(_)
        );
        if !about_locks {
            return self.service.call_remote(request);
        }
        self.messages.fetch_add(1, Ordering::Relaxed);
        let away = || MdError::Unavailable {
            addr: "the test".into(),
            detail: "lost".into(),
        };
        let reclaims = matches!(request.op, Op::ReclaimLocks(_));
        let cut = self.cut.load(Ordering::SeqCst);
        let (lost, draw) = (self.lost.load(Ordering::Relaxed), self.draw() % 100);
        if draw < lost / 2 || (cut && reclaims) {
            return Err(away());
        }
        let reply = self.service.call_remote(request);
        if draw < lost || cut {
            return Err(away());
        }
        reply
    }

    fn session_count(&self) -> u32 {
        self.service.session_count()
    }
}

fn service() -> (tempfile::TempDir, Arc<Service>) {
    let dir = tempfile::tempdir().unwrap();
    let (service, _) = Service::open(&dir.path().join("md"), ServiceOptions::default()).unwrap();
    (dir, Arc::new(service))
}

fn client(line: &Arc<Line>) -> Arc<Client> {
    let servers = Arc::new(Servers::new(Options::default()));
    Client::start(line.clone(), servers, ClientOptions::default()).unwrap()
}

fn file() -> LockFile {
    LockFile {
        ino: ObjectId(7),
        selection: None,
    }
}

fn ask(
    client: &Client,
    owner: u64,
    span: (u64, u64),
    want: LockWant,
) -> (LockTicket, Receiver<Result<Locked, MdError>>) {
    let ticket = client.lock_ticket();
    let ask = LockAsk {
        file: file(),
        kind: LockKind::Record,
        owner: LockOwner(owner),
        pid: 1,
        span: LockSpan {
            first: span.0,
            last: span.1,
        },
        want,
        ticket,
    };
    let (send, receive) = channel();
    client.lock(
        ask,
        owner,
        Box::new(move |result| send.send(result).unwrap()),
    );
    (ticket, receive)
}

fn lock(client: &Client, owner: u64, span: (u64, u64), want: LockWant) -> Result<Locked, MdError> {
    ask(client, owner, span, want)
        .1
        .recv_timeout(DEADLINE)
        .unwrap()
}

fn held(client: &Client) -> u64 {
    client.stats()["locks_held"].as_u64().unwrap()
}

#[test]
fn a_lock_and_an_unlock_cost_one_message_each() {
    let (_dir, service) = service();
    let line = Line::new(&service);
    let client = client(&line);
    for _ in 0..10 {
        assert_eq!(lock(&client, 1, (0, 9), WAIT), Ok(Locked::Done));
        assert_eq!(lock(&client, 1, (0, 9), LockWant::Unlock), Ok(Locked::Done));
    }
    assert_eq!(line.messages.load(Ordering::Relaxed), 20);
    assert!(!client.closing_records(&file(), LockOwner(1)));
    assert_eq!(client.closing_locks(&file(), 1), []);
    client.stop().unwrap();
}

#[test]
fn held_locks_are_known_without_a_request() {
    let (_dir, service) = service();
    let client = client(&Line::new(&service));
    lock(&client, 1, (0, 9), TRY).unwrap();
    lock(&client, 1, (5, 6), LockWant::Unlock).unwrap();
    assert_eq!(held(&client), 2);
    assert!(client.closing_records(&file(), LockOwner(1)));
    assert!(!client.closing_records(&file(), LockOwner(2)));
    assert_eq!(client.closing_locks(&file(), 2), []);
    let closing = client.closing_locks(&file(), 1);
    assert_eq!(closing, [(LockKind::Record, LockOwner(1))]);
    for _ in 0..2 {
        client.unlock_all(file(), LockKind::Record, LockOwner(1));
    }
    assert_eq!(held(&client), 0);
    client.stop().unwrap();
}

#[test]
fn an_owner_whose_open_file_is_being_closed_cannot_lock() {
    let (_dir, service) = service();
    let client = client(&Line::new(&service));
    lock(&client, 1, (0, 9), TRY).unwrap();
    assert_eq!(client.closing_locks(&file(), 1).len(), 1);
    std::thread::scope(|scope| {
        // The next open file gets the same number as the last one.
        let next = scope.spawn(|| lock(&client, 1, (0, 9), TRY));
        client.unlock_all(file(), LockKind::Record, LockOwner(1));
        assert_eq!(next.join().unwrap(), Ok(Locked::Done));
    });
    assert_eq!(held(&client), 1);
    client.stop().unwrap();
}

#[test]
fn a_wait_ends_with_a_grant_an_interrupt_or_the_end_of_the_client() {
    let (_dir, service) = service();
    let line = Line::new(&service);
    let (one, two) = (client(&line), client(&line));
    lock(&one, 1, (0, 9), TRY).unwrap();
    let (_, waits) = ask(&two, 2, (0, 9), WAIT);
    let (ticket, interrupted) = ask(&two, 3, (0, 9), WAIT);
    let (_, last) = ask(&two, 4, (0, 9), WAIT);
    two.interrupt_lock(ticket);
    let outcome = |receive: Receiver<_>| receive.recv_timeout(DEADLINE).unwrap();
    assert_eq!(outcome(interrupted), Ok(Locked::Interrupted));
    two.interrupt_lock(ticket);
    lock(&one, 1, (0, 9), LockWant::Unlock).unwrap();
    assert_eq!(outcome(waits), Ok(Locked::Done));
    two.stop().unwrap();
    assert_eq!(outcome(last), Ok(Locked::Interrupted));
    assert_eq!(
        lock(&one, 1, (0, 9), TRY),
        Ok(Locked::Done),
        "its session is over"
    );
    one.stop().unwrap();
}

/// Two mounts. The first one holds a lock on bytes 0 to 9; its request about that lock is carried out, but the
/// reply is lost.
fn in_doubt(
    span: (u64, u64),
    want: LockWant,
) -> (tempfile::TempDir, Arc<Line>, Arc<Client>, Arc<Client>) {
    let (dir, service) = service();
    let line = Line::new(&service);
    let (one, two) = (client(&line), client(&Line::new(&service)));
    assert_eq!(lock(&one, 1, (0, 9), TRY), Ok(Locked::Done));
    line.cut.store(true, Ordering::SeqCst);
    lock(&one, 1, span, want).unwrap_err();
    (dir, line, one, two)
}

/// Lets messages through again, and returns when the lock server has the reclaim.
fn repair(line: &Line, client: &Client) {
    line.cut.store(false, Ordering::SeqCst);
    assert_eq!(lock(client, 9, (90, 90), TRY), Ok(Locked::Done));
    let unlock = lock(client, 9, (90, 90), LockWant::Unlock);
    assert_eq!(unlock, Ok(Locked::Done));
}

fn is_held(result: Result<Locked, MdError>) -> bool {
    matches!(result, Ok(Locked::Held(_)))
}

#[test]
fn an_unlock_in_doubt_releases_only_the_bytes_that_were_unlocked() {
    let (_dir, line, one, two) = in_doubt((3, 4), LockWant::Unlock);
    assert_eq!(lock(&two, 2, (3, 4), TRY), Ok(Locked::Done));
    repair(&line, &one);
    for span in [(0, 2), (5, 9), (0, 0), (9, 9)] {
        assert!(is_held(lock(&two, 2, span, TRY)), "{span:?} granted twice");
    }
    assert_eq!(held(&one), 2, "bytes 0 to 2 and 5 to 9");
    one.stop().unwrap();
    two.stop().unwrap();
}

#[test]
fn a_lock_granted_to_another_mount_is_not_reclaimed_after_its_release() {
    let (_dir, line, one, two) = in_doubt((0, 9), LockWant::Unlock);
    assert_eq!(lock(&two, 2, (0, 9), TRY), Ok(Locked::Done));
    repair(&line, &one);
    assert_eq!(held(&one), 0);
    // Unlocked once more; this time the request arrives.
    assert_eq!(lock(&one, 1, (0, 9), LockWant::Unlock), Ok(Locked::Done));
    assert_eq!(lock(&two, 2, (0, 9), LockWant::Unlock), Ok(Locked::Done));
    // The locks are reclaimed again.
    line.cut.store(true, Ordering::SeqCst);
    lock(&one, 1, (50, 50), LockWant::Unlock).unwrap_err();
    repair(&line, &one);
    assert_eq!(lock(&two, 2, (0, 9), TRY), Ok(Locked::Done), "left over");
    one.stop().unwrap();
    two.stop().unwrap();
}

#[test]
fn an_exclusive_lock_whose_downgrade_is_in_doubt_is_at_least_shared() {
    let shared = LockWant::Try(LockMode::Shared);
    let (_dir, line, one, two) = in_doubt((0, 9), shared);
    assert_eq!(lock(&two, 2, (3, 4), shared), Ok(Locked::Done));
    repair(&line, &one);
    assert!(is_held(lock(&two, 2, (3, 4), TRY)), "granted twice");
    assert!(is_held(lock(&two, 2, (5, 5), shared)), "granted twice");
    assert_eq!(lock(&one, 1, (0, 9), LockWant::Unlock), Ok(Locked::Done));
    assert_eq!(held(&one), 0);
    assert_eq!(lock(&two, 2, (0, 9), TRY), Ok(Locked::Done));
    one.stop().unwrap();
    two.stop().unwrap();
}

/// Releases all locks and checks that none is left over.
fn nothing_is_left(line: &Arc<Line>, clients: &[Arc<Client>]) {
    line.lost.store(0, Ordering::Relaxed);
    for client in clients {
        for owner in 0..2 {
            client.unlock_all(file(), LockKind::Record, LockOwner(owner));
        }
        assert_eq!(held(client), 0);
    }
    // Lost requests are repeated in the background.
    let other = client(line);
    let begun = Instant::now();
    while lock(&other, 1, (0, 19), TRY) != Ok(Locked::Done) {
        assert!(begun.elapsed() < DEADLINE, "something is left over");
    }
    for client in clients.iter().chain([&other]) {
        client.stop().unwrap();
    }
}

/// The weakest and the strongest lock an owner may hold on a byte, given the replies it has received.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Bounds {
    least: Option<LockMode>,
    most: Option<LockMode>,
}

impl Bounds {
    fn exact(mode: Option<LockMode>) -> Bounds {
        Bounds {
            least: mode,
            most: mode,
        }
    }

    /// Widens the bounds for a request without a reply: the lock may or may not have this mode now.
    fn or(self, mode: Option<LockMode>) -> Bounds {
        let strength = |mode: &Option<LockMode>| match mode {
            None => 0,
            Some(LockMode::Shared) => 1,
            Some(LockMode::Exclusive) => 2,
        };
        Bounds {
            least: [self.least, mode]
                .into_iter()
                .min_by_key(strength)
                .flatten(),
            most: [self.most, mode].into_iter().max_by_key(strength).flatten(),
        }
    }
}

fn exclude(one: Option<LockMode>, other: Option<LockMode>) -> bool {
    let exclusive = [one, other].contains(&Some(LockMode::Exclusive));
    one.is_some() && other.is_some() && exclusive
}

#[test]
fn with_lost_messages_no_lock_is_granted_twice_and_none_is_left_over() {
    for seed in 0..6 {
        let (_dir, service) = service();
        let line = Line::new(&service);
        line.random.store(seed, Ordering::Relaxed);
        let clients = [client(&line), client(&line)];
        let mut bounds: HashMap<(usize, u64), [Bounds; 20]> = HashMap::new();
        line.lost.store(20, Ordering::Relaxed);
        for _ in 0..300 {
            let who = (line.draw() as usize % 2, line.draw() % 2);
            let (a, b) = (line.draw() % 20, line.draw() % 20);
            let (first, last) = (a.min(b), a.max(b));
            let mode = match line.draw() % 5 {
                0..2 => Some(LockMode::Exclusive),
                2 => Some(LockMode::Shared),
                _ => None,
            };
            let want = mode.map_or(LockWant::Unlock, LockWant::Try);
            let result = lock(&clients[who.0], who.1, (first, last), want);
            let bytes = first as usize..=last as usize;
            let others = |bounds: &HashMap<(usize, u64), [Bounds; 20]>, what: fn(Bounds) -> _| {
                bounds
                    .iter()
                    .filter(|(other, _)| **other != who)
                    .flat_map(|(_, bounds)| &bounds[bytes.clone()])
                    .any(|bounds| exclude(what(*bounds), mode))
            };
            match &result {
                Ok(Locked::Done) => {
                    assert!(!others(&bounds, |bounds| bounds.least), "granted twice");
                }
                Ok(Locked::Held(_)) => {
                    assert!(others(&bounds, |bounds| bounds.most), "no owner has it");
                    continue;
                }
                _ => {}
            }
            for bounds in &mut bounds.entry(who).or_default()[bytes] {
                *bounds = match &result {
                    Ok(_) => Bounds::exact(mode),
                    Err(_) => bounds.or(mode),
                };
            }
        }
        nothing_is_left(&line, &clients);
    }
}

/// As above, with owners that send requests at the same time: replies overtake each other, and a reclaim is sent while
/// another request is on its way.
#[test]
fn with_lost_messages_and_concurrent_requests_no_lock_is_granted_twice() {
    for seed in 0..6 {
        let (_dir, service) = service();
        let line = Line::new(&service);
        line.random.store(seed, Ordering::Relaxed);
        let clients = [client(&line), client(&line)];
        // The owner that certainly holds each byte: from the reply that grants it until the unlock is sent.
        let have: Mutex<[Option<(usize, u64)>; 20]> = Mutex::default();
        line.lost.store(20, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for who in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let (line, client, have) = (&line, &clients[who.0], &have);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let (a, b) = (line.draw() as usize % 20, line.draw() as usize % 20);
                        let bytes = a.min(b)..=a.max(b);
                        let span = (*bytes.start() as u64, *bytes.end() as u64);
                        if line.draw().is_multiple_of(2) {
                            let mut have = have.lock().unwrap();
                            for by in &mut have[bytes.clone()] {
                                *by = by.filter(|by| *by != who);
                            }
                            drop(have);
                            // Lost or not, the lock is no longer relied upon.
                            drop(lock(client, who.1, span, LockWant::Unlock));
                        } else if lock(client, who.1, span, TRY) == Ok(Locked::Done) {
                            for by in &mut have.lock().unwrap()[bytes] {
                                assert!(by.is_none_or(|by| by == who), "granted twice");
                                *by = Some(who);
                            }
                        }
                    }
                });
            }
        });
        nothing_is_left(&line, &clients);
    }
}

/// The lock server grants a lock to a process that has been killed and whose file is closed. That lock ends. A lock of
/// a process that has since got the same owner number, which the kernel reuses, stays.
#[test]
fn a_lock_granted_to_a_killed_process_ends_when_its_file_is_closed() {
    let (_dir, service) = service();
    let (one, two) = (client(&Line::new(&service)), client(&Line::new(&service)));
    for close in [false, true] {
        lock(&two, 9, (0, 9), WAIT).unwrap();
        let (ticket, dead) = ask(&one, 1, (0, 9), WAIT);
        one.abandon_lock(ticket);
        let living = close.then(|| {
            assert!(!one.closing_records(&file(), LockOwner(1)));
            let one = one.clone();
            std::thread::spawn(move || lock(&one, 1, (0, 4), WAIT))
        });
        lock(&two, 9, (0, 9), LockWant::Unlock).unwrap();
        assert_eq!(dead.recv_timeout(DEADLINE).unwrap(), Ok(Locked::Done));
        match living {
            // Another process that has the file open may have held it before.
            None => assert_eq!(held(&one), 1),
            Some(living) => {
                assert_eq!(living.join().unwrap(), Ok(Locked::Done));
                let found = lock(&two, 9, (0, 9), TRY).unwrap();
                let Locked::Held(conflict) = found else {
                    panic!("{found:?}");
                };
                assert_eq!((conflict.span.first, conflict.span.last), (0, 4));
            }
        }
        lock(&one, 1, (0, 9), LockWant::Unlock).unwrap();
        assert_eq!(held(&one), 0);
        lock(&two, 9, (0, 9), TRY).unwrap();
        lock(&two, 9, (0, 9), LockWant::Unlock).unwrap();
    }
    one.stop().unwrap();
    two.stop().unwrap();
}

/// A process closes a file and is killed before the lock server knows that its locks end. A process that gets the same
/// owner number has to wait for that; otherwise its own locks would end too.
#[test]
fn a_reused_owner_number_keeps_its_locks_when_the_previous_owner_closes() {
    let (_dir, service) = service();
    let line = Line::new(&service);
    let (one, two) = (client(&line), client(&Line::new(&service)));
    for fails in [false, true] {
        lock(&one, 1, (0, 9), TRY).unwrap();
        assert!(one.closing_records(&file(), LockOwner(1)));
        let (_, next) = ask(&one, 1, (20, 29), TRY);
        next.try_recv().expect_err("locked during a close");
        line.cut.store(fails, Ordering::SeqCst);
        one.unlock_all(file(), LockKind::Record, LockOwner(1));
        let result = next.recv_timeout(DEADLINE).unwrap();
        line.cut.store(false, Ordering::SeqCst);
        match fails {
            false => assert_eq!(result, Ok(Locked::Done)),
            true => {
                result.unwrap_err();
                assert_eq!(lock(&one, 1, (20, 29), TRY), Ok(Locked::Done));
            }
        }
        assert!(is_held(lock(&two, 2, (20, 29), TRY)), "granted twice");
        assert_eq!(lock(&two, 2, (0, 9), TRY), Ok(Locked::Done));
        assert_eq!(lock(&two, 2, (0, 9), LockWant::Unlock), Ok(Locked::Done));
        lock(&one, 1, (20, 29), LockWant::Unlock).unwrap();
        assert_eq!(held(&one), 0);
    }
    one.stop().unwrap();
    two.stop().unwrap();
}

/// A lock request that waits for another process's close can be cancelled.
#[test]
fn a_wait_for_a_close_can_be_interrupted() {
    let (_dir, service) = service();
    let one = client(&Line::new(&service));
    lock(&one, 1, (0, 9), TRY).unwrap();
    assert!(one.closing_records(&file(), LockOwner(1)));
    let [(interrupted, first), (abandoned, second)] = [(); 2].map(|()| ask(&one, 1, (5, 6), WAIT));
    one.interrupt_lock(interrupted);
    one.abandon_lock(abandoned);
    for result in [first, second] {
        assert_eq!(
            result.recv_timeout(DEADLINE).unwrap(),
            Ok(Locked::Interrupted)
        );
    }
    one.unlock_all(file(), LockKind::Record, LockOwner(1));
    assert_eq!(held(&one), 0);
    assert_eq!(lock(&one, 1, (5, 6), WAIT), Ok(Locked::Done));
    one.stop().unwrap();
}

/// Two threads of a killed process are granted locks late: the owner number is free after both grants have ended.
#[test]
fn an_owner_number_is_free_when_all_late_grants_to_it_have_ended() {
    let (_dir, service) = service();
    let (one, two) = (client(&Line::new(&service)), client(&Line::new(&service)));
    let spans = [(0, 9), (10, 19)];
    lock(&two, 9, (0, 19), TRY).unwrap();
    let dead = spans.map(|span| {
        let (ticket, result) = ask(&one, 1, span, WAIT);
        one.abandon_lock(ticket);
        result
    });
    assert!(!one.closing_records(&file(), LockOwner(1)));
    let living = {
        let (one, (send, result)) = (one.clone(), channel());
        // On its own thread, because the call may block.
        std::thread::spawn(move || send.send(lock(&one, 1, (20, 29), TRY)).unwrap());
        result
    };
    let mut dead = dead.into_iter().zip(spans);
    let end = |(result, span): (Receiver<_>, _)| {
        lock(&two, 9, span, LockWant::Unlock).unwrap();
        assert_eq!(result.recv_timeout(DEADLINE).unwrap(), Ok(Locked::Done));
    };
    end(dead.next().unwrap());
    living
        .recv_timeout(Duration::from_millis(300))
        .expect_err("locked while one grant is outstanding");
    end(dead.next().unwrap());
    assert_eq!(living.recv_timeout(DEADLINE).unwrap(), Ok(Locked::Done));
    assert!(is_held(lock(&two, 9, (20, 29), TRY)), "granted twice");
    assert_eq!(lock(&two, 9, (0, 19), TRY), Ok(Locked::Done));
    one.stop().unwrap();
    two.stop().unwrap();
}
