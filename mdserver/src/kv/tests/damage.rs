//! Tests of damage to checkpoint and journal, byte by byte.

use super::*;

/// A store of ten commits without sync, as a kill leaves it.
fn ten() -> TempDir {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    put_all(&kv, 0..10);
    killed(dir.path())
}

fn refused(dir: &Path) -> Vec<Damage> {
    match LocalKv::open(dir, quiet()) {
        Err(KvError::Damaged { damage, .. }) => damage,
        other => panic!("not refused: {:?}", other.map(|(_, recovery)| recovery)),
    }
}

#[test]
fn every_cut_of_the_last_record_leaves_those_before() {
    let source = ten();
    let file = last_journal(source.path());
    let bytes = fs::read(&file).unwrap();
    let (start, last) = *records(&file).last().unwrap();
    assert_eq!(last, Lsn(10));
    for cut in start..bytes.len() {
        fs::write(&file, &bytes[..cut]).unwrap();
        let copy = killed(source.path());
        let (kv, recovery) = open(copy.path());
        assert_eq!(recovery.garbage, (cut - start) as u64);
        assert_eq!(all(&kv), model_of(0..9), "cut at {cut}: {recovery}");
        assert_eq!(put(&kv, "key-0009", "value of 9"), Lsn(10));
        drop(kv);
        let (kv, recovery) = open(copy.path());
        assert!(recovery.clean, "{recovery}");
        assert_eq!(all(&kv), model_of(0..10));
    }
}

#[test]
fn garbage_after_the_last_record_is_cut_off() {
    let source = ten();
    let file = last_journal(source.path());
    let bytes = fs::read(&file).unwrap();
    for garbage in [
        vec![0; 1],
        vec![0; 5000],
        vec![0xa5; 77],
        b"SFRM garbage that begins like a frame does".to_vec(),
    ] {
        fs::write(&file, [&bytes[..], &garbage].concat()).unwrap();
        let copy = killed(source.path());
        let (kv, recovery) = open(copy.path());
        assert_eq!(recovery.garbage, garbage.len() as u64);
        assert!(recovery.to_string().contains("cut off"), "{recovery}");
        assert_eq!(all(&kv), model_of(0..10));
    }
}

#[test]
fn a_flip_anywhere_inside_is_refused_and_named() {
    let source = ten();
    let file = last_journal(source.path());
    let name = PathBuf::from(file.file_name().unwrap());
    let starts = records(&file);
    for at in starts[2].0..starts[3].0 {
        let copy = killed(source.path());
        flip(&copy.path().join(&name), at);
        let damage = refused(copy.path());
        assert_eq!(damage.len(), 1);
        assert_eq!(
            (&damage[0].file, damage[0].offset),
            (&name, starts[2].0 as u64)
        );
        assert_eq!(damage[0].lost, Some((Lsn(3), Lsn(3))));
        let text = LocalKv::open(copy.path(), quiet()).unwrap_err().to_string();
        assert!(
            text.contains(name.to_str().unwrap()) && text.contains("record 3"),
            "{text}"
        );
    }
    let copy = killed(source.path());
    flip(&copy.path().join(&name), starts[3].0 - 3);
    assert_eq!(refused(copy.path())[0].keys, [b"key-0002".to_vec()]);
}

