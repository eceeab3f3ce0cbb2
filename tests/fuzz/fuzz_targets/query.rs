//! The fuzz target of `slabfs_fuzz::targets::query`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slabfs_fuzz::targets::query::run(data));
