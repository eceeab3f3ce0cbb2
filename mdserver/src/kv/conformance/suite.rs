//! The conformance suite of [`MetaKv`]. Each implementation runs all of it.
#![allow(clippy::unwrap_used)]

use crate::kv::{Batch, KvError, Lsn, MAX_BATCH, MAX_KEY, MetaKv, Pair};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;

/// Runs the suite; `open` makes a new, empty store.
///
/// # Panics
/// If a store violates the contract.
pub fn run(open: &dyn Fn() -> Arc<dyn MetaKv>) {
    values_round_trip(open());
    batches_are_atomic_and_ordered(open());
    scans_are_ascending_bounded_and_limited(open());
    wrong_batches_are_refused(open());
    numbers_ascend_and_sync_reaches_them(open());
    a_closed_store_fails(open());
    readers_never_see_half_a_batch(open());
    random_batches_agree_with_a_map(open);
}

fn put(kv: &dyn MetaKv, key: &str, value: &str) -> Lsn {
    let mut batch = Batch::new();
    batch.put(key, value);
    kv.commit(batch).unwrap()
}

fn pairs(of: &[(&str, &str)]) -> Vec<Pair> {
    of.iter()
        .map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect()
}

fn values_round_trip(kv: Arc<dyn MetaKv>) {
    assert_eq!(kv.get(b"a").unwrap(), None);
    put(&*kv, "a", "1");
    assert_eq!(kv.get(b"a").unwrap(), Some(b"1".to_vec()));
    put(&*kv, "a", "");
    assert_eq!(kv.get(b"a").unwrap(), Some(Vec::new()));
    let mut batch = Batch::new();
    batch.delete("a").delete("never there");
    kv.commit(batch).unwrap();
    assert_eq!(kv.get(b"a").unwrap(), None);
    assert_eq!(kv.get(b"").unwrap(), None);
    let large = vec![7; 3 << 20];
    let mut batch = Batch::new();
    batch
        .put("large", large.clone())
        .put(vec![0xff; MAX_KEY], "longest")
        .put(vec![0], "lowest");
    kv.commit(batch).unwrap();
    kv.checkpoint().unwrap();
    assert_eq!(kv.get(b"large").unwrap(), Some(large));
    assert_eq!(kv.get(&[0xff; MAX_KEY]).unwrap(), Some(b"longest".to_vec()));
    assert_eq!(kv.get(&[0]).unwrap(), Some(b"lowest".to_vec()));
}

fn batches_are_atomic_and_ordered(kv: Arc<dyn MetaKv>) {
    let mut batch = Batch::new();
    batch
        .put("a", "1")
        .put("b", "1")
        .put("a", "2")
        .put("c", "1")
        .delete("b");
    kv.commit(batch).unwrap();
    assert_eq!(
        kv.scan(b"", b"z", 10).unwrap(),
        pairs(&[("a", "2"), ("c", "1")])
    );
}

fn scans_are_ascending_bounded_and_limited(kv: Arc<dyn MetaKv>) {
    for key in ["d", "b", "a", "c", "aa"] {
        put(&*kv, key, "old");
    }
    kv.checkpoint().unwrap();
    put(&*kv, "b", "new");
    put(&*kv, "bb", "new");
    let mut batch = Batch::new();
    batch.delete("c");
    kv.commit(batch).unwrap();
    let all = pairs(&[
        ("a", "old"),
        ("aa", "old"),
        ("b", "new"),
        ("bb", "new"),
        ("d", "old"),
    ]);
    assert_eq!(kv.scan(b"", b"\xff", usize::MAX).unwrap(), all);
    assert_eq!(kv.scan(b"a", b"d", 10).unwrap(), all[..4]);
    assert_eq!(kv.scan(b"aa", b"\xff", 2).unwrap(), all[1..3]);
    assert_eq!(kv.scan(b"c", b"d", 10).unwrap(), []);
    assert_eq!(kv.scan(b"d", b"a", 10).unwrap(), []);
    assert_eq!(kv.scan(b"a", b"a", 10).unwrap(), []);
    assert_eq!(kv.scan(b"", b"\xff", 0).unwrap(), []);
}

fn wrong_batches_are_refused(kv: Arc<dyn MetaKv>) {
    for key in [vec![], vec![1; MAX_KEY + 1]] {
        let mut batch = Batch::new();
        batch.put("good", "1").put(key.clone(), "1");
        assert!(matches!(kv.commit(batch), Err(KvError::Invalid(_))));
        let mut batch = Batch::new();
        batch.put("good", "1").delete(key);
        assert!(matches!(kv.commit(batch), Err(KvError::Invalid(_))));
    }
    let mut batch = Batch::new();
    batch.put("good", vec![0; MAX_BATCH]);
    assert!(matches!(kv.commit(batch), Err(KvError::Invalid(_))));
    assert_eq!(kv.get(b"good").unwrap(), None);
}

