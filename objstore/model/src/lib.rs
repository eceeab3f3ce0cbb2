//! The data model of slabfs, pure: the shape and type of an array, selections of it, and how it is cut into chunks.
//!
//! Everything here is a plain value or a plain function: no I/O, no threads, no clock, no `unsafe`. Text that users
//! write (`dtype`, `dims`, `fill`, `layout`, `codec`, selections, tags) is parsed only here, and the errors state
//! what was wrong and what to write instead.
//!
//! Coordinates above `fs/view` are elements; below it everything is counted in **cells**: the dims of the object with
//! the last axis counted in bytes ([`Space::cells`]). Order is row-major throughout.
//!
//! Deliberately elsewhere: stored bytes (`slabfs-objstore`), metadata (`slabfs-mdserver`).

#![cfg_attr(test, allow(clippy::unwrap_used))]

// Offsets into buffers are u64 everywhere; the casts to usize in `copy` lose nothing on 64 bits.
const _: () = assert!(usize::BITS == 64, "slabfs needs a 64-bit machine");

mod box_set;
mod codec;
mod copy;
mod couple;
mod dims;
mod dtype;
mod fill;
mod hyperslab;
mod ids;
mod layout_name;
#[cfg(test)]
mod naive;
mod region;
mod selection;
mod space;
mod span;
mod tag;

pub mod batch;
pub mod chunk_stream;
pub mod layout;

pub use box_set::{BoxSet, Unfit};
pub use codec::{Codec, CodecError};
pub use copy::{fill_slab, fill_slab_at, for_each_run, gather, scatter};
pub use couple::{Couple, CoupleError, Coupling, End, Full, Keep, MAX_COUPLE, MAX_MATCHERS};
pub use dims::{DimsError, MaxDim, format_dims, format_max_dims, parse_dims, parse_max_dims};
pub use dtype::{ByteOrder, DType, DTypeError, DTypeKind};
pub use fill::{Fill, FillError};
pub use hyperslab::{Axis, Cut, Hyperslab, intersect};
pub use ids::{ChunkId, ObjectId, ServerId, SessionId, ShardId, Version};
pub use layout::placement::{Placement, PlacementError};
pub use layout_name::{Layout, LayoutError};
pub use region::Region;
pub use selection::{Selection, SelectionError};
pub use space::{GeometryError, MAX_BYTES, MAX_RANK, Space};
pub use span::{Span, Spans};
pub use tag::{
    Elem, Exact, MAX_TAG_KEY, MAX_TAG_LIST, MAX_TAG_VALUE, Num, Tag, TagError, TagKind, Value,
    bare_key, check_tag_key, hex, unhex,
};

/// One number for each axis: dims, an offset, a shape. Four axes fit without a heap allocation.
pub type Coords = smallvec::SmallVec<[u64; 4]>;
