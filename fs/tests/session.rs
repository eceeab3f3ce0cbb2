//! Transfers and batches through sessions, to three data servers over sockets: compared with naive arrays and an
//! interpreter that processes every byte.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod sockets;
mod trees;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use slabfs_fs::session::{
    Access, Axis, Batch, ConnectOptions, DType, Error, ErrorKind, Hyperslab, Memory, Object,
    ObjectSpec, Pattern, Place, Region, Select, Session, Transfer, Unit, scope, start_all,
    start_all_async, wait_all,
};
use sockets::Cluster;
use trees::{Door, patterns_go_through, trees_go_through};

/// Objects for batches, each of 4800 bytes or more: name, dims, dtype, layout.
const FORMS: [(&str, &[u64], &str, &str); 4] = [
    ("plain", &[40, 30], "i4", "aligned"),
    ("deep", &[10, 12, 5], "f8", "aligned"),
    ("grid", &[40, 30], "i4", "grid:7,11"),
    ("blocks", &[4900], "u1", "grid:512"),
];

fn dtype(text: &str) -> DType {
    text.parse().unwrap()
}

struct Stage {
    session: Session,
    cluster: Cluster,
    _dir: tempfile::TempDir,
}

impl Stage {
    fn open() -> Stage {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster::open(dir.path(), 3);
        Stage {
            session: Session::connect(&ConnectOptions::to(cluster.place())).unwrap(),
            cluster,
            _dir: dir,
        }
    }

    fn object(&self, name: &str, dims: &[u64], of: &str, layout: &str) -> Object {
        let spec = ObjectSpec::array(dims, dtype(of))
            .layout(layout.parse().unwrap())
            .fill("7");
        self.session.create(name, &spec).unwrap()
    }

    fn close(self) {
        self.session.close().unwrap();
        drop(self.session);
        self.cluster.close();
    }
}

/// The way a batch is run.
#[derive(Debug, Clone, Copy)]
enum Way {
    Blocking,
    /// A transfer of an owned buffer.
    Owned,
    /// A transfer of a borrowed buffer, waited for as a future.
    Scoped,
}

struct Through<'a> {
    object: &'a Object,
    way: Way,
}

fn unit_of(unit: u64) -> Unit {
    match unit {
        1 => Unit::Bytes,
        _ => Unit::Elements,
    }
}

impl Door for Through<'_> {
    fn read(&self, batches: &[Batch], unit: u64, into: &mut [u8]) -> Result<(), String> {
        let unit = unit_of(unit);
        let done: Result<(), Error> = match self.way {
            Way::Blocking => self.object.read_batch(batches, unit, into),
            Way::Owned => {
                let own = into.to_vec();
                let made = self.object.read_batch_transfer(batches, unit, own);
                made.and_then(Transfer::wait)
                    .map(|own| into.copy_from_slice(&own))
                    .map_err(Error::from)
            }
            Way::Scoped => scope(|scope| {
                let made = scope.read_batch_from(self.object, batches, unit, into)?;
                block_on(made)?;
                Ok(())
            }),
        };
        done.map_err(|error| error.to_string())
    }

    fn write(&self, batches: &[Batch], unit: u64, from: &[u8]) -> Result<(), String> {
        let unit = unit_of(unit);
        let done: Result<(), Error> = match self.way {
            Way::Blocking => self.object.write_batch(batches, unit, from),
            Way::Owned => {
                let made = self
                    .object
                    .write_batch_transfer(batches, unit, from.to_vec());
                made.and_then(Transfer::wait).map(drop).map_err(Error::from)
            }
            Way::Scoped => scope(|scope| {
                let made = scope.write_batch_to(self.object, batches, unit, from)?;
                block_on(made)?;
                Ok(())
            }),
        };
        done.map_err(|error| error.to_string())
    }

    fn all(&self) -> Vec<u8> {
        self.object.read(Select::All).unwrap()
    }
}