#[test]
fn a_flip_of_any_byte_of_the_journal_never_loses_silently() {
    let source = ten();
    let file = last_journal(source.path());
    let name = file.file_name().unwrap();
    let last = records(&file).last().unwrap().0;
    for at in (0..fs::metadata(&file).unwrap().len() as usize).step_by(3) {
        let copy = killed(source.path());
        flip(&copy.path().join(name), at);
        match LocalKv::open(copy.path(), quiet()) {
            Ok((kv, recovery)) if all(&kv) == model_of(0..10) => {
                assert!(!recovery.healed.is_empty())
            }
            // The header of the last record: its damage cannot be distinguished from garbage.
            Ok((_, recovery)) => assert!(
                at >= last && at < last + 40 && recovery.garbage > 0,
                "byte {at}"
            ),
            Err(KvError::Damaged { .. }) => {}
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
}

#[test]
fn an_accepted_loss_is_listed_and_the_rest_is_there() {
    let source = ten();
    let file = last_journal(source.path());
    let starts = records(&file);
    flip(&file, starts[2].0 + 60);
    flip(&file, starts[5].0 + 2);
    flip(&file, starts[6].0 + 2);
    let (kv, recovery) = LocalKv::open(source.path(), accepting()).unwrap();
    let lost: Vec<_> = recovery
        .losses
        .iter()
        .map(|loss| loss.lost.unwrap())
        .collect();
    assert_eq!(lost, [(Lsn(3), Lsn(3)), (Lsn(6), Lsn(7))]);
    assert!(recovery.to_string().contains("LOST"), "{recovery}");
    let mut model = model_of(0..10);
    model.retain(|key, _| {
        ![2, 5, 6]
            .iter()
            .any(|i| key.ends_with(format!("{i}").as_bytes()))
    });
    assert_eq!(all(&kv), model);
    assert_eq!(put(&kv, "z", "1"), Lsn(12));
    model.insert(b"z".to_vec(), b"1".to_vec());
    let copy = killed(source.path());
    drop(kv);
    for dir in [source.path(), copy.path()] {
        let (kv, recovery) = open(dir);
        assert!(recovery.losses.is_empty(), "{recovery}");
        assert_eq!(all(&kv), model);
    }
    assert!(source.path().join("lost-1").is_dir());
}

#[test]
fn lost_commits_that_the_index_had_applied_are_salvaged() {
    let source = TempDir::new().unwrap();
    let (kv, _) = open(source.path());
    put_all(&kv, 0..10);
    kv.close().unwrap();
    let file = last_journal(source.path());
    flip(&file, records(&file)[4].0 + 50);
    assert_eq!(refused(source.path())[0].lost, Some((Lsn(5), Lsn(5))));
    let (kv, recovery) = LocalKv::open(source.path(), accepting()).unwrap();
    assert_eq!(
        (recovery.salvaged, recovery.losses.len()),
        (1, 1),
        "{recovery}"
    );
    assert_eq!(all(&kv), model_of(0..10));
}

#[test]
fn damage_in_the_last_synced_record_is_refused() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    put_all(&kv, 0..10);
    kv.sync().unwrap();
    let source = killed(dir.path());
    let file = last_journal(source.path());
    let name = file.file_name().unwrap();
    let starts = records(&file);
    for at in starts[9].0..starts[9].0 + 70 {
        let copy = killed(source.path());
        flip(&copy.path().join(name), at);
        assert_eq!(refused(copy.path())[0].lost, Some((Lsn(10), Lsn(10))));
    }
}

#[test]
fn a_complete_record_with_a_wrong_checksum_counts_as_acknowledged() {
    let source = ten();
    let file = last_journal(source.path());
    let len = fs::metadata(&file).unwrap().len() as usize;
    flip(&file, len - 9);
    let damage = refused(source.path());
    assert_eq!(damage[0].lost, Some((Lsn(10), Lsn(10))));
    let (kv, recovery) = LocalKv::open(source.path(), accepting()).unwrap();
    assert_eq!(recovery.losses.len(), 1);
    assert_eq!(all(&kv), model_of(0..9));
    assert_eq!(put(&kv, "key-0009", "value of 9"), Lsn(12));
}

#[test]
fn a_power_loss_ends_the_journal_at_its_first_hole() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    put_all(&kv, 0..5);
    kv.sync().unwrap();
    put_all(&kv, 5..10);
    let source = killed(dir.path());
    let file = last_journal(source.path());
    let name = file.file_name().unwrap();
    let starts = records(&file);
    // An unsynced record is a hole; the records after it are intact.
    let copy = killed(source.path());
    flip(&copy.path().join(name), starts[7].0 + 50);
    refused(copy.path());
    let (kv, recovery) = LocalKv::open_on(copy.path(), quiet(), after_reboot()).unwrap();
    assert_eq!(recovery.unsynced, Some((Lsn(8), Lsn(10))), "{recovery}");
    assert_eq!(all(&kv), model_of(0..7));
    put_all(&kv, 7..9);
    drop(kv);
    let (kv, recovery) = open(copy.path());
    assert_eq!((all(&kv), recovery.losses), (model_of(0..9), vec![]));
    // The last record, unsynced.
    let copy = killed(source.path());
    flip(&copy.path().join(name), starts[9].0 + 50);
    let (kv, recovery) = LocalKv::open_on(copy.path(), quiet(), after_reboot()).unwrap();
    assert_eq!(recovery.unsynced, Some((Lsn(10), Lsn(10))), "{recovery}");
    assert_eq!(all(&kv), model_of(0..9));
    // A synced record.
    let copy = killed(source.path());
    flip(&copy.path().join(name), starts[3].0 + 50);
    assert!(matches!(
        LocalKv::open_on(copy.path(), quiet(), after_reboot()),
        Err(KvError::Damaged { .. })
    ));
}

