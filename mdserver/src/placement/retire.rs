//! Orders to data servers to delete data, until they acknowledge the deletion.
//!
//! An order is in the store from the batch that made its data garbage until the server acknowledges it, and it is
//! sent only when that batch is on disk: after a power loss, metadata never refers to data that is already deleted.

use slabfs_model::{ChunkId, ObjectId, ServerId};
use slabfs_objstore::ChunkName;
use slabfs_objstore::server::Retire;
use std::collections::{BTreeMap, HashMap};

use crate::api::MdError;
use crate::keys;
use crate::kv::Lsn;

/// One thing to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RetireKey {
    /// A chunk.
    Chunk(ChunkId),
    /// An object's grid chunks of generations below a number.
    Generation(ObjectId, u32),
    /// All grid chunks of an object.
    Object(ObjectId),
}

const CHUNK: u8 = b'c';
const GENERATION: u8 = b'g';
const OBJECT: u8 = b'o';

impl RetireKey {
    /// Its key in the store.
    pub(crate) fn key(self, server: ServerId) -> Vec<u8> {
        match self {
            Self::Chunk(chunk) => keys::retired(server, CHUNK, chunk.0, 0),
            Self::Generation(object, below) => keys::retired(server, GENERATION, object.0, below),
            Self::Object(object) => keys::retired(server, OBJECT, object.0, 0),
        }
    }

    /// Decodes a key of the store.
    pub(crate) fn parse(key: &[u8]) -> Result<(ServerId, Self), MdError> {
        let numbers = keys::numbers(key, [4, 1, 8, 4]);
        let known = numbers.and_then(|[server, kind, a, b]| {
            let what = match kind as u8 {
                CHUNK => Self::Chunk(ChunkId(a)),
                GENERATION => Self::Generation(ObjectId(a), b as u32),
                OBJECT => Self::Object(ObjectId(a)),
                _ => return None,
            };
            Some((ServerId(server as u32), what))
        });
        known.ok_or_else(|| MdError::Io(format!("unreadable key {}", key.escape_ascii())))
    }

    /// The individual deletions of an order.
    pub(crate) fn of_order(order: &Retire) -> Vec<Self> {
        match order {
            Retire::Chunks(names) => names
                .iter()
                .filter_map(|name| match name {
                    ChunkName::Free(chunk) => Some(Self::Chunk(*chunk)),
                    ChunkName::Grid { .. } => None,
                })
                .collect(),
            Retire::Generation { object, below } => vec![Self::Generation(*object, *below)],
            Retire::Object(object) => vec![Self::Object(*object)],
        }
    }
}

/// All orders, by server, each with the commit that has to be on disk first.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    by_server: HashMap<ServerId, BTreeMap<RetireKey, Lsn>>,
}

impl Retired {
    /// Adds an order made by commit `lsn`.
    pub(crate) fn add(&mut self, server: ServerId, what: RetireKey, lsn: Lsn) {
        self.by_server.entry(server).or_default().insert(what, lsn);
    }

    /// Removes an order; false if there is none.
    pub(crate) fn remove(&mut self, server: ServerId, what: RetireKey) -> bool {
        self.by_server
            .get_mut(&server)
            .is_some_and(|orders| orders.remove(&what).is_some())
    }

    /// Whether there is such an order.
    pub(crate) fn contains(&self, server: ServerId, what: RetireKey) -> bool {
        self.by_server
            .get(&server)
            .is_some_and(|orders| orders.contains_key(&what))
    }

    /// At most `limit` orders for a server whose commits are on disk.
    pub(crate) fn ready(&self, server: ServerId, synced: Lsn, limit: usize) -> Vec<Retire> {
        let Some(orders) = self.by_server.get(&server) else {
            return Vec::new();
        };
        let ready = orders.iter().filter(|(_, lsn)| **lsn <= synced).take(limit);
        let (mut chunks, mut out) = (Vec::new(), Vec::new());
        for (what, _) in ready {
            match *what {
                RetireKey::Chunk(chunk) => chunks.push(ChunkName::Free(chunk)),
                RetireKey::Generation(object, below) => {
                    out.push(Retire::Generation { object, below });
                }
                RetireKey::Object(object) => out.push(Retire::Object(object)),
            }
        }
        if !chunks.is_empty() {
            out.push(Retire::Chunks(chunks));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip() {
        for what in [
            RetireKey::Chunk(ChunkId(u64::MAX)),
            RetireKey::Generation(ObjectId(5), 7),
            RetireKey::Object(ObjectId(9)),
        ] {
            assert_eq!(
                RetireKey::parse(&what.key(ServerId(3))),
                Ok((ServerId(3), what))
            );
        }
        assert!(RetireKey::parse(b"q").is_err());
    }

    #[test]
    fn only_what_is_on_disk_is_ordered() {
        let mut retired = Retired::default();
        retired.add(ServerId(1), RetireKey::Chunk(ChunkId(1)), Lsn(1));
        retired.add(ServerId(1), RetireKey::Chunk(ChunkId(2)), Lsn(2));
        let ready = retired.ready(ServerId(1), Lsn(1), 10);
        assert_eq!(
            ready,
            vec![Retire::Chunks(vec![ChunkName::Free(ChunkId(1))])]
        );
        assert!(retired.ready(ServerId(2), Lsn(9), 10).is_empty());
    }
}
