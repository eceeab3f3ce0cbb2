//! A model of all mounts, their lock server, data servers and messages in flight; and one step of any of them.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use slabfs_mdserver::api::{
    ArrayInfo, Attr, Entry, Given, Kind, MdError, Op, Reply, Request, RightEventKind, RightGrant,
    RightMode, RightNews, RightReply, Time, op,
};
use slabfs_mdserver::rights::driven::Driven;
use slabfs_model::{Codec, Coords, DType, Fill, Layout, MaxDim, Placement, SessionId, Version};

use super::mount::{Answer, Asking, Call, Grant, INO, Mount, News, Out, Process, Stage};
use super::{Bounds, Doing};

/// A cell in flight to a data server.
#[derive(Debug, Clone, Hash)]
struct Flight {
    mount: usize,
    session: SessionId,
    cell: usize,
    value: u8,
}

/// A violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Wrong {
    /// A read returned the value before the last write.
    Old,
    /// A data server accepted a write of a session that is over, where another session has rights.
    Late,
}

/// The mishaps that are left.
#[derive(Debug, Clone, Hash)]
struct Left {
    deaths: u8,
    lapses: u8,
    restarts: u8,
    losses: u8,
    withdrawals: u8,
    flushes: u8,
}

/// A step. Numbers are indices of mounts, then of operations, requests or writes in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A mount is started.
    Attach(usize),
    /// An operation enters; or it is executed and ends.
    Enter(usize, usize),
    Leave(usize, usize),
    /// The lock server answers a request; or the mount receives the reply.
    Answer(usize, usize),
    Hear(usize, usize),
    /// A late copy of a request arrives at the lock server.
    Stray(usize),
    Poll(usize),
    Event(usize),
    /// A data server accepts a write, or rejects it.
    Land(usize),
    /// The lock server ends a session whose lease expired; data servers fence it, and the lock server learns that
    /// they have.
    Expire(usize),
    Fence,
    /// A lapsed mount returns, with its session or a new one.
    Return(usize),
    Close(usize),
    // Mishaps:
    Die(usize),
    Lapse(usize),
    Restart,
    LoseReply(usize, usize),
    Withdraw(usize, usize),
    Flush(usize),
}

impl Step {
    /// Whether progress does not depend on this step.
    pub(super) fn is_mishap(self) -> bool {
        matches!(
            self,
            Step::Die(_)
                | Step::Lapse(_)
                | Step::Restart
                | Step::LoseReply(..)
                | Step::Withdraw(..)
                | Step::Flush(_)
        )
    }
}

#[derive(Debug, Clone, Hash)]
#[expect(
    clippy::derived_hash_with_manual_eq,
    reason = "equal is what has the same hash, as the search takes it"
)]
pub(super) struct World {
    lock_server: Driven,
    pub(super) mounts: Vec<Mount>,
    /// The cells as stored by data servers.
    disk: Vec<u8>,
    /// The value of the last write that was not lost, and whether that write may be lost.
    latest: Vec<u8>,
    doubt: Vec<bool>,
    /// Number of values written so far.
    values: u8,
    /// Sessions that data servers have fenced.
    refused: BTreeSet<SessionId>,
    flights: Vec<Flight>,
    strays: Vec<Call>,
    left: Left,
    /// The violation found.
    pub(super) wrong: Option<Wrong>,
    /// Events that the search has to reach.
    pub(super) resets: u8,
    pub(super) released: bool,
    pub(super) came_back: bool,
    /// The operations that ran when the last mount attached, and whether that mount finished an operation before
    /// them.
    running: Vec<(usize, usize)>,
    pub(super) overtaken: bool,
}

/// Equality by hash, as the search compares states.
impl PartialEq for World {
    fn eq(&self, other: &World) -> bool {
        let number = |world: &World| {
            let mut hasher = std::hash::DefaultHasher::new();
            world.hash(&mut hasher);
            hasher.finish()
        };
        number(self) == number(other)
    }
}

