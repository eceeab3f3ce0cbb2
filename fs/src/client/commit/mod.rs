//! Commits: chunks that the data servers have become part of an object's tiling.
//!
//! **Data first, receipt, then commit.** `send` brings the bytes to the data servers; [`Client::commit`] gives their
//! receipts to the metadata service, in one transaction, and adopts the result here: the cached tiling gets the new
//! records, and cached blocks of the object are dropped. Chunks that the servers have, but not yet on disk, are listed in
//! the object's `unsynced`; `sync` brings them there. Chunks that are never committed are deleted.

mod send;
mod sync;
mod unsynced;

use std::sync::atomic::Ordering;

use slabfs_mdserver::api::{Commit, CommitReply, Stored, Time};
use slabfs_model::layout::Record;
use slabfs_model::{Coords, Hyperslab, Region};

use crate::client::Client;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;

pub(super) use send::{BatchWrite, GridWrite, NewChunk};
pub(super) use unsynced::Unsynced;

/// What a commit changes besides the tiling.
pub(super) struct Change {
    /// Bytes that the object has at least afterwards.
    pub(super) size_at_least: u64,
    /// Time of the last write, if there was one.
    pub(super) mtime: Option<Time>,
    /// Whether data was written, into chunks or in place.
    pub(super) wrote: bool,
    /// Bytes written in place since the last commit.
    pub(super) stored: u64,
    /// Bytes of the object up to which its chunks reach; it grows to these here, before caches are dropped.
    pub(super) reach: u64,
}

impl Client {
    /// Commits `records`, of which `clips` are shown (all of them if it is empty), and adopts the reply, but for the object's form, which needs its lock exclusively
    /// ([`Client::take_reply`]).
    ///
    /// # Errors
    /// Of the metadata service; then nothing has changed here.
    pub(super) fn commit(
        &self,
        object: &Object,
        geometry: &Geometry,
        records: Vec<(Hyperslab, Stored)>,
        clips: Vec<Option<Region>>,
        change: Change,
    ) -> Result<CommitReply, FsError> {
        let reply = self.md().call(Commit {
            ino: object.ino,
            generation: geometry.info.generation,
            records: records.clone(),
            clips: clips.clone(),
            grow_to: None,
            size_at_least: change.size_at_least,
            mtime: change.mtime,
            wrote: change.wrote,
            stored: change.stored.min(i64::MAX as u64) as i64,
            settled: false,
        })?;
        object.committed.store(reply.attr.size, Ordering::Release);
        self.insert_records(object, geometry, &reply, records, clips);
        if geometry.grid.is_none() {
            object.grow(geometry, change.reach);
            object.epoch.fetch_add(1, Ordering::AcqRel);
            self.cache().forget_object(object);
        }
        Ok(*reply)
    }

    /// Inserts the records of this mount's own commit into its cached tiling.
    fn insert_records(
        &self,
        object: &Object,
        geometry: &Geometry,
        reply: &CommitReply,
        records: Vec<(Hyperslab, Stored)>,
        clips: Vec<Option<Region>>,
    ) {
        let mut chunks = object.tiling.write();
        let same_form = geometry.dims_at(reply.attr.size) == reply.info.dims;
        if chunks.version != Some(reply.before) || !same_form {
            // Another mount committed or resized in between: the next read fetches the tiling.
            chunks.version = None;
            return;
        }
        let clips = clips.into_iter().chain(std::iter::repeat(None));
        for ((order, (slab, value)), clip) in (reply.first_order..).zip(records).zip(clips) {
            let record = Record {
                slab,
                clip,
                order,
                value,
            };
            if let Err(error) = chunks.tiling.insert(record) {
                tracing::error!(object = %object.ino, %error, "a record does not fit; the tiling is fetched again");
                chunks.version = None;
                return;
            }
        }
        let mut gone = Vec::new();
        for order in &reply.dropped {
            if let Some(record) = chunks.tiling.remove(*order)
                && let Stored::Chunk(stored) = record.value
            {
                gone.push((stored.server, stored.name()));
            }
        }
        chunks.version = Some(reply.version);
        let weight = chunks.weight();
        drop(chunks);
        self.tilings.weigh(object.ino, &object.tiling, weight);
        // Chunks that were replaced before a sync need not be synced.
        let mut state = object.state.lock();
        for chunk in gone {
            state.unsynced.remove(&chunk);
        }
    }
}

/// Whether a box that ends at one of `ends` lies partly outside the object as the commit left it, because another
/// mount shrank it meanwhile.
pub(super) fn is_cut<'a>(
    reply: &CommitReply,
    ends: impl IntoIterator<Item = &'a Coords>,
) -> Result<bool, FsError> {
    let cells = reply
        .info
        .cells()
        .map_err(|error| FsError::Invalid(error.to_string()))?;
    let beyond = |ends: &Coords| {
        ends.len() == cells.len() && ends.iter().zip(&cells).any(|(end, cell)| end > cell)
    };
    Ok(ends.into_iter().any(beyond))
}
