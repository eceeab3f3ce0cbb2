//! The client library against a naive array in memory: random writes through selections and plain offsets, from
//! several handles, interleaved with flushes, closes, resizes and restarts.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use slabfs_fs::client::{Client, ClientOptions, Handle, OpenMode};
use slabfs_mdserver::api::{Create, Ino, Kind, ROOT, SpecChange};
use slabfs_mdserver::client::LocalMd;
use slabfs_mdserver::service::{Service, ServiceOptions};
use slabfs_model::{Coords, DType, MaxDim, Selection, Space, gather, scatter};
use slabfs_objstore::ChunkStore;
use slabfs_objstore::client::{Options, Servers};
use slabfs_objstore::server::{Fence, Heart, HeartOptions};
use slabfs_objstore::store::{LocalOptions, LocalStore};

/// A filesystem in one process, without a mount.
struct Cluster {
    service: Arc<Service>,
    hearts: Vec<Heart>,
    stores: Vec<(slabfs_model::ServerId, Arc<dyn ChunkStore>)>,
}

impl Cluster {
    fn open(dir: &Path, servers: usize) -> Cluster {
        let (service, _) = Service::open(&dir.join("md"), ServiceOptions::default()).unwrap();
        let service = Arc::new(service);
        let mut hearts = Vec::new();
        let mut stores: Vec<(slabfs_model::ServerId, Arc<dyn ChunkStore>)> = Vec::new();
        for n in 0..servers {
            let store =
                LocalStore::open(&dir.join(format!("os{n}")), LocalOptions::default()).unwrap();
            let uuid = store.id();
            let store: Arc<dyn ChunkStore> = Arc::new(store);
            let heart = Heart::start(
                store.clone(),
                service.clone(),
                Arc::new(Fence::in_memory()),
                HeartOptions::new(uuid, None),
            )
            .unwrap();
            let id = heart.registered(Duration::from_secs(10)).unwrap();
            stores.push((id, store));
            hearts.push(heart);
        }
        Cluster {
            service,
            hearts,
            stores,
        }
    }

    fn client(&self) -> Arc<Client> {
        let servers = Servers::new(Options::default());
        for (id, store) in &self.stores {
            servers.add_local(*id, store.clone());
        }
        Client::start(
            Arc::new(LocalMd(self.service.clone())),
            Arc::new(servers),
            ClientOptions {
                // Small enough that writes of small arrays take every path.
                direct_min: 24,
                tail_limit: 40,
                chunk_limit: 400,
                ..ClientOptions::default()
            },
        )
        .unwrap()
    }

    fn close(self) {
        for heart in self.hearts {
            heart.stop();
        }
        drop(self.stores);
        self.service.close().unwrap();
    }
}

fn create(client: &Arc<Client>, name: &str) -> (Ino, Arc<Handle>) {
    let (made, handle) = client
        .create(
            Create {
                parent: ROOT,
                name: name.into(),
                kind: Kind::Object,
                mode: 0o644,
                uid: 0,
                gid: 0,
                rdev: 0,
                target: None,
                exclusive: true,
                open: true,
            },
            WRITE,
        )
        .unwrap();
    (made.entry.attr.ino, handle)
}

const WRITE: OpenMode = OpenMode {
    write: true,
    append: false,
};

fn read(handle: &Handle, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    handle
        .read(offset, len, &mut |part: &[u8]| {
            bytes.extend_from_slice(part)
        })
        .unwrap();
    bytes
}

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    /// Writes through a selection, in pieces of this many bytes.
    Select(Vec<(u64, u64, u64)>, usize, u8),
    /// Writes through the plain file: handle, place, length.
    Plain(bool, f64, usize, u8),
    /// Reads a range, or a selection.
    Read(f64, usize),
    ReadSelection(Vec<(u64, u64, u64)>),
    Flush(bool),
    Fsync,
    Reopen(bool),
    Restart,
    Resize(Vec<u64>),
    Punch(f64, usize),
    Clear,
}

fn slices() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    prop::collection::vec((0u64..12, 0u64..12, 1u64..4), 3)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (slices(), prop_oneof![Just(7usize), Just(30), Just(1000)], any::<u8>())
            .prop_map(|(s, piece, seed)| Step::Select(s, piece, seed)),
        8 => (any::<bool>(), 0.0..1.0, prop_oneof![1usize..20, 20usize..200], any::<u8>())
            .prop_map(|(h, at, len, seed)| Step::Plain(h, at, len, seed)),
        4 => (0.0..1.0, 1usize..300).prop_map(|(at, len)| Step::Read(at, len)),
        3 => slices().prop_map(Step::ReadSelection),
        2 => any::<bool>().prop_map(Step::Flush),
        1 => Just(Step::Fsync),
        2 => any::<bool>().prop_map(Step::Reopen),
        1 => Just(Step::Restart),
        2 => prop::collection::vec(1u64..10, 3).prop_map(Step::Resize),
        1 => (0.0..1.0, 1usize..100).prop_map(|(at, len)| Step::Punch(at, len)),
        1 => Just(Step::Clear),
    ]
}

