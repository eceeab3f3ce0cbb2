//! The FUSE operations, one file per operation.
//!
//! `answer` executes the operation and replies. It is called inside `guard`, on a session thread or a worker (see
//! `filesystem`). Each file documents what its operation may wait for, if it is more than the client library.

pub(super) mod copy_file_range;
pub(super) mod create;
pub(super) mod fallocate;
pub(super) mod flush;
pub(super) mod forget;
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
pub(super) mod mkdir;
pub(super) mod mknod;
pub(super) mod open;
pub(super) mod read;
pub(super) mod readdir;
pub(super) mod readdirplus;
pub(super) mod readlink;
pub(super) mod release;
pub(super) mod removexattr;
pub(super) mod rename;
pub(super) mod rmdir;
pub(super) mod search;
pub(super) mod setattr;
pub(super) mod setlk;
pub(super) mod setxattr;
pub(super) mod statfs;
pub(super) mod symlink;
pub(super) mod unlink;
pub(super) mod write;

mod make;
mod place;
mod sized;
mod viewed;
