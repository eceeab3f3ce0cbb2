//! Batches through the client library to three data servers over sockets, compared with an interpreter that processes
//! every byte.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod trees;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use slabfs_fs::client::{Client, ClientOptions, FsError, Handle, OpenMode};
use slabfs_mdserver::api::{Create, Kind, ROOT, SpecChange};
use slabfs_mdserver::client::LocalMd;
use slabfs_mdserver::service::{Service, ServiceOptions};
use slabfs_model::batch::{Batch, Pattern, Place, Plan};
use slabfs_model::{Coords, DType, MaxDim};
use slabfs_objstore::client::{Options, Servers};
use slabfs_objstore::server::{DataServer, Fence, Heart, HeartOptions};
use slabfs_objstore::store::{LocalOptions, LocalStore};
use slabfs_objstore::wire::Listener;
use slabfs_objstore::{Addr, ChunkStore};
use trees::{config, interpret, patterns, repeated, tree};

const SERVERS: usize = 3;
const WRITE: OpenMode = OpenMode {
    write: true,
    append: false,
};

/// A metadata service in this process, and data servers behind sockets.
struct Cluster {
    service: Arc<Service>,
    hearts: Vec<Heart>,
    servers: Vec<DataServer>,
    client: Option<Arc<Client>>,
}

impl Cluster {
    fn open(dir: &Path) -> Cluster {
        Cluster::open_with(dir, false)
    }

    /// With `local`, the client calls the stores in this process instead.
    fn open_with(dir: &Path, local: bool) -> Cluster {
        let options = ClientOptions {
            // Small limits, so that small objects have many chunks.
            direct_min: 1000,
            tail_limit: 500,
            chunk_limit: 4000,
            ..ClientOptions::default()
        };
        Cluster::open_as(dir, local, options)
    }

    fn open_as(dir: &Path, local: bool, client_options: ClientOptions) -> Cluster {
        let (service, _) = Service::open(&dir.join("md"), ServiceOptions::default()).unwrap();
        let service = Arc::new(service);
        let known = Servers::new(Options::default());
        let (mut hearts, mut servers) = (Vec::new(), Vec::new());
        for n in 0..SERVERS {
            let options = LocalOptions {
                fsync: false,
                ..LocalOptions::default()
            };
            let store = LocalStore::open(&dir.join(format!("os{n}")), options).unwrap();
            let uuid = store.id();
            let store: Arc<dyn ChunkStore> = Arc::new(store);
            let addr = Addr::Unix(dir.join(format!("socket{n}")));
            let listener = Listener::bind(&addr, None).unwrap();
            let fence = Arc::new(Fence::in_memory());
            servers.push(DataServer::start_fenced(store.clone(), listener, fence.clone()).unwrap());
            let options = HeartOptions::new(uuid, Some(addr.clone()));
            let here = store.clone();
            let heart = Heart::start(store, service.clone(), fence, options).unwrap();
            let id = heart.registered(Duration::from_secs(10)).unwrap();
            match local {
                true => known.add_local(id, here),
                false => known.set_remote(id, addr),
            }
            hearts.push(heart);
        }
        let client = Client::start(
            Arc::new(LocalMd(service.clone())),
            Arc::new(known),
            client_options,
        )
        .unwrap();
        Cluster {
            service,
            hearts,
            servers,
            client: Some(client),
        }
    }

    fn client(&self) -> &Arc<Client> {
        self.client.as_ref().unwrap()
    }

    /// An object of this form.
    fn object(
        &self,
        name: &str,
        dims: &[u64],
        dtype: &str,
        layout: &str,
        codec: &str,
    ) -> Arc<Handle> {
        let dtype: DType = dtype.parse().unwrap();
        let spec = SpecChange {
            dtype: Some(dtype),
            dims: Some(Coords::from_slice(dims)),
            max_dims: Some(dims.iter().map(|&dim| MaxDim::Fixed(dim)).collect()),
            layout: Some(layout.parse().unwrap()),
            codec: Some(codec.parse().unwrap()),
            fill: Some(if dtype.size() == 3 { "0x070809" } else { "7" }.into()),
            ..SpecChange::default()
        };
        self.create(name, spec)
    }

