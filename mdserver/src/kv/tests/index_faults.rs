//! Damage to sled's files, at rest and while it is open: never a loss.

use super::*;

/// Something done to a file.
type Harm = Box<dyn Fn(&Path)>;

fn sled_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.join("sled")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path)
            } else {
                files.push(path)
            }
        }
    }
    files.sort();
    files
}

/// 300 commits and a checkpoint, and 100 commits more: in the index, or only in the journal.
fn store(closed: bool) -> TempDir {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    put_all(&kv, 0..300);
    kv.checkpoint().unwrap();
    put_all(&kv, 300..400);
    if closed {
        kv.close().unwrap();
        return dir;
    }
    killed(dir.path())
}

#[test]
fn without_sled_everything_is_there() {
    for closed in [true, false] {
        let dir = store(closed);
        fs::remove_dir_all(dir.path().join("sled")).unwrap();
        let (kv, recovery) = open(dir.path());
        assert!(recovery.rebuilt.is_some() && !recovery.clean, "{recovery}");
        assert_eq!(all(&kv), model_of(0..400));
        drop(kv);
        let (kv, recovery) = open(dir.path());
        assert!(recovery.clean, "{recovery}");
        assert_eq!(all(&kv), model_of(0..400));
    }
}

#[test]
fn any_sled_file_gone_cut_or_flipped_loses_nothing() {
    for closed in [true, false] {
        let source = store(closed);
        for file in sled_files(source.path()) {
            let inside = file.strip_prefix(source.path()).unwrap();
            let len = fs::metadata(&file).unwrap().len() as usize;
            let mut cases: Vec<(String, Harm)> = vec![(
                "gone".into(),
                Box::new(|path: &Path| fs::remove_file(path).unwrap()),
            )];
            for part in [
                0,
                1,
                7,
                len / 3,
                len / 2,
                len - len / 16,
                len.saturating_sub(1),
            ] {
                let cut = move |path: &Path| {
                    let bytes = fs::read(path).unwrap();
                    fs::write(path, &bytes[..part.min(bytes.len())]).unwrap();
                };
                cases.push((format!("cut at {part}"), Box::new(cut)));
            }
            let used = fs::read(&file)
                .unwrap()
                .iter()
                .rposition(|&byte| byte != 0)
                .unwrap_or(0)
                + 1;
            for step in 0..24usize.min(used) {
                let at = step * used / 24usize.min(used);
                cases.push((
                    format!("flipped at {at}"),
                    Box::new(move |path: &Path| flip(path, at)),
                ));
            }
            let zero = move |path: &Path| {
                let mut bytes = fs::read(path).unwrap();
                bytes[used / 2..used].fill(0);
                fs::write(path, bytes).unwrap();
            };
            cases.push(("half zeroed".into(), Box::new(zero)));
            for (name, damage) in cases {
                let copy = killed(source.path());
                damage(&copy.path().join(inside));
                let (kv, recovery) = open(copy.path());
                assert_eq!(
                    all(&kv),
                    model_of(0..400),
                    "{} {name}: {recovery}",
                    inside.display()
                );
                assert!(recovery.losses.is_empty());
                put_all(&kv, 400..410);
                drop(kv);
                assert_eq!(
                    all(&open(copy.path()).0),
                    model_of(0..410),
                    "{} {name}",
                    inside.display()
                );
            }
        }
    }
}

#[test]
fn wrong_entries_are_set_right() {
    let dir = store(true);
    {
        let db = sled::open(dir.path().join("sled")).unwrap();
        db.insert("key-0007", "wrong, and without checksum")
            .unwrap();
        db.remove("key-0100").unwrap();
        db.remove("key-0399").unwrap();
        let other = db.get("key-0200").unwrap().unwrap();
        db.insert("key-0201", other).unwrap();
        db.insert("stranger", "1").unwrap();
    }
    let (kv, recovery) = open(dir.path());
    assert_eq!(
        (recovery.repaired, recovery.clean),
        (5, false),
        "{recovery}"
    );
    assert_eq!(all(&kv), model_of(0..400));
}

#[test]
fn a_sled_ahead_of_the_journal_goes_back() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    put_all(&kv, 0..10);
    let old = killed(dir.path());
    put_all(&kv, 10..20);
    kv.close().unwrap();
    fs::remove_dir_all(old.path().join("sled")).unwrap();
    copy_tree(&dir.path().join("sled"), &old.path().join("sled"));
    let (kv, recovery) = open(old.path());
    assert_eq!(
        (recovery.last, recovery.repaired),
        (Lsn(10), 10),
        "{recovery}"
    );
    assert_eq!(all(&kv), model_of(0..10));
}

#[test]
fn an_index_that_fails_in_use_is_repaired_in_use() {
    let dir = store(true);
    let (kv, _) = open(dir.path());
    kv.engine().spoil_index("key-0005");
    assert_eq!(kv.get(b"key-0005").unwrap(), Some(b"value of 5".to_vec()));
    kv.engine().spoil_index("key-0006");
    put_all(&kv, 400..420);
    assert_eq!(all(&kv), model_of(0..420));
    kv.engine().spoil_index("key-0008");
    kv.checkpoint().unwrap_err();
    assert_eq!(all(&kv), model_of(0..420));
    kv.checkpoint().unwrap();
    assert_eq!(put(&kv, "key-0420", "value of 420"), Lsn(421));
    let copy = killed(dir.path());
    assert_eq!(all(&open(copy.path()).0), model_of(0..421));
}

/// Somebody lies waiting for the lock of `file`.
fn waited_for(file: &fs::File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{} ", file.metadata().unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks
        .lines()
        .any(|lock| lock.contains("-> FLOCK") && lock.contains(&inode))
}

#[test]
fn a_lock_that_a_thread_of_sled_keeps_for_a_while_is_waited_for() {
    use nix::fcntl::{Flock, FlockArg};
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    put_all(&kv, 0..10);
    kv.close().unwrap();
    drop(kv);
    let log = fs::File::open(dir.path().join("sled/db")).unwrap();
    let held = Flock::lock(log, FlockArg::LockExclusive).unwrap();
    let (kv, recovery) = std::thread::scope(|scope| {
        let opening = scope.spawn(|| open(dir.path()));
        while !opening.is_finished() && !waited_for(&held) {
            std::thread::yield_now();
        }
        drop(held);
        opening.join().unwrap()
    });
    assert!(recovery.clean, "{recovery}");
    assert_eq!(all(&kv), model_of(0..10));
}
