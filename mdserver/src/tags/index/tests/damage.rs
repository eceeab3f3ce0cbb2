//! Writes cut off at every byte, and flipped bits: the state before, the state after, or an error that asks for a
//! rebuild; never other entries.

use super::*;

/// An index of two runs; returns its content.
fn two_runs(dir: &Path) -> Model {
    let (index, _) = open(dir);
    let keys: Vec<String> = (0..90).map(|i| format!("tag/{:03}", i * 3)).collect();
    index.apply::<_, &str>(&keys, &[]).expect("applied");
    persist(&index, 1);
    index
        .apply(&["tag/001", "tag/zzz"], &["tag/003", "tag/060"])
        .expect("applied");
    persist(&index, 2);
    all(&index).expect("all").into_iter().collect()
}

fn copy(from: &Path) -> TempDir {
    let to = TempDir::new().expect("dir");
    for name in files(from) {
        fs::copy(from.join(&name), to.path().join(&name)).expect("copied");
    }
    to
}

fn try_all(dir: &Path) -> Result<(Lsn, Vec<Vec<u8>>), IndexError> {
    let (index, lsn) = Index::open(dir, small())?;
    Ok((lsn, all(&index)?))
}

#[test]
fn a_persist_that_is_cut_off_anywhere_leaves_the_state_before() {
    let dir = TempDir::new().expect("dir");
    let model = two_runs(dir.path());
    let before = copy(dir.path());
    let (index, _) = open(dir.path());
    add(&index, &["tag/more", "tag/still more"]);
    persist(&index, 3);
    while index.merge().expect("merged") {}
    let new = files(dir.path());
    assert_ne!(new, files(before.path()));
    let written = |name: &str| {
        let bytes = fs::read(dir.path().join(name)).expect("file");
        let cuts = (0..=bytes.len())
            .map(|cut| bytes[..cut].to_vec())
            .collect::<Vec<_>>();
        let name = if name == "current" {
            "current.tmp"
        } else {
            name
        };
        (name.to_owned(), cuts)
    };
    let old = files(before.path());
    let is_written = |name: &&String| *name == "current" || !old.contains(name);
    for (name, cuts) in new.iter().filter(is_written).map(|name| written(name)) {
        for cut in cuts {
            let path = before.path().join(&name);
            fs::write(&path, &cut).expect("cut");
            let found = try_all(before.path()).expect("the state before");
            assert_eq!(
                found,
                (Lsn(2), in_order(&model)),
                "{name} cut at {}",
                cut.len()
            );
            assert!(!path.exists(), "leftovers are removed");
        }
    }
    // The new manifest is written and old runs are not yet removed.
    let after = copy(dir.path());
    for name in files(before.path())
        .iter()
        .filter(|name| *name != "current")
    {
        fs::copy(before.path().join(name), after.path().join(name)).expect("copied");
    }
    let (lsn, found) = try_all(after.path()).expect("the state after");
    assert_eq!((lsn, found.len()), (Lsn(3), model.len() + 2));
    assert_eq!(files(after.path()), new);
}

