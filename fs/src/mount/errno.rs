//! The only place where errors become an errno, and where they are logged.
//!
//! The program gets a number; the log has the reason. The level is `warn` for errors that an administrator should see
//! (`EIO`, `ENOSPC`), and `debug` for mistakes of programs: any user can cause those, even in a loop.

use fuser::{Errno, ReplyEmpty};
use slabfs_mdserver::api::MdError;
use slabfs_objstore::StoreError;
use thiserror::Error;

use crate::call::CallError;
use crate::client::FsError;
use crate::view::attributes::AttributeError;
use crate::view::name::NameError;
use crate::view::pattern::PatternError;

/// Why an operation of the mount failed.
#[derive(Debug, Error)]
pub(super) enum Failure {
    /// The client library failed.
    #[error(transparent)]
    Client(#[from] FsError),
    /// The name is malformed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name or the value of the attribute is wrong.
    #[error(transparent)]
    Attribute(#[from] AttributeError),
    /// The view that a program sets is invalid.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A command of `.slabfs/call` failed.
    #[error(transparent)]
    Call(CallError),
    /// The mount itself refuses, with the errno that POSIX prescribes.
    #[error("{why}")]
    Refused {
        /// The number the program gets.
        errno: Errno,
        /// Why, for the log.
        why: &'static str,
    },
}

impl From<MdError> for Failure {
    fn from(error: MdError) -> Failure {
        Failure::Client(FsError::Md(error))
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        match error {
            CallError::Client(error) => Failure::Client(error),
            CallError::Name(error) => Failure::Name(error),
            other => Failure::Call(other),
        }
    }
}

/// The result of an operation of the mount.
pub(super) type Outcome<T> = Result<T, Failure>;

/// A refusal by the mount itself.
pub(super) fn refused<T>(errno: Errno, why: &'static str) -> Outcome<T> {
    Err(Failure::Refused { errno, why })
}

/// Logs a failure of `operation` on `inode` and returns the errno for the program.
pub(super) fn report(operation: &'static str, inode: u64, failure: &Failure) -> Errno {
    let errno = number(failure);
    match (errno.code(), failure) {
        (libc::EIO | libc::ENOSPC | libc::ETIMEDOUT | libc::EDEADLK, _) => {
            tracing::warn!(operation, inode, "{failure}")
        }
        // The tool can show no more than the errno of an attribute.
        (libc::EINVAL, _) if operation == "setxattr" => {
            tracing::warn!(operation, inode, "{failure}")
        }
        // Programs ask for attributes that most files do not have.
        (_, Failure::Client(FsError::Md(MdError::NoData))) => {}
        _ => tracing::debug!(operation, inode, "{failure}"),
    }
    errno
}

/// Replies to an operation that returns nothing.
pub(super) fn end<E: Into<Failure>>(
    operation: &'static str,
    inode: u64,
    done: Result<(), E>,
    reply: ReplyEmpty,
) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(report(operation, inode, &error.into())),
    }
}

/// [`report`] for an operation on the inode itself, not on a name in it. A missing inode is then `ESTALE`: the name
/// that led to it now stands for another inode, or for none, and the kernel looks it up again. With `ENOENT`, a
/// `stat` of a name that another mount replaces by rename would fail, although the name existed all the time.
pub(super) fn report_inode(operation: &'static str, inode: u64, failure: &Failure) -> Errno {
    match report(operation, inode, failure) {
        errno if errno.code() == libc::ENOENT => Errno::ESTALE,
        errno => errno,
    }
}

/// [`end`] for an operation on the inode itself.
pub(super) fn end_inode(operation: &'static str, inode: u64, done: Outcome<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(failure) => reply.error(report_inode(operation, inode, &failure)),
    }
}

/// The errno of a failure.
pub(super) fn number(failure: &Failure) -> Errno {
    match failure {
        Failure::Client(error) => client_number(error),
        Failure::Name(NameError::Malformed { .. }) => Errno::EINVAL,
        Failure::Attribute(AttributeError::Unknown { .. } | AttributeError::Malformed { .. }) => {
            Errno::EINVAL
        }
        Failure::Attribute(AttributeError::ReadOnly(_)) => Errno::EPERM,
        Failure::Pattern(_) => Errno::EINVAL,
        Failure::Call(error) => call_number(error),
        Failure::Refused { errno, .. } => *errno,
    }
}

fn call_number(error: &CallError) -> Errno {
    match error {
        CallError::Client(error) => client_number(error),
        CallError::Name(_) | CallError::Invalid(_) => Errno::EINVAL,
        CallError::At { error, .. } => call_number(error),
        CallError::Missing(_) => Errno::ENOENT,
        CallError::NotDirectory(_) => Errno::ENOTDIR,
        CallError::Denied(_) => Errno::EACCES,
        CallError::Unknown(_) => Errno::ENOSYS,
        CallError::TooLarge => Errno::E2BIG,
    }
}

