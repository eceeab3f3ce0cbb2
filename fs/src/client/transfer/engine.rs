//! The engine: the queue of a client's transfers, the threads that take batches out of it, and the limit on transfers
//! in flight.
//!
//! A thread is created when there is work and none is idle, up to a configured number; threads stay. Each takes all
//! transfers that may run, up to a size, and works on them until they have ended; transfers started meanwhile by many
//! callers form the next batch.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::{Condvar, Mutex};
use slabfs_mdserver::api::Ino;

use super::queue::{Claim, Queue};
use crate::client::Client;
use crate::client::error::FsError;
use crate::client::handle::Handle;
use crate::client::request::A_SERVER;
use crate::client::request::core::{Begun, Core, Counted, Number, Phase};
use crate::client::request::group::Ends;
use crate::client::request::run::run;

/// The cost of a transfer towards the limit, in addition to its bytes: its state, and that of its parts.
const EACH: u64 = 4 << 10;

/// The transfers of a client; see the top of the module.
#[derive(Debug, Default)]
pub(in crate::client) struct Transfers {
    state: Mutex<State>,
    /// Signalled when there is work.
    work: Condvar,
    /// Signalled when transfers have ended.
    room: Condvar,
    /// The number of existing transfers, started or not.
    count: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    queue: Queue<Arc<Core>>,
    /// Transfers in flight and counted towards the limit: their number and their cost.
    flying: u64,
    bytes: u64,
    /// Transfers that were started and whose ends are not visible to their callers yet. A transfer gives up its share
    /// of the limit just before its end becomes visible, so that a caller that has seen the end finds that room.
    live: u64,
    threads: usize,
    idle: usize,
    closed: bool,
    /// Tasks that wait for room to start transfers.
    wakers: Vec<Waker>,
}

/// The result of an attempt to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Started {
    Yes,
    /// The limit is reached; the caller has to wait.
    NoRoom,
}

impl State {
    /// Removes a transfer from the in-flight count.
    fn landed(&mut self, core: &Core) {
        self.flying -= 1;
        self.bytes -= core.plan.moved() + EACH;
    }
}

impl Transfers {
    pub(super) fn counted(&self) -> Counted {
        Counted::of(&self.count)
    }

    /// Existing transfers; those in flight, and their bytes; those of them that no thread has taken yet.
    pub(in crate::client) fn gauges(&self) -> (u64, u64, u64, u64) {
        let state = self.state.lock();
        let bytes = state.bytes.saturating_sub(state.flying * EACH);
        let waiting = state.queue.waiting() as u64;
        (
            self.count.load(Ordering::Relaxed),
            state.flying,
            bytes,
            waiting,
        )
    }

    /// Ends a transfer if it is not running yet; otherwise asks the thread that runs it to give it up.
    pub(super) fn cancel(&self, core: &Arc<Core>) {
        core.cancel_created();
        if !self.withdraw(core) {
            core.ask_to_cancel();
        }
    }