/// The object in some rank.
pub(in crate::client) fn entry(rank: usize, change: u64) -> Entry {
    let time = Time { sec: 0, nsec: 0 };
    Entry {
        attr: Attr {
            ino: INO,
            kind: Kind::Object,
            mode: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 4,
            stored: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            change,
        },
        info: Some(
            ArrayInfo {
                dtype: DType::BYTE,
                dims: Coords::from_elem(4, rank),
                max_dims: vec![MaxDim::Unlimited; rank],
                fill: Fill::zero(),
                layout: Layout::Grid(Coords::from_elem(4, rank)),
                codec: Codec::None,
                declared: true,
                given: Given::default(),
                holds: true,
                generation: 1,
                placement: Placement::Dynamic,
                stripe: Vec::new(),
                blocks: None,
                tiling: Version(1),
                chunk_limit: 64 << 20,
                couple: slabfs_model::Coupling::Off,
            }
            .into(),
        ),
    }
}

fn lite(grant: &RightGrant) -> Grant {
    Grant {
        ticket: grant.ticket,
        serial: grant.serial,
        mode: grant.mode,
        area: grant.area.clone(),
        rank: grant.entry.info.as_ref().map_or(1, |info| info.dims.len()),
        change: grant.entry.attr.change,
    }
}

fn full(grant: Grant) -> RightGrant {
    RightGrant {
        ticket: grant.ticket,
        serial: grant.serial,
        mode: grant.mode,
        area: grant.area,
        entry: entry(grant.rank, grant.change),
    }
}

impl World {
    /// All mounts that are not late are attached, and have seen each other.
    pub(super) fn new(bounds: &Bounds) -> World {
        let mount = |program: &Vec<Doing>| Mount::new(program, bounds);
        let mut world = World {
            lock_server: Driven::new(entry(1, 1), bounds.flaw),
            mounts: bounds.programs.iter().map(mount).collect(),
            disk: vec![0; bounds.cells],
            latest: vec![0; bounds.cells],
            doubt: vec![false; bounds.cells],
            values: 0,
            refused: BTreeSet::new(),
            flights: Vec::new(),
            strays: Vec::new(),
            left: Left {
                deaths: bounds.deaths,
                lapses: bounds.lapses,
                restarts: bounds.restarts,
                losses: bounds.losses,
                withdrawals: bounds.withdrawals,
                flushes: bounds.flushes,
            },
            wrong: None,
            resets: 0,
            released: false,
            came_back: false,
            running: Vec::new(),
            overtaken: false,
        };
        for mount in 0..bounds.programs.len() - bounds.late {
            world.step(Step::Attach(mount), bounds);
            let mut steps = Vec::new();
            loop {
                steps.clear();
                world.steps(bounds, &mut steps);
                let talk = |step: &&Step| {
                    matches!(
                        step,
                        Step::Poll(_) | Step::Event(_) | Step::Answer(..) | Step::Hear(..)
                    )
                };
                let Some(&step) = steps.iter().find(talk) else {
                    break;
                };
                world.step(step, bounds);
            }
        }
        world.resets = 0;
        world
    }

    /// The steps that can be taken.
    pub(super) fn steps(&self, bounds: &Bounds, steps: &mut Vec<Step>) {
        for (at, mount) in self.mounts.iter().enumerate() {
            self.steps_of(at, mount, bounds, steps);
        }
        steps.extend((0..self.strays.len()).map(Step::Stray));
        steps.extend((0..self.flights.len()).map(Step::Land));
        if self.lock_server.has_open_ends() {
            steps.push(Step::Fence);
        }
        if self.left.restarts > 0 {
            steps.push(Step::Restart);
        }
    }

    fn steps_of(&self, at: usize, mount: &Mount, bounds: &Bounds, steps: &mut Vec<Step>) {
        let alive = self.lock_server.is_alive(mount.session);
        for (number, call) in mount.calls.iter().enumerate() {
            if call.answer.is_none() {
                steps.push(Step::Answer(at, number));
            } else if mount.runs() {
                steps.push(Step::Hear(at, number));
                if self.left.losses > 0 {
                    steps.push(Step::LoseReply(at, number));
                }
            }
        }
        match mount.process {
            Process::Off => return steps.push(Step::Attach(at)),
            Process::Dead if alive => return steps.push(Step::Expire(at)),
            Process::Dead => return,
            Process::Lapsed => {
                if alive {
                    steps.push(Step::Expire(at));
                }
                steps.push(Step::Return(at));
            }
            Process::Up => {
                if self.left.lapses > 0 {
                    steps.push(Step::Lapse(at));
                }
            }
        }
        if !mount.inbox.is_empty() {
            steps.push(Step::Event(at));
        }
        let heard = alive
            && self
                .lock_server
                .has_news(mount.session, mount.epoch, mount.seen);
        if mount.polls() && heard {
            steps.push(Step::Poll(at));
        }
        if self.left.deaths > 0 {
            steps.push(Step::Die(at));
        }
        if self.left.flushes > 0 && mount.dirty.iter().any(Option::is_some) {
            steps.push(Step::Flush(at));
        }
        for (number, op) in mount.ops.iter().enumerate() {
            match op.stage {
                Stage::New if mount.serves() => steps.push(Step::Enter(at, number)),
                Stage::Running(..) if mount.serves() => steps.push(Step::Leave(at, number)),
                Stage::Waiting(..) if self.left.withdrawals > 0 => {
                    steps.push(Step::Withdraw(at, number));
                }
                _ => {}
            }
        }
        let done = mount.ops.iter().all(|op| matches!(op.stage, Stage::Done));
        let clean = mount.dirty.iter().all(Option::is_none);
        if bounds.closes && done && clean && !mount.closed && mount.epoch.0 != 0 && mount.serves() {
            steps.push(Step::Close(at));
        }
    }

