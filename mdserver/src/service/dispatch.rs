//! Dispatches a request to the function that executes it.

use crate::api::{MdError, Op, Reply, Request};
use crate::core::{Core, Ctx};
use crate::namespace::Place;
use crate::sessions::{Admission, admit, answered};
use crate::{dump, locks, namespace, placement, rights, sessions, tags, tilings};

/// Answers a request. `remote`: it comes from another process.
pub(super) fn call(core: &Core, request: Request, remote: bool) -> Result<Reply, MdError> {
    match request.op {
        Op::Attach {
            host,
            pid,
            read_only,
            strict,
        } => {
            return sessions::attach(core, host, pid, read_only, strict, !remote);
        }
        Op::RegisterServer(report) => return placement::register(core, report).map(Reply::Orders),
        Op::Heartbeat {
            floor,
            servers_version,
            knows,
            strict,
        } => {
            return sessions::heartbeat(
                core,
                request.session,
                floor,
                servers_version,
                knows,
                strict,
            );
        }
        // A resend finds that the session is gone, which is the requested result.
        Op::Detach { clean } => return sessions::detach(core, request.session, clean),
        _ => {}
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
        Op::Lock { .. }
            | Op::ReclaimLocks { .. }
            | Op::AskRight { .. }
            | Op::GiveRights { .. }
            | Op::ResetRights { .. }
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
    perform(core, &ctx, op)
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

fn perform(core: &Core, ctx: &Ctx, op: Op) -> Result<Reply, MdError> {
    match op {
        Op::Lookup { parent, name } => namespace::lookup(core, parent, &name),
        Op::GetAttr { ino } => namespace::get_attr(core, ino),
        Op::Create(create) => namespace::create(core, ctx, create),
        Op::CreateMany { objects } => namespace::create_many(core, ctx, objects),
        Op::GetDefaults { ino } => namespace::get_defaults(core, ino),
        Op::SetDefaults { ino, change } => namespace::set_defaults(core, ctx, ino, &change),
        Op::Link { ino, parent, name } => namespace::link(core, ctx, ino, parent, &name),
        Op::Unlink { parent, name } => namespace::unlink(core, ctx, parent, &name),
        Op::Rmdir { parent, name } => namespace::rmdir(core, ctx, parent, &name),
        Op::Rename {
            parent,
            name,
            new_parent,
            new_name,
            flags,
        } => {
            let from = Place { parent, name };
            let to = Place {
                parent: new_parent,
                name: new_name,
            };
            namespace::rename(core, ctx, &from, &to, flags)
        }
        Op::ReadLink { ino } => namespace::read_link(core, ino),
        Op::Removed { ino, set } => namespace::removed(core, ino, set),
        Op::ReadDir { ino, cookie, limit } => namespace::read_dir(core, ino, cookie, limit),
        Op::SetAttr { ino, set } => namespace::set_attr(core, ctx, ino, set),
        Op::SetXattr {
            ino,
            name,
            value,
            flags,
        } => namespace::set_xattr(core, ctx, ino, name, value, flags),
        Op::GetXattr { ino, name } => namespace::get_xattr(core, ino, &name),
        Op::ListXattr { ino } => namespace::list_xattr(core, ino),
        Op::RemoveXattr { ino, name } => namespace::remove_xattr(core, ctx, ino, name),
        Op::Tag { changes } => tags::tag(core, ctx, changes),
        Op::Tags { ino, after } => tags::tags(core, ino, after.as_deref()),
        Op::Find(find) => tags::find(core, find),
        Op::Open { ino } => namespace::open(core, ctx, ino),
        Op::Release { inos } => namespace::release(core, ctx, &inos),
        Op::Tiling {
            ino,
            known,
            after,
            wanted,
        } => tilings::tiling(core, ino, known, after, wanted.as_ref()),
        Op::LeaseChunks { count } => sessions::lease_chunks(core, ctx, count),
        Op::SetDraining { server, draining } => placement::set_draining(core, server, draining),
        Op::Holdings { server, after } => placement::holdings(core, server, after),
        Op::Permit { ino, permit } => placement::permit(core, ctx, ino, permit),
        Op::Restripe {
            ino,
            generation,
            from,
            to,
        } => placement::restripe(core, ctx, ino, generation, (from, to)),
        Op::Relocate {
            ino,
            generation,
            moves,
        } => tilings::relocate(core, ctx, ino, generation, &moves),
        Op::LeasePlaces { bytes, spent } => placement::lease_places(core, ctx, bytes, &spent),
        Op::Commit(commit) => tilings::commit(core, ctx, commit),
        Op::Resize { ino, dims, how } => tilings::resize(core, ctx, ino, &dims, how),
        Op::Declare {
            ino,
            change,
            rewrite,
        } => tilings::declare(core, ctx, ino, &change, rewrite),
        Op::Clear { ino } => tilings::clear(core, ctx, ino),
        Op::Reserve { ino, upto } => tilings::reserve(core, ctx, ino, upto),
        Op::SpareGeneration { ino, placement } => {
            tilings::spare_generation(core, ctx, ino, placement)
        }
        Op::Settle { ino, version } => tilings::settle(core, ctx, ino, version),
        Op::Sync => {
            core.kv.sync()?;
            Ok(Reply::Done)
        }
        Op::StatFs => {
            let state = core.state();
            Ok(Reply::StatFs(state.servers.totals(state.ids.inodes)))
        }
        Op::Dump { ticket, offset } => dump::page(core, ticket, offset).map(Reply::Dump),
        Op::Servers => Ok(Reply::Servers(core.state().servers.list())),
        Op::Lock { epoch, ask } => locks::lock(core, ctx, epoch, ask),
        Op::CancelLock { ticket } => locks::cancel(core, ctx, ticket),
        Op::LockEvents {
            epoch,
            seen,
            wait_ms,
        } => locks::events(core, ctx, epoch, seen, wait_ms),
        Op::ReclaimLocks { held, first, last } => locks::reclaim(core, ctx, held, first, last),
        Op::AskRight { epoch, ask } => rights::ask(core, ctx, epoch, &ask),
        Op::CancelRight { epoch, ticket } => rights::cancel(core, ctx, epoch, ticket),
        Op::GiveRights { epoch, gives } => rights::give(core, ctx, epoch, gives),
        Op::RightEvents {
            epoch,
            seen,
            wait_ms,
        } => rights::events(core, ctx, epoch, seen, wait_ms),
        Op::ResetRights { held } => rights::reset(core, ctx, held),
        Op::Stat { ino, keep } => rights::stat(core, ctx, ino, keep),
        Op::ReportSize {
            question,
            unflushed,
        } => rights::report_size(core, ctx, question, unflushed),
        Op::Look { parent, name } => rights::look(core, ctx, parent, &name),
        Op::ReportForgotten { epoch, change } => rights::forgot(core, ctx, epoch, change),
        Op::Attach { .. } | Op::RegisterServer(_) | Op::Heartbeat { .. } | Op::Detach { .. } => {
            Err(MdError::Protocol("answered elsewhere".to_owned()))
        }
    }
}