    /// An empty byte object with an unlimited axis.
    fn growing(&self, name: &str, layout: &str) -> Arc<Handle> {
        let spec = SpecChange {
            dtype: Some("u1".parse().unwrap()),
            dims: Some(Coords::from_slice(&[0])),
            max_dims: Some(vec![MaxDim::Unlimited]),
            layout: Some(layout.parse().unwrap()),
            ..SpecChange::default()
        };
        self.create(name, spec)
    }

    fn create(&self, name: &str, spec: SpecChange) -> Arc<Handle> {
        let client = self.client();
        let create = Create {
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
        };
        let (made, handle) = client.create(create, WRITE).unwrap();
        client.declare(made.entry.attr.ino, spec).unwrap();
        handle
    }

    fn close(mut self) {
        self.client.take().unwrap().stop().unwrap();
        for heart in self.hearts {
            heart.stop();
        }
        for server in self.servers {
            server.shutdown();
        }
        self.service.close().unwrap();
    }
}

/// The forms of objects that batches are tried on: name, dims, dtype, layout, codec. Each has 4800 bytes or more.
const FORMS: [(&str, &[u64], &str, &str, &str); 7] = [
    ("plain", &[40, 30], "i4", "aligned", "none"),
    ("coded", &[40, 30], "i4", "aligned", "shuffle+zstd:3"),
    ("deep", &[10, 12, 5], "f8", "aligned", "lz4"),
    ("grid", &[40, 30], "i4", "grid:7,11", "none"),
    ("blocks", &[4900], "u1", "grid:512", "none"),
    ("canonical", &[40, 60], "i2", "canonical", "none"),
    ("row", &[1700], "V3", "aligned", "none"),
];

/// Writes an object with chunks of many shapes and holes between them; returns its bytes.
fn written(handle: &Handle, dims: &[u64], elem: u64, hole: u64) -> Vec<u8> {
    let size = dims.iter().product::<u64>() * elem;
    let fill = {
        let mut fill = vec![0; size as usize];
        handle
            .read(0, size as usize, &mut |bytes: &[u8]| {
                fill.copy_from_slice(bytes)
            })
            .unwrap();
        fill
    };
    let mut naive = fill;
    let mut put = |from: usize, to: usize, seed: usize| {
        let to = to.min(naive.len());
        for (at, byte) in naive.iter_mut().enumerate().take(to).skip(from) {
            *byte = (at * 31 + (at >> 8) * 7 + seed) as u8;
        }
        handle.write(from as u64, &naive[from..to]).unwrap();
    };
    put(0, 1900, 1);
    handle.flush().unwrap();
    put(1500, 2100, 2);
    handle.flush().unwrap();
    // Pieces at equal steps: a lattice over older chunks.
    for piece in 0..30 {
        put(1000 + piece * 24, 1000 + piece * 24 + 8, 3);
    }
    handle.flush().unwrap();
    put(2100 + hole as usize, size as usize, 4);
    handle.flush().unwrap();
    // Still in memory.
    put(3000, 3100, 5);
    put(77, 78, 6);
    naive
}

/// Compares what a batch reads with the expected bytes.
fn compare(handle: &Arc<Handle>, naive: &[u8], batches: &[Batch], unit: u64, what: &str) {
    let plan = Plan::new(batches, unit).unwrap();
    let bytes = interpret(batches, unit as i64);
    let end = plan.memory_span().map_or(0, |span| span.1 as usize);
    let mut expected = vec![0xee; end + 3];
    for &(file, memory) in &bytes {
        expected[memory] = naive[file];
    }
    let mut got = vec![0xee; end + 3];
    handle.read_batch(&plan, 0..plan.bytes(), &mut got).unwrap();
    assert!(got == expected, "{what}");
    // The packed bytes, and parts of them.
    let plan = Plan::packed(batches, unit).unwrap();
    let packed: Vec<u8> = bytes.iter().map(|&(file, _)| naive[file]).collect();
    let len = packed.len();
    for (from, to) in [(0, len), (len / 3, len / 2), (len.saturating_sub(1), len)] {
        let mut got = vec![0xee; to - from];
        handle
            .read_batch(&plan, from as u64..to as u64, &mut got)
            .unwrap();
        assert!(got == packed[from..to], "{what}, packed {from}..{to}");
    }
}

#[test]
fn patterns_of_the_document_are_read() {
    for local in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster::open_with(dir.path(), local);
        patterns_are_read(&cluster);
        cluster.close();
    }
}

