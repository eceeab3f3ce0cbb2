//! Other users cannot fill a log, nor forge lines in it.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use slabfs_tests::tool::{create, slabfs};
use slabfs_tests::{Area, Cluster, mounts, needs_mount, poll};

/// Requests missing objects, `count` times.
fn mistakes(object: &Path, count: usize) {
    for at in 0..count {
        let wrong = format!("{}@[{}]", object.display(), 99 + at);
        File::open(wrong).expect_err("outside");
    }
}

#[test]
fn mistakes_and_strangers_do_not_fill_it() {
    needs_mount!();
    let cluster = Cluster::tcp(1, 1);
    create(&cluster.at(0, "a"), "10,10", "u1", &[]);
    mistakes(&cluster.at(0, "a"), 2000);
    let log = cluster.mount(0).log();
    assert!(!log.contains("outside axis"), "{log}");
    let addr = cluster.server_addr(0).trim_start_matches("tcp:").to_owned();
    for _ in 0..300 {
        let mut stranger = TcpStream::connect(&addr).expect("connected");
        // The connection may be refused before all of it is sent.
        let _ = stranger.write_all(&[b'x'; 256]);
        let _ = stranger.read_to_end(&mut Vec::new());
    }
    let server = cluster.server(0);
    poll::until_true("the number of those left out", || {
        server.log().contains("more lines of slabfs_objstore")
    });
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("ended:")).count();
    assert!((50..200).contains(&lines), "{lines} lines of 300");
}

#[test]
fn a_large_log_is_rotated() {
    needs_mount!();
    let area = Area::new();
    let (mnt, data) = (area.mkdir("m"), area.at("d"));
    let (log, old) = (area.at("log"), area.at("log.old"));
    let text = |path: &Path| path.display().to_string();
    let wrong = [
        "up",
        "--data",
        &text(&data),
        "--log-size",
        "1K",
        &text(&mnt),
    ];
    slabfs(wrong).fails(2, &["--log-size", "64K or more"]);
    let (data, mount) = (text(&data), text(&mnt));
    let mut args = vec!["up", "--daemon", "-v", "--data", &data];
    let file = text(&log);
    args.extend(["--log-file", &file, "--log-size", "64K", &mount]);
    let said = slabfs(args).ok();
    let pid = said.text().split_once("process ").expect("its process").1;
    let pid = pid.split(',').next().expect("its number").to_owned();
    create(&mnt.join("a"), "10,10", "u1", &[]);
    mistakes(&mnt.join("a"), 2000);
    for path in [&log, &old] {
        let about = path.metadata().expect("both are there");
        assert!(about.len() <= 64 << 10, "{} bytes", about.len());
        assert_eq!(about.mode() & 0o777, 0o600);
    }
    let stderr = format!("/proc/{pid}/fd/2");
    let inode = |path: &Path| path.metadata().expect("metadata").ino();
    assert_eq!(inode(stderr.as_ref()), inode(&log), "stderr follows");
    slabfs(["umount", &mount]).ok();
    assert!(!mounts::is_mounted(&mnt));
    let end = std::fs::read_to_string(&log).expect("read");
    assert!(end.trim_end().ends_with("stopped"), "{end}");
}
