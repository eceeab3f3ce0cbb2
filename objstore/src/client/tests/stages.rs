//! Tests of batches whose pieces overlay one another on several servers: the piece of the highest stage is visible.

use proptest::prelude::*;
use slabfs_model::batch::{Batch, Pattern, Place, Plan};

use super::*;

/// One chunk of cells: a lattice in the object's coordinates.
#[derive(Debug, Clone)]
struct Layer {
    server: ServerId,
    stage: usize,
    /// For each axis.
    axes: Vec<Axis>,
}

const ROWS: u64 = 40;

fn axis(len: u64) -> impl Strategy<Value = Axis> {
    (0..len / 2, 1u64..4, 0u64..5).prop_flat_map(move |(start, block, gap)| {
        let stride = block + gap;
        (1..=(len - start - block) / stride + 1).prop_map(move |count| Axis {
            start,
            stride,
            count,
            block,
        })
    })
}

fn layers(columns: u64) -> impl Strategy<Value = Vec<Layer>> {
    let layer = (0usize..4, axis(ROWS), axis(columns));
    proptest::collection::vec(layer, 1..7).prop_map(|layers| {
        // Each overlays the one before.
        let layers = layers.into_iter().enumerate();
        let layers = layers.map(|(stage, (server, rows, columns))| Layer {
            server: ALL[server],
            stage,
            axes: vec![rows, columns],
        });
        layers.collect()
    })
}

/// Reads every second byte from `from` on, into every third byte of the buffer.
fn check(rig: &Rig, first: u64, columns: u64, layers: &[Layer], from: u64) {
    let cells = [ROWS, columns];
    let total = ROWS * columns;
    let mut naive = vec![0xEE; total as usize];
    let slabs: Vec<Hyperslab> = (layers.iter())
        .map(|layer| Hyperslab {
            axes: layer.axes.iter().copied().collect(),
        })
        .collect();
    let packed: Vec<_> = slabs.iter().map(Hyperslab::packed_shape).collect();
    let forms: Vec<_> = packed.iter().map(|shape| form(shape)).collect();
    let wholes: Vec<_> = packed.iter().map(|shape| Hyperslab::all(shape)).collect();
    let names: Vec<_> = (0..layers.len() as u64)
        .map(|at| free(first + at))
        .collect();
    for (at, layer) in layers.iter().enumerate() {
        let bytes = noise(slabs[at].volume() as usize, at as u8 + 1);
        let slices = [IoSlice::new(&bytes)];
        rig.servers
            .write(&[WritePiece {
                server: layer.server,
                name: &names[at],
                form: &forms[at],
                kind: WriteKind::Put,
                data: &slices,
            }])
            .unwrap();
        slabfs_model::scatter(&bytes, &slabs[at], &mut naive, &cells);
    }
    let count = (total - from).div_ceil(2);
    let every = Batch::repeated(
        Place::at(from as i64).every(2),
        Place::at(0).every(3),
        count,
        Pattern::Data(1),
    );
    let plan = Plan::new(&[every], 1).unwrap();
    let part = BatchPart {
        plan: &plan,
        packed: 0..plan.bytes(),
        cells: &cells,
        base: 0,
    };
    let mut pieces: Vec<_> = (0..layers.len())
        .map(|at| BatchPiece {
            server: layers[at].server,
            name: &names[at],
            form: &forms[at],
            want: &slabs[at],
            slab: &wholes[at],
            stage: layers[at].stage,
            found: false,
        })
        .collect();
    let mut out = vec![0xEE; count as usize * 3];
    let before = rig.servers.counters().snapshot().messages;
    read_batch(&rig.servers, part, &mut pieces, &mut out);
    let messages = rig.servers.counters().snapshot().messages - before;
    let all: Vec<u8> = (out.chunks(3)).map(|three| three[0]).collect();
    let right: Vec<u8> = naive[from as usize..].iter().copied().step_by(2).collect();
    let wrong = all.iter().zip(&right).position(|(one, other)| one != other);
    assert_eq!((all.len(), wrong), (right.len(), None));
    assert!(out.chunks(3).all(|three| three[1..] == [0xEE, 0xEE][..]));
    // At most one a remote server, as long as few bytes are deferred.
    if total <= 8 << 10 {
        assert!(messages <= 2, "{messages}");
    }
}

#[test]
fn the_highest_stage_is_visible() {
    let rig = rig();
    let first = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::default();
    let cases = (30u64..160).prop_flat_map(|columns| (Just(columns), layers(columns), 0..ROWS));
    let run = runner.run(&cases, |(columns, layers, from)| {
        first.set(first.get() + 100);
        check(&rig, first.get(), columns, &layers, from);
        Ok(())
    });
    run.unwrap();
}

/// So many bytes that not all stages are requested together.
#[test]
fn the_highest_stage_is_visible_in_large_batches() {
    let rig = rig();
    const COLUMNS: u64 = 5000;
    let every = |start, stride, block, len| Axis {
        start,
        stride,
        count: (len - start - block) / stride + 1,
        block,
    };
    let layers: Vec<Layer> = (0..8)
        .map(|stage| Layer {
            server: ALL[[2, 3, 0, 1, 3, 2, 2, 3][stage]],
            stage,
            axes: vec![
                every(stage as u64 % 3, 1 + stage as u64, 1, ROWS),
                every(stage as u64, 7, 7 - stage as u64 % 4, COLUMNS),
            ],
        })
        .collect();
    check(&rig, 0, COLUMNS, &layers, 1);
}
