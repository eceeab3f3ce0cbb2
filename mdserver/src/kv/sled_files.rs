//! The files of a sled tree, before it is opened.

use super::index::Fault;
use nix::fcntl::{Flock, FlockArg};
use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// How long a tree that was closed may take to let go of its files.
const LET_GO: Duration = Duration::from_secs(10);

/// Gives back what [`Index::reserve`](super::index::Index::reserve) set aside: sled writes other files when it opens.
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

/// Waits until nobody holds sled's lock on its log, at most [`LET_GO`].
///
/// Dropping the tree does not end what sled's threads are about; the last of them to end lets go of the
/// lock. Other processes are kept out by the lock of the store, so whoever holds this one is of here.
pub(super) fn let_go(log: &Path) {
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
        // Whoever waited may have given up.
        let _ = done.send(());
    });
    if waited.recv_timeout(LET_GO).is_err() {
        tracing::warn!(log = %log.display(), "somebody holds the lock of the index's files");
    }
}
