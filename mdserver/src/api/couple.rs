//! Wire types of coupled objects: opens, matches, status. [`crate::matcher`] describes their meaning.

use serde::{Deserialize, Serialize};
use slabfs_model::{MAX_RANK, Region, ServerId, SessionId, Version};

use super::bounded;
use super::error::MdError;
use super::reply::Entry;
use super::tiling::TilingReply;
use super::types::Ino;

/// Most boxes of a match.
pub const MAX_MATCH_BOXES: usize = 256;
/// Most coupled objects that a session has open, and most writers of one.
pub const MAX_COUPLED_OPENS: usize = 65_536;

/// Most objects that a session watches.
pub const MAX_WATCHED: usize = 256;

/// A coupled object that a session has open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoupledOpen {
    /// The object.
    pub ino: Ino,
    /// One for each time it is open for writing: the thread that wrote last, or 0 if none has.
    #[serde(deserialize_with = "bounded::list::<_, _, { MAX_COUPLED_OPENS }>")]
    pub writers: Vec<u32>,
    /// How many times it is open for reading only.
    pub readers: u32,
    /// The first row that those may still read.
    pub from: u64,
}

/// The outcome of a match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// All cells are written.
    Covered,
    /// No more data comes: what is not written reads as fill, and the object ends where its size says.
    Ended,
    /// These cells are not written yet, or some of them if there are many.
    Waits(Vec<Region>),
    /// Cells were written, and the mounts that had them in memory are gone.
    Lost(Vec<ServerId>),
    /// The object is not coupled any more.
    NotCoupled,
    /// The cells are not written, and all programs that could write them wait for the reader.
    Deadlock,
}

/// Reply of [`super::op::Match`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matched {
    /// The outcome.
    pub outcome: Outcome,
    /// The object.
    pub entry: Entry,
    /// Its tiling, as far as the caller does not have it; `None` if it does not fit into this reply.
    pub tiling: Option<TilingReply>,
}

/// A coupled object that a session watches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watching {
    /// The object.
    pub ino: Ino,
    /// The version of the tiling that the session has.
    pub known: Version,
    /// Whether the session knows that no more data comes.
    pub ended: bool,
}

/// What is new of an object that a session watches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Whether no more data comes.
    pub ended: bool,
    /// The object.
    pub entry: Entry,
    /// Its tiling, as far as the session does not have it; `None` if it does not fit into a reply.
    pub tiling: Option<TilingReply>,
}

/// Reply of [`super::op::AwaitName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameWait {
    /// The name exists.
    Found,
    /// No object of this name would be coupled.
    NotCoupled,
    /// There is no such name yet.
    Missing {
        /// How long to wait for it in all, in milliseconds.
        timeout_ms: u64,
    },
}

/// Reply of [`super::op::AwaitRoom`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Whether the queue has room for the rows.
    pub granted: bool,
    /// The rows in front of this one are not in the queue any more when they are written.
    pub first: u64,
}

/// A session that has a coupled object open, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoupledSession {
    /// The session.
    pub session: SessionId,
    /// Its machine.
    pub host: String,
    /// What it has open.
    pub open: CoupledOpen,
}

/// A read that waits, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingRead {
    /// The session.
    pub session: SessionId,
    /// The thread that reads.
    pub pid: u32,
    /// The cells that it reads.
    pub cells: Vec<Region>,
    /// Those of them that are not written.
    pub missing: Vec<Region>,
    /// Milliseconds since it began to wait.
    pub for_ms: u64,
}

/// Reply of [`super::op::CoupleStatus`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoupleStatus {
    /// The object.
    pub entry: Entry,
    /// Its matchers.
    pub matchers: u32,
    /// Whether no more data comes.
    pub ended: bool,
    /// Who has it open.
    pub opens: Vec<CoupledSession>,
    /// The reads that wait, oldest first.
    pub reads: Vec<WaitingRead>,
}

/// Checks the boxes of a match.
///
/// # Errors
/// `Invalid` if they have no rank, or different ones.
pub fn check_boxes(cells: &[Region]) -> Result<(), MdError> {
    let rank = cells.first().map_or(1, Region::rank);
    let fits = |one: &Region| {
        let ends = one.offset.iter().zip(&one.shape);
        one.offset.len() == rank
            && one.shape.len() == rank
            && ends
                .into_iter()
                .all(|(at, len)| at.checked_add(*len).is_some())
    };
    if rank == 0 || rank > MAX_RANK || cells.len() > MAX_MATCH_BOXES || !cells.iter().all(fits) {
        return Err(MdError::Invalid(
            "the boxes of a match have one rank, from 1 on, and ends below 2^64".into(),
        ));
    }
    Ok(())
}
