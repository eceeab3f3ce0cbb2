//! What mounts ask of data servers, and what these answer.
//!
//! One kind a message. The control part is the postcard form of the struct named with the kind;
//! payloads are packed cells, one piece after the other. All requests are idempotent: the pool sends
//! one again when its reply is lost. Senders serialize the borrowing twins (`ReadItem<&..>`), which
//! have the same bytes as what receivers read.

use serde::{Deserialize, Serialize};
use slabfs_model::{Coords, Hyperslab, ObjectId};

use crate::{
    error::StoreError,
    name::{ChunkForm, ChunkName},
    store::Space,
};

/// Kinds of requests to a data server.
pub mod kind {
    /// [`super::ReadItem`]s; answered by [`super::ReadReply`] and the cells of those found.
    pub const READ: u16 = 0x0101;
    /// [`super::WriteItem`]s and their cells; answered by [`super::Outcome`].
    pub const WRITE: u16 = 0x0102;
    /// [`super::SealItem`]s; answered by [`super::Outcome`].
    pub const SEAL: u16 = 0x0103;
    /// [`super::ClipItem`]s; answered by [`super::Outcome`].
    pub const CLIP: u16 = 0x0104;
    /// [`super::PunchItem`]s; answered by [`super::Outcome`].
    pub const PUNCH: u16 = 0x0105;
    /// Chunk names to delete; answered by [`super::Outcome`].
    pub const DELETE: u16 = 0x0106;
    /// [`super::Wipe`]: grid chunks of an object; answered by [`super::Outcome`].
    pub const WIPE: u16 = 0x0107;
    /// Chunk names that are to survive the loss of power; answered by [`super::Outcome`].
    pub const SYNC: u16 = 0x0108;
    /// Nothing; answered by [`super::Answer`] of [`crate::store::Space`].
    pub const SPACE: u16 = 0x0109;
    /// A chunk name; all of it is read and checked; answered by [`super::Outcome`].
    pub const VERIFY: u16 = 0x010a;
    /// [`super::ListQuery`]; answered by [`super::Answer`] of [`super::Listing`].
    pub const LIST: u16 = 0x010b;
}

/// One piece of a read: these cells of this chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadItem<N = ChunkName, F = ChunkForm, S = Hyperslab> {
    /// The chunk.
    pub name: N,
    /// Its form.
    pub form: F,
    /// The cells, in the chunk's coordinates.
    pub slab: S,
}

/// What became of each piece of a read; the payload holds the cells of those found, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadReply {
    /// One a piece.
    pub pieces: Vec<Found>,
}

/// What became of one piece of a read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// Its cells are in the payload.
    Yes,
    /// There is no such chunk; nothing in the payload.
    No,
    /// It could not be read; nothing in the payload.
    Failed(StoreError),
}

/// How the cells of a write enter a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteOp<S = Hyperslab> {
    /// A whole immutable chunk.
    Put,
    /// More bytes of an unsealed chunk.
    Append {
        /// The packed offset.
        at: u64,
    },
    /// Cells of a grid chunk, in place.
    Write(S),
}

/// One piece of a write; its cells are in the payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteItem<N = ChunkName, F = ChunkForm, S = Hyperslab> {
    /// The chunk.
    pub name: N,
    /// Its form.
    pub form: F,
    /// How.
    pub op: WriteOp<S>,
    /// How many bytes of the payload are this piece's.
    pub bytes: u64,
}

/// A chunk to seal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealItem<N = ChunkName, F = ChunkForm> {
    /// The chunk.
    pub name: N,
    /// Its final form.
    pub form: F,
}

/// A grid chunk of which all cells from `keep` on, on any axis, become fill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClipItem<N = ChunkName, F = ChunkForm, K = Coords> {
    /// The chunk.
    pub name: N,
    /// Its form.
    pub form: F,
    /// The first cell that goes, an axis.
    pub keep: K,
}

/// Cells of a grid chunk that become fill. The same bytes as a [`ReadItem`].
pub type PunchItem<N = ChunkName, F = ChunkForm, S = Hyperslab> = ReadItem<N, F, S>;

/// Grid chunks to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wipe {
    /// Whose.
    pub object: ObjectId,
    /// Only generations below this one; all where there is none.
    pub below: Option<u32>,
}

/// Asks for the chunks behind `after`, in the order of names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListQuery {
    /// The last name of the page before.
    pub after: Option<ChunkName>,
    /// At most so many; the server may give fewer.
    pub limit: u32,
}

/// Chunks and the bytes each takes.
pub type Listing = Vec<(ChunkName, u64)>;

/// The answer to a request that gives back a value.
pub type Answer<T> = Result<T, StoreError>;

/// The answer to [`kind::SPACE`].
pub type SpaceAnswer = Answer<Space>;

/// The answer to a request that changes something: how many of its items were done, and what stopped
/// it at the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Items done, from the first on.
    pub done: u64,
    /// Why the next one was not.
    pub failed: Option<StoreError>,
}
