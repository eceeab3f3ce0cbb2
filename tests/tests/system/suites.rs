//! Test suites of other projects, on one mount. Tests that succeed on an ext4 of this machine succeed on
//! slabfs; what they find is fixed and has its own test elsewhere. `tools/soak` runs them for longer.

use std::collections::BTreeMap;
use std::path::Path;

use slabfs_tests::suites::{self, Job};
use slabfs_tests::{Ext4, Up, file, needs_mount, needs_root, soak};

/// Tests of `pjdfstest` that fail on ext4 and slabfs alike would be here: all succeed on ext4.
const EXT4_DOES_NOT_PASS: [&str; 0] = [];

/// Tests that succeed on ext4 and are not run on slabfs. The C library cannot query a FUSE filesystem for the
/// maximal number of links.
const NOT_TO_BE_ASKED: [&str; 1] = ["link::link_count_max"];

/// Stressors that do not use the mount, and what they use.
const ELSEWHERE: [(&str, &str); 5] = [
    (
        "bind-mount",
        "mounts in a namespace of its own, of the root directory",
    ),
    ("binderfs", "a filesystem of its own"),
    ("eventfd", "descriptors without files"),
    ("procfs", "reads /proc"),
    ("rawdev", "reads the disk below the root directory"),
];

/// Log lines of a service that report damage to data or the service itself.
fn complaints(up: &Up) -> Vec<String> {
    let words = ["ERROR", "damaged", "panicked", "lost", "trying again"];
    let log = up.log();
    let lines = log.lines();
    lines
        .filter(|line| words.iter().any(|word| line.contains(word)))
        .map(str::to_owned)
        .collect()
}

#[test]
fn pjdfstest_succeeds_where_ext4_does() {
    needs_root!();
    let ext4 = Ext4::mount();
    let (there, by) = match &ext4 {
        Ok(ext4) => {
            let area = slabfs_tests::Area::new();
            let verdicts = suites::pjdfstest(&area, ext4.mnt());
            println!("ext4: {}", verdicts.summary());
            let failed = verdicts.failed.into_iter();
            (failed.chain(verdicts.skipped).collect(), "this machine's")
        }
        Err(why) => {
            println!("no ext4 to compare with, but what was recorded of one: {why}");
            let recorded = EXT4_DOES_NOT_PASS.map(|name| (name.to_owned(), String::new()));
            (BTreeMap::from(recorded), "the recorded")
        }
    };
    let up = Up::with(&["--servers", "2", "--allow-other"]);
    let verdicts = suites::pjdfstest(up.area(), up.mnt());
    println!("slabfs: {}", verdicts.summary());
    let missing: Vec<_> = verdicts
        .failed
        .iter()
        .chain(&verdicts.skipped)
        .filter(|(name, _)| !there.contains_key(*name))
        .filter(|(name, _)| !NOT_TO_BE_ASKED.contains(&name.as_str()))
        .collect();
    assert!(missing.is_empty(), "{by} ext4 succeeds: {missing:#?}");
    assert!(verdicts.passed.len() > 390, "{}", verdicts.summary());
    assert_eq!(complaints(&up), [""; 0]);
}

fn verified(job: Job) {
    let mut up = Up::with(&["--servers", "2"]);
    let dir = up.at("fio");
    std::fs::create_dir(&dir).expect("a directory");
    suites::fio(&dir, &job, false).ok();
    // The same from the disks, and not from the mount's caches.
    up.restart();
    suites::fio(&dir, &job, true).ok();
    // It would have detected a wrong byte.
    let path = dir.join("fio.1.0");
    let mut bytes = file::read(&path);
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    file::write_at(&path, at as u64, &bytes[at..=at]);
    let found = suites::fio(&dir, &job, true);
    assert_ne!(found.status, 0, "{}", found.report());
    assert!(found.stderr.contains("verify"), "{}", found.report());
}

fn verify(engine: &'static str, direct: bool) {
    needs_mount!();
    for pattern in ["write", "randwrite"] {
        verified(Job {
            engine,
            direct,
            pattern,
            megabytes: soak::or(6, 256),
        });
    }
}

#[test]
fn fio_verifies_direct_io() {
    verify("psync", true);
}

#[test]
fn fio_verifies_asynchronous_direct_io() {
    verify("libaio", true);
}

#[test]
fn fio_verifies_mappings() {
    verify("mmap", false);
}

#[test]
fn dbench_plays_clients_of_a_file_server() {
    needs_root!();
    let up = Up::with(&["--servers", "2"]);
    let seconds = soak::time().map_or(5, |time| time.as_secs().clamp(5, 600));
    let said = suites::dbench(up.mnt(), seconds);
    let last = said.text().lines().last().unwrap_or_default();
    println!("{last}");
    assert_eq!(complaints(&up), [""; 0]);
}

/// Each stressor that works on files, one after the other; one that fails has to fail on ext4 too.
fn stress(chosen: impl Fn(usize) -> bool) {
    let up = Up::with(&["--servers", "2", "--allow-other"]);
    let dir = up.at("stress");
    std::fs::create_dir(&dir).expect("a directory");
    let seconds = soak::or(1, 10);
    let mut failed = Vec::new();
    for (_, name) in names().enumerate().filter(|(at, _)| chosen(*at)) {
        if let Err(why) = suites::stress(&dir, &name, seconds) {
            failed.push((name, why));
        }
    }
    if !failed.is_empty() {
        let ext4 = Ext4::mount();
        let succeeds = |name: &str| match &ext4 {
            Ok(ext4) => suites::stress(ext4.mnt(), name, seconds).is_ok(),
            Err(_) => true,
        };
        failed.retain(|(name, _)| succeeds(name));
        assert!(failed.is_empty(), "ext4 bears it: {failed:#?}");
    }
    // After all of them, everything can be removed.
    assert!(empty(&dir));
    assert_eq!(complaints(&up), [""; 0]);
}

/// The classes of filesystems and of input and output, each stressor once.
fn names() -> impl Iterator<Item = String> {
    let mut names = suites::stressors("filesystem");
    names.extend(suites::stressors("io"));
    names.sort();
    names.dedup();
    for (name, _) in ELSEWHERE {
        assert!(names.iter().any(|known| known == name), "{name} is unknown");
    }
    let elsewhere = |name: &String| ELSEWHERE.iter().any(|(known, _)| known == name);
    names.into_iter().filter(move |name| !elsewhere(name))
}

fn empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).expect("listed").next().is_none()
}

#[test]
fn stress_ng_stresses_files() {
    needs_root!();
    stress(|at| at % 2 == 0);
}

#[test]
fn stress_ng_stresses_more_files() {
    needs_root!();
    stress(|at| at % 2 == 1);
}
