//! Several data servers: chunks on all of them, few messages, servers that are added and restarted.

use std::collections::BTreeSet;
use std::path::Path;

use slabfs_tests::file::named;
use slabfs_tests::tool::{create, layout, servers, stats};
use slabfs_tests::{Cluster, Random, Up, disk, file, needs_mount, poll, slabfs};

fn servers_of(object: &Path) -> BTreeSet<u64> {
    let layout = layout(object);
    let chunks = layout["chunks"].as_array().expect("chunks");
    chunks
        .iter()
        .map(|chunk| chunk["server"].as_u64().expect("a server"))
        .collect()
}

#[test]
fn chunks_spread_over_all() {
    needs_mount!();
    let up = Up::with(&["--servers", "3"]);
    let aligned = up.at("aligned");
    create(&aligned, "30,100000", "u1", &[]);
    for i in 0..30_u8 {
        file::write(&named(&aligned, &format!("@[{i}]")), vec![i; 100_000]);
    }
    assert_eq!(servers_of(&aligned).len(), 3);
    let grid = up.at("grid");
    create(&grid, "90,90", "f8", &["--layout", "grid:30,30"]);
    file::write(&grid, vec![3; 90 * 90 * 8]);
    assert_eq!(servers_of(&grid).len(), 3);
    let plain = up.at("plain");
    file::write(&plain, vec![5; 40 << 20]);
    assert_eq!(servers_of(&plain).len(), 3, "a byte object too");
    let used: Vec<u64> = (1..=3)
        .map(|i| disk::used(&up.data().join(format!("os{i}"))))
        .collect();
    assert!(used.iter().all(|&used| used > 5 << 20), "{used:?}");
}

#[test]
fn servers_may_be_added() {
    needs_mount!();
    let mut up = Up::start();
    let object = up.at("a");
    create(&object, "40,1000", "u1", &[]);
    file::write(&named(&object, "@[0:10]"), vec![1; 10_000]);
    up.stop();
    up.try_start(&["--servers", "3"]).expect("up");
    for i in 10..40_u8 {
        file::write(&named(&object, &format!("@[{i}]")), vec![i; 1000]);
    }
    assert_eq!(servers_of(&object).len(), 3);
    up.stop();
    let said = up
        .try_start(&["--servers", "2"])
        .expect_err("data would be away");
    assert!(said.contains("--servers 3"), "{said}");
    up.start_again();
    let bytes = file::read(&object);
    assert!(bytes[..10_000].iter().all(|&b| b == 1));
    for i in 10..40 {
        assert!(
            bytes[i * 1000..][..1000].iter().all(|&b| b == i as u8),
            "row {i}"
        );
    }
}

/// A transfer costs one message per server, not one per row: the counters of pieces are small.
#[test]
fn reads_and_writes_of_few_pieces() {
    needs_mount!();
    let cluster = Cluster::start(3, 1);
    let object = cluster.at(0, "a");
    create(&object, "1000,1000", "u1", &[]);
    let before = stats(&cluster.mnt(0));
    let handle = file::open(&object);
    for row in 100..900 {
        std::os::unix::fs::FileExt::write_all_at(&handle, &[7; 500], row * 1000 + 250)
            .expect("a row");
    }
    file::close(handle).expect("closed");
    let after = stats(&cluster.mnt(0));
    let grew = |side: &str, key: &str| {
        after[side][key].as_u64().expect(key) - before[side][key].as_u64().expect(key)
    };
    assert_eq!(grew("write", "server_ops"), 1, "800 rows are one box");
    assert_eq!(grew("write", "bytes_sent"), 400_000);
    file::read(&named(&object, "@[::7,250:750:3]"));
    let last = stats(&cluster.mnt(0));
    let pieces = last["read"]["server_ops"].as_u64().unwrap()
        - after["read"]["server_ops"].as_u64().unwrap();
    assert!(
        pieces <= 4,
        "{pieces} pieces for one selection of one chunk"
    );
}

