//! Placement: which data server gets a new chunk.
//!
//! - `dynamic` spends *places*: a number of bytes for each server that the metadata service deals in advance so that
//!   all fill evenly. The chunk goes to the server with the most left, so that many small writes are distributed
//!   evenly without a request each. The bytes spent are reported with the next request for places.
//! - `local` takes the emptiest, in the same sense, of the servers on this machine.
//! - `object` and `region` take the server of the object's stripe, `server:N` the named one.
//!
//! A server that is offline, draining or full is skipped, for the next in order; only the named one is waited for
//! while it is offline. Every choice is for new chunks: it never moves a chunk.

use std::time::{Duration, Instant};

use slabfs_mdserver::api::{ServerInfo, op};
use slabfs_model::layout::placement::server_on_host;
use slabfs_model::{ChunkId, Placement, Region, ServerId};
use slabfs_objstore::StoreError;

use crate::client::Client;
use crate::client::error::FsError;
use crate::client::object::geometry::Geometry;

/// Chunk ids leased at once: one request for so many chunks.
const LEASE: u32 = 1024;
/// Places requested at first, and the most: a lease should last about a second.
const PLACES: u64 = 16 << 20;
const MOST_PLACES: u64 = 1 << 30;
/// Places older than this are requested again: other mounts have written meanwhile.
const PLACES_LAST: Duration = Duration::from_secs(2);
/// A server that reported that it is full is skipped for so long; by then the list of servers has it.
const FULL_FOR: Duration = Duration::from_secs(5);

/// Chunk ids leased to this session.
#[derive(Debug, Default)]
pub(in crate::client) struct LeasedIds {
    next: u64,
    end: u64,
}

/// The data servers, as this mount knows them.
#[derive(Debug, Default)]
pub(in crate::client) struct Known {
    /// All of them.
    pub(in crate::client) all: Vec<ServerId>,
    /// Those that may get new chunks.
    pub(in crate::client) takers: Vec<ServerId>,
    /// Those of the takers on this machine.
    pub(in crate::client) wanted: Vec<ServerId>,
    /// Those that are being drained.
    pub(in crate::client) draining: Vec<ServerId>,
}

impl Known {
    /// The servers of a list, for a mount on the machine `host`; `here` returns which servers are in its process.
    pub(in crate::client) fn of(
        list: &[ServerInfo],
        host: &str,
        here: impl Fn(ServerId) -> bool,
    ) -> Known {
        let those = |fits: &dyn Fn(&ServerInfo) -> bool| -> Vec<ServerId> {
            let found = list.iter().filter(|server| fits(server));
            found.map(|server| server.id).collect()
        };
        let usable = |server: &ServerInfo| server.online && !server.draining && !server.memory;
        let mut takers = those(&|server| usable(server) && !server.full);
        if takers.is_empty() {
            // All are full: writes get the error from the server itself.
            takers = those(&usable);
        }
        let is_same_host = |id: &ServerId| {
            here(*id)
                || list
                    .iter()
                    .any(|server| server.id == *id && server.host == host)
        };
        Known {
            wanted: takers.iter().copied().filter(is_same_host).collect(),
            all: those(&|_| true),
            draining: those(&|server| server.draining),
            takers,
        }
    }
}

/// Bytes for each server, dealt in advance.
#[derive(Debug, Default)]
pub(in crate::client) struct Places {
    /// The rest of each; below zero where more was spent.
    left: Vec<(ServerId, i64)>,
    spent: Vec<(ServerId, u64)>,
    /// The bytes that were requested.
    leased: u64,
    since: Option<Instant>,
    /// Servers that reported that they are full, and when.
    full: Vec<(ServerId, Instant)>,
}

impl Places {
    /// Adopts a lease.
    fn take(&mut self, leased: u64, places: &[(ServerId, u64)]) {
        let left = places.iter();
        self.left = left
            .map(|&(id, bytes)| (id, bytes.min(i64::MAX as u64) as i64))
            .collect();
        self.leased = leased;
        self.spent.clear();
        self.since = Some(Instant::now());
    }

    /// Whether a new lease is due, and of how many bytes.
    fn due(&self, bytes: u64) -> Option<u64> {
        let Some(since) = self.since else {
            return Some(PLACES.max(bytes));
        };
        let age = since.elapsed();
        let left: i64 = self.left.iter().map(|(_, left)| *left).sum();
        if left > 0 && age < PLACES_LAST {
            return None;
        }
        // As many as were spent in the time a lease should last, if the rate stays the same.
        let wanted = if age < PLACES_LAST / 2 {
            self.leased.saturating_mul(2)
        } else {
            self.spent.iter().map(|(_, bytes)| *bytes).sum()
        };
        Some(wanted.clamp(PLACES, MOST_PLACES).max(bytes))
    }

    fn left_of(&self, id: ServerId) -> i64 {
        let found = self.left.iter().find(|(of, _)| *of == id);
        found.map_or(0, |(_, left)| *left)
    }

