//! Which coupled objects this mount has open, as the metadata service knows it.
//!
//! The service gets the complete list, numbered, after each change, and again with every heartbeat while it is not empty: it is in
//! the service's memory only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use slabfs_mdserver::api::{CoupledOpen, Ino, op};

use crate::client::Client;
use crate::client::coupling::matching::caller;
use crate::client::error::FsError;
use crate::client::handle::Handle;
use crate::client::object::Object;

#[derive(Debug, Default)]
pub(super) struct Opens {
    state: Mutex<State>,
    /// Serialises reports, so that they arrive in order.
    reporting: Mutex<u64>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Ino, Open>,
    /// The list that the service has is not empty.
    known: bool,
}

#[derive(Debug, Default)]
struct Open {
    /// The writing handles, by their numbers.
    writers: BTreeMap<u64, Writer>,
    /// The row of each reading handle, by the handle's number.
    readers: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Writer {
    /// The thread that wrote last; 0 for none.
    thread: u32,
    /// [`Handle::row`].
    row: Arc<AtomicU64>,
}

impl Open {
    /// The first row that is still read.
    fn from(&self) -> u64 {
        self.readers.values().copied().min().unwrap_or(0)
    }
}

impl Client {
    /// Reports that a handle of a coupled object was opened.
    pub(in crate::client) fn coupled_opened(&self, handle: &Handle) -> Result<(), FsError> {
        {
            let mut state = self.coupling.opens.state.lock();
            let open = state.objects.entry(handle.object.ino).or_default();
            match handle.writable {
                // Which thread will write is known when it does.
                true => {
                    let row = Arc::clone(&handle.row);
                    open.writers.insert(handle.id.0, Writer { thread: 0, row });
                }
                false => drop(open.readers.insert(handle.id.0, first_row(handle))),
            }
        }
        self.report_coupled()
    }

    /// Notes which thread writes through a handle; reports it if it is another one than before.
    pub(in crate::client) fn coupled_written(&self, handle: &Handle) {
        let thread = caller();
        let other = {
            let mut state = self.coupling.opens.state.lock();
            let open = state.objects.get_mut(&handle.object.ino);
            let known = open.and_then(|open| open.writers.get_mut(&handle.id.0));
            known.is_some_and(|known| std::mem::replace(&mut known.thread, thread) != thread)
        };
        if other {
            // The next heartbeat reports it. Until then a deadlock may be missed, and none is seen that is not there,
            // unless the thread that wrote before waits.
            self.coupling.opens.state.lock().known = true;
        }
    }

    /// Notes that a handle of an object with a queue reads a row, and none in front of it any more; reports that if it
    /// makes room.
    pub(in crate::client) fn coupled_read_on(
        &self,
        handle: &Handle,
        row: u64,
    ) -> Result<(), FsError> {
        if handle.row.fetch_max(row + 1, Ordering::AcqRel) > row {
            return Ok(());
        }
        let makes_room = {
            let mut state = self.coupling.opens.state.lock();
            let Some(open) = state.objects.get_mut(&handle.object.ino) else {
                return Ok(());
            };
            let before = open.from();
            if let Some(known) = open.readers.get_mut(&handle.id.0) {
                *known = row.max(*known);
            }
            open.from() != before
        };
        match makes_room {
            true => self.report_coupled(),
            false => Ok(()),
        }
    }

    /// Reports that a handle of a coupled object was closed. Its data was committed before.
    pub(in crate::client) fn coupled_closed(&self, handle: &Handle) {
        {
            let mut state = self.coupling.opens.state.lock();
            let Some(open) = state.objects.get_mut(&handle.object.ino) else {
                return;
            };
            match handle.writable {
                true => drop(open.writers.remove(&handle.id.0)),
                false => drop(open.readers.remove(&handle.id.0)),
            }
            if open.writers.is_empty() && open.readers.is_empty() {
                state.objects.remove(&handle.object.ino);
            }
        }
        if let Err(error) = self.report_coupled() {
            tracing::warn!(object = %handle.object.ino, %error, "the service does not know yet that a coupled object was closed");
        }
    }

    /// Whether another handle of this mount, through which an object may be written, has not come to this row yet.
    pub(in crate::client) fn is_behind(&self, handle: &Handle, row: u64) -> bool {
        let state = self.coupling.opens.state.lock();
        let open = state.objects.get(&handle.object.ino);
        open.is_some_and(|open| {
            let mut others = open.writers.iter().filter(|(id, _)| **id != handle.id.0);
            others.any(|(_, other)| other.row.load(Ordering::Acquire) <= row)
        })
    }

    /// Reports that data which was written to a coupled object is lost: reads of it must not find the end of the stream.
    pub(in crate::client) fn break_stream(&self, object: &Object) {
        if let Err(error) = self.md.call(op::BreakStream { ino: object.ino }) {
            tracing::warn!(object = %object.ino, %error, "readers do not know that data of a coupled object is lost");
        }
    }

    /// Whether a program on this mount has a coupled object open for writing.
    pub(in crate::client) fn has_coupled_writer(&self, ino: Ino) -> bool {
        let state = self.coupling.opens.state.lock();
        let open = state.objects.get(&ino);
        open.is_some_and(|open| !open.writers.is_empty())
    }

    /// Reports again what is open, for a service that was restarted; called with each heartbeat.
    pub(in crate::client) fn report_coupled_again(&self) {
        let any = {
            let state = self.coupling.opens.state.lock();
            state.known || !state.objects.is_empty()
        };
        if any && let Err(error) = self.report_coupled() {
            tracing::debug!(%error, "coupled objects are reported again with the next heartbeat");
        }
    }

    fn report_coupled(&self) -> Result<(), FsError> {
        let mut number = self.coupling.opens.reporting.lock();
        let opens: Vec<CoupledOpen> = {
            let state = self.coupling.opens.state.lock();
            let objects = state.objects.iter();
            objects
                .map(|(&ino, open)| CoupledOpen {
                    ino,
                    writers: open.writers.values().map(|one| one.thread).collect(),
                    readers: open.readers.len() as u32,
                    from: open.from(),
                })
                .collect()
        };
        *number += 1;
        let known = !opens.is_empty();
        self.md.call(op::CoupledOpens {
            number: *number,
            opens,
        })?;
        self.coupling.opens.state.lock().known = known;
        Ok(())
    }
}

/// The first row that a new handle may read.
fn first_row(handle: &Handle) -> u64 {
    let selected = handle.selected.as_ref();
    let bounds = selected.and_then(|selected| selected.slab.bounds());
    bounds.map_or(0, |bounds| bounds.offset[0])
}
