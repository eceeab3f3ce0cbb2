//! One mount: what its threads do with the pure parts of rights.

use std::collections::VecDeque;

use slabfs_mdserver::api::{
    Ino, RightAsk, RightGive, RightHeld, RightMode, RightRecall, RightSerial, RightTicket,
    RightsBegun, RightsEpoch,
};
use slabfs_model::{ObjectId, SessionId};

use super::super::Phase;
use super::super::cells::Cells;
use super::super::held::{By, Closing, OpId, Want};
use super::super::state::{Line, State, everything, givings};
use super::{Bounds, Doing, Slip, cell_area};

/// The object.
pub(super) const INO: Ino = ObjectId(1);

/// A mount's process, and whether it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Process {
    /// It was not started yet.
    Off,
    Up,
    /// It was not heard for long, and knows it by its own clock.
    Lapsed,
    Dead,
}

#[derive(Debug, Clone, Hash)]
pub(super) enum Stage {
    New,
    Waiting(OpId, Want, u8),
    /// It began in this round; without a number where nothing had to be held.
    Running(Option<OpId>, Want, u8),
    Done,
}

#[derive(Debug, Clone, Hash)]
pub(super) struct Op {
    pub(super) what: Doing,
    pub(super) stage: Stage,
}

/// A grant without the form that comes with it, but for what of that matters here.
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
    LifeIsOver,
    SessionLost,
    Stale,
    Done,
    Begun(RightsEpoch, bool),
}

/// A request, until its answer is heard.
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
    Tell,
    /// The answer to this request is waited for.
    Told(u64),
}

/// A recall that is handled.
#[derive(Debug, Clone, Hash)]
struct Recall {
    closing: Closing,
    epoch: RightsEpoch,
    kept: Cells,
    at: Taking,
}

/// An epoch that is ended.
#[derive(Debug, Clone, Hash)]
struct Reset {
    round: u8,
    at: Taking,
    /// What the object keeps, if something runs.
    kept: Option<Vec<RightHeld>>,
}

/// What a mount wants of the world.
#[derive(Debug)]
pub(super) enum Out {
    /// A cell is sent to its data server.
    Store(usize, u8),
    /// The form is looked at once more.
    Refresh,
}

#[derive(Debug, Clone)]
pub(super) struct Mount {
    pub(super) process: Process,
    pub(super) session: SessionId,
    phase: Phase,
    pub(super) epoch: RightsEpoch,
    line: Line,
    /// The epoch is to be ended.
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
            &self.line,
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
            (own.working, own.old_work),
            own.gave,
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
            line: Line::default(),
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

    /// Whether operations go on.
    pub(super) fn serves(&self) -> bool {
        let slips = self.slip == Some(Slip::ServesWhenLapsed) && self.process == Process::Lapsed;
        self.process == Process::Up || slips
    }

    /// What may be touched here without asking, in a mode.
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

    /// Whether an operation runs in a cell, in this mode or one that is more.
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

    /// The session is over, and nothing of it can be written back any more.
    pub(super) fn lost(&mut self) {
        self.round += 1;
        self.epoch = RightsEpoch(0);
        self.phase = Phase::Closed;
        self.line = Line::default();
        self.dirty.fill(None);
        self.flying.fill(false);
        self.cached.fill(None);
    }

