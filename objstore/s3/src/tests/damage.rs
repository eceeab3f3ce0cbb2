//! Writes and starts that fail, kills within a write, and damage of what is in the cache.

use super::*;

/// A grid chunk of eight blocks that is stored, and in no cache.
fn stored_blocks(dir: &Path) -> (ChunkForm, Vec<u8>) {
    let form = conformance::form(&[8 * BLOCK], 1, Codec::None, &[]);
    let bytes: Vec<u8> = (0..8 * BLOCK).map(|at| (at % 249) as u8 | 1).collect();
    let store = open(dir, "first", 1 << 30);
    store
        .write(&grid(0), &form, &all(8 * BLOCK), &[IoSlice::new(&bytes)])
        .unwrap();
    store.sync(&[grid(0)]).unwrap();
    store.close().unwrap();
    (form, bytes)
}

fn block_of(number: u64) -> Hyperslab {
    Hyperslab::from_region(&Region::new(&[number * BLOCK], &[BLOCK]))
}

fn touch(blocks: impl IntoIterator<Item = u64>) -> Touch {
    let may: std::collections::BTreeSet<u64> = blocks.into_iter().collect();
    Touch {
        needed: Default::default(),
        end: may.last().map_or(0, |last| (last + 1) * BLOCK),
        may,
    }
}

/// A write that fails, of blocks that are not in the cache, leaves those in the bucket as they are.
#[test]
fn a_write_that_fails_spoils_no_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let (form, bytes) = stored_blocks(dir.path());
    let store = open(dir.path(), "a", 1 << 30);
    let (here, new) = (block_of(1), vec![7; BLOCK as usize]);
    let mut out = vec![0; BLOCK as usize];
    store.read(&grid(0), &form, &here, &mut out).unwrap();
    let failed = store.change(&grid(0), &form, touch([1, 2, 3]), || {
        // It gets as far as the second block.
        for block in [1, 2] {
            let slab = block_of(block);
            store
                .local
                .write(&grid(0), &form, &slab, &[IoSlice::new(&new)])
                .unwrap();
        }
        ([1, 2, 3].into(), Err(StoreError::NoSpace))
    });
    assert!(matches!(failed, Err(StoreError::NoSpace)));
    store.sync(&[grid(0)]).unwrap();
    let check = |store: &S3Store| {
        let mut out = vec![0; 8 * BLOCK as usize];
        store
            .read(&grid(0), &form, &all(8 * BLOCK), &mut out)
            .unwrap();
        assert!(out == bytes);
    };
    check(&store);
    drop(store);
    check(&open(dir.path(), "b", 1 << 30));
}

/// Copies the directory of a store as a process that is killed now leaves it.
fn killed(dir: &Path, from: &str, to: &str) {
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([dir.join(from), dir.join(to)])
        .status();
    assert!(copied.unwrap().success());
}

/// A process is killed between the record of a change and the change.
#[test]
fn a_kill_within_a_write_spoils_no_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let (form, bytes) = stored_blocks(dir.path());
    let store = open(dir.path(), "a", 1 << 30);
    let mut out = vec![0; 8 * BLOCK as usize];
    store
        .read(&grid(0), &form, &block_of(5), &mut out[..BLOCK as usize])
        .unwrap();
    let new = vec![7; BLOCK as usize];
    let half = Hyperslab::from_region(&Region::new(&[5 * BLOCK], &[BLOCK / 2]));
    let done = store.change(&grid(0), &form, touch([4, 5]), || {
        let part = IoSlice::new(&new[..BLOCK as usize / 2]);
        store.local.write(&grid(0), &form, &half, &[part]).unwrap();
        killed(dir.path(), "a", "b");
        store
            .local
            .write(&grid(0), &form, &block_of(5), &[IoSlice::new(&new)])
            .unwrap();
        ([5].into(), Ok(()))
    });
    done.unwrap();
    killed(dir.path(), "a", "c");
    drop(store);
    let store = open(dir.path(), "b", 1 << 30);
    store
        .read(&grid(0), &form, &all(8 * BLOCK), &mut out)
        .unwrap();
    assert!(out == bytes);
    drop(store);
    // What was acknowledged is there: the bucket is as the first one has left it.
    let store = open(dir.path(), "d", 1 << 30);
    store
        .read(&grid(0), &form, &all(8 * BLOCK), &mut out)
        .unwrap();
    assert!(out == bytes);
}

