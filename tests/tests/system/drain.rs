//! `slabfs drain`: a data server is emptied while its objects are read and written.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use slabfs_tests::file::named;
use slabfs_tests::tool::{create, layout, servers};
use slabfs_tests::{Cluster, Random, disk, file, needs_mount, poll, slabfs};

/// Rows, and bytes of a row, of each object.
const ROWS: usize = 24;
const ROW: usize = 160 << 10;

/// Objects of every kind, each with data on every server that its placement allows.
const KINDS: [(&str, &[&str]); 7] = [
    ("aligned", &[]),
    ("coded", &["--codec", "lz4"]),
    ("grid", &["--layout", "grid:5,70000"]),
    (
        "canonical",
        &["--layout", "canonical", "--placement", "server:2"],
    ),
    ("named", &["--placement", "server:2"]),
    ("region", &["--placement", "region"]),
    (
        "blocks",
        &["--placement", "region", "--layout", "grid:1,163840"],
    ),
];

fn make(cluster: &Cluster) -> Vec<(PathBuf, Vec<u8>)> {
    let mut made = Vec::new();
    for (i, (name, flags)) in KINDS.iter().enumerate() {
        let path = cluster.at(0, name);
        create(&path, &format!("{ROWS},{ROW}"), "u1", flags);
        let bytes = Random::new(i as u64).bytes(ROWS * ROW);
        for (row, part) in bytes.chunks(ROW).enumerate() {
            file::write_at(&path, (row * ROW) as u64, part);
        }
        made.push((PathBuf::from(name), bytes));
    }
    let plain = Random::new(99).bytes(20 << 20);
    file::write(&cluster.at(0, "plain"), &plain);
    made.push((PathBuf::from("plain"), plain));
    for i in 0..40 {
        file::write(&cluster.at(0, format!("small{i}")), vec![i; 1000]);
        made.push((PathBuf::from(format!("small{i}")), vec![i; 1000]));
    }
    // A hole stays a hole.
    create(
        &cluster.at(0, "sparse"),
        "64,65536",
        "u1",
        &["--layout", "grid:1,65536"],
    );
    let mut sparse = vec![0; 64 * 65536];
    sparse[5 * 65536..][..65536].fill(7);
    file::write_at(&cluster.at(0, "sparse"), 5 * 65536, &[7; 65536]);
    made.push((PathBuf::from("sparse"), sparse));
    made
}

fn servers_of(object: &Path) -> Vec<u64> {
    let layout = layout(object);
    let chunks = layout["chunks"].as_array().expect("chunks");
    let all = chunks.iter().filter_map(|chunk| chunk["server"].as_u64());
    all.collect()
}

fn compare(mnt: &Path, made: &[(PathBuf, Vec<u8>)], when: &str) {
    for (name, bytes) in made {
        let path = mnt.join(name);
        let read = file::read(&path);
        assert_eq!(read.len(), bytes.len(), "{} {when}", name.display());
        if let Some(at) = read.iter().zip(bytes).position(|(a, b)| a != b) {
            panic!("{} differs at {at} {when}", name.display());
        }
    }
}

fn drain(cluster: &Cluster, server: &str, more: &[&str]) -> slabfs_tests::Outcome {
    let mnt = cluster.mnt(0).display().to_string();
    let mut args = vec!["drain", server, &mnt];
    args.extend(more);
    slabfs(args)
}