    /// Whether a program waits on a mount that runs.
    pub(super) fn a_program_waits(&self) -> bool {
        let waits = |mount: &&Mount| {
            let left = mount.ops.iter().any(|op| !matches!(op.stage, Stage::Done));
            mount.runs() && left
        };
        self.mounts.iter().any(|mount| waits(&mount))
    }

    /// Whether running mounts have conflicting rights.
    pub(super) fn rights_collide(&self) -> bool {
        use RightMode::{Read, Write};
        let up = || {
            self.mounts
                .iter()
                .enumerate()
                .filter(|(_, one)| one.serves())
        };
        let against = |one: &Mount, two: &Mount| {
            (0..self.disk.len()).any(|cell| one.may(Write, cell) && two.may(Read, cell))
        };
        up().any(|(at, one)| up().any(|(other, two)| at != other && against(one, two)))
    }

    /// Whether a mount has rights that conflict with an operation on another one.
    pub(super) fn runs_against(&self) -> bool {
        use RightMode::{Read, Write};
        let against = |one: &Mount, two: &Mount| {
            let cells = 0..self.disk.len();
            let mut cells = cells.filter(|&cell| one.runs_in(Read, cell));
            cells
                .any(|cell| two.may(Write, cell) || one.runs_in(Write, cell) && two.may(Read, cell))
        };
        let mut up = self
            .mounts
            .iter()
            .enumerate()
            .filter(|(_, one)| one.serves());
        up.any(|(at, one)| {
            let mut others = self
                .mounts
                .iter()
                .enumerate()
                .filter(|(_, two)| two.serves());
            others.any(|(other, two)| at != other && against(one, two))
        })
    }

    /// Whether a mount may read a cell that another mount has not written back, and still could.
    pub(super) fn hides_data(&self) -> bool {
        let alive = |one: &Mount| one.serves() && self.lock_server.is_alive(one.session);
        let hides = |at: usize, one: &Mount| {
            (0..self.disk.len()).any(|cell| {
                let others = self
                    .mounts
                    .iter()
                    .enumerate()
                    .filter(|(other, _)| *other != at);
                let mut others = others.filter(|(_, two)| two.serves());
                one.dirty[cell].is_some() && others.any(|(_, two)| two.may(RightMode::Read, cell))
            })
        };
        self.mounts
            .iter()
            .enumerate()
            .any(|(at, one)| alive(one) && hides(at, one))
    }

    /// Records the operations that run when a mount attaches.
    fn note_running(&mut self) {
        let mounts = self.mounts.iter().enumerate();
        let running = mounts.flat_map(|(at, mount)| {
            let ops = mount.ops.iter().enumerate();
            let running = ops.filter(|(_, op)| matches!(op.stage, Stage::Running(..)));
            running.map(move |(op, _)| (at, op))
        });
        self.running = running.collect();
    }

