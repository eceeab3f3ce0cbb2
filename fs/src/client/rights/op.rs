//! Entering an object, and leaving it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use slabfs_mdserver::api::{MdError, RightMode};

use super::super::Client;
use super::super::error::FsError;
use super::super::geometry::{Form, Geometry};
use super::super::object::Object;
use super::cells::Cells;
use super::held::{By, OpId, Want};
use super::spans::Span;
use super::{Own, Phase, State};

/// Before an ask that the lock server had no room for is made again.
const PAUSE: Duration = Duration::from_millis(20);

/// How long an operation may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lasting {
    Short,
    Long,
}

/// An operation that has begun; it ends when this is dropped.
#[derive(Debug)]
pub(in crate::client) struct Op(Kind);

#[derive(Debug)]
enum Kind {
    /// Nobody counts it.
    Free,
    /// It began where nobody has to be asked, and is counted.
    Alone {
        own: Arc<Own>,
        round: u64,
        mode: RightMode,
    },
    /// It is listed, and has what it wants.
    Listed {
        own: Arc<Own>,
        id: OpId,
        round: u64,
        /// Nothing where nobody knows of rights.
        has: Option<Cells>,
        /// What the cells were made of.
        form: Option<Form>,
    },
}

impl Op {
    /// Of which nobody needs to know.
    pub(super) const FREE: Op = Op(Kind::Free);

    /// Whether the operation may touch the cells that it needs, by the same rule as when it began, of an object of
    /// this form. It may not when the form, as it is under the
    /// lock that the caller holds by now, makes others of them than were asked for; nor when the session
    /// in which it began is lost. It has to enter again then.
    pub(in crate::client) fn covers(&self, now: Form, needs: impl FnOnce() -> Cells) -> bool {
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
                let covers = |area: &Cells| *form == Some(now) || area.covers(&needs());
                own.clock.round() == *round && has.as_ref().is_none_or(covers)
            }
        }
    }

    /// Notes what the cells were made of that it began for.
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
                let anybody = own.paged.load(Ordering::SeqCst) || !state.is_idle();
                if anybody || state.held.is_closing() {
                    own.changed.notify_all();
                }
            }
        }
    }
}

