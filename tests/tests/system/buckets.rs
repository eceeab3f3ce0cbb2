//! Data servers over a bucket of SeaweedFS: the suite of chunk stores, servers that are killed, and others that take over.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use slabfs_objstore::ChunkStore;
use slabfs_objstore::store::conformance;
use slabfs_s3::{Bucket, S3Options, S3Store};
use slabfs_tests::http_faults::{HttpFaults, Mode};
use slabfs_tests::tool::{self, create};
use slabfs_tests::weed::{CREDENTIALS, Weed};
use slabfs_tests::{Area, Cluster, Random, binary, file, needs_mount, poll, slabfs};

/// A store over a bucket is a store as the local one is.
#[test]
fn a_bucket_passes_the_suite_of_chunk_stores() {
    let area = Area::new();
    let weed = Weed::shared();
    let addr = weed.url("suite").parse().expect("an address");
    let bucket = Bucket::open_with(&addr, &CREDENTIALS).expect("the bucket");
    // Not all is in the cache.
    let options = S3Options {
        cache_bytes: 4 << 20,
        ..S3Options::default()
    };
    let store = S3Store::open(&area.at("cache"), bucket, Some("one"), options).expect("a store");
    conformance::run(&store);
    store.sync(&[]).expect("a sync");
    conformance::random::run(&store, 9, 250);
    store.close().expect("closed");
}

/// Servers whose chunks are in a bucket: two identities, and a third server to take one over.
fn cluster(weed: &Weed, prefix: &str) -> Cluster {
    cluster_by(&weed.url(prefix))
}

