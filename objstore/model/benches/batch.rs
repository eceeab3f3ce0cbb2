//! Benchmarks of packing and unpacking compared with `memcpy`, and of walks.
//!
//! `pack` and `unpack` move 4 MiB in pieces of one size, at every second position of that size; `memcpy` moves 4 MiB
//! in one piece. `walk` visits the runs of nested patterns, `parts` the rows of a chunk.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use slabfs_model::Hyperslab;
use slabfs_model::batch::{Batch, Parts, Pattern, Place, Plan, Rows, pack, unpack};

const BYTES: usize = 4 << 20;

fn copies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("batch");
    group.throughput(Throughput::Bytes(BYTES as u64));
    let spread: Vec<u8> = (0..2 * BYTES).map(|at| at as u8).collect();
    let mut packed = vec![0; BYTES];
    let mut out = vec![0; 2 * BYTES];
    group.bench_function("memcpy", |bencher| {
        bencher.iter(|| black_box(&mut packed[..]).copy_from_slice(black_box(&spread[..BYTES])));
    });
    for bytes in [1, 4, 8, 12, 16, 32, 64, 512, 4096] {
        let stride = 2 * bytes as isize;
        let all = BYTES / bytes * bytes;
        group.bench_with_input(BenchmarkId::new("pack", bytes), &bytes, |bencher, _| {
            bencher.iter(|| {
                pack(
                    black_box(&spread),
                    0,
                    stride,
                    bytes,
                    black_box(&mut packed[..all]),
                )
            });
        });
        group.bench_with_input(BenchmarkId::new("unpack", bytes), &bytes, |bencher, _| {
            bencher.iter(|| {
                unpack(
                    black_box(&packed[..all]),
                    black_box(&mut out),
                    0,
                    stride,
                    bytes,
                )
            });
        });
    }
    group.finish();
}

/// `outer` times `inner` pieces of 8 bytes, at every second position.
fn nested(outer: u64, inner: u64) -> Plan {
    let row = Batch::repeated(
        Place::after(0).every(16),
        Place::after(0).every(8),
        inner,
        Pattern::Data(8),
    );
    let rows = Batch::repeated(
        Place::at(0).every(16 * inner as i64 + 64),
        Place::at(0).every(8 * inner as i64),
        outer,
        Pattern::Vector(vec![row]),
    );
    Plan::packed(&[rows], 1).expect("a batch")
}

fn walks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("batch");
    for inner in [1, 16, 1024] {
        let outer = (1 << 16) / inner;
        let plan = nested(outer, inner);
        group.throughput(Throughput::Elements(outer));
        group.bench_with_input(BenchmarkId::new("walk", inner), &plan, |bencher, plan| {
            bencher.iter(|| plan.all_runs().map(|run| run.bytes).sum::<u64>());
        });
        let end = plan.file_span().map_or(0, |span| span.1);
        let cells = [end.div_ceil(4096), 4096];
        let column = Hyperslab::from_region(&slabfs_model::Region::new(&[0, 0], &[cells[0], 2048]));
        let shape = [cells[0], 2048];
        let full = Hyperslab::all(&shape);
        let rows = Rows::new(&cells, &column, &shape, &full).expect("slabs of one form");
        group.throughput(Throughput::Elements(rows.count()));
        group.bench_with_input(BenchmarkId::new("parts", inner), &plan, |bencher, plan| {
            bencher.iter(|| {
                let parts = Parts::new(plan, 0..plan.bytes(), &rows, false);
                parts.map(|part| part.bytes()).sum::<u64>()
            });
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    copies(&mut criterion);
    walks(&mut criterion);
    criterion.final_summary();
}
