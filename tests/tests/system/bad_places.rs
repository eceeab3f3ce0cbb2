//! Unusable places: mount points, data directories, addresses, servers that are away.

use std::os::unix::net::UnixListener;
use std::process::Command;

use nix::errno::Errno;
use slabfs_tests::cluster::write_key;
use slabfs_tests::file::{self, errno, named};
use slabfs_tests::tool::{create, run, servers};
use slabfs_tests::{Area, Cluster, Outcome, Up, binary, mounts, needs_mount, needs_root, slabfs};

fn up(data: &std::path::Path, mountpoint: &std::path::Path) -> Outcome {
    slabfs([
        "up".as_ref(),
        "--data".as_ref(),
        data.as_os_str(),
        mountpoint.as_os_str(),
    ])
}

fn objserver(socket: &str, cluster: &Cluster, data: &str) -> Outcome {
    let md = cluster.md_addr();
    slabfs(["objserver", "--listen", socket, "--md", md, "--data", data])
}

#[test]
fn mount_points() {
    needs_mount!();
    let area = Area::new();
    let data = area.at("d");
    up(&data, &area.at("missing")).fails(1, &["missing", "mkdir"]);
    up(&data, &area.write("file", "x")).fails(1, &["not a directory"]);
    assert!(!data.exists(), "nothing was made");
    let inside = area.mkdir("m");
    up(&inside.join("d"), &inside).fails(2, &["inside"]);
    let mut other = Up::start();
    up(&data, other.mnt()).fails(1, &["busy", "slabfs umount"]);
    file::write(&other.at("f"), "still works");
    assert_eq!(file::read(&other.at("f")), b"still works");
    // The mount of a killed process can be removed.
    let mnt = other.mnt().to_owned();
    other.kill9_and_leave();
    assert_eq!(errno(std::fs::read_dir(&mnt)), Errno::ENOTCONN);
    let said = slabfs(["umount", &mnt.display().to_string()]).ok();
    assert!(!mounts::is_mounted(&mnt), "{}", said.report());
}

#[test]
fn a_dead_mount_is_taken_over() {
    needs_mount!();
    let mut up = Up::start();
    file::write(&up.at("f"), "data");
    file::open(&up.at("f")).sync_all().expect("synced");
    file::sync_dir(up.mnt()).expect("synced");
    up.kill9_and_leave();
    up.start_again();
    assert_eq!(file::read(&up.at("f")), b"data");
}

#[test]
fn locked_data() {
    needs_mount!();
    let first = Up::start();
    file::write(&first.at("f"), "mine");
    let area = Area::new();
    up(first.data(), &area.mkdir("m")).fails(1, &["locked", first.data().to_str().expect("text")]);
    assert!(!mounts::is_mounted(&area.at("m")));
    assert_eq!(file::read(&first.at("f")), b"mine");
    let cluster = Cluster::start(1, 1);
    let md_data = cluster.md_data().display().to_string();
    let socket = format!("unix:{}", area.at("x.s").display());
    slabfs(["mdserver", "--listen", &socket, "--data", &md_data]).fails(1, &["locked", &md_data]);
    let data = cluster.server_data(0).display().to_string();
    objserver(&socket, &cluster, &data).fails(1, &["in use by another process", &data]);
    file::write(&cluster.at(0, "f"), "theirs");
    assert_eq!(file::read(&cluster.at(0, "f")), b"theirs");
}

/// Each filesystem numbers its objects and chunks from 1: new chunks would overwrite those of the other
/// filesystem.
#[test]
fn data_of_another_filesystem() {
    needs_mount!();
    let mut first = Up::start();
    file::write(&first.at("f"), "mine");
    first.stop();
    let (metadata, moved) = (first.data().join("md"), first.data().join("moved"));
    std::fs::rename(&metadata, &moved).expect("moved");
    let why = first.try_start(&[]).expect_err("without its metadata");
    assert!(why.contains("md is missing"), "{why}");
    std::fs::rename(&moved, &metadata).expect("moved back");
    first.start_again();
    assert_eq!(file::read(&first.at("f")), b"mine");
    first.stop();

    let cluster = Cluster::start(1, 1);
    file::write(&cluster.at(0, "g"), "theirs");
    let data = first.data().join("os1").display().to_string();
    let area = Area::new();
    let socket = format!("unix:{}", area.at("x.s").display());
    objserver(&socket, &cluster, &data).fails(1, &["of other metadata", "empty directory"]);
    assert_eq!(servers(&cluster.mnt(0)).len(), 1);
    first.start_again();
    assert_eq!(file::read(&first.at("f")), b"mine");
}

