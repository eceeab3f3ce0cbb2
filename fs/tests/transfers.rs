//! Transfers over real sockets: selections in memory, objects and dtypes compared with naive arrays; order, messages,
//! scopes; and transfers that are cancelled, dropped, or in flight when servers die.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod sockets;

use std::future::Future;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use proptest::prelude::*;
use slabfs_fs::client::transfer::{self, Memory, start_all, wait_all};
use slabfs_fs::client::{Client, ClientOptions, FsError, Handle, OpenMode};
use slabfs_mdserver::api::SpecChange;
use slabfs_model::batch::{self, Batch, Place};
use slabfs_model::{Axis, Coords, Hyperslab, MaxDim, Space, gather, scatter};
use sockets::{Cluster, WRITE, create, messages, number, options, read_all, slab, spec};

/// An axis within `len`, made of arbitrary numbers.
fn axis(len: u64, (a, b, c, d): (u64, u64, u64, u64)) -> Axis {
    let start = a % len;
    let block = 1 + b % (len - start);
    let stride = block + c % 3;
    let count = 1 + d % ((len - start - block) / stride + 1);
    Axis {
        start,
        stride,
        count,
        block,
    }
}

type Numbers = (u64, u64, u64, u64);

#[derive(Debug, Clone)]
enum Step {
    /// Writes a selection, from memory with gaps or without, in a dtype.
    Write(Vec<Numbers>, Option<Numbers>, usize, u8),
    Read(Vec<Numbers>, Option<Numbers>, usize),
    /// Writes through the handle, so that bytes wait in memory.
    Plain(f64, usize, u8),
    Flush,
    Reopen,
}

fn numbers() -> impl Strategy<Value = Numbers> {
    (0..99u64, 0..99u64, 0..99u64, 0..99u64)
}

