//! Recalls: writes back and releases rights that another mount wants. Also drops pages before a file is opened for
//! writing, which is the first half of the same work.
//!
//! An object's recalls are handled one after the other, by a few threads. They wait for running operations, for the
//! kernel and for servers, and hold no lock meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::MutexGuard;
use slabfs_mdserver::api::{MAX_RIGHT_BOXES, MdError, RightRecall, RightsEpoch, op};
use slabfs_model::layout::boxes_of_run;

use super::held::Closing;
use super::state::{State, releases};
use super::{Own, Phase, Rights};
use crate::client::Client;
use crate::client::buffer::flush::Scope;
use crate::client::coherence::channel::PAUSE;
use crate::client::error::FsError;
use crate::client::object::Object;
use slabfs_model::{BoxSet, Span};

/// Number of threads that handle recalls. None of them waits for another one.
pub(in crate::client) const THREADS: usize = 8;

/// Objects with recalls that no thread handles yet.
pub(super) type Work = VecDeque<Arc<Own>>;

impl Rights {
    /// Queues a recall that was received.
    pub(super) fn recall(&self, epoch: RightsEpoch, recall: RightRecall) {
        self.counts.recalled.fetch_add(1, Ordering::Relaxed);
        if self.epoch() != epoch {
            return;
        }
        // A recall of an object that is not open, or no longer open, is handled like any other.
        let mut owns = self.owns.lock();
        let own = owns
            .entry(recall.ino)
            .or_insert_with(|| Own::new(recall.ino, &self.clock));
        let mut state = own.state.lock();
        let first = state.is_idle();
        state.recalls.push_back(recall);
        if first {
            self.call(own.clone());
        } else if state.stale_work {
            own.changed.notify_all();
        }
    }

    /// Hands an object with recalls to a thread.
    pub(super) fn call(&self, own: Arc<Own>) {
        self.work.lock().push_back(own);
        self.called.notify_one();
    }

    /// A thread that has dropped pages, without a recall, is done.
    pub(super) fn end_drop(&self, own: &Arc<Own>, mut state: MutexGuard<'_, State>) {
        state.held.reopen();
        state.work_ends();
        own.changed.notify_all();
        let more = !state.recalls.is_empty();
        drop(state);
        if more {
            self.call(own.clone());
        }
    }

    pub(super) fn stop_work(&self) {
        let _order = self.work.lock();
        self.called.notify_all();
    }
}

impl Client {
    /// Main loop of a recall thread; it runs until the client stops.
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

    /// Handles the recalls of an object.
    fn handle_recalls(&self, own: &Arc<Own>) {
        let mut state = own.state.lock();
        if state.working {
            // The thread that drops pages for an open hands the object over again when it is done.
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
            area: BoxSet::from(&recall.area),
        };
        if self.clear(own, &closing, epoch) {
            let mut retained = BoxSet::default();
            if let Some(object) = own.object() {
                // Dirty cells outside the recalled area are not flushed, since a flush would cut a writer's box in
                // two: a box becomes one chunk.
                match dirty_cells(&object) {
                    Some(dirty) if !dirty.overlaps(&closing.area) => retained = dirty,
                    _ => self.write_back_for_others(&object, epoch),
                }
            }
            if let Some(object) = own.object() {
                self.give_back_files(&object);
            }
            if self.end_writes(own, epoch) {
                self.give(own, &closing, &retained, epoch);
            }
        }
        let mut state = own.state.lock();
        state.held.reopen();
        own.changed.notify_all();
    }

    /// Waits until no write of the object that got no reply can reach a server any more: it would come after the writes of
    /// the mount that gets the right. False when the epoch is over; the data servers refuse an ended session's writes.
    fn end_writes(&self, own: &Own, epoch: RightsEpoch) -> bool {
        loop {
            if epoch != self.rights.epoch() || self.rights.stopping() {
                return false;
            }
            match self.servers().end_unanswered(own.ino) {
                Ok(()) => return true,
                Err(error) => {
                    tracing::warn!(object = %own.ino, %error, "a recalled right is held until it is certain that a write without a reply does not come late");
                    self.pause(PAUSE);
                }
            }
        }
    }

    /// Waits until no operation runs in the closing area and the kernel has no pages of it. False when the epoch is
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

    /// Makes the kernel drop the pages that were handed out, if any; no page is handed out then, until `reopen`.
    /// Stops if the session is lost meanwhile: the pages handed out then are not of this round.
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