    /// The server of `among` with the most left.
    fn most(&self, among: &[ServerId]) -> Option<ServerId> {
        let among = among.iter().copied();
        among.rev().max_by_key(|id| self.left_of(*id))
    }

    /// Records bytes that go to a server.
    fn spend(&mut self, id: ServerId, bytes: u64) {
        let signed = bytes.min(i64::MAX as u64) as i64;
        match self.left.iter_mut().find(|(of, _)| *of == id) {
            Some((_, left)) => *left = left.saturating_sub(signed),
            None => self.left.push((id, -signed)),
        }
        match self.spent.iter_mut().find(|(of, _)| *of == id) {
            Some((_, spent)) => *spent = spent.saturating_add(bytes),
            None => self.spent.push((id, bytes)),
        }
    }

    fn is_full(&self, id: ServerId) -> bool {
        let reported = self.full.iter().find(|(of, _)| *of == id);
        reported.is_some_and(|(_, since)| since.elapsed() < FULL_FOR)
    }

    /// Those of `ids` that have not reported that they are full; all if all have.
    fn roomy(&self, ids: &[ServerId]) -> Vec<ServerId> {
        let roomy = ids.iter().copied().filter(|id| !self.is_full(*id));
        let roomy: Vec<ServerId> = roomy.collect();
        if roomy.is_empty() {
            ids.to_vec()
        } else {
            roomy
        }
    }
}

impl Client {
    /// A new chunk id, and the server that gets the chunk: `bytes` in the box `region` of the object, which
    /// [`Client::split`] has left in one block.
    pub(in crate::client) fn place(
        &self,
        geometry: &Geometry,
        region: &Region,
        bytes: u64,
    ) -> Result<(ChunkId, ServerId), FsError> {
        self.place_off(geometry, region, bytes, None)
    }

    /// [`Client::place`], but not on the server `off`.
    pub(in crate::client) fn place_off(
        &self,
        geometry: &Geometry,
        region: &Region,
        bytes: u64,
        off: Option<ServerId>,
    ) -> Result<(ChunkId, ServerId), FsError> {
        let server = match geometry.info.couple.is_in_memory() {
            true => self.memory_or(geometry, region, bytes, off)?,
            false => self.choose(geometry, region, bytes, off)?,
        };
        Ok((self.chunk_id()?, server))
    }

    /// The memory server; if that is full, and the object may spill, another one.
    fn memory_or(
        &self,
        geometry: &Geometry,
        region: &Region,
        bytes: u64,
        off: Option<ServerId>,
    ) -> Result<ServerId, FsError> {
        let id = self.memory_server()?;
        let is_full = off == Some(id) || self.places.lock().is_full(id);
        match is_full && spills(geometry) {
            true => self.choose(geometry, region, bytes, off),
            false => Ok(id),
        }
    }

    fn chunk_id(&self) -> Result<ChunkId, FsError> {
        let mut lease = self.leased_ids.lock();
        if lease.next == lease.end {
            let fresh = self.md.call(op::LeaseChunks { count: LEASE })?;
            lease.next = fresh.first.0;
            lease.end = fresh.first.0 + u64::from(fresh.count);
        }
        let chunk = ChunkId(lease.next);
        lease.next += 1;
        Ok(chunk)
    }

    fn choose(
        &self,
        geometry: &Geometry,
        region: &Region,
        bytes: u64,
        off: Option<ServerId>,
    ) -> Result<ServerId, FsError> {
        let named = match geometry.info.placement {
            Placement::Server(id) if off != Some(id) => Some(id),
            _ => None,
        };
        let mut known = self.known.lock().clone();
        if named.is_some_and(|id| known.draining.contains(&id)) {
            // The mark may have been removed since this mount got the list.
            known = self.ask_servers()?;
        }
        let named = named.filter(|id| !known.draining.contains(id));
        let known = self.takers()?;
        let takers = known.takers.iter().copied();
        let takers: Vec<ServerId> = takers.filter(|id| off != Some(*id)).collect();
        let stripe = &geometry.info.stripe;
        let mut places = self.places.lock();
        let takers = places.roomy(&takers);
        let in_order = |at: usize| {
            let order = (0..stripe.len()).map(|step| stripe[(at + step) % stripe.len()]);
            order.into_iter().find(|id| takers.contains(id))
        };
        let chosen = match geometry.info.placement {
            Placement::Server(_) => {
                if let Some(id) = named {
                    places.spend(id, bytes);
                    drop(places);
                    self.ensure_known(id)?;
                    return Ok(id);
                }
                None
            }
            Placement::Dynamic => None,
            Placement::Object => in_order(0),
            Placement::Region => {
                let block = geometry
                    .blocks
                    .as_ref()
                    .map_or(0, |cut| cut.of_cell(&region.offset));
                in_order(block)
            }
            Placement::Local => {
                let wanted: Vec<ServerId> = known
                    .wanted
                    .iter()
                    .copied()
                    .filter(|id| takers.contains(id))
                    .collect();
                places
                    .most(&wanted)
                    .or_else(|| server_on_host(&self.host, &takers))
            }
        };
        if let Some(id) = chosen {
            places.spend(id, bytes);
            return Ok(id);
        }
        drop(places);
        self.emptiest(&takers, bytes)
    }