fn step() -> impl Strategy<Value = Step> {
    let axes = || prop::collection::vec(numbers(), 3);
    prop_oneof![
        5 => (axes(), prop::option::of(numbers()), 0..5usize, any::<u8>())
            .prop_map(|(axes, memory, dtype, seed)| Step::Write(axes, memory, dtype, seed)),
        5 => (axes(), prop::option::of(numbers()), 0..5usize)
            .prop_map(|(axes, memory, dtype)| Step::Read(axes, memory, dtype)),
        2 => (0.0..1.0, 1usize..200, any::<u8>()).prop_map(|(at, len, seed)| Step::Plain(at, len, seed)),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

/// Encodes values below 100, which all these dtypes can represent.
fn encode(dtype: &str, values: &[u8]) -> Vec<u8> {
    let each = |v: &u8| -> Vec<u8> {
        let v = *v;
        match dtype {
            "u1" => vec![v],
            "i2" => i16::from(v).to_le_bytes().to_vec(),
            ">i4" => i32::from(v).to_be_bytes().to_vec(),
            "f4" => f32::from(v).to_le_bytes().to_vec(),
            _ => f64::from(v).to_le_bytes().to_vec(),
        }
    };
    values.iter().flat_map(each).collect()
}

const TYPES: [&str; 5] = ["u1", "i2", ">i4", "f4", "f8"];

/// Memory of `elements` elements: a row of blocks with gaps between them, or packed.
fn memory(elements: u64, gaps: Option<Numbers>, dtype: &str) -> (Memory, Coords, Hyperslab) {
    let dtype = dtype.parse().unwrap();
    let Some((a, b, c, _)) = gaps else {
        let dims = Coords::from_slice(&[elements]);
        let slab = Hyperslab::all(&dims);
        return (Memory::packed().of_type(dtype), dims, slab);
    };
    let block = (1..=1 + a % 7)
        .rev()
        .find(|n| elements.is_multiple_of(*n))
        .unwrap();
    let axis = Axis {
        start: b % 4,
        stride: block + c % 3,
        count: elements / block,
        block,
    };
    let dims = Coords::from_slice(&[3, axis.end() + a % 5]);
    let slab = Hyperslab {
        axes: [Axis::span(b % 3, 1), axis].into_iter().collect(),
    };
    (Memory::part(&dims, slab.clone()).of_type(dtype), dims, slab)
}

/// The naive array holds values; the object holds their bytes.
struct Naive {
    dims: Vec<u64>,
    values: Vec<u8>,
}

/// A batch of all bytes of an object, the second half first.
fn all_of(bytes: &[u8]) -> batch::Plan {
    let (half, len) = (bytes.len() as i64 / 2, bytes.len() as u64);
    let both = [
        Batch::data(Place::at(half), Place::at(half), len - half as u64),
        Batch::data(Place::at(0), Place::at(0), half as u64),
    ];
    batch::Plan::new(&both, 1).unwrap()
}

fn run(client: &Arc<Client>, name: &str, layout: &str, dtype: &str, dims: &[u64], steps: &[Step]) {
    let made = match layout {
        // Aligned, cut into blocks.
        "region" => SpecChange {
            placement: Some("region".parse().unwrap()),
            ..spec(dtype, dims, "aligned")
        },
        layout => spec(dtype, dims, layout),
    };
    let (ino, first) = create(client, name, made);
    let mut handle = first;
    let mut naive = Naive {
        dims: dims.to_vec(),
        values: vec![0; dims.iter().product::<u64>() as usize],
    };
    let elem = encode(dtype, &[0]).len();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Write(axes, gaps, to, seed) => {
                let axes = naive.dims.iter().zip(axes).map(|(len, n)| axis(*len, *n));
                let of = Hyperslab {
                    axes: axes.collect(),
                };
                let elements = of.volume();
                let values: Vec<u8> = (0..elements)
                    .map(|n| (u64::from(*seed) + n) as u8 % 100)
                    .collect();
                let (memory, m_dims, m_slab) = memory(elements, *gaps, TYPES[*to]);
                let width = encode(TYPES[*to], &[0]).len() as u64;
                let space = Space::new(&m_dims, width);
                let mut buffer = vec![0xee; space.bytes().unwrap() as usize];
                let cells = space.cells().unwrap();
                let m_cells = m_slab.to_cells(width).unwrap();
                scatter(&encode(TYPES[*to], &values), &m_cells, &mut buffer, &cells);
                let mut write = handle.write_transfer(&of, &memory, buffer).unwrap();
                if seed % 2 == 0 {
                    // After a batch that changes nothing, started together with it.
                    let same = encode(dtype, &naive.values);
                    let mut before = handle.write_batch_transfer(all_of(&same), same).unwrap();
                    start_all([&mut before, &mut write]).unwrap();
                    before.wait().unwrap();
                }
                write.wait().unwrap();
                scatter(&values, &of, &mut naive.values, &naive.dims);
            }
            Step::Read(axes, gaps, to) => {
                let axes = naive.dims.iter().zip(axes).map(|(len, n)| axis(*len, *n));
                let of = Hyperslab {
                    axes: axes.collect(),
                };
                let mut values = vec![0; of.volume() as usize];
                gather(&naive.values, &naive.dims, &of, &mut values);
                let (memory, m_dims, m_slab) = memory(of.volume(), *gaps, TYPES[*to]);
                let width = encode(TYPES[*to], &[0]).len() as u64;
                let space = Space::new(&m_dims, width);
                let mut expected = vec![0xee; space.bytes().unwrap() as usize];
                let buffer = expected.clone();
                let cells = space.cells().unwrap();
                let m_cells = m_slab.to_cells(width).unwrap();
                scatter(
                    &encode(TYPES[*to], &values),
                    &m_cells,
                    &mut expected,
                    &cells,
                );
                let mut read = handle.read_transfer(&of, &memory, buffer).unwrap();
                if number % 2 == 0 {
                    let all = encode(dtype, &naive.values);
                    let into = vec![0xee; all.len()];
                    let mut concurrent = handle.read_batch_transfer(all_of(&all), into).unwrap();
                    start_all([&mut concurrent, &mut read]).unwrap();
                    assert_eq!(concurrent.wait().unwrap(), all, "step {number}");
                }
                assert_eq!(read.wait().unwrap(), expected, "step {number}");
            }
            Step::Plain(at, len, seed) => {
                let from = (at * naive.values.len() as f64) as usize;
                let len = (*len).min(naive.values.len() - from);
                let values: Vec<u8> = (0..len)
                    .map(|n| (usize::from(*seed) + n) as u8 % 100)
                    .collect();
                handle
                    .write((from * elem) as u64, &encode(dtype, &values))
                    .unwrap();
                naive.values[from..from + len].copy_from_slice(&values);
            }
            Step::Flush => handle.flush().unwrap(),
            Step::Reopen => {
                handle.release().unwrap();
                handle = client.open(ino, WRITE, None).unwrap();
            }
        }
    }
    assert_eq!(read_all(&handle), encode(dtype, &naive.values));
    handle.release().unwrap();
}

