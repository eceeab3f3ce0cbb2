//! Admission of requests: checks that the session is alive, that it may do this, and that it was not done already.

use std::time::Instant;

use crate::api::{MdError, Op, Reply, Request};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::records::decode;

/// The outcome of admission.
pub(crate) enum Admission {
    /// It is to be executed.
    Go(Ctx),
    /// It was executed before; this was the reply.
    Done(Box<Reply>),
}

/// Checks a request. A request that changes something and comes from another process is recorded as running until
/// [`answered`]; a resend that arrives meanwhile waits here.
pub(crate) fn admit(core: &Core, request: &Request, remote: bool) -> Result<Admission, MdError> {
    let Request {
        session: id,
        seq,
        done_below,
        ref op,
    } = *request;
    let unnumbered = Ctx::unnumbered(id, remote);
    if !remote && let Some(read_only) = core.local_reads_only(id) {
        may_write(read_only, op)?;
        return Ok(Admission::Go(unnumbered));
    }
    let mut state = core.state();
    loop {
        let session = state.session(id)?;
        session.heard = Instant::now();
        may_write(session.record.read_only, op)?;
        if !op.changes() || !remote {
            return Ok(Admission::Go(unnumbered));
        }
        if seq == 0 {
            return Err(MdError::Invalid(
                "a request that changes something needs a sequence number".into(),
            ));
        }
        if session.running.contains(&seq) {
            core.answered.wait(&mut state);
            continue;
        }
        if session.replies.contains(&seq) {
            let key = keys::reply(id, seq);
            let reply = core.kv.get(&key)?.ok_or(MdError::Stale)?;
            return Ok(Admission::Done(Box::new(decode(&key, &reply)?)));
        }
        if let Some(answer) = session.answers.find(seq, done_below) {
            return answer.map(|reply| Admission::Done(Box::new(reply)));
        }
        session.running.insert(seq);
        return Ok(Admission::Go(Ctx {
            seq,
            done_below,
            ..unnumbered
        }));
    }
}

fn may_write(read_only: bool, op: &Op) -> Result<(), MdError> {
    if read_only && op.writes() {
        return Err(MdError::NotPermitted(
            "the session is read-only; use a mount that was started without --read-only".to_owned(),
        ));
    }
    Ok(())
}

/// Records that an admitted request is answered. `answer`: what a resend gets, unless that is in the store.
pub(crate) fn answered(core: &Core, ctx: &Ctx, answer: Option<Result<Reply, MdError>>) {
    let (Some(id), true) = (ctx.session, ctx.seq != 0) else {
        return;
    };
    let mut state = core.state();
    if let Ok(session) = state.session(id) {
        session.running.remove(&ctx.seq);
        if let Some(answer) = answer {
            session.answers.keep(ctx.seq, answer);
        }
    }
    core.answered.notify_all();
}
