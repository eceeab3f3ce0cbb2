//! Placements: every chunk is on a server that its object's placement allows.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;

use slabfs_tests::file::named;
use slabfs_tests::tool::{create, info, layout, servers};
use slabfs_tests::{Cluster, Random, Up, file, needs_mount, needs_root, poll, slabfs};

/// The chunks of an object: first row, rows, server, bytes.
fn chunks(object: &Path) -> Vec<(u64, u64, u64, u64)> {
    let layout = layout(object);
    let chunks = layout["chunks"].as_array().expect("chunks");
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    chunks
        .iter()
        .map(|chunk| {
            (
                number(&chunk["offset"][0]),
                number(&chunk["shape"][0]),
                number(&chunk["server"]),
                number(&chunk["bytes"]),
            )
        })
        .collect()
}

fn servers_of(object: &Path) -> BTreeSet<u64> {
    chunks(object).iter().map(|chunk| chunk.2).collect()
}

/// Writes each row separately, and fsyncs all.
fn by_rows(object: &Path, rows: u64, row: u64) -> Vec<u8> {
    let bytes = Random::new(rows ^ row).bytes((rows * row) as usize);
    for at in 0..rows {
        let part = &bytes[(at * row) as usize..][..row as usize];
        file::write_at(object, at * row, part);
    }
    file::open(object).sync_all().expect("synced");
    bytes
}

#[test]
fn object_on_one_server_by_its_hash() {
    needs_mount!();
    let up = Up::with(&["--servers", "4"]);
    let mut used = BTreeSet::new();
    for i in 0..16 {
        for layout in ["aligned", "grid:2,1000"] {
            let object = up.at(format!("{i}-{layout}"));
            create(
                &object,
                "8,1000",
                "u1",
                &["--placement", "object", "--layout", layout],
            );
            let bytes = by_rows(&object, 8, 1000);
            let here = servers_of(&object);
            assert_eq!(here.len(), 1, "{i} {layout}");
            used.extend(here);
            assert!(file::read(&object) == bytes);
        }
    }
    assert_eq!(used.len(), 4, "objects are spread");
}

#[test]
fn region_puts_each_block_on_its_server() {
    needs_mount!();
    let up = Up::with(&["--servers", "4"]);
    let object = up.at("a");
    create(&object, "10,1000", "f4", &["--placement", "region"]);
    // One write over all cuts, in memory, and one as a stream.
    let bytes = Random::new(5).bytes(40_000);
    file::write(&object, &bytes);
    let expected = |row: u64| 1 + (0..4).rfind(|block| block * 10 / 4 <= row).unwrap_or(0);
    let check = |object: &Path| {
        for (first, rows, server, _) in chunks(object) {
            for row in first..first + rows {
                assert_eq!(server, expected(row), "row {row}");
            }
        }
        assert_eq!(servers_of(object).len(), 4);
    };
    check(&object);
    assert!(file::read(&object) == bytes);
    file::write(&named(&object, "@[3:9,10:500]"), vec![7; 6 * 490 * 4]);
    check(&object);

    let large = up.at("large");
    create(&large, "10,1048576", "u1", &["--placement", "region"]);
    let bytes = Random::new(6).bytes(10 << 20);
    let handle = file::open(&large);
    for (at, part) in bytes.chunks(512 << 10).enumerate() {
        handle
            .write_all_at(part, (at as u64) << 19)
            .expect("written");
    }
    file::close(handle).expect("closed");
    check(&large);
    assert!(file::read(&large) == bytes);

    // Chunks of a grid are not split: each is placed by its first row.
    let grid = up.at("grid");
    create(
        &grid,
        "10,100",
        "u1",
        &["--placement", "region", "--layout", "grid:1,100"],
    );
    file::write(&grid, vec![3; 1000]);
    check(&grid);
    // New rows are cut at the same multiples.
    let growing = up.at("growing");
    create(
        &growing,
        "0,100",
        "u1",
        &["--placement", "region", "--max-dims", "10,100"],
    );
    slabfs([
        "set".as_ref(),
        growing.as_os_str(),
        "--dims".as_ref(),
        "5,100".as_ref(),
    ])
    .ok();
    file::write(&growing, vec![3; 500]);
    slabfs([
        "set".as_ref(),
        growing.as_os_str(),
        "--dims".as_ref(),
        "10,100".as_ref(),
    ])
    .ok();
    file::write_at(&growing, 500, &[4; 500]);
    check(&growing);
}

