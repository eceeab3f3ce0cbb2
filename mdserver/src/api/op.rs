//! The operations that a client can request.

use serde::{Deserialize, Serialize};
use slabfs_model::{ChunkId, Coords, Hyperslab, Placement, ServerId, SessionId, Tag, Version};
use slabfs_objstore::server::ServerReport;

use super::bounded;
use super::defaults::DefaultsChange;
use super::find::Find;
use super::lock::{HeldLocks, LockAsk, LockEpoch, LockTicket};
use super::right::{RightAsk, RightGive, RightHeld, RightTicket, RightsEpoch, Unflushed};
use super::spec::SpecChange;
use super::tags::TagChange;
use super::tiling::{Stored, StoredChunk, WantedPart};
use super::types::{Ino, Kind, Time};

/// One request of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The requesting session; 0 for [`Op::Attach`] and [`Op::RegisterServer`].
    pub session: SessionId,
    /// The session's sequence number of this request, from 1, new for each op that changes something; 0 for those
    /// that do not. A resend has the same number.
    pub seq: u64,
    /// All numbers below this one have been answered and will not be resent: their replies may be dropped from the
    /// reply cache.
    pub done_below: u64,
    /// The operation.
    pub op: Op,
}

/// Flags of a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RenameFlags {
    /// Replaces the target of the new name, if POSIX allows.
    #[default]
    Replace,
    /// Refuses when the new name exists (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swaps the two (`RENAME_EXCHANGE`).
    Exchange,
}

/// Flags of setting an extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum XattrFlags {
    /// Sets it whether it exists or not.
    #[default]
    Either,
    /// Refuses if it exists (`XATTR_CREATE`).
    Create,
    /// Refuses if it does not (`XATTR_REPLACE`).
    Replace,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// This one.
    To(Time),
    /// The service's clock.
    Now,
}

/// Attributes to set; `None` leaves one as it is. The change time is set by the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission bits, 12 bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
}

/// Arguments of [`Op::Create`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Create {
    /// Directory it is created in.
    pub parent: Ino,
    /// Its name there.
    pub name: Vec<u8>,
    /// Kind of the inode.
    pub kind: Kind,
    /// Permission bits, after the umask.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group; a setgid directory gives its own instead.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Refuse when the name exists; otherwise an object that exists is returned as it is.
    pub exclusive: bool,
    /// Also count it as opened by this session, in the same step.
    pub open: bool,
}

/// An object that [`Op::CreateMany`] creates. As with [`Op::Create`], the container's defaults supply everything that
/// is not given here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewObject {
    /// Container it is created in.
    pub parent: Ino,
    /// Its name there, which must be free.
    pub name: Vec<u8>,
    /// Permission bits, after the umask.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group; a setgid directory gives its own instead.
    pub gid: u32,
    /// Its declaration as an array; empty for a byte object.
    pub spec: SpecChange,
    /// Its tags, without `user.`.
    #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_XATTRS as usize }>")]
    pub tags: Vec<(String, Tag)>,
}

/// The source of an [`Op::Resize`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResizeHow {
    /// By `truncate`: only the slowest axis of an object that is unlimited there changes.
    Truncate,
    /// By `slabfs set --dims`: every axis grows up to its greatest dim, or shrinks.
    SetDims,
}

/// A write permit of a grid object; the number is chosen by the session, a new one for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Permit {
    /// To write into its chunks, concurrently with others.
    Write(u64),
    /// To copy chunks to this server, exclusively.
    Move(u64, ServerId),
    /// Returns the permit.
    Back(u64),
}

/// The data of an object, rewritten for a change of its declaration. The caller has synced the new chunks; the old
/// ones are deleted once the journal is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewrite {
    /// [`super::Attr::change`] when the data was read; the op is [`super::MdError::Busy`] when
    /// something changed since.
    pub if_change: u64,
    /// Generation and servers of the new chunks when the new layout is a grid, as
    /// [`Op::SpareGeneration`] gave them.
    pub spare: Option<super::Spare>,
    /// The new chunks when the new layout is `aligned`, in cells of the new declaration.
    #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_COMMIT_RECORDS }>")]
    pub records: Vec<(Hyperslab, Stored)>,
}

