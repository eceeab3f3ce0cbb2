//! Makes the metadata of a local store the beginning of a log in etcd.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use slabfs_mdserver::kv::{KvError, KvOptions, LocalKv, Lsn, MetaKv};

use crate::checkpoints::Checkpoints;
use crate::client::Etcd;
use crate::copy::{Place, inside};
use crate::error::EtcdError;
use crate::log::Log;

/// How long the snapshot of the store may take.
const SNAPSHOT: Duration = Duration::from_secs(600);

/// Stores a checkpoint of the local store that `create` makes in the directory it gets, and names it in etcd, whose prefix
/// has to be empty. `dir` is that of a service: it has a copy of the log then. Returns the last commit.
///
/// # Errors
/// Those of `create`; a prefix that is in use; no etcd, no place for the checkpoint.
pub fn import<E: From<EtcdError>>(
    etcd: &Arc<Etcd>,
    dir: &Path,
    checkpoints: &Checkpoints,
    create: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<Lsn, E> {
    // Before anything is made.
    Log::check_unused(etcd)?;
    Place::check_new(dir)?;
    let store = inside(dir);
    create(&store)?;
    Ok(store_checkpoint(etcd, dir, &store, checkpoints)?)
}

fn store_checkpoint(
    etcd: &Arc<Etcd>,
    dir: &Path,
    store: &Path,
    checkpoints: &Checkpoints,
) -> Result<Lsn, EtcdError> {
    let (local, found) = LocalKv::open(store, KvOptions::default())?;
    let number = local.ask_snapshot()?;
    let mut snapshot = local.snapshot(number, SNAPSHOT)?.ok_or_else(|| {
        KvError::Invalid("the snapshot of the loaded metadata takes too long".to_owned())
    })?;
    let id = Log::new_id()?;
    let pointer = checkpoints.put(&mut snapshot, (&id, 0))?;
    local.close()?;
    let log = Log::create(etcd, id, &pointer)?;
    Place::new(dir, &log)?;
    Ok(found.last)
}
