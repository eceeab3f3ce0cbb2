//! The messages between mounts and data servers.
//!
//! One kind a message. The control part is the postcard form of the struct named with the kind; payloads are packed
//! cells, one piece after the other. All requests are idempotent: the pool sends one again when its reply is lost.
//! Senders serialize variants that borrow (`ReadItem<&..>`, `client::SealPiece`), which have the same encoding as the
//! owned types that receivers decode.
//!
//! Requests that may change grid chunks carry their session before their items, see [`BySession`].

use serde::{Deserialize, Deserializer, Serialize};
use slabfs_model::batch::{Flat, decode_bounded};
use slabfs_model::{Coords, Hyperslab, ObjectId, SessionId};

use crate::{
    error::StoreError,
    name::{ChunkForm, ChunkName},
    store::{MemoryPlace, Place, Space},
};

/// Kinds of requests to a data server.
pub mod kind {
    /// [`super::ReadItem`]s; answered by [`super::ReadReply`] and the cells of those found.
    pub const READ: u16 = 0x0101;
    /// [`super::BySession`] a session, [`super::WriteItem`]s, and their cells; answered by [`super::Outcome`].
    pub const WRITE: u16 = 0x0102;
    /// [`super::SealItem`]s; answered by [`super::Outcome`].
    pub const SEAL: u16 = 0x0103;
    /// [`super::BySession`] a session, [`super::ClipItem`]s; answered by [`super::Outcome`].
    pub const CLIP: u16 = 0x0104;
    /// [`super::BySession`] a session, [`super::PunchItem`]s; answered by [`super::Outcome`].
    pub const PUNCH: u16 = 0x0105;
    /// [`super::BySession`] a session, chunk names to delete; answered by [`super::Outcome`].
    pub const DELETE: u16 = 0x0106;
    /// [`super::BySession`] a session, [`super::Wipe`]s: grid chunks of objects; answered by [`super::Outcome`].
    pub const WIPE: u16 = 0x0107;
    /// Chunk names to make durable; answered by [`super::Outcome`].
    pub const SYNC: u16 = 0x0108;
    /// Nothing; answered by [`super::Answer`] of [`crate::store::Space`].
    pub const SPACE: u16 = 0x0109;
    /// A chunk name; all of it is read and checked; answered by [`super::Outcome`].
    pub const VERIFY: u16 = 0x010a;
    /// [`super::ListQuery`]; answered by [`super::Answer`] of [`super::Listing`].
    pub const LIST: u16 = 0x010b;
    /// [`super::BatchRequests`]; answered by [`super::Answer`] of one [`super::BatchFound`] a request, and the bytes
    /// of the chunks that exist, request by request, followed by a trailer that reports whether they could be read.
    pub const READ_BATCH: u16 = 0x010e;
    /// [`super::BySession`] a session, [`super::BatchWrites`], and their bytes; answered by [`super::Outcome`].
    pub const WRITE_BATCH: u16 = 0x010f;
    /// [`super::BlankItem`]s: chunks that the client wants to write to files; answered by [`super::Answer`] of
    /// [`super::Blanks`], with a file descriptor for each. If it is empty, they have to be sent.
    pub const BLANKS: u16 = 0x0110;
    /// After BLANKS on the same connection: [`super::FilledItem`]s, for all of the chunks or for none; answered by
    /// [`super::Outcome`].
    pub const FILLED: u16 = 0x0111;
    /// [`super::SameHostAsk`]; answered by [`super::Answer`] of [`super::SameHostFiles`], with a file descriptor for each
    /// chunk that has a file, or those of the server's memory.
    pub const SAME_HOST_FILES: u16 = 0x0112;
    /// [`super::AllocatedItem`]s; answered by [`super::Answer`] of one [`crate::store::Allocated`] each.
    pub const ALLOCATED: u16 = 0x0113;
    /// The name of a free chunk; answered by [`super::Answer`] of whether it is stored encoded, and then its stored
    /// bytes.
    pub const READ_ENCODED: u16 = 0x0114;
}