/// The directory of one data server is on a disk that is not mounted.
#[test]
fn a_data_server_of_up_is_missing() {
    needs_mount!();
    let mut up = Up::new(Area::new(), &[]);
    up.try_start(&["--servers", "2"]).expect("started");
    up.stop();
    let (there, moved) = (up.data().join("os2"), up.area().at("disk"));
    std::fs::rename(&there, &moved).expect("moved");
    let shown = up.try_start(&[]).map(|()| up.log());
    assert!(
        shown
            .as_ref()
            .is_ok_and(|log| log.contains("a data server is away")),
        "{shown:?}"
    );
    up.stop();
    std::os::unix::fs::symlink("no/such/disk", &there).expect("a link");
    let refused = up.try_start(&[]).expect_err("refused");
    assert!(
        refused.contains("no/such/disk") && refused.contains("is its disk mounted?"),
        "{refused}"
    );
    std::fs::remove_file(&there).expect("removed");
    std::fs::rename(&moved, &there).expect("moved back");
    up.start_again();
    let servers = slabfs_tests::tool::servers(up.mnt());
    assert!(servers.len() == 2 && servers.iter().all(|server| server["online"] == true));
}

#[test]
fn a_data_directory_that_cannot_be() {
    needs_mount!();
    let area = Area::new();
    let mnt = area.mkdir("m");
    up(&area.write("file", "x"), &mnt).fails(1, &["file", "--data"]);
    up(std::path::Path::new("/proc/nothing"), &mnt).fails(1, &["/proc/nothing"]);
    assert!(!mounts::is_mounted(&mnt));
}

#[test]
fn addresses_in_use() {
    let area = Area::new();
    let data = area.at("d").display().to_string();
    let key = write_key(&area, "key", b"0123456789abcdef0123456789abcdef")
        .display()
        .to_string();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = format!("tcp:{}", taken.local_addr().expect("its address"));
    slabfs([
        "mdserver",
        "--listen",
        &addr,
        "--key-file",
        &key,
        "--data",
        &data,
    ])
    .fails(1, &["in use", &addr]);
    let socket = area.at("s.s");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let addr = format!("unix:{}", socket.display());
    slabfs(["mdserver", "--listen", &addr, "--data", &data]).fails(1, &["in use", "s.s"]);
    assert!(socket.exists(), "the other process's socket stays");
    drop(listener);
    // A file is not a stale socket: it is not removed.
    let precious = area.write("precious", "data");
    slabfs([
        "mdserver",
        "--listen",
        &format!("unix:{}", precious.display()),
        "--data",
        &data,
    ])
    .fails(1, &["precious"]);
    assert_eq!(file::read(&precious), b"data");
    let missing = format!("unix:{}", area.at("no/such/s.s").display());
    slabfs(["mdserver", "--listen", &missing, "--data", &data]).fails(1, &["no/such"]);
    let long = format!("unix:{}", area.at("l".repeat(120)).display());
    let said = slabfs(["mdserver", "--listen", &long, "--data", &data]);
    assert!(said.status == 1 || said.status == 2, "{}", said.report());
    assert!(
        said.stderr.contains("at most 107 bytes"),
        "{}",
        said.report()
    );
    slabfs([
        "mdserver",
        "--listen",
        "tcp:203.0.113.1:7070",
        "--key-file",
        &key,
        "--data",
        &data,
    ])
    .fails(1, &["203.0.113.1"]);
    assert!(!area.at("d").join("journal").exists());
}

/// The socket of a killed server does not prevent a start.
#[test]
fn sockets_that_were_left() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 0);
    cluster.kill_md();
    cluster.kill_server(0);
    let left = cluster.md_addr().trim_start_matches("unix:").to_owned();
    assert!(std::path::Path::new(&left).exists());
    cluster.start_md();
    cluster.start_server(0);
}

#[test]
fn a_data_server_that_is_away() {
    needs_mount!();
    let mut cluster = Cluster::with(2, 1, &["--io-timeout", "1s", "--cache", "1M"]);
    let object = cluster.at(0, "a");
    create(&object, "8,50000", "f4", &[]);
    for row in 0..8_u8 {
        file::write(
            &named(&object, &format!("@[{row}]")),
            vec![row + 1; 200_000],
        );
    }
    cluster.kill_server(0);
    let reads: Vec<_> = (0..8)
        .map(|row| std::fs::read(named(&object, &format!("@[{row}]"))))
        .collect();
    let failed = reads.iter().filter(|read| read.is_err()).count();
    assert!(
        (1..8).contains(&failed),
        "one of two servers is away: {failed} of 8 rows fail"
    );
    for (row, read) in reads.into_iter().enumerate() {
        match read {
            Ok(bytes) => assert_eq!(bytes, vec![row as u8 + 1; 200_000]),
            Err(error) => assert_eq!(errno::<()>(Err(error)), Errno::EIO),
        }
    }
    let log = cluster.mount_log(0);
    assert!(
        log.contains(cluster.server_addr(0)),
        "the log names the address:\n{log}"
    );
    let said = slabfs(["servers", &cluster.mnt(0).display().to_string()]).ok();
    assert!(
        said.text().contains(cluster.server_addr(0)),
        "{}",
        said.text()
    );
    cluster.start_server(0);
    for row in 0..8_u8 {
        assert_eq!(
            file::read(&named(&object, &format!("@[{row}]"))),
            vec![row + 1; 200_000]
        );
    }
}

