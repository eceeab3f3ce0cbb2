//! Measures the start of a service with a million objects of ten tags each: its time, after a clean stop and after a
//! kill, and its memory. Run by hand:
//! `cargo test --release -p slabfs-mdserver --lib -- --ignored million --nocapture`
//! (`SLABFS_OBJECTS` sets another number).
//!
//! Each step is a process of its own, so that it can be killed and its memory can be measured.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use slabfs_model::{Tag, TagKind};

use super::support::*;
use crate::api::{NewObject, ROOT, SpecChange};
use crate::{Service, ServiceOptions};

const DIR: &str = "SLABFS_MILLION_DIR";
const STEP: &str = "SLABFS_MILLION_STEP";

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

/// Ten tags, the same in each run: texts, integers, floats.
fn tags(number: u64) -> Vec<(String, Tag)> {
    let mixed = |tag: u64| (number * 10 + tag).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let text = |kind, text: &str| Tag::parse(kind, text).unwrap();
    let mut tags = vec![
        (
            "name".to_owned(),
            text(TagKind::Text, &format!("sample-{number}")),
        ),
        (
            "site".to_owned(),
            text(
                TagKind::Text,
                ["north", "south", "east"][number as usize % 3],
            ),
        ),
        ("run".to_owned(), Tag::int((number / 1000) as i64)),
        ("step".to_owned(), Tag::int((number % 1000) as i64)),
    ];
    for tag in 0..3 {
        let value = format!("{}.{:03}", mixed(tag) % 1000, mixed(tag) % 997);
        tags.push((format!("x{tag}"), text(TagKind::Float, &value)));
    }
    for tag in 3..6 {
        let value = format!("value-{:08x}", mixed(tag) as u32);
        tags.push((format!("t{tag}"), text(TagKind::Text, &value)));
    }
    tags
}

/// Makes or changes objects `from..to`.
fn objects_of(prefix: &str, from: u64, to: u64) -> Vec<NewObject> {
    let one = |number| NewObject {
        parent: ROOT,
        name: [prefix.as_bytes(), &name_of(number)].concat(),
        mode: 0o644,
        uid: 1,
        gid: 1,
        spec: SpecChange::default(),
        tags: tags(number),
    };
    (from..to).map(one).collect()
}

fn fill(dir: &Path) {
    let (service, _) = Service::open(dir, ServiceOptions::default()).unwrap();
    let service = Arc::new(service);
    beat(&service, vec![]);
    let md = attach(&service);
    let (count, start) = (objects(), Instant::now());
    for from in (0..count).step_by(100) {
        md.create_many(objects_of("", from, (from + 100).min(count)))
            .unwrap();
    }
    let filled = start.elapsed().as_secs_f64();
    drop(md);
    say(&format!("{count} objects in {filled:.1} s; {}", memory()));
    service.close().unwrap();
    say(&format!(
        "closed after {:.1} s; {}",
        start.elapsed().as_secs_f64(),
        memory()
    ));
    say("done");
}

/// Creates and changes more objects, and runs until it is killed.
fn change(dir: &Path) {
    let (service, _) = Service::open(dir, ServiceOptions::default()).unwrap();
    let service = Arc::new(service);
    beat(&service, vec![]);
    let md = attach(&service);
    for from in (0..objects() / 10).step_by(100) {
        md.create_many(objects_of("more-", from, from + 100))
            .unwrap();
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
            assert!(entry.attr.ino > ROOT);
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