/// Polls on this thread, which sleeps until it is woken.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    struct Unparks(std::thread::Thread);
    impl Wake for Unparks {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unparks(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match std::pin::Pin::new(&mut future).poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn patterns_of_the_document() {
    let stage = Stage::open();
    for (name, dims, of, layout) in FORMS {
        let object = stage.object(name, dims, of, layout);
        for way in [Way::Blocking, Way::Owned, Way::Scoped] {
            let object = &object;
            patterns_go_through(&Through { object, way }, &format!("{name}, {way:?}"));
        }
        object.close().unwrap();
    }
    stage.close();
}

#[test]
fn random_trees() {
    let stage = Stage::open();
    for (name, dims, of, layout) in FORMS {
        let object = stage.object(name, dims, of, layout);
        for way in [Way::Blocking, Way::Owned] {
            let through = Through {
                object: &object,
                way,
            };
            let what = format!("{name}, {way:?}");
            trees_go_through(&through, dtype(of).size(), 150, &what);
        }
        object.close().unwrap();
    }
    stage.close();
}

/// An error about an element of a batch contains the path of the element.
#[test]
fn errors_name_the_path_of_an_element() {
    let stage = Stage::open();
    let object = stage.object("a", &[40, 30], "i4", "aligned");
    let data = |file, memory| Batch::data(Place::at(file), memory, 4);
    let vector = |below| {
        let place = Place::after(0);
        Batch::repeated(place, place, 1, Pattern::Vector(below))
    };
    let after = Place::after(0);
    let below = vec![
        data(0, after),
        vector(vec![data(8, Place::after(40)), data(-3, after)]),
    ];
    let negative = [data(0, after), vector(below)];
    let one = [vec![1, 1, 1]];
    let mut buffer = vec![0; 100];
    let refused = object
        .read_batch(&negative, Unit::Bytes, &mut buffer)
        .unwrap_err();
    assert_eq!(refused.elements(), one, "{refused}");
    assert!(refused.to_string().contains("[1][1][1]"), "{refused}");
    let refused = object
        .write_batch(&negative, Unit::Bytes, &buffer)
        .unwrap_err();
    assert_eq!(refused.elements(), one, "{refused}");
    let over = [data(0, Place::at(0)), vector(vec![data(9, Place::at(2))])];
    let both = [vec![0], vec![1, 0]];
    let refused = object
        .read_batch(&over, Unit::Bytes, &mut buffer)
        .unwrap_err();
    assert_eq!(refused.elements(), both, "{refused}");
    let refused = object
        .read_batch_transfer(&over, Unit::Bytes, buffer)
        .unwrap_err();
    assert_eq!(Error::from(refused).elements(), both);
    let short = object.write_batch(&over, Unit::Bytes, &[0; 2]).unwrap_err();
    assert!(short.elements().is_empty());
    object.close().unwrap();
    stage.close();
}

#[test]
fn regions_transfer_with_other_memory_layouts_and_dtypes() {
    let stage = Stage::open();
    let object = stage.object("a", &[6, 8], "i2", "aligned");
    let slab = Hyperslab {
        axes: [
            Axis::span(1, 3),
            Axis {
                start: 0,
                stride: 2,
                count: 4,
                block: 1,
            },
        ]
        .into_iter()
        .collect(),
    };
    // Doubles in Fortran order, after a header of 16 bytes: element (i, j) at 16 + 8 i + 24 j.
    let memory = Memory::strided(16, [3, 4], [8, 24]).of_type(dtype("f8"));
    let mut buffer = vec![0u8; 16 + 12 * 8];
    for (at, value) in buffer[16..].chunks_exact_mut(8).zip(0..) {
        at.copy_from_slice(&f64::from(value).to_le_bytes());
    }
    let written = object.write_transfer(slab.clone(), &memory, buffer.clone());
    assert_eq!(written.unwrap().wait().unwrap(), buffer);
    let values: Vec<i16> = object
        .read("[1:4]")
        .unwrap()
        .chunks_exact(2)
        .map(|two| i16::from_le_bytes([two[0], two[1]]))
        .collect();
    assert_eq!(values[..8], [0, 7, 3, 7, 6, 7, 9, 7]);
    assert_eq!(values[16..], [2, 7, 5, 7, 8, 7, 11, 7]);
    // The same by blocking calls, and back by a transfer.
    let mut back = vec![0u8; buffer.len()];
    object.read_into(slab.clone(), &mut back, &memory).unwrap();
    assert_eq!(back, buffer);
    let mut again = vec![0u8; buffer.len()];
    scope(|scope| {
        let read = scope.read_from(&object, slab.clone(), &memory, &mut again)?;
        read.wait()?;
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(again, buffer);
    buffer[16..24].copy_from_slice(&1e9f64.to_le_bytes());
    let refused = object.write_from(slab.clone(), &buffer, &memory);
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("element 0"), "{refused}");
    let refused = object.write_transfer(slab, &memory, buffer).unwrap().wait();
    assert_eq!(
        Error::from(refused.unwrap_err()).to_string(),
        "element 0 of the selection is 1000000000, which dtype i2 cannot represent"
    );
    object.close().unwrap();
    stage.close();
}

/// Overlapping batches and selections that are in flight together run in the order of their starts.
#[test]
fn batches_and_regions_run_in_order() {
    let stage = Stage::open();
    let object = stage.object("a", &[64, 64], "u1", "aligned");
    let column = [Batch::repeated(
        Place::at(5).every(64),
        Place::at(0).every(1),
        64,
        Pattern::Data(1),
    )];
    for round in 0..20u8 {
        let row = |value| vec![value; 64];
        let one = object
            .write_transfer("[9]", &Memory::packed(), row(round))
            .unwrap();
        let two = object
            .write_batch_transfer(&column, Unit::Elements, row(100 + round))
            .unwrap();
        let three = object
            .read_transfer("[9]", &Memory::packed(), row(0))
            .unwrap();
        let four = object
            .read_batch_transfer(&column, Unit::Bytes, row(0))
            .unwrap();
        let mut all = [one, two, three, four];
        start_all(&mut all).unwrap();
        let results = wait_all(all).unwrap();
        let mut results = results.into_iter().map(Result::unwrap);
        let (_, _, row, column) = (
            results.next().unwrap(),
            results.next().unwrap(),
            results.next().unwrap(),
            results.next().unwrap(),
        );
        let mut expected = vec![round; 64];
        expected[5] = 100 + round;
        assert_eq!(row, expected);
        assert_eq!(column, [100 + round; 64]);
    }
    // Transfers see the data of blocking writes, and blocking reads see the data of transfers.
    object.write("[0]", &[1; 64]).unwrap();
    object.write_batch(&column, Unit::Bytes, &[2; 64]).unwrap();
    let read = object.read_batch_transfer(&column, Unit::Bytes, vec![0; 64]);
    assert_eq!(read.unwrap().wait().unwrap(), [2; 64]);
    let mut write = [object
        .write_batch_transfer(&column, Unit::Bytes, vec![3; 64])
        .unwrap()];
    block_on(start_all_async(&mut write)).unwrap();
    let [write] = write;
    block_on(write).unwrap();
    assert_eq!(object.read("[0,:7]").unwrap(), [1, 1, 1, 1, 1, 3, 1]);
    object.close().unwrap();
    stage.close();
}

#[test]
fn a_transfer_and_its_control_refer_to_the_same_transfer() {
    let stage = Stage::open();
    let object = stage.object("a", &[1 << 16], "u1", "aligned");
    let made = || object.write_transfer(Select::All, &Memory::packed(), vec![1; 1 << 16]);
    let one = made().unwrap();
    let control = one.control();
    assert!(!control.test());
    control.wait();
    control.start().unwrap();
    let other = control.clone();
    std::thread::scope(|threads| {
        threads.spawn(move || other.wait());
    });
    assert!(control.test() && one.test());
    one.wait().unwrap();

    let cancelled = made().unwrap();
    cancelled.control().cancel();
    let error = Error::from(cancelled.wait().unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Cancelled);

    // A dropped transfer cannot be started.
    let dropped = made().unwrap();
    let control = dropped.control();
    drop(dropped);
    control.start().unwrap();
    assert!(control.test());
    let stats = stage.session.stats();
    assert_eq!(
        stats.pointer("/transfers_running"),
        Some(&serde_json::json!(0)),
        "{stats}"
    );
    object.close().unwrap();
    stage.close();
}

#[test]
fn invalid_requests_are_refused_before_data_moves() {
    let stage = Stage::open();
    stage.object("a", &[8, 8], "i4", "aligned").close().unwrap();
    let object = stage.session.open("a", Access::ReadWrite).unwrap();
    let invalid = |batch: Batch, len: usize, says: &str| {
        let mut buffer = vec![9; len];
        let batch = [batch];
        let error = object
            .read_batch(&batch, Unit::Bytes, &mut buffer)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(buffer, vec![9; len]);
        let made = object.read_batch_transfer(&batch, Unit::Bytes, buffer);
        let error = made
            .and_then(Transfer::wait)
            .map(drop)
            .map_err(Error::from)
            .unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    };
    let at = Place::at;
    invalid(
        Batch::data(at(0), at(0), 9),
        8,
        "byte 9 of a buffer that has 8",
    );
    invalid(Batch::data(at(-1), at(0), 1), 8, "element 0");
    invalid(Batch::data(at(i64::MAX), at(0), 2), 8, "2^63-1");
    invalid(Batch::data(at(255), at(0), 2), 8, "byte 257");
    let over = Batch::repeated(at(0).every(4), at(0).every(3), 2, Pattern::Data(4));
    invalid(over, 8, "into the same bytes");
    let beyond = [Batch::data(at(255), at(0), 2)];
    let error = object
        .write_batch(&beyond, Unit::Bytes, &[1, 2])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    object.close().unwrap();

    let reader = stage.session.open("a", Access::Read).unwrap();
    let writer = stage.session.open("a", Access::Write).unwrap();
    let four = [Batch::data(at(0), at(0), 4)];
    let error = reader.write_batch(&four, Unit::Bytes, &[0; 4]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    let error = writer
        .read_batch(&four, Unit::Bytes, &mut [0; 4])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let region = || Region::new(&[0, 0], &[1, 1]);
    let failed = reader
        .write_transfer(region(), &Memory::packed(), vec![0; 4])
        .unwrap_err();
    assert_eq!(failed.buffer, [0; 4]);
    assert_eq!(Error::from(failed).kind(), ErrorKind::ReadOnly);
    writer
        .read_transfer(region(), &Memory::packed(), vec![0; 4])
        .unwrap_err();
    reader
        .read_transfer("[9]", &Memory::packed(), vec![0; 4])
        .unwrap_err();
    reader
        .read_transfer(region(), &Memory::packed(), vec![0; 5])
        .unwrap_err();
    let late = reader
        .read_transfer(region(), &Memory::packed(), vec![0; 4])
        .unwrap();
    reader.close().unwrap();
    late.wait().unwrap_err();
    writer.close().unwrap();
    stage.close();
}