#[test]
fn any_memory_selection_transfers_to_and_from_any_object() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 3);
    let client = cluster.client(options());
    let count = AtomicUsize::new(0);
    let layouts = prop_oneof![Just("aligned"), Just("region"), Just("grid")];
    let all = (
        prop::collection::vec(1u64..12, 1..4),
        layouts,
        0..5usize,
        prop::collection::vec(step(), 1..14),
    );
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&all, |(dims, layout, dtype, steps)| {
            let name = format!("a{}", count.fetch_add(1, Ordering::Relaxed));
            let layout = match layout {
                "grid" => format!("grid:{}", vec!["4"; dims.len()].join(",")),
                other => other.to_string(),
            };
            run(&client, &name, &layout, TYPES[dtype], &dims, &steps);
            Ok(())
        })
        .unwrap();
    client.stop().unwrap();
    cluster.close();
}

/// 64 regions take one message a server, and one commit; reading them takes one message a server.
#[test]
fn many_regions_take_one_message_a_server() {
    regions_take_one_message_a_server(100);
}

/// The same for regions that together just fit into the messages.
#[test]
fn large_regions_take_one_message_a_server() {
    regions_take_one_message_a_server(32 << 10);
}

/// 32 rows of `row` bytes each time.
fn regions_take_one_message_a_server(row: u64) {
    let len = 32 * row as usize;
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 3);
    let client = cluster.client(ClientOptions::default());
    let counted = client.without_upkeep();
    let mut aligned = spec("u1", &[64, 64, row], "aligned");
    // Leased places would have to be renewed on a slow machine.
    aligned.placement = Some("region".parse().unwrap());
    let (_, handle) = create(&client, "aligned", aligned);
    let layout = format!("grid:8,64,{row}");
    let (_, grid) = create(&client, "grid", spec("u1", &[64, 64, row], &layout));
    let write_all = |handle: &Arc<Handle>, seed: u64| {
        let mut writes: Vec<_> = (0..64)
            .map(|n| {
                let bytes = vec![(n + seed) as u8; len];
                let to = slab(&[n, 16, 0], &[1, 32, row]);
                handle
                    .write_transfer(&to, &Memory::packed(), bytes)
                    .unwrap()
            })
            .collect();
        start_all(&mut writes).unwrap();
        for end in wait_all(writes).unwrap() {
            end.unwrap();
        }
    };
    let read_all = |handle: &Arc<Handle>, seed: u64| {
        let reads = (0..64).map(|n| {
            let from = slab(&[n, 16, 0], &[1, 32, row]);
            handle
                .read_transfer(&from, &Memory::packed(), vec![0; len])
                .unwrap()
        });
        for (n, end) in wait_all(reads).unwrap().into_iter().enumerate() {
            // Not `assert_eq`, which would print them all.
            assert!(end.unwrap() == vec![(n as u64 + seed) as u8; len], "{n}");
        }
    };
    for handle in [&handle, &grid] {
        // Ids and places are leased, and connections made.
        write_all(handle, 1);
        read_all(handle, 1);
        let (before, asked) = (messages(&client), number(&client, "/metadata_requests"));
        write_all(handle, 2);
        assert_eq!(messages(&client) - before, 3);
        assert_eq!(number(&client, "/metadata_requests") - asked, 1);
        let (before, asked) = (messages(&client), number(&client, "/metadata_requests"));
        read_all(handle, 2);
        assert_eq!(messages(&client) - before, 3);
        assert_eq!(number(&client, "/metadata_requests") - asked, 0);
    }
    drop(counted);
    handle.release().unwrap();
    grid.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}

/// Replaces the first server by a listener that accepts connections and never replies.
fn silent(cluster: &mut Cluster) -> (PathBuf, UnixListener) {
    cluster.nodes[0].kill();
    let socket = cluster.nodes[0].socket().to_owned();
    std::fs::remove_file(&socket).ok();
    let listener = UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    (socket, listener)
}

