//! Size queries: collects unflushed writes of other sessions, as far as they show in attributes.
//!
//! A session with a right to write the object is queried by an event, and answers at once from memory
//! ([`crate::api::Op::ReportSize`]). The wait is bounded: a session that does not answer is left out, since a `stat`
//! must not hang because another mount hangs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use slabfs_model::SessionId;

use super::server::{LockServer, State};
use super::session::Pending;
use crate::api::{Entry, Ino, Unflushed};

/// Queries that not all sessions have answered.
#[derive(Debug, Default, Clone)]
pub(super) struct Questions {
    last: u64,
    open: BTreeMap<u64, Question>,
}

#[derive(Debug, Clone)]
struct Question {
    ino: Ino,
    missing: BTreeSet<SessionId>,
    answers: Vec<Unflushed>,
}

impl Questions {
    fn ask(&mut self, ino: Ino, missing: BTreeSet<SessionId>) -> u64 {
        self.last += 1;
        let question = Question {
            ino,
            missing,
            answers: Vec::new(),
        };
        self.open.insert(self.last, question);
        self.last
    }

    /// Records an answer; returns whether it was expected.
    fn answer(&mut self, question: u64, session: SessionId, events: Option<Unflushed>) -> bool {
        let Some(question) = self.open.get_mut(&question) else {
            return false;
        };
        let missing = question.missing.remove(&session);
        if missing {
            question.answers.extend(events);
        }
        missing
    }

    /// Removes a session from all queries except those about objects that it `keeps`; returns the latter.
    pub(super) fn leave(
        &mut self,
        session: SessionId,
        keeps: impl Fn(Ino) -> bool,
    ) -> Vec<(u64, Ino)> {
        let mut again = Vec::new();
        for (&number, question) in &mut self.open {
            if keeps(question.ino) && question.missing.contains(&session) {
                again.push((number, question.ino));
            } else {
                question.missing.remove(&session);
            }
        }
        again
    }
}

impl LockServer {
    /// The unflushed writes of an object by sessions other than `session`. Waits for them up to `patience`.
    pub(super) fn unflushed(
        &self,
        session: SessionId,
        ino: Ino,
        patience: Duration,
    ) -> Vec<Unflushed> {
        let until = Instant::now() + patience;
        let mut state = self.enter();
        // A session that was alone may have written without a right. Before it resets its rights it flushes
        // everything except what it retains, and it is queried about that.
        while state.in_epoch(session).is_some() && state.unknown_others(session) {
            if state.closing() || Instant::now() >= until {
                tracing::warn!(%session, %ino, "size reported without sessions that have not reset their rights");
                break;
            }
            State::wait(&mut state, until);
        }
        let missing = state.writers(ino, session);
        if missing.is_empty() {
            return Vec::new();
        }
        let question = state.questions.ask(ino, missing.clone());
        for &writer in &missing {
            if let Some(writer) = state.in_epoch(writer) {
                writer.notify(Pending::Size { ino, question });
            }
        }
        let answered = |question: &Question| question.missing.is_empty();
        while !state.questions.open.get(&question).is_none_or(answered) {
            if state.closing() || Instant::now() >= until {
                break;
            }
            State::wait(&mut state, until);
        }
        let Some(done) = state.questions.open.remove(&question) else {
            return Vec::new();
        };
        for late in done.missing {
            tracing::warn!(session = %late, %ino, "no answer to a size query; size reported without this session");
        }
        done.answers
    }

    /// Records an answer.
    pub(super) fn report_size(&self, session: SessionId, question: u64, events: Option<Unflushed>) {
        let mut state = self.enter();
        if state.questions.answer(question, session, events) {
            state.wake();
        }
    }
}

/// Merges unflushed writes into the attributes: the size is the largest reported, the times are the latest.
pub(super) fn merge(entry: &mut Entry, unflushed: &[Unflushed]) {
    for events in unflushed {
        if events.size > entry.attr.size
            && let Some(info) = &mut entry.info
            && let Ok(Some(dims)) = info.grown_to(events.size)
        {
            info.dims = dims;
            entry.attr.size = info.size().unwrap_or(events.size);
        }
        if let Some(mtime) = events.mtime {
            entry.attr.mtime = entry.attr.mtime.max(mtime);
            entry.attr.ctime = entry.attr.ctime.max(mtime);
        }
    }
}
