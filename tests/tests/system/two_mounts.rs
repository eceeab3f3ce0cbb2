//! Two mounts of one filesystem, in either mode (`strict` has tests of its own): data that one closes or syncs,
//! the other sees from its next open on; names are never stale; writers of different bytes never disturb each
//! other.

use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use slabfs_tests::array::same;
use slabfs_tests::file::{self, errno, named};
use slabfs_tests::tool::{create, slabfs};
use slabfs_tests::{Cluster, Random, needs_mount, poll};

#[test]
fn close_to_open() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    for layout in ["aligned", "grid:3,5", "canonical"] {
        let name = &layout[..4];
        create(&cluster.at(0, name), "10,12", "f4", &["--layout", layout]);
        let mut wanted = vec![0; 480];
        for (i, (row, who)) in (0..10).zip([0, 1].into_iter().cycle()).enumerate() {
            let bytes = [i as u8 + 1; 48];
            file::write(&named(&cluster.at(who, name), &format!("@[{row}]")), bytes);
            wanted[row * 48..][..48].fill(i as u8 + 1);
            for who in [0, 1] {
                same(
                    &format!("{layout}, mount {who}, row {row}"),
                    &file::read(&cluster.at(who, name)),
                    &wanted,
                );
            }
        }
    }
    for i in 0..20 {
        let (writer, reader) = (i % 2, 1 - i % 2);
        let text = format!("version {i} {}", "x".repeat(i * 100));
        file::write(&cluster.at(writer, "f"), &text);
        assert_eq!(file::read(&cluster.at(reader, "f")), text.as_bytes());
        assert_eq!(
            cluster.at(reader, "f").metadata().expect("metadata").len(),
            text.len() as u64
        );
    }
}

#[test]
fn fsync_to_open_and_open_handles_later() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    file::write(&cluster.at(0, "f"), [0; 1000]);
    let (writer, reader) = (
        file::open(&cluster.at(0, "f")),
        file::open(&cluster.at(1, "f")),
    );
    let mut seen = [9; 10];
    reader.read_exact_at(&mut seen, 0).expect("read");
    assert_eq!(seen, [0; 10]);
    writer.write_all_at(&[7; 10], 0).expect("written");
    writer.sync_all().expect("synced");
    assert_eq!(
        file::read(&cluster.at(1, "f"))[..10],
        [7; 10],
        "a new open sees it at once"
    );
    poll::until_true("a handle that was open to look again", || {
        reader.read_exact_at(&mut seen, 0).expect("read");
        seen == [7; 10]
    });
}

/// Names and attributes: entries that another mount renamed, removed or changed are never seen as before.
#[test]
fn names_are_never_stale() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let dir = cluster.at(0, "d");
    std::fs::create_dir(&dir).expect("made");
    for i in 0..30 {
        file::write(&dir.join(format!("f{i}")), "x");
    }
    let listed = |who: usize| -> Vec<(String, u64)> {
        let mut listed: Vec<_> = std::fs::read_dir(cluster.at(who, "d"))
            .expect("listed")
            .map(|entry| entry.expect("an entry"))
            .map(|entry| {
                (
                    entry.file_name().into_string().expect("text"),
                    entry.metadata().map_or(u64::MAX, |meta| meta.len()),
                )
            })
            .collect();
        listed.sort();
        listed
    };
    for i in 0..30 {
        // Listing with attributes fills the kernel's caches of both mounts.
        assert_eq!(listed(0), listed(1));
        let (mine, theirs) = (cluster.at(i % 2, "d"), cluster.at(1 - i % 2, "d"));
        let name = format!("f{i}");
        match i % 3 {
            0 => {
                std::fs::rename(mine.join(&name), mine.join(format!("renamed{i}")))
                    .expect("renamed");
                assert_eq!(errno(theirs.join(&name).metadata()), Errno::ENOENT);
                assert!(theirs.join(format!("renamed{i}")).exists());
            }
            1 => {
                std::fs::remove_file(mine.join(&name)).expect("removed");
                assert_eq!(
                    errno(std::fs::File::open(theirs.join(&name))),
                    Errno::ENOENT
                );
                file::write(&theirs.join(&name), "made again");
                assert_eq!(file::read(&mine.join(&name)), b"made again");
            }
            _ => {
                file::write(&mine.join(&name), "longer than it was");
                assert_eq!(theirs.join(&name).metadata().expect("metadata").len(), 18);
                std::fs::set_permissions(
                    mine.join(&name),
                    std::os::unix::fs::PermissionsExt::from_mode(0o600),
                )
                .expect("chmod");
                let mode = std::os::unix::fs::MetadataExt::mode(
                    &theirs.join(&name).metadata().expect("metadata"),
                );
                assert_eq!(mode & 0o777, 0o600);
            }
        }
        assert_eq!(listed(0), listed(1), "after {i}");
        // A name that did not exist a moment ago.
        let new = format!("new{i}");
        assert!(!theirs.join(&new).exists());
        file::write(&mine.join(&new), "x");
        assert!(theirs.join(&new).exists(), "{new} is not seen");
    }
}