#[test]
fn data_servers_before_the_metadata_server() {
    needs_mount!();
    let mut cluster = Cluster::new(2, &[], false);
    cluster.launch_server(0);
    cluster.launch_server(1);
    cluster.start_md();
    cluster.await_server(0);
    cluster.await_server(1);
    cluster.add_mount();
    let object = cluster.at(0, "a");
    create(&object, "8,1000", "u4", &[]);
    for row in 0..8_u8 {
        file::write(&named(&object, &format!("@[{row}]")), vec![row; 4000]);
    }
    poll::until_true("both servers to be used", || {
        file::write(&named(&object, "@[0]"), vec![0; 4000]);
        servers_of(&object).len() == 2
    });
    let bytes = file::read(&object);
    assert!(
        bytes
            .chunks(4000)
            .enumerate()
            .all(|(row, part)| part.iter().all(|&b| b == row as u8))
    );
}

#[test]
fn restarts_one_by_one_lose_nothing() {
    needs_mount!();
    let mut cluster = Cluster::tcp(2, 1);
    let bytes = Random::new(97).bytes(3_000_000);
    file::write(&cluster.at(0, "f"), &bytes);
    create(&cluster.at(0, "a"), "30,1000", "u1", &["--codec", "lz4"]);
    for row in 0..30 {
        file::write(
            &named(&cluster.at(0, "a"), &format!("@[{row}]")),
            &bytes[row * 1000..][..1000],
        );
    }
    let check = |cluster: &Cluster, when: &str| {
        assert!(file::read(&cluster.at(0, "f")) == bytes, "{when}");
        assert!(file::read(&cluster.at(0, "a")) == bytes[..30_000], "{when}");
    };
    cluster.stop_server(0);
    cluster.start_server(0);
    check(&cluster, "a data server in order");
    cluster.kill_server(1);
    cluster.start_server(1);
    check(&cluster, "a data server killed");
    cluster.stop_md();
    cluster.start_md();
    check(&cluster, "the metadata server in order");
    cluster.kill_md();
    cluster.start_md();
    check(&cluster, "the metadata server killed");
    cluster.stop_mount(0);
    cluster.start_mount(0);
    check(&cluster, "the mount");
    cluster.restart();
    check(&cluster, "everything");
}

/// Space of deleted or overwritten data is freed, on servers that were away as well.
#[test]
fn space_is_freed() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 1);
    let used =
        |cluster: &Cluster| -> u64 { (0..2).map(|i| disk::used(&cluster.server_data(i))).sum() };
    let empty = used(&cluster);
    let object = cluster.at(0, "a");
    create(&object, "16,262144", "u1", &[]);
    for round in 0..4 {
        for row in 0..16 {
            file::write(&named(&object, &format!("@[{row}]")), vec![round; 262_144]);
        }
        file::open(&object).sync_all().expect("synced");
    }
    file::write(&cluster.at(0, "f"), vec![7; 20 << 20]);
    file::open(&cluster.at(0, "f")).sync_all().expect("synced");
    poll::until_true("overwritten chunks to be deleted", || {
        used(&cluster) < empty + (28 << 20)
    });
    cluster.kill_server(1);
    std::fs::remove_file(&object).expect("unlinked");
    std::fs::remove_file(cluster.at(0, "f")).expect("unlinked");
    file::sync_dir(&cluster.mnt(0)).expect("synced");
    cluster.start_server(1);
    poll::until_true("everything to go", || used(&cluster) < empty + (3 << 20));
}

/// An object without a name that a mount held open when it was killed is deleted when the mount's session has
/// expired.
#[test]
fn objects_open_on_a_dead_mount_are_deleted() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 2);
    let empty = disk::used(&cluster.server_data(0));
    let path = cluster.at(0, "f");
    file::write(&path, vec![7; 20 << 20]);
    let open = file::open(&path);
    std::fs::remove_file(&path).expect("unlinked");
    open.sync_all().expect("synced");
    assert!(disk::used(&cluster.server_data(0)) > empty + (19 << 20));
    cluster.kill_mount(0);
    drop(open);
    poll::until_true("its space to come back", || {
        disk::used(&cluster.server_data(0)) < empty + (1 << 20)
    });
}

#[test]
fn status_of_servers() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 1);
    let mnt = cluster.mnt(0).display().to_string();
    let online = || {
        let servers = slabfs(["servers", "--json", &mnt]).ok().json();
        servers
            .as_array()
            .expect("servers")
            .iter()
            .filter(|server| server["online"] == true)
            .count()
    };
    poll::until_true("two servers online", || online() == 2);
    cluster.stop_server(1);
    poll::until_true("one to be seen as away", || online() == 1);
    let text = slabfs(["servers", &mnt]).ok();
    assert!(
        text.text().contains("away") && text.text().contains(cluster.server_addr(0)),
        "{}",
        text.text()
    );
    cluster.start_server(1);
    poll::until_true("two servers online again", || online() == 2);
}

