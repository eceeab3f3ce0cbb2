//! Wire types of rights: requests of a mount to its lock server, grants, recalls, returns.
//!
//! `docs/decisions/13-rights.md` and [`crate::rights`] describe their meaning.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use slabfs_model::{BoxSet, MAX_RANK, Region, Unfit};

use super::bounded;
use super::channel::{Event, News};
use super::error::MdError;
use super::reply::Entry;
use super::types::{Ino, Time};

/// An epoch of rights lasts until the session resets its rights.
pub use super::channel::Epoch as RightsEpoch;

/// Most boxes of one [`RightArea`].
pub const MAX_RIGHT_BOXES: usize = 64;
/// Most areas in one [`super::op::GiveRights`].
pub const MAX_RIGHT_GIVES: usize = 1024;
/// Most areas in one [`super::op::ResetRights`].
pub const MAX_RIGHTS_HELD: usize = 1024;

/// How long a session may cache entries of a directory, from the time of its request; the lock server allows for
/// more.
pub const NAMES_CACHED_FOR: Duration = Duration::from_secs(50);

/// What a right permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RightMode {
    /// Cache what was read.
    Read,
    /// Also buffer writes.
    Write,
}

/// Cells of an object, in any order and overlapping or not.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RightArea {
    /// All cells, of any rank, also beyond every size.
    All,
    /// Boxes, in cells; an end of `u64::MAX` is beyond every size.
    Boxes(#[serde(deserialize_with = "bounded::list::<_, _, { MAX_RIGHT_BOXES }>")] Vec<Region>),
}

impl RightArea {
    /// The cells.
    ///
    /// # Errors
    /// `Invalid` if its boxes have no rank or different ranks, or cut each other into too many boxes.
    pub fn cells(&self) -> Result<BoxSet, MdError> {
        let RightArea::Boxes(boxes) = self else {
            return Ok(BoxSet::All);
        };
        let rank = boxes.first().map_or(1, Region::rank);
        let fits = |one: &Region| one.shape.len() == rank && one.offset.len() == rank;
        if rank == 0 || rank > MAX_RANK || boxes.len() > MAX_RIGHT_BOXES || !boxes.iter().all(fits)
        {
            return Err(MdError::Invalid(
                "the boxes of an area have one rank, from 1 on".into(),
            ));
        }
        BoxSet::try_of(boxes).map_err(|Unfit| {
            MdError::Invalid("the boxes of an area cut each other into too many".into())
        })
    }

    /// Cells in as many areas as it takes; none if there are no cells.
    pub fn of(cells: &BoxSet) -> Vec<RightArea> {
        match cells {
            BoxSet::All => vec![RightArea::All],
            BoxSet::Boxes(boxes) => boxes
                .chunks(MAX_RIGHT_BOXES)
                .map(|part| RightArea::Boxes(part.to_vec()))
                .collect(),
        }
    }
}

/// The cells, for a session, which trusts its lock server.
impl From<&RightArea> for BoxSet {
    fn from(area: &RightArea) -> BoxSet {
        match area {
            RightArea::All => BoxSet::All,
            RightArea::Boxes(boxes) => BoxSet::of(boxes.iter().cloned()),
        }
    }
}

/// The beginning of an epoch of a session's rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RightsBegun {
    /// The epoch.
    pub epoch: RightsEpoch,
    /// There is no other strict session: as long as this epoch lasts, no right has to be requested.
    pub alone: bool,
}

/// A session's number of one request for a right, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RightTicket(pub u64);

/// Counts the grants of a session, without a gap, from 1 in each epoch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub struct RightSerial(pub u64);

/// A request for a right.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RightAsk {
    /// Object.
    pub ino: Ino,
    /// The mode.
    pub mode: RightMode,
    /// The cells.
    pub area: RightArea,
    /// Named by its [`RightGrant`].
    pub ticket: RightTicket,
}

/// A right that the session holds from now on, in addition to those it held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RightGrant {
    /// The request.
    pub ticket: RightTicket,
    /// Its number.
    pub serial: RightSerial,
    /// The mode.
    pub mode: RightMode,
    /// The cells: at least those requested.
    pub area: RightArea,
    /// The object as it was committed when the right was granted.
    pub entry: Entry,
}

/// Reply of [`super::op::AskRight`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RightReply {
    /// Granted.
    Granted(RightGrant),
    /// It waits; an event follows.
    Queued,
    /// Nothing was done: the request was for an epoch that is over.
    Reset,
}

/// A recall: what a holder has to return.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RightRecall {
    /// Object.
    pub ino: Ino,
    /// The last grant of this object to the session.
    pub serial: RightSerial,
    /// The mode that may stay.
    pub keep: Option<RightMode>,
    /// The cells.
    pub area: RightArea,
}

/// An event from the lock server to a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RightEventKind {
    /// A queued request is granted.
    Granted(RightGrant),
    /// The object of a queued request is gone.
    Refused(RightTicket),
    /// Another session requests a conflicting right.
    Recall(RightRecall),
    /// A size query: another session needs size and time of the object; answered by [`super::op::ReportSize`].
    Size {
        /// Object.
        ino: Ino,
        /// Named in the answer.
        question: u64,
    },
    /// Another session changes directories: cached entries of them have to be dropped, and that acknowledged by
    /// [`super::op::ReportForgotten`].
    Names {
        /// The directories.
        inos: Vec<Ino>,
        /// Named in the acknowledgement.
        change: u64,
    },
}

/// An event about rights.
pub type RightEvent = Event<RightEventKind>;

/// Reply of [`super::op::RightEvents`]. Before the next epoch the session has to give up everything except what running
/// operations need, and then to reset its rights ([`super::op::ResetRights`]).
pub type RightNews = News<RightEventKind>;

/// What a session returns.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RightGive {
    /// Object.
    pub ino: Ino,
    /// The last grant that was processed, after all before it, when the area was removed. Later grants are not
    /// returned by this, even if they arrived earlier or it arrives before them.
    pub serial: RightSerial,
    /// The mode that stays.
    pub keep: Option<RightMode>,
    /// The cells.
    pub area: RightArea,
}

/// A right that a session retains in its next epoch: it held it in the previous one, and an operation uses it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RightHeld {
    /// Object.
    pub ino: Ino,
    /// The mode.
    pub mode: RightMode,
    /// The cells.
    pub area: RightArea,
}

/// The unflushed writes of a session, as far as they show in an object's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unflushed {
    /// Least size of the object in bytes.
    pub size: u64,
    /// Time of the last write.
    pub mtime: Option<Time>,
}

/// Reply of [`super::op::Look`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// The target of the name, if it exists.
    pub found: Option<Entry>,
    /// Whether the session may cache that, until a [`RightEventKind::Names`] for the directory.
    pub keep_name: bool,
    /// Whether it may cache the attributes of the result, which is then a directory.
    pub keep_attributes: bool,
}
