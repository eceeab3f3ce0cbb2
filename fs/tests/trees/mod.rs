//! Nested batches for tests: an interpreter that processes every byte, the patterns named in the source document,
//! random trees, and a harness that runs all of them through a `Door`: an interface that reads and writes batches.

#![allow(dead_code, reason = "not every program needs all of it")]

use std::cell::{Cell, RefCell};

use proptest::prelude::*;
use slabfs_model::batch::{Batch, Pattern, Place, Plan};

/// The position of each byte of a batch in the object and in the buffer.
pub(crate) fn interpret(batches: &[Batch], unit: i64) -> Vec<(usize, usize)> {
    fn vector(batches: &[Batch], unit: i64, base: [i64; 2], bytes: &mut Vec<(usize, usize)>) {
        let mut before = base;
        for batch in batches {
            for (before, place) in before.iter_mut().zip([&batch.file, &batch.memory]) {
                let from = if place.absolute { 0 } else { *before };
                *before = from + place.offset * unit;
            }
            for number in 0..batch.count as i64 {
                let file = before[0] + number * batch.file.stride * unit;
                let memory = before[1] + number * batch.memory.stride * unit;
                match &batch.pattern {
                    Pattern::Data(size) => {
                        for byte in 0..*size as i64 * unit {
                            bytes.push(((file + byte) as usize, (memory + byte) as usize));
                        }
                    }
                    Pattern::Vector(inner) => vector(inner, unit, [file, memory], bytes),
                }
            }
        }
    }
    let mut bytes = Vec::new();
    vector(batches, unit, [0, 0], &mut bytes);
    bytes
}

/// A pattern, repeated.
pub(crate) fn repeated(file: Place, memory: Place, count: u64, pattern: Pattern) -> Batch {
    Batch::repeated(file, memory, count, pattern)
}

/// The patterns named in the source document, for an object of at least 4800 bytes.
pub(crate) fn patterns() -> Vec<(&'static str, Vec<Batch>)> {
    let at = Place::at;
    let after = Place::after;
    let data = Pattern::Data;
    let vector = Pattern::Vector;
    let standard = Batch::data(at(1003), at(5), 700);
    let strided = repeated(at(100).every(48), at(0).every(8), 90, data(8));
    let nested = repeated(
        at(40).every(960),
        at(0).every(64),
        5,
        vector(vec![repeated(
            after(0).every(120),
            after(0).every(8),
            8,
            data(8),
        )]),
    );
    let second = repeated(
        at(4000).every(-300),
        at(2000).every(30),
        6,
        vector(vec![repeated(
            after(4).every(16),
            after(0).every(5),
            6,
            data(5),
        )]),
    );
    let deep = repeated(
        at(8).every(1600),
        at(0).every(300),
        3,
        vector(vec![
            Batch::data(after(0), after(0), 16),
            repeated(
                after(96).every(240),
                after(16).every(48),
                5,
                vector(vec![
                    repeated(after(0).every(24), after(0).every(8), 4, data(8)),
                    Batch::data(after(200), after(32), 3),
                ]),
            ),
        ]),
    );
    let mixed = vec![
        Batch::data(at(500), at(100), 10),
        Batch::data(after(30), after(10), 10),
        repeated(after(-80).every(7), after(10).every(3), 3, data(3)),
        Batch::data(at(4790), after(9), 10),
        Batch::data(after(-4790), after(10), 1),
    ];
    let list = (0..40)
        .map(|n| Batch::data(at(n * 117), at(n * 20), 20))
        .collect();
    let mut strided_list = vec![strided.clone()];
    strided_list.push(repeated(at(101).every(48), at(1000).every(1), 90, data(1)));
    vec![
        ("standard", vec![standard]),
        ("simple-strided", vec![strided]),
        ("nested-strided", vec![nested.clone()]),
        ("list of standard", list),
        ("list of simple-strided", strided_list),
        ("list of nested-strided", vec![nested, second]),
        ("nested-batched", vec![deep]),
        ("relative and absolute", mixed),
        ("nothing", vec![]),
    ]
}

fn place(
    offsets: std::ops::Range<i64>,
    strides: std::ops::Range<i64>,
) -> impl Strategy<Value = Place> {
    (offsets, prop::bool::weighted(0.1), strides).prop_map(|(offset, absolute, stride)| Place {
        offset,
        absolute,
        stride,
    })
}

/// Trees within 1600 units of the object, with arbitrary positions in memory.
pub(crate) fn tree() -> impl Strategy<Value = Batch> {
    let leaf = (place(0..200, 0..60), place(0..30, 0..9), 0u64..6, 0u64..9).prop_map(
        |(file, memory, count, size)| Batch::repeated(file, memory, count, Pattern::Data(size)),
    );
    leaf.prop_recursive(3, 12, 3, |inner| {
        let vector = prop::collection::vec(inner, 0..4);
        (place(0..100, 0..50), place(0..99, 0..99), 0u64..4, vector).prop_map(
            |(file, memory, count, vector)| {
                Batch::repeated(file, memory, count, Pattern::Vector(vector))
            },
        )
    })
}

