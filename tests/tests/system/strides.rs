//! Reads and writes at equal steps, as MPI libraries make them: how few chunks and requests they cost, and that
//! the bytes are right whatever overlaps.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use slabfs_tests::array::same;
use slabfs_tests::file;
use slabfs_tests::tool::{create, info, stats};
use slabfs_tests::{Cluster, Random, needs_mount};

const PIECE: usize = 4096;

/// Every `ranks`-th piece of the file, from the `rank`-th on.
fn write_pieces(file: &File, rank: usize, ranks: usize, bytes: &[u8]) {
    for at in (rank * PIECE..bytes.len()).step_by(ranks * PIECE) {
        file.write_all_at(&bytes[at..at + PIECE], at as u64)
            .expect("written");
    }
}

fn chunks(path: &Path) -> u64 {
    info(path)["chunks"].as_u64().expect("a number of chunks")
}

/// Requests of a mount to data servers so far.
fn asked(mount: &Path) -> (u64, u64) {
    let read = &stats(mount)["read"];
    let number = |key: &str| read[key].as_u64().expect("a counter");
    (number("server_ops"), number("bytes_sent"))
}

#[test]
fn pieces_of_alternating_ranks_are_a_chunk_a_rank() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    let mut random = Random::new(1);
    let bytes = random.bytes(256 * PIECE);
    create(
        &cluster.at(0, "a"),
        &(bytes.len() / 4).to_string(),
        "f4",
        &[],
    );
    for round in 0..3 {
        let ranks: Vec<File> = (0..4)
            .map(|rank| file::open(&cluster.at(rank / 2, "a")))
            .collect();
        for (rank, file) in ranks.iter().enumerate() {
            write_pieces(file, rank, 4, &bytes);
        }
        for file in ranks {
            file::close(file).expect("closed");
        }
        // Written again, the same pieces are the same chunks.
        assert_eq!(chunks(&cluster.at(0, "a")), 4, "round {round}");
        for mount in 0..2 {
            same("all", &file::read(&cluster.at(mount, "a")), &bytes);
        }
    }
    // Few small pieces far apart are boxes, as before.
    create(&cluster.at(0, "few"), "1048576", "u1", &[]);
    let few = file::open(&cluster.at(0, "few"));
    for at in [0, 100, 200, 300, 400, 500, 600] {
        few.write_all_at(b"piece", at).expect("written");
    }
    file::close(few).expect("closed");
    assert_eq!(chunks(&cluster.at(0, "few")), 7);
}

/// Lattices of many steps that overlap, and boxes between them: the bytes are right, and the stored bytes are
/// bounded although nothing is ever merged.
#[test]
fn many_steps_over_each_other() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 2);
    let mut random = Random::new(2);
    for dims in ["40000", "200,200", "8,50,100"] {
        let name = dims.replace(',', "x");
        create(&cluster.at(0, &name), dims, "u1", &[]);
        let mut wanted = vec![0; 40_000];
        for round in 0..60_u32 {
            let mount = random.range(0, 2) as usize;
            let file = file::open(&cluster.at(mount, &name));
            let len = random.range(1, 40) as usize;
            let step = len + random.range(1, 60) as usize;
            let mut at = random.range(0, 2000) as usize;
            let end = random.range(at as u64, 40_000) as usize;
            while at + len < end {
                let bytes = vec![round as u8 + 1; len];
                file.write_all_at(&bytes, at as u64).expect("written");
                wanted[at..at + len].copy_from_slice(&bytes);
                at += step;
            }
            file::close(file).expect("closed");
            if round % 10 == 9 {
                for mount in 0..2 {
                    let what = format!("{dims}, round {round}, mount {mount}");
                    same(&what, &file::read(&cluster.at(mount, &name)), &wanted);
                }
            }
        }
        // Bounded by the number of pieces: a byte is in few chunks, or in boxes, which hide old chunks.
        let stored = info(&cluster.at(0, &name))["stored"]
            .as_u64()
            .unwrap_or_else(|| panic!("{}", info(&cluster.at(0, &name))));
        assert!(stored < 40_000 * 12, "{dims}: {stored} bytes are stored");
    }
    cluster.stop_and_fsck().ok();
}

/// The same step repeatedly, each time from another start: each lattice has the same step as those before, and
/// hides what it covers.
#[test]
fn the_same_step_does_not_accumulate() {
    needs_mount!();
    let cluster = Cluster::start(1, 1);
    create(&cluster.at(0, "a"), "100000", "u1", &[]);
    let mut random = Random::new(3);
    for _ in 0..100 {
        let file = file::open(&cluster.at(0, "a"));
        let from = random.range(0, 800);
        for piece in from..random.range(from, 1001) {
            file.write_all_at(&[piece as u8; 50], piece * 100)
                .expect("written");
        }
        file::close(file).expect("closed");
    }
    // Those that are partly hidden by others: a chain of ends, not a hundred.
    let left = chunks(&cluster.at(0, "a"));
    assert!(left < 40, "{left} chunks");
}

