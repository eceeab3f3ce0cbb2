//! Entering an object, and leaving it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slabfs_mdserver::api::{MdError, RightMode};

use super::super::Client;
use super::super::error::FsError;
use super::super::geometry::Geometry;
use super::super::object::Object;
use super::cells::Cells;
use super::held::{By, OpId, Want};
use super::{Own, Phase};

/// Before an ask that the home had no room for is made again.
const PAUSE: Duration = Duration::from_millis(20);

/// An operation that has begun; it ends when this is dropped.
#[derive(Debug)]
pub(in crate::client) struct Op(Kind);

#[derive(Debug)]
enum Kind {
    /// Nobody counts it.
    Free,
    /// It began in a life alone.
    Alone { own: Arc<Own>, turn: u64 },
    /// It is listed, and has what it wants.
    Listed {
        own: Arc<Own>,
        id: OpId,
        turn: u64,
        /// Nothing if it has everything.
        has: Option<(RightMode, Cells)>,
    },
}

impl Op {
    /// Of a mount that takes no part.
    pub(super) const FREE: Op = Op(Kind::Free);

    /// Whether the operation may touch these cells. It may not when the object's form, as it is under the
    /// lock that the caller holds by now, makes others of them than were asked for; nor when the session
    /// in which it began is lost. It has to enter again then.
    pub(in crate::client) fn covers(&self, needs: impl FnOnce() -> Cells) -> bool {
        match &self.0 {
            Kind::Free => true,
            Kind::Alone { own, turn } => own.clock.turn() == *turn,
            Kind::Listed { own, turn, has, .. } => {
                own.clock.turn() == *turn
                    && has.as_ref().is_none_or(|(_, area)| area.covers(&needs()))
            }
        }
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        match &self.0 {
            Kind::Free => {}
            Kind::Alone { own, .. } => own.leave_alone(),
            Kind::Listed { own, id, .. } => {
                let mut state = own.state.lock();
                state.held.end(*id);
                if !state.is_idle() || state.held.is_closing() {
                    own.changed.notify_all();
                }
            }
        }
    }
}

impl Own {
    /// Counts an operation, if the mount is alone.
    fn enter_alone(self: &Arc<Self>) -> Option<Op> {
        if self.clock.phase() != Phase::Alone {
            return None;
        }
        let turn = self.clock.turn();
        self.alone.fetch_add(1, Ordering::SeqCst);
        // Whoever ends the life says so first and looks at the count then.
        if self.clock.phase() != Phase::Alone {
            self.leave_alone();
            return None;
        }
        Some(Op(Kind::Alone {
            own: self.clone(),
            turn,
        }))
    }

    fn leave_alone(&self) {
        self.alone.fetch_sub(1, Ordering::SeqCst);
        if self.clock.phase() != Phase::Alone {
            let _order = self.state.lock();
            self.changed.notify_all();
        }
    }

    pub(super) fn listed(self: &Arc<Self>, id: OpId, turn: u64, want: &Want, all: bool) -> Op {
        Op(Kind::Listed {
            own: self.clone(),
            id,
            turn,
            has: (!all).then(|| (want.mode, want.area.clone())),
        })
    }

    /// Begins what `want` wants without waiting.
    pub(super) fn try_enter(self: &Arc<Self>, want: &Want) -> Option<Op> {
        let turn = self.clock.turn();
        let mut state = self.state.lock();
        if self.clock.phase() == Phase::Alone {
            let id = state.held.begin_alone(want)?;
            return Some(self.listed(id, turn, want, true));
        }
        let id = state.held.begin(want)?;
        Some(self.listed(id, turn, want, false))
    }
}

impl Client {
    /// Begins an operation of `by` on an object, in which it will touch the cells that `needs` tells of the
    /// object's form and size; waits for the right to it. Whoever calls it holds no lock of an object.
    ///
    /// # Errors
    /// `Withheld` after [`Client::others_timeout`]; those of the home.
    pub(in crate::client) fn enter(
        &self,
        object: &Object,
        by: By,
        mode: RightMode,
        needs: &dyn Fn(&Geometry, u64) -> Cells,
    ) -> Result<Op, FsError> {
        if !self.rights.strict() {
            return Ok(Op::FREE);
        }
        let own = &object.own;
        let until = Instant::now() + self.others_timeout();
        loop {
            if by == By::Program
                && let Some(op) = own.enter_alone()
            {
                return Ok(op);
            }
            let want = Want {
                by,
                mode,
                area: {
                    let geometry = object.geometry.read();
                    needs(&geometry, object.size(&geometry))
                },
            };
            let op = match own.try_enter(&want) {
                Some(op) => op,
                None => match self.await_right(own, want, until) {
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
            return Ok(op);
        }
    }

    /// [`Client::enter`] without waiting: nothing where that would be needed.
    pub(in crate::client) fn enter_now(
        &self,
        object: &Object,
        by: By,
        mode: RightMode,
        needs: &dyn Fn(&Geometry, u64) -> Cells,
    ) -> Option<Op> {
        if !self.rights.strict() {
            return Some(Op::FREE);
        }
        let own = &object.own;
        if by == By::Program
            && let Some(op) = own.enter_alone()
        {
            return Some(op);
        }
        let area = {
            let geometry = object.geometry.try_read()?;
            needs(&geometry, object.size(&geometry))
        };
        if own.state.lock().form.is_some() {
            return None;
        }
        own.try_enter(&Want { by, mode, area })
    }

    /// Takes over the form that came with a grant, and forgets what the block cache holds beside what was
    /// held until then.
    fn take_form(&self, object: &Object) -> Result<(), FsError> {
        let Some(form) = object.own.state.lock().form.clone() else {
            return Ok(());
        };
        object.epoch.fetch_add(1, Ordering::AcqRel);
        self.cache().forget_object(object.ino);
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