    fn begin(&mut self, begun: RightsBegun) {
        self.line = Line::of(begun.epoch);
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
            self.own.held.let_in();
            Stage::Waiting(id, want, self.round)
        };
        self.take_form();
    }

    /// The form that came with a grant is taken over by whoever begins first.
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

    /// An operation that runs ends; whether it covered what it was for.
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

    /// A program waits no more.
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

    /// The object is closed for the last time.
    pub(super) fn close(&mut self) {
        self.own.disown();
        self.cached.fill(None);
        self.closed = true;
        self.call(self.epoch, Asking::Release);
    }

    /// The lock server's news of an epoch.
    pub(super) fn polled(&mut self, news: Option<Vec<(u64, News)>>) {
        match news {
            Some(news) => {
                self.inbox = news.into();
                self.inbox_epoch = self.epoch;
            }
            None => self.end = true,
        }
    }

    /// Nothing begins in this epoch any more.
    pub(super) fn suspend(&mut self, epoch: RightsEpoch) {
        if epoch == self.epoch {
            self.phase = Phase::Closed;
        }
    }

    /// Whether the poll goes on.
    pub(super) fn polls(&self) -> bool {
        let busy = self.end || self.reset.is_some() || !self.inbox.is_empty();
        self.runs() && self.epoch.0 != 0 && !busy
    }

    /// The next event is looked at.
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
        let heard = self.line.hear(epoch, grant.serial);
        self.own.granted(heard, grant);
    }

    /// The answer to a request is heard.
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
                    Answer::LifeIsOver => self.end |= epoch == self.epoch,
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
                self.told_reset(answer);
                None
            }
            (Asking::Cancel(_) | Asking::Release, _) => None,
        }
    }

    fn told_reset(&mut self, answer: Answer) {
        let Some(reset) = self.reset.take() else {
            return;
        };
        if reset.round != self.round {
            return self.lost_reset();
        }
        match answer {
            Answer::Begun(epoch, alone) => {
                match reset.kept.is_some() {
                    true => self.own.begin_with_held(),
                    false => self.own.begin_epoch(),
                }
                self.own.work_ends();
                self.begin(RightsBegun { epoch, alone });
            }
            Answer::SessionLost => self.lost_reset(),
            _ => {
                let at = Taking::Told(self.call_reset(&reset));
                self.reset = Some(Reset { at, ..reset });
            }
        }
    }

    fn call_reset(&mut self, reset: &Reset) -> u64 {
        let kept = match self.slip {
            Some(Slip::ForgetsWhatRuns) => Vec::new(),
            _ => reset.kept.clone().unwrap_or_default(),
        };
        self.call(RightsEpoch(0), Asking::Reset(kept))
    }

    /// Whether operations run that are only counted, in whose way it is if no more than `keep` stays.
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

    /// A recall is done with.
    fn reopen(&mut self) {
        self.recall = None;
        self.own.held.reopen();
        self.own.work_ends();
    }

    /// Everything is done that waits for nothing but this mount.
    pub(super) fn settle(&mut self) -> Vec<Out> {
        let mut out = Vec::new();
        while self.runs()
            && (self.go_on_ops() || self.go_on_recall(&mut out) || self.go_on_reset(&mut out))
        {
        }
        out
    }

    fn go_on_ops(&mut self) -> bool {
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
            if self.phase == Phase::Shared && self.own.is_to_be_asked(&want) {
                self.tickets += 1;
                let ask = self.own.ask(INO, &want, RightTicket(self.tickets));
                self.call(self.epoch, Asking::Right(ask, at));
                return true;
            }
        }
        false
    }

    fn go_on_recall(&mut self, out: &mut Vec<Out>) -> bool {
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
                    area: Cells::from(&recall.area),
                },
                epoch: self.epoch,
                kept: Cells::default(),
                at: Taking::Wait,
            });
            return true;
        };
        let over = recall.epoch != self.epoch;
        let next = match recall.at {
            Taking::Told(_) => None,
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
                    && self.slip != Some(Slip::GivesWhatIsCounted) =>
            {
                None
            }
            Taking::Busy => Some({
                let dirty = self.dirty_cells();
                if !dirty.overlaps(&recall.closing.area) {
                    recall.kept = dirty;
                    Taking::Tell
                } else if self.slip == Some(Slip::GivesWithoutFlush) {
                    Taking::Tell
                } else {
                    Taking::Flush
                }
            }),
            Taking::Flush => self.is_flushed(out).then_some(Taking::Tell),
            Taking::Tell => {
                let Some(serial) = self.line.heard(recall.epoch) else {
                    self.reopen();
                    return true;
                };
                let given = self.own.take_out(&recall.closing, &recall.kept, serial);
                if recall.closing.keep.is_none() && self.slip != Some(Slip::KeepsTheCache) {
                    self.cached.fill(None);
                }
                let gives = givings(INO, &recall.closing, &given, serial);
                Some(Taking::Told(self.call(recall.epoch, Asking::Give(gives))))
            }
        };
        let moved = next.is_some();
        if let Some(next) = next {
            recall.at = next;
        }
        self.recall = Some(recall);
        moved
    }

    fn go_on_reset(&mut self, out: &mut Vec<Out>) -> bool {
        let Some(mut reset) = self.reset.take() else {
            let stays = self.slip == Some(Slip::StaysInItsLife);
            if !self.end || self.epoch.0 == 0 || !self.inbox.is_empty() || stays {
                return false;
            }
            self.end = false;
            let alone = self.is_alone();
            self.epoch = RightsEpoch(0);
            self.phase = Phase::Closed;
            self.line = Line::default();
            self.own.end_epoch(alone);
            self.reset = Some(Reset {
                round: self.round,
                at: Taking::Wait,
                kept: None,
            });
            return true;
        };
        let next = match reset.at {
            Taking::Told(_) => None,
            Taking::Wait => (!self.own.working).then(|| {
                self.own.working = true;
                self.own.held.close(everything());
                Taking::Busy
            }),
            Taking::Busy => match self.own.held.is_busy() || self.counts_against(None) {
                true => {
                    reset.kept = self.own.held(INO);
                    reset.kept.is_some().then_some(Taking::Tell)
                }
                false => Some(Taking::Flush),
            },
            Taking::Flush => self.is_flushed(out).then(|| {
                self.cached.fill(None);
                Taking::Tell
            }),
            Taking::Tell if reset.round != self.round => {
                self.lost_reset();
                return true;
            }
            Taking::Tell => Some(Taking::Told(self.call_reset(&reset))),
        };
        let moved = next.is_some();
        if let Some(next) = next {
            reset.at = next;
        }
        self.reset = Some(reset);
        moved
    }

    fn dirty_cells(&self) -> Cells {
        let mut all = Cells::default();
        for cell in (0..self.dirty.len()).filter(|&cell| self.dirty[cell].is_some()) {
            all.add(&cell_area(cell, self.rank));
        }
        all
    }

    /// writes back what is dirty; whether nothing is.
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
