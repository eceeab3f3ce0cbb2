//! New inodes, and new names for inodes.

use std::borrow::Cow;

use slabfs_model::{Codec, Coords, Coupling, DType, Fill, Layout, MaxDim, Placement, Tag, Version};
use smallvec::smallvec;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::check_name;
use super::directory::add_subdirectory;
use crate::api::{
    ArrayInfo, Attr, CREATOR_RESERVE, Create, Created, Defaults, Entry, Given, Ino, Kind,
    MAX_LINKS, MAX_SYMLINK, MdError, SharedInfo, SpecChange, inherit, op,
};
use crate::core::{Core, Ctx};
use crate::records::{Body, Inode, Named, Object, Xattrs};
use crate::service::ServiceOptions;
use crate::tags::rows::xattr_name;
use crate::txn::Txn;

/// Size that a directory reports.
pub(crate) const DIRECTORY_SIZE: u64 = 4096;
const SETGID: u32 = 0o2000;

/// Creates an inode with a name.
pub(crate) fn create(core: &Core, ctx: &Ctx, create: op::Create) -> Result<Created, MdError> {
    check_name(&create.name)?;
    let mut txn = core.begin_making(ctx, 1)?;
    let mut parent = txn.directory(create.parent)?;
    if let Some(found) = txn.find(&parent, &create.name)? {
        return existing(txn, &create, found.ino);
    }
    let dir = txn.own(&mut parent);
    let inode = make(&mut txn, dir, &create, &SpecChange::default(), &[])?;
    let (ino, entry) = (inode.attr.ino, inode.entry());
    let birth = match &inode.body {
        Body::Remote(birth) => birth.clone(),
        _ => None,
    };
    txn.put(parent);
    txn.put_new(inode);
    // One in another shard is opened there.
    if create.open && birth.is_none() {
        txn.open_once(ino)?;
    }
    txn.commit(Created {
        entry,
        created: true,
        birth,
    })
}

/// Creates an inode under a free name, with its container's defaults; the caller stores both. For an object, `spec`
/// is its declaration and `tags` its tags.
pub(super) fn make(
    txn: &mut Txn<'_>,
    dir: &mut Inode,
    create: &Create,
    spec: &SpecChange,
    tags: &[(String, Tag)],
) -> Result<Inode, MdError> {
    let ino = match create.kind {
        Kind::Object => txn.new_object()?,
        _ => txn.new_ino()?,
    };
    let (mode, gid) = inherited(create, &dir.attr);
    let defaults = match &dir.body {
        Body::Directory { defaults, .. } => defaults.clone(),
        _ => None,
    };
    let body = body(txn, create, spec, ino, defaults.as_ref())?;
    let size = match &body {
        Body::Symlink(target) => target.len() as u64,
        Body::Directory { .. } => DIRECTORY_SIZE,
        Body::Object(object) => object.info.size()?,
        Body::Node | Body::Remote(_) => 0,
    };
    let now = txn.now;
    let attr = Attr {
        ino,
        kind: create.kind,
        mode,
        nlink: if create.kind == Kind::Directory { 2 } else { 1 },
        uid: create.uid,
        gid,
        rdev: if is_device(create.kind) {
            create.rdev
        } else {
            0
        },
        size,
        stored: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        change: 1,
    };
    let slot = txn.enter(dir, &create.name, ino)?;
    let mut inode = Inode {
        attr,
        xattrs: Xattrs::default(),
        names: smallvec![Named {
            parent: create.parent,
            slot,
            name: create.name.clone(),
        }],
        body,
    };
    if create.kind == Kind::Directory {
        add_subdirectory(dir);
    }
    if create.kind == Kind::Object {
        let given = defaults.as_ref().map_or(&[][..], |all| &all.tags);
        let tags = merged(given, tags)?;
        if txn.core.options.shard.divided() {
            return txn.remote(inode, tags);
        }
        if !tags.is_empty() {
            let mut tagged = Arc::new(inode);
            let changes = tags.into_iter().map(|(name, tag)| (name, Some(tag)));
            txn.change_xattrs(&mut tagged, changes.collect())?;
            inode = Arc::unwrap_or_clone(tagged);
        }
    }
    Ok(inode)
}

/// A container's tags and an object's own, which take precedence, by the names of their attributes.
fn merged(
    given: &[(String, Tag)],
    own: &[(String, Tag)],
) -> Result<BTreeMap<Vec<u8>, Tag>, MdError> {
    let all = given.iter().chain(own);
    all.map(|(key, tag)| Ok((xattr_name(key)?, tag.clone())))
        .collect()
}

/// The result of creating a name that exists.
fn existing(mut txn: Txn<'_>, create: &Create, ino: Ino) -> Result<Created, MdError> {
    if create.exclusive || create.kind != Kind::Object {
        return Err(MdError::Exists);
    }
    let inode = txn.inode(ino)?;
    match inode.attr.kind {
        Kind::Object => {}
        Kind::Directory => return Err(MdError::IsDirectory),
        _ => return Err(MdError::Exists),
    }
    let birth = match &inode.body {
        Body::Remote(birth) => birth.clone(),
        _ => {
            if create.open {
                txn.open_once(ino)?;
            }
            None
        }
    };
    txn.commit(Created {
        entry: inode.entry(),
        created: false,
        birth,
    })
}

/// Mode and group: inherited from a setgid directory; directories inherit the bit, too.
fn inherited(create: &Create, parent: &Attr) -> (u32, u32) {
    let mode = create.mode & 0o7777;
    let mode = if create.kind == Kind::Symlink {
        0o777
    } else {
        mode
    };
    if parent.mode & SETGID == 0 {
        return (mode, create.gid);
    }
    let inherits = create.kind == Kind::Directory;
    (if inherits { mode | SETGID } else { mode }, parent.gid)
}

