//! Tests of the complete [`LocalKv`], with its directory in any state.

mod before_the_index;
mod damage;
mod disk_faults;
mod index;
mod index_faults;
mod loads;
mod moved;
mod open;
mod property;

use super::conformance;
use super::disk::{Ground, journal_name, numbered};
use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Options with which nothing runs in the background.
fn quiet() -> KvOptions {
    KvOptions {
        sync_interval: Duration::from_secs(3600),
        cache_bytes: 8 << 20,
        ..KvOptions::default()
    }
}

fn accepting() -> KvOptions {
    KvOptions {
        accept_loss: true,
        ..quiet()
    }
}

/// Opens the store, and checks that the contents are the same before and after the comparison of the index.
fn open(dir: &Path) -> (LocalKv, Recovery) {
    let (kv, _) = LocalKv::prepare(dir, quiet(), Ground::real()).unwrap();
    let before = all(&kv);
    for (key, value) in before.iter().step_by(7) {
        assert_eq!(kv.get(key).unwrap().as_ref(), Some(value));
        assert_eq!(kv.get(&[key, &b"~"[..]].concat()).unwrap(), None);
    }
    kv.begin().unwrap();
    let recovery = kv.settled().unwrap();
    assert_eq!(all(&kv), before, "{recovery}");
    (kv, recovery)
}

fn put(kv: &dyn MetaKv, key: &str, value: &str) -> Lsn {
    let mut batch = Batch::new();
    batch.put(key, value);
    kv.commit(batch).unwrap()
}

/// Commits `key-<i>` for each number.
fn put_all(kv: &dyn MetaKv, numbers: std::ops::Range<u32>) {
    for i in numbers {
        put(kv, &format!("key-{i:04}"), &format!("value of {i}"));
    }
}

fn model_of(numbers: std::ops::Range<u32>) -> Model {
    numbers
        .map(|i| {
            (
                format!("key-{i:04}").into_bytes(),
                format!("value of {i}").into_bytes(),
            )
        })
        .collect()
}

fn all(kv: &dyn MetaKv) -> Model {
    kv.scan(b"", &[0xff; 8], usize::MAX)
        .unwrap()
        .into_iter()
        .collect()
}

/// The state of `dir` as a process that was killed leaves it.
fn killed(dir: &Path) -> TempDir {
    let copy = TempDir::new().unwrap();
    copy_tree(dir, copy.path());
    copy
}

/// Copies the files; those that are removed meanwhile are left out.
fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let Ok(entries) = fs::read_dir(from) else {
        return;
    };
    for entry in entries {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => copy_tree(&entry.path(), &target),
            Ok(_) => {
                if let Err(error) = fs::copy(entry.path(), target) {
                    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
                }
            }
            Err(_) => {}
        }
    }
}

/// The journal files, oldest first.
fn journals(dir: &Path) -> Vec<PathBuf> {
    numbered(dir, "journal")
        .unwrap()
        .into_iter()
        .map(|n| dir.join(journal_name(n)))
        .collect()
}

/// Opens sled's tree of a closed store directly. A thread of sled may still hold its lock for a while.
fn sled_in(dir: &Path) -> sled::Db {
    let sled = dir.join("sled");
    super::sled_files::wait_unlocked(&sled.join("db"));
    sled::open(sled).unwrap()
}

/// The newest journal file with at least one frame.
fn last_journal(dir: &Path) -> PathBuf {
    let long = |path: &PathBuf| fs::metadata(path).unwrap().len() > super::frame::HEADER as u64;
    journals(dir).into_iter().rev().find(long).unwrap()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Where each record's frame begins, with its number.
fn records(path: &Path) -> Vec<(usize, Lsn)> {
    use super::walk::{Step, Walk};
    let bytes = fs::read(path).unwrap();
    let number = path.file_name().unwrap().to_str().unwrap()[8..]
        .parse()
        .unwrap();
    let steps = Walk::new(&bytes, number);
    let frames = steps.filter_map(|step| match step {
        Step::Frame(frame, end) if frame.kind == super::frame::Kind::Record => {
            Some((end as usize - frame.len, frame.lsn))
        }
        _ => None,
    });
    frames.collect()
}

/// A machine that was rebooted since.
fn after_reboot() -> Ground {
    Ground {
        boot: Some([0xee; 16]),
        ..Ground::real()
    }
}

#[test]
fn local_kv_conforms() {
    let dirs = TempDir::new().unwrap();
    let count = std::sync::atomic::AtomicU32::new(0);
    conformance::run(&|| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let options = KvOptions {
            journal_limit: 64 << 10,
            ..quiet()
        };
        Arc::new(
            LocalKv::open(&dirs.path().join(number.to_string()), options)
                .unwrap()
                .0,
        )
    });
}
