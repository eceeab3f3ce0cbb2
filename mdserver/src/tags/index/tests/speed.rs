//! Measures its speed; run by hand, optimised: `cargo test --release -p slabfs-mdserver tags::index::tests::speed --
//! --ignored --nocapture`. `ENTRIES` sets the size.

use super::*;
use std::time::Instant;

/// Entry number `n` of an index of tags: one of ten keys, a value in no order, an inode.
fn entry(n: u64, buffer: &mut Vec<u8>) {
    let value = (n / 10).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    buffer.clear();
    buffer.extend_from_slice(b"v\0experiment.");
    buffer.push(b'0' + (n % 10) as u8);
    buffer.push(0);
    buffer.extend_from_slice(&value.to_be_bytes());
    buffer.extend_from_slice(&(n / 10).to_be_bytes());
}

fn rate(what: &str, count: u64, since: Instant) {
    let seconds = since.elapsed().as_secs_f64();
    let rate = count as f64 / seconds;
    println!("{what:<40} {count:>10} in {seconds:>8.3} s: {rate:>12.0} a second");
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    let entries = std::env::var("ENTRIES")
        .ok()
        .and_then(|text| text.parse().ok());
    let entries: u64 = entries.unwrap_or(4_000_000);
    let dir = TempDir::new().expect("dir");
    let (index, _) = Index::open(dir.path(), IndexOptions::default()).expect("index");
    let mut buffer = Vec::new();

    let started = Instant::now();
    let rebuilt: Result<(), IndexError> = index.rebuild(Lsn(1), |loader| {
        (0..entries).try_for_each(|n| {
            entry(n, &mut buffer);
            loader.push(&buffer)
        })
    });
    rebuilt.expect("rebuilt");
    rate("rebuild", entries, started);
    println!(
        "{} bytes on disk, {:.1} an entry",
        index.bytes(),
        index.bytes() as f64 / entries as f64
    );

    let batch = |first: u64, count: u64| -> Vec<Vec<u8>> {
        let one = |n| {
            let mut bytes = Vec::new();
            entry(n, &mut bytes);
            bytes
        };
        (first..first + count).map(one).collect()
    };
    for (what, size, count) in [("apply by 10", 10, 30_000), ("apply by 1000", 1000, 300)] {
        let first = entries * if size == 10 { 2 } else { 3 };
        let batches: Vec<_> = (0..count)
            .map(|at| batch(first + at * size, size))
            .collect();
        let started = Instant::now();
        for batch in &batches {
            index.apply::<_, Vec<u8>>(batch, &[]).expect("applied");
        }
        rate(what, size * count, started);
        let started = Instant::now();
        persist(&index, size);
        rate("persist", size * count, started);
        let started = Instant::now();
        while index.merge().expect("merged") {}
        rate("merge", index.len(), started);
    }

    for round in ["cold", "warm"] {
        let started = Instant::now();
        for n in 0..100_000_u64 {
            entry(n * 7919 % entries, &mut buffer);
            let mut iter = index.iter(&buffer, None).expect("iter");
            assert_eq!(iter.next().expect("next"), Some(&buffer[..]));
        }
        rate(&format!("lookups, {round}"), 100_000, started);
    }
    let started = Instant::now();
    let mut iter = index.iter(b"", None).expect("iter");
    let mut count = 0;
    while iter.next().expect("next").is_some() {
        count += 1;
    }
    rate("scan", count, started);
    println!("memory {} bytes", index.memory());
    drop(index);
    let started = Instant::now();
    let (index, _) = Index::open(dir.path(), IndexOptions::default()).expect("index");
    rate("open", index.len(), started);
}
