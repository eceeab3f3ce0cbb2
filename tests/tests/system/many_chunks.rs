//! An array of very many chunks costs a reader as much as one of few: messages, and memory of the mount.

use std::os::unix::fs::FileExt;
use std::path::Path;

use slabfs_fs::client::transfer::{Memory, start_all, wait_all};
use slabfs_fs::session::{ConnectOptions, ObjectSpec, Session};
use slabfs_model::{Hyperslab, Region};
use slabfs_tests::tool::stats;
use slabfs_tests::{Cluster, Random, needs_mount};

const ROW: u64 = 64;
const MANY: u64 = 40_000;

/// An array of `rows` rows, each of them a chunk.
fn fill(session: &Session, name: &str, rows: u64) {
    let spec = ObjectSpec::array([rows, ROW], "u1".parse().expect("a dtype"));
    let object = session.create(name, &spec).expect("made");
    for from in (0..rows).step_by(8000) {
        let mut transfers: Vec<_> = (from..rows.min(from + 8000))
            .map(|row| {
                let slab = Hyperslab::from_region(&Region::new(&[row, 0], &[1, ROW]));
                object
                    .write_transfer(slab, &Memory::packed(), bytes_of(row))
                    .expect("a transfer")
            })
            .collect();
        start_all(&mut transfers).expect("started");
        for ended in wait_all(transfers).expect("waited for") {
            ended.expect("written");
        }
    }
    object.sync().expect("on disk");
    object.close().expect("closed");
}

fn bytes_of(row: u64) -> Vec<u8> {
    (0..ROW)
        .map(|at| (row * 31 + at + row / 251) as u8)
        .collect()
}

/// Opens a row, reads and closes it; returns the number of requests to the metadata service.
fn read(mnt: &Path, name: &str, row: u64) -> u64 {
    let requests = || {
        let stats = stats(mnt);
        stats["metadata_requests"].as_u64().expect("a number")
    };
    let before = requests();
    let bytes = std::fs::read(mnt.join(format!("{name}@[{row},:]"))).expect("read");
    assert_eq!(bytes, bytes_of(row), "{name}, row {row}");
    requests() - before
}

#[test]
fn cost_a_reader_what_few_cost() {
    needs_mount!();
    let limit = 4 << 20;
    let cluster = Cluster::with(1, 1, &["--tilings", "4M", "--cache", "4M"]);
    let mnt = cluster.mnt(0);
    let session = Session::connect(&ConnectOptions::to(cluster.md_addr())).expect("connected");
    fill(&session, "few", 100);
    fill(&session, "many", MANY);

    for row in 0..50 {
        read(&mnt, "few", row);
    }
    let before = cluster.mount(0).memory().0;
    // The cached tiling of a closed array is used by the next open.
    read(&mnt, "many", 77);
    let least = |name: &str| (0..10).map(|_| read(&mnt, name, 77)).min();
    assert_eq!(least("many"), least("few"));
    // At random places: one request for the tiling each, and nothing else. Counted together, because heartbeats are
    // counted in a concurrent read.
    let mut random = Random::new(3);
    let all: u64 = (0..300)
        .map(|_| read(&mnt, "many", random.range(0, MANY)))
        .sum();
    let most = 300 * (least("few").expect("some") + 3);
    assert!(all <= most, "{all} requests for 300 reads, not {most}");
    // One after the other: windows grow.
    let file = std::fs::File::open(mnt.join("many")).expect("open");
    for row in 0..MANY {
        let mut bytes = [0; ROW as usize];
        file.read_exact_at(&mut bytes, row * ROW).expect("read");
        assert_eq!(bytes[..], bytes_of(row), "row {row}");
    }
    drop(file);
    let cached = stats(&mnt)["tiling_bytes"].as_u64().expect("a number");
    assert!(cached <= limit, "{cached} bytes of tilings");
    let grown = cluster.mount(0).memory().0.saturating_sub(before);
    // Most of it is free memory that the allocator has not returned: 57 to 94 MiB were seen, whatever the limit.
    assert!(grown < 192 << 20, "{grown} bytes more are resident");
    // Only now: a mount that becomes the only one makes fewer requests for a read.
    session.close().expect("closed");
}
