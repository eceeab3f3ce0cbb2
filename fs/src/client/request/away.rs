//! Servers that did not reply in time: the requests of a list that need them fail at once, after one was waited for.

use slabfs_model::ServerId;
use slabfs_objstore::StoreError;

use crate::client::error::FsError;

/// The servers that did not reply, and their errors.
#[derive(Debug, Default)]
pub(super) struct Away(Vec<(ServerId, StoreError)>);

impl Away {
    /// Records a server that did not reply in time.
    pub(super) fn note(&mut self, error: &FsError) {
        if let FsError::Store(error @ StoreError::Unavailable { server, .. }) = error {
            self.0.push((*server, error.clone()));
        }
    }

    pub(super) fn has(&self, server: ServerId) -> bool {
        self.0.iter().any(|(away, _)| *away == server)
    }

    /// Fails if one of `servers` did not reply.
    pub(super) fn check(&self, servers: impl IntoIterator<Item = ServerId>) -> Result<(), FsError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut servers = servers.into_iter();
        let found = servers.find_map(|server| self.0.iter().find(|(away, _)| *away == server));
        found.map_or(Ok(()), |(_, error)| Err(error.clone().into()))
    }
}