/// A request and the session it comes from. A change of grid chunks is refused when the session is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BySession<T> {
    /// The session; 0 for none.
    pub session: SessionId,
    /// The client's connection epoch: how many connections to this server it has lost with an unanswered request on
    /// them. A change of grid chunks is refused when the server has seen a higher epoch of the session.
    pub epoch: u64,
    /// The request.
    pub items: T,
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

/// A chunk, and the byte from which on its first allocated data is searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedItem<N = ChunkName> {
    /// The chunk.
    pub name: N,
    /// The byte.
    pub from: u64,
}

/// A batch, and the parts of chunks that have its bytes. Bytes go item by item; within an item row by row of its
/// slab, or piece by piece, in the order of the batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRequest<B = Flat, C = Coords, I = Vec<BatchItem>> {
    /// The object side of the batch.
    pub batch: B,
    /// The object's dims, the last in bytes.
    pub cells: C,
    /// The selected range of the batch's packed bytes: from, and up to.
    pub packed: (u64, u64),
    /// The parts of chunks.
    pub items: I,
}

/// The batches of one message, decoded with at most [`MAX_NODES`](slabfs_model::batch::MAX_NODES) nodes in all: many
/// requests cost no more memory than one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchRequests(#[serde(deserialize_with = "batches")] pub Vec<BatchRequest>);

fn batches<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<BatchRequest>, D::Error> {
    decode_bounded(deserializer, |request: &BatchRequest| {
        request.batch.nodes.len()
    })
}

/// The result of a read for one batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchFound {
    /// For each item, whether its chunk exists.
    pub found: Vec<bool>,
    /// How many bytes of the payload are this batch's.
    pub bytes: u64,
}

/// Complete immutable chunks, followed by batches whose bytes are written to grid chunks in place; the bytes in the
/// payload have the same order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchWrites<P = Vec<WriteItem>, B = BatchRequests> {
    /// The chunks.
    pub puts: P,
    /// The batches.
    pub batches: B,
}

/// A part of a chunk that a batch selects from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchItem<N = ChunkName, F = ChunkForm, S = Hyperslab> {
    /// The chunk.
    pub name: N,
    /// Its form.
    pub form: F,
    /// Its cells, in the object's coordinates.
    pub want: S,
    /// The same cells in the chunk's coordinates.
    pub slab: S,
    /// Whether bytes go piece by piece of the batch instead of row by row of the slab.
    pub by_pieces: bool,
}

/// The result of each piece of a read; the payload holds the cells of those found, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadReply {
    /// One for each piece.
    pub pieces: Vec<Found>,
    /// The bytes are sent while they are read. After them come the number of the first piece that could not be read
    /// (u32), and a trailer with the error, as for batches. From the failed piece on the bytes are zeros.
    pub status_follows: bool,
}

impl ReadReply {
    /// The reply to a read that was done before the reply began.
    pub fn before(pieces: Vec<Found>) -> ReadReply {
        ReadReply {
            pieces,
            status_follows: false,
        }
    }
}

/// The result of one piece of a read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// Its cells are in the payload.
    Yes,
    /// There is no such chunk; no bytes in the payload.
    No,
    /// It could not be read; no bytes in the payload.
    Failed(StoreError),
}

/// How the cells of a write enter a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteOp<S = Hyperslab> {
    /// A complete immutable chunk.
    Put,
    /// More bytes of an unsealed chunk.
    Append {
        /// The packed offset.
        at: u64,
    },
    /// Cells of a grid chunk, in place.
    Write(S),
    /// A complete immutable chunk that is encoded already.
    PutEncoded,
}

/// A complete free chunk that the client wants to write to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlankItem<N = ChunkName, F = ChunkForm> {
    /// The chunk.
    pub name: N,
    /// Its form.
    pub form: F,
}

