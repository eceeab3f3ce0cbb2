//! Tests of opening and closing an undamaged store.

use super::*;

#[test]
fn commits_survive_a_restart() {
    let dir = TempDir::new().unwrap();
    let (kv, recovery) = open(dir.path());
    assert!(recovery.created);
    put_all(&kv, 0..100);
    kv.close().unwrap();
    for round in 0..4 {
        let (kv, recovery) = open(dir.path());
        assert!(recovery.clean, "{recovery}");
        assert_eq!(
            (recovery.last, recovery.repaired, recovery.rebuilt.clone()),
            (Lsn(100 + round), 0, None)
        );
        assert_eq!(all(&kv), model_of(0..100));
        assert_eq!(put(&kv, "key-0000", "value of 0"), Lsn(101 + round));
    }
}

#[test]
fn a_kill_loses_no_commit() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    put_all(&kv, 0..100);
    let copy = killed(dir.path());
    let (kv, recovery) = open(copy.path());
    assert!(
        !recovery.clean && recovery.garbage == 0 && recovery.replayed == 100,
        "{recovery}"
    );
    assert_eq!(all(&kv), model_of(0..100));
    assert_eq!(kv.synced(), Lsn(100));
}

#[test]
fn a_second_opener_gets_a_locked_error() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    let error = LocalKv::open(dir.path(), quiet()).unwrap_err();
    assert!(matches!(error, KvError::Locked { .. }));
    let text = error.to_string();
    assert!(
        text.contains(dir.path().to_str().unwrap()) && text.contains("another process"),
        "{text}"
    );
    kv.close().unwrap();
    open(dir.path());
}

#[test]
fn checkpoints_bound_the_journal() {
    let dir = TempDir::new().unwrap();
    let limit = 256 << 10;
    let options = KvOptions {
        journal_limit: limit,
        ..quiet()
    };
    let (kv, _) = LocalKv::open(dir.path(), options.clone()).unwrap();
    let mut batch = Batch::new();
    batch.put("key", vec![1; 8 << 10]);
    for _ in 0..400 {
        kv.commit(batch.clone()).unwrap();
    }
    put_all(&kv, 0..10);
    kv.checkpoint().unwrap();
    kv.commit(batch.clone()).unwrap();
    kv.checkpoint().unwrap();
    let bytes: u64 = journals(dir.path())
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    assert!(bytes <= 2 * limit, "{bytes} bytes of journal");
    assert_eq!(numbered(dir.path(), "checkpoint").unwrap(), [410, 411]);
    assert!(journals(dir.path()).len() < 20);
    let copy = killed(dir.path());
    let (kv, recovery) = LocalKv::open(copy.path(), options).unwrap();
    assert_eq!((recovery.checkpoint, recovery.last), (Lsn(411), Lsn(411)));
    assert_eq!(all(&kv).len(), 11);
}

#[test]
fn the_journal_spans_many_files() {
    let dir = TempDir::new().unwrap();
    let options = KvOptions {
        // Files of 5 KiB, and no checkpoint: it would remove files while they are copied.
        journal_limit: 40 << 10,
        ..quiet()
    };
    let (kv, _) = LocalKv::open(dir.path(), options).unwrap();
    for i in 0..450 {
        put_all(&kv, i..i + 1);
        while kv.engine().spare_is_coming() {
            std::thread::yield_now();
        }
    }
    assert!(journals(dir.path()).len() > 5);
    let copy = killed(dir.path());
    let (kv, recovery) = open(copy.path());
    assert_eq!(all(&kv), model_of(0..450), "{recovery}");
}

#[test]
fn the_sync_interval_syncs() {
    let dir = TempDir::new().unwrap();
    let options = KvOptions {
        sync_interval: Duration::from_millis(20),
        ..quiet()
    };
    let (kv, _) = LocalKv::open(dir.path(), options).unwrap();
    let lsn = put(&kv, "a", "1");
    let start = std::time::Instant::now();
    while kv.synced() < lsn {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::yield_now();
    }
}

#[test]
fn a_store_that_was_being_created_is_created() {
    let dir = TempDir::new().unwrap();
    drop(open(dir.path()));
    for checkpoint in numbered(dir.path(), "checkpoint").unwrap() {
        fs::remove_file(
            dir.path()
                .join(super::super::disk::checkpoint_name(checkpoint)),
        )
        .unwrap();
    }
    fs::remove_dir_all(dir.path().join("sled")).unwrap();
    let file = &journals(dir.path())[0];
    for len in [0, 30, 80] {
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..len]).unwrap();
        let copy = killed(dir.path());
        let (kv, recovery) = open(copy.path());
        assert_eq!(recovery.losses, [], "{len}: {recovery}");
        put_all(&kv, 0..3);
        drop(kv);
        assert_eq!(all(&open(copy.path()).0), model_of(0..3));
        fs::write(file, &bytes).unwrap();
    }
}

