//! Data servers: which are known, which are online, what each has to delete.
//!
//! A server is identified by the UUID in its directory and has the same [`ServerId`] for ever, whatever address it
//! comes back with. It is online if it reported within the last seconds.
//!
//! Chunks are placed in two ways. The *stripe* of an object (`choose`) is what its placement yields where that is
//! arithmetic; it is chosen when the object is created, declared or emptied. With the other placements a client
//! chooses chunk by chunk, within *places* leased in advance (`lease`): bytes for each server, distributed so that
//! all servers end up with equal bytes (`load`).

mod choose;
mod drain;
mod lease;
mod load;
mod permits;
mod register;
mod retire;

pub(crate) use drain::{holdings, restripe, set_draining};
pub(crate) use lease::{Places, lease_places, return_places, void_places};
pub(crate) use permits::{Permits, permit};
pub(crate) use register::{end_memory, register};
pub(crate) use retire::{RetireKey, Retired};

use slabfs_model::ServerId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::api::{ServerInfo, StatFs};
use crate::records::ServerRecord;
use load::Load;

/// The fraction of a disk, and the most bytes, that are reserved from new chunks.
const RESERVE_PART: u64 = 64;
const RESERVE_MOST: u64 = 256 << 20;

/// A data server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) record: ServerRecord,
    pub(crate) heard: Option<Instant>,
    pub(crate) online: bool,
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
    /// The number of its filesystem on its host.
    pub(crate) disk: Option<u64>,
    /// Chunks it holds.
    pub(crate) chunks: u64,
    /// Counters of the engine that it is on.
    pub(crate) engine: Vec<(String, u64)>,
    /// It has so little space left that new chunks go elsewhere.
    pub(crate) full: bool,
    pub(crate) load: Load,
    /// Version of the list that marked it as draining.
    pub(crate) marked: u64,
}

impl Server {
    /// A server that has not reported yet.
    pub(crate) fn silent(record: ServerRecord) -> Self {
        Self {
            record,
            heard: None,
            online: false,
            total: 0,
            free: 0,
            used: 0,
            disk: None,
            chunks: 0,
            engine: Vec::new(),
            full: false,
            load: Load::default(),
            marked: 0,
        }
    }

    /// Whether no more than the reserved space is left: a server without a free block cannot even delete.
    pub(crate) fn is_short(&self) -> bool {
        self.free <= (self.total / RESERVE_PART).min(RESERVE_MOST)
    }

    /// Whether it may get new chunks.
    pub(crate) fn takes_chunks(&self) -> bool {
        self.online && self.is_usable() && !self.full
    }

    /// Whether it may get new chunks if nothing else has room.
    fn is_usable(&self) -> bool {
        !self.record.draining && !self.record.memory
    }
}

/// All data servers.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) by_id: BTreeMap<ServerId, Server>,
    pub(crate) by_uuid: HashMap<[u8; 16], ServerId>,
    /// Grows when the list changes in a way that clients see; monotonic across restarts.
    pub(crate) version: u64,
}

impl Servers {
    /// No servers yet. The version starts at the clock, so that clients from before a restart of the service fetch
    /// the list again.
    pub(crate) fn new() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            by_id: BTreeMap::new(),
            by_uuid: HashMap::new(),
            version: since.as_micros() as u64,
        }
    }

    /// The list as clients see it.
    pub(crate) fn list(&self) -> Vec<ServerInfo> {
        self.by_id
            .iter()
            .map(|(&id, server)| ServerInfo {
                id,
                uuid: server.record.uuid,
                addr: server.record.addr.clone(),
                host: server.record.host.clone(),
                online: server.online,
                draining: server.record.draining,
                memory: server.record.memory,
                full: server.full,
                total: server.total,
                free: server.free,
                used: server.used,
                stored: server.load.stored,
                chunks: server.chunks,
                in_flight: server.load.leased,
                engine: server.engine.clone(),
            })
            .collect()
    }

    /// Servers in the memory of mounts that are gone, and their data with them.
    pub(crate) fn gone(&self, since: Instant, lease: Duration) -> Vec<ServerId> {
        // After a start they have to report first.
        let starts = since.elapsed() <= lease;
        let silent = |server: &Server| !(server.online || starts && server.heard.is_none());
        let gone = |server: &Server| server.record.memory && silent(server);
        let servers = self.by_id.iter();
        servers
            .filter(|(_, server)| gone(server))
            .map(|(&id, _)| id)
            .collect()
    }

    /// Whether a server is known and being drained.
    pub(crate) fn drains(&self, id: ServerId) -> bool {
        let server = self.by_id.get(&id);
        server.is_some_and(|server| server.record.draining)
    }

    /// Ids of all servers.
    pub(crate) fn ids(&self) -> Vec<ServerId> {
        self.by_id.keys().copied().collect()
    }

    /// Marks servers as offline that were silent for too long.
    pub(crate) fn watch(&mut self, now: Instant, silence: Duration) {
        for (id, server) in &mut self.by_id {
            let heard = server
                .heard
                .is_some_and(|heard| now.duration_since(heard) < silence);
            if server.online && !heard {
                server.online = false;
                self.version += 1;
                let addr = server.record.addr.as_deref().unwrap_or("this process");
                tracing::warn!(server = %id, addr, "data server is silent");
            }
        }
    }

    /// Totals over the servers that are online; a filesystem of several servers counts once.
    pub(crate) fn totals(&self, inodes: u64) -> StatFs {
        let mut totals = StatFs {
            inodes,
            ..StatFs::default()
        };
        let mut counted = HashSet::new();
        let counts = |server: &&Server| server.online && !server.record.memory;
        for server in self.by_id.values().filter(counts) {
            let disk = server.disk.map(|disk| (&server.record.host, disk));
            if disk.is_some_and(|disk| !counted.insert(disk)) {
                continue;
            }
            totals.total = totals.total.saturating_add(server.total);
            totals.free = totals.free.saturating_add(server.free);
            totals.used = totals.used.saturating_add(server.used);
        }
        totals
    }
}
