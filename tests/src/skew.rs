//! Clocks that are wrong: variables under which a process sees another time of day. (By Debian's libfaketime; clocks that only
//! count are as they are.)

/// The variables for a clock that is off by `offset`: `+7m`, `-10m`.
pub const fn clock(offset: &'static str) -> [(&'static str, &'static str); 4] {
    [
        // The loader puts the directory of this architecture there.
        ("LD_PRELOAD", "/usr/$LIB/faketime/libfaketime.so.1"),
        ("FAKETIME", offset),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("FAKETIME_NO_CACHE", "0"),
    ]
}
