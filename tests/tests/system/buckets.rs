//! Data servers over a bucket of SeaweedFS: the suite of chunk stores, servers that are killed, and others that take over.

use std::fs;
use std::os::unix::fs::FileExt;

use nix::sys::signal::Signal;
use slabfs_objstore::ChunkStore;
use slabfs_objstore::store::conformance;
use slabfs_s3::{Bucket, S3Options, S3Store};
use slabfs_tests::weed::{CREDENTIALS, Weed};
use slabfs_tests::{Area, Cluster, Random, file, needs_mount, poll, tool::create};

/// A store over a bucket is a store as the local one is.
#[test]
fn a_bucket_passes_the_suite_of_chunk_stores() {
    let area = Area::new();
    let weed = Weed::start();
    let addr = weed.url("suite").parse().expect("an address");
    let bucket = Bucket::open_with(&addr, &CREDENTIALS).expect("the bucket");
    // Not all is in the cache.
    let options = S3Options {
        cache_bytes: 4 << 20,
    };
    let store = S3Store::open(&area.at("cache"), bucket, Some("one"), options).expect("a store");
    conformance::run(&store);
    store.sync(&[]).expect("a sync");
    conformance::random::run(&store, 9, 250);
    store.close().expect("closed");
}

/// Servers whose chunks are in a bucket: two identities, and a third server to take one over.
fn cluster(weed: &Weed) -> Cluster {
    let mut cluster = Cluster::new(3, &["--io-timeout", "60s"], false);
    for i in 0..3 {
        let identity = if i == 2 { "one" } else { ["one", "two"][i] };
        let flags = ["--store", &weed.url("fs"), "--identity", identity];
        cluster.server_flags(i, &flags);
        for var in CREDENTIALS {
            cluster.server_var(i, var);
        }
    }
    cluster.start_md();
    cluster.start_server(0);
    cluster.start_server(1);
    cluster.add_mount();
    cluster.add_mount();
    cluster
}

/// What was synced is there when a server is killed and another one has its identity, on another directory; a server that was only
/// stopped is refused when it goes on.
#[test]
fn another_server_takes_over() {
    needs_mount!();
    let weed = Weed::start();
    let mut cluster = cluster(&weed);
    let mut random = Random::new(5);
    let bytes = random.bytes(9 << 20);
    fs::write(cluster.at(0, "file0"), &bytes).expect("a file");
    create(&cluster.at(0, "array"), "1000,1000", "f4", &[]);
    let array = random.bytes(4_000_000);
    file::write(&cluster.at(0, "array"), &array);
    for name in ["file0", "array"] {
        let file = fs::File::open(cluster.at(0, name)).expect("a file");
        file.sync_all().expect("synced");
    }
    // Stopped: it does not know that it is replaced.
    cluster.server(0).signal(Signal::SIGSTOP);
    cluster.start_server(2);
    assert!(file::read(&cluster.at(1, "file0")) == bytes);
    assert!(file::read(&cluster.at(1, "array")) == array);
    let more = random.bytes(100_000);
    let file0 = fs::OpenOptions::new()
        .write(true)
        .open(cluster.at(1, "file0"))
        .expect("a file");
    file0.write_all_at(&more, 3 << 20).expect("written");
    file0.sync_all().expect("synced");
    cluster.server(0).signal(Signal::SIGCONT);
    assert_ne!(cluster.await_server_end(0), 0);
    let mut wanted = bytes;
    wanted[3 << 20..(3 << 20) + more.len()].copy_from_slice(&more);
    assert!(file::read(&cluster.at(0, "file0")) == wanted);
    // Killed, and started again with an empty cache.
    cluster.kill_server(2);
    cluster.start_server(0);
    assert!(file::read(&cluster.at(1, "file0")) == wanted);
    assert!(file::read(&cluster.at(0, "array")) == array);
    // Stopped in order.
    for i in 0..2 {
        cluster.stop_server(i);
        cluster.start_server(i);
    }
    assert!(file::read(&cluster.at(1, "file0")) == wanted);
    assert!(file::read(&cluster.at(0, "array")) == array);
}

/// A standby takes over by itself when its server is killed.
#[test]
fn a_standby_takes_over() {
    needs_mount!();
    let weed = Weed::start();
    let mut cluster = cluster(&weed);
    cluster.server_flags(2, &["--standby"]);
    cluster.start_server(2);
    let path = cluster.at(0, "file");
    let mut wanted = Vec::new();
    for round in 0..2 {
        let bytes = Random::new(round).bytes(1 << 20);
        let file = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .and_then(|mut file| {
                std::io::Write::write_all(&mut file, &bytes)?;
                file.sync_all()
            });
        file.expect("written and synced");
        wanted.extend(bytes);
        assert!(file::read(&cluster.at(1, "file")) == wanted);
        if round == 0 {
            cluster.kill_server(0);
        }
    }
    assert!(
        cluster
            .server(2)
            .log()
            .contains("this one does from now on")
    );
}

/// Space in the bucket comes back when files are removed and the index is stored.
#[test]
fn removed_files_leave_the_bucket() {
    needs_mount!();
    let weed = Weed::start();
    let mut cluster = cluster(&weed);
    let bytes = Random::new(6).bytes(6 << 20);
    for number in 0..8 {
        let path = cluster.at(0, format!("f{number}"));
        create(&path, "6,1048576", "u1", &[]);
        file::write(&path, &bytes);
    }
    for number in 0..8 {
        let file = fs::File::open(cluster.at(0, format!("f{number}")));
        file.and_then(|file| file.sync_all()).expect("synced");
    }
    let have = |cluster: &Cluster, any: bool| {
        let servers = slabfs_tests::tool::servers(&cluster.mnt(0));
        servers.iter().all(|server| (server["chunks"] != 0) == any)
    };
    poll::until_true("the servers report chunks", || have(&cluster, true));
    for number in 0..8 {
        fs::remove_file(cluster.at(0, format!("f{number}"))).expect("removed");
    }
    poll::until_true("they have deleted them", || have(&cluster, false));
    let addr = weed.url("fs").parse().expect("an address");
    let bucket = Bucket::open_with(&addr, &CREDENTIALS).expect("the bucket");
    cluster.stop_server(0);
    cluster.stop_server(1);
    for identity in ["one", "two"] {
        let left = bucket.list(&format!("{identity}/chunks")).expect("a list");
        assert!(left.is_empty(), "{left:?}");
    }
}
