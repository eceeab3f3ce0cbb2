//! The journal reader: files of good frames, bad ones and garbage, made by `slabfs_mdserver::kv::fuzz` from
//! the fuzzer's bytes.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use slabfs_fuzz::scratch;
use slabfs_mdserver::kv::fuzz::Reader;
use tempfile::TempDir;

fn reader() -> (Reader, TempDir) {
    let dir = scratch();
    (Reader::new(dir.path().join("journal")), dir)
}

thread_local! {
    static READER: RefCell<(Reader, TempDir)> = RefCell::new(reader());
}

fuzz_target!(|data: &[u8]| {
    READER.with_borrow_mut(|(reader, _)| reader.read(data));
});