/// After a restart of the machine only synced blocks count, also of a chunk that has others.
#[test]
fn what_was_not_synced_spoils_nothing_after_a_restart_of_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let (form, mut bytes) = stored_blocks(dir.path());
    let options = || S3Options {
        durability: Durability::Local,
        ..S3Options::default()
    };
    let place = dir.path().join("a");
    let open = || {
        let bucket = bucket(&dir.path().join("bucket"));
        S3Store::open(&place, bucket, Some("one"), options()).unwrap()
    };
    let store = open();
    let write = |store: &S3Store, name: &ChunkName, block: u64, byte: u8| {
        let new = vec![byte; BLOCK as usize];
        store
            .write(name, &form, &block_of(block), &[IoSlice::new(&new)])
            .unwrap();
    };
    write(&store, &grid(0), 2, 9);
    store.sync(&[grid(0)]).unwrap();
    write(&store, &grid(0), 5, 7);
    write(&store, &grid(1), 0, 8);
    // It syncs the journal.
    store.sync(&[grid(1)]).unwrap();
    // The bytes of block 5 were in memory alone.
    store.local.punch(&grid(0), &form, &block_of(5)).unwrap();
    drop(store);
    crate::journal::tests::with_another_boot(&place.join("journal"));
    let store = open();
    bytes[2 * BLOCK as usize..3 * BLOCK as usize].fill(9);
    let mut out = vec![0; 8 * BLOCK as usize];
    store
        .read(&grid(0), &form, &all(8 * BLOCK), &mut out)
        .unwrap();
    assert!(out == bytes);
    store
        .read(&grid(1), &form, &block_of(0), &mut out[..BLOCK as usize])
        .unwrap();
    assert!(out[..BLOCK as usize].iter().all(|&byte| byte == 8));
}

/// A start that fails after it has created its segment does not make the cache one of another process.
#[test]
fn a_start_that_fails_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let form = conformance::form(&[1000], 1, Codec::None, &[]);
    let store = open(dir.path(), "a", 1 << 30);
    store
        .put(&free(1), &form, &[IoSlice::new(&[5; 1000])])
        .unwrap();
    drop(store);
    for _ in 0..2 {
        // As far as a process comes before it asks the bucket how the one before has ended.
        let mut left = open_without_taking_over(dir.path());
        let number = left.state.get_mut().index.next;
        let bytes = Draft::default().finish(number, left.writer).unwrap();
        left.journal.announce(left.writer).unwrap();
        let made = left.bucket.create(&left.segment_key(number), bytes.into());
        assert_eq!(made.unwrap(), Made::Created);
    }
    let store = open(dir.path(), "a", 1 << 30);
    let mut out = vec![0; 1000];
    store.read(&free(1), &form, &all(1000), &mut out).unwrap();
    assert_eq!(out, [5; 1000]);
}

/// Another process that has not got as far as to have the identity.
fn open_without_taking_over(dir: &Path) -> S3Store {
    let next = std::fs::read_dir(dir.join("bucket/p/one/segments"))
        .unwrap()
        .count() as u64;
    let mut store = open(&dir.join("elsewhere"), "x", 1 << 20);
    store.journal = crate::journal::Journal::of(&dir.join("a"));
    store.bucket = bucket(&dir.join("bucket"));
    store.state.get_mut().index.next = next;
    store.writer = rand_writer(next);
    store
}

fn rand_writer(number: u64) -> [u8; 16] {
    std::array::from_fn(|i| (number as u8).wrapping_mul(31).wrapping_add(i as u8 + 1))
}

