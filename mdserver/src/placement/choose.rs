//! Chooses the stripe of an object: the servers that its placement yields when it is created, declared or emptied.
//!
//! | placement | stripe |
//! |---|---|
//! | `object` | the one server given by a hash of the object |
//! | `region` | all servers in the order of their numbers, one block each |
//! | `dynamic` | all servers, rotated so that the first chunk goes to the emptiest |
//! | `local` | the server on the caller's machine, else one chosen by a hash of the machine's name |
//! | `server:N` | that one; while it is drained, the emptiest of the others |
//!
//! *All servers* are those that may get new chunks: online, not draining, not full; if there are none, all that are
//! not draining. For a grid, the stripe defines where chunks are, so it changes only together with them. For an
//! `aligned` object it defines where the next chunks go.

use slabfs_model::layout::{grid::first_of, object_server};
use slabfs_model::{ObjectId, Placement, ServerId};
use smallvec::SmallVec;
use std::time::Instant;

use super::Servers;
use super::load::NEW_OBJECT;
use crate::api::{Ino, MdError};
use crate::records::Object;
use crate::txn::Txn;

/// Most servers one object is spread over.
const MAX_STRIPE: usize = 64;

impl Servers {
    /// The servers that may get new chunks; if there are none, those that should not but can.
    pub(crate) fn takers(&self) -> Vec<ServerId> {
        let those = |fits: &dyn Fn(&super::Server) -> bool| -> Vec<ServerId> {
            let found = self.by_id.iter().filter(|(_, server)| fits(server));
            found.map(|(&id, _)| id).collect()
        };
        let mut found = those(&super::Server::takes_chunks);
        if found.is_empty() {
            found = those(&|server| server.online && server.is_usable());
        }
        if found.is_empty() {
            found = those(&super::Server::is_usable);
        }
        found
    }

    fn emptiest(&self, ids: &[ServerId]) -> usize {
        let book = |id: &ServerId| {
            self.by_id
                .get(id)
                .map_or(u64::MAX, |server| server.load.book)
        };
        let places = 0..ids.len();
        places.min_by_key(|&at| book(&ids[at])).unwrap_or(0)
    }

    /// The servers that a placement yields for an object, as requested from a machine; empty while no server is
    /// known.
    fn stripe(
        &mut self,
        ino: Ino,
        placement: Placement,
        host: &str,
    ) -> Result<Vec<ServerId>, MdError> {
        let mut ids = self.takers();
        match placement {
            Placement::Server(id) => {
                let named = self.named(id)?;
                if !self.drains(id) {
                    return Ok(named);
                }
                // A drained server stays empty. One server, since one was requested.
                let emptiest = self.emptiest(&ids);
                ids = ids.get(emptiest).copied().into_iter().collect();
                self.expect_object(&ids);
            }
            Placement::Object => {
                return Ok(object_server(ino, &ids).into_iter().collect());
            }
            Placement::Local => return Ok(self.on_host(&ids, host).into_iter().collect()),
            Placement::Region => ids.truncate(MAX_STRIPE),
            Placement::Dynamic => {
                let emptiest = self.emptiest(&ids);
                ids.rotate_left(emptiest);
                self.expect_object(&ids);
                ids.truncate(MAX_STRIPE);
                let first = first_of(ino, ids.len());
                ids.rotate_right(first);
            }
        }
        Ok(ids)
    }

    /// Adds the expected bytes of a new object to the first of the servers.
    fn expect_object(&mut self, ids: &[ServerId]) {
        if let Some(server) = ids.first().and_then(|id| self.by_id.get_mut(id)) {
            server.load.expect(NEW_OBJECT, Instant::now());
        }
    }

    /// A server by its number.
    pub(crate) fn named(&self, id: ServerId) -> Result<Vec<ServerId>, MdError> {
        if self.by_id.contains_key(&id) {
            return Ok(vec![id]);
        }
        let known: Vec<String> = self.by_id.keys().map(ToString::to_string).collect();
        Err(MdError::Invalid(format!(
            "there is no data server {id}; there are {}; `slabfs servers` shows them",
            known.join(", ")
        )))
    }

    /// The emptiest server on a machine; if there is none, the same server for all requests from that machine.
    fn on_host(&self, ids: &[ServerId], host: &str) -> Option<ServerId> {
        let there = |id: &&ServerId| {
            let server = self.by_id.get(id);
            server.is_some_and(|server| server.record.host == host)
        };
        let here: Vec<ServerId> = ids.iter().filter(there).copied().collect();
        match here.get(self.emptiest(&here)) {
            Some(&id) => Some(id),
            None => slabfs_model::layout::placement::server_on_host(host, ids),
        }
    }
}

impl Txn<'_> {
    /// The servers that a placement yields for an object, as requested from the caller's machine.
    pub(crate) fn stripe_for(
        &mut self,
        ino: Ino,
        placement: Placement,
    ) -> Result<Vec<ServerId>, MdError> {
        let host = match self.ctx.session {
            Some(id) => self.state.session(id)?.record.host.clone(),
            None => String::new(),
        };
        self.state.servers.stripe(ino, placement, &host)
    }

    /// Sets the stripe that the object's placement yields now. Its chunks, if it is a grid, are of a new generation.
    pub(crate) fn choose_stripe(
        &mut self,
        ino: ObjectId,
        object: &mut Object,
    ) -> Result<(), MdError> {
        let stripe = self.stripe_for(ino, object.info.placement)?;
        object.take_stripe(stripe);
        Ok(())
    }
}

impl Object {
    /// Sets the stripe; chunks on the previous one may stay there as strays.
    pub(crate) fn take_stripe(&mut self, stripe: Vec<ServerId>) {
        let old = std::mem::replace(&mut self.info.stripe, stripe);
        self.strays_on(&old);
        let is_grid = self.info.is_grid();
        self.info.blocks =
            (is_grid && self.info.placement == Placement::Region).then(|| self.info.extents());
    }

    /// Records servers outside the stripe that may hold grid chunks of the object.
    pub(crate) fn strays_on(&mut self, servers: &[ServerId]) {
        let mut strays: SmallVec<[ServerId; 2]> = std::mem::take(&mut self.strays);
        strays.extend_from_slice(servers);
        strays.sort_unstable();
        strays.dedup();
        strays.retain(|id| !self.info.stripe.contains(id));
        self.strays = strays;
    }
}
