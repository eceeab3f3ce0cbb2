//! Tests of batches against an interpreter that visits every byte.

use std::collections::HashSet;

use super::*;
use proptest::prelude::*;

mod parts;

/// The bytes that a batch moves, straight from the definition: the position of each in the object and in the buffer.
/// `None` if an offset is below 0.
fn interpret(batches: &[Batch], unit: i128) -> Option<Vec<(i128, i128)>> {
    fn vector(batches: &[Batch], unit: i128, base: [i128; 2], bytes: &mut Vec<(i128, i128)>) {
        let mut before = base;
        for batch in batches {
            for (before, place) in before.iter_mut().zip([&batch.file, &batch.memory]) {
                let from = if place.absolute { 0 } else { *before };
                *before = from + i128::from(place.offset) * unit;
            }
            for number in 0..i128::from(batch.count) {
                let strides = [&batch.file, &batch.memory].map(|place| i128::from(place.stride));
                let at = [0, 1].map(|side| before[side] + number * strides[side] * unit);
                match &batch.pattern {
                    Pattern::Data(size) => {
                        for byte in 0..i128::from(*size) * unit {
                            bytes.push((at[0] + byte, at[1] + byte));
                        }
                    }
                    Pattern::Vector(inner) => vector(inner, unit, at, bytes),
                }
            }
        }
    }
    let mut bytes = Vec::new();
    vector(batches, unit, [0, 0], &mut bytes);
    let low = bytes.iter().any(|&(file, memory)| file < 0 || memory < 0);
    (!low).then_some(bytes)
}

/// The bytes of runs, in order.
fn bytes_of(runs: Runs<'_>) -> Vec<(i128, i128)> {
    let bytes = packed_bytes_of(runs);
    bytes.into_iter().map(|(_, file, at)| (file, at)).collect()
}

/// As [`bytes_of`], each with its position among the packed bytes.
fn packed_bytes_of(runs: Runs<'_>) -> Vec<(i128, i128, i128)> {
    let mut bytes = Vec::new();
    for run in runs {
        assert!(run.bytes > 0 && run.count > 0, "{run:?}");
        for number in 0..i128::from(run.count) {
            for byte in 0..i128::from(run.bytes) {
                bytes.push((
                    i128::from(run.packed) + number * i128::from(run.bytes) + byte,
                    i128::from(run.file) + number * i128::from(run.file_stride) + byte,
                    i128::from(run.memory) + number * i128::from(run.memory_stride) + byte,
                ));
            }
        }
    }
    bytes
}

fn place(offsets: std::ops::Range<i64>) -> impl Strategy<Value = Place> {
    (
        offsets,
        prop::bool::weighted(0.15),
        prop_oneof![4 => 0i64..24, 1 => -12i64..12],
    )
        .prop_map(|(offset, absolute, stride)| Place {
            offset,
            absolute,
            stride,
        })
}

fn tree() -> impl Strategy<Value = Batch> {
    let element = |offsets: std::ops::Range<i64>| (place(offsets.clone()), place(offsets), 0u64..4);
    let leaf = (element(-3..30), 0u64..6).prop_map(|((file, memory, count), size)| {
        Batch::repeated(file, memory, count, Pattern::Data(size))
    });
    leaf.prop_recursive(3, 12, 3, move |inner| {
        (element(0..20), prop::collection::vec(inner, 0..4)).prop_map(
            |((file, memory, count), vector)| {
                Batch::repeated(file, memory, count, Pattern::Vector(vector))
            },
        )
    })
}

/// Vectors of trees, with offsets high enough that most are not below 0.
fn batches() -> impl Strategy<Value = Vec<Batch>> {
    prop::collection::vec(tree(), 0..4).prop_map(|mut batches| {
        if let Some(first) = batches.first_mut() {
            first.file.offset += 40;
            first.memory.offset += 40;
        }
        batches
    })
}

/// 20,000 cases, or the number in `PROPTEST_CASES` if that is more.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let asked = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => usual.cases,
        None => 0,
    };
    ProptestConfig {
        cases: asked.max(20_000),
        ..usual
    }
}

