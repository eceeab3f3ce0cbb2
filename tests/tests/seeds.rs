//! The fuzz targets (`tests/fuzz`) with their seeds, and with random changes of these. `tools/fuzz` searches for longer,
//! and guided by coverage.

#[allow(unreachable_pub, reason = "it is a library of its own, too")]
#[path = "../fuzz/src/lib.rs"]
mod fuzz;

use std::path::Path;
use std::time::{Duration, Instant};

use fuzz::targets;
use slabfs_tests::random::Random;
use slabfs_tests::soak;

/// How long a target runs here.
const TIME: Duration = Duration::from_secs(3);
/// The longest input.
const LONGEST: usize = 8192;

/// Runs a target with each of its seeds, and then with changed ones until the time is over.
fn run(target: &str, run: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut seeds: Vec<_> = std::fs::read_dir(&dir)
        .expect("the seeds")
        .map(|entry| entry.expect("a seed").path())
        .collect();
    seeds.sort();
    let seeds: Vec<Vec<u8>> = seeds
        .iter()
        .map(|path| std::fs::read(path).expect("a seed"))
        .collect();
    assert!(!seeds.is_empty(), "{} has no seeds", dir.display());
    seeds.iter().for_each(|seed| run(seed));
    let until = Instant::now() + soak::time().unwrap_or(TIME);
    let first = Random::seed(1);
    let mut runs = 0;
    while Instant::now() < until {
        let number = first + runs;
        let input = changed(&mut Random::exactly(number), &seeds);
        let failed = std::panic::catch_unwind(|| run(&input)).is_err();
        assert!(
            !failed,
            "{target}: SLABFS_TEST_SEED={number} gives {input:02x?}"
        );
        runs += 1;
    }
    println!("{target}: {runs} inputs");
}

/// A seed with some bytes changed, removed, repeated, or taken from another one.
fn changed(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut input = random.pick(seeds).clone();
    for _ in 0..random.range(1, 6) {
        let at = random.range(0, input.len() as u64) as usize;
        let end = at + random.range(0, (input.len() - at) as u64 + 1).min(64) as usize;
        match random.range(0, 5) {
            0 if at < input.len() => input[at] ^= 1 << random.range(0, 8),
            1 if at < input.len() => input[at] = random.number() as u8,
            2 => drop(input.drain(at..end)),
            3 => {
                let part = input[at..end].to_vec();
                input.splice(at..at, part);
            }
            _ => {
                let other = random.pick(seeds);
                let from = random.range(0, other.len() as u64) as usize;
                let part = other[from..].iter().take(64).copied();
                input.splice(at..end, part);
            }
        }
    }
    input.truncate(LONGEST);
    input
}

#[test]
fn chunks() {
    run("chunks", targets::chunks::run);
}

#[test]
fn journal() {
    run("journal", targets::journal::run);
}

#[test]
fn metadata() {
    run("metadata", targets::metadata::run);
}

#[test]
fn query() {
    run("query", targets::query::run);
}

#[test]
fn tags() {
    run("tags", targets::tags::run);
}

#[test]
fn wire() {
    run("wire", targets::wire::run);
}
