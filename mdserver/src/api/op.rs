//! What a client may ask for.

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
    /// Who asks; 0 for [`Op::Attach`] and [`Op::RegisterServer`].
    pub session: SessionId,
    /// The session's number of this request, from 1, new for each op that changes something; 0 for
    /// those that do not. A resend carries the same number.
    pub seq: u64,
    /// All numbers below this one have been answered and will not be sent again: their kept replies
    /// may be forgotten.
    pub done_below: u64,
    /// What is asked.
    pub op: Op,
}

/// Flags of a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RenameFlags {
    /// Replaces what has the new name, if POSIX allows.
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
    /// Refuses when it exists (`XATTR_CREATE`).
    Create,
    /// Refuses when it does not (`XATTR_REPLACE`).
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
    /// Directory it is made in.
    pub parent: Ino,
    /// Its name there.
    pub name: Vec<u8>,
    /// What is made.
    pub kind: Kind,
    /// Permission bits (the umask is already taken off).
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
    /// Count it as opened by this session, in the same step.
    pub open: bool,
}

/// An object that [`Op::CreateMany`] makes. As with [`Op::Create`], its container's defaults say what
/// is not said here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewObject {
    /// Container it is made in.
    pub parent: Ino,
    /// Its name there, which must be free.
    pub name: Vec<u8>,
    /// Permission bits (the umask is already taken off).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group; a setgid directory gives its own instead.
    pub gid: u32,
    /// What it is as an array; nothing for a byte object.
    pub spec: SpecChange,
    /// Its tags, without `user.`.
    #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_XATTRS as usize }>")]
    pub tags: Vec<(String, Tag)>,
}

/// How [`Op::Resize`] was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResizeHow {
    /// By `truncate`: only the slowest axis of an object that is unlimited there changes.
    Truncate,
    /// By `slabfs set --dims`: every axis grows up to its greatest dim, or shrinks.
    SetDims,
}

/// A write permit of a grid object; the number is the session's own, new for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Permit {
    /// To write into its chunks, beside others.
    Write(u64),
    /// To copy chunks to this server, alone.
    Move(u64, ServerId),
    /// It is not needed any more.
    Back(u64),
}

/// The data of an object that was stored anew for a change of its declaration. The caller has synced
/// the new chunks: the old ones are deleted once the journal is on disk.
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

