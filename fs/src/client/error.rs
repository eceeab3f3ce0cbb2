//! The errors of the client library, by kind.
//!
//! Errors travel as kinds and become an errno at one border, in `mount/errno.rs`.

use std::time::Duration;

use slabfs_mdserver::api::MdError;
use slabfs_model::batch::{Batch, BatchError, path_of};
use slabfs_model::{DType, ServerId};
use slabfs_objstore::StoreError;
use thiserror::Error;

/// An error of the client library.
#[derive(Debug, Clone, Error)]
pub enum FsError {
    /// The metadata service refused, or could not be reached.
    #[error(transparent)]
    Md(#[from] MdError),
    /// A data server refused, is away, or holds damaged data.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The request makes no sense for this object; the text gives the reason and an alternative.
    #[error("{0}")]
    Invalid(String),
    /// An invalid batch.
    #[error("{error}{}", named(elements))]
    Batch {
        /// The reason, with elements by number.
        error: BatchError,
        /// The paths of the elements that it names: index in the top vector, then in the vector below, and so on. Empty
        /// if only the plan was given, which has no vectors.
        elements: Vec<Vec<u32>>,
    },
    /// The request reaches beyond the object's maximum size.
    #[error("{0}")]
    TooBig(String),
    /// No data server is known that could take data.
    #[error("no data server is registered and online; start one with `slabfs objserver`")]
    NoServers,
    /// The client is read-only, or the handle is not open for this.
    #[error("{0}")]
    ReadOnly(String),
    /// An operation that this filesystem does not support.
    #[error("{0}")]
    NotSupported(String),
    /// Nothing was written to cells of a coupled object for as long as its reads wait.
    #[error("{0}")]
    NoData(String),
    /// Steps of a coupled object that are not in its queue any more.
    #[error(
        "rows {0} to {1} of the coupled object are not in its queue any more; a longer queue, or full=block, keeps them for slow \
         readers"
    )]
    Dropped(u64, u64),
    /// Programs wait for each other's data.
    #[error("{0}")]
    Deadlock(String),
    /// The mounts that had the data of a coupled object in memory are gone.
    #[error("the data is not there any more: the mount that had it in memory has ended, or had no room for it{}; its writer has to write it again", list(.0))]
    DataLost(Vec<ServerId>),
    /// A data server may have lost what was written to it and not synced: its write verifier has changed.
    #[error(
        "data server {0} was replaced by another process, or its machine has restarted, before everything that was written to it \
         was on its disk; what has not been synced since may be lost: write it again"
    )]
    Unsynced(ServerId),
    /// No data, or no hole, at or after the offset of a seek.
    #[error("nothing of that kind at or behind the offset")]
    NoSuchExtent,
    /// The session is over, and its dirty data is lost.
    #[error(
        "the metadata service gave up the session of this mount or program; what was not flushed is lost"
    )]
    Lost,
    /// A lock that was taken through the handle is lost with its session.
    #[error(
        "a lock that this program holds was lost with the mount's session, and others may have written since; take \
         it again and read again what it is for"
    )]
    Unlocked,
    /// The metadata service has not replied, so that other mounts may have got this mount's rights.
    #[error("the metadata service has not answered; waited for {0:?}")]
    Lapsed(Duration),
    /// Another mount withheld a right that the request needs.
    #[error("another mount keeps what this needs, or does not answer; waited for {0:?}")]
    Withheld(Duration),
    /// The object was removed while this mount had no session.
    #[error("the object was removed while the session of this mount or program was over")]
    Gone,
    /// Another filesystem is at the address of the metadata service.
    #[error(
        "another filesystem is at the address of the metadata service; unmount, or start the metadata service of this \
         filesystem there again"
    )]
    Replaced,
    /// The client was stopped: its session was closed, or its mount is ending.
    #[error("the session was closed; connect again")]
    Closed,
    /// The handle was closed before the transfer was started.
    #[error("the object was closed before the transfer was started")]
    Released,
    /// The transfer was cancelled before it had any effect.
    #[error("the transfer was cancelled")]
    Cancelled,
    /// The target dtype of a transfer cannot represent an element.
    #[error("element {index} of the selection is {value}, which dtype {dtype} cannot represent")]
    NotRepresentable {
        /// The element, counted in row-major order of the selection.
        index: u64,
        /// Its value.
        value: String,
        /// The target dtype.
        dtype: DType,
    },
    /// The object's form changed repeatedly while a request retried.
    #[error("the object keeps changing its form: {0}")]
    Unsettled(String),
}

fn list(servers: &[ServerId]) -> String {
    if servers.is_empty() {
        return String::new();
    }
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    format!(" (servers {})", servers.join(", "))
}

/// Paths as text, appended to the error: ` (that is [0][2])`.
fn named(elements: &[Vec<u32>]) -> String {
    let one = |path: &Vec<u32>| path.iter().map(|index| format!("[{index}]")).collect();
    let all: Vec<String> = elements.iter().map(one).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!(" (that is {})", all.join(" and ")),
    }
}

impl From<BatchError> for FsError {
    fn from(error: BatchError) -> FsError {
        FsError::Batch {
            error,
            elements: Vec::new(),
        }
    }
}

impl FsError {
    /// Adds the paths of the elements that it names, if it concerns this batch.
    pub(crate) fn of_batch(self, batches: &[Batch]) -> FsError {
        match self {
            FsError::Batch { error, .. } => {
                let numbers = error.elements();
                let paths = numbers
                    .iter()
                    .filter_map(|&number| path_of(batches, number));
                let elements = paths.collect();
                FsError::Batch { error, elements }
            }
            other => other,
        }
    }

    /// Whether a wait for the metadata service timed out.
    pub(super) fn is_in_vain(&self) -> bool {
        matches!(
            self,
            FsError::Md(MdError::Unavailable { .. }) | FsError::Lapsed(_)
        )
    }

    /// Whether the object's form changed on the server, so that the request should refresh and retry.
    pub(super) fn is_stale(&self) -> bool {
        matches!(self, FsError::Md(MdError::Stale))
    }
}
