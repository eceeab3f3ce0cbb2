//! Tests of the complete [`super::Index`], against a set of the standard library.

mod concurrent;
mod damage;
mod model;
mod speed;

use super::*;
use std::collections::BTreeSet;
use tempfile::TempDir;

type Model = BTreeSet<Vec<u8>>;

/// Leaves of a few entries, rebuilds in many parts: small sets reach all code.
fn small() -> IndexOptions {
    IndexOptions {
        identity: [7; 16],
        cache_bytes: 4 << 10,
        dirty_bytes: 16 << 10,
        load_bytes: 1 << 10,
        leaf_bytes: 96,
        merge_step: 60,
    }
}

fn open(dir: &Path) -> (Index, Lsn) {
    Index::open(dir, small()).expect("index")
}

fn read(mut iter: Iter) -> Result<Vec<Vec<u8>>, IndexError> {
    let mut found = Vec::new();
    while let Some(entry) = iter.next()? {
        found.push(entry.to_vec());
    }
    Ok(found)
}

fn all(index: &Index) -> Result<Vec<Vec<u8>>, IndexError> {
    read(index.iter(b"", None)?)
}

fn in_order(model: &Model) -> Vec<Vec<u8>> {
    model.iter().cloned().collect()
}

fn add(index: &Index, keys: &[&str]) {
    index.apply::<_, &str>(keys, &[]).expect("applied");
}

fn take(index: &Index, keys: &[&str]) {
    index.apply::<&str, _>(&[], keys).expect("applied");
}

fn persist(index: &Index, lsn: u64) {
    index.seal(Lsn(lsn));
    assert_eq!(index.persist().expect("persisted"), Lsn(lsn));
}

fn files(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("directory");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_batch_is_visible_after_it_and_a_reader_keeps_its_moment() {
    let dir = TempDir::new().expect("dir");
    let (index, lsn) = open(dir.path());
    assert_eq!(lsn, Lsn(0));
    assert!(index.is_empty());
    add(&index, &["a", "b", "c"]);
    let before = index.iter(b"", None).expect("iter");
    index.apply(&["b", "d"], &["a", "b", "x"]).expect("applied");
    assert_eq!(all(&index).expect("all"), [b"b", b"c", b"d"]);
    persist(&index, 3);
    take(&index, &["c"]);
    persist(&index, 4);
    assert!(index.merge().expect("merge"));
    assert!(!index.merge().expect("merge"));
    assert_eq!(read(before).expect("before"), [b"a", b"b", b"c"]);
    assert_eq!(all(&index).expect("all"), [b"b", b"d"]);
    assert_eq!(index.len(), 2);
    assert_eq!(files(dir.path()).len(), 2, "a manifest and a run");
    drop(index);
    let (index, lsn) = open(dir.path());
    assert_eq!(lsn, Lsn(4));
    assert_eq!(all(&index).expect("all"), [b"b", b"d"]);
}

#[test]
fn unsealed_changes_are_not_persisted() {
    let dir = TempDir::new().expect("dir");
    let (index, _) = open(dir.path());
    add(&index, &["a"]);
    index.seal(Lsn(5));
    add(&index, &["b"]);
    take(&index, &["a"]);
    assert_eq!(index.persist(), Ok(Lsn(5)));
    assert_eq!(all(&index).expect("all"), [b"b"]);
    drop(index);
    let (index, lsn) = open(dir.path());
    assert_eq!(lsn, Lsn(5));
    assert_eq!(all(&index).expect("all"), [b"a"]);
    // Nothing changed except the commit.
    persist(&index, 9);
    drop(index);
    assert_eq!(open(dir.path()).1, Lsn(9));
}

#[test]
fn a_rebuild_replaces_everything() {
    let dir = TempDir::new().expect("dir");
    let (index, _) = open(dir.path());
    add(&index, &["old", "older"]);
    persist(&index, 1);
    let keys: Vec<String> = (0..3000).map(|i| format!("{:04}", i * 7 % 1000)).collect();
    let rebuilt = index.rebuild(Lsn(12), |loader| {
        add(&index, &["new"]);
        keys.iter().try_for_each(|key| loader.push(key.as_bytes()))
    });
    rebuilt.expect("rebuilt");
    let mut model: Model = keys.iter().map(|key| key.clone().into_bytes()).collect();
    model.insert(b"new".to_vec());
    assert_eq!(all(&index).expect("all"), in_order(&model));
    assert_eq!(index.len(), 1001);
    assert_eq!(files(dir.path()).len(), 2, "the parts are gone");
    drop(index);
    let (index, lsn) = open(dir.path());
    assert_eq!(lsn, Lsn(12));
    assert_eq!(index.len(), 1000);
    // A failed rebuild leaves the index empty, also after a restart.
    let failed = index.rebuild(Lsn(20), |loader| {
        loader.push(b"half")?;
        Err(IndexError::TooLong { len: 0, limit: 0 })
    });
    assert!(failed.is_err());
    assert_eq!(all(&index).expect("all").len(), 0);
    drop(index);
    let (index, lsn) = open(dir.path());
    assert_eq!((index.len(), lsn), (0, Lsn(0)));
}

#[test]
fn long_entries_are_taken_up_to_the_limit() {
    let dir = TempDir::new().expect("dir");
    let (index, _) = open(dir.path());
    let mut longest = vec![b'x'; MAX_ENTRY];
    index
        .apply::<_, &[u8]>(&[&longest, &b"y".to_vec(), &Vec::new()], &[])
        .expect("applied");
    persist(&index, 1);
    assert_eq!(all(&index).expect("all"), [longest.clone(), b"y".to_vec()]);
    longest.push(b'x');
    let refused = index.apply::<_, &[u8]>(&[b"z".to_vec(), longest], &[]);
    assert!(matches!(refused, Err(IndexError::TooLong { .. })));
    assert_eq!(index.len(), 2);
}

#[test]
fn it_asks_to_be_persisted_and_knows_its_size() {
    let dir = TempDir::new().expect("dir");
    let (index, _) = open(dir.path());
    let keys: Vec<String> = (0..1000).map(|i| format!("{i:06}")).collect();
    assert!(!index.wants_persist());
    index.apply::<_, &str>(&keys, &[]).expect("applied");
    assert!(index.wants_persist());
    persist(&index, 1);
    assert!(!index.wants_persist());
    assert_eq!(index.len(), 1000);
    assert!(index.bytes() > 1000);
    all(&index).expect("all");
    assert!(index.memory() < 64 << 10, "{}", index.memory());
    let estimate = |from: &str, to| index.estimate(from.as_bytes(), to);
    assert!((800..=1000).contains(&estimate("", None)));
    assert!((300..=500).contains(&estimate("000200", Some(b"000600"))));
    assert!((1..=20).contains(&estimate("000200", Some(b"000201"))));
    assert!((1..=40).contains(&estimate("000200", Some(b"000220"))));
    assert_eq!(estimate("1", Some(b"0")), 0);
}
