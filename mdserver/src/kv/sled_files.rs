//! The files of a sled tree, before it is opened.

use super::index::Fault;
use nix::fcntl::{Flock, FlockArg};
use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// How long a closed tree may take to release the lock on its files.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Frees the space that [`Index::reserve`](super::index::Index::reserve) preallocated: sled writes other files when it
/// opens.
pub(super) fn release(log: &Path) -> Result<(), Fault> {
    let given_back = OpenOptions::new().write(true).open(log).and_then(|log| {
        let len = log.metadata()?.len();
        log.set_len(len)
    });
    match given_back {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Fault(format!("sled's log: {error}")))
        }
        _ => Ok(()),
    }
}

/// Waits until sled's lock on its log is released, at most [`LOCK_TIMEOUT`].
///
/// Dropping the tree does not stop sled's threads at once; the last of them to end releases the lock. The lock of the
/// store excludes other processes, so the holder of this one is a thread of this process.
pub(super) fn wait_unlocked(log: &Path) {
    let Ok(file) = OpenOptions::new().write(true).open(log) else {
        return;
    };
    let Err((file, _)) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
        return;
    };
    let (done, waited) = mpsc::channel();
    std::thread::spawn(move || {
        let locked = Flock::lock(file, FlockArg::LockExclusive);
        drop(locked);
        // The receiver may have timed out.
        let _ = done.send(());
    });
    if waited.recv_timeout(LOCK_TIMEOUT).is_err() {
        tracing::warn!(log = %log.display(), "the lock on the index's files is still held");
    }
}
