//! The heartbeat of a data server: registration, space, deletions, sessions.
//!
//! One thread reports at once and then every interval. It carries out the ordered deletions, makes them durable, and
//! acknowledges them in the next report, which follows at once while there is more to do. Failed deletions are not
//! acknowledged, so they are ordered again; likewise those that do not fit before the next report is due: a thread that
//! only deletes would miss its lease and could not be stopped. A new session list comes into force ([`Fence`]) before
//! the next report, which acknowledges it and follows at once.

use std::{
    fmt,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use slabfs_model::{ServerId, ShardId};

use super::{Fence, Registrar, Retire, ServerOrders, ServerReport, tally::Tally};
use crate::{
    Moment,
    addr::Addr,
    error::{Result, StoreError},
    store::ChunkStore,
};

/// The maximum number of reports without a pause, while there are orders.
const BURST: u32 = 64;

/// How soon a heartbeat that waits for an id stops.
const STOPS: Duration = Duration::from_millis(100);

/// The server that a heartbeat reports for, and the interval.
#[derive(Debug, Clone)]
pub struct HeartOptions {
    /// The store's own id, stored in its directory.
    pub uuid: [u8; 16],
    /// The address for mounts; `None` for a store inside a mount's process.
    pub addr: Option<Addr>,
    /// The name of its host.
    pub host: String,
    /// It is in the memory of a mount.
    pub memory: bool,
    /// The shard that it reports to.
    pub shard: ShardId,
    /// Time between two reports.
    pub interval: Duration,
}

impl HeartOptions {
    /// A report every second, from this host.
    pub fn new(uuid: [u8; 16], addr: Option<Addr>) -> HeartOptions {
        let host = nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        HeartOptions {
            uuid,
            addr,
            host,
            memory: false,
            shard: ShardId::NAMES,
            interval: Duration::from_secs(1),
        }
    }
}

/// A running heartbeat thread; stopped when dropped.
pub struct Heart {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    store: Arc<dyn ChunkStore>,
    registrar: Arc<dyn Registrar>,
    fence: Arc<Fence>,
    options: HeartOptions,
    /// The heartbeat to the first shard, which assigns the id.
    first: Option<Arc<Shared>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    hurry: bool,
    /// Calls of [`Heart::finish`], and how many of them are satisfied: the metadata service had nothing left to delete.
    asked: u64,
    answered: u64,
    id: Option<ServerId>,
    last_error: Option<StoreError>,
}

impl fmt::Debug for Heart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heart")
            .field("options", &self.shared.options)
            .field("state", &self.shared.state)
            .finish()
    }
}

impl Heart {
    /// Starts to report `store` to `registrar`, and to hand session lists to `fence`.
    pub fn start(
        store: Arc<dyn ChunkStore>,
        registrar: Arc<dyn Registrar>,
        fence: Arc<Fence>,
        options: HeartOptions,
    ) -> Result<Heart> {
        Heart::of(Shared {
            store,
            registrar,
            fence,
            options,
            first: None,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        })
    }

    /// Starts to report the same server to another shard, `registrar`, under the id that the first one assigns.
    pub fn start_other(&self, shard: ShardId, registrar: Arc<dyn Registrar>) -> Result<Heart> {
        let Shared {
            store,
            fence,
            options,
            ..
        } = &*self.shared;
        Heart::of(Shared {
            store: Arc::clone(store),
            registrar,
            fence: Arc::clone(fence),
            options: HeartOptions {
                shard,
                ..options.clone()
            },
            first: Some(Arc::clone(&self.shared)),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        })
    }

    fn of(shared: Shared) -> Result<Heart> {
        let shared = Arc::new(shared);
        let thread = {
            let shared = shared.clone();
            thread::Builder::new()
                .name("slabfs-heart".into())
                .spawn(move || beat(&shared))
        };
        let thread = thread.map_err(|e| StoreError::Io {
            what: "starting the heartbeat".into(),
            detail: e.to_string(),
            errno: e.raw_os_error(),
        })?;
        Ok(Heart {
            shared,
            thread: Some(thread),
        })
    }

    /// The id that the metadata service assigned, once it has.
    pub fn id(&self) -> Option<ServerId> {
        self.shared.state.lock().id
    }

    /// Waits until the server is registered. Returns the last error after `patience`, and at once if the metadata
    /// service rejects this server ([`StoreError::Invalid`]).
    pub fn registered(&self, patience: Duration) -> Result<ServerId> {
        let until = Instant::now() + patience;
        let mut state = self.shared.state.lock();
        loop {
            if let Some(id) = state.id {
                return Ok(id);
            }
            if let Some(refused @ StoreError::Invalid(_)) = &state.last_error {
                return Err(refused.clone());
            }
            if self
                .shared
                .changed
                .wait_until(&mut state, until)
                .timed_out()
                && state.id.is_none()
            {
                return Err(state.last_error.clone().unwrap_or(StoreError::Deadline));
            }
        }
    }

    /// Reports now instead of at the end of the interval.
    pub fn hurry(&self) {
        self.shared.state.lock().hurry = true;
        self.shared.changed.notify_all();
    }