/// Writes rows of an object through a handle that stays open, until stopped; returns the expected contents.
fn keep_writing(
    path: &Path,
    mut bytes: Vec<u8>,
    part: usize,
    end: &AtomicBool,
    count: &AtomicU64,
) -> Vec<u8> {
    let mut random = Random::new(part as u64 + 7);
    let handle = file::open(path);
    while !end.load(Ordering::Acquire) {
        // Small writes are buffered in memory, large ones go directly to the chunks.
        let len = if random.one_in(2) {
            ROW
        } else {
            1 + random.range(0, 5000) as usize
        };
        let rows = bytes.len() / ROW;
        let row = 2 * random.range(0, rows as u64 / 2) as usize + part;
        let at = row * ROW + random.range(0, (ROW - len + 1) as u64) as usize;
        let data = random.bytes(len);
        handle.write_all_at(&data, at as u64).expect("written");
        bytes[at..at + len].copy_from_slice(&data);
        if random.one_in(8) {
            handle.sync_all().expect("synced");
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
    handle.sync_all().expect("synced");
    file::close(handle).expect("closed");
    bytes
}

/// All objects are written while a server is emptied, and another one is killed and restarted meanwhile.
#[test]
fn under_load() {
    needs_mount!();
    let mut cluster = Cluster::start(3, 2);
    let mut made = make(&cluster);
    let mnts = [cluster.mnt(0), cluster.mnt(1)];
    let (end, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let loaded: Vec<usize> = (0..KINDS.len()).chain([KINDS.len()]).collect();
    let results: Vec<(usize, usize, Vec<u8>)> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for &at in &loaded {
            for (part, mnt) in mnts.iter().enumerate() {
                let (path, bytes) = (mnt.join(&made[at].0), made[at].1.clone());
                let (end, count) = (&end, &count);
                threads.push((
                    at,
                    part,
                    scope.spawn(move || keep_writing(&path, bytes, part, end, count)),
                ));
            }
        }
        poll::until_true("writers at work", || count.load(Ordering::Relaxed) > 50);
        let point = mnts[0].display().to_string();
        let drained = scope.spawn(move || slabfs(["drain", "2", &point]));
        poll::until_true("the drain to begin", || {
            servers(&mnts[0])[1]["draining"] == true
        });
        cluster.kill_server(2);
        cluster.start_server(2);
        let outcome = drained.join().expect("drained");
        let before = count.load(Ordering::Relaxed);
        poll::until_true("writers going on", || {
            count.load(Ordering::Relaxed) > before + 50
        });
        end.store(true, Ordering::Release);
        let results = threads
            .into_iter()
            .map(|(at, part, thread)| (at, part, thread.join().expect("a writer")))
            .collect();
        let said = outcome.ok();
        assert!(
            said.text().contains("it can be stopped"),
            "{}",
            said.report()
        );
        results
    });
    for (at, part, bytes) in results {
        // Each writer writes every second row.
        for (row, data) in bytes
            .chunks(ROW)
            .enumerate()
            .filter(|(row, _)| row % 2 == part)
        {
            made[at].1[row * ROW..][..data.len()].copy_from_slice(data);
        }
    }
    compare(&mnts[0], &made, "on the mount that moved");
    compare(&mnts[1], &made, "on another mount");
    for (name, _) in &made {
        let on = servers_of(&mnts[0].join(name));
        assert!(!on.contains(&2), "{} on {on:?}", name.display());
    }
    let state = |cluster: &Cluster| {
        servers(&cluster.mnt(0))[1]["state"]
            .as_str()
            .map(str::to_owned)
    };
    assert_eq!(state(&cluster).as_deref(), Some("draining"));
    cluster.stop_server(1);
    compare(&mnts[1], &made, "without the server");
    for (name, bytes) in &mut made {
        let path = mnts[1].join(&*name);
        file::write_at(&path, 0, &[9; 100]);
        bytes[..100].fill(9);
    }
    compare(&mnts[1], &made, "written without the server");
    cluster.start_server(1);
    poll::until_true("it to be online", || {
        state(&cluster).as_deref() == Some("draining")
    });
    drain(&cluster, "2", &["--cancel"]).ok();
    poll::until_true("it to get chunks again", || {
        file::write(&cluster.at(0, "after"), vec![1; 1000]);
        create_again(&cluster.at(0, "a"));
        servers_of(&cluster.at(0, "a")).contains(&2)
    });
    cluster.stop_and_fsck().ok();
}

fn create_again(path: &Path) {
    let _ = std::fs::remove_file(path);
    create(path, "8,1000", "u1", &[]);
    for row in 0..8 {
        file::write(&named(path, &format!("@[{row}]")), vec![1; 1000]);
    }
}

/// Every process that takes part is killed in the middle, one after the other; then the drain is repeated.
#[test]
fn after_kills() {
    needs_mount!();
    let mut cluster = Cluster::start(3, 2);
    let made = make(&cluster);
    for (name, _) in &made {
        file::open(&cluster.at(0, name)).sync_all().expect("synced");
    }
    let mnt = cluster.mnt(0);
    let draining = |cluster: &Cluster| {
        // Not to its end: a slice or two by hand.
        let path = cluster.mnt(0).display().to_string();
        slabfs(["call", &path, "{\"op\": \"drain\", \"server\": 2}"]).ok();
        slabfs(["call", &path, "{\"op\": \"drain_slice\", \"server\": 2}"])
    };
    draining(&cluster).ok();
    cluster.kill_mount(0);
    cluster.start_mount(0);
    draining(&cluster).ok();
    cluster.kill_md();
    cluster.start_md();
    // The data servers register again with their next heartbeats.
    poll::until_true("the data servers to be online", || {
        servers(&mnt).iter().all(|one| one["online"] == true)
    });
    assert_eq!(servers(&mnt)[1]["draining"], true, "the mark lasts");
    compare(&mnt, &made, "after the metadata server was killed");
    draining(&cluster).ok();
    cluster.kill_server(1);
    cluster.start_server(1);
    drain(&cluster, "2", &[]).ok();
    cluster.stop_server(1);
    compare(&mnt, &made, "without the server");
    compare(&cluster.mnt(1), &made, "on another mount");
    cluster.stop_and_fsck().ok();
}

#[test]
fn impossible_drains() {
    needs_mount!();
    let cluster = Cluster::start(1, 1);
    drain(&cluster, "7", &[]).fails(1, &["no data server 7"]);
    drain(&cluster, "1", &[]).fails(1, &["no other data server"]);
    file::write(&cluster.at(0, "f"), "works");
}

/// Only existing bytes are moved: small files stay small, and holes stay holes.
#[test]
fn moved_chunks_take_no_more_space() {
    needs_mount!();
    let cluster = Cluster::start(2, 1);
    let mut made: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for i in 0..100 {
        let name = PathBuf::from(format!("small{i}"));
        file::write(&cluster.at(0, &name), [i; 6]);
        made.push((name, vec![i; 6]));
    }
    for (name, fill, dims) in [("zeros", "0", "16,524288"), ("sevens", "7", "16,524288")] {
        let more = ["--fill", fill, "--layout", "grid:16,524288"];
        create(&cluster.at(0, name), dims, "u1", &more);
        let mut bytes = vec![fill.parse().expect("a byte"); 16 << 19];
        for at in [100, 3 << 20, (8 << 20) - 1000] {
            file::write_at(&cluster.at(0, name), at, &[9; 1000]);
            bytes[at as usize..][..1000].fill(9);
        }
        made.push((PathBuf::from(name), bytes));
    }
    for (name, _) in &made {
        file::open(&cluster.at(0, name)).sync_all().expect("synced");
    }
    let used = || -> u64 { (0..2).map(|i| disk::used(&cluster.server_data(i))).sum() };
    let before = used();
    for server in ["1", "2"] {
        drain(&cluster, server, &[]).ok();
        drain(&cluster, server, &["--cancel"]).ok();
        compare(&cluster.mnt(0), &made, "after it was moved");
    }
    let after = used();
    assert!(after < before + (2 << 20), "{before} bytes became {after}");
}

/// Chunks of an object with a named server are moved once, and counted once; when the mark is removed, new
/// chunks are on the named server again.
#[test]
fn objects_of_a_named_server_move_once_and_come_back() {
    needs_mount!();
    let cluster = Cluster::start(3, 2);
    let mut made = Vec::new();
    for i in 0..20 {
        let name = PathBuf::from(format!("n{i}"));
        create(
            &cluster.at(0, &name),
            "8,1000",
            "u1",
            &["--placement", "server:2"],
        );
        for row in 0..8 {
            file::write(
                &named(&cluster.at(0, &name), &format!("@[{row}]")),
                [i; 1000],
            );
        }
        made.push((name, vec![i; 8000]));
    }
    let before: usize = made
        .iter()
        .map(|(name, _)| servers_of(&cluster.at(0, name)).len())
        .sum();
    let output = drain(&cluster, "2", &["--json"]).ok().json();
    assert_eq!(output["chunks"], before, "{output}");
    assert_eq!(output["bytes"], 20 * 8000, "{output}");
    compare(&cluster.mnt(0), &made, "after it was drained");
    for (name, _) in &made {
        assert!(!servers_of(&cluster.at(0, name)).contains(&2));
    }
    drain(&cluster, "2", &["--cancel"]).ok();
    for who in [1, 0] {
        let path = cluster.at(who, format!("after{who}"));
        create(&path, "1000", "u1", &["--placement", "server:2"]);
        file::write_at(&path, 0, &[1; 1000]);
        assert_eq!(servers_of(&path), [2], "mount {who}");
    }
    let request = "{\"op\": \"drain_slice\", \"server\": 2}";
    let mnt = cluster.mnt(0).display().to_string();
    slabfs(["call", &mnt, request]).fails(2, &["not marked"]);
}

/// More objects than one page of the drain has.
#[test]
fn a_server_among_many_objects_is_emptied() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 1);
    let mnt = cluster.mnt(0).display().to_string();
    let list = cluster.at(0, "list.json");
    let names: Vec<String> = (0..1100)
        .map(|i| format!("{{\"path\": \"empty{i}\", \"placement\": \"server:1\"}}"))
        .collect();
    file::write(&list, names.join("\n"));
    let list = list.display().to_string();
    slabfs(["create", mnt.as_str(), "--from-json", list.as_str()]).ok();
    file::write(&cluster.at(0, "last"), vec![7; 100_000]);
    let said = drain(&cluster, "2", &["--patience", "20s"]).ok();
    assert!(
        said.text().contains("it can be stopped"),
        "{}",
        said.report()
    );
    assert_eq!(file::read(&cluster.at(0, "last")), vec![7; 100_000]);
    drain(&cluster, "2", &["--cancel"]).ok();
    cluster.stop_and_fsck().ok();
}

