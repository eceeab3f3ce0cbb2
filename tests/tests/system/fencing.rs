//! Sessions that the metadata service ends, and mounts that are cut off: nothing of an expired session is
//! stored, the mount reports that once and continues, and other mounts are not affected.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use slabfs_tests::array::same;
use slabfs_tests::file::{self, errno};
use slabfs_tests::held::Held;
use slabfs_tests::tool::{create, stats};
use slabfs_tests::{Cluster, needs_mount, poll, slabfs};

/// Stops a mount until the metadata service has expired its session.
fn outlive(cluster: &Cluster, mount: usize) {
    let before = given_up(cluster);
    cluster.mount(mount).signal(Signal::SIGSTOP);
    poll::until_true("the session's end", || given_up(cluster) > before);
}

/// The same, and meanwhile the metadata service is killed and restarted.
fn outlive_with_the_service(cluster: &mut Cluster, mount: usize) {
    cluster.mount(mount).signal(Signal::SIGSTOP);
    cluster.kill_md();
    cluster.start_md();
    poll::until_true("the session's end", || given_up(cluster) > 0);
}

/// The number of sessions that the metadata service has expired since its start.
fn given_up(cluster: &Cluster) -> usize {
    cluster
        .md()
        .log()
        .matches("no heartbeat of the session")
        .count()
}

/// Waits until data server `i` enforces a list of sessions without `session`.
fn await_fence(cluster: &Cluster, i: usize, session: u64) {
    let path = cluster.server_data(i).join("sessions");
    poll::until_true("the fence", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let live = text.lines().find_map(|line| line.strip_prefix("live"));
        live.is_some_and(|live| !live.split(' ').any(|id| id == session.to_string()))
    });
}

fn sessions_lost(mnt: &Path) -> u64 {
    stats(mnt)["sessions_lost"].as_u64().expect("a number")
}

/// Sizes of writes that go through memory, and directly to the servers.
const SMALL: usize = 4096;
const LARGE: usize = 256 << 10;

#[test]
fn a_stopped_mount_reports_lost_data_once_and_continues() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 2);
    for (name, layout) in [("grid", "grid:64,4096"), ("aligned", "aligned")] {
        create(
            &cluster.at(0, name),
            "256,4096",
            "u1",
            &["--layout", layout],
        );
        file::write(&cluster.at(0, name), vec![1; 1 << 20]);
    }
    file::write(&cluster.at(0, "removed"), [1; 100]);
    file::write(&cluster.at(0, "clean"), [1; 100]);
    let open = |name: &str| file::open(&cluster.at(0, name));
    let dirty = [open("grid"), open("aligned")];
    let (removed, clean) = (open("removed"), open("clean"));
    let copies = dirty
        .each_ref()
        .map(|handle| handle.try_clone().expect("a copy"));
    for handle in &dirty {
        handle.write_all_at(&[2; SMALL], 0).expect("written");
        handle
            .write_all_at(&[2; SMALL], 100 * SMALL as u64)
            .expect("written");
    }

    outlive(&cluster, 0);
    for name in ["grid", "aligned"] {
        let path = cluster.at(1, name);
        file::write_at(&path, 0, &[3; SMALL]);
    }
    std::fs::remove_file(cluster.at(1, "removed")).expect("removed");
    // A restarted data server knows the list too, or asks for it before it accepts requests.
    cluster.kill_server(0);
    cluster.start_server(0);
    cluster.kill_server(1);
    let list = cluster.server_data(1).join("sessions");
    let text = file::read(&list);
    assert!(text.starts_with(b"slabfs sessions 1\n"), "{text:?}");
    std::fs::remove_file(&list).expect("forgotten");
    cluster.start_server(1);
    cluster.mount(0).signal(Signal::SIGCONT);

    for copy in copies {
        assert_eq!(
            errno(file::close(copy)),
            Errno::EIO,
            "reported, and left to the others"
        );
    }
    for handle in &dirty {
        assert_eq!(errno(handle.sync_all()), Errno::EIO, "reported");
        handle.sync_all().expect("reported once");
        let mut seen = [0; SMALL];
        handle.read_exact_at(&mut seen, 0).expect("read");
        assert_eq!(seen, [3; SMALL], "what others wrote meanwhile");
        handle
            .read_exact_at(&mut seen, 100 * SMALL as u64)
            .expect("read");
        assert_eq!(seen, [1; SMALL], "what was lost is not there");
    }
    clean.sync_all().expect("nothing of it was lost");
    clean.write_all_at(&[4; 10], 50).expect("written");
    clean.sync_all().expect("synced");
    assert_eq!(file::read(&cluster.at(1, "clean"))[50..60], [4; 10]);
    let mut seen = [0; 10];
    assert_eq!(errno(removed.read_at(&mut seen, 0)), Errno::ESTALE);
    assert_eq!(errno(removed.write_at(&seen, 0)), Errno::ESTALE);
    assert_eq!(sessions_lost(&cluster.mnt(0)), 1);
    for (handle, name) in dirty.iter().zip(["grid", "aligned"]) {
        handle.write_all_at(&[5; SMALL], 0).expect("written");
        handle.sync_all().expect("synced");
        let seen = file::read(&cluster.at(1, name));
        assert!(seen[..SMALL] == [5; SMALL] && seen[SMALL..].iter().all(|&byte| byte == 1));
    }
    drop((dirty, removed, clean));
    cluster.stop_and_fsck().ok();
}