fn patterns_are_read(cluster: &Cluster) {
    for (name, dims, dtype, layout, codec) in FORMS {
        let handle = cluster.object(name, dims, dtype, layout, codec);
        let elem = dtype.parse::<DType>().unwrap().size();
        let naive = written(&handle, dims, elem, 300);
        for (pattern, batches) in patterns() {
            compare(&handle, &naive, &batches, 1, &format!("{name}: {pattern}"));
        }
        handle.release().unwrap();
    }
}

/// Writes a batch, and compares all of the object before and after a flush.
fn write_and_compare(
    handle: &Arc<Handle>,
    naive: &mut [u8],
    batches: &[Batch],
    unit: u64,
    what: &str,
) {
    let bytes = interpret(batches, unit as i64);
    let read = |naive: &[u8]| {
        let size = naive.len();
        let mut all = vec![0; size];
        handle
            .read(0, size, &mut |bytes: &[u8]| all.copy_from_slice(bytes))
            .unwrap();
        assert!(all == naive, "{what}");
    };
    let plans = [Plan::new(batches, unit), Plan::packed(batches, unit)];
    for (round, plan) in plans.into_iter().enumerate() {
        let plan = plan.unwrap();
        let end = plan.memory_span().map_or(0, |span| span.1 as usize);
        let seed = round * 5 + naive[0] as usize;
        let buffer: Vec<u8> = (0..end).map(|at| (at * 13 + seed) as u8).collect();
        for (packed, &(file, memory)) in bytes.iter().enumerate() {
            naive[file] = buffer[if round == 0 { memory } else { packed }];
        }
        if round == 0 {
            handle.write_batch(&plan, 0..plan.bytes(), &buffer).unwrap();
        } else {
            let middle = plan.bytes() / 3;
            let (one, other) = buffer.split_at(middle as usize);
            handle.write_batch(&plan, 0..middle, one).unwrap();
            handle
                .write_batch(&plan, middle..plan.bytes(), other)
                .unwrap();
        }
        read(naive);
        handle.flush().unwrap();
        read(naive);
    }
}

#[test]
fn patterns_of_the_document_are_written() {
    for local in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster::open_with(dir.path(), local);
        patterns_are_written(&cluster);
        cluster.close();
    }
}

fn patterns_are_written(cluster: &Cluster) {
    for (name, dims, dtype, layout, codec) in FORMS {
        let handle = cluster.object(name, dims, dtype, layout, codec);
        let elem = dtype.parse::<DType>().unwrap().size();
        let mut naive = written(&handle, dims, elem, 300);
        for (pattern, batches) in patterns() {
            let what = format!("{name}: {pattern}");
            write_and_compare(&handle, &mut naive, &batches, 1, &what);
        }
        // Overlapping itself: the later piece wins.
        let over = repeated(
            Place::at(50).every(3),
            Place::at(0).every(8),
            40,
            Pattern::Data(8),
        );
        let what = format!("{name}: over itself");
        write_and_compare(&handle, &mut naive, &[over], 1, &what);
        let size = naive.len() as i64;
        let beyond = Plan::new(&[Batch::data(Place::at(size - 3), Place::at(0), 4)], 1).unwrap();
        let refused = handle.write_batch(&beyond, 0..4, b"abcd");
        assert!(matches!(refused, Err(FsError::TooBig(_))), "{refused:?}");
        let short = handle.write_batch(&beyond, 0..4, b"abc");
        assert!(matches!(short, Err(FsError::Invalid(_))), "{short:?}");
        handle.release().unwrap();
    }
}

#[test]
fn random_trees_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path());
    let objects: Vec<_> = FORMS
        .iter()
        .map(|&(name, dims, dtype, layout, codec)| {
            let handle = cluster.object(name, dims, dtype, layout, codec);
            let elem = dtype.parse::<DType>().unwrap().size();
            let naive = written(&handle, dims, elem, 300);
            (name, handle, std::cell::RefCell::new(naive))
        })
        .collect();
    let mut runner = proptest::test_runner::TestRunner::new(config(400));
    let trees = (
        prop::collection::vec(tree(), 1..4),
        1u64..3,
        0..objects.len(),
    );
    runner
        .run(&trees, |(batches, unit, which)| {
            let (name, handle, naive) = &objects[which];
            let plan = Plan::new(&batches, unit).unwrap();
            let size = naive.borrow().len() as u64;
            if plan.file_span().is_none_or(|span| span.1 <= size) {
                write_and_compare(handle, &mut naive.borrow_mut(), &batches, unit, name);
            }
            Ok(())
        })
        .unwrap();
    for (_, handle, _) in objects {
        handle.release().unwrap();
    }
    cluster.close();
}

