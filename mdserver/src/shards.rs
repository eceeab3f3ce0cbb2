//! Objects whose names are in another shard (docs/decisions/33-shards.md).
//!
//! In the shard of names an object is a [`Body::Remote`]: its names and their number, and nothing that its shard has. In the object's
//! shard it is an object without recorded names.
//!
//! Invariants: a name exists before its object, with all that is needed to create it; so a client that finds a name without an object
//! creates the object, and it does not matter which client does. The number of names is decided by the shard of names. Each change of
//! it is recorded as *unfinished* in the same transaction, with a number that grows; the object's shard takes changes in the order of
//! these numbers, from any client and however often. An object that was removed is not created again: if its creation was not
//! known to be complete, it is remembered for an hour.

use std::sync::Arc;
use std::time::Duration;

use slabfs_model::{Layout, ServerId, Tag, Version};
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;

use crate::api::{
    Birth, CREATOR_RESERVE, Entry, Ino, Kind, Links, MAX_CREATE, MAX_UNFINISHED, MdError,
    SharedInfo, Time, check_chunk, op,
};
use crate::core::{Core, Ctx, if_any};
use crate::keys;
use crate::kv::Batch;
use crate::records::{Body, Inode, Object, Unfinished, Xattrs, decode, encode};
use crate::txn::Txn;

/// How long a removed object is remembered whose creation may still be asked for: longer than any client tries.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// How often the list of these is looked through.
pub(crate) const FORGETS: Duration = Duration::from_secs(60);

impl Txn<'_> {
    /// The number of a new object, which says its shard.
    pub(crate) fn new_object(&mut self) -> Result<Ino, MdError> {
        let number = self.new_ino()?.0;
        let shard = self.core.options.shard.of_object(number);
        Ok(slabfs_model::ObjectId(shard.numbers() | number))
    }

    /// What is stored here of a new object that its shard has yet to create.
    pub(crate) fn remote(
        &mut self,
        inode: Inode,
        tags: BTreeMap<Vec<u8>, Tag>,
    ) -> Result<Inode, MdError> {
        let entry = inode.entry();
        let Body::Object(object) = inode.body else {
            return Err(MdError::Io("only objects are in other shards".to_owned()));
        };
        let birth = Birth {
            entry,
            inherited: object.inherited.map(|spec| *spec),
            tags: tags.into_iter().collect(),
        };
        let inode = Inode {
            body: Body::Remote(Some(Box::new(birth))),
            ..inode
        };
        self.linked(&inode)?;
        Ok(inode)
    }

    /// Records the number of names of an object in another shard as unfinished, and returns it; `None` for any other inode.
    pub(crate) fn linked(&mut self, inode: &Inode) -> Result<Option<Links>, MdError> {
        let Body::Remote(birth) = &inode.body else {
            return Ok(None);
        };
        let links = Links {
            ino: inode.attr.ino,
            count: inode.attr.nlink,
            change: inode.attr.change,
            unborn: birth.is_some(),
        };
        let since = self.now;
        let row = encode(&Unfinished { links, since })?;
        self.batch.put(keys::unfinished(links.ino), row);
        Ok(Some(links))
    }
}

/// [`op::Births`].
pub(crate) fn births(core: &Core, _: &Ctx, op: op::Births) -> Result<Vec<Birth>, MdError> {
    let mut births = Vec::with_capacity(op.inos.len());
    for ino in op.inos {
        let Some(inode) = if_any(core.inode(ino))? else {
            continue;
        };
        if let Body::Remote(Some(birth)) = &inode.body {
            births.push((**birth).clone());
        }
    }
    Ok(births)
}

/// [`op::GetAttrs`].
pub(crate) fn get_attrs(core: &Core, _: &Ctx, op: op::GetAttrs) -> Result<Vec<Entry>, MdError> {
    let found = op.inos.into_iter().map(|ino| if_any(core.inode(ino)));
    found
        .filter_map(Result::transpose)
        .map(|inode| Ok(inode?.entry()))
        .collect()
}

