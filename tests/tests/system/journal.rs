//! The metadata on the disk: garbage after its end, a cut end, sled missing or damaged, and damage inside,
//! which is detected, named, and skipped only on request; and a disk that fails.

use std::os::unix::fs::FileExt;
use std::process::Command;

use nix::errno::Errno;
use slabfs_tests::file::errno;
use slabfs_tests::tool::create;
use slabfs_tests::{Cluster, Random, Service, Up, disk, file, needs_mount, poll, slabfs};

/// Files and an array that are synced; then the process is killed, so that the journal is not closed.
fn synced(up: &mut Up) -> u64 {
    for i in 0..40 {
        file::write(&up.at(format!("f{i}")), format!("content {i}"));
    }
    create(&up.at("array"), "20,30", "f4", &["--fill", "1"]);
    file::write(&file::named(&up.at("array"), "@[3:9,4:7]"), [7; 72]);
    for entry in std::fs::read_dir(up.mnt()).expect("listed") {
        file::open(&entry.expect("an entry").path())
            .sync_all()
            .expect("synced");
    }
    file::sync_dir(up.mnt()).expect("synced");
    let journals = disk::journals(up.data());
    journals
        .last()
        .expect("one")
        .metadata()
        .expect("metadata")
        .len()
}

fn check(up: &Up, files: usize) {
    for i in 0..files {
        assert_eq!(
            file::read(&up.at(format!("f{i}"))),
            format!("content {i}").as_bytes()
        );
    }
    assert_eq!(
        file::read(&file::named(&up.at("array"), "@[3:9,4:7]")),
        [7; 72]
    );
    assert_eq!(
        file::read(&file::named(&up.at("array"), "@[0,0]")),
        1f32.to_le_bytes()
    );
}

/// Appends to the last journal file at the end of its contents; the file may be longer than them.
fn append(up: &Up, bytes: &[u8]) {
    use std::io::Write;
    let path = disk::journals(up.data()).pop().expect("one");
    std::fs::OpenOptions::new()
        .append(true)
        .open(path)
        .expect("the journal")
        .write_all(bytes)
        .expect("damaged");
}

#[test]
fn garbage_after_the_end_loses_nothing() {
    needs_mount!();
    let mut up = Up::start();
    let mut random = Random::new(71);
    synced(&mut up);
    for garbage in [
        random.bytes(10_000),
        vec![0; 5000],
        vec![0xff; 3],
        b"SFRM".repeat(100),
    ] {
        up.kill9();
        append(&up, &garbage);
        up.start_again();
        check(&up, 40);
        file::write(&up.at("after"), "written after the repair");
        file::open(&up.at("after")).sync_all().expect("synced");
    }
    assert!(
        up.log().contains("cut off"),
        "the start logs it:\n{}",
        up.log()
    );
    up.restart();
    check(&up, 40);
}

#[test]
fn an_end_that_was_cut_loses_only_what_was_not_synced() {
    needs_mount!();
    for cut in [1, 7, 39, 40, 100, 500] {
        let mut up = Up::start();
        let acknowledged = synced(&mut up);
        for i in 0..30 {
            file::write(&up.at(format!("late{i}")), "not synced");
        }
        up.kill9();
        let path = disk::journals(up.data()).pop().expect("one");
        let len = path.metadata().expect("metadata").len();
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("the journal");
        file.set_len(acknowledged.max(len.saturating_sub(cut)))
            .expect("cut");
        drop(file);
        up.start_again();
        check(&up, 40);
    }
}

