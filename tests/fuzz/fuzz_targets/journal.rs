//! The fuzz target of `slabfs_fuzz::targets::journal`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slabfs_fuzz::targets::journal::run(data));
