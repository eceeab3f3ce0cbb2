//! The harness of the system tests: real processes, real mounts, real tools.
//!
//! Invariant: a test owns what it starts. Mounts are detached and processes ended when their owner is dropped,
//! also by a panic, and by process id only; a test that hangs is ended by a watchdog that kills its processes,
//! so that its system calls fail. Every test has its own directory, mount and sockets, and may run concurrently
//! with any other. Waits do not sleep for a fixed time: they poll a condition, and fail at a deadline that is
//! far beyond the expected time.
//!
//! | module | contents |
//! |---|---|
//! | [`area`] | a directory for one test |
//! | [`service`] | one process: started, ready, stopped, killed, its log |
//! | [`up`] | everything in one process: `slabfs up` |
//! | [`cluster`] | metadata server, data servers and mounts as processes |
//! | [`network`] | network namespaces, and links between them that can be cut |
//! | [`library`] | the C library, and programs compiled with it |
//! | [`lossy`] | a proxy that loses replies |
//! | [`held`] | a proxy in front of a data server that holds requests back |
//! | [`history`] | concurrent operations of workers on the same objects, and the check whether they are consistent |
//! | [`starter`] | the helper process that starts all others |
//! | [`tool`] | commands that run and end, and their output |
//! | [`mpi`] | programs of MPI-IO, compiled and run with each MPI |
//! | [`workdir`] | a directory with `slabfs` in the path, in which commands may start what they like |
//! | [`soak`] | whether tests run for longer |
//! | [`suites`] | test suites of other projects, and their results |
//! | [`mod@ext4`] | an ext4 to compare with |
//! | [`mod@array`] | the naive array that mounts are compared with |
//! | [`mod@file`] | system calls that the standard library lacks |
//! | [`disk`] | files in a data directory: finding and damaging them |
//!
//! The tests themselves are in `tests/system`, one module per theme.

pub mod area;
pub mod array;
pub mod binary;
pub mod cluster;
pub mod disk;
pub mod etcd;
pub mod ext4;
pub mod file;
pub mod held;
pub mod history;
pub mod http_faults;
pub mod inputs;
pub mod library;
pub mod lossy;
pub mod mounts;
pub mod mpi;
pub mod network;
pub mod poll;
pub mod random;
pub mod service;
pub mod skew;
pub mod soak;
pub mod starter;
pub mod suites;
pub mod tool;
pub mod up;
pub mod weed;
pub mod workdir;

pub use area::Area;
pub use array::Array;
pub use cluster::{Cluster, Machine};
pub use ext4::Ext4;
pub use random::Random;
pub use service::Service;
pub use tool::{Outcome, slabfs};
pub use up::Up;
pub use workdir::Workdir;

/// Why tests that mount cannot run here; `None` if they can.
///
/// # Panics With `CI=true`: there a missing prerequisite is a failure.
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
/// # Panics With `CI=true`.
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
    // Written without the capture of the test harness: a skip must not look like a success.
    use std::io::Write;
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {reason}");
    Some(reason)
}

/// Ends the test, with a message, if nothing can be mounted.
#[macro_export]
macro_rules! needs_mount {
    () => {
        if $crate::cannot_mount().is_some() {
            return;
        }
    };
}

/// Ends the test, with a message, if nothing can be mounted or the user is not root.
#[macro_export]
macro_rules! needs_root {
    () => {
        if $crate::cannot_be_root().is_some() {
            return;
        }
    };
}
