//! A proxy that damages connections: bits flipped, bytes inserted, dropped or sent twice, connections cut; between a
//! client and both services, in both directions. No data that is read or stored may be wrong, and no request fails that
//! could be resent.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod sockets;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use slabfs_fs::client::transfer::{Memory, start_all, wait_all};
use slabfs_fs::client::{Client, ClientOptions};
use slabfs_mdserver::api::op;
use slabfs_mdserver::client::RemoteMd;
use slabfs_mdserver::server::MdServer;
use slabfs_mdserver::service::{Service, ServiceOptions};
use slabfs_model::batch::{Batch, Place};
use slabfs_objstore::client::{Options, Servers};
use slabfs_objstore::server::{DataServer, Fence, Heart, HeartOptions};
use slabfs_objstore::store::{LocalOptions, LocalStore};
use slabfs_objstore::wire::{Key, Listener};
use slabfs_objstore::{Addr, ChunkStore};
use sockets::{create, number, read_all, slab, spec};

/// A deterministic random number generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// A fault injected into a piece of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Flip,
    Insert,
    Drop,
    Double,
    Cut,
}

const FAULTS: [Fault; 5] = [
    Fault::Flip,
    Fault::Insert,
    Fault::Drop,
    Fault::Double,
    Fault::Cut,
];

/// One proxy: its address, and the faults it has injected, towards the service and from it.
struct Line {
    addr: Addr,
    state: Arc<State>,
}

struct State {
    dice: Mutex<Dice>,
    /// Mean number of bytes between faults of each direction; 0 for no faults.
    every: AtomicU64,
    done: [[AtomicU64; FAULTS.len()]; 2],
    ended: AtomicBool,
}

impl Line {
    fn to(service: &Addr, seed: u64) -> Line {
        let Addr::Tcp(to) = service.clone() else {
            unreachable!("it listens on TCP")
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = Addr::Tcp(listener.local_addr().unwrap().to_string());
        let state = Arc::new(State {
            dice: Mutex::new(Dice(seed)),
            every: AtomicU64::new(0),
            done: Default::default(),
            ended: AtomicBool::new(false),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(server) = TcpStream::connect(&to) else {
                    continue;
                };
                for one in [&client, &server] {
                    one.set_nodelay(true).unwrap();
                }
                shared.clone().forward(&client, &server, 0);
                shared.clone().forward(&server, &client, 1);
            }
        });
        Line { addr, state }
    }

    fn harm(&self, every: u64) {
        self.state.every.store(every, Ordering::SeqCst);
    }

    /// Number of faults in both directions.
    fn done(&self) -> [u64; 2] {
        self.state.done.each_ref().map(|direction| {
            direction
                .iter()
                .map(|kind| kind.load(Ordering::SeqCst))
                .sum()
        })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        if let Addr::Tcp(addr) = &self.addr {
            drop(TcpStream::connect(addr));
        }
    }
}

impl State {
    fn forward(self: Arc<State>, from: &TcpStream, to: &TcpStream, direction: usize) {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = vec![0; 64 << 10];
            let mut next = 0u64;
            while let Ok(len) = from.read(&mut bytes) {
                if len == 0 {
                    break;
                }
                let every = self.every.load(Ordering::SeqCst);
                let mut piece = bytes[..len].to_vec();
                let mut cut = false;
                if every > 0 {
                    if next == 0 {
                        next = 1 + self.dice.lock().unwrap().below(2 * every);
                    }
                    next = next.saturating_sub(len as u64);
                    if next == 0 {
                        cut = self.harm(&mut piece, direction) == Fault::Cut;
                    }
                }
                if to.write_all(&piece).is_err() || cut {
                    break;
                }
            }
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }

    fn harm(&self, piece: &mut Vec<u8>, direction: usize) -> Fault {
        let mut dice = self.dice.lock().unwrap();
        let kind = match dice.below(8) {
            0..4 => 0,
            4 => 1,
            5 => 2,
            6 => 3,
            _ => 4,
        };
        let len = piece.len() as u64;
        let at = dice.below(len) as usize;
        match FAULTS[kind] {
            Fault::Flip => piece[at] ^= 1 << dice.below(8),
            Fault::Insert => piece.insert(at, dice.below(256) as u8),
            // At most 16 bytes and never a complete frame, whose loss would go unnoticed.
            Fault::Drop => {
                let some = at..(at + 1 + dice.below(16) as usize).min(piece.len());
                piece.drain(some);
            }
            Fault::Double => {
                let again = piece.clone();
                piece.extend(again);
            }
            Fault::Cut => piece.truncate(at),
        }
        self.done[direction][kind].fetch_add(1, Ordering::SeqCst);
        FAULTS[kind]
    }
}

fn key() -> Key {
    Key::new(&[7; 32]).unwrap()
}

fn here() -> Listener {
    Listener::bind(&Addr::Tcp("127.0.0.1:0".into()), Some(key())).unwrap()
}

/// Minimum duration in seconds, and minimum number of faults of each direction on each service.
fn bounds() -> (u64, u64) {
    let seconds = std::env::var("SLABFS_SOAK_SECONDS").ok();
    match seconds.and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) => (seconds, 200),
        None => (5, 8),
    }
}