/// Refuses an object of another shard.
fn check_mine(core: &Core, ino: Ino) -> Result<(), MdError> {
    let shard = core.options.shard;
    match ino.shard() == shard.index && !shard.has_names() {
        true => Ok(()),
        false => Err(MdError::Invalid(format!(
            "inode {ino} is not an object of shard {}",
            shard.index
        ))),
    }
}

/// [`op::Adopt`].
pub(crate) fn adopt(core: &Core, ctx: &Ctx, op: op::Adopt) -> Result<Vec<Entry>, MdError> {
    let op::Adopt { births, open } = op;
    if births.len() > MAX_CREATE {
        return Err(MdError::Invalid(format!(
            "at most {MAX_CREATE} objects in one request"
        )));
    }
    let mut txn = core.begin(ctx)?;
    let mut entries = Vec::with_capacity(births.len());
    for birth in births {
        let ino = birth.entry.attr.ino;
        check_mine(core, ino)?;
        let inode = match if_any(txn.inode(ino))? {
            Some(inode) => inode,
            None => {
                if core.kv.get(&keys::never(ino))?.is_some() {
                    // It was removed before this request arrived.
                    continue;
                }
                let inode = born(&mut txn, birth, open)?;
                txn.put_new(inode);
                txn.inode(ino)?
            }
        };
        if open {
            txn.open_once(ino)?;
        }
        entries.push(inode.entry());
    }
    txn.commit(entries)
}

/// The array info of a birth, which came from a client: it must fit together, and is that of an object without data.
fn empty(txn: &Txn<'_>, mut info: SharedInfo) -> Result<SharedInfo, MdError> {
    let wrong = |what: &str| Err(MdError::Invalid(format!("the birth of an object: {what}")));
    if info.max_dims.len() != info.dims.len() || info.dims.len() > slabfs_model::MAX_RANK {
        return wrong("its dims and greatest dims have different ranks");
    }
    info.check_dims(&info.dims)?;
    let element = info.dtype.size();
    if !info.fill.is_zero() && info.fill.bytes().len() as u64 != element {
        return wrong("its fill value has another size than its elements");
    }
    if let Layout::Grid(shape) = &info.layout {
        let fits = shape.len() == info.dims.len().max(1) && !shape.contains(&0);
        if !fits || check_chunk(&info.layout, element).is_err() {
            return wrong("the shape of its chunks does not fit");
        }
    }
    let known = |server: &ServerId| txn.state.servers.by_id.contains_key(server);
    let stripe_known = info.stripe.iter().all(known);
    let limit = txn.core.options.chunk_limit;
    let new = &mut *info;
    if !stripe_known {
        new.stripe.clear();
    }
    (new.holds, new.generation, new.tiling) = (false, 1, Version(1));
    new.chunk_limit = limit;
    Ok(info)
}

fn born(txn: &mut Txn<'_>, birth: Birth, open: bool) -> Result<Inode, MdError> {
    let Birth {
        entry,
        inherited,
        tags,
    } = birth;
    let Entry { attr, info } = entry;
    let (Kind::Object, Some(info)) = (attr.kind, info) else {
        return Err(MdError::Invalid(format!("inode {} is no object", attr.ino)));
    };
    let info = empty(txn, info)?;
    let reserves: SmallVec<[_; 1]> = match txn.ctx.session {
        Some(session) if open => smallvec![(session, CREATOR_RESERVE)],
        _ => smallvec![],
    };
    let mut object = Object {
        info,
        inherited: inherited.map(Box::new),
        next_order: 0,
        spare: 1,
        stored: 0,
        reserves,
        clearing: None,
        strays: smallvec![],
    };
    if object.info.stripe.is_empty() {
        txn.choose_stripe(attr.ino, &mut object)?;
    }
    let mut inode = Arc::new(Inode {
        attr,
        xattrs: Xattrs::default(),
        names: smallvec![],
        body: Body::Object(Box::new(object)),
    });
    Arc::make_mut(&mut inode).attr.stored = 0;
    Arc::make_mut(&mut inode).refresh()?;
    if !tags.is_empty() {
        let changes = tags.into_iter().map(|(name, tag)| (name, Some(tag)));
        txn.change_xattrs(&mut inode, changes.collect())?;
    }
    Ok(Arc::unwrap_or_clone(inode))
}