    /// Takes a waiting transfer out of the queue, and ends it; false if it is not waiting.
    pub(super) fn withdraw(&self, core: &Arc<Core>) -> bool {
        let (found, wakers) = {
            let mut state = self.state.lock();
            let Some(found) = state.queue.withdraw(|one| Arc::ptr_eq(one, core)) else {
                return false;
            };
            state.landed(&found);
            (found, self.settle(&mut state))
        };
        self.finish(vec![(Begun::of(found), Err(FsError::Cancelled))]);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// Makes the ends of transfers visible, and then notifies threads that close their handles or the client.
    fn finish(&self, done: Vec<(Begun, Result<(), FsError>)>) {
        let handles: Vec<_> = done
            .into_iter()
            .map(|(begun, result)| {
                let handle = begun.plan.handle.clone();
                begun.end(result);
                handle
            })
            .collect();
        self.finished(&handles);
    }

    /// Counts the transfers of these handles as ended and visible.
    fn finished(&self, handles: &[Arc<Handle>]) {
        let mut state = self.state.lock();
        for handle in handles {
            handle.transfers.fetch_sub(1, Ordering::AcqRel);
        }
        state.live -= handles.len() as u64;
        self.room.notify_all();
    }

    /// Handles a decrease of the in-flight count. Returns the wakers to call after the lock is released.
    fn settle(&self, state: &mut State) -> Vec<Waker> {
        self.room.notify_all();
        if state.queue.has_waiting() && state.idle > 0 {
            self.work.notify_one();
        }
        std::mem::take(&mut state.wakers)
    }

    /// Gives up the room of a transfer whose thread has panicked; its end is visible already.
    fn forget(&self, core: &Core, number: Number) {
        let handle = &core.plan.handle;
        let wakers = {
            let mut state = self.state.lock();
            state.queue.end(handle.object.ino, &[number]);
            state.landed(core);
            self.settle(&mut state)
        };
        wakers.into_iter().for_each(Waker::wake);
        self.finished(std::slice::from_ref(handle));
    }

    /// Waits until all transfers of a handle that starts no more have ended visibly.
    pub(in crate::client) fn wait_for(&self, handle: &Handle) {
        let mut state = self.state.lock();
        while handle.transfers.load(Ordering::Acquire) > 0 {
            self.room.wait(&mut state);
        }
    }

    /// Whether no more transfers are started.
    pub(in crate::client) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Refuses new transfers, and waits for those in flight.
    pub(in crate::client) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.room.notify_all();
        while state.live > 0 {
            self.room.wait(&mut state);
        }
        self.work.notify_all();
    }
}