#[test]
fn restarts_use_the_empty_journal_file_again() {
    let dir = TempDir::new().unwrap();
    put_all(&open(dir.path()).0, 0..5);
    for _ in 0..5 {
        let (kv, _) = open(dir.path());
        drop(killed(dir.path()));
        assert_eq!(all(&kv), model_of(0..5));
    }
    let before = journals(dir.path()).len();
    let copy = killed(dir.path());
    for _ in 0..5 {
        let (kv, _) = open(copy.path());
        let next = killed(copy.path());
        drop(kv);
        assert_eq!(all(&open(next.path()).0), model_of(0..5));
    }
    assert!(journals(copy.path()).len() <= before + 5);
}

#[test]
fn commits_wait_rather_than_let_the_journal_grow() {
    let dir = TempDir::new().unwrap();
    let limit = 64 << 10;
    let options = KvOptions {
        journal_limit: limit,
        ..quiet()
    };
    let (kv, _) = LocalKv::open(dir.path(), options).unwrap();
    let largest = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (kv, largest, dir) = (&kv, &largest, dir.path());
            scope.spawn(move || {
                for i in 0..500 {
                    let mut batch = Batch::new();
                    batch.put(format!("{writer}-{}", i % 10), vec![1; 1000]);
                    kv.commit(batch).unwrap();
                    if i % 20 == 0 {
                        let sizes = journals(dir)
                            .into_iter()
                            .filter_map(|path| Some(fs::metadata(path).ok()?.len()));
                        largest.fetch_max(sizes.sum(), std::sync::atomic::Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let largest = largest.into_inner();
    assert!(largest < 10 * limit, "{largest} bytes of journal");
    assert_eq!(all(&kv).len(), 40);
}

#[test]
fn changed_since_returns_the_changed_keys() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    put(&kv, "x1", "1");
    kv.checkpoint().unwrap();
    put(&kv, "x2", "2");
    put(&kv, "y", "3");
    let mut batch = Batch::new();
    batch.delete("x1");
    assert_eq!(kv.commit(batch).unwrap(), Lsn(4));
    for dir in [killed(dir.path()).path(), dir.path()] {
        kv.close().unwrap();
        let (kv, _) = open(dir);
        put(&kv, "x3", "after the start");
        let changed = |after| kv.changed_since(b'x', Lsn(after));
        assert_eq!(changed(0), None);
        assert_eq!(changed(1), Some(vec![b"x1".to_vec(), b"x2".to_vec()]));
        assert_eq!(changed(2), Some(vec![b"x1".to_vec()]));
        assert_eq!(changed(4), Some(vec![]));
        kv.forget_changes();
        assert_eq!(changed(4), None);
    }
}

#[test]
fn the_hook_runs_before_each_checkpoint() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let (calls, path) = (seen.clone(), dir.path().to_owned());
    kv.before_checkpoint(Box::new(move |lsn| {
        calls
            .lock()
            .push((lsn, numbered(&path, "checkpoint").unwrap()));
    }));
    put_all(&kv, 0..5);
    kv.checkpoint().unwrap();
    put_all(&kv, 5..7);
    kv.checkpoint().unwrap();
    let expected = vec![(Lsn(5), vec![0]), (Lsn(7), vec![0, 5])];
    assert_eq!(*seen.lock(), expected);
}

/// Sets the format version of a file and recomputes the header's checksum.
fn set_version(path: &Path, version: u32, header: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let crc = crc_fast::crc32_iscsi(&bytes[..header - 4]);
    bytes[header - 4..header].copy_from_slice(&crc.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn files_of_another_version_are_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    put_all(&kv, 0..5);
    kv.checkpoint().unwrap();
    put_all(&kv, 5..9);
    drop(kv);
    let checkpoint = dir.path().join(super::super::disk::checkpoint_name(5));
    for (path, header) in [(last_journal(dir.path()), 80), (checkpoint, 64)] {
        for version in [0, 2, u32::MAX] {
            let copy = killed(dir.path());
            let path = copy.path().join(path.file_name().unwrap());
            set_version(&path, version, header);
            let bytes = fs::read(&path).unwrap();
            for options in [quiet(), accepting()] {
                let text = LocalKv::open(copy.path(), options).unwrap_err().to_string();
                let name = path.file_name().unwrap().to_str().unwrap();
                for words in [
                    name,
                    &format!("version {version};"),
                    "start the slabfs that wrote it",
                ] {
                    assert!(text.contains(words), "{text}");
                }
            }
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
    }
    assert_eq!(all(&open(dir.path()).0), model_of(0..9));
}