proptest! {
    #![proptest_config(config())]

    /// All runs, and those in a range, come in the order of the definition; sums and spans are right.
    #[test]
    fn random_trees_match_the_definition(
        batches in batches(),
        unit in 1u64..4,
        from in 0u64..200,
        len in 0u64..200,
    ) {
        let naive = interpret(&batches, unit.into());
        let plan = Plan::new(&batches, unit);
        let Some(naive) = naive else {
            prop_assert!(matches!(plan, Err(BatchError::Negative { .. })), "{plan:?}");
            return Ok(());
        };
        let plan = plan.unwrap();
        prop_assert_eq!(plan.bytes(), naive.len() as u64);
        let span = |side: fn(&(i128, i128)) -> i128| {
            let bytes = naive.iter().map(side);
            let low = bytes.clone().min()?;
            Some((low as u64, bytes.max()? as u64 + 1))
        };
        prop_assert_eq!(plan.file_span(), span(|byte| byte.0));
        prop_assert_eq!(plan.memory_span(), span(|byte| byte.1));
        let runs: u64 = plan.all_runs().map(|run| run.count).sum();
        prop_assert_eq!(plan.pieces(), runs);
        prop_assert_eq!(bytes_of(plan.all_runs()), naive.clone());
        let within = |byte: &(i128, i128)| {
            byte.0 >= i128::from(from) && byte.0 < i128::from(from + len)
        };
        let naive: Vec<_> = naive.into_iter().filter(within).collect();
        prop_assert_eq!(bytes_of(plan.runs(from, from + len)), naive);
    }

    /// A range of the packed bytes restricts a walk as one of the object does; a walk that is moved to another range
    /// equals a fresh one; and the wire form gives the same.
    #[test]
    fn a_walk_keeps_to_the_packed_bytes(
        batches in batches(),
        unit in 1u64..4,
        file in (0u64..200, 0u64..200),
        packed in (0u64..100, 0u64..100),
    ) {
        let Some(naive) = interpret(&batches, unit.into()) else {
            prop_assert!(Plan::new(&batches, unit).is_err());
            return Ok(());
        };
        let plan = Plan::new(&batches, unit).unwrap();
        let (file, packed) = (file.0..file.0 + file.1, packed.0..packed.0 + packed.1);
        let inside = |range: &std::ops::Range<u64>, at: i128| {
            range.contains(&u64::try_from(at).unwrap())
        };
        let all: Vec<_> = naive.iter().enumerate().map(|(at, byte)| (at as i128, byte.0, byte.1)).collect();
        let wanted = |byte: &&(i128, i128, i128)| inside(&packed, byte.0) && inside(&file, byte.1);
        let wanted: Vec<_> = all.iter().filter(wanted).copied().collect();
        let mut walk = plan.runs_within(3..7, packed.clone());
        walk.by_ref().take(2).for_each(drop);
        walk.seek(file.clone());
        prop_assert_eq!(packed_bytes_of(walk), wanted.clone());
        let reached = all.iter().filter(|byte| inside(&packed, byte.0)).map(|byte| byte.1 as u64);
        let span = reached.clone().min().zip(reached.clone().max().map(|last| last + 1));
        prop_assert_eq!(plan.file_span_of(packed.clone()), span);
        for (most, gap) in [(1000, 0), (1000, 7), (1, 3), (0, 0)] {
            let stretches = plan.file_stretches_of(packed.clone(), most, gap);
            let ends = stretches.first().zip(stretches.last());
            prop_assert_eq!(ends.map(|(first, last)| (first.0, last.1)), span);
            prop_assert!(stretches.windows(2).all(|pair| pair[1].0 > pair[0].1 + gap));
            let pieces = plan.runs_within(0..i64::MAX as u64, packed.clone()).map(|run| run.count);
            prop_assert!(stretches.len() <= 1 || pieces.sum::<u64>() <= most as u64);
            let holds = |at: u64| stretches.iter().any(|&(from, to)| from <= at && at < to);
            prop_assert!(reached.clone().all(holds));
            if (most, gap) == (1000, 0) {
                let bytes: std::collections::BTreeSet<u64> = reached.clone().collect();
                let sum: u64 = stretches.iter().map(|(from, to)| to - from).sum();
                prop_assert_eq!(sum, bytes.len() as u64);
            }
        }

        let sent = postcard::to_allocvec(&plan.flat()).unwrap();
        let flat: Flat = postcard::from_bytes(&sent).unwrap();
        prop_assert_eq!(&flat, &plan.flat());
        let got = flat.plan().unwrap();
        prop_assert_eq!((got.bytes(), got.file_span()), (plan.bytes(), plan.file_span()));
        let in_packed: Vec<_> = wanted.iter().map(|byte| (byte.0, byte.1, byte.0)).collect();
        prop_assert_eq!(packed_bytes_of(got.runs_within(file.clone(), packed.clone())), in_packed.clone());
        let own = Plan::packed(&batches, unit).unwrap();
        prop_assert_eq!(packed_bytes_of(own.runs_within(file, packed)), in_packed);
        prop_assert_eq!(own.check_targets(), Ok(()));
        let full = (own.bytes() > 0).then_some((0, own.bytes()));
        prop_assert_eq!(own.memory_span(), full);
    }

    /// Long vectors, in order or not, are searched by bisection without losing an element.
    #[test]
    fn a_long_vector_is_looked_up(
        mut offsets in prop::collection::vec((0i64..400, 0u64..9), 5..80),
        sorted in any::<bool>(),
        file in (0u64..400, 0u64..100),
        packed in (0u64..200, 0u64..200),
    ) {
        if sorted {
            offsets.sort_unstable();
        }
        let vector: Vec<_> = offsets
            .iter()
            .map(|&(offset, size)| Batch::data(Place::at(offset), Place::default(), size))
            .collect();
        let naive = interpret(&vector, 1).unwrap();
        let plan = Plan::packed(&vector, 1).unwrap();
        let wanted: Vec<_> = (0i128..)
            .zip(&naive)
            .filter(|(at, byte)| {
                let at = u64::try_from(*at).unwrap();
                let byte = u64::try_from(byte.0).unwrap();
                (packed.0..packed.0 + packed.1).contains(&at) && (file.0..file.0 + file.1).contains(&byte)
            })
            .map(|(at, byte)| (at, byte.0, at))
            .collect();
        let walk = plan.runs_within(file.0..file.0 + file.1, packed.0..packed.0 + packed.1);
        prop_assert_eq!(packed_bytes_of(walk), wanted);
    }

    /// Any input from the wire becomes a plan or an error.
    #[test]
    fn wild_nodes_are_refused_or_valid(nodes in prop::collection::vec(wild_node(), 0..20)) {
        let flat = Flat { nodes };
        if let Ok(plan) = flat.plan() {
            let again = plan.flat().plan().unwrap();
            prop_assert_eq!(again.bytes(), plan.bytes());
            prop_assert_eq!(again.file_span(), plan.file_span());
            plan.all_runs().take(100).for_each(drop);
        }
    }

    /// Few enough pieces that the check is exact.
    #[test]
    fn overlaps_are_found_exactly(batches in batches(), unit in 1u64..4) {
        let Some(naive) = interpret(&batches, unit.into()) else {
            return Ok(());
        };
        let mut seen = HashSet::new();
        let overlaps = !naive.iter().all(|byte| seen.insert(byte.1));
        let checked = Plan::new(&batches, unit).unwrap().check_targets();
        match overlaps {
            true => prop_assert!(matches!(checked, Err(BatchError::Overlap { .. })), "{checked:?}"),
            false => prop_assert_eq!(checked, Ok(())),
        }
    }

    /// Any request gets an answer, and walks stay within the announced spans.
    #[test]
    fn wild_numbers_are_refused_or_valid(batches in wild(), unit in 1u64..9) {
        let Ok(plan) = Plan::new(&batches, unit) else {
            return Ok(());
        };
        let _ = plan.check_targets();
        let Some((from, to)) = plan.file_span() else {
            return Ok(());
        };
        let memory = plan.memory_span().unwrap();
        for run in plan.all_runs().take(100) {
            let last = |at: u64, stride: i64| {
                i128::from(at) + i128::from(run.count - 1) * i128::from(stride)
            };
            for at in [i128::from(run.file), last(run.file, run.file_stride)] {
                prop_assert!(at >= from.into() && at + i128::from(run.bytes) <= to.into());
            }
            for at in [i128::from(run.memory), last(run.memory, run.memory_stride)] {
                prop_assert!(at >= memory.0.into() && at + i128::from(run.bytes) <= memory.1.into());
            }
        }
        // The last byte is found, whatever precedes it.
        let last: u64 = plan.runs(to - 1, to).take(1).map(|run| run.bytes).sum();
        prop_assert_eq!(last, 1);
    }
}

