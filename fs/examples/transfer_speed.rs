//! Measures the throughput of transfers and compares it with a raw stream over the same kind of socket. Two data
//! servers and a metadata service listen on Unix sockets, as threads of this process.
//!
//! `cargo run --release -p slabfs-fs --example transfer_speed [DIRECTORY]`

#![allow(clippy::unwrap_used, reason = "a measurement may panic")]

#[path = "../tests/sockets/mod.rs"]
mod sockets;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slabfs_fs::client::transfer::{Memory, start_all, wait_all};
use slabfs_fs::client::{Client, ClientOptions, Handle};
use slabfs_model::{Hyperslab, Region};
use sockets::{Cluster, create, spec};

const REGION: usize = 4 << 20;
const REGIONS: u64 = 64;
const SMALL: usize = 3 << 10;
const ROUNDS: usize = 5;

fn row(number: u64, len: usize) -> Hyperslab {
    Hyperslab::from_region(&Region::new(&[number, 0], &[1, len as u64]))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Streams bytes through two socket pairs at the same time; the receivers discard them.
fn raw(bytes: usize) -> Duration {
    let begun = Instant::now();
    std::thread::scope(|threads| {
        for _ in 0..2 {
            let (mut from, mut to) = UnixStream::pair().unwrap();
            threads.spawn(move || {
                let block = vec![1u8; REGION];
                for _ in 0..bytes / 2 / REGION {
                    from.write_all(&block).unwrap();
                }
            });
            threads.spawn(move || {
                let mut block = vec![0u8; REGION];
                for _ in 0..bytes / 2 / REGION {
                    to.read_exact(&mut block).unwrap();
                }
            });
        }
    });
    begun.elapsed()
}

fn write_all(handle: &Arc<Handle>, buffers: Vec<Vec<u8>>, len: usize) -> Vec<Vec<u8>> {
    let mut writes: Vec<_> = buffers
        .into_iter()
        .zip(0..)
        .map(|(buffer, n)| {
            let write = handle.write_transfer(&row(n, len), &Memory::packed(), buffer);
            write.unwrap()
        })
        .collect();
    start_all(&mut writes).unwrap();
    let ends = wait_all(writes).unwrap();
    ends.into_iter().map(|end| end.unwrap()).collect()
}

fn read_all(handle: &Arc<Handle>, buffers: Vec<Vec<u8>>, len: usize) -> Vec<Vec<u8>> {
    let reads = buffers.into_iter().zip(0..).map(|(buffer, n)| {
        let read = handle.read_transfer(&row(n, len), &Memory::packed(), buffer);
        read.unwrap()
    });
    let ends = wait_all(reads).unwrap();
    ends.into_iter().map(|end| end.unwrap()).collect()
}

fn large(client: &Arc<Client>, layout: &str) {
    let mut own = spec("u1", &[REGIONS, REGION as u64], layout);
    if layout == "aligned" {
        own.placement = Some("dynamic".parse().unwrap());
    }
    let (_, handle) = create(client, layout, own);
    let bytes = REGION * REGIONS as usize;
    let mut buffers = vec![vec![1u8; REGION]; REGIONS as usize];
    let (mut raws, mut writes, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        raws.push(raw(bytes));
        let begun = Instant::now();
        buffers = write_all(&handle, buffers, REGION);
        writes.push(begun.elapsed());
        // The replaced chunks are deleted before the next round.
        handle.fsync().unwrap();
        let begun = Instant::now();
        buffers = read_all(&handle, buffers, REGION);
        reads.push(begun.elapsed());
    }
    let speed = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    let (raw, write, read) = (median(raws), median(writes), median(reads));
    println!(
        "{REGIONS} x 4 MiB, {layout}: raw {:.2} GB/s, written {:.2} ({:.2} of raw), read {:.2} ({:.2} of raw)",
        speed(raw),
        speed(write),
        raw.as_secs_f64() / write.as_secs_f64(),
        speed(read),
        raw.as_secs_f64() / read.as_secs_f64(),
    );
    // A writer that computes for as long as a transfer takes: how much of the transfer is hidden.
    let mut hidden = Vec::new();
    for _ in 0..ROUNDS {
        let mut all: Vec<_> = buffers
            .into_iter()
            .zip(0..)
            .map(|(buffer, n)| {
                let write = handle.write_transfer(&row(n, REGION), &Memory::packed(), buffer);
                write.unwrap()
            })
            .collect();
        start_all(&mut all).unwrap();
        std::thread::sleep(write);
        let begun = Instant::now();
        let ends = wait_all(all).unwrap();
        hidden.push(begun.elapsed());
        buffers = ends.into_iter().map(|end| end.unwrap()).collect();
        handle.fsync().unwrap();
    }
    let left = median(hidden).as_secs_f64() / write.as_secs_f64();
    println!(
        "behind a sleep of the same length: {:.0} % hidden",
        100.0 * (1.0 - left)
    );
    handle.release().unwrap();
}

fn small(client: &Arc<Client>) {
    let mut own = spec("u1", &[64, SMALL as u64], "aligned");
    own.placement = Some("dynamic".parse().unwrap());
    let (_, handle) = create(client, "small", own);
    let mut buffers = vec![vec![1u8; SMALL]; 64];
    for (what, reads) in [("written and committed", false), ("read", true)] {
        let (mut times, begun) = (Vec::new(), Instant::now());
        while begun.elapsed() < Duration::from_secs(3) {
            let one = Instant::now();
            buffers = match reads {
                true => read_all(&handle, buffers, SMALL),
                false => write_all(&handle, buffers, SMALL),
            };
            times.push(one.elapsed());
        }
        let rate = times.len() as f64 * 64.0 / begun.elapsed().as_secs_f64();
        times.sort();
        println!(
            "regions of 3 KB, 64 to a start: {rate:.0} {what} a second; a start of 64: median {:?}, p99 {:?}",
            times[times.len() / 2],
            times[times.len() * 99 / 100]
        );
    }
    handle.release().unwrap();
}

fn main() {
    let place = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm".into());
    let dir = tempfile::tempdir_in(place).unwrap();
    let cluster = Cluster::open(dir.path(), 2);
    let client = cluster.client(ClientOptions::default());
    let only = std::env::args().nth(2);
    if only.as_deref() != Some("small") {
        // In a grid layout each byte has a fixed place, and is sent over the socket.
        for layout in ["aligned", "grid:1,4194304", "grid:2,1000000"] {
            large(&client, layout);
        }
    }
    if only.as_deref() != Some("large") {
        small(&client);
    }
    client.stop().unwrap();
    cluster.close();
}