/// The approximate number of doors in a test, which share the cases of `PROPTEST_CASES`.
const DOORS: u32 = 8;

/// An interface that reads and writes batches of one object.
pub(crate) trait Door {
    /// Reads a batch into a buffer; `unit` is in bytes.
    fn read(&self, batches: &[Batch], unit: u64, into: &mut [u8]) -> Result<(), String>;
    /// Writes a batch from a buffer.
    fn write(&self, batches: &[Batch], unit: u64, from: &[u8]) -> Result<(), String>;
    /// All bytes of the object.
    fn all(&self) -> Vec<u8>;
}

/// An object behind a door, and its expected bytes.
pub(crate) struct Tried<'a> {
    door: &'a dyn Door,
    naive: RefCell<Vec<u8>>,
    seed: Cell<usize>,
}

impl<'a> Tried<'a> {
    pub(crate) fn new(door: &'a dyn Door) -> Tried<'a> {
        Tried {
            naive: RefCell::new(door.all()),
            seed: Cell::new(1),
            door,
        }
    }

    /// Writes a batch and reads it, and compares both with the interpreter; `false` for a batch that may not be read.
    pub(crate) fn through(&self, batches: &[Batch], unit: u64, what: &str) -> bool {
        let plan = Plan::new(batches, unit).unwrap();
        let bytes = interpret(batches, unit as i64);
        let end = plan.memory_span().map_or(0, |span| span.1 as usize);
        let mut naive = self.naive.borrow_mut();
        if plan
            .file_span()
            .is_some_and(|span| span.1 > naive.len() as u64)
        {
            let mut into = vec![0xee; end];
            assert!(self.door.read(batches, unit, &mut into).is_err(), "{what}");
            assert!(self.door.write(batches, unit, &into).is_err(), "{what}");
            return false;
        }
        let seed = self.seed.replace(self.seed.get() + 1);
        let buffer: Vec<u8> = (0..end).map(|at| (at * 13 + seed * 7) as u8).collect();
        self.door
            .write(batches, unit, &buffer)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        for &(file, memory) in &bytes {
            naive[file] = buffer[memory];
        }
        let mut into = vec![0xee; end + 3];
        let read = self.door.read(batches, unit, &mut into);
        if let Err(refused) = plan.check_targets() {
            let error = read.err().unwrap_or_default();
            assert!(error.contains(&refused.to_string()), "{what}: {error}");
            return false;
        }
        read.unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut expected = vec![0xee; end + 3];
        for &(file, memory) in &bytes {
            expected[memory] = naive[file];
        }
        assert!(into == expected, "{what}");
        true
    }

    /// Compares all bytes of the object.
    pub(crate) fn compare(&self, what: &str) {
        assert!(self.door.all() == *self.naive.borrow(), "{what}");
    }
}

/// Runs all patterns of the document, in bytes.
pub(crate) fn patterns_go_through(door: &dyn Door, what: &str) {
    let tried = Tried::new(door);
    for (pattern, batches) in patterns() {
        let what = format!("{what}: {pattern}");
        assert!(tried.through(&batches, 1, &what), "{what}");
        tried.compare(&what);
    }
}

/// `cases` cases, or `PROPTEST_CASES`.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig {
        cases: match std::env::var_os("PROPTEST_CASES") {
            Some(_) => usual.cases,
            None => cases,
        },
        failure_persistence: None,
        ..usual
    }
}

/// Runs random trees, in bytes or in elements of `elem` bytes: `cases` of them, or this door's share of
/// `PROPTEST_CASES`.
pub(crate) fn trees_go_through(door: &dyn Door, elem: u64, cases: u32, what: &str) {
    let tried = Tried::new(door);
    let mut config = config(cases);
    if std::env::var_os("PROPTEST_CASES").is_some() {
        config.cases = config.cases.div_ceil(DOORS);
    }
    let cases = config.cases;
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let through = Cell::new(0);
    runner
        .run(
            &(prop::collection::vec(tree(), 1..4), any::<bool>()),
            |(batches, in_elements)| {
                let unit = if in_elements { elem } else { 1 };
                let done = tried.through(&batches, unit, what);
                through.set(through.get() + u32::from(done));
                Ok(())
            },
        )
        .unwrap();
    tried.compare(what);
    assert!(
        through.get() > cases / 8,
        "{what}: only {} of {cases}",
        through.get()
    );
}
