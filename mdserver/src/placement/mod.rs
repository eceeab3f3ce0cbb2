//! Data servers: who is there, who is online, what each is to delete.
//!
//! A server is known by the uuid in its directory and keeps its [`ServerId`] for good, under whatever
//! address it comes back. It is online while it was heard within the last seconds.
//!
//! Where chunks go is settled here in two ways. The *stripe* of an object (`choose`) is what its
//! placement comes to where that is arithmetic; it is chosen when the object is made, declared or
//! emptied. Of the others a client chooses chunk by chunk, within *places* leased in advance (`lease`):
//! bytes for each server, dealt so that all servers come out with equal bytes (`load`).

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
pub(crate) use register::register;
pub(crate) use retire::{RetireKey, Retired};

use slabfs_model::ServerId;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::api::{ServerInfo, StatFs};
use crate::records::ServerRecord;
use load::Load;

/// The part of a disk, and at most so many bytes, that is kept back from new chunks.
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
    /// Chunks it holds.
    pub(crate) chunks: u64,
    /// It has so little room left that new chunks go elsewhere.
    pub(crate) full: bool,
    pub(crate) load: Load,
    /// Version of the list that said it is being emptied.
    pub(crate) marked: u64,
}

impl Server {
    /// A server that was not heard yet.
    pub(crate) fn silent(record: ServerRecord) -> Self {
        Self {
            record,
            heard: None,
            online: false,
            total: 0,
            free: 0,
            used: 0,
            chunks: 0,
            full: false,
            load: Load::default(),
            marked: 0,
        }
    }

    /// Whether the room left is no more than what is kept back: a server that is filled to the last
    /// block cannot even delete.
    pub(crate) fn is_short(&self) -> bool {
        self.free <= (self.total / RESERVE_PART).min(RESERVE_MOST)
    }

    /// Whether it may get new chunks.
    pub(crate) fn takes_chunks(&self) -> bool {
        self.online && !self.record.draining && !self.full
    }
}

/// All data servers.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) by_id: BTreeMap<ServerId, Server>,
    pub(crate) by_uuid: HashMap<[u8; 16], ServerId>,
    /// Grows when the list changes in a way that clients see; also over restarts.
    pub(crate) version: u64,
}

impl Servers {
    /// No servers yet. The version begins at the clock, so that a client of an earlier epoch of the
    /// service takes the list anew.
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
                full: server.full,
                total: server.total,
                free: server.free,
                used: server.used,
                stored: server.load.stored,
                chunks: server.chunks,
                in_flight: server.load.leased,
            })
            .collect()
    }

    /// Ids of all servers.
    pub(crate) fn ids(&self) -> Vec<ServerId> {
        self.by_id.keys().copied().collect()
    }

    /// Marks those as offline that were silent for too long.
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

    /// Totals over the servers that are online.
    pub(crate) fn totals(&self, inodes: u64) -> StatFs {
        let mut totals = StatFs {
            inodes,
            ..StatFs::default()
        };
        for server in self.by_id.values().filter(|server| server.online) {
            totals.total = totals.total.saturating_add(server.total);
            totals.free = totals.free.saturating_add(server.free);
            totals.used = totals.used.saturating_add(server.used);
        }
        totals
    }
}