/// A batch that reaches beyond the end extends an object with an unlimited axis, in all layouts.
#[test]
fn a_batch_extends_an_object() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path());
    for (name, layout) in [
        ("grown", "aligned"),
        ("grid", "grid:64"),
        ("one", "canonical"),
    ] {
        let handle = cluster.growing(name, layout);
        let batch = repeated(
            Place::at(10).every(100),
            Place::at(0).every(4),
            30,
            Pattern::Data(4),
        );
        let plan = Plan::new(&[batch], 1).unwrap();
        let data: Vec<u8> = (1..=120).collect();
        let longer = handle.write_batch(&plan, 0..plan.bytes(), &data).unwrap();
        assert!(longer.size_changed, "{name}");
        assert_eq!(handle.size(), 2914, "{name}");
        let mut expected = vec![0; 2914];
        for piece in 0..30 {
            expected[10 + piece * 100..][..4].copy_from_slice(&data[piece * 4..][..4]);
        }
        handle.flush().unwrap();
        let mut got = Vec::new();
        handle
            .read(0, 5000, &mut |bytes: &[u8]| got.extend_from_slice(bytes))
            .unwrap();
        assert!(got == expected, "{name}");
        handle.release().unwrap();
    }
    cluster.close();
}

/// Writing a part of a batch extends the object only as far as that part, and costs nothing for the rest.
#[test]
fn a_part_of_a_batch_is_independent_of_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path());
    let inner = vec![
        repeated(Place::after(0), Place::after(0), 1, Pattern::Data(1)),
        repeated(Place::after(3), Place::after(1), 1, Pattern::Data(2)),
    ];
    let pairs = Batch {
        file: Place::at(0).every(8),
        memory: Place::at(0).every(3),
        count: 1_000_000,
        pattern: Pattern::Vector(inner),
    };
    let plan = Plan::packed(&[pairs], 1).unwrap();
    let data: Vec<u8> = (0..12_000u32).map(|at| (at % 251) as u8).collect();
    let bytes = |fill: u8| {
        let mut bytes = vec![fill; 3999 * 8 + 5];
        for (pair, three) in data.chunks(3).enumerate() {
            bytes[pair * 8] = three[0];
            bytes[pair * 8 + 3..][..2].copy_from_slice(&three[1..]);
        }
        bytes
    };
    let fixed = |name, layout| cluster.object(name, &[64, 1024], "u1", layout, "none");
    for (name, handle) in [
        ("grown", cluster.growing("grown", "aligned")),
        ("grown grid", cluster.growing("grid", "grid:64")),
        ("fixed", fixed("a", "aligned")),
        ("fixed grid", fixed("g", "grid:16,1024")),
    ] {
        let expected = bytes(if name.starts_with("grown") { 0 } else { 7 });
        handle.write_batch(&plan, 0..12_000, &data).unwrap();
        if name.starts_with("grown") {
            assert_eq!(handle.size(), expected.len() as u64, "{name}");
        }
        let mut got = vec![0; 12_000];
        handle.read_batch(&plan, 0..12_000, &mut got).unwrap();
        assert!(got == data, "{name}");
        let mut got = Vec::new();
        handle
            .read(0, expected.len(), &mut |bytes: &[u8]| {
                got.extend_from_slice(bytes)
            })
            .unwrap();
        assert!(got == expected, "{name}");
        handle.release().unwrap();
    }
    cluster.close();
}

/// The distance between a few pieces costs nothing, however many chunks it spans.
#[test]
fn pieces_may_lie_far_apart() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path());
    let batch = repeated(
        Place::at(5).every(1 << 40),
        Place::at(0).every(2),
        3,
        Pattern::Data(2),
    );
    let plan = Plan::packed(&[batch], 1).unwrap();
    for (name, layout) in [("far", "aligned"), ("far grid", "grid:64")] {
        let handle = cluster.growing(name, layout);
        handle.write_batch(&plan, 0..6, b"abcdef").unwrap();
        assert_eq!(handle.size(), (2 << 40) + 7, "{name}");
        handle.flush().unwrap();
        let mut got = [0; 6];
        handle.read_batch(&plan, 0..6, &mut got).unwrap();
        assert_eq!(&got, b"abcdef", "{name}");
        handle.release().unwrap();
    }
    cluster.close();
}

