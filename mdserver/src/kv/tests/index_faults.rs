//! Tests of damage to sled's files, at rest and while they are open: it never loses a commit.

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
fn without_sled_no_key_is_lost() {
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

/// A page as sled stores it, with the right checksum.
fn sealed(place: &[u8], page: &[u8]) -> Vec<u8> {
    let crc = crc_fast::crc32_iscsi(page) ^ crc_fast::crc32_iscsi(place).rotate_left(16);
    [page, &crc.to_le_bytes()].concat()
}

/// A row of a page.
fn row(key: &str, value: &str) -> Vec<u8> {
    let lengths = [
        &(key.len() as u16).to_le_bytes()[..],
        &(value.len() as u32).to_le_bytes(),
    ];
    [&lengths.concat(), key.as_bytes(), value.as_bytes()].concat()
}

#[test]
fn wrong_rows_are_corrected() {
    let dir = store(true);
    let pages: Vec<(sled::IVec, sled::IVec)> = {
        let db = sled_in(dir.path());
        let pages: Vec<_> = db.scan_prefix("p").map(Result::unwrap).collect();
        // The first page has the first rows, and the last page everything from its fence on.
        assert!(pages.len() > 10 && pages[0].0 == b"p", "{}", pages.len());
        let (first, second) = (&pages[0], &pages[1]);
        let cut = first.1.len() - 4;
        let mut wrong = row("aaa", "a stranger");
        wrong.extend_from_slice(&first.1[..cut]);
        let mut wrong_value = wrong.clone();
        let at = wrong_value.len() - 1;
        wrong_value[at] ^= 1;
        db.insert(&first.0, sealed(&first.0, &wrong_value)).unwrap();
        // A page of another place, and a missing page.
        db.insert(&pages[3].0, &second.1).unwrap();
        db.remove(&pages[5].0).unwrap();
        pages
    };
    let (kv, recovery) = open(dir.path());
    let rows = |at: usize| {
        let page = &pages[at].1[..pages[at].1.len() - 4];
        let keys = page.windows(4).filter(|word| word == b"key-");
        keys.count() as u64
    };
    // The extra row and the wrong value; all rows of the two pages.
    let right = 2 + rows(3) + rows(5);
    assert_eq!(
        (recovery.repaired, recovery.clean),
        (right, false),
        "{recovery}"
    );
    assert_eq!(all(&kv), model_of(0..400));
    put_all(&kv, 400..420);
    kv.checkpoint().unwrap();
    kv.close().unwrap();
    let (kv, recovery) = open(dir.path());
    assert!(recovery.clean, "{recovery}");
    assert_eq!(all(&kv), model_of(0..420));
}

/// A kill during the split of a page leaves rows in both pages: readers see each row once, and the leftover rows do not
/// reappear when the second page is removed.
#[test]
fn rows_left_by_a_split_are_not_visible() {
    let dir = store(true);
    let (from, to) = {
        let db = sled_in(dir.path());
        let pages: Vec<_> = db.scan_prefix("p").map(Result::unwrap).collect();
        let rows_of = |page: &sled::IVec| page[..page.len() - 4].to_vec();
        // The leftover row has another value than the row in the second page.
        let mut both = rows_of(&pages[2].1);
        let at = both.len() - 1;
        both[at] ^= 1;
        both.splice(0..0, rows_of(&pages[1].1));
        db.insert(&pages[1].0, sealed(&pages[1].0, &both)).unwrap();
        (pages[2].0.clone(), pages[3].0.clone())
    };
    let (kv, recovery) = open(dir.path());
    assert!(recovery.clean, "{recovery}");
    assert_eq!(all(&kv), model_of(0..400));
    kv.close().unwrap();
    {
        // The comparison of the index has removed the leftover rows.
        let db = sled_in(dir.path());
        let (place, page) = db.scan_prefix("p").map(Result::unwrap).nth(1).unwrap();
        assert!(*place < *from);
        let fence = &from[1..];
        assert!(!page.windows(fence.len()).any(|bytes| bytes == fence));
    }
    let (kv, _) = open(dir.path());
    let mut model = model_of(0..400);
    let keys: Vec<_> = model.keys().cloned().collect();
    // Delete all rows of the second page.
    let mut batch = Batch::new();
    for key in keys
        .iter()
        .filter(|key| (&from[1..]..&to[1..]).contains(&&key[..]))
    {
        batch.delete(key.clone());
        model.remove(key);
    }
    assert!(model.len() < 390);
    kv.commit(batch).unwrap();
    kv.checkpoint().unwrap();
    assert_eq!(all(&kv), model);
    for key in &keys {
        assert_eq!(kv.get(key).unwrap(), model.get(key).cloned());
    }
    kv.close().unwrap();
    let (kv, recovery) = open(dir.path());
    assert!(recovery.clean, "{recovery}");
    assert_eq!(all(&kv), model);
}

/// After an accepted loss of commits the index's values are taken, but not from an unreadable page.
#[test]
fn an_unreadable_page_salvages_nothing() {
    salvages_nothing(|db| {
        let (place, page) = db.scan_prefix("p").map(Result::unwrap).nth(3).unwrap();
        let mut page = page.to_vec();
        page[20] ^= 1;
        db.insert(place, page).unwrap();
    });
}

/// The first page is never removed, so if it is missing its rows are unknown.
#[test]
fn a_missing_first_page_salvages_nothing() {
    salvages_nothing(|db| {
        db.remove("p").unwrap().unwrap();
    });
}

fn salvages_nothing(harm: impl Fn(&sled::Db)) {
    let dir = store(true);
    harm(&sled_in(dir.path()));
    let file = last_journal(dir.path());
    let starts = records(&file);
    flip(&file, starts[starts.len() - 3].0 + 50);
    let (kv, _) = LocalKv::open(dir.path(), accepting()).unwrap();
    let recovery = kv.settled().unwrap();
    assert!(recovery.repaired > 10, "{recovery}");
    kv.checkpoint().unwrap();
    kv.close().unwrap();
    let (kv, _) = open(dir.path());
    let there = all(&kv);
    let missing: Vec<_> = model_of(0..400)
        .into_keys()
        .filter(|key| !there.contains_key(key))
        .collect();
    assert_eq!(missing, Vec::<Vec<u8>>::new());
}

/// An index of an older format is rebuilt.
#[test]
fn an_index_of_an_older_format_is_rebuilt() {
    let dir = store(true);
    fs::remove_dir_all(dir.path().join("sled")).unwrap();
    {
        let db = sled_in(dir.path());
        db.insert("", sealed(b"", &400u64.to_le_bytes())).unwrap();
        db.insert("key-0001", sealed(b"key-0001", b"value of 1"))
            .unwrap();
        db.flush().unwrap();
    }
    let (kv, recovery) = open(dir.path());
    assert!(recovery.rebuilt.is_some() && recovery.losses.is_empty());
    assert!(recovery.set_aside.is_none());
    assert_eq!(all(&kv), model_of(0..400));
    kv.close().unwrap();
    assert!(open(dir.path()).1.clean);
}

#[test]
fn a_sled_ahead_of_the_journal_is_reverted() {
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

/// True if a thread is waiting for the lock on `file`.
fn waited_for(file: &fs::File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{} ", file.metadata().unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks
        .lines()
        .any(|lock| lock.contains("-> FLOCK") && lock.contains(&inode))
}

#[test]
fn opening_waits_for_a_lock_held_by_a_thread_of_sled() {
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
