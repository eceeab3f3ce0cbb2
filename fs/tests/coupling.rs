//! Complete runs of coupled programs against a sequential model.
//!
//! Writers and readers are threads. Each writer has boxes of an array, which it writes in a random order, in random pieces,
//! some of them twice, with flushes and syncs in between; readers read random ranges and selections. They start in a
//! random order. What a read returns is known without their order: it waits for what is written later, cells that no program
//! writes are fill once the stream has ended, and of a cell that is written twice either value may be read, but not the
//! first one by a read that begins after the second write was synced.
//!
//! In one process with direct calls, all on one client; and over sockets, each thread with a client of its own.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

#[allow(clippy::duplicate_mod, reason = "each program has its own copy")]
mod sockets;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use slabfs_fs::client::{Client, ClientOptions, Handle, MemoryOptions, OpenMode};
use slabfs_mdserver::api::{Ino, SpecChange, op};
use slabfs_model::{Coords, Coupling, MaxDim, Region, Selection};

use sockets::{Cluster, WRITE, create};

const READ: OpenMode = OpenMode {
    write: false,
    append: false,
};

/// A box that a writer writes, once or twice.
#[derive(Debug, Clone)]
struct Written {
    region: Region,
    twice: bool,
    /// Bytes of a write, at most.
    piece: usize,
    /// What follows it.
    then: Then,
}

#[derive(Debug, Clone, Copy)]
enum Then {
    Nothing,
    Flush,
    Sync,
}

/// A read: of a range of bytes, or of a box as a selection.
#[derive(Debug, Clone)]
enum Read {
    Range(u64, usize),
    Box(Region),
}

#[derive(Debug, Clone)]
struct Run {
    dims: [u64; 2],
    writers: Vec<Vec<Written>>,
    readers: Vec<Vec<Read>>,
    /// The order in which they start: writers first in the numbering.
    starts: Vec<usize>,
    /// The array has no rows before they are written.
    grows: bool,
    matchers: u8,
}

/// Cuts an array into boxes along rows and columns, and gives each to a writer or to none.
fn run() -> impl Strategy<Value = Run> {
    let dims = (1u64..12, prop_oneof![1u64..40, Just(70_000u64)]);
    let shape = (dims, 1usize..4, 1usize..4, any::<bool>(), 1u8..4);
    shape.prop_flat_map(|((rows, columns), writers, readers, grows, matchers)| {
        let cuts = (
            prop::collection::btree_set(1..rows.max(2), 0..3),
            prop::collection::btree_set(1..columns.max(2), 0..3),
        );
        let boxes = cuts.prop_map(move |(by_row, by_column)| {
            let ends = |cuts: std::collections::BTreeSet<u64>, end: u64| {
                let inside = cuts.into_iter().filter(move |cut| *cut < end);
                std::iter::once(0)
                    .chain(inside)
                    .chain([end])
                    .collect::<Vec<u64>>()
            };
            let (by_row, by_column) = (ends(by_row, rows), ends(by_column, columns));
            let mut boxes = Vec::new();
            for row in by_row.windows(2) {
                for column in by_column.windows(2) {
                    let shape = [row[1] - row[0], column[1] - column[0]];
                    boxes.push(Region::new(&[row[0], column[0]], &shape));
                }
            }
            boxes
        });
        let then = prop_oneof![Just(Then::Nothing), Just(Then::Flush), Just(Then::Sync)];
        let written = boxes.prop_flat_map(move |boxes| {
            let count = boxes.len();
            let of = prop::collection::vec(
                (
                    0..writers + 1,
                    any::<bool>(),
                    prop_oneof![1usize..30, Just(1 << 20)],
                    then.clone(),
                ),
                count,
            );
            (
                Just(boxes),
                of,
                Just(()).prop_perturb(|(), mut random| random.random::<u64>()),
            )
        });
        let written = written.prop_map(move |(boxes, of, order)| {
            let mut its = vec![Vec::new(); writers];
            let mut all: Vec<_> = boxes.into_iter().zip(of).collect();
            // Any order.
            let start = order as usize % all.len().max(1);
            all.rotate_left(start);
            if order % 2 == 0 {
                all.reverse();
            }
            for (region, (writer, twice, piece, then)) in all {
                if let Some(list) = its.get_mut(writer) {
                    let written = Written {
                        region,
                        twice,
                        piece,
                        then,
                    };
                    list.push(written);
                }
            }
            its
        });
        let read = prop_oneof![
            (0..rows * columns, 1usize..200_000).prop_map(|(at, len)| Read::Range(at, len)),
            (0..rows, 0..columns, 1..=rows, 1..=columns).prop_map(move |(r, c, h, w)| {
                let shape = [h.min(rows - r), w.min(columns - c)];
                Read::Box(Region::new(&[r, c], &shape))
            }),
        ];
        let reads = prop::collection::vec(prop::collection::vec(read, 1..6), readers);
        let starts = Just((0..writers + readers).collect::<Vec<_>>()).prop_shuffle();
        (written, reads, starts).prop_map(move |(writers, readers, starts)| Run {
            dims: [rows, columns],
            writers,
            readers,
            starts,
            grows,
            matchers,
        })
    })
}