#[test]
fn random_trees_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path());
    let objects: Vec<_> = FORMS
        .iter()
        .map(|&(name, dims, dtype, layout, codec)| {
            let handle = cluster.object(name, dims, dtype, layout, codec);
            let elem = dtype.parse::<DType>().unwrap().size();
            let naive = written(&handle, dims, elem, 300);
            (name, handle, naive)
        })
        .collect();
    let mut runner = proptest::test_runner::TestRunner::new(config(3000));
    let trees = (
        prop::collection::vec(tree(), 1..4),
        1u64..3,
        0..objects.len(),
    );
    let read = std::cell::Cell::new(0);
    runner
        .run(&trees, |(batches, unit, which)| {
            let (name, handle, naive) = &objects[which];
            let plan = Plan::new(&batches, unit).unwrap();
            let size = naive.len() as u64;
            let end = plan.memory_span().map_or(0, |span| span.1);
            if plan.file_span().is_some_and(|span| span.1 > size) {
                let mut out = vec![0xee; end as usize];
                let got = handle.read_batch(&plan, 0..plan.bytes(), &mut out);
                let refused = matches!(got, Err(FsError::Invalid(_)));
                prop_assert!(refused && out.iter().all(|&byte| byte == 0xee), "{got:?}");
                return Ok(());
            }
            match plan.check_targets() {
                Ok(()) => {
                    read.set(read.get() + 1);
                    compare(handle, naive, &batches, unit, name);
                }
                Err(_) => {
                    let packed = Plan::packed(&batches, unit).unwrap();
                    let mut out = vec![0; packed.bytes() as usize];
                    handle
                        .read_batch(&packed, 0..packed.bytes(), &mut out)
                        .unwrap();
                    let expected: Vec<u8> = interpret(&batches, unit as i64)
                        .iter()
                        .map(|byte| naive[byte.0])
                        .collect();
                    prop_assert!(out == expected);
                    let mut out = vec![0; end as usize];
                    let got = handle.read_batch(&plan, 0..plan.bytes(), &mut out);
                    prop_assert!(matches!(got, Err(FsError::Batch { .. })), "{got:?}");
                }
            }
            Ok(())
        })
        .unwrap();
    assert!(read.get() > 200, "only {} trees were read", read.get());
    for (_, handle, _) in objects {
        handle.release().unwrap();
    }
    cluster.close();
}

/// One message a server, however many pieces; a batch of a billion pieces is a small request.
#[test]
fn pieces_cost_no_additional_messages() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path());
    let handle = cluster.object("blocks", &[3_000_000], "u1", "grid:100000", "none");
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at * 7 / 3) as u8).collect();
    handle.write(0, &bytes).unwrap();
    handle.flush().unwrap();
    let count_of = |side: &str| {
        let stats = cluster.client().stats();
        stats["counters"][side]["messages"].as_u64().unwrap()
    };
    let messages = || count_of("read");
    let every = |count: u64, stride: i64| {
        repeated(
            Place::at(1).every(stride),
            Place::at(0).every(1),
            count,
            Pattern::Data(1),
        )
    };
    for (count, stride) in [(30, 100_000), (3_000, 1000), (1_499_999, 2)] {
        let plan = Plan::new(&[every(count, stride)], 1).unwrap();
        let mut got = vec![0; count as usize];
        let before = messages();
        handle.read_batch(&plan, 0..plan.bytes(), &mut got).unwrap();
        assert_eq!(messages() - before, SERVERS as u64, "{count} pieces");
        let expected: Vec<u8> = (0..count as usize)
            .map(|at| bytes[1 + at * stride as usize])
            .collect();
        assert!(got == expected);
        let before = count_of("write");
        handle.write_batch(&plan, 0..plan.bytes(), &got).unwrap();
        assert_eq!(
            count_of("write") - before,
            SERVERS as u64,
            "{count} pieces written"
        );
    }
    // Ten levels of ten: the object repeatedly.
    let mut batch = Batch::data(Place::after(0), Place::after(0), 1);
    for level in 0..9 {
        let file = Place::after(1).every(if level < 6 {
            3 * 10i64.pow(level) / 2 + 1
        } else {
            0
        });
        batch = repeated(file, Place::after(0), 10, Pattern::Vector(vec![batch]));
    }
    let plan = Plan::packed(std::slice::from_ref(&batch), 1).unwrap();
    assert_eq!(plan.bytes(), 1_000_000_000);
    let middle = 499_990_000..500_010_000;
    let mut got = vec![0; 20_000];
    let before = messages();
    handle.read_batch(&plan, middle.clone(), &mut got).unwrap();
    assert!(messages() - before <= SERVERS as u64);
    let place = |packed: u64| {
        let digits = (0..9u32).map(|level| (level, (packed / 10u64.pow(level) % 10) as i64));
        let strides = digits.map(|(level, digit)| match level {
            0..6 => digit * (3 * 10i64.pow(level) / 2 + 1),
            _ => 0,
        });
        9 + strides.sum::<i64>()
    };
    let expected: Vec<u8> = middle.map(|packed| bytes[place(packed) as usize]).collect();
    assert!(got == expected);
    handle.release().unwrap();
    cluster.close();
}

