//! Queues: the number of steps of a coupled array that are in memory is limited (`queue=N`). A step is a row of the slowest
//! axis.
//!
//! Before a mount writes to a row for the first time it asks the service for room. With `full=block` that comes when all
//! readers have begun to read a row behind those that leave the queue, with `full=discard` at once. Then the mount drops what
//! leaves the queue: it commits a record that hides these rows, and deletes its own chunks of them. Other mounts that
//! write delete theirs when they get to that row.
//!
//! While a write waits that makes a file longer, the kernel lets no other write to the file on this mount pass. So a write does
//! not wait while another program on the mount has rows in front of it to write, which readers may need: the queue is
//! longer then.
//!
//! Invariant: a read of a dropped row fails, also on mounts that have not dropped it themselves.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slabfs_mdserver::api::{Commit, Room, Stored, op};
use slabfs_model::{Hyperslab, Region, ServerId};
use slabfs_objstore::ChunkName;

use crate::client::Client;
use crate::client::buffer::flush::Scope;
use crate::client::error::FsError;
use crate::client::handle::Handle;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::stored::tilings::Need;

/// How long one request waits. Then it is looked whether another program on the mount has opened the file.
const WAIT: Duration = Duration::from_millis(200);

impl Handle {
    /// Whether a write may have to wait until readers have read on. If that is not known at once, it may.
    pub(in crate::client) fn may_await_room(&self, offset: u64, len: usize) -> bool {
        self.object.coupled.has_queue()
            && self.object.geometry.try_read().is_none_or(|geometry| {
                let (from, rows) = self.rows_written(&geometry, offset, len);
                if self.row.load(Ordering::Acquire) <= from {
                    return true;
                }
                self.object.coupled.may_be_full(rows)
            })
    }

    /// Waits until the queue of a coupled object has room for a write.
    ///
    /// # Errors
    /// `NoData` after the object's timeout; those of the metadata service and of a flush.
    pub(in crate::client) fn await_room(&self, offset: u64, len: usize) -> Result<(), FsError> {
        if !self.object.coupled.has_queue() {
            return Ok(());
        }
        let rows = self.rows_written(&self.object.geometry.read(), offset, len);
        self.await_rows(rows, &|| true)
    }

    /// The first row that a write touches, and the end of the last one.
    fn rows_written(&self, geometry: &Geometry, offset: u64, len: usize) -> (u64, u64) {
        match &self.selected {
            Some(selected) => {
                let bounds = selected.slab.bounds();
                bounds.map_or((0, 0), |bounds| (bounds.offset[0], bounds.end(0)))
            }
            None => {
                let offset = match self.append {
                    true => self.append_at(self.object.size(geometry)),
                    false => offset,
                };
                let row = geometry.row.max(1);
                let end = offset.saturating_add(len as u64);
                (offset / row, end.div_ceil(row))
            }
        }
    }

    /// Waits until the queue has room for these rows. `wanted` is asked now and then whether the write still waits.
    ///
    /// # Errors
    /// As [`Handle::await_room`]; `Cancelled`.
    pub(in crate::client) fn await_rows(
        &self,
        (from, rows): (u64, u64),
        wanted: &dyn Fn() -> bool,
    ) -> Result<(), FsError> {
        self.row.fetch_max(from + 1, Ordering::AcqRel);
        let client = &self.client;
        // The kernel lets no other write to the file pass while one waits that makes it longer.
        if !self.object.coupled.may_be_full(rows) || client.is_behind(self, from) {
            return Ok(());
        }
        let timeout = {
            let geometry = self.object.geometry.read();
            geometry
                .info
                .couple
                .on()
                .map_or(WAIT, |couple| couple.timeout())
        };
        let begun = Instant::now();
        let first = loop {
            let left = timeout.saturating_sub(begun.elapsed());
            let wait = left.min(WAIT).min(client.options.io_timeout / 2);
            let Room { granted, first } = client.md().call(op::AwaitRoom {
                ino: self.object.ino,
                from,
                rows,
                wait_ms: op::millis(wait),
            })?;
            if granted {
                break first;
            }
            if client.is_behind(self, from) {
                // Another program has opened the file since.
                return Ok(());
            }
            if left.is_zero() {
                return Err(FsError::NoData(format!(
                    "object {}: no reader has read beyond row {} within {timeout:?}, and the queue has no room for row {}; is a \
                     reader running?",
                    self.object.ino,
                    first.saturating_sub(1),
                    rows - 1
                )));
            }
            if !wanted() {
                return Err(FsError::Cancelled);
            }
        };
        if first > 0 {
            client.drop_rows(&self.object, first)?;
        }
        self.object.coupled.room.fetch_max(rows, Ordering::AcqRel);
        Ok(())
    }
}

