//! Setxattr. `user.slabfs.*` on an object declares it or changes its dims; the metadata service stores other
//! attributes.
//!
//! A declaration may change what every byte of the object means. So the kernel drops all it has cached of the object,
//! under the plain inode and under selections, before the request is answered.

use std::sync::Arc;

use fuser::{Errno, ReplyEmpty};
use slabfs_mdserver::api::{Ino, MdError, XattrFlags, op};

use crate::mount::errno::{Failure, Outcome, end_inode, refused};
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
        Ok(Some((ino, change))) => apply(shared, ino, change, reply),
        other => end_inode("setxattr", inode, other.map(drop), reply),
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
            // An attribute of slabfs's own counts as existing once the object is declared.
            if flags != XattrFlags::Either && attribute != Attribute::Resize {
                let info = shared.client.getattr(ino)?.info;
                check_flags(flags, info.is_some_and(|info| info.declared))?;
            }
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
            shared.client.md(ino).call(op::SetXattr {
                ino,
                name: name.to_vec(),
                value: value.to_vec(),
                flags,
            })?;
            Ok(None)
        }
        Owner::Security | Owner::Foreign => foreign(),
    }
}

/// Refuses attributes of other namespaces.
pub(super) fn foreign<T>() -> Outcome<T> {
    refused(
        Errno::EOPNOTSUPP,
        "attributes are user.* and trusted.* here",
    )
}

/// Sets a default of a container.
fn set_default(
    shared: &Shared,
    ino: Ino,
    attribute: &DefaultAttribute,
    value: &[u8],
    flags: XattrFlags,
) -> Outcome<()> {
    let change = attribute.set(value)?;
    match has_default(shared, ino, attribute)? {
        Some(there) => check_flags(flags, there)?,
        None => return refused(Errno::EINVAL, "defaults are those of directories"),
    }
    shared
        .client
        .names()
        .md()
        .call(op::SetDefaults { ino, change })?;
    Ok(())
}

/// Whether a container has a default; `None` for anything but a container.
pub(super) fn has_default(
    shared: &Shared,
    ino: Ino,
    attribute: &DefaultAttribute,
) -> Outcome<Option<bool>> {
    match shared.client.names().md().call(op::GetDefaults { ino }) {
        Ok(defaults) => Ok(Some(attribute.read(&defaults).is_some())),
        Err(MdError::NotDirectory) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn given(flags: i32) -> Outcome<XattrFlags> {
    match flags {
        0 => Ok(XattrFlags::Either),
        libc::XATTR_CREATE => Ok(XattrFlags::Create),
        libc::XATTR_REPLACE => Ok(XattrFlags::Replace),
        _ => refused(Errno::EINVAL, "these flags of setxattr do not exist"),
    }
}

fn check_flags(flags: XattrFlags, there: bool) -> Outcome<()> {
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
                Change::Declare(change) => shared.client.of(ino).declare(ino, change)?,
                Change::Resize(dims) => shared.client.of(ino).set_dims(ino, dims)?,
            };
            Ok(())
        },
        move |shared, changed| match changed {
            Ok(()) => shared.forget_attributes(ino.0, move || reply.ok()),
            Err(failure) => end_inode("setxattr", ino.0, Err(on_kind(failure)), reply),
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
