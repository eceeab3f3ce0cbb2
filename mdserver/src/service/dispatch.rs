//! Dispatches a request to the handler of its operation.

use crate::api::{MdError, Op, Reply, Request, ServerInfo, StatFs, op};
use crate::core::{Core, Ctx};
use crate::namespace;
use crate::sessions::{Admission, admit, answered};

/// Answers a request. `remote`: it comes from another process.
pub(super) fn call(core: &Core, request: Request, remote: bool) -> Result<Reply, MdError> {
    let reply = execute(core, request, remote);
    // Also an error, and what was only read, may tell of a commit.
    core.kv.before_reply()?;
    reply
}

fn execute(core: &Core, request: Request, remote: bool) -> Result<Reply, MdError> {
    // These need no session, or may find that it is gone: the result that the resend of a detach asks for.
    if let Op::Attach(_) | Op::RegisterServer(_) | Op::Heartbeat(_) | Op::Detach(_) = request.op {
        let ctx = Ctx::unnumbered(request.session, remote);
        return request.op.handle(core, &ctx);
    }
    let ctx = match admit(core, &request, remote)? {
        Admission::Go(ctx) => ctx,
        Admission::Done(reply) => return Ok(*reply),
    };
    let mut running = Running {
        core,
        ctx,
        answer: None,
    };
    let in_memory = is_in_memory(&request.op);
    let reply = among_names(core, &ctx, request.op);
    running.answer = match &reply {
        // To be resent, to the service after a restart.
        Err(MdError::Unavailable { .. }) => None,
        // Its transaction has put the reply into the store.
        Ok(_) if !in_memory || ctx.seq == 0 => None,
        answer => Some(answer.clone()),
    };
    drop(running);
    reply
}

/// Whether the op changes only locks or rights, which are in memory: its reply is too, for resends.
fn is_in_memory(op: &Op) -> bool {
    matches!(
        op,
        Op::Lock(_)
            | Op::ReclaimLocks(_)
            | Op::AskRight(_)
            | Op::GiveRights(_)
            | Op::ResetRights(_)
    )
}

/// Executes an op once no session caches the names that it changes.
fn among_names(core: &Core, ctx: &Ctx, op: Op) -> Result<Reply, MdError> {
    let touched = namespace::touched(core, &op);
    let mut moved = touched.moved.iter().copied();
    let ctx = Ctx {
        moves: [moved.next(), moved.next()],
        ..*ctx
    };
    let _changing = core.rights.change(ctx.session, touched)?;
    op.handle(core, &ctx)
}

/// A request being executed; its drop guarantees that it is recorded as answered.
struct Running<'a> {
    core: &'a Core,
    ctx: Ctx,
    answer: Option<Result<Reply, MdError>>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        answered(self.core, &self.ctx, self.answer.take());
    }
}

/// Writes the journal to disk.
pub(crate) fn sync(core: &Core, _: &Ctx, _: op::Sync) -> Result<(), MdError> {
    core.kv.sync()?;
    Ok(())
}

/// Totals over the data servers.
pub(crate) fn statfs(core: &Core, _: &Ctx, _: op::StatFs) -> Result<StatFs, MdError> {
    let state = core.state();
    Ok(state.servers.totals(state.ids.inodes))
}

/// The state of the engine under the metadata.
pub(crate) fn engine(
    core: &Core,
    _: &Ctx,
    _: op::Engine,
) -> Result<Vec<(String, String)>, MdError> {
    Ok(core.kv.engine())
}

/// The data servers.
pub(crate) fn servers(core: &Core, _: &Ctx, _: op::Servers) -> Result<Vec<ServerInfo>, MdError> {
    Ok(core.state().servers.list())
}