#[test]
fn a_named_server_and_a_later_change() {
    needs_mount!();
    let up = Up::with(&["--servers", "3"]);
    let object = up.at("a");
    create(&object, "9,1000", "u1", &["--placement", "server:2"]);
    assert_eq!(info(&object)["placement"], "server:2");
    file::write(&named(&object, "@[0:3]"), vec![1; 3000]);
    assert_eq!(servers_of(&object), BTreeSet::from([2]));
    // Applies to new chunks; existing ones stay.
    slabfs([
        "set".as_ref(),
        object.as_os_str(),
        "--placement".as_ref(),
        "server:3".as_ref(),
    ])
    .ok();
    file::write(&named(&object, "@[3:6]"), vec![2; 3000]);
    xattr_set(&object, "server:1");
    file::write(&named(&object, "@[6:9]"), vec![3; 3000]);
    let places: Vec<(u64, u64)> = chunks(&object)
        .iter()
        .map(|chunk| (chunk.0, chunk.2))
        .collect();
    assert_eq!(places, [(0, 2), (3, 3), (6, 1)]);
    let bytes = file::read(&object);
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(at, &byte)| usize::from(byte) == at / 3000 + 1)
    );
    // A grid with data does not change its servers until it is emptied.
    let grid = up.at("g");
    create(
        &grid,
        "64,64",
        "u1",
        &["--placement", "server:1", "--layout", "grid:16,16"],
    );
    file::write(&grid, vec![1; 4096]);
    xattr_set(&grid, "server:3");
    assert_eq!(servers_of(&grid), BTreeSet::from([1]));
    assert_eq!(file::read(&grid), vec![1; 4096]);
    file::write(&grid, vec![2; 4096]);
    assert_eq!(servers_of(&grid), BTreeSet::from([3]));
    assert_eq!(file::read(&grid), vec![2; 4096]);
    // Rewritten in another layout it is placed as the placement says now.
    xattr_set(&grid, "server:2");
    slabfs([
        "set".as_ref(),
        grid.as_os_str(),
        "--layout".as_ref(),
        "grid:8,8".as_ref(),
    ])
    .ok();
    assert_eq!(servers_of(&grid), BTreeSet::from([2]));
    assert_eq!(file::read(&grid), vec![2; 4096]);
    // Plain files have a placement, too.
    let plain = up.at("p");
    file::write(&plain, "");
    xattr_set(&plain, "server:2");
    file::write(&plain, vec![9; 20 << 20]);
    assert_eq!(servers_of(&plain), BTreeSet::from([2]));

    for (text, status, words) in [
        ("nowhere", 2, &["--placement", "server:N"][..]),
        ("server:9", 1, &["server"]),
    ] {
        slabfs([
            "set".as_ref(),
            object.as_os_str(),
            "--placement".as_ref(),
            text.as_ref(),
        ])
        .fails(status, words);
    }
}

fn xattr_set(path: &Path, placement: &str) {
    file::set_xattr(path, "user.slabfs.placement", placement, 0).expect("set");
}

/// A cluster whose data servers and mounts claim to be on these machines.
fn on_machines(servers: &[&str], mounts: &[&str]) -> Vec<Cluster> {
    mounts
        .iter()
        .map(|host| {
            let mut cluster = Cluster::new(servers.len(), &["--host", host], false);
            for (i, host) in servers.iter().enumerate() {
                cluster.server_flags(i, &["--host", host]);
            }
            cluster.start_md();
            (0..servers.len()).for_each(|i| cluster.start_server(i));
            cluster.add_mount();
            cluster
        })
        .collect()
}

#[test]
fn local_is_the_writers_machine() {
    needs_mount!();
    let writers = ["south", "north", "west"];
    let clusters = on_machines(&["north", "south", "south"], &writers);
    for (cluster, writer) in clusters.iter().zip(writers) {
        let mnt = cluster.mnt(0);
        let known = servers(&mnt);
        let here: BTreeSet<u64> = (0..40)
            .flat_map(|i| {
                let object = cluster.at(0, format!("o{i}"));
                let layout = if i % 4 == 0 { "grid:2,100" } else { "aligned" };
                create(
                    &object,
                    "4,100",
                    "u1",
                    &["--placement", "local", "--layout", layout],
                );
                file::write(&object, vec![7; 400]);
                servers_of(&object)
            })
            .collect();
        let hosts: BTreeSet<&str> = known
            .iter()
            .filter(|server| here.contains(&server["id"].as_u64().expect("id")))
            .map(|server| server["host"].as_str().expect("host"))
            .collect();
        let all: Vec<&str> = known
            .iter()
            .map(|s| s["host"].as_str().expect("host"))
            .collect();
        // From west, where no server is, always the same server.
        assert!(hosts.len() == 1 && here.len() <= 2, "{hosts:?} of {all:?}");
        if all.contains(&writer) {
            assert_eq!(hosts, BTreeSet::from([writer]));
        } else {
            assert_eq!(here.len(), 1);
        }
    }
}

