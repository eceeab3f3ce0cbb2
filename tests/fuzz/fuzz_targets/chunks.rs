//! The fuzz target of `slabfs_fuzz::targets::chunks`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slabfs_fuzz::targets::chunks::run(data));
