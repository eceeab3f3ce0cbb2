//! Questions for sizes: what others have written and not flushed, as far as it shows in attributes.
//!
//! Who has a right to write an object is asked by an event and answers at once from memory
//! ([`crate::api::Op::TellSize`]). Nobody is waited for longer than a moment: one that does not answer is left
//! out, since a `stat` must not hang with a mount that does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use slabfs_model::SessionId;

use super::server::LockServer;
use super::session::Pending;
use crate::api::{Entry, Ino, Unflushed};

/// Questions that were asked and not answered by all.
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

    /// Takes in an answer; says whether it was waited for.
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

    /// A session has nothing to tell any more but of objects that it `keeps`; says which questions these are.
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
    /// What sessions other than `session` have written to an object and not flushed. Waits for that, not
    /// longer than `patience`.
    pub(super) fn unflushed(
        &self,
        session: SessionId,
        ino: Ino,
        patience: Duration,
    ) -> Vec<Unflushed> {
        let until = Instant::now() + patience;
        let mut inside = self.enter();
        let state = &mut inside.state;
        // One that was alone may have written without a right. Before it begins anew it flushes all but what it
        // keeps, and of that it is asked.
        while state.in_epoch(session).is_some() && state.unknown_others(session) {
            if state.closing() || Instant::now() >= until {
                tracing::warn!(%session, %ino, "sizes are told without sessions that do not begin anew");
                break;
            }
            self.sized.wait_until(state, until);
        }
        let missing = state.writers(ino, session);
        if missing.is_empty() {
            return Vec::new();
        }
        let question = state.questions.ask(ino, missing.clone());
        for &writer in &missing {
            if let Some(writer) = state.in_epoch(writer) {
                writer.tell(Pending::Size { ino, question });
            }
        }
        let answered = |question: &Question| question.missing.is_empty();
        while !state.questions.open.get(&question).is_none_or(answered) {
            if state.closing() || Instant::now() >= until {
                break;
            }
            self.sized.wait_until(state, until);
        }
        let Some(done) = state.questions.open.remove(&question) else {
            return Vec::new();
        };
        for late in done.missing {
            tracing::warn!(session = %late, %ino, "the session does not tell sizes; they are told without it");
        }
        done.answers
    }

    /// Takes in an answer.
    pub(super) fn tell_size(&self, session: SessionId, question: u64, events: Option<Unflushed>) {
        if self
            .enter()
            .state
            .questions
            .answer(question, session, events)
        {
            self.sized.notify_all();
        }
    }
}

/// Puts what is not flushed into attributes: an object is as long as the longest of all say, and as young as
/// the youngest.
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