fn client_number(error: &FsError) -> Errno {
    match error {
        FsError::Md(error) => md_number(error),
        FsError::Store(error) => store_number(error),
        FsError::Invalid(_) | FsError::Batch { .. } => Errno::EINVAL,
        FsError::TooBig(_) => Errno::EFBIG,
        FsError::NoServers => Errno::EIO,
        FsError::ReadOnly(_) => Errno::EROFS,
        FsError::NotSupported(_) => Errno::EOPNOTSUPP,
        FsError::NoSuchExtent => Errno::ENXIO,
        FsError::NoData(_) => Errno::ETIMEDOUT,
        FsError::Deadlock(_) => Errno::EDEADLK,
        FsError::DataLost(_) | FsError::Unsynced(_) => Errno::EIO,
        FsError::Dropped(..) => Errno::ENODATA,
        FsError::Unsettled(_) => Errno::EBUSY,
        FsError::Lost
        | FsError::Unlocked
        | FsError::Lapsed(_)
        | FsError::Withheld(_)
        | FsError::Closed
        | FsError::Released => Errno::EIO,
        FsError::Gone | FsError::Replaced => Errno::ESTALE,
        FsError::Cancelled => Errno::ECANCELED,
        FsError::NotRepresentable { .. } => Errno::ERANGE,
    }
}

fn md_number(error: &MdError) -> Errno {
    match error {
        MdError::At { error, .. } => md_number(error),
        MdError::NotFound => Errno::ENOENT,
        MdError::Exists => Errno::EEXIST,
        MdError::NotDirectory => Errno::ENOTDIR,
        MdError::IsDirectory => Errno::EISDIR,
        MdError::NotEmpty => Errno::ENOTEMPTY,
        MdError::Invalid(_) => Errno::EINVAL,
        MdError::TooBig(_) => Errno::EFBIG,
        MdError::NoSpace | MdError::TooManyTags => Errno::ENOSPC,
        MdError::Stale => Errno::ESTALE,
        MdError::Busy | MdError::NeedsRewrite | MdError::NeedsClear => Errno::EBUSY,
        MdError::NoData => Errno::ENODATA,
        MdError::NameTooLong => Errno::ENAMETOOLONG,
        MdError::TooManyLinks => Errno::EMLINK,
        MdError::NotPermitted(_) => Errno::EPERM,
        MdError::NotSupported(_) => Errno::EOPNOTSUPP,
        MdError::SessionLost
        | MdError::NamesCached
        | MdError::Unavailable { .. }
        | MdError::Io(_)
        | MdError::Protocol(_) => Errno::EIO,
    }
}

fn store_number(error: &StoreError) -> Errno {
    match error {
        StoreError::NoSpace => Errno::ENOSPC,
        StoreError::Invalid(_) => Errno::EINVAL,
        StoreError::Missing(_)
        | StoreError::Damaged { .. }
        | StoreError::Unavailable { .. }
        | StoreError::Deadline
        | StoreError::Io { .. }
        | StoreError::Protocol(_)
        | StoreError::Locked { .. }
        | StoreError::Fenced(_)
        | StoreError::Superseded => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_map_to_their_posix_numbers() {
        for (failure, errno) in [
            (Failure::from(MdError::NotFound), libc::ENOENT),
            (Failure::from(MdError::NoData), libc::ENODATA),
            (Failure::from(MdError::SessionLost), libc::EIO),
            (FsError::TooBig("past the end".into()).into(), libc::EFBIG),
            (FsError::Store(StoreError::NoSpace).into(), libc::ENOSPC),
            (FsError::Store(StoreError::Deadline).into(), libc::EIO),
            (FsError::Lost.into(), libc::EIO),
            (FsError::Gone.into(), libc::ESTALE),
            (
                NameError::Malformed {
                    name: "a@[x]".into(),
                    reason: "no number".into(),
                }
                .into(),
                libc::EINVAL,
            ),
            (AttributeError::ReadOnly("info").into(), libc::EPERM),
        ] {
            assert_eq!(report("test", 1, &failure).code(), errno, "{failure}");
        }
    }

    #[test]
    fn an_inode_that_is_gone_is_stale() {
        for (failure, errno) in [
            (MdError::NotFound, libc::ESTALE),
            (MdError::NoData, libc::ENODATA),
            (MdError::SessionLost, libc::EIO),
        ] {
            let failure = Failure::from(failure);
            assert_eq!(report_inode("test", 1, &failure).code(), errno, "{failure}");
        }
    }
}
