//! Defaults of containers for what is created in them: read and changed here, applied in `create`.

use slabfs_model::Placement;
use std::sync::Arc;

use crate::api::{Defaults, MdError, op};
use crate::core::{Core, Ctx};
use crate::records::{Body, Inode};

/// The defaults of a container.
pub(crate) fn get_defaults(core: &Core, _: &Ctx, op: op::GetDefaults) -> Result<Defaults, MdError> {
    let inode = core.inode(op.ino)?;
    Ok(of(&inode)?.as_deref().cloned().unwrap_or_default())
}

/// Changes the defaults of a container.
pub(crate) fn set_defaults(
    core: &Core,
    ctx: &Ctx,
    op: op::SetDefaults,
) -> Result<Defaults, MdError> {
    let op::SetDefaults { ino, ref change } = op;
    let mut txn = core.begin(ctx)?;
    let mut inode = txn.inode(ino)?;
    let now = of(&inode)?.as_deref().cloned().unwrap_or_default();
    let new = now.changed(change)?;
    if let Some(Placement::Server(id)) = new.spec.placement {
        txn.state.servers.named(id)?;
    }
    if new != now {
        if let Body::Directory { defaults, .. } = &mut Arc::make_mut(&mut inode).body {
            *defaults = (!new.is_empty()).then(|| Arc::new(new.clone()));
        }
        txn.put(inode);
    }
    txn.commit(new)
}

fn of(inode: &Inode) -> Result<&Option<Arc<Defaults>>, MdError> {
    match &inode.body {
        Body::Directory { defaults, .. } => Ok(defaults),
        _ => Err(MdError::NotDirectory),
    }
}
