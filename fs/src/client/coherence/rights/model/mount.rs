//! A model of one mount: the steps of its threads, over the pure parts of rights.

use std::collections::VecDeque;

use slabfs_mdserver::api::{
    Ino, RightAsk, RightGive, RightHeld, RightMode, RightRecall, RightSerial, RightTicket,
    RightsBegun, RightsEpoch,
};
use slabfs_model::{ObjectId, SessionId};

use super::super::Phase;
use super::super::held::{By, Closing, OpId, Want};
use super::super::state::{LastGrant, State, everything, releases};
use super::{Bounds, Doing, Slip, cell_area};
use slabfs_model::BoxSet;

/// The object.
pub(super) const INO: Ino = ObjectId(1);

/// The state of a mount's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Process {
    /// Not started yet.
    Off,
    Up,
    /// Its lease has lapsed, and it knows that by its own clock.
    Lapsed,
    Dead,
}

#[derive(Debug, Clone, Hash)]
pub(super) enum Stage {
    New,
    Waiting(OpId, Want, u8),
    /// It began in this round; without an id where no rights were needed.
    Running(Option<OpId>, Want, u8),
    Done,
}

#[derive(Debug, Clone, Hash)]
pub(super) struct Op {
    pub(super) what: Doing,
    pub(super) stage: Stage,
}

/// A grant, with only the fields of its form that matter here.
#[derive(Debug, Clone, Hash)]
pub(super) struct Grant {
    pub(super) ticket: RightTicket,
    pub(super) serial: RightSerial,
    pub(super) mode: RightMode,
    pub(super) area: slabfs_mdserver::api::RightArea,
    pub(super) rank: usize,
    pub(super) change: u64,
}

#[derive(Debug, Clone, Hash)]
pub(super) enum Asking {
    /// For the operation with this number.
    Right(RightAsk, usize),
    Give(Vec<RightGive>),
    Reset(Vec<RightHeld>),
    Cancel(RightTicket),
    Release,
}

#[derive(Debug, Clone, Hash)]
pub(super) enum Answer {
    Granted(Grant),
    Queued,
    EpochIsOver,
    SessionLost,
    Stale,
    Done,
    Begun(RightsEpoch, bool),
}

/// A request, until its reply is received.
#[derive(Debug, Clone, Hash)]
pub(super) struct Call {
    pub(super) session: SessionId,
    pub(super) seq: u64,
    pub(super) done_below: u64,
    pub(super) epoch: RightsEpoch,
    pub(super) asking: Asking,
    pub(super) answer: Option<Answer>,
}

#[derive(Debug, Clone, Hash)]
pub(super) enum News {
    Granted(Grant),
    Refused(RightTicket),
    Recall(RightRecall),
}

#[derive(Debug, Clone, Hash)]
enum Taking {
    Wait,
    Busy,
    Flush,
    Send,
    /// Waits for the reply to this request.
    Sent(u64),
}

/// A recall being handled.
#[derive(Debug, Clone, Hash)]
struct Recall {
    closing: Closing,
    epoch: RightsEpoch,
    retained: BoxSet,
    at: Taking,
}

/// The end of an epoch, in progress.
#[derive(Debug, Clone, Hash)]
struct Reset {
    round: u8,
    at: Taking,
    /// The rights that the object retains, if operations run.
    retained: Option<Vec<RightHeld>>,
}

/// A mount's request to the world.
#[derive(Debug)]
pub(super) enum Out {
    /// A cell is sent to its data server.
    Store(usize, u8),
    /// The mount refreshes its form.
    Refresh,
}

#[derive(Debug, Clone)]
pub(super) struct Mount {
    pub(super) process: Process,
    pub(super) session: SessionId,
    phase: Phase,
    pub(super) epoch: RightsEpoch,
    last_grant: LastGrant,
    /// The epoch has to be ended.
    end: bool,
    pub(super) round: u8,
    next: u64,
    open: Vec<u64>,
    tickets: u64,
    pub(super) seen: u64,
    pub(super) inbox: VecDeque<(u64, News)>,
    inbox_epoch: RightsEpoch,
    pub(super) own: State,
    pub(super) ops: Vec<Op>,
    pub(super) calls: Vec<Call>,
    recall: Option<Recall>,
    reset: Option<Reset>,
    pub(super) dirty: Vec<Option<u8>>,
    pub(super) flying: Vec<bool>,
    pub(super) cached: Vec<Option<u8>>,
    pub(super) rank: usize,
    pub(super) closed: bool,
    long: bool,
    slip: Option<Slip>,
}

