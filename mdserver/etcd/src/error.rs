//! [`EtcdError`]: why the log or the election failed.

use std::path::PathBuf;

use slabfs_mdserver::kv::KvError;

/// Why an operation failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EtcdError {
    /// No member answered; the request may have been executed.
    #[error("etcd does not answer: {detail}")]
    Unavailable {
        /// The last error, with the member's address.
        detail: String,
    },
    /// etcd's database has reached its quota; it accepts deletions only.
    #[error(
        "etcd is full ({detail}): compact and defragment it, clear its alarm (etcdctl alarm disarm), or give it a larger --quota-backend-bytes"
    )]
    Full {
        /// etcd's text.
        detail: String,
    },
    /// etcd refused the request: authentication, permission.
    #[error("etcd refuses the request: {detail}")]
    Refused {
        /// etcd's text.
        detail: String,
    },
    /// This service is not the leader any more.
    #[error("this metadata service is not the leader any more: {detail}")]
    NotLeader {
        /// How that was noticed.
        detail: String,
    },
    /// What is in etcd or in the checkpoints is not what this program expects.
    #[error("{0}")]
    Content(String),
    /// The directory of checkpoints.
    #[error("cannot {action} {}: {detail}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error text.
        detail: String,
    },
    /// The bucket of checkpoints.
    #[error("the bucket of checkpoints cannot be used: {detail}")]
    Bucket {
        /// The request, and the store's answer.
        detail: String,
    },
    /// The copy of the log.
    #[error(transparent)]
    Copy(#[from] KvError),
    /// The service is about to stop.
    #[error("the service stops")]
    Stopping,
}

impl EtcdError {
    /// True if the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self,
            EtcdError::Unavailable { .. } | EtcdError::Full { .. } | EtcdError::Bucket { .. }
        )
    }

    pub(crate) fn io(action: &'static str, path: &std::path::Path, error: &std::io::Error) -> Self {
        EtcdError::Io {
            action,
            path: path.to_owned(),
            detail: error.to_string(),
        }
    }
}
