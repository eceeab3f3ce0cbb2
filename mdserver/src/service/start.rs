//! Builds the in-memory state from the store.

use slabfs_model::{ObjectId, ServerId, SessionId, ShardId};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;

use super::{Recovery, ServiceOptions};
use crate::api::{Attr, Ino, Kind, MdError, ROOT, Shard, Time};
use crate::core::{Core, Ctx, State};
use crate::keys;
use crate::kv::{Batch, Lsn, MetaKv, pairs};
use crate::namespace::DIRECTORY_SIZE;
use crate::placement::{RetireKey, Server};
use crate::records::{
    Body, Inode, LeaseRecord, ServerRecord, SessionRecord, Xattrs, decode, encode,
};
use crate::sessions::{Session, finish_ended};
use crate::tags::Live;

/// The format of the entire store.
pub(crate) const FORMAT: u32 = 4;
/// The first session number is at least this and less than twice this, so that session numbers stay far below 2^53,
/// up to which JSON represents numbers exactly.
const SESSIONS_FROM: u64 = 1 << 46;
/// Pairs read from the store at a time.
const PAGE: usize = 4096;

/// Reads the store, ends what died with the last process, and creates the core. `lossy`: acknowledged commits are
/// lost, so no session continues. `index`: the directory of the index of tags, and the last commit of the store;
/// without it the index is not stored.
pub(super) fn start(
    kv: Box<dyn MetaKv>,
    options: ServiceOptions,
    lossy: bool,
    index: Option<(&Path, Lsn)>,
) -> Result<(Core, Recovery), MdError> {
    check_format(&*kv)?;
    check_shard(&*kv, options.shard)?;
    let loaded = number::<bool>(&*kv, keys::LOADED)?.unwrap_or(false);
    // Changes between the dump and its loading are lost, like those lost by damage.
    let lossy = lossy || loaded;
    let tags = match index {
        Some((dir, last)) => Live::open(dir, &*kv, (last, lossy), options.kv.cache_bytes / 4)?,
        None => Live::in_memory(&*kv)?,
    };
    let mut recovery = Recovery::default();
    let mut state = State::new(&options);
    numbers(&*kv, &mut state, lossy, options.shard.index)?;
    state.fences.begin(SessionId(state.ids.session));
    servers(&*kv, &mut state)?;
    if state.servers.by_id.is_empty() {
        // No data server has to enforce anything.
        state
            .fences
            .close(&state.servers, options.lease, Instant::now());
    }
    retired(&*kv, &mut state)?;
    sessions(&*kv, &mut state, &mut recovery, lossy)?;
    if loaded {
        let mut batch = Batch::new();
        batch.delete(keys::LOADED);
        kv.commit(batch)?;
    }
    let orphans = orphans(&*kv, &state)?;
    recovery.inodes = state.ids.inodes;
    recovery.sessions = state.sessions.live.len();
    recovery.servers = state.servers.by_id.len();
    recovery.orphans = orphans.len();

    let core = Core::new(kv, options, state, tags);
    // From here on the content of the store is on disk: retired data may be deleted.
    core.extend_ids()?;
    make_root(&core)?;
    finish_ended(&core)?;
    for ino in orphans {
        let mut txn = core.begin(&Ctx::SERVICE)?;
        match txn.inode(ino) {
            Ok(inode) => txn.destroy(&inode, true)?,
            Err(MdError::NotFound) => {
                txn.batch.delete(keys::orphan(ino));
            }
            Err(error) => return Err(error),
        }
        txn.commit(())?;
    }
    core.kv.sync()?;
    // All data derived from the store is up to date.
    core.kv.forget_changes();
    Ok((core, recovery))
}

/// Whether the store has a format record; an error if its format is another one.
pub(crate) fn known_format(kv: &dyn MetaKv) -> Result<bool, MdError> {
    let Some(bytes) = kv.get(keys::FORMAT)? else {
        return Ok(false);
    };
    let format: u32 = decode(keys::FORMAT, &bytes)?;
    if format != FORMAT {
        return Err(MdError::Io(format!(
            "it has format {format} and this program knows format {FORMAT} only: start the slabfs \
             that wrote it, copy the data out and into a new data directory (nothing was changed)"
        )));
    }
    Ok(true)
}