/// Opened three times, so three journal files; no checkpoint except the empty one.
fn three_files() -> TempDir {
    let dir = TempDir::new().unwrap();
    for session in 0..3 {
        let (kv, _) = open(dir.path());
        put_all(&kv, session * 5..session * 5 + 5);
    }
    dir
}

#[test]
fn an_older_file_damaged_or_missing_is_refused() {
    let source = three_files();
    let files = journals(source.path());
    assert_eq!(files.len(), 3);
    let lost = [(1, 5), (6, 10), (11, 15)];
    for (file, (first, last)) in files.iter().zip(lost) {
        let copy = killed(source.path());
        fs::remove_file(copy.path().join(file.file_name().unwrap())).unwrap();
        let damage = refused(copy.path());
        assert_eq!(damage[0].file, PathBuf::from(file.file_name().unwrap()));
        if last < 15 {
            assert_eq!(damage[0].lost, Some((Lsn(first), Lsn(last))));
        }
        let (kv, recovery) = LocalKv::open(copy.path(), accepting()).unwrap();
        assert_eq!(recovery.losses.len(), 1);
        // The index had applied all of it.
        assert_eq!(all(&kv), model_of(0..15), "{recovery}");
        let len = fs::metadata(file).unwrap().len() as usize;
        for cut in (0..len).step_by(7) {
            let copy = killed(source.path());
            let path = copy.path().join(file.file_name().unwrap());
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..cut]).unwrap();
            match LocalKv::open(copy.path(), quiet()) {
                Err(KvError::Damaged { .. }) => {}
                Ok((kv, recovery)) => {
                    let rest = all(&kv);
                    let complete = rest == model_of(0..15);
                    assert!(
                        complete || (last == 15 && cut > 80),
                        "{} cut at {cut}: {recovery}",
                        file.display()
                    );
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[test]
fn a_damaged_checkpoint_costs_nothing_while_the_one_before_is_good() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path());
    put_all(&kv, 0..40);
    kv.checkpoint().unwrap();
    put_all(&kv, 40..80);
    kv.checkpoint().unwrap();
    put_all(&kv, 80..100);
    let source = killed(dir.path());
    let newest = super::super::disk::checkpoint_name(80);
    let len = fs::metadata(source.path().join(&newest)).unwrap().len() as usize;
    for at in (0..len).step_by(13) {
        let copy = killed(source.path());
        flip(&copy.path().join(&newest), at);
        if at % 2 == 0 {
            fs::remove_dir_all(copy.path().join("sled")).unwrap();
        }
        let (kv, recovery) = open(copy.path());
        assert_eq!(
            (recovery.checkpoint, recovery.healed.len()),
            (Lsn(40), 1),
            "byte {at}: {recovery}"
        );
        assert_eq!(all(&kv), model_of(0..100));
    }
    for cut in [0, 10, 63, 64, 80, 500, len - 1] {
        let copy = killed(source.path());
        let path = copy.path().join(&newest);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..cut]).unwrap();
        assert_eq!(all(&open(copy.path()).0), model_of(0..100));
    }
}