fn cluster_by(url: &str) -> Cluster {
    let mut cluster = Cluster::new(3, &["--io-timeout", "60s"], false);
    for i in 0..3 {
        let identity = if i == 2 { "one" } else { ["one", "two"][i] };
        let flags = ["--store", url, "--identity", identity];
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
    let weed = Weed::shared();
    let mut cluster = cluster(&weed, "another_server_takes_over");
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

/// `slabfs fsck` of a bucket: what is right, an object that an upload left behind, and one that is missing.
#[test]
fn a_bucket_is_checked() {
    needs_mount!();
    let weed = Weed::shared();
    let prefix = "a_bucket_is_checked";
    let mut cluster = cluster(&weed, prefix);
    let mut random = Random::new(3);
    for at in 0..20 {
        let path = cluster.at(0, format!("f{at}"));
        fs::write(&path, random.bytes(10_000)).expect("a file");
        let synced = fs::File::open(&path).and_then(|file| file.sync_all());
        synced.expect("synced");
    }
    let array = cluster.at(0, "array");
    create(&array, "1000,1000", "f4", &[]);
    file::write(&array, random.bytes(4_000_000));
    (0..2).for_each(|i| cluster.stop_mount(i));
    (0..2).for_each(|i| cluster.stop_server(i));
    cluster.stop_md();
    let url = weed.url(prefix);
    let fsck = |more: &[&str]| {
        let mut command = Command::new(slabfs_tests::binary::path());
        command.args(["fsck", "--deep", "--store", &url]).args(more);
        command.arg("--data").arg(cluster.md_data());
        for i in 0..2 {
            command.arg("--chunks").arg(cluster.server_data(i));
        }
        let output = command.envs(CREDENTIALS).output().expect("fsck");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let (status, text) = fsck(&[]);
    assert_eq!(status, Some(0), "{text}");
    let addr = url.parse().expect("an address");
    let bucket = Bucket::open_with(&addr, &CREDENTIALS).expect("the bucket");
    let left = bucket.store_parts("one/chunks/ffff.0", &mut &b"left"[..]);
    left.expect("an object");
    let (status, text) = fsck(&[]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("one/chunks/ffff.0"), "{text}");
    let (status, text) = fsck(&["--repair"]);
    assert_eq!(status, Some(0), "{text}");
    let (status, text) = fsck(&[]);
    assert_eq!(status, Some(0), "{text}");
    let own = |identity: &str| {
        let listed = bucket.list(&format!("{identity}/chunks")).expect("objects");
        let key = |name: String| format!("{identity}/chunks/{name}");
        listed.into_iter().map(key).next()
    };
    let key = own("one").or_else(|| own("two")).expect("a large chunk");
    bucket
        .delete_all(std::slice::from_ref(&key))
        .expect("deleted");
    let (status, text) = fsck(&[]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains(&key), "{text}");
    // Without the bucket's address it is not taken for an empty store.
    let refused = slabfs(
        [
            "fsck",
            "--data",
            &cluster.md_data().display().to_string(),
            "--chunks",
        ]
        .map(str::to_owned)
        .into_iter()
        .chain([cluster.server_data(0).display().to_string()]),
    );
    assert!(refused.stderr.contains("--store"), "{}", refused.stderr);
}

/// A standby takes over by itself when its server is killed.
#[test]
fn a_standby_takes_over() {
    needs_mount!();
    let weed = Weed::shared();
    let mut cluster = cluster(&weed, "a_standby_takes_over");
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
    let weed = Weed::shared();
    let mut cluster = cluster(&weed, "removed_files_leave_the_bucket");
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
    let status = slabfs(["servers", &cluster.mnt(0).display().to_string()]).ok();
    assert!(
        status.text().contains("engine of server 1: "),
        "{}",
        status.text()
    );
    assert!(status.text().contains("puts "), "{}", status.text());
    let addr = weed
        .url("removed_files_leave_the_bucket")
        .parse()
        .expect("an address");
    let bucket = Bucket::open_with(&addr, &CREDENTIALS).expect("the bucket");
    cluster.stop_server(0);
    cluster.stop_server(1);
    for identity in ["one", "two"] {
        let left = bucket.list(&format!("{identity}/chunks")).expect("a list");
        assert!(left.is_empty(), "{left:?}");
    }
}

/// A killed server that is started on its directory has lost nothing. If the directory is lost, too, what was not synced is an error
/// of the next sync, once in each program; then all goes on. Data in chunks that were lost is EIO until it is written again.
#[test]
fn what_a_server_loses_with_its_directory_is_an_error() {
    needs_mount!();
    let weed = Weed::start();
    let mut cluster = cluster(&weed, "fs");
    let names = ["bytes", "aligned", "grid"];
    create(&cluster.at(0, "aligned"), "4,65536", "u1", &[]);
    create(
        &cluster.at(0, "grid"),
        "4,65536",
        "u1",
        &["--layout", "grid:4,65536"],
    );
    let open = |cluster: &Cluster, name: &str| {
        let mut file = fs::OpenOptions::new();
        file.create(true).truncate(false).write(true).read(true);
        file.open(cluster.at(0, name)).expect("a file")
    };
    let (first, old, new) = (vec![3; 4 << 16], vec![1; 4 << 16], vec![2; 4 << 16]);
    let files = names.map(|name| [open(&cluster, name), open(&cluster, name)]);
    for [file, _] in &files {
        file.write_all_at(&first, 0).expect("written");
        file.sync_all().expect("synced");
    }
    for (bytes, loses) in [(&old, false), (&new, true)] {
        // Nothing is uploaded from here on, however long it takes.
        let stopped = weed.service();
        stopped.signal(Signal::SIGSTOP);
        for (name, [file, _]) in names.iter().zip(&files) {
            file.write_all_at(bytes, 0).expect("written");
            // Another mount gets it, so this one has sent it.
            assert!(file::read(&cluster.at(1, name)) == *bytes);
        }
        for server in 0..2 {
            cluster.kill_server(server);
            if loses {
                fs::remove_dir_all(cluster.server_data(server)).expect("removed");
            }
        }
        stopped.signal(Signal::SIGCONT);
        for server in 0..2 {
            cluster.start_server(server);
        }
        if loses {
            break;
        }
        for (name, both) in names.iter().zip(&files) {
            for file in both {
                file.sync_all().expect(name);
            }
            assert!(file::read(&cluster.at(1, name)) == *bytes, "{name}");
        }
    }
    for (name, both) in names.iter().zip(&files) {
        for file in both {
            let error = file.sync_all().expect_err(name);
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{name}");
            file.sync_all().expect("the error was returned before");
        }
        // From the servers: the kernel may have the bytes that were lost.
        let path = cluster.at(1, name);
        let open = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(path);
        let mut bytes = Vec::new();
        match open.and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => assert!(bytes == old && *name != "aligned", "{name}"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO), "{name}"),
        }
        both[0].write_all_at(&new, 0).expect("written");
        both[0].sync_all().expect("synced");
        assert!(file::read(&cluster.at(1, name)) == new, "{name}");
    }
    assert!(
        cluster
            .mount_log(0)
            .contains("before everything that was written")
    );
    // Stopped in order: nothing is lost, and no program gets an error.
    for (_, both) in names.iter().zip(&files) {
        both[0].write_all_at(&old, 0).expect("written");
    }
    for name in names {
        assert!(file::read(&cluster.at(1, name)) == old, "{name}");
    }
    for server in 0..2 {
        cluster.stop_server(server);
        cluster.start_server(server);
    }
    for (name, both) in names.iter().zip(&files) {
        both[0].sync_all().expect("synced");
        assert!(file::read(&cluster.at(1, name)) == old, "{name}");
    }
}

/// Errors of the store, and no answers, are waited for; where that does not help the sync fails with the store's answer in the log,
/// and a later one stores what is in the cache.
#[test]
fn errors_of_the_store_lose_nothing() {
    needs_mount!();
    let weed = Weed::shared();
    let proxy = HttpFaults::start(weed.addr());
    let mut cluster = cluster_by(&weed.url_by(&proxy.addr(), "errors_of_the_store_lose_nothing"));
    let file = fs::File::create(cluster.at(0, "file")).expect("a file");
    let mut wanted = Random::new(8).bytes(3 << 20);
    file.write_all_at(&wanted, 0).expect("written");
    file.sync_all().expect("synced");
    for (round, mode) in [Mode::Answer(500), Mode::Answer(503), Mode::Hang]
        .into_iter()
        .enumerate()
    {
        let bytes = Random::new(round as u64).bytes(100_000);
        file.write_all_at(&bytes, (round as u64) << 20)
            .expect("written");
        wanted[round << 20..(round << 20) + bytes.len()].copy_from_slice(&bytes);
        let before = proxy.refused();
        proxy.set(mode);
        let (done, file) = (AtomicBool::new(false), &file);
        thread::scope(|scope| {
            scope.spawn(|| {
                file.sync_all().expect("it was waited for");
                done.store(true, Ordering::SeqCst);
            });
            poll::until_true("requests", || proxy.refused() > before + 1);
            assert!(!done.load(Ordering::SeqCst), "{mode:?}");
            proxy.set(Mode::Pass);
        });
    }
    let bytes = Random::new(9).bytes(100_000);
    file.write_all_at(&bytes, 0).expect("written");
    wanted[..bytes.len()].copy_from_slice(&bytes);
    proxy.set(Mode::Answer(403));
    let error = file.sync_all().expect_err("it is refused");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    assert!(cluster.mount_log(0).contains("AccessDenied"));
    proxy.set(Mode::Pass);
    file.sync_all().expect("synced");
    for server in 0..2 {
        cluster.kill_server(server);
        cluster.start_server(server);
    }
    assert!(file::read(&cluster.at(1, "file")) == wanted);
}

/// Chunks move from a server's disk to a bucket while programs read and write, and back.
#[test]
fn chunks_move_to_a_bucket_and_back() {
    needs_mount!();
    let weed = Weed::shared();
    let mut cluster = Cluster::new(2, &[], false);
    cluster.server_flags(
        1,
        &[
            "--store",
            &weed.url("chunks_move_to_a_bucket_and_back"),
            "--identity",
            "one",
        ],
    );
    for var in CREDENTIALS {
        cluster.server_var(1, var);
    }
    cluster.start_md();
    cluster.start_server(0);
    cluster.add_mount();
    let bytes = Random::new(3).bytes(5 << 20);
    fs::write(cluster.at(0, "bytes"), &bytes).expect("a file");
    create(&cluster.at(0, "array"), "5,1048576", "u1", &[]);
    file::write(&cluster.at(0, "array"), &bytes);
    cluster.start_server(1);
    for from in 0..2 {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let (file, stop) = (file::open(&cluster.at(0, "array")), &stop);
            let bytes = &bytes;
            let at = from << 20;
            let writing = scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let part = &bytes[at..at + 100_000];
                    file.write_all_at(part, at as u64).expect("written");
                    file.sync_all().expect("synced");
                }
            });
            let id = (from + 1).to_string();
            slabfs(["drain", &id, &cluster.mnt(0).display().to_string()]).ok();
            stop.store(true, Ordering::SeqCst);
            writing.join().expect("a program");
        });
        file::sync_dir(&cluster.mnt(0)).expect("synced");
        cluster.stop_server(from);
        for name in ["bytes", "array"] {
            assert!(
                file::read(&cluster.at(0, name)) == bytes,
                "{name} without server {from}"
            );
        }
        cluster.start_server(from);
        let (id, mnt) = ((from + 1).to_string(), cluster.mnt(0).display().to_string());
        slabfs(["drain", "--cancel", &id, &mnt]).ok();
    }
}

