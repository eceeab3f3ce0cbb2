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
//! [`ChunkStore`]: crate::store::ChunkStore

mod batch;
mod blank;
mod check;
mod epochs;
mod fence;
mod handler;
mod heart;
#[cfg(test)]
pub(crate) mod memory;
mod orders;
mod puts;
mod read;
mod same_host;
mod tally;
#[cfg(test)]
mod tests;

pub use fence::Fence;
pub use handler::DataServer;
pub use heart::{Heart, HeartOptions};
pub use orders::{Alive, Registrar, Retire, ServerOrders, ServerReport};