#[test]
fn without_any_good_checkpoint_the_store_is_refused() {
    let dir = TempDir::new().unwrap();
    for session in 0..3 {
        let (kv, _) = open(dir.path());
        put_all(&kv, session * 30..session * 30 + 30);
        kv.checkpoint().unwrap();
    }
    put_all(&open(dir.path()).0, 90..100);
    for lsn in numbered(dir.path(), "checkpoint").unwrap() {
        flip(
            &dir.path().join(super::super::disk::checkpoint_name(lsn)),
            200,
        );
    }
    let damage = refused(dir.path());
    assert!(damage[0].lost == Some((Lsn(1), Lsn(90))), "{damage:?}");
    // The index still has everything.
    let copy = killed(dir.path());
    let (kv, recovery) = LocalKv::open(copy.path(), accepting()).unwrap();
    assert_eq!(all(&kv), model_of(0..100), "{recovery}");
    drop(kv);
    assert_eq!(all(&open(copy.path()).0), model_of(0..100));
    // Checkpoints and journal are removed; only the index remains.
    for file in fs::read_dir(dir.path()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            fs::remove_file(path).unwrap();
        }
    }
    refused(dir.path());
    let (kv, recovery) = LocalKv::open(dir.path(), accepting()).unwrap();
    assert_eq!(all(&kv), model_of(0..100), "{recovery}");
    assert_eq!(put(&kv, "z", ""), Lsn(102));
}

#[test]
fn files_of_another_store_are_not_taken() {
    let (one, two) = (three_files(), three_files());
    let file = journals(one.path())[1].clone();
    fs::copy(&file, two.path().join(file.file_name().unwrap())).unwrap();
    let damage = refused(two.path());
    assert!(damage[0].detail.contains("another"), "{damage:?}");
}

#[test]
fn good_blocks_of_a_damaged_checkpoint_are_taken() {
    let dir = TempDir::new().unwrap();
    let mut model = Model::new();
    for session in 0..3u8 {
        let (kv, _) = open(dir.path());
        for i in 0..60u8 {
            let (key, value) = (vec![b'k', session, i], vec![i; 4000]);
            let mut batch = Batch::new();
            batch.put(key.clone(), value.clone());
            model.insert(key, value);
            kv.commit(batch).unwrap();
        }
        kv.checkpoint().unwrap();
    }
    put(&open(dir.path()).0, "later", "1");
    model.insert(b"later".to_vec(), b"1".to_vec());
    for lsn in numbered(dir.path(), "checkpoint").unwrap() {
        flip(
            &dir.path().join(super::super::disk::checkpoint_name(lsn)),
            200_000,
        );
    }
    refused(dir.path());
    let with_index = killed(dir.path());
    let (kv, recovery) = LocalKv::open(with_index.path(), accepting()).unwrap();
    assert_eq!(all(&kv), model, "{recovery}");
    fs::remove_dir_all(dir.path().join("sled")).unwrap();
    let (kv, recovery) = LocalKv::open(dir.path(), accepting()).unwrap();
    let rest = all(&kv);
    let gone = model.len() - rest.len();
    assert!((3..30).contains(&gone), "{gone} gone: {recovery}");
    assert!(
        rest.iter()
            .all(|(key, value)| model.get(key) == Some(value))
    );
    assert_eq!(recovery.losses.len(), 1);
    let first = model
        .keys()
        .position(|key| !rest.contains_key(key))
        .unwrap();
    let behind = model
        .keys()
        .nth(first - 1)
        .unwrap()
        .escape_ascii()
        .to_string();
    assert!(
        recovery.losses[0]
            .detail
            .contains(&format!("behind key {behind} ")),
        "{recovery}"
    );
    drop(kv);
    let (kv, recovery) = open(dir.path());
    assert!(recovery.losses.is_empty());
    assert_eq!(all(&kv), rest);
}