/// Uneven regions from many writers: all servers end up with equal bytes.
fn uneven(regions: usize, most: u64, writers: usize) {
    let cluster = Cluster::start(4, 2);
    let object = cluster.at(0, "a");
    let width = most;
    create(&object, &format!("{regions},{width}"), "u1", &[]);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let mount = cluster.mnt(writer % 2);
            scope.spawn(move || {
                let mut random = Random::new(writer as u64 + 1);
                let bytes = random.bytes(width as usize);
                let mine = (0..regions).filter(|row| row % writers == writer);
                for row in mine {
                    let len = random.range(1, width);
                    let name = format!("a@[{row},0:{len}]");
                    file::write(&mount.join(name), &bytes[..len as usize]);
                }
            });
        }
    });
    let mut sums = [0_u64; 5];
    for (_, _, server, bytes) in chunks(&object) {
        sums[server as usize] += bytes;
    }
    let total: u64 = sums.iter().sum();
    for sum in &sums[1..] {
        let off = (*sum as f64 * 4.0 / total as f64 - 1.0).abs();
        assert!(off < 0.05, "{sums:?} of {total}");
    }
    // The metadata service's records agree.
    poll::until_true("reports of all bytes", || {
        let stored: u64 = servers(&cluster.mnt(0))
            .iter()
            .map(|s| s["bytes"].as_u64().expect("bytes"))
            .sum();
        stored >= total
    });
}

#[test]
fn dynamic_comes_out_even() {
    needs_mount!();
    uneven(1200, 40_000, 8);
}

#[test]
#[ignore = "takes minutes; tools/soak runs it"]
fn dynamic_comes_out_even_over_ten_thousand_regions() {
    needs_mount!();
    uneven(10_000, 100_000, 8);
}

/// A server that is added later is filled first.
#[test]
fn dynamic_fills_the_emptiest() {
    needs_mount!();
    let mut cluster = Cluster::new(2, &[], false);
    cluster.start_md();
    cluster.start_server(0);
    cluster.add_mount();
    let object = cluster.at(0, "a");
    create(&object, "100,100000", "u1", &[]);
    file::write(&named(&object, "@[0:50]"), vec![1; 5_000_000]);
    file::open(&object).sync_all().expect("synced");
    cluster.start_server(1);
    let mnt = cluster.mnt(0);
    poll::until_true("the mount to know both and their bytes", || {
        let servers = servers(&mnt);
        servers.len() == 2 && servers[0]["bytes"].as_u64() > Some(4_000_000)
    });
    // Chunk ids leased before that are used up or void soon.
    poll::until_true("chunks on the new one", || {
        file::write(&named(&object, "@[50]"), vec![2; 100_000]);
        servers_of(&object).contains(&2)
    });
    for row in 51..90 {
        file::write(&named(&object, &format!("@[{row}]")), vec![2; 100_000]);
    }
    let later: Vec<u64> = chunks(&object)
        .iter()
        .filter(|chunk| chunk.0 > 50)
        .map(|chunk| chunk.2)
        .collect();
    let to_new = later.iter().filter(|&&server| server == 2).count();
    assert!(to_new >= 30, "{later:?}");
}

/// A server on a small disk fills up: chunks go to the other one, and nothing fails. A named one returns
/// ENOSPC.
#[test]
fn a_full_server_is_skipped() {
    needs_root!();
    let mut cluster = Cluster::new(2, &["--dirty-limit", "8M"], false);
    let small = cluster.server_data(0);
    std::fs::create_dir_all(&small).expect("a directory");
    let flags = nix::mount::MsFlags::empty();
    nix::mount::mount(
        Some("tmpfs"),
        &small,
        Some("tmpfs"),
        flags,
        Some("size=24M"),
    )
    .expect("a tmpfs");
    let _detached = Detached(small);
    cluster.start_md();
    (0..2).for_each(|i| cluster.start_server(i));
    cluster.add_mount();
    let object = cluster.at(0, "a");
    create(&object, "64,1048576", "u1", &[]);
    let bytes = Random::new(3).bytes(1 << 20);
    for row in 0..64 {
        file::write(&named(&object, &format!("@[{row}]")), &bytes);
    }
    // And as a stream of rows.
    let rows = cluster.at(0, "rows");
    create(&rows, "64,1048576", "u1", &[]);
    let handle = file::open(&rows);
    (0..64).for_each(|row| handle.write_all_at(&bytes, row << 20).expect("a row"));
    handle.sync_all().expect("synced");
    file::close(handle).expect("closed");
    for object in [&object, &rows] {
        assert_eq!(file::read(object), bytes.repeat(64));
        let on_small: u64 = chunks(object)
            .iter()
            .filter(|chunk| chunk.2 == 1)
            .map(|chunk| chunk.3)
            .sum();
        assert!(on_small < 24 << 20, "{on_small}");
    }
    assert!(
        servers_of(&object).len() == 2,
        "the small one was used first"
    );
    let named_one = cluster.at(0, "n");
    create(&named_one, "64,1048576", "u1", &["--placement", "server:1"]);
    let handle = file::open(&named_one);
    let failed = (0..64).find_map(|row| handle.write_all_at(&bytes, row << 20).err());
    let failed = failed
        .or_else(|| handle.sync_all().err())
        .expect("64 MiB on 24");
    assert_eq!(file::errno::<()>(Err(failed)), nix::errno::Errno::ENOSPC);
    let _ = file::close(handle);
    drop(cluster);
}

/// A disk that is unmounted when this is dropped.
struct Detached(std::path::PathBuf);

impl Drop for Detached {
    fn drop(&mut self) {
        slabfs_tests::mounts::detach(&self.0);
    }
}