/// Two batches of transfers that were started together run concurrently: neither waits for the other.
#[test]
fn transfers_started_together_run_in_concurrent_batches() {
    // Two rows are more than a message may hold.
    const LEN: usize = 33 << 20;
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::open(dir.path(), 1);
    let client = cluster.client(ClientOptions {
        transfer_threads: 2,
        ..ClientOptions::default()
    });
    let (_, handle) = create(&client, "rows", spec("u1", &[3, LEN as u64], "aligned"));
    let (socket, listener) = silent(&mut cluster);
    let mut all: Vec<_> = (0..3u8)
        .map(|row| {
            let slab = slab(&[row.into(), 0], &[1, LEN as u64]);
            let data = vec![row + 1; LEN];
            handle
                .write_transfer(&slab, &Memory::packed(), data)
                .unwrap()
        })
        .collect();
    start_all(&mut all).unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(10);
    let mut came = Vec::new();
    while came.len() < 2 && std::time::Instant::now() < end {
        match listener.accept() {
            Ok((stream, _)) => came.push(stream),
            Err(_) => std::thread::yield_now(),
        }
    }
    assert_eq!(came.len(), 2, "one batch waits for the other");
    drop((listener, came));
    std::fs::remove_file(&socket).unwrap();
    cluster.nodes[0].revive();
    for end in wait_all(all).unwrap() {
        end.unwrap();
    }
    let bytes = read_all(&handle);
    for (row, bytes) in bytes.chunks(LEN).enumerate() {
        assert!(bytes.iter().all(|&byte| byte == row as u8 + 1), "{row}");
    }
    drop(handle);
    client.stop().unwrap();
    cluster.close();
}

/// Each write that fails has chunks to discard; a request to that server would wait for it again.
#[test]
fn all_writes_of_a_start_wait_once_for_a_server_that_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::open(dir.path(), 1);
    let client = cluster.client(ClientOptions {
        io_timeout: Duration::from_millis(300),
        ..ClientOptions::default()
    });
    let (_, handle) = create(&client, "rows", spec("u1", &[16, 4096], "aligned"));
    let write = |rows: std::ops::Range<u64>| {
        let mut all: Vec<_> = rows
            .map(|row| {
                let slab = slab(&[row, 0], &[1, 4096]);
                let data = vec![1u8; 4096];
                handle
                    .write_transfer(&slab, &Memory::packed(), data)
                    .unwrap()
            })
            .collect();
        start_all(&mut all).unwrap();
        wait_all(all).unwrap()
    };
    for end in write(0..16) {
        end.unwrap();
    }
    // A waiting client reconnects until its timeout.
    let (socket, listener) = silent(&mut cluster);
    let came = |rows| {
        let mut came = Vec::new();
        let ended = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for end in write(rows) {
                    let error = end.unwrap_err().error;
                    assert!(error.to_string().contains("data server 1"), "{error}");
                }
                ended.store(1, Ordering::SeqCst);
            });
            while ended.load(Ordering::SeqCst) == 0 {
                match listener.accept() {
                    Ok((stream, _)) => came.push(stream),
                    Err(_) => std::thread::yield_now(),
                }
            }
        });
        came.len()
    };
    // However often a client reconnects within the timeout, it must not do so for each of the sixteen writes.
    let (one, all) = (came(0..1), came(0..16));
    assert!(one > 0 && all < 12, "{one}, {all}");
    drop(listener);
    std::fs::remove_file(&socket).unwrap();
    cluster.nodes[0].revive();
    drop(handle);
    client.stop().unwrap();
    cluster.close();
}