/// A directory is the cache of one identity of one bucket.
#[test]
fn a_cache_of_another_bucket_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let form = conformance::form(&[1000], 1, Codec::None, &[]);
    let store = open(dir.path(), "a", 1 << 30);
    store
        .put(&free(1), &form, &[IoSlice::new(&[5; 1000])])
        .unwrap();
    drop(store);
    let wrong = S3Store::open(
        &dir.path().join("a"),
        bucket(&dir.path().join("typo")),
        None,
        S3Options::default(),
    );
    let error = wrong.unwrap_err().to_string();
    assert!(error.contains("another bucket"), "{error}");
    let made = std::fs::read_dir(dir.path().join("typo")).unwrap().count();
    assert_eq!(made, 0, "nothing is created there");
    let store = open(dir.path(), "a", 1 << 30);
    let mut out = vec![0; 1000];
    store.read(&free(1), &form, &all(1000), &mut out).unwrap();
}

/// A journal with damage inside is not used; where what was synced may be there alone, the start is refused.
#[test]
fn a_damaged_journal_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let form = conformance::form(&[1000], 1, Codec::None, &[]);
    let store = open(dir.path(), "a", 1 << 30);
    let verifier = store.verifier();
    for id in 1..4 {
        store
            .put(&free(id), &form, &[IoSlice::new(&[5; 1000])])
            .unwrap();
    }
    drop(store);
    let journal = dir.path().join("a/journal");
    let mut bytes = std::fs::read(&journal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&journal, bytes).unwrap();
    let local = S3Options {
        durability: Durability::Local,
        ..S3Options::default()
    };
    let bucket = bucket(&dir.path().join("bucket"));
    let refused = S3Store::open(&dir.path().join("a"), bucket, Some("one"), local);
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("damaged at byte"), "{error}");
    // What was not synced is lost, and the verifier says so.
    let store = open(dir.path(), "a", 1 << 30);
    assert_ne!(store.verifier(), verifier);
}

/// Damage on the disk of the cache is not damage in the bucket.
#[test]
fn damage_of_the_cache_is_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let (form, mut bytes) = stored_blocks(dir.path());
    let small = conformance::form(&[1000], 1, Codec::None, &[]);
    let store = open(dir.path(), "a", 1 << 30);
    store
        .put(&free(1), &small, &[IoSlice::new(&[5; 1000])])
        .unwrap();
    store.sync(&[free(1)]).unwrap();
    let mut out = vec![0; 8 * BLOCK as usize];
    store
        .read(&grid(0), &form, &all(8 * BLOCK), &mut out)
        .unwrap();
    let damage = |byte: u8| {
        let mut flipped = 0;
        for file in files_below(&dir.path().join("a/cache")) {
            let mut content = std::fs::read(&file).unwrap();
            let same = content
                .windows(200)
                .position(|part| part == &bytes[3_000_000..3_000_200]);
            if let Some(at) = same {
                content[at + 100] ^= byte;
                std::fs::write(&file, content).unwrap();
                flipped += 1;
            }
        }
        assert_eq!(flipped, 1);
    };
    damage(1);
    drop(store);
    // Reads fetch it again; so does an upload of the block.
    let store = open(dir.path(), "a", 1 << 30);
    store
        .read(&grid(0), &form, &all(8 * BLOCK), &mut out)
        .unwrap();
    assert!(out == bytes);
    damage(2);
    drop(store);
    let store = open(dir.path(), "a", 1 << 30);
    let far = Hyperslab::from_region(&Region::new(&[2 * BLOCK + 10], &[10]));
    store
        .write(&grid(0), &form, &far, &[IoSlice::new(&[0; 10])])
        .unwrap();
    bytes[2 * BLOCK as usize + 10..2 * BLOCK as usize + 20].fill(0);
    store.sync(&[grid(0)]).unwrap();
    drop(store);
    let store = open(dir.path(), "b", 1 << 30);
    store
        .read(&grid(0), &form, &all(8 * BLOCK), &mut out)
        .unwrap();
    assert!(out == bytes);
}

fn files_below(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push(path),
        }
    }
    files
}
