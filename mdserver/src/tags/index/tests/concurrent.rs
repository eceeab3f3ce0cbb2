//! Readers concurrent with writers, persists and merges: each reader sees complete batches, and all up to a moment.

use super::*;
use std::sync::atomic::AtomicBool;
use std::thread;

const BATCHES: u64 = 1500;
const WINDOW: u64 = 20;

fn entry(part: char, batch: u64) -> String {
    format!("{part}/{batch:06}")
}

/// A batch adds itself in three places, and removes the one `WINDOW` before it.
fn write(index: &Index, batch: u64, failed: &AtomicBool) {
    let parts = |batch| ['a', 'm', 'z'].map(|part| entry(part, batch));
    let gone = batch
        .checked_sub(WINDOW)
        .map_or(Vec::new(), |old| parts(old).to_vec());
    if index.apply(&parts(batch), &gone).is_err() {
        failed.store(true, Ordering::Relaxed);
    }
}

/// Returns the batches that a reader finds in `part`.
fn batches(found: &[Vec<u8>], part: char) -> Vec<u64> {
    let texts = found.iter().map(|entry| String::from_utf8_lossy(entry));
    let own = texts.filter(|text| text.starts_with(part));
    own.map(|text| text[2..].parse().expect("number")).collect()
}

#[test]
fn readers_see_complete_batches_with_persists_and_merges() {
    let dir = TempDir::new().expect("dir");
    let (index, _) = open(dir.path());
    let (done, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let newest = AtomicU64::new(0);
    thread::scope(|threads| {
        threads.spawn(|| {
            for batch in 0..BATCHES {
                write(&index, batch, &failed);
                newest.store(batch, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        threads.spawn(|| {
            let mut lsn = 0;
            while !done.load(Ordering::Acquire) {
                lsn += 1;
                persist(&index, lsn);
                while index.merge().expect("merged") {}
            }
        });
        for _ in 0..2 {
            threads.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    let least = newest.load(Ordering::Acquire);
                    let found = all(&index).expect("read");
                    let a = batches(&found, 'a');
                    assert!(a.len() as u64 <= WINDOW);
                    assert!(a.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{a:?}");
                    assert_eq!(a, batches(&found, 'm'));
                    assert_eq!(a, batches(&found, 'z'));
                    // Batches applied before are visible.
                    assert!(
                        least == 0 || a.last().is_some_and(|&last| last >= least),
                        "{a:?} {least}"
                    );
                }
            });
        }
    });
    assert!(!failed.load(Ordering::Relaxed));
    persist(&index, BATCHES * 10);
    drop(index);
    let (index, _) = open(dir.path());
    let expected: Vec<u64> = (BATCHES - WINDOW..BATCHES).collect();
    assert_eq!(batches(&all(&index).expect("all"), 'm'), expected);
}
