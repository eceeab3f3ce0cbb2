//! Advisory locks, as they travel: what a mount asks its lock server, and what it hears.
//!
//! What they mean is told in [`crate::locks`].

use serde::{Deserialize, Serialize};
use slabfs_model::{Selection, SessionId};
use std::fmt;

use super::types::Ino;

/// What a lock is on: an object, or a selection of one. Each is a file of its own to programs, with bytes
/// counted from its own beginning, and so their locks do not meet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockFile {
    /// The object.
    pub ino: Ino,
    /// The selection of it; none for the object itself.
    pub selection: Option<Selection>,
}

/// The two families of locks; those of one do not see those of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LockKind {
    /// Of byte ranges: `fcntl`, of a process or of an open file description.
    Record,
    /// Of the whole file: `flock`.
    Whole,
}

/// How a lock goes together with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockMode {
    /// With other shared locks.
    Shared,
    /// With none.
    Exclusive,
}

/// Bytes of a file, both ends belonging to it; the last may lie beyond every size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockSpan {
    /// The first byte.
    pub first: u64,
    /// The last byte, not before the first.
    pub last: u64,
}

impl LockSpan {
    /// All there is.
    pub const ALL: Self = Self {
        first: 0,
        last: u64::MAX,
    };

    /// Whether they have a byte in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Whose a lock is, as the kernel of a mount names it: a process, or an open file description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockOwner(pub u64);

/// A session's number of one request for a lock, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockTicket(pub u64);

/// How long what lock server and session know of each other's locks holds: until the lock server is started anew, or the
/// session tells it anew. Never used twice; a later one has a greater number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockEpoch(pub u64);

impl LockEpoch {
    /// None that there ever was.
    pub const UNKNOWN: Self = Self(0);
}

impl fmt::Display for LockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// What is wanted of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockWant {
    /// A lock, now or not at all.
    Try(LockMode),
    /// A lock, however long it takes.
    Wait(LockMode),
    /// To know who is in the way of a lock.
    Test(LockMode),
    /// None of the owner's locks any more.
    Unlock,
    /// Nothing; a descriptor of the open file was closed, and if that was the last one, the kernel will say so
    /// in a moment. Of whole-file locks.
    Ending,
}

/// One request for a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockAsk {
    /// On what.
    pub file: LockFile,
    /// Of which family.
    pub kind: LockKind,
    /// For whom.
    pub owner: LockOwner,
    /// The process that asks, to be shown to others.
    pub pid: u32,
    /// Which bytes.
    pub span: LockSpan,
    /// What.
    pub want: LockWant,
    /// By which it can be cancelled, and by which its [`LockEvent`] names it.
    pub ticket: LockTicket,
}

/// A lock that is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockConflict {
    /// Whose mount it is.
    pub session: SessionId,
    /// The process there.
    pub pid: u32,
    /// Its bytes.
    pub span: LockSpan,
    /// Its mode.
    pub mode: LockMode,
}

/// How a request for a lock came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockOutcome {
    /// Locked, or unlocked, as it was wanted.
    Done,
    /// Somebody is in the way.
    Held(LockConflict),
    /// Nobody is in the way (of [`LockWant::Test`]).
    Free,
    /// Waiting for it would never end: who is in the way waits for the owner.
    Deadlock,
    /// The session has as many locks as it may have.
    TooMany,
    /// It waits on, only that a whole-file lock of another mode that the owner had is gone.
    Waits,
}

/// Reply of [`super::Op::Lock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockReply {
    /// It is decided.
    Decided {
        /// How.
        outcome: LockOutcome,
        /// Number of the change of the session's locks that this was; none where nothing changed.
        change: Option<u64>,
    },
    /// It is queued: a [`LockEvent`] will tell. A whole-file lock of another mode that the owner had is
    /// gone meanwhile: that is the change.
    Queued {
        /// As in `Decided`.
        change: Option<u64>,
    },
    /// Nothing was done: it was asked in another epoch. The lock server wants to be told of the session's locks
    /// ([`super::Op::ReclaimLocks`]) first.
    Reclaim,
}

/// A queued request is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockEvent {
    /// Counts the session's events, from 1.
    pub number: u64,
    /// Of which request.
    pub ticket: LockTicket,
    /// How.
    pub outcome: LockOutcome,
    /// As in [`LockReply::Decided`].
    pub change: Option<u64>,
}

/// Reply of [`super::Op::LockEvents`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockNews {
    /// What came after the events that the caller has; nothing when the time was over.
    Events(Vec<LockEvent>),
    /// As [`LockReply::Reclaim`].
    Reclaim,
}

/// Of the locks that an owner had on a file, as its session told its lock server, those that are less now: others
/// have got what goes against them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostLocks {
    /// On what.
    pub file: LockFile,
    /// Of which family.
    pub kind: LockKind,
    /// Whose.
    pub owner: LockOwner,
    /// Which bytes, and what the owner still has there.
    pub spans: Vec<(LockSpan, Option<LockMode>)>,
}

/// All locks of one owner on one file, as a session tells its lock server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLocks {
    /// On what.
    pub file: LockFile,
    /// Of which family.
    pub kind: LockKind,
    /// Whose.
    pub owner: LockOwner,
    /// The process that has asked for them.
    pub pid: u32,
    /// Which bytes, and how.
    pub spans: Vec<(LockSpan, LockMode)>,
}