#[test]
fn sled_may_be_gone_or_damaged() {
    needs_mount!();
    let mut up = Up::start();
    synced(&mut up);
    // An index is compared, or made again, in the background: a process that is killed before has not looked at it.
    let compared = |up: &Up| up.log().matches("kv::verify").count();
    poll::until_true("the index is there", || compared(&up) > 0);
    let mut random = Random::new(72);
    for (round, clean) in [(0, false), (1, true), (2, false), (3, true), (4, false)] {
        if clean {
            up.stop()
        } else {
            up.kill9()
        }
        let sled = disk::sled(up.data());
        match round {
            0 | 1 => std::fs::remove_dir_all(&sled).expect("removed"),
            2 => {
                let db = sled.join("db");
                let len = db.metadata().expect("metadata").len() as usize;
                std::fs::write(&db, random.bytes(len)).expect("damaged");
            }
            3 => disk::files(&sled).iter().for_each(|path| {
                let len = path.metadata().expect("metadata").len();
                (0..20)
                    .filter(|_| len > 0)
                    .for_each(|_| disk::flip(path, random.range(0, len)));
            }),
            _ => disk::files(&sled)
                .iter()
                .for_each(|path| std::fs::write(path, "").expect("emptied")),
        }
        let before = compared(&up);
        up.start_again();
        poll::until_true("the index is compared", || compared(&up) > before);
        check(&up, 40);
        file::write(&up.at("after"), format!("round {round}"));
        file::open(&up.at("after")).sync_all().expect("synced");
    }
    up.restart();
    check(&up, 40);
    assert_eq!(file::read(&up.at("after")), b"round 4");
    assert!(
        up.log().contains("rebuilt"),
        "the start logs it:\n{}",
        up.log()
    );
}

/// One flipped byte inside the journal, followed by acknowledged records.
#[test]
fn damage_inside_is_named_and_refused() {
    needs_mount!();
    let mut up = Up::start();
    let acknowledged = synced(&mut up);
    up.kill9();
    let path = disk::journals(up.data()).pop().expect("one");
    let intact = std::fs::read(&path).expect("the journal");
    let name = path
        .file_name()
        .expect("a name")
        .to_str()
        .expect("text")
        .to_owned();
    let mut random = Random::new(73);
    for _ in 0..5 {
        let at = random.range(200, acknowledged - 3000);
        disk::flip(&path, at);
        let Err(said) = up.try_start(&[]) else {
            // A checkpoint made by then contains the record: nothing is lost, and so nothing is refused.
            return check(&up, 40);
        };
        assert!(said.contains(&name), "the file is named: {said}");
        assert!(said.contains("byte"), "the place is named: {said}");
        assert!(
            said.contains("--accept-loss"),
            "the message has advice: {said}"
        );
        assert!(!said.contains("panicked"), "{said}");
        // The refusal changed nothing: with the byte restored, everything is there.
        std::fs::write(&path, &intact).expect("restored");
    }
    up.start_again();
    check(&up, 40);
    up.kill9();
    let path = disk::journals(up.data())
        .into_iter()
        .find(|path| path.metadata().is_ok_and(|meta| meta.len() >= acknowledged))
        .expect("the journal");
    disk::flip(&path, acknowledged / 2);
    if up.try_start(&[]).is_err() {
        up.try_start(&["--accept-loss"])
            .expect("it continues with --accept-loss");
        assert!(
            up.log().contains("LOST") || up.log().contains("gone"),
            "what is lost is listed:\n{}",
            up.log()
        );
    }
    // The rest works: names can be listed, read and written.
    for entry in std::fs::read_dir(up.mnt()).expect("listed") {
        let path = entry.expect("an entry").path();
        if let Ok(bytes) = std::fs::read(&path)
            && path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with('f'))
        {
            assert!(
                bytes.starts_with(b"content ") || bytes.is_empty(),
                "{}",
                path.display()
            );
        }
    }
    file::write(&up.at("new"), "written afterwards");
    up.restart();
    assert_eq!(file::read(&up.at("new")), b"written afterwards");
}

#[test]
fn a_metadata_server_refuses_damage_too() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 1);
    for i in 0..30 {
        file::write(&cluster.at(0, format!("f{i}")), "content");
        file::open(&cluster.at(0, format!("f{i}")))
            .sync_all()
            .expect("synced");
    }
    cluster.kill_mount(0);
    cluster.kill_md();
    let path = disk::journals(&cluster.md_data()).pop().expect("one");
    disk::flip(&path, path.metadata().expect("metadata").len() / 2);
    let said = cluster.try_start_md(&[]).expect_err("damage inside");
    assert!(said.contains("--accept-loss"), "{said}");
    cluster
        .try_start_md(&["--accept-loss"])
        .expect("it continues with --accept-loss");
    cluster.start_mount(0);
    file::write(&cluster.at(0, "new"), "works");
    assert_eq!(file::read(&cluster.at(0, "new")), b"works");
}