/// A waker whose first call blocks until the gate opens.
struct Held {
    which: usize,
    first: mpsc::Sender<usize>,
    gate: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Wake for Held {
    fn wake(self: Arc<Self>) {
        // The receiver may be gone: the second waker is called after the test has got its result.
        self.first.send(self.which).ok();
        self.gate.lock().unwrap().recv().ok();
    }
}

/// The wakers called at the end of one transfer may take long. A close, meanwhile, of the object of another transfer
/// of the same batch must not return before that transfer has ended.
#[test]
fn a_close_returns_after_its_transfers_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::open(dir.path(), 1);
    let client = cluster.client(ClientOptions::default());
    let handles = ["a", "b"].map(|name| create(&client, name, spec("u1", &[64], "aligned")).1);
    let (socket, listener) = silent(&mut cluster);
    let mut transfers = handles.each_ref().map(|handle| {
        let all = slab(&[0], &[64]);
        handle
            .write_transfer(&all, &Memory::packed(), vec![1u8; 64])
            .unwrap()
    });
    start_all(&mut transfers).unwrap();
    let (first, woken) = mpsc::channel();
    let (open, gate) = mpsc::channel();
    let gate = Arc::new(Mutex::new(gate));
    for (which, transfer) in transfers.iter_mut().enumerate() {
        let waker = Waker::from(Arc::new(Held {
            which,
            first: first.clone(),
            gate: gate.clone(),
        }));
        let polled = std::pin::Pin::new(transfer).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    drop(listener);
    std::fs::remove_file(&socket).unwrap();
    cluster.nodes[0].revive();
    let other = 1 - woken.recv().unwrap();
    let (closed, shown) = mpsc::channel();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            handles[other].release().unwrap();
            closed.send(transfers[other].control().test()).unwrap();
        });
        // A close that does not wait has time to return; one that waits continues when the gate opens.
        let early = shown.recv_timeout(Duration::from_millis(300));
        drop(open);
        let ended = early.unwrap_or_else(|_| shown.recv().unwrap());
        assert!(ended, "a started transfer outlives the close of its object");
    });
    handles[1 - other].release().unwrap();
    for end in wait_all(transfers).unwrap() {
        end.unwrap();
    }
    client.stop().unwrap();
    cluster.close();
}

#[test]
fn overlapping_transfers_run_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 2);
    let client = cluster.client(ClientOptions::default());
    for layout in ["aligned", "grid:16,16"] {
        let (_, handle) = create(&client, layout, spec("u1", &[64, 64], layout));
        let mut all = Vec::new();
        for round in 0..100u64 {
            let (row, seed) = (round * 7 % 60, round as u8 + 1);
            let to = slab(&[row, 0], &[4, 64]);
            let mut write = handle
                .write_transfer(&to, &Memory::packed(), vec![seed; 256])
                .unwrap();
            let within = slab(&[row + 1, 3], &[2, 9]);
            let mut read = handle
                .read_transfer(&within, &Memory::packed(), vec![0; 18])
                .unwrap();
            if round % 3 == 0 {
                transfer::start_all([&mut read as &mut dyn transfer::Startable, &mut write])
                    .unwrap();
            } else {
                write.start().unwrap();
                read.start().unwrap();
            }
            all.push((write, read, seed));
        }
        for (write, read, seed) in all {
            assert_eq!(read.wait().unwrap(), vec![seed; 18]);
            write.wait().unwrap();
        }
        handle.release().unwrap();
    }
    client.stop().unwrap();
    cluster.close();
}

#[test]
fn an_object_grows_along_its_unlimited_axis() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 2);
    let client = cluster.client(ClientOptions::default());
    let other = cluster.client(ClientOptions::default());
    for layout in ["aligned", "grid:4,8"] {
        let (ino, handle) = create(
            &client,
            layout,
            SpecChange {
                max_dims: Some(vec![MaxDim::Unlimited, MaxDim::Fixed(8)]),
                ..spec("i2", &[0, 8], layout)
            },
        );
        let there = other.open(ino, OpenMode::default(), None).unwrap();
        for step in 0..5u64 {
            let row = slab(&[step * 3, 0], &[2, 8]);
            let bytes = vec![step as u8 + 1; 32];
            let write = handle.write_transfer(&row, &Memory::packed(), bytes.clone());
            write.unwrap().wait().unwrap();
            let read = there.read_transfer(&row, &Memory::packed(), vec![0; 32]);
            assert_eq!(
                read.unwrap().wait().unwrap(),
                bytes,
                "{layout}, step {step}"
            );
        }
        assert_eq!(handle.size(), 14 * 16);
        let beyond = slab(&[0, 1], &[1, 8]);
        let write = handle.write_transfer(&beyond, &Memory::packed(), vec![0; 16]);
        let refused = write.and_then(transfer::Transfer::wait).unwrap_err();
        assert!(matches!(refused.error, FsError::TooBig(_)), "{refused}");
        there.release().unwrap();
        handle.release().unwrap();
    }
    client.stop().unwrap();
    other.stop().unwrap();
    cluster.close();
}