fn wild() -> impl Strategy<Value = Vec<Batch>> {
    let number = || {
        prop_oneof![
            0i64..1000,
            (0i64..63).prop_map(|bit| 1i64 << bit),
            Just(i64::MAX),
            -1000i64..0,
            Just(i64::MIN),
        ]
    };
    let place = move || {
        (number(), any::<bool>(), number()).prop_map(|(offset, absolute, stride)| Place {
            offset,
            absolute,
            stride,
        })
    };
    let count = || prop_oneof![0u64..5, (0u64..64).prop_map(|bit| 1 << bit), Just(u64::MAX)];
    let leaf = (place(), place(), count(), count()).prop_map(|(file, memory, count, size)| {
        Batch::repeated(file, memory, count, Pattern::Data(size))
    });
    let tree = leaf.prop_recursive(4, 16, 3, move |inner| {
        let vector = prop::collection::vec(inner, 0..4);
        (place(), place(), count(), vector).prop_map(|(file, memory, count, vector)| {
            Batch::repeated(file, memory, count, Pattern::Vector(vector))
        })
    });
    prop::collection::vec(tree, 0..4)
}

fn wild_node() -> impl Strategy<Value = FlatNode> {
    let number = || prop_oneof![0i64..50, Just(i64::MAX), -50i64..0, Just(i64::MIN)];
    let count = || prop_oneof![4 => 0u64..5, 1 => Just(u64::MAX)];
    let what = prop_oneof![
        count().prop_map(FlatWhat::Data),
        (0u32..4).prop_map(FlatWhat::Vector),
    ];
    (number(), any::<bool>(), number(), count(), what).prop_map(
        |(offset, absolute, stride, count, what)| FlatNode {
            offset,
            absolute,
            stride,
            count,
            what,
        },
    )
}

