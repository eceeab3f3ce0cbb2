//! The replies of the service.

use serde::{Deserialize, Serialize};
use slabfs_model::{ChunkId, ServerId, SessionId, Version};
use slabfs_objstore::server::ServerOrders;

use super::couple::{CoupleStatus, Matched, NameWait, Room, Watched};
use super::defaults::Defaults;
use super::error::MdError;
use super::find::Found;
use super::info::SharedInfo;
use super::lock::{LockEpoch, LockList, LockNews, LockReply, LocksReclaimed};
use super::operation::replies;
use super::right::{Looked, RightNews, RightReply, RightsBegun};
use super::shard::{Birth, Links, Shard, Unlinked};
use super::tags::TagsPage;
use super::tiling::TilingReply;
use super::types::{Attr, Ino};

/// An inode: its attributes, and its array declaration if it is an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Attributes.
    pub attr: Attr,
    /// Present for [`super::Kind::Object`] only.
    pub info: Option<SharedInfo>,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// Where to continue after it.
    pub cookie: u64,
    /// Its target.
    pub entry: Entry,
}

/// Reply of [`super::op::Attach`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The new session.
    pub session: SessionId,
    /// The data servers.
    pub servers: Vec<ServerInfo>,
    /// Version of that list.
    pub servers_version: u64,
    /// A session without a heartbeat for this many milliseconds is lost; heartbeat at a third of it, or each second
    /// if that is sooner. 0: it lasts as long as this process, which is the service's.
    pub lease_ms: u64,
    /// The epoch that requests for locks are for: that of the lock server.
    pub locks: LockEpoch,
    /// The epoch of the session's rights; `None` if it did not attach as strict.
    pub rights: Option<RightsBegun>,
    /// Which shard the service is.
    pub shard: Shard,
}

/// Reply of [`super::op::Heartbeat`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Sessions attached, including the caller's.
    pub sessions: u32,
    /// The data servers, if their list is newer than the caller's.
    pub servers: Option<Vec<ServerInfo>>,
    /// Version of the list.
    pub servers_version: u64,
    /// The session is unknown: unflushed data is lost.
    pub lost: bool,
    /// The lock server's epoch; if it is a new one, the session has to reclaim its locks.
    pub locks: LockEpoch,
}

/// Reply of [`super::op::Create`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    /// The inode that has the name now.
    pub entry: Entry,
    /// Whether it was created by this op.
    pub created: bool,
    /// What its shard needs to create it, if that is another one that may not have done so.
    pub birth: Option<Box<Birth>>,
}

/// Reply of [`super::op::Dump`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpPage {
    /// The dump.
    pub ticket: u64,
    /// Bytes of the entire dump; `None` while it is not ready: ask again with the ticket.
    pub total: Option<u64>,
    /// The bytes at the requested offset; empty at the end.
    pub bytes: Vec<u8>,
}

/// Reply of [`super::op::LeaseChunks`]: the ids `first .. first + count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The first id.
    pub first: ChunkId,
    /// How many.
    pub count: u32,
}

/// Reply of [`super::op::SpareGeneration`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spare {
    /// The generation.
    pub generation: u32,
    /// The servers its chunks are spread over.
    pub stripe: Vec<ServerId>,
}

/// Reply of [`super::op::Holdings`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holdings {
    /// Objects that have data on the server.
    pub objects: Vec<super::Ino>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<super::Ino>,
    /// Every session knows that the server is being drained: chunks of grids may be moved.
    pub ready: bool,
}

/// Reply of [`super::op::Permit`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permitted {
    /// The object.
    pub entry: Entry,
    /// How far data may have been written: its size, or beyond if that was reserved.
    pub reach: u64,
}

/// Reply of [`super::op::Relocate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relocated {
    /// The object now.
    pub entry: Entry,
    /// Copies whose record has changed since: they are useless.
    pub useless: Vec<ChunkId>,
}

/// Reply of [`super::op::Commit`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitReply {
    /// Version of the tiling now; a caller that had the one before it and applies this reply is up
    /// to date. Unchanged for a grid.
    pub version: Version,
    /// Version before.
    pub before: Version,
    /// Order of the first record; the others count on from it.
    pub first_order: u64,
    /// Attributes now.
    pub attr: Attr,
    /// The array now.
    pub info: SharedInfo,
    /// Orders of older records (or of records of this commit) that are completely hidden and gone.
    pub dropped: Vec<u64>,
}