/// Batches of irregular pieces become few chunks of an `aligned` object, together with the bytes between them; the
/// pieces are stored as they are where another client may write between them.
#[test]
fn irregular_pieces_become_few_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path());
    for (name, dims, dtype, codec) in [
        ("rows", &[300u64, 400][..], "i4", "none"),
        ("row", &[160_000], "V3", "shuffle+zstd:1"),
    ] {
        let handle = cluster.object(name, dims, dtype, "aligned", codec);
        let size = handle.size();
        let mut naive = vec![0; size as usize];
        let mut random = 7u64;
        for (round, gap) in [(1u8, 40), (2, 90), (3, 2000)] {
            let mut at = 0;
            let mut batches = Vec::new();
            let mut memory = 0;
            loop {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                at += 1 + (random >> 33) % gap;
                let bytes = 1 + (random >> 60) % 3;
                if at + bytes > size || batches.len() == 9000 {
                    break;
                }
                let place = |at: u64| Place::at(at as i64);
                batches.push(Batch::data(place(at), place(memory), bytes));
                memory += bytes;
                at += bytes;
            }
            let plan = Plan::new(&batches, 1).unwrap();
            let buffer: Vec<u8> = (0..memory).map(|at| (at * 3) as u8 ^ round).collect();
            handle.write_batch(&plan, 0..plan.bytes(), &buffer).unwrap();
            for (file, memory) in interpret(&batches, 1) {
                naive[file] = buffer[memory];
            }
            // The bytes between them: fill, or the previous data.
            let mut got = Vec::new();
            let mut fill = vec![0; size as usize];
            handle
                .read(0, size as usize, &mut |bytes: &[u8]| {
                    got.extend_from_slice(bytes)
                })
                .unwrap();
            if round == 1 {
                let filled: &[u8] = if dtype == "V3" {
                    &[7, 8, 9]
                } else {
                    &[7, 0, 0, 0]
                };
                for (at, byte) in fill.iter_mut().enumerate() {
                    *byte = filled[at % filled.len()];
                }
                let mut named = vec![false; size as usize];
                interpret(&batches, 1)
                    .iter()
                    .for_each(|byte| named[byte.0] = true);
                for (at, byte) in naive.iter_mut().enumerate().filter(|(at, _)| !named[*at]) {
                    *byte = fill[at];
                }
            }
            assert!(got == naive, "{name}, {round}");
        }
        let chunks = cluster.client().layout(handle.ino()).unwrap().chunks.len();
        assert!(chunks < 2000, "{name}: {chunks} chunks");
        handle.release().unwrap();
    }
    cluster.close();
}

/// Packed bytes of more than a message: each server gets as few messages as its share needs, and at most one more.
#[test]
fn large_batches_are_split_where_messages_are_full() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path());
    let handle = cluster.object("blocks", &[300_000], "u1", "grid:100000", "none");
    let bytes: Vec<u8> = (0..300_000u32).map(|at| (at * 11 / 3) as u8).collect();
    handle.write(0, &bytes).unwrap();
    handle.flush().unwrap();
    // All of it 700 times: 200 MiB, 67 from each server.
    let plan = Plan::packed(
        &[repeated(
            Place::at(0),
            Place::at(0),
            700,
            Pattern::Data(300_000),
        )],
        1,
    )
    .unwrap();
    let mut got = vec![0; plan.bytes() as usize];
    let messages = || {
        let stats = cluster.client().stats();
        stats["counters"]["read"]["messages"].as_u64().unwrap()
    };
    let before = messages();
    handle.read_batch(&plan, 0..plan.bytes(), &mut got).unwrap();
    let used = messages() - before;
    assert!(got.chunks(300_000).all(|part| part == bytes));
    // 200 MiB would be 4 messages from one server; here there may be two for each full one.
    assert!(used <= 2 * 3 + 1, "{used} messages");
    handle.release().unwrap();
    cluster.close();
}