    /// Takes a step, and the steps of mounts that follow from it.
    pub(super) fn step(&mut self, step: Step, bounds: &Bounds) {
        match step {
            Step::Attach(at) => {
                let (session, begun) = self.lock_server.attach();
                let rank = self.lock_server.rank();
                self.mounts[at].attached(session, begun, rank);
                self.note_running();
            }
            Step::Enter(at, op) => self.mounts[at].enter(op),
            Step::Leave(at, op) => self.leave(at, op),
            Step::Answer(at, call) => {
                let asked = self.mounts[at].calls[call].clone();
                let answer = self.answer(&asked);
                self.mounts[at].calls[call].answer = Some(answer);
            }
            Step::Hear(at, call) => {
                if let Some(Out::Refresh) = self.mounts[at].hear(call, full) {
                    self.mounts[at].rank = self.lock_server.rank();
                }
            }
            Step::LoseReply(at, call) => {
                self.left.losses -= 1;
                let call = &mut self.mounts[at].calls[call];
                call.answer = None;
                self.strays.push(call.clone());
            }
            Step::Stray(at) => {
                let call = self.strays.remove(at);
                self.answer(&call);
            }
            Step::Poll(at) => self.poll(at),
            Step::Event(at) => self.mounts[at].event(full),
            Step::Land(at) => self.land(at),
            Step::Expire(at) => {
                self.mark_doubt(at);
                self.lock_server.end(self.mounts[at].session, false);
            }
            Step::Fence => {
                for mount in self.mounts.iter().map(|mount| mount.session) {
                    if !self.lock_server.is_alive(mount) {
                        self.refused.insert(mount);
                    }
                }
                for flight in &self.flights {
                    if !self.lock_server.is_alive(flight.session) {
                        self.refused.insert(flight.session);
                    }
                }
                self.lock_server.close_fences();
            }
            Step::Return(at) => self.come_back(at),
            Step::Close(at) => self.mounts[at].close(),
            Step::Die(at) => {
                self.left.deaths -= 1;
                self.mark_doubt(at);
                let mount = &mut self.mounts[at];
                mount.lost();
                mount.process = Process::Dead;
                // Requests it has sent may still arrive; the replies go nowhere.
                mount.calls.retain(|call| call.answer.is_none());
            }
            Step::Lapse(at) => {
                self.left.lapses -= 1;
                self.mounts[at].process = Process::Lapsed;
                self.mounts[at].cached.fill(None);
            }
            Step::Restart => {
                self.left.restarts -= 1;
                self.lock_server.restart();
                // Copies of requests end with their connection.
                self.strays.clear();
            }
            Step::Withdraw(at, op) => {
                self.left.withdrawals -= 1;
                self.mounts[at].withdraw(op);
            }
            Step::Flush(at) => {
                self.left.flushes -= 1;
                let mut out = Vec::new();
                self.mounts[at].is_flushed(&mut out);
                self.send(at, out);
            }
        }
        for at in 0..self.mounts.len() {
            if bounds.closes && !self.mounts[at].closed {
                self.flush_for_close(at);
            }
            let out = self.mounts[at].settle();
            self.send(at, out);
        }
    }

    /// A mount whose operations are all done writes back its dirty cells.
    fn flush_for_close(&mut self, at: usize) {
        let done = |mount: &Mount| mount.ops.iter().all(|op| matches!(op.stage, Stage::Done));
        if self.mounts[at].runs() && done(&self.mounts[at]) {
            let mut out = Vec::new();
            self.mounts[at].is_flushed(&mut out);
            self.send(at, out);
        }
    }

    fn send(&mut self, mount: usize, out: Vec<Out>) {
        let session = self.mounts[mount].session;
        for out in out {
            if let Out::Store(cell, value) = out {
                self.flights.push(Flight {
                    mount,
                    session,
                    cell,
                    value,
                });
            }
        }
    }

    fn land(&mut self, at: usize) {
        let flight = self.flights.remove(at);
        if self.refused.contains(&flight.session) {
            return;
        }
        let others = self
            .mounts
            .iter()
            .filter(|one| one.session != flight.session);
        let mut others = others.filter(|one| one.serves());
        if !self.lock_server.is_alive(flight.session)
            && others.any(|one| one.may(RightMode::Read, flight.cell))
        {
            self.wrong = Some(Wrong::Late);
        }
        self.disk[flight.cell] = flight.value;
        let mount = &mut self.mounts[flight.mount];
        if mount.runs() && mount.session == flight.session {
            mount.flying[flight.cell] = false;
            if mount.dirty[flight.cell] == Some(flight.value) {
                mount.dirty[flight.cell] = None;
            }
        }
    }

