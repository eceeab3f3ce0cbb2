//! Few file descriptors, and strangers who take them: programs wait, and are refused nothing.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use slabfs_objstore::wire::{Connection, Key};
use slabfs_tests::{Cluster, Service, file, needs_mount, poll};

fn descriptors(service: &Service) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", service.pid()))
        .expect("its descriptors")
        .count()
}

/// Restarts the data server of a cluster with so many descriptors.
fn with_few(cluster: &mut Cluster, files: u64) {
    cluster.stop_server(0);
    cluster.server_files(0, files);
    cluster.start_server(0);
}

/// Writes files and reads them again, in many threads; how many of those failed.
fn write_and_read(cluster: &Cluster, threads: usize, each: usize, bytes: usize) -> u64 {
    let failed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let failed = &failed;
            scope.spawn(move || {
                for n in 0..each {
                    let path = cluster.at(0, format!("f{thread}-{n}"));
                    let data = vec![(thread + n) as u8; bytes];
                    let wrote = std::fs::File::create(&path).and_then(|mut file| {
                        file.write_all(&data)?;
                        file.sync_all()
                    });
                    let read = wrote.and_then(|()| std::fs::read(&path));
                    match read {
                        Ok(read) => assert!(read == data, "{}", path.display()),
                        Err(error) => {
                            println!("{}: {error}", path.display());
                            failed.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }
            });
        }
    });
    failed.into_inner()
}

#[test]
fn programs_do_not_feel_few_descriptors() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 1);
    with_few(&mut cluster, 256);
    assert!(
        cluster.server(0).log().contains("256 files only"),
        "{}",
        cluster.server(0).log()
    );
    assert_eq!(write_and_read(&cluster, 200, 4, 600_000), 0);
}

#[test]
fn strangers_take_nothing_from_a_mount() {
    needs_mount!();
    let mut cluster = Cluster::tcp(1, 1);
    with_few(&mut cluster, 1024);
    file::write(&cluster.at(0, "before"), "works");
    let addr = cluster.server_addr(0).trim_start_matches("tcp:").to_owned();
    let ended = AtomicBool::new(false);
    let failed = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut silent = Vec::new();
            while !ended.load(Ordering::SeqCst) {
                // As many as there may be, the oldest makes room for one more.
                if let Ok(stream) = TcpStream::connect(&addr) {
                    silent.push(stream);
                }
                if silent.len() > 900 {
                    silent.remove(0);
                }
            }
        });
        let failed = write_and_read(&cluster, 16, 20, 300_000);
        ended.store(true, Ordering::SeqCst);
        failed
    });
    assert_eq!(failed, 0);
}

/// With the key, and a request that never ends.
#[test]
fn half_a_request_holds_nobody_up() {
    needs_mount!();
    let cluster = Cluster::tcp(1, 1);
    let key = Key::load(cluster.key().expect("a key")).expect("the key");
    let address = cluster.server_addr(0).parse().expect("an address");
    let ended = AtomicBool::new(false);
    let failed = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut half = Vec::new();
            while !ended.load(Ordering::SeqCst) {
                let until = std::time::Instant::now() + Duration::from_secs(2);
                if let Ok(mut connection) = Connection::connect(&address, Some(&key), until) {
                    let soon = std::time::Instant::now() + Duration::from_secs(1);
                    // Payload is promised, and does not come.
                    let _ = connection.send_unfinished(0x0102, 1, &[0; 40], 1 << 20, soon);
                    half.push(connection);
                }
                if half.len() > 600 {
                    half.remove(0);
                }
            }
        });
        let failed = write_and_read(&cluster, 8, 12, 300_000);
        ended.store(true, Ordering::SeqCst);
        failed
    });
    assert_eq!(failed, 0);
}

#[test]
fn a_connection_has_one_descriptor_and_gives_it_back() {
    needs_mount!();
    let cluster = Cluster::tcp(1, 1);
    let addr = cluster.server_addr(0).trim_start_matches("tcp:").to_owned();
    let before = descriptors(cluster.server(0));
    let silent: Vec<_> = (0..20)
        .map(|_| TcpStream::connect(&addr).expect("connected"))
        .collect();
    poll::until_true("all to be accepted", || {
        descriptors(cluster.server(0)) >= before + 20
    });
    assert!(
        descriptors(cluster.server(0)) <= before + 22,
        "one descriptor each"
    );
    // They are given up, though nobody else comes.
    poll::until_true("their end", || descriptors(cluster.server(0)) <= before + 2);
    drop(silent);
}