impl std::hash::Hash for Mount {
    fn hash<H: std::hash::Hasher>(&self, to: &mut H) {
        (
            self.process,
            self.session,
            self.phase as u8,
            self.epoch,
            &self.last_grant,
        )
            .hash(to);
        (
            self.end,
            self.round,
            self.next,
            &self.open,
            self.tickets,
            self.seen,
        )
            .hash(to);
        (&self.inbox, self.inbox_epoch, &self.ops, &self.calls).hash(to);
        (
            &self.recall,
            &self.reset,
            &self.dirty,
            &self.flying,
            &self.cached,
        )
            .hash(to);
        let own = &self.own;
        (
            &own.held,
            own.open,
            &own.asks,
            (own.working, own.stale_work),
            own.last_release,
            own.refused,
        )
            .hash(to);
        own.recalls.hash(to);
        let form = own.form.as_ref().map(|form| form.attr.change);
        (form, self.rank, self.closed).hash(to);
    }
}

impl Mount {
    pub(super) fn new(programs: &[Doing], bounds: &Bounds) -> Mount {
        let op = |&what: &Doing| Op {
            what,
            stage: Stage::New,
        };
        Mount {
            process: Process::Off,
            session: SessionId(0),
            phase: Phase::Closed,
            epoch: RightsEpoch(0),
            last_grant: LastGrant::default(),
            end: false,
            round: 0,
            next: 1,
            open: Vec::new(),
            tickets: 0,
            seen: 0,
            inbox: VecDeque::new(),
            inbox_epoch: RightsEpoch(0),
            own: State {
                open: true,
                ..State::default()
            },
            ops: programs.iter().map(op).collect(),
            calls: Vec::new(),
            recall: None,
            reset: None,
            dirty: vec![None; bounds.cells],
            flying: vec![false; bounds.cells],
            cached: vec![None; bounds.cells],
            rank: 1,
            closed: false,
            long: bounds.long,
            slip: bounds.slip,
        }
    }

    pub(super) fn runs(&self) -> bool {
        matches!(self.process, Process::Up | Process::Lapsed)
    }

    /// Whether operations run.
    pub(super) fn serves(&self) -> bool {
        let slips = self.slip == Some(Slip::ServesWhenLapsed) && self.process == Process::Lapsed;
        self.process == Process::Up || slips
    }

    /// Whether a cell may be accessed in this mode without an ask.
    pub(super) fn may(&self, mode: RightMode, cell: usize) -> bool {
        let want = Want {
            by: By::Program,
            mode,
            area: cell_area(cell, self.rank),
            span: None,
        };
        match self.phase {
            Phase::Alone => true,
            Phase::Shared => self.own.held.holds(&want),
            _ => false,
        }
    }

    /// Whether an operation of this mode or a stronger one runs in a cell.
    pub(super) fn runs_in(&self, mode: RightMode, cell: usize) -> bool {
        self.ops.iter().any(|op| match &op.stage {
            Stage::Running(_, want, round) => {
                let there = want.area.overlaps(&cell_area(cell, self.rank));
                *round == self.round && want.mode >= mode && there
            }
            _ => false,
        })
    }

    pub(super) fn is_alone(&self) -> bool {
        self.phase == Phase::Alone
    }

    /// A session has begun.
    pub(super) fn attached(&mut self, session: SessionId, begun: RightsBegun, rank: usize) {
        self.process = Process::Up;
        self.session = session;
        self.next = 1;
        self.open.clear();
        self.own.begin_session();
        self.rank = rank;
        self.begin(begun);
    }

    /// The session is lost, and its dirty data with it.
    pub(super) fn lost(&mut self) {
        self.round += 1;
        self.epoch = RightsEpoch(0);
        self.phase = Phase::Closed;
        self.last_grant = LastGrant::default();
        self.dirty.fill(None);
        self.flying.fill(false);
        self.cached.fill(None);
    }

    fn begin(&mut self, begun: RightsBegun) {
        self.last_grant = LastGrant::of(begun.epoch);
        self.epoch = begun.epoch;
        self.seen = 0;
        self.end = false;
        self.phase = match begun.alone {
            true => Phase::Alone,
            false => Phase::Shared,
        };
    }