/// Chunks of an object with a named server go elsewhere while that server is emptied.
#[test]
fn an_emptied_server_stays_empty() {
    needs_mount!();
    let mut cluster = Cluster::start(3, 1);
    let named = ["--placement", "server:2"];
    let rewritten = cluster.at(0, "rewritten");
    create(&rewritten, "64,1024", "u1", &named);
    file::write_at(&rewritten, 0, &[3; 64 * 1024]);
    let inner = cluster.at(0, "inner");
    std::fs::create_dir(&inner).expect("made");
    let point = inner.display().to_string();
    slabfs(["set", point.as_str(), "--default-placement", "server:2"]).ok();
    drain(&cluster, "2", &[]).ok();
    let at = rewritten.display().to_string();
    slabfs(["set", at.as_str(), "--layout", "grid:8,1024"]).ok();
    file::write(&inner.join("new"), vec![5; 300_000]);
    for path in [&rewritten, &inner.join("new")] {
        file::open(path).sync_all().expect("synced");
        assert!(!servers_of(path).contains(&2), "{}", path.display());
    }
    assert_eq!(servers(&cluster.mnt(0))[1]["chunks"], 0);
    // With the mark removed it is used again.
    drain(&cluster, "2", &["--cancel"]).ok();
    poll::until_true("it to get chunks again", || {
        file::write(&inner.join("later"), vec![6; 300_000]);
        let on = servers_of(&inner.join("later"));
        std::fs::remove_file(inner.join("later")).expect("removed");
        on == [2]
    });
    cluster.stop_and_fsck().ok();
}
