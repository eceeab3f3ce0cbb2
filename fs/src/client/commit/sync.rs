//! Syncs: committed chunks reach the servers' disks, then the metadata service's journal is synced, then the object is
//! settled, which lets the servers delete replaced chunks.

use slabfs_mdserver::api::{MdError, op};
use slabfs_model::ServerId;
use slabfs_objstore::client::Verifiers;
use slabfs_objstore::{ChunkName, StoreError};

use crate::client::Client;
use crate::client::buffer::flush::Scope;
use crate::client::commit::Unsynced;
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
        let unsynced = object.state.lock().unsynced.take();
        // Chunks left by earlier opens of the object may still be unsynced.
        let left: Vec<Unsynced> = {
            let settling = self.settling.lock();
            let of_it = settling.iter().filter(|left| left.ino == object.ino);
            of_it.map(|left| left.chunks.clone()).collect()
        };
        let all = || left.iter().chain([&unsynced]);
        let items: Vec<(ServerId, ChunkName)> = all().flat_map(Unsynced::chunks).cloned().collect();
        if items.is_empty() {
            return Ok(());
        }
        let mut verifiers = Verifiers::new();
        if let Err(error) = self.sync_chunks(&items, &mut verifiers) {
            object.state.lock().unsynced.put_back(unsynced);
            return Err(error.into());
        }
        if let Some(server) = all().find_map(|one| one.lost_at(&verifiers)) {
            let error = FsError::Unsynced(server);
            tracing::error!(object = %object.ino, "{error}");
            object.blame(&error);
            object.state.lock().unsynced.note(&verifiers);
            return Err(error);
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

    /// Syncs chunks to their servers' disks, and adds the servers' verifiers. A chunk that is missing was replaced, or its
    /// object was removed, since it was written: there is nothing to sync. (If its server has lost it, the verifier is another
    /// one.)
    pub(in crate::client) fn sync_chunks(
        &self,
        items: &[(ServerId, ChunkName)],
        verifiers: &mut Verifiers,
    ) -> Result<(), StoreError> {
        match self.servers().sync(items) {
            Err(StoreError::Missing(_)) if items.len() > 1 => {
                let (left, right) = items.split_at(items.len() / 2);
                self.sync_chunks(left, verifiers)?;
                self.sync_chunks(right, verifiers)
            }
            Err(StoreError::Missing(name)) => {
                tracing::debug!(%name, "replaced before it was synced");
                for (server, _) in items {
                    verifiers.push((*server, self.servers().verifier(*server)?));
                }
                Ok(())
            }
            Ok(synced) => {
                verifiers.extend(synced);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