/// The value of a cell, when it is written for the first time and for the second. Never that of fill.
fn value(at: usize, second: bool) -> u8 {
    (at % 100) as u8 + if second { 120 } else { 1 }
}

/// What cells may be: a bit for fill, the first value and the second one.
struct Model {
    columns: u64,
    cells: Vec<(bool, bool)>,
}

impl Model {
    fn of(run: &Run) -> Model {
        let [rows, columns] = run.dims;
        let mut cells = vec![(false, false); (rows * columns) as usize];
        for written in run.writers.iter().flatten() {
            each(&written.region, columns, &mut |at| {
                cells[at] = (true, written.twice)
            });
        }
        Model { columns, cells }
    }

    fn check(&self, read: &Read, bytes: &[u8], ended: bool) {
        let mut places = Vec::new();
        match read {
            Read::Range(at, len) => {
                let at = *at as usize;
                places.extend(at..(at + len).min(self.cells.len()));
            }
            Read::Box(region) => each(region, self.columns, &mut |at| places.push(at)),
        }
        assert!(bytes.len() <= places.len(), "more than was asked for");
        // Less only behind the end of an object that has fewer rows than were planned.
        let rest = &places[bytes.len()..];
        assert!(
            rest.iter().all(|at| !self.cells[*at].0),
            "{read:?}: bytes are missing"
        );
        for (at, byte) in places.into_iter().zip(bytes) {
            let (written, twice) = self.cells[at];
            let right = match (written, twice) {
                (false, _) => *byte == 0,
                (true, false) => *byte == value(at, false),
                (true, true) if ended => *byte == value(at, true),
                (true, true) => *byte == value(at, false) || *byte == value(at, true),
            };
            assert!(right, "{read:?}: cell {at} is {byte}");
        }
    }
}

fn each(region: &Region, columns: u64, f: &mut dyn FnMut(usize)) {
    for row in region.offset[0]..region.end(0) {
        for column in region.offset[1]..region.end(1) {
            f((row * columns + column) as usize);
        }
    }
}

fn write(handle: &Handle, run: &Run, list: &[Written]) {
    let columns = run.dims[1];
    for written in list {
        for second in [false, true] {
            if second && !written.twice {
                continue;
            }
            for row in written.region.offset[0]..written.region.end(0) {
                let from = row * columns + written.region.offset[1];
                let cells = from as usize..(from + written.region.shape[1]) as usize;
                let bytes: Vec<u8> = cells.map(|at| value(at, second)).collect();
                for (number, piece) in bytes
                    .chunks(written.piece.max(1 + bytes.len() / 50))
                    .enumerate()
                {
                    let at = from + (number * written.piece.max(1 + bytes.len() / 50)) as u64;
                    handle.write(at, piece).unwrap();
                }
            }
            match written.then {
                Then::Nothing => {}
                Then::Flush => handle.flush().unwrap(),
                Then::Sync => handle.fsync().unwrap(),
            }
        }
    }
    handle.flush().unwrap();
    handle.release().unwrap();
}

