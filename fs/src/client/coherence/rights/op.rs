//! Entering an object, and leaving it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use slabfs_mdserver::api::{MdError, RightMode};

use super::held::{By, OpId, Want};
use super::{Own, Phase, State};
use crate::client::Client;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::{Form, Geometry};
use slabfs_model::{BoxSet, Coords, Span};

/// Pause before an ask is repeated that the lock server had no room for.
const PAUSE: Duration = Duration::from_millis(20);

/// A running operation; it ends when this is dropped.
#[derive(Debug)]
pub(in crate::client) struct Op(Kind);

#[derive(Debug)]
enum Kind {
    /// It is not counted.
    Free,
    /// It began in a phase without rights, and is counted.
    Alone {
        own: Arc<Own>,
        round: u64,
        mode: RightMode,
    },
    /// It is listed with its cells, and holds the rights to them.
    Listed {
        own: Arc<Own>,
        id: OpId,
        round: u64,
        /// `None` in mode `commit`.
        has: Option<BoxSet>,
        /// The form of the object from which the cells were computed.
        form: Option<Form>,
    },
}

impl Op {
    /// An operation that is not counted.
    pub(super) const FREE: Op = Op(Kind::Free);

    /// Whether the operation may touch the cells it needs in an object of this form, which the caller has locked. It
    /// may not if the needs have changed with the form beyond the cells it entered with, or if the session in which it
    /// began is lost. Then it has to enter again.
    pub(in crate::client) fn covers(
        &self,
        need: &Need<'_>,
        object: &Object,
        geometry: &Geometry,
    ) -> bool {
        match &self.0 {
            Kind::Free => true,
            Kind::Alone { own, round, .. } => own.clock.round() == *round,
            Kind::Listed {
                own,
                round,
                has,
                form,
                ..
            } => {
                let size = object.size(geometry);
                let covers = |area: &BoxSet| {
                    *form == Some(geometry.form(size)) || area.covers(&(need.cells)(geometry, size))
                };
                own.clock.round() == *round && has.as_ref().is_none_or(covers)
            }
        }
    }

    /// Sets the form from which its cells were computed.
    fn made_of(mut self, of: Form) -> Op {
        if let Kind::Listed { form, .. } = &mut self.0 {
            *form = Some(of);
        }
        self
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        match &self.0 {
            Kind::Free => {}
            Kind::Alone { own, mode, .. } => own.leave_alone(*mode),
            Kind::Listed { own, id, .. } => {
                let mut state = own.state.lock();
                state.held.end(*id);
                let has_waiters = own.paged.load(Ordering::SeqCst) || !state.is_idle();
                if has_waiters || state.held.is_closing() {
                    own.changed.notify_all();
                }
            }
        }
    }
}

impl Own {
    /// Counts a program's operation in a phase without rights, unless the form has to be fetched first, or it is a write
    /// and the kernel has asked for pages.
    fn enter_alone(self: &Arc<Self>, mode: RightMode) -> Option<Op> {
        let stopped =
            || self.is_outdated() || mode == RightMode::Write && self.paged.load(Ordering::SeqCst);
        if !self.clock.is_free() || stopped() {
            return None;
        }
        let round = self.clock.round();
        self.count(mode).fetch_add(1, Ordering::SeqCst);
        // The end of an epoch, or a page request, first sets its mark and then checks the count.
        if !self.clock.is_free() || stopped() {
            self.leave_alone(mode);
            return None;
        }
        Some(Op(Kind::Alone {
            own: self.clone(),
            round,
            mode,
        }))
    }

    /// The form may have changed without an answer: it is fetched before the next operation.
    pub(in crate::client) fn outdate(&self) {
        self.outdated.fetch_add(1, Ordering::SeqCst);
    }

    fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::SeqCst) > 0
    }

    fn count(&self, mode: RightMode) -> &AtomicUsize {
        match mode {
            RightMode::Read => &self.alone,
            RightMode::Write => &self.writing,
        }
    }

    fn leave_alone(&self, mode: RightMode) {
        self.count(mode).fetch_sub(1, Ordering::SeqCst);
        let wanted = mode == RightMode::Write && self.paged.load(Ordering::SeqCst);
        if wanted || !self.clock.is_free() {
            let _order = self.state.lock();
            self.changed.notify_all();
        }
    }

    /// Whether operations run that are only counted.
    pub(super) fn counts_any(&self) -> bool {
        self.alone.load(Ordering::SeqCst) > 0 || self.counts_writes()
    }

    /// Whether counted operations of an ended epoch `alone` may conflict with a recall that leaves no more than
    /// `keep`. The cells of counted operations are unknown.
    pub(super) fn counts_against(&self, keep: Option<RightMode>) -> bool {
        match keep {
            None => self.counts_any(),
            Some(_) => self.counts_writes(),
        }
    }

    /// Whether writes run that are only counted.
    pub(super) fn counts_writes(&self) -> bool {
        self.writing.load(Ordering::SeqCst) > 0
    }

    pub(super) fn listed(self: &Arc<Self>, id: OpId, round: u64, want: &Want) -> Op {
        Op(Kind::Listed {
            own: self.clone(),
            id,
            round,
            has: (self.clock.phase() != Phase::Off).then(|| want.area.clone()),
            form: None,
        })
    }

    /// Begins `want` without waiting.
    pub(super) fn try_enter(self: &Arc<Self>, want: &Want) -> Option<Op> {
        let round = self.clock.round();
        self.begin(&mut self.state.lock(), want, round)
    }

    /// [`Own::try_enter`] under the lock.
    pub(super) fn begin(
        self: &Arc<Self>,
        state: &mut State,
        want: &Want,
        round: u64,
    ) -> Option<Op> {
        if want.by == By::PageOut {
            // Writes are listed from now on; those that are only counted end first.
            self.paged.store(true, Ordering::SeqCst);
            if self.counts_writes() {
                return None;
            }
        }
        let id = match self.clock.is_free() {
            true => state.held.begin_alone(want)?,
            false => state.held.begin(want)?,
        };
        Some(self.listed(id, round, want))
    }
}

/// What an operation needs before it begins.
pub(in crate::client) struct Need<'a> {
    /// What it is part of.
    pub(in crate::client) by: By,
    /// Whether it reads or writes.
    pub(in crate::client) mode: RightMode,
    /// Whether it may take long. It is then listed with its cells even when this mount is alone, so that a mount that
    /// attaches meanwhile can get all other cells.
    pub(in crate::client) long: bool,
    /// The bytes of the object that it writes, or that it reads for a page.
    pub(in crate::client) span: Option<Span>,
    /// The cells that it touches, by the object's form and size.
    pub(in crate::client) cells: &'a dyn Fn(&Geometry, u64) -> BoxSet,
}

impl Need<'_> {
    /// The form of the object, and the need in cells of that form.
    fn want(&self, object: &Object, geometry: &Geometry) -> (Form, Want) {
        let size = object.size(geometry);
        let want = Want {
            by: self.by,
            mode: self.mode,
            span: self.span,
            area: (self.cells)(geometry, size),
        };
        (geometry.form(size), want)
    }
}

