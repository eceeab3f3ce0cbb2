//! `slabfs fsck`: finds nothing in a consistent filesystem, stopped or killed; names the damage.

use std::ffi::OsStr;
use std::io::IoSlice;
use std::path::Path;

use slabfs_objstore::store::{LocalOptions, LocalStore};
use slabfs_objstore::{ChunkForm, ChunkName, ChunkStore};
use slabfs_tests::tool::{Outcome, create, slabfs};
use slabfs_tests::{Cluster, Random, Up, disk, file, needs_mount};

fn fsck<'a>(data: &'a Path, more: &[&'a str]) -> Outcome {
    let args = ["fsck", "--data"].map(OsStr::new);
    let more = more.iter().map(OsStr::new);
    slabfs(args.into_iter().chain([data.as_os_str()]).chain(more))
}

#[track_caller]
fn clean(data: &Path, more: &[&str]) -> Outcome {
    let outcome = fsck(data, more).ok();
    assert!(outcome.text().ends_with("clean\n"), "{}", outcome.report());
    outcome
}

/// Exactly one kind of finding, in as many lines as there are findings.
#[track_caller]
fn finds(data: &Path, more: &[&str], class: &str) -> Outcome {
    let outcome = fsck(data, more).fails(1, &["finding"]);
    let findings = outcome
        .text()
        .lines()
        .take_while(|line| !line.starts_with("metadata: "));
    let wrong: Vec<_> = findings
        .filter(|line| !line.starts_with(&format!("{class}: ")) && !line.ends_with(" finding"))
        .collect();
    assert!(
        wrong.is_empty() && outcome.text().contains(&format!("{class}: ")),
        "{class} was to be found: {}",
        outcome.report()
    );
    // A finding is not in the log as well.
    assert!(!outcome.stderr.contains("ERROR"), "{}", outcome.report());
    outcome
}

/// Objects of all kinds.
fn fill(dir: &Path) {
    let mut random = Random::new(81);
    let at = |name: &str| dir.join(name);
    for name in ["d", "d/e", "d/e/f", "gone"] {
        std::fs::create_dir(at(name)).expect("made");
    }
    for i in 0..30 {
        let len = random.range(0, 200_000) as usize;
        file::write(&at(&format!("f{i}")), random.bytes(len));
        file::set_xattr(&at(&format!("f{i}")), "user.n", i.to_string(), 0).expect("set");
    }
    for (name, more) in [
        ("aligned", &[][..]),
        ("packed", &["--codec", "shuffle+zstd:3"]),
        ("grid", &["--layout", "grid:32,500"]),
        ("canonical", &["--layout", "canonical"]),
        ("filled", &["--fill", "1"]),
    ] {
        let object = at(name);
        create(&object, "100,1000", "f4", more);
        for part in ["@[0:50,0:300]", "@[20:40,:]", "@[:,7]", "@[20:40,:]"] {
            let len = std::fs::metadata(file::named(&object, part))
                .expect("a selection")
                .len();
            file::write_at(&file::named(&object, part), 0, &random.bytes(len as usize));
        }
    }
    std::fs::hard_link(at("f1"), at("d/e/link")).expect("linked");
    std::os::unix::fs::symlink("f2", at("d/symbolic")).expect("linked");
    std::fs::rename(at("f3"), at("d/e/f/moved")).expect("moved");
    std::fs::rename(at("f4"), at("f5")).expect("moved over");
    std::fs::rename(at("d/e/f"), at("f_dir")).expect("moved");
    std::fs::remove_file(at("f6")).expect("removed");
    std::fs::remove_dir(at("gone")).expect("removed");
    std::fs::File::create(at("f7")).expect("emptied");
    let rows = ["set", "--dims", "50,1000"].map(OsStr::new);
    slabfs([rows[0], at("aligned").as_os_str(), rows[1], rows[2]]).ok();
}

#[test]
fn a_consistent_filesystem_is_clean() {
    needs_mount!();
    let mut up = Up::with(&["--servers", "2"]);
    fill(up.mnt());
    fsck(up.data(), &[]).fails(1, &["in use", "slabfs stop"]);
    up.stop();
    let outcome = clean(up.data(), &["--deep"]);
    assert!(
        outcome.text().contains("data server 2: "),
        "{}",
        outcome.report()
    );
    // It is clean also after a kill.
    up.start_again();
    let held = file::open(&up.at("f8"));
    std::fs::remove_file(up.at("f8")).expect("removed");
    file::write(&up.at("aligned"), [7; 200_000]);
    up.kill9();
    drop(held);
    clean(up.data(), &["--deep"]);
    up.start_again();
    assert_eq!(file::read(&up.at("f5")), file::read(&up.at("f5")));
    up.stop();
    let json = fsck(up.data(), &["--json"]).ok().json();
    assert_eq!(json["clean"], true, "{json}");
    assert!(json["metadata"]["inodes"].as_u64() > Some(30), "{json}");
}