impl Handle {
    /// The length of a read of an array with a queue: as many rows as the queue has, since more are never there at the
    /// same time.
    pub(in crate::client) fn within_queue(&self, offset: u64, len: usize) -> usize {
        let queue = u64::from(self.object.coupled.queue());
        if queue == 0 || self.writable {
            return len;
        }
        let row = match &self.selected {
            Some(selected) => selected.shape[1..].iter().product(),
            None => self.object.geometry.read().row,
        };
        let row = u64::max(row, 1);
        let end = (offset / row + queue).saturating_mul(row);
        len.min(usize::try_from(end - offset).unwrap_or(usize::MAX))
    }
}

impl Client {
    /// Drops the rows in front of this one.
    fn drop_rows(&self, object: &Object, first: u64) -> Result<(), FsError> {
        // Otherwise what was written there before would be committed later, and hide that it is dropped.
        self.flush_object(object, Scope::All)?;
        let own = self.memory_server()?;
        let (rows, generation, gone) = {
            let geometry = object.geometry.read();
            let mut rows = Region::all(&geometry.cells);
            rows.shape[0] = rows.shape[0].min(first);
            if rows.is_empty() {
                return Ok(());
            }
            let (is_dropped, gone) = self.dropping(object, &geometry, &rows, own)?;
            if is_dropped {
                return self.delete_own(&gone);
            }
            (rows, geometry.info.generation, gone)
        };
        let reply = self.md().call(Commit {
            ino: object.ino,
            generation,
            records: vec![(Hyperslab::from_region(&rows), Stored::Dropped)],
            clips: Vec::new(),
            grow_to: None,
            size_at_least: 0,
            mtime: None,
            wrote: true,
            stored: 0,
            settled: true,
        })?;
        object.tiling.outdate();
        self.take_reply(object, &reply)?;
        self.delete_own(&gone)
    }

    /// Whether another mount has dropped these rows already; and the chunks of this mount in them.
    fn dropping(
        &self,
        object: &Object,
        geometry: &Geometry,
        rows: &Region,
        own: ServerId,
    ) -> Result<(bool, Vec<(ServerId, ChunkName)>), FsError> {
        self.with_tiling(object, geometry, Need::All, |tiling| {
            // By growing order: a later record is above those before it.
            let mut is_dropped = false;
            let mut gone = Vec::new();
            for record in tiling.iter() {
                let bounds = record.slab.bounds();
                let Some(bounds) = bounds.filter(|bounds| bounds.overlaps(rows)) else {
                    continue;
                };
                match &record.value {
                    Stored::Dropped => is_dropped |= bounds.contains(rows),
                    Stored::Chunk(stored) => {
                        is_dropped = false;
                        if stored.server == own && rows.contains(&bounds) {
                            gone.push((own, stored.name()));
                        }
                    }
                    Stored::Fill => is_dropped = false,
                }
            }
            (is_dropped, gone)
        })
    }

    fn delete_own(&self, gone: &[(ServerId, ChunkName)]) -> Result<(), FsError> {
        match gone.is_empty() {
            true => Ok(()),
            false => Ok(self.servers().delete(gone)?),
        }
    }
}