#[test]
fn a_damaging_proxy_damages_no_data() {
    let (seconds, least) = bounds();
    let dir = tempfile::tempdir().unwrap();
    let (service, _) = Service::open(&dir.path().join("md"), ServiceOptions::default()).unwrap();
    let service = Arc::new(service);
    let listener = here();
    let md_line = Line::to(listener.addr(), 11);
    let server = MdServer::start(service.clone(), listener).unwrap();

    let store =
        Arc::new(LocalStore::open(&dir.path().join("os"), LocalOptions::default()).unwrap());
    let id = store.id();
    let store: Arc<dyn ChunkStore> = store;
    let listener = here();
    let line = Line::to(listener.addr(), 12);
    let fence = Arc::new(Fence::in_memory());
    let heart = Heart::start(
        store.clone(),
        service.clone(),
        fence.clone(),
        HeartOptions::new(id, Some(line.addr.clone())),
    )
    .unwrap();
    heart.registered(Duration::from_secs(10)).unwrap();
    let data = DataServer::start_fenced(store, listener, fence).unwrap();

    let deadline = Duration::from_secs(20);
    let md = RemoteMd::connect(md_line.addr.clone(), Some(key()), deadline);
    let servers = Servers::new(Options {
        deadline,
        key: Some(key()),
        ..Options::default()
    });
    let options = ClientOptions {
        io_timeout: deadline,
        // Data is read from the server each time.
        cache_bytes: 0,
        ..ClientOptions::default()
    };
    let client = Client::start(Arc::new(md), Arc::new(servers), options).unwrap();
    md_line.harm(2500);
    line.harm(1 << 20);

    let mut dice = Dice(5);
    let begun = Instant::now();
    let mut round = 0u64;
    let reached = || {
        let all = [md_line.done(), line.done()];
        all.iter().flatten().all(|&done| done >= least)
    };
    while begun.elapsed() < Duration::from_secs(seconds) || !reached() {
        let layout = ["aligned", "grid:64,512", "canonical"][round as usize % 3];
        one(&client, &format!("o{round}"), layout, &mut dice);
        round += 1;
        assert!(
            begun.elapsed() < Duration::from_secs(seconds + 900),
            "faults are too rare: md {:?}, data {:?}",
            md_line.done(),
            line.done()
        );
    }
    println!(
        "{round} rounds; md {:?}, data {:?}",
        md_line.state.done, line.state.done
    );
    md_line.harm(0);
    line.harm(0);
    assert!(number(&client, "/counters/messages") > 0);
    client.stop().unwrap();
    heart.stop();
    data.shutdown();
    server.shutdown();
    service.close().unwrap();
}

/// Writes and reads an array in all ways.
fn one(client: &Arc<Client>, name: &str, layout: &str, dice: &mut Dice) {
    const ROWS: u64 = 128;
    const ROW: u64 = 4096;
    let (ino, handle) = create(client, name, spec("u1", &[ROWS, ROW], layout));
    let mut naive = vec![0u8; (ROWS * ROW) as usize];
    let fill = |dice: &mut Dice, len: u64| -> Vec<u8> {
        let seed = dice.below(251);
        (0..len)
            .map(|at| ((at * 7 + seed + at / 251) % 256) as u8)
            .collect()
    };
    let mut put = |from: u64, bytes: &[u8]| {
        let at = (from * ROW) as usize;
        naive[at..at + bytes.len()].copy_from_slice(bytes);
    };
    // Complete rows, large and small, through the handle.
    for _ in 0..4 {
        let rows = 1 + dice.below(50);
        let from = dice.below(ROWS - rows);
        let bytes = fill(dice, rows * ROW);
        handle.write(from * ROW, &bytes).unwrap();
        put(from, &bytes);
    }
    handle.fsync().unwrap();
    // Several regions in one start.
    let mut all = Vec::new();
    for part in 0..4 {
        let rows = 1 + dice.below(30);
        let from = part * 32 + dice.below(32 - rows);
        let bytes = fill(dice, rows * ROW);
        put(from, &bytes);
        let to = slab(&[from, 0], &[rows, ROW]);
        all.push(
            handle
                .write_transfer(&to, &Memory::packed(), bytes)
                .unwrap(),
        );
    }
    start_all(&mut all).unwrap();
    for ended in wait_all(all).unwrap() {
        ended.unwrap();
    }
    // A batch of many small pieces.
    let bytes = fill(dice, ROW);
    let pieces: Vec<Batch> = (0..64i64)
        .map(|piece| Batch::data(Place::at(piece * ROW as i64), Place::at(piece * 64), 64))
        .collect();
    let batch = slabfs_model::batch::Plan::new(&pieces, 1).unwrap();
    handle.write_batch(&batch, 0..ROW, &bytes).unwrap();
    for piece in 0..64 {
        let at = piece * ROW as usize;
        naive[at..at + 64].copy_from_slice(&bytes[piece * 64..(piece + 1) * 64]);
    }
    handle.fsync().unwrap();
    let there = read_all(&handle);
    assert!(
        there == naive,
        "{name}: what was read differs at {:?}",
        there.iter().zip(&naive).position(|(a, b)| a != b)
    );
    let (from, rows) = (dice.below(100), 1 + dice.below(28));
    let read = handle
        .read_transfer(
            &slab(&[from, 100], &[rows, 1000]),
            &Memory::packed(),
            vec![0; (rows * 1000) as usize],
        )
        .unwrap();
    let read = read.wait().unwrap();
    for row in 0..rows {
        let at = ((from + row) * ROW + 100) as usize;
        assert!(
            read[(row * 1000) as usize..][..1000] == naive[at..at + 1000],
            "{name}: row {row}"
        );
    }
    handle.release().unwrap();
    client.md().call(op::GetAttr { ino }).unwrap();
}