    fn call(&mut self, epoch: RightsEpoch, asking: Asking) -> u64 {
        let seq = self.next;
        self.next += 1;
        self.open.push(seq);
        self.calls.push(Call {
            session: self.session,
            seq,
            done_below: self.open.iter().copied().min().unwrap_or(self.next),
            epoch,
            asking,
            answer: None,
        });
        seq
    }

    /// An operation enters.
    pub(super) fn enter(&mut self, at: usize) {
        let what = self.ops[at].what;
        let want = Want {
            by: By::Program,
            mode: what.mode(),
            area: what.needs(self.rank),
            span: None,
        };
        self.ops[at].stage = if self.phase == Phase::Alone {
            let id = self.long.then(|| self.own.held.begin_alone(&want));
            Stage::Running(id.flatten(), want, self.round)
        } else if let Some(id) = self.own.held.begin(&want) {
            Stage::Running(Some(id), want, self.round)
        } else {
            let id = self.own.held.wait(want.clone());
            self.own.held.begin_waiting();
            Stage::Waiting(id, want, self.round)
        };
        self.take_form();
    }

    /// The first operation that begins adopts the form that came with a grant.
    fn take_form(&mut self) {
        let runs = |op: &Op| matches!(op.stage, Stage::Running(..));
        if !self.ops.iter().any(runs) {
            return;
        }
        let Some(form) = self.own.form.take() else {
            return;
        };
        if self.slip != Some(Slip::KeepsTheCache) {
            self.cached.fill(None);
        }
        self.rank = form.info.as_ref().map_or(1, |info| info.dims.len());
    }

    /// A running operation ends; returns whether its cells covered its needs.
    pub(super) fn leave(&mut self, at: usize) -> bool {
        let what = self.ops[at].what;
        let Stage::Running(id, want, round) = self.ops[at].stage.clone() else {
            return false;
        };
        let covers =
            round == self.round && (id.is_none() || want.area.covers(&what.needs(self.rank)));
        if let Some(id) = id {
            self.own.held.end(id);
        }
        self.ops[at].stage = match covers {
            true => Stage::Done,
            false => Stage::New,
        };
        covers
    }

    /// A program stops waiting.
    pub(super) fn withdraw(&mut self, at: usize) {
        let Stage::Waiting(id, ..) = self.ops[at].stage.clone() else {
            return;
        };
        self.ops[at].stage = Stage::Done;
        self.own.held.give_up(id);
        for ticket in self.own.take_idle_asks() {
            self.call(self.epoch, Asking::Cancel(ticket));
        }
    }

    /// The last close of the object.
    pub(super) fn close(&mut self) {
        self.own.disown();
        self.cached.fill(None);
        self.closed = true;
        self.call(self.epoch, Asking::Release);
    }

    /// Receives the events of an epoch from the lock server.
    pub(super) fn polled(&mut self, news: Option<Vec<(u64, News)>>) {
        match news {
            Some(news) => {
                self.inbox = news.into();
                self.inbox_epoch = self.epoch;
            }
            None => self.end = true,
        }
    }

    /// No operation begins in this epoch any more.
    pub(super) fn suspend(&mut self, epoch: RightsEpoch) {
        if epoch == self.epoch {
            self.phase = Phase::Closed;
        }
    }

    /// Whether the mount polls.
    pub(super) fn polls(&self) -> bool {
        let busy = self.end || self.reset.is_some() || !self.inbox.is_empty();
        self.runs() && self.epoch.0 != 0 && !busy
    }

    /// Handles the next event.
    pub(super) fn event(&mut self, grant: impl Fn(Grant) -> slabfs_mdserver::api::RightGrant) {
        let Some((number, news)) = self.inbox.pop_front() else {
            return;
        };
        if self.inbox_epoch == self.epoch {
            self.seen = number;
        }
        match news {
            News::Granted(granted) => self.granted(self.inbox_epoch, grant(granted)),
            News::Refused(ticket) => self.own.refused |= self.own.decided(ticket),
            News::Recall(recall) if self.inbox_epoch == self.epoch => {
                self.own.recalls.push_back(recall);
            }
            News::Recall(_) => {}
        }
    }

    fn granted(&mut self, epoch: RightsEpoch, grant: slabfs_mdserver::api::RightGrant) {
        let heard = self.last_grant.hear(epoch, grant.serial);
        self.own.granted(heard, grant);
    }

