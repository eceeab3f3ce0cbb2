//! Benchmark of a matcher: `n` reads wait for boxes, and `n` boxes of data, shifted by half a box, come in random order.
//! Each box of data meets four reads, so the cost of a read and a box must grow with log n only.
//!
//! `cargo bench -p slabfs-mdserver` measures; before that it prints the growth as a table (`-- --table` stops after it).

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use slabfs_model::Region;

#[allow(dead_code)]
#[path = "../src/matcher/table.rs"]
mod table;

use table::{Table, Ticket};

const SIZES: [u64; 4] = [100, 1_000, 10_000, 100_000];

/// Width and height of a box, in cells.
const TILE: u64 = 64;

/// `n` boxes, `side` to a row, at this distance from the origin, in random order.
fn tiles(n: u64, shift: u64) -> Vec<Region> {
    let side = n.isqrt().max(1);
    let tile = |at: u64| {
        let offset = [at / side * TILE + shift, at % side * TILE + shift];
        Region::new(&offset, &[TILE, TILE])
    };
    let mut boxes: Vec<Region> = (0..n).map(tile).collect();
    // Fisher and Yates, with a linear congruential generator (Knuth's MMIX).
    let mut state = n;
    for last in (1..boxes.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        boxes.swap(last, (state >> 33) as usize % (last + 1));
    }
    boxes
}

fn waiting(reads: &[Region]) -> Table {
    let mut table = Table::new(2);
    for (ticket, region) in (0..).zip(reads) {
        table.add(Ticket(ticket), region);
    }
    table
}

/// Cuts all data out of the reads. Returns how many reads are complete.
fn announce(table: &mut Table, data: &[Region]) -> usize {
    data.iter().map(|region| table.cut(region).len()).sum()
}

/// Prints the nanoseconds of a read and a box of data at each size, the best of three.
fn print_growth() {
    print!("\n{:<28}", "ns a read or box of data");
    SIZES.iter().for_each(|size| print!("{size:>11}"));
    let best = |job: &dyn Fn() -> Duration| (0..3).map(|_| job()).min().unwrap_or_default();
    let print = |name: &str, job: &dyn Fn(u64) -> Duration| {
        print!("\n{name:<28}");
        for size in SIZES {
            print!("{:>11.1}", job(size).as_nanos() as f64 / size as f64);
        }
    };
    print("a read begins to wait", &|n| {
        let reads = tiles(n, 0);
        best(&|| {
            let start = Instant::now();
            black_box(waiting(&reads));
            start.elapsed()
        })
    });
    print("data is announced", &|n| {
        let (reads, data) = (tiles(n, 0), tiles(n, TILE / 2));
        best(&|| {
            let mut table = waiting(&reads);
            let start = Instant::now();
            black_box(announce(&mut table, &data));
            start.elapsed()
        })
    });
    println!("\n");
}

fn measure(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("matching");
    for size in SIZES {
        let (reads, data) = (tiles(size, 0), tiles(size, TILE / 2));
        group.throughput(Throughput::Elements(size));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            let run = |()| announce(&mut waiting(&reads), &data);
            bencher.iter_batched(|| (), run, BatchSize::PerIteration);
        });
    }
    group.finish();
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
