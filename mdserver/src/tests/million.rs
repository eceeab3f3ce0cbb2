//! A million objects with ten tags each: how long a start takes, after a clean stop and after a
//! kill, and what memory it costs. Run by hand:
//! `cargo test --release -p slabfs-mdserver --lib -- --ignored million --nocapture`
//! (`SLABFS_OBJECTS` sets another number).
//!
//! Each step is a process of its own, so that it can be killed and its memory can be measured.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use slabfs_model::ObjectId;

use super::support::*;
use crate::api::{Kind, ROOT};
use crate::kv::{Batch, KvOptions, LocalKv, MetaKv};
use crate::namespace::home;
use crate::records::{Inode, Slot, decode, encode};
use crate::{Service, ServiceOptions, keys};

const DIR: &str = "SLABFS_MILLION_DIR";
const STEP: &str = "SLABFS_MILLION_STEP";
/// The first of the generated inode numbers; the service gives none of them.
const FIRST: u64 = 1 << 40;

fn objects() -> u64 {
    let set = std::env::var("SLABFS_OBJECTS").ok();
    set.map_or(1_000_000, |text| text.parse().unwrap())
}

#[test]
#[ignore = "a measurement"]
fn million() {
    let dir = tempfile::tempdir().unwrap();
    let run = |step: &str, kill: bool| {
        println!("-- {step}");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "tests::million::step",
                "--nocapture",
            ])
            .env(DIR, dir.path())
            .env(STEP, step)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ended = false;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some(said) = line.strip_prefix("> ") {
                println!("   {said}");
                ended |= said == "done";
                if ended && kill {
                    child.kill().unwrap();
                }
            }
        }
        assert!(child.wait().unwrap().success() || kill, "{step} failed");
        assert!(ended, "{step} did not end");
    };
    run("fill", false);
    run("open", false);
    run("open", false);
    run("change", true);
    run("open", true);
    run("open", false);
}

fn say(text: &str) {
    println!("\n> {text}");
    std::io::stdout().flush().unwrap();
}

/// One step, in a process of its own.
#[test]
#[ignore = "a part of `million`"]
fn step() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    match std::env::var(STEP).unwrap().as_str() {
        "fill" => fill(&dir),
        "open" => open(&dir),
        "change" => change(&dir),
        other => panic!("no step {other}"),
    }
}

/// `VmRSS` and `VmHWM`.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib >> 10
    };
    format!("resident {} MiB, at most {} MiB", of("VmRSS"), of("VmHWM"))
}

fn name_of(number: u64) -> Vec<u8> {
    format!("object-{number:07}").into_bytes()
}

/// What stands for ten tags: about 250 bytes that are the same in each run.
fn tags(number: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    for tag in 0..10u64 {
        let mixed = (number * 10 + tag).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bytes.extend_from_slice(format!("user.tag{tag}={mixed:016x}").as_bytes());
    }
    bytes
}

/// The rows of objects `from..to`, made like the one the service made.
fn batch(pattern: &Inode, from: u64, to: u64) -> Batch {
    let mut batch = Batch::new();
    for number in from..to {
        let ino = ObjectId(FIRST + number);
        let name = name_of(number);
        let mut inode = pattern.clone();
        inode.attr.ino = ino;
        batch.put(keys::inode(ino), encode(&inode).unwrap());
        batch.put(keys::xattr(ino, b""), tags(number));
        let slot = Slot::Entry {
            name: name.clone(),
            ino,
        };
        batch.put(keys::slot(ROOT, home(&name)), encode(&slot).unwrap());
    }
    batch
}

fn pattern(kv: &LocalKv) -> Inode {
    let (from, to) = keys::inodes();
    let (key, value) = kv.scan(&from, &to, 2).unwrap().pop().unwrap();
    decode(&key, &value).unwrap()
}

fn fill(dir: &Path) {
    let service = service_in(dir);
    let md = attach(&service);
    md.create(new(ROOT, "pattern", Kind::Object)).unwrap();
    service.close().unwrap();
    let (kv, _) = LocalKv::open(dir, KvOptions::default()).unwrap();
    let pattern = pattern(&kv);
    let (count, start) = (objects(), Instant::now());
    for from in (0..count).step_by(100) {
        let to = (from + 100).min(count);
        kv.commit(batch(&pattern, from, to)).unwrap();
    }
    let filled = start.elapsed().as_secs_f64();
    kv.close().unwrap();
    say(&format!(
        "{count} objects in {filled:.1} s, closed after {:.1} s; {}",
        start.elapsed().as_secs_f64(),
        memory()
    ));
    say("done");
}

/// Commits more, and stays until it is killed.
fn change(dir: &Path) {
    let (kv, _) = LocalKv::open(dir, KvOptions::default()).unwrap();
    let (pattern, count) = (pattern(&kv), objects());
    for from in (0..count / 10).step_by(100) {
        kv.commit(batch(&pattern, from, from + 100)).unwrap();
    }
    say(&memory());
    say("done");
    std::thread::sleep(Duration::from_secs(60));
}

fn open(dir: &Path) {
    let start = Instant::now();
    let (service, recovery) = Service::open(dir, ServiceOptions::default()).unwrap();
    say(&format!(
        "open in {:.2} s; {}",
        start.elapsed().as_secs_f64(),
        memory()
    ));
    say(&recovery.to_string());
    let service = Arc::new(service);
    let md = attach(&service);
    let count = objects();
    for round in ["first", "second"] {
        let start = Instant::now();
        for i in 0..count / 2 {
            let number = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % count;
            let entry = md.lookup(ROOT, &name_of(number)).unwrap();
            assert_eq!(entry.attr.ino, ObjectId(FIRST + number));
        }
        let each = start.elapsed().as_secs_f64() * 2e6 / count as f64;
        say(&format!(
            "{round} {} lookups: {each:.1} µs each; {}",
            count / 2,
            memory()
        ));
    }
    say("done");
    let start = Instant::now();
    drop(md);
    service.close().unwrap();
    say(&format!(
        "closed in {:.2} s; {}",
        start.elapsed().as_secs_f64(),
        memory()
    ));
}
