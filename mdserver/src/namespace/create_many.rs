//! Many new objects in one step: one transaction, one record of the journal, one small reply.

use smallvec::SmallVec;
use std::sync::Arc;

use super::check_name;
use super::create::make;
use crate::api::{Create, Ino, Kind, MAX_CREATE, MdError, NewObject, op};
use crate::core::{Core, Ctx};
use crate::records::{Body, Inode};
use crate::tags::rows;
use crate::txn::Txn;

/// Creates all the objects, or none.
pub(crate) fn create_many(core: &Core, ctx: &Ctx, op: op::CreateMany) -> Result<Vec<Ino>, MdError> {
    let op::CreateMany { objects } = op;
    if objects.len() > MAX_CREATE {
        return Err(MdError::Invalid(format!(
            "at most {MAX_CREATE} objects in one request; this one has {}: send several",
            objects.len()
        )));
    }
    check_tags(&objects)?;
    let mut txn = core.begin_making(ctx, objects.len() as u64)?;
    // A container is copied, updated and stored once, however many objects are created in it.
    let mut parents: SmallVec<[Arc<Inode>; 2]> = SmallVec::new();
    let mut made = Vec::with_capacity(objects.len());
    for (index, object) in objects.into_iter().enumerate() {
        let ino = enter(&mut txn, &mut parents, object).map_err(|error| at(index, error))?;
        made.push(ino);
    }
    for parent in parents {
        txn.put(parent);
    }
    txn.commit(made)
}

fn at(index: usize, error: MdError) -> MdError {
    MdError::At {
        index: index as u32,
        error: Box::new(error),
    }
}

fn check_tags(objects: &[NewObject]) -> Result<(), MdError> {
    let mut bytes = 0;
    for (index, object) in objects.iter().enumerate() {
        for (key, tag) in &object.tags {
            rows::count_tag(key, tag, &mut bytes).map_err(|error| at(index, error))?;
        }
    }
    rows::check_bytes(bytes)
}

fn enter(
    txn: &mut Txn<'_>,
    parents: &mut SmallVec<[Arc<Inode>; 2]>,
    object: NewObject,
) -> Result<Ino, MdError> {
    let NewObject {
        parent,
        name,
        mode,
        uid,
        gid,
        spec,
        tags,
    } = object;
    check_name(&name)?;
    let place = match parents.iter().position(|known| known.attr.ino == parent) {
        Some(place) => place,
        None => {
            parents.push(txn.directory(parent)?);
            parents.len() - 1
        }
    };
    if txn.find(&parents[place], &name)?.is_some() {
        return Err(MdError::Exists);
    }
    let create = Create {
        parent,
        name,
        kind: Kind::Object,
        mode,
        uid,
        gid,
        rdev: 0,
        target: None,
        exclusive: true,
        open: false,
    };
    let directory = Arc::make_mut(&mut parents[place]);
    let mut inode = make(txn, directory, &create, &spec, &tags)?;
    // No session has it open; a session that opens it to write makes a reservation.
    if let Body::Object(object) = &mut inode.body {
        object.reserves.clear();
    }
    let ino = inode.attr.ino;
    txn.put_new(inode);
    Ok(ino)
}
