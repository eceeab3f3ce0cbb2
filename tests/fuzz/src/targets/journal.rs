//! The journal reader: files of good frames, bad ones and garbage, made by `slabfs_mdserver::kv::fuzz` from
//! the fuzzer's bytes.

use std::cell::RefCell;

use super::super::scratch;
use slabfs_mdserver::kv::fuzz::Reader;
use tempfile::TempDir;

fn reader() -> (Reader, TempDir) {
    let dir = scratch();
    (Reader::new(dir.path().join("journal")), dir)
}

thread_local! {
    static READER: RefCell<(Reader, TempDir)> = RefCell::new(reader());
}

/// Runs one input.
pub fn run(data: &[u8]) {
    READER.with_borrow_mut(|(reader, _)| reader.read(data));
}