#[test]
fn directories_of_single_processes() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 1);
    fill(&cluster.mnt(0));
    cluster.stop_mount(0);
    (0..2).for_each(|server| cluster.stop_server(server));
    cluster.kill_md();
    let stores = [0, 1].map(|i| cluster.server_data(i).display().to_string());
    // Data servers that were not named were not checked, and that does not count as clean.
    let part = |more: &[&str], unseen: &str| {
        let outcome = fsck(&cluster.md_data(), more).fails(1, &["not all was looked at", unseen]);
        let last = outcome.text().lines().last().unwrap_or_default();
        assert!(
            last.contains("not all was looked at"),
            "{}",
            outcome.report()
        );
    };
    part(&[], "(1, 2)");
    part(&["--chunks", &stores[0]], "not named (");
    let json = fsck(&cluster.md_data(), &["--json"]).fails(1, &[]).json();
    assert_eq!(json["clean"], false, "{json}");
    assert_eq!(
        json["servers_not_looked_at"].as_array().map(Vec::len),
        Some(2),
        "{json}"
    );
    clean(
        &cluster.md_data(),
        &["--deep", "--chunks", &stores[0], "--chunks", &stores[1]],
    );
    // A directory that is named twice is checked once.
    clean(
        &cluster.md_data(),
        &[
            "--chunks",
            &stores[0],
            "--chunks",
            &format!("{}/.", stores[0]),
            "--chunks",
            &stores[1],
        ],
    );
    fsck(&cluster.server_data(0), &[]).fails(1, &["--chunks"]);
    fsck(&cluster.area().mkdir("empty"), &[]).fails(1, &["holds nothing of slabfs"]);
    let outcome = fsck(&cluster.md_data(), &["--chunks", "/nowhere"]);
    outcome.fails(1, &["holds no chunks"]);
}

#[test]
fn chunks_that_are_missing_damaged_or_unreferenced() {
    needs_mount!();
    let mut up = Up::start();
    create(&up.at("a"), "100,1000", "f4", &[]);
    file::write(&up.at("a"), Random::new(82).bytes(400_000));
    up.stop();
    let chunk = disk::files(up.data())
        .into_iter()
        .find(|path| path.extension() == Some(OsStr::new("chunk")))
        .expect("a chunk");
    let bytes = std::fs::read(&chunk).expect("read");
    disk::flip(&chunk, bytes.len() as u64 - 5);
    clean(up.data(), &[]);
    finds(up.data(), &["--deep"], "damaged-chunk");
    disk::flip(&chunk, 50);
    finds(up.data(), &[], "damaged-chunk");
    std::fs::write(&chunk, &bytes[..bytes.len() / 2]).expect("cut");
    finds(up.data(), &[], "damaged-chunk");
    std::fs::remove_file(&chunk).expect("removed");
    let outcome = finds(up.data(), &["--repair"], "missing-chunk");
    assert!(outcome.text().contains("1 finding"), "{}", outcome.report());
    std::fs::write(&chunk, &bytes).expect("restored");
    clean(up.data(), &["--deep"]);

    let put = |id: u64| {
        let store = LocalStore::open(&up.data().join("os1"), LocalOptions::default()).expect("ok");
        let form = ChunkForm {
            shape: [8].into_iter().collect(),
            elem: 1,
            codec: slabfs_model::Codec::None,
            fill: Default::default(),
        };
        let name = ChunkName::Free(slabfs_model::ChunkId(id));
        store
            .put(&name, &form, &[IoSlice::new(&[7; 8])])
            .expect("stored");
    };
    // Below the counter, so the id was assigned once; the mount ended cleanly, so it is not in use.
    put(1000);
    finds(up.data(), &[], "garbage");
    let outcome = clean(up.data(), &["--repair"]);
    assert!(
        outcome
            .text()
            .contains("1 unreferenced chunks were deleted")
    );
    clean(up.data(), &["--deep"]);
    put(1 << 60);
    finds(up.data(), &["--repair"], "newer-chunk");
    finds(up.data(), &[], "newer-chunk");
    clean(up.data(), &["--repair", "--drop-newer"]);
    clean(up.data(), &["--deep"]);
}

#[test]
fn servers_and_journals_that_are_gone() {
    needs_mount!();
    let mut up = Up::with(&["--servers", "2"]);
    fill(up.mnt());
    up.kill9();
    let moved = up.area().at("moved");
    std::fs::rename(up.data().join("os2"), &moved).expect("moved");
    finds(up.data(), &[], "server-gone");
    std::fs::rename(&moved, up.data().join("os2")).expect("moved back");
    clean(up.data(), &[]);
    up.start_again();
    for i in 0..30 {
        file::set_xattr(&up.at("f1"), "user.n", i.to_string(), 0).expect("set");
    }
    file::sync_dir(up.mnt()).expect("synced");
    let journal = disk::journals(up.data()).pop().expect("one");
    let len = journal.metadata().expect("metadata").len();
    up.kill9();
    disk::flip(&journal, len / 3);
    let outcome = finds(up.data(), &[], "damaged");
    assert!(outcome.text().contains("at byte"), "{}", outcome.report());
}

/// Damaged checksums do not vouch for the data: the data counts as damaged, at every check.
#[test]
fn damaged_checksums_are_damage_and_stay_it() {
    needs_mount!();
    let mut up = Up::start();
    file::write(&up.at("f"), Random::new(5).bytes(300_000));
    up.stop();
    let mut files = disk::files(up.data());
    files.retain(|path| path.extension().is_some_and(|end| end == "chunk"));
    let [chunk] = &files[..] else {
        panic!("one chunk in {files:?}")
    };
    let mut bytes = std::fs::read(chunk).expect("the chunk");
    // A head, a page of sums, the data.
    bytes[4096..4096 + 2176].copy_from_slice(&Random::new(6).bytes(2176));
    bytes[8192 + 1000] ^= 1;
    std::fs::write(chunk, &bytes).expect("damaged");
    for _ in 0..2 {
        finds(up.data(), &["--deep"], "damaged-chunk");
        assert!(
            std::fs::read(chunk).expect("the chunk") == bytes,
            "fsck changed it"
        );
    }
    up.start_again();
    let read = std::fs::read(up.at("f"));
    assert_eq!(file::errno(read), nix::errno::Errno::EIO);
}
