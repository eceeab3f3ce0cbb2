//! Wire types of advisory locks: requests of a mount to its lock server, replies and events.
//!
//! [`crate::locks`] describes their meaning.

use serde::{Deserialize, Serialize};
use slabfs_model::{Selection, SessionId};
use std::fmt;

use super::channel::{Event, News};
use super::types::Ino;

/// An epoch of locks lasts until the lock server restarts, or the session reclaims its locks.
pub use super::channel::Epoch as LockEpoch;
/// Bytes of a file; the last may be beyond every size.
pub use slabfs_model::Span as LockSpan;

/// The target of a lock: an object, or a selection of one. To programs each is a file of its own, with bytes counted
/// from its own beginning, so their locks do not conflict.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockFile {
    /// The object.
    pub ino: Ino,
    /// The selection of it; `None` for the object itself.
    pub selection: Option<Selection>,
}

/// The two families of locks, which do not conflict with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LockKind {
    /// Of byte ranges: `fcntl`, of a process or of an open file description.
    Record,
    /// Of the entire file: `flock`.
    File,
}

/// Compatibility of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockMode {
    /// Compatible with other shared locks.
    Shared,
    /// Compatible with none.
    Exclusive,
}

/// The owner of a lock, as named by the kernel of a mount: a process, or an open file description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockOwner(pub u64);

/// A session's number of one lock request, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockTicket(pub u64);

impl fmt::Display for LockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockWant {
    /// A lock, without waiting.
    Try(LockMode),
    /// A lock, waiting as long as it takes.
    Wait(LockMode),
    /// Returns the lock that conflicts.
    Test(LockMode),
    /// Releases the owner's locks.
    Unlock,
    /// Requests nothing: reports that a descriptor of the open file was closed; if it was the last one, the kernel
    /// releases the lock in a moment. For `flock` locks.
    Ending,
}

/// One request for a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockAsk {
    /// The file.
    pub file: LockFile,
    /// The family.
    pub kind: LockKind,
    /// The owner.
    pub owner: LockOwner,
    /// The requesting process, shown to others.
    pub pid: u32,
    /// The bytes.
    pub span: LockSpan,
    /// The kind of the request.
    pub want: LockWant,
    /// Used to cancel it, and by its [`LockEvent`].
    pub ticket: LockTicket,
}

/// A conflicting lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockConflict {
    /// The session of its mount.
    pub session: SessionId,
    /// The process there.
    pub pid: u32,
    /// Its bytes.
    pub span: LockSpan,
    /// Its mode.
    pub mode: LockMode,
}

/// The outcome of a lock request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockOutcome {
    /// Locked or unlocked as requested.
    Done,
    /// Refused: a conflicting lock is held.
    Held(LockConflict),
    /// No lock conflicts (for [`LockWant::Test`]).
    Free,
    /// Refused: waiting would never end, since the holder of the conflicting lock waits for the owner.
    Deadlock,
    /// The session has as many locks as it may have.
    TooMany,
    /// Still waiting, but a `flock` lock of another mode that the owner held is released.
    Waits,
}

/// Reply of [`super::op::Lock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockReply {
    /// Answered at once.
    Decided {
        /// The outcome.
        outcome: LockOutcome,
        /// Number of this change of the session's locks; `None` if nothing changed.
        change: Option<u64>,
    },
    /// It is queued: a [`LockEvent`] follows. `change`: a `flock` lock of another mode that the owner held is
    /// released.
    Queued {
        /// As in `Decided`.
        change: Option<u64>,
    },
    /// Nothing was done: the request was for another epoch. The session has to reclaim its locks first
    /// ([`super::op::ReclaimLocks`]).
    Reclaim,
}

/// A queued request is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockDecision {
    /// The request.
    pub ticket: LockTicket,
    /// The outcome.
    pub outcome: LockOutcome,
    /// As in [`LockReply::Decided`].
    pub change: Option<u64>,
}

/// An event about locks.
pub type LockEvent = Event<LockDecision>;

/// Reply of [`super::op::LockEvents`]. In the next epoch the session has to reclaim its locks, as with
/// [`LockReply::Reclaim`].
pub type LockNews = News<LockDecision>;

/// Reply of [`super::op::ReclaimLocks`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocksReclaimed {
    /// The parts of them that the session does not hold any more: others hold conflicting locks.
    pub lost: Vec<LostLocks>,
    /// The epoch that begins with the last call.
    pub epoch: LockEpoch,
}

/// The parts of an owner's reclaimed locks on a file that the session has lost, because others hold conflicting
/// locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostLocks {
    /// The file.
    pub file: LockFile,
    /// The family.
    pub kind: LockKind,
    /// The owner.
    pub owner: LockOwner,
    /// The bytes, and the mode that the owner still has there.
    pub spans: Vec<(LockSpan, Option<LockMode>)>,
}

/// All locks of one owner on one file, as reclaimed by its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLocks {
    /// The file.
    pub file: LockFile,
    /// The family.
    pub kind: LockKind,
    /// The owner.
    pub owner: LockOwner,
    /// The process that requested them.
    pub pid: u32,
    /// The bytes and modes.
    pub spans: Vec<(LockSpan, LockMode)>,
}

/// Most locks in one [`LockList`].
pub const MAX_LOCK_ROWS: usize = 4096;

/// Reply of [`super::op::Locks`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LockList {
    /// At most [`MAX_LOCK_ROWS`], half of which are held and half wait: by file, those held before those that wait, and these in the order in which they
    /// are served.
    pub locks: Vec<LockRow>,
    /// Number of those left out.
    pub left: u64,
}

/// A lock that is held, or waited for, as shown to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRow {
    /// The file.
    pub file: LockFile,
    /// One of its paths; `None` if it has none, or the caller could not list it.
    pub path: Option<Vec<u8>>,
    /// The family.
    pub kind: LockKind,
    /// The machine of its mount.
    pub host: String,
    /// The session of its mount.
    pub session: SessionId,
    /// The owner there.
    pub owner: LockOwner,
    /// The process that requested it last.
    pub pid: u32,
    /// Its bytes.
    pub span: LockSpan,
    /// Its mode.
    pub mode: LockMode,
    /// It is not held: the request waits.
    pub waits: bool,
    /// Milliseconds since it was requested; of several locks of an owner on a file, since the first.
    pub for_ms: u64,
}