impl Client {
    /// Begins an operation on an object. Waits for the right to its cells, and until the kernel has dropped its pages
    /// of the operation's span. The caller holds no lock of an object, and the kernel does not depend on its progress.
    ///
    /// # Errors
    /// `Withheld` after [`Client::others_timeout`]; those of the lock server.
    pub(in crate::client) fn enter(&self, object: &Object, need: &Need<'_>) -> Result<Op, FsError> {
        let own = &object.own;
        let mut until = None;
        loop {
            self.settle_truncate(object)?;
            if object.coupled.in_memory() {
                return Ok(Op::FREE);
            }
            if let Some(op) = self.enter_unlisted(own, need) {
                return Ok(op);
            }
            let until = *until.get_or_insert_with(|| Instant::now() + self.others_timeout());
            let (form, want) = need.want(object, &object.geometry.read());
            let op = match own.try_enter(&want) {
                Some(op) => op,
                None => match self.await_beginning(own, want, until) {
                    Ok(Some(op)) => op,
                    Ok(None) => continue,
                    // The object was declared again: its cells have changed.
                    Err(error) if error.is_stale() && Instant::now() < until => {
                        self.refresh(object)?;
                        continue;
                    }
                    Err(FsError::Md(MdError::Busy)) if Instant::now() < until => {
                        self.pause(PAUSE);
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            };
            self.take_form(object)?;
            if self.lapsed() {
                // It has waited, and its object may have been given up meanwhile.
                drop(op);
                self.admit(object)?;
                continue;
            }
            return Ok(op.made_of(form));
        }
    }

    /// [`Client::enter`] without waiting; `None` where it would have to wait.
    pub(in crate::client) fn enter_now(&self, object: &Object, need: &Need<'_>) -> Option<Op> {
        let own = &object.own;
        if object.is_to_be_emptied() {
            return None;
        }
        if object.coupled.in_memory() {
            return Some(Op::FREE);
        }
        if let Some(op) = self.enter_unlisted(own, need) {
            return Some(op);
        }
        let (form, want) = need.want(object, &*object.geometry.try_read()?);
        let round = own.clock.round();
        // The form check and the beginning are under one lock. If a grant arrived between the two, the operation
        // would begin under a right whose form has not been adopted, and would trust data read ahead in the epoch
        // before that right. A grant that arrives later does not affect the operation: it has begun under the rights
        // held before, and the next operation adopts the form. [`Op::covers`] detects that the area was computed from
        // an older form than the object has by now.
        let mut state = own.state.lock();
        if state.form.is_some() || own.is_outdated() {
            return None;
        }
        Some(own.begin(&mut state, &want, round)?.made_of(form))
    }

    /// The dims of an object as they are known here, if no other session can have changed them: it would have had to
    /// recall the rights that this one holds, or there is no other. Not of one that grows by writing, whose new rows need
    /// a right to these rows only.
    pub(in crate::client) fn known_dims(&self, object: &Object) -> Option<Coords> {
        let own = &object.own;
        let settled = self.rights.strict()
            && !self.lapsed()
            && !object.is_to_be_emptied()
            && !object.coupled.in_memory();
        let geometry = object.geometry.try_read()?;
        let state = own.state.lock();
        let known = match own.clock.phase() {
            Phase::Alone => true,
            Phase::Shared => state.held.any(),
            Phase::Closed | Phase::Off => false,
        };
        let current = known && settled && state.form.is_none() && !own.is_outdated();
        (current && !geometry.grows()).then(|| geometry.info.dims.clone())
    }

    /// Begins an operation that need not be listed, if it is one.
    fn enter_unlisted(&self, own: &Arc<Own>, need: &Need<'_>) -> Option<Op> {
        if need.by != By::Program {
            return None;
        }
        let strict = self.rights.strict();
        if !strict && need.mode == RightMode::Read {
            // In mode `commit`, it neither touches nor overwrites a page.
            return Some(Op::FREE);
        }
        // In mode `commit` no more than the count is ever needed.
        let is_counted = !need.long || !strict;
        is_counted.then(|| own.enter_alone(need.mode)).flatten()
    }

    /// Adopts the form that came with a grant, or fetches it at the first operation of an epoch `alone`, and drops the
    /// object's blocks from the cache, which may be older.
    fn take_form(&self, object: &Object) -> Result<(), FsError> {
        let outdated = object.own.outdated.load(Ordering::SeqCst);
        if outdated > 0 {
            self.refresh(object)?;
            object.epoch.fetch_add(1, Ordering::AcqRel);
            self.cache().forget_object(object);
            // Only now: operations that need not be listed wait for this. Another epoch may have begun meanwhile.
            let count = &object.own.outdated;
            let _ = count.compare_exchange(outdated, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
        let Some(form) = object.own.state.lock().form.clone() else {
            return Ok(());
        };
        object.epoch.fetch_add(1, Ordering::AcqRel);
        self.cache().forget_object(object);
        if form.attr.change > object.geometry.read().attr.change {
            let mut geometry = object.geometry.write();
            self.adopt(object, &mut geometry, &form)?;
        }
        let mut state = object.own.state.lock();
        if state
            .form
            .as_ref()
            .is_some_and(|now| Arc::ptr_eq(now, &form))
        {
            state.form = None;
        }
        Ok(())
    }
}