/// Many changes: checkpoints limit the journal, and a kill at any of them loses nothing.
#[test]
fn the_journal_does_not_grow_without_bound() {
    needs_mount!();
    let mut up = Up::start();
    let handle = file::open_new(&up.at("f"));
    let mut random = Random::new(74);
    for round in 0..6 {
        for i in 0..600 {
            file::set_xattr(
                &up.at("f"),
                &format!("user.a{}", i % 7),
                random.bytes(60_000),
                0,
            )
            .expect("set");
        }
        handle.sync_all().expect("synced");
        file::set_xattr(&up.at("f"), "user.round", round.to_string(), 0).expect("set");
        handle.sync_all().expect("synced");
    }
    drop(handle);
    // 216 MiB of changes; checkpoints are made concurrently.
    poll::until_true("the journal to be cut", || {
        let size: u64 = disk::journals(up.data())
            .iter()
            .map(|path| path.metadata().map_or(0, |meta| meta.len()))
            .sum();
        size < 140 << 20
    });
    up.kill9();
    up.start_again();
    assert_eq!(file::xattr(&up.at("f"), "user.round"), "5");
}

/// A journal whose `fdatasync` fails may have lost what was written: the service refuses every change, reports that, and
/// ends if it is to end.
#[test]
fn a_journal_that_cannot_be_synced() {
    needs_mount!();
    for exits in [false, true] {
        let cluster = Cluster::new(1, &[], false);
        let (broken, library) = (cluster.area().at("broken"), cluster.area().at("fail.so"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/fail_sync.c");
        let compiler = Command::new("cc")
            .args(["-shared", "-fPIC", source, "-ldl", "-o"])
            .arg(&library)
            .status();
        assert!(compiler.expect("a compiler").success());
        let mut command = Command::new(slabfs_tests::binary::path());
        command
            .args(["mdserver", "--listen", cluster.md_addr(), "--data"])
            .arg(cluster.md_data())
            .env("LD_PRELOAD", &library)
            .env("SLABFS_FAIL_SYNC", &broken)
            .env_remove("RUST_LOG");
        if exits {
            command.args(["--on-journal-error", "exit"]);
        }
        let mut md = Service::start_command(cluster.area().path(), "broken-md", command);
        md.ready();
        // Dropped before the service.
        let mut cluster = cluster;
        cluster.start_server(0);
        cluster.add_mount();
        let mnt = cluster.mnt(0).display().to_string();
        file::write(&cluster.at(0, "f"), "before");
        let open = file::open(&cluster.at(0, "f"));
        open.sync_all().expect("synced");
        let status = || slabfs(["status", "--json", &mnt]).ok().json();
        assert_eq!(
            status()["status"]["metadata_error"],
            serde_json::Value::Null
        );

        std::fs::write(&broken, "").expect("a file");
        // There is something to sync, unless that has failed already.
        let _ = std::fs::write(cluster.at(0, "last"), "x");
        let failed = "could not be synced (Input/output error";
        poll::until_true("a sync to fail", || md.log().contains(failed));
        if exits {
            assert_eq!(md.wait(), 3, "{}", md.log());
        } else {
            assert_eq!(errno(std::fs::write(cluster.at(0, "g"), "x")), Errno::EIO);
            let mut bytes = [0; 6];
            open.read_exact_at(&mut bytes, 0).expect("read");
            assert_eq!(
                (&bytes, open.metadata().expect("stat").len()),
                (b"before", 6)
            );
            drop(open);
            let error = status()["status"]["metadata_error"].to_string();
            assert!(error.contains(failed), "{error}");
            let servers = slabfs(["servers", "--json", &mnt]).ok().json();
            assert_eq!(servers[1]["state"], "failed");
            assert_eq!(servers[1]["online"], false);
            for command in ["status", "servers"] {
                let text = slabfs([command, &mnt]).ok();
                assert!(text.text().contains(failed), "{}", text.report());
            }
            md.signal(nix::sys::signal::Signal::SIGTERM);
            assert_eq!(md.wait(), 1, "{}", md.log());
        }
        let log = md.log();
        let lines = log.lines();
        let errors = lines.filter(|line| line.contains("ERROR") && line.contains("every change"));
        assert_eq!(errors.count(), 1, "{log}");
        // On a disk that works it continues.
        cluster.start_md();
        file::write(&cluster.at(0, "g"), "after");
        assert_eq!(file::read(&cluster.at(0, "f")), b"before");
        assert_eq!(
            status()["status"]["metadata_error"],
            serde_json::Value::Null
        );
    }
}