    /// The server of `among` with the most places left, which gets `bytes`.
    pub(in crate::client) fn emptiest(
        &self,
        among: &[ServerId],
        bytes: u64,
    ) -> Result<ServerId, FsError> {
        let mut places = self.places.lock();
        if let Some(wanted) = places.due(bytes) {
            let spent = std::mem::take(&mut places.spent);
            let leased = self.md.call(op::LeasePlaces {
                bytes: wanted,
                spent,
            })?;
            places.take(wanted, &leased);
        }
        let id = places.most(among).ok_or(FsError::NoServers)?;
        places.spend(id, bytes);
        Ok(id)
    }

    /// Records bytes that go to a chunk that was placed before all of them were known.
    pub(in crate::client) fn spend(&self, server: ServerId, bytes: u64) {
        self.places.lock().spend(server, bytes);
    }

    /// Records that a server is full. Returns whether the chunk may go to another one: not when the object names its
    /// server, or when all others are full too.
    pub(in crate::client) fn full(&self, geometry: &Geometry, server: ServerId) -> bool {
        let known = self.known.lock().clone();
        let choice = self.has_choice(geometry, server);
        let mut places = self.places.lock();
        places.full.retain(|(of, _)| *of != server);
        places.full.push((server, Instant::now()));
        let has_room = |id: &ServerId| *id != server && !places.is_full(*id);
        let other = choice && known.takers.iter().any(has_room);
        if other {
            tracing::warn!(%server, "data server is full: chunks go to others");
        }
        other
    }

    /// Whether a chunk that a server has no room for may go to another one.
    pub(in crate::client) fn has_choice(&self, geometry: &Geometry, server: ServerId) -> bool {
        let named = matches!(geometry.info.placement, Placement::Server(_))
            || geometry.info.couple.is_in_memory() && !spills(geometry);
        let known = self.known.lock();
        !named && known.takers.iter().any(|id| *id != server)
    }

    /// Splits boxes at the cuts of placement `region`, so that each lies in one block.
    pub(in crate::client) fn split(&self, geometry: &Geometry, boxes: Vec<Region>) -> Vec<Region> {
        match &geometry.blocks {
            Some(blocks) if geometry.grid.is_none() => boxes
                .iter()
                .flat_map(|region| blocks.split(region))
                .map(|(_, region)| region)
                .collect(),
            _ => boxes,
        }
    }
}

/// Whether chunks of a coupled object may go to the data servers.
fn spills(geometry: &Geometry) -> bool {
    geometry.info.couple.on().is_some_and(|couple| couple.spill)
}

/// Whether an error means that a server has no room.
pub(in crate::client) fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::NoSpace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: &[u32]) -> Vec<ServerId> {
        numbers.iter().copied().map(ServerId).collect()
    }

    #[test]
    fn uneven_chunks_are_distributed_evenly() {
        let all = ids(&[1, 2, 3, 4]);
        let mut places = Places::default();
        let mut sums = [0u64; 5];
        let mut leases = 0;
        for chunk in 0..10_000u64 {
            let bytes = 1 + chunk * 7919 % 65_536;
            if let Some(wanted) = places.due(bytes) {
                leases += 1;
                let part = wanted / 4;
                places.take(
                    wanted,
                    &all.iter().map(|id| (*id, part)).collect::<Vec<_>>(),
                );
            }
            let id = places.most(&all).unwrap();
            places.spend(id, bytes);
            sums[id.0 as usize] += bytes;
        }
        let (least, most) = (
            sums[1..].iter().min().unwrap(),
            sums[1..].iter().max().unwrap(),
        );
        assert!((most - least) * 100 < *most, "{sums:?}");
        assert!(leases < 30, "{leases} questions");
    }

    #[test]
    fn a_lease_is_followed() {
        let all = ids(&[1, 2]);
        let mut places = Places::default();
        places.take(100, &[(ServerId(1), 10), (ServerId(2), 90)]);
        let mut to_first = 0;
        while places.due(1).is_none() {
            let id = places.most(&all).unwrap();
            places.spend(id, 5);
            to_first += u32::from(id == ServerId(1)) * 5;
        }
        assert!((5..=15).contains(&to_first), "{to_first}");
    }

    #[test]
    fn full_servers_are_skipped_while_there_are_others() {
        let mut places = Places::default();
        let all = ids(&[1, 2]);
        places.full.push((ServerId(1), Instant::now()));
        assert_eq!(places.roomy(&all), ids(&[2]));
        places.full.push((ServerId(2), Instant::now()));
        assert_eq!(places.roomy(&all), all);
    }
}
