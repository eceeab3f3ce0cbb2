//! Signals and ends of processes: SIGINT and SIGTERM at any time, twice, and while starting.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::sys::signal::Signal;
use slabfs_tests::{
    Area, Cluster, Service, Up, file, mounts, needs_mount, needs_root, poll, slabfs,
};

#[test]
fn sigint_stops_cleanly() {
    needs_mount!();
    let mut up = Up::start();
    file::write(&up.at("f"), "data");
    up.service().signal(Signal::SIGINT);
    assert_eq!(up.service().wait(), 0);
    assert!(!mounts::is_mounted(up.mnt()));
    assert!(up.log().contains("SIGINT"), "{}", up.log());
    up.stopped();
    up.start_again();
    assert_eq!(file::read(&up.at("f")), b"data");
}

/// Whatever the moment of the signal, it stops cleanly, leaves no mount, and the data is good.
#[test]
fn sigterm_while_starting() {
    needs_mount!();
    let area = Area::new();
    let (mnt, data) = (area.mkdir("m"), area.at("d"));
    let args = [
        "up",
        "--data",
        data.to_str().expect("text"),
        mnt.to_str().expect("text"),
    ]
    .map(str::to_owned);
    for millis in [0, 1, 3, 10, 30, 100] {
        let service = Service::start(area.path(), "up", &args);
        // Any moment will do: nothing is waited for here.
        std::thread::sleep(std::time::Duration::from_millis(millis));
        service.signal(Signal::SIGTERM);
        service.wait();
        assert!(!mounts::is_mounted(&mnt), "after {millis} ms");
        assert!(!service.log().contains("panicked"), "{}", service.log());
    }
    let mut service = Service::start(area.path(), "up", &args);
    service.ready();
    file::write(&mnt.join("f"), "works");
    service.stop();
}

/// A clean stop while a server is away ends, and reports that something could not be stored.
#[test]
fn a_stop_without_servers_ends() {
    needs_mount!();
    // With `strict` the writes after the start would wait until the old session is over.
    let mut cluster = Cluster::with(1, 1, &["--io-timeout", "1s", "--consistency", "commit"]);
    let open = file::open_new(&cluster.at(0, "f"));
    std::os::unix::fs::FileExt::write_all_at(&open, &[7; 1000], 0).expect("written");
    cluster.kill_server(0);
    cluster.kill_md();
    let mnt = cluster.mnt(0);
    let (status, log) = cluster.end_mount(0);
    drop(open);
    assert!(status != 0, "unsaved data is no success:\n{log}");
    assert!(!log.contains("panicked"), "{log}");
    assert!(!mounts::is_mounted(&mnt));
    cluster.start_md();
    cluster.start_server(0);
    cluster.start_mount(0);
    file::write(&cluster.at(0, "g"), "works");
}

/// Servers that stop cleanly report that and leave no sockets.
#[test]
fn servers_stop_cleanly() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 1);
    file::write(&cluster.at(0, "f"), "x");
    cluster.stop_mount(0);
    cluster.stop_server(0);
    cluster.stop_md();
    for address in [cluster.md_addr(), cluster.server_addr(0)] {
        assert!(
            !std::path::Path::new(address.trim_start_matches("unix:")).exists(),
            "{address} stays"
        );
    }
}

/// Stopped in the middle of requests of several programs, repeatedly: always a clean end.
#[test]
fn sigterm_under_use() {
    needs_mount!();
    let mut up = Up::start();
    file::write(&up.at("data"), vec![7; 100_000]);
    for round in 0..20 {
        let (ended, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (data, mnt) = (up.at("data"), up.mnt().to_owned());
        std::thread::scope(|scope| {
            for who in 0..4 {
                let (ended, begun, data, mnt) = (&ended, &begun, &data, &mnt);
                scope.spawn(move || {
                    for i in 0_u64.. {
                        // After the end these fail, or access the empty directory below.
                        let _ = match who {
                            0 => std::fs::read(data).map(drop),
                            1 => std::fs::read_dir(mnt).map(drop),
                            2 => std::fs::metadata(mnt.join(format!("none{i}"))).map(drop),
                            _ => std::fs::OpenOptions::new()
                                .write(true)
                                .open(data)
                                .and_then(|file| file.write_all_at(&[7; 100], i % 90_000)),
                        };
                        begun.fetch_add(1, Ordering::SeqCst);
                        if ended.load(Ordering::SeqCst) {
                            return;
                        }
                    }
                });
            }
            poll::until_true("requests", || {
                begun.load(Ordering::SeqCst) > 20 * (round + 1)
            });
            let status = {
                up.service().signal(Signal::SIGTERM);
                up.service().wait()
            };
            ended.store(true, Ordering::SeqCst);
            assert_eq!(status, 0, "round {round}:\n{}", up.log());
        });
        assert!(!mounts::is_mounted(up.mnt()));
        up.stopped();
        up.start_again();
        assert_eq!(file::read(&up.at("data")), vec![7; 100_000]);
    }
}

/// Keeps a mapping with a change that no call has written back, until its input ends.
const MAPS: &str = "
import mmap, sys
with open(sys.argv[1], 'r+b') as file:
    mapped = mmap.mmap(file.fileno(), 0)
mapped[:4] = b'maps'
print('mapped', flush=True)
sys.stdin.read()
";

/// A container that was started while a mount exists has a copy of it in its mount namespace, which an unmount leaves.
#[test]
fn sigterm_with_a_copy_in_another_mount_namespace() {
    needs_mount!();
    needs_root!();
    let mut up = Up::start();
    file::write(&up.at("f"), "data");
    let mut container = Command::new("unshare")
        .args(["--mount", "python3", "-c", MAPS])
        .arg(up.at("f"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare of util-linux");
    let mut said = String::new();
    let mut output = BufReader::new(container.stdout.take().expect("piped"));
    output.read_line(&mut said).expect("text");
    assert_eq!(said, "mapped\n");
    let mnt = up.mnt().display().to_string();
    slabfs(["umount", "--timeout", "1s", &mnt]).fails(1, &["a copy of the mount"]);
    up.service().signal(Signal::SIGTERM);
    let status = up.service().wait();
    let log = up.log();
    // The end of its input ends the program.
    drop(container.stdin.take());
    container.wait().expect("a status");
    assert_eq!(status, 0, "{log}");
    assert!(log.contains("still mounted elsewhere"), "{log}");
    up.stopped();
    up.start_again();
    assert_eq!(file::read(&up.at("f")), b"maps");
}