#[test]
fn a_shortened_or_missing_file_is_an_error() {
    let dir = TempDir::new().expect("dir");
    let model = two_runs(dir.path());
    for name in files(dir.path()) {
        let bytes = fs::read(dir.path().join(&name)).expect("file");
        for cut in 0..bytes.len() {
            fs::write(dir.path().join(&name), &bytes[..cut]).expect("cut");
            let error = try_all(dir.path()).expect_err("cut");
            assert!(error.needs_rebuild(), "{name} at {cut}: {error}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        fs::write(dir.path().join(&name), longer).expect("longer");
        assert!(
            try_all(dir.path()).is_err_and(|error| error.needs_rebuild()),
            "{name}"
        );
        if name != "current" {
            fs::remove_file(dir.path().join(&name)).expect("removed");
            assert!(
                try_all(dir.path()).is_err_and(|error| error.needs_rebuild()),
                "{name}"
            );
        }
        fs::write(dir.path().join(&name), bytes).expect("repaired");
        assert_eq!(try_all(dir.path()), Ok((Lsn(2), in_order(&model))));
    }
    // Without a manifest the index is empty, complete up to no commit.
    fs::remove_file(dir.path().join("current")).expect("removed");
    assert_eq!(try_all(dir.path()), Ok((Lsn(0), Vec::new())));
}

#[test]
fn every_flipped_bit_is_detected() {
    let dir = TempDir::new().expect("dir");
    let model = two_runs(dir.path());
    for name in files(dir.path()) {
        let path = dir.path().join(&name);
        let bytes = fs::read(&path).expect("file");
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&path, &bad).expect("flipped");
            let error = try_all(dir.path()).expect_err("flipped");
            assert!(error.needs_rebuild(), "{name} at {at}: {error}");
            assert!(error.to_string().contains("rebuilt"), "{error}");
        }
        fs::write(&path, bytes).expect("repaired");
    }
    assert_eq!(try_all(dir.path()), Ok((Lsn(2), in_order(&model))));
}

#[test]
fn runs_of_another_place_and_indexes_of_another_store_are_refused() {
    let dir = TempDir::new().expect("dir");
    two_runs(dir.path());
    let other = IndexOptions {
        identity: [8; 16],
        ..small()
    };
    let refused = Index::open(dir.path(), other.clone()).expect_err("foreign");
    assert!(matches!(refused, IndexError::Foreign { .. }) && refused.needs_rebuild());
    let index = Index::reset(dir.path(), other).expect("reset");
    assert!(index.is_empty());
    assert_eq!(files(dir.path()), Vec::<String>::new());
    // The same entries in a run with another number.
    drop(index);
    two_runs(dir.path());
    let names = files(dir.path());
    fs::copy(dir.path().join(&names[1]), dir.path().join(&names[2])).expect("copied");
    assert!(try_all(dir.path()).is_err_and(|error| error.needs_rebuild()));
}

#[test]
fn a_leaf_damaged_while_open_is_an_error_and_a_rebuild_repairs_it() {
    let dir = TempDir::new().expect("dir");
    let model = two_runs(dir.path());
    let (index, _) = open(dir.path());
    let path = dir.path().join(&files(dir.path())[1]);
    let mut bytes = fs::read(&path).expect("file");
    bytes[200] ^= 1;
    fs::write(&path, bytes).expect("flipped");
    assert!(all(&index).is_err_and(|error| error.needs_rebuild()));
    assert!(
        index.iter(b"tag/2", None).and_then(read).is_ok(),
        "other leaves are good"
    );
    let rebuilt: Result<(), IndexError> = index.rebuild(Lsn(5), |loader| {
        model.iter().try_for_each(|key| loader.push(key))
    });
    rebuilt.expect("rebuilt");
    assert_eq!(all(&index).expect("all"), in_order(&model));
    drop(index);
    assert_eq!(try_all(dir.path()), Ok((Lsn(5), in_order(&model))));
}

#[test]
fn a_persist_that_fails_can_be_tried_again() {
    let dir = TempDir::new().expect("dir");
    let model = two_runs(dir.path());
    let (index, _) = open(dir.path());
    add(&index, &["tag/new"]);
    index.seal(Lsn(3));
    // A directory in place of the manifest's temporary file.
    let obstacle = dir.path().join("current.tmp");
    fs::create_dir(&obstacle).expect("obstacle");
    let before = files(dir.path());
    for _ in 0..3 {
        let error = index.persist().expect_err("no manifest");
        assert!(!error.needs_rebuild(), "{error}");
        assert_eq!(files(dir.path()), before, "nothing is left");
    }
    assert_eq!(all(&index).expect("all").len(), model.len() + 1);
    fs::remove_dir(&obstacle).expect("removed");
    assert_eq!(index.persist(), Ok(Lsn(3)));
    drop(index);
    let (lsn, found) = try_all(dir.path()).expect("open");
    assert_eq!((lsn, found.len()), (Lsn(3), model.len() + 1));
}
