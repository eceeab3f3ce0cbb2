//! Setxattr. `user.slabfs.*` on an object declares it or changes its dims; the metadata service stores other
//! attributes.
//!
//! A declaration may change what every byte of the object means. So the kernel drops all it has cached of the object,
//! under the plain inode and under selections, before the request is answered.

use std::sync::Arc;

use fuser::{Errno, ReplyEmpty};
use slabfs_mdserver::api::{Ino, MdError, XattrFlags, op};

use crate::mount::errno::{Failure, Outcome, refused, report_inode};
use crate::mount::shared::Shared;
use crate::view::attributes::{Attribute, AttributeError, Change, Owner, owner};
use crate::view::defaults::DefaultAttribute;

/// Sets `name` to `value` and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    inode: u64,
    name: &[u8],
    value: &[u8],
    flags: i32,
    reply: ReplyEmpty,
) {
    match set(shared, inode, name, value, flags) {
        Ok(None) => reply.ok(),
        Ok(Some((ino, change))) => apply(shared, ino, change, reply),
        Err(failure) => reply.error(report_inode("setxattr", inode, &failure)),
    }
}

/// Stores an attribute; for one of slabfs's own, returns the change to apply instead.
fn set(
    shared: &Shared,
    inode: u64,
    name: &[u8],
    value: &[u8],
    flags: i32,
) -> Outcome<Option<(Ino, Change)>> {
    let flags = given(flags)?;
    let ino = shared.plain(inode)?;
    match owner(name) {
        Owner::Slabfs(attribute) => {
            let change = attribute.set(value)?;
            check_flags(shared, ino, attribute, flags)?;
            Ok(Some((ino, change)))
        }
        Owner::Default(attribute) => {
            set_default(shared, ino, &attribute, value, flags)?;
            Ok(None)
        }
        Owner::Unknown => Err(AttributeError::Unknown {
            name: String::from_utf8_lossy(name).into_owned(),
        }
        .into()),
        Owner::Stored => {
            shared.client.md().call(op::SetXattr {
                ino,
                name: name.to_vec(),
                value: value.to_vec(),
                flags,
            })?;
            Ok(None)
        }
        Owner::Security | Owner::Foreign => refused(
            Errno::EOPNOTSUPP,
            "attributes are user.* and trusted.* here",
        ),
    }
}

/// Sets a default of a container.
fn set_default(
    shared: &Shared,
    ino: Ino,
    attribute: &DefaultAttribute,
    value: &[u8],
    flags: XattrFlags,
) -> Outcome<()> {
    let md = shared.client.md();
    let change = attribute.set(value)?;
    let there = match md.call(op::GetDefaults { ino }) {
        Ok(defaults) => attribute.read(&defaults).is_some(),
        Err(MdError::NotDirectory) => {
            return refused(Errno::EINVAL, "defaults are those of directories");
        }
        Err(error) => return Err(error.into()),
    };
    match flags {
        XattrFlags::Create if there => return Err(MdError::Exists.into()),
        XattrFlags::Replace if !there => return Err(MdError::NoData.into()),
        _ => {}
    }
    md.call(op::SetDefaults { ino, change })?;
    Ok(())
}

fn given(flags: i32) -> Outcome<XattrFlags> {
    match flags {
        0 => Ok(XattrFlags::Either),
        libc::XATTR_CREATE => Ok(XattrFlags::Create),
        libc::XATTR_REPLACE => Ok(XattrFlags::Replace),
        _ => refused(Errno::EINVAL, "these flags of setxattr do not exist"),
    }
}

/// An attribute of slabfs's own counts as existing once the object is declared.
fn check_flags(shared: &Shared, ino: Ino, attribute: Attribute, flags: XattrFlags) -> Outcome<()> {
    if flags == XattrFlags::Either || attribute == Attribute::Resize {
        return Ok(());
    }
    let info = shared.client.getattr(ino)?.info;
    let there = info.is_some_and(|info| info.declared);
    match flags {
        XattrFlags::Create if there => Err(MdError::Exists.into()),
        XattrFlags::Replace if !there => Err(MdError::NoData.into()),
        _ => Ok(()),
    }
}

fn apply(shared: &Arc<Shared>, ino: Ino, change: Change, reply: ReplyEmpty) {
    shared.change_bytes(
        ino,
        None,
        move |shared| -> Outcome<()> {
            match change {
                Change::Declare(change) => shared.client.declare(ino, change)?,
                Change::Resize(dims) => shared.client.set_dims(ino, dims)?,
            };
            Ok(())
        },
        move |shared, changed| match changed {
            Ok(()) => shared.forget_attributes(ino.0, move || reply.ok()),
            Err(failure) => reply.error(report_inode("setxattr", ino.0, &on_kind(failure))),
        },
    );
}

/// Declaring a directory is an invalid request (`EINVAL`), not `EISDIR`.
fn on_kind(failure: Failure) -> Failure {
    match failure {
        Failure::Client(crate::client::FsError::Md(MdError::IsDirectory)) => Failure::Refused {
            errno: Errno::EINVAL,
            why: "only objects can be arrays, not directories",
        },
        other => other,
    }
}
