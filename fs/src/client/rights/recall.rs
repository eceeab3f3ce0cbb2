//! Taking back what somebody else wants, and giving it; and dropping pages before a file is opened for
//! writing, which is the first half of the same.
//!
//! An object's recalls are handled one after the other, by a few threads. They wait for what has begun, for the
//! kernel and for servers, and hold no lock meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use slabfs_mdserver::api::{MdError, RightRecall, RightsEpoch};
use slabfs_model::layout::boxes_of_run;

use super::super::Client;
use super::super::error::FsError;
use super::super::flush::Scope;
use super::super::object::Object;
use super::cells::Cells;
use super::held::Closing;
use super::spans::Span;
use super::state::{State, givings};
use super::{Own, Phase, Rights};

/// Threads that take back. None of them waits for another one.
pub(in crate::client) const THREADS: usize = 8;
/// Before what failed is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// Objects with recalls that no thread handles yet.
pub(super) type Work = VecDeque<Arc<Own>>;

impl Rights {
    /// A recall was heard.
    pub(super) fn recall(&self, epoch: RightsEpoch, recall: RightRecall) {
        self.recalled.fetch_add(1, Ordering::Relaxed);
        if self.epoch() != epoch {
            return;
        }
        // Of what is not open, or was not a moment ago, it is given like of anything else.
        let mut owns = self.owns.lock();
        let own = owns
            .entry(recall.ino)
            .or_insert_with(|| Own::new(recall.ino, &self.clock));
        let mut state = own.state.lock();
        let first = state.is_idle();
        state.recalls.push_back(recall);
        if first {
            self.call(own.clone());
        } else if state.old_work {
            own.changed.notify_all();
        }
    }

    /// Hands an object with recalls to a thread.
    pub(super) fn call(&self, own: Arc<Own>) {
        self.work.lock().push_back(own);
        self.called.notify_one();
    }

    pub(super) fn stop_work(&self) {
        let _order = self.work.lock();
        self.called.notify_all();
    }
}

impl Client {
    /// One of the threads that take back; it runs until the client stops.
    pub(in crate::client) fn handle_all_recalls(&self) {
        loop {
            let own = {
                let mut work = self.rights.work.lock();
                loop {
                    if self.rights.stopping() {
                        return;
                    }
                    match work.pop_front() {
                        Some(own) => break own,
                        None => self.rights.called.wait(&mut work),
                    }
                }
            };
            self.handle_recalls(&own);
        }
    }

    /// Handles what was recalled of an object.
    fn handle_recalls(&self, own: &Arc<Own>) {
        let mut state = own.state.lock();
        if state.working {
            // Whoever drops pages for an open hands it over again.
            return;
        }
        while let Some(recall) = state.recalls.pop_front() {
            state.working = true;
            drop(state);
            self.handle_recall(own, recall);
            state = own.state.lock();
            state.work_ends();
            own.changed.notify_all();
        }
        drop(state);
        self.rights.tidy(own);
    }

    fn handle_recall(&self, own: &Arc<Own>, recall: RightRecall) {
        let epoch = self.rights.epoch();
        let closing = Closing {
            keep: recall.keep,
            area: Cells::from(&recall.area),
        };
        if self.clear(own, &closing, epoch) {
            let mut kept = Cells::default();
            if let Some(object) = own.object() {
                // What others do not want is not cut in two by a flush: a writer's box becomes one chunk.
                match dirty_cells(&object) {
                    Some(dirty) if !dirty.overlaps(&closing.area) => kept = dirty,
                    _ => self.write_back_for_others(&object, epoch),
                }
            }
            if let Some(object) = own.object() {
                self.give_back_files(&object);
            }
            self.give(own, &closing, &kept, epoch);
        }
        let mut state = own.state.lock();
        state.held.reopen();
        own.changed.notify_all();
    }

    /// Waits until nothing runs in what is closing and the kernel has no pages of it. False when the epoch is
    /// over.
    fn clear(&self, own: &Arc<Own>, closing: &Closing, epoch: RightsEpoch) -> bool {
        let over = || epoch != self.rights.epoch() || self.rights.stopping();
        let mut state = own.state.lock();
        while state.is_asking() && !over() {
            own.changed.wait(&mut state);
        }
        if over() {
            return false;
        }
        state.held.close(closing.clone());
        own.changed.notify_all();
        while (state.held.is_busy() || own.counts_against(closing.keep)) && !over() {
            own.changed.wait(&mut state);
        }
        if over() {
            return false;
        }
        while state.held.has_pages() && !over() {
            state = self.drop_once(own, state, Span::ALL);
        }
        !over()
    }