fn check_format(kv: &dyn MetaKv) -> Result<(), MdError> {
    if known_format(kv)? {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.put(keys::FORMAT, encode(&FORMAT)?);
    kv.commit(batch)?;
    Ok(())
}

/// Refuses a store of another shard; a new store becomes one of `shard`.
fn check_shard(kv: &dyn MetaKv, shard: Shard) -> Result<(), MdError> {
    let known = match number::<Shard>(kv, keys::SHARD)? {
        Some(known) => known,
        None if kv.get(keys::NEXT_SESSION)?.is_some() || !shard.divided() => Shard::default(),
        None => {
            let mut batch = Batch::new();
            batch.put(keys::SHARD, encode(&shard)?);
            kv.commit(batch)?;
            shard
        }
    };
    if known == shard {
        return Ok(());
    }
    let named = |shard: Shard| match shard.divided() {
        true => format!("shard {} of {}", shard.index, shard.of),
        false => "of a filesystem with one metadata service".to_owned(),
    };
    Err(MdError::Io(format!(
        "the store is {}, and this service was started to be {}: the number of shards is fixed when a filesystem is made",
        named(known),
        named(shard)
    )))
}

fn numbers(kv: &dyn MetaKv, state: &mut State, lossy: bool, shard: ShardId) -> Result<(), MdError> {
    let ids = &mut state.ids;
    // Every number below the limits may have been assigned.
    ids.ino = number::<u64>(kv, keys::NEXT_INO)?.unwrap_or(ROOT.0 + 1);
    ids.ino_limit = ids.ino;
    ids.chunk = number::<u64>(kv, keys::NEXT_CHUNK)?.unwrap_or(shard.numbers() + 1);
    ids.chunk_limit = ids.chunk;
    ids.session = match number::<u64>(kv, keys::NEXT_SESSION)? {
        Some(next) => next,
        None => first_session(kv, shard)?,
    };
    ids.server = number::<u32>(kv, keys::NEXT_SERVER)?.unwrap_or(shard.servers() + 1);
    if let Some(inodes) = number::<u64>(kv, keys::INODES)?.filter(|_| !lossy) {
        ids.inodes = inodes;
        return Ok(());
    }
    for pair in pairs(kv, keys::inodes(), PAGE) {
        pair?;
        ids.inodes += 1;
    }
    let mut batch = Batch::new();
    batch.put(keys::INODES, encode(&ids.inodes)?);
    kv.commit(batch)?;
    Ok(())
}

/// Chooses the number of a store's first session, and stores it.
///
/// At random: if the filesystem at a mount's address is replaced by another one, the mount must not find its
/// session's number there. It would continue as another client's session and write into unrelated objects with the
/// same numbers; instead it is notified that its session is lost.
fn first_session(kv: &dyn MetaKv, shard: ShardId) -> Result<u64, MdError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| MdError::Io(format!("no random numbers from the system: {error}")))?;
    // The highest bit is always set, so that all numbers have the same length on the wire and in the store.
    let first = shard.session(u64::from_le_bytes(bytes) & (SESSIONS_FROM - 1) | SESSIONS_FROM);
    let mut batch = Batch::new();
    batch.put(keys::NEXT_SESSION, encode(&first)?);
    kv.commit(batch)?;
    Ok(first)
}

fn number<T: serde::de::DeserializeOwned>(
    kv: &dyn MetaKv,
    key: &[u8],
) -> Result<Option<T>, MdError> {
    kv.get(key)?.map(|bytes| decode(key, &bytes)).transpose()
}

fn servers(kv: &dyn MetaKv, state: &mut State) -> Result<(), MdError> {
    for pair in pairs(kv, keys::servers(), PAGE) {
        let (key, value) = pair?;
        let [id] = parse(&key, [4])?;
        let record: ServerRecord = decode(&key, &value)?;
        let id = ServerId(id as u32);
        state.servers.by_uuid.insert(record.uuid, id);
        let mut server = Server::silent(record);
        // It is not known which sessions know the list: they report again.
        server.marked = state.servers.version;
        state.servers.by_id.insert(id, server);
    }
    Ok(())
}

