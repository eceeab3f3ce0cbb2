//! The service's background thread.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use super::ServiceError;
use crate::api::MdError;
use crate::core::Core;
use crate::placement::void_places;
use crate::tilings;
use crate::{sessions, shards};

/// The thread and its stop signal.
pub(super) struct Upkeep {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Upkeep {
    /// Starts the thread.
    pub(super) fn start(core: Arc<Core>) -> Result<Self, ServiceError> {
        let shared = Arc::<Shared>::default();
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("md-upkeep".to_owned())
            .spawn(move || run(&core, &for_thread))
            .map_err(ServiceError::Thread)?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Stops the thread and waits for its end.
    pub(super) fn stop(&self) {
        *self.shared.stopped.lock() = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the background thread of the metadata service had panicked");
        }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(core: &Core, shared: &Shared) {
    let pause = core.options.upkeep;
    let mut last = Instant::now();
    let mut forgot = last;
    let mut failed = false;
    loop {
        {
            let mut stopped = shared.stopped.lock();
            if !*stopped {
                shared.wake.wait_for(&mut stopped, pause);
            }
            if *stopped {
                return;
            }
        }
        // The process was stopped or the machine asleep: no heartbeats could arrive meanwhile.
        let now = Instant::now();
        if now.duration_since(last) > pause + core.options.silence {
            forgive(core, now);
        }
        last = now;
        let forgets = core.options.shard.divided() && now.duration_since(forgot) >= shards::FORGETS;
        let done = round(core).and_then(|()| match forgets {
            true => shards::forget_removed(core),
            false => Ok(()),
        });
        if forgets {
            forgot = now;
        }
        match done {
            Ok(()) => failed = false,
            Err(error) => {
                if !failed {
                    tracing::error!("background work of the metadata service: {error}");
                }
                failed = true;
            }
        }
    }
}

/// Counts all sessions and servers as heard from now.
fn forgive(core: &Core, now: Instant) {
    let mut state = core.state();
    for session in state.sessions.live.values_mut() {
        session.heard = now;
    }
    for server in state.servers.by_id.values_mut() {
        server.heard = server.heard.map(|_| now);
    }
}

/// All work that is due now.
pub(super) fn round(core: &Core) -> Result<(), MdError> {
    let now = Instant::now();
    {
        let mut state = core.state();
        state.servers.watch(now, core.options.silence);
        void_places(&mut state, now);
        sessions::close_fences(core, &mut state, now);
    }
    if core.ids_low() {
        core.extend_ids()?;
    }
    core.dumps.forget_idle(core.options.dump_patience);
    sessions::expire(core, now)?;
    core.locks.look(now);
    while tilings::purge_some(core)? {}
    tilings::tidy(core, now)?;
    tilings::warm(core)?;
    core.tags.upkeep(&*core.kv)
}