/// Pages that a program changed before the session was over do not reappear after it.
#[test]
fn changed_pages_of_a_lost_session_are_lost() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    create(
        &cluster.at(0, "a"),
        "64,4096",
        "u1",
        &["--layout", "grid:8,4096"],
    );
    file::write(&cluster.at(0, "a"), vec![1; 64 * 4096]);
    let handle = file::open(&cluster.at(0, "a"));
    let mut map = file::map(&handle).expect("mapped");
    map[10..20].fill(2);
    map[40_000] = 2;
    outlive(&cluster, 0);
    file::write_at(&cluster.at(1, "a"), 0, &[3; 4096]);
    cluster.mount(0).signal(Signal::SIGCONT);
    // The kernel or the mount returns the error, once.
    poll::until_true("another session", || sessions_lost(&cluster.mnt(0)) == 1);
    let _ = map.flush();
    drop(map);
    let _ = file::close(handle);
    let mut wanted = vec![1; 64 * 4096];
    wanted[..4096].fill(3);
    for mount in [1, 0] {
        same(
            &format!("mount {mount}"),
            &file::read(&cluster.at(mount, "a")),
            &wanted,
        );
    }
    let handle = file::open(&cluster.at(0, "a"));
    let mut map = file::map(&handle).expect("mapped");
    assert_eq!(map[0], 3);
    map[0] = 4;
    map.flush().expect("written back");
    assert_eq!(file::read(&cluster.at(1, "a"))[..2], [4, 3]);
}

/// A write in place that was under way when its session ended is refused when it arrives.
#[test]
fn a_late_write_is_refused() {
    needs_mount!();
    late_write(|cluster| outlive(cluster, 0));
}

/// The same where the metadata service restarts in between.
#[test]
fn a_late_write_is_refused_after_a_restart_of_the_metadata_service() {
    needs_mount!();
    late_write(|cluster| outlive_with_the_service(cluster, 0));
}

/// A proxy in the place of the first data server's socket.
fn held_server(cluster: &Cluster) -> Held {
    let place = cluster.server_addr(0).trim_start_matches("unix:");
    Held::instead_of(Path::new(place))
}

/// Creates the array `a` of one chunk, which is written in place, and fills it with ones.
fn one_chunk(cluster: &Cluster) {
    let path = cluster.at(0, "a");
    create(&path, "64,4096", "u1", &["--layout", "grid:64,4096"]);
    file::write(&path, vec![1; LARGE]);
}