/// A transfer with an element that does not fit writes nothing; others of the same start succeed.
#[test]
fn an_element_that_does_not_fit_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 1);
    let client = cluster.client(ClientOptions::default());
    let (_, handle) = create(&client, "a", spec("u1", &[8], "aligned"));
    let wide = Memory::packed().of_type("i4".parse().unwrap());
    let bytes = |values: [i32; 4]| {
        values
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let good = handle
        .write_transfer(&slab(&[0], &[4]), &wide, bytes([1, 2, 3, 255]))
        .unwrap();
    let bad = handle
        .write_transfer(&slab(&[4], &[4]), &wide, bytes([1, 2, 256, 4]))
        .unwrap();
    let mut ends = wait_all([good, bad]).unwrap();
    let error = ends.pop().unwrap().unwrap_err().error;
    assert!(
        matches!(&error, FsError::NotRepresentable { index: 2, value, .. } if value == "256"),
        "{error}"
    );
    ends.pop().unwrap().unwrap();
    assert_eq!(read_all(&handle), [1, 2, 3, 255, 0, 0, 0, 0]);
    let text = Memory::packed().of_type("S1".parse().unwrap());
    assert!(
        handle
            .read_transfer(&slab(&[0], &[4]), &text, vec![0; 4])
            .is_err()
    );
    handle.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}

/// Transfers of borrowed buffers have ended when their scope returns, also by a panic.
#[test]
fn a_scope_waits_for_forgotten_transfers() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 2);
    let client = cluster.client(ClientOptions::default());
    let (_, handle) = create(&client, "a", spec("u1", &[4, 1 << 20], "aligned"));
    let ones = vec![1u8; 1 << 20];
    let mut back = vec![0u8; 1 << 20];
    transfer::scope(|scope| {
        let row = slab(&[0, 0], &[1, 1 << 20]);
        let mut write = scope
            .write(&handle, &row, &Memory::packed(), &ones)
            .unwrap();
        let mut read = scope
            .read(&handle, &row, &Memory::packed(), &mut back)
            .unwrap();
        write.start().unwrap();
        read.start().unwrap();
        std::mem::forget((write, read));
    });
    assert_eq!(back, ones);
    let mut again = vec![0u8; 1 << 20];
    let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        transfer::scope(|scope| {
            let row = slab(&[0, 0], &[1, 1 << 20]);
            let mut read = scope
                .read(&handle, &row, &Memory::packed(), &mut again)
                .unwrap();
            read.start().unwrap();
            std::mem::forget(read);
            panic!("left");
        })
    }));
    assert!(left.is_err());
    assert_eq!(again, ones);
    assert_eq!(number(&client, "/transfers_running"), 0);
    handle.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}

/// Polls a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// The same transfers as futures, with room for one at a time.
#[test]
fn transfers_are_futures() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 2);
    let client = cluster.client(ClientOptions {
        transfer_limit: 1,
        ..ClientOptions::default()
    });
    let (_, handle) = create(&client, "a", spec("u1", &[16, 1000], "aligned"));
    std::thread::scope(|threads| {
        for n in 0..16u64 {
            let handle = &handle;
            threads.spawn(move || {
                let row = slab(&[n, 0], &[1, 1000]);
                block_on(async {
                    let write = handle.write_transfer(&row, &Memory::packed(), vec![n as u8; 1000]);
                    let buffer = write.unwrap().await.unwrap();
                    let mut reads = [handle
                        .read_transfer(&row, &Memory::packed(), vec![9; 1000])
                        .unwrap()];
                    transfer::start_all_async(&mut reads).await.unwrap();
                    let [read] = reads;
                    assert_eq!(read.await.unwrap(), buffer);
                });
            });
        }
    });
    handle.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}