/// A start with a wrong address or name changes nothing, in the bucket, in the cache, or for the servers that run.
#[test]
fn mistaken_starts_change_nothing() {
    needs_mount!();
    let weed = Weed::shared();
    let mut cluster = cluster(&weed, "mistaken_starts");
    let mut other = Cluster::new(0, &[], false);
    other.start_md();
    let bytes = Random::new(8).bytes(3 << 20);
    let write = |cluster: &Cluster, name: &str| {
        let path = cluster.at(0, name);
        fs::write(&path, &bytes).expect("a file");
        fs::File::open(&path)
            .and_then(|file| file.sync_all())
            .expect("synced");
    };
    write(&cluster, "before");
    let start = |data: &Path, md: &str, url: &str, more: &[&str]| {
        let listen = format!("unix:{}", data.with_extension("s").display());
        let mut command = Command::new(binary::path());
        command.args(["objserver", "--listen", &listen, "--md", md, "--store", url]);
        command.arg("--data").arg(data).args(more).envs(CREDENTIALS);
        tool::run(&mut command)
    };
    // The identity of a server that runs, at another filesystem.
    let (fresh, url) = (cluster.area().at("fresh"), weed.url("mistaken_starts"));
    let taken = start(&fresh, other.md_addr(), &url, &["--identity", "one"]);
    taken.fails(1, &["of another filesystem"]);
    write(&cluster, "between");
    assert!(!cluster.server(0).log().contains("another process"));
    // The cache of a server, with another prefix.
    cluster.stop_server(0);
    let (data, typo) = (cluster.server_data(0), weed.url("mistyped_start"));
    start(&data, cluster.md_addr(), &typo, &[]).fails(1, &["below another prefix"]);
    cluster.start_server(0);
    for name in ["before", "between"] {
        assert!(file::read(&cluster.at(1, name)) == bytes, "{name}");
    }
}