fn late_write(end_session: impl FnOnce(&mut Cluster)) {
    let mut cluster = Cluster::with(1, 0, &[]);
    let held = held_server(&cluster);
    cluster.add_mount();
    one_chunk(&cluster);
    let session = stats(&cluster.mnt(0))["session"]
        .as_u64()
        .expect("a number");
    let handle = file::open(&cluster.at(0, "a"));
    held.give_way();
    held.hold();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| handle.write_at(&[2; LARGE], 0));
        poll::until_true("a write on its way", || held.waiting() > LARGE as u64);
        end_session(&mut cluster);
        // Before that its bytes may still be written, and no other mount has a right to the object.
        await_fence(&cluster, 0, session);
        cluster.add_mount();
        // In place: opening with O_TRUNC would create other chunks.
        file::write_at(&cluster.at(1, "a"), 0, &[3; LARGE]);
        file::open(&cluster.at(1, "a")).sync_all().expect("synced");
        let answered = held.answered();
        held.release();
        poll::until_true("an answer", || held.answered() > answered);
        let come = file::read(&cluster.at(1, "a"));
        // Read at a time when no mount waits for the stopped one any more.
        cluster.mount(0).signal(Signal::SIGCONT);
        let result = late.join().expect("the writer");
        same("after it has come", &come, &vec![3; LARGE]);
        // Whatever was returned before: now the late write has arrived. Read by a mount without cached data.
        cluster.add_mount();
        let seen = file::read(&cluster.at(2, "a"));
        same("after it was answered", &seen, &vec![3; LARGE]);
        assert_eq!(errno(result), Errno::EIO);
    });
    poll::until_true("another session", || sessions_lost(&cluster.mnt(0)) == 1);
    handle.write_all_at(&[4; LARGE], 0).expect("written");
    handle.sync_all().expect("synced");
    same(
        "in the end",
        &file::read(&cluster.at(1, "a")),
        &vec![4; LARGE],
    );
}

/// Writes and syncs the bytes of `file` until `ended`; returns how often.
fn work(file: &File, len: usize, ended: &AtomicBool) -> usize {
    let mut rounds = 0;
    while !ended.load(Ordering::SeqCst) || rounds == 0 {
        let bytes = vec![rounds as u8; len];
        file.write_all_at(&bytes, 0).expect("written");
        file.sync_all().expect("synced");
        rounds += 1;
    }
    rounds
}

#[test]
fn sessions_and_their_writes_outlive_the_metadata_service() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 2);
    let mut handles = Vec::new();
    for mount in [0, 1] {
        for (layout, len) in [("grid:16,4096", LARGE), ("aligned", SMALL)] {
            let path = cluster.at(mount, format!("{mount}-{len}"));
            create(&path, "64,4096", "u1", &["--layout", layout]);
            handles.push((file::open(&path), len));
        }
    }
    let sessions = || [0, 1].map(|i| stats(&cluster.mnt(i))["session"].clone());
    let before = sessions();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ended = &ended;
        let writers: Vec<_> = handles
            .iter()
            .map(|(file, len)| scope.spawn(move || work(file, *len, ended)))
            .collect();
        for _ in 0..3 {
            cluster.kill_md();
            cluster.start_md();
        }
        ended.store(true, Ordering::SeqCst);
        for writer in writers {
            assert!(writer.join().expect("the writer") > 0);
        }
    });
    let sessions = [0, 1].map(|i| stats(&cluster.mnt(i))["session"].clone());
    assert_eq!(sessions, before);
    assert!((0..2).all(|i| sessions_lost(&cluster.mnt(i)) == 0));
}

/// A mount without replies from the metadata service waits, because its rights may have been granted to others.
#[test]
fn a_mount_without_replies_waits() {
    needs_mount!();
    let cluster = Cluster::start(1, 1);
    file::write(&cluster.at(0, "f"), [1; 1000]);
    let handle = file::open(&cluster.at(0, "f"));
    let mut seen = [0; 10];
    handle.read_exact_at(&mut seen, 0).expect("read");
    cluster.md().signal(Signal::SIGSTOP);
    poll::until_true("a lapse", || {
        cluster.mount_log(0).contains("has not answered in time")
    });
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| handle.read_exact_at(&mut seen, 0));
        // It cannot return before the service is back; it need not have begun.
        assert!(!reading.is_finished());
        cluster.md().signal(Signal::SIGCONT);
        reading.join().expect("the reader").expect("read");
    });
    assert_eq!(seen, [1; 10]);
    assert_eq!(sessions_lost(&cluster.mnt(0)), 0);
}