/// [`op::SetLinks`].
pub(crate) fn set_links(core: &Core, ctx: &Ctx, op: op::SetLinks) -> Result<(), MdError> {
    let mut txn = core.begin(ctx)?;
    for links in op.links {
        let Links {
            ino,
            count,
            change,
            unborn,
        } = links;
        check_mine(core, ino)?;
        let key = keys::linked(ino);
        let known: Option<u64> = match core.kv.get(&key)? {
            Some(bytes) => Some(decode(&key, &bytes)?),
            None => None,
        };
        if known.is_some_and(|known| known >= change) {
            continue;
        }
        if count == 0 && unborn {
            let now = txn.now;
            txn.batch.put(keys::never(ino), encode(&now)?);
        }
        let Some(mut inode) = if_any(txn.inode(ino))? else {
            continue;
        };
        txn.batch.put(key, encode(&change)?);
        if inode.attr.nlink == count {
            continue;
        }
        txn.own(&mut inode).attr.nlink = count;
        match (count, txn.is_open(ino)) {
            (0, false) => txn.destroy(&inode, false)?,
            (0, true) => txn.become_orphan(inode)?,
            _ => txn.put(inode),
        }
    }
    txn.commit(())
}

/// [`op::Unfinished`].
pub(crate) fn unfinished(core: &Core, _: &Ctx, op: op::Unfinished) -> Result<Vec<Links>, MdError> {
    let (from, to) = keys::all_unfinished();
    let now = Time::now();
    let mut all = Vec::new();
    for (key, bytes) in core.kv.scan(&from, &to, MAX_UNFINISHED)? {
        let Unfinished { links, since } = decode(&key, &bytes)?;
        // A clock that was set back makes it old, too.
        let age = now.sec.abs_diff(since.sec);
        if age >= op.older_ms / 1000 {
            all.push(links);
        }
    }
    Ok(all)
}

/// [`op::Finish`].
pub(crate) fn finish(core: &Core, ctx: &Ctx, op: op::Finish) -> Result<(), MdError> {
    let mut txn = core.begin(ctx)?;
    for links in op.links {
        let key = keys::unfinished(links.ino);
        let Some(bytes) = core.kv.get(&key)? else {
            continue;
        };
        let row: Unfinished = decode(&key, &bytes)?;
        if row.links.change == links.change {
            txn.batch.delete(key);
        }
        if !links.unborn
            && let Some(mut inode) = if_any(txn.inode(links.ino))?
            && let Body::Remote(Some(_)) = inode.body
        {
            txn.own(&mut inode).body = Body::Remote(None);
            txn.put_quietly(inode);
        }
    }
    txn.commit(())
}

/// Forgets objects that were removed long ago: no request to create them is under way any more.
pub(crate) fn forget_removed(core: &Core) -> Result<(), MdError> {
    let now = Time::now();
    let (from, to) = keys::all_never();
    for some in core.kv.scan(&from, &to, usize::MAX)?.chunks(MAX_CREATE) {
        let mut batch = Batch::new();
        for (key, bytes) in some {
            let removed: Time = decode(key, bytes)?;
            if now.sec.abs_diff(removed.sec) > REMEMBERED.as_secs() {
                batch.delete(key.clone());
            }
        }
        if !batch.is_empty() {
            core.kv.commit(batch)?;
        }
    }
    Ok(())
}
