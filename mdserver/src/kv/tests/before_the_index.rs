//! Tests of the time between the opening of a store and the end of the comparison of its index.

use super::*;
use std::sync::Barrier;

/// 300 commits, a checkpoint, 50 more; the first keys are changed and removed after the checkpoint.
fn store() -> (TempDir, Model) {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    put_all(&kv, 0..200);
    kv.checkpoint().unwrap();
    put_all(&kv, 200..300);
    kv.checkpoint().unwrap();
    put_all(&kv, 300..350);
    let mut batch = Batch::new();
    batch.put("key-0000", "changed").delete("key-0001");
    kv.commit(batch).unwrap();
    let mut model = model_of(0..350);
    model.insert(b"key-0000".to_vec(), b"changed".to_vec());
    model.remove(&b"key-0001"[..]);
    (killed(dir.path()), model)
}

fn prepare(dir: &Path) -> LocalKv {
    LocalKv::prepare(dir, quiet(), Ground::real()).unwrap().0
}

#[test]
fn all_keys_are_readable_before_sled_is_touched() {
    let (dir, mut model) = store();
    fs::remove_dir_all(dir.path().join("sled")).unwrap();
    let kv = prepare(dir.path());
    assert_eq!(all(&kv), model);
    // A commit now overlays the changes from the journal.
    put(&kv, "key-0001", "again");
    let mut batch = Batch::new();
    batch.delete("key-0000").delete("key-0120").put("new", "1");
    kv.commit(batch).unwrap();
    model.insert(b"key-0001".to_vec(), b"again".to_vec());
    model.insert(b"new".to_vec(), b"1".to_vec());
    model.remove(&b"key-0000"[..]);
    model.remove(&b"key-0120"[..]);
    assert_eq!(all(&kv), model);
    assert_eq!(kv.get(b"key-0120").unwrap(), None);
    assert_eq!(kv.get(b"key-0002").unwrap(), Some(b"value of 2".to_vec()));
    assert_eq!(kv.scan(b"key-0119", b"key-0123", 2).unwrap().len(), 2);
    assert!(!dir.path().join("sled").exists());
    let again = killed(dir.path());
    kv.begin().unwrap();
    let recovery = kv.settled().unwrap();
    assert!(recovery.rebuilt.is_some(), "{recovery}");
    assert_eq!(all(&kv), model);
    kv.checkpoint().unwrap();
    assert_eq!(all(&kv), model);
    drop(kv);
    for dir in [dir.path(), again.path()] {
        assert_eq!(all(&open(dir).0), model);
    }
}

#[test]
fn a_store_closes_before_the_comparison() {
    let (dir, model) = store();
    for _ in 0..3 {
        let kv = prepare(dir.path());
        put(&kv, "new", "1");
        kv.close().unwrap();
    }
    let (kv, recovery) = open(dir.path());
    assert!(recovery.clean, "{recovery}");
    let mut expected = model;
    expected.insert(b"new".to_vec(), b"1".to_vec());
    assert_eq!(all(&kv), expected);
}

#[test]
fn a_checkpoint_damaged_meanwhile_is_replaced_by_the_one_before() {
    let (dir, model) = store();
    let kv = prepare(dir.path());
    put(&kv, "key-0001", "value of 1");
    let newest = numbered(dir.path(), "checkpoint").unwrap().pop().unwrap();
    let path = dir.path().join(super::super::disk::checkpoint_name(newest));
    flip(&path, 1000);
    kv.begin().unwrap();
    let mut expected = model;
    expected.insert(b"key-0001".to_vec(), b"value of 1".to_vec());
    assert_eq!(all(&kv), expected);
    while kv.settled().is_err() {
        assert_eq!(all(&kv), expected);
    }
    assert_eq!(all(&kv), expected);
    kv.checkpoint().unwrap();
    drop(kv);
    assert_eq!(all(&open(dir.path()).0), expected);
}

#[test]
fn nothing_is_missed_while_the_index_takes_over() {
    const KEYS: u32 = 9000;
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    for first in (0..KEYS).step_by(100) {
        let mut batch = Batch::new();
        for i in first..first + 100 {
            batch.put(format!("key-{i:04}"), format!("value of {i}"));
        }
        kv.commit(batch).unwrap();
    }
    for _ in 0..20 {
        let again = killed(dir.path());
        let kv = prepare(again.path());
        let reading = Barrier::new(3);
        std::thread::scope(|scope| {
            for odd in [0, 1] {
                let (kv, reading) = (&kv, &reading);
                scope.spawn(move || {
                    reading.wait();
                    // Keys that are only in the journal; each once, because a value that was read is cached.
                    for i in (odd..KEYS).step_by(2) {
                        let found = kv.get(format!("key-{i:04}").as_bytes()).unwrap();
                        assert_eq!(found, Some(format!("value of {i}").into_bytes()));
                    }
                });
            }
            reading.wait();
            kv.begin().unwrap();
            kv.settled().unwrap();
        });
    }
}

/// A process that ends at once has put nothing into the index. The next start loses no key.
#[test]
fn a_store_may_end_before_its_index_exists() {
    let dir = TempDir::new().unwrap();
    let kv = prepare(dir.path());
    put_all(&kv, 0..10);
    kv.close().unwrap();
    drop(kv);
    let (kv, recovery) = open(dir.path());
    assert_eq!(recovery.rebuilt, None, "{recovery}");
    assert!(recovery.clean, "{recovery}");
    assert_eq!(all(&kv), model_of(0..10));
}