    /// Lets the kernel drop the pages that were handed out, if any were; nobody gets at pages then, until all
    /// is opened again. Those of a session that is lost meanwhile are not its own any more.
    pub(super) fn drop_pages<'a>(
        &self,
        own: &'a Arc<Own>,
        mut state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        let round = own.clock.round();
        while state.held.has_pages() && round == own.clock.round() {
            state = self.drop_once(own, state, Span::ALL);
        }
        state
    }

    /// Lets the kernel drop the pages of `span`; nobody gets at those then. Some may have been handed out
    /// meanwhile.
    pub(super) fn drop_once<'a>(
        &self,
        own: &'a Arc<Own>,
        mut state: MutexGuard<'a, State>,
        span: Span,
    ) -> MutexGuard<'a, State> {
        state.held.drop_begins(span);
        own.changed.notify_all();
        drop(state);
        if let Some(caches) = self.lease.caches() {
            caches.drop_pages(own.ino, span.from..span.to);
        }
        let mut state = own.state.lock();
        state.held.drop_ended(span);
        while state.held.is_paging(span) {
            own.changed.wait(&mut state);
        }
        state
    }

    /// Flushes all of an object. What cannot be written back in time is given up, and its handles are told.
    pub(super) fn write_back_for_others(&self, object: &Arc<Object>, epoch: RightsEpoch) {
        let until = Instant::now() + self.options.io_timeout;
        while object.is_dirty() || object.grown.load(Ordering::Acquire) > 0 {
            // One flush is enough: where it matters nothing runs. Elsewhere something may.
            let Err(error) = self.flush_object(object, Scope::All) else {
                return;
            };
            if epoch.0 != 0 && epoch != self.rights.epoch() {
                return;
            }
            if error.is_loss() {
                return self.suspect();
            }
            if Instant::now() >= until || self.pause(PAUSE) {
                tracing::error!(object = %object.ino, %error,
                    "others want what could not be flushed; that data is lost");
                return self.give_up_dirty(object, &error);
            }
        }
    }

    /// Drops what was not flushed of an object, and tells its handles.
    fn give_up_dirty(&self, object: &Object, error: &FsError) {
        let _geometry = object.geometry.write();
        self.forget_dirty(object);
        object.blame(error);
    }

    /// Takes out what is closing and more, but nothing of `kept`, and tells the lock server.
    fn give(&self, own: &Arc<Own>, closing: &Closing, kept: &Cells, epoch: RightsEpoch) {
        let (given, serial) = {
            let mut state = own.state.lock();
            let Some(serial) = self.rights.heard(epoch) else {
                return;
            };
            (state.take_out(closing, kept, serial), serial)
        };
        if closing.keep.is_none()
            && let Some(object) = own.object()
        {
            object.epoch.fetch_add(1, Ordering::AcqRel);
            self.cache().forget_object(&object);
        }
        let gives = givings(own.ino, closing, &given, serial);
        self.rights.given.fetch_add(1, Ordering::Relaxed);
        while epoch == self.rights.epoch() && !self.rights.stopping() {
            match self.md.give_rights(epoch, gives.clone()) {
                Ok(()) => return,
                Err(MdError::SessionLost) => {
                    self.rights.suspend(epoch);
                    return self.suspect();
                }
                Err(error) => {
                    tracing::debug!(object = %own.ino, %error, "what was recalled could not be given back yet");
                    self.pause(PAUSE);
                }
            }
        }
    }

    /// An object is being opened for writing: pages of it that were handed out for reading are dropped before,
    /// since they could come back changed.
    pub(in crate::client) fn ready_for_writer(&self, object: &Arc<Object>) {
        let own = &object.own;
        let mut state = own.state.lock();
        state.held.writers += 1;
        let reading = |state: &State| !own.clock.is_free() && state.held.has_pages_to_read();
        let turning = || own.clock.phase() == Phase::Closed;
        while reading(&state) && (state.working || turning()) && !self.rights.stopping() {
            own.changed.wait(&mut state);
        }
        if !reading(&state) || self.rights.stopping() {
            return;
        }
        state.working = true;
        state = self.drop_pages(own, state);
        state.held.reopen();
        state.work_ends();
        own.changed.notify_all();
        let more = !state.recalls.is_empty();
        drop(state);
        if more {
            self.rights.call(own.clone());
        }
    }

    /// A handle that might write is closed.
    pub(in crate::client) fn writer_is_done(&self, object: &Object) {
        let mut state = object.own.state.lock();
        state.held.writers = state.held.writers.saturating_sub(1);
    }
}

/// Where what was not flushed lies, in a box for each writer; nothing where that cannot be told.
fn dirty_cells(object: &Object) -> Option<Cells> {
    if object.touched.load(Ordering::Acquire) {
        return None;
    }
    let geometry = object.geometry.read();
    let cells = geometry.cells_at(object.size(&geometry));
    let state = object.state.lock();
    if state.taken.is_some() {
        return None;
    }
    let mut dirty = Vec::new();
    let mut parts = Vec::new();
    for writer in state.runs.writers() {
        parts.clear();
        for run in state.runs.ranges(writer) {
            boxes_of_run(&cells, run.offset, run.len, &mut parts);
        }
        dirty.extend(parts.drain(..).reduce(|all, part| all.union_bounds(&part)));
    }
    for stream in &state.streams {
        dirty.push(stream.slab.bounds()?);
    }
    Some(Cells::of(dirty))
}
