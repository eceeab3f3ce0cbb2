//! Opens: they prevent the removal of an inode without a name.
//!
//! Opens of sessions in other processes are in the store, so that they survive a restart of the service; those of
//! sessions in this process die with it.

use slabfs_model::SessionId;

use crate::api::{Entry, Ino, Kind, MAX_RELEASE, MdError, op};
use crate::core::{Core, Ctx, if_any};
use crate::sessions::session_of;
use crate::txn::Txn;

/// Counts one more open of an inode.
pub(crate) fn open(core: &Core, ctx: &Ctx, op: op::Open) -> Result<Entry, MdError> {
    let op::Open { ino } = op;
    core.fetch(ino)?;
    let mut txn = core.begin(ctx)?;
    let mut inode = txn.inode(ino)?;
    // Created while no data server was known: now there may be one.
    if inode.attr.kind == Kind::Object && inode.object()?.info.stripe.is_empty() {
        let object = std::sync::Arc::make_mut(&mut inode).object_mut()?;
        txn.choose_stripe(ino, object)?;
        if !object.info.stripe.is_empty() {
            txn.put(inode);
            inode = txn.inode(ino)?;
        }
    }
    txn.open_once(ino)?;
    txn.commit(inode.entry())
}

/// Drops one open for each inode named.
pub(crate) fn release(core: &Core, ctx: &Ctx, op: op::Release) -> Result<(), MdError> {
    let op::Release { inos } = op;
    if inos.len() > MAX_RELEASE {
        return Err(MdError::Invalid(format!(
            "at most {MAX_RELEASE} releases at a time"
        )));
    }
    let session = session_of(ctx)?;
    let mut txn = core.begin(ctx)?;
    let mut closed = Vec::new();
    for ino in inos {
        close(&mut txn, ino, session, 1, ctx.remote)?;
        if txn.opened(ino, session) == 0 {
            drop_reserve(&mut txn, ino, session)?;
            closed.push(ino);
        }
    }
    txn.commit_then((), |_| core.rights.close(session, &closed))
}

/// Drops the reservation of a session that closed an object: it has committed everything it wrote, so none of its
/// data is beyond the size. Usually the record is not written for that ([`crate::tilings::Closed`]).
fn drop_reserve(txn: &mut Txn<'_>, ino: Ino, session: SessionId) -> Result<(), MdError> {
    let Some(mut inode) = if_any(txn.inode(ino))? else {
        return Ok(());
    };
    if inode.attr.kind != Kind::Object
        || !inode
            .object()?
            .reserves
            .iter()
            .any(|(of, _)| *of == session)
    {
        return Ok(());
    }
    if txn.state.closed.note(ino, session) {
        return Ok(());
    }
    txn.own(&mut inode)
        .object_mut()?
        .reserves
        .retain(|(of, _)| *of != session);
    txn.put_quietly(inode);
    Ok(())
}

/// Drops `times` opens of an inode; the last one of an orphan removes it.
pub(crate) fn close(
    txn: &mut Txn<'_>,
    ino: Ino,
    session: SessionId,
    times: u32,
    remote: bool,
) -> Result<(), MdError> {
    let count = txn.opened(ino, session);
    if count == 0 {
        return Ok(());
    }
    txn.set_opened(ino, session, count.saturating_sub(times), remote)?;
    if txn.is_open(ino) {
        return Ok(());
    }
    match if_any(txn.inode(ino))? {
        Some(inode) if inode.attr.nlink == 0 => txn.destroy(&inode, true),
        _ => Ok(()),
    }
}

impl Txn<'_> {
    /// Counts one more open of `ino` by the caller.
    pub(crate) fn open_once(&mut self, ino: Ino) -> Result<(), MdError> {
        let session = session_of(&self.ctx)?;
        let count = self.opened(ino, session).saturating_add(1);
        let remote = self.ctx.remote;
        self.set_opened(ino, session, count, remote)
    }
}
