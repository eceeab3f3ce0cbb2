//! Locks of the client library, over a line that counts messages and loses them.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
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

/// The way to a service in another process, as far as the service knows.
struct Line {
    service: Arc<Service>,
    /// Messages about locks, polls apart.
    messages: AtomicU64,
    /// Of a hundred such messages so many are lost: half of them on the way there, half on the way back.
    lost: AtomicU64,
    random: AtomicU64,
}

impl Line {
    fn new(service: &Arc<Service>) -> Arc<Line> {
        Arc::new(Line {
            service: service.clone(),
            messages: AtomicU64::new(0),
            lost: AtomicU64::new(0),
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
            Op::Lock { .. } | Op::CancelLock { .. } | Op::ReclaimLocks { .. }
        );
        if !about_locks {
            return self.service.call_remote(request);
        }
        self.messages.fetch_add(1, Ordering::Relaxed);
        let away = || MdError::Unavailable {
            addr: "the test".into(),
            detail: "lost".into(),
        };
        let (lost, draw) = (self.lost.load(Ordering::Relaxed), self.draw() % 100);
        if draw < lost / 2 {
            return Err(away());
        }
        let reply = self.service.call_remote(request);
        if draw < lost { Err(away()) } else { reply }
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
fn a_lock_costs_a_message_and_so_does_giving_it_up() {
    let (_dir, service) = service();
    let line = Line::new(&service);
    let client = client(&line);
    for _ in 0..10 {
        assert_eq!(lock(&client, 1, (0, 9), WAIT), Ok(Locked::Done));
        assert_eq!(lock(&client, 1, (0, 9), LockWant::Unlock), Ok(Locked::Done));
    }
    assert_eq!(line.messages.load(Ordering::Relaxed), 20);
    assert!(!client.holds_records(&file(), LockOwner(1)));
    assert_eq!(client.closing_locks(&file(), 1), []);
    client.stop().unwrap();
}

#[test]
fn what_is_held_is_known_without_asking() {
    let (_dir, service) = service();
    let client = client(&Line::new(&service));
    lock(&client, 1, (0, 9), TRY).unwrap();
    lock(&client, 1, (5, 6), LockWant::Unlock).unwrap();
    assert_eq!(held(&client), 2);
    assert!(client.holds_records(&file(), LockOwner(1)));
    assert!(!client.holds_records(&file(), LockOwner(2)));
    assert_eq!(client.closing_locks(&file(), 2), []);
    let closing = client.closing_locks(&file(), 1);
    assert_eq!(closing, [(LockKind::Record, LockOwner(1))]);
    client.unlock_all(file(), LockKind::Record, LockOwner(1));
    assert_eq!(held(&client), 0);
    client.stop().unwrap();
}

#[test]
fn nobody_locks_as_an_owner_whose_open_file_is_being_closed() {
    let (_dir, service) = service();
    let client = client(&Line::new(&service));
    lock(&client, 1, (0, 9), TRY).unwrap();
    assert_eq!(client.closing_locks(&file(), 1).len(), 1);
    std::thread::scope(|scope| {
        // The next open file has the number of the last one.
        let next = scope.spawn(|| lock(&client, 1, (0, 9), TRY));
        client.unlock_all(file(), LockKind::Record, LockOwner(1));
        assert_eq!(next.join().unwrap(), Ok(Locked::Done));
    });
    assert_eq!(held(&client), 1);
    client.stop().unwrap();
}

#[test]
fn a_wait_ends_with_the_lock_an_interrupt_or_the_client() {
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

/// What an owner has been told of a byte.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Told {
    Free,
    Held,
    /// No reply has come.
    Doubt,
}

#[test]
fn whatever_is_lost_no_lock_is_given_twice_and_none_is_left_over() {
    for seed in 0..6 {
        let (_dir, service) = service();
        let line = Line::new(&service);
        line.random.store(seed, Ordering::Relaxed);
        let clients = [client(&line), client(&line)];
        let mut told: HashMap<(usize, u64), [Told; 20]> = HashMap::new();
        line.lost.store(20, Ordering::Relaxed);
        for _ in 0..300 {
            let who = (line.draw() as usize % 2, line.draw() % 2);
            let (a, b) = (line.draw() % 20, line.draw() % 20);
            let (first, last) = (a.min(b), a.max(b));
            let want = if line.draw() % 5 < 3 {
                TRY
            } else {
                LockWant::Unlock
            };
            let result = lock(&clients[who.0], who.1, (first, last), want);
            let bytes = first as usize..=last as usize;
            let others = |told: &HashMap<(usize, u64), [Told; 20]>, what: fn(Told) -> bool| {
                told.iter()
                    .filter(|(other, _)| **other != who)
                    .any(|(_, told)| told[bytes.clone()].iter().any(|&told| what(told)))
            };
            match (&result, want) {
                (Ok(Locked::Done), TRY) => {
                    assert!(!others(&told, |told| told == Told::Held), "given twice");
                }
                (Ok(Locked::Held(_)), _) => {
                    assert!(others(&told, |told| told != Told::Free), "nobody has it");
                    continue;
                }
                _ => {}
            }
            let mine = told.entry(who).or_insert([Told::Free; 20]);
            for told in &mut mine[bytes] {
                *told = match (&result, want, *told) {
                    (Ok(_), LockWant::Unlock, _) => Told::Free,
                    (Ok(_), _, _) | (Err(_), TRY, Told::Held) => Told::Held,
                    (Err(_), _, Told::Free) if want == LockWant::Unlock => Told::Free,
                    (Err(_), _, _) => Told::Doubt,
                };
            }
        }
        line.lost.store(0, Ordering::Relaxed);
        for client in &clients {
            for owner in 0..2 {
                client.unlock_all(file(), LockKind::Record, LockOwner(owner));
            }
            assert_eq!(held(client), 0);
        }
        // What was lost is told in the background.
        let other = client(&line);
        let begun = Instant::now();
        while lock(&other, 1, (0, 19), TRY) != Ok(Locked::Done) {
            assert!(begun.elapsed() < DEADLINE, "something is left over");
        }
        for client in clients.iter().chain([&other]) {
            client.stop().unwrap();
        }
    }
}
