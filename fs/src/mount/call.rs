//! An open `.slabfs/call`: a request is written to it, and its reply is read from it.
//!
//! Writes assemble the request. The first read starts it on a thread of the pool for calls, and every read is
//! answered from the reply once that exists. A later write at offset 0 begins the next request. Nothing here blocks a
//! session thread. On a read-only mount, where nothing can be opened for writing, the parts of a request come through
//! [`Call::add`] instead; the metadata service refuses any request that would change something.
//!
//! Before a request is answered, the kernel drops whatever it caches of names and attributes that the request changed,
//! so the effect of a command is visible when the command ends. That waits for the kernel, which may wait for session
//! threads, the pool and invalidation threads; none of these waits for a thread of the pool for calls.

use std::sync::Arc;

use fuser::Errno;
use parking_lot::MappedMutexGuard;
use serde_json::json;

use crate::call::{self, Changed, Context, REPLY_LIMIT, REQUEST_LIMIT};

use super::calls::Place;
use super::errno::{Failure, Outcome, refused, report};
use super::exchange::{State, Waiting};
use super::pool::Job;

/// The error of an ended call.
const ENDED: &str = "the call asked nothing for long and its place was needed: open it again";
/// Reads that may wait for one reply.
const MOST_READS: usize = 16;

/// An open call.
pub(super) struct Call {
    context: Context,
    place: Place,
}

impl Call {
    pub(super) fn new(context: Context, place: Place) -> Call {
        Call { context, place }
    }

    fn state(&self) -> MappedMutexGuard<'_, State> {
        self.place.exchange().state()
    }

    /// Adds a part of a request at `offset`.
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Outcome<()> {
        self.take(Some(offset), data)
    }

    /// Adds the next part of a request, at its current end; after a reply, the first part of the next request.
    pub(super) fn add(&self, data: &[u8]) -> Outcome<()> {
        self.take(None, data)
    }

    fn take(&self, offset: Option<u64>, data: &[u8]) -> Outcome<()> {
        let mut state = self.state();
        if offset.unwrap_or(0) == 0 && matches!(*state, State::Answered(_)) {
            *state = State::Asking(Vec::new());
        }
        if matches!(*state, State::Ended) {
            return refused(Errno::ESTALE, ENDED);
        }
        let State::Asking(request) = &mut *state else {
            return refused(
                Errno::EBUSY,
                "a call takes the next request, from offset 0, when it has answered the last one",
            );
        };
        if offset.is_some_and(|offset| offset != request.len() as u64) {
            return refused(
                Errno::EINVAL,
                "a request is written in order, from offset 0",
            );
        }
        if request.len() + data.len() > REQUEST_LIMIT {
            return refused(Errno::EFBIG, "a request has at most 4 MiB");
        }
        request.extend_from_slice(data);
        Ok(())
    }

    /// The caller's user.
    pub(super) fn uid(&self) -> u32 {
        self.context.caller.uid
    }

    /// Answers a read once the reply exists. If the request has not been started, returns the job that executes it, and
    /// gives what it has changed to `forget`.
    pub(super) fn read(
        self: &Arc<Self>,
        waiting: Waiting,
        forget: impl FnOnce(Changed) + Send + 'static,
    ) -> Option<Job> {
        let mut state = self.state();
        match &mut *state {
            State::Answered(text) => {
                let text = text.clone();
                drop(state);
                waiting.give(&text);
            }
            State::Running(reads) if reads.len() < MOST_READS => reads.push(waiting),
            State::Running(_) => waiting.reply.error(Errno::EAGAIN),
            State::Ended => waiting.reply.error(Errno::ESTALE),
            State::Asking(request) => {
                let request = std::mem::take(request);
                *state = State::Running(vec![waiting]);
                let call = self.clone();
                return Some(Box::new(move || {
                    // Dropping this answers the reads even if the request panics.
                    let mut answer = Answer {
                        call: &call,
                        text: fault(
                            "a bug in this call; the log of the mount says more",
                            libc::EIO,
                            None,
                        ),
                    };
                    answer.text = answered(call::run(&call.context, &request));
                    forget(std::mem::take(&mut *call.context.changed.lock()));
                }));
            }
        }
        None
    }
}

/// On drop, sends the reply to all reads that wait for it.
struct Answer<'a> {
    call: &'a Call,
    text: Vec<u8>,
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        let text = Arc::new(std::mem::take(&mut self.text));
        let before = std::mem::replace(&mut *self.call.state(), State::Answered(text.clone()));
        if let State::Running(reads) = before {
            for read in reads {
                read.give(&text);
            }
        }
    }
}

fn answered(result: Result<serde_json::Value, call::CallError>) -> Vec<u8> {
    let text = result.and_then(|value| {
        let text = json!({ "ok": value }).to_string();
        if text.len() > REPLY_LIMIT {
            return Err(call::CallError::TooLarge);
        }
        Ok(text)
    });
    match text {
        Ok(text) => (text + "\n").into_bytes(),
        Err(error) => {
            let index = error.index();
            let failure = Failure::from(error);
            let errno = report("call", 0, &failure).code();
            fault(&failure.to_string(), errno, index)
        }
    }
}

fn fault(text: &str, errno: i32, index: Option<usize>) -> Vec<u8> {
    let mut reply = json!({ "error": text, "errno": errno });
    if let Some(index) = index {
        reply["index"] = index.into();
    }
    format!("{reply}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_carry_their_number() {
        let text = answered(Err(call::CallError::Missing("run/x".to_owned())));
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["errno"], libc::ENOENT);
        assert_eq!(value["error"], "run/x does not exist");
    }
}