    /// Handles the reply to a request.
    pub(super) fn hear(
        &mut self,
        at: usize,
        grant: impl Fn(Grant) -> slabfs_mdserver::api::RightGrant,
    ) -> Option<Out> {
        let Call {
            session,
            seq,
            epoch,
            asking,
            answer,
            ..
        } = self.calls.remove(at);
        if session == self.session {
            self.open.retain(|&open| open != seq);
        }
        match (asking, answer?) {
            (Asking::Right(ask, op), answer) => {
                let mut out = None;
                match answer {
                    Answer::Granted(granted) => self.granted(epoch, grant(granted)),
                    Answer::Queued => {
                        self.own.queued(ask.ticket);
                        return None;
                    }
                    Answer::EpochIsOver => self.end |= epoch == self.epoch,
                    Answer::SessionLost => self.suspend(epoch),
                    _ => {
                        if let Stage::Waiting(id, ..) = self.ops[op].stage.clone()
                            && !self.own.held.take_begun(id)
                        {
                            self.own.held.give_up(id);
                            self.ops[op].stage = Stage::New;
                        }
                        out = Some(Out::Refresh);
                    }
                }
                self.own.decided(ask.ticket);
                out
            }
            (Asking::Give(_), answer) => {
                if matches!(answer, Answer::SessionLost) {
                    self.suspend(epoch);
                }
                self.reopen();
                None
            }
            (Asking::Reset(_), answer) => {
                self.reset_answered(answer);
                None
            }
            (Asking::Cancel(_) | Asking::Release, _) => None,
        }
    }

    fn reset_answered(&mut self, answer: Answer) {
        let Some(reset) = self.reset.take() else {
            return;
        };
        if reset.round != self.round {
            return self.lost_reset();
        }
        match answer {
            Answer::Begun(epoch, alone) => {
                match reset.retained.is_some() {
                    true => self.own.begin_with_held(),
                    false => self.own.begin_epoch(),
                }
                self.own.work_ends();
                self.begin(RightsBegun { epoch, alone });
            }
            Answer::SessionLost => self.lost_reset(),
            _ => {
                let at = Taking::Sent(self.call_reset(&reset));
                self.reset = Some(Reset { at, ..reset });
            }
        }
    }

    fn call_reset(&mut self, reset: &Reset) -> u64 {
        let retained = match self.slip {
            Some(Slip::ForgetsRunningOps) => Vec::new(),
            _ => reset.retained.clone().unwrap_or_default(),
        };
        self.call(RightsEpoch(0), Asking::Reset(retained))
    }

    /// Whether counted operations may conflict with a recall that leaves no more than `keep`.
    fn counts_against(&self, keep: Option<RightMode>) -> bool {
        self.ops.iter().any(|op| match &op.stage {
            Stage::Running(None, want, _) => keep.is_none() || want.mode == RightMode::Write,
            _ => false,
        })
    }

    fn lost_reset(&mut self) {
        self.own.held.reopen();
        self.own.work_ends();
    }

    /// A recall is handled.
    fn reopen(&mut self) {
        self.recall = None;
        self.own.held.reopen();
        self.own.work_ends();
    }

    /// Takes all steps that wait for nothing but this mount.
    pub(super) fn settle(&mut self) -> Vec<Out> {
        let mut out = Vec::new();
        while self.runs()
            && (self.step_ops() || self.step_recall(&mut out) || self.step_reset(&mut out))
        {
        }
        out
    }

    fn step_ops(&mut self) -> bool {
        for at in 0..self.ops.len() {
            let Stage::Waiting(id, want, round) = self.ops[at].stage.clone() else {
                continue;
            };
            if self.own.held.take_begun(id) {
                self.ops[at].stage = Stage::Running(Some(id), want, round);
                self.take_form();
                return true;
            }
            if round != self.round || self.phase == Phase::Alone {
                self.own.held.give_up(id);
                self.ops[at].stage = Stage::New;
                return true;
            }
            if self.phase == Phase::Shared && self.own.needs_ask(&want) {
                self.tickets += 1;
                let ask = self.own.ask(INO, &want, RightTicket(self.tickets));
                self.call(self.epoch, Asking::Right(ask, at));
                return true;
            }
        }
        false
    }

