//! The pieces that callers of [`Servers`](super::Servers) ask it to read, write and manage. Those to manage are
//! serialized as the items of their messages: without the server, which is the receiver.

use std::io::IoSlice;

use serde::Serialize;
use slabfs_model::{Hyperslab, ServerId};

use crate::name::{ChunkForm, ChunkName};

/// Cells to read.
#[derive(Debug)]
pub struct ReadPiece<'a> {
    /// The chunk's server.
    pub server: ServerId,
    /// The chunk.
    pub name: &'a ChunkName,
    /// Its form.
    pub form: &'a ChunkForm,
    /// The cells, in the chunk's coordinates.
    pub slab: &'a Hyperslab,
    /// Where they go, packed; exactly as long as the slab has cells.
    pub out: &'a mut [u8],
    /// Set by the read: `false` where there is no such chunk. `out` is then unspecified.
    pub found: bool,
}

/// Cells to write.
#[derive(Debug, Clone, Copy)]
pub struct WritePiece<'a> {
    /// The chunk's server.
    pub server: ServerId,
    /// The chunk.
    pub name: &'a ChunkName,
    /// Its form.
    pub form: &'a ChunkForm,
    /// How the cells enter the chunk.
    pub kind: WriteKind<'a>,
    /// The cells, packed, one slice after the other.
    pub data: &'a [IoSlice<'a>],
}

/// How cells enter a chunk.
#[derive(Debug, Clone, Copy)]
pub enum WriteKind<'a> {
    /// They are a complete immutable chunk.
    Put,
    /// They are a complete immutable chunk, encoded.
    PutEncoded,
    /// They follow what an unsealed chunk already has.
    Append {
        /// Their packed offset in the chunk.
        at: u64,
    },
    /// They replace these cells of a grid chunk.
    Write(&'a Hyperslab),
}

/// A chunk to seal.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SealPiece<'a> {
    /// The chunk's server.
    #[serde(skip)]
    pub server: ServerId,
    /// The chunk.
    pub name: &'a ChunkName,
    /// Its final form.
    pub form: &'a ChunkForm,
}

/// A grid chunk to clip.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ClipPiece<'a> {
    /// The chunk's server.
    #[serde(skip)]
    pub server: ServerId,
    /// The chunk.
    pub name: &'a ChunkName,
    /// Its form.
    pub form: &'a ChunkForm,
    /// The first cell that becomes fill, for each axis.
    pub keep: &'a [u64],
}

/// Cells of a grid chunk that become fill.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PunchPiece<'a> {
    /// The chunk's server.
    #[serde(skip)]
    pub server: ServerId,
    /// The chunk.
    pub name: &'a ChunkName,
    /// Its form.
    pub form: &'a ChunkForm,
    /// The cells.
    pub slab: &'a Hyperslab,
}

/// The bytes of all slices together.
pub(super) fn bytes(data: &[IoSlice<'_>]) -> u64 {
    data.iter().map(|s| s.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use slabfs_model::{ChunkId, Codec, Fill};

    use super::*;
    use crate::wire::messages::{ClipItem, PunchItem, SealItem};

    #[test]
    fn pieces_are_sent_as_the_items_of_their_messages() {
        fn bytes(value: &impl Serialize) -> Vec<u8> {
            postcard::to_allocvec(value).unwrap()
        }
        let (server, name) = (ServerId(7), ChunkName::Free(ChunkId(300)));
        let form = ChunkForm {
            shape: [3, 5].into_iter().collect(),
            elem: 1,
            codec: Codec::ShuffleLz4,
            fill: Fill::from_bytes(&[9]),
        };
        let (slab, keep) = (Hyperslab::all(&form.shape), [1, 2]);
        let (name, form, slab, keep) = (&name, &form, &slab, &keep[..]);
        assert_eq!(
            bytes(&SealPiece { server, name, form }),
            bytes(&SealItem {
                name: name.clone(),
                form: form.clone()
            })
        );
        assert_eq!(
            bytes(&ClipPiece {
                server,
                name,
                form,
                keep
            }),
            bytes(&ClipItem {
                name: name.clone(),
                form: form.clone(),
                keep: keep.into()
            })
        );
        assert_eq!(
            bytes(&PunchPiece {
                server,
                name,
                form,
                slab
            }),
            bytes(&PunchItem {
                name: name.clone(),
                form: form.clone(),
                slab: slab.clone()
            })
        );
    }
}
