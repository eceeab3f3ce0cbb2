//! The messages of the metadata service: its operations ([`op`]), a type each, with their replies.
//!
//! A client sends a [`Request`] (session, sequence number, operation) and gets a [`Reply`] or an [`MdError`];
//! [`crate::client::Md`] is the typed side of that. The same types are used in process ([`crate::client::LocalMd`])
//! and over a socket ([`crate::client::RemoteMd`]), there as postcard in the control part of a frame.
//!
//! Invariants: an [`Op`] is done completely or not at all; an op that changes something has a sequence number of its
//! session, and a resend with the same number returns the first reply instead of doing it twice. Deliberately
//! elsewhere: the meaning of paths (`slabfs_fs::view`), permission checks (the kernel's, by `default_permissions`),
//! moving data (`slabfs_objstore`).

mod arguments;
mod bounded;
mod channel;
mod couple;
mod defaults;
mod error;
mod find;
mod info;
mod lock;
pub mod op;
mod operation;
mod reply;
mod right;
mod shard;
mod spec;
mod tags;
mod tiling;
mod types;

pub use arguments::{
    NewObject, Permit, RenameFlags, ResizeHow, Rewrite, SetAttr, SetTime, XattrFlags,
};
pub use channel::{Epoch, Event, News};
pub use couple::{
    CoupleStatus, CoupledOpen, CoupledSession, MAX_COUPLED_OPENS, MAX_MATCH_BOXES, MAX_WATCHED,
    Matched, NameWait, Outcome, Room, WaitingRead, Watched, Watching, check_boxes,
};
pub use defaults::{DefaultKey, Defaults, DefaultsChange, MAX_DEFAULT_TAGS, inherit};
pub use error::MdError;
pub use find::{Caller, Form, Found, Hit, MAX_HIT_TAGS, MAX_HITS};
pub use info::{ArrayInfo, Given, SharedInfo, Truncate};
pub use lock::{
    HeldLocks, LockAsk, LockConflict, LockDecision, LockEpoch, LockEvent, LockFile, LockKind,
    LockList, LockMode, LockNews, LockOutcome, LockOwner, LockReply, LockRow, LockSpan, LockTicket,
    LockWant, LocksReclaimed, LostLocks, MAX_LOCK_ROWS,
};
pub use op::{Commit, Create, Find, Op};
pub(crate) use operation::call_without_session;
pub use operation::{Effect, Operation, ReplyType, Request};
pub use reply::{
    Attached, Beat, CommitReply, Created, DirEntry, DumpPage, Entry, Holdings, Lease, Permitted,
    Relocated, Reply, ReserveReply, Resized, ServerInfo, Spare, StatFs,
};
pub use right::{
    Looked, MAX_RIGHT_BOXES, MAX_RIGHT_GIVES, MAX_RIGHTS_HELD, NAMES_CACHED_FOR, RightArea,
    RightAsk, RightEvent, RightEventKind, RightGive, RightGrant, RightHeld, RightMode, RightNews,
    RightRecall, RightReply, RightSerial, RightTicket, RightsBegun, RightsEpoch, Unflushed,
};
pub use shard::{Birth, Links, MAX_SHARDS, MAX_UNFINISHED, Shard, Unlinked};
pub(crate) use spec::check_chunk;
pub use spec::{MAX_GRID_CHUNK, Resolved, SpecChange, SpecError, SpecPlan};
pub use tags::{MAX_TAG_BYTES, MAX_TAG_NAMES, TAGS_PAGE, TagChange, TagsPage};
pub use tiling::{Stored, StoredChunk, TilingReply, WantedPart};
pub use types::{Attr, Ino, Kind, ROOT, Time};

/// Longest name of a directory entry or an extended attribute, in bytes.
pub const MAX_NAME: usize = 255;
/// Longest value of an extended attribute, in bytes.
pub const MAX_XATTR_VALUE: usize = 64 * 1024;
/// Most extended attributes of one inode, tags among them.
pub const MAX_XATTRS: u32 = 65_536;
/// Longest list of extended attribute names of one inode, each with its terminating zero, in bytes. The kernel passes
/// on lists up to `XATTR_LIST_MAX`, 64 KiB; `listxattr` of a longer one is E2BIG.
pub const MAX_XATTR_LIST: usize = 4 << 20;
/// Most tags that an object is created with, or that a container gives to new objects.
pub const MAX_FIRST_TAGS: usize = 1024;
/// Longest target of a symbolic link, in bytes.
pub const MAX_SYMLINK: usize = 4095;
/// Most hard links of one inode.
pub const MAX_LINKS: u32 = 1 << 20;
/// Most objects in one [`op::CreateMany`].
pub const MAX_CREATE: usize = 1024;
/// Most records in one commit.
pub const MAX_COMMIT_RECORDS: usize = 65_536;
/// Most inodes in one [`op::Release`].
pub const MAX_RELEASE: usize = 65_536;
/// Most inodes in one [`op::Paths`].
pub const MAX_PATHS: usize = 4096;
/// Most groups of a [`Caller`], as of a process (`NGROUPS_MAX`), and one.
pub const MAX_GROUPS: usize = 65_537;
/// Most data servers named in one request.
pub const MAX_REPORTED_SERVERS: usize = 65_536;
/// Most chunk ids in one lease.
pub const MAX_LEASE: u32 = 65_536;
/// How far the creator of an object may write beyond its recorded size without a
/// [`op::Reserve`], in bytes.
pub const CREATOR_RESERVE: u64 = 64 << 20;
/// Largest chunk of the `aligned` layout, in bytes; larger boxes are cut before they are stored.
pub const CHUNK_LIMIT: u64 = 64 << 20;

/// A metadata service, in this process or behind a socket.
pub trait Metadata: Send + Sync {
    /// Does one operation. Blocks until it is done or the deadline of a remote service expires.
    fn call(&self, request: Request) -> Result<Reply, MdError>;

    /// How many sessions were attached when the last reply was made; 1 means that there are no others.
    fn session_count(&self) -> u32;

    /// How often a connection was lost, or given up, with an unanswered request on it. If this count did not change
    /// during a call that was unavailable, the request reached no service, and will not be done later.
    fn unanswered(&self) -> u64 {
        0
    }
}