/// An operation. The comment of each names its reply; `Done` if none is named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Opens a session. Reply `Attached`. Needs no session.
    Attach {
        /// Name of the machine, for people.
        host: String,
        /// Process there, for people.
        pid: u32,
        /// Ops that change something are refused in this session.
        read_only: bool,
        /// It takes part in rights; see [`crate::rights`].
        strict: bool,
    },
    /// Keeps the session alive. Reply `Beat`.
    Heartbeat {
        /// As `done_below` of the request.
        floor: u64,
        /// Version of the list of data servers the caller has.
        servers_version: u64,
        /// The version that all its writes use: none is under way that began with an older one.
        knows: u64,
        /// It attached as strict; a restarted lock server does not know that.
        strict: bool,
    },
    /// Ends the session.
    Detach {
        /// All chunks it stored are committed or deleted: no sweep is needed.
        clean: bool,
    },
    /// Finds a name. Also `.` and `..`. Reply `Entry`.
    Lookup {
        /// Directory.
        parent: Ino,
        /// Name in it.
        name: Vec<u8>,
    },
    /// Attributes of an inode. Reply `Entry`.
    GetAttr {
        /// Inode.
        ino: Ino,
    },
    /// Creates an inode with a name. Reply `Created`.
    Create(Create),
    /// Creates objects, all of them or none. Reply `CreatedMany`; an error of one is returned as
    /// [`super::MdError::At`].
    CreateMany {
        /// The objects, at most [`super::MAX_CREATE`].
        #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_CREATE }>")]
        objects: Vec<NewObject>,
    },
    /// The defaults of a container. Reply `Defaults`.
    GetDefaults {
        /// Container.
        ino: Ino,
    },
    /// Changes the defaults of a container. Reply `Defaults`: the defaults after the change.
    SetDefaults {
        /// Container.
        ino: Ino,
        /// What to clear and what to set.
        change: DefaultsChange,
    },
    /// Gives an inode one more name. Reply `Entry`.
    Link {
        /// Inode; not a directory.
        ino: Ino,
        /// Directory of the new name.
        parent: Ino,
        /// The new name.
        name: Vec<u8>,
    },
    /// Removes a name of anything but a directory.
    Unlink {
        /// Directory.
        parent: Ino,
        /// Name in it.
        name: Vec<u8>,
    },
    /// Removes an empty directory.
    Rmdir {
        /// Directory it is in.
        parent: Ino,
        /// Its name there.
        name: Vec<u8>,
    },
    /// Renames as in POSIX.
    Rename {
        /// Directory of the present name.
        parent: Ino,
        /// The present name.
        name: Vec<u8>,
        /// Directory of the new name.
        new_parent: Ino,
        /// The new name.
        new_name: Vec<u8>,
        /// What to do when the new name exists.
        flags: RenameFlags,
    },
    /// Target of a symbolic link. Reply `Bytes`.
    ReadLink {
        /// The link.
        ino: Ino,
    },
    /// Entries of a directory, without `.` and `..`. Reply `Dir`; empty at the end. Cookies are at least 16 and below
    /// 2^63; the cookie of an entry does not change as long as its name does not.
    ReadDir {
        /// The directory.
        ino: Ino,
        /// Returns entries with greater cookies; 0 for the start.
        cookie: u64,
        /// At most this many.
        limit: u32,
    },
    /// Sets attributes. Reply `Entry`.
    SetAttr {
        /// Inode.
        ino: Ino,
        /// What to set.
        set: SetAttr,
    },
    /// Sets an extended attribute.
    SetXattr {
        /// Inode.
        ino: Ino,
        /// Full name, as `user.project`.
        name: Vec<u8>,
        /// Value.
        value: Vec<u8>,
        /// What to do if it exists or does not.
        flags: XattrFlags,
    },
    /// Value of an extended attribute. Reply `Bytes`.
    GetXattr {
        /// Inode.
        ino: Ino,
        /// Full name.
        name: Vec<u8>,
    },
    /// Names of the extended attributes, by bytes. Reply `Names`.
    ListXattr {
        /// Inode.
        ino: Ino,
    },
    /// Removes an extended attribute.
    RemoveXattr {
        /// Inode.
        ino: Ino,
        /// Full name.
        name: Vec<u8>,
    },
    // Tags.
    /// Sets and removes tags of inodes, all in one step.
    Tag {
        /// What to change; at most [`super::MAX_TAG_NAMES`] names.
        #[serde(deserialize_with = "super::tags::changes")]
        changes: Vec<TagChange>,
    },
    /// Tags of an inode. Reply `Tags`.
    Tags {
        /// Inode.
        ino: Ino,
        /// Returns those with greater names.
        after: Option<String>,
    },
    /// A page of a search. Reply `Found`.
    Find(Find),
    /// Counts one more open of the inode by this session. Reply `Entry`.
    Open {
        /// Inode.
        ino: Ino,
    },
    /// Drops one open for each inode named; unlinked inodes that no session has open are removed.
    Release {
        /// Inodes, one entry per open; at most [`super::MAX_RELEASE`].
        #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_RELEASE }>")]
        inos: Vec<Ino>,
    },
    /// The tiling of an `aligned` object. Reply `Tiling`.
    Tiling {
        /// Object.
        ino: Ino,
        /// The version the caller has, `Version(0)` for none.
        known: Version,
        /// Returns the page after the record of this order.
        after: Option<u64>,
        /// The part that is wanted, if not everything; with `after`, the box of the previous page.
        wanted: Option<WantedPart>,
    },
    /// Chunk ids that are never handed out again. Reply `Lease`.
    LeaseChunks {
        /// How many.
        count: u32,
    },
    /// Allocates bytes that are about to be written: how many to which server, so that all servers end up with equal
    /// bytes. Replaces the session's previous allocation. Reply `Places`.
    LeasePlaces {
        /// Bytes the caller expects to write soon.
        bytes: u64,
        /// The bytes it has stored on each server since its last request.
        #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_REPORTED_SERVERS }>")]
        spent: Vec<(ServerId, u64)>,
    },
    /// Marks a data server as draining, durably, or clears the mark.
    SetDraining {
        /// The server.
        server: ServerId,
        /// Whether it is to be drained.
        draining: bool,
    },
    /// A page of the objects that have data on a data server. Reply `Holdings`.
    Holdings {
        /// The server.
        server: ServerId,
        /// Returns objects with greater numbers; 0 for all.
        after: Ino,
    },
    /// Takes or returns a write permit of a grid object, one of whose servers is being drained. Reply `Permitted` or
    /// `Done`; [`super::MdError::Busy`] while others hold conflicting permits; for [`Permit::Back`]
    /// [`super::MdError::Stale`] if the permit was void, and everything done under it has to be redone.
    Permit {
        /// Object.
        ino: Ino,
        /// Which.
        permit: Permit,
    },
    /// Replaces a server in the stripe of a grid object; its chunks were copied under a [`Permit::Move`] and are on
    /// disk. Reply `Entry`.
    Restripe {
        /// Object.
        ino: Ino,
        /// Generation of the chunks.
        generation: u32,
        /// The server that has its chunks so far.
        from: ServerId,
        /// The server that has them now.
        to: ServerId,
    },
    /// Replaces chunks of an `aligned` object by copies, where the records are unchanged: order, the chunk that the
    /// record names, the copy. The copies are on disk. Reply `Relocated`.
    Relocate {
        /// Object.
        ino: Ino,
        /// Generation of the tiling.
        generation: u32,
        /// The copies.
        #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_COMMIT_RECORDS }>")]
        moves: Vec<(u64, ChunkId, StoredChunk)>,
    },
    /// Makes stored data part of an object, in one step. Reply `Commit`.
    Commit(Commit),
    /// Sets the dims of an object whose rank does not change. Reply `Resized`. Data outside is lost; for a grid, the
    /// caller clips the chunks on the data servers before a shrink.
    Resize {
        /// Object.
        ino: Ino,
        /// New dims in elements.
        dims: Coords,
        /// The source of the change.
        how: ResizeHow,
    },
    /// Sets dtype, dims and so on by the rules of [`SpecChange::resolve`]. Reply `Entry`.
    Declare {
        /// Object.
        ino: Ino,
        /// What to set.
        change: SpecChange,
        /// The rewritten data, where [`super::SpecPlan::Rewrite`] requires it.
        rewrite: Option<Rewrite>,
    },
    /// Empties an object (`O_TRUNC`): all fill; fixed dims stay, an unlimited slowest axis gets length 0. The
    /// generation grows. Reply `Entry`.
    Clear {
        /// Object.
        ino: Ino,
    },
    /// Announces that data beyond the recorded size of a grid object is about to be written. Reply
    /// `Reserve`.
    Reserve {
        /// Object.
        ino: Ino,
        /// Bytes of the object up to which data may be written.
        upto: u64,
    },
    /// A generation, and servers, for grid chunks that are written before a [`Rewrite`] makes them part of the
    /// object. Reply `Spare`.
    SpareGeneration {
        /// Object.
        ino: Ino,
        /// The placement that the object will have.
        placement: Placement,
    },
    /// The data of all commits up to a version is on the data servers' disks: the data that they replaced may be
    /// deleted (once the journal is on disk, too).
    Settle {
        /// Object.
        ino: Ino,
        /// Version of its tiling.
        version: Version,
    },
    /// Returns once everything that was answered before is on the service's disk.
    Sync,
    /// Totals over the data servers. Reply `StatFs`.
    StatFs,
    /// The data servers. Reply `Servers`.
    Servers,
    /// A page of a dump of all metadata; without a ticket a new dump is begun. Reply `Dump`.
    Dump {
        /// The dump, as named by its first page.
        ticket: Option<u64>,
        /// The first byte wanted.
        offset: u64,
    },
    /// A data server reports to the service. Reply `Orders`. Needs no session.
    RegisterServer(ServerReport),
    /// Requests or releases a lock; see [`crate::locks`]. Reply `Lock`.
    Lock {
        /// The epoch it is for.
        epoch: LockEpoch,
        /// The request.
        ask: LockAsk,
    },
    /// Cancels a waiting request for a lock. Reply `LockCancelled`.
    CancelLock {
        /// The request.
        ticket: LockTicket,
    },
    /// Waits for the outcome of queued lock requests. Reply `LockNews`.
    LockEvents {
        /// The epoch they are waiting in.
        epoch: LockEpoch,
        /// Number of the last event that the session has; events up to it are dropped.
        seen: u64,
        /// How long to wait for an event; at most ten seconds.
        wait_ms: u32,
    },
    /// Reclaims the session's locks (as in NFSv4); it then holds no others, none of its requests waits, and a new
    /// epoch begins. Reply `LocksReclaimed`.
    ReclaimLocks {
        /// Its locks, or some of them.
        held: Vec<HeldLocks>,
        /// These are the first.
        first: bool,
        /// These are the last; the reclaim is complete.
        last: bool,
    },
    /// Requests a right; see [`crate::rights`]. Reply `Right`.
    AskRight {
        /// The epoch it is for.
        epoch: RightsEpoch,
        /// The request.
        ask: RightAsk,
    },
    /// Cancels a waiting request; if it was granted meanwhile, the grant is valid.
    CancelRight {
        /// The epoch it was for.
        epoch: RightsEpoch,
        /// The request.
        ticket: RightTicket,
    },
    /// Returns rights. No effect in an epoch that is over.
    GiveRights {
        /// The epoch they were granted in.
        epoch: RightsEpoch,
        /// The rights.
        #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_RIGHT_GIVES }>")]
        gives: Vec<RightGive>,
    },
    /// Waits for the lock server's events about rights. Reply `RightNews`.
    RightEvents {
        /// The epoch the session is in.
        epoch: RightsEpoch,
        /// Number of the last event that the session has; events up to it are dropped.
        seen: u64,
        /// How long to wait for an event; at most ten seconds.
        wait_ms: u32,
    },
    /// Resets the session's rights: it holds none, and caches nothing that would need one, except those named here. A
    /// new epoch begins, in which it holds these as if they had been granted before its first grant. Reply
    /// `RightsBegun`.
    ResetRights {
        /// All that it retains: rights that it held in the previous epoch. None if it does not know whether it held
        /// them.
        #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_RIGHTS_HELD }>")]
        held: Vec<RightHeld>,
    },
    /// Attributes of an inode, including unflushed writes of other sessions. Reply `Looked`: those of a directory may
    /// be cacheable.
    Stat {
        /// Inode.
        ino: Ino,
        /// Whether the session would cache them.
        keep: bool,
    },
    /// Answers a [`super::RightEventKind::Size`].
    ReportSize {
        /// The query.
        question: u64,
        /// The answer; `None` if nothing is unflushed.
        unflushed: Option<Unflushed>,
    },
    /// Looks up a name, as `Lookup`, and asks whether the result may be cached; see [`crate::rights`]. Reply
    /// `Looked`, also if no such name exists.
    Look {
        /// Directory.
        parent: Ino,
        /// Name in it.
        name: Vec<u8>,
    },
    /// Acknowledges a [`super::RightEventKind::Names`]; or reports, unsolicited, that the session caches no names at
    /// all.
    ReportForgotten {
        /// The epoch that the session is in.
        epoch: RightsEpoch,
        /// The event; `None` for all names.
        change: Option<u64>,
    },
    /// Attributes of an inode that was removed, for a session that still has it; sets them first if they are given.
    /// Reply `Entry` without info, or `NotFound` if the removal is too long ago.
    Removed {
        /// Inode.
        ino: Ino,
        /// What to set.
        set: Option<SetAttr>,
    },
}