fn bytes(batches: &[Batch]) -> Vec<(i128, i128)> {
    bytes_of(Plan::new(batches, 1).unwrap().all_runs())
}

/// The patterns of Galley's paper.
#[test]
fn a_standard_and_a_simple_strided_request() {
    let one = Batch::data(Place::at(5), Place::at(0), 3);
    assert_eq!(bytes(&[one]), [(5, 0), (6, 1), (7, 2)]);
    let strided = Batch::repeated(
        Place::at(10).every(4),
        Place::at(0).every(2),
        3,
        Pattern::Data(2),
    );
    let expected = [(10, 0), (11, 1), (14, 2), (15, 3), (18, 4), (19, 5)];
    assert_eq!(bytes(&[strided]), expected);
}

#[test]
fn a_nested_strided_request_is_a_tree_of_two_levels() {
    let inner = Batch::repeated(
        Place::after(0).every(10),
        Place::after(0).every(1),
        2,
        Pattern::Data(1),
    );
    let outer = Batch::repeated(
        Place::at(3).every(100),
        Place::at(0).every(2),
        2,
        Pattern::Vector(vec![inner]),
    );
    assert_eq!(bytes(&[outer]), [(3, 0), (13, 1), (103, 2), (113, 3)]);
}

/// Relative to the parent for the first, to the previous element for the others; absolute ones do not move.
#[test]
fn offsets_count_from_the_element_before() {
    let vector = vec![
        Batch::data(Place::after(1), Place::after(0), 1),
        Batch::data(Place::after(4), Place::after(1), 1),
        Batch::data(Place::at(500), Place::after(1), 1),
        Batch::data(Place::after(2), Place::after(1), 1),
    ];
    let outer = Batch::repeated(
        Place::at(10).every(20),
        Place::at(0).every(4),
        2,
        Pattern::Vector(vector),
    );
    let expected = [
        (11, 0),
        (15, 1),
        (500, 2),
        (502, 3),
        (31, 4),
        (35, 5),
        (500, 6),
        (502, 7),
    ];
    assert_eq!(bytes(&[outer]), expected);
}