/// Two clients start transfers of the same objects in opposite orders: their rights are recalled back and forth,
/// without a deadlock.
#[test]
fn entering_several_objects_does_not_deadlock() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 2);
    let one = cluster.client(ClientOptions::default());
    let two = cluster.client(ClientOptions::default());
    let made: Vec<_> = (0..4)
        .map(|n| create(&one, &format!("o{n}"), spec("u1", &[8, 100], "aligned")))
        .collect();
    let there: Vec<_> = made
        .iter()
        .map(|(ino, _)| two.open(*ino, WRITE, None).unwrap())
        .collect();
    let here: Vec<_> = made.into_iter().map(|(_, handle)| handle).collect();
    std::thread::scope(|threads| {
        for (side, handles) in [(1u8, &here), (2, &there)] {
            threads.spawn(move || {
                for round in 0..40u64 {
                    let mut writes = Vec::new();
                    for n in 0..4 {
                        let at = if side == 1 { n } else { 3 - n };
                        let to = slab(&[round % 8, 0], &[1, 100]);
                        let write =
                            handles[at].write_transfer(&to, &Memory::packed(), vec![side; 100]);
                        writes.push(write.unwrap());
                    }
                    for end in wait_all(writes).unwrap() {
                        end.unwrap();
                    }
                    let from = slab(&[round % 8, 0], &[1, 100]);
                    let read = handles[0].read_transfer(&from, &Memory::packed(), vec![0; 100]);
                    let row = read.unwrap().wait().unwrap();
                    // Of one writer only, whichever wrote last.
                    assert!(row == vec![1; 100] || row == vec![2; 100]);
                }
            });
        }
    });
    for (here, there) in here.iter().zip(&there) {
        assert_eq!(read_all(here), read_all(there));
        here.release().unwrap();
        there.release().unwrap();
    }
    one.stop().unwrap();
    two.stop().unwrap();
    cluster.close();
}

/// 1,000 transfers in flight from 32 threads, some cancelled, some dropped, while servers die and come back: each
/// ends with data or an error, and no resources leak.
#[test]
fn a_storm_of_transfers_leaks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::open(dir.path(), 3);
    let client = cluster.client(ClientOptions {
        io_timeout: Duration::from_secs(20),
        ..ClientOptions::default()
    });
    let mut own = spec("u1", &[32, 32, 3000], "aligned");
    own.placement = Some("dynamic".parse().unwrap());
    let (_, aligned) = create(&client, "aligned", own);
    let (_, grid) = create(
        &client,
        "grid",
        spec("u1", &[32, 32, 3000], "grid:4,4,3000"),
    );
    let (ended, cancelled) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        let mut runs = Vec::new();
        for thread in 0..32u64 {
            let (client, aligned, grid) = (&client, &aligned, &grid);
            let (ended, cancelled) = (&ended, &cancelled);
            runs.push(threads.spawn(move || {
                let handle = if thread % 2 == 0 { aligned } else { grid };
                let (mut writes, mut reads) = (Vec::new(), Vec::new());
                for n in 0..32u64 {
                    let at = slab(&[thread, n, 0], &[1, 1, 3000]);
                    let bytes = vec![(thread + n) as u8 | 1; 3000];
                    // Some as batches.
                    let first = Place::at(((thread * 32 + n) * 3000) as i64);
                    let batch = [Batch::data(first, Place::at(0), 3000)];
                    let batch = || batch::Plan::new(&batch, 1).unwrap();
                    let write = match n % 3 {
                        0 => handle.write_batch_transfer(batch(), bytes),
                        _ => handle.write_transfer(&at, &Memory::packed(), bytes),
                    };
                    writes.push(write.unwrap());
                    let read = match n % 5 {
                        0 => handle.read_batch_transfer(batch(), vec![0; 3000]),
                        _ => handle.read_transfer(&at, &Memory::packed(), vec![0; 3000]),
                    };
                    reads.push(read.unwrap());
                }
                match thread % 4 < 2 {
                    true => start_all(&mut writes).unwrap(),
                    false => writes.iter_mut().for_each(|write| write.start().unwrap()),
                }
                start_all(&mut reads).unwrap();
                assert!(number(client, "/transfers") > 0);
                for (n, (write, read)) in writes.into_iter().zip(reads).enumerate() {
                    match n % 8 {
                        3 => write.cancel(),
                        5 => {
                            drop(write);
                            drop(read);
                            continue;
                        }
                        _ => {}
                    }
                    let (wrote, read) = (write.wait(), read.wait());
                    ended.fetch_add(2, Ordering::Relaxed);
                    let written = (thread + n as u64) as u8 | 1;
                    match (wrote, read) {
                        (Ok(_), Ok(bytes)) => assert_eq!(bytes, vec![written; 3000]),
                        (Err(wrote), Ok(bytes)) => {
                            if matches!(wrote.error, FsError::Cancelled) {
                                cancelled.fetch_add(1, Ordering::Relaxed);
                                // With an aligned object nothing was committed.
                                assert!(bytes == vec![0; 3000]);
                            }
                        }
                        (_, Err(_)) => {}
                    }
                }
            }));
        }
        for round in 0..6 {
            // While transfers are running, as long as there are any.
            let over = || runs.iter().all(std::thread::ScopedJoinHandle::is_finished);
            while number(&client, "/transfers_running") == 0 && !over() {
                std::thread::yield_now();
            }
            cluster.nodes[round % 3].kill();
            cluster.nodes[round % 3].revive();
        }
    });
    assert_eq!(ended.load(Ordering::Relaxed), 32 * 28 * 2);
    aligned.release().unwrap();
    grid.release().unwrap();
    for key in ["/transfers_running", "/transfer_bytes"] {
        assert_eq!(number(&client, key), 0, "{key}");
    }
    // The thread that ended the last transfer may still hold it.
    let begun = std::time::Instant::now();
    while number(&client, "/transfers") > 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "transfers are left"
        );
        std::thread::yield_now();
    }
    client.stop().unwrap();
    cluster.close();
}