/// The places of each chunk's bytes in its file, in order.
pub type Blanks = Vec<Vec<Place>>;

/// A chunk whose file has been filled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilledItem<N = ChunkName> {
    /// The chunk.
    pub name: N,
    /// The sums of its blocks of [`SUMMED`](crate::store::SUMMED) bytes; if empty, the server computes them.
    pub sums: Vec<u32>,
}

/// Chunks that a client on the same host wants to read itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameHostAsk<N = ChunkName> {
    /// The chunks.
    pub names: Vec<N>,
    /// The client has mapped the memory of this server.
    pub mapped: bool,
}

/// How a client reads a chunk itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Handed {
    /// Not at all.
    No,
    /// From its file, whose descriptor comes with the reply: the mark of the store's writers.
    File(u64),
    /// From the memory of the server.
    Memory(MemoryPlace),
}

/// The reply to [`SameHostAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameHostFiles {
    /// The first three descriptors are the memory of the server, its labels, and pins for the client.
    pub memory: bool,
    /// In the order of the request.
    pub chunks: Vec<Handed>,
}

/// One piece of a write; its cells are in the payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteItem<N = ChunkName, F = ChunkForm, S = Hyperslab> {
    /// The chunk.
    pub name: N,
    /// Its form.
    pub form: F,
    /// How its cells enter the chunk.
    pub op: WriteOp<S>,
    /// How many bytes of the payload are this piece's.
    pub bytes: u64,
}

/// A chunk to seal, and its final form. The same bytes as a [`BlankItem`].
pub type SealItem = BlankItem;

/// A grid chunk of which all cells from `keep` on, on any axis, become fill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClipItem {
    /// The chunk.
    pub name: ChunkName,
    /// Its form.
    pub form: ChunkForm,
    /// The first cell that becomes fill, for each axis.
    pub keep: Coords,
}

/// Cells of a grid chunk that become fill. The same bytes as a [`ReadItem`].
pub type PunchItem = ReadItem;

/// Grid chunks to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wipe {
    /// The object.
    pub object: ObjectId,
    /// Only generations below this one; all if `None`.
    pub below: Option<u32>,
}

/// Requests the chunks after `after`, in the order of names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListQuery {
    /// The last name of the page before.
    pub after: Option<ChunkName>,
    /// The most chunks; the server may return fewer.
    pub limit: u32,
}

/// Chunks and the bytes each occupies.
pub type Listing = Vec<(ChunkName, u64)>;

/// The answer to a request that returns a value.
pub type Answer<T> = Result<T, StoreError>;

/// The answer to [`kind::SPACE`].
pub type SpaceAnswer = Answer<Space>;

/// The answer to a request that changes something: how many items were done, and the error that stopped the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Items done, from the first on.
    pub done: u64,
    /// The error of the next one.
    pub failed: Option<StoreError>,
    /// [`ChunkStore::verifier`](crate::ChunkStore::verifier).
    pub verifier: u64,
}

#[cfg(test)]
mod tests {
    use slabfs_model::{Axis, ChunkId, Codec, Fill, ServerId};

    use super::*;

