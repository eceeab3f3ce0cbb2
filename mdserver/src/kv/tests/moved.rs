//! Tests of commits, and of their move into the index, while a checkpoint is being written.

use super::super::before::Before;
use super::super::blocks::Blocks;
use super::super::disk::{Disk, RealDisk, checkpoint_name};
use super::super::index::Index;
use super::*;
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Bytes of commits for each byte of the checkpoint.
const TIMES: u64 = 2;
const VALUE: usize = 4096;
/// The timeout after which the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A disk that writes a checkpoint only as fast as commits proceed, so commits must not wait for the checkpoint.
#[derive(Debug, Default)]
struct Paced {
    /// Bytes of commits, while the checkpoint is throttled to them.
    committed: Mutex<Option<u64>>,
    /// Whether the checkpoint is being written.
    begun: AtomicBool,
    /// The free bytes that the disk reports, if not the real ones.
    free: Mutex<Option<u64>>,
    more: Condvar,
}

impl Disk for Paced {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if path.ends_with("checkpoint.tmp") {
            self.begun.store(true, Release);
            let mut committed = self.committed.lock();
            while committed.is_some_and(|bytes| bytes < TIMES * offset) {
                if self.more.wait_for(&mut committed, PATIENCE).timed_out() {
                    return Err(io::Error::other("commits wait for the checkpoint"));
                }
            }
        }
        file.write_all_at(bytes, offset)
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        RealDisk.truncate(file, len)
    }

    fn reserve(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        RealDisk.reserve(file, offset, len)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        RealDisk.sync_data(file)
    }

    fn free(&self, dir: &Path) -> io::Result<u64> {
        let reported = *self.free.lock();
        reported.map_or_else(|| RealDisk.free(dir), Ok)
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

/// The changes of commit `lsn`: some rows are changed, some removed, some added, before, after and between existing
/// rows.
fn changes(lsn: u64, keys: u64, len: usize) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mixed = |at: u64| (lsn * 32 + at).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    (0..16)
        .map(|at| (key(mixed(at) % (6 * keys)), mixed(at + 16)))
        .collect::<BTreeMap<_, _>>()
        .into_iter()
        .map(|(key, how)| (key, (how % 16 > 0).then(|| vec![how as u8; len])))
        .collect()
}

/// A store on such a disk.
fn paced(dir: &Path) -> (LocalKv, Arc<Paced>) {
    let disk = Arc::new(Paced::default());
    let ground = Ground {
        disk: disk.clone(),
        ..Ground::real()
    };
    let options = KvOptions {
        journal_limit: 1 << 30,
        ..quiet()
    };
    let (kv, _) = LocalKv::open_on(dir, options, ground).unwrap();
    (kv, disk)
}

/// With values that have pages of their own.
#[test]
fn a_checkpoint_is_of_one_commit_although_commits_continue() {
    commits_continue(12_000, VALUE);
}

/// With values that share pages.
#[test]
fn a_checkpoint_of_pages_is_of_one_commit_although_commits_continue() {
    commits_continue(60_000, 300);
}

fn commits_continue(keys: u64, len: usize) {
    let dir = TempDir::new().unwrap();
    let (kv, disk) = paced(dir.path());
    let mut model = Model::new();
    let mut begun = Lsn(0);
    for numbers in [keys..keys * 3 / 2, keys * 3 / 2..2 * keys] {
        let mut first = Batch::new();
        for number in numbers {
            first.put(key(number), vec![0; len]);
            model.insert(key(number), vec![0; len]);
        }
        begun = kv.commit(first).unwrap();
    }
    // That was the checkpoint of the empty store.
    disk.begun.store(false, Release);
    *disk.committed.lock() = Some(0);
    let until = TIMES * keys * len as u64 * 2;
    let last = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !disk.begun.load(Acquire) {
                std::thread::yield_now();
            }
            let (mut bytes, mut lsn) = (0, begun.0);
            while bytes < until {
                let mut batch = Batch::new();
                lsn += 1;
                for (key, value) in changes(lsn, keys, len) {
                    match value {
                        Some(value) => batch.put(key, value),
                        None => batch.delete(key),
                    };
                    bytes += len as u64;
                }
                assert_eq!(kv.commit(batch).unwrap(), Lsn(lsn));
                *disk.committed.lock() = Some(bytes);
                disk.more.notify_all();
            }
            *disk.committed.lock() = None;
            disk.more.notify_all();
            lsn
        });
        kv.checkpoint().unwrap();
        writer.join().unwrap()
    });
    let apply = |model: &mut Model, lsn| {
        for (key, value) in changes(lsn, keys, len) {
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
    };
    let checkpoint = *numbered(dir.path(), "checkpoint").unwrap().last().unwrap();
    assert_eq!(checkpoint, begun.0);
    let path = dir.path().join(checkpoint_name(checkpoint));
    let blocks = Blocks::open(&path, Some(checkpoint)).unwrap();
    let mut rows = blocks.from(b"").unwrap();
    let mut found = Model::new();
    while let Some((key, value)) = rows.next().unwrap() {
        found.insert(key, value);
    }
    assert!(found == model, "the checkpoint is of another state");
    (begun.0 + 1..=last).for_each(|lsn| apply(&mut model, lsn));
    assert!(all(&kv) == model);
    assert!(all(&open(killed(dir.path()).path()).0) == model);
}

/// If there is not enough space to move pending changes, but enough for a checkpoint, the checkpoint is written: it
/// frees space.
#[test]
fn a_checkpoint_needs_no_space_for_pending_changes() {
    let dir = TempDir::new().unwrap();
    let (kv, disk) = paced(dir.path());
    kv.settled().unwrap();
    let put = |numbers: std::ops::Range<u64>, byte| {
        for numbers in numbers.step_by(100) {
            let mut batch = Batch::new();
            for number in numbers..numbers + 100 {
                batch.put(key(number), vec![byte; VALUE]);
            }
            kv.commit(batch).unwrap();
        }
    };
    put(0..4000, 1);
    disk.begun.store(false, Release);
    *disk.committed.lock() = Some(0);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| kv.checkpoint());
        while !disk.begun.load(Acquire) {
            std::thread::yield_now();
        }
        put(0..9000, 2);
        *disk.free.lock() = Some(1 << 20);
        *disk.committed.lock() = None;
        disk.more.notify_all();
        asked.join().unwrap().unwrap();
    });
    *disk.free.lock() = None;
    kv.checkpoint().unwrap();
    assert_eq!(all(&kv).len(), 9000);
}

/// However large the replaced or removed values are.
#[test]
fn the_before_images_of_a_dump_are_bounded() {
    let dir = TempDir::new().unwrap();
    let index = Index::open(&dir.path().join("sled"), 8 << 20).unwrap();
    let keys: Vec<_> = (0..1000).map(key).collect();
    let value = vec![7; 64 << 10];
    for keys in keys.chunks(64) {
        let part: Vec<_> = keys
            .iter()
            .map(|key| (&key[..], Some(&value[..])))
            .collect();
        index.apply(&part, None).unwrap();
    }
    let removed: Vec<_> = keys.iter().map(|key| (&key[..], None)).collect();
    let mut before = Before::default();
    let saved = before.keep(&index, &removed).unwrap();
    assert!((400..600).contains(&saved) && before.is_full(), "{saved}");
    assert_eq!(before.keep(&index, &removed[saved..]).unwrap(), 1);
    let values = std::iter::from_fn(|| before.next()).map(|(_, value)| value.unwrap().len());
    assert_eq!(values.sum::<usize>(), (saved + 1) * value.len());
}
