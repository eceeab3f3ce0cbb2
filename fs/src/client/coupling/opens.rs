//! Which coupled objects this mount has open, as the metadata service knows it.
//!
//! The service gets the complete list, numbered, after each change, and again with every heartbeat while it is not empty: it is in
//! the service's memory only.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use slabfs_mdserver::api::{CoupledOpen, Ino, op};

use crate::client::Client;
use crate::client::coupling::matching::caller;
use crate::client::error::FsError;
use crate::client::handle::Handle;

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
    /// The thread of each writing handle, by the handle's number.
    writers: BTreeMap<u64, u32>,
    readers: u32,
}

impl Client {
    /// Reports that a handle of a coupled object was opened.
    pub(in crate::client) fn coupled_opened(&self, handle: &Handle) -> Result<(), FsError> {
        {
            let mut state = self.coupling.opens.state.lock();
            let open = state.objects.entry(handle.object.ino).or_default();
            match handle.writable {
                // Which thread will write is known when it does.
                true => drop(open.writers.insert(handle.id.0, 0)),
                false => open.readers += 1,
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
            known.is_some_and(|known| std::mem::replace(known, thread) != thread)
        };
        if other {
            // The next heartbeat reports it. Until then a deadlock may be missed, and none is seen that is not there,
            // unless the thread that wrote before waits.
            self.coupling.opens.state.lock().known = true;
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
                false => open.readers = open.readers.saturating_sub(1),
            }
            if open.writers.is_empty() && open.readers == 0 {
                state.objects.remove(&handle.object.ino);
            }
        }
        if let Err(error) = self.report_coupled() {
            tracing::warn!(object = %handle.object.ino, %error, "the service does not know yet that a coupled object was closed");
        }
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
                    writers: open.writers.values().copied().collect(),
                    readers: open.readers,
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