    fn hex(value: &impl Serialize) -> String {
        let bytes = postcard::to_allocvec(value).unwrap();
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// The bytes that `docs/formats/wire.md` shows. A change of them changes the protocol and needs a new version.
    #[test]
    fn the_examples_of_the_page() {
        let form = ChunkForm {
            shape: Coords::from_slice(&[3, 300]),
            elem: 4,
            codec: Codec::ShuffleZstd(3),
            fill: Fill::from_bytes(&[0, 0, 128, 63]),
        };
        let axes = [
            Axis::span(1, 2),
            Axis {
                start: 0,
                stride: 8,
                count: 5,
                block: 4,
            },
        ];
        let slab = Hyperslab {
            axes: axes.into_iter().collect(),
        };
        let item = ReadItem {
            name: &ChunkName::Free(ChunkId(200)),
            form: &form,
            slab: &slab,
        };
        assert_eq!(
            hex(&vec![item]),
            "0100c8010203ac02040406040000803f020102010200080504"
        );
        let at = Coords::from_slice(&[2, 0]);
        let name = ChunkName::Grid {
            object: ObjectId(7),
            generation: 1,
            at,
        };
        assert_eq!(hex(&name), "010701020200");
        assert_eq!(hex(&WriteOp::<Hyperslab>::Put), "00");
        assert_eq!(hex(&WriteOp::<Hyperslab>::Append { at: 3 }), "0103");
        assert_eq!(hex(&WriteOp::Write(slab)), "02020102010200080504");
        assert_eq!(
            hex(&ReadReply {
                pieces: vec![Found::Yes, Found::No],
                status_follows: true
            }),
            "02000101"
        );
        let bytes = ChunkForm {
            shape: Coords::from_slice(&[100_000]),
            elem: 1,
            codec: Codec::None,
            fill: Fill::zero(),
        };
        let blank = BlankItem {
            name: &ChunkName::Free(ChunkId(5)),
            form: &bytes,
        };
        assert_eq!(hex(&vec![blank]), "01000501a08d06010000");
        let place = Place {
            at: 8192,
            len: 100_000,
        };
        let asked = SameHostAsk {
            names: vec![ChunkName::Free(ChunkId(5))],
            mapped: false,
        };
        assert_eq!(hex(&asked), "01000500");
        let handed: Answer<SameHostFiles> = Ok(SameHostFiles {
            memory: false,
            chunks: vec![Handed::File(300)],
        });
        assert_eq!(hex(&handed), "00000101ac02");
        let places: Answer<Blanks> = Ok(vec![vec![place]]);
        assert_eq!(hex(&places), "0001018040a08d06");
        let from = BySession {
            session: SessionId(300),
            epoch: 2,
            items: vec![Wipe {
                object: ObjectId(7),
                below: None,
            }],
        };
        assert_eq!(hex(&from), "ac0202010700");
        assert_eq!(
            hex(&Outcome {
                done: 2,
                failed: None,
                verifier: 300,
            }),
            "0200ac02"
        );
        assert_eq!(
            hex(&Wipe {
                object: ObjectId(7),
                below: Some(2)
            }),
            "070102"
        );
        let codecs = [
            Codec::None,
            Codec::Lz4,
            Codec::Deflate(6),
            Codec::Zstd(-1),
            Codec::ShuffleZstd(3),
            Codec::ShuffleDeflate(1),
            Codec::ShuffleLz4,
        ];
        assert_eq!(hex(&codecs), "0001020603010406050106");
        let name = ChunkName::Free(ChunkId(9));
        for (error, bytes) in [
            (StoreError::NoSpace, "00"),
            (StoreError::Missing(name.clone()), "010009"),
            (
                StoreError::Damaged {
                    name,
                    detail: "x".into(),
                },
                "0200090178",
            ),
            (
                StoreError::Unavailable {
                    server: ServerId(1),
                    addr: "a".into(),
                    detail: "x".into(),
                },
                "030101610178",
            ),
            (StoreError::Deadline, "04"),
            (StoreError::Invalid("x".into()), "050178"),
            (
                StoreError::Io {
                    what: "w".into(),
                    detail: "x".into(),
                    errno: Some(5),
                },
                "0601770178010a",
            ),
            (StoreError::Protocol("x".into()), "070178"),
            (
                StoreError::Locked {
                    dir: "d".into(),
                    holder: Some(5),
                },
                "0801640105",
            ),
            (StoreError::Fenced(SessionId(300)), "09ac02"),
            (StoreError::Superseded, "0a"),
        ] {
            assert_eq!(hex(&error), bytes, "{error}");
        }
    }
}
