//! Few file descriptors, and strangers that use them up: programs wait, and nothing is refused.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use slabfs_objstore::wire::{Connection, Key};
use slabfs_tests::{Cluster, Service, file, needs_mount, poll};

fn descriptors(service: &Service) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", service.pid()))
        .expect("its descriptors")
        .count()
}

/// Restarts the data server of a cluster with a limit of descriptors.
fn with_few(cluster: &mut Cluster, files: u64) {
    cluster.stop_server(0);
    cluster.server_files(0, files);
    cluster.start_server(0);
}

/// Writes files and reads them again, in many threads; returns how many failed.
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
fn programs_do_not_notice_few_descriptors() {
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

/// Calls `come` in several threads until `work` is done, which begins after `least` calls. The last results of
/// each thread stay alive.
fn with_it<C>(least: u64, come: impl Fn() -> Option<C> + Sync, work: impl FnOnce() -> u64) -> u64 {
    const THREADS: usize = 4;
    let (ended, came) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut alive = std::collections::VecDeque::new();
                while !ended.load(Ordering::SeqCst) {
                    alive.extend(come());
                    came.fetch_add(1, Ordering::SeqCst);
                    if alive.len() > least as usize / THREADS {
                        alive.pop_front();
                    }
                }
            });
        }
        poll::until_true("so many to come", || came.load(Ordering::SeqCst) >= least);
        let failed = work();
        ended.store(true, Ordering::SeqCst);
        failed
    })
}

#[test]
fn strangers_take_nothing_from_a_mount() {
    needs_mount!();
    let mut cluster = Cluster::tcp(1, 1);
    with_few(&mut cluster, 1024);
    file::write(&cluster.at(0, "before"), "works");
    let addr = cluster.server_addr(0).trim_start_matches("tcp:");
    let silent = || TcpStream::connect(addr).ok();
    let failed = with_it(900, silent, || write_and_read(&cluster, 32, 20, 300_000));
    assert_eq!(failed, 0);
}

/// With the key, and requests that never complete, a byte now and then.
#[test]
fn incomplete_requests_block_no_others() {
    needs_mount!();
    let mut cluster = Cluster::new(1, &["--io-timeout", "10s"], true);
    cluster.start_all(1);
    with_few(&mut cluster, 1024);
    let key = Key::load(cluster.key().expect("a key")).expect("the key");
    let address = cluster.server_addr(0).parse().expect("an address");
    let until = || Instant::now() + Duration::from_secs(2);
    // More than the limit of connections.
    let mut half: Vec<Connection> = (0..512)
        .filter_map(|_| {
            let mut connection = Connection::connect(&address, Some(&key), until()).ok()?;
            let promised = connection.send_head(0x0102, 1, &[0; 40], 1 << 20, until());
            promised.ok().map(|()| connection)
        })
        .collect();
    let ended = AtomicBool::new(false);
    let failed = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                // Connections that the server closed are removed.
                half.retain_mut(|connection| connection.send_more(b"x", until()).is_ok());
                std::thread::sleep(Duration::from_millis(200));
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
    // They are closed, although no others arrive.
    poll::until_true("their end", || descriptors(cluster.server(0)) <= before + 2);
    drop(silent);
}