fn retired(kv: &dyn MetaKv, state: &mut State) -> Result<(), MdError> {
    for pair in pairs(kv, keys::all_retired(), PAGE) {
        let (key, _) = pair?;
        let (server, what) = RetireKey::parse(&key)?;
        state.retired.add(server, what, Lsn(0));
    }
    for pair in pairs(kv, keys::all_waiting(), PAGE) {
        let (key, _) = pair?;
        let [ino, ..] = parse(&key, [8, 4, 8, 8])?;
        state.waiting.insert(ObjectId(ino));
    }
    for pair in pairs(kv, keys::purges(), PAGE) {
        let (key, value) = pair?;
        let [ino] = parse(&key, [8])?;
        state.purges.insert(ObjectId(ino), decode(&key, &value)?);
    }
    Ok(())
}

fn sessions(
    kv: &dyn MetaKv,
    state: &mut State,
    recovery: &mut Recovery,
    lossy: bool,
) -> Result<(), MdError> {
    let mut ended = Batch::new();
    for pair in pairs(kv, keys::sessions(), PAGE) {
        let (key, value) = pair?;
        let [id] = parse(&key, [8])?;
        let mut record: SessionRecord = decode(&key, &value)?;
        if (record.local || lossy) && record.ended.is_none() {
            record.ended = Some(false);
            ended.put(key, encode(&record)?);
        }
        if let Some(clean) = record.ended {
            recovery.ended += 1;
            state.unclean |= !clean && !record.read_only;
            continue;
        }
        let id = SessionId(id);
        let mut session = Session::new(record);
        for pair in pairs(kv, keys::replies(id), PAGE) {
            let (key, _) = pair?;
            let [_, seq] = parse(&key, [8, 8])?;
            session.found(seq);
        }
        for pair in pairs(kv, keys::leases(id), PAGE) {
            let (key, value) = pair?;
            let [_, first] = parse(&key, [8, 8])?;
            session
                .leases
                .found(first, decode::<LeaseRecord>(&key, &value)?);
        }
        state.sessions.live.insert(id, session);
    }
    if !ended.is_empty() {
        kv.commit(ended)?;
    }
    for pair in pairs(kv, keys::opens(), PAGE) {
        let (key, value) = pair?;
        let [session, ino] = parse(&key, [8, 8])?;
        let holders = state.opens.entry(ObjectId(ino)).or_default();
        holders.push((SessionId(session), decode(&key, &value)?));
    }
    Ok(())
}

/// Orphans that no session has open.
fn orphans(kv: &dyn MetaKv, state: &State) -> Result<Vec<Ino>, MdError> {
    let mut closed = HashSet::new();
    for pair in pairs(kv, keys::orphans(), PAGE) {
        let (key, _) = pair?;
        let [ino] = parse(&key, [8])?;
        let ino = ObjectId(ino);
        if !state.opens.contains_key(&ino) {
            closed.insert(ino);
        }
    }
    Ok(closed.into_iter().collect())
}

fn make_root(core: &Core) -> Result<(), MdError> {
    let mut txn = core.begin(&Ctx::SERVICE)?;
    match txn.inode(ROOT) {
        Err(MdError::NotFound) => {}
        other => return other.map(|_| ()),
    }
    let now = Time::now();
    let attr = Attr {
        ino: ROOT,
        kind: Kind::Directory,
        mode: 0o755,
        nlink: 2,
        uid: nix::unistd::getuid().as_raw(),
        gid: nix::unistd::getgid().as_raw(),
        rdev: 0,
        size: DIRECTORY_SIZE,
        stored: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        change: 1,
    };
    let body = Body::Directory {
        parent: ROOT,
        entries: 0,
        collided: false,
        defaults: None,
    };
    txn.put_new(Inode {
        attr,
        xattrs: Xattrs::default(),
        names: SmallVec::new(),
        body,
    });
    txn.commit(())?;
    Ok(())
}

fn parse<const N: usize>(key: &[u8], widths: [usize; N]) -> Result<[u64; N], MdError> {
    keys::numbers(key, widths)
        .ok_or_else(|| MdError::Io(format!("unreadable key {}", key.escape_ascii())))
}