#[derive(Debug, Clone)]
struct Form {
    rank: usize,
    dtype: &'static str,
    layout: &'static str,
    codec: &'static str,
    servers: usize,
}

fn form() -> impl Strategy<Value = Form> {
    let kinds = prop_oneof![
        Just(("aligned", "none")),
        Just(("aligned", "none")),
        Just(("aligned", "shuffle+zstd:3")),
        Just(("aligned", "lz4")),
        Just(("canonical", "none")),
        Just(("grid", "none")),
    ];
    (
        1usize..4,
        prop_oneof![Just("u1"), Just("f4"), Just("i2"), Just("V3")],
        kinds,
        1usize..4,
    )
        .prop_map(|(rank, dtype, (layout, codec), servers)| Form {
            rank,
            dtype,
            layout,
            codec,
            servers,
        })
}

/// The naive array: dims in elements, bytes in canonical order.
struct Naive {
    space: Space,
    bytes: Vec<u8>,
}

impl Naive {
    fn resize(&mut self, dims: &[u64]) {
        let new = Space::new(dims, self.space.elem);
        let (old_cells, new_cells) = (self.space.cells().unwrap(), new.cells().unwrap());
        let both: Coords = old_cells
            .iter()
            .zip(&new_cells)
            .map(|(a, b)| *a.min(b))
            .collect();
        let common = slabfs_model::Hyperslab::all(&both);
        let mut packed = vec![0; common.volume() as usize];
        gather(&self.bytes, &old_cells, &common, &mut packed);
        let mut bytes = vec![0; new.bytes().unwrap() as usize];
        scatter(&packed, &common, &mut bytes, &new_cells);
        (self.space, self.bytes) = (new, bytes);
    }

    /// A selection within the dims, made of arbitrary numbers.
    fn selection(&self, slices: &[(u64, u64, u64)]) -> Selection {
        let axes: Vec<String> = self
            .space
            .dims
            .iter()
            .zip(slices)
            .map(|(dim, (a, b, step))| {
                let (low, high) = (a % (dim + 1), b % (dim + 1));
                format!("{}:{}:{step}", low.min(high), low.max(high))
            })
            .collect();
        format!("[{}]", axes.join(",")).parse().unwrap()
    }
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| seed.wrapping_add(i as u8).max(1))
        .collect()
}