impl Ends for Transfers {
    fn end(&self, done: Vec<(Begun, Result<(), FsError>)>) {
        if done.is_empty() {
            return;
        }
        let mut numbers: BTreeMap<Ino, Vec<Number>> = BTreeMap::new();
        for (begun, _) in &done {
            if let Some(number) = begun.take_number() {
                let ino = begun.plan.handle.object.ino;
                numbers.entry(ino).or_default().push(number);
            }
        }
        let wakers = {
            let mut state = self.state.lock();
            for (ino, numbers) in &mut numbers {
                numbers.sort_unstable();
                state.queue.end(*ino, numbers);
            }
            done.iter().for_each(|(begun, _)| state.landed(begun));
            self.settle(&mut state)
        };
        self.finish(done);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// What the queue needs to order a transfer against others.
fn claim(core: &Core) -> Claim {
    Claim {
        ino: core.plan.handle.object.ino,
        writes: core.plan.writes,
        bounds: core.plan.bounds.clone(),
        bytes: core.plan.moved(),
    }
}

impl Client {
    /// Starts the transfers among `cores` that were not started: writes first, then reads. With `waker`, registers it
    /// instead of waiting. Nothing starts until there is room for all of them.
    pub(super) fn launch(
        self: &Arc<Self>,
        cores: &[&Arc<Core>],
        waker: Option<&Waker>,
    ) -> Result<Started, FsError> {
        let transfers = self.transfers();
        let new = || cores.iter().filter(|core| core.phase() == Phase::Created);
        let (count, bytes) = new().fold((0, 0u64), |(count, bytes), core| {
            (count + 1, bytes.saturating_add(core.plan.moved()))
        });
        if count == 0 {
            return Ok(Started::Yes);
        }
        let bytes = bytes.saturating_add(count * EACH);
        let mut state = transfers.state.lock();
        loop {
            if state.closed {
                return Err(FsError::Closed);
            }
            // Under the lock: a release sets this flag first, and then looks here for transfers in flight.
            if new().any(|core| core.plan.handle.released.load(Ordering::Acquire)) {
                return Err(FsError::Released);
            }
            let room = self.options.transfer_limit.saturating_sub(state.bytes);
            if state.flying == 0 || bytes <= room {
                break;
            }
            let Some(waker) = waker else {
                transfers.room.wait(&mut state);
                continue;
            };
            if !state.wakers.iter().any(|known| known.will_wake(waker)) {
                state.wakers.push(waker.clone());
            }
            return Ok(Started::NoRoom);
        }
        for writes in [true, false] {
            for core in cores.iter().filter(|core| core.plan.writes == writes) {
                let queue = &mut state.queue;
                let claim = claim(core);
                let at = core.plan.moved();
                if core.queue(|| queue.push(claim, (*core).clone())) {
                    core.plan.handle.transfers.fetch_add(1, Ordering::AcqRel);
                    state.flying += 1;
                    state.live += 1;
                    state.bytes += at + EACH;
                }
            }
        }
        let more = self.wants_thread(&mut state);
        let none = state.threads == usize::from(more);
        transfers.work.notify_one();
        drop(state);
        if more && !self.add_thread() && none {
            // No thread exists to run them, so this one does.
            while self.serve_batch(false) {}
        }
        Ok(Started::Yes)
    }

    /// Whether to create one more thread; it is counted from now on.
    fn wants_thread(&self, state: &mut State) -> bool {
        let most = self.options.transfer_threads.max(1);
        let more = state.idle == 0 && state.threads < most && !state.closed;
        state.threads += usize::from(more);
        more
    }

    /// Creates the thread; `false` if that fails.
    fn add_thread(self: &Arc<Self>) -> bool {
        let made = self.spawn("slabfs-transfer", |client| client.serve_transfers());
        if let Err(error) = &made {
            tracing::warn!(%error, "a transfer thread could not be created");
            self.transfers().state.lock().threads -= 1;
        }
        made.is_ok()
    }

    pub(in crate::client) fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    fn serve_transfers(self: &Arc<Self>) {
        while self.serve_batch(true) {}
    }

    /// Bytes that fit into one message a server, if they are spread evenly over all of them.
    pub(in crate::client) fn most_at_once(&self) -> u64 {
        A_SERVER * (self.servers().known().len().clamp(1, 64) as u64)
    }

    /// Runs the next batch; false if there is none, and none to wait for.
    fn serve_batch(self: &Arc<Self>, wait: bool) -> bool {
        let most = self.most_at_once();
        let transfers = self.transfers();
        let (batch, more) = {
            let mut state = transfers.state.lock();
            loop {
                let batch = state.queue.take(most);
                if !batch.is_empty() {
                    let waits = state.queue.has_waiting();
                    if waits && state.idle > 0 {
                        transfers.work.notify_one();
                    }
                    // Transfers started together may be more than one batch if they overlap.
                    break (batch, waits && self.wants_thread(&mut state));
                }
                if !wait || (state.closed && state.flying == 0) {
                    return false;
                }
                state.idle += 1;
                transfers.work.wait(&mut state);
                state.idle -= 1;
            }
        };
        if more {
            self.add_thread();
        }
        let cores = batch.into_iter().map(|(_, core)| core);
        let (waiting, ready): (Vec<Arc<Core>>, Vec<Arc<Core>>) =
            cores.partition(|core| core.awaits_peers());
        // A read of a coupled object may wait for a write that another transfer brings: a thread for each.
        for core in waiting {
            let cores = vec![core];
            let own = cores.clone();
            let client = self.clone();
            // Not joined: the end of the client waits for all transfers.
            let thread = std::thread::Builder::new().name("slabfs-await".into());
            if let Err(error) = thread.spawn(move || client.run_all(own)) {
                tracing::warn!(%error, "no thread for a transfer that may wait for data");
                self.run_all(cores);
            }
        }
        self.run_all(ready);
        true
    }

    fn run_all(self: &Arc<Self>, cores: Vec<Arc<Core>>) {
        let transfers = self.transfers();
        let batch = cores.iter().cloned().map(Begun::of).collect();
        if catch_unwind(AssertUnwindSafe(|| run(self, transfers, batch))).is_err() {
            tracing::error!(
                "a thread panicked while running transfers: they have ended with an error"
            );
            for core in cores {
                if let Some(number) = core.take_number() {
                    transfers.forget(&core, number);
                }
            }
        }
    }
}
