//! The harness of the whole-system tests: real processes, real mounts, real tools.
//!
//! Kept true: a test owns what it starts. Mounts are detached and processes ended when their owner is
//! dropped, by a panic too, and by process id only; a test that hangs is ended by a watchdog that kills
//! its processes, so that its system calls fail. Every test has its own directory, mount and sockets, and
//! may run next to any other. Nothing waits by sleeping for a time: all waits look for a condition, and a
//! deadline that is far beyond what is needed says when to give up.
//!
//! | module | what it has |
//! |---|---|
//! | [`area`] | a directory for one test |
//! | [`service`] | one process: started, ready, stopped, killed, its log |
//! | [`up`] | everything in one process: `slabfs up` |
//! | [`cluster`] | metadata server, data servers and mounts as processes |
//! | [`network`] | network namespaces, and links between them that can be cut |
//! | [`library`] | the C library, and programs compiled with it |
//! | [`lossy`] | a socket that loses replies |
//! | [`held`] | a socket in front of a data server that holds requests back |
//! | [`history`] | what workers did to the same objects at the same time, and whether it may be so |
//! | [`starter`] | the helper process that starts all others |
//! | [`tool`] | commands that run and end, and what they said |
//! | [`mpi`] | programs of MPI-IO, compiled and run with each MPI |
//! | [`soak`] | whether tests go on for longer |
//! | [`suites`] | test suites of others, and what they said |
//! | [`mod@ext4`] | an ext4 to compare with |
//! | [`mod@array`] | the naive array that mounts are compared with |
//! | [`mod@file`] | system calls the standard library has not got |
//! | [`disk`] | what lies in a data directory: finding it, damaging it |
//!
//! The tests themselves are in `tests/system`, a module a theme.

pub mod area;
pub mod array;
pub mod binary;
pub mod cluster;
pub mod disk;
pub mod ext4;
pub mod file;
pub mod held;
pub mod history;
pub mod inputs;
pub mod library;
pub mod lossy;
pub mod mounts;
pub mod mpi;
pub mod network;
pub mod poll;
pub mod random;
pub mod service;
pub mod soak;
pub mod starter;
pub mod suites;
pub mod tool;
pub mod up;

pub use area::Area;
pub use array::Array;
pub use cluster::Cluster;
pub use ext4::Ext4;
pub use random::Random;
pub use service::Service;
pub use tool::{Outcome, slabfs};
pub use up::Up;

/// Why tests that mount cannot run here; `None` when they can.
///
/// # Panics
/// Where `CI=true`: there, what is missing is a failure.
pub fn cannot_mount() -> Option<&'static str> {
    let reason = if !std::path::Path::new("/dev/fuse").exists() {
        "/dev/fuse is missing"
    } else {
        return None;
    };
    missing(reason)
}

/// Why tests that need the superuser (tmpfs, other users, mount namespaces) cannot run here.
///
/// # Panics
/// Where `CI=true`.
pub fn cannot_be_root() -> Option<&'static str> {
    cannot_mount().or_else(|| {
        if nix::unistd::geteuid().is_root() {
            None
        } else {
            missing("not root")
        }
    })
}

fn missing(reason: &'static str) -> Option<&'static str> {
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{reason}, and CI=true: the tests must run here"
    );
    // Written past the capture of the test harness: nobody should take a skip for a success.
    use std::io::Write;
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {reason}");
    Some(reason)
}

/// Ends the test, with a word about it, where nothing can be mounted.
#[macro_export]
macro_rules! needs_mount {
    () => {
        if $crate::cannot_mount().is_some() {
            return;
        }
    };
}

/// Ends the test, with a word about it, where nothing can be mounted or the user is not root.
#[macro_export]
macro_rules! needs_root {
    () => {
        if $crate::cannot_be_root().is_some() {
            return;
        }
    };
}