/// Data that cannot be stored keeps the mount, until it can be stored or is given up.
#[test]
fn umount_does_not_lose_data_silently() {
    needs_mount!();
    let mut cluster = Cluster::with(1, 1, &["--io-timeout", "1s"]);
    let mnt = cluster.mnt(0);
    let umount = |more: &[&str]| {
        let mut args = vec!["umount", mnt.to_str().expect("text")];
        args.extend(more);
        slabfs(args)
    };
    slabfs_tests::tool::create(&mnt.join("a"), "4,4", "u1", &[]);
    let written = file::open(&mnt.join("a"));
    std::os::unix::fs::FileExt::write_all_at(&written, &[7; 4], 0).expect("written");
    cluster.kill_server(0);
    umount(&[]).fails(1, &["stays mounted", "--force", "slabfs servers"]);
    cluster.start_server(0);
    drop(written);
    assert_eq!(file::read(&mnt.join("a"))[..4], [7; 4], "nothing was lost");
    // Of closed files the server has all the data, and perhaps not yet on its disk.
    file::write(&mnt.join("b"), [8; 100]);
    cluster.kill_server(0);
    umount(&[]).fails(1, &["stays mounted", "--force", "slabfs servers"]);
    cluster.start_server(0);
    umount(&[]).ok();
}

/// Data that a close could not store is lost, and none of it is visible; nor if another process tries to store
/// it at the same time.
#[test]
fn data_that_a_close_could_not_store_is_not_visible() {
    needs_mount!();
    let cluster = Cluster::with(1, 2, &["--io-timeout", "2s"]);
    let written = file::open_new(&cluster.at(0, "f"));
    cluster.server(0).signal(nix::sys::signal::Signal::SIGSTOP);
    std::os::unix::fs::FileExt::write_all_at(&written, &[7; 100_000], 0).expect("written");
    // The close returns when its flush has failed, and then the kernel releases the file, which tries once
    // more.
    drop(written);
    let mnt = cluster.mnt(0);
    slabfs(["umount", mnt.to_str().expect("text")]).fails(1, &["stays mounted"]);
    poll::until_true("the data is given up", || {
        stats(&mnt)["dirty_bytes"].as_u64() == Some(0)
    });
    cluster.server(0).signal(nix::sys::signal::Signal::SIGCONT);
    slabfs(["umount", mnt.to_str().expect("text")]).ok();
    assert_eq!(file::read(&cluster.at(1, "f")).len(), 0);
}

/// A mount whose metadata service is away answers late; `umount` returns after its timeout.
#[test]
fn umount_waits_no_longer_than_its_timeout() {
    needs_mount!();
    let mut cluster = Cluster::with(1, 1, &["--io-timeout", "10m"]);
    let mnt = cluster.mnt(0);
    file::write(&mnt.join("a"), [7; 100]);
    cluster.kill_md();
    let at = mnt.to_str().expect("text");
    for _ in 0..2 {
        slabfs(["umount", "--timeout", "1s", at])
            .fails(1, &["stays mounted", "within 1s", "--force"]);
    }
    // The process that made the request may be in the mount still, at a later step: the root has been returned.
    std::fs::metadata(&mnt).expect("the root");
    slabfs(["umount", "--force", "--timeout", "1s", at]).fails(1, &["is unmounted", "still runs"]);
    assert!(!slabfs_tests::mounts::is_mounted(&mnt));
    cluster.start_md();
}

#[test]
fn a_disk_of_several_servers_counts_once() {
    needs_mount!();
    let up = Up::with(&["--servers", "3"]);
    let total = |path: &Path| {
        let space = nix::sys::statvfs::statvfs(path).expect("statvfs");
        space.blocks() * space.fragment_size()
    };
    poll::until_true("all servers have reported", || {
        servers(up.mnt()).iter().all(|server| server["total"] != 0)
    });
    assert_eq!(total(up.mnt()), total(up.data()));
}