#[test]
fn exclusive_creation_has_one_winner() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let won = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for who in [0, 1, 0, 1] {
            let (cluster, won) = (&cluster, &won);
            scope.spawn(move || {
                for i in 0..60 {
                    let made = std::fs::OpenOptions::new()
                        .write(true)
                        .create_new(true)
                        .open(cluster.at(who, format!("f{i}")));
                    match made {
                        Ok(_) => drop(won.fetch_add(1, std::sync::atomic::Ordering::SeqCst)),
                        Err(error) => assert_eq!(errno::<()>(Err(error)), Errno::EEXIST),
                    }
                }
            });
        }
    });
    assert_eq!(won.into_inner(), 60);
}

#[test]
fn writers_of_different_bytes_on_two_mounts() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 2);
    for (seed, layout) in [(1, "aligned"), (2, "grid:16,16"), (3, "canonical")] {
        let name = &layout[..4];
        create(&cluster.at(0, name), "64,100", "u1", &["--layout", layout]);
        let wanted = Random::new(400 + seed).bytes(6400);
        std::thread::scope(|scope| {
            for who in 0..2 {
                let (cluster, wanted) = (&cluster, &wanted);
                scope.spawn(move || {
                    // Every other byte, and every other row, to mix them as much as possible.
                    if who == 0 {
                        let odd: Vec<u8> =
                            wanted[3200..].iter().skip(1).step_by(2).copied().collect();
                        file::write(&named(&cluster.at(0, name), "@[32:,1::2]"), odd);
                    } else {
                        let even: Vec<u8> = wanted[3200..].iter().step_by(2).copied().collect();
                        file::write(&named(&cluster.at(1, name), "@[32:,::2]"), even);
                    }
                    let handle = file::open(&cluster.at(who, name));
                    for row in (who..32).step_by(2) {
                        handle
                            .write_all_at(&wanted[row * 100..][..100], row as u64 * 100)
                            .expect("a row");
                    }
                    file::close(handle).expect("closed");
                });
            }
        });
        for who in [0, 1] {
            same(
                &format!("{layout} on mount {who}"),
                &file::read(&cluster.at(who, name)),
                &wanted,
            );
        }
        cluster.restart();
        same(
            &format!("{layout} after a restart"),
            &file::read(&cluster.at(1, name)),
            &wanted,
        );
    }
}

/// One process serves its own mount and others: `up --listen`.
#[test]
fn a_second_mount_of_up() {
    needs_mount!();
    let area = slabfs_tests::Area::new();
    let addr = format!("unix:{}", area.at("s.s").display());
    let mut up = slabfs_tests::Up::new(area, &["--listen", &addr, "--servers", "2"]);
    up.start_again();
    file::write(&up.at("f"), vec![5; 300_000]);
    let mnt = up.area().mkdir("m2");
    let args = ["mount", "--md", &addr, &mnt.display().to_string()].map(str::to_owned);
    let mut second = slabfs_tests::Service::start(up.area().path(), "second", &args);
    second.ready();
    assert_eq!(file::read(&mnt.join("f")), vec![5; 300_000]);
    file::write(&mnt.join("g"), "from the second");
    assert_eq!(file::read(&up.at("g")), b"from the second");
    second.stop();
    assert!(!slabfs_tests::mounts::is_mounted(&mnt));
}

/// A killed mount releases its open objects, and others continue.
#[test]
fn a_mount_that_dies_is_forgotten() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 2);
    file::write(&cluster.at(0, "f"), "x");
    let open = file::open(&cluster.at(0, "f"));
    std::fs::remove_file(cluster.at(1, "f")).expect("removed");
    let mut seen = [0];
    open.read_exact_at(&mut seen, 0)
        .expect("another mount's unlink leaves it open here");
    cluster.kill_mount(0);
    drop(open);
    file::write(&cluster.at(1, "g"), "continues");
    cluster.start_mount(0);
    assert_eq!(file::read(&cluster.at(0, "g")), b"continues");
    assert!(!cluster.at(0, "f").exists());
}

