//! Syncs: committed chunks reach the servers' disks, then the metadata service's journal is synced, then the object is
//! settled, which lets the servers delete replaced chunks.

use slabfs_mdserver::api::{MdError, op};
use slabfs_model::ServerId;
use slabfs_objstore::{ChunkName, StoreError};

use crate::client::Client;
use crate::client::buffer::flush::Scope;
use crate::client::error::FsError;
use crate::client::object::Object;

impl Client {
    /// Flushes everything of an object and waits until it is on disk.
    pub(in crate::client) fn sync_object(&self, object: &Object) -> Result<(), FsError> {
        self.flush_object(object, Scope::All)?;
        self.sync_written(object)?;
        Ok(self.md().call(op::Sync {})?)
    }

    /// Syncs the sent chunks to the servers' disks, and settles the object. Serialised: a second caller must not
    /// return, nor settle, before the chunks that the first one took are on disk.
    pub(in crate::client) fn sync_written(&self, object: &Object) -> Result<(), FsError> {
        let _one = object.syncing.lock();
        let version = object.version();
        let unsynced = std::mem::take(&mut object.state.lock().unsynced);
        // Chunks left by earlier opens of the object may still be unsynced.
        let mut items: Vec<(ServerId, ChunkName)> = self
            .settling
            .lock()
            .iter()
            .filter(|left| left.ino == object.ino)
            .flat_map(|left| left.chunks.iter().cloned())
            .collect();
        items.extend(unsynced.iter().cloned());
        if items.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.sync_chunks(&items) {
            object.state.lock().unsynced.extend(unsynced);
            return Err(error.into());
        }
        match self.md().call(op::Settle {
            ino: object.ino,
            version,
        }) {
            // A removed object has nothing to settle.
            Ok(()) | Err(MdError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Syncs chunks to their servers' disks. A chunk that is missing was replaced, or its object was removed, since
    /// it was written: there is nothing to sync.
    pub(in crate::client) fn sync_chunks(
        &self,
        items: &[(ServerId, ChunkName)],
    ) -> Result<(), StoreError> {
        match self.servers().sync(items) {
            Err(StoreError::Missing(_)) if items.len() > 1 => {
                let (left, right) = items.split_at(items.len() / 2);
                self.sync_chunks(left)?;
                self.sync_chunks(right)
            }
            Err(StoreError::Missing(name)) => {
                tracing::debug!(%name, "replaced before it was synced");
                Ok(())
            }
            other => other,
        }
    }
}
