//! A data server: a chunk store behind a listener.
//!
//! - [`DataServer`]: answers the messages of [`crate::wire::messages`] from any [`ChunkStore`].
//!   Whatever comes off the wire is checked against the limits of the model before the store sees it;
//! - [`Heart`]: tells the metadata service, through a [`Registrar`], that this server is there and how
//!   much room it has, and carries out the deletions it is told;
//! - [`Fence`]: refuses sessions that are over what would change grid chunks; `epochs` what a living one has given up.
//!
//! Data servers call nobody on the path of a request.
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
