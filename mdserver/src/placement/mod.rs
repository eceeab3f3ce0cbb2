//! Data servers: who is there, who is online, what each is to delete.
//!
//! A server is known by the uuid in its directory and keeps its [`ServerId`] for good, under whatever
//! address it comes back. It is online while it was heard within the last seconds. Objects of a grid
//! layout are spread over the servers known when they were made, round robin; where the chunks of an
//! `aligned` object go is the client's choice among those that are online.

mod register;
mod retire;

pub(crate) use register::register;
pub(crate) use retire::{RetireKey, Retired};

use slabfs_model::ServerId;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::api::{ServerInfo, StatFs};
use crate::records::ServerRecord;

/// Most servers one grid object is spread over.
const MAX_STRIPE: usize = 64;

/// A data server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) record: ServerRecord,
    pub(crate) heard: Option<Instant>,
    pub(crate) online: bool,
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
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
        }
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
    /// No servers yet. The version begins at the clock, so that a client of an earlier life of the
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
                online: server.online,
                total: server.total,
                free: server.free,
                used: server.used,
            })
            .collect()
    }

    /// Ids of all servers.
    pub(crate) fn ids(&self) -> Vec<ServerId> {
        self.by_id.keys().copied().collect()
    }

    /// The servers a new grid object is spread over: those online (all when none is), beginning at
    /// another one each time.
    pub(crate) fn stripe(&self, turn: u64) -> Vec<ServerId> {
        let online = self.by_id.iter().filter(|(_, server)| server.online);
        let mut ids: Vec<_> = online.map(|(&id, _)| id).collect();
        if ids.is_empty() {
            ids = self.ids();
        }
        if !ids.is_empty() {
            let turn = (turn % ids.len() as u64) as usize;
            ids.rotate_left(turn);
        }
        ids.truncate(MAX_STRIPE);
        ids
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
