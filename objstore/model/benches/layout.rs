//! Benchmarks of the growth of the layouts' costs, from 10^2 to 10^6 records or runs.
//!
//! `architecture.md` requires O(n log n) for coalescing and O(log n + hits) for a plan. So, from one size to the
//! next, inserting or coalescing one more must cost only little more each, and so must a plan with few hits.
//! `cargo bench -p slabfs-model` measures; before that it prints the growth as one table, from few repetitions
//! (`-- --table` stops after it).

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use slabfs_model::layout::{Record, Run, Tiling, coalesce};
use slabfs_model::{Hyperslab, Region};
use std::hint::black_box;
use std::time::{Duration, Instant};

const SIZES: [u64; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];

/// Width and height of a tile, in cells.
const TILE: u64 = 64;

/// Pseudo-random numbers, the same in each run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// `n` disjoint tiles of an array, `side` to a row, each second row of them shifted by half a tile, in the order of a
/// program that writes at random.
fn tiles(n: u64) -> Vec<Record<u64>> {
    let side = n.isqrt().max(1);
    let mut numbers = Numbers(n);
    let mut order: Vec<u64> = (0..n).collect();
    for last in (1..n as usize).rev() {
        order.swap(last, numbers.below(last as u64 + 1) as usize);
    }
    let place = |(at, order): (u64, u64)| {
        let (row, column) = (at / side, at % side);
        let offset = [row * TILE, column * TILE + row % 2 * (TILE / 2)];
        let slab = Hyperslab::from_region(&Region::new(&offset, &[TILE, TILE]));
        Record {
            slab,
            clip: None,
            order,
            value: order,
        }
    };
    let mut records: Vec<_> = (0..n).zip(order).map(place).collect();
    records.sort_by_key(|record| record.order);
    records
}

/// `n` boxes of about a tile, anywhere in the area of `n` tiles: each overlaps a few others.
fn overlapping(n: u64) -> Vec<Record<u64>> {
    let extent = n.isqrt().max(1) * TILE;
    let mut numbers = Numbers(n);
    let mut one = |order| {
        let offset = [numbers.below(extent), numbers.below(extent)];
        let shape = [1 + numbers.below(TILE * 2), 1 + numbers.below(TILE * 2)];
        let slab = Hyperslab::from_region(&Region::new(&offset, &shape));
        Record {
            slab,
            clip: None,
            order,
            value: order,
        }
    };
    (0..n).map(&mut one).collect()
}

/// 256 windows, each of about four tiles.
fn windows(n: u64) -> Vec<Hyperslab> {
    let extent = n.isqrt().max(1) * TILE;
    let mut numbers = Numbers(7);
    let mut one = || {
        let offset = [numbers.below(extent - TILE), numbers.below(extent - TILE)];
        Hyperslab::from_region(&Region::new(&offset, &[TILE, TILE]))
    };
    (0..256).map(|_| one()).collect()
}

fn build(records: Vec<Record<u64>>) -> Tiling<u64> {
    Tiling::bulk(2, records).expect("records of one tiling")
}

fn insert_all(records: Vec<Record<u64>>) -> Tiling<u64> {
    let mut tiling = Tiling::new(2);
    for record in records {
        tiling.insert(record).expect("records of one tiling");
    }
    tiling
}

/// Plans each of `wants`; returns the number of parts and holes.
fn plan_all(tiling: &Tiling<u64>, wants: &[Hyperslab]) -> usize {
    let (mut parts, mut holes, mut made) = (Vec::new(), Vec::new(), 0);
    for want in wants {
        parts.clear();
        holes.clear();
        tiling.plan(want, &mut parts, &mut holes);
        made += black_box(&parts).len() + black_box(&holes).len();
    }
    made
}

fn full_area(n: u64) -> Vec<Hyperslab> {
    let extent = (n.isqrt().max(1) + 3) * TILE;
    vec![Hyperslab::from_region(&Region::all(&[extent, extent]))]
}