/// Reply of [`super::op::Resize`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resized {
    /// The object now.
    pub entry: Entry,
    /// Whether data was cut off.
    pub clipped: bool,
}

/// Reply of [`super::op::Reserve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveReply {
    /// Data may be written up to here (bytes of the object), unless `clear` is given.
    pub upto: u64,
    /// These bytes (from, to) may hold data that a dead session wrote and never committed. Nothing is granted yet:
    /// the caller clears them on the data servers and asks again.
    pub clear: Option<(u64, u64)>,
}

/// A data server as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Its number, which never changes.
    pub id: ServerId,
    /// The UUID stored in its directory.
    pub uuid: [u8; 16],
    /// Where it listens; `None` when it is in the metadata service's process.
    pub addr: Option<String>,
    /// The machine it runs on, by name.
    pub host: String,
    /// Whether it reported recently.
    pub online: bool,
    /// Whether it is being drained: it gets no new chunks.
    pub draining: bool,
    /// It is in the memory of a mount: only that mount writes to it, and its data ends with it.
    pub memory: bool,
    /// Whether it has so little space left that new chunks go elsewhere.
    pub full: bool,
    /// Bytes its disk has.
    pub total: u64,
    /// Bytes free there.
    pub free: u64,
    /// Bytes used there, by anything.
    pub used: u64,
    /// Bytes its chunks take.
    pub stored: u64,
    /// Chunks it holds.
    pub chunks: u64,
    /// Bytes allocated to sessions there that have not shown up in its reports yet.
    pub in_flight: u64,
    /// Counters of the engine that it is on, as of its last report.
    pub engine: Vec<(String, u64)>,
}

/// Reply of [`super::op::StatFs`]: totals over the data servers that are online.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StatFs {
    /// Bytes of their disks.
    pub total: u64,
    /// Bytes free.
    pub free: u64,
    /// Bytes of chunks.
    pub used: u64,
    /// Inodes in use.
    pub inodes: u64,
}

replies! {
    Attached(Attached),
    Beat(Beat),
    Entry(Entry),
    Created(Created),
    CreatedMany(Vec<Ino>),
    Defaults(Defaults),
    Dir(Vec<DirEntry>),
    Bytes(Vec<u8>),
    Names(Vec<Vec<u8>>),
    Tags(TagsPage),
    Found(Found),
    Tiling(TilingReply),
    Lease(Lease),
    Commit(Box<CommitReply>),
    Resized(Resized),
    Reserve(ReserveReply),
    Spare(Spare),
    Holdings(Holdings),
    Permitted(Box<Permitted>),
    Relocated(Box<Relocated>),
    Places(Vec<(ServerId, u64)>),
    StatFs(StatFs),
    Dump(DumpPage),
    Servers(Vec<ServerInfo>),
    Orders(ServerOrders),
    Lock(LockReply),
    LockCancelled(bool),
    LockNews(LockNews),
    LocksReclaimed(LocksReclaimed),
    Right(RightReply),
    RightNews(RightNews),
    RightsBegun(RightsBegun),
    Looked(Looked),
    LockList(LockList),
    Matched(Box<Matched>),
    CoupleStatus(Box<CoupleStatus>),
    NameWait(NameWait),
    Room(Room),
    Watched(Vec<Watched>),
    Engine(Vec<(String, String)>),
    Unlinked(Unlinked),
    Births(Vec<Birth>),
    Entries(Vec<Entry>),
    Unfinished(Vec<Links>),
}

impl Reply {
    /// The error of a caller that gets this reply and expects another one.
    pub(super) fn unexpected(&self) -> MdError {
        MdError::Protocol(format!("unexpected reply {self:?}"))
    }
}

impl From<()> for Reply {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl TryFrom<Reply> for () {
    type Error = MdError;

    fn try_from(reply: Reply) -> Result<Self, MdError> {
        match reply {
            Reply::Done => Ok(()),
            other => Err(other.unexpected()),
        }
    }
}

impl From<Option<Box<Permitted>>> for Reply {
    fn from(reply: Option<Box<Permitted>>) -> Self {
        reply.map_or(Self::Done, Self::Permitted)
    }
}

impl TryFrom<Reply> for Option<Box<Permitted>> {
    type Error = MdError;

    fn try_from(reply: Reply) -> Result<Self, MdError> {
        match reply {
            Reply::Done => Ok(None),
            Reply::Permitted(permitted) => Ok(Some(permitted)),
            other => Err(other.unexpected()),
        }
    }
}