    /// Makes the kernel drop the pages of `span`, and closes access to them. Some may have been handed out meanwhile.
    pub(super) fn drop_once<'a>(
        &self,
        own: &'a Arc<Own>,
        mut state: MutexGuard<'a, State>,
        span: Span,
    ) -> MutexGuard<'a, State> {
        state.drop_begins(span);
        own.changed.notify_all();
        drop(state);
        if let Some(caches) = self.lease.caches() {
            caches.drop_pages(own.ino, span.first..span.last.saturating_add(1));
        }
        let mut state = own.state.lock();
        state.drop_ended(span);
        own.changed.notify_all();
        while state.held.is_paging(span) {
            own.changed.wait(&mut state);
        }
        state
    }

    /// Flushes all of an object. Data that cannot be written back in time is dropped, and the object's handles get
    /// the error.
    pub(super) fn write_back_for_others(&self, object: &Arc<Object>, epoch: RightsEpoch) {
        let until = Instant::now() + self.options.io_timeout;
        while object.is_dirty() || object.grown.load(Ordering::Acquire) > 0 {
            // One flush is enough in a recall, since no operation runs. Other callers may have running operations.
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
                    "dirty data that another mount recalled could not be flushed and is lost");
                return self.give_up_dirty(object, &error);
            }
        }
    }

    /// Drops the dirty data of an object, and reports the error to its handles.
    fn give_up_dirty(&self, object: &Object, error: &FsError) {
        let _geometry = object.geometry.write();
        self.forget_dirty(object);
        object.blame(error);
    }

    /// Removes the closing area and more, except for `retained`, and notifies the lock server.
    fn give(&self, own: &Arc<Own>, closing: &Closing, retained: &BoxSet, epoch: RightsEpoch) {
        let (given, serial) = {
            let mut state = own.state.lock();
            let Some(serial) = self.rights.heard(epoch) else {
                return;
            };
            (state.take_out(closing, retained, serial), serial)
        };
        if closing.keep.is_none()
            && let Some(object) = own.object()
        {
            object.epoch.fetch_add(1, Ordering::AcqRel);
            self.cache().forget_object(&object);
        }
        let gives = releases(own.ino, closing, &given, serial);
        self.rights.counts.given.fetch_add(1, Ordering::Relaxed);
        while epoch == self.rights.epoch() && !self.rights.stopping() {
            match self.md.call(op::GiveRights {
                epoch,
                gives: gives.clone(),
            }) {
                Ok(()) => return,
                Err(MdError::SessionLost) => {
                    self.rights.suspend(epoch);
                    return self.suspect();
                }
                Err(error) => {
                    tracing::debug!(object = %own.ino, %error, "a release of recalled rights failed; trying again");
                    self.pause(PAUSE);
                }
            }
        }
    }

    /// Called before the reply to an open: waits until the kernel has dropped pages for a recall that began before the object
    /// was closed. Its rights went with that close. So the kernel's next reads of pages have to wait for the recall, and the
    /// drop would wait for them. It does not wait for those of the closed files, of which none is left.
    pub(in crate::client) fn await_drops(&self, object: &Object) {
        let own = &object.own;
        let mut state = own.state.lock();
        while state.left_drops && !self.rights.stopping() {
            own.changed.wait(&mut state);
        }
    }

    /// Called when an object is being opened for writing: pages that were handed out for reading are dropped first,
    /// since they could come back modified.
    pub(in crate::client) fn ready_for_writer(&self, object: &Arc<Object>) {
        let own = &object.own;
        let mut state = own.state.lock();
        state.held.writers += 1;
        let reading = |state: &State| !own.clock.is_free() && state.held.has_pages_to_read();
        let between_epochs = || own.clock.phase() == Phase::Closed;
        while reading(&state) && (state.working || between_epochs()) && !self.rights.stopping() {
            own.changed.wait(&mut state);
        }
        if !reading(&state) || self.rights.stopping() {
            return;
        }
        state.working = true;
        state = self.drop_pages(own, state);
        self.rights.end_drop(own, state);
    }

    /// A handle that can write is closed.
    pub(in crate::client) fn writer_is_done(&self, object: &Object) {
        let mut state = object.own.state.lock();
        state.held.writers = state.held.writers.saturating_sub(1);
    }
}

/// The dirty cells, as a box for each writer; `None` where they are unknown.
fn dirty_cells(object: &Object) -> Option<BoxSet> {
    if object.touched.load(Ordering::Acquire) || object.is_to_be_emptied() {
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
    Some(BoxSet::of(dirty).bounded(MAX_RIGHT_BOXES))
}