fn run(form: &Form, dims: &[u64], steps: &[Step]) {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::open(dir.path(), form.servers);
    let mut client = cluster.client();
    let dims = &dims[..form.rank];
    let dtype: DType = form.dtype.parse().unwrap();
    let layout = match form.layout {
        "grid" => format!("grid:{}", vec!["4"; form.rank].join(",")),
        other => other.to_string(),
    };
    let (ino, first) = create(&client, "array");
    client
        .declare(
            ino,
            SpecChange {
                dtype: Some(dtype),
                dims: Some(Coords::from_slice(dims)),
                max_dims: Some(vec![MaxDim::Unlimited; form.rank]),
                layout: Some(layout.parse().unwrap()),
                codec: Some(form.codec.parse().unwrap()),
                ..SpecChange::default()
            },
        )
        .unwrap();
    let mut naive = Naive {
        space: Space::new(dims, dtype.size()),
        bytes: vec![0; Space::new(dims, dtype.size()).bytes().unwrap() as usize],
    };
    let second = client.open(ino, WRITE, None).unwrap();
    let mut handles = [first, second];
    for (number, step) in steps.iter().enumerate() {
        let size = naive.bytes.len() as u64;
        match step {
            Step::Select(slices, piece, seed) => {
                let selection = naive.selection(slices);
                let slab = selection
                    .resolve(&naive.space.dims)
                    .unwrap()
                    .to_cells(dtype.size())
                    .unwrap();
                let data = pattern(*seed, slab.volume() as usize);
                let handle = client.open(ino, WRITE, Some(&selection)).unwrap();
                let mut parts: Vec<(usize, &[u8])> = data.chunks(*piece).enumerate().collect();
                if seed % 3 == 0 {
                    // Out of order: runs of single elements, and streams that are cut.
                    parts.reverse();
                }
                for (n, part) in parts {
                    handle.write((n * piece) as u64, part).unwrap();
                }
                // Half of the handles are read before their close.
                if seed % 2 == 0 {
                    assert_eq!(read(&handle, 0, data.len() + 9), data, "step {number}");
                }
                handle.release().unwrap();
                let cells = naive.space.cells().unwrap();
                scatter(&data, &slab, &mut naive.bytes, &cells);
            }
            Step::Plain(which, at, len, seed) => {
                let at = (at * size as f64) as u64;
                let len = (*len as u64).min(size - at) as usize;
                let data = pattern(*seed, len);
                handles[usize::from(*which)].write(at, &data).unwrap();
                naive.bytes[at as usize..at as usize + len].copy_from_slice(&data);
            }
            Step::Read(at, len) => {
                let at = (at * size as f64) as usize;
                let len = (*len).min(naive.bytes.len() - at);
                assert_eq!(
                    read(&handles[0], at as u64, len),
                    &naive.bytes[at..at + len],
                    "step {number}: {len} bytes at {at}"
                );
            }
            Step::ReadSelection(slices) => {
                let selection = naive.selection(slices);
                let slab = selection
                    .resolve(&naive.space.dims)
                    .unwrap()
                    .to_cells(dtype.size())
                    .unwrap();
                let mut expected = vec![0; slab.volume() as usize];
                gather(
                    &naive.bytes,
                    &naive.space.cells().unwrap(),
                    &slab,
                    &mut expected,
                );
                let handle = client
                    .open(ino, OpenMode::default(), Some(&selection))
                    .unwrap();
                assert_eq!(
                    read(&handle, 0, expected.len() + 1),
                    expected,
                    "step {number}: {selection}"
                );
                handle.release().unwrap();
            }
            Step::Flush(which) => handles[usize::from(*which)].flush().unwrap(),
            Step::Fsync => handles[0].fsync().unwrap(),
            Step::Reopen(which) => {
                let which = usize::from(*which);
                handles[which].release().unwrap();
                handles[which] = client.open(ino, WRITE, None).unwrap();
            }
            Step::Restart => {
                for handle in &handles {
                    handle.release().unwrap();
                }
                client.stop().unwrap();
                drop(handles);
                drop(client);
                cluster.close();
                cluster = Cluster::open(dir.path(), form.servers);
                client = cluster.client();
                handles = [
                    client.open(ino, WRITE, None).unwrap(),
                    client.open(ino, WRITE, None).unwrap(),
                ];
            }
            Step::Resize(dims) => {
                let mut dims = dims[..form.rank].to_vec();
                if form.layout == "canonical" {
                    dims[1..].copy_from_slice(&naive.space.dims[1..]);
                }
                client.set_dims(ino, Coords::from_slice(&dims)).unwrap();
                naive.resize(&dims);
            }
            Step::Punch(at, len) => {
                let at = (at * size as f64) as u64;
                let len = (*len as u64).min(size - at);
                if len > 0 {
                    let keep = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                    handles[0].allocate(keep, at, len).unwrap();
                    naive.bytes[at as usize..(at + len) as usize].fill(0);
                }
            }
            Step::Clear => {
                client.setattr(ino, Default::default(), Some(0)).unwrap();
                // The slowest axis is unlimited: its length is 0 now. Grow it back.
                let mut empty = naive.space.dims.clone();
                let dims = empty.clone();
                empty[0] = 0;
                naive.resize(&empty);
                client.set_dims(ino, dims.clone()).unwrap();
                naive.resize(&dims);
            }
        }
    }
    let content = read(&handles[1], 0, naive.bytes.len() + 100);
    assert_eq!(content, naive.bytes, "at the end, before the close");
    for handle in &handles {
        handle.release().unwrap();
    }
    client.stop().unwrap();
    drop(handles);
    drop(client);
    cluster.close();
    let cluster = Cluster::open(dir.path(), form.servers);
    let client = cluster.client();
    let handle = client.open(ino, OpenMode::default(), None).unwrap();
    assert_eq!(
        read(&handle, 0, naive.bytes.len() + 100),
        naive.bytes,
        "after the last restart"
    );
    handle.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}

fn cases() -> u32 {
    std::env::var("SLABFS_SOAK_OPERATIONS")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn an_object_is_an_array(
        form in form(),
        dims in prop::collection::vec(1u64..10, 3),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        run(&form, &dims, &steps);
    }
}

/// Rows written one by one by four handles become four chunks, each with the shape its handle wrote.
#[test]
fn rows_of_one_writer_become_one_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 2);
    let client = cluster.client();
    let (ino, creator) = create(&client, "table");
    client
        .declare(
            ino,
            SpecChange {
                dtype: Some("f4".parse().unwrap()),
                dims: Some(Coords::from_slice(&[16, 16])),
                ..SpecChange::default()
            },
        )
        .unwrap();
    for (rows, columns) in [(0..10, 0..9), (0..7, 9..16), (10..16, 0..9), (7..16, 9..16)] {
        let handle = client.open(ino, WRITE, None).unwrap();
        for row in rows.clone() {
            // In two pieces below `direct_min`, so that rows wait in memory.
            let bytes = pattern(row as u8, 4 * (columns.end - columns.start) as usize);
            let at = 4 * (row * 16 + columns.start);
            let (a, b) = bytes.split_at(bytes.len() / 2);
            handle.write(at, a).unwrap();
            handle.write(at + a.len() as u64, b).unwrap();
        }
        handle.release().unwrap();
    }
    let layout = client.layout(ino).unwrap();
    let mut shapes: Vec<Vec<u64>> = layout.chunks.iter().map(|c| c.shape.clone()).collect();
    shapes.sort();
    assert_eq!(shapes, [[6, 36], [7, 28], [9, 28], [10, 36]]);
    let stats = client.stats();
    assert_eq!(stats["counters"]["write"]["server_ops"], 4);
    assert_eq!(stats["counters"]["write"]["bytes_sent"], 1024);
    creator.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}