/// A batch in more chunks than a plan may have is refused, with advice in the error; parts of it succeed.
#[test]
fn a_plan_is_bounded() {
    const ALL: u64 = 3_000_000;
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path());
    let handle = cluster.object("grid", &[ALL], "u1", "grid:1", "none");
    let every = |stride: i64| {
        let count = ALL / stride as u64;
        let file = Place::at(0).every(stride);
        let batch = repeated(file, Place::at(0).every(1), count, Pattern::Data(1));
        Plan::new(&[batch], 1).unwrap()
    };
    let plan = every(1000);
    let mut bytes = vec![1; 3000];
    let is_refused = |refused: Result<(), FsError>| {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("ask for less at once"), "{refused}");
    };
    is_refused(handle.read_batch(&plan, 0..3000, &mut bytes));
    is_refused(handle.write_batch(&plan, 0..3000, &bytes).map(drop));
    let read = handle.read_batch_transfer(plan.clone(), bytes.clone());
    is_refused(read.unwrap().wait().map(drop).map_err(FsError::from));
    let write = handle.write_batch_transfer(plan.clone(), bytes.clone());
    is_refused(write.unwrap().wait().map(drop).map_err(FsError::from));
    let all = slabfs_model::Hyperslab::all(&[ALL]);
    let memory = slabfs_fs::client::transfer::Memory::packed();
    // The first tenth of it.
    handle.write_batch(&plan, 0..300, &bytes).unwrap();
    handle.read_batch(&plan, 0..300, &mut bytes).unwrap();
    // A selection is read in several requests.
    let read = handle.read_transfer(&all, &memory, vec![9; ALL as usize]);
    let read = read.unwrap().wait().map_err(FsError::from).unwrap();
    // Unwritten bytes read as fill.
    let written = |at: usize| match at.is_multiple_of(1000) && at < 300_000 {
        true => 1,
        false => 7,
    };
    let mut bytes = read.into_iter().enumerate();
    assert!(bytes.all(|(at, byte)| byte == written(at)));
    handle.release().unwrap();
    cluster.close();
}

/// Peak of this process's memory so far, in MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    kilobytes.unwrap().parse::<u64>().unwrap() >> 10
}

/// `cargo test --release -p slabfs-fs --test batch -- --ignored --nocapture tiny_pieces`: writes 2^20 pieces of one
/// byte into an `aligned` object; prints the time, the memory, and how long concurrent writes wait.
#[test]
#[ignore = "measures"]
fn tiny_pieces() {
    const PIECES: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open_as(dir.path(), false, ClientOptions::default());
    for (name, dtype, stride) in [("in step", "u1", 2i64), ("out of step", "f4", 3)] {
        let elem = dtype.parse::<DType>().unwrap().size();
        let dims = [4 * PIECES / elem];
        let handle = cluster.object(name, &dims, dtype, "aligned", "none");
        let file = Place::at(0).every(stride);
        let batch = repeated(file, Place::at(0).every(1), PIECES, Pattern::Data(1));
        let plan = Plan::new(&[batch], 1).unwrap();
        let bytes = vec![7; PIECES as usize];
        let before = peak();
        let over = std::sync::atomic::AtomicBool::new(false);
        let mut longest = Duration::ZERO;
        let mut took = [Duration::ZERO; 2];
        std::thread::scope(|threads| {
            let other = threads.spawn(|| {
                let mut longest = Duration::ZERO;
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let begun = std::time::Instant::now();
                    handle.write(4 * PIECES - 1, b"x").unwrap();
                    longest = longest.max(begun.elapsed());
                }
                longest
            });
            let begun = std::time::Instant::now();
            handle.write_batch(&plan, 0..plan.bytes(), &bytes).unwrap();
            took[0] = begun.elapsed();
            handle.flush().unwrap();
            took[1] = begun.elapsed();
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            longest = other.join().unwrap();
        });
        let [wrote, flushed] = took;
        println!(
            "{name}: written in {wrote:.2?}, flushed in {flushed:.2?}; others waited {longest:.2?} at most; {} MB more",
            peak() - before
        );
        handle.release().unwrap();
    }
    cluster.close();
}

