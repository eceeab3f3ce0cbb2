//! A data server: a chunk store behind a listener.
//!
//! - [`DataServer`]: answers the messages of [`crate::wire::messages`] from any [`ChunkStore`].
//!   Requests are checked against the limits of the model before the store sees them;
//! - [`Heart`]: sends heartbeats to the metadata service through a [`Registrar`]: registration, free space, and the
//!   deletions that the replies order;
//! - [`Fence`]: refuses changes of grid chunks by sessions that are over. `epochs` refuses late requests that a live
//!   session has given up.
//!
//! While it serves a request, a data server calls no other server.
//!
//! # Parts of chunks
//!
//! Plain requests and batches are messages of their own, and behind decoding one path. A plain part is a slab of a
//! chunk, a batch selects pieces of several such slabs; both are listed, checked and counted before anything is done:
//!
//! - **reads** (`read` decodes READ, `batch` READ_BATCH): few bytes of slabs are read before the reply begins, and large
//!   slabs of immutable chunks are sent out of their files (`in_file`) or mappings. Everything else is read while it
//!   is sent (`sending`): the one place that cuts into parts, flushes, and reports errors behind the bytes;
//! - **writes** (`write`): a WRITE is a WRITE_BATCH without batches. Pieces come first, then batches, in order until one
//!   fails. Large complete chunks are written to their files as they arrive (`puts`), or by the client (`blank`).
//!
//! [`ChunkStore`]: crate::store::ChunkStore

mod batch;
mod blank;
mod check;
mod epochs;
mod fence;
mod handler;
mod heart;
mod in_file;
#[cfg(test)]
pub(crate) mod memory;
mod orders;
mod puts;
mod read;
mod same_host;
mod sending;
mod tally;
#[cfg(test)]
mod tests;
mod write;

pub use fence::Fence;
pub use handler::DataServer;
pub use heart::{Heart, HeartOptions};
pub use orders::{Alive, Registrar, Retire, ServerOrders, ServerReport};
