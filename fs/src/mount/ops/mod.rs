//! The FUSE operations, one file per operation or for a few that do the same.
//!
//! `answer` executes the operation and replies; where there is no `answer`, `filesystem` replies with the result. All
//! are called inside `guard`, on a session thread or a worker (see `filesystem`). Each file documents what its operation
//! may wait for, if it is more than the client library.

pub(super) mod copy_file_range;
pub(super) mod create;
pub(super) mod fallocate;
pub(super) mod flush;
pub(super) mod fsync;
pub(super) mod fsyncdir;
pub(super) mod getattr;
pub(super) mod getlk;
pub(super) mod getxattr;
pub(super) mod init;
pub(super) mod ioctl;
pub(super) mod link;
pub(super) mod listxattr;
pub(super) mod lookup;
pub(super) mod lseek;
pub(super) mod make;
pub(super) mod open;
pub(super) mod read;
pub(super) mod readdir;
pub(super) mod readdirplus;
pub(super) mod readlink;
pub(super) mod release;
pub(super) mod remove;
pub(super) mod removexattr;
pub(super) mod rename;
pub(super) mod search;
pub(super) mod setattr;
pub(super) mod setlk;
pub(super) mod setxattr;
pub(super) mod statfs;
pub(super) mod views;
pub(super) mod write;

mod place;
mod sized;
