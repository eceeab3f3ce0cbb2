//! Histories: concurrent operations of several processes on the same objects, and the check whether slabfs may
//! have answered as it did.
//!
//! Workers (processes of their own, [`work`]) do random operations on mounts of one cluster and log the
//! requests, the answers, and the two instants of `CLOCK_MONOTONIC` around each. Afterwards all logs of one
//! object are one history, and [`check`](check()) searches for an order that explains it:
//!
//! | promise | of | an order of the operations that |
//! |---|---|---|
//! | strict | cells of an array, each by itself | is that of a register ([`cells`]) |
//! | strict, on one mount ([`check_atomic`]) | cells that are only read and written by system calls, all together | is that of an array: one `read` or `write`, which is one request here, is atomic towards the others |
//! | strict | a byte object with a size | is that of a list of records that is appended to, truncated and read completely ([`sized`]) |
//! | both | names in a directory | is that of a map from names to files ([`names`]) |
//! | both | `fcntl` locks | has no two holders of conflicting locks ([`locks`]) |
//! | commit | cells of an array, each by itself | none is searched: each read returns a value that was not yet replaced by one that the reader has to know ([`regular`]) |
//!
//! In the first five an operation has to appear to happen at one instant between its start and its end
//! (linearizability: Herlihy, Wing 1990); [`linear`] searches. An operation that never returned, or failed with
//! an error that gives no information, may have happened at any time after its start, or never.
//!
//! Everything but [`work`] and [`run`](mod@run) is a pure function of a history. A violation is shrunk
//! ([`shrink`]) before it is shown. Deliberately not here: kills and restarts, which `crash` has.

pub mod cells;
pub mod check;
pub mod linear;
pub mod locks;
pub mod log;
pub mod names;
pub mod op;
pub mod regular;
pub mod run;
pub mod shrink;
pub mod sized;
pub mod work;

#[cfg(test)]
mod made;
#[cfg(test)]
mod tests;

pub use check::{Promise, Violation, check, check_atomic};
pub use op::{Answer, Call, How, Op};
pub use run::{Outcome, Run, run, run_on};