fn read(client: &Arc<Client>, ino: Ino, read: &Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sink = |part: &[u8]| bytes.extend_from_slice(part);
    match read {
        Read::Range(at, len) => {
            let handle = client.open(ino, READ, None).unwrap();
            handle.read(*at, *len, &mut sink).unwrap();
            handle.release().unwrap();
        }
        Read::Box(region) => {
            let axis = |axis: usize| format!("{}:{}", region.offset[axis], region.end(axis));
            let selection: Selection = format!("[{},{}]", axis(0), axis(1)).parse().unwrap();
            let handle = client.open(ino, READ, Some(&selection)).unwrap();
            handle.read(0, region.volume() as usize, &mut sink).unwrap();
            handle.release().unwrap();
        }
    }
    bytes
}

/// Runs the programs. `clients` has the client of each of them, and one more.
fn execute(run: &Run, clients: &dyn Fn(usize) -> Arc<Client>) {
    let owner = clients(run.starts.len());
    let coupling: Coupling = format!("end=never,timeout=50s,matchers={}", run.matchers)
        .parse()
        .unwrap();
    let (ino, made) = create(
        &owner,
        "field",
        SpecChange {
            dtype: Some("u1".parse().unwrap()),
            dims: Some(match run.grows {
                true => Coords::from_slice(&[0, run.dims[1]]),
                false => Coords::from_slice(&run.dims),
            }),
            max_dims: run
                .grows
                .then(|| vec![MaxDim::Unlimited, MaxDim::Fixed(run.dims[1])]),
            couple: Some(coupling),
            ..SpecChange::default()
        },
    );
    made.release().unwrap();
    let model = Model::of(run);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for &number in &run.starts {
            let own = clients(number);
            let (model, ended) = (&model, &ended);
            match run.writers.get(number) {
                Some(list) => writers.push(scope.spawn(move || {
                    let handle = own.open(ino, WRITE, None).unwrap();
                    write(&handle, run, list);
                })),
                None => drop(scope.spawn(move || {
                    for one in &run.readers[number - run.writers.len()] {
                        // A selection of an array without these rows is refused.
                        if run.grows && matches!(one, Read::Box(_)) {
                            continue;
                        }
                        let before = ended.load(Ordering::SeqCst);
                        let bytes = read(&own, ino, one);
                        model.check(one, &bytes, before);
                    }
                })),
            }
        }
        for writer in writers {
            writer.join().unwrap();
        }
        owner.md().call(op::EndStream { ino }).unwrap();
        ended.store(true, Ordering::SeqCst);
    });
    for one in run.readers.iter().flatten() {
        if !(run.grows && matches!(one, Read::Box(_))) {
            model.check(one, &read(&owner, ino, one), true);
        }
    }
}

/// Clients that are stopped, also when a check has failed.
struct Clients(Vec<Arc<Client>>);

impl Drop for Clients {
    fn drop(&mut self) {
        for client in &self.0 {
            let stopped = client.stop();
            assert!(std::thread::panicking() || stopped.is_ok(), "{stopped:?}");
        }
    }
}

fn options(cluster: &Cluster) -> ClientOptions {
    ClientOptions {
        io_timeout: Duration::from_secs(20),
        memory: Some(MemoryOptions {
            registrar: cluster.registrar(),
            metadata: Some(cluster.metadata().into()),
            key: None,
            size: 64 << 20,
        }),
        ..ClientOptions::default()
    }
}

/// Most of the time of a case is that of its start and end.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        max_shrink_iters: 50,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn programs_of_one_client_agree_with_the_model(run in run()) {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster::open(dir.path(), 1);
        let clients = Clients(vec![cluster.local_client(options(&cluster))]);
        execute(&run, &|_| clients.0[0].clone());
        drop(clients);
        cluster.close();
    }
}

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn programs_of_many_clients_agree_with_the_model(run in run()) {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster::open(dir.path(), 1);
        let count = run.starts.len() + 1;
        let clients = Clients((0..count).map(|_| cluster.client(options(&cluster))).collect());
        execute(&run, &|number| clients.0[number].clone());
        drop(clients);
        cluster.close();
    }
}