/// The cells of an object in which `n` runs fill about a sixteenth, and rows are 4 KiB.
fn cells(n: u64) -> [u64; 2] {
    [(n * 16).div_ceil(4096).max(16), 4096]
}

/// `n` single cells.
fn scattered(n: u64) -> Vec<Run> {
    let mut numbers = Numbers(n);
    let mut at = 0;
    let mut one = || {
        at += 2 + numbers.below(28);
        Run { offset: at, len: 1 }
    };
    (0..n).map(|_| one()).collect()
}

/// The rows of boxes of 64 rows of 40 bytes, sixteen adjacent boxes: `n` rows.
fn rows(n: u64) -> Vec<Run> {
    (0..n)
        .map(|at| Run {
            offset: at / 64 * 4096 + at % 64 * 64,
            len: 40,
        })
        .collect()
}

type Job = (&'static str, fn(u64) -> Box<dyn Fn() -> usize>);

/// Each job is prepared for a size; it then handles that many records or runs, or 256 small plans.
const JOBS: [Job; 9] = [
    ("coalesce, scattered cells", |n| {
        let (cells, runs) = (cells(n), scattered(n));
        Box::new(move || coalesce(&cells, &runs, u64::MAX).len())
    }),
    ("coalesce, rows of boxes", |n| {
        let (cells, runs) = ([n.div_ceil(64), 4096], rows(n));
        Box::new(move || coalesce(&cells, &runs, u64::MAX).len())
    }),
    ("bulk", |n| {
        let records = tiles(n);
        Box::new(move || build(records.clone()).len())
    }),
    ("insert, tiles", |n| {
        let records = tiles(n);
        Box::new(move || insert_all(records.clone()).len())
    }),
    ("insert, overlapping", |n| {
        let records = overlapping(n);
        Box::new(move || insert_all(records.clone()).len())
    }),
    ("256 plans of 4 hits", |n| {
        let (tiling, wants) = (build(tiles(n)), windows(n));
        Box::new(move || plan_all(&tiling, &wants))
    }),
    ("256 plans, inserted", |n| {
        let (tiling, wants) = (insert_all(tiles(n)), windows(n));
        Box::new(move || plan_all(&tiling, &wants))
    }),
    ("plan of all, tiles", |n| {
        let (tiling, wants) = (build(tiles(n)), full_area(n));
        Box::new(move || plan_all(&tiling, &wants))
    }),
    ("plan of all, overlapping", |n| {
        let (tiling, wants) = (build(overlapping(n)), full_area(n));
        Box::new(move || plan_all(&tiling, &wants))
    }),
];

/// The number of steps of the job, for the time of a step.
fn steps(job: &str, n: u64) -> u64 {
    if job.starts_with("256 plans") { 256 } else { n }
}

/// Prints the nanoseconds of a step at each size, the best of three.
fn print_growth() {
    print!("\n{:<28}", "ns a record, run or plan");
    SIZES.iter().for_each(|size| print!("{size:>11}"));
    println!();
    for (name, prepare) in JOBS {
        print!("{name:<28}");
        for size in SIZES {
            let job = prepare(size);
            let time = || {
                let start = Instant::now();
                black_box(job());
                start.elapsed()
            };
            let best = (0..3).map(|_| time()).min().unwrap_or_default();
            print!(
                "{:>11.1}",
                best.as_nanos() as f64 / steps(name, size) as f64
            );
        }
        println!();
    }
    println!();
}

fn measure(criterion: &mut Criterion) {
    for (name, prepare) in JOBS {
        let mut group = criterion.benchmark_group(name);
        for size in SIZES {
            group.throughput(Throughput::Elements(steps(name, size)));
            let job = prepare(size);
            group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
                bencher.iter_batched(|| (), |()| job(), BatchSize::PerIteration);
            });
        }
        group.finish();
    }
}

fn main() {
    let asked = |name: &str| std::env::args().any(|argument| argument == name);
    // `cargo test --benches` runs without `--bench`: run each job once.
    if asked("--bench") {
        print_growth();
    }
    if asked("--table") {
        return;
    }
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    measure(&mut criterion);
    criterion.final_summary();
}
