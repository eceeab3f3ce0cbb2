//! [`Unsynced`]: the chunks of an object that the servers have, but not yet on disk.
//!
//! A server that has restarted on another machine, or whose machine has, may have lost them. Its write verifier is another one
//! then: [`slabfs_objstore::ChunkStore::verifier`]. The replies to writes and to syncs have it; if they differ, the data may be
//! lost, and the programs that wrote it have to get an error, as with NFS.

use std::collections::BTreeSet;

use slabfs_model::ServerId;
use slabfs_objstore::ChunkName;
use slabfs_objstore::client::Verifiers;

/// Chunks to be synced, and the verifiers of their servers.
#[derive(Debug, Default, Clone)]
pub(in crate::client) struct Unsynced {
    chunks: BTreeSet<(ServerId, ChunkName)>,
    /// The newest verifier of each server. They stay when the chunks are synced: a chunk may be listed after the reply to its
    /// write.
    verifiers: Verifiers,
    /// A server whose verifier has changed while it had chunks of the list.
    lost: Option<ServerId>,
}

impl Unsynced {
    pub(in crate::client) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(in crate::client) fn chunks(&self) -> impl Iterator<Item = &(ServerId, ChunkName)> {
        self.chunks.iter()
    }

    pub(in crate::client) fn insert(&mut self, chunk: (ServerId, ChunkName)) {
        self.chunks.insert(chunk);
    }

    pub(in crate::client) fn extend(
        &mut self,
        chunks: impl IntoIterator<Item = (ServerId, ChunkName)>,
    ) {
        self.chunks.extend(chunks);
    }

    pub(in crate::client) fn remove(&mut self, chunk: &(ServerId, ChunkName)) {
        self.chunks.remove(chunk);
    }

    /// Notes the verifiers in the reply to a write.
    pub(in crate::client) fn note(&mut self, verifiers: &Verifiers) {
        for &(server, now) in verifiers {
            let known = self.verifiers.iter_mut().find(|(of, _)| *of == server);
            match known {
                None => self.verifiers.push((server, now)),
                Some((_, before)) if *before == now => {}
                Some((_, before)) => {
                    *before = now;
                    if self.chunks.iter().any(|(of, _)| *of == server) {
                        self.lost = Some(server);
                    }
                }
            }
        }
    }

    /// Takes the chunks to sync them.
    pub(in crate::client) fn take(&mut self) -> Unsynced {
        Unsynced {
            chunks: std::mem::take(&mut self.chunks),
            verifiers: self.verifiers.clone(),
            lost: self.lost.take(),
        }
    }

    /// Puts back what was taken and could not be synced.
    pub(in crate::client) fn put_back(&mut self, taken: Unsynced) {
        // A write meanwhile may have noted another verifier, when these chunks were not in the list.
        let lost = taken.lost_at(&self.verifiers);
        self.chunks.extend(taken.chunks);
        self.lost = self.lost.or(lost);
    }

    /// A server that may have lost some of these chunks, going by the verifiers in the replies to their sync.
    pub(in crate::client) fn lost_at(&self, synced: &Verifiers) -> Option<ServerId> {
        let is_other = |&&(server, now): &&(ServerId, u64)| {
            let mut known = self.verifiers.iter();
            known.any(|&(of, before)| of == server && before != now)
        };
        let has_any = |server| self.chunks.iter().any(|(of, _)| *of == server);
        let others = synced.iter().filter(is_other).map(|(server, _)| *server);
        self.lost
            .or_else(|| others.into_iter().find(|&server| has_any(server)))
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::ChunkId;
    use smallvec::smallvec;

    use super::*;

    fn chunk(server: u32, number: u64) -> (ServerId, ChunkName) {
        (ServerId(server), ChunkName::Free(ChunkId(number)))
    }

    #[test]
    fn another_verifier_means_loss() {
        let (a, b) = (ServerId(1), ServerId(2));
        let mut unsynced = Unsynced::default();
        unsynced.note(&smallvec![(a, 7), (b, 1)]);
        unsynced.extend([chunk(1, 1), chunk(2, 2)]);
        let taken = unsynced.take();
        assert_eq!(taken.lost_at(&smallvec![(a, 7), (b, 1)]), None);
        assert_eq!(taken.lost_at(&smallvec![(a, 8), (b, 1)]), Some(a));
        // Nothing of it was there.
        unsynced.note(&smallvec![(a, 8)]);
        unsynced.insert(chunk(1, 3));
        let taken = unsynced.take();
        assert_eq!(taken.lost_at(&smallvec![(a, 8)]), None);
        // Written under two verifiers.
        unsynced.put_back(taken);
        unsynced.note(&smallvec![(a, 9)]);
        assert_eq!(unsynced.take().lost_at(&smallvec![(a, 9)]), Some(a));
        assert_eq!(unsynced.take().lost_at(&smallvec![(a, 9)]), None);
        // A write under another verifier while a sync of these failed.
        unsynced.insert(chunk(1, 4));
        let taken = unsynced.take();
        unsynced.note(&smallvec![(a, 10)]);
        unsynced.put_back(taken);
        assert_eq!(unsynced.take().lost_at(&smallvec![(a, 10)]), Some(a));
    }
}
