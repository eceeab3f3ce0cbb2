//! The local store: the conformance suite, and what happens to it in crashes.

mod damage;
mod full;
mod power;
mod speed;

use super::*;
use crate::store::conformance;

fn fast() -> LocalOptions {
    LocalOptions {
        fsync: false,
        open_files: None,
    }
}

#[test]
fn conforms() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    conformance::run(&store);
}

#[test]
fn conforms_with_few_open_files_and_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(
        dir.path(),
        LocalOptions {
            fsync: true,
            open_files: Some(3),
        },
    )
    .unwrap();
    for seed in 20..23 {
        conformance::random::run(&store, seed, 300);
    }
}