/// Rows of a box, every n-th piece, and the rows of a box in planes: read a piece at a time, fetched many at a
/// time.
#[test]
fn reads_at_equal_steps_are_few_requests() {
    needs_mount!();
    // They appear to be on different machines: on the same machine chunks are read from their files, and
    // nothing ahead.
    let cluster = Cluster::tcp(2, 2);
    let mut random = Random::new(4);
    let bytes = random.bytes(4 << 20);
    for layout in ["aligned", "grid:7,128,64"] {
        let name = &layout[..4];
        create(
            &cluster.at(0, name),
            "16,256,256",
            "f4",
            &["--layout", layout],
        );
        file::write(&cluster.at(0, name), &bytes);
        // Of length, step, and rows a plane with the step from plane to plane.
        for (len, step, rows, plane) in [
            (700, 1024, 4000, 0),
            (900, 16384, 250, 0),
            (300, 1024, 100, 256 * 1024),
        ] {
            let file = File::open(cluster.at(1, name)).expect("opened");
            let before = asked(&cluster.mnt(1));
            let planes = if plane == 0 { 1 } else { 15 };
            for start in (0..planes).map(|at| 52 + at * plane) {
                for row in 0..rows {
                    let at = start + row * step;
                    let mut found = vec![0; len];
                    file.read_exact_at(&mut found, at as u64).expect("read");
                    same(
                        &format!("{layout}, {len} at {at}"),
                        &found,
                        &bytes[at..][..len],
                    );
                }
            }
            let after = asked(&cluster.mnt(1));
            let (ops, moved) = (after.0 - before.0, after.1 - before.1);
            let (reads, selected) = (planes * rows, planes * rows * len);
            let what = format!("{layout}: {ops} pieces, {moved} bytes for {reads} reads of {len}");
            // One part of each chunk per window.
            assert!(ops as usize <= reads / 4, "{what}");
            // Data fetched beyond the last row is bounded by the data read.
            assert!(moved as usize <= selected * 3 + (256 << 10), "{what}");
        }
    }
}

/// Data read ahead is not returned when it is stale: other handles of the same mount and of another one write
/// between the reads.
#[test]
fn data_read_ahead_is_never_stale() {
    needs_mount!();
    never_old(&Cluster::tcp(2, 2));
}

/// The same where large chunks are read from their files, and other data is fetched ahead.
#[test]
fn data_read_from_files_is_never_stale() {
    needs_mount!();
    never_old(&Cluster::start(2, 2));
}

fn never_old(cluster: &Cluster) {
    let mut random = Random::new(5);
    for layout in ["aligned", "grid:16,64", "bytes"] {
        let name = &layout[..4];
        if layout == "bytes" {
            drop(file::open_new(&cluster.at(0, name)));
        } else {
            create(&cluster.at(0, name), "256,256", "u1", &["--layout", layout]);
        }
        let mut wanted = random.bytes(1 << 16);
        file::write(&cluster.at(0, name), &wanted);
        let writers: Vec<File> = (0..2)
            .map(|mount| file::open(&cluster.at(mount, name)))
            .collect();
        for round in 0..30 {
            let file = File::open(cluster.at(1, name)).expect("opened");
            let (len, step) = (
                random.range(1, 200) as usize,
                256 * random.range(1, 3) as usize,
            );
            let mut at = random.range(0, 50) as usize;
            while at + len <= wanted.len() {
                if random.one_in(4) {
                    // Mostly within the window.
                    let from = (at + random.range(0, 2000) as usize).min((1 << 16) - 300);
                    let count = random.range(1, 300) as usize;
                    let bytes = random.bytes(count);
                    let who = random.range(0, 2) as usize;
                    writers[who]
                        .write_all_at(&bytes, from as u64)
                        .expect("written");
                    wanted[from..from + bytes.len()].copy_from_slice(&bytes);
                    if random.one_in(3) {
                        writers[who].sync_all().expect("synced");
                    }
                }
                let mut found = vec![0; len];
                file.read_exact_at(&mut found, at as u64).expect("read");
                same(
                    &format!("{layout}, round {round}, {len} at {at}"),
                    &found,
                    &wanted[at..][..len],
                );
                at += step;
            }
        }
    }
}

/// A part of each n-th element of an array whose fill value is not one repeated byte: data read ahead of holes
/// has the right bytes of the fill value.
#[test]
fn parts_of_unwritten_elements() {
    needs_mount!();
    let cluster = Cluster::start(1, 1);
    for (layout, name) in [("aligned", "a"), ("grid:50000", "g")] {
        let path = cluster.at(0, name);
        let args = ["--fill", "1.2345678", "--layout", layout];
        create(&path, "131072", "f8", &args);
        let wanted = 1.2345678_f64.to_le_bytes().repeat(131_072);
        for (first, len, step) in [
            (0, 4, 70_008),
            (4, 4, 70_008),
            (3, 12, 70_008),
            (0, 8, 70_004),
            (2, 16, 70_008),
        ] {
            let file = File::open(&path).expect("opened");
            for at in (first..wanted.len() - len).step_by(step) {
                let mut found = vec![0; len];
                file.read_exact_at(&mut found, at as u64).expect("read");
                let what = format!("{layout}, {len} of each {step} bytes, at {at}");
                same(&what, &found, &wanted[at..][..len]);
            }
        }
    }
}