    /// Waits until the metadata service has nothing more to delete here, or until `until`.
    pub fn finish(&self, until: Instant) {
        let mut state = self.shared.state.lock();
        state.asked += 1;
        let mine = state.asked;
        state.hurry = true;
        self.shared.changed.notify_all();
        while state.answered < mine
            && !self
                .shared
                .changed
                .wait_until(&mut state, until)
                .timed_out()
        {}
    }

    /// Stops after the report in progress and joins the thread.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.shared.state.lock().stop = true;
        self.shared.changed.notify_all();
        if thread.join().is_err() {
            tracing::error!("the heartbeat panicked");
        }
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits until the first shard has assigned the id; false if the heartbeat is to stop.
fn await_id(shared: &Shared) -> bool {
    let Some(first) = &shared.first else {
        return true;
    };
    loop {
        if shared.state.lock().stop {
            return false;
        }
        let mut state = first.state.lock();
        if state.id.is_some() {
            return true;
        }
        first.changed.wait_for(&mut state, STOPS);
    }
}

fn beat(shared: &Shared) {
    if !await_id(shared) {
        return;
    }
    let mut done = Vec::new();
    let mut tally = Tally::default();
    let mut burst = 0;
    loop {
        let sent = Moment::now();
        // Read before the report: a report in progress does not cover later removals.
        let asked = shared.state.lock().asked;
        match report(shared, &mut tally, &mut done) {
            Ok(orders) => {
                // A slow reply may come too late for its lease; report again at once.
                let lease = Duration::from_millis(orders.lease_ms);
                let late = sent.elapsed() > shared.options.interval;
                let has_sessions = orders.sessions.is_some();
                let nothing = orders.delete.is_empty();
                let until = sent + trusted(lease);
                shared
                    .fence
                    .take(shared.options.shard, orders.sessions, until);
                done = carry_out(shared, orders.delete);
                if nothing {
                    shared.state.lock().answered = asked;
                    shared.changed.notify_all();
                }
                // Acknowledge at once and fetch further orders.
                let again = has_sessions || late || !done.is_empty();
                burst = if again { burst + 1 } else { 0 };
            }
            Err(e) => {
                burst = 0;
                let mut state = shared.state.lock();
                if state.last_error.as_ref() != Some(&e) {
                    tracing::warn!("the heartbeat fails, retrying: {e}");
                }
                state.last_error = Some(e);
                drop(state);
                shared.changed.notify_all();
            }
        }
        let mut state = shared.state.lock();
        if (1..BURST).contains(&burst) && !state.stop {
            continue;
        }
        burst = 0;
        let until = Instant::now() + shared.options.interval;
        while !state.stop
            && !state.hurry
            && !shared.changed.wait_until(&mut state, until).timed_out()
        {}
        state.hurry = false;
        if state.stop {
            return;
        }
    }
}

/// Sends one report. `done`, the acknowledged orders, is cleared only if the report arrives.
fn report(shared: &Shared, tally: &mut Tally, done: &mut Vec<Retire>) -> Result<ServerOrders> {
    // Mounts would go to it, instead of to the process that serves its chunks now.
    shared.store.may_answer()?;
    let known = match &shared.first {
        None => shared.state.lock().id,
        Some(first) => first.state.lock().id,
    };
    let held = tally.step(shared.store.as_ref())?;
    let report = ServerReport {
        memory: shared.options.memory,
        uuid: shared.options.uuid,
        id: known,
        addr: shared.options.addr.as_ref().map(ToString::to_string),
        host: shared.options.host.clone(),
        space: shared.store.space()?,
        chunks: held.chunks,
        stored: held.bytes,
        engine: shared.store.counts(),
        deleted: done.clone(),
        obeys: shared.fence.obeys(shared.options.shard),
    };
    let orders = shared.registrar.heartbeat(report)?;
    done.clear();
    let mut state = shared.state.lock();
    if let Some(old) = state.id.replace(orders.id)
        && old != orders.id
    {
        tracing::warn!(
            "this data server was {old} and is {} from now on",
            orders.id
        );
    }
    if state.last_error.take().is_some() {
        tracing::info!("the heartbeat arrives again");
    }
    shared.changed.notify_all();
    Ok(orders)
}

/// How long a reply is valid: less than the lease after which the metadata service takes a silent server to be fenced,
/// to allow for clock drift.
fn trusted(lease: Duration) -> Duration {
    lease - lease / 5
}

/// Carries out orders until the next report is due; returns those that are durably done.
fn carry_out(shared: &Shared, orders: Vec<Retire>) -> Vec<Retire> {
    if orders.is_empty() {
        return orders;
    }
    let store = shared.store.as_ref();
    let begun = Instant::now();
    let mut done = Vec::with_capacity(orders.len());
    for order in orders {
        let due = begun.elapsed() >= shared.options.interval || shared.state.lock().stop;
        if due && !done.is_empty() {
            break;
        }
        let deleted = match &order {
            Retire::Chunks(names) => store.delete(names),
            Retire::Generation { object, below } => store.delete_generation(*object, *below),
            Retire::Object(object) => store.delete_grid(*object),
        };
        match deleted {
            Ok(()) => done.push(order),
            Err(e) => tracing::warn!("deleting unreferenced data, will be retried: {e}"),
        }
    }
    // An acknowledged deletion must survive a power failure.
    if let Err(e) = store.sync(&[]) {
        tracing::warn!("making deletions durable, will be retried: {e}");
        done.clear();
    }
    done
}
