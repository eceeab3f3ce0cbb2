//! Dumps of the metadata: taken from a mount in use, read by a program of a page, loaded elsewhere.

use slabfs_tests::tool::{create, program, slabfs};
use slabfs_tests::{Area, Up, file, needs_mount};
use std::collections::BTreeSet;
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
            slabfs([Path::new("meta"), "dump".as_ref(), up.mnt(), &dump]).ok();
        }
        done.store(true, Ordering::Release);
    });
    let bytes = file::read(&dump);
    let out = slabfs([Path::new("meta"), "dump".as_ref(), up.mnt(), "-".as_ref()]).ok();
    drop(out);
    up.stop();

    // What is left of `md` is out of the way; the chunks stay where they are.
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
    let bad = up.area().at("bad");
    let mut damaged = bytes.clone();
    damaged[700] ^= 1;
    file::write(&bad, damaged);
    load(&bad, &md).fails(1, &["at byte"]);
    file::write(&bad, &bytes[..bytes.len() - 3]);
    load(&bad, &md).fails(1, &["cut off"]);
    load(&dump, &md).ok();
    load(&dump, &md).fails(1, &["not empty"]);
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
    let told = program(PYTHON, [&path, &dump]).ok();
    let names: BTreeSet<&str> = told
        .text()
        .lines()
        .filter_map(|line| line.split_once(' ').map(|(_, name)| name))
        .collect();
    for name in ["dir", "array", "link", "f0", "f49"] {
        assert!(names.contains(name), "{name} of {names:?}");
    }
    assert_eq!(names.len(), 53);
}