impl Own {
    /// Counts a program's operation, where nobody has to be asked, and where it does not write beside pages.
    fn enter_alone(self: &Arc<Self>, mode: RightMode) -> Option<Op> {
        let stopped = || mode == RightMode::Write && self.paged.load(Ordering::SeqCst);
        if !self.clock.is_free() || stopped() {
            return None;
        }
        let round = self.clock.round();
        self.count(mode).fetch_add(1, Ordering::SeqCst);
        // Whoever ends the epoch, or wants a page, says so first and looks at the count then.
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

    /// Whether operations run that are only counted, of an epoch alone that is over, in whose way it may be if no more
    /// than `keep` stays: nobody knows which cells they touch.
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

    /// Begins what `want` wants without waiting.
    pub(super) fn try_enter(self: &Arc<Self>, want: &Want) -> Option<Op> {
        let round = self.clock.round();
        self.begin(&mut self.state.lock(), want, round)
    }

    /// The same under the lock.
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

impl Client {
    /// Begins an operation of `by` on an object, in which it will touch the cells that `needs` tells of the
    /// object's form and size; waits for the right to it, and for pages of `span`, which it writes, to be
    /// dropped. Whoever calls it holds no lock of an object, and is not needed by the kernel to go on.
    ///
    /// # Errors
    /// `Withheld` after [`Client::others_timeout`]; those of the lock server.
    pub(in crate::client) fn enter(
        &self,
        object: &Object,
        by: By,
        mode: RightMode,
        span: Option<Span>,
        needs: &dyn Fn(&Geometry, u64) -> Cells,
    ) -> Result<Op, FsError> {
        self.enter_as(object, by, mode, span, needs, Lasting::Short)
    }

    /// [`Client::enter`] for a program's operation that may take long: it is listed with its cells also where this
    /// mount is alone, so that one that comes meanwhile gets all others.
    pub(in crate::client) fn enter_long(
        &self,
        object: &Object,
        mode: RightMode,
        span: Option<Span>,
        needs: &dyn Fn(&Geometry, u64) -> Cells,
    ) -> Result<Op, FsError> {
        self.enter_as(object, By::Program, mode, span, needs, Lasting::Long)
    }

    fn enter_as(
        &self,
        object: &Object,
        by: By,
        mode: RightMode,
        span: Option<Span>,
        needs: &dyn Fn(&Geometry, u64) -> Cells,
        lasting: Lasting,
    ) -> Result<Op, FsError> {
        if self.is_free(by, mode) {
            return Ok(Op::FREE);
        }
        let own = &object.own;
        let until = Instant::now() + self.others_timeout();
        loop {
            if self.is_counted(by, lasting)
                && let Some(op) = own.enter_alone(mode)
            {
                return Ok(op);
            }
            let (form, area) = {
                let geometry = object.geometry.read();
                let size = object.size(&geometry);
                (geometry.form(size), needs(&geometry, size))
            };
            let want = Want {
                by,
                mode,
                span,
                area,
            };
            let op = match own.try_enter(&want) {
                Some(op) => op,
                None => match self.await_beginning(own, want, until) {
                    Ok(Some(op)) => op,
                    Ok(None) => continue,
                    // It was declared anew: its cells are others.
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
                // It has waited, and may have been given up meanwhile.
                drop(op);
                self.admit(object)?;
                continue;
            }
            return Ok(op.made_of(form));
        }
    }

    /// [`Client::enter`] without waiting: nothing where that would be needed.
    pub(in crate::client) fn enter_now(
        &self,
        object: &Object,
        by: By,
        mode: RightMode,
        span: Option<Span>,
        needs: &dyn Fn(&Geometry, u64) -> Cells,
    ) -> Option<Op> {
        self.enter_now_as(object, by, mode, span, needs, Lasting::Short)
    }

    /// [`Client::enter_long`] without waiting.
    pub(in crate::client) fn enter_long_now(
        &self,
        object: &Object,
        mode: RightMode,
        span: Option<Span>,
        needs: &dyn Fn(&Geometry, u64) -> Cells,
    ) -> Option<Op> {
        self.enter_now_as(object, By::Program, mode, span, needs, Lasting::Long)
    }

    fn enter_now_as(
        &self,
        object: &Object,
        by: By,
        mode: RightMode,
        span: Option<Span>,
        needs: &dyn Fn(&Geometry, u64) -> Cells,
        lasting: Lasting,
    ) -> Option<Op> {
        if self.is_free(by, mode) {
            return Some(Op::FREE);
        }
        let own = &object.own;
        if self.is_counted(by, lasting)
            && let Some(op) = own.enter_alone(mode)
        {
            return Some(op);
        }
        let (form, area) = {
            let geometry = object.geometry.try_read()?;
            let size = object.size(&geometry);
            (geometry.form(size), needs(&geometry, size))
        };
        let want = Want {
            by,
            mode,
            span,
            area,
        };
        let round = own.clock.round();
        // The look at the form and the beginning under one lock. A grant that came between the two would let
        // the operation begin under a right whose form nobody has taken over; what was read ahead of that
        // right, and is of the epoch before it, would be believed. A grant that comes later gives the
        // operation nothing: it has begun under what was held, and a form to take is the next one's. That
        // the area was made of an earlier form than the object has by now is what [`Op::covers`] finds out.
        let mut state = own.state.lock();
        if state.form.is_some() {
            return None;
        }
        Some(own.begin(&mut state, &want, round)?.made_of(form))
    }

    /// Whether nobody needs to know of an operation: the mount takes no part in rights, and no page is touched
    /// or written over.
    fn is_free(&self, by: By, mode: RightMode) -> bool {
        !self.rights.strict() && by == By::Program && mode == RightMode::Read
    }

    /// Whether an operation is only counted as long as this mount is alone. In mode `commit` nobody ever wants to know
    /// more.
    fn is_counted(&self, by: By, lasting: Lasting) -> bool {
        by == By::Program && (lasting == Lasting::Short || !self.rights.strict())
    }

    /// Takes over the form that came with a grant, and forgets what the block cache holds beside what was
    /// held until then.
    fn take_form(&self, object: &Object) -> Result<(), FsError> {
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
