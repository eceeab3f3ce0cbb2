//! Rights, as they travel: what a mount asks its lock server, what it is asked, what it gives back.
//!
//! What they mean is told in `docs/decisions/rights.md` and in [`crate::rights`].

use std::time::Duration;

use serde::{Deserialize, Serialize};
use slabfs_model::Region;

use super::bounded;
use super::reply::Entry;
use super::types::{Ino, Time};

/// Most boxes of one [`RightArea`].
pub const MAX_RIGHT_BOXES: usize = 64;
/// Most areas in one [`super::Op::GiveRights`].
pub const MAX_RIGHT_GIVES: usize = 1024;
/// Most areas in one [`super::Op::ResetRights`].
pub const MAX_RIGHTS_KEPT: usize = 1024;

/// How long a session keeps what it may keep of a directory, from when it asked; the lock server reckons with more.
pub const NAMES_CACHED_FOR: Duration = Duration::from_secs(50);

/// What a right lets a mount do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RightMode {
    /// Keep what it has read.
    Read,
    /// And buffer what is written.
    Write,
}

/// Cells of an object, in any order and overlapping or not.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RightArea {
    /// All, of whatever rank, also beyond every size.
    All,
    /// Boxes, in cells; an end of `u64::MAX` is beyond every size.
    Boxes(#[serde(deserialize_with = "bounded::list::<_, _, { MAX_RIGHT_BOXES }>")] Vec<Region>),
}

/// How long what lock server and session know of each other's rights holds. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RightsEpoch(pub u64);

impl RightsEpoch {
    /// None that there ever was: the session has to reset.
    pub const UNKNOWN: Self = Self(0);
}

/// An epoch of a session's rights, as it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RightsBegun {
    /// Which.
    pub epoch: RightsEpoch,
    /// No other strict session is there: nothing has to be asked for as long as this epoch lasts.
    pub alone: bool,
}

/// A session's number of one ask, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RightTicket(pub u64);

/// Counts the grants of a session, without a gap, from 1 in each epoch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub struct RightSerial(pub u64);

/// One ask.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RightAsk {
    /// Object.
    pub ino: Ino,
    /// What for.
    pub mode: RightMode,
    /// Of which cells.
    pub area: RightArea,
    /// By which its [`RightGrant`] names it.
    pub ticket: RightTicket,
}

/// A right that the session has from now on, beside what it had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RightGrant {
    /// Of which ask.
    pub ticket: RightTicket,
    /// Its number.
    pub serial: RightSerial,
    /// What for.
    pub mode: RightMode,
    /// Of which cells: at least those that were asked for.
    pub area: RightArea,
    /// The object as it was committed when the right was granted.
    pub entry: Entry,
}

/// Reply of [`super::Op::AskRight`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RightReply {
    /// It has it.
    Granted(RightGrant),
    /// It waits: an event will tell.
    Queued,
    /// Nothing was done: it was asked in an epoch that is over.
    Reset,
}

/// What a holder is to give.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RightRecall {
    /// Object.
    pub ino: Ino,
    /// The last grant of this object to the session.
    pub serial: RightSerial,
    /// What may stay.
    pub keep: Option<RightMode>,
    /// Of which cells.
    pub area: RightArea,
}

/// What a session hears from its lock server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RightEventKind {
    /// A queued ask is granted.
    Granted(RightGrant),
    /// The object of a queued ask is gone.
    Refused(RightTicket),
    /// Somebody else wants something.
    Recall(RightRecall),
    /// Somebody else wants to know size and time of an object, by [`super::Op::TellSize`].
    Size {
        /// Object.
        ino: Ino,
        /// To be named in the answer.
        question: u64,
    },
    /// Somebody else changes directories: what is kept of them is forgotten, and then said so by
    /// [`super::Op::TellForgot`].
    Names {
        /// The directories.
        inos: Vec<Ino>,
        /// To be named in the answer.
        change: u64,
    },
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RightEvent {
    /// Counts the session's events, from 1.
    pub number: u64,
    /// What.
    pub kind: RightEventKind,
}

/// Reply of [`super::Op::RightEvents`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RightNews {
    /// What came after the events that the caller has; nothing when the time was over.
    Events(Vec<RightEvent>),
    /// The epoch is over: the session has to give up everything but what it needs for what still runs, and then
    /// say so ([`super::Op::ResetRights`]).
    Reset,
}

/// What a session gives back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RightGive {
    /// Object.
    pub ino: Ino,
    /// The last grant that was counted in when the area was taken out, after all before it. What later ones
    /// grant is not given by this, though they overtook it or it overtakes them.
    pub serial: RightSerial,
    /// What stays of it.
    pub keep: Option<RightMode>,
    /// Of which cells.
    pub area: RightArea,
}

/// What a session takes along into its next epoch: it had a right to it in the one that is over, and something runs
/// there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RightHeld {
    /// Object.
    pub ino: Ino,
    /// What it may do.
    pub mode: RightMode,
    /// With which cells.
    pub area: RightArea,
}

/// What a session has written and not flushed, as far as it shows in an object's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unflushed {
    /// Bytes the object has at least.
    pub size: u64,
    /// When it was written.
    pub mtime: Option<Time>,
}

/// Reply of [`super::Op::Look`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// What has the name, if anything.
    pub found: Option<Entry>,
    /// Whether the session may keep that, until it hears [`RightEventKind::Names`] of the directory.
    pub keep_name: bool,
    /// Whether it may keep the attributes of what was found, which is a directory then.
    pub keep_attributes: bool,
}
