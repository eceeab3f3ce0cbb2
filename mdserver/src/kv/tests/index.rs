//! Tests of the index against a map, and with concurrent readers.

use super::super::index::Index;
use super::super::memtable::Change;
use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

fn open_index(dir: &Path) -> Index {
    Index::open(&dir.join("sled"), 8 << 20).unwrap()
}

fn apply(index: &Index, model: &mut Model, changes: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
    let all: Vec<Change<'_>> = changes
        .iter()
        .map(|(key, value)| (&key[..], value.as_deref()))
        .collect();
    index.apply(&all, None).unwrap();
    for (key, value) in changes {
        match value {
            Some(value) => model.insert(key.clone(), value.clone()),
            None => model.remove(key),
        };
    }
}

fn rows(index: &Index, from: &[u8], to: Option<&[u8]>) -> Vec<Pair> {
    let mut entries = index.range(from, to).unwrap();
    let mut rows = Vec::new();
    while let Some((key, value)) = entries.next().unwrap() {
        rows.push((key.to_vec(), value.unwrap().to_vec()));
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_index_is_a_map(
        rounds in proptest::collection::vec(
            proptest::collection::btree_map(
                proptest::collection::vec(0u8..6, 1..5),
                proptest::option::weighted(
                    0.6,
                    prop_oneof![9 => 0usize..90, 1 => 0usize..3000]
                        .prop_map(|len| (0..len).map(|at| at as u8).collect::<Vec<u8>>()),
                ),
                0..200,
            ),
            1..12,
        ),
        bounds in proptest::collection::vec(
            (
                proptest::collection::vec(0u8..7, 0..4),
                proptest::option::of(proptest::collection::vec(0u8..7, 1..4)),
            ),
            8,
        ),
    ) {
        let dir = TempDir::new().unwrap();
        let index = open_index(dir.path());
        let mut model = Model::new();
        for changes in &rounds {
            apply(&index, &mut model, changes);
            for key in changes.keys() {
                prop_assert_eq!(index.get(key).unwrap(), model.get(key).cloned());
            }
            for (from, to) in &bounds {
                let right = model.range(from.clone()..);
                let right = right.take_while(|(key, _)| to.as_ref().is_none_or(|to| *key < to));
                let right: Vec<_> = right.map(|(key, value)| (key.clone(), value.clone())).collect();
                prop_assert_eq!(rows(&index, from, to.as_deref()), right);
            }
        }
        // Only the first page is left.
        let gone = model.keys().map(|key| (key.clone(), None)).collect();
        apply(&index, &mut model, &gone);
        prop_assert_eq!(rows(&index, b"", None), vec![]);
        drop(index);
        let db = sled_in(dir.path());
        let keys: Vec<_> = db.iter().keys().map(Result::unwrap).collect();
        prop_assert_eq!(keys, vec![sled::IVec::from(""), sled::IVec::from("p")]);
    }
}

/// Unchanged rows are found at every moment, by lookups and by scans, while pages around them are split and removed.
#[test]
fn unchanged_rows_are_always_found() {
    const STAYS: u64 = 400;
    let dir = TempDir::new().unwrap();
    let index = open_index(dir.path());
    let key = |number: u64, at: u64| format!("{number:05}-{at:02}").into_bytes();
    let stays: BTreeMap<_, _> = (0..STAYS)
        .map(|number| (key(number, 50), Some(vec![number as u8; 40])))
        .collect();
    apply(&index, &mut Model::new(), &stays);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3u64 {
            let (index, over, stays) = (&index, &over, &stays);
            scope.spawn(move || {
                let mut at = reader;
                while !over.load(Ordering::Relaxed) {
                    at = (at * 7 + 11) % STAYS;
                    let found = index.get(&key(at, 50)).unwrap();
                    assert_eq!(found, Some(vec![at as u8; 40]), "{at}");
                    if at % 50 == reader {
                        let (from, to) = (key(at, 0), key((at + 20).min(STAYS), 0));
                        let seen = rows(index, &from, Some(&to));
                        let seen = seen.iter().filter(|(key, _)| stays.contains_key(key));
                        let right = stays.range(from..to).count();
                        assert_eq!(seen.count(), right, "from {at} on");
                    }
                }
            });
        }
        let mut model = Model::new();
        for round in 0..60u64 {
            // Rows next to every unchanged row are added and removed.
            for comes in [true, false] {
                let changes = (0..STAYS).filter(|number| number % 3 == round % 3);
                let changes = changes
                    .flat_map(|number| {
                        (0..10).map(move |at| {
                            let value = comes.then(|| vec![0; 30 + (at * 13 + round) as usize]);
                            (key(number, 45 + at + u64::from(at > 4)), value)
                        })
                    })
                    .collect();
                apply(&index, &mut model, &changes);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(rows(&index, b"", None).len() as u64, STAYS);
}

/// sled's backward search does not terminate for keys with more than four successive bytes of 255 (0.34.7): it is not
/// used.
#[test]
fn keys_with_many_255s_are_found_or_absent() {
    let dir = TempDir::new().unwrap();
    let index = open_index(dir.path());
    let mut model = Model::new();
    let some: BTreeMap<_, _> = (b'a'..=b'z')
        .flat_map(|c| (0..40u32).map(move |at| (c, at)))
        .map(|(c, at)| {
            let key = [&[c, 255, 255, 255, 255], format!("{at:04}").as_bytes()].concat();
            (key, Some(vec![c; 900]))
        })
        .collect();
    apply(&index, &mut model, &some);
    let others: BTreeMap<_, _> = (b'a'..=b'z')
        .flat_map(|c| ["", "0", "!", "zzz"].map(|tail| [&[c], tail.as_bytes()].concat()))
        .map(|key| (key, Some(vec![1; 900])))
        .collect();
    for key in others.keys() {
        // So that the filter does not answer.
        index.note(key);
        assert_eq!(index.get(key).unwrap(), None);
    }
    apply(&index, &mut model, &others);
    for (key, value) in &model {
        assert_eq!(index.get(key).unwrap().as_ref(), Some(value));
    }
    let gone = some.keys().map(|key| (key.clone(), None)).collect();
    apply(&index, &mut model, &gone);
    let right: Vec<_> = model.into_iter().collect();
    assert_eq!(rows(&index, b"", None), right);
}
