//! Dumps of the metadata: taken from a mount in use, read by the program on a page of the docs, loaded
//! elsewhere.

use slabfs_tests::tool::{create, program, shell, slabfs};
use slabfs_tests::{Area, Up, file, needs_mount, needs_root};
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const PYTHON: &str = "/usr/bin/python3";

fn fill(up: &Up) {
    std::fs::create_dir(up.at("dir")).expect("made");
    for i in 0..50 {
        file::write(&up.at(format!("dir/f{i}")), format!("content {i}"));
    }
    create(&up.at("array"), "20,30", "f4", &["--fill", "1"]);
    file::write(&file::named(&up.at("array"), "@[3:9,4:7]"), [7; 72]);
    std::os::unix::fs::symlink("array", up.at("link")).expect("a link");
}

fn check(up: &Up) {
    for i in 0..50 {
        let content = file::read(&up.at(format!("dir/f{i}")));
        assert_eq!(content, format!("content {i}").as_bytes());
    }
    assert_eq!(
        file::read(&file::named(&up.at("array"), "@[3:9,4:7]")),
        [7; 72]
    );
    assert_eq!(
        std::fs::read_link(up.at("link")).expect("read"),
        Path::new("array")
    );
}

#[test]
fn dumped_in_use_and_loaded_elsewhere() {
    needs_mount!();
    let mut up = Up::start();
    fill(&up);
    for i in 0..50 {
        let file = file::open(&up.at(format!("dir/f{i}")));
        file.sync_all().expect("synced");
    }
    file::open(&up.at("array")).sync_all().expect("synced");
    let dump = up.area().at("dump");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0.. {
                if done.load(Ordering::Acquire) {
                    break;
                }
                file::write(&up.at(format!("other{i}")), "x");
            }
        });
        for _ in 0..3 {
            slabfs([
                Path::new("meta"),
                "dump".as_ref(),
                "--force".as_ref(),
                up.mnt(),
                &dump,
            ])
            .ok();
        }
        done.store(true, Ordering::Release);
    });
    let bytes = file::read(&dump);
    let out = slabfs([Path::new("meta"), "dump".as_ref(), up.mnt(), "-".as_ref()]).ok();
    drop(out);
    up.stop();

    // Move the rest of `md` out of the way; the chunks stay where they are.
    let md = up.data().join("md");
    std::fs::rename(&md, up.area().at("old")).expect("moved");
    let load = |file: &Path, dir: &Path| {
        slabfs([
            Path::new("meta"),
            "load".as_ref(),
            file,
            "--data".as_ref(),
            dir,
        ])
    };
    load(&dump, up.data()).fails(1, &["not empty"]);
    let area_at = |name: &str| up.area().at(name);
    let bad = up.area().at("bad");
    let mut damaged = bytes.clone();
    damaged[700] ^= 1;
    file::write(&bad, damaged);
    let output = load(&bad, &md).fails(1, &["at byte", "another copy"]);
    assert!(
        !output.stderr.contains("storage failed"),
        "{}",
        output.stderr
    );
    file::write(&bad, &bytes[..bytes.len() - 3]);
    load(&bad, &md).fails(1, &["cut off"]);
    load(&area_at("none"), &md).fails(1, &["does not exist"]);
    let out = slabfs_tests::tool::shell(
        up.area().path(),
        &format!(
            "cat dump | '{}' meta load - --data {}",
            slabfs_tests::binary::path().display(),
            md.display()
        ),
    );
    out.ok();
    load(&dump, &md).fails(1, &["not empty"]);
    assert!(!up.data().join("md.part").exists());
    up.start_again();
    check(&up);
    file::write(&up.at("after"), "new");
    up.restart();
    check(&up);
    assert_eq!(file::read(&up.at("after")), b"new");
}