/// Ten nodes with 10^9 pieces are walked to any place at once, and their targets are found to be disjoint.
#[test]
fn a_billion_pieces_are_not_listed() {
    let mut batch = Batch::repeated(
        Place::after(0).every(16),
        Place::after(0).every(8),
        10,
        Pattern::Data(8),
    );
    for level in 1..9u32 {
        batch = Batch::repeated(
            Place::after(0).every(16 * 10i64.pow(level)),
            Place::after(0).every(8 * 10i64.pow(level)),
            10,
            Pattern::Vector(vec![batch]),
        );
    }
    let plan = Plan::new(&[batch], 1).unwrap();
    assert_eq!(
        (plan.pieces(), plan.bytes()),
        (1_000_000_000, 8_000_000_000)
    );
    assert_eq!(plan.nodes.len(), 9);
    assert_eq!(plan.check_targets(), Ok(()));
    let sent = postcard::to_allocvec(&plan.flat()).unwrap();
    assert!(sent.len() < 100, "{} bytes for 9 nodes", sent.len());
    let middle: Vec<Run> = plan
        .runs_within(0..1 << 40, 4_000_000_004..4_000_000_020)
        .collect();
    let places: Vec<_> = middle
        .iter()
        .map(|run| (run.packed, run.file, run.bytes, run.count))
        .collect();
    let expected = [
        (4_000_000_004, 8_000_000_004, 4, 1),
        (4_000_000_008, 8_000_000_016, 8, 1),
        (4_000_000_016, 8_000_000_032, 4, 1),
    ];
    assert_eq!(places, expected);
    let runs: Vec<Run> = plan.runs(15_999_999_972, 15_999_999_985).collect();
    let places: Vec<_> = runs.iter().map(|run| (run.file, run.bytes)).collect();
    assert_eq!(places, [(15_999_999_972, 4), (15_999_999_984, 1)]);
}

/// A transposed matrix, and the columns of a table, do not overlap, also when they are large.
#[test]
fn interleaved_targets_do_not_overlap() {
    let transposed = Batch::repeated(
        Place::at(0).every(8000),
        Place::at(0).every(8),
        100_000,
        Pattern::Vector(vec![Batch::repeated(
            Place::after(0).every(8),
            Place::after(0).every(800_000),
            1000,
            Pattern::Data(8),
        )]),
    );
    let plan = Plan::new(&[transposed], 1).unwrap();
    assert_eq!(plan.check_targets(), Ok(()));
    let column = |at: i64, bytes| {
        let memory = Place::at(at).every(24);
        Batch::repeated(Place::at(0).every(8), memory, 1 << 30, Pattern::Data(bytes))
    };
    let plan = Plan::new(&[column(0, 8), column(8, 12), column(20, 4)], 1).unwrap();
    assert_eq!(plan.check_targets(), Ok(()));
    let plan = Plan::new(&[column(0, 8), column(8, 12), column(19, 4)], 1).unwrap();
    let overlap = BatchError::Overlap { one: 1, other: 2 };
    assert_eq!(plan.check_targets(), Err(overlap));
}

