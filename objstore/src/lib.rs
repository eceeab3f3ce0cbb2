//! The object store: arrays in, bytes out.
//!
//! This crate keeps *chunks*: boxes of cells, each stored whole on one data server, with a codec and
//! checksums. It knows nothing of names, dims or tilings; that is the metadata service's.
//!
//! - [`name`], [`addr`], [`error`], [`Moment`]: what everything here speaks of.
//! - [`codec`] and [`checksum`]: pure functions over bytes.
//! - [`store`]: the [`ChunkStore`] trait, the engine over a local directory, and the conformance suite.
//! - `cut`: parts of what is too large for one message or one look.
//! - `batch`: the bytes of nested strided requests on their way out of chunks and into them.
//! - [`wire`]: frames and connections, used by the metadata service as well.
//! - [`server`]: a data server: a chunk store behind a listener.
//! - [`client`]: all data servers a mount knows, and the fan-out over them.

pub mod addr;
mod batch;
pub mod checksum;
pub mod client;
pub mod codec;
mod cut;
pub mod error;
mod fill;
mod moment;
pub mod name;
pub mod server;
pub mod store;
pub mod wire;

pub use addr::Addr;
pub use error::StoreError;
pub use moment::Moment;
pub use name::{ChunkForm, ChunkName};
pub use store::ChunkStore;