#[test]
fn the_page_has_a_program_that_reads_it() {
    needs_mount!();
    if !Path::new(PYTHON).exists() {
        eprintln!("left out: there is no {PYTHON}");
        return;
    }
    let up = Up::start();
    fill(&up);
    let area: &Area = up.area();
    let dump = area.at("dump");
    slabfs([Path::new("meta"), "dump".as_ref(), up.mnt(), &dump]).ok();
    let page = include_str!("../../../docs/formats/dump.md");
    let script = page.split("```python").nth(1).expect("a script");
    let script = script.split("```").next().expect("its end");
    let path = area.at("read.py");
    file::write(&path, script);
    let output = program(PYTHON, [&path, &dump]).ok();
    let names: BTreeSet<&str> = output
        .text()
        .lines()
        .filter_map(|line| line.split_once(' ').map(|(_, name)| name))
        .collect();
    for name in ["dir", "array", "link", "f0", "f49"] {
        assert!(names.contains(name), "{name} of {names:?}");
    }
    assert_eq!(names.len(), 53);
}

/// A new file is private to its owner, an existing one keeps its mode, links are followed, and a file that is
/// not a regular file gets the bytes.
#[test]
fn a_dump_goes_to_the_target_of_its_path() {
    needs_root!();
    let up = Up::start();
    fill(&up);
    let area: &Area = up.area();
    let dump = |to: &Path| slabfs([Path::new("meta"), "dump".as_ref(), up.mnt(), to]);
    let replace = |to: &Path| {
        let words = ["meta", "dump", "--force"].map(Path::new);
        slabfs(words.into_iter().chain([up.mnt(), to]))
    };
    let mode = |path: &Path| path.metadata().expect("metadata").permissions().mode() & 0o7777;
    let (new, old, link) = (area.at("new"), area.at("old"), area.at("link"));
    dump(&new).ok();
    assert_eq!(mode(&new), 0o600);
    file::write(&old, "older");
    std::fs::set_permissions(&old, Permissions::from_mode(0o640)).expect("chmod");
    symlink("old", &link).expect("a link");
    dump(&link).fails(1, &["exists already", "--force"]);
    assert_eq!(file::read(&old), b"older");
    replace(&link).ok();
    assert!(link.is_symlink());
    assert_eq!(
        (mode(&old), &file::read(&old)[..8]),
        (0o640, &b"SLABCKPT"[..])
    );
    let dangling = area.at("dangling");
    symlink(area.mkdir("far").join("new"), &dangling).expect("a link");
    dump(&dangling).ok();
    assert!(dangling.is_symlink() && area.at("far/new").is_file());
    // Device nodes of our own, like those in /dev: one accepts everything, one is always full.
    for (name, minor) in [("null", 3), ("full", 7)] {
        let line = format!("mknod {name} c 1 {minor}");
        shell(area.path(), &line).ok();
    }
    let character = |name: &str| {
        area.at(name)
            .symlink_metadata()
            .expect("there")
            .file_type()
            .is_char_device()
    };
    dump(&area.at("null")).ok();
    dump(&area.at("full")).fails(1, &["No space left"]);
    assert!(character("null") && character("full"));
    let line = format!(
        "mkfifo pipe; cat pipe > piped & '{}' meta dump {} pipe; wait; cmp -n 8 piped new; test -p pipe",
        slabfs_tests::binary::path().display(),
        up.mnt().display()
    );
    shell(area.path(), &line).ok();
    // A loaded directory is complete, also before its first start.
    let md = area.at("md");
    slabfs([
        Path::new("meta"),
        "load".as_ref(),
        &new,
        "--data".as_ref(),
        &md,
    ])
    .ok();
    let checked = slabfs([Path::new("fsck"), "--data".as_ref(), &md]);
    assert!(
        checked.text().contains("nothing found"),
        "{}",
        checked.report()
    );
    dump(&area.at("far")).fails(1, &["is a directory"]);
    dump(&area.at("none/x")).fails(1, &["none/x"]);
}