#[test]
fn a_metadata_server_that_is_away() {
    needs_mount!();
    let mut cluster = Cluster::with(1, 1, &["--io-timeout", "1s"]);
    file::write(&cluster.at(0, "f"), "data");
    cluster.kill_md();
    assert_eq!(errno(std::fs::write(cluster.at(0, "g"), "x")), Errno::EIO);
    let said = "the metadata service at";
    slabfs(["servers", &cluster.mnt(0).display().to_string()])
        .fails(1, &[said, cluster.md_addr(), "does not answer"]);
    let log = cluster.mount_log(0);
    assert!(
        log.contains(cluster.md_addr()),
        "the log names the address:\n{log}"
    );
    cluster.start_md();
    file::write(&cluster.at(0, "g"), "works again");
    assert_eq!(file::read(&cluster.at(0, "g")), b"works again");
    assert_eq!(file::read(&cluster.at(0, "f")), b"data");
    let area = Area::new();
    let nowhere = format!("unix:{}", area.at("missing.s").display());
    let mnt = area.mkdir("m");
    slabfs([
        "mount",
        "--md",
        &nowhere,
        "--io-timeout",
        "500ms",
        &mnt.display().to_string(),
    ])
    .fails(1, &["missing.s"]);
    assert!(!mounts::is_mounted(&mnt));
}

#[test]
fn without_dev_fuse() {
    needs_root!();
    let area = Area::new();
    let (data, mnt) = (
        area.at("d").display().to_string(),
        area.mkdir("m").display().to_string(),
    );
    // In a mount namespace of its own, with nothing in /dev.
    let binary = binary::path().display();
    let line = format!("mount -t tmpfs none /dev && exec '{binary}' up --data '{data}' '{mnt}'");
    run(Command::new("unshare").args(["-m", "sh", "-c", &line]))
        .fails(1, &["/dev/fuse is missing", "modprobe fuse"]);
    assert!(!area.at("d").exists(), "nothing was made");
}

/// A mount with a wrong key is refused, and nothing is mounted.
#[test]
fn a_wrong_key() {
    needs_mount!();
    let mut cluster = Cluster::tcp(1, 1);
    let wrong = write_key(cluster.area(), "wrong", b"another key of thirty-two bytes!")
        .display()
        .to_string();
    let mnt = cluster.area().mkdir("wrong-mnt").display().to_string();
    let said = slabfs([
        "mount",
        "--md",
        cluster.md_addr(),
        "--key-file",
        &wrong,
        "--io-timeout",
        "2s",
        &mnt,
    ])
    .fails(1, &["key"]);
    assert!(
        said.stderr
            .contains(cluster.md_addr().trim_start_matches("tcp:")),
        "{}",
        said.report()
    );
    assert!(!mounts::is_mounted(mnt.as_ref()));
    file::write(&cluster.at(0, "f"), "the right key works");
    cluster.restart();
    assert_eq!(file::read(&cluster.at(0, "f")), b"the right key works");
}

/// A data server that is refused, or connects to the wrong service, does not report ready; one whose metadata
/// service is unreachable reports that it waits.
#[test]
fn a_refused_data_server_does_not_start() {
    let mut cluster = Cluster::tcp(1, 0);
    let wrong = write_key(cluster.area(), "wrong", b"another key of thirty-two bytes!")
        .display()
        .to_string();
    let right = cluster.key().expect("a key").display().to_string();
    let (data, log) = (cluster.area().at("os"), cluster.area().at("os.log"));
    let (data, log) = (data.display().to_string(), log.display().to_string());
    let listen = format!("unix:{}", cluster.area().at("os.s").display());
    let start = |md: &str, key: &str| {
        slabfs([
            "objserver",
            "--listen",
            &listen,
            "--md",
            md,
            "--key-file",
            key,
            "--data",
            &data,
            "--daemon",
            "--log-file",
            &log,
        ])
    };
    let refused = start(cluster.md_addr(), &wrong);
    refused.fails(1, &["does not take", "the same shared key", "--key-file"]);
    // That address is a data server.
    let other = cluster.server_addr(0).to_owned();
    start(&other, &right).fails(1, &["does not take", &other, "--md"]);
    let md = cluster.md_addr().to_owned();
    cluster.kill_md();
    let waits = start(&md, &right).ok();
    let said = format!("waiting for the metadata service at {md}");
    assert!(waits.text().contains(&said), "{}", waits.report());
    slabfs(["stop", "--data", &data]).ok();
}