fn numbers_ascend_and_sync_reaches_them(kv: Arc<dyn MetaKv>) {
    assert_eq!(kv.synced(), Lsn(0));
    for number in 1..=5 {
        assert_eq!(put(&*kv, "a", "1"), Lsn(number));
    }
    assert_eq!(kv.sync().unwrap(), Lsn(5));
    assert_eq!(kv.synced(), Lsn(5));
    assert_eq!(kv.commit(Batch::new()).unwrap(), Lsn(6));
    kv.checkpoint().unwrap();
    assert_eq!(kv.synced(), Lsn(6));
}

fn a_closed_store_fails(kv: Arc<dyn MetaKv>) {
    put(&*kv, "a", "1");
    kv.close().unwrap();
    kv.close().unwrap();
    let mut batch = Batch::new();
    batch.put("a", "2");
    assert!(matches!(kv.commit(batch), Err(KvError::Closed)));
    assert!(matches!(kv.get(b"a"), Err(KvError::Closed)));
    assert!(matches!(kv.scan(b"a", b"b", 1), Err(KvError::Closed)));
    assert!(matches!(kv.sync(), Err(KvError::Closed)));
    assert!(matches!(kv.checkpoint(), Err(KvError::Closed)));
    assert_eq!(kv.synced(), Lsn(1));
}

/// Four writers set sixteen keys to one value each time; every scan sees one value. Meanwhile
/// checkpoints and syncs run.
fn readers_never_see_half_a_batch(kv: Arc<dyn MetaKv>) {
    const ROUNDS: u32 = 150;
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4u32)
            .map(|writer| {
                let kv = kv.clone();
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut batch = Batch::new();
                        for key in 0..16u8 {
                            batch.put([b'k', key], (writer * ROUNDS + round).to_le_bytes());
                        }
                        batch.put([b'w', writer as u8], round.to_le_bytes());
                        let lsn = kv.commit(batch).unwrap();
                        if round % 50 == 0 {
                            assert!(kv.sync().unwrap() >= lsn);
                        }
                        assert_eq!(
                            kv.get(&[b'w', writer as u8]).unwrap(),
                            Some(round.to_le_bytes().to_vec())
                        );
                    }
                })
            })
            .collect();
        while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
            kv.checkpoint().unwrap();
            for _ in 0..20 {
                let seen = kv.scan(b"k", b"l", usize::MAX).unwrap();
                assert!(seen.is_empty() || seen.len() == 16);
                assert!(
                    seen.windows(2).all(|pair| pair[0].1 == pair[1].1),
                    "{seen:?}"
                );
            }
        }
    });
    assert_eq!(kv.sync().unwrap(), Lsn(4 * u64::from(ROUNDS)));
}

/// Batches over few keys, so that they overwrite and delete one another.
pub(in crate::kv) fn batches() -> impl Strategy<Value = Batch> {
    let key = || prop::collection::vec(b'a'..b'e', 1..4);
    let puts = prop::collection::vec((key(), prop::collection::vec(any::<u8>(), 0..40)), 0..6);
    (puts, prop::collection::vec(key(), 0..3)).prop_map(|(puts, deletes)| Batch {
        puts: puts
            .into_iter()
            .map(|(key, value)| (key.into(), value))
            .collect(),
        deletes: deletes.into_iter().map(Into::into).collect(),
        new: Vec::new(),
    })
}

/// Marks as new each put of a key that the model does not have.
pub(in crate::kv) fn mark_new(mut batch: Batch, model: &BTreeMap<Vec<u8>, Vec<u8>>) -> Batch {
    let mut there: BTreeSet<_> = model.keys().cloned().collect();
    let new = batch.puts.iter().enumerate();
    batch.new = new
        .filter_map(|(at, (key, _))| there.insert(key.to_vec()).then_some(at))
        .collect();
    batch
}

/// Applies a batch to the model.
pub(in crate::kv) fn apply(model: &mut BTreeMap<Vec<u8>, Vec<u8>>, batch: &Batch) {
    let puts = batch.puts.iter();
    model.extend(puts.map(|(key, value)| (key.to_vec(), value.clone())));
    for key in &batch.deletes {
        model.remove(&key[..]);
    }
}

fn random_batches_agree_with_a_map(open: &dyn Fn() -> Arc<dyn MetaKv>) {
    let steps = prop::collection::vec((batches(), 0..12u8), 1..40);
    let config = ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in steps)| {
        let kv = open();
        let mut model = BTreeMap::new();
        for (batch, then) in steps {
            let batch = mark_new(batch, &model);
            apply(&mut model, &batch);
            kv.commit(batch).unwrap();
            match then {
                0 => kv.checkpoint().unwrap(),
                1 => drop(kv.sync().unwrap()),
                _ => {}
            }
            for key in model.keys() {
                prop_assert_eq!(kv.get(key).unwrap(), model.get(key).cloned());
            }
            let all: Vec<Pair> = model.clone().into_iter().collect();
            prop_assert_eq!(kv.scan(b"", b"\xff", usize::MAX).unwrap(), all);
        }
    });
}

#[test]
fn memory_kv_conforms() {
    run(&|| Arc::new(crate::kv::MemoryKv::new()));
}