fn is_device(kind: Kind) -> bool {
    matches!(kind, Kind::CharDevice | Kind::BlockDevice)
}

fn body(
    txn: &mut Txn<'_>,
    create: &Create,
    spec: &SpecChange,
    ino: Ino,
    defaults: Option<&Arc<Defaults>>,
) -> Result<Body, MdError> {
    Ok(match create.kind {
        Kind::Directory => Body::Directory {
            parent: create.parent,
            entries: 0,
            collided: false,
            defaults: defaults.cloned(),
        },
        Kind::Symlink => {
            let target = create.target.clone().unwrap_or_default();
            if target.len() > MAX_SYMLINK {
                return Err(MdError::NameTooLong);
            }
            if target.is_empty() || target.contains(&0) {
                return Err(MdError::Invalid(
                    "not a target for a symbolic link".to_owned(),
                ));
            }
            Body::Symlink(target)
        }
        Kind::Object => {
            let reserves = match txn.ctx.session {
                Some(session) => smallvec![(session, CREATOR_RESERVE)],
                None => smallvec![],
            };
            let given = defaults.map(|all| for_name(&all.spec, &create.name));
            let given = given.as_deref().filter(|given| !given.is_empty());
            let mut object = if given.is_none() && spec.is_empty() {
                new_file(txn, ino)?
            } else {
                let mut object = empty_object(byte_info(&txn.core.options).into());
                object.take(given.unwrap_or(&SpecChange::default()), spec, txn)?;
                txn.choose_stripe(ino, &mut object)?;
                object
            };
            object.reserves = reserves;
            Body::Object(Box::new(object))
        }
        Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => Body::Node,
    })
}

/// The defaults of a container for an object of this name.
fn for_name<'a>(spec: &'a SpecChange, name: &[u8]) -> Cow<'a, SpecChange> {
    let Some(couple) = spec.couple.as_ref().and_then(Coupling::on) else {
        return Cow::Borrowed(spec);
    };
    let of_object = Coupling::On(couple.of_object());
    Cow::Owned(SpecChange {
        couple: couple.takes(name).then_some(of_object),
        ..spec.clone()
    })
}

/// An empty byte object with its servers. All that are alike share one array info.
fn new_file(txn: &mut Txn<'_>, ino: Ino) -> Result<Object, MdError> {
    let stripe = txn.stripe_for(ino, Placement::default())?;
    if let Some(info) = &txn.state.new_file
        && info.stripe == stripe
    {
        return Ok(empty_object(info.clone()));
    }
    let mut object = empty_object(byte_info(&txn.core.options).into());
    object.take_stripe(stripe);
    txn.state.new_file = Some(object.info.clone());
    Ok(object)
}

/// The array info of an empty byte object that has no servers yet.
fn byte_info(options: &ServiceOptions) -> ArrayInfo {
    ArrayInfo {
        dtype: DType::BYTE,
        dims: Coords::from_slice(&[0]),
        max_dims: vec![MaxDim::Unlimited],
        fill: Fill::zero(),
        layout: byte_layout(options),
        codec: Codec::None,
        declared: false,
        given: Given::default(),
        holds: false,
        generation: 1,
        placement: Placement::default(),
        stripe: Vec::new(),
        blocks: None,
        tiling: Version(1),
        chunk_limit: options.chunk_limit,
        couple: Coupling::Off,
    }
}

fn empty_object(info: SharedInfo) -> Object {
    Object {
        info,
        inherited: None,
        next_order: 0,
        spare: 1,
        stored: 0,
        reserves: smallvec![],
        clearing: None,
        strays: smallvec![],
    }
}

/// The layout of an object for which no other is given.
pub(crate) fn byte_layout(options: &ServiceOptions) -> Layout {
    Layout::Grid(Coords::from_slice(&[options.byte_chunk]))
}

impl Object {
    /// Applies its container's defaults and its own declaration to a new object.
    fn take(
        &mut self,
        defaults: &SpecChange,
        change: &SpecChange,
        txn: &Txn<'_>,
    ) -> Result<(), MdError> {
        let layout = byte_layout(&txn.core.options);
        let (resolved, waits) = inherit(defaults, change, &self.info, &layout)?;
        self.info = resolved.info.into();
        self.inherited = waits.map(Box::new);
        Ok(())
    }
}

/// Gives an inode one more name.
pub(crate) fn link(core: &Core, ctx: &Ctx, op: op::Link) -> Result<Entry, MdError> {
    let op::Link {
        ino,
        parent,
        ref name,
    } = op;
    check_name(name)?;
    let mut txn = core.begin(ctx)?;
    let mut inode = txn.inode(ino)?;
    if inode.attr.kind == Kind::Directory {
        return Err(MdError::NotPermitted("a directory has one name".to_owned()));
    }
    if inode.attr.nlink == 0 {
        return Err(MdError::NotFound);
    }
    if inode.attr.nlink >= MAX_LINKS {
        return Err(MdError::TooManyLinks);
    }
    let mut dir = txn.directory(parent)?;
    if txn.find(&dir, name)?.is_some() {
        return Err(MdError::Exists);
    }
    let slot = txn.enter(Arc::make_mut(&mut dir), name, ino)?;
    txn.put(dir);
    let linked = Arc::make_mut(&mut inode);
    linked.attr.nlink += 1;
    txn.add_name(linked, (parent, slot), name)?;
    txn.put(inode);
    let inode = txn.inode(ino)?;
    txn.linked(&inode)?;
    txn.commit(inode.entry())
}