    fn step_recall(&mut self, out: &mut Vec<Out>) -> bool {
        let Some(mut recall) = self.recall.take() else {
            if self.own.working {
                return false;
            }
            let Some(recall) = self.own.recalls.pop_front() else {
                return false;
            };
            self.own.working = true;
            self.recall = Some(Recall {
                closing: Closing {
                    keep: recall.keep,
                    area: BoxSet::from(&recall.area),
                },
                epoch: self.epoch,
                retained: BoxSet::default(),
                at: Taking::Wait,
            });
            return true;
        };
        let over = recall.epoch != self.epoch;
        let next = match recall.at {
            Taking::Sent(_) => None,
            _ if over => {
                self.reopen();
                return true;
            }
            Taking::Wait => (!self.own.is_asking()).then(|| {
                self.own.held.close(recall.closing.clone());
                Taking::Busy
            }),
            Taking::Busy if self.own.held.is_busy() => None,
            Taking::Busy
                if self.counts_against(recall.closing.keep)
                    && self.slip != Some(Slip::ReleasesCountedRights) =>
            {
                None
            }
            Taking::Busy => Some({
                let dirty = self.dirty_cells();
                if !dirty.overlaps(&recall.closing.area) {
                    recall.retained = dirty;
                    Taking::Send
                } else if self.slip == Some(Slip::ReleasesWithoutFlush) {
                    Taking::Send
                } else {
                    Taking::Flush
                }
            }),
            Taking::Flush => self.is_flushed(out).then_some(Taking::Send),
            Taking::Send => {
                let Some(serial) = self.last_grant.heard(recall.epoch) else {
                    self.reopen();
                    return true;
                };
                let given = self.own.take_out(&recall.closing, &recall.retained, serial);
                if recall.closing.keep.is_none() && self.slip != Some(Slip::KeepsTheCache) {
                    self.cached.fill(None);
                }
                let gives = releases(INO, &recall.closing, &given, serial);
                Some(Taking::Sent(self.call(recall.epoch, Asking::Give(gives))))
            }
        };
        let moved = next.is_some();
        if let Some(next) = next {
            recall.at = next;
        }
        self.recall = Some(recall);
        moved
    }

    fn step_reset(&mut self, out: &mut Vec<Out>) -> bool {
        let Some(mut reset) = self.reset.take() else {
            let stays = self.slip == Some(Slip::StaysInItsEpoch);
            if !self.end || self.epoch.0 == 0 || !self.inbox.is_empty() || stays {
                return false;
            }
            self.end = false;
            let alone = self.is_alone();
            self.epoch = RightsEpoch(0);
            self.phase = Phase::Closed;
            self.last_grant = LastGrant::default();
            self.own.end_epoch(alone);
            self.reset = Some(Reset {
                round: self.round,
                at: Taking::Wait,
                retained: None,
            });
            return true;
        };
        let next = match reset.at {
            Taking::Sent(_) => None,
            Taking::Wait => (!self.own.working).then(|| {
                self.own.working = true;
                self.own.held.close(everything());
                Taking::Busy
            }),
            Taking::Busy => match self.own.held.is_busy() || self.counts_against(None) {
                true => {
                    reset.retained = self.own.held(INO);
                    reset.retained.is_some().then_some(Taking::Send)
                }
                false => Some(Taking::Flush),
            },
            Taking::Flush => self.is_flushed(out).then(|| {
                self.cached.fill(None);
                Taking::Send
            }),
            Taking::Send if reset.round != self.round => {
                self.lost_reset();
                return true;
            }
            Taking::Send => Some(Taking::Sent(self.call_reset(&reset))),
        };
        let moved = next.is_some();
        if let Some(next) = next {
            reset.at = next;
        }
        self.reset = Some(reset);
        moved
    }

    fn dirty_cells(&self) -> BoxSet {
        let mut all = BoxSet::default();
        for cell in (0..self.dirty.len()).filter(|&cell| self.dirty[cell].is_some()) {
            all.add(&cell_area(cell, self.rank));
        }
        all
    }

    /// Writes back dirty cells; returns whether none is left.
    pub(super) fn is_flushed(&mut self, out: &mut Vec<Out>) -> bool {
        for cell in 0..self.dirty.len() {
            if let Some(value) = self.dirty[cell]
                && !std::mem::replace(&mut self.flying[cell], true)
            {
                out.push(Out::Store(cell, value));
            }
        }
        self.dirty.iter().all(Option::is_none)
    }
}