#[test]
fn too_much_is_refused() {
    let one = Batch::data(Place::after(0), Place::after(0), 1);
    let many = vec![one.clone(); MAX_NODES + 1];
    assert_eq!(Plan::new(&many, 1), Err(BatchError::TooLarge));
    assert!(Plan::new(&many[1..], 1).is_ok());
    let mut deep = one;
    for _ in 1..MAX_DEPTH {
        deep = Batch::repeated(
            Place::after(0),
            Place::after(0),
            1,
            Pattern::Vector(vec![deep]),
        );
    }
    assert!(Plan::new(std::slice::from_ref(&deep), 1).is_ok());
    deep = Batch::repeated(
        Place::after(0),
        Place::after(0),
        1,
        Pattern::Vector(vec![deep]),
    );
    assert_eq!(Plan::new(&[deep], 1), Err(BatchError::TooDeep));
    let node = |what| FlatNode {
        offset: 0,
        absolute: false,
        stride: 0,
        count: 1,
        what,
    };
    let deep = |levels: usize| {
        let mut nodes = vec![node(FlatWhat::Vector(1)); levels - 1];
        nodes.push(node(FlatWhat::Data(1)));
        Flat { nodes }
    };
    assert!(deep(MAX_DEPTH).plan().is_ok());
    for levels in [MAX_DEPTH + 1, MAX_NODES] {
        assert_eq!(deep(levels).plan(), Err(BatchError::TooDeep));
    }
    let wide = Flat {
        nodes: vec![node(FlatWhat::Data(1)); MAX_NODES + 1],
    };
    assert_eq!(wide.plan(), Err(BatchError::TooLarge));
    let sent = postcard::to_allocvec(&wide).unwrap();
    assert!(postcard::from_bytes::<Flat>(&sent).is_err());
    for children in [2, u32::MAX] {
        let nodes = vec![node(FlatWhat::Vector(children)), node(FlatWhat::Data(1))];
        assert_eq!(Flat { nodes }.plan(), Err(BatchError::Broken));
    }
    let far = Batch::data(Place::at(i64::MAX), Place::at(0), 1);
    assert_eq!(Plan::new(&[far], 1), Err(BatchError::Overflow(0)));
    let below = Batch::repeated(
        Place::at(5).every(-2),
        Place::at(0).every(1),
        4,
        Pattern::Data(1),
    );
    let negative = BatchError::Negative {
        element: 0,
        side: Side::File,
        by: 1,
    };
    assert_eq!(Plan::new(&[below], 1), Err(negative));
}

proptest! {
    /// A slab as a batch is the slab's cells, packed.
    #[test]
    fn a_slab_is_its_cells((dims, slab) in crate::naive::dims().prop_flat_map(|dims| {
        let slab = crate::naive::slab(&dims);
        (Just(dims), slab)
    })) {
        let plan = Plan::new(&Batch::of_slab(&dims, &slab), 1).unwrap();
        let cells = crate::naive::cells(&slab);
        let naive: Vec<(i128, i128)> = cells
            .iter()
            .enumerate()
            .map(|(packed, cell)| (crate::naive::offset(&dims, cell) as i128, packed as i128))
            .collect();
        prop_assert_eq!(bytes_of(plan.all_runs()), naive);
        prop_assert_eq!(plan.bytes(), slab.volume());
    }
}

/// Elements are numbered in the order in which a batch is written down; a path leads to one.
#[test]
fn a_path_leads_to_the_element_of_a_number() {
    let after = Place::after(0);
    let data = || Batch::data(after, after, 1);
    let vector = |below| Batch::repeated(after, after, 2, Pattern::Vector(below));
    let batches = [
        data(),
        vector(vec![data(), vector(vec![]), vector(vec![data()])]),
        data(),
    ];
    let paths = (0..).map_while(|number| path_of(&batches, number));
    let expected: [&[u32]; 7] = [&[0], &[1], &[1, 0], &[1, 1], &[1, 2], &[1, 2, 0], &[2]];
    assert_eq!(paths.collect::<Vec<_>>(), expected);
    // The numbers are those of errors.
    let below = Batch::data(Place::at(-1), after, 1);
    let broken = [data(), vector(vec![data(), vector(vec![below])])];
    let error = Plan::new(&broken, 1).unwrap_err();
    let path = error.elements()[..]
        .first()
        .and_then(|&number| path_of(&broken, number));
    assert_eq!(path, Some(vec![1, 1, 0]), "{error}");
}