/// A server that stays away: transfers that need it fail at the deadline; others of the same start succeed.
#[test]
fn a_server_that_is_away_fails_only_its_own_transfers() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::open(dir.path(), 2);
    let client = cluster.client(ClientOptions {
        io_timeout: Duration::from_secs(2),
        ..ClientOptions::default()
    });
    let (_, handle) = create(&client, "a", spec("u1", &[8, 100], "grid:1,100"));
    let write = |row: u64| {
        let to = slab(&[row, 0], &[1, 100]);
        let bytes = vec![row as u8 + 1; 100];
        handle
            .write_transfer(&to, &Memory::packed(), bytes)
            .unwrap()
    };
    for end in wait_all((0..8).map(write)).unwrap() {
        end.unwrap();
    }
    cluster.nodes[0].kill();
    let ends = wait_all((0..8).map(write)).unwrap();
    let failed = ends.iter().filter(|end| end.is_err()).count();
    assert!(failed > 0 && failed < 8, "{failed} of 8 failed");
    let reads = (0..8).map(|row| {
        let from = slab(&[row, 0], &[1, 100]);
        handle
            .read_transfer(&from, &Memory::packed(), vec![0; 100])
            .unwrap()
    });
    for (row, (read, wrote)) in wait_all(reads).unwrap().into_iter().zip(&ends).enumerate() {
        assert_eq!(read.is_err(), wrote.is_err(), "row {row}");
        if let Ok(bytes) = read {
            assert_eq!(bytes, vec![row as u8 + 1; 100]);
        }
    }
    cluster.nodes[0].revive();
    handle.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}

/// Columns, overlaid by every second row: the remains of the columns lie in more parts than one request may have.
#[test]
fn a_read_of_very_many_parts_takes_several_requests() {
    const ROWS: usize = 2050;
    const COLUMNS: usize = 1040;
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 1);
    let client = cluster.client(ClientOptions::default());
    let dims = [ROWS as u64, COLUMNS as u64];
    let (_, handle) = create(&client, "a", spec("u1", &dims, "aligned"));
    let write = |at: [u64; 2], shape: [u64; 2], value: usize| {
        let bytes = vec![value as u8; (shape[0] * shape[1]) as usize];
        let to = slab(&at, &shape);
        handle
            .write_transfer(&to, &Memory::packed(), bytes)
            .unwrap()
    };
    let columns = (0..COLUMNS).map(|at| write([0, at as u64], [dims[0], 1], at % 127));
    let rows = (0..ROWS).step_by(2);
    let rows = rows.map(|at| write([at as u64, 0], [1, dims[1]], 128 + at % 127));
    for end in wait_all(columns.chain(rows)).unwrap() {
        end.unwrap();
    }
    let read = handle
        .read_transfer(
            &slab(&[0, 0], &dims),
            &Memory::packed(),
            vec![9; ROWS * COLUMNS],
        )
        .unwrap();
    let bytes = read.wait().unwrap();
    for (number, row) in bytes.chunks(COLUMNS).enumerate() {
        let expected = (0..COLUMNS).map(|at| match number % 2 {
            0 => 128 + number % 127,
            _ => at % 127,
        });
        assert!(
            row.iter().map(|&byte| byte as usize).eq(expected),
            "row {number}"
        );
    }
    handle.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}