/// A mount that has given up on a write in place returns the right only when the data server refuses that write: it
/// may still be on its way.
#[test]
fn a_write_without_a_reply_does_not_come_after_those_of_another_mount() {
    needs_mount!();
    let mut cluster = Cluster::with(1, 0, &["--io-timeout", "1s"]);
    let held = held_server(&cluster);
    cluster.add_mount();
    one_chunk(&cluster);
    let handle = file::open(&cluster.at(0, "a"));
    held.give_way();
    cluster.add_mount();
    let other = file::open(&cluster.at(1, "a"));
    handle.write_all_at(&[2; LARGE], 0).expect("written");
    held.hold();
    assert_eq!(errno(handle.write_at(&[4; LARGE], 0)), Errno::EIO);
    other.write_all_at(&[3; LARGE], 0).expect("written");
    other.sync_all().expect("synced");
    let answered = held.answered();
    held.release();
    poll::until_true("an answer", || held.answered() > answered);
    cluster.add_mount();
    for mount in [2, 1, 0] {
        let seen = file::read(&cluster.at(mount, "a"));
        same("after it has come", &seen, &vec![3; LARGE]);
    }
}

/// A mount that was the only one writes back its dirty data for another one, and its session ends meanwhile.
#[test]
fn a_session_is_lost_while_its_rights_are_recalled() {
    needs_mount!();
    let mut cluster = Cluster::with(1, 0, &[]);
    let held = held_server(&cluster);
    cluster.add_mount();
    let handle = file::open_new(&cluster.at(0, "f"));
    handle.write_all_at(&[1; SMALL], 0).expect("written");
    handle.sync_all().expect("synced");
    handle.write_all_at(&[2; SMALL], 0).expect("written");
    held.give_way();
    held.hold();
    cluster.add_mount();
    poll::until_true("a flush on its way", || held.waiting() > SMALL as u64);
    outlive(&cluster, 0);
    let other = file::open(&cluster.at(1, "f"));
    let mut seen = [0; SMALL];
    other.read_exact_at(&mut seen, 0).expect("read");
    assert_eq!(seen, [1; SMALL]);
    other.write_all_at(&[3; SMALL], 0).expect("written");
    held.release();
    cluster.mount(0).signal(Signal::SIGCONT);
    poll::until_true("another session", || sessions_lost(&cluster.mnt(0)) == 1);
    assert_eq!(errno(handle.sync_all()), Errno::EIO, "reported");
    for round in 4..20 {
        handle.read_exact_at(&mut seen, 0).expect("read");
        assert_eq!(seen, [round - 1; SMALL]);
        let file = if round % 2 == 0 { &handle } else { &other };
        file.write_all_at(&[round; SMALL], 0).expect("written");
    }
}

/// Packets of a mount are lost, as on a link that was cut for seconds and whose TCP connection has not
/// recovered: it renews its session on another connection before it is over.
#[test]
fn a_mount_without_replies_opens_another_connection() {
    needs_mount!();
    let mut cluster = Cluster::with(1, 1, &[]);
    let held = Held::instead_of(&cluster.area().at("md.s"));
    cluster.add_mount();
    let handle = file::open_new(&cluster.at(1, "f"));
    handle.write_all_at(&[1; SMALL], 0).expect("written");
    held.give_way();
    held.hold();
    // Both were heard last at about the same time; this one is not heard again.
    outlive(&cluster, 0);
    assert_eq!(given_up(&cluster), 1, "the other session is valid");
    handle.sync_all().expect("synced");
    assert_eq!(sessions_lost(&cluster.mnt(1)), 0);
    held.release();
    cluster.mount(0).signal(Signal::SIGCONT);
    poll::until_true("another session", || sessions_lost(&cluster.mnt(0)) == 1);
    assert_eq!(file::read(&cluster.at(0, "f")), [1; SMALL]);
}

/// A killed mount does not affect the others, and what it held is free when its session is over.
#[test]
fn others_continue_when_a_mount_is_killed() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 2);
    create(
        &cluster.at(0, "a"),
        "64,4096",
        "u1",
        &["--layout", "grid:16,4096"],
    );
    file::write(&cluster.at(0, "a"), vec![1; LARGE]);
    let (dying, living) = (
        file::open(&cluster.at(0, "a")),
        file::open(&cluster.at(1, "a")),
    );
    dying.write_all_at(&[2; SMALL], 0).expect("written");
    cluster.kill_mount(0);
    drop(dying);
    living
        .write_all_at(&[3; SMALL], SMALL as u64)
        .expect("written");
    living.sync_all().expect("synced");
    poll::until_true("its end", || {
        stats(&cluster.mnt(1))["sessions"].as_u64() == Some(1)
    });
    let mut wanted = vec![1; LARGE];
    wanted[SMALL..2 * SMALL].fill(3);
    same("the object", &file::read(&cluster.at(1, "a")), &wanted);
    std::fs::remove_file(cluster.at(1, "a")).expect("removed");
    drop(living);
    cluster.start_mount(0);
    assert_eq!(
        std::fs::read_dir(cluster.mnt(0)).expect("listed").count(),
        0
    );
    cluster.stop_and_fsck().ok();
}