/// `cargo test --release -p slabfs-fs --test batch -- --ignored --nocapture speed`: nested-strided reads of 256 MiB in
/// pieces of several sizes, compared with a plain read of as many bytes through the same sockets.
#[test]
#[ignore = "measures"]
fn speed() {
    const ALL: u64 = 256 << 20;
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path());
    let object = format!("grid:{}", 8 << 20);
    let handle = cluster.object("large", &[2 * ALL + (64 << 20)], "u1", &object, "none");
    let block = vec![7; 4 << 20];
    for at in (0..handle.size()).step_by(block.len()) {
        handle.write(at, &block).unwrap();
    }
    handle.flush().unwrap();
    let mut out = vec![1; ALL as usize];
    let mut measure = |what: &str, plan: &Plan| {
        let mut best = f64::MAX;
        for _ in 0..3 {
            let begun = std::time::Instant::now();
            handle.read_batch(plan, 0..plan.bytes(), &mut out).unwrap();
            best = best.min(begun.elapsed().as_secs_f64());
        }
        let rate = plan.bytes() as f64 / best / 1e6;
        println!("{what:>8}: {rate:.0} MB/s");
    };
    let one = Batch::data(Place::at(0), Place::at(0), ALL);
    measure("plain", &Plan::new(&[one], 1).unwrap());
    for bytes in [8u64, 64, 512, 4096] {
        let inner = 4096;
        let row = repeated(
            Place::after(0).every(2 * bytes as i64),
            Place::after(0).every(bytes as i64),
            inner,
            Pattern::Data(bytes),
        );
        let rows = repeated(
            Place::at(0).every((2 * inner * bytes + 64) as i64),
            Place::at(0).every((inner * bytes) as i64),
            ALL / inner / bytes,
            Pattern::Vector(vec![row]),
        );
        measure(&format!("{bytes} bytes"), &Plan::new(&[rows], 1).unwrap());
    }
    handle.release().unwrap();
    cluster.close();
}

/// Batches of so many irregular pieces that ranges with the gaps between them are written back: two at a time on one
/// object, each of bytes that the other does not name.
#[test]
fn batches_packed_at_the_same_time_keep_each_others_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path());
    let handle = cluster.object("gaps", &[12_000], "u1", "aligned", "none");
    let mut random = 5u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % below
    };
    let mut expected = vec![7u8; 12_000];
    for round in 1..=10u8 {
        let mut places: Vec<usize> = (0..12_000).collect();
        for at in (1..places.len()).rev() {
            places.swap(at, next(at + 1));
        }
        std::thread::scope(|threads| {
            for (number, own) in places[..4000].chunks(2000).enumerate() {
                let byte = 100 + round * 2 + number as u8;
                let mut own = own.to_vec();
                own.sort_unstable();
                own.iter().for_each(|&at| expected[at] = byte);
                let pieces: Vec<Batch> = own
                    .iter()
                    .enumerate()
                    .map(|(at, &place)| {
                        Batch::data(Place::at(place as i64), Place::at(at as i64), 1)
                    })
                    .collect();
                let handle = &handle;
                threads.spawn(move || {
                    let plan = Plan::new(&pieces, 1).unwrap();
                    let bytes = vec![byte; pieces.len()];
                    handle.write_batch(&plan, 0..plan.bytes(), &bytes).unwrap();
                });
            }
        });
        let mut got = vec![1; 12_000];
        handle
            .read(0, 12_000, &mut |bytes: &[u8]| got.copy_from_slice(bytes))
            .unwrap();
        let wrong: Vec<_> = (0..got.len())
            .filter(|&at| got[at] != expected[at])
            .map(|at| (at, got[at], expected[at]))
            .collect();
        assert!(
            wrong.is_empty(),
            "round {round}: {} wrong: {:?}",
            wrong.len(),
            &wrong[..wrong.len().min(10)]
        );
    }
    handle.release().unwrap();
    cluster.close();
}