/// Arguments of [`Op::Commit`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Object.
    pub ino: Ino,
    /// Generation the data was written for; [`super::MdError::Stale`] if the object was emptied since.
    pub generation: u32,
    /// What was stored, in cells, oldest first: chunk ids leased by this session, each once. Empty for a grid. At
    /// most [`super::MAX_COMMIT_RECORDS`].
    #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_COMMIT_RECORDS }>")]
    pub records: Vec<(Hyperslab, Stored)>,
    /// Dims (elements) that the object has at least afterwards; longer axes stay.
    pub grow_to: Option<Coords>,
    /// Bytes that a byte object has at least afterwards; other objects grow by complete rows.
    pub size_at_least: u64,
    /// Modification time; the service's clock when `None` and `wrote`.
    pub mtime: Option<Time>,
    /// Data was written (and not only holes punched or the object grown).
    pub wrote: bool,
    /// Bytes of a grid that are newly allocated, or freed if negative, as far as the caller knows; added to
    /// [`super::Attr::stored`], up to the size. Ignored for `aligned`.
    pub stored: i64,
    /// The data is already on the data servers' disks: what it replaces needs no [`Op::Settle`].
    pub settled: bool,
}

impl Op {
    /// Whether the op changes something, if only in memory, and so needs a sequence number that makes it happen only
    /// once.
    #[must_use]
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Self::Attach { .. }
                | Self::Heartbeat { .. }
                | Self::Lookup { .. }
                | Self::GetAttr { .. }
                | Self::GetDefaults { .. }
                | Self::ReadLink { .. }
                | Self::ReadDir { .. }
                | Self::GetXattr { .. }
                | Self::ListXattr { .. }
                | Self::Tags { .. }
                | Self::Find(_)
                | Self::Tiling { .. }
                | Self::LeasePlaces { .. }
                | Self::SetDraining { .. }
                | Self::Holdings { .. }
                | Self::Permit { .. }
                | Self::Sync
                | Self::StatFs
                | Self::Servers
                | Self::Dump { .. }
                | Self::RegisterServer(_)
                | Self::CancelLock { .. }
                | Self::LockEvents { .. }
                | Self::CancelRight { .. }
                | Self::RightEvents { .. }
                | Self::Stat { .. }
                | Self::ReportSize { .. }
                | Self::Look { .. }
                | Self::ReportForgotten { .. }
                | Self::Removed { .. }
        )
    }

    /// Whether the op changes names, or attributes that may belong to a directory: other sessions may have to drop
    /// cached entries first.
    #[must_use]
    pub fn changes_names(&self) -> bool {
        self.each_changed(|_, _| ())
    }

    /// Calls `each` with the names that the op changes and their directories, and with `None` for inodes whose
    /// attributes it changes, which may be directories; some more than once. Returns false for an op that changes
    /// none.
    pub fn each_changed<'a>(&'a self, mut each: impl FnMut(Ino, Option<&'a [u8]>)) -> bool {
        match self {
            Self::Create(create) => each(create.parent, Some(&create.name)),
            Self::CreateMany { objects } => objects
                .iter()
                .for_each(|object| each(object.parent, Some(&object.name))),
            Self::Link { parent, name, .. }
            | Self::Unlink { parent, name }
            | Self::Rmdir { parent, name } => each(*parent, Some(name)),
            Self::Rename {
                parent,
                name,
                new_parent,
                new_name,
                ..
            } => {
                each(*parent, Some(name));
                each(*new_parent, Some(new_name));
            }
            Self::SetAttr { ino, .. }
            | Self::SetXattr { ino, .. }
            | Self::RemoveXattr { ino, .. }
            | Self::SetDefaults { ino, .. } => each(*ino, None),
            Self::Tag { changes } => changes.iter().for_each(|change| each(change.ino, None)),
            _ => return false,
        }
        true
    }

    /// Whether the op only keeps the session alive, or waits for events.
    #[must_use]
    pub fn listens(&self) -> bool {
        matches!(
            self,
            Self::Heartbeat { .. } | Self::LockEvents { .. } | Self::RightEvents { .. }
        )
    }

    /// Whether the op changes files, which a read-only session may not.
    #[must_use]
    pub fn writes(&self) -> bool {
        // The mark needs no sequence number, as it may be set twice; files move because of it.
        if let Self::SetDraining { .. } = self {
            return true;
        }
        self.changes()
            && !matches!(
                self,
                Self::Detach { .. }
                    | Self::Open { .. }
                    | Self::Release { .. }
                    | Self::Lock { .. }
                    | Self::ReclaimLocks { .. }
                    | Self::AskRight { .. }
                    | Self::GiveRights { .. }
                    | Self::ResetRights { .. }
            )
    }
}