    /// The dirty cells of a mount may be lost, or arrive.
    fn mark_doubt(&mut self, at: usize) {
        let mount = &self.mounts[at];
        for cell in 0..self.disk.len() {
            let flies = |it: &&Flight| it.session == mount.session && it.cell == cell;
            if mount.dirty[cell].is_some() || self.flights.iter().any(|it| flies(&it)) {
                self.doubt[cell] = true;
            }
        }
    }

    /// The first access to a cell whose last write may be lost settles its value.
    fn settle(&mut self, cell: usize) {
        if std::mem::take(&mut self.doubt[cell]) {
            self.latest[cell] = self.disk[cell];
        }
    }

    fn leave(&mut self, at: usize, op: usize) {
        let what = self.mounts[at].ops[op].what;
        self.running.retain(|&running| running != (at, op));
        if !self.mounts[at].leave(op) {
            return;
        }
        self.overtaken |= self.running.iter().any(|&(mount, _)| mount != at);
        match what {
            Doing::Read(cell) => {
                self.settle(cell);
                let mount = &mut self.mounts[at];
                let seen = mount.dirty[cell].or(mount.cached[cell]);
                let seen = seen.unwrap_or(self.disk[cell]);
                if mount.dirty[cell].is_none() {
                    mount.cached[cell] = Some(seen);
                }
                if seen != self.latest[cell] {
                    self.wrong = Some(Wrong::Old);
                }
            }
            Doing::Write(cell) => {
                self.settle(cell);
                self.values += 1;
                let mount = &mut self.mounts[at];
                mount.dirty[cell] = Some(self.values);
                mount.cached[cell] = None;
                self.latest[cell] = self.values;
            }
            Doing::Declare => {
                if !self.lock_server.is_alive(self.mounts[at].session) {
                    return;
                }
                let rank = 3 - self.lock_server.rank();
                self.lock_server.declare(rank);
                self.mounts[at].rank = rank;
            }
        }
    }

    fn poll(&mut self, at: usize) {
        let mount = &mut self.mounts[at];
        let (session, epoch) = (mount.session, mount.epoch);
        match self.lock_server.news(session, epoch, mount.seen) {
            Err(_) => mount.suspend(epoch),
            Ok(RightNews::Over) => mount.polled(None),
            Ok(RightNews::Events(events)) => {
                let news = events.into_iter().filter_map(|event| {
                    let news = match event.kind {
                        RightEventKind::Granted(grant) => News::Granted(lite(&grant)),
                        RightEventKind::Refused(ticket) => News::Refused(ticket),
                        RightEventKind::Recall(recall) => News::Recall(recall),
                        RightEventKind::Size { .. } | RightEventKind::Names { .. } => return None,
                    };
                    Some((event.number, news))
                });
                mount.polled(Some(news.collect()));
            }
        }
    }

    fn come_back(&mut self, at: usize) {
        if self.lock_server.is_alive(self.mounts[at].session) {
            self.mounts[at].process = Process::Up;
            return;
        }
        self.came_back = true;
        self.mounts[at].lost();
        let (session, begun) = self.lock_server.attach();
        let rank = self.lock_server.rank();
        self.mounts[at].attached(session, begun, rank);
    }

    fn answer(&mut self, call: &Call) -> Answer {
        let epoch = call.epoch;
        let op: Op = match call.asking.clone() {
            Asking::Right(ask, _) => op::AskRight { epoch, ask }.into(),
            Asking::Give(gives) => {
                self.released = true;
                op::GiveRights { epoch, gives }.into()
            }
            Asking::Reset(held) => {
                self.resets = (self.resets + 1).min(3);
                op::ResetRights { held }.into()
            }
            Asking::Cancel(ticket) => op::CancelRight { epoch, ticket }.into(),
            Asking::Release => op::Release { inos: vec![INO] }.into(),
        };
        let reply = self.lock_server.call(Request {
            session: call.session,
            seq: call.seq,
            done_below: call.done_below,
            op,
        });
        match reply {
            Ok(Reply::Right(RightReply::Granted(grant))) => Answer::Granted(lite(&grant)),
            Ok(Reply::Right(RightReply::Queued)) => Answer::Queued,
            Ok(Reply::Right(RightReply::Reset)) => Answer::EpochIsOver,
            Ok(Reply::RightsBegun(begun)) => Answer::Begun(begun.epoch, begun.alone),
            Ok(_) => Answer::Done,
            Err(MdError::SessionLost) => Answer::SessionLost,
            Err(_) => Answer::Stale,
        }
    }
}