/// The filesystem is replaced by another one at the same address: a mount of the first neither continues in a
/// session of another mount nor writes into an object that has the number of one of its own.
#[test]
fn a_mount_finds_another_filesystem_at_the_address() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 1);
    file::write(&cluster.at(0, "other"), "mine");
    slabfs([
        "call",
        &cluster.mnt(0).display().to_string(),
        "{\"op\": \"sync\"}",
    ])
    .ok();
    let old = file::open_new(&cluster.at(0, "old"));
    old.write_all_at(b"old", 0).expect("written");
    cluster.mount(0).signal(Signal::SIGSTOP);
    cluster.kill_md();
    cluster.kill_server(0);
    for dir in [cluster.md_data(), cluster.server_data(0)] {
        std::fs::rename(&dir, dir.with_extension("first")).expect("moved");
    }
    cluster.start_md();
    cluster.start_server(0);
    cluster.add_mount();
    let new = file::open_new(&cluster.at(1, "new"));
    new.write_all_at(b"NEW", 0).expect("written");
    new.sync_all().expect("synced");
    cluster.mount(0).signal(Signal::SIGCONT);
    // The dirty data is lost, or the object is gone: whichever is detected first.
    let error = errno(old.sync_all());
    assert!([Errno::EIO, Errno::ESTALE].contains(&error), "{error}");
    let said = "another filesystem is at the address";
    poll::until_true("the log", || cluster.mount_log(0).contains(said));
    assert!(cluster.mount_log(0).contains(cluster.md_addr()));
    // The object of that number is not its own.
    let refused = |error| [Errno::EIO, Errno::ESTALE].contains(&error);
    assert_eq!(errno(old.read_exact_at(&mut [0; 3], 0)), Errno::ESTALE);
    let written = old.write_all_at(b"bad", 0).and_then(|()| old.sync_all());
    assert_eq!(errno(written), Errno::ESTALE);
    drop(old);
    // Nor is any name.
    for name in ["new", "old", "other"] {
        assert!(refused(errno(std::fs::read(cluster.at(0, name)))), "{name}");
    }
    assert!(refused(errno(std::fs::write(cluster.at(0, "more"), "bad"))));
    assert!(refused(errno(std::fs::remove_file(cluster.at(0, "new")))));
    let listed =
        std::fs::read_dir(cluster.mnt(0)).and_then(|list| list.collect::<Result<Vec<_>, _>>());
    assert!(refused(errno(listed)));
    let mnt = cluster.mnt(0).display().to_string();
    for command in ["servers", "status"] {
        let text = slabfs([command, &mnt]).ok();
        assert!(text.text().contains(said), "{}", text.text());
    }
    let servers = slabfs(["servers", "--json", &mnt]).ok().json();
    assert_eq!(servers[0]["state"], "failed");
    assert_eq!(file::read(&cluster.at(1, "new")), b"NEW");
    assert!(!cluster.at(1, "more").exists());
    new.write_all_at(b"2ND", 0).expect("still its own session");
    new.sync_all().expect("synced");
    drop(new);
    // Its own filesystem is back.
    cluster.stop_mount(1);
    cluster.stop_server(0);
    cluster.stop_md();
    for dir in [cluster.md_data(), cluster.server_data(0)] {
        std::fs::remove_dir_all(&dir).expect("removed");
        std::fs::rename(dir.with_extension("first"), dir).expect("moved back");
    }
    cluster.start_md();
    cluster.start_server(0);
    let other = cluster.at(0, "other");
    poll::until_true("the mount to continue", || {
        std::fs::read(&other).is_ok_and(|bytes| bytes == b"mine")
    });
}
