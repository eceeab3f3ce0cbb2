//! Chunks in an object store (S3 and what speaks its protocol).
//!
//! A data server over a bucket has an *identity*: a prefix in the bucket, below which is all that it has acknowledged as
//! durable. Its directory is a cache. A process that takes over the identity, on any machine, has all its chunks.
//!
//! - [`S3Store`]: the [`ChunkStore`](slabfs_objstore::ChunkStore). Chunks are written to a local store, the cache; a sync
//!   uploads those it names, and reads fetch what the cache has not.
//! - `segment`: what an upload writes: one object with small chunks, blocks of grid chunks and deletions, packed, behind a
//!   table. Large immutable chunks are objects of their own.
//! - `index`: where each chunk is; built from the segments' tables, and stored itself now and then.
//! - `merge`: small segments, and those of which little is used, become new ones.
//! - `journal`: what is in the cache, for the next process; `reuse`: what that one takes over.
//! - `fetch`: what a call needs comes into the cache; `change`: what a call changes there.
//! - `chunks`: the calls of the trait; `owner`: which process has the identity.
//! - `bucket`: requests with deadlines and counters.
//!
//! Invariants:
//! 1. Objects are created once and never changed (`If-None-Match: *`). Segments are numbered without gaps: of two processes
//!    that write for the same identity one fails at the next number, and stops. So a process that was replaced can
//!    acknowledge nothing.
//! 2. A chunk is durable when the segment that names it is in the bucket.
//! 3. An object is deleted when nothing in the stored index refers to it.
//!
//! `docs/formats/s3.md` has the keys and bytes, `docs/decisions/32-s3.md` the reasons.

mod address;
mod bucket;
mod cache;
mod change;
mod chunks;
mod fetch;
mod index;
mod inspect;
mod journal;
mod merge;
mod owner;
mod reuse;
mod segment;
mod store;
#[cfg(test)]
mod tests;
mod upload;

pub use address::{Durability, S3Addr};
pub use bucket::{Bucket, BucketCounts};
pub use inspect::Objects;
pub use store::{S3Options, S3Store, Uploads, find_uuid, has_chunks, uuid_of};