/// What is asked. The comment of each names its reply; `Done` where nothing is said.
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
    /// Says that the session lives. Reply `Beat`.
    Heartbeat {
        /// As `done_below` of the request.
        floor: u64,
        /// Version of the list of data servers the caller has.
        servers_version: u64,
        /// Version that all it does goes by: no write is under way that began before.
        knows: u64,
        /// It attached as strict; which a lock server that was started anew does not know.
        strict: bool,
    },
    /// Ends the session.
    Detach {
        /// All chunks it stored are committed or deleted: nothing has to be swept.
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
    /// Makes an inode with a name. Reply `Created`.
    Create(Create),
    /// Makes objects, all of them or none. Reply `CreatedMany`; what is wrong with one comes as
    /// [`super::MdError::At`].
    CreateMany {
        /// What is made, at most [`super::MAX_CREATE`].
        #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_CREATE }>")]
        objects: Vec<NewObject>,
    },
    /// The defaults of a container. Reply `Defaults`.
    GetDefaults {
        /// Container.
        ino: Ino,
    },
    /// Changes the defaults of a container. Reply `Defaults`: what they are now.
    SetDefaults {
        /// Container.
        ino: Ino,
        /// What is cleared and set.
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
    /// Takes a name off anything but a directory.
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
    /// Renames as POSIX says.
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
    /// Entries of a directory, without `.` and `..`. Reply `Dir`; empty at the end. Cookies are at
    /// least 16 and below 2^63; an entry keeps its cookie as long as it keeps its name.
    ReadDir {
        /// The directory.
        ino: Ino,
        /// Entries with greater cookies are wanted; 0 from the start.
        cookie: u64,
        /// At most so many.
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
        /// Whole name, as `user.project`.
        name: Vec<u8>,
        /// Value.
        value: Vec<u8>,
        /// What to do when it exists or does not.
        flags: XattrFlags,
    },
    /// Value of an extended attribute. Reply `Bytes`.
    GetXattr {
        /// Inode.
        ino: Ino,
        /// Whole name.
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
        /// Whole name.
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
        /// Those with greater names are wanted.
        after: Option<String>,
    },
    /// A page of a search. Reply `Found`.
    Find(Find),
    /// Counts the inode as opened once more by this session. Reply `Entry`.
    Open {
        /// Inode.
        ino: Ino,
    },
    /// Takes back one opening for each inode named; unlinked inodes nobody has open are removed.
    Release {
        /// Inodes, one mention an opening; at most [`super::MAX_RELEASE`].
        #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_RELEASE }>")]
        inos: Vec<Ino>,
    },
    /// The tiling of an `aligned` object. Reply `Tiling`.
    Tiling {
        /// Object.
        ino: Ino,
        /// The version the caller has, `Version(0)` for none.
        known: Version,
        /// The page after the record of this order is wanted.
        after: Option<u64>,
        /// Where it is wanted, if not everywhere; with `after` the box of the page before.
        wanted: Option<WantedPart>,
    },
    /// Chunk ids that nobody else gets, ever. Reply `Lease`.
    LeaseChunks {
        /// How many.
        count: u32,
    },
    /// Places for bytes that are about to be written: how many on which server, so that all servers
    /// come out with equal bytes. Replaces what the session had. Reply `Places`.
    LeasePlaces {
        /// Bytes the caller expects to write soon.
        bytes: u64,
        /// What it has put where since it asked last.
        #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_TOLD_SERVERS }>")]
        spent: Vec<(ServerId, u64)>,
    },
    /// Marks a data server as being emptied, durably, or takes the mark off.
    SetDraining {
        /// The server.
        server: ServerId,
        /// Whether it is to be emptied.
        draining: bool,
    },
    /// A page of the objects that have something on a data server. Reply `Holdings`.
    Holdings {
        /// The server.
        server: ServerId,
        /// Objects with greater numbers are wanted; 0 for all.
        after: Ino,
    },
    /// Takes or gives back a write permit of a grid object, one of whose servers is being emptied. Replies
    /// `Permitted`, and `Done`; [`super::MdError::Busy`] while others have theirs, and of
    /// [`Permit::Back`] [`super::MdError::Stale`] when it was void and what was done under it has to
    /// be done again.
    Permit {
        /// Object.
        ino: Ino,
        /// Which.
        permit: Permit,
    },
    /// Puts a server in the place of another in the stripe of a grid object; its chunks were copied under
    /// a [`Permit::Move`] and are on the disk. Reply `Entry`.
    Restripe {
        /// Object.
        ino: Ino,
        /// Generation of the chunks.
        generation: u32,
        /// The server that has its chunks so far.
        from: ServerId,
        /// The one that has them now.
        to: ServerId,
    },
    /// Puts copies of chunks of an `aligned` object in their place, where the records are still the same:
    /// order, the chunk it names, the copy. The copies are on the disk. Reply `Relocated`.
    Relocate {
        /// Object.
        ino: Ino,
        /// Generation of the tiling.
        generation: u32,
        /// What was copied.
        #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_COMMIT_RECORDS }>")]
        moves: Vec<(u64, ChunkId, StoredChunk)>,
    },
    /// Makes stored data part of an object, in one step. Reply `Commit`.
    Commit(Commit),
    /// Sets the dims of an object that stays an array of that rank. Reply `Resized`. Data outside is
    /// gone; of a grid the caller clips the chunks on the data servers before a shrink.
    Resize {
        /// Object.
        ino: Ino,
        /// New dims in elements.
        dims: Coords,
        /// By which door.
        how: ResizeHow,
    },
    /// Sets dtype, dims and so on by the rules of [`SpecChange::resolve`]. Reply `Entry`.
    Declare {
        /// Object.
        ino: Ino,
        /// What to set.
        change: SpecChange,
        /// The data stored anew, where [`super::SpecPlan::Rewrite`] asks for it.
        rewrite: Option<Rewrite>,
    },
    /// Empties an object (`O_TRUNC`): all fill, fixed dims kept, an unlimited slowest axis gets
    /// length 0. The generation grows. Reply `Entry`.
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
    /// A generation, and servers, for grid chunks that are written before a [`Rewrite`] makes them the
    /// object's. Reply `Spare`.
    SpareGeneration {
        /// Object.
        ino: Ino,
        /// The placement the object is to have.
        placement: Placement,
    },
    /// The data of all commits up to a version is on the data servers' disks: what they replaced
    /// may be deleted (once the journal is, too).
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
        /// Which dump, as its first page said.
        ticket: Option<u64>,
        /// The first byte wanted.
        offset: u64,
    },
    /// A data server says that it is there. Reply `Orders`. Needs no session.
    RegisterServer(ServerReport),
    /// Asks for a lock, or gives one up; see [`crate::locks`]. Reply `Lock`.
    Lock {
        /// The epoch it is for.
        epoch: LockEpoch,
        /// What is asked.
        ask: LockAsk,
    },
    /// Takes a request that waits for a lock back. Reply `LockCancelled`.
    CancelLock {
        /// Which.
        ticket: LockTicket,
    },
    /// What became of requests that waited for locks; waits for it. Reply `LockNews`.
    LockEvents {
        /// The epoch they are waiting in.
        epoch: LockEpoch,
        /// Number of the last event that the session has; those up to it are forgotten.
        seen: u64,
        /// How long to wait for one; cut to ten seconds.
        wait_ms: u32,
    },
    /// Tells the lock server which locks the session has; it has no others then, waits for none, and begins a new
    /// epoch. Reply `LocksReclaimed`.
    ReclaimLocks {
        /// Its locks, or some of them.
        held: Vec<HeldLocks>,
        /// These are the first.
        first: bool,
        /// These are the last, and it is done now.
        last: bool,
    },
    /// Asks for a right; see [`crate::rights`]. Reply `Right`.
    AskRight {
        /// The epoch it is for.
        epoch: RightsEpoch,
        /// What is asked.
        ask: RightAsk,
    },
    /// Takes an ask that waits back; if it was granted meanwhile, that holds.
    CancelRight {
        /// The epoch it was for.
        epoch: RightsEpoch,
        /// Which.
        ticket: RightTicket,
    },
    /// Gives rights back. In an epoch that is over it does nothing.
    GiveRights {
        /// The epoch they were granted in.
        epoch: RightsEpoch,
        /// What.
        #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_RIGHT_GIVES }>")]
        gives: Vec<RightGive>,
    },
    /// What the lock server has to say about rights; waits for it. Reply `RightNews`.
    RightEvents {
        /// The epoch the session is in.
        epoch: RightsEpoch,
        /// Number of the last event that the session has; those up to it are forgotten.
        seen: u64,
        /// How long to wait for one; cut to ten seconds.
        wait_ms: u32,
    },
    /// Says that the session has no rights, and keeps nothing that would need one, but for these; a new epoch begins,
    /// and in it has them, as if they had been granted before its first grant. Reply `RightsBegun`.
    ResetRights {
        /// All of them: the session had a right to each in the epoch that is over. None where it is not known
        /// whether it had.
        #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_RIGHTS_KEPT }>")]
        held: Vec<RightHeld>,
    },
    /// Attributes of an inode, with what other sessions have written and not flushed. Reply `Looked`: those of a
    /// directory may be kept.
    Stat {
        /// Inode.
        ino: Ino,
        /// Whether the session would keep them.
        keep: bool,
    },
    /// Answers a [`super::RightEventKind::Size`].
    TellSize {
        /// Which.
        question: u64,
        /// The answer; nothing if there is nothing unflushed.
        unflushed: Option<Unflushed>,
    },
    /// Finds a name, as `Lookup`, and asks whether the answer may be kept; see [`crate::rights`]. Reply `Looked`, also
    /// where nothing has that name.
    Look {
        /// Directory.
        parent: Ino,
        /// Name in it.
        name: Vec<u8>,
    },
    /// Answers a [`super::RightEventKind::Names`]; or says, unasked, that the session keeps no names at all.
    TellForgot {
        /// The epoch that the session is in.
        epoch: RightsEpoch,
        /// Which; none: all.
        change: Option<u64>,
    },
    /// Attributes of an inode that was removed, for who has it still; sets them before if they are given. Reply `Entry`
    /// without info, or `NotFound` where that is too long ago.
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
    /// Generation the data was written for; [`super::MdError::Stale`] when the object was emptied
    /// since.
    pub generation: u32,
    /// What was stored, in cells, oldest first: chunk ids leased by this session, each once. Empty
    /// for a grid. At most [`super::MAX_COMMIT_RECORDS`].
    #[serde(deserialize_with = "bounded::list::<_, _, { super::MAX_COMMIT_RECORDS }>")]
    pub records: Vec<(Hyperslab, Stored)>,
    /// Dims (elements) the object has at least; axes that are longer stay.
    pub grow_to: Option<Coords>,
    /// Bytes a byte object has at least; grows other objects by whole rows.
    pub size_at_least: u64,
    /// Modification time; the service's clock when `None` and `wrote`.
    pub mtime: Option<Time>,
    /// Data was written (and not only punched or grown).
    pub wrote: bool,
    /// Bytes of a grid that take room now and did not before, or the other way round where it is negative, as far as the
    /// caller knows; counted into [`super::Attr::stored`], up to the size. Ignored for `aligned`.
    pub stored: i64,
    /// The data is on the data servers' disks already: what it replaces needs no
    /// [`Op::Settle`].
    pub settled: bool,
}

impl Op {
    /// Whether the op changes something, be it only in memory, and so needs a number that lets it happen only once.
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
                | Self::TellSize { .. }
                | Self::Look { .. }
                | Self::TellForgot { .. }
                | Self::Removed { .. }
        )
    }

    /// Whether the op changes names, or attributes that a directory may have: somebody may have to forget them first.
    #[must_use]
    pub fn changes_names(&self) -> bool {
        self.each_changed(|_, _| ())
    }

    /// Tells `each` of the names that the op changes, with their directories, and without a name of inodes whose
    /// attributes it changes, which may be directories; of some more than once. False for an op that changes none.
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

    /// Whether the op only says that the session lives, or waits to be told something.
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
        // A mark needs no number, as it may be set twice; files move because of it.
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