/// A write beyond an end that another mount has just moved is not lost silently: the flush returns an error
/// once, and as soon as the mount knows the new end, the write is refused.
#[test]
fn a_write_beyond_an_end_moved_by_another_mount_is_reported() {
    needs_mount!();
    let cluster = Cluster::with(2, 2, &["--consistency", "commit"]);
    let set_dims = |name: &str, dims: String| {
        let path = cluster.at(0, name).display().to_string();
        slabfs(["set", &path, "--dims", &dims]).ok();
    };
    let mut made = 0;
    // Rows that are buffered in memory, and rows that go to the servers at once.
    for (layout, columns) in [
        ("aligned", 5),
        ("aligned", 65536),
        ("grid:2,5", 5),
        ("grid:2,65536", 65536),
        ("canonical", 65536),
    ] {
        for selection in ["", "@[1:4]"] {
            made += 1;
            let name = format!("o{made}");
            let what = format!("{layout} {columns}{selection}");
            let (full, cut) = (format!("8,{columns}"), format!("2,{columns}"));
            create(&cluster.at(0, &name), &full, "i4", &["--layout", layout]);
            let row = 4 * columns;
            let bytes = vec![7; 3 * row];
            let at = if selection.is_empty() { row as u64 } else { 0 };
            let handle = file::open(&named(&cluster.at(1, &name), selection));
            handle.read_exact_at(&mut [0; 8], 0).expect("read");
            set_dims(&name, cut.clone());
            let refused = [Errno::EFBIG, Errno::EINVAL];
            match handle.write_all_at(&bytes, at) {
                Ok(()) => {
                    assert_eq!(errno(handle.sync_all()), Errno::EFBIG, "{what}");
                    handle.sync_all().expect("reported once");
                }
                // It was slow, and the mount has refreshed the dims meanwhile.
                Err(error) => assert!(refused.contains(&errno::<()>(Err(error))), "{what}"),
            }
            // Now it knows.
            let late = errno(handle.write_all_at(&bytes, at));
            assert!(refused.contains(&late), "{what}: {late}");
            file::close(handle).expect("closed");
            set_dims(&name, full);
            let mut wanted = vec![0; 8 * row];
            for who in [0, 1] {
                let read = file::read(&cluster.at(who, &name));
                wanted[row..2 * row].copy_from_slice(&read[row..2 * row]);
                same(&what, &read, &wanted);
            }
        }
    }
    let log = cluster.mount_log(1);
    assert!(
        log.contains("another mount gave the object dims 2,5"),
        "{log}"
    );
}

/// A mount that only writes learns of other dims as well, without an error of a flush.
#[test]
fn a_writer_refreshes_the_dims_periodically() {
    needs_mount!();
    let cluster = Cluster::with(1, 2, &["--consistency", "commit"]);
    create(&cluster.at(0, "a"), "8,5", "i4", &[]);
    let handle = file::open(&cluster.at(1, "a"));
    handle.write_all_at(&[1; 20], 0).expect("written");
    let path = cluster.at(0, "a").display().to_string();
    slabfs(["set", &path, "--dims", "2,5"]).ok();
    poll::until_true("a write outside to be refused", || {
        match handle.write_at(&[2; 20], 60) {
            Ok(_) => false,
            Err(error) => {
                assert_eq!(errno::<()>(Err(error)), Errno::EFBIG);
                true
            }
        }
    });
}

/// Programs that follow MPI-IO's sync-barrier-sync, with handles that stay open on both sides.
#[test]
fn in_mode_commit_a_reader_sees_after_its_fsync_what_a_writer_synced() {
    needs_mount!();
    let cluster = Cluster::with(2, 2, &["--consistency", "commit"]);
    for layout in ["aligned", "grid:100000"] {
        let name = format!("a-{}", &layout[..4]);
        create(
            &cluster.at(1, &name),
            "1000000",
            "u1",
            &["--layout", layout],
        );
        let writer = file::open(&cluster.at(1, &name));
        let read_only = std::fs::File::open(cluster.at(0, &name)).expect("opened");
        for (what, reader) in [
            ("both", file::open(&cluster.at(0, &name))),
            ("read", read_only),
        ] {
            for round in 1..=14u8 {
                // One place repeatedly, and places at equal steps, which are read ahead.
                for at in [5, u64::from(round) * 70_000 - 50_000] {
                    writer.write_all_at(&[round; 100], at).expect("written");
                    writer.sync_all().expect("synced");
                    reader.sync_all().expect("the second sync");
                    let mut seen = [0; 100];
                    reader.read_exact_at(&mut seen, at).expect("read");
                    assert_eq!(seen, [round; 100], "{layout} {what} {round} at {at}");
                }
            }
        }
    }
}
